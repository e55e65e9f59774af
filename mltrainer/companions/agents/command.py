"""`mltrainer mcp`."""

from __future__ import annotations

import sys
from pathlib import Path

from mltrainer.cli.common import Folder, group
from mltrainer.cli.output import warn
from mltrainer.errors import InputError

app = group()


@app.command(epilog="Example: mltrainer mcp --project digits")
def mcp(folder: Folder = None) -> int:
    """Serve the project to an agent by the Model Context Protocol (MCP) on standard input and output.

    Tools that look run nothing of the project. `run` trains only after the agent's program has asked the person who uses it. No
    tool waives an item or changes an acceptance criterion. The agent's program starts this command; it ends with its input.
    """
    root = (folder or Path.cwd()).resolve()
    if not root.is_dir():  # refused here: an agent's program would show it as the fault of each tool
        raise InputError("no such folder", where=f"--project {folder}", hint="name the project's folder")
    try:
        from mltrainer.companions.agents.server import serve
    except ModuleNotFoundError as error:
        raise InputError(f"MCP needs the package {error.name}", hint="pip install 'mltrainer[agents]'") from error
    if sys.stdin.isatty():
        warn("this command answers an agent's program, which starts it by itself: see docs/MCP.md; Ctrl-C ends it")
    serve(root)
    return 0
