"""A recorded environment made again: a separate virtual environment, with the recorded interpreter and the recorded pins."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mltrainer.errors import InputError, KilledError, ended_with
from mltrainer.executors.executor import Command
from mltrainer.executors.local import answered, run
from mltrainer.records.event import Tell
from mltrainer.records.planning import Environment
from mltrainer.reproducibility.pins import OWN, builds, normal, requirements
from mltrainer.workspace import Project, redact_file, write_text

FOLDER = "environments"
PINS_FILE, LOG_FILE, DONE_FILE = "requirements.txt", "pip.log", "done"
SHOWN_LINES = 6  # of pip's, when it fails


def rebuild(project: Project, environment: Environment, tell: Tell) -> Path:
    """Return the interpreter of a virtual environment with the recorded packages; made now, or complete from before.

    Args:
        project: The project; the environment is under `.mltrainer/environments`, named by its digest.
        environment: The environment that planning recorded.
        tell: The function that shows progress.

    Raises:
        InputError: The recorded interpreter is not installed here, or a package can no longer be had.
    """
    folder: Path = project.state_dir / FOLDER / environment.sha256[:12]
    python = folder / "bin" / "python"
    if (folder / DONE_FILE).exists():
        tell({"event": "note", "text": f"the recorded environment is in {project.relative(folder)}"})
        return python
    interpreter = find_interpreter(environment.python.version)
    shutil.rmtree(folder, ignore_errors=True)
    rows = environment.distributions
    tell({"event": "note", "text": f"installing {len(rows)} packages into {project.relative(folder)}"})
    _call([interpreter, "-m", "venv", str(folder)], folder)
    write_text(folder / PINS_FILE, requirements(environment))
    # --no-deps, as the pins are all that was installed: pip's resolver would add packages, or refuse what worked.
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-deps"]
    _call([*pip, "--requirement", str(folder / PINS_FILE)], folder)
    for pin, index in builds(environment).items():
        _call_either([*pip, pin], ["--extra-index-url", index], folder)
    if any(normal(row.name) == OWN for row in rows):
        _call([*pip, *own_source()], folder)
    # Last: a killed installation has no such mark, and is repeated.
    write_text(folder / DONE_FILE, "")
    return python


def find_interpreter(version: str) -> str:
    """Return the path of a Python of exactly this version.

    Raises:
        InputError: There is none on the path.
    """
    if platform.python_version() == version:
        return str(Path(sys.base_prefix) / "bin" / f"python{version.rpartition('.')[0]}")
    minor = version.rpartition(".")[0]
    interpreter = shutil.which(f"python{minor}")
    if interpreter and _version_of(interpreter) == version:
        return interpreter
    raise InputError(
        f"the environment was recorded with Python {version}, which is not installed (this is {platform.python_version()})",
        hint=f"install Python {version} so that `python{minor}` starts it, then type the same command again",
    )


def _version_of(interpreter: str) -> str:
    arguments = [interpreter, "-c", "import platform; print(platform.python_version())"]
    return answered(Command(arguments=arguments, folder=Path(), environment=os.environ)).out.decode().strip()


def own_source() -> list[str]:
    """Return pip's arguments for this mltrainer, from where it was installed: a working tree, or a wheel that is still there.

    Raises:
        InputError: It was installed from elsewhere; the index has another package of its name.
    """
    try:
        origin = json.loads(distribution(OWN).read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        origin = {}
    url = urlsplit(str(origin.get("url", "")))
    path = unquote(url.path)
    if url.scheme != "file" or not os.path.exists(path):
        raise InputError(
            "the source of this mltrainer is gone, and the package index has another package of that name",
            hint="install mltrainer from its source or its wheel, then type the same command again",
        )
    return ["--editable", path] if origin.get("dir_info", {}).get("editable") else [path]


def _call_either(command: list[str], otherwise: list[str], folder: Path) -> None:
    """Run a command; if it fails, run it once more with further options."""
    try:
        _call(command, folder)
    except InputError:
        _call([*command, *otherwise], folder)


def _call(command: list[str], folder: Path) -> None:
    """Run a command of the installation; its output goes to a log beside the environment.

    Raises:
        InputError: It failed; with its last lines.
    """
    # Beside the folder, which the next attempt removes.
    log = folder.with_name(f"{folder.name}.{LOG_FILE}")
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as file:
        code = run(Command(arguments=command, folder=Path(), environment=os.environ, output=file)) or 0
    text = redact_file(log)
    if code < 0:
        raise KilledError(f"the installation was killed by {ended_with(code)}", where=str(log), hint="type it again")
    if code:
        last_lines = "\n  ".join(text.strip().splitlines()[-SHOWN_LINES:])
        raise InputError(
            f"the environment cannot be rebuilt:\n  {last_lines}", where=str(log), hint="fix that, then type the same again"
        )
