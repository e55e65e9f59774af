"""Why two runs of the same config differ: the same steps again in pairs of processes, each pair with one thing changed.

The first pair changes nothing; each later one changes one thing that must not matter. The first pair that differs names
the kind of the cause, and the two processes' traces name the first thing that differed: samples, module, loss, gradient.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mltrainer.errors import InputError
from mltrainer.records.common import Call, Cause
from mltrainer.records.job import TrainingJob
from mltrainer.reproducibility.causes import HASH_SEEDS, KINDS, Trace, first_difference
from mltrainer.runs.launcher import Tools
from mltrainer.runs.trainer import trainer_of
from mltrainer.workspace import read_json

TRACE_FILE, WITNESS_FILE, INITIAL_FILE = "trace.jsonl", "witness.json", "initial.json"


@dataclass(frozen=True)
class Change:
    """One thing that the second process of a pair does differently.

    Attributes:
        kind: What differs when only this was changed, as messages call it.
        job: Entries of its job.
        variables: Variables of its environment.
    """

    kind: str
    job: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


NOTHING = Change("chance")
HASH_SEED_VARIABLE = "PYTHONHASHSEED"
HASH_SEED = Change("hash order", variables={HASH_SEED_VARIABLE: HASH_SEEDS[1]})
MEMORY = Change("unwritten memory", job={"fill_memory": True})


def find_cause(tools: Tools, job: TrainingJob, changes: list[Change], from_step: int) -> Cause | None:
    """Return the cause of a difference between processes in a job's steps, or None where no pair differed.

    Args:
        tools: The project's tools.
        job: The training, with `max_steps`; it is run up to eight times, under `.mltrainer/cause`.
        changes: What to change, one at a time, the likeliest first; `NOTHING` should be the first.
        from_step: The first step that is traced.

    Returns:
        The cause, its kind one of KINDS. Lines of the project are named where nothing was changed: they are the likely culprits.
    """
    folder = tools.project.state_dir / "cause"
    for change in changes:
        tools.note(f"looking for the cause: two processes, {_described(change)}")
        sides = [_run(tools, job, folder / name, from_step, side) for name, side in (("a", NOTHING), ("b", change))]
        difference = first_difference(*(read_trace(side) for side in sides))
        if difference is not None:
            calls = _calls(sides[1]) if change is NOTHING else []
            step, what = difference
            return Cause(kind=_kind(change, calls), step=step, what=what, calls=calls)
    return None


def _described(change: Change) -> str:
    return "nothing changed" if change is NOTHING else f"only {change.kind} changed"


def _run(tools: Tools, job: TrainingJob, folder: Path, from_step: int, change: Change) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    own = {"purpose": "probe", "folder": tools.project.relative(folder), "trace_from": from_step, **change.job}
    trainer_of(tools, job).probe(job.model_copy(update=own), change.variables)
    return folder


def _kind(change: Change, calls: list[Call]) -> str:
    """Return the kind; where nothing was changed, it is the likeliest of what the project's own code was seen to use."""
    if change is not NOTHING:
        return change.kind
    return next((kind for kind in KINDS if any(call.kind == kind for call in calls)), change.kind)


def _calls(folder: Path) -> list[Call]:
    return [Call.model_validate(call) for call in read_json(folder / WITNESS_FILE)["calls"]]


def read_trace(folder: Path) -> Trace:
    """Return a process's trace: the digests of its samples and initial weights, then the rows of each step."""
    initial: Trace = [(0, "initial", name, sha) for name, sha in read_json(folder / INITIAL_FILE)["tensors"].items()]
    try:
        lines = (folder / TRACE_FILE).read_text("utf-8").splitlines()
        samples, *steps = [(step, what, name, sha) for step, what, name, sha in map(json.loads, lines)]
        return [samples, *initial, *steps]
    except (OSError, ValueError) as error:
        raise InputError(f"the trace cannot be read: {error}", where=str(folder / TRACE_FILE)) from error
