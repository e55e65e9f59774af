"""What the answers of a model cannot depend on, whatever it learns: the order of its inputs, one another, more than a line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from mltrainer.errors import is_out_of_memory
from mltrainer.reproducibility import seeds
from mltrainer.tasks.structures import main_output
from mltrainer.trainers.native.evaluation import evaluating
from mltrainer.trainers.native.signals.modules import WEIGHTED

SAME = 1e-4  # of the spread of the answers; sums in another order differ by 1e-6
FEWEST_PLACES = 3  # of a dimension whose order is asked about
Ask = Callable[[Tensor], Any]


def structure_of(model: nn.Module, run: Callable[[], Any]) -> dict[str, Any] | None:
    """Return the distinctions between inputs that a model cannot make by its form.

    Args:
        model: In any mode; it is asked in evaluation mode.
        run: Passes some samples through it, as its task does.

    Returns:
        `repeats`, whether it answers the same to the same samples; `layers`, how many have weights; `linear`, whether they are
        together one line through float inputs; `orderless`, the dimensions of the inputs whose order changes no answer;
        `ignored`, the share of the places along each dimension that no answer looks at; `same_answers`, of the numbers of an
        answer those that are always equal to an earlier one; `rank`, in how many directions the answers differ; `batch_norms`,
        how many it has; `levelless`, whether a number added to all inputs of a sample changes nothing; `unregistered`, how many
        tensors want gradients that are no parameters. None where the model gets something else than one tensor, or gives
        something else.
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
        seeds.seed_everything(0)  # what is drawn is the same each time: what differs is a state
        return main_output(model(rows))

    try:
        with evaluating(model), _zeros_moved(model):
            return _asked(model, inputs, answer)
    except Exception as error:  # of the user's model, which may refuse what no sample holds
        if is_out_of_memory(error):
            raise
        return None


@contextlib.contextmanager
def _zeros_moved(model: nn.Module) -> Iterator[None]:
    """Give parameters that are all zero some numbers for a block: a branch or a head that begins as nothing is none for ever."""
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
def _asked(model: nn.Module, inputs: Tensor, answer: Ask) -> dict[str, Any] | None:
    answers = answer(inputs)
    if not isinstance(answers, Tensor) or not answers.is_floating_point() or len(answers) != len(inputs) or len(inputs) < 4:
        return None
    near = SAME * float(answers.float().std(0).max())
    if not 0 < near < float("inf"):  # answers that are all alike tell nothing
        return None
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
    """Return True if the answer beyond a sample, on the line from another one, lies on the line of theirs."""
    beyond = answer(2 * inputs - inputs.roll(1, 0))
    return _is_near(beyond, 2 * answers - answers.roll(1, 0), 4 * near)


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


def _ignored(inputs: Tensor, answer: Ask) -> dict[str, float]:
    """Return, by dimension, the share of the places of float inputs from which no answer has a gradient."""
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
    """Return the number of tensors that want gradients of the answers and are no parameters of the model."""
    with torch.enable_grad():
        found = answer(inputs)
    known = {id(parameter) for parameter in model.parameters()}
    waiting, seen, others = [found.grad_fn], set(), set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in known:
            others.add(id(leaf))
        waiting += [before for before, _ in node.next_functions]
    return len(others)


def _rank(answers: Tensor) -> int | None:
    """Return the number of directions in which the answers of samples differ; None of more than one row for each sample."""
    if answers.dim() != 2:
        return None
    rows = answers.double()
    return int(torch.linalg.matrix_rank(rows - rows.mean(0), rtol=SAME))


def _same(answers: Tensor, near: float) -> int:
    """Return the number of an answer's numbers that are equal to an earlier one in all samples."""
    if answers.dim() != 2 or answers.shape[1] < 2:
        return 0
    columns = answers.T
    return sum(bool(((columns[:place] - columns[place]).abs().amax(1) <= near).any()) for place in range(1, len(columns)))


def _is_near(one: Tensor, other: Tensor, near: float) -> bool:
    return one.shape == other.shape and bool((one - other).abs().max() <= near)
