"""Invariances of a model that no training changes: to the order of its inputs, to parts of them, or to all but a line."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from mltrainer.errors import is_out_of_memory
from mltrainer.reproducibility import seeds
from mltrainer.tasks.structures import main_output
from mltrainer.trainers.native.evaluation import evaluating
from mltrainer.trainers.native.signals.modules import WEIGHTED

SAME = 1e-4  # relative to the spread of the answers; sums in another order differ by 1e-6
FEWEST_PLACES = 3  # the least size of a dimension whose order is tested
ROUNDINGS = 4  # of the largest answer: a smaller spread is the rounding of equal answers
Ask = Callable[[Tensor], Any]


def structure_of(model: nn.Module, run: Callable[[], Any]) -> dict[str, Any] | None:
    """Return the distinctions between inputs that a model's structure cannot make.

    Args:
        model: The model, in any mode; it is tested in evaluation mode.
        run: A function that passes some samples through the model, as its task does.

    Returns:
        `repeats`, whether equal samples give equal answers; `layers`, the number of layers with weights; `linear`, whether they
        are one linear function of float inputs; `orderless`, the dimensions of the inputs whose order changes no answer;
        `ignored`, the share of the places along each dimension that affect no answer; `same_answers`, the count of an
        answer's numbers that always equal an earlier one; `rank`, the number of directions in which answers differ;
        `batch_norms`, their number; `levelless`, whether adding a number to all inputs of a sample changes nothing;
        `unregistered`, the number of tensors that require gradients but are not parameters. None if the model's input is not
        one tensor, or its output does not fit.
    """
    given: list[tuple[Any, Any]] = []
    handle = model.register_forward_pre_hook(lambda _, *got: given.append(got), with_kwargs=True)
    try:
        run()
    finally:
        handle.remove()
    if not given or len(given[0][0]) != 1 or given[0][1] or not isinstance(given[0][0][0], Tensor):
        return None
    inputs = given[0][0][0].detach()

    def answer(rows: Tensor) -> Any:
        seeds.seed_everything(0)  # the same random draws each time: differences show a state
        return main_output(model(rows))

    try:
        with evaluating(model), _zeros_moved(model):
            return _structure_of(model, inputs, answer)
    except Exception as error:  # from the user's model, which may refuse inputs that no sample has
        if is_out_of_memory(error):
            raise
        return None


@contextlib.contextmanager
def _zeros_moved(model: nn.Module) -> Iterator[None]:
    """Replace parameters that are all zero for a block: a branch or a head may begin as zero, but does not stay so."""
    zeros = [parameter for parameter in model.parameters() if not bool(parameter.any())]
    kept = [parameter.detach().clone() for parameter in zeros]
    drawn = torch.Generator().manual_seed(0)
    try:
        with torch.no_grad():
            for parameter in zeros:
                parameter.copy_(torch.rand(parameter.shape, generator=drawn) - 0.5)
        yield
    finally:
        with torch.no_grad():
            for parameter, before in zip(zeros, kept, strict=True):
                parameter.copy_(before)


@torch.no_grad()
def _structure_of(model: nn.Module, inputs: Tensor, answer: Ask) -> dict[str, Any] | None:
    answers = answer(inputs)
    if not isinstance(answers, Tensor) or not answers.is_floating_point() or len(answers) != len(inputs) or len(inputs) < 4:
        return None
    spread, size = float(answers.float().std(0).max()), float(answers.abs().max())
    if not ROUNDINGS * torch.finfo(answers.dtype).eps * size < spread < math.inf:  # answers equal but for rounding show nothing
        return None
    near = SAME * spread
    layers = sum(isinstance(module, WEIGHTED) for module in model.modules())
    repeats = _is_near(answer(inputs), answers, near)
    return {
        "repeats": repeats,
        "ignored": _ignored(inputs, answer) if repeats else {},
        "rank": _rank(answers),
        "layers": layers,
        "linear": inputs.is_floating_point() and _is_line(inputs, answers, answer, near),
        "orderless": [axis for axis in range(1, inputs.dim()) if _is_orderless(inputs, answers, answer, axis, near)],
        "same_answers": _same(answers, near),
        "batch_norms": sum(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()),
        "levelless": inputs.is_floating_point() and inputs.dim() > 1 and _is_near(answer(inputs + 1), answers, 10 * near),
        "unregistered": _unregistered(model, inputs, answer),
    }


def _is_line(inputs: Tensor, answers: Tensor, answer: Ask, near: float) -> bool:
    """Return True if the answer to an extrapolated sample, on the line through two others, is on the line of their answers."""
    beyond = answer(2 * inputs - inputs.roll(1, 0))
    return _is_near(beyond, 2 * answers - answers.roll(1, 0), 4 * near)


def _is_orderless(inputs: Tensor, answers: Tensor, answer: Ask, axis: int, near: float) -> bool:
    """Return True if another order along a dimension does not change the answers, or only reorders them in the same way."""
    size = inputs.shape[axis]
    if size < FEWEST_PLACES:
        return False
    order = torch.randperm(size, generator=torch.Generator().manual_seed(0)).to(inputs.device)
    changed = inputs.index_select(axis, order)
    if torch.equal(changed, inputs):
        return False
    found = answer(changed)
    if _is_near(found, answers, near):
        return True
    places = [place for place in range(1, answers.dim()) if answers.shape[place] == size] if axis == 1 else []
    return any(_is_near(found, answers.index_select(place, order), near) for place in places)


def _ignored(inputs: Tensor, answer: Ask) -> dict[str, float]:
    """Return, by dimension, the share of the places of float inputs without a gradient from any answer."""
    if not inputs.is_floating_point():
        return {}
    with torch.enable_grad():
        given = inputs.clone().requires_grad_()
        answers = answer(given)
        weights = torch.randn(answers.shape, generator=torch.Generator().manual_seed(0)).to(answers)
        found: tuple[Tensor | None, ...] = torch.autograd.grad((answers * weights).sum(), given, allow_unused=True)
    slopes = found[0]
    if slopes is None:
        return {}
    shares = {}
    for axis in range(1, inputs.dim()):
        rest = [one for one in range(inputs.dim()) if one != axis]
        shares[str(axis)] = float((slopes == 0).all(rest).float().mean())
    return {axis: share for axis, share in shares.items() if share > 0}


def _unregistered(model: nn.Module, inputs: Tensor, answer: Ask) -> int:
    """Return the number of tensors, other than parameters, in which the gradients of the answers end at each call."""
    with torch.enable_grad():
        answers = [answer(inputs), answer(inputs)]  # both graphs live, so that no tensor of one has the identity of the other's
    known = {id(parameter) for parameter in model.parameters()}
    return len((_leaves(answers[0]) & _leaves(answers[1])) - known)


def _leaves(answers: Tensor) -> set[int]:
    """Return the identities of the tensors at which the gradients of answers end."""
    waiting, seen, found = [answers.grad_fn], set(), set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        found |= {id(leaf)} if (leaf := getattr(node, "variable", None)) is not None else set()
        waiting += [before for before, _ in node.next_functions]
    return found


def _rank(answers: Tensor) -> int | None:
    """Return the number of directions in which samples' answers differ; None for more than one row per sample."""
    if answers.dim() != 2:
        return None
    rows = answers.double()
    return int(torch.linalg.matrix_rank(rows - rows.mean(0), rtol=SAME))


def _same(answers: Tensor, near: float) -> int:
    """Return the count of an answer's numbers that equal an earlier one in all samples; a constant one is dead, not shared."""
    if answers.dim() != 2:
        return 0
    columns = answers.T[answers.std(0) > near]
    return sum(bool(((columns[:place] - columns[place]).abs().amax(1) <= near).any()) for place in range(1, len(columns)))


def _is_near(one: Tensor, other: Tensor, near: float) -> bool:
    return one.shape == other.shape and bool((one - other).abs().max() <= near)
