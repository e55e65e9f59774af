"""What the answers of a model cannot depend on, whatever it learns: the order of its inputs, one another, more than a line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mltrainer.errors import is_out_of_memory
from mltrainer.tasks.structures import main_output
from mltrainer.trainers.native.evaluation import evaluating
from mltrainer.trainers.native.signals.modules import WEIGHTED

SAME = 1e-4  # of the spread of the answers; sums in another order differ by 1e-6
FEWEST_PLACES = 3  # of a dimension whose order is asked about
Ask = Callable[[Tensor], Any]


def structure_of(model: nn.Module, run: Callable[[], Any]) -> dict[str, Any] | None:
    """Return what a model cannot tell by its form.

    Args:
        model: In any mode; it is asked in evaluation mode.
        run: Passes some samples through it, as its task does.

    Returns:
        `layers`, how many have weights; `linear`, whether they are together one line through float inputs; `orderless`, the
        dimensions of the inputs whose order changes no answer; `same_answers`, of the numbers of an answer those that are always
        equal to an earlier one. None where the model gets something else than one tensor, or gives something else.
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
    try:
        with torch.no_grad(), evaluating(model):
            return _asked(model, inputs, lambda rows: main_output(model(rows)))
    except Exception as error:  # of the user's model, which may refuse what no sample holds
        if is_out_of_memory(error):
            raise
        return None


def _asked(model: nn.Module, inputs: Tensor, answer: Ask) -> dict[str, Any] | None:
    answers = answer(inputs)
    if not isinstance(answers, Tensor) or not answers.is_floating_point() or len(answers) != len(inputs) or len(inputs) < 4:
        return None
    near = SAME * float(answers.float().std(0).max())
    if not 0 < near < float("inf"):  # answers that are all alike tell nothing
        return None
    layers = sum(isinstance(module, WEIGHTED) for module in model.modules())
    return {
        "layers": layers,
        "linear": inputs.is_floating_point() and _is_line(inputs, answers, answer, near),
        "orderless": [axis for axis in range(1, inputs.dim()) if _is_orderless(inputs, answers, answer, axis, near)],
        "same_answers": _same(answers, near),
    }


def _is_line(inputs: Tensor, answers: Tensor, answer: Ask, near: float) -> bool:
    """Return True if the answer halfway between two samples is halfway between theirs, far outside of the samples, too."""
    half = len(inputs) // 2
    one, other = slice(0, half), slice(half, 2 * half)
    beyond = answer(2 * inputs[one] - inputs[other])
    return _is_near(beyond, 2 * answers[one] - answers[other], 4 * near)


def _is_orderless(inputs: Tensor, answers: Tensor, answer: Ask, axis: int, near: float) -> bool:
    """Return True if another order along a dimension leaves the answers, or gives them in that order."""
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


def _same(answers: Tensor, near: float) -> int:
    """Return how many numbers of an answer are equal to an earlier one in all samples."""
    if answers.dim() != 2 or answers.shape[1] < 2:
        return 0
    columns = answers.T
    return sum(bool(((columns[:place] - columns[place]).abs().amax(1) <= near).any()) for place in range(1, len(columns)))


def _is_near(one: Tensor, other: Tensor, near: float) -> bool:
    return one.shape == other.shape and bool((one - other).abs().max() <= near)
