"""The check that a program's training repeats, and that its own way of resuming ends in the same bits.

A program comes in as it is typed; a verdict comes out. Two fresh processes make the same steps, the second one with all changed
that must not matter: that is the verdict. Where they differ, the same steps once more with nothing changed, and two traced
processes, name the line; one more run confirms it. Only where that fails is one thing changed after the other.
"""

from __future__ import annotations

import dataclasses
import math
import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mltrainer import plugins
from mltrainer.errors import InputError, MachineError, ended_with, is_out_of_memory, killed
from mltrainer.observe.disturbances import ALL, DISTURBANCES, Perturbations, alone, words_of
from mltrainer.observe.logs import Key, rows_of
from mltrainer.observe.process import Settings
from mltrainer.programs.causes import KINDS, OF_LEFTOVER_FILES, UNCHANGED, FirstDifference, Judged, LikelyCause
from mltrainer.programs.chains import (
    Chain,
    ChainDifference,
    chains,
    compared,
    end_difference,
    first_divergence,
    last_step,
    steps_in,
    traces,
)
from mltrainer.programs.leftover_files import first_unlike, leftover_files, written
from mltrainer.programs.starting import FinishedRun, Tell, WrappedProgram, stall_reporter, start
from mltrainer.programs.subject import Subject, subject_of
from mltrainer.records.common import Call
from mltrainer.redaction import tail
from mltrainer.reproducibility.causes import HASH_SEEDS
from mltrainer.reproducibility.hash_seeds import hash_seeds
from mltrainer.reproducibility.short_strings import named

STEPS = 20
TRACED_S = 150.0  # of one traced run, in which some hundred thousand operations are seen; chosen by us
TRIES = 3  # traced pairs, where a race does not show at once
TAIL = 12  # lines of a log that are shown
TAIL_BYTES = 1 << 16  # of its end that are read
MOST_LINES = 5
LEAST_S = 1.0  # before a rate is reported
NO_STEP = "no step of a PyTorch optimizer was seen"
COMPARES_LEFT = f"{NO_STEP}: the whole program runs, and what it leaves is compared"
WRONG = "a device here computed wrong, or a backward pass has no fixed order: `mltrainer doctor` looks at this machine"
SCRIPT = "task.script"  # where a project's program is typed, which is always run in a copy
MISSING = re.compile(r"No such file or directory: '([^']+)'")
NOTHING = Perturbations()
UNTRACED, TRACED = Settings(), Settings(trace=True)
# Nothing is changed first: of steps that differ by themselves, no change could be blamed.
ONE_BY_ONE = {"chance": NOTHING, **{row.kind: alone(row.kind) for row in DISTURBANCES}}
CHANGES = {kind: change for kind, change in ONE_BY_ONE.items() if kind != "chance"}
SEARCH_RUNS = 4  # most often: once more with nothing changed, two traced, and one that confirms the kind


@dataclass(frozen=True)
class Computed:
    """The compared parts of a run.

    Attributes:
        chains: The steps of each process that trained.
        left: The files that the program left, with the values of JSON, if no step was seen; None if steps were.
    """

    chains: dict[Key, Chain]
    left: dict[str, str] | None = None


@dataclass(frozen=True)
class SuspectLine:
    """A line that is likely the cause: file relative to the program's folder and number, the call, its kind, the line's text."""

    where: str
    call: str
    kind: str
    text: str


@dataclass(frozen=True)
class Cause:
    """The cause of a difference between two runs.

    Attributes:
        kind: A key of `causes.KINDS`.
        shown: The place where it first shows, in words; None if no trace shows it.
        module: The module in which it does; empty outside of any.
        step: The step in which it does.
        where: The user's own line at which it does.
        lines: The lines that are likely the cause, the likeliest first.
        traced_s: Seconds after which the traced runs were ended, where they had not made their steps by then; else None.
        innocent: Lines that give something else in each run, too, which does not reach the training.
    """

    kind: str
    shown: str | None
    module: str
    step: int
    where: str | None
    lines: tuple[SuspectLine, ...]
    traced_s: float | None = None
    innocent: tuple[SuspectLine, ...] = ()


def calls_in(lines: Sequence[SuspectLine]) -> list[Call]:
    """Return likely lines in the form of records; the line's text is in place of the function."""
    return [Call(kind=line.kind, call=line.call, where=line.where, function=line.text) for line in lines]


class Repeated(NamedTuple):
    """The backward passes that were computed twice, with the same bits, and those that were due and left out."""

    same: int
    left_out: int


@dataclass(frozen=True)
class Search:
    """The search for the line, after the verdict.

    Attributes:
        runs: Number of runs.
        seconds: Duration of all of them.
    """

    runs: int
    seconds: float


@dataclass(frozen=True)
class Traced:
    """Two traced runs.

    Attributes:
        shown: The place where their difference first shows; None if none does.
        one: The first run.
        other: The other one.
        is_cut: Whether either was ended before it had made its steps.
    """

    shown: FirstDifference | None
    one: FinishedRun
    other: FinishedRun
    is_cut: bool


@dataclass(frozen=True)
class Verdict:
    """The verdict on whether a program's training repeats.

    Attributes:
        command: The command, as it was typed.
        same: Whether all that was observed is the same.
        steps: Steps of an optimizer that were compared, of the process that made most; None where no step was seen.
        processes: Number of processes that trained.
        seconds: Duration of each run.
        difference: The first step that differs.
        cause: The difference's.
        judged: The files that were read, by digest, and the interpreter and versions that ran them.
        failed: The last lines that the second run printed, where it alone failed.
        hash_seeds: Under which the runs were made.
        changed: The changes between them, in words.
        left: The first run's files that were compared, with the values of JSON, if no step was seen.
        search: The search for the line that makes the runs differ; None where there was none.
        repeated: The first run's backward passes that were computed twice; None where that was not asked for.
        stopped: Why runs are missing, of other hash seeds where none differs, else of the search; empty where all were made.
    """

    command: str
    same: bool
    steps: int | None
    processes: int
    seconds: tuple[float, ...]
    judged: Subject
    difference: ChainDifference | None = None
    cause: Cause | None = None
    failed: tuple[str, ...] = ()
    hash_seeds: tuple[str, ...] = HASH_SEEDS
    changed: tuple[str, ...] = ()
    left: dict[str, str] | None = None
    search: Search | None = None
    repeated: Repeated | None = None
    stopped: str = ""


@dataclass(frozen=True)
class ResumeVerdict:
    """The verdict on whether a program that was killed and resumed ends in the bits of the undisturbed run.

    Attributes:
        command: The command that resumed it.
        same: Whether it does.
        steps: Steps of the undisturbed run.
        killed_after: The step after which it was killed.
        went_on_after: The step after which it went on.
        step: The first step that differs; None where only the end does, or nothing.
        what: The difference, in words.
        shown: The place at which it first shows.
    """

    command: str
    same: bool
    steps: int
    killed_after: int
    went_on_after: int
    step: int | None = None
    what: str | None = None
    shown: str | None = None


class Check:
    """The runs of one program, each in a separate folder.

    Args:
        program: The program to run.
        scratch: An empty folder, which the caller removes.
        tell: The function that receives the events.
        on_poll: Called now and then while the program runs; an exception of it ends the program.
        replay: The number of backward passes of which one is computed twice; 0 for none.
    """

    def __init__(
        self,
        program: WrappedProgram,
        scratch: Path,
        tell: Tell,
        on_poll: Callable[[], None] = lambda: None,
        replay: int = 0,
    ) -> None:
        self._program, self._scratch, self._tell, self._on_poll, self._replay = program, scratch, tell, on_poll, replay
        self._starts = 0

    def repeats(self, steps: int = STEPS, on_verdict: Callable[[Verdict], None] = lambda _: None) -> Verdict:
        """Return the verdict on the program's first steps, with the cause where they do not repeat.

        A run that fails or takes too long once there is a verdict ends the search, and not the verdict.

        Args:
            steps: The number of steps of each process that trains; 0 for all.
            on_verdict: Called with each verdict as it is reached: after the second run, and after each later one of another
                hash seed; with the one that the runs differ before the line is searched for.

        Raises:
            InputError: The program fails, trains nothing, or cannot be run.
        """
        one = self._run("the program as it is", NOTHING, steps, files=True)
        mine = computed(one)
        if mine.left is not None:
            self._tell({"event": "note", "text": COMPARES_LEFT})
        verdict, other = self._verdict(mine, one, steps, on_verdict)
        if verdict.same:
            return verdict
        failed = tuple(_tail(other)) if other.code != 0 else ()
        verdict = dataclasses.replace(verdict, failed=failed)
        self._tell({"event": "note", "text": "the runs differ"})
        on_verdict(verdict)
        self._tell({"event": "note", "text": f"the line is searched for: about {SEARCH_RUNS} runs, two of them traced and slow"})
        return self._searched(verdict, mine, steps)

    def _verdict(
        self, mine: Computed, one: FinishedRun, steps: int, on_verdict: Callable[[Verdict], None]
    ) -> tuple[Verdict, FinishedRun]:
        """Return the verdict of runs with each hash seed, up to the first that differs, and the last run."""
        judged_by = subject_of(one.lines, one.place, self._program.folder)
        # After the first run, by whose opened files it is known which strings the program can make sets of.
        first, *others = self._hash_seeds(judged_by)
        verdict, other = None, one
        for number, seed in enumerate(others, 1):
            self._program = dataclasses.replace(self._program, hash_seeds=(first, seed))
            try:
                other = self._run(f"once more, with all changed that must not matter, hash seed {seed}", ALL, steps)
            except (InputError, MachineError) as error:
                if verdict is None:
                    raise
                return dataclasses.replace(verdict, stopped=error.message), other
            theirs = compared_like(mine, other)
            divergence = difference(mine, theirs, steps)
            verdict = Verdict(
                shlex.join(self._program.command),
                divergence is None,
                _steps_compared(mine, theirs, steps, is_same=divergence is None),
                len(mine.chains),
                (*(verdict.seconds if verdict else (one.seconds,)), other.seconds),
                judged_by,
                divergence,
                hash_seeds=(first, *others[:number]),
                changed=changed(self._program),
                left=mine.left,
                repeated=repeated(one.lines) if self._replay else None,
            )
            if divergence is not None:
                break
            on_verdict(verdict)
        assert verdict is not None
        return verdict, other

    def _searched(self, verdict: Verdict, mine: Computed, steps: int) -> Verdict:
        """Return a verdict that runs differ with the cause, as far as the search came."""
        assert verdict.difference is not None
        step, started, before = verdict.difference.step, time.monotonic(), self._starts
        cause, stopped = None, ""
        try:
            cause = self._found_cause(mine, min(step + 1, steps) if step and steps else steps, step)
        except (InputError, MachineError) as error:
            stopped = error.message
        search = Search(self._starts - before, time.monotonic() - started)
        return dataclasses.replace(verdict, cause=cause, search=search, stopped=stopped)

    def _hash_seeds(self, found: Subject) -> tuple[str, ...]:
        """Return the hash seeds of the runs, chosen so that the program's small sets come in different orders."""
        seeds, folder = self._program.hash_seeds, self._program.folder
        if seeds[0] == seeds[1]:
            return seeds
        strings = named(
            [folder / row.path for row in found.code], [folder / row.path for row in found.data], self._program.command
        )
        chosen = hash_seeds(strings, found.interpreter or sys.executable)
        for group in chosen.alike:
            self._tell({"event": "note", "text": f"a set of {', '.join(group)} may come in one order in all runs"})
        return chosen.seeds

    # --- why ---

    def cause(self, kind: str, change: Perturbations, steps: int, tries: int = TRIES, step: int = 0) -> Cause:
        """Return the cause of a difference, by the change that brings it about and the difference of two traces.

        Args:
            kind: A key of ONE_BY_ONE.
            change: The change of that kind; for "chance", any change that may make a race show.
            steps: The number of steps of each process that trains; 0 for all.
            tries: Pairs of traced runs at most, where none shows a difference.
            step: The first that differed; 0 where that is not known.
        """
        return self._cause(kind, *self._judged(self._traced(change, steps, tries, step), _left_over(kind)))

    def _found_cause(self, undisturbed: Computed, steps: int, step: int) -> Cause:
        """Return the cause of a difference of unknown kind."""
        first = {key: _first_steps(chain, steps) for key, chain in undisturbed.chains.items()}
        expected = dataclasses.replace(undisturbed, chains=first)
        tries = TRIES if undisturbed.left is None else 1
        if self._changes(expected, "chance", steps) is not None:
            return self.cause("chance", NOTHING, steps, tries, step)
        traced = self._traced(ALL, steps, tries, step)
        likely, _ = self._judged(traced, _left_over("chance"))
        tried = _kind_of(likely)
        is_confirmed = tried == "chance" or (tried is not None and self._changes(expected, tried, steps) is not None)
        kind = tried if tried is not None and is_confirmed else self._kind(expected, steps, tried)
        return self._cause(kind, *self._judged(traced, _left_over(kind)))

    def _kind(self, expected: Computed, steps: int, tried: str | None) -> str:
        """Return the kind of cause: the first whose change alone brings other steps about; "chance" for none."""
        for kind in (kind for kind in CHANGES if kind != tried):
            found = self._changes(expected, kind, steps)
            if found is not None:
                # Another result once more: a race that the first run has only met.
                is_steady = kind == "threads" or self._changes(found, kind, steps) is None
                return kind if is_steady else "chance"
        return "chance"

    def _changes(self, expected: Computed, kind: str, steps: int) -> Computed | None:
        """Return the computations of a run with the change of a kind alone; None where they are the same."""
        what = "nothing" if kind == "chance" else kind
        found = compared_like(expected, self._run(f"the cause: {what} changed", ONE_BY_ONE[kind], steps))
        return found if difference(expected, found, steps) is not None else None

    def _judged(self, traced: Traced, kinds: tuple[str, ...]) -> tuple[Judged, Traced]:
        rows = traces(traced.one.lines), traces(traced.other.lines)
        judge: Callable[..., Judged] = plugins.part("blame", "judged")
        return judge(traced.shown, kinds, *rows, _source, is_cut=traced.is_cut and traced.shown is None), traced

    def _cause(self, kind: str, judgement: Judged, traced: Traced) -> Cause:
        lines, shown, one = judgement.causes, judgement.shown, traced.one
        seen = lines[0].kind if lines else (shown.kind if shown is not None and shown.kind else kind)
        return Cause(
            seen if len(_left_over(kind)) > 1 or (shown is not None and shown.kind) else kind,
            shown.what if shown is not None else None,
            shown.module if shown is not None else "",
            shown.step if shown is not None else 0,
            self._where(shown.place, one) if shown is not None and shown.place is not None else None,
            tuple(_distinct(self._line(line, one) for line in lines))[:MOST_LINES],
            TRACED_S if traced.is_cut else None,
            tuple(_distinct(self._line(line, one) for line in judgement.innocent))[:MOST_LINES],
        )

    def _traced(self, change: Perturbations, steps: int, tries: int, step: int) -> Traced:
        """Return two traced runs; a race may take several tries.

        Args:
            change: The other run's from the first.
            steps: The number of steps of each process.
            tries: The most runs beside the first.
            step: The first that differed, before which lines are examined again; 0 where that is not known.
        """
        near = step - 1 if step > 2 else 0
        found = self._traced_pair(change, steps, tries, Settings(trace=True, near=near))
        if found.is_cut and found.shown is None and near > 2:
            return self._traced_pair(change, steps, 1, Settings(trace=True, near=near, quiet=True))
        return found

    def _traced_pair(self, change: Perturbations, steps: int, tries: int, trace: Settings) -> Traced:
        what = f"steps 1 and {trace.near} on" if trace.quiet else "the cause"
        one = self._run(f"{what}: traced, for at most {TRACED_S:.0f} s", NOTHING, steps, trace=trace)
        if one.code != 0:
            self._tell({"event": "note", "text": f"traced, the program failed: {' / '.join(_tail(one)[-3:])}"})
        for _ in range(tries):
            other = self._run(f"{what}: traced beside it", change, steps, trace=trace)
            shown = _first_difference(traces(one.lines), traces(other.lines))
            is_cut = max(one.seconds, other.seconds) > TRACED_S
            if shown is not None or is_cut:
                break
        return Traced(shown, one, other, is_cut)

    def _line(self, line: LikelyCause, ended: FinishedRun) -> SuspectLine:
        text = _source(line.place[0]).splitlines()
        source_line = text[line.place[1] - 1].strip() if 0 < line.place[1] <= len(text) else ""
        return SuspectLine(self._where(line.place, ended), line.call, line.kind, source_line)

    def _where(self, place: tuple[str, int], ended: FinishedRun) -> str:
        """Return file and line as the user knows them: relative to the program's folder."""
        file, line = place
        for folder in (ended.place, self._program.folder):  # what PYTHONPATH or an installation leads to is in the latter
            file = file.removeprefix(os.path.join(os.path.realpath(folder), ""))
        return f"{file}:{line}"

    # --- resuming ---

    def resumes(
        self,
        command: tuple[str, ...],
        kill_after: int | None = None,
        where: str = "--resume-check",
        on_whole: Callable[[Path], None] = lambda _: None,
    ) -> ResumeVerdict:
        """Return the comparison of the program, killed in mid-run and resumed, with the undisturbed run.

        Args:
            command: The command that resumes it, in the folder that the killed one left.
            kill_after: The step after which it is killed; by default three fifths of its steps.
            where: The place where its user typed the command, for messages.
            on_whole: Called with the folder of the undisturbed run once that has ended.

        Raises:
            InputError: The program or the command fails, or the command goes on from no checkpoint.
        """
        whole = self._run("the program, undisturbed to its end", NOTHING, 0)
        mine = computed(whole).chains
        on_whole(whole.place)
        if not mine:
            raise InputError(f"{NO_STEP}, after which it could be killed", where=where, hint=f"leave {where} out")
        key = max(mine, key=lambda each: len(mine[each].entries))
        steps = len(mine[key].entries)
        after = kill_after or max(1, steps * 3 // 5)
        if after >= steps:
            hint = f"--kill-at {max(1, steps - 1)}" if steps > 1 else f"let it make two steps or more, or leave {where} out"
            raise InputError(f"it makes {steps} steps, and cannot be killed after step {after}", where="--kill-at", hint=hint)
        killed = self._run(f"killed after step {after}", NOTHING, 0, kill=after)
        if killed.code == 0:
            message = f"killed after step {after} it still ended with exit code 0: something restarts it"
            raise InputError(message, where=where, hint="give the command of the program itself, not of its launcher")
        again = dataclasses.replace(self._program, command=command, where=where)
        resumed = self._run("resumed", NOTHING, 0, program=again, place=killed.place)
        if resumed.code != 0:
            message = f"it ended with {ended_with(resumed.code)}: {' / '.join(_tail(resumed)[-3:])}"
            raise InputError(message, where=where, hint="give the command that resumes the program from its own checkpoint")
        theirs = max(chains(resumed.lines).values(), key=lambda chain: len(chain.entries), default=Chain((), ()))
        return self._compared(shlex.join(command), mine[key], theirs, after, again)

    def _compared(self, command: str, whole: Chain, rest: Chain, after: int, again: WrappedProgram) -> ResumeVerdict:
        steps, made = len(whole.entries), len(rest.entries)
        if made >= steps:
            message = f"it made all {made} steps: after step {after} there was no checkpoint to resume from"
            hint = "let the program save earlier, or kill it later (mltrainer wrap --kill-at)"
            raise InputError(message, where=again.where, hint=hint)
        went_on = steps - made
        verdict = ResumeVerdict(command, True, steps, after, went_on)
        for left, right in zip(whole.entries[went_on:], rest.entries, strict=True):
            if (left.gradients, left.weights) != (right.gradients, right.weights):
                is_update = left.gradients == right.gradients
                what = "its optimizer or schedule" if is_update else "the order of its samples, its generators or its model"
                shown = self._first_resumed(went_on, after, again)
                return dataclasses.replace(
                    verdict, same=False, step=left.step, what=f"{what} did not go on from where it stood", shown=shown
                )
        what = end_difference(whole, rest) if made else "it makes no step"
        return dataclasses.replace(verdict, same=False, what=what) if what else verdict

    def _first_resumed(self, went_on: int, after: int, again: WrappedProgram) -> str | None:
        """Return the first difference, in words, of the first resumed step from the undisturbed run's; None where none shows."""
        whole = self._run("the cause: traced", NOTHING, went_on + 1, trace=TRACED)
        killed = self._run("the cause: killed once more", NOTHING, 0, kill=after)
        rest = self._run("the cause: resumed, traced", NOTHING, 1, trace=TRACED, program=again, place=killed.place)
        one, other = (_of_step(traces(ended.lines), step) for ended, step in ((whole, went_on + 1), (rest, 1)))
        shown = _first_difference(one, other)
        return shown.what if shown is not None else None

    # --- runs ---

    def _run(
        self,
        what: str,
        change: Perturbations,
        steps: int,
        *,
        trace: Settings = UNTRACED,
        files: bool = False,
        kill: int = 0,
        program: WrappedProgram | None = None,
        place: Path | None = None,
    ) -> FinishedRun:
        self._starts += 1
        self._tell({"event": "note", "text": what})
        scratch = self._scratch / f"run-{self._starts}"
        settings = trace._replace(steps=steps, files=files, kill=kill, replay=self._replay)
        limit_s = TRACED_S if trace.trace else 0.0
        ended = start(program or self._program, scratch, change, settings, pace(self._tell, steps, self._on_poll), place, limit_s)
        if ended.program.has_terminal and not self._program.has_terminal:
            self._program = ended.program
            self._tell({"event": "note", "text": f"{what}, with a terminal, for which it asks"})
        require_same_bits(ended.lines, (program or self._program).where)
        return ended


def require_same_bits(lines: Path, where: str) -> None:
    """Require the same bits of each backward pass that was computed twice.

    Raises:
        MachineError: One gave other bits.
    """
    rows = [row for rows in rows_of(lines, "repeated").values() for row in rows if row[1] == "differ"]
    for _, _, number, what in rows:
        raise MachineError(f"backward pass {number}, computed twice, gave other bits: {what}", where=where, hint=WRONG)


def repeated(lines: Path) -> Repeated:
    """Return the numbers of backward passes that were computed twice, and of those that were left out, in all processes."""
    outcomes = [row[1] for rows in rows_of(lines, "repeated").values() for row in rows]
    return Repeated(outcomes.count("same"), outcomes.count("left out"))


def changed(program: WrappedProgram) -> tuple[str, ...]:
    """Return the changes between runs of a program that must not matter, in words; only those that are made here."""
    is_made = {"hashes": program.hash_seeds[0] != program.hash_seeds[1], "memory": platform.libc_ver()[0] == "glibc"}
    words = words_of(dataclasses.replace(ALL, **is_made))
    return tuple("folder for temporary files" if program.in_place and what == "folders" else what for what in words)


def computed(ended: FinishedRun) -> Computed:
    """Return the compared parts of a run: the steps of each process that trained; where none was seen, what it left.

    Args:
        ended: The run.

    Raises:
        InputError: It failed, or made no step that was seen and left nothing.
    """
    require_success(ended)
    trained = {key: chain for key, chain in chains(ended.lines).items() if chain.entries}
    if trained:
        return Computed(trained)
    left = _left(ended)
    if not left:
        raise _no_evidence(ended.program)
    return Computed({}, left)


def require_success(ended: FinishedRun) -> None:
    """Require that a program ended with exit code 0.

    Raises:
        MachineError: It was out of memory, or ended by the system.
        InputError: It failed; with its last lines.
    """
    program = ended.program
    # Asked first: being out of memory says nothing about the program, and has a separate exit code.
    if ended.code != 0 and (why := _of_the_machine(ended)) is not None:
        hint = "give it a smaller batch or model, or stop other programs here, then type the same command again"
        raise MachineError(why, where=shlex.join(program.command), hint=hint)
    if ended.code != 0:
        said = "".join(f"\n    {line}" for line in _tail(ended))
        printed = f"it printed last:{said}" if said else "it printed nothing"
        place = "its folder" if program.in_place else "a copy of its folder"
        message = f"it ended with {ended_with(ended.code)} in {place}; {printed}"
        raise InputError(message, where=shlex.join(program.command), hint=_way_out(said, program))


def _left(ended: FinishedRun) -> dict[str, str]:
    return leftover_files(ended.place, ended.program.leaves or written(ended.place, ended.before), ended.program.delivers)


def _no_evidence(program: WrappedProgram) -> InputError:
    """Return the error of a program of which nothing can be compared."""
    by_steps = "steps are those of optimizers, and changes of weights by hand between two calls of backward()"
    unseen = "a Python that is started with -I, -S or -E cannot be observed"
    if program.where != SCRIPT:
        left, by_files = "and it left no file in its folder", "let one without PyTorch write what it computes to a file there"
    elif program.leaves:
        left, by_files = (
            f"and it left none of {', '.join(program.leaves)}",
            "let it write what task.metrics and task.outputs name",
        )
    else:
        left, by_files = "", "for one without PyTorch, name the files that it writes in task.metrics and task.outputs"
    return InputError(
        ", ".join(filter(None, (f"{NO_STEP} in any of its processes", left))),
        where=shlex.join(program.command),
        hint=f"give the command that trains: {by_steps}; {by_files}; {unseen}",
    )


def compared_like(one: Computed, ended: FinishedRun) -> Computed:
    """Return the parts of a run that were compared of an earlier one: its steps, or what it left, too."""
    return Computed(chains(ended.lines), None if one.left is None else _left(ended))


def difference(one: Computed, other: Computed, steps: int = 0) -> ChainDifference | None:
    """Return the first difference of two runs, or None where all that was observed is the same.

    Args:
        one: A run.
        other: Another one, seen like it.
        steps: After how many a process was ended; 0 for never.
    """
    divergence = first_divergence(one.chains, other.chains, steps)
    if divergence is not None or one.left is None or other.left is None:
        return divergence
    unlike = first_unlike(one.left, other.left)
    return ChainDifference(0, unlike.what, "", unlike.expected, unlike.found) if unlike is not None else None


def _steps_compared(one: Computed, other: Computed, steps: int, *, is_same: bool) -> int | None:
    if one.left is not None:
        return None
    return compared(one.chains, other.chains, steps) if is_same else max(len(c.entries) for c in one.chains.values())


def _way_out(said: str, program: WrappedProgram) -> str:
    """Return the hint for a program that failed in a copy of its folder: the exact flag where a file beside it is missing."""
    if program.in_place:
        return "try it by itself"
    by_paths = "name them by absolute paths"
    if program.where == SCRIPT:
        return f"try it by itself; where it needs files outside this folder, {by_paths}"
    here = f"mltrainer wrap --in-place -- {shlex.join(program.command)}"
    missing = [name for name in MISSING.findall(said) if ".." in Path(name).parts and (program.folder / name).exists()]
    if missing:
        return f"{missing[0]} is beside this folder, and not beside its copy: {here}"
    return f"try it by itself; where it needs files outside this folder, {by_paths}, or run it here: {here}"


def _of_the_machine(ended: FinishedRun) -> str | None:
    """Return the machine's reason for a program's failure, by its signal or its last line; None where it is its own fault."""
    if (why := killed(ended.code)) is not None:
        return f"it was ended by {ended_with(ended.code)}: {why}"
    last = next(reversed(_tail(ended)), "")
    is_memory = last.startswith("MemoryError") or is_out_of_memory(RuntimeError(last))
    return f"out of memory: {last}" if is_memory else None


def pace(tell: Tell, steps: int, on_poll: Callable[[], None]) -> Callable[[Path], None]:
    """Return a callback of polls that reports a run's step and rate; a run to its end has no known number of steps."""
    quiet, rate_of, shown = stall_reporter(lambda text: tell({"event": "note", "text": text})), rate(steps), 0

    def poll(lines: Path) -> None:
        nonlocal shown
        on_poll()
        quiet(last_step(lines))
        done = min(steps_in(lines), steps) if steps else 0
        if done > shown:
            shown = done
            tell({"event": "progress", "step": done, "steps": steps, "steps_per_s": rate_of(done)})

    return poll


def rate(steps: int, clock: Callable[[], float] = time.monotonic) -> Callable[[int], float]:
    """Return a function from the steps so far to the rate in steps/s; 0 where the time left would grow.

    Steps grow slower where a program is traced: a time that counts upward is no estimate, and none is given then.

    Args:
        steps: The number of steps of the whole run.
        clock: Returns the time in seconds.
    """
    first: tuple[int, float] | None = None
    left = math.inf

    def after(done: int) -> float:
        nonlocal first, left
        now = clock()
        if first is None:
            first = (done, now)
            return 0.0
        per_s = (done - first[0]) / max(now - first[1], 1e-9)
        if now - first[1] < LEAST_S or (steps - done) / per_s > left:
            return 0.0
        left = (steps - done) / per_s
        return per_s

    return after


def _left_over(kind: str) -> tuple[str, ...]:
    """Return the kinds of cause that an experiment leaves over."""
    if kind == "chance":
        return (*UNCHANGED, "unwritten memory", "operation", *(k for k in ONE_BY_ONE if k not in ("chance", *UNCHANGED)))
    return (kind, *{"folder": ("threads",), "threads": ("clock",)}.get(kind, ()))  # to stand still is to come later, too


def _first_difference(one: dict[Key, list[list[Any]]], other: dict[Key, list[list[Any]]]) -> FirstDifference | None:
    first: FirstDifference | None = plugins.part("blame", "first_difference")(one, other)
    return first


def _kind_of(judgement: Judged) -> str | None:
    """Return the key of ONE_BY_ONE for the likeliest line; None if its kind is unknown."""
    kind = judgement.causes[0].kind if judgement.causes and judgement.is_explained else None
    return kind if kind in CHANGES else "chance" if kind in UNCHANGED else None


def _first_steps(chain: Chain, steps: int) -> Chain:
    """Return a chain's first steps, without its end where it is cut; 0 for all."""
    return Chain(chain.entries[:steps], ()) if 0 < steps < len(chain.entries) else chain


def _of_step(traces_by_process: dict[Key, list[list[Any]]], step: int) -> dict[Key, list[list[Any]]]:
    """Return the rows of one step's outputs, gradients and weights in the process with most, under one name for all programs."""
    rows = {
        key: [row for row in trace if row[1] in ("module", "gradient", "weights") and row[2] == step]
        for key, trace in traces_by_process.items()
    }
    longest = max(rows.values(), key=len, default=[])
    return {("", 0): longest}


def _tail(ended: FinishedRun) -> list[str]:
    """Return the last lines that a program printed; files of the copy that it ran in by the names that its user knows."""
    said = tail(ended.log, TAIL_BYTES)
    # The resolved path first, as the other one may be a part of it.
    for place in (os.path.realpath(ended.place), str(ended.place)):
        said = said.replace(place, str(ended.program.folder))
    return said.rstrip().splitlines()[-TAIL:]


def _source(file: str) -> str:
    """Return a file's text; empty if it has none."""
    try:
        return Path(file).read_text("utf-8")
    except (OSError, ValueError):
        return ""


def _distinct(lines: Iterator[SuspectLine]) -> Iterator[SuspectLine]:
    seen: set[str] = set()
    for line in lines:
        if line.where not in seen:
            seen.add(line.where)
            yield line


def hint(cause: Cause, *, of_left: bool = False) -> str:
    """Return the fix for a cause; `of_left`: no step was seen, and what the program left was compared."""
    return OF_LEFTOVER_FILES.get(cause.kind, KINDS[cause.kind].hint) if of_left else KINDS[cause.kind].hint
