"""The file of forgotten rows: the numbers of training samples, one a line. Needs no torch."""

from __future__ import annotations

import re
from pathlib import Path

from mltrainer.errors import InputError
from mltrainer.workspace import read_whole

WHERE = "forget"
OF_SAMPLES = ("config_sha256", "data_sha256")  # what of a contract the forgotten samples decide
SHOWN = "mltrainer rows baseline --hardest --json: `sample` is the number"
EXPECTED = "one number of a training sample a line, as `mltrainer rows` shows it"
_NUMBER = re.compile(r"^[0-9]{1,15}$", re.ASCII)


def read_rows(path: Path, name: str) -> list[int]:
    """Return the rows in a file, sorted, each once.

    Args:
        path: The file.
        name: Its name in messages.

    Raises:
        InputError: It is missing or empty, or a line holds something else; with the line.
    """
    try:
        lines = read_whole(path).decode("utf-8-sig", errors="replace").splitlines()
    except (FileNotFoundError, IsADirectoryError) as error:
        raise InputError("no such file", where=name, hint=f"bring it back, such as from git, or write one: {EXPECTED}") from error
    found = {number: line.strip() for number, line in enumerate(lines, 1) if line.strip()}
    if wrong := next((number for number, line in found.items() if not _NUMBER.match(line)), None):
        raise InputError(expected=EXPECTED, found=repr(found[wrong][:60]), where=f"{name}:{wrong}", hint=SHOWN)
    if not found:
        raise InputError(expected=EXPECTED, found="none", where=name, hint=SHOWN)
    return sorted({int(line) for line in found.values()})


def rows_text(rows: list[int]) -> str:
    """Return a file's text for some rows."""
    return "".join(f"{row}\n" for row in rows)
