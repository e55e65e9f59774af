"""A step is what the large batch's step would be, it repeats, and it goes on from a checkpoint with the same bits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import mltrainer
from mltrainer.checkpointing.format import load, save, snapshot
from mltrainer.checkpointing.weights import weights_sha256
from mltrainer.configs.project import TrainingConfig
from mltrainer.reproducibility import seeds
from mltrainer.trainers.native.data.addresses import Plan, Step
from mltrainer.trainers.native.objective import Objective
from mltrainer.trainers.native.optimization.averages import Average
from mltrainer.trainers.native.stepping import Stepper
from tests.trainers.native.digits_runs import config
from tests.trainers.native.optimization.test_optimizers import NAMES

BATCH, PLAN = 4, Plan(samples=32, batch_size=4, accumulate=1, epochs=2)
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"clip": None},
    "accumulation": {"clip": None, "accumulate": 2},
    "clipping": {"clip": {"norm": 0.1}},
    "bf16": {"precision": "bf16"},
    "ema": {"averaging": {"name": "ema", "decay": 0.9}},
}
OTHER_WAYS: dict[str, dict[str, Any]] = {
    "fp16": {"precision": "fp16"},
    "swa": {"averaging": {"name": "swa", "start": 0.0}},
    "clipping by value": {"clip": {"value": 0.01}},
    "adaptive clipping": {"clip": {"adaptive": 0.01}},
    "noise": {"gradients": {"normalize": True, "noise": {"eta": 0.01}}},
    "sam": {"optimizer": {"name": "sgd", "lr": 0.05, "sam": {}}},
    "sam over adamw": {"optimizer": {"name": "adamw", "sam": {"adaptive": True}}, "accumulate": 2},
    "lookahead": {"optimizer": {"name": "adamw", "lookahead": {"k": 3}}},
}
CASES = {f"{name}, {way}": {**WAYS[way], "optimizer": {"name": name}} for name, way in itertools.product(NAMES, WAYS)}
NOT_TOGETHER = {"schedule_free, ema"}


class Rows(mltrainer.Task):
    """Rows of numbers into classes; a class of -100 does not count."""

    def model(self) -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(
            nn.Linear(8, 80), nn.BatchNorm1d(80), nn.ReLU(), nn.Dropout(0.2), nn.Linear(80, 80), nn.Linear(80, 5)
        )

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())

    def loss_items(self, targets: Tensor) -> Tensor:
        return (targets != -100).sum()


def whole_step(samples: int, micro_batches: list[Any]) -> Step:
    """Return a step of which this process computes every micro-batch."""
    count = len(micro_batches)
    return Step(np.arange(samples), micro_batches, range(count), [samples // count] * count)


def data(steps: int, accumulate: int) -> list[Step]:
    generator = torch.Generator().manual_seed(3)
    rows = [
        (torch.randn(BATCH, 8, generator=generator), torch.randint(5, (BATCH,), generator=generator))
        for _ in range(steps * accumulate)
    ]
    return [whole_step(BATCH * accumulate, rows[n * accumulate : (n + 1) * accumulate]) for n in range(steps)]


class Run:
    """A model, what takes its steps, and its average."""

    def __init__(self, chosen: TrainingConfig) -> None:
        self.model = Rows().model()
        self.stepper = Stepper(Objective(Rows(), self.model, chosen))
        self.average = Average(self.model, chosen, PLAN, self.stepper.partition)

    def take(self, steps: list[Step], first: int) -> None:
        for number, step in enumerate(steps, first):
            self.stepper.take(number, 0.01, step)
            self.average.update(number)

    def tree(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), **self.stepper.state_dict(), "average": self.average.state_dict()}

    def load(self, tree: dict[str, Any]) -> None:
        self.model.load_state_dict(tree["model"])
        self.stepper.load_state_dict(tree)
        self.average.load_state_dict(tree["average"])

    def digests(self) -> tuple[str, str]:
        return weights_sha256(self.model.state_dict()), weights_sha256(self.average.tensors)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in (*CASES, *OTHER_WAYS) if case not in NOT_TOGETHER])
def test_every_way_to_train_repeats_and_goes_on_from_a_checkpoint_with_the_same_bits(case, tmp_path):
    chosen = config({**CASES, **OTHER_WAYS}[case])
    steps = data(14, chosen.accumulate)
    whole, again, halves = (Run(chosen) for _ in range(3))
    whole.take(steps, 1)
    again.take(steps, 1)
    halves.take(steps[:7], 1)
    save(tmp_path / "step-00000007", snapshot(halves.tree()), {})
    resumed = Run(chosen)
    torch.rand(11)  # whatever was drawn in between
    resumed.load(load(tmp_path / "step-00000007")[0])
    resumed.take(steps[7:], 8)
    assert again.digests() == whole.digests()
    assert resumed.digests() == whole.digests()
    assert halves.digests() != whole.digests()


class Steep(Rows):
    """A loss whose gradients overflow under the first loss scales."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return 1000 * super().loss(outputs, targets)


@pytest.mark.parametrize("optimizer", [{"name": name, "lr": 1e-4} for name in NAMES], ids=str)
@pytest.mark.usefixtures("unwritten_memory_is_nan")
def test_a_first_step_that_overflows_is_skipped_and_leaves_no_trace(optimizer):
    model = Rows().model()
    before = weights_sha256(dict(model.named_parameters()))
    stepper = Stepper(Objective(Steep(), model, config({"precision": "fp16", "optimizer": optimizer})))
    finite, digests = [], []
    for number, step in enumerate(data(14, 1), 1):
        finite.append(bool(stepper.take(number, 1e-4, step).total.isfinite()))
        digests.append(weights_sha256(dict(model.named_parameters())))
    assert (finite[0], finite[-1]) == (False, True)
    assert digests[0] == before
    assert all(p.isfinite().all() for p in model.parameters())


@pytest.fixture
def unwritten_memory_is_nan(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Memory that torch hands out unwritten holds NaN, as in a probe of planning."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    monkeypatch.setattr("torch.utils.deterministic.fill_uninitialized_memory", True)
    yield
    torch.use_deterministic_algorithms(before)


def test_the_second_pass_of_a_sharp_step_leaves_no_trace_in_the_buffers():
    found = []
    for optimizer in ({"name": "sgd"}, {"name": "sgd", "sam": {}}):
        run = Run(config({"optimizer": optimizer}))
        run.model[1] = nn.BatchNorm1d(80, momentum=None)  # the mean of all batches, by their number
        run.stepper = Stepper(Objective(Rows(), run.model, config({"optimizer": optimizer})))
        for number, step in enumerate(data(3, 1), 1):
            run.stepper.take(number, 0.0, step)  # the weights stay where they are
        found.append([buffer.clone() for buffer in run.model.buffers()])
    assert all(torch.equal(plain, sharp) for plain, sharp in zip(*found, strict=True))


class Words(Rows):
    """Rows of words into classes."""

    def model(self, sparse: bool = False) -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Embedding(9, 4, sparse=sparse), nn.Flatten(), nn.Linear(8, 5))


@pytest.mark.parametrize(
    "chosen",
    [{}, {"accumulate": 2}, {"precision": "fp16"}, {"optimizer": {"name": "sgd", "sam": {}}}, {"optimizer": {"name": "adagrad"}}],
    ids=str,
)
def test_sparse_gradients_take_the_steps_of_full_ones(chosen):
    generator, found = torch.Generator().manual_seed(2), []
    micros = [(torch.randint(9, (4, 2), generator=generator), torch.randint(5, (4,), generator=generator)) for _ in range(4)]
    for sparse in (False, True):
        model = Words().model(sparse)
        stepper = Stepper(Objective(Words(), model, config({"clip": {"norm": 0.5}, **chosen})))
        for number in (1, 2):
            stepper.take(number, 0.1, whole_step(8, micros[2 * number - 2 : 2 * number]))
        found.append([p.detach() for p in model.parameters()])
    assert all(torch.allclose(full, sparse, atol=1e-6) for full, sparse in zip(*found, strict=True))


# --- another run's state ---------------------------------------------------------------------------

PAIRS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"name": "adamw"}, {"name": "adamw", "weight_decay": 0.5, "betas": [0.5, 0.9]}),
    ({"name": "sgd"}, {"name": "sgd", "momentum": 0.5, "nesterov": True}),
    ({"name": "sgd"}, {"name": "sgd", "groups": [{"match": ".", "lr": 0.1, "weight_decay": 0.2}]}),
    ({"name": "sgd", "sam": {"rho": 0.05}}, {"name": "sgd", "sam": {"rho": 0.5}}),
    ({"name": "adamw", "lookahead": {}}, {"name": "adamw", "lookahead": {}, "eps": 0.1}),
    ({"name": "schedule_free"}, {"name": "schedule_free", "weight_decay": 0.5}),
]


@pytest.mark.parametrize(("theirs", "own"), PAIRS, ids=str)
def test_an_optimizer_that_takes_over_anothers_state_works_with_its_own_options(theirs, own):
    parent, child, fresh = Run(config({"optimizer": theirs})), Run(config({"optimizer": own})), Run(config({"optimizer": own}))
    parent.take(data(3, 1), 1)
    child.stepper.take_over(snapshot(parent.tree()).tree)
    options = set(config({"optimizer": own}).optimizer.model_dump()) | {"share", "rho"}
    for group, expected in zip(child.stepper.optimizer.param_groups, fresh.stepper.optimizer.param_groups, strict=True):
        assert all(group[name] == expected[name] for name in options & set(expected) - {"lr"})
    assert len(child.stepper.optimizer.state) == len(parent.stepper.optimizer.state) > 0
    child.take(data(1, 1), 4)


@pytest.mark.parametrize(
    ("theirs", "own", "message"),
    [
        ({"name": "adamw"}, {"name": "sgd"}, "its optimizer is adamw, and the config's is sgd"),
        ({"name": "adam"}, {"name": "adamax"}, "its optimizer is adam, and the config's is adamax"),
        ({"name": "sgd"}, {"name": "sgd", "sam": {}}, "its optimizer is sgd, and the config's is sam over sgd"),
        ({"name": "rmsprop"}, {"name": "rmsprop", "momentum": 0.9}, "is rmsprop without momentum, and the config's is rmsprop"),
        (
            {"name": "sgd", "groups": [{"match": "weight", "lr": 0.5}]},
            {"name": "sgd", "groups": [{"match": "^[01]", "lr": 0.5}]},
            "groups the parameters in another way",
        ),
    ],
)
def test_the_state_of_an_optimizer_of_another_kind_is_refused(theirs, own, message):
    with pytest.raises(ValueError, match=message):
        Run(config({"optimizer": own})).stepper.take_over(Run(config({"optimizer": theirs})).tree())


# --- accumulation ---------------------------------------------------------------------------------


def gradients(micro_batches: list[tuple[Tensor, Tensor]], model: nn.Module) -> tuple[Tensor, list[Tensor]]:
    stepper = Stepper(Objective(Rows(), model, config({"clip": None, "batch_size": 4, "optimizer": {"name": "sgd", "lr": 1.0}})))
    measured = stepper.take(1, 0.0, whole_step(sum(len(x) for x, _ in micro_batches), micro_batches))
    return measured.loss, [p.grad for p in model.parameters() if p.grad is not None]


def assert_micro_batches_are_the_large_batch(model: nn.Module, x: Tensor, y: Tensor) -> None:
    whole_loss, whole = gradients([(x, y)], model)
    whole = [g.clone() for g in whole]
    loss, found = gradients(list(zip(x.split(4), y.split(4), strict=True)), model)
    assert loss.item() == pytest.approx(whole_loss.item(), rel=1e-5)
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-7) for a, b in zip(found, whole, strict=True))


@pytest.mark.parametrize("kept", [1.0, 0.3], ids=["all tokens count", "most do not"])
def test_accumulation_is_the_large_batch_also_with_an_uneven_last_one_and_tokens_that_do_not_count(kept):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5))
    x, y = torch.randn(11, 6, 8), torch.randint(5, (11, 6))
    y[torch.rand(11, 6) > kept] = -100
    assert_micro_batches_are_the_large_batch(model, x, y)


def test_a_micro_batch_in_which_nothing_counts_adds_nothing():
    torch.manual_seed(0)
    model = nn.Linear(8, 5)
    x, y = torch.randn(8, 6, 8), torch.randint(5, (8, 6))
    y[4:] = -100
    assert_micro_batches_are_the_large_batch(model, x, y)


def test_a_mean_of_means_would_be_another_gradient():
    x, y = torch.randn(11, 6, 8), torch.randint(5, (11, 6))
    y[:4, 1:] = -100
    model = nn.Linear(8, 5)
    _, found = gradients(list(zip(x.split(4), y.split(4), strict=True)), model)
    found = [g.clone() for g in found]
    model.zero_grad()
    for micro, targets in zip(x.split(4), y.split(4), strict=True):
        (Rows().loss(model(micro), targets) / 3).backward()
    assert not torch.allclose(found[0], model.weight.grad, rtol=1e-3)


def test_a_parameter_that_the_optimizer_leaves_out_piles_up_no_gradients():
    (step,) = data(1, 1)
    stepper = Stepper(Objective(Rows(), Rows().model(), config({"clip": None})))
    (group,) = stepper.optimizer.param_groups
    group["params"] = group["params"][-2:]
    first, again = (stepper.take(1, 0.0, step).norms for _ in range(2))
    assert torch.equal(first, again)


# --- sharpness-aware steps ------------------------------------------------------------------------


def test_a_sharp_step_is_sgd_with_the_gradient_at_the_worst_point_nearby():
    model = nn.Linear(8, 5)
    x, y = torch.randn(4, 8), torch.randint(5, (4,))
    start = [p.detach().clone() for p in model.parameters()]
    first = torch.autograd.grad(Rows().loss(model(x), y), list(model.parameters()))
    size = torch.sqrt(sum((g**2).sum() for g in first))
    worst = [p + 0.05 * g / size for p, g in zip(start, first, strict=True)]
    leaves = [w.clone().requires_grad_() for w in worst]
    there = torch.autograd.grad(Rows().loss(nn.functional.linear(x, *leaves), y), leaves)
    chosen = {"clip": None, "optimizer": {"name": "sgd", "momentum": 0.0, "weight_decay": 0.0, "sam": {"rho": 0.05}}}
    Stepper(Objective(Rows(), model, config(chosen))).take(1, 0.1, whole_step(4, [(x, y)]))
    for p, begun, g in zip(model.parameters(), start, there, strict=True):
        assert torch.allclose(p, begun - 0.1 * g, atol=1e-6)


def test_both_passes_of_a_sharp_step_draw_the_same_and_count_once_for_batch_norm():
    seen: list[Tensor] = []

    class Noisy(Rows):
        def model(self) -> nn.Module:
            return nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 5))

        def forward(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
            seen.append(torch.rand(3))
            return super().forward(model, batch)

    model = Noisy().model()
    stepper = Stepper(Objective(Noisy(), model, config({"optimizer": {"name": "sgd", "sam": {}}})))
    stepper.take(1, 0.1, data(1, 1)[0])
    assert torch.equal(*seen)
    assert torch.allclose(model[0].running_mean, 0.1 * data(1, 1)[0].micro_batches[0][0].mean(0))
    assert model[0].momentum == 0.1


# --- precision ---------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_weights_gradients_and_losses_are_fp32_whatever_the_model_computes_in(precision):
    computed: list[torch.dtype] = []

    class Squares(Rows):
        def forward(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
            outputs, targets = super().forward(model, batch)
            computed.append(outputs.dtype)
            return outputs, targets

        def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return (outputs * outputs).mean()

    model = Squares().model()
    measured = Stepper(Objective(Squares(), model, config({"precision": precision}))).take(1, 0.1, data(1, 1)[0])
    assert computed == [{"bf16": torch.bfloat16, "fp16": torch.float16}[precision]]
    assert {measured.loss.dtype, measured.norms.dtype, *(p.dtype for p in model.parameters())} == {torch.float32}


def test_a_step_whose_gradients_overflow_is_skipped_and_the_scale_falls():
    run = Run(config({"precision": "fp16"}))
    run.stepper.scaler.load_state_dict({**run.stepper.scaler.state_dict(), "scale": 2.0**40})
    before = weights_sha256(dict(run.model.named_parameters()))
    measured = run.stepper.take(1, 0.1, data(1, 1)[0])
    assert not torch.isfinite(measured.total)
    assert weights_sha256(dict(run.model.named_parameters())) == before
    assert run.stepper.scaler.get_scale() == 2.0**39
    assert run.stepper.may_overflow()


def test_a_loss_scale_that_fell_below_one_is_no_excuse_for_numbers_that_are_not_finite():
    run = Run(config({"precision": "fp16"}))
    run.stepper.scaler.load_state_dict({**run.stepper.scaler.state_dict(), "scale": 0.5})
    assert not run.stepper.may_overflow()
    assert not Run(config({})).stepper.may_overflow()


def test_draws_of_a_step_are_a_function_of_its_number():
    run = Run(config({}))
    run.stepper.take(3, 0.1, data(1, 1)[0])
    drawn = torch.rand(2)
    seeds.seed_everything(1)
    other = Run(config({}))
    other.stepper.take(3, 0.1, data(1, 1)[0])
    assert torch.equal(torch.rand(2), drawn)
    other.stepper.take(4, 0.1, data(1, 1)[0])
    assert not torch.equal(torch.rand(2), drawn)
