"""Requests whose JSON means one thing: UTF-8, no name twice, no number that is none."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from mltrainer.serving.guard import RefusedError
from mltrainer.workspace import from_json


class StrictRequest(Request):
    """A request whose body is read as JSON by our rules."""

    async def json(self) -> Any:
        """Return the body's value.

        Raises:
            HTTPException: It is no JSON, or not of one meaning. (In place of another error FastAPI tells words of its own.)
        """
        try:
            return from_json((await self.body()).decode("utf-8"), _once)
        except UnicodeDecodeError as error:
            raise HTTPException(400, f"expected UTF-8, found another byte at {error.start}") from None
        except ValueError as error:
            raise HTTPException(400, f"expected JSON: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {next(name for name in names if names.count(name) > 1)[:60]!r} stands twice in one object")
    return found


class StrictRoute(APIRoute):
    """A route whose requests are strict, and refused where their type is not JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, given a strict request."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if request.method == "POST" and kind != "application/json":
                raise RefusedError(415, "header Content-Type", f"expected application/json, found {kind[:60] or 'none'}")
            return await handler(StrictRequest(request.scope, request.receive))

        return strict
