"""Several targets of one table: loss and metrics beside others' formulas, refusals, bits, and a walk to the delivered model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from sklearn import metrics as theirs

import mltrainer
from mltrainer.checkpointing.inference_script import answers
from mltrainer.configs.items import DataLimits
from mltrainer.configs.loading import without_defaults
from mltrainer.errors import InputError
from mltrainer.figures.content import evaluation as figures
from mltrainer.records.partial import partial
from mltrainer.records.run import TrainingResult
from mltrainer.tasks.metric_names import CLASSIFICATION_METRICS, REGRESSION_METRICS
from mltrainer.tasks.opening import OpenTask, check_model, make_model, open_task
from tests.conftest import commit, succeed
from tests.projects import LIGHT, evidence_of
from tests.tasks.conftest import MakeConfig
from tests.trainers.native.digits_runs import train
from tests.trainers.native.test_ranks import bits, train_on

TARGETS = ["Price (EUR)", "kind", "stars"]
SEVERAL: dict[str, Any] = {"task": {"kind": "tabular_multitask"}, "data": {"source": "d.csv", "targets": TARGETS}}
METRIC = {"name": "loss", "mode": "min"}
MODELS: list[dict[str, Any]] = [
    {"name": "mlp", "hidden": [8]},
    {"name": "linear"},
    {"name": "tabular_mlp", "hidden": [8], "members": 3, "dropout": 0.0},
    {"name": "ft_transformer", "embedding": 8, "heads": 2, "blocks": 1},
]


def write_table(root: Path, n: int = 400) -> Path:
    """Write three features, a quantity, three classes by name, and whole numbers of two values; all hang on the features."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(n, 3))
    price = 100 * (x[:, 0] + x[:, 1] * x[:, 2]) + 500 + draw.normal(size=n)
    kind = np.array(["a", "b", "c"])[np.digitize(x[:, 0] + x[:, 1] + 0.2 * draw.normal(size=n), [-0.5, 0.5])]
    stars = (x[:, 2] + 0.3 * draw.normal(size=n) > 0.8).astype(int)
    rows = [f"{a:.4f},{b:.4f},{c:.4f},{p:.3f},{k},{s}" for (a, b, c), p, k, s in zip(x, price, kind, stars, strict=True)]
    root.mkdir(parents=True, exist_ok=True)
    (root / "d.csv").write_text("x0,x1,x2,Price (EUR),kind,stars\n" + "\n".join(rows) + "\n")
    return root


@pytest.fixture
def several(config: MakeConfig, tmp_path: Path) -> Any:
    """Open the task over the table."""
    write_table(tmp_path)

    def opened(**changes: Any) -> OpenTask:
        return open_task(config(**{**SEVERAL, "metric": METRIC, **changes}), tmp_path)

    return opened


# --- loss and metrics -----------------------------------------------------------------------------


def by_hand(outputs: np.ndarray, targets: np.ndarray, std: float) -> np.ndarray:
    """Return the losses of the three targets of the table, in float64."""

    def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> float:
        chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        return float(-np.log(chances[np.arange(len(labels)), labels.astype(int)]).mean())

    squared = (((outputs[:, 0] - targets[:, 0]) / std) ** 2).mean()
    return np.array([squared, cross_entropy(outputs[:, 1:4], targets[:, 1]), cross_entropy(outputs[:, 4:], targets[:, 2])])


@pytest.mark.parametrize("weights", [{}, {"kind": 3.0, "Price (EUR)": 0.5}])
def test_the_loss_is_the_weighted_mean_of_cross_entropies_and_squared_deviations(several, weights):
    opened = several(task={"kind": "tabular_multitask", "weights": weights})
    targets = opened.split("train").tensors[1]
    outputs = torch.randn(len(targets), 6, generator=torch.Generator().manual_seed(3)) * torch.tensor([90.0, 1, 1, 1, 1, 1])
    losses = by_hand(outputs.double().numpy(), targets.double().numpy(), float(targets[:, 0].double().std(correction=0)))
    expected = np.average(losses, weights=[weights.get(name, 1.0) for name in TARGETS])
    assert float(opened.task.loss(outputs, targets)) == pytest.approx(expected, rel=1e-5)
    found = opened.task.metrics(outputs, targets)
    assert [found[name] for name in ("loss_price_eur", "loss_kind", "loss_stars")] == pytest.approx(losses, rel=1e-5)


def test_metrics_of_each_target_are_those_of_scikit_learn(several):
    task = several().task
    _, targets = task.rows(np.arange(100))
    outputs = torch.randn(100, 6, generator=torch.Generator().manual_seed(3))
    found, true = task.metrics(outputs, targets), targets.numpy()
    assert found["mae_price_eur"] == pytest.approx(theirs.mean_absolute_error(true[:, 0], outputs[:, 0]), rel=1e-5)
    assert found["r2_price_eur"] == pytest.approx(theirs.r2_score(true[:, 0], outputs[:, 0]), rel=1e-5)
    assert found["accuracy_kind"] == pytest.approx(theirs.accuracy_score(true[:, 1], outputs[:, 1:4].argmax(1)))
    assert found["roc_auc_stars"] == pytest.approx(theirs.roc_auc_score(true[:, 2], outputs[:, 5] - outputs[:, 4]))
    # Of two classes it is the rarer one that is looked for.
    assert found["average_precision_stars"] == pytest.approx(
        theirs.average_precision_score(true[:, 2], outputs[:, 5] - outputs[:, 4])
    )
    for name, value in found.items():
        assert task.metric(name, outputs, targets) == pytest.approx(value)
    assert task.metric("loss", outputs, targets) == pytest.approx(float(task.loss(outputs, targets)))


def test_no_two_metrics_have_one_name_whatever_targets_are_called():
    measured = {*CLASSIFICATION_METRICS, *REGRESSION_METRICS}
    assert not [(one, other) for one in measured for other in measured if other.startswith(f"{one}_")]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["name"])
def test_each_model_has_a_head_for_each_target_whose_outputs_are_in_its_units(several, model):
    opened = several(model=model)
    made = make_model(opened)
    check_model(opened, made)
    inputs, targets = opened.split("train").tensors
    made.eval()
    with torch.no_grad():
        outputs = made(inputs)
    assert outputs.shape == (len(targets), 6)
    assert abs(float(outputs[:, 0].mean() - targets[:, 0].mean())) < 2 * float(targets[:, 0].std())
    assert float(outputs[:, 1:].abs().max()) < 20


def test_members_have_a_loss_of_their_own_and_speak_together_target_by_target(several):
    opened = several(model=MODELS[2])
    model = make_model(opened)
    inputs, targets = (tensor[:20] for tensor in opened.split("train").tensors)
    each = model.train()(inputs).detach()
    losses = [opened.task.loss(each[:, nr], targets) for nr in range(3)]
    assert float(opened.task.loss(each, targets)) == pytest.approx(float(torch.stack(losses).mean()), rel=1e-5)
    together = model.eval()(inputs).detach()
    assert torch.allclose(together[:, 0], each[:, :, 0].mean(1), rtol=1e-5)
    assert torch.allclose(together[:, 1:4].softmax(1), each[:, :, 1:4].softmax(2).mean(1), atol=1e-6)
    assert torch.allclose(together[:, 4:].softmax(1), each[:, :, 4:].softmax(2).mean(1), atol=1e-6)


# --- data -----------------------------------------------------------------------------------------


def notes(opened: OpenTask) -> list[str]:
    return [one["what"] for one in opened.facts(DataLimits())["findings"]]


def test_planning_says_what_each_target_is_predicted_as(several):
    assert notes(several())[:3] == [
        "target 'Price (EUR)' holds numbers with fractions with 400 distinct values, predicted as a quantity",
        "target 'kind' holds text with 3 distinct values, predicted as classes",
        "target 'stars' holds 2 distinct whole numbers, predicted as classes; data.columns may say number: a quantity",
    ]
    said = several(data={**SEVERAL["data"], "columns": {"stars": "number"}})
    assert "target 'stars' is predicted as a quantity, as data.columns says number" in notes(said)
    assert {"mae_stars", "loss_stars"} <= said.task.metrics(torch.zeros(4, 5), torch.zeros(4, 3)).keys()


def test_no_target_is_a_feature_and_one_that_a_feature_tells_is_named(several, tmp_path):
    lines = (tmp_path / "d.csv").read_text().splitlines()
    copied = [f"{line},{'copy' if nr == 0 else line.split(',')[3]}" for nr, line in enumerate(lines)]
    (tmp_path / "d.csv").write_text("\n".join(copied) + "\n")
    opened = several()
    assert [column["name"] for column in opened.task.inference()["columns"]] == ["x0", "x1", "x2", "copy"]
    assert any(text.startswith("target 'Price (EUR)': ") and "'copy'" in text for text in notes(opened))


def test_rows_that_lack_any_target_are_left_out(several, tmp_path):
    lines = (tmp_path / "d.csv").read_text().splitlines()
    for row, place in ((3, 3), (5, 4), (9, 5)):
        cells = lines[row].split(",")
        cells[place] = ""
        lines[row] = ",".join(cells)
    (tmp_path / "d.csv").write_text("\n".join(lines) + "\n")
    opened = several()
    assert opened.task.size == 397
    assert "3 of 400 rows lack a target and are left out: lines 4, 6, 10" in notes(opened)


def test_classes_of_the_first_target_that_has_some_keep_their_shares_in_each_split(several):
    opened = several()
    shares = [
        np.bincount(opened.split(name).tensors[1][:, 1].int()) / len(opened.split(name)) for name in ("train", "validation")
    ]
    assert np.abs(shares[0] - shares[1]).max() < 0.01


def test_rows_that_differ_in_a_second_target_alone_are_no_repeats(several, tmp_path):
    write_table(tmp_path)
    path = tmp_path / "d.csv"
    path.write_text(path.read_text() + "1,2,3,5.5,a,0\n1,2,3,5.5,b,0\n1,2,3,5.5,a,0\n")
    one, other, again = several().task.hashes(np.arange(400, 403)).tolist()
    assert one == again != other


# --- refusals -------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "one target": ({"data": {"source": "d.csv", "targets": ["kind"]}}, "needs data.targets: [COLUMN, ...], at least two"),
    "no target": ({"data": {"source": "d.csv"}}, "needs data.targets"),
    "target beside targets": (
        {"data": {"source": "d.csv", "target": "kind", "targets": TARGETS}},
        "data.target is of tasks with one target",
    ),
    "twice": ({"data": {"source": "d.csv", "targets": ["kind", "kind"]}}, "data.targets: 'kind' is listed twice"),
    "another task": ({"task": {"kind": "tabular_regression"}}, "data.targets belongs to task.kind tabular_multitask"),
    "weights of another task": (
        {"task": {"kind": "tabular_regression", "weights": {"kind": 2.0}}, "data": {"source": "d.csv", "target": "stars"}},
        "they belong to kind: tabular_multitask",
    ),
    "weight of no target": (
        {"task": {"kind": "tabular_multitask", "weights": {"sort": 2.0}}},
        "task.weights: 'sort' is no target; data.targets has 'Price (EUR)', 'kind', 'stars'",
    ),
    "no weight": ({"task": {"kind": "tabular_multitask", "weights": {"kind": 0.0}}}, "greater than 0"),
    "sets": ({"conformal": {"coverage": 0.9}}, "conformal gives a set or an interval of one target"),
    "class weights": ({"class_weights": "balanced"}, "task.weights weighs the targets of this one"),
    "smoothing": ({"label_smoothing": 0.1}, "label_smoothing belongs to a built-in classification"),
    "distillation": (
        {"strategies": [{"name": "distillation", "teacher": {"weights": "t"}}]},
        "distillation compares the outputs",
    ),
    "contrastive": ({"strategies": [{"name": "contrastive"}]}, "contrastive compares the outputs of one target"),
    "trades": ({"strategies": [{"name": "adversarial", "epsilon": 0.1, "method": "trades"}]}, "adversarial compares the outputs"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_config_that_does_not_fit_is_refused_with_key_and_reason(config, what):
    changes, said = REFUSED[what]
    with pytest.raises(ValueError, match=r".") as caught:
        config(**{**SEVERAL, "metric": METRIC, **changes})
    assert said in str(caught.value)


def of(*targets: str, **columns: str) -> dict[str, Any]:
    return {"source": "d.csv", "targets": [*targets], "columns": columns}


DATA_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no column": ({"data": of("kind", "star")}, "data.targets.1: there is no column 'star' in d.csv; did you mean 'stars'?"),
    "arrays": ({"data": {"source": "sklearn:digits", "targets": ["y", "z"]}}, "arrays hold one target"),
    "no metric": ({"metric": {"name": "mae_kind", "mode": "min"}}, "no metric 'mae_kind' of the task; did you mean"),
    "direction": (
        {"metric": {"name": "mae_price_eur", "mode": "max"}},
        "mae_price_eur is better where it is smaller: min was expected",
    ),
    "the other direction": ({"metric": {"name": "accuracy_kind", "mode": "min"}}, "accuracy_kind is better where it is larger"),
    "a text": ({"data": of("kind", "stars", kind="text")}, "'kind' is read as text, of which a model can learn"),
}


@pytest.mark.parametrize("what", DATA_REFUSED)
def test_data_or_a_metric_that_does_not_fit_is_refused(several, what):
    changes, said = DATA_REFUSED[what]
    with pytest.raises(InputError) as caught:
        several(**changes)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("x,Kind,kind", "metrics of 'kind' would have the names of another target's, such as loss_kind"),
        ("x,цена,kind", "would have no name"),
    ],
)
def test_targets_whose_metrics_would_have_no_name_of_their_own_are_refused(config, tmp_path, names, said):
    (tmp_path / "n.csv").write_text(names + "\n" + "".join(f"{nr / 3},{nr % 2},{nr % 3}\n" for nr in range(60)), "utf-8")
    changes = {**SEVERAL, "data": {"source": "n.csv", "targets": names.split(",")[1:]}, "metric": METRIC}
    with pytest.raises(InputError, match=said):
        open_task(config(**changes), tmp_path)


def test_a_quantity_that_does_not_vary_is_refused_by_its_name(config, tmp_path):
    (tmp_path / "n.csv").write_text("x,a,b\n" + "".join(f"{nr / 3},{nr % 2},0.5\n" for nr in range(60)))
    with pytest.raises(InputError, match=r"the target 'b' is 0.5 in all"):
        open_task(config(**{**SEVERAL, "data": {"source": "n.csv", "targets": ["a", "b"]}, "metric": METRIC}), tmp_path)


def test_configs_with_one_target_say_nothing_of_several(config):
    found = without_defaults(config())
    assert "targets" not in found["data"]
    assert "weights" not in found["task"]


# --- what is told and delivered -------------------------------------------------------------------


def test_each_target_has_its_figure_and_tables_and_answers_by_its_name(several):
    task = several().task
    _, targets = task.rows(np.arange(60))
    outputs = torch.randn(60, 6, generator=torch.Generator().manual_seed(3))
    found = task.evaluation(outputs, targets)
    assert [(one["name"], one["kind"]) for one in found["targets"]] == [
        ("Price (EUR)", "regression"),
        ("kind", "classification"),
        ("stars", "classification"),
    ]
    matrix = theirs.confusion_matrix(targets[:, 1], outputs[:, 1:4].argmax(1))
    assert found["targets"][1]["confusion"] == matrix.tolist()
    drawn = figures(partial(TrainingResult, {"evaluation": json.loads(json.dumps(found))}))
    assert [figure.file for figure in drawn] == ["residuals_price_eur.svg", "confusion_kind.svg", "confusion_stars.svg"]
    assert drawn[1].title == "Confusion matrix, validation split: kind"
    rows = [*answers(outputs.numpy(), task.inference())]
    assert [row["prediction"]["Price (EUR)"] for row in rows] == pytest.approx(outputs[:, 0].tolist())
    assert [row["prediction"]["kind"] for row in rows] == ["abc"[nr] for nr in outputs[:, 1:4].argmax(1)]
    assert [row["prediction"]["stars"] for row in rows] == [str(int(nr)) for nr in outputs[:, 4:].argmax(1)]
    assert rows[0]["probabilities"]["kind"]["c"] == pytest.approx(float(outputs[0, 1:4].softmax(0)[2]), rel=1e-5)
    assert [*rows[0]["probabilities"]] == ["kind", "stars"]


# --- training -------------------------------------------------------------------------------------

RUN: dict[str, Any] = {
    **SEVERAL,
    "model": {"name": "mlp", "hidden": [32], "dropout": 0.1},
    "metric": METRIC,
    "batch_size": 6,
    "accumulate": 4,
    "epochs": 2,
}


STRATEGIES = [{"name": "adversarial", "epsilon": 0.1, "steps": 2}, {"name": "curriculum", "by": "x0", "epochs": 1}]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model": MODELS[2], "strategies": STRATEGIES},
        {"strategies": [{"name": "balancing", "method": "gradients"}]},
    ],
    ids=["mlp", "members with strategies", "balanced by gradients"],
)
def test_two_processes_and_a_run_that_was_stopped_give_the_bits_of_one(tmp_path, changes):
    alone, shared, stopped = (write_table(tmp_path / name, 160) for name in ("alone", "shared", "stopped"))
    setting = {**RUN, **changes}
    found = bits(train(alone, **setting), alone)
    assert bits(train_on(shared, 2, **setting), shared) == found
    assert bits(train(stopped, stops=(2, 6), **setting), stopped) == found


@pytest.mark.slow
def test_each_target_is_predicted_as_well_as_by_a_model_of_its_own(tmp_path):
    changes = {**RUN, "accumulate": 1, "batch_size": 16, "epochs": 40, "early_stopping": None}
    changes["model"] = {"name": "mlp", "hidden": [64, 64]}
    found = train(write_table(tmp_path / "several", 1000), **changes)["metrics"]
    kinds = {"Price (EUR)": ("regression", "r2", "r2_price_eur"), "kind": ("classification", "accuracy", "accuracy_kind")}
    kinds["stars"] = ("classification", "accuracy", "accuracy_stars")
    for target, (kind, metric, name) in kinds.items():
        data = {"source": "d.csv", "target": target, "ignore": [other for other in TARGETS if other != target]}
        single = {**changes, "task": {"kind": f"tabular_{kind}"}, "data": data, "metric": {"name": metric, "mode": "max"}}
        alone = train(write_table(tmp_path / name, 1000), **single)["metrics"]
        assert found[name] >= alone[metric] - 0.03, (name, found[name], alone[metric])
        assert found[name] > 0.8


@pytest.mark.slow
def test_several_targets_walk_to_a_delivered_model_that_answers_each(tmp_path, cli):
    root = write_table(tmp_path / "several", 600)
    values = {
        "name": "several",
        **SEVERAL,
        "task": {"kind": "tabular_multitask", "weights": {"kind": 2.0}},
        "model": {"name": "mlp", "hidden": [32]},
        "metric": {"name": "accuracy_kind", "mode": "max"},
        "acceptance": {"mae_price_eur": "<= 90", "accuracy_kind": ">= 0.7", "loss": "<= 1"},
    }
    (root / "mltrainer.yaml").write_text(yaml.safe_dump(values))
    (root / "configs").mkdir()
    light = {"export": {**LIGHT["export"], "formats": ["safetensors", "onnx", "torch_export"]}}
    (root / "configs/production_template.yaml").write_text(yaml.safe_dump(light))
    (root / ".gitignore").write_text(".mltrainer/\n")
    commit(root, new=True)
    succeed("phase", "run", "planning", "--project", root, "--set", "epochs=12", "--set", "optimizer.lr=0.01")
    succeed("run", "--project", root)
    record = evidence_of(root, "finalization")
    assert {"mae_price_eur", "accuracy_kind", "roc_auc_stars", "loss"} <= record["test"]["metrics"].keys()
    assert {row["format"] for row in record["exports"] if row["agrees"]} == {"safetensors", "onnx", "torch_export"}
    report = (root / "phases/02_baseline/baseline_results.md").read_text("utf-8")
    assert "Most frequent mistakes on validation of `kind`: " in report
    assert "| residuals on validation of `Price (EUR)` |" in report
    assert "](residuals_price_eur.svg)" in report
    card = (root / "phases/05_finalization/final_model/README.md").read_text("utf-8")
    assert "predicting `Price (EUR)`, `kind`, `stars`" in card.replace("\n", " ")
    said = [json.loads(line) for line in cli("predict", root / "d.csv", "--project", root).out.splitlines()]
    true = [line.split(",") for line in (root / "d.csv").read_text().splitlines()[1:]]
    assert np.mean([row["prediction"]["kind"] == cells[4] for row, cells in zip(said, true, strict=True)]) > 0.7
    off = [abs(row["prediction"]["Price (EUR)"] - float(cells[3])) for row, cells in zip(said, true, strict=True)]
    assert np.mean(off) < 90
    script = root / "phases/05_finalization/final_model/inference.py"
    again = subprocess.check_output([sys.executable, str(script), str(root / "d.csv")], text=True)
    assert [json.loads(line) for line in again.splitlines()] == said
    assert mltrainer.Project(root).predict(root / "d.csv").predictions[0] == said[0]["prediction"]
    cli("gate", "check", "--project", root, code=0)
