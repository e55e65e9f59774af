"""Limits: bodies that are too large or come too slowly, answers that take too long, more than may wait."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mltrainer.serving.guard import Guard, Limits
from mltrainer.serving.predictor import Predictor
from tests.serving.conftest import ROW, asking


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


def test_a_body_that_comes_in_parts_is_whole_for_the_application() -> None:
    assert sent_in([b"ab", b"", b"cd"], Limits(bytes=4)) == [("app", b"abcd")]


@pytest.mark.parametrize("parts", [[b"abcde"], [b"abc", b"de"], [b"a"] * 5])
def test_a_body_larger_than_may_be_is_refused_before_all_of_it_came(parts: list[bytes]) -> None:
    start, body = sent_in([*parts, b"more"], Limits(bytes=4))
    assert start["status"] == 413
    assert b"at most 4 bytes" in body["body"]


def test_a_body_that_says_it_is_too_large_is_not_read() -> None:
    start, _ = sent_in([b"a"], Limits(bytes=4, seconds=0.5), pause=5, head=[(b"content-length", b"5")])
    assert start["status"] == 413


def test_a_body_that_does_not_come_in_time_is_refused() -> None:
    begun = time.monotonic()
    start, body = sent_in([b"a", b"b"], Limits(seconds=0.2), pause=0.15)
    assert start["status"] == 408
    assert b"did not arrive within 0.2 s" in body["body"]
    assert time.monotonic() - begun < 2


def test_an_answer_that_takes_too_long_and_more_than_may_wait_are_told(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        "there was no answer within 0.5 s",
        "more than 2 rows wait already: ask again later",
    }
    assert said[0].headers["retry-after"] == "1"
