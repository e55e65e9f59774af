"""Listening: a socket, and uvicorn with what the application needs of it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from mltrainer.errors import MachineError

MOST_HEADERS = 16 << 10  # bytes of a request's head; chosen by us, as many as nginx takes
MOST_CONNECTIONS = 500  # open at a time; chosen by us
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
            raise MachineError(told, where=f"{host}:{port}", mend="name another --port or --host") from error
        found.listen(1024)
        yield found


def address_of(listens: socket.socket) -> str:
    """Return the address to open in a browser."""
    host, port = listens.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def serve(app: Callable[..., Any], listens: socket.socket) -> None:
    """Answer requests until the process is told to stop; what is under way is answered first."""
    config = uvicorn.Config(
        app,
        lifespan="on",
        log_level="warning",
        access_log=False,  # addresses and clients are nobody's business here
        server_header=False,
        proxy_headers=False,
        ws="none",
        http="h11",  # the one whose heads can be limited
        h11_max_incomplete_event_size=MOST_HEADERS,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=GRACE_S,
    )
    uvicorn.Server(config).run(sockets=[listens])
