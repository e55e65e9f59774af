"""The three config templates: valid, complete, and joined with a config as the phases do it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mltrainer import handbook
from mltrainer.configs import templates, yaml
from mltrainer.configs.loading import validate
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.templates import (
    TRAINING_KEYS,
    ProductionTemplate,
    TrainingChanges,
    TuningTemplate,
    applicable_space,
    baseline_template,
    misfits,
    overlay,
    production_template,
    tuning_template,
)
from mltrainer.errors import InputError

PROJECT: dict[str, Any] = {
    "name": "digits",
    "task": {"kind": "image_classification"},
    "data": {"source": "sklearn:digits"},
    "model": {"name": "mlp"},
    "metric": {"name": "accuracy", "mode": "max"},
}
BASELINE = (handbook.shipped_folder() / templates.BASELINE).read_text("utf-8")


def config(**changes: Any) -> dict[str, Any]:
    return TrainingConfig.model_validate({**PROJECT, **baseline_template(None), **changes}).model_dump()


def own(project: Path, path: str, text: str) -> Path:
    """Write a project's own copy of a template."""
    (project / path).parent.mkdir(parents=True, exist_ok=True)
    (project / path).write_text(text)
    return project


def space_of(text: str) -> TuningTemplate:
    return validate(TuningTemplate, yaml.parse(f"strategy: random\ntrials: 3\nspace: {{{text}}}\n", "t.yaml"))


def test_the_baseline_gives_every_training_key_and_no_other():
    assert set(baseline_template(None)) == set(TRAINING_KEYS)


def test_the_baseline_is_the_promised_one():
    planned = TrainingConfig.model_validate({**PROJECT, **baseline_template(None)})
    assert type(baseline_template(None)["optimizer"]["lr"]) is float
    assert (planned.optimizer.lr, planned.epochs) == (1e-3, 20)
    assert planned.early_stopping.patience == 10
    assert planned.evaluate.every_n_epochs == 1


@pytest.mark.parametrize("values", [baseline_template(None), tuning_template(None)["trial"], production_template(None)])
def test_every_template_says_what_is_kept(values):
    assert values["checkpoint"]["save_best"] is True
    assert values["checkpoint"]["save_last"] is True
    assert values["checkpoint"]["every_n_epochs"] >= 1


def test_production_trains_longer_and_stops_more_gently():
    production, baseline = production_template(None), baseline_template(None)
    assert 100 <= production["epochs"] <= 200
    assert production["early_stopping"]["patience"] > baseline["early_stopping"]["patience"]


def test_production_leaves_the_tuned_keys_alone():
    tuned = config(optimizer={"name": "adamw", "lr": 0.005}, batch_size=16)
    changes = {key: value for key, value in production_template(None).items() if key not in templates.OF_FINALIZATION}
    final = TrainingConfig.model_validate(overlay(tuned, changes))
    assert (final.optimizer.lr, final.batch_size) == (0.005, 16)


def test_the_export_tolerance_is_the_gates_unless_the_template_gives_one(tmp_path):
    limit = production_template(None)["export"]["tolerance"]
    stricter = own(tmp_path, templates.PRODUCTION, "export: {formats: [onnx], samples: 8, tolerance: 1e-7}\n")
    assert limit > 1e-7
    assert production_template(stricter)["export"]["tolerance"] == 1e-7


def test_the_comparison_is_the_gates():
    assert set(tuning_template(None)["comparison"]) == {"seeds", "level"}


def test_a_search_covers_learning_rate_and_batch_size():
    space = tuning_template(None)["space"]
    assert list(space["optimizer.lr"]) == ["log_uniform"]
    assert list(space["batch_size"]) == ["choice"]


def test_every_end_of_the_search_space_is_a_valid_config():
    for key, dimension in tuning_template(None)["space"].items():
        for value in next(iter(dimension.values())):
            group, _, name = key.partition(".")
            changes = {group: {name: value}} if name else {group: value}
            TrainingConfig.model_validate(overlay(config(), changes))


def test_a_dimension_that_the_config_does_not_have_is_left_out():
    space = tuning_template(None)["space"]
    linear = applicable_space(space, config(model={"name": "linear"}))
    assert "model.dropout" in applicable_space(space, config())
    assert "model.dropout" not in linear
    assert "optimizer.lr" in linear


def test_choices_with_which_the_config_is_none_are_found():
    space = {"model.width": {"choice": [32, 60, 64]}, "optimizer.lr": {"log_uniform": [1e-4, 1e-2]}}
    own = config(task={"kind": "text_classification"}, model={"name": "transformer", "width": 60, "heads": 3})
    assert misfits(space, own) == {"model.width": [32, 64]}
    assert misfits(space, config(task={"kind": "text_classification"}, model={"name": "gru"})) == {}
    assert misfits({"optimizer.lr": {"choice": [-1.0]}}, own) == {}


def test_a_projects_own_template_is_read(tmp_path):
    project = own(tmp_path, templates.BASELINE, BASELINE.replace("epochs: 20", "epochs: 7"))
    assert baseline_template(project)["epochs"] == 7


def test_a_fault_in_a_projects_own_template_is_named_with_its_line(tmp_path):
    project = own(tmp_path, templates.BASELINE, "epoch: 7\n" + BASELINE)
    with pytest.raises(InputError, match=r"^configs/baseline_template\.yaml:1, key epoch: unknown key 'epoch'"):
        baseline_template(project)


@pytest.mark.parametrize("text", ["export: {formats: [safetensors]}\n", "export: {samples: 8}\n", "epochs: 5\n"])
def test_what_a_projects_own_production_template_leaves_out_is_as_shipped(tmp_path, text):
    found = templates.production_template(own(tmp_path, templates.PRODUCTION, text))
    given, shipped = yaml.parse(text, "t.yaml").value, templates.production_template(None)
    assert found["export"] == {**shipped["export"], **given.get("export", {})}
    assert found.get("epochs") == given.get("epochs")  # a training key that is left out stays as planned


def test_what_a_projects_own_tuning_and_baseline_templates_leave_out_is_as_shipped(tmp_path):
    own(tmp_path, templates.BASELINE, "epochs: 5\n")
    project = own(tmp_path, templates.TUNING, "space: {batch_size: {choice: [8, 16]}}\n")
    shipped = templates.tuning_template(None)
    found = templates.tuning_template(project)
    assert (found["strategy"], found["trials"], list(found["space"])) == (shipped["strategy"], shipped["trials"], ["batch_size"])
    assert baseline_template(project).items() <= {**baseline_template(None), "epochs": 5}.items()


@pytest.mark.parametrize(
    ("dimension", "complaint"),
    [
        ("optimizer.lrr: {choice: [1]}", r"did you mean 'optimizer\.lr'"),
        ("optimizer.lr: {}", "exactly one"),
        ("optimizer.lr: {choice: [1], uniform: [0.0, 1.0]}", "exactly one"),
        ("optimizer.lr: {log_uniform: [0.0, 1.0]}", "above 0"),
        ("optimizer.lr: {uniform: [2.0, 1.0]}", "below the high end"),
        ("optimizer.lr: {uniform: [1.0]}", "at least 2"),
        ("batch_size: {choice: []}", "at least 1"),
        ("seed: {choice: [1, 2]}", "cannot be searched"),
        ("metric.name: {choice: [loss]}", "cannot be searched"),
        ("optimizer.lr: {normal: [0, 1]}", "unknown key 'normal'"),
    ],
)
def test_a_wrong_dimension_is_refused(dimension, complaint):
    with pytest.raises(InputError, match=complaint):
        space_of(dimension)


def test_a_number_of_processes_that_a_search_does_not_read_is_refused():
    with pytest.raises(ValueError, match=r"write trial\.processes: 2"):
        templates.TrialTemplate.model_validate({"launch": {"processes": 2}})
    assert templates.TrialTemplate.model_validate({"launch": {"life_sign_s": 5}}).processes == 1


def test_options_of_ones_own_task_can_be_searched():
    assert "task.options.noise" in space_of("task.options.noise: {uniform: [0.0, 1.0]}").space


@pytest.mark.parametrize("formats", ["[]", "[pickle]", "[onnx, onnx]"])
def test_a_wrong_list_of_formats_is_refused(formats):
    with pytest.raises(InputError, match=r"export\.formats"):
        validate(ProductionTemplate, yaml.parse(f"export: {{formats: {formats}, samples: 4}}", "t.yaml"))


@pytest.mark.parametrize(
    ("tool", "model"),
    [
        ("training_orchestrator", TrainingConfig),
        ("hyperparameter_tuner", TuningTemplate),
        ("checkpoint_manager", ProductionTemplate),
        ("training_monitor", TrainingChanges),
        ("training_explorer", TrainingChanges),
    ],
)
def test_the_example_config_of_each_tool_is_valid(tool, model):
    path = handbook.shipped_folder() / "tools" / tool / "example.yaml"
    validate(model, yaml.parse(path.read_bytes(), path.name))


def test_the_orchestrators_example_is_complete():
    path = handbook.shipped_folder() / "tools/training_orchestrator/example.yaml"
    values = yaml.parse(path.read_bytes(), path.name).value
    dumped = TrainingConfig.model_validate(values).model_dump()
    assert {key for key in dumped if key != "id"} == set(values)


def test_a_group_that_changes_its_name_is_replaced_whole():
    base = {"optimizer": {"name": "adamw", "lr": 0.1, "betas": [0.9, 0.99]}, "clip": {"norm": 1.0}}
    assert overlay(base, {"optimizer": {"lr": 0.2}})["optimizer"] == {"name": "adamw", "lr": 0.2, "betas": [0.9, 0.99]}
    assert overlay(base, {"optimizer": {"name": "sgd", "lr": 0.2}})["optimizer"] == {"name": "sgd", "lr": 0.2}
    assert overlay(base, {"clip": None})["clip"] is None
