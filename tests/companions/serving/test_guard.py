"""Limits: bodies that are too large or come too slowly, answers that take too long, more than may wait."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mltrainer.companions.serving.guard import Guard, Limits
from mltrainer.companions.serving.predictor import Predictor
from tests.companions.serving.conftest import ROW, asking


def sent_in(parts: list[bytes], limits: Limits, pause: float = 0.0, head: list[tuple[bytes, bytes]] | None = None) -> list[Any]:
    """Return what a guard sends, and what it let through to the application, for a body that comes in parts."""
    told: list[Any] = []
    rest = [{"type": "http.request", "body": part, "more_body": number + 1 < len(parts)} for number, part in enumerate(parts)]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        told.append(("app", (await receive())["body"]))

    async def receive() -> Any:
        await asyncio.sleep(pause)
        return rest.pop(0) if rest else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        told.append(message)

    scope = {"type": "http", "path": "/predict", "method": "POST", "headers": [(b"host", b"127.0.0.1"), *(head or [])]}
    asyncio.run(Guard(app, limits, None)(scope, receive, send))
    return told


def test_a_body_that_comes_in_parts_is_whole_for_the_application():
    assert sent_in([b"ab", b"", b"cd"], Limits(bytes=4)) == [("app", b"abcd")]


@pytest.mark.parametrize("parts", [[b"abcde"], [b"abc", b"de"], [b"a"] * 5])
def test_a_body_larger_than_may_be_is_refused_before_all_of_it_came(parts):
    start, body = sent_in([*parts, b"more"], Limits(bytes=4))
    assert start["status"] == 413
    assert b"at most 4 bytes" in body["body"]


def test_a_body_that_says_it_is_too_large_is_not_read():
    start, _ = sent_in([b"a"], Limits(bytes=4, seconds=0.5), pause=5, head=[(b"content-length", b"5")])
    assert start["status"] == 413


def test_a_body_that_does_not_come_in_time_is_refused():
    begun = time.monotonic()
    start, body = sent_in([b"a", b"b"], Limits(seconds=0.2), pause=0.15)
    assert start["status"] == 408
    assert b"did not arrive within 0.2 s" in body["body"]
    assert time.monotonic() - begun < 2


def test_an_answer_that_takes_too_long_and_more_than_may_wait_are_told(table, monkeypatch):
    free = threading.Event()

    def held(_: Predictor, requests: Sequence[Any]) -> list[Any]:
        free.wait(10)
        return [[] for _ in requests]

    monkeypatch.setattr(Predictor, "work", held)
    with asking(table, Limits(seconds=0.5, waiting=2)) as client, ThreadPoolExecutor(6) as many:
        asked = [many.submit(client.post, "/predict", json={"rows": [ROW]}) for _ in range(6)]
        said = [one.result() for one in asked]
        assert client.get("/health").status_code == 200
        free.set()
    assert {one.status_code for one in said} == {503}
    assert {one.json()["what"] for one in said} == {
        "the model gave no answer within 0.5 s",
        "more than 2 rows wait: ask again later",
    }
    assert said[0].headers["retry-after"] == "1"


TOKEN = "a-token-of-twenty-letters"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
PATHS = ("/", "/health", "/ready", "/form.js", "/style.css", "/card", "/predict", "/continue", "/labels", "/openapi.json", "/x")


def asked(method: str, path: str, token: str | None, given: str | None = None, **head: str) -> tuple[int, int]:
    """Return the status of an answer to a request, and how many bytes of its endless body were read."""
    status, read = [0], [0]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> Any:
        read[0] += 1 << 10
        return {"type": "http.request", "body": b"x" * (1 << 10), "more_body": True}

    async def send(message: Any) -> None:
        status[0] = message.get("status", status[0])

    told = {"host": "127.0.0.1:8000", **({"authorization": f"Bearer {given}"} if given else {}), **head}
    headers = [(name.encode(), value.encode("latin-1")) for name, value in told.items()]
    scope = {"type": "http", "path": path, "raw_path": path.encode(), "query_string": b"", "method": method, "headers": headers}
    asyncio.run(Guard(app, Limits(bytes=4 << 10), token)(scope, receive, send))
    return status[0], read[0]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", METHODS)
def test_nothing_of_a_body_is_read_before_the_token_and_no_more_than_may_be_after_it(method, path):
    is_open = method in ("GET", "HEAD") and path in PATHS[:5]
    assert asked(method, path, TOKEN) == ((413, 1 << 10) if is_open else (401, 0))
    assert asked(method, path, TOKEN, "another") == ((413, 1 << 10) if is_open else (401, 0))
    status, read = asked(method, path, TOKEN, TOKEN)
    assert (status, read <= 5 << 10) == (413, True)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        *(({"host": host}, 421) for host in ("localhost:9@evil", "localhost.evil", "127.0.0.1:", "[::1]evil", "evil", "")),
        *(({"host": host}, 421) for host in ("127.0.0.1:8000:9", "127.0.0.1 ", "localhost/", "127.1", "0.0.0.0", "[::1", "::1")),
        *(({"host": host}, 413) for host in ("localhost", "LOCALHOST:80", "[::1]:65535", "127.0.0.1")),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9"}, 403),
        ({"origin": "http://127.0.0.1:8000"}, 413),
        ({"x": "x" * 20_000}, 431),
    ],
)
def test_without_a_token_only_this_machine_and_its_own_pages_are_answered(head, status):
    found, read = asked("POST", "/predict", None, **head)
    assert (found, read > 0) == (status, status == 413)


@pytest.mark.slow
def test_all_bodies_together_have_a_limit():
    """A hundred requests whose bodies never end would each be allowed the whole of one."""
    most = Limits(bytes=1 << 10, seconds=1)
    told: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError

    async def send(message: Any) -> None:
        told.append(message.get("status", 0))

    async def one(guard: Guard) -> None:
        parts = [{"type": "http.request", "body": b"x" * 1000, "more_body": True}]

        async def receive() -> Any:
            return parts.pop() if parts else await asyncio.Event().wait()

        scope = {"type": "http", "path": "/predict", "method": "POST", "headers": [(b"host", b"localhost")]}
        await guard(scope, receive, send)

    async def all_of_them() -> None:
        guard = Guard(app, most, None)
        await asyncio.gather(*(one(guard) for _ in range(100)))
        assert guard._held == 0

    asyncio.run(all_of_them())
    assert (told.count(503), told.count(408)) == (92, 8)
