"""The process of a tracker: `python -m mltrainer.companions.trackers.program`, which the workflow starts with a phase.

Its standard input is open while the phase goes on; `DONE` is written to it before it is closed if the phase ended with a
record. So it ends by itself, also where the workflow was killed. One sentence goes back, where something was not sent, and on
a second line the next step, where that is known.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from mltrainer.companions.trackers.sender import PhaseSender, within
from mltrainer.companions.trackers.sink import adapter
from mltrainer.configs.project import load_project
from mltrainer.configs.tracking import Tracker, Tracking
from mltrainer.errors import InUseError, MltrainerError
from mltrainer.redaction import redact
from mltrainer.workspace import Project, locked

POLL_S = 0.5
POLITE = 10  # added to the process's niceness, so that training comes first on a busy machine
FOLDER = "trackers"  # in the state folder: locks, and the output of the trackers' packages
DONE = b"done"  # the phase has ended with a record
REHEARSED = "planning"  # the phase without a run: it proves that a run could be started
MOST_WORDS = 600  # bytes, of each of the two lines


def main(root: str, phase: str, tracker: str, options: str, since: str, descriptor: str) -> int:
    """Follow a phase until it has ended; in planning, prove that a run could be begun.

    Args:
        root: The project's folder.
        phase: The phase.
        tracker: Name of the tracker.
        options: The config's section of all trackers, as JSON.
        since: Time of the phase's start, in seconds since 1970.
        descriptor: File descriptor for the one sentence.

    Returns:
        The exit code: 1 where not all was sent, or no run could be begun.
    """
    with contextlib.suppress(OSError):
        os.nice(POLITE)
    project = Project(Path(root))
    own: Tracker = dict(Tracking.model_validate_json(options).named())[tracker]

    def give_up(why: str) -> None:
        with contextlib.suppress(OSError):  # the reader has ended
            lines = redact(why.replace(f"{project.root}{os.sep}", "")).splitlines()[:2]
            os.write(int(descriptor), b"".join(line.encode(errors="replace")[:MOST_WORDS] + b"\n" for line in lines))
        # A timer's thread may call this while the package hangs in the main thread: sys.exit would end only the timer's.
        os._exit(1)

    try:
        with turn(project, tracker, own.wait_s):
            if phase == REHEARSED:
                _rehearse(project, tracker, own, give_up)
            else:
                _follow(project, phase, float(since), tracker, own, give_up)
    except Exception as error:  # the tracker's package may raise anything
        import traceback

        sys.stderr.write(traceback.format_exc())  # into the log, which is redacted at its end
        give_up(_message(error))
    return 0


def _message(error: Exception) -> str:
    """Return an error in a line, and its next step, if any, in a second one."""
    if isinstance(error, MltrainerError):
        return "\n".join(filter(None, (error.placed_message, error.hint)))
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def _rehearse(project: Project, tracker: str, own: Tracker, give_up: Callable[[str], None]) -> None:
    with within(own.wait_s, lambda: give_up(f"its package was not imported within {own.wait_s:g} s")):
        check = adapter(tracker).check()
    with within(own.wait_s, lambda: give_up(late(own.wait_s))):
        check(project.root, load_project(project.file).name, own)


def _follow(project: Project, phase: str, since: float, tracker: str, own: Tracker, give_up: Callable[[str], None]) -> None:
    follower: PhaseSender

    def late() -> None:
        give_up(f"it did not answer for {own.wait_s:g} s; {follower.progress()}")

    with within(own.wait_s, lambda: give_up(f"its package was not imported within {own.wait_s:g} s")):
        begin = adapter(tracker).begin()
    follower = PhaseSender(project, phase, since, tracker, own, begin, late)
    said, word = b"", heard(POLL_S)
    while word is not None:
        said += word
        word = heard(0.0 if follower.look() else POLL_S)
    with within(own.wait_s, lambda: give_up(f"it did not take the rest within {own.wait_s:g} s; {follower.progress()}")):
        follower.end(DONE in said)


def late(wait_s: float) -> str:
    """Return the sentence about a tracker that takes too long in planning."""
    return f"it did not answer within {wait_s:g} s"


def heard(seconds: float) -> bytes | None:
    """Return the next bytes of standard input: empty if none come within some seconds, None once it is closed."""
    if not select.select([0], [], [], seconds)[0]:
        return b""
    return os.read(0, 100) or None


@contextlib.contextmanager
def turn(project: Project, tracker: str, wait_s: float) -> Iterator[None]:
    """Wait for the process of an earlier phase whose workflow was killed; it ends within `wait_s`.

    Raises:
        InUseError: The process does not end.
    """
    until = time.monotonic() + 2 * wait_s
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(project.state_dir / FOLDER / f"{tracker}.lock", tracker))
                break
            except InUseError:
                if time.monotonic() > until:
                    raise
                time.sleep(POLL_S)
        yield


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
