"""Checks before the application: the client's rights, the request's size and the time it takes to arrive."""

from __future__ import annotations

import asyncio
import hmac
import re
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mltrainer.page_headers import page_headers

MOST_HEAD = 16 << 10  # bytes of a request's head; chosen by us, as many as nginx takes
MOST_BODIES = 8  # memory for bodies, in bodies of the largest size; chosen by us
HERE = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)  # a Host of this machine
READS = ("GET", "HEAD")  # methods whose requests have no body
OPEN = ("/", "/health", "/ready", "/form.js", "/token.js", "/style.css")  # sent without a token: nothing there is of the model
HEADERS = page_headers("script", "style", "connect")


@dataclass(frozen=True)
class Limits:
    """Limits of requests; the defaults are chosen by us.

    Attributes:
        rows: Largest number of rows in a request.
        bytes: Largest size of a request's body, in bytes.
        seconds: Longest time for the body to arrive, and again for the answer.
        waiting: Largest number of rows that wait for the model.
    """

    rows: int = 1000
    bytes: int = 8 << 20
    seconds: float = 30.0
    waiting: int = 10_000


MOST_MESSAGE = 400  # characters of a fault, so that a client's data is not sent back whole


class RefusedError(Exception):
    """A request that is not answered.

    Args:
        status: The HTTP status.
        where: The faulty part of the request.
        what: The expected and the found value, in words.
    """

    def __init__(self, status: int, where: str, what: str) -> None:
        super().__init__(what)
        self.status, self.where, self.what = status, where[:MOST_MESSAGE], what[:MOST_MESSAGE]

    def response(self) -> JSONResponse:
        """Return the response to the client."""
        headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}.get(self.status)
        return JSONResponse({"where": self.where, "what": self.what}, self.status, headers)


class Guard:
    """Passes a request to the application after its checks, with its whole body.

    Args:
        app: The application.
        limits: Limits of requests.
        token: Token that each request needs as `Authorization: Bearer TOKEN`; None: only this machine may ask, as its Host shows.
    """

    def __init__(self, app: ASGIApp, limits: Limits, token: str | None) -> None:
        self._app, self._limits, self._token = app, limits, token
        self._held = 0  # bytes of all bodies in memory

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

        bodies: list[bytes] = []
        try:
            self._admit(scope, Headers(scope=scope))
            await self._read(scope["method"], Headers(scope=scope), receive, bodies)
            await self._app(scope, _replayed(b"".join(bodies), receive), with_headers)
        except RefusedError as refused:
            await refused.response()(scope, receive, with_headers)
        finally:
            self._held -= sum(map(len, bodies))

    def _admit(self, scope: Scope, headers: Headers) -> None:
        """Refuse a request without the right to ask, before its body is read.

        Raises:
            RefusedError: The token is wrong; or, without one, the request names this machine by another site's name, or a page of
                another site asks; or the head is too large.
        """
        host = headers.get("host", "")
        given = headers.get("authorization", "").removeprefix("Bearer ")
        is_open = scope["path"] in OPEN and scope["method"] in READS
        if self._token is None:
            # A page of another site whose name points to this machine sends that name.
            if not HERE.fullmatch(host):
                raise RefusedError(421, "header Host", "this server answers only this machine, as 127.0.0.1 or localhost")
            if headers.get("origin", host).rpartition("/")[2] != host:
                raise RefusedError(403, "header Origin", "this server answers only its own pages")
        # In constant time, so that the duration reveals nothing about the token.
        elif not is_open and not hmac.compare_digest(given.encode(), self._token.encode()):
            raise RefusedError(401, "header Authorization", "expected Bearer and the server's token")
        size = len(scope.get("raw_path") or b"") + len(scope.get("query_string", b""))
        size += sum(len(name) + len(value) for name, value in scope["headers"])
        if size > MOST_HEAD:
            raise RefusedError(431, "head", f"expected at most {MOST_HEAD} bytes, found {size}")

    async def _read(self, method: str, headers: Headers, receive: Receive, into: list[bytes]) -> None:
        """Read the whole body.

        Raises:
            RefusedError: The body is too large or late, or too many others are in memory.
        """
        most = 0 if method in READS else self._limits.bytes
        said = headers.get("content-length", "0")
        if said.isdecimal() and int(said[:20]) > most:
            raise RefusedError(413, "body", f"expected at most {most} bytes, found {said[:20]}")
        try:
            async with asyncio.timeout(self._limits.seconds):
                await self._parts(receive, most, into)
        except TimeoutError:
            raise RefusedError(408, "body", f"the body did not arrive within {self._limits.seconds:g} s") from None

    async def _parts(self, receive: Receive, most: int, into: list[bytes]) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                break
            into.append(message.get("body", b""))
            size, more = size + len(into[-1]), message.get("more_body", False)
            self._held += len(into[-1])
            if size > most:
                raise RefusedError(413, "body", f"expected at most {most} bytes, found more")
            if self._held > MOST_BODIES * self._limits.bytes:
                raise RefusedError(503, "server", "too many large requests at a time: ask again later")


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return the application's receiving end: the body that was already read, and then the client's other messages."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def give() -> Message:
        return parts.pop() if parts else await receive()

    return give
