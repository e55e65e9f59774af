"""Attempts at a run on machines that share its project's folder: each writes in a folder of its own, and one is published.

The process of a machine that is taken for lost may still write: beside its successor, not over it. What an attempt wrote becomes
the run's folder by one rename, once its process has ended; the first that has a result wins, and another's is compared with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mltrainer.errors import DifferenceError
from mltrainer.executors.supervisor import ENDED_FILE, Ending
from mltrainer.leftovers import TEMPORARY
from mltrainer.records.job import TrainingJob
from mltrainer.records.run import sealed
from mltrainer.reproducibility.evidence import RESULT_FILE, has_ended
from mltrainer.workspace import STATE_DIR, is_sealed, read_if_whole, read_json, write_json

ATTEMPTS = f"{STATE_DIR}/attempts"
OTHER_BITS = "search on machines of one kind, which a partition of SLURM names, or with numerics: portable"
CHECKPOINTS = "checkpoints"
WORK = "run"  # in an attempt's folder: what becomes the run's
BEGUN_FILE = "begun.json"  # in an attempt's folder: its job in the engine
DECIDING = ("state", "steps", "weights_sha256", "chain", "metrics", "best", "config_sha256")  # what two attempts must share
BEGINNING = "its beginning"
OF_ONE_PROCESS = ("lock", "job.json", RESULT_FILE, "error.json")  # files of a run that the next attempt does not go on from


@dataclass(frozen=True)
class Begun:
    """An attempt's job: its engine, and its id there."""

    engine: str
    job: str


def furthest(folder: Path) -> str:
    """Return the name of the last checkpoint in a run's folder, or that it is at its beginning."""
    return max((path.name for path in (folder / CHECKPOINTS).glob("step-*")), default=BEGINNING)


class Attempt:
    """One attempt at a run.

    Attributes:
        folder: Of the attempt, with what its machine writes of it.
        run: The run's name.
        number: Of the attempt, from 1.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self.folder = root, folder
        self.run, self.number = folder.parent.name, int(folder.name)

    @property
    def work(self) -> Path:
        """The folder in which it trains."""
        return self.folder / WORK

    @property
    def job_file(self) -> Path:
        """The job that its worker does."""
        return self.work / "job.json"

    @property
    def place(self) -> Path:
        """The run's folder."""
        return self._root / STATE_DIR / "runs" / self.run

    @property
    def begun(self) -> Begun | None:
        """Its job in the engine; None where it was not begun."""
        return Begun(**found) if (found := read_if_whole(self.folder / BEGUN_FILE)) else None

    @property
    def ending(self) -> Ending | None:
        """How its worker ended; None while it runs, and of one that was lost."""
        return Ending(**found) if (found := read_if_whole(self.folder / ENDED_FILE)) else None

    @property
    def has_result(self) -> bool:
        """Whether it went to the end of its run."""
        return bool(_result(self.work))

    def note_begun(self, engine: str, job: str) -> None:
        """Keep its job in the engine for a process that goes on with the search."""
        write_json(self.folder / BEGUN_FILE, asdict(Begun(engine, job)))

    def publish(self) -> None:
        """Make what its worker wrote the run's folder, now that it has ended, unless another attempt's result lies there.

        Raises:
            DifferenceError: That one is another result.
        """
        first, second = _result(self.place), _result(self.work)
        if first and second and first.get("steps") == second.get("steps"):
            self._compare(first, second)
        elif self.work.exists() and not has_ended(self.place) and (second or not first):
            self._move()
        self.remove()

    def _compare(self, first: dict[str, Any], second: dict[str, Any]) -> None:
        different = [key for key in DECIDING if first.get(key) != second.get(key)]
        if different:
            machine = ending.machine if (ending := self.ending) else "another machine"
            what = f"attempt {self.number}, on {machine}, gave another {', '.join(different)} than one before it"
            mend = f"{OTHER_BITS}; its files are in {self.work.relative_to(self._root)}"
            raise DifferenceError(f"{what}: the machines do not compute the same", where=f"run {self.run}", mend=mend)

    def _move(self) -> None:
        """Put its folder in the place of the run's, whose files name it by then."""
        job = read_json(self.job_file)
        there, here = str(job["folder"]), self.place.relative_to(self._root).as_posix()
        if is_sealed(result := read_if_whole(self.work / RESULT_FILE)):
            unsealed = {key: value for key, value in result.items() if key != "seal"}
            write_json(self.work / RESULT_FILE, sealed(_renamed(unsealed, there, here)))
        write_json(self.job_file, {**job, "folder": here})
        # What lies there has no result: an earlier attempt's state, from which this one went on.
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.parent.mkdir(parents=True, exist_ok=True)
        self.work.rename(self.place)

    def remove(self) -> None:
        """Remove what is left of it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # others of the run are there
            self.folder.parent.rmdir()


def new_attempt(root: Path, job: TrainingJob) -> Attempt:
    """Make the folder of a run's next attempt, which goes on from where the furthest one before it came."""
    earlier = attempts_at(root, job.run)
    number = 1 + max((one.number for one in earlier), default=0)
    attempt = Attempt(root, root / ATTEMPTS / job.run / str(number))
    source = max([attempt.place, *(one.work for one in earlier)], key=lambda folder: (_step(folder), folder == attempt.place))
    _copy_state(source, attempt.work)
    folder = attempt.work.relative_to(root).as_posix()
    write_json(attempt.job_file, job.model_copy(update={"folder": folder}).written())
    return attempt


def attempts_at(root: Path, run: str = "*") -> list[Attempt]:
    """Return the attempts at a run, or at all runs, that are not published, by number."""
    found = [Attempt(root, path) for path in (root / ATTEMPTS).glob(f"{run}/*") if path.name.isdigit()]
    return sorted(found, key=lambda one: (one.run, one.number))


def _step(folder: Path) -> str:
    at = furthest(folder)
    return "" if at == BEGINNING else at


def _result(folder: Path) -> dict[str, Any]:
    """Return the result in a run's folder; empty where there is none, or a signal stopped the run before it had one."""
    found = read_if_whole(folder / RESULT_FILE)
    return {} if found.get("stop_reason") == "signal" else found


def _copy_state(source: Path, target: Path) -> None:
    """Copy a run's folder, whose process may still write it, so that a run can go on from the copy.

    Checkpoints come first: those are whole once they have their name, and the chain on the disk always reaches the last one.
    """
    target.mkdir(parents=True, exist_ok=True)
    for checkpoint in sorted((source / CHECKPOINTS).glob("step-*")):
        try:
            shutil.copytree(checkpoint, target / CHECKPOINTS / checkpoint.name, copy_function=_link)
        except OSError:  # it was pruned meanwhile: there is a later one
            shutil.rmtree(target / CHECKPOINTS / checkpoint.name, ignore_errors=True)
    for path in source.glob("*") if _step(target) else ():
        if path.is_file() and not path.name.startswith(TEMPORARY) and path.name not in OF_ONE_PROCESS:
            shutil.copyfile(path, target / path.name)


def _link(source: str, target: str) -> None:
    """Link a file, which nobody changes, or copy it where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _renamed(value: Any, there: str, here: str) -> Any:
    """Return a value with paths below one folder named below another."""
    if isinstance(value, dict):
        return {key: _renamed(one, there, here) for key, one in value.items()}
    if isinstance(value, list):
        return [_renamed(one, there, here) for one in value]
    is_below = isinstance(value, str) and (value == there or value.startswith(f"{there}/"))
    return here + value[len(there) :] if is_below else value
