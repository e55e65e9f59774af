"""Attempts at a run on machines that share its project's folder: each writes in its own folder, and one is published.

The process of a machine that counts as lost may still write: beside its successor, not over it. An attempt's folder becomes
the run's folder by one rename, once its process has ended; the first one with a result wins, and another's is compared with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mltrainer.errors import DifferenceError
from mltrainer.executors.supervisor import ENDED_FILE, Ending
from mltrainer.leftovers import TEMPORARY
from mltrainer.observe.opened_files import OPENED
from mltrainer.records.job import TrainingJob
from mltrainer.records.run import sealed
from mltrainer.reproducibility.evidence import RESULT_FILE, has_ended
from mltrainer.workspace import STATE_DIR, is_sealed, read_if_whole, read_json, without_seal, write_json

ATTEMPTS = f"{STATE_DIR}/attempts"
OTHER_BITS = "search on machines of one kind, which a partition of SLURM names, or with numerics: portable"
CHECKPOINTS = "checkpoints"
WORK = "run"  # in an attempt's folder: the folder that becomes the run's
REPLACED = "replaced"  # in an attempt's folder: the run's former folder, until the attempt is removed
BEGUN_FILE = "begun.json"  # in an attempt's folder: its job in the engine
NAME = re.compile("([0-9]+)-[0-9a-f]+")  # of an attempt's folder: its number, and a token that no earlier name had
BEGINNING = "its beginning"
# The values that two attempts at a run must share; attempts of other lengths may differ.
COMPARED = ("state", "steps", "weights_sha256", "weights_tree_sha256", "chain", "metrics", "best", "config_sha256")
OF_ONE_PROCESS = ("lock", "job.json", RESULT_FILE, "error.json")  # files of a run that the next attempt does not go on from


@dataclass(frozen=True)
class Begun:
    """An attempt's job.

    Attributes:
        engine: The name of the engine that runs it.
        job: The job's id in the engine.
        study: The study that began it, by its folder in the project.
    """

    engine: str
    job: str
    study: str


def _result(folder: Path) -> dict[str, Any]:
    """Return the result in a run's folder; {} where there is none, or a signal stopped the run before it had one."""
    found: dict[str, Any] = read_if_whole(folder / RESULT_FILE)
    return {} if found.get("stop_reason") == "signal" else found


def _is_comparable(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return True where both went as far: a run that was ended at a rung may go on under other limits."""
    return one.get("steps") == other.get("steps") or "pruned" not in (one.get("stop_reason"), other.get("stop_reason"))


def furthest(folder: Path) -> str:
    """Return the name of the last checkpoint in a run's folder, or `BEGINNING` where there is none."""
    return max((path.name for path in (folder / CHECKPOINTS).glob("step-*")), default=BEGINNING)


class Attempt:
    """One attempt at a run.

    Attributes:
        folder: The attempt's folder, with the files that its machine writes.
        run: The run's id.
        number: The attempt's number, from 1.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self.folder = root, folder
        self.run, self.number = folder.parent.name, int(folder.name.partition("-")[0])

    @property
    def work(self) -> Path:
        """The folder in which it trains."""
        return self.folder / WORK

    @property
    def job_file(self) -> Path:
        """The file of its worker's job."""
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
        """The end of its worker; None while it runs, and of one that was lost."""
        return Ending(**found) if (found := read_if_whole(self.folder / ENDED_FILE)) else None

    @property
    def numerics_class(self) -> str | None:
        """The numerics class of its machine, which decides the bits of its arithmetic; None before it has a result."""
        found: str | None = read_if_whole(self.work / RESULT_FILE).get("numerics_class")
        return found

    def note_begun(self, begun: Begun) -> None:
        """Write down its job in the engine for a process that goes on with the search."""
        write_json(self.folder / BEGUN_FILE, asdict(begun))

    def publish(self) -> bool:
        """Make its work folder the run's folder, remove the rest, and return True where it brought the run's result.

        Its process must have ended. A result in the run's folder stays, and is compared; without one, the attempt that came
        further stays.

        Raises:
            DifferenceError: The two results differ.
        """
        first, second = _result(self.place), _result(self.work)
        is_further = bool(second) or (not first and _step(self.work) > _step(self.place))
        moves = False
        if first and second and _is_comparable(first, second):
            self._compare(first, second)
        elif is_further and not has_ended(self.place):
            moves = True
            self._move()
        self.remove()
        return moves and bool(second)

    def _compare(self, first: dict[str, Any], second: dict[str, Any]) -> None:
        if different := [name for name in COMPARED if first.get(name) != second.get(name)]:
            machine = ending.machine if (ending := self.ending) else "another machine"
            what = f"attempt {self.number}, on {machine}, gave another {', '.join(different)} than one before it"
            hint = f"{OTHER_BITS}; its files are in {self.work.relative_to(self._root)}, remove them to keep the first result"
            raise DifferenceError(f"{what}: the machines do not compute the same", where=f"run {self.run}", hint=hint)

    def _move(self) -> None:
        """Put its folder in the run's place; its files name the run's folder before."""
        job = TrainingJob.model_validate(read_json(self.job_file))
        here = self.place.relative_to(self._root).as_posix()
        if is_sealed(result := read_if_whole(self.work / RESULT_FILE)):
            write_json(self.work / RESULT_FILE, sealed(_renamed(without_seal(result), job.folder, here)))
        write_json(self.job_file, job.model_copy(update={"folder": here}).written())
        # The folder there has no result: an earlier attempt's state, from which this one went on. It is moved and not removed,
        # as removing takes time: killed between the two, this attempt still exists, and the next process publishes it.
        shutil.rmtree(self.folder / REPLACED, ignore_errors=True)
        self.place.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self.place.rename(self.folder / REPLACED)
        self.work.rename(self.place)

    def remove(self) -> None:
        """Remove the rest of its folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # others of the run are there
            self.folder.parent.rmdir()


def new_attempt(root: Path, job: TrainingJob) -> Attempt:
    """Make the folder of a run's next attempt, which goes on from where the furthest one before it came."""
    earlier = attempts_at(root, job.run)
    number = 1 + max((one.number for one in earlier), default=0)
    # A name that none had: an unknown job, such as one that the engine took and did not confirm, finds no folder.
    attempt = Attempt(root, root / ATTEMPTS / job.run / f"{number}-{secrets.token_hex(4)}")
    source = max([attempt.place, *(one.work for one in earlier)], key=lambda folder: (_step(folder), folder == attempt.place))
    _copy_state(source, attempt.work)
    folder = attempt.work.relative_to(root).as_posix()
    write_json(attempt.job_file, job.model_copy(update={"folder": folder}).written())
    return attempt


def attempts_at(root: Path, run: str = "*") -> list[Attempt]:
    """Return the unpublished attempts at a run, or at all runs, by run and number."""
    found = [Attempt(root, path) for path in (root / ATTEMPTS).glob(f"{run}/*") if NAME.fullmatch(path.name)]
    return sorted(found, key=lambda one: (one.run, one.number))


def _step(folder: Path) -> str:
    at = furthest(folder)
    return "" if at == BEGINNING else at


def _copy_state(source: Path, target: Path) -> None:
    """Copy a run's folder, whose process may still write it, so that a run can go on from the copy.

    Checkpoints come first: they are whole once they have their name, and the chain on the disk always reaches the last one.
    """
    target.mkdir(parents=True, exist_ok=True)
    for checkpoint in sorted((source / CHECKPOINTS).glob("step-*")):
        try:
            shutil.copytree(checkpoint, target / CHECKPOINTS / checkpoint.name, copy_function=_link)
        except OSError:  # it was pruned meanwhile: there is a later one
            shutil.rmtree(target / CHECKPOINTS / checkpoint.name, ignore_errors=True)
    if not _step(target):
        return
    with contextlib.suppress(OSError):  # there is none, or the process there has ended: then its result comes first
        shutil.copytree(source / OPENED, target / OPENED)
    for path in source.iterdir():
        if path.is_file() and not path.name.startswith(TEMPORARY) and path.name not in OF_ONE_PROCESS:
            shutil.copyfile(path, target / path.name)


def _link(source: str, target: str) -> None:
    """Link a file, which does not change, or copy it where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _renamed(value: Any, there: str, here: str) -> Any:
    """Return a value in which paths below one folder are paths below another."""
    if isinstance(value, dict):
        return {key: _renamed(one, there, here) for key, one in value.items()}
    if isinstance(value, list):
        return [_renamed(one, there, here) for one in value]
    is_below = isinstance(value, str) and (value == there or value.startswith(f"{there}/"))
    return here + value[len(there) :] if is_below else value
