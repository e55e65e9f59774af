"""The server's addresses: predictions, labels, the model's card, health, and a form for people."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

import mltrainer
from mltrainer.checkpointing.inference_script import BATCH, InvalidInputError
from mltrainer.companions.serving import contract
from mltrainer.companions.serving.admission import Admitted
from mltrainer.companions.serving.batching import Batches, BusyError
from mltrainer.companions.serving.guard import Guard, Limits, RefusedError
from mltrainer.companions.serving.keeping import Keeping
from mltrainer.companions.serving.page import form_page
from mltrainer.companions.serving.predictor import NOTHING, Answers, Generator, Predictor, Rows
from mltrainer.companions.serving.store import Place
from mltrainer.workspace import from_json


class StrictRequest(Request):
    """A request whose body is read as strict JSON."""

    async def json(self) -> Any:
        """Return the body's value.

        Raises:
            HTTPException: The body is not JSON, or names a key twice. (FastAPI would replace the message of another error.)
        """
        try:
            return from_json((await self.body()).decode("utf-8"), _once)
        except UnicodeDecodeError as error:
            raise HTTPException(400, f"expected UTF-8, found another byte at {error.start}") from None
        except ValueError as error:
            raise HTTPException(400, f"expected JSON: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {next(name for name in names if names.count(name) > 1)[:60]!r} is twice in one object")
    return values


class StrictRoute(APIRoute):
    """A route whose requests are strict; other types than JSON are refused."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of strict requests."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if request.method == "POST" and kind != "application/json":
                raise RefusedError(415, "header Content-Type", f"expected application/json, found {kind[:60] or 'none'}")
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


FAULTS: dict[int | str, dict[str, Any]] = {
    code: {"model": contract.Fault, "description": words}
    for code, words in {
        400: "The body is not JSON.",
        401: "The token is missing or wrong.",
        403: "The request comes from a page of another site.",
        408: "The body did not arrive in time.",
        413: "The body is too large.",
        415: "The body's type is not JSON.",
        422: "The model cannot read the rows.",
        431: "The head is too large.",
        503: "Too many requests wait, or the answer took too long.",
    }.items()
}
_PLACE = re.compile(r"row (\d+)(?:, column (.+?))?: (.*)", re.DOTALL)
STATIC = {"form.js": "text/javascript", "token.js": "text/javascript", "style.css": "text/css"}


class Service:
    """A model that answers requests, concurrent ones in one batch.

    Args:
        admitted: The admitted model.
        model: The model in memory.
        limits: Limits of requests.
        keeping: Database for its answers; None: they are not kept.
    """

    def __init__(self, admitted: Admitted, model: Predictor | Generator, limits: Limits, keeping: Keeping | None = None) -> None:
        self.admitted, self.model, self.limits, self.keeping = admitted, model, limits, keeping
        self._identity = admitted.identity.model_dump()
        self._batches: Batches[Any, Any] = Batches(model.work, BATCH, limits.waiting)

    async def predict(self, rows: Rows) -> dict[str, Any]:
        """Return the answer to a request.

        Raises:
            RefusedError: The model cannot read the rows, too many requests wait, or the answer takes too long.
        """
        with self._refusals():
            async with asyncio.timeout(self.limits.seconds):
                return await self._said(rows, await self.model.answer(rows, self._batches.ask))

    async def parts(self, row: contract.Chat | contract.Prompt) -> AsyncIterator[dict[str, Any]]:
        """Yield the parts of a continuation as they come, and then the whole answer.

        Raises:
            RefusedError: The same cases as in `predict`.
        """
        assert isinstance(self.model, Generator)
        answers: Answers = [NOTHING]
        with self._refusals():
            async for part, answer in self.model.steps(row, self._ask):
                answers = [answer]
                yield {"part": part}
            whole = await self._said([row], answers)
        yield whole

    async def _ask(self, item: Any, size: int) -> Any:
        async with asyncio.timeout(self.limits.seconds):
            return await self._batches.ask(item, size)

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except InvalidInputError as error:
            raise _unreadable(error) from None
        except BusyError:
            raise RefusedError(503, "server", f"more than {self.limits.waiting} rows wait: ask again later") from None
        except TimeoutError:
            raise RefusedError(503, "server", f"the model gave no answer within {self.limits.seconds:g} s") from None

    async def _said(self, rows: Rows, answers: Answers) -> dict[str, Any]:
        """Return the response, after its answers were kept if they are to be."""
        name = uuid.uuid4().hex
        if self.keeping is not None:
            await self.keeping.keep(name, rows, answers, self.admitted.identity)
        return {"id": name, "answers": answers, "model": self._identity}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve for the length of a block; its end answers and keeps the waiting requests."""
        async with contextlib.AsyncExitStack() as ending:
            if self.keeping is not None:
                await ending.enter_async_context(self.keeping.running())
            yield
            await self._batches.close()


def _unreadable(error: InvalidInputError) -> RefusedError:
    """Return the refusal of rows that the model cannot read; the script's message counts rows from 1."""
    place = _PLACE.match(str(error))
    if place is None:
        return RefusedError(422, "rows", str(error))
    row, column, what = place.groups()
    return RefusedError(422, f"rows[{int(row) - 1}]" + (f".{column[1:-1]}" if column else ""), what)


def application(service: Service, token: str | None = None) -> Callable[..., Any]:
    """Return the ASGI application.

    Args:
        service: The model's service.
        token: Token that requests need; None: none is needed, and only this machine may ask.
    """

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    identity = service.admitted.identity
    app = FastAPI(
        title=identity.name,
        version=identity.run or mltrainer.__version__,
        summary="A model that mltrainer delivered.",
        docs_url=None,  # it would load scripts from another site
        redoc_url=None,
        lifespan=lifespan,
        responses=FAULTS,
    )
    app.router.route_class = StrictRoute
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _elsewhere)
    app.add_exception_handler(Exception, _failed)
    _add_predictions(app, service)
    _add_pages(app, service, needs_token=token is not None)
    if service.keeping is not None:
        _add_labels(app, service, service.keeping)
    return Guard(app, service.limits, token)


def _add_predictions(app: FastAPI, service: Service) -> None:
    spec = service.admitted.spec
    request_type: Any = contract.request_of(service.model.row, service.limits.rows)

    async def predict(request: Any) -> Response:
        return sent(await service.predict(request.rows))

    predict.__annotations__["request"] = request_type
    summary = "Answers for some rows, each as `mltrainer predict` gives it."
    app.post("/predict", response_model=contract.response_of(spec), description=summary)(predict)
    if not isinstance(service.model, Generator):
        return

    async def continue_(prompt: Any) -> Response:
        parts = service.parts(prompt)
        # Before the stream begins: a bad prompt is refused like any other request.
        first = await anext(parts)
        return EventStream(_events(first, parts))

    continue_.__annotations__["prompt"] = service.model.row
    words = "A continuation of a text, or an answer to a conversation, sent part by part."
    app.post("/continue", response_class=EventStream, description=words)(continue_)


def _add_labels(app: FastAPI, service: Service, keeping: Keeping) -> None:
    labels_type: Any = contract.labels_of(service.admitted.spec, service.limits.rows)

    async def labels(request: Any) -> Response:
        given = [(Place(one.id, one.row), contract.truth_of(one.label)) for one in request.labels]
        for place in await keeping.label(given):
            where = f"labels[{[known for known, _ in given].index(place)}]"
            raise RefusedError(422, where, f"no answer {place.id} to a row {place.row} was kept")
        return sent({"kept": len(given)})

    labels.__annotations__["request"] = labels_type
    app.post("/labels", response_model=dict[str, int], description="True labels of answers, by the answers' ids.")(labels)


class EventStream(StreamingResponse):
    """Server-sent events."""

    media_type = "text/event-stream"


async def _events(first: dict[str, Any], others: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """Yield an event for each part; an error on the way is the last event."""
    yield _event(first)
    try:
        async for part in others:
            yield _event(part)
    except RefusedError as refused:
        yield _event({"where": refused.where, "what": refused.what})


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _add_pages(app: FastAPI, service: Service, needs_token: bool) -> None:
    @app.get("/health", description="Whether the server runs.")
    async def health() -> dict[str, str]:
        return {"state": "alive"}

    @app.get("/ready", description="Whether requests can be answered now.")
    async def ready() -> dict[str, str]:
        if service.keeping is not None and not await service.keeping.answers():
            raise RefusedError(503, "database", "the database does not answer, so that no answer can be kept")
        return {"state": "ready"}

    card = app.get("/card", response_class=PlainTextResponse, description="The model's card, as Markdown.")
    card(_constant(service.admitted.card, "text/markdown"))
    form = form_page(service.admitted)
    # A browser sends no token with an address: the first page asks for it, and fetches the form with it.
    app.get("/", include_in_schema=False)(_constant(_web("token.html") if needs_token else form, "text/html"))
    app.get("/form", include_in_schema=False)(_constant(form, "text/html"))
    for name, kind in STATIC.items():
        app.get(f"/{name}", include_in_schema=False)(_constant(_web(name), kind))


def _web(name: str) -> bytes:
    return (resources.files("mltrainer.companions.serving") / "web" / name).read_bytes()


def _constant(content: bytes | str, kind: str) -> Callable[[], Any]:
    async def give() -> Response:
        return Response(content, media_type=kind)

    return give


def sent(value: dict[str, Any]) -> Response:
    """Return a value as JSON, without FastAPI's serialization, which would validate each number again."""
    return Response(json.dumps(value, ensure_ascii=False, allow_nan=False).encode(), media_type="application/json")


# --- what cannot be answered ----------------------------------------------------------------------


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return error.response()


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults: Sequence[Any] = error.errors()
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return RefusedError(422, contract.where_of(faults[0]["loc"]), contract.what_of(faults[0]) + more).response()


async def _elsewhere(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = "body" if error.status_code == 400 else f"{request.method} {request.url.path}"[:200]
    words = {
        404: "unknown address: /openapi.json lists the known ones",
        405: "wrong method: /openapi.json lists the address's methods",
    }
    response = RefusedError(error.status_code, where, words.get(error.status_code, error.detail)).response()
    response.headers.update(error.headers or {})
    return response


async def _failed(request: Request, _: Exception) -> Response:
    """Return the response to a failure of the server, without the traceback, which its log has."""
    return JSONResponse({"where": request.url.path, "what": "the server failed; its log has the reason"}, 500)
