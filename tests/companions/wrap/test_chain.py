"""What is written of each step of an optimizer: no bit of a gradient or a weight may change unseen."""

from __future__ import annotations

import atexit
import gc
import sys
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mltrainer.observe.chain import MANY, SMALL, Sums, TrackedOptimizer, begin, beside, digest_of
from mltrainer.observe.process import Settings

MADE: dict[str, Callable[[], Tensor]] = {
    "float32, small": lambda: torch.randn(7, 3),
    "float32, large": lambda: torch.randn(SMALL + 1),
    "float32, large and odd in memory": lambda: torch.randn(SMALL + 2)[1:],
    "float64": lambda: torch.randn(5, dtype=torch.float64),
    "float16": lambda: torch.randn(9).half(),
    "bfloat16": lambda: torch.randn(SMALL + 3).bfloat16(),
    "complex64": lambda: torch.randn(6, dtype=torch.complex64),
    "complex64, conjugated": lambda: torch.randn(6, dtype=torch.complex64).conj(),
    "negated": lambda: torch.randn(6, dtype=torch.complex64).conj().imag,
    "int8": lambda: torch.randint(-5, 5, (11,), dtype=torch.int8),
    "transposed": lambda: torch.randn(4, 6).t(),
    "one number": lambda: torch.tensor(1.5),
    "one number, spread out": lambda: torch.tensor(1.5).expand(1, 1),
}


def flipped(tensor: Tensor, index: int) -> Tensor:
    """Return a tensor with the lowest bit of one number flipped."""
    other = tensor.clone(memory_format=torch.contiguous_format).reshape(-1)
    raw = other.view(torch.uint8)
    raw[index * tensor.element_size()] ^= 1
    return other.reshape(tensor.shape)


def sum_of(_torch: Any, tensors: list[Tensor]) -> Any:
    """Return the sum of tensors, which are too few to be joined."""
    with torch.no_grad():
        return total(Sums(torch, tensors, range(len(tensors))), tensors)


@pytest.mark.parametrize("name", MADE)
def test_a_flipped_bit_changes_sum_and_digest(name):
    torch.manual_seed(0)
    tensor, beside = MADE[name](), torch.ones(3)
    for index in {0, tensor.numel() // 2, tensor.numel() - 1}:
        other = flipped(tensor, index)
        for measure in (sum_of, digest_of):
            assert measure(torch, [tensor, beside]) == measure(torch, [tensor.clone(), beside])
            assert measure(torch, [tensor, beside]) != measure(torch, [other, beside])


def several(name: str) -> list[Tensor]:
    """Return tensors of a kind, as many as are joined, among others."""
    torch.manual_seed(0)
    return [torch.ones(3), *(MADE[name]() for _ in range(MANY + 1)), torch.ones(2, 2)]


def total(sums: Sums, tensors: Sequence[Tensor | None]) -> Any:
    """Return the sum of the tensors that are there."""
    return sums.of(lambda numbers: [tensor for n in numbers if (tensor := tensors[n]) is not None])


@pytest.mark.parametrize("name", MADE)
def test_a_flipped_bit_of_one_tensor_among_many_changes_the_sum_of_an_optimizer_s(name):
    tensors = several(name)
    sums = Sums(torch, tensors, range(len(tensors)))
    with torch.no_grad():
        assert total(sums, tensors) == total(sums, [tensor.clone() for tensor in tensors])
        for place in range(len(tensors)):
            other = [flipped(tensor, tensor.numel() // 2) if n == place else tensor for n, tensor in enumerate(tensors)]
            assert total(sums, other) != total(sums, tensors)


@pytest.mark.slow
@pytest.mark.parametrize("changed", range(3))
def test_a_step_is_told_by_any_gradient_and_by_an_update_of_any_group(changed):
    torch.manual_seed(0)
    groups = [[torch.randn(3, 5), torch.randn(3)], [torch.randn(2)], [torch.randn(SMALL + 1) for _ in range(9)]]
    optimizer = torch.optim.SGD([{"params": group} for group in groups], lr=0.1)
    weights = [weight for group in groups for weight in group]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    watched = TrackedOptimizer(torch, optimizer, 0)
    before = watched.sums(optimizer)
    for weight in groups[changed]:
        assert weight.grad is not None
        kept, weight.grad = weight.grad, flipped(weight.grad, 1)
        assert (watched.sums(optimizer)[0] == before[0], watched.sums(optimizer)[1] == before[1]) == (False, True)
        weight.grad = kept
    for weight in groups[changed]:
        weight.mul_(1.25)  # as another rate, or another state, changes them all
    assert (watched.sums(optimizer)[0] == before[0], watched.sums(optimizer)[1] == before[1]) == (True, False)


ODD: dict[str, Callable[[Tensor], Tensor | None]] = {
    "none": lambda tensor: None,
    "sparse": lambda tensor: tensor.to_sparse(),
    "of another kind": lambda tensor: tensor.double(),
    "of another shape": lambda tensor: tensor[:, :2],
    "elsewhere": lambda tensor: tensor.to("meta"),
    "in another order": lambda tensor: tensor.t().contiguous().t(),
}


@pytest.mark.parametrize("name", ODD)
def test_what_does_not_fit_the_others_any_more_is_seen_beside_them(name):
    weight, *rest = [torch.randn(3, 5) for _ in range(MANY + 1)]
    sums, odd = Sums(torch, [weight, *rest], range(MANY + 1)), ODD[name]
    with torch.no_grad():
        found = total(sums, [odd(weight), *rest])
        assert total(sums, [odd(weight), *rest[:-1], flipped(rest[-1], 4)]) != found
        has_no_numbers = name in ("none", "elsewhere")
        assert (total(sums, [odd(flipped(weight, 0)), *rest]) == found) is has_no_numbers
        assert (total(sums, [odd(weight)] * (MANY + 1)) == 0) is has_no_numbers


def test_sparse_gradients_are_seen_by_values_and_places():
    def sparse(place: int, value: float) -> Tensor:
        return torch.sparse_coo_tensor(torch.tensor([[0, place]]), torch.tensor([1.0, value]), (4,), check_invariants=False)

    assert sum_of(torch, [sparse(2, 2.0)]) == sum_of(torch, [sparse(2, 2.0)])
    for other in (sparse(2, 2.5), sparse(3, 2.0)):
        assert sum_of(torch, [sparse(2, 2.0)]) != sum_of(torch, [other])
        assert digest_of(torch, [sparse(2, 2.0)]) != digest_of(torch, [other])


def test_tensors_without_numbers_here_are_left_out():
    nothing: list[Any] = [torch.empty(0), torch.empty(3, device="meta")]
    assert sum_of(torch, nothing) == 0
    assert sum_of(torch, [*nothing, torch.ones(2)]) == sum_of(torch, [torch.ones(2)])


def test_what_is_summed_is_not_changed():
    weight = torch.nn.Parameter(torch.randn(5, 5))
    before = weight.detach().clone()
    sum_of(torch, [weight])
    digest_of(torch, [weight])
    assert torch.equal(weight, before)
    assert weight.requires_grad


@pytest.mark.slow
def test_what_a_model_keeps_beside_its_weights_is_seen():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
    model.register_buffer("cache", torch.empty(3), persistent=False)
    model[2].requires_grad_(False)
    found = beside(torch, list(model[0].parameters()))
    norm = model[1]
    expected = [norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.num_batches_tracked]
    assert {id(tensor) for tensor in found} == {id(tensor) for tensor in expected}
    assert beside(torch, [torch.ones(1)]) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of deprecated kinds, which programs still use
def test_modules_of_any_make_are_looked_at():
    script = torch.jit.script(torch.nn.BatchNorm1d(2))  # type: ignore[no-untyped-call]
    model = torch.nn.Sequential(script, torch.nn.LazyLinear(2), torch.nn.LazyBatchNorm1d())
    model.register_buffer("mask", torch.ones(2, 2).to_sparse_csr())
    weights = list(script.parameters())
    assert len(beside(torch, weights)) == 4  # the scripted statistics, and how many batches the lazy ones saw
    assert [digest_of(torch, [tensor]) for tensor in beside(torch, weights)]


@pytest.mark.slow
def test_trainings_one_after_the_other_do_not_add_up_in_memory(tmp_path, monkeypatch):
    hooks: list[Callable[..., None]] = []
    monkeypatch.setattr(sys.modules["torch.optim.optimizer"], "register_optimizer_step_post_hook", hooks.append)
    monkeypatch.setattr(atexit, "register", lambda _: None)
    models = []
    with (tmp_path / "chain").open("ab") as lines:
        begin(Settings(), SimpleNamespace(map=lambda _: lines, on_fork=lambda _: None)).attach(torch)
        for _ in range(2):
            model = torch.nn.Linear(2, 1)
            models.append(weakref.ref(model))
            hooks[0](torch.optim.SGD(model.parameters()), (), {})
            del model
            gc.collect()
    assert [model() is None for model in models] == [True, False]


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(3, 3) for _ in range(6)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(3, 1))


def seen(order: Sequence[int], groups: int = 1) -> tuple[Any, str]:
    """Return the sums of a step and the digest of all weights, with the parameters given in an order."""
    net = model()
    parameters = list(net.parameters())
    given = [parameters[number] for number in order]
    optimizer = torch.optim.Adam([{"params": given[start::groups]} for start in range(groups)], lr=0.1)
    net(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    watched = TrackedOptimizer(torch, optimizer, 0)
    return watched.sums(optimizer), digest_of(torch, watched.weights(optimizer))


@pytest.mark.slow
def test_the_same_parameters_in_another_order_are_the_same_weights():
    plain = [*range(14)]
    assert seen(plain) == seen(plain[::-1]) == seen([3, 1, 2, 0, *plain[4:]])


@pytest.mark.slow
def test_weights_that_changed_places_are_other_weights():
    one, other = model(), model()
    other[0].load_state_dict(one[1].state_dict())  # type: ignore[index]
    other[1].load_state_dict(one[0].state_dict())  # type: ignore[index]
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (one, other)]
    digests = [digest_of(torch, TrackedOptimizer(torch, optimizer, 0).weights(optimizer)) for optimizer in optimizers]
    assert digests[0] != digests[1]


@pytest.mark.slow
def test_groups_stay_apart_and_weights_of_no_model_stay_in_place():
    loose = [torch.full((2,), float(number), requires_grad=True) for number in range(3)]
    net = model()
    (first, second, *_) = net.parameters()
    optimizer = torch.optim.SGD([{"params": [loose[1], second, loose[0], first]}, {"params": [loose[2]]}], lr=0.1)
    found = TrackedOptimizer(torch, optimizer, 0).weights(optimizer)
    assert [id(weight) for weight in found] == [id(weight) for weight in (loose[1], first, loose[0], second, loose[2])]
