"""Commands of this program run for an agent, each in a separate process: nothing that they print reaches the protocol."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from anyio import to_thread
from mcp.server.mcpserver.exceptions import ToolError

from mltrainer.errors import MltrainerError
from mltrainer.executors.executor import PIPE, Command
from mltrainer.executors.local import answered, start
from mltrainer.redaction import redact

LISTEN_S = 0.5  # between two looks whether the agent has taken its request back
END_S = 20.0  # for a phase to write its checkpoint after SIGTERM
LAST_LINES = 60  # of a phase's output that an agent is given


def looked(folder: Path, *words: str) -> str:
    """Return the output of a command that only looks.

    Raises:
        ToolError: The command failed, with its message.
    """
    ended = answered(Command(arguments=_arguments(words), folder=folder, environment=os.environ))
    if not ended.out:
        raise ToolError(redact(ended.err.decode(errors="replace")).strip())
    return ended.out.decode()


def looked_up(folder: Path, *words: str) -> dict[str, Any]:
    """Return the JSON object of a command that only looks.

    Raises:
        ToolError: The command failed, with its message and the next step.
    """
    found: dict[str, Any] = json.loads(looked(folder, *words, "--json"))
    if found.keys() == {"error"}:
        fault = found["error"]
        raise ToolError(str(MltrainerError(fault["message"], where=fault["where"], hint=fault["next"])))
    return found


async def followed(folder: Path, words: Sequence[str], tell: Callable[[str], Awaitable[None]]) -> tuple[int, list[str]]:
    """Run a command that trains, and return its exit code with the last lines that it printed; it ends with the request.

    Args:
        folder: The project's folder.
        words: The command.
        tell: Is given each line when it is printed.
    """
    process = start(
        Command(
            arguments=_arguments(words), folder=folder, environment=os.environ, output=PIPE, has_session=True
        )  # a separate session, so that a client that kills this server's group leaves time for the checkpoint
    )
    lines: list[str] = []
    try:
        while (heard := await to_thread.run_sync(process.listen, LISTEN_S)) is not None:
            for line in heard:
                lines = [*lines, redact(line.decode(errors="replace"))][-LAST_LINES:]
                await tell(lines[-1].strip())
        return await to_thread.run_sync(process.wait) or 0, lines
    finally:
        process.signal(signal.SIGTERM)
        process.wait(END_S)
        process.kill()
        process.close()


def _arguments(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-P", "-m", "mltrainer", *words]
