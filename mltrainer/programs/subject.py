"""The subject of a verdict: the files that a program read, by digest, and the versions that it ran on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltrainer.observe.inputs import WAYS, Read, read_in
from mltrainer.observe.logs import rows_of
from mltrainer.workspace import digest

CODE = (".py", ".pyi", ".ipynb")


@dataclass(frozen=True)
class Subject:
    """The subject of a verdict.

    Attributes:
        code: The program's own sources.
        data: The other files that it read.
        about: Versions of Python and torch, and the number of threads of an operation; without torch Python's alone.
        prefix: The folder where that Python and its packages are installed.
        interpreter: The path of its executable.
    """

    code: tuple[Read, ...]
    data: tuple[Read, ...]
    about: dict[str, Any]
    prefix: str = ""
    interpreter: str = ""

    @property
    def code_sha256(self) -> str:
        """Digest of all sources with their paths."""
        return digest(self.code)

    @property
    def data_sha256(self) -> str:
        """Digest of all data with its paths."""
        return digest(self.data)


def subject_of(lines: Path, place: Path, folder: Path | None = None) -> Subject:
    """Return the files that a run read, in the state in which it read them.

    Args:
        lines: The folder of its observer's lines.
        place: The folder that it ran in.
        folder: The copied folder, where files that the program changed in the copy are unchanged.
    """
    # By time over all processes: one of them may read what another has written.
    rows = sorted((row for found in rows_of(lines, "files").values() for row in found), key=lambda row: int(row[0]))
    about = next((dict(row[2]) for row in rows if row[1] == "about"), None)
    reads = read_in([(row[1], row[2]) for row in rows if row[1] in WAYS], place, folder)
    code = tuple(row for row in reads if row.path.endswith(CODE))
    prefix, interpreter = (next((str(row[2]) for row in rows if row[1] == what), "") for what in ("prefix", "interpreter"))
    if about is None:  # no process imported torch: the first one, which begins the others
        prefix, interpreter, version = next((row[2:] for row in rows if row[1] == "python"), ("", "", ""))
        about = {"python": version} if version else {}
    return Subject(code, tuple(row for row in reads if row not in code), about, prefix, interpreter)
