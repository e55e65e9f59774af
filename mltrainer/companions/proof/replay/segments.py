"""Segments of a run trained again, each from a checkpoint up to the next, and compared bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from mltrainer.checkpointing.format import Tree
from mltrainer.checkpointing.weights import delivered, raw_bytes, weights_sha256, weights_tree_sha256
from mltrainer.companions.proof.findings import Evaluated, Replay, SegmentReplay
from mltrainer.companions.proof.replay.resuming import go_back, state_of, train_until
from mltrainer.records.common import Divergence
from mltrainer.records.job import AuditJob
from mltrainer.trainers.native.evaluation import measured
from mltrainer.trainers.native.recording import EvaluationRow
from mltrainer.trainers.native.session import Session
from mltrainer.trainers.native.stopping import patience_is_over
from mltrainer.workspace import plain, sha256_bytes

# No function of what was trained: times, memory, and a file's digest that a replay does not write.
OF_THE_MACHINE = frozenset({"seconds", "samples_per_s", "data_wait", "memory_mb", "allocated_mb", "gradients"})


def audited(session: Session, job: AuditJob, saved: Path) -> Replay:
    """Train a job's segments again, measure its checkpoints, and return what was found.

    Raises:
        StoppedError: A signal stopped it.
        GateError: A checkpoint is damaged.
    """
    trainer, segments, evaluations = session.trainer, [], list[Evaluated]()
    for begin, end in job.segments:
        session.events.send("note", text=f"trains steps {begin + 1} to {end} again")
        segments.append(_replayed(session, begin, end, saved, is_compared=end in job.compared))
        evaluations += [_evaluated(row) for row in trainer.history if begin < row.step <= end]
    # Before the checkpoints are measured, which loads theirs into the model.
    weights = trainer.model.state_dict()
    last = {"weights_sha256": weights_sha256(weights), "weights_tree_sha256": weights_tree_sha256(weights, threads=job.threads)}
    evaluations += [_measured(session, step, saved) for step in job.measured]
    return Replay(
        **last,
        segments=segments,
        evaluations=sorted(evaluations, key=lambda one: one.step),
        ended=_ended(session),
        init_sha256=session.init_sha256,
        delivered_sha256=None if job.best is None else weights_sha256(delivered(state_of(job.best, saved))),
        numerics_class=session.numerics_class,
        data_sha256=session.task.data_sha256,
    )


def _ended(session: Session) -> str:
    """Return the reason for which the training ends where it is, as in `Replay`."""
    if session.trainer.step == session.plan.steps:
        return "epochs"
    return "early_stopping" if patience_is_over(session.trainer.history, session.config) else ""


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
        divergence = state_divergence(state_of(end, saved), session.trainer.state_tree(), end)
    return SegmentReplay(begin=begin, end=end, seconds=outcome.train_s, first_divergence=divergence, compared_state=is_compared)


def _evaluated(row: EvaluationRow) -> Evaluated:
    """Return a row of the history, without times and memory."""
    known = OF_THE_MACHINE | {"step", "validation", "train", "signals"}  # signals are in a place of their own in a result
    others = plain({key: value for key, value in row.items() if key not in known})
    return Evaluated(step=row.step, validation=plain(row.validation), train=plain(row["train"]), others=others)


def _measured(session: Session, step: int, saved: Path) -> Evaluated:
    """Measure a checkpoint's delivered weights on the validation split."""
    session.model.load_state_dict(delivered(state_of(step, saved)), strict=True)
    found = measured(session.task, session.model, session.task.split("validation"), "validation")
    return Evaluated(step=step, validation=plain(found.metrics))


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
        kind = str(value.dtype).removeprefix("torch.")
        return f"{kind} of shape {tuple(value.shape)}, sha256 {sha256_bytes(bytes(raw_bytes(value)))[:12]}"
    return repr(value)[:80]
