"""Where a server listens."""

from __future__ import annotations

import socket

import pytest

from mltrainer.errors import MachineError
from mltrainer.serving.server import address_of, listening


def test_a_free_port_is_found_and_a_taken_one_is_told() -> None:
    with listening("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert address_of(first) == f"http://127.0.0.1:{port}/"
        with pytest.raises(MachineError, match=r"[Aa]ddress already in use") as taken, listening("127.0.0.1", port):
            pass
    assert taken.value.where == f"127.0.0.1:{port}"


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(MachineError), listening("192.0.2.1", 0):
        pass


def test_connections_are_of_a_kind_on_which_asyncio_sends_at_once() -> None:
    """Measured: with another one an answer took 50 ms in place of 3, since its second packet waited."""
    with listening("127.0.0.1", 0) as found:
        with socket.create_connection(found.getsockname()) as _, found.accept()[0] as accepted:
            assert accepted.proto == socket.IPPROTO_TCP
