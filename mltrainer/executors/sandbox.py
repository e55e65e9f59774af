"""A command closed off from the machine: no variable of the shell, no other process, no network, no file but what is named."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import mltrainer
from mltrainer.executors.limited import Isolation, Limits, import_paths, run
from mltrainer.executors.running import Ended

SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/lib32",
    "/bin",
    "/sbin",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/nix/store",
    "/gnu/store",
)
GIT_FOLDER = ".git"  # its config holds the token by which a job cloned
PROBE = Limits(seconds=20, memory=1 << 30, output=1 << 16)


def closed_off(command: Sequence[str], question: bytes, limits: Limits, project: Path) -> Ended:
    """Run a command that sees the interpreter's files and a project's, read-only, and nothing else of the machine.

    Args:
        command: The program and its arguments.
        question: The bytes on its standard input.
        limits: The command's limits.
        project: The project's folder, where it runs; git's own folder in it is empty for the command.
    """
    folder = project.resolve()
    isolation = Isolation((*interpreter_paths(), str(folder)), (str(folder / GIT_FOLDER),))
    return run(command, question, limits, folder, isolation)


@functools.cache
def unavailable() -> str | None:
    """Return the reason that no command can be closed off on this machine, from a trial command; None if one can be."""
    if sys.platform != "linux":
        return f"{sys.platform} has no Linux namespaces"
    ended = run([sys.executable, "-P", "-c", "pass"], b"", PROBE, Path("/"), Isolation(tuple(interpreter_paths())))
    return None if ended.code == 0 and ended.in_time else ended.last_words


def interpreter_paths() -> list[str]:
    """Return the files that a Python program needs, with the installed packages; never a folder that contains a home."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, str(Path(sys.executable).resolve().parent)}
    packages = [path for path in sys.path if os.path.isabs(path) and os.path.isdir(path)]
    homes = {Path.home(), Path.home().resolve()}
    named = [*SYSTEM, *sorted(prefixes), *packages, *import_paths()]
    paths = dict.fromkeys([*named, *map(os.path.realpath, named)])  # a link is shown as one, and what it leads to beside it
    # A prefix such as / or /home would show the homes, with the keys in them.
    open_ = [path for path in paths if not any(home.is_relative_to(path) for home in homes)]
    return [*open_, str(Path(mltrainer.__file__).parent)]
