"""Several trainings in a process, each heard in a folder of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

VARIABLE = "MLTRAINER_WRAP"


def heard_in(place: Path, cases: Sequence[str]) -> Iterator[str]:
    """Yield cases, each with the variable naming a folder for it, where the process was started with the variable."""
    for case in cases:
        (place / case).mkdir()
        if VARIABLE in os.environ:
            os.environ[VARIABLE] = json.dumps({"folder": str(place / case)})
        yield case
