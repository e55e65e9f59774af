"""Versions and hashes as uv resolves them from pyproject.toml: nothing is installed but uv itself, beside .venv."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build/uv"
UV = "uv==0.13.9"
LOWEST_PYTHON = "3.11"
# What a client says where the index does not answer.
SILENT = (
    "NewConnectionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "error sending request",
    "Failed to fetch",
    "dns error",
)


class SilentIndexError(Exception):
    """The package index does not answer."""


def project() -> dict[str, object]:
    """Return the table `project` of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def resolved(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `uv pip compile` on pyproject.toml.

    Raises:
        SilentIndexError: The index does not answer.
    """
    program = FOLDER / "bin/uv"
    if not program.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        _answered(subprocess.run([*pip, "--target", str(FOLDER), UV], capture_output=True, text=True)).check_returncode()
    command = [str(program), "pip", "compile", "--quiet", "--universal", "--python-version", LOWEST_PYTHON, "pyproject.toml"]
    return _answered(subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True))


def _answered(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    if done.returncode and any(word in done.stderr for word in SILENT):
        raise SilentIndexError("the package index does not answer")
    return done
