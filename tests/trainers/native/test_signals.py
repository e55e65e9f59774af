"""What is observed beside the training: the bits are the same with and without it, and it says what is so."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import mltrainer
from mltrainer.configs.pages import diagnostic_page
from mltrainer.diagnostics.rules import RULES, diagnose
from mltrainer.diagnostics.signals import Run
from mltrainer.errors import InputError
from mltrainer.records.run import TargetKind
from mltrainer.tasks.samples import Samples
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.data.addresses import Plan
from mltrainer.trainers.native.ranks import Ranks
from mltrainer.trainers.native.signals.data import neighbours, of_data, telling
from mltrainer.trainers.native.signals.modules import (
    BINS,
    LAYERS,
    VALUES,
    Modules,
    chosen_layers,
    histogram,
    histograms,
    some_of,
    symmetric,
)
from mltrainer.trainers.native.signals.observing import (
    by_class,
    compared,
    is_watched,
    recalled,
    sums_to_one,
    watch_for,
)
from mltrainer.trainers.native.signals.outputs import MARGINS_FILE, Margins
from mltrainer.trainers.native.signals.steps import Losses
from tests.toys import Wired
from tests.trainers.native import digits_runs


class Lively(Task):
    """A model with everything that an observation could disturb: dropout, batch norm, a draw in the forward pass; two losses."""

    terms = ("class", "size")

    def samples(self) -> tuple[Tensor, Tensor]:
        x = torch.randn(160, 6, generator=torch.Generator().manual_seed(0))
        return x, (x[:, 0] > 0).long()

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2))

    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        x = batch[0] + 0.01 * torch.randn_like(batch[0]) if model.training else batch[0]
        return model(x), batch[1]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets)

    def losses(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return {"size": outputs.square().mean(), "class": self.loss(outputs, targets)}

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return {"accuracy": (outputs.argmax(1) == targets).float().mean().item()}


def fitted(**changes: Any) -> dict[str, Any]:
    settings = {"epochs": 6, "batch_size": 16, "early_stopping": None, "metric": {"name": "accuracy", "mode": "max"}, **changes}
    return dict(mltrainer.fit(Lively(), tell=lambda _event: None, **settings).result)


@pytest.mark.slow
def test_the_bits_are_the_same_whether_a_model_is_observed_or_not():
    on, off = fitted(signals=True), fitted(signals=False)
    assert (on["weights_sha256"], on["chain"]) == (off["weights_sha256"], off["chain"])
    plain = [{key: row[key] for key in ("train_loss", "train", "validation", "grad_norm")} for row in on["history"]]
    assert plain == [{key: row[key] for key in ("train_loss", "train", "validation", "grad_norm")} for row in off["history"]]
    assert off["signals"] is None
    assert all("signals" not in row for row in off["history"])


@pytest.mark.slow
def test_what_is_observed():
    found = fitted()
    start, rows = found["signals"]["start"], [row["signals"] for row in found["history"] if "signals" in row]
    assert start["data"]["counts"][0] + start["data"]["counts"][1] == 112
    assert (start["data"]["not_finite"], start["data"]["shared"], start["data"]["repeated"]) == (0, 0.0, 0.0)
    assert start["model"]["loss"] == pytest.approx(math.log(2), abs=0.4)
    assert (start["model"]["first"], start["model"]["last"]) == ("Linear", "Linear")
    assert start["model"]["shuffled_loss"] != start["model"]["loss"]
    assert [step for step, _, _ in found["signals"]["early"]["updates"]] == [1, 2, 4, 8, 16, 32]
    assert len(found["signals"]["early"]["labels"]) == 32
    assert {"0", "2", "4"} <= set(rows[-1]["validation"]["modules"])
    assert rows[-1]["memory_mb"] > 10
    for found in (start["model"], rows[0]["validation"], rows[-1]["validation"]):
        assert {kind: list(layers) for kind, layers in found["distributions"].items()} == {
            "weights": ["0.weight", "4.weight"],
            "activations": ["0", "4"],
        }
    assert rows[-1]["validation"]["distributions"]["weights"] != start["model"]["distributions"]["weights"]
    assert rows[-1]["training"]["loss"] != rows[-1]["evaluating"]["loss"]
    assert all([*row["cosines"]] == ["class, size"] and -1 <= row["cosines"]["class, size"] <= 1 for row in rows)


class Opposed(Task):
    """Two quantities that one output cannot be at once, and a third that is nearly the first; twelve samples."""

    terms = ("near", "far", "third")

    def dataset(self, split: str) -> tuple[Tensor, Tensor] | None:
        x = torch.randn(12, 3, generator=torch.Generator().manual_seed(5))
        return x, torch.stack([x[:, 0], -x[:, 0] + 0.2 * x[:, 1], x[:, 0] + 0.1], 1)

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))

    def losses(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return dict(zip(self.terms, (outputs - targets).square().mean(0), strict=True))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().mean()


def opposed(task: Task | None = None, **changes: Any) -> mltrainer.Fit:
    optimizer = {"name": "adamw", "lr": 0.01}
    setting = {"batch_size": 12, "early_stopping": None, "optimizer": optimizer, **changes}
    return mltrainer.fit(task or Opposed(), tell=lambda _event: None, **setting)


def said_of(found: mltrainer.Fit) -> str:
    rule = RULES["gradient_conflict"]
    return rule(Run.of(found.result), **diagnostic_page("gradient_conflict", None).thresholds).state


@pytest.mark.slow
def test_the_gradients_of_several_losses_are_compared_where_two_of_them_meet():
    found, task = opposed(epochs=1), Opposed()
    x, y = task.dataset("train") or ()
    losses = task.losses(found.model.train()(x), y)
    rows = [torch.cat([g.flatten() for g in grads(losses[name], found.model)]) for name in task.terms]
    by_hand = {
        f"{task.terms[one]}, {task.terms[other]}": torch.cosine_similarity(rows[one], rows[other], 0).item()
        for one, other in ((0, 1), (0, 2), (1, 2))
    }
    (row,) = found.result["history"]
    assert row["signals"]["cosines"] == pytest.approx(by_hand, abs=1e-5)


def grads(loss: Tensor, model: nn.Module) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, [*model.parameters()], retain_graph=True)


@pytest.mark.slow
def test_losses_that_cannot_both_fall_fire_and_such_as_can_do_not():
    assert said_of(opposed(epochs=40)) == "fired"

    class Apart(Opposed):
        def model(self) -> nn.Module:
            return nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))

    assert said_of(opposed(Apart(), epochs=40)) == "clear"


@pytest.mark.parametrize("way", [{"compile": True}, {"gradient_checkpointing": ["0"]}])
def test_gradients_are_not_compared_where_one_backward_pass_is_all_that_is_prepared(way):
    config: Any = SimpleNamespace(**{"compile": False, "gradient_checkpointing": [], **way})
    opened: Any = SimpleNamespace(task=Opposed())
    assert compared(opened, Opposed().model(), config, opened.task.dataset("train")) == {}


@pytest.mark.parametrize("planned", [1, 3, 4, 5, 30, 100, 1000])
def test_the_first_and_the_last_of_a_few_evaluations_are_watched(planned):
    watched = [number for number in range(1, planned + 1) if is_watched(number, planned, 4)]
    assert watched[0] == 1
    assert watched[-1] == planned
    assert len(watched) <= 5
    assert len([n for n in range(1, planned + 1) if is_watched(n, planned, 12)]) <= 13


@pytest.mark.parametrize(("steps", "batch", "evaluations", "samples"), [(60, 64, 4, 19), (660, 64, 4, 211), (10**5, 64, 12, 256)])
def test_observing_takes_a_small_share_of_the_training(steps, batch, evaluations, samples):
    plan = Plan(samples=steps * batch, batch_size=batch, accumulate=1, epochs=1)
    assert plan.steps == steps
    watch = watch_for(plan)
    assert (watch.evaluations, watch.samples) == (evaluations, samples)
    assert watch.evaluations * (2 * watch.samples + watch.held_out.samples) <= 0.08 * steps * batch


def test_a_run_of_few_steps_is_observed_on_the_fewest_samples_that_tell_anything():
    watch = watch_for(Plan(samples=640, batch_size=32, accumulate=1, epochs=1))
    assert (watch.evaluations, watch.samples) == (4, 16)


def test_units_that_are_never_above_zero_are_dead_behind_a_module_or_a_function():
    model = Wired(lambda model, x: model.b(torch.relu(model.a(x))), a=nn.Linear(4, 8), b=nn.Linear(8, 2))
    with torch.no_grad():
        model.a.weight[:6], model.a.bias[:6] = 0.0, -1.0
        model.a.weight[6:], model.a.bias[6:] = 1.0, 5.0
    layered = nn.Sequential(model.a, nn.ReLU(), model.b)
    for one, name in ((model, "b"), (layered, "1")):
        with Modules(one) as seen:
            one(torch.randn(32, 4))
        assert seen.found()[name]["dead"] == 0.75
    tanh = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    with Modules(tanh) as seen:
        tanh(torch.randn(32, 4))
    assert all("dead" not in row for row in seen.found().values())


def test_a_channel_is_a_convolutions_unit_and_a_tanh_far_out_is_saturated():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3), nn.Tanh())
    with torch.no_grad():
        model[0].weight[0], model[0].bias[0] = 0.0, -1.0
        model[0].bias[1:] = 9.0
        model[3].bias.fill_(1000.0)
    with Modules(model) as seen:
        model(torch.rand(8, 1, 8, 8))
    assert seen.found()["1"]["dead"] == 0.25
    assert seen.found()["4"]["saturated"] == 1.0


def test_a_histogram_leaves_out_the_values_far_out_and_those_that_are_not_finite():
    values = np.concatenate([np.linspace(-1, 1, 998), [1e9, -1e9, np.nan, np.inf]]).astype(np.float32)
    found = histogram(values)
    assert (found["low"], found["high"]) == (pytest.approx(-0.992, abs=0.002), pytest.approx(0.992, abs=0.002))
    assert sum(found["counts"]) == 990
    assert max(found["counts"]) - min(found["counts"]) <= 2
    assert histogram(np.full(5, np.nan, np.float32)) is None
    same = histogram(np.full(8, 0.5, np.float32))
    assert same == {"low": 0.5, "high": 0.5, "counts": [8] + [0] * (BINS - 1)}


def test_the_values_read_of_a_tensor_are_in_step_with_no_dimension():
    columns = some_of(torch.arange(64.0).repeat(256, 1))
    counts = columns.long().bincount(minlength=64)
    assert (len(columns), int(counts.min()), int(counts.max())) == (VALUES, 15, 17)
    assert sorted(set(some_of(torch.tensor([[3.0, 1.0]])).tolist())) == [1.0, 3.0]


def test_only_so_many_layers_have_histograms():
    layers = [str(nr) for nr in range(100)]
    assert (len(chosen_layers(layers)), chosen_layers(layers)[0], chosen_layers(layers)[-1]) == (LAYERS, "0", "99")
    assert chosen_layers(["a"]) == ["a"]
    assert histograms({}, {}) is None


@pytest.mark.slow
def test_what_a_loss_scale_is_and_how_many_gradients_are_zero_is_told_of_fp16_alone():
    rows = fitted(precision="fp16", epochs=2)["history"]
    assert all(row["loss_scale"] >= 1 and 0 <= row["zero_gradients"] < 1 for row in rows)
    assert all("loss_scale" not in row for row in fitted(epochs=1)["history"])


@pytest.mark.slow
def test_gradients_that_fp16_cannot_hold_are_named_by_it_with_the_loss_scale_and_a_cut_is_not():
    class Tiny(Lively):
        def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return 1e-13 * super().loss(outputs, targets)

    class Cut(Lively):
        def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
            first, *others = model.children()
            return nn.Sequential(*others)(first(batch[0]).detach()), batch[1]

    changes = {"epochs": 2, "batch_size": 16, "early_stopping": None, "precision": "fp16"}
    named = {}
    for task in (Tiny(), Cut()):
        run = Run.of(mltrainer.fit(task, tell=lambda _event: None, **changes).result)
        named[type(task).__name__] = {row.id: row.reason for row in diagnose(run, None) if row.state == "fired"}
    assert "The loss scale was 65,536 from epoch 1" in named["Tiny"]["gradient_underflow"]
    assert not {"dead_layers", "vanishing_gradients"} & {*named["Tiny"]}
    assert "dead_layers" in named["Cut"]
    assert "gradient_underflow" not in named["Cut"]


def test_layers_whose_units_begin_alike():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    nn.init.constant_(model[0].weight, 0.1)
    assert symmetric(model) == ["0"]


def test_a_spike_is_told_and_neither_a_rise_nor_a_ragged_batch_is_one():
    losses = Losses()
    losses.extend(1, [2.0 + 0.01 * (n % 3) for n in range(60)], [64] * 60, 64)
    losses.extend(61, [2.1, 30.0, 2.0, 50.0], [64, 3, 64, 64], 64)
    assert [(spike["step"], spike["loss"]) for spike in losses.spikes] == [(64, 50.0)]
    again = Losses(**losses.tree())
    assert again == losses
    small = Losses()
    small.extend(1, [2.0, 0.1] * 200, [4] * 400, 4)
    small.extend(401, [9.0, 0.1], [4, 4], 4)
    assert small.spikes == []  # of eight batches of four one is high


def test_a_class_that_a_feature_tells_and_labels_that_neighbours_share():
    labels = torch.arange(200) % 4
    rows = torch.stack([labels.double(), torch.randn(200, dtype=torch.double)], 1)
    assert telling(rows, labels) == pytest.approx(1.0)
    assert telling(rows[:, 1:], labels) == 0.0
    assert telling(torch.randn(18, 4, dtype=torch.double), torch.arange(18) % 3) == 0.0  # learned by heart, value by value
    near = torch.nn.functional.one_hot(labels).double() + 0.01 * torch.randn(200, 4, dtype=torch.double)
    assert neighbours(near, labels) == 1.0
    assert neighbours(near, labels[torch.randperm(200)]) < 0.6


class Rows(Dataset[Any]):
    def __init__(self, rows: Tensor, labels: Tensor) -> None:
        self.rows, self.labels = rows, labels

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        return self.rows[place], self.labels[place]


def seen(rows: Tensor, labels: Tensor) -> dict[str, Any] | None:
    """Return the signals of a data set that is not in memory."""
    return signals_of(
        Samples(np.arange(len(rows)), dataset=Rows(rows, labels)), "values" if labels.is_floating_point() else "classes"
    )


def signals_of(samples: Samples, kind: TargetKind) -> dict[str, Any] | None:
    config = SimpleNamespace(data_seed=1)
    return of_data(SimpleNamespace(split=lambda _: samples, task=Task(), root=Path(), config=config, target_kind=kind))


def test_texts_are_judged_by_their_tokens_in_a_data_set_and_in_memory():
    drawn = torch.Generator().manual_seed(0)
    labels = torch.arange(600) % 3
    texts = torch.where(torch.rand(600, 12, generator=drawn) < 0.6, labels[:, None] * 10, 0)
    texts = texts + torch.randint(10, (600, 12), generator=drawn)
    wrong = torch.where(torch.rand(600, generator=drawn) < 0.4, torch.randint(3, (600,), generator=drawn), labels)
    found = [seen(texts, labels) or {}, seen(texts, wrong) or {}, seen(texts, labels[torch.randperm(600, generator=drawn)]) or {}]
    assert found[0]["neighbours"] > 0.95
    assert found[1]["neighbours"] < 0.75
    assert "neighbours" not in found[2]
    kept = signals_of(Samples(np.arange(600), tensors=(texts, labels)), "classes")
    assert kept["neighbours"] == pytest.approx(found[0]["neighbours"], abs=0.02)  # of other ties


def test_a_data_sets_labels_are_judged_by_their_neighbours():
    """40 % wrong labels of a data set were silent, as only samples in memory were looked at."""
    torch.manual_seed(0)
    labels = torch.arange(600) % 4
    rows = torch.nn.functional.one_hot(labels, 4).float().repeat(1, 3) + 0.1 * torch.randn(600, 12)
    healthy = seen(rows, labels)
    assert healthy["neighbours"] == 1.0
    assert (healthy["not_finite"], healthy["features"]) == (0, 12)
    wrong = torch.where(torch.rand(600) < 0.4, torch.randint(4, (600,)), labels)
    noisy = seen(rows, wrong)
    assert noisy["neighbours"] < 0.75
    assert (seen(1000 * rows, labels) or {})["largest"] > 1000
    tokens = seen((100 * rows).long(), labels)
    assert tokens == {"not_finite": 0, "features": 12, "repeated": 0.0, "constant": 0.0, "counts": [125] * 4}  # of 500 samples
    assert (seen(rows[torch.arange(600) % 40], labels[torch.arange(600) % 40]) or {})["repeated"] == 0.92
    pictures = seen((100 * rows).long().clamp(0).reshape(-1, 3, 4), labels) or {}
    assert (pictures["neighbours"], "largest" in pictures) == (1.0, False)  # pixels are scaled later
    assert (seen(rows, rows[:, 0]) or {})["neighbour_r2"] > 0.9
    assert (seen(rows, torch.randn(600)) or {})["neighbour_r2"] < 0.1


# --- margins --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_margins_of_a_run_that_was_gone_on_with_are_those_of_one_that_was_not(tmp_path):
    files = []
    for name, stops in (("whole", ()), ("stopped", (8,))):
        root = digits_runs.make(tmp_path / name)
        digits_runs.train(root, stops=stops)
        files.append((root / ".mltrainer/runs/run" / MARGINS_FILE).read_bytes())
    assert files[0] == files[1]
    noted = np.frombuffer(files[0], dtype="<f4")
    assert np.isfinite(noted).sum() == 96


def noted(**settings: Any) -> Margins:
    config = SimpleNamespace(augment=None, signals=True, label_smoothing=0.0, **settings)
    return Margins(config, epochs=1, ids=np.arange(4))


def test_a_margin_is_what_the_own_class_has_above_the_others():
    found = noted()
    found.took(1, np.array([3, 1]), [(torch.tensor([[1.0, 3.0, 2.0], [5.0, 0.0, 1.0]]), torch.tensor([1, 2]))])
    found.fetch(Ranks())
    assert found.means().nan_to_num(-99).tolist() == [-99, -4, -99, 1]


def test_outputs_with_a_logit_for_each_sample_of_a_batch_have_margins_also_where_the_last_batch_is_smaller():
    found = noted()
    found.took(1, np.array([0, 1, 2]), [(torch.tensor([[4.0, 1.0, 1.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0]]), torch.arange(3))])
    found.took(1, np.array([3]), [(torch.tensor([[7.0, 2.0]]), torch.tensor([0]))])
    found.fetch(Ranks())
    assert found.means().tolist() == [3, 2, 1, 5]


@pytest.mark.parametrize(
    "targets", [torch.tensor([0.5, 1.0]), torch.tensor([[1, 0, 0], [0, 1, 0]]), torch.tensor([-100, 7])], ids=str
)
def test_what_is_no_class_has_no_margin(targets):
    found = noted()
    found.took(1, np.array([0, 1]), [(torch.zeros(2, 3), targets)])
    found.fetch(Ranks())
    assert bool(found.means().isnan().all())


def test_tokens_that_lie_in_one_row_have_no_margins():
    found = noted()
    found.took(1, np.array([0, 1]), [(torch.zeros(8, 3), torch.zeros(8, dtype=torch.int64))])
    found.fetch(Ranks())
    assert bool(found.means().isnan().all())


# --- outputs of several parts ---------------------------------------------------------------------


class Named(Lively):
    """The same model, whose outputs have a name beside another part that counts nothing."""

    terms = ()

    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        outputs, targets = super().forward(model, batch)
        return {"offset": outputs[:, 0] * 0, "logits": outputs}, targets

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        return super().loss(outputs["logits"], targets) + outputs["offset"].sum()

    def metrics(self, outputs: Any, targets: Tensor) -> dict[str, float]:
        return super().metrics(outputs["logits"], targets)


class Paired(Lively):
    """The same model, with outputs in a tuple and targets in a dict."""

    terms = ()

    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        outputs, targets = super().forward(model, batch)
        return (outputs, outputs * 0), {"kind": targets}

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        return super().loss(outputs[0], targets["kind"]) + outputs[1].sum()

    def metrics(self, outputs: Any, targets: Any) -> dict[str, float]:
        return super().metrics(outputs[0], targets["kind"])


def of(task: Task) -> dict[str, Any]:
    settings = {"epochs": 2, "batch_size": 16, "early_stopping": None, "metric": {"name": "accuracy", "mode": "max"}}
    return dict(mltrainer.fit(task, tell=lambda _event: None, **settings).result)


@pytest.mark.slow
@pytest.mark.parametrize("task", [Named, Paired])
def test_outputs_of_several_parts_are_observed_as_the_tensor_among_them_is(task):
    plain, found = of(Lively()), of(task())
    assert found["weights_sha256"] == plain["weights_sha256"]
    one, other = (each["signals"]["start"]["model"] for each in (plain, found))
    assert (other["loss"], other["output"]) == (one["loss"], one["output"])
    assert other["shuffled_loss"] == (one["shuffled_loss"] if task is Named else None)
    assert [row["signals"]["training"]["loss"] for row in found["history"]] == [
        row["signals"]["training"]["loss"] for row in plain["history"]
    ]


@pytest.mark.slow
def test_a_loss_that_takes_no_other_samples_targets_is_observed_without_them():
    class Strict(Lively):
        terms = ()

        def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
            assert targets is self.first
            return super().loss(outputs, targets)

        def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
            self.first = batch[1]
            return super().forward(model, batch)

    start = of(Strict())["signals"]["start"]["model"]
    assert start["shuffled_loss"] is None
    assert start["loss"] > 0


class Penalized(Lively):
    """A penalty on gradients, which there are in training alone."""

    terms = ()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.made.training:
            torch.autograd.grad(outputs.sum(), next(self.made.parameters()), retain_graph=True)
        return super().loss(outputs, targets)

    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        self.made = model
        return super().forward(model, batch)


def test_where_observing_fails_the_code_is_not_blamed():
    with pytest.raises(InputError, match=r"observing the model for the diagnostics failed: RuntimeError.*") as error:
        of(Penalized())
    assert "--set signals=false" in str(error.value.hint)


# --- classes of places ----------------------------------------------------------------------------


def test_probabilities_of_each_place_sum_to_one_in_either_order():
    logits = torch.randn(4, 5, 3)
    assert sums_to_one(logits.softmax(-1))
    assert sums_to_one(logits.softmax(1))
    assert not sums_to_one(logits)
    assert not sums_to_one(torch.ones(4, 1))
    rows, labels = by_class(logits, torch.tensor([[0, 1, 2, -100, 0]] * 4), "classes") or (None, None)
    assert rows is not None
    assert (rows.shape, labels.tolist()) == ((16, 3), [0, 1, 2, 0] * 4)


# --- answers by class -----------------------------------------------------------------------------


def answered(output: Tensor, target: Tensor, kind: TargetKind | None = "classes") -> list[list[int]] | None:
    return recalled(output, target, by_class(output, target, kind), kind)


def test_answers_are_counted_by_class_of_samples_places_and_labels():
    logits = torch.eye(3)[torch.tensor([0, 0, 0, 2])]
    assert answered(logits, torch.tensor([0, 0, 1, 2])) == [[2, 2, 2], [1, 0, 2], [1, 1, 2]]
    assert answered(torch.tensor([2.0, -1, -1, -1]), torch.tensor([1.0, 1, -1, -1])) == [[2, 2, 2], [2, 1, 2]]
    tags = torch.tensor([[0, 0, 1], [0, 0, 0]])
    assert answered(torch.eye(2)[tags * 0], tags) == [[5, 5, 5], [1, 0, 5]]
    labels = torch.tensor([[1.0, 0], [0, 0], [0, 0]])
    assert answered(labels - 0.5, labels) == [[1, 1, 2], [0, 0, 3]]


@pytest.mark.parametrize("kind", ["tokens", "values", None])
def test_no_answers_are_counted_of_targets_that_are_not_said_to_be_classes(kind):
    tokens = torch.arange(20).reshape(2, 10) % 7
    assert answered(torch.zeros(2, 9, 7), tokens[:, 1:], kind) is None
    pixels = torch.tensor([[0.0, 1, 1], [0, 0, 1]])
    assert answered(pixels - 0.5, pixels, kind) is None


def test_no_answers_are_counted_of_what_is_no_label_and_of_many_classes():
    assert answered(torch.zeros(3, 1), torch.tensor([[0.1], [0.2], [1.0]])) is None
    assert answered(torch.zeros(3, 40), torch.tensor([0, 1, 39])) is None


class _Twice(nn.Module):
    """Calls one encoder for each half of its inputs, or one encoder of each."""

    def __init__(self, *, shared: bool) -> None:
        super().__init__()
        one = nn.Sequential(nn.Linear(10, 4), nn.ReLU(), nn.Linear(4, 4))
        self.encoders = nn.ModuleList([one, one if shared else copy.deepcopy(one)])
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.cat([encode(half) for encode, half in zip(self.encoders, x.chunk(2, 1), strict=True)], 1))


@pytest.mark.parametrize("shared", [True, False])
def test_zeros_of_the_data_are_no_dead_units_whichever_branch_reads_them(shared):
    torch.manual_seed(0)
    model, x = _Twice(shared=shared), torch.rand(32, 20)
    x[:, [*range(2, 10), *range(12, 20)]] = 0  # four fifths of each half
    with Modules(model) as seen:
        model(x)
    assert {name: row["dead"] for name, row in seen.found().items() if row.get("dead", 0) > 0.5} == {}


def test_units_that_died_behind_a_function_are_told_in_a_model_that_is_called_twice():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(5, 8), nn.Linear(8, 2)
            nn.init.constant_(self.first.bias, -100.0)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(torch.relu(self.first(x[:, :5]))) + self.second(torch.relu(self.first(x[:, 5:])))

    model = Model()
    with Modules(model) as seen:
        model(torch.rand(32, 10))
    assert seen.found()["second"]["dead"] == 1.0
