"""What `init` writes for a table's size: templates of the project's own that planning, search and last training start from."""

import math

import pytest

from mltrainer.configs.augmenting import Affine, Augment, RandAugment
from mltrainer.configs.project import TrainingConfig, load_project
from mltrainer.configs.templates import applicable_space, baseline_template, misfits, production_template, tuning_template
from mltrainer.project.model_size_defaults import (
    AUGMENT,
    Size,
    baseline,
    model_for,
    templates_for,
    templates_for_pictures,
    templates_for_texts,
)
from mltrainer.project.start import make_project

ROWS = (20, 150, 1000, 20_000, 100_000, 1_000_000)


@pytest.fixture
def begun(tmp_path):
    rows = "".join(f"{i / 7},{'ab'[i % 2]},{i % 3 + 0.5}\n" for i in range(60))
    (tmp_path / "data.csv").write_text(f"size,colour,price\n{rows}")
    make_project(tmp_path / "project", None, tmp_path / "data.csv", "price")
    return tmp_path / "project"


def written(templates, folder):
    (folder / "configs").mkdir()
    for path, text in templates.items():
        (folder / path).write_text(text)


@pytest.mark.parametrize("rows", ROWS)
def test_the_templates_are_valid_for_any_size(rows, tmp_path):
    written(templates_for(rows), tmp_path)
    assert baseline_template(tmp_path)["epochs"] == Size.of(rows).epochs
    assert tuning_template(tmp_path)["trial"]["epochs"] <= Size.of(rows).epochs
    assert production_template(tmp_path)["export"]["formats"]


@pytest.mark.parametrize("samples", [6, 60, 90, 1000, 100_000])
@pytest.mark.parametrize("sized", [templates_for_texts, templates_for_pictures, templates_for])
def test_a_training_split_fills_a_batch_however_small_it_is(sized, samples, tmp_path):
    written(sized(samples), tmp_path)
    baseline = baseline_template(tmp_path)
    assert 1 <= baseline["batch_size"] <= 0.7 * samples
    assert tuning_template(tmp_path)["trial"]["epochs"] <= baseline["epochs"] <= production_template(tmp_path)["epochs"]


@pytest.mark.parametrize(
    ("sized", "task", "model"),
    [
        (templates_for_texts, "text_classification", {"name": "transformer"}),
        (templates_for_texts, "text_generation", {"name": "gru"}),
        (templates_for_pictures, "image_classification", {"name": "cnn"}),
        (templates_for_pictures, "image_classification", {"name": "vit"}),
        (templates_for, "tabular_regression", {"name": "tabular_mlp"}),
    ],
)
def test_every_value_of_a_sized_search_space_is_valid(sized, task, model, tmp_path):
    written(sized(500), tmp_path)
    given = {"name": "x", "seed": 1, "task": {"kind": task}, "data": {"source": "x", "target": "y"}, "model": model}
    config = TrainingConfig.model_validate({**given, "metric": {"name": "loss", "mode": "min"}}).model_dump()
    space = tuning_template(tmp_path)["space"]
    assert {key for key in space if key not in applicable_space(space, config)} <= {*AUGMENT}
    if task == "image_classification":
        config = {**config, "augment": Augment(affine=Affine(), randaugment=RandAugment()).model_dump()}
    assert applicable_space(space, config) == space
    ends = {key: {"choice": next(iter(dimension.values()))} for key, dimension in space.items()}
    assert misfits(ends, config) == {}


def test_small_tables_get_hundreds_of_steps_and_large_ones_few_passes():
    steps = {rows: Size.of(rows).epochs * math.ceil(0.7 * rows / Size.of(rows).batch_size) for rows in ROWS}
    assert all(800 <= steps[rows] <= 1300 for rows in ROWS[1:3])
    assert (Size.of(1_000_000).epochs, Size.of(1_000_000).trial_epochs) == (8, 6)
    assert (Size.of(20).batch_size, Size.of(15_000).batch_size, Size.of(1_000_000).batch_size) == (8, 256, 1024)


def test_tables_of_many_rows_are_trained_for_longer_and_their_trials_are_not():
    steps = {rows: math.ceil(0.7 * rows / Size.of(rows).batch_size) for rows in (5000, 10_000, 20_000, 100_000)}
    made = [Size.of(rows).epochs * per_epoch for rows, per_epoch in steps.items()]
    tried = [Size.of(rows).trial_epochs * per_epoch for rows, per_epoch in steps.items()]
    assert made == pytest.approx([1200, 2400, 4800, 4800], rel=0.05)
    assert tried == pytest.approx([1200] * 4, rel=0.05)


@pytest.mark.parametrize("rows", [300, 5000, 20_000, 1_000_000])
def test_a_training_of_any_size_ends_where_it_no_longer_improves(rows):
    values = baseline(Size.of(rows))
    assert values["early_stopping"] == {"patience": 8}
    assert (values["schedule"]["name"], values["averaging"]["name"]) == ("constant", "ema")


def test_the_vectors_of_a_wide_table_are_shorter():
    assert [model_for(columns)["embedding"] for columns in (1, 30, 128, 400, 5000)] == [8, 8, 8, 2, 1]


def test_init_writes_templates_and_a_network_for_tables(begun):
    assert load_project(begun / "mltrainer.yaml").model.name == "tabular_mlp"
    assert baseline_template(begun)["epochs"] == Size.of(60).epochs
    assert "60 rows" in (begun / "configs/tuning_template.yaml").read_text().splitlines()[0]


def test_init_leaves_templates_that_a_team_has_already(tmp_path, begun):
    (begun / "mltrainer.yaml").unlink()
    (begun / "configs/baseline_template.yaml").write_text("ours")
    make_project(begun, None, tmp_path / "data.csv", "price")
    assert (begun / "configs/baseline_template.yaml").read_text() == "ours"


@pytest.mark.parametrize("samples", [60, 1000, 100_000])
@pytest.mark.parametrize("sized", [templates_for_texts, templates_for_pictures, templates_for])
def test_trials_may_end_at_a_ninth_of_their_epochs_which_is_after_the_warm_up(sized, samples, tmp_path):
    written(sized(samples), tmp_path)
    tuning, warm_up = tuning_template(tmp_path), baseline_template(tmp_path)["schedule"]["warmup_epochs"]
    assert tuning["pruning"] == {"name": "hyperband", "eta": 3, "first": max(1, tuning["trial"]["epochs"] // 9)}
    assert tuning["pruning"]["first"] >= min(warm_up, tuning["trial"]["epochs"])
