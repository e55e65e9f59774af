"""Listening: a socket, and uvicorn with what the application needs of it."""

from __future__ import annotations

import contextlib
import socket
from asyncio import TimerHandle, Transport
from collections.abc import Callable, Iterator
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mltrainer.companions.serving.guard import MOST_HEAD
from mltrainer.errors import MachineError

MOST_CONNECTIONS = 500  # open at a time; chosen by us
HEAD_S = 30  # until a request's whole head is here, however slowly its bytes come; chosen by us, as long as a body may take
IDLE_S = 15  # a connection may wait for its next request; chosen by us
GRACE_S = 10  # for what is under way when the server is stopped


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket that listens.

    Raises:
        MachineError: The address is taken, or none of this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, since asyncio sends at once (TCP_NODELAY) on connections of such a socket alone: else an answer's
    # second packet waits 40 ms for the client's word that the first one came.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, port))
        except (OSError, OverflowError) as error:
            told = getattr(error, "strerror", None) or str(error)
            raise MachineError(told, where=f"{host}:{port}", hint="name another --port or --host") from error
        found.listen(1024)
        yield found


def address_of(listens: socket.socket) -> str:
    """Return the address to open in a browser."""
    host, port = listens.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


class BoundedProtocol(H11Protocol):
    """HTTP whose connections are closed where a request's head does not come in time, for which uvicorn has no setting."""

    _closing: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for the first request."""
        super().connection_made(transport)
        self._bound()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        super().connection_lost(exc)
        self._wait_no_longer()

    def handle_events(self) -> None:
        """Take what has come, and wait for the next head where none is here."""
        super().handle_events()
        self._bound()

    def _bound(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._wait_no_longer()
        elif self._closing is None:
            self._closing = self.loop.call_later(HEAD_S, self.transport.close)

    def _wait_no_longer(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None


def server_of(app: Callable[..., Any]) -> uvicorn.Server:
    """Return the server of an application; told to stop, it answers first what is under way."""
    config = uvicorn.Config(
        app,
        lifespan="on",
        log_level="warning",
        access_log=False,  # addresses and clients are nobody's business here
        server_header=False,
        proxy_headers=False,
        ws="none",
        http=BoundedProtocol,
        h11_max_incomplete_event_size=MOST_HEAD,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=GRACE_S,
    )
    return uvicorn.Server(config)


def serve(app: Callable[..., Any], listens: socket.socket) -> None:
    """Answer requests until the process is told to stop."""
    server_of(app).run(sockets=[listens])
