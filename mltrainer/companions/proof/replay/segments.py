"""Segments of a run trained again in one process, each from a checkpoint up to the next, and compared bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from mltrainer.checkpointing.format import Tree, load
from mltrainer.checkpointing.manifest import folder_name
from mltrainer.checkpointing.weights import delivered, raw_bytes, weights_sha256, weights_tree_sha256
from mltrainer.companions.proof.findings import CASE_FILE, Case, Evaluated, Replay, SegmentReplay, StepTrace
from mltrainer.companions.proof.replay.cases import write_case
from mltrainer.companions.proof.replay.operators import Operators, StepOperators
from mltrainer.errors import InputError, StoppedError
from mltrainer.records.common import Divergence
from mltrainer.records.job import AuditJob
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.evidence import RESULT_FILE
from mltrainer.tools.program import EXIT_CODES, Events, StopSignals
from mltrainer.trainers.native.evaluation import measured
from mltrainer.trainers.native.recording import EvaluationRow
from mltrainer.trainers.native.session import Session
from mltrainer.trainers.native.stages import Outcome, Rewind
from mltrainer.trainers.native.stopping import patience_is_over
from mltrainer.workspace import plain, sha256_bytes, write_json

# No function of what was trained: times, memory, and a file's digest that a replay does not write.
OF_THE_MACHINE = frozenset({"seconds", "samples_per_s", "data_wait", "memory_mb", "allocated_mb", "gradients"})


def work(job: AuditJob, root: Path, events: Events) -> int:
    """Train a job's segments again and measure its checkpoints, or note one step's operators; the answer is in `result.json`.

    Raises:
        StoppedError: A signal stopped it.
        GateError: A checkpoint is damaged.
    """
    folder, saved = root / job.folder, root / job.saved
    session = Session(job, folder, events, StopSignals(events), root)
    session.prepare()
    # Before the first step: the run's own files are the records, and these steps are compared with them.
    session.trainer.recorder.keep_nothing()
    found = _trained(session, job, saved, events) if job.step is None else traced(session, job, saved, folder)
    write_json(folder / RESULT_FILE, found.written())
    session.task.close()
    return 0


def _trained(session: Session, job: AuditJob, saved: Path, events: Events) -> Replay:
    segments, evaluations = [], list[Evaluated]()
    for begin, end in job.segments:
        events.send("note", text=f"trains steps {begin + 1} to {end} again")
        segments.append(_replayed(session, begin, end, saved, is_compared=end in job.compared))
        rows = (row for row in session.trainer.history if begin < row.step <= end)
        evaluations += [_evaluated(row) for row in rows]
    weights, trainer = session.model.state_dict(), session.trainer
    is_over = trainer.step == session.plan.steps
    reason = "epochs" if is_over else "early_stopping" if patience_is_over(trainer.history, session.config) else ""
    ended = {"weights_sha256": weights_sha256(weights), "weights_tree_sha256": weights_tree_sha256(weights, threads=job.threads)}
    evaluations += [_measured(session, step, saved) for step in job.measured]
    return Replay(
        **ended,
        ended=reason,
        init_sha256=session.init_sha256,
        segments=segments,
        evaluations=sorted(evaluations, key=lambda one: one.step),
        delivered_sha256=None if job.best is None else weights_sha256(delivered(_state(job.best, saved))),
        numerics_class=session.numerics_class,
        data_sha256=session.task.data_sha256,
    )


def _replayed(session: Session, begin: int, end: int, saved: Path, *, is_compared: bool) -> SegmentReplay:
    """Train one segment again; the run's first one starts from the prepared session, any other from its checkpoint."""
    if session.trainer.step != begin or session.trainer.history:
        go_back(session, begin, saved)
    outcome = train_until(session, end)
    divergence = outcome.divergence
    if divergence is None and session.trainer.step != end:
        reached = f"{session.trainer.step} ({outcome.reason})"
        divergence = Divergence(step=session.trainer.step, what="last step", expected=str(end), found=reached)
    if divergence is None and is_compared:
        divergence = state_divergence(_state(end, saved), session.trainer.state_tree(), end)
    return SegmentReplay(begin=begin, end=end, seconds=outcome.train_s, first_divergence=divergence, compared_state=is_compared)


def _evaluated(row: EvaluationRow) -> Evaluated:
    """Return a row of the history, without times and memory."""
    known = OF_THE_MACHINE | {"step", "validation", "train", "signals"}  # signals are in a place of their own in a result
    others = plain({key: value for key, value in row.items() if key not in known})
    return Evaluated(step=row.step, validation=plain(row.validation), train=plain(row["train"]), others=others)


def _state(step: int, saved: Path) -> Tree:
    """Return the state of a checkpoint."""
    tree: Tree = load(saved / "checkpoints" / folder_name(step))[0]
    return tree


def go_back(session: Session, step: int, saved: Path) -> None:
    """Restore the whole state of a checkpoint."""
    session.trainer.rewind(_state(step, saved), Rewind.RESUME)


def train_until(session: Session, step: int) -> Outcome:
    """Train up to a step, or the first difference from the run.

    Raises:
        StoppedError: A signal stopped it.
    """
    trainer = session.trainer
    trainer.until = dataclasses.replace(trainer.until, last_step=step)
    trainer.outcome = Outcome()
    outcome = trainer.run()
    if outcome.reason == "signal":
        cause = outcome.interruptions[-1].cause
        raise StoppedError(f"stopped by {cause}", exit_code=EXIT_CODES[cause], hint="type the same command again")
    return outcome


def _measured(session: Session, step: int, saved: Path) -> Evaluated:
    """Measure a checkpoint's delivered weights on the validation split."""
    session.model.load_state_dict(delivered(_state(step, saved)), strict=True)
    found = measured(session.task, session.model, session.task.split("validation"), "validation")
    return Evaluated(step=step, validation=plain(found.metrics))


def traced(session: Session, job: AuditJob, saved: Path, folder: Path) -> StepTrace:
    """Take one step again and return its operators; the kept one is written to `case.safetensors` in the job's folder.

    Raises:
        InputError: A step before it differs already, or the model's kernels are compiled, so that no operator of it is seen.
        StoppedError: A signal stopped it.
    """
    assert job.step is not None
    trainer, chain = session.trainer, fingerprint.read(saved / fingerprint.CHAIN_FILE)
    if session.config.compile:
        raise InputError("a compiled model does not show its operators", where="compile", hint="the dispute ends at the step")
    if (begin := max((step for step in job.compared if step < job.step), default=trainer.step)) > trainer.step:
        go_back(session, begin, saved)
    if begin < job.step - 1 and (found := train_until(session, job.step - 1).divergence) is not None:
        raise InputError(f"the earlier step {found.step} already differs ({found.what})", hint=f"dispute step {found.step}")
    operators = Operators(job.case_of)
    observer = StepOperators(job.step, operators)
    trainer.observers = [*trainer.observers, observer]
    train_until(session, job.step)
    if job.case_of is not None and job.case_of < len(operators.rows):
        kept = operators.rows[job.case_of]
        case = Case(
            run=job.run,
            step=job.step,
            number=job.case_of,
            operator=kept.name,
            threads=job.threads,
            inputs=kept.inputs,
            here=kept.outputs,
            there=job.there,
            numerics_class=session.numerics_class,
        )
        write_case(folder / CASE_FILE, case, operators.arguments, operators.results)
    claimed = next((line.split() for line in chain if line.startswith(f"{job.step} ")), ["", "", "", ""])
    return StepTrace(
        run=job.run,
        step=job.step,
        chain_head=chain[-1].rpartition(" ")[2] if chain else "",
        numbers=observer.numbers,
        claimed=" ".join(claimed[2:4]),
        numerics_class=session.numerics_class,
        operators=operators.rows,
    )


def state_divergence(expected: Tree, found: Tree, step: int) -> Divergence | None:
    """Return the first difference of two states, by the place in the state; None if every bit is the same."""
    place = next(_unlike(expected, found), None)
    if place is None:
        return None
    values = (_shown(_at(state, place)) for state in (expected, found))
    return Divergence(step=step, what=f"state {'.'.join(map(str, place))}", expected=next(values), found=next(values))


def _unlike(one: Any, other: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the places at which two states differ."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys([*one, *other]):
            if key not in OF_THE_MACHINE:
                yield from _unlike(one.get(key), other.get(key), (*place, key))
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from _unlike(*pair, (*place, number))
    elif isinstance(one, Tensor) and isinstance(other, Tensor):
        if (one.dtype, one.shape) != (other.dtype, other.shape) or raw_bytes(one) != raw_bytes(other):
            yield place
    elif repr(one) != repr(other):  # a float's text is exact, and NaN has the text of NaN
        yield place


def _at(state: Any, place: Sequence[Any]) -> Any:
    for key in place:
        state = state.get(key) if isinstance(state, Mapping) else state[key]
    return state


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}, sha256 {sha256_bytes(bytes(raw_bytes(value)))[:12]}".removeprefix(
            "torch."
        )
    return repr(value)[:80]
