"""`python -P -m mltrainer.gates.sandboxed_check`: one custom check of a project, in a process that can harm nothing but itself.

In, on standard input: the project's folder, the function's name, the evidence and the settings, as JSON. Out, on standard output:
the function's return value and the project's files that it read, as JSON, and nothing else; what the code prints goes to
standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from mltrainer.records.envelope import adapter

NOT_CODE = {"__pycache__", ".git", ".mltrainer"}  # folders whose files no check is judged by


class Question(NamedTuple):
    """The project's folder, a check's function as `module:function`, the phase, its evidence, and the item's settings."""

    root: str
    check: str
    phase: str
    evidence: Any
    settings: Any


def main() -> None:
    """Answer the question on standard input."""
    question = Question(**json.load(sys.stdin))
    output = os.dup(1)
    os.dup2(2, 1)  # so that a print of the project's code is no part of the answer
    root = Path(question.root)
    sys.path.append(str(root))  # last: a file of the project named like a library does not take its place
    opened: set[str] = set()
    # An audit hook, before the module is imported: every way to open a file passes it, and no code can remove it.
    sys.addaudithook(lambda event, about: _note(opened, event, about))
    try:
        value = _answer(question, root)
        # Encoded whole before the first byte is written: invalid JSON leaves no half an answer.
        answer = json.dumps({"found": to_jsonable_python(value), "files": _files(opened, root)}, allow_nan=False).encode()
    except Exception as error:
        traceback.print_exc()
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")  # on one line, for the gate's message
    with os.fdopen(output, "wb") as file:
        file.write(answer)


def _answer(question: Question, root: Path) -> Any:
    """Return the check function's answer to the evidence and the settings."""
    name, _, function = question.check.partition(":")
    module = importlib.import_module(name)
    if not Path(str(module.__file__)).resolve().is_relative_to(root):
        raise ImportError(f"{name} is {module.__file__}, which is not in the project: give the module another name")
    return getattr(module, function)(adapter(question.phase).validate_python(question.evidence), question.settings)


def _note(opened: set[str], event: str, about: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(about[0], str):
        opened.add(about[0])


def _files(opened: set[str], root: Path) -> list[str]:
    """Return the project's files that were imported or opened, by their paths in it."""
    # A copy, as asking a lazy module for its file may import others.
    imported = [str(module.__file__) for module in list(sys.modules.values()) if getattr(module, "__file__", None)]
    paths = {Path(name).resolve() for name in (*imported, *opened)}
    names = [path.relative_to(root) for path in paths if path.is_relative_to(root) and path.is_file()]
    return sorted(name.as_posix() for name in names if not NOT_CODE & set(name.parts))


if __name__ == "__main__":
    main()
