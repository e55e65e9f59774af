"""What Trackio's own command reads in a project's folder; a process of its own, since Trackio reads once where its files are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from mltrainer.workspace import Project

COMMAND = [sys.executable, "-c", "from trackio.cli import main; main()"]


def trackio(project: Project, *arguments: str) -> Any:
    """Return what `trackio ... --json` prints."""
    env = {**os.environ, "TRACKIO_DIR": str(project.root / ".mltrainer/trackio"), "HF_HUB_OFFLINE": "1"}
    said = subprocess.run([*COMMAND, *arguments, "--json"], capture_output=True, text=True, timeout=60, env=env)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)
