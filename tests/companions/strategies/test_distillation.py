"""Distillation beside a loop that is written by hand, and what is refused of a teacher."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn import functional

import mltrainer
from mltrainer.checkpointing.weights import weights_sha256
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from mltrainer.tasks.opening import make_model, open_task
from mltrainer.tasks.strategies import Strategies, strategies_of
from mltrainer.tasks.strategy import MicroBatch, Training
from mltrainer.trainers.native.data.addresses import Step
from mltrainer.trainers.native.objective import Objective
from mltrainer.trainers.native.stepping import Stepper
from tests.refusals import refused
from tests.trainers.native.digits_runs import config

HEAT, WEIGHT, RATE, STEPS = 3.0, 0.7, 0.05, 5


class Rows(mltrainer.Task):
    """Rows of numbers into classes, learned by a small model from a wide one; a class of -100 does not count."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 5))

    def teacher(self) -> nn.Module:
        return nn.Sequential(nn.Linear(8, 40), nn.Dropout(0.5), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 5))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets)

    def loss_items(self, targets: Tensor) -> Tensor:
        return (targets != -100).sum()


class Values(Rows):
    """Rows of numbers into numbers."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.l1_loss(outputs, targets)


def chosen(**changes: Any) -> TrainingConfig:
    strategy = {"name": "distillation", "teacher": {"weights": "t.safetensors"}, "temperature": HEAT, "weight": WEIGHT}
    plain = {"clip": None, "optimizer": {"name": "sgd", "lr": RATE, "momentum": 0.0, "weight_decay": 0.0}, "batch_size": 6}
    return config({**plain, "strategies": [{**strategy, **changes.pop("strategy", {})}], **changes})


def seeded(make: Any, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return make()


def save_teacher(root: Path, task: Rows | None = None) -> nn.Module:
    """Write a teacher's weights, and return it as it is run."""
    teacher = seeded((task or Rows()).teacher, 2)
    for module in teacher.modules():
        if isinstance(module, nn.BatchNorm1d):
            nn.init.normal_(module.running_mean)  # what evaluation mode reads
    safetensors.torch.save_file(dict(teacher.state_dict()), root / "t.safetensors")
    return teacher.eval()


def begun(root: Path, settings: TrainingConfig, task: Rows, model: nn.Module) -> Strategies:
    strategies = strategies_of(settings, root)
    strategies.begin(Training(task, model, settings, root, lambda _model: task.teacher(), lambda _count: None))
    return strategies


def batches(count: int = STEPS, size: int = 6) -> list[tuple[Tensor, Tensor]]:
    draws = torch.Generator().manual_seed(3)
    return [(torch.randn(size, 8, generator=draws), torch.randint(5, (size,), generator=draws)) for _ in range(count)]


def steps(given: list[tuple[Tensor, Tensor]]) -> list[Step]:
    return [Step(np.arange(len(batch[0])), [batch], range(1), [len(batch[0])]) for batch in given]


def by_hand(student: nn.Module, teacher: nn.Module, given: list[tuple[Tensor, Tensor]]) -> list[list[float]]:
    """Distil as a loop of torch's own does, and return each step's loss, task's loss and distance."""
    optimizer, found = torch.optim.SGD(student.parameters(), RATE), []
    for x, y in given:
        optimizer.zero_grad()
        logits = student(x)
        with torch.no_grad():
            soft = functional.softmax(teacher(x) / HEAT, dim=1)
        task = functional.cross_entropy(logits, y)
        distance = functional.kl_div(functional.log_softmax(logits / HEAT, dim=1), soft, reduction="none").sum(1).mean() * HEAT**2
        loss = (1 - WEIGHT) * task + WEIGHT * distance
        loss.backward()
        optimizer.step()
        found.append([one.item() for one in (loss, task, distance)])
    return found


# --- the formula ----------------------------------------------------------------------------------


def test_some_steps_are_those_of_a_loop_written_by_hand(tmp_path):
    teacher, ours, theirs = save_teacher(tmp_path), seeded(Rows().model, 1), seeded(Rows().model, 1)
    stepper = Stepper(Objective(Rows(), ours, chosen(), strategies=begun(tmp_path, chosen(), Rows(), ours)))
    taken = [stepper.take(number, RATE, step) for number, step in enumerate(steps(batches()), 1)]
    expected = by_hand(theirs, teacher, batches())
    assert weights_sha256(ours.state_dict()) == weights_sha256(theirs.state_dict())
    assert [[float(step.loss), *step.terms.tolist()] for step in taken if step.terms is not None] == expected


def test_without_strategies_a_step_has_no_terms(tmp_path):
    model, plain = seeded(Rows().model, 1), chosen(strategies=[])
    measured = Stepper(Objective(Rows(), model, plain, strategies=strategies_of(plain, tmp_path))).take(
        1, RATE, steps(batches(1))[0]
    )
    assert (measured.terms, measured.loss.shape) == (None, ())


def test_a_weight_of_one_ignores_the_labels(tmp_path):
    save_teacher(tmp_path)
    settings, digests = chosen(strategy={"weight": 1.0}), []
    for shift in (0, 1):
        model = seeded(Rows().model, 1)
        stepper = Stepper(Objective(Rows(), model, settings, strategies=begun(tmp_path, settings, Rows(), model)))
        for number, step in enumerate(steps([(x, (y + shift) % 5) for x, y in batches()]), 1):
            stepper.take(number, RATE, step)
        digests.append(weights_sha256(model.state_dict()))
    assert digests[0] == digests[1]


def term(root: Path, task: Rows, outputs: Tensor, targets: Any, x: Tensor, **strategy: Any) -> float:
    """Return the distance of some outputs from the teacher's on some rows."""
    settings = chosen(strategy={"weight": 1.0, **strategy})
    strategies = begun(root, settings, task, nn.Linear(1, 1))
    loss, _ = strategies.join(torch.zeros(()), MicroBatch((x, targets), outputs, targets))
    return float(loss)


def test_items_that_do_not_count_for_the_task_do_not_count_here(tmp_path):
    save_teacher(tmp_path)
    (x, y), outputs = batches(1)[0], torch.randn(6, 5, generator=torch.Generator().manual_seed(5))
    some = y.clone()
    some[2:] = -100
    assert term(tmp_path, Rows(), outputs, some, x) == pytest.approx(term(tmp_path, Rows(), outputs[:2], y[:2], x[:2]))
    assert term(tmp_path, Rows(), outputs, torch.full_like(y, -100), x) == 0


def test_values_are_compared_by_their_squares(tmp_path):
    teacher, (x, _) = save_teacher(tmp_path), batches(1)[0]
    outputs, targets = torch.randn(6, 5), torch.randn(6, 5)
    with torch.no_grad():
        expected = float((outputs - teacher(x)).square().mean())
    assert term(tmp_path, Values(), outputs, targets, x) == pytest.approx(expected)


def test_a_teacher_draws_nothing_and_asks_for_no_gradient(tmp_path):
    save_teacher(tmp_path)
    torch.manual_seed(7)
    before, model = torch.get_rng_state(), seeded(Rows().model, 7)
    torch.manual_seed(7)
    strategies = begun(tmp_path, chosen(), Rows(), model)
    assert torch.equal(torch.get_rng_state(), before)
    (x, y), outputs = batches(1)[0], torch.randn(6, 5, requires_grad=True)
    strategies.join(outputs.sum(), MicroBatch((x, y), outputs, y))
    after = torch.get_rng_state()
    seeds.seed_everything(strategies.address)
    assert torch.equal(torch.get_rng_state(), after)
    assert not [p for p in strategies._each[0]._teacher.parameters() if p.requires_grad]


class InPlace(Rows):
    """Changes its batch in place."""

    def forward(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        x, y = (batch["x"], batch["y"]) if isinstance(batch, dict) else batch
        return model(x.mul_(2)), y


@pytest.mark.parametrize("form", ["a tuple", "a dict"])
def test_a_teacher_is_given_the_batch_as_it_was(tmp_path, form):
    teacher, (x, y), task = save_teacher(tmp_path), batches(1)[0], InPlace()
    settings = chosen(strategy={"weight": 1.0}, task={"use": "rows:InPlace"})
    model = seeded(task.model, 1)
    stepper = Stepper(Objective(task, model, settings, strategies=begun(tmp_path, settings, task, model)))
    with torch.no_grad():
        logits, soft = (functional.log_softmax(net(2 * x) / HEAT, 1) for net in (model, teacher))
    expected = HEAT**2 * functional.kl_div(logits, soft, reduction="batchmean", log_target=True)
    step = Step(np.arange(6), [(x, y) if form == "a tuple" else {"x": x, "y": y}], range(1), [6])
    assert float(stepper.take(1, RATE, step).loss) == pytest.approx(float(expected), rel=1e-4)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outputs", "targets", "message"),
    [
        (torch.zeros(6, 4), torch.zeros(6, dtype=torch.long), r"outputs of shape \[6, 5\], and the model \[6, 4\]"),
        (torch.zeros(6, 5), torch.zeros(5, dtype=torch.long), r"class numbers of shape \[5\] need outputs of that shape with"),
        ({"logits": torch.zeros(6, 5)}, torch.zeros(6), "one tensor can be compared, and forward gives dict"),
    ],
)
def test_outputs_that_cannot_be_compared_are_refused_by_name(tmp_path, outputs, targets, message):
    save_teacher(tmp_path)
    with refused(message, where="strategies.0"):
        term(tmp_path, Rows(), outputs, targets, torch.zeros(6, 8))


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def rename(path: Path) -> None:
    state = safetensors.torch.load_file(path)
    safetensors.torch.save_file({name.replace("4.bias", "5.bias"): tensor for name, tensor in state.items()}, path)


def widen(path: Path) -> None:
    state = safetensors.torch.load_file(path)
    safetensors.torch.save_file(
        {name: torch.cat([tensor, tensor]) if tensor.dim() else tensor for name, tensor in state.items()}, path
    )


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (Path.unlink, "no weights at 't.safetensors'"),
        (damage, "t.safetensors: not readable as weights"),
        (rename, "that the file lacks: 4.bias; the file's tensors that the model lacks: 5.bias"),
        (widen, r"of other shapes: .*0.weight \(\[80, 8\] in the file, \[40, 8\] in the model\)"),
    ],
)
def test_weights_that_do_not_fit_are_named_with_their_key(tmp_path, spoil, message):
    save_teacher(tmp_path)
    spoil(tmp_path / "t.safetensors")
    with refused(message, where="strategies.0.teacher.weights") as caught:
        begun(tmp_path, chosen(), Rows(), nn.Linear(1, 1))
    assert "start." not in str(caught.value)


class Same(Rows):
    """Gives the model that is trained as its own teacher."""

    def __init__(self) -> None:
        self.made = super().model()

    def model(self) -> nn.Module:
        return self.made

    def teacher(self) -> nn.Module:
        return nn.Sequential(self.made)


def test_the_trained_model_is_no_teacher(tmp_path):
    task = Same()
    safetensors.torch.save_file(
        {f"0.{name}": tensor for name, tensor in task.made.state_dict().items()}, tmp_path / "t.safetensors"
    )
    with pytest.raises(InputError, match="gave the model that is trained, or a part of it"):
        begun(tmp_path, chosen(), task, task.model())


# --- built-in tasks -------------------------------------------------------------------------------

DIGITS: dict[str, Any] = {
    "data": {"source": "sklearn:digits"},
    "metric": {"name": "accuracy", "mode": "max"},
    "model": {"name": "mlp", "hidden": [8]},
    "early_stopping": None,
    "epochs": 1,
}
WIDE = {"name": "mlp", "hidden": [32]}


def quiet(_event: dict[str, Any]) -> None:
    """Take no note of an event."""


def fit(kind: str = "image_classification", **keys: Any) -> mltrainer.Fit:
    return mltrainer.fit({"kind": kind}, **{**DIGITS, **keys}, tell=quiet)


def distilled(model: dict[str, Any] | None = None, weights: str = "teacher", **settings: Any) -> list[dict[str, Any]]:
    return [{"name": "distillation", "teacher": {"weights": weights, "model": model}, **settings}]


def deliver(model: nn.Module, **interface: Any) -> None:
    """Write a teacher as finalization does: weights, and what the model reads and tells."""
    Path("teacher").mkdir(exist_ok=True)
    safetensors.torch.save_file({n: t.contiguous() for n, t in model.state_dict().items()}, "teacher/model.safetensors")
    Path("teacher/inference.json").write_text(json.dumps(interface))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_small_model_learns_from_a_delivered_wide_one(here):
    plain = fit()
    deliver(fit(model=WIDE, epochs=3).model, kind="image_classification", classes=[str(n) for n in range(10)])
    taught = fit(strategies=distilled(WIDE, weight=1.0), epochs=2)
    terms = [row["terms"] for row in taught.history]
    assert [*terms[0]] == ["task", "distillation"]
    assert terms[1]["distillation"] < terms[0]["distillation"]
    assert [row["train_loss"] for row in taught.history] == [row["distillation"] for row in terms]
    assert {name: t.shape for name, t in taught.model.state_dict().items()} == {
        name: t.shape for name, t in plain.model.state_dict().items()
    }
    assert "loss_terms.svg" in {figure.file for figure in taught.curves}
    assert "terms" not in plain.history[0]
    assert "loss_terms.svg" not in {figure.file for figure in plain.curves}


@pytest.mark.slow
def test_mixed_and_smoothed_targets_are_of_classes(here):
    deliver(fit(model=WIDE).model)
    mixed = fit(strategies=distilled(WIDE), augment={"mixup": 0.4}, label_smoothing=0.1)
    assert mixed.state == "finished"
    assert 0 < mixed.history[0]["terms"]["distillation"] < 10


@pytest.mark.parametrize(
    ("interface", "message"),
    [
        ({"classes": [str(n) for n in reversed(range(10))]}, r"other classes than this task has: \['9', .*\] there, \['0', "),
        ({"kind": "tabular_classification"}, "other kind than this task has: tabular_classification there"),
        ({"input": {"name": "images", "dtype": "uint8", "shape": [3, 8, 8]}}, "other input than this task has"),
    ],
)
def test_a_teacher_of_another_task_is_refused(here, interface, message):
    deliver(nn.Linear(1, 1), **interface)
    with refused(message, where="strategies.0.teacher.weights"):
        fit(strategies=distilled())


def test_a_teacher_model_that_does_not_suit_the_data_is_named_by_its_key(here):
    deliver(nn.Linear(1, 1))
    with refused("tabular_mlp is a model for tables", where="strategies.0.teacher.model"):
        fit(strategies=distilled({"name": "tabular_mlp"}))


def write_table(values: str = "number") -> None:
    """Write a table whose target is far from 0 and in large units, or a class."""
    draws = np.random.default_rng(1)
    x, y = draws.normal(size=(120, 2)), draws.normal(size=120)
    told = [f"{1e6 + 1e4 * (a - b):.3f}" if values == "number" else "ab"[int(a > b)] for (a, b), _ in zip(x, y, strict=True)]
    rows = [f"{a:.6f},{b:.6f},{'rg'[n % 2]},{one}" for n, ((a, b), one) in enumerate(zip(x, told, strict=True))]
    Path("table.csv").write_text("\n".join(["first,second,third,told", *rows]) + "\n")


TABLE: dict[str, Any] = {"data": {"source": "table.csv", "target": "told"}, "model": {"name": "mlp", "hidden": [4]}}
ENSEMBLE = {"name": "tabular_mlp", "hidden": [8], "members": 3}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "values"), [("tabular_regression", "number"), ("tabular_classification", "class")])
@pytest.mark.parametrize(("model", "of_teacher"), [(TABLE["model"], ENSEMBLE), (ENSEMBLE, TABLE["model"])])
def test_members_and_units_of_tables_are_compared(here, kind, values, model, of_teacher):
    write_table(values)
    table = {**TABLE, "metric": {"name": "loss", "mode": "min"}}
    teacher = fit(kind, **{**table, "model": of_teacher})
    deliver(teacher.model)
    taught = fit(kind, **{**table, "model": model, "strategies": distilled(of_teacher)})
    assert 0 < taught.history[0]["terms"]["distillation"] < 10


@pytest.mark.slow
def test_a_teacher_that_read_other_categories_is_refused(here):
    write_table("class")
    columns = [{"name": n, "kind": "number"} for n in ("first", "second")]
    third = {"name": "third", "kind": "category", "categories": ["g", "r"], "training": {"other": 1}}
    table = {**TABLE, "metric": {"name": "loss", "mode": "min"}}
    teacher = fit("tabular_classification", **table).model
    deliver(teacher, columns=[*columns, third])
    fit("tabular_classification", **table, strategies=distilled())
    deliver(teacher, columns=[*columns, {**third, "categories": ["r", "g"]}])
    with pytest.raises(InputError, match="other columns than this task has"):
        fit("tabular_classification", **table, strategies=distilled())


@pytest.mark.slow
def test_texts_are_taught_by_a_model_that_reads_them_by_the_same_tokenizer(here):
    draws = np.random.default_rng(2)
    words = [" ".join(draws.choice(["good", "bad", "film", "plot", "fine"], 6)) for _ in range(80)]
    lines = [f"{text},{'yes' if text.count('good') > text.count('bad') else 'no'}" for text in words]
    Path("texts.csv").write_text("\n".join(["text,told", *lines]) + "\n")
    texts = {
        "data": {"source": "texts.csv", "text": "text", "target": "told"},
        "model": {"name": "bag", "width": 4},
        "batch_size": 8,
    }
    gru = {"name": "gru", "width": 8, "hidden": 8}
    teacher = fit("text_classification", **{**texts, "model": gru}).model
    deliver(teacher, kind="text_classification", classes=["no", "yes"])
    taught = fit("text_classification", **texts, strategies=distilled(gru))
    assert 0 < taught.history[0]["terms"]["distillation"] < 10
    Path("teacher/tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"the teacher has another tokenizer\.json than this task"):
        fit("text_classification", **texts, strategies=distilled(gru))


LANGUAGE: dict[str, Any] = {
    "name": "speaking",
    "task": {"kind": "text_generation"},
    "data": {"source": "story.txt", "tokens": {"kind": "char", "length": 16}},
    "model": {"name": "gru", "width": 8, "hidden": 8},
    "metric": {"name": "perplexity", "mode": "min"},
    "batch_size": 8,
}


def test_a_language_model_learns_the_teachers_scores_of_each_next_token(here):
    Path("story.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 60)
    big = {"name": "transformer", "width": 16, "layers": 1, "heads": 2}
    plain = open_task(TrainingConfig.model_validate({**LANGUAGE, "model": big}), here)
    teacher = make_model(plain).eval()
    safetensors.torch.save_file(dict(teacher.state_dict()), "t.safetensors")
    given = distilled(big, "t.safetensors", temperature=HEAT, weight=1.0)
    task = open_task(TrainingConfig.model_validate({**LANGUAGE, "strategies": given}), here)
    student = make_model(task).eval()
    task.strategies.begin(task.training(student))
    tensors = task.split("train").tensors
    assert tensors is not None
    batch = tuple(tensor[:8] for tensor in tensors)
    with task.strategies.watching:
        outputs, targets = task.task.forward(student, batch)
    found = task.strategies.join(torch.zeros(()), MicroBatch(batch, outputs, targets))[0]
    with torch.no_grad():
        said, soft = (functional.log_softmax(one(batch[0].long()[:, :-1]) / HEAT, -1) for one in (student, teacher))
    expected = HEAT**2 * functional.kl_div(said, soft, reduction="none", log_target=True).sum(-1).mean()
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)
    assert found.requires_grad


@pytest.mark.slow
def test_a_language_model_is_taught_by_its_own_average_too(here):
    Path("story.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 60)
    own = {"name": "distillation", "teacher": {"ema": 0.9}, "features": [{"student": "output", "teacher": "output"}]}
    keys = {name: value for name, value in LANGUAGE.items() if name not in ("name", "task")}
    taught = fit("text_generation", **keys, early_stopping=None, strategies=[own], epochs=2)
    assert taught.state == "finished"
    assert taught.history[-1]["terms"]["distillation"] > 0


# --- a teacher that a function returns ------------------------------------------------------------

USE = "strategies.0.teacher.use"
MAKES = """
import torch
from safetensors.torch import load_file
from torch import nn

def teacher():
    made = nn.Sequential(nn.Linear(8, 40), nn.Dropout(0.5), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 5))
    made.load_state_dict(load_file("t.safetensors"))
    return made

def number():
    return 7

def fails():
    raise ValueError("no such teacher")
"""


@pytest.fixture
def made_here(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with functions that return teachers, and with a teacher's weights."""
    (here / "some_teachers.py").write_text(MAKES)
    monkeypatch.syspath_prepend(str(here))
    monkeypatch.delitem(sys.modules, "some_teachers", raising=False)
    save_teacher(here)
    return here


def test_a_function_returns_the_teacher_with_its_weights(made_here):
    x, y = batches(1)[0]
    outputs = torch.randn(6, 5)
    expected = term(made_here, Rows(), outputs, y, x)
    assert term(made_here, Rows(), outputs, y, x, teacher={"use": "some_teachers:teacher"}) == expected


@pytest.mark.parametrize(
    ("use", "message", "where"),
    [
        ("some_teacher:teacher", "there is no module 'some_teacher'", USE),
        (
            "some_teachers:taecher",
            "has no function 'taecher'; its functions are: .*teacher, number, fails",
            "strategies.0.teacher.use",
        ),
        (
            "some_teachers:number",
            r"some_teachers:number\(\): expected a torch.nn.Module, found int",
            "strategies.0.teacher.use",
        ),
        ("some_teachers:fails", "calling some_teachers:fails: ValueError: no such teacher", "some_teachers.py:15"),
    ],
)
def test_a_function_that_returns_no_teacher_is_told_with_its_place(made_here, use, message, where):
    with refused(message, where=where):
        begun(made_here, chosen(strategy={"teacher": {"use": use}}), Rows(), Rows().model())
