"""The checkpoints to keep: sets computed from manifests. Nothing is deleted here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from mltrainer.checkpointing.ranking import rank
from mltrainer.configs.project import Checkpoint, Metric
from mltrainer.records.checkpoint import Manifest


def roles(existing: Sequence[Manifest], metric: Metric, policy: Checkpoint) -> dict[int, list[str]]:
    """Return each checkpoint's roles by step: `best`, `last`, `periodic`, in this order.

    Args:
        existing: The intact checkpoints of one run. One that does not say whether it was saved by the calendar counts for
            periodic where `every_n_epochs` divides its epoch.
        metric: The metric with its direction and its tie break.
        policy: The config's `checkpoint`.
    """
    best, last = best_step(existing, metric), max((one.step for one in existing), default=None)
    return {
        one.step: [
            name
            for name, holds in (
                ("best", policy.save_best and one.step == best),
                ("last", one.step == last),
                ("periodic", _is_periodic(one, policy)),
            )
            if holds
        ]
        for one in existing
    }


def best_step(existing: Sequence[Manifest], metric: Metric) -> int | None:
    """Return the step of the checkpoint that describes the run: the best measured one."""
    measured = sorted((one for one in existing if one.metrics), key=lambda one: one.step)
    best = max(measured, key=lambda one: rank(one.metrics, metric), default=None)  # of equal ones the first
    return None if best is None else best.step


def segment_ends(steps: int, segments: int | Literal["evaluations"] | None, evaluations: Iterable[int]) -> frozenset[int]:
    """Return the steps that cut a run into segments, which keep a checkpoint for an audit.

    Args:
        steps: The planned steps of the run.
        segments: The number of segments, of equal length rounded up to whole steps, so that the last one ends with the run;
            `evaluations`: a segment ends at each evaluation; None: no segments.
        evaluations: The steps of the run's evaluations.
    """
    if segments == "evaluations":
        return frozenset(evaluations)
    return frozenset(-(-steps * nr // segments) for nr in range(1, segments + 1)) if segments else frozenset()


def _is_periodic(one: Manifest, policy: Checkpoint) -> bool:
    return one.epoch % policy.every_n_epochs == 0 if one.periodic is None else one.periodic


def to_delete(
    existing: Sequence[Manifest], metric: Metric, policy: Checkpoint, protected: Collection[int], before: int | None = None
) -> set[int]:
    """Return the steps whose checkpoints may be deleted: all but the best, the last, the newest periodic and the protected ones.

    The last one stays even where the policy does not ask for it: a run must be able to go on.

    Args:
        existing: The checkpoints' manifests, as in `roles`.
        metric: The metric, as in `roles`.
        policy: The config's `checkpoint`, as in `roles`.
        protected: Steps that a record refers to.
        before: The steps before a spike that are left out with it, in a run that may still go back at one; None in any other.
    """
    named = roles(existing, metric, policy)
    periodic = sorted(step for step, names in named.items() if "periodic" in names)
    kept = {step for step, names in named.items() if "best" in names or "last" in names}
    kept.update(periodic[max(0, len(periodic) - policy.keep) :], protected)
    if before is not None and named:
        back = _to_go_back_to(sorted(named), before)
        # A run goes back to a checkpoint only with the best one up to it.
        later = [step for step in named if policy.save_best and step in {*kept, *back} and step >= back[0]]
        bests = [best_step([one for one in existing if one.step <= step], metric) for step in later]
        kept.update(back, filter(None, bests))
    return set(named) - kept


def _to_go_back_to(steps: Sequence[int], before: int) -> Sequence[int]:
    """Return the newest of a run's checkpoints that no spike after the last one makes useless, and the one after it.

    The second takes the place of the first once it is old enough. So a run loses about twice `before` steps at most.
    """
    old = sum(step <= steps[-1] - before for step in steps)
    return steps[max(0, old - 1) : old + 1]
