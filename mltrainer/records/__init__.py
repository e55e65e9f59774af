"""The records of the phases: read with their seals checked, as models with a field for each thing measured."""

from __future__ import annotations

from pathlib import Path

from mltrainer.records.reading import Record as Record
from mltrainer.records.reading import read_records
from mltrainer.workspace import find_project


def read(folder: str | Path) -> dict[str, Record]:
    """Return the records of a project by phase; a phase that has not run is not in it.

    Args:
        folder: The folder that holds `mltrainer.yaml`, or a folder below it.

    Raises:
        InputError: There is no project.

    Examples:
        >>> found = mltrainer.records.read("digits")
        >>> run = found["baseline"].trusted.evidence.run
        >>> run.state, run.history[-1].step == run.steps
        ('finished', True)
    """
    return read_records(find_project(Path(folder)))
