"""Plain answers to a user's own task, in the task's own loss: what a model must beat where no metric tells how good is good.

A constant answer, a linear one and one by likeness to training samples are fitted by the loss itself, so that each loss has them:
over classes, quantities, tokens, densities. They are judged on validation samples, in blocks of them, as the model is later on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mltrainer.tasks.samples import generators_kept
from mltrainer.tasks.structures import length, mapped, tensors_in
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.optimization.lean_steps import without_compiler
from mltrainer.trainers.native.signals.overlooked import metrics_of

ITERATIONS = 15  # of L-BFGS
FEATURES = 256  # of an answer, into which more are projected
ANCHORS = 64  # training samples to which others are likened
BLOCKS = 16  # of validation samples
LEAST_BLOCK = 2  # samples of one
CHOOSING = 4  # every so-manieth training sample is left out, to choose how far an answer goes from the constant one
STEPS = (0.0, 0.1, 0.3, 0.6, 1.0)  # that are tried
MOST_NUMBERS = 1 << 18  # of the outputs that are fitted
MOST_ANSWERS = 1 << 12  # to which answers are fitted: samples, or places of samples
MOST_HELD_OUT = 1 << 22  # numbers of the validation outputs, and of the features beside them
RATE = 0.1  # of the features' size: the penalty on a linear answer's weights
SAME = 1e-6  # a relative difference of losses that is none
MIDDLE = 0.1  # of the numbers, left out at both ends together

Values = list[float]
Link = Callable[[Any], Any]


@dataclass(frozen=True)
class Probe:
    """Some samples, as the loss gets them.

    Attributes:
        given: The first tensor that the model got; None where it was not seen.
        outputs: Of the untrained model, a tensor of numbers or a structure of such, a row for each sample or each of its places.
        targets: Of the same samples.
    """

    given: Tensor | None
    outputs: Any
    targets: Any

    def first(self, samples: int) -> Probe:
        """Return as many of the samples."""
        return self.at(slice(0, samples))

    def at(self, samples: slice) -> Probe:
        """Return some of the samples, in the order in which they lie."""
        total = self.samples
        outputs, targets = _at(self.outputs, samples, total), _at(self.targets, samples, total)
        return Probe(None if self.given is None else self.given[samples], outputs, targets)

    @property
    def samples(self) -> int:
        """How many there are: of answers for each place of a sample the loss may get them in one row."""
        rows = length(self.outputs)
        return len(self.given) if self.given is not None and rows % len(self.given) == 0 else rows

    @property
    def numbers(self) -> int:
        """How many numbers the outputs hold."""
        return sum(one.numel() for one in tensors_in(self.outputs))

    @property
    def gives_back(self) -> bool:
        """Whether the targets are the inputs, which any answer without a bottleneck gives back."""
        given, targets = self.given, self.targets
        return (
            isinstance(targets, Tensor)
            and given is not None
            and given.numel() == targets.numel()
            and bool((given.flatten() == targets.flatten()).all())
        )


def _at(value: Any, samples: slice, total: int) -> Any:
    """Return the rows of some samples in each tensor of a structure; a tensor that is not of all of them stays as it is."""

    def chosen(tensor: Tensor) -> Tensor:
        if not tensor.dim() or len(tensor) % total:
            return tensor
        return tensor.reshape(total, len(tensor) // total, *tensor.shape[1:])[samples].flatten(0, 1)

    return mapped(chosen, value)


def probe_of(given: tuple[Any, ...], outputs: Any, targets: Any) -> Probe | None:
    """Return samples of which plain answers can be told; None where outputs are no tensors of numbers, of as many rows each.

    Args:
        given: Arguments and named arguments of the model's first call.
        outputs: As the loss gets them.
        targets: Likewise.
    """
    parts = [*tensors_in(outputs)]
    if not parts or any(not one.is_floating_point() or not one.dim() or not one.numel() for one in parts):
        return None
    if len({len(one) for one in parts}) > 1:
        return None
    first = next((one for one in tensors_in(given) if one.dim() and not one.is_complex()), None)
    return Probe(None if first is None else first.detach(), mapped(lambda one: one.detach().float(), outputs), targets)


# --- whether a loss looks at targets ------------------------------------------------------------------


def uses_targets(task: Task, outputs: Any, targets: Any) -> bool | None:
    """Return False where the loss is the same whatever the targets are; None where that cannot be asked, as without targets.

    The outputs are moved at random before: of outputs that are all alike, targets in another order have the same loss.
    """
    tensors = [one for one in tensors_in(targets) if one.dim() and len(one) > 1]
    if not tensors:  # such as those of a loss that is made in forward
        return None
    drawn = torch.Generator().manual_seed(0)
    moved = mapped(lambda one: _moved(one, drawn), outputs)
    # Turned by one, and all as the first: of an even order one of them may be the same; of targets that are all alike, both.
    is_constant = all(torch.equal(one, _first_for_all(one)) for one in tensors)
    changes = [_other] if is_constant else [lambda one: one.roll(1, 0) if one.dim() else one, _first_for_all]
    others = [mapped(change, targets) for change in changes]
    losses = [_loss(task, moved, one) for one in (targets, targets, *others)]
    if losses[0] != losses[1] or not all(map(math.isfinite, losses)):  # a loss that draws, or refuses other targets
        return None
    return any(abs(loss - losses[0]) > SAME * abs(losses[0]) for loss in losses[2:])


def _moved(tensor: Tensor, drawn: torch.Generator) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    share = torch.rand(tensor.shape, generator=drawn).to(tensor)
    return tensor * (0.5 + 0.499 * share) + 1e-3 * share  # probabilities stay between 0 and 1


def _other(tensor: Tensor) -> Tensor:
    """Return other targets of the same kind: a class is 0, or where it was 0 it is 1."""
    return tensor + 1 if tensor.is_floating_point() else (tensor == 0).to(tensor.dtype)


def _first_for_all(tensor: Tensor) -> Tensor:
    return tensor[:1].expand_as(tensor).clone() if tensor.dim() else tensor


@torch.no_grad()
def _loss(task: Task, outputs: Any, targets: Any) -> float:
    """Return a loss; NaN where the task's loss refuses what it gets, as it may."""
    try:
        return float(task.loss(outputs, targets))
    except Exception:  # it is the user's, and is asked here for targets that training never has
        return math.nan


# --- losses in blocks --------------------------------------------------------------------------------


def block_losses(task: Task, outputs: Any, targets: Any) -> Values | None:
    """Return the loss of each of some blocks of a batch; None where there are too few samples, or the loss refuses parts."""
    total = length(targets) if next(tensors_in(targets), None) is not None else 0
    rows = min((len(one) if one.dim() else 0 for one in tensors_in(outputs)), default=0)
    samples = min(total, rows)
    size = samples // BLOCKS
    if size < LEAST_BLOCK or rows % samples or total % samples:
        return None
    spans = [slice(place * size, (place + 1) * size) for place in range(BLOCKS)]
    losses = [_loss(task, _at(outputs, span, samples), _at(targets, span, samples)) for span in spans]
    return losses if all(map(math.isfinite, losses)) else None


# --- plain answers ------------------------------------------------------------------------------------


def plain_answers(task: Task, train: Probe, held_out: Probe, metric: str) -> dict[str, Any] | None:
    """Return the losses that plain answers reach; None where the loss cannot be asked for them.

    Returns:
        `floor`, the loss of answers that were fitted to each training sample by itself, None of outputs of several parts, which
        no model chooses one by one;
        `losses` of each answer in the blocks of the validation samples;
        `wanted`, the ends of those fitted answers, and `fitted`, the task's metric of them, where there is one.
    """
    shape = _Rows.of(train)
    per_sample = shape.count(train) // train.samples
    most = min(MOST_NUMBERS * train.samples // train.numbers, MOST_ANSWERS // per_sample)
    # Outputs that are as wide as the batch is long are answers about pairs of its samples.
    widths = [[one.shape[1:] for one in tensors_in(probe.outputs)] for probe in (train, held_out)]
    if min(train.samples, most) < BLOCKS or held_out.numbers > MOST_HELD_OUT or widths[0] != widths[1]:
        return None
    train = train.first(most)
    if _loss(task, train.outputs, train.targets) != _loss(task, train.outputs, train.targets):
        return None  # it draws, or keeps a state
    try:
        with generators_kept(), torch.enable_grad():
            return _fitted(task, shape, train, held_out, metric)
    except Exception:  # of the user's loss, which may refuse what no model answers, or of a device without memory for more
        return None


def _fitted(task: Task, shape: _Rows, train: Probe, held_out: Probe, metric: str) -> dict[str, Any] | None:
    link, start = _link(train.outputs)
    rows = shape.rows(start)
    is_one = isinstance(train.outputs, Tensor)

    def told(probe: Probe) -> Callable[[Tensor], Tensor]:
        return lambda found: task.loss(link(shape.back(found, probe)), probe.targets)

    def alike(answer: Tensor) -> Tensor:
        return told(train)(answer.expand(len(rows), -1))

    # An untrained model may answer far from all that is sensible, and a loss may not take zeros.
    begins = [rows.mean(0, keepdim=True), torch.zeros_like(rows[:1])]
    constant, _ = _least(alike, min(begins, key=lambda begin: _known(float(alike(begin).detach()))))
    if constant is None:
        return None
    free, floor = _least(told(train), rows) if is_one else (None, None)
    answers = {"constant": constant.expand(shape.count(held_out), -1)}
    features = _features(train, held_out, len(rows), shape.count(held_out)) if is_one and not train.gives_back else {}
    for name, pair in features.items():
        found = _linear(told, train, constant, *pair, shape)
        if found is not None:
            answers[name] = found
    losses = {name: block_losses(task, link(shape.back(found, held_out)), held_out.targets) for name, found in answers.items()}
    if losses["constant"] is None:
        return None
    fitted = {} if free is None else _of_fitted(task, link(shape.back(free, train)), train.targets, metric)
    return {"floor": floor, "losses": {name: found for name, found in losses.items() if found is not None}, **fitted}


def _of_fitted(task: Task, answers: Tensor, targets: Any, metric: str) -> dict[str, Any]:
    """Return the ends of answers that were fitted to each sample, and the task's metric of them, where it is a number."""
    ends = [MIDDLE / 2, 1 - MIDDLE / 2]
    found: dict[str, Any] = {
        "wanted": torch.quantile(answers.flatten()[:MOST_NUMBERS].double(), torch.tensor(ends).double()).tolist()
    }
    try:
        value = float(metrics_of(task, answers, targets)[metric])
    except Exception:  # of the user's metric, which gets answers that no model gave
        return found
    return found | ({"fitted": value} if math.isfinite(value) else {})


def _known(loss: float) -> float:
    return loss if math.isfinite(loss) else math.inf


def _linear(
    told: Callable[[Probe], Callable[[Tensor], Tensor]],
    train: Probe,
    constant: Tensor,
    features: Tensor,
    others: Tensor,
    shape: _Rows,
) -> Tensor | None:
    """Return answers to other samples, linear in features, as far from the constant one as samples left out of it bear out."""
    cut = train.samples - train.samples // CHOOSING
    fitted, chosen = train.at(slice(0, cut)), train.at(slice(cut, None))
    known, tried = features[: shape.count(fitted)], features[shape.count(fitted) :]

    def penalized(weights: Tensor) -> Tensor:
        return told(fitted)(constant + known @ weights) + RATE * weights.square().mean() * scale

    scale = abs(float(told(fitted)(constant.expand(len(known), -1)).detach()))
    weights, _ = _least(penalized, torch.zeros(features.shape[1], constant.shape[1]).to(features))
    if weights is None:
        return None
    with torch.no_grad():
        losses = [float(told(chosen)(constant + step * (tried @ weights))) for step in STEPS]
        return constant + STEPS[losses.index(min(losses))] * (others @ weights)


def _least(loss: Callable[[Tensor], Tensor], begin: Tensor) -> tuple[Tensor | None, float | None]:
    """Return the point where a loss is smallest, and that loss; None for both where the loss cannot be followed."""
    point = begin.detach().clone().requires_grad_()
    descent = without_compiler(torch.optim.LBFGS)([point], max_iter=ITERATIONS, history_size=8, line_search_fn="strong_wolfe")
    best: list[Any] = [None, math.inf]

    def evaluated() -> Tensor:
        found = loss(point)
        reached = float(found.detach())
        if reached < best[1]:
            best[:] = [point.detach().clone(), reached]
        (point.grad,) = torch.autograd.grad(found, point)  # of nothing else that the loss may hold
        return found

    try:
        descent.step(evaluated)
    except Exception:  # of the user's loss, at a point where no model has been
        return None, None
    return best[0], best[1] if best[0] is not None else None


# --- outputs as rows, one for each answer --------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """How outputs are laid out as rows, one for each answer: a sample's, or those of its places.

    Attributes:
        units: The dimension of what belongs to one answer; None where a sample is one.
    """

    units: int | None

    @classmethod
    def of(cls, probe: Probe) -> _Rows:
        outputs, targets = probe.outputs, probe.targets
        if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor) or targets.is_floating_point() or outputs.dim() < 3:
            return cls(None)
        shape = outputs.shape
        if targets.shape == shape[:1] + shape[2:]:
            return cls(1)
        return cls(-1 if targets.numel() * shape[-1] == outputs.numel() else None)

    def rows(self, outputs: Tensor | Any) -> Tensor:
        """Return outputs as [answers, numbers]."""
        if self.units is None:
            return torch.cat([one.reshape(len(one), -1) for one in tensors_in(outputs)], 1)
        return outputs.movedim(self.units, -1).flatten(0, -2)

    def back(self, rows: Tensor, probe: Probe) -> Any:
        """Return rows in the form of a probe's outputs."""
        if self.units is not None:
            like = probe.outputs.movedim(self.units, -1)
            return rows.reshape(like.shape).movedim(-1, self.units)
        parts = iter(rows.split([one.numel() // len(one) for one in tensors_in(probe.outputs)], 1))
        return mapped(lambda one: next(parts).reshape(one.shape), probe.outputs)

    def count(self, probe: Probe) -> int:
        """Return the number of answers of some samples."""
        return self.rows(probe.outputs).shape[0]


def _link(outputs: Any) -> tuple[Link, Any]:
    """Return the way from free numbers to such outputs, perhaps probabilities or their logarithms, and the numbers of these."""
    tiny = 1e-6
    if not isinstance(outputs, Tensor):
        return lambda free: free, outputs
    if outputs.dim() > 1 and outputs.shape[1] > 1:
        sums, logs = outputs.sum(1), outputs.logsumexp(1)
        if bool(outputs.min() >= 0) and torch.allclose(sums, torch.ones_like(sums), atol=1e-4):
            return lambda free: free.softmax(1), outputs.clamp_min(tiny).log()
        if torch.allclose(logs, torch.zeros_like(logs), atol=1e-4):
            return lambda free: functional.log_softmax(free, 1), outputs
    if bool(outputs.min() > 0) and bool(outputs.max() < 1):
        return torch.sigmoid, torch.logit(outputs, tiny)
    return lambda free: free, outputs


# --- features ------------------------------------------------------------------------------------------


def _features(train: Probe, held_out: Probe, answers: int, others: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Return features of each answer by training and validation samples, by the name of what is linear in them."""
    if train.given is None or held_out.given is None:
        return {}
    found = [_numbers(train.given, answers), _numbers(held_out.given, others)]
    if found[0] is None or found[1] is None or found[0].shape[1] != found[1].shape[1]:
        return {}
    if others * found[1].shape[1] > MOST_HELD_OUT:
        return {}
    known, new = _standardized(found[0], found[1])
    # Of the tokens of places each is like itself alone, which the linear answer knows.
    is_token = not train.given.is_floating_point() and answers > train.samples
    return {"linear": (known, new), **({} if is_token else {"likeness": _likeness(known, new)})}


def _numbers(given: Tensor, answers: int) -> Tensor | None:
    """Return the inputs of each answer as [answers, features]: whole ones are counted, many others projected."""
    if not given.is_floating_point():
        return _counted(given, answers)
    if len(given) == answers:
        rows = given.flatten(1) if given.dim() > 1 else given[:, None]
    elif given.dim() > 2 and given.shape[:-1].numel() == answers:  # a place's own numbers
        rows = given.flatten(0, -2)
    elif given.dim() > 2 and given.numel() // given.shape[1] == answers:  # the channels of each place
        rows = given.movedim(1, -1).flatten(0, -2)
    else:
        return None
    rows = torch.nan_to_num(rows.float(), posinf=0.0, neginf=0.0)
    if rows.shape[1] <= FEATURES:
        return rows
    drawn = torch.randn(rows.shape[1], FEATURES, generator=torch.Generator().manual_seed(0))
    projected: Tensor = rows @ (drawn / rows.shape[1] ** 0.5).to(rows)
    return projected


def _counted(given: Tensor, answers: int) -> Tensor | None:
    """Return the counts of each value in a sample, by column where these are few; of answers for places, the value there."""
    if given.dim() > 1 and given.numel() == answers != len(given):
        rows = given.reshape(-1, 1)
    elif len(given) == answers:
        rows = given.reshape(len(given), -1)
    else:
        return None
    columns = torch.arange(rows.shape[1], device=rows.device) if rows.shape[1] <= BLOCKS else torch.zeros(rows.shape[1]).to(rows)
    places = (rows.long() + 31 * columns.long()) % FEATURES
    return torch.zeros(len(rows), FEATURES, device=rows.device).scatter_add_(1, places, torch.ones_like(places).float())


def _standardized(known: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    mean, size = known.mean(0), known.std(0)
    size = torch.where(size > 0, size, torch.ones_like(size))
    # What lies far outside of all that was seen would be answered far outside, too.
    return (known - mean) / size, ((new - mean) / size).clamp(-5, 5)


def _likeness(known: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """Return the likeness of each row to some of the known ones, of mean 0 and deviation 1."""
    anchors = known[torch.linspace(0, len(known) - 1, min(ANCHORS, len(known))).round().long()]
    near = torch.cdist(known, anchors)
    width = near.median().clamp_min(1e-6)
    return _standardized(*((-((one / width) ** 2)).exp() for one in (near, torch.cdist(new, anchors))))
