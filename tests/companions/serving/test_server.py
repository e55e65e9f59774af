"""Where a server listens, and for how long it waits."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from mltrainer.companions.serving import server
from mltrainer.companions.serving.predictor import Predictor
from mltrainer.companions.serving.server import address_of, listening
from mltrainer.errors import MachineError
from tests.companions.serving.conftest import ROW, listening_at


def test_a_free_port_is_found_and_a_taken_one_is_told():
    with listening("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert address_of(first) == f"http://127.0.0.1:{port}/"
        with pytest.raises(MachineError, match=r"[Aa]ddress already in use") as taken, listening("127.0.0.1", port):
            pass
    assert taken.value.where == f"127.0.0.1:{port}"


def test_an_address_of_another_machine_is_told():
    with pytest.raises(MachineError), listening("192.0.2.1", 0):
        pass


def test_connections_are_of_a_kind_on_which_asyncio_sends_at_once():
    """Measured: with another one an answer took 50 ms in place of 3, since its second packet waited."""
    with listening("127.0.0.1", 0) as found:
        with socket.create_connection(found.getsockname()) as _, found.accept()[0] as accepted:
            assert accepted.proto == socket.IPPROTO_TCP


def head_until_closed(url: str, pause: float, most: float = 10.0) -> tuple[bytes, float]:
    """Send a request's head byte by byte, and return what came back and the seconds until the connection was closed."""
    address = ("127.0.0.1", int(url.rstrip("/").rpartition(":")[2]))
    begun, found = time.monotonic(), b""
    with socket.create_connection(address, pause) as connection:
        while time.monotonic() - begun < most:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(b"G")
            try:
                if not (part := connection.recv(1000)):
                    break
                found += part
            except ConnectionResetError:
                break
            except TimeoutError:
                continue
    return found, time.monotonic() - begun


@pytest.mark.slow
def test_a_head_that_comes_too_slowly_ends_its_connection(table, monkeypatch):
    monkeypatch.setattr(server, "HEAD_S", 0.5)
    with listening_at(table) as url:
        found, seconds = head_until_closed(url, pause=0.05)
    assert found == b""
    assert 0.4 < seconds < 8


@pytest.mark.slow
def test_an_answer_may_take_longer_than_a_head(table, monkeypatch):
    def slow(self: Predictor, requests: Sequence[Any]) -> Sequence[Any]:
        time.sleep(1.5)
        return work(self, requests)

    work = Predictor.work
    monkeypatch.setattr(Predictor, "work", slow)
    monkeypatch.setattr(server, "HEAD_S", 1.0)
    with listening_at(table) as url:
        assert httpx.post(f"{url}predict", json={"rows": [ROW]}).status_code == 200
