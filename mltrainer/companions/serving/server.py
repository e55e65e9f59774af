"""The listening socket, and uvicorn with the application's settings."""

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
HEAD_S = 30  # longest time for a request's head to arrive; chosen by us, the same as a body's
IDLE_S = 15  # longest time between a connection's requests; chosen by us
GRACE_S = 10  # time to finish requests when the server is stopped


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket that listens.

    Raises:
        MachineError: The address is taken, or belongs to another machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends at once (TCP_NODELAY) only if the socket names its protocol: else an answer's
    # second packet waits 40 ms for the client's acknowledgement of the first.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except (OSError, OverflowError) as error:
            message = getattr(error, "strerror", None) or str(error)
            raise MachineError(message, where=f"{host}:{port}", hint="name another --port or --host") from error
        listener.listen(1024)
        yield listener


def address_of(listens: socket.socket) -> str:
    """Return the address to open in a browser."""
    host, port = listens.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


class BoundedProtocol(H11Protocol):
    """HTTP that closes a connection whose request's head is late; uvicorn has no such setting."""

    _closing: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for the first request."""
        super().connection_made(transport)
        self._bound()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the wait for a request."""
        super().connection_lost(exc)
        self._wait_no_longer()

    def handle_events(self) -> None:
        """Handle the received events, and wait for the next request's head."""
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
    """Return the server of an application; when stopped, it first answers the requests under way."""
    config = uvicorn.Config(
        app,
        lifespan="on",
        log_level="warning",
        access_log=False,  # clients' addresses are private
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
    """Answer requests until the process is stopped."""
    server_of(app).run(sockets=[listens])
