"""A plan as TrainingArguments and back: valid, each value ours, and all that cannot be said is named."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.project.argument_files import files_of, read_arguments, write_arguments
from mltrainer.project.from_training_arguments import DEFAULTS, imported
from mltrainer.project.training_arguments import exported, installed, known_to
from mltrainer.workspace import Project
from tests.conftest import Cli
from tests.project.test_upgrade import kept
from tests.projects import PROJECT

SAMPLES = 1000


def planned(**changes: Any) -> TrainingConfig:
    return TrainingConfig.model_validate({**PROJECT, "rules": 2, "batch_size": 10, "early_stopping": None, **changes})


def fields(**changes: Any) -> dict[str, Any]:
    return {field.name: field.value for field in exported(planned(**changes), SAMPLES).fields}


def read(found: dict[str, str], name: str) -> dict[str, Any]:
    """Return a file as the readers of another package read it."""
    values: dict[str, Any] = yaml.safe_load(found[name])
    return values


CONFIGS: list[dict[str, Any]] = [
    {},
    {"optimizer": {"name": "sgd", "nesterov": True}, "schedule": {"name": "linear", "final": 0.1, "warmup_steps": 5}},
    {"optimizer": {"name": "rmsprop"}, "schedule": {"name": "constant", "warmup_epochs": 0.5}, "clip": None},
    {"optimizer": {"name": "adagrad"}, "schedule": {"name": "polynomial"}, "evaluate": {"every_n_epochs": 2}},
    {"optimizer": {"name": "adam"}, "schedule": {"name": "cosine", "final": 0.1}, "evaluate": {"every_n_steps": 7}},
    {"optimizer": {"name": "adamw_8bit"}, "precision": "bf16", "loader": {"workers": 2}},
    {"optimizer": {"name": "lion"}, "accumulate": 4, "launch": {"processes": 2, "parallel": "zero1"}},
    {"checkpoint": {"save_best": False}, "seed": 7},
]


@pytest.mark.parametrize("changes", CONFIGS)
def test_the_installed_transformers_takes_every_field(changes: dict[str, Any], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    given = fields(**changes)
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), **given)
    shown = arguments.to_dict()
    compared = given.keys() - {"report_to"}  # of which it makes a list
    assert {name: shown[name] for name in compared} == {name: given[name] for name in compared}


def test_numbers_of_a_config_are_the_fields_numbers() -> None:
    found = fields(accumulate=4, launch={"processes": 2}, optimizer={"name": "adamw", "lr": 0.003, "eps": 1e-7}, epochs=9)
    assert (found["per_device_train_batch_size"], found["gradient_accumulation_steps"], found["num_train_epochs"]) == (10, 2, 9)
    assert (found["learning_rate"], found["adam_epsilon"], found["warmup_steps"]) == (0.003, 1e-7, 25)
    assert (found["metric_for_best_model"], found["greater_is_better"]) == ("accuracy", True)
    assert fields(evaluate={"every_n_epochs": 3})["eval_steps"] == 300


@pytest.mark.parametrize("changes", CONFIGS[:5])
def test_there_and_back_a_config_is_the_same(changes: dict[str, Any]) -> None:
    config, values = planned(**changes), imported(fields(**changes)).values
    back = planned(**{**changes, **values})
    assert (back.epochs, back.batch_size, back.accumulate, back.clip) == (config.epochs, 10, config.accumulate, config.clip)
    lr, per_epoch = "lr", SAMPLES // 10
    assert getattr(back.optimizer, lr) == getattr(config.optimizer, lr)
    steps = range(1, 200)
    ours, theirs = (one.schedule.warmed_up(per_epoch) for one in (config, back))
    assert ours == theirs
    shares = [[one.schedule.share(step, 200, per_epoch) for step in steps] for one in (config, back)]
    assert shares[0] == pytest.approx(shares[1])


def test_an_optimizers_own_numbers_reach_the_trainer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    given = fields(optimizer={"name": "sgd", "lr": 0.2, "momentum": 0.8, "nesterov": True})
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), **given)
    _, values = transformers.Trainer.get_optimizer_cls_and_kwargs(arguments)
    assert values == {"lr": 0.2, "momentum": 0.8, "nesterov": True}


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"optimizer": {"name": "lamb"}}, "optimizer.name"),
        ({"optimizer": {"name": "adam", "weight_decay": 0.1}}, "optimizer.name"),
        ({"schedule": {"name": "one_cycle"}}, "schedule.name"),
        ({"schedule": {"name": "plateau"}}, "schedule.name"),
    ],
)
def test_what_decides_all_and_has_no_counterpart_is_refused(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError) as caught:
        exported(planned(**changes), SAMPLES)
    assert caught.value.where == where
    assert caught.value.mend is not None


def test_keys_that_no_field_says_are_named() -> None:
    changes = {"averaging": {"name": "ema"}, "clip": {"value": 1.0}, "numerics": "portable"}
    found = exported(planned(**changes, channels_last=True), SAMPLES)
    names = {one.key for one in found.left_out}
    assert {"averaging", "clip.value", "numerics: portable", "channels_last"} <= names
    assert exported(planned(optimizer={"name": "sgd", "weight_decay": 0.0}), SAMPLES).left_out == []


def test_a_field_that_another_version_lacks_is_left_out_and_named() -> None:
    found = known_to(exported(planned(), SAMPLES), "4.1", frozenset({"seed"}))
    assert [field.name for field in found.fields] == ["seed"]
    assert any("epochs" in one.key and "transformers 4.1 has no such field" in one.reason for one in found.left_out)


def test_defaults_and_fields_are_those_of_the_installed_version() -> None:
    transformers = pytest.importorskip("transformers")
    version = installed()
    assert version is not None
    there = {field.name: field.default for field in dataclasses.fields(transformers.TrainingArguments)}
    assert version == (transformers.__version__, frozenset(there))
    assert {name: str(there[name]) for name in DEFAULTS} == {name: str(value) for name, value in DEFAULTS.items()}


# --- files ------------------------------------------------------------------------------------------


def test_a_planned_project_gets_files_with_a_reason_on_every_line(tmp_path: Path, cli: Cli) -> None:
    project = Project(kept("0.2/digits", tmp_path / "a project").folder)
    said = cli("export-config", "--for", "transformers", "--project", project.root)
    assert said.code == 0, said.err
    lines = (project.root / "transformers/training_arguments.yaml").read_text().splitlines()
    assert all("  # " in line for line in lines if line and not line.startswith("#"))
    compile((project.root / "transformers/train.py").read_text(), "train.py", "exec")
    left_out = "optimizer.decay_norms_and_biases"
    assert f"not carried over: {left_out}" in said.out
    assert any(left_out in line for line in lines if line.startswith("#"))
    assert cli("export-config", "--for", "trl", "--project", project.root).code == 2


def test_a_file_that_a_person_changed_is_kept_and_another_plan_overwrites_only_its_own(tmp_path: Path, cli: Cli) -> None:
    root = kept("0.2/digits", tmp_path / "project").folder
    again = ("export-config", "--for", "transformers", "--project", root)
    assert cli(*again).code == 0
    arguments, config = root / "transformers/training_arguments.yaml", root / "phases/01_planning/training_config.yaml"
    config.write_text(config.read_text().replace("epochs: 12", "epochs: 13"))
    assert cli(*again).code == 0  # as it was written
    assert "num_train_epochs: 13" in arguments.read_text()
    arguments.write_text(arguments.read_text().replace("num_train_epochs: 13", "num_train_epochs: 99"))
    said = cli(*again)
    assert (said.code, "transformers/training_arguments.yaml: made or changed by a person" in said.err) == (1, True)
    assert "num_train_epochs: 99" in arguments.read_text()
    assert cli(*again, "--force").code == 0
    assert "num_train_epochs: 13" in arguments.read_text()


@pytest.mark.parametrize("folder", ["/tmp", "../beside", ".", "a b"])
def test_a_folder_outside_the_project_is_refused(tmp_path: Path, cli: Cli, folder: str) -> None:
    root = kept("0.2/digits", tmp_path / "project").folder
    said = cli("export-config", "--for", "transformers", "--to", folder, "--project", root)
    assert (said.code, f"--to {folder}: expected" in said.err) == (1, True), said.err
    assert not (tmp_path / "beside").exists()


def test_accelerate_and_deepspeed_are_told_what_is_launched() -> None:
    zero = planned(accumulate=2, launch={"processes": 2, "parallel": "zero1"}, precision="bf16", device="cuda")
    files = files_of(zero, exported(zero, SAMPLES), "there")
    found = read(files, "accelerate.yaml")
    assert (found["distributed_type"], found["num_processes"], found["mixed_precision"]) == ("DEEPSPEED", 2, "bf16")
    assert json.loads(files["deepspeed.json"])["zero_optimization"] == {"stage": 1}
    alone = files_of(planned(), exported(planned(), SAMPLES), "there")
    assert "deepspeed.json" not in alone
    assert (read(alone, "accelerate.yaml")["mixed_precision"], read(alone, "accelerate.yaml")["use_cpu"]) == ("no", True)
    fsdp = planned(accumulate=2, launch={"processes": 2, "parallel": "fsdp"}, device="cuda")
    assert read(files_of(fsdp, exported(fsdp, SAMPLES), "there"), "accelerate.yaml")["fsdp_config"]["fsdp_version"] == 2


def test_an_unplanned_project_is_told_to_plan(tmp_path: Path) -> None:
    (tmp_path / "mltrainer.yaml").write_text("name: a\n")
    with pytest.raises(InputError, match="not planned"):
        write_arguments(Project(tmp_path), "there")


class Planted:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("executed"),)


def test_a_pickle_is_refused_and_not_executed(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("training_args.bin").write_bytes(pickle.dumps(Planted()))
    said = cli("init", "d", "--example", "digits", "--from-training-arguments", "training_args.bin")
    assert said.code == 1
    assert "to_json_string" in said.err
    assert not Path("executed").exists()
    assert not Path("d").exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[1, 2]", "no fields by name"),
        ("{", "args.json"),
        ('{"per_device_train_batch_size": 2.5}', "per_device_train_batch_size: 2.5 is no whole number"),
        ('{"num_train_epochs": true}', "num_train_epochs"),
        ('{"optim": "adafactor"}', "optim: there is no optimizer like 'adafactor'"),
        ('{"lr_scheduler_type": "inverse_sqrt"}', "lr_scheduler_type: there is no schedule like"),
        ('{"learning_rate": "fast"}', "learning_rate: 'fast' is no number"),
        ('{"learning_rate": -1.0}', "learning_rate: -1.0"),
        ('{"adam_epsilon": -1.0}', "optimizer.eps"),
        ('{"lr_scheduler_kwargs": "a"}', "lr_scheduler_kwargs: 'a' is no mapping"),
    ],
)
def test_a_wrong_file_is_told_and_nothing_is_written(tmp_path: Path, cli: Cli, content: str, told: str) -> None:
    (tmp_path / "args.json").write_text(content)
    said = cli("init", tmp_path / "d", "--example", "digits", "--from-training-arguments", tmp_path / "args.json")
    assert (said.code, told in said.err) == (1, True), said.err
    assert not (tmp_path / "d").exists()


def test_a_project_begins_with_the_fields_of_a_file(tmp_path: Path, cli: Cli) -> None:
    given = {"learning_rate": 0.002, "lr_scheduler_type": "cosine", "warmup_steps": 0.1, "seed": 7, "neftune_noise_alpha": 5.0}
    (tmp_path / "args.yaml").write_text(yaml.safe_dump({"output_dir": "out", "metric_for_best_model": "eval_f1", **given}))
    said = cli("init", tmp_path / "d", "--example", "digits", "--from-training-arguments", tmp_path / "args.yaml")
    assert said.code == 0, said.err
    assert "not carried over: neftune_noise_alpha" in said.out
    assert "chooses the best by f1" in said.out
    template = yaml.safe_load((tmp_path / "d/configs/baseline_template.yaml").read_text())
    assert (template["epochs"], template["batch_size"], template["optimizer"]["weight_decay"]) == (3, 8, 0.0)
    assert template["schedule"] == {"name": "cosine", "warmup_epochs": pytest.approx(0.3)}
    assert yaml.safe_load((tmp_path / "d/mltrainer.yaml").read_text())["seed"] == 7


def test_a_program_has_no_arguments_of_a_trainer(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "args.json").write_text('{"seed": 1}')
    said = cli("init", tmp_path / "d", "--script", "python a.py", "--from-training-arguments", tmp_path / "args.json")
    assert (said.code, "leave one out" in said.err) == (1, True)


def test_json_and_yaml_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"seed": 3}')
    assert read_arguments(tmp_path / "a.json") == {"seed": 3}
    with pytest.raises(InputError, match="no such file"):
        read_arguments(tmp_path / "b.yaml")


# --- the script -------------------------------------------------------------------------------------


def test_the_trainer_trains_the_plans_samples_and_measures_the_tasks_metrics(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from mltrainer.trainers.task_trainer import TaskTrainer

    folder = kept("0.2/digits", tmp_path / "project").folder
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"),
        num_train_epochs=3,
        per_device_train_batch_size=32,
        learning_rate=3e-3,
        use_cpu=True,
        report_to="none",
        remove_unused_columns=False,
        disable_tqdm=True,
        save_strategy="no",
    )
    trainer = TaskTrainer(folder, arguments)
    before = trainer.evaluate()["eval_accuracy"]
    trainer.train()
    after = trainer.evaluate()
    assert after["eval_accuracy"] > before + 0.3
    assert {"eval_loss", "eval_f1_macro"} <= after.keys()
