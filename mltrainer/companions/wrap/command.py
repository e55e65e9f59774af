"""`mltrainer wrap`."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Annotated

import typer

from mltrainer.cli.common import AsJson, file_name, group
from mltrainer.cli.output import emit, say
from mltrainer.companions.wrap import report, speed
from mltrainer.errors import DifferenceError, InputError, interrupted
from mltrainer.follow.progress import shown
from mltrainer.leftovers import scratch
from mltrainer.programs.checking import STEPS, Check, ResumeVerdict, Verdict
from mltrainer.programs.starting import WrappedProgram
from mltrainer.redaction import redact, redacted
from mltrainer.workspace import write_text

app = group()


@app.command(
    epilog="Example: mltrainer wrap -- python train.py --epochs 1",
    context_settings={"allow_interspersed_args": False},  # options after the program's name are the program's
)
def wrap(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="The program, after --, as you type it.")],
    steps: Annotated[int, typer.Option(min=0, metavar="N", help="Optimizer steps to compare; 0: all of them.")] = STEPS,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume-check",
            metavar="COMMAND",
            help="Command that resumes the program: it is killed in mid-run and resumed by it, and the ends are compared.",
        ),
    ] = None,
    kill_at: Annotated[
        int | None,
        typer.Option(min=1, metavar="STEP", help="Step at which --resume-check kills the program; default: after three fifths."),
    ] = None,
    replay: Annotated[
        int, typer.Option(min=0, metavar="N", help="Compute every Nth backward pass twice, and compare the gradients' bits.")
    ] = 0,
    profile: Annotated[
        bool, typer.Option("--profile", help="Run once, and report what its steps wait for: data, host, device, one process.")
    ] = False,
    in_place: Annotated[bool, typer.Option("--in-place", help="Run in this folder instead of copies.")] = False,
    timeout: Annotated[float, typer.Option(min=0.0, metavar="S", help="Time limit of a run, in seconds; 0: none.")] = 0.0,
    out: Annotated[Path | None, typer.Option(metavar="FILE", parser=file_name, help="File for the report, in Markdown.")] = None,
    as_json: AsJson = False,
) -> int:
    """Run any training program twice, unedited, and report whether it repeats, and if not, the line that is the cause.

    Steps of PyTorch's optimizers are compared; without any, the files that the program leaves. Needs no project and
    leaves nothing behind but the report. Exit code 0: the same bits; 5: they differ; 7: a backward pass that was computed twice
    within a run, by --replay, gave other bits.

    With --profile it runs once, nothing is compared, and the exit code is 0.
    """
    if kill_at is not None and resume is None:
        raise typer.BadParameter("needs --resume-check COMMAND.", param_hint="'--kill-at'")
    if profile and (resume is not None or replay or out is not None):
        raise typer.BadParameter("goes with neither --resume-check, --replay nor --out.", param_hint="'--profile'")
    again = _split(resume) if resume is not None else None
    program = WrappedProgram(tuple(command), Path.cwd(), in_place, timeout)
    if profile:
        return _profiled(program, steps, as_json)
    shows = _Shown(is_live=not as_json)
    unanswered = 0
    try:
        verdict, resumed = _checked(program, steps, again, kill_at, shows, replay)
    except KeyboardInterrupt as error:
        stopped = interrupted(error, "nothing was kept to continue from: the same command starts over")
        if shows.latest is None:
            raise stopped from error
        why = "" if shows.is_complete else stopped.message
        verdict, resumed = dataclasses.replace(shows.latest, stopped=why), None
        unanswered = stopped.exit_code if again is not None else 0
    if out is not None:
        write_text(out, report.page(verdict, resumed))
    if as_json:
        emit(redacted(report.as_json(verdict, resumed)))
    shows.end(verdict, resumed)
    return unanswered if verdict.same and (resumed is None or resumed.same) else DifferenceError.exit_code


def _profiled(program: WrappedProgram, steps: int, as_json: bool) -> int:
    """Print the verdict on a program's speed."""
    with scratch("wrap-") as folder, shown(None) as tell:
        verdict = speed.speed_of(program, folder, steps, tell)
    if as_json:
        emit(redacted(speed.as_json(verdict)))
    say(redact(speed.text(verdict)))
    return 0


class _Shown:
    """The verdict so far: it is printed after two runs, as the later search may be interrupted.

    Args:
        is_live: Whether the verdict is printed before the end.

    Attributes:
        latest: The latest verdict.
        is_complete: Whether the verdict on repetition is final.
    """

    def __init__(self, *, is_live: bool) -> None:
        self.latest: Verdict | None = None
        self.is_complete = False
        self._is_live, self._is_begun = is_live, False

    def __call__(self, verdict: Verdict) -> None:
        """Take a new verdict."""
        self.latest = verdict
        if self._is_live:
            added = report.one_more_run(verdict) if verdict.same and self._is_begun else report.head(verdict)
            say(redact(added))
            self._is_begun = True

    def end(self, verdict: Verdict, resumed: ResumeVerdict | None) -> None:
        """Print the rest, unless all is printed as one object."""
        if self._is_live and (text := report.text(verdict, resumed, is_begun=self._is_begun)):
            say(redact(text))


def _checked(
    program: WrappedProgram, steps: int, again: tuple[str, ...] | None, kill_at: int | None, shows: _Shown, replay: int
) -> tuple[Verdict, ResumeVerdict | None]:
    """Return the verdict on a program's repetition and, where a resuming command is given, the verdict on resuming.

    Where resuming cannot be judged, the verdict on repetition is printed all the same.
    """
    with scratch("wrap-") as folder, shown(None) as tell:
        check = Check(program, folder, tell, replay=replay)
        verdict = shows.latest = check.repeats(steps, shows)
        shows.is_complete = True
        if again is None:
            return verdict, None
        try:
            return verdict, check.resumes(again, kill_at)
        except InputError:
            shows.end(verdict, None)
            raise


def _split(command: str) -> tuple[str, ...]:
    """Return the words of a command.

    Raises:
        InputError: The command is empty, or a quotation does not end.
    """
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        hint = "close the quotation, as a shell reads it"
        raise InputError(f"{command!r} is not a command: {error}", where="--resume-check", hint=hint) from error
    if not words:
        raise InputError(
            "the command is empty",
            where="--resume-check",
            hint="give the command that resumes the program from its own checkpoint",
        )
    return words
