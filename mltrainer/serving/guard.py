"""What stands before the application: who may ask, how large a request may be and how long it may take to arrive."""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mltrainer.page_headers import page_headers
from mltrainer.serving.admission import LOOPBACK

OPEN = ("/", "/health", "/ready", "/form.js", "/style.css")  # what is sent to anybody: it holds nothing of the model's inputs
HEADERS = page_headers("script", "style", "connect")


@dataclass(frozen=True)
class Limits:
    """What a client may ask of the server; the numbers are chosen by us.

    Attributes:
        rows: Rows of one request.
        bytes: Of its body.
        seconds: For its body to arrive, and then for its answer.
        waiting: Rows that may wait for the model.
    """

    rows: int = 1000
    bytes: int = 8 << 20
    seconds: float = 30.0
    waiting: int = 10_000


MOST_TOLD = 400  # characters of a fault: what a client sent is not sent back whole


class RefusedError(Exception):
    """A request that is not answered.

    Args:
        status: The HTTP status.
        where: The part of the request.
        what: What was expected and what was found.
    """

    def __init__(self, status: int, where: str, what: str) -> None:
        super().__init__(what)
        self.status, self.where, self.what = status, where[:MOST_TOLD], what[:MOST_TOLD]

    def response(self) -> JSONResponse:
        """Return the response to the client."""
        headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}.get(self.status)
        return JSONResponse({"where": self.where, "what": self.what}, self.status, headers)


class Guard:
    """Lets a request through to the application once it is known to be allowed, and its whole body is here.

    Args:
        app: The application.
        limits: What a client may ask.
        token: What each request must bring as `Authorization: Bearer TOKEN`; None: only this machine asks, which its Host shows.
    """

    def __init__(self, app: ASGIApp, limits: Limits, token: str | None) -> None:
        self._app, self._limits, self._token = app, limits, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            self._admit(scope["path"], Headers(scope=scope))
            body = await self._body(Headers(scope=scope), receive)
        except RefusedError as refused:
            await refused.response()(scope, receive, with_headers)
            return
        await self._app(scope, _replayed(body, receive), with_headers)

    def _admit(self, path: str, headers: Headers) -> None:
        """Refuse who may not ask.

        Raises:
            RefusedError: There is no such token; or, without one, another site's name was used for this machine.
        """
        if self._token is None:
            # A page of another site, whose name was pointed at this machine, sends its own.
            if _host_of(headers.get("host", "")) not in LOOPBACK:
                raise RefusedError(421, "header Host", "this server answers on this machine alone, as 127.0.0.1 or localhost")
            return
        given = headers.get("authorization", "").removeprefix("Bearer ")
        # In constant time, so that its duration reveals nothing.
        if path not in OPEN and not hmac.compare_digest(given.encode(), self._token.encode()):
            raise RefusedError(401, "header Authorization", "expected Bearer and the token that this server was started with")

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """Return the whole body.

        Raises:
            RefusedError: It is too large, or did not come in time.
        """
        most = self._limits.bytes
        said = headers.get("content-length", "0")
        if said.isdecimal() and int(said[:20]) > most:
            raise RefusedError(413, "body", f"at most {most} bytes are read, found {said[:20]}")
        try:
            async with asyncio.timeout(self._limits.seconds):
                return await _whole(receive, most)
        except TimeoutError:
            raise RefusedError(408, "body", f"it did not arrive within {self._limits.seconds:g} s") from None


async def _whole(receive: Receive, most: int) -> bytes:
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), message.get("more_body", False)
        if size > most:
            raise RefusedError(413, "body", f"at most {most} bytes are read, found more")
    return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return the receiving end for the application: a body that was read already, and then the client's other messages."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def give() -> Message:
        return parts.pop() if parts else await receive()

    return give


def _host_of(header: str) -> str:
    """Return the host of a Host header without its port."""
    return header[1:].partition("]")[0] if header.startswith("[") else header.partition(":")[0].lower()
