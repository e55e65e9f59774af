"""Decisions from the metrics of combined models: the members that a greedy average keeps, the delivered model. Needs no torch."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path

from mltrainer.checkpointing.ranking import Rank, rank
from mltrainer.checkpointing.tensors import checkpoint_member_sha256, checkpoint_weights
from mltrainer.configs.project import Metric
from mltrainer.records.common import Metrics
from mltrainer.records.finalization import Combination
from mltrainer.records.run import Run

MEMBERS = "members"  # the part of an ensemble that holds its members, by which their tensors are named
MOST_NUMBERS = 20_000_000  # of all members, which plain Python averages in some seconds
TYPECODES = {"float32": "f", "float64": "d"}  # of `array`


def is_better(combination: Combination, run: Run) -> bool:
    """Return True if a combination is better on validation than each single model: the final run's own, and the members.

    Equal is no better: one model is smaller than several, and was reproduced as it is.
    """
    ours = _rank(combination.metrics, run)
    return all(ours > _rank(metrics, run) for metrics in [run.metrics, *(row.metrics for row in combination.members)])


def is_kept(how: str, with_it: Rank, without: Rank) -> bool:
    """Return True if a model that was added to others stays: in a mean unless it made it worse, in an ensemble if it was better.

    A mean is as large and as fast as before; an ensemble has one model more to store and to ask.
    """
    return with_it > without if how == "ensemble" else with_it >= without


def contradictions(combination: Combination, run: Run) -> Iterator[str]:
    """Yield the statements of a combination's record that do not follow from the metrics in it."""
    ranks = [_rank(row.metrics, run) for row in combination.members]
    if ranks != sorted(ranks, reverse=True):
        yield "the members that were combined are not in the order of their validation metrics"
    used = [nr for nr, row in enumerate(combination.members, 1) if row.used]
    wanted, expected = _kept(combination, run) if combination.how != "uniform" else ([*range(1, len(ranks) + 1)], None)
    if used != wanted:
        yield f"the combination is said to be of members {used}; by their validation metrics it is of {wanted}"
    if expected is not None and combination.metrics != expected:
        yield "the combination's metrics are not those of the last average that was kept"
    if combination.delivered != (better := is_better(combination, run)):
        comparison = "better than" if better else "no better than"
        yield f"the combination is {comparison} each single model on validation, and delivered is {combination.delivered}"


def _kept(combination: Combination, run: Run) -> tuple[list[int], Metrics]:
    """Return the members that each addition's metrics keep, and the metrics of the last kept average."""
    kept, metrics = [1], combination.members[0].metrics
    for row in combination.additions:
        if is_kept(combination.how, _rank(row.metrics, run), _rank(metrics, run)):
            kept, metrics = [*kept, row.member], row.metrics
    return kept, metrics


def _rank(metrics: Metrics, run: Run) -> Rank:
    return rank(metrics, Metric.model_validate(run.metric.model_dump()))


# --- the weights, computed again ------------------------------------------------------------------


def weights_fault(combination: Combination, root: Path) -> str:
    """Return the first difference between a combination's weights and the mean of its members' checkpoints, or an empty text.

    Of an ensemble each member's weights are those of its checkpoint. Of a mean each number of single or double precision is
    computed again; batch-norm statistics, which were measured, and other types are left out.

    Args:
        combination: The recorded combination.
        root: The project's folder, which contains all checkpoints.

    Raises:
        InputError: A checkpoint cannot be read.
    """
    used = [row for row in combination.members if row.used]
    folder = root / combination.path
    if combination.how == "ensemble":
        others = (nr for nr, row in enumerate(used) if checkpoint_member_sha256(folder, f"{MEMBERS}.{nr}.") != row.weights_sha256)
        return next((f"member {nr + 1} of the ensemble has other weights than its checkpoint" for nr in others), "")
    weights, parts = checkpoint_weights(folder), [checkpoint_weights(root / row.path) for row in used]
    for name in weights.keys() - set(combination.measured):
        if any(name not in part for part in parts) or _is_other([part[name] for part in parts], weights[name]):
            return f"{name} is not the mean of what its {len(parts)} members have"
    return ""


def is_quick(combination: Combination) -> bool:
    """Return True if the mean is recomputed within seconds in plain Python."""
    used = sum(row.used for row in combination.members)
    return combination.how == "ensemble" or used * combination.cost.parameters <= MOST_NUMBERS


def _is_other(parts: list[tuple[str, bytes]], mean: tuple[str, bytes]) -> bool:
    kind = TYPECODES.get(mean[0])
    if kind is None:
        return False
    columns = zip(*(array(kind, data) for _, data in parts), strict=True)
    # Added in this order, in double precision, and rounded once, as the average was computed.
    return array(kind, [sum(column[1:], start=column[0]) / len(parts) for column in columns]).tobytes() != mean[1]
