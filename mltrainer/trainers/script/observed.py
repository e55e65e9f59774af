"""A program run once under observation: its steps, the files it read and left, and its reports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mltrainer.errors import InputError
from mltrainer.observe.disturbances import ALL
from mltrainer.observe.file_rows import rows_of_paths, rows_of_reads
from mltrainer.observe.logs import Key, rows_of
from mltrainer.observe.process import Settings
from mltrainer.programs.chains import Chain, Entry, last_step
from mltrainer.programs.checking import NOTHING, computed
from mltrainer.programs.starting import WrappedProgram, start
from mltrainer.programs.subject import Subject, subject_of
from mltrainer.records.common import FileRow
from mltrainer.reproducibility.fingerprint import ids_digest
from mltrainer.trainers.script.metrics import ReportedEvaluation, evaluation_of
from mltrainer.workspace import digest

NO_PROCESS: Key = ("", 0)


@dataclass(frozen=True)
class Observed:
    """The observations of a program's run.

    Attributes:
        command: The command that started it.
        place: The folder that it ran in.
        seconds: Its duration in seconds.
        entries: The steps of the process with the most steps; empty if no step was seen.
        processes: The number of processes that trained.
        others: The digests of the other processes' computations.
        weights_sha256: The digest of all final weights; if no step was seen, of the files that the program left.
        signals: The observer's measurements of its steps.
        reports: Its own reports on its steps, by a callback.
        judged: The files that it read.
        left: If no step was seen, the files that it left, and the values of its metrics; else None.
        draws: For a program that imports TensorFlow or JAX, the seeds of its generators, by name.
        switches: For such a program, its frameworks' switches at its end.
    """

    command: list[str]
    place: Path
    seconds: float
    entries: tuple[Entry, ...]
    processes: int
    others: tuple[str, ...]
    weights_sha256: str
    signals: list[list[Any]]
    reports: list[list[Any]]
    judged: Subject
    left: dict[str, str] | None = None
    draws: dict[str, str] = field(default_factory=dict)
    switches: dict[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """The number of its steps; 0 if none was seen."""
        return self.entries[-1].step if self.entries else 0

    @property
    def code(self) -> list[dict[str, Any]]:
        """The rows of its source files that are in its folder."""
        rows = self.judged.code
        return [{"path": r.path, "sha256": r.sha256, "size": r.bytes} for r in rows if not Path(r.path).is_absolute()]

    @property
    def evaluations(self) -> list[ReportedEvaluation]:
        """The evaluations that it reported by a callback."""
        rows = [row for row in self.reports if row[1] == "metrics"]
        return [evaluation_of({**values, "step": step, "epoch": epoch}, "a callback") for _, _, step, epoch, values in rows]

    @property
    def samples(self) -> dict[int, str]:
        """The digest of the samples of each reported step, over all its processes."""
        found: dict[int, str] = {}
        for _, what, step, *values in self.reports:
            if what == "samples":
                # Joined in the order of processes' names, which is the same in every run; the order of their lines is not.
                found[step] = found.get(step, "") + str(values[0])
        return {step: ids_digest(digests.encode()) for step, digests in found.items()}


def observed(
    program: WrappedProgram, scratch: Path, settings: Settings, is_disturbed: bool, on_step: Callable[[int], None]
) -> Observed:
    """Run a program and return the observations.

    Args:
        program: The program to run.
        scratch: An empty folder for the program's copy, which stays there.
        settings: The observer's settings; opened files are always recorded.
        is_disturbed: Whether everything that must not matter is changed.
        on_step: A function of the number of its steps so far, called from time to time.

    Raises:
        InputError: The program failed, or no step was seen and it left nothing.
    """
    change = ALL if is_disturbed else NOTHING
    ended = start(program, scratch / "run", change, settings._replace(files=True), lambda lines: on_step(last_step(lines)))
    found = computed(ended)
    chains = found.chains
    # Sorted, so that among processes with equally many steps every run takes the same one.
    key = max(sorted(chains), key=lambda each: len(chains[each].entries), default=NO_PROCESS)
    mine = chains.get(key, Chain((), ()))
    others = tuple(_bits(chains[other]) for other in sorted(chains) if other != key)
    return Observed(
        list(program.command),
        ended.place,
        ended.seconds,
        mine.entries,
        len(chains),
        others,
        _weights_sha256(mine, found.left, is_alone=not others),
        _of(ended.lines, "signals", key),
        [row for _, rows in sorted(rows_of(ended.lines, "reported").items()) for row in rows],
        subject_of(ended.lines, ended.place, program.folder),
        found.left,
        *_read_back(ended.lines),
    )


def _read_back(lines: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the draws and switches of a program with TensorFlow or JAX; a switch that is off in any process counts as off."""
    rows = [row for found in rows_of(lines, "frameworks").values() for row in found]
    draws, switches = ([row[place] for row in rows] for place in (2, 3))
    return {name: " ".join(sorted(values)) for name, values in _by_name(draws)}, {
        n: min(found) for n, found in _by_name(switches)
    }


def _by_name(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[str, set[Any]]]:
    found: dict[str, set[Any]] = {}
    for name, value in (entry for row in rows for entry in row.items()):
        found.setdefault(name, set()).add(value)
    yield from sorted(found.items())


def _weights_sha256(chain: Chain, left: dict[str, str] | None, *, is_alone: bool) -> str:
    """Return the digest of the final weights of the process with the most steps, or the best substitute for it."""
    if left is not None:
        return digest(left)
    return chain.end[0] if is_alone and chain.end else _bits(chain)


def _of(lines: Path, kind: str, key: Key) -> list[list[Any]]:
    return rows_of(lines, kind).get(key, [])


def _bits(chain: Chain) -> str:
    """Return the digest of all computations of a process."""
    return digest([list(chain.end), [list(entry) for entry in chain.entries]])


def data_of(found: Subject, declared: Sequence[str], root: Path) -> list[FileRow]:
    """Return the rows of a program's data, by path: the files it was seen to open, and those its task declares.

    Args:
        found: The files it was seen to open; sources outside of its folder count as data, files of the machine and of Python do
            not count.
        declared: The declared files and folders, relative to the project.
        root: The project's folder.

    Raises:
        InputError: A declared file is missing.
    """
    opened = [row for row in (*found.data, *found.code) if row not in found.code or Path(row.path).is_absolute()]
    rows = rows_of_reads(opened, root, found.prefix)
    for row in rows_of_paths([name for given in declared for name in _declared(given, root)], root):
        rows.setdefault(row.path, row)
    return [rows[path] for path in sorted(rows)]


def _declared(name: str, root: Path) -> list[str]:
    path = Path(os.path.normpath(root / name))  # in the form of an observed path: otherwise it would be recorded twice
    if not path.exists():
        raise InputError(f"{name} is not there", where="task.reads", hint="bring it, or take the name away")
    files = sorted(found for found in path.rglob("*") if found.is_file()) if path.is_dir() else [path]
    return [str(file.relative_to(root) if file.is_relative_to(root) else file) for file in files]
