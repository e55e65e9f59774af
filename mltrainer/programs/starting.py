"""A program, started as its user types it, in a copy of its folder, under observation.

Nothing of it is edited: the observer comes in through `PYTHONPATH`, by the name that every Python imports at its start. What a
start changes, as `observe.disturbances` lists it, must not matter to a program whose results can be relied on.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mltrainer import leftovers
from mltrainer.errors import InputError, MachineError
from mltrainer.executors import local
from mltrainer.executors.executor import NOTHING, Command, Process
from mltrainer.executors.process_tree import guarded, kill_all, processes_of, standstill
from mltrainer.observe.disturbances import Perturbations
from mltrainer.observe.process import Settings
from mltrainer.programs.chains import steps_in
from mltrainer.programs.leftover_files import LEFT_OUT, LINKED, Stamps, stamps
from mltrainer.reproducibility.causes import HASH_SEEDS

OBSERVER = Path(__file__).parent / "observer"
VARIABLE = "MLTRAINER_WRAP"
POLL_S = 0.05
MOST_BYTES = 2 << 30  # of a folder that is copied
SCRATCH = f"{leftovers.SCRATCH}wrap-"  # how the folders of all starts begin: in none is the copy of another
OURS = ("PYDANTIC_DISABLE_PLUGINS",)  # set for our own command's sake
FILL = "195"  # glibc fills memory that it hands out with the other bits of this byte: small numbers as floats
FIRST_S = 60.0  # without a step, until it is reported; after that each time twice as long
TERMINAL = (24, 80)  # lines and columns
END_OF_INPUT = b"\x04"
NO_TERMINAL, LOOKED_BYTES = b"Inappropriate ioctl for device", 1 << 16  # what the system says, looked for at the log's end
Tell = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class WrappedProgram:
    """A program to run.

    Attributes:
        command: The program and its arguments.
        folder: The folder where it runs: copied for each start, so that no start finds another one's files.
        in_place: Run in the folder itself.
        timeout: Seconds until a start is given up; 0 for never.
        leaves: Files of the folder that it writes itself: those of an earlier run are not copied. Where no step of it is seen,
            these are compared; all that it writes where none is named.
        delivers: Those of which every byte is compared then, JSON too.
        where: The place where its user typed it, for messages.
        has_terminal: Whether its standard input is a terminal of 24 lines, on which nobody types, in place of no input.
        hash_seeds: Those of an undisturbed start, and of one with another hash seed; the same where it may not be changed.
        environment: Its variables, but for those by which it is observed.
        seed: The seed, as in `Settings.seed`.
    """

    command: tuple[str, ...]
    folder: Path
    in_place: bool = False
    timeout: float = 0.0
    leaves: tuple[str, ...] = ()
    delivers: tuple[str, ...] = ()
    where: str = "the command"
    has_terminal: bool = False
    hash_seeds: tuple[str, str] = field(default_factory=lambda: usual_hash_seeds())
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    seed: int | None = None


@dataclass(frozen=True)
class FinishedRun:
    """A start that has ended.

    Attributes:
        program: The program, with a terminal where it asked for one.
        code: The exit code; negative for a signal.
        lines: The folder of the observer's lines.
        log: The program's printed text.
        place: The folder that it ran in.
        seconds: Its duration.
        before: The folder's files before it began.
    """

    program: WrappedProgram
    code: int
    lines: Path
    log: Path
    place: Path
    seconds: float
    before: Stamps


def start(
    program: WrappedProgram,
    scratch: Path,
    perturbations: Perturbations,
    settings: Settings,
    on_poll: Callable[[Path], None] = lambda _: None,
    place: Path | None = None,
    limit_s: float = 0.0,
) -> FinishedRun:
    """Run a program to its end under observation; if it fails without a terminal, run it once more with one.

    Args:
        program: The program to run.
        scratch: An empty folder for this start alone.
        perturbations: The differences from the undisturbed run.
        settings: The observer's.
        on_poll: Called now and then with the folder of the observer's lines.
        place: A copy of the program's folder to go on in; by default a new one is made.
        limit_s: The seconds after which it is ended as if its steps were made; 0 for never.

    Raises:
        InputError: There is no such program, its folder is too large to copy, or it ran longer than it may.
    """
    lines, log = scratch / "lines", scratch / "log.txt"
    lines.mkdir(parents=True)
    here = place or _place(program, scratch / ("elsewhere" if perturbations.folder else "work"))
    settings = settings._replace(folder=str(lines), program=str(here), disturbances=perturbations.modules, seed=program.seed)
    started, before = time.monotonic(), stamps(here)
    with leftovers.scratch("wrap-") as short:
        # not in scratch: a socket's path, such as a loader's for its temporary files, holds some hundred letters
        temporary = Path(short, "temporary-files-of-another-run" if perturbations.folder else "tmp")
        temporary.mkdir()
        variables = _environment(program, perturbations, settings, temporary)
        with _standard_input(program) as given:
            process = _started(program, here, variables, given, log)
            code = _ended(process, program, lines, (settings.steps, limit_s), on_poll)
    ended = FinishedRun(program, code, lines, log, here, time.monotonic() - started, before)
    # Not where it goes on in a folder: what the failed start left there cannot be taken back.
    if program.has_terminal or place is not None or not _lacks_terminal(ended):
        return ended
    # Its lines go too: the steps before it asked for a terminal would count as those of another process.
    shutil.rmtree(scratch)
    return start(replace(program, has_terminal=True), scratch, perturbations, settings, on_poll, limit_s=limit_s)


@contextlib.contextmanager
def _standard_input(program: WrappedProgram) -> Iterator[int]:
    """Yield a program's standard input: nothing, or a terminal with a size, at its end for each reader."""
    if not program.has_terminal:
        yield NOTHING
        return
    import termios  # here: Windows lacks it

    ours, theirs = os.openpty()
    try:
        termios.tcsetwinsize(theirs, TERMINAL)
        # Written ahead, since nobody is there to type it when a reader comes.
        os.write(ours, END_OF_INPUT * 64)
        yield theirs
    finally:
        os.close(theirs)
        os.close(ours)


def _lacks_terminal(ended: FinishedRun) -> bool:
    """Return True if a program failed for want of a terminal, by the end of its printed text."""
    with ended.log.open("rb") as file:
        file.seek(max(0, ended.log.stat().st_size - LOOKED_BYTES))
        return ended.code != 0 and NO_TERMINAL in file.read()


def _ended(
    process: Process,
    program: WrappedProgram,
    lines: Path,
    most: tuple[int, float],
    on_poll: Callable[[Path], None],
) -> int:
    """Wait for a program, end all that it began, and return its exit code; 0 where it has made its steps, or had its time.

    Args:
        process: The program.
        program: The program, as it was typed.
        lines: The folder of its observer's lines.
        most: Steps and seconds, 0 for no limit.
        on_poll: Called now and then.
    """
    mark, started = str(lines), time.monotonic()
    is_still = standstill(lambda: processes_of(process.pid, mark))
    steps, limit_s = most

    def is_done() -> bool:
        return bool((limit_s and time.monotonic() - started > limit_s) or (steps and steps_in(lines) >= steps and is_still()))

    with guarded(process.pid, mark):
        try:
            code = _wait(process, program, lambda: on_poll(lines), is_done, started)
        finally:
            kill_all(process.pid, mark)
            process.wait()
    return code or 0


def usual_hash_seeds() -> tuple[str, str]:
    """Return two hash seeds; one that the user has set belongs to the program, and is used for both."""
    own = os.environ.get("PYTHONHASHSEED", "random")
    return HASH_SEEDS if own == "random" else (own, own)


def _environment(program: WrappedProgram, perturbations: Perturbations, settings: Settings, temporary: Path) -> dict[str, str]:
    before = program.environment.get("PYTHONPATH")
    changed = {
        # First on the path: a `sitecustomize` of the user's would be imported in place of the observer, which runs it instead.
        "PYTHONPATH": os.pathsep.join([str(OBSERVER), *([before] if before else [])]),
        "TMPDIR": str(temporary),
        # Else it would still name the folder that this one is a copy of.
        "PWD": settings.program,
        VARIABLE: json.dumps(settings._asdict()),
        "PYTHONHASHSEED": program.hash_seeds[perturbations.hashes],
    }
    if perturbations.memory:
        changed["MALLOC_PERTURB_"] = FILL
    user = {name: value for name, value in program.environment.items() if name not in OURS}
    return {**user, **changed}


def _started(program: WrappedProgram, place: Path, environment: dict[str, str], given: int, log: Path) -> Process:
    arguments = [_seen_from(argument, program.folder, place) for argument in program.command]
    command = Command(arguments=arguments, folder=place, environment=environment, input=given, output=log, has_session=True)
    try:
        return local.start(command)
    except FileNotFoundError as error:
        hint = "give it as you type it in this folder, such as python train.py"
        raise InputError(f"there is no program {program.command[0]!r}", where=program.where, hint=hint) from error
    except OSError as error:
        name, hint = program.command[0], "let an interpreter run it, such as python train.py"
        raise InputError(f"{name!r} cannot be run: {error.strerror}", where=program.where, hint=hint) from error


def _seen_from(argument: str, folder: Path, place: Path) -> str:
    """Return an argument as the copy needs it: an absolute path into the folder leads into the copy, one out of it to its aim."""
    if place == folder or not os.path.exists(folder / argument):
        return argument
    if not os.path.isabs(argument):
        return str((folder / argument).resolve()) if ".." in Path(argument).parts else argument
    copied = place / os.path.relpath(argument, folder)
    is_copied = copied.exists() and copied.resolve().is_relative_to(place.resolve())
    return str(copied) if is_copied else argument


def _wait(
    process: Process,
    program: WrappedProgram,
    on_poll: Callable[[], None],
    waits: Callable[[], bool],
    started: float,
) -> int | None:
    """Return a program's exit code; None where it waits in vain instead, for a process that was ended after its steps."""
    while (code := process.wait(POLL_S)) is None:
        on_poll()
        if waits():
            return None
        if program.timeout and time.monotonic() - started > program.timeout:
            raise InputError(
                f"the program ran longer than {program.timeout:g} s",
                where="--timeout",
                hint="allow more, or ask for fewer --steps",
            )
    return code


def stall_reporter(note: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> Callable[[int], None]:
    """Return a callback of a program's steps so far, which notes it where they have not grown for long.

    Args:
        note: Takes the sentence.
        clock: Returns the time in seconds.
    """
    made, since, due = 0, clock(), FIRST_S

    def see(step: int) -> None:
        nonlocal made, since, due
        now = clock()
        if step > made:
            made, since, due = step, now, FIRST_S
        elif now - since >= due:
            due *= 2
            after = f"after step {made:,}, the last that was seen" if made else "since the program began"
            note(f"no step for {(now - since) / 60:.0f} min {after}; Ctrl-C ends it")

    return see


# --- the copy of the folder ---


def _place(program: WrappedProgram, target: Path) -> Path:
    """Return the folder to run in: a fresh copy, without other starts' files; in place the folder itself."""
    if program.in_place:
        return program.folder
    left = {program.folder / os.path.normpath(name) for name in program.leaves}
    # Listed before the copy is made, which may be in the folder itself.
    rows = [row for row in _contents(program.folder) if row[0] not in left]
    target.mkdir(parents=True)
    for path, is_linked in rows:
        into = target / path.relative_to(program.folder)
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            _copy(path, into, _aim(path, program.folder, target) if is_linked else None)
    return target


def _aim(path: Path, folder: Path, target: Path) -> Path:
    """Return the target of a link in the copy: within the copy for a link into the folder, else the very same as here."""
    real, root = path.resolve(), folder.resolve()
    return target / real.relative_to(root) if path.is_symlink() and real.is_relative_to(root) else real


def _copy(path: Path, into: Path, aim: Path | None) -> None:
    try:
        if aim is None and path.is_file() and not os.access(path, os.R_OK):
            aim = path  # what cannot be read here cannot be read there
        if aim is not None:
            into.symlink_to(aim)
        elif path.is_dir():
            into.mkdir()
        else:
            shutil.copy2(path, into)
    except FileNotFoundError:
        raise
    except OSError as error:
        hint = "check the disk and its permissions, then type the same command again"
        raise MachineError(error.strerror or str(error), where=str(path), hint=hint) from error


def _require_room(size: int, folder: Path) -> None:
    if size > MOST_BYTES:
        message = f"it holds more than {MOST_BYTES >> 30} GiB, and is copied for each run"
        raise InputError(
            message,
            where=str(folder),
            hint="keep data elsewhere, or run in place (mltrainer wrap --in-place): the program then finds its former output",
        )


def _contents(folder: Path) -> list[tuple[Path, bool]]:
    """Return a folder's folders and files, and which are linked in place of being copied: environments, the repository, links.

    Raises:
        InputError: It is too large.
    """
    rows: list[tuple[Path, bool]] = []
    size = 0
    for root, folders, files in os.walk(folder):
        here = Path(root)
        linked = [n for n in folders if n in LINKED or (here / n / "pyvenv.cfg").exists() or (here / n).is_symlink()]
        folders[:] = sorted(n for n in folders if n not in (*linked, *LEFT_OUT) and not n.startswith(SCRATCH))
        plain = [here / name for name in sorted(files) if (here / name).is_file()]
        rows += [(here / name, name in linked) for name in (*linked, *folders)]
        rows += [(path, path.is_symlink()) for path in plain]
        size += sum(_size(path) for path in plain if not path.is_symlink())
        _require_room(size, folder)
    return rows


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # removed meanwhile
        return 0
