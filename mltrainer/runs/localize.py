"""The reason that two runs of the same config differ: the same steps in pairs of processes, each pair with one thing changed.

The first pair changes nothing; each later one changes one thing that must not matter. The first pair that differs names
the kind of the cause, and the two processes' traces name the first thing that differed: samples, module, loss, gradient.
The line of the project that made it differ is found as `mltrainer wrap` finds it, by a pair that is traced line by line.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mltrainer import leftovers
from mltrainer.errors import InputError
from mltrainer.executors.executor import EVENTS
from mltrainer.observe.disturbances import DISTURBANCES, Perturbations, alone
from mltrainer.programs.checking import Check, calls_in
from mltrainer.programs.starting import WrappedProgram
from mltrainer.records.common import Call, Cause
from mltrainer.records.job import TrainingJob
from mltrainer.reproducibility.causes import HASH_SEEDS, KINDS, Trace, first_difference
from mltrainer.runs.launcher import Tools, prepared
from mltrainer.runs.trainer import trainer_of
from mltrainer.workspace import read_json

TRACE_FILE, WITNESS_FILE, INITIAL_FILE = "trace.jsonl", "witness.json", "initial.json"


@dataclass(frozen=True)
class Change:
    """One thing that the second process of a pair does differently.

    Attributes:
        kind: The name of the difference when only this was changed, as messages call it.
        job: Entries of its job.
        variables: Variables of its environment.
        traced: The same where a pair is traced line by line; None: no such pair shows it.
    """

    kind: str
    job: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    traced: Perturbations | None = None


NOTHING = Change("chance", traced=Perturbations())
HASH_SEED_VARIABLE = "PYTHONHASHSEED"
OTHER_HASHES = {HASH_SEED_VARIABLE: HASH_SEEDS[1]}
TRACED = frozenset(("hashes", "memory", "listing", "pause", "date"))  # not the folder, as a pair is traced in the project's own
ONE_BY_ONE = [
    Change(
        row.kind,
        job={"disturbances": [row.name]},
        variables=OTHER_HASHES if row.name == "hashes" else {},
        traced=alone(row.kind) if row.name in TRACED else None,
    )
    for row in DISTURBANCES
]


def find_cause(tools: Tools, job: TrainingJob, changes: list[Change], from_step: int) -> Cause | None:
    """Return the cause of a difference between processes in a job's steps, or None if no process differed from the first.

    Args:
        tools: The project's tools.
        job: The training, with `max_steps`; it is run once as it is, and once for each change, under `.mltrainer/cause`.
        changes: The changes to try, one at a time, the likeliest first; `NOTHING` should be the first.
        from_step: The first step that is traced.

    Returns:
        The cause, its kind one of KINDS, with the lines of the project that are likely it.
    """
    folder = tools.project.state_dir / "cause"
    expected: Trace | None = None
    for change in changes:
        tools.note(f"looking for the cause: another process, {_described(change)}")
        expected = expected or read_trace(_run(tools, job, folder / "a", from_step, NOTHING))
        other = _run(tools, job, folder / "b", from_step, change)
        difference = first_difference(expected, read_trace(other))
        if difference is not None:
            step, what = difference
            calls = _traced(tools, job, folder, change, step)
            if not calls and change is NOTHING:
                calls = _used(other)
            return Cause(kind=calls[0].kind if calls and change is NOTHING else change.kind, step=step, what=what, calls=calls)
    return None


def _traced(tools: Tools, job: TrainingJob, folder: Path, change: Change, step: int) -> list[Call]:
    """Return the lines of the project that likely make a pair of processes differ, from a trace of each line."""
    if change.traced is None:
        return []
    last = step + 1 if step else job.max_steps or 0
    own = {"purpose": "probe", "folder": tools.project.relative(folder / "traced"), "max_steps": last}
    command = prepared(tools.project, trainer_of(tools, job).page.tool, job.model_copy(update=own))
    if command.processes > 1:
        return []
    program = WrappedProgram(
        tuple(argument for argument in command.arguments if argument != EVENTS),
        tools.project.root,
        in_place=True,
        hash_seeds=HASH_SEEDS,
        environment=command.environment,
    )
    with leftovers.scratch("cause-") as scratch:
        cause = Check(program, Path(scratch), tools.tell).cause(change.kind, change.traced, last)
    return calls_in(cause.lines)


def _described(change: Change) -> str:
    return "nothing changed" if change is NOTHING else f"only {change.kind} changed"


def _run(tools: Tools, job: TrainingJob, folder: Path, from_step: int, change: Change) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    own = {"purpose": "probe", "folder": tools.project.relative(folder), "trace_from": from_step, **change.job}
    trainer_of(tools, job).probe(job.model_copy(update=own), change.variables)
    return folder


def _used(folder: Path) -> list[Call]:
    """Return the lines of the project that used a clock, entropy or threads, those of the likeliest kind first."""
    calls = [Call.model_validate(call) for call in read_json(folder / WITNESS_FILE)["calls"]]
    return sorted(calls, key=lambda call: [*KINDS].index(call.kind))


def read_trace(folder: Path) -> Trace:
    """Return a process's trace: the digests of its samples and initial weights, then the rows of each step."""
    initial: Trace = [(0, "initial", name, sha) for name, sha in read_json(folder / INITIAL_FILE)["tensors"].items()]
    try:
        lines = (folder / TRACE_FILE).read_text("utf-8").splitlines()
        samples, *steps = [(step, what, name, sha) for step, what, name, sha in map(json.loads, lines)]
        return [samples, *initial, *steps]
    except (OSError, ValueError) as error:
        hint = "type the same command again"
        raise InputError(f"the trace cannot be read: {error}", where=str(folder / TRACE_FILE), hint=hint) from error
