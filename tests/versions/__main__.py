"""`python -m tests.versions [ROW ...]`: the digits example through the five phases with other versions of Python and PyTorch.

For each row a virtual environment is made in a scratch folder, mltrainer is installed into it from this checkout, and both are
removed afterwards: one environment takes some 5 GB. The table goes into docs/MACHINES.md.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/MACHINES.md"
BEGIN, END = "<!-- versions: written by `make versions` -->", "<!-- versions: end -->"
VERSIONS = re.compile(r"^torch(?=[<=>])[^;]*")
ASK_VERSIONS = "import platform, torch; print(platform.python_version(), torch.__version__)"


class Row(NamedTuple):
    """Versions to try.

    Attributes:
        python: The version of Python, as 3.12.
        is_newest: Whether the newest PyTorch that pip finds is installed, in place of the pinned one.
    """

    python: str
    is_newest: bool = False

    @property
    def name(self) -> str:
        return f"{self.python}{' newest' if self.is_newest else ''}"


HERE = "{}.{}".format(*sys.version_info)
ROWS = [Row("3.12"), Row("3.13"), Row("3.14"), Row(HERE, is_newest=True)]


class Walked(NamedTuple):
    """What came of a row: the versions as installed, or as asked for, and the outcome in words."""

    python: str
    torch: str
    outcome: str


def interpreter(version: str) -> str | None:
    """Return a Python of a version, from PATH or from pyenv; None where there is none."""
    found = shutil.which(f"python{version}")
    own = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    works = [
        path for path in (found, *map(str, own)) if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0
    ]
    return next(iter(works), None)


def requirements(is_newest: bool) -> list[str]:
    """Return what mltrainer and its ONNX export need; with the newest PyTorch, without the bounds on it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["onnx"]]
    return [VERSIONS.sub("torch", one) for one in needed] if is_newest else needed


def constraints(is_newest: bool) -> str:
    """Return the pinned versions; with the newest PyTorch, all but its own."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not (is_newest and VERSIONS.match(line)))


def walk(row: Row) -> Walked:
    """Install a row's versions into an environment of their own, walk the five phases, and remove all again."""
    asked = "newest" if row.is_newest else "pinned"
    python = interpreter(row.python)
    if python is None:
        return Walked(row.python, asked, "not tried: no such Python on this machine")
    with tempfile.TemporaryDirectory(prefix="versions-") as name:
        folder = Path(name)
        (folder / "constraints.txt").write_text(constraints(row.is_newest))
        own = str(folder / "venv/bin/python")
        pip = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        steps = [
            [python, "-m", "venv", str(folder / "venv")],
            [*pip, "--constraint", str(folder / "constraints.txt"), *requirements(row.is_newest)],
            [*pip, "--no-deps", str(ROOT)],
        ]
        if failed := _first_failure(steps, folder):
            return Walked(row.python, asked, f"not installed: {failed}")
        installed = subprocess.run([own, "-c", ASK_VERSIONS], cwd=folder, capture_output=True, text=True, env=_environment())
        versions = installed.stdout.split() or [row.python, asked]
        mltrainer = [own, "-P", "-m", "mltrainer"]
        project = ["--project", str(folder / "digits")]
        commands = [
            [*mltrainer, "init", str(folder / "digits"), "--example", "digits"],
            [*mltrainer, "run", *project],
            [*mltrainer, "gate", "check", *project],
        ]
        return Walked(versions[0], versions[1], _first_failure(commands, folder) or "all five gates hold")


def _first_failure(commands: Sequence[Sequence[str]], folder: Path) -> str | None:
    """Run commands in turn, and return the last line of the first one that fails; None where all go well."""
    for command in commands:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=_environment())
        if done.returncode:
            sys.stderr.write(done.stdout + done.stderr)
            lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
            return f"exit {done.returncode}: {next((one for one in lines if one.lower().startswith('error')), lines[-1])}"
    return None


def _environment() -> dict[str, str]:
    # What the shell says of another environment or checkout would be imported here, too.
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}


def table(found: Sequence[Walked]) -> str:
    """Return the table in Markdown."""
    rows = [f"| {python} | {torch} | {outcome.replace('|', '/')} |" for python, torch, outcome in found]
    return "\n".join(["| Python | PyTorch | digits through the five phases |", "|---|---|---|", *rows])


def written(page: str, found: Sequence[Walked]) -> str:
    """Return the page with another table."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table(found)}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.versions")
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", choices=[[], *(row.name for row in ROWS)], help="; ".join(r.name for r in ROWS)
    )
    asked = parser.parse_args().rows
    found = []
    for row in ROWS:
        if not asked or row.name in asked:
            found.append(walk(row))
            print(table(found[-1:]).splitlines()[-1], flush=True)
    if not asked:
        PAGE.write_text(written(PAGE.read_text("utf-8"), found), "utf-8")


if __name__ == "__main__":
    main()
