import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from mltrainer.configs.items import DataLimits
from mltrainer.errors import InputError
from mltrainer.tasks.opening import open_task

SPLIT = {"validation": 0.2, "test": 0.2}


def write(folder, header, rows):
    (folder / "t.csv").write_text(header + "\n" + "\n".join(rows) + "\n")


@pytest.fixture
def open_table(config, tmp_path):
    """Open a table that a test wrote."""

    def opened(kind="tabular_classification", metric="accuracy", target="t", **changes):
        data = {"source": "t.csv", "target": target, "ignore": changes.pop("ignore", [])}
        return open_task(
            config(task={"kind": kind}, data=data, metric={"name": metric, "mode": "max"}, split=SPLIT, **changes), tmp_path
        )

    return opened


def what(opened):
    return [f"{f['severity']}: {f['what']}" for f in opened.facts(DataLimits())["findings"]]


def test_digits_come_as_images_over_16(config, tmp_path):
    opened = open_task(config(task={"kind": "image_classification"}, data={"source": "sklearn:digits"}), tmp_path)
    images, labels = opened.split("train").tensors
    assert images.shape[1:] == (1, 8, 8)
    assert float(images.max()) == 1.0
    assert labels.dtype == torch.int64
    assert opened.facts(DataLimits())["classes"] == [str(n) for n in range(10)]


def test_digits_standardize_by_the_training_split(config, tmp_path):
    opened = open_task(config(task={"kind": "image_classification"}, data={"source": "sklearn:digits"}), tmp_path)
    found = opened.task.model().encoder(opened.split("train").tensors[0])
    assert float(found.mean()) == pytest.approx(0, abs=1e-5)
    assert float(found.std(correction=0)) == pytest.approx(1, abs=1e-5)


def test_images_are_asked_for_where_a_table_was_given(config, tmp_path):
    with pytest.raises(InputError, match="image_classification needs images, found a table"):
        open_task(config(task={"kind": "image_classification"}), tmp_path)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 17] * 3, r"8 classes: expected labels from 0 to 7, found 17 in row 7 \(3 rows\)"),
        ([1, 2, 3, 4] * 6, r"4 classes: expected labels from 0 to 3, found 4 in row 3"),
        ([-1, 0, 1] * 8, r"found -1 in row 0"),
        ([0] * 24, "one class only: '0'"),
        ([0.0, 0.5] * 12, r"expected class numbers \(integers\), found float64, such as 0.5 in row 1"),
    ],
)
@pytest.mark.parametrize("kind", ["image_classification", "tabular_classification"])
def test_labels_of_arrays_must_be_class_numbers(config, tmp_path, kind, labels, message):
    x = np.random.default_rng(0).random((24, 1, 4, 4) if kind.startswith("image") else (24, 5), dtype=np.float32)
    np.savez(tmp_path / "d.npz", x=x, y=np.array(labels))
    with pytest.raises(InputError, match=message.replace("one class only: '0'", "one class only")):
        open_task(config(task={"kind": kind}, data={"source": "d.npz"}), tmp_path)


def test_arrays_of_features_make_a_table(config, tmp_path):
    np.savez(tmp_path / "d.npz", x=np.arange(80.0).reshape(40, 2) * 1000, y=np.arange(40) % 2)
    facts = open_task(config(data={"source": "d.npz"}), tmp_path).facts(DataLimits())
    assert [c["name"] for c in facts["columns"]] == ["x0", "x1"]
    assert any("inputs reach" in f["what"] for f in facts["findings"])


def test_regression_answers_in_the_targets_units_and_loses_in_deviations(open_table, tmp_path):
    write(tmp_path, "n,t", [f"{i},{1000 + 10 * i}" for i in range(40)])
    opened = open_table("tabular_regression", "r2")
    x, y = opened.split("train").tensors
    model = opened.task.model()
    torch.nn.init.zeros_(model.output.weight)
    torch.nn.init.zeros_(model.output.bias)
    guesses = model(x).detach()
    assert guesses.shape == y.shape
    assert float(guesses[0]) == pytest.approx(float(y.double().mean()))
    assert float(opened.task.loss(guesses, y)) == pytest.approx(1.0, abs=1e-5)


def test_a_constant_quantity_is_refused(open_table, tmp_path):
    write(tmp_path, "n,t", [f"{i},5" for i in range(40)])
    with pytest.raises(InputError, match="the target 't' is 5 in all"):
        open_table("tabular_regression", "r2")


def test_statistics_ignore_every_row_outside_the_training_split(open_table, tmp_path):
    rows = [f"{i},{'ab'[i % 2]},{i * 3}" for i in range(40)]
    write(tmp_path, "n,c,t", rows)
    opened = open_table("tabular_regression", "r2")
    before, held_out = opened.task.model(), sorted({*range(40)} - {*opened.split("train").ids.tolist()})
    write(tmp_path, "n,c,t", [row if nr not in held_out else f"9999,new,{nr * 3}" for nr, row in enumerate(rows)])
    after = open_table("tabular_regression", "r2")
    assert after.task.inference()["columns"][1]["categories"] == ["a", "b"]
    for name, value in before.state_dict().items():
        if name.startswith(("encoder", "units")):
            assert torch.equal(value, after.task.model().state_dict()[name]), name


def test_a_column_that_is_empty_in_training_is_refused(open_table, tmp_path):
    write(tmp_path, "n,m,t", [f"{i},,{'ab'[i % 2]}" for i in range(40)])
    held_out = int(open_table(ignore=["m"]).split("validation").ids[0])
    write(tmp_path, "n,m,t", [f"{i},{1 if i == held_out else ''},{'ab'[i % 2]}" for i in range(40)])
    with pytest.raises(InputError, match="column 'm' has no value in any of 24 training rows"):
        open_table()


def test_the_inference_record_says_how_to_encode_a_row(config, project):
    opened = open_task(config(data={"source": "data.csv", "target": "sold", "ignore": ["size"]}), project)
    found = opened.task.inference()
    training = [column.pop("training") for column in found["columns"]]
    assert (len(training[0]["edges"]), len(training[0]["bins"]), len(training[1]["shares"])) == (9, 10, 3)
    for held in training:
        assert sum(held.get("bins") or held["shares"]) + held["missing"] == pytest.approx(1)
    assert found["columns"] == [
        {"name": "weight", "kind": "number"},
        {"name": "colour", "kind": "category", "categories": ["a", "b", "c"]},
    ]
    assert (found["target"], found["classes"], found["output"]) == ("sold", ["no", "yes"], "logits")


def test_a_feature_that_equals_the_target_is_an_error(open_table, tmp_path):
    write(tmp_path, "n,copy,t", [f"{i * 7 % 40},{'ab'[i % 2]},{'ab'[i % 2]}" for i in range(40)])
    assert any(f.startswith("error: leakage: 'copy' equals the target") for f in what(open_table()))


def test_a_number_that_equals_the_quantity_is_an_error(open_table, tmp_path):
    write(tmp_path, "copy,t", [f"{i * 7 % 40}.50,{i * 7 % 40}.5" for i in range(40)])
    assert any(f.startswith("error: leakage: 'copy' equals the target") for f in what(open_table("tabular_regression", "r2")))


def test_a_category_that_tells_the_class_is_an_error(open_table, tmp_path):
    write(tmp_path, "n,code,t", [f"{i * 7 % 40},{'xy'[i % 2]},{'ab'[i % 2]}" for i in range(120)])
    assert any(f.startswith("error: leakage: 'code' gives the target") for f in what(open_table()))


def test_constant_columns_are_warned_of(open_table, tmp_path):
    write(tmp_path, "n,same,t", [f"{i * 7 % 40},1,{'ab'[i % 3 == 0]}" for i in range(40)])
    assert "warning: columns with one value only in the training split: 'same'" in what(open_table())


def test_a_doubled_file_is_leakage(open_table, tmp_path):
    rows = [f"{i * 1.7:.3f},{i * i},{'ab'[i % 3 == 0]}" for i in range(40)]
    write(tmp_path, "n,m,t", rows + rows)
    opened = open_table()
    assert any(f.startswith("error: leakage:") for f in what(opened))
    assert opened.facts(DataLimits())["duplicates_across_splits"] > 5


def test_rows_that_must_repeat_are_a_warning(open_table, tmp_path):
    write(tmp_path, "n,m,t", [f"{i % 3},{'xy'[i % 2]},{'ab'[i % 5 == 0]}" for i in range(80)])
    assert any("so few values together that rows must repeat" in f for f in what(open_table()))
    assert not any(f.startswith("error") for f in what(open_table()))


@pytest.mark.parametrize(("kind", "metric"), [("tabular_classification", "r2"), ("tabular_regression", "accuracy")])
def test_a_metric_of_another_kind_of_task_is_refused(open_table, tmp_path, kind, metric):
    write(tmp_path, "n,t", [f"{i},{i % 2}" for i in range(40)])
    with pytest.raises(InputError, match=f"no metric '{metric}' of the task"):
        open_table(kind, metric)


@pytest.mark.parametrize(
    ("kind", "metric", "evaluation"), [("tabular_classification", "accuracy", "confusion"), ("tabular_regression", "r2", "pairs")]
)
def test_metrics_and_evaluation_fit_the_outputs(open_table, tmp_path, kind, metric, evaluation):
    write(tmp_path, "n,t", [f"{i},{i % 4}" for i in range(40)])
    opened = open_table(kind, metric)
    x, y = opened.split("validation").tensors
    outputs = opened.task.model().eval()(x).detach()
    assert metric in opened.task.metrics(outputs, y)
    assert evaluation in opened.task.evaluation(outputs, y)


def test_a_table_is_learned_in_a_few_steps(open_table, tmp_path):
    write(tmp_path, "n,c,t", [f"{i % 17},{'abc'[i % 3]},{'yes' if i % 3 == 1 else 'no'}" for i in range(120)])
    task = (opened := open_table()).task
    torch.manual_seed(0)
    model, (x, y) = task.model(), opened.split("train").tensors
    optimizer = torch.optim.AdamW(model.parameters(), 0.05)
    for _ in range(40):
        optimizer.zero_grad()
        task.loss(model(x), y).backward()
        optimizer.step()
    held_x, held_y = opened.split("validation").tensors
    assert task.metrics(model(held_x).detach(), held_y)["accuracy"] == 1.0


# --- classes that count alike ---------------------------------------------------------------------


def rare(open_table, tmp_path, **changes):
    """Return the opened task of a table of which one row in ten is of class `b`."""
    write(tmp_path, "n,t", [f"{i},{'b' if i % 10 == 0 else 'a'}" for i in range(200)])
    return open_table(**changes).task, open_table(**changes).split("train").tensors[1]


def test_balanced_weights_are_one_on_average_and_the_same_for_every_class(open_table, tmp_path):
    task, labels = rare(open_table, tmp_path, class_weights="balanced")
    expected = compute_class_weight("balanced", classes=np.array([0, 1]), y=labels.numpy())
    outputs = torch.randn(len(labels), 2, generator=torch.Generator().manual_seed(1))
    each = torch.nn.functional.cross_entropy(outputs, labels, reduction="none")
    weights = torch.tensor(expected, dtype=torch.float32)[labels]
    assert float(weights.sum()) == pytest.approx(len(labels), rel=1e-6)
    assert float(task.loss(outputs, labels)) == pytest.approx(float((each * weights).mean()), rel=1e-6)


def test_micro_batches_of_any_classes_weigh_as_the_whole_batch_does(open_table, tmp_path):
    task, labels = rare(open_table, tmp_path, class_weights="balanced")
    outputs = torch.randn(len(labels), 2, generator=torch.Generator().manual_seed(1))
    sorted_rows = labels.argsort()  # the second half holds every rare row
    halves = [task.loss(outputs[rows], labels[rows]) for rows in sorted_rows.chunk(2)]
    assert float(sum(halves) / 2) == pytest.approx(float(task.loss(outputs, labels)), rel=1e-6)


def test_without_weights_the_loss_is_the_plain_one_and_log_loss_is_plain_always(open_table, tmp_path):
    outputs = torch.randn(140, 2, generator=torch.Generator().manual_seed(1))
    for asked in ("none", "balanced"):
        task, labels = rare(open_table, tmp_path, class_weights=asked)
        found = outputs[: len(labels)]
        plain = torch.nn.functional.cross_entropy(found, labels)
        assert torch.equal(task.loss(found, labels), plain) == (asked == "none")
        assert task.metrics(found, labels)["log_loss"] == pytest.approx(float(plain), rel=1e-6)


def test_of_two_classes_the_rarer_one_is_looked_for(open_table, tmp_path):
    task, labels = rare(open_table, tmp_path)
    outputs = torch.randn(len(labels), 2, generator=torch.Generator().manual_seed(1))
    assert task.classes[task.positive] == "b"
    assert task.evaluation(outputs, labels)["threshold"]["class"] == "b"
    assert task.metric("average_precision", outputs, labels) == task.metrics(outputs, labels)["average_precision"]
    assert task.metric("loss", outputs, labels) == float(task.loss(outputs, labels))
