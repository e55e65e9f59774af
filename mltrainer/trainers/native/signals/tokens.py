"""Checks of a model of tokens: an output's distance from its target, access to later tokens, padding in the loss, a copied head.

Nothing is assumed about a task's shift: changed targets show, by the loss's gradient, the output that each
belongs to; changed tokens show, by the outputs, which tokens a model sees.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.tasks.builtin import BuiltinTask
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.opening import OpenTask
from mltrainer.tasks.structures import main_output
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.data.addresses import evaluation_batches
from mltrainer.trainers.native.evaluation import evaluating
from mltrainer.trainers.native.optimization.precision import autocast, full

SAMPLES = 8  # at most as many as in a training step: outputs of large vocabularies fill the memory
SHORTEST = 4  # tokens; shorter samples show too little
SHIFTS = range(-3, 4)  # the tried distances of a target from the last token that a model sees
SURE = 0.99  # chosen by us: the least share of targets that a shift explains
UNSURE = 0.9  # chosen by us: the greatest share that another shift explains; repeated tokens exceed it
PADDED = 0.05  # chosen by us: the least share of padding among the targets that is reported
ENDS = 0.3  # chosen by us: the least share of the samples that end in the padding token, twice or more

Batch = tuple[Any, ...] | dict[str, Any]


def token_findings(task: OpenTask, model: nn.Module, config: TrainingConfig) -> list[Finding]:
    """Return warnings of visible targets, of targets with a wrong shift, and of padding in the loss; [] for other data."""
    # Built-in tasks shift correctly; a hook would compile the model again.
    if isinstance(task.task, BuiltinTask) or task.target_kind == "values" or config.compile:
        return []
    samples = task.split("train")
    with evaluating(model), autocast(config):
        (batch,) = list(evaluation_batches(samples, samples.spread(min(SAMPLES, config.batch_size)), config, "train"))[:1]
        return findings_of(task.task, model, batch)


def copy_findings(model: nn.Module) -> list[Finding]:
    """Return warnings of heads whose weights begin as a copy of an embedding's and are another parameter.

    Args:
        model: A new model: training makes the copies differ.
    """
    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, (nn.Embedding, nn.Linear))]
    heads = [(name, layer.weight) for name, layer in layers if isinstance(layer, nn.Linear) and layer.weight.requires_grad]
    tied = {id(weight) for _, weight in heads}
    embeddings = [(name, layer.weight) for name, layer in layers if isinstance(layer, nn.Embedding)]
    pairs = itertools.product([one for one in embeddings if id(one[1]) not in tied], heads)
    hint = "training makes them differ; make them one parameter: head.weight = embedding.weight, after both were made"
    return [
        Finding("warning", f"the weights of {head} begin as a copy of {embedding}'s and are another parameter; {hint}")
        for (embedding, first), (head, second) in pairs
        if first.device == second.device and torch.equal(first, second) and bool((first != first[0]).any())
    ]


def findings_of(task: Task, model: nn.Module, batch: Any) -> list[Finding]:
    """Return the warnings on one batch of tokens; the model is in evaluation mode."""
    asked = _token_batch(task, model, batch)
    return [] if asked is None else [*_shifted(asked), *_padded(asked)]


@dataclass(frozen=True)
class Asked:
    """One batch of tokens, in the model's and in the loss's form.

    Attributes:
        task: The task, with its loss.
        model: The model.
        batch: The batch, in the form that the task's forward gets.
        tokens: The model's input tokens, [samples, places].
        outputs: The model's outputs, without their graph.
        targets: The loss's targets, reshaped to [samples, places].
        shape: The shape of the targets in the loss.
    """

    task: Task
    model: nn.Module
    batch: Batch
    tokens: Tensor
    outputs: Tensor
    targets: Tensor
    shape: torch.Size

    def loss(self, targets: Tensor, outputs: Tensor | None = None) -> Tensor:
        """Return the loss of targets [samples, places], with the batch's outputs or others."""
        return self.task.loss(self.outputs if outputs is None else outputs, targets.reshape(self.shape))

    def slopes(self, targets: Tensor) -> Tensor:
        """Return the gradient of the loss by the outputs."""
        outputs = self.outputs.detach().clone().requires_grad_()
        with torch.enable_grad():
            (found,) = torch.autograd.grad(self.loss(targets, outputs), outputs)
        return found

    def by_place(self, values: Tensor) -> Tensor:
        """Return the largest absolute value, at each sample's places, of a tensor shaped like the outputs: [samples, places]."""
        size = values.abs()
        if values.dim() == 2:  # all samples' places in one dimension
            size = size.reshape(len(self.tokens), -1, values.shape[-1])
        axis = 1 if abs(size.shape[1] - self.tokens.shape[1]) <= max(map(abs, SHIFTS)) else 2
        return size.amax(3 - axis)


def _token_batch(task: Task, model: nn.Module, batch: Batch) -> Asked | None:
    """Return a batch of tokens to test; None if the samples are not tokens with a target for each."""
    got: list[Tensor] = []

    def note(_module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        got.extend(part for part in (*inputs, *named.values()) if _is_tokens(part))

    handle = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        with torch.no_grad():
            outputs, targets = task.forward(model, batch)
    finally:
        handle.remove()
    outputs = full(outputs)
    if not got or not isinstance(outputs, Tensor) or not isinstance(targets, Tensor) or targets.is_floating_point():
        return None
    tokens = got[0]
    # A shift leaves out a few targets at most.
    places = targets.numel() / len(tokens)
    is_each = places == int(places) and 0 <= tokens.shape[1] - places <= max(SHIFTS)
    if not is_each or outputs.dim() not in (2, 3) or outputs.numel() % len(tokens) or not outputs.is_floating_point():
        return None
    return Asked(task, model, batch, tokens, outputs, targets.reshape(len(tokens), -1), targets.shape)


def _is_tokens(part: Any) -> bool:
    is_whole = isinstance(part, Tensor) and part.dim() == 2 and not part.is_floating_point() and not part.is_complex()
    return bool(is_whole and part.shape[1] >= SHORTEST and len(part) > 1 and len(part.unique()) > 2)  # a mask has two values


def _shifted(asked: Asked) -> list[Finding]:
    """Return a warning if the targets are not the next tokens, or if the model sees them."""
    width = asked.targets.shape[1]
    offsets = {_paired(asked, place) for place in sorted({width // 4, width // 2, 3 * width // 4})} - {None}
    if len(offsets) != 1:
        return []
    ahead = _ahead(asked, int(offsets.pop() or 0))
    if ahead is None:
        return []
    sees_later = _sees_later(asked)
    if sees_later is None:
        return []
    if ahead == 1:
        what = "the model sees the token that it is asked for: an output changes with tokens that come after it"
        return [Finding("warning", f"{what}; mask what comes later in its attention (causal)")] if sees_later else []
    if sees_later:  # an encoder that reproduces its input does not predict the next token
        return []
    if ahead <= 0:
        seen = "that it sees" if ahead == 0 else f"{-ahead} before the last that it sees"
        what = f"the model is asked for the token {seen}: the targets are not shifted against the inputs"
    else:
        what = f"the model is asked for a token {ahead} ahead, not for the next one: the targets are shifted by {ahead}"
    return [Finding("warning", f"{what}; make them tokens[:, 1:] beside inputs tokens[:, :-1], once, in the data or in the loss")]


def _changed(targets: Tensor, places: Any) -> Tensor:
    """Return targets with other tokens, which occur elsewhere, at some places."""
    known, counts = targets[targets >= 0].unique(return_counts=True)
    first, second = known[counts.argsort(descending=True)[:2]]
    changed = targets.clone()
    changed[places] = torch.where(targets[places] == first, second, first)
    return torch.where(targets < 0, targets, changed)  # targets that the loss ignores stay ignored


def _paired(asked: Asked, place: int) -> int | None:
    """Return the distance from the output that the loss compares with a target to the target; None if there is no such output."""
    if len(asked.targets[asked.targets >= 0].unique()) < 2:
        return None
    moved = asked.by_place(asked.slopes(_changed(asked.targets, (slice(None), place))) - asked.slopes(asked.targets)).amax(0)
    # A loss that weighs all places by all targets changes everywhere, but most at the target's own output.
    return place - int(moved.argmax()) if float(moved.max()) > 0 else None


def _ahead(asked: Asked, offset: int) -> int | None:
    """Return the distance in tokens from the last one that an output sees to its target; None if none explains all targets."""
    width, seen = asked.targets.shape[1], asked.tokens.shape[1]
    shares = {}
    for ahead in SHIFTS:
        places = [place for place in range(width) if 0 <= place - offset + ahead < seen and place - offset >= 0]
        targets = asked.targets[:, places]
        same = targets == asked.tokens[:, [place - offset + ahead for place in places]]
        is_target = (targets >= 0) & ~_is_padding(asked, targets)
        shares[ahead] = float(same[is_target].float().mean()) if bool(is_target.any()) else 0.0
    best = max(shares, key=lambda ahead: shares[ahead])
    others = [share for ahead, share in shares.items() if ahead != best]
    return best if shares[best] >= SURE and max(others) <= UNSURE else None


def _sees_later(asked: Asked) -> bool | None:
    """Return True if outputs change with tokens that come after them; None if the same batch gives other outputs each time."""
    place = asked.tokens.shape[1] // 2
    first, again, changed = (_answer(asked, batch) for batch in (asked.batch, asked.batch, _with_other_token(asked, place)))
    if first is None or again is None or changed is None or not torch.equal(first, again):
        return None
    moved = asked.by_place(changed - first).amax(0)
    if float(moved.max()) == 0:  # a model that ignores its inputs shows nothing
        return None
    return bool(moved[:place].max() > 1e-4 * moved.max())


def _answer(asked: Asked, batch: Batch | None) -> Tensor | None:
    if batch is None:
        return None
    with torch.no_grad():
        outputs = full(main_output(asked.task.forward(asked.model, batch)[0]))
    return outputs if isinstance(outputs, Tensor) and outputs.shape == asked.outputs.shape else None


def _with_other_token(asked: Asked, place: int) -> Batch | None:
    """Return the batch with one other token per sample, at a place of the model's input and nowhere else."""
    parts: dict[Any, Any] = dict(asked.batch) if isinstance(asked.batch, dict) else dict(enumerate(asked.batch))
    for name, part in parts.items():
        if _is_tokens(part) and torch.equal(part[:, : asked.tokens.shape[1]], asked.tokens):
            other = part.clone()
            other[:, place] = torch.where(part[:, place] == part[0, 0], part.max(), part[0, 0])
            parts[name] = other
            return parts if isinstance(asked.batch, dict) else tuple(parts.values())
    return None


# --- padding --------------------------------------------------------------------------------------


def _padded(asked: Asked) -> list[Finding]:
    """Return a warning of padding that the loss counts."""
    places = _runs(asked.targets)
    share = float(places.float().mean())
    # An output that the loss leaves out has no gradient; one that it counts has some, as no probability is 0 or 1.
    left_out = int((asked.by_place(asked.slopes(asked.targets)) == 0).sum())
    if share < PADDED or 2 * left_out >= int(places.sum()):
        return []
    token = int(asked.targets[places][0])
    what = f"{share:.0%} of the targets are padding (token {token} at the samples' ends), and the loss counts them"
    hint = f"leave them out, as cross_entropy(outputs, targets, ignore_index={token}) does, in the metrics too"
    return [Finding("warning", f"{what}: {hint}; where it also ends a text, count its first place")]


def _is_padding(asked: Asked, targets: Tensor) -> Tensor:
    places = _runs(asked.targets)
    return targets == asked.targets[places][0] if bool(places.any()) else torch.zeros_like(targets, dtype=torch.bool)


def _runs(targets: Tensor) -> Tensor:
    """Return the places of padding: one token that fills the ends of many samples, and is rare elsewhere.

    The first of a run is not included, because it may mark the end of a text.
    """
    nothing = torch.zeros_like(targets, dtype=torch.bool)
    for turned in (False, True):
        rows = targets.flip(1) if turned else targets
        token = rows[:, -1].mode().values
        ending = (rows == token).flip(1).long().cumprod(1).flip(1).bool()
        lengths = ending.sum(1)
        # Runs of equal length are not padding, and a token that is as frequent within the texts is a word.
        varies = int(lengths.max()) > int(lengths.min())
        is_own = float(ending.sum()) >= SURE * float((rows == token).sum())
        if int(token) >= 0 and varies and is_own and float((lengths >= 2).float().mean()) >= ENDS:
            later = ending & ending.roll(1, 1)
            later[:, 0] = False
            return later.flip(1) if turned else later
    return nothing
