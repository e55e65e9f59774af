"""A plan as TrainingArguments and back: valid, each value ours, and all that cannot be said is named."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.schedules import learning_rate
from mltrainer.errors import InputError
from mltrainer.project.argument_defaults import DEFAULTS
from mltrainer.project.argument_files import files_of, read_arguments, write_arguments
from mltrainer.project.from_training_arguments import imported
from mltrainer.project.training_arguments import exported, installed, known_to
from mltrainer.trainers.native.stopping import plateaus
from mltrainer.workspace import Project
from tests.projects import PROJECT, kept
from tests.refusals import refused

SAMPLES = 1000


def planned(**changes: Any) -> TrainingConfig:
    return TrainingConfig.model_validate({**PROJECT, "batch_size": 10, "early_stopping": None, **changes})


def fields(**changes: Any) -> dict[str, Any]:
    return {field.name: field.value for field in exported(planned(**changes), SAMPLES).fields}


def read(found: dict[str, str], name: str) -> dict[str, Any]:
    """Return a file as the readers of another package read it."""
    return yaml.safe_load(found[name])


CONFIGS: list[dict[str, Any]] = [
    {},
    {"optimizer": {"name": "sgd", "nesterov": True}, "schedule": {"name": "linear", "final": 0.1, "warmup_steps": 5}},
    {"optimizer": {"name": "rmsprop"}, "schedule": {"name": "constant", "warmup_epochs": 0.5}, "clip": None},
    {"optimizer": {"name": "adagrad"}, "schedule": {"name": "polynomial"}, "evaluate": {"every_n_epochs": 2}},
    {"optimizer": {"name": "adam"}, "schedule": {"name": "cosine", "final": 0.1}, "evaluate": {"every_n_steps": 7}},
    {"optimizer": {"name": "adamw_8bit"}, "precision": "bf16", "loader": {"workers": 2}},
    {"optimizer": {"name": "lion"}, "accumulate": 4, "launch": {"processes": 2, "parallel": "zero1"}},
    {"checkpoint": {"save_best": False}, "seed": 7},
    {"schedule": {"name": "plateau", "patience": 3}, "evaluate": {"every_n_steps": 7}},
    {"schedule": {"name": "cosine_restarts", "first_epochs": 5, "growth": 1.0}, "epochs": 20},
    {
        "schedule": {
            "name": "sequence",
            "parts": [{"schedule": {"name": "constant"}, "epochs": 3}, {"schedule": {"name": "linear"}}],
        }
    },
]


@pytest.mark.parametrize("changes", CONFIGS)
def test_the_installed_transformers_takes_every_field(changes, tmp_path):
    transformers = pytest.importorskip("transformers")
    given = fields(**changes)
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), **given)
    shown = arguments.to_dict()
    compared = given.keys() - {"report_to"}  # of which it makes a list
    assert {name: shown[name] for name in compared} == {name: given[name] for name in compared}


def test_numbers_of_a_config_are_the_fields_numbers():
    found = fields(accumulate=4, launch={"processes": 2}, optimizer={"name": "adamw", "lr": 0.003, "eps": 1e-7}, epochs=9)
    assert (found["per_device_train_batch_size"], found["gradient_accumulation_steps"], found["num_train_epochs"]) == (10, 2, 9)
    assert (found["learning_rate"], found["adam_epsilon"], found["warmup_steps"]) == (0.003, 1e-7, 25)
    assert (found["metric_for_best_model"], found["greater_is_better"]) == ("accuracy", True)
    assert fields(evaluate={"every_n_epochs": 3})["eval_steps"] == 300


@pytest.mark.parametrize("changes", [*CONFIGS[:5], *CONFIGS[8:]])
def test_there_and_back_a_config_is_the_same(changes):
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


def test_an_optimizers_own_numbers_reach_the_trainer(tmp_path):
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
        ({"schedule": {"name": "exponential"}}, "schedule.name"),
    ],
)
def test_what_decides_all_and_has_no_counterpart_is_refused(changes, where):
    with refused(where=where) as caught:
        exported(planned(**changes), SAMPLES)
    assert caught.value.hint is not None


def test_keys_that_no_field_says_are_named():
    changes = {"averaging": {"name": "ema"}, "clip": {"value": 1.0}, "numerics": "portable"}
    found = exported(planned(**changes, channels_last=True), SAMPLES)
    names = {one.key for one in found.left_out}
    assert {"averaging", "clip.value", "numerics", "channels_last"} <= names
    plain = exported(planned(optimizer={"name": "sgd", "weight_decay": 0.0}), SAMPLES).left_out
    assert {one.key for one in plain} == {"acceptance", "budget"}


def test_a_field_that_another_version_lacks_is_left_out_and_named():
    found = known_to(exported(planned(), SAMPLES), "4.1", frozenset({"seed"}))
    assert [field.name for field in found.fields] == ["seed"]
    assert any("epochs" in one.key and "transformers 4.1 has no such field" in one.reason for one in found.left_out)


def test_defaults_and_fields_are_those_of_the_installed_version():
    transformers = pytest.importorskip("transformers")
    version = installed()
    assert version is not None
    fields = dataclasses.fields(transformers.TrainingArguments)
    there = {one.name: [] if one.default is dataclasses.MISSING else one.default for one in fields}
    assert version == (transformers.__version__, frozenset(there))
    # An enumeration's member equals its value.
    assert there == DEFAULTS


# --- every field and every key ------------------------------------------------------------------------

OTHER: dict[str, Any] = {  # a value that differs from the default, where its type alone does not give one
    "lr_scheduler_type": "cosine", "optim": "sgd", "eval_strategy": "steps", "save_strategy": "epoch",
    "logging_strategy": "epoch", "save_total_limit": 5, "dataloader_prefetch_factor": 4, "local_rank": 3,
    "lr_scheduler_kwargs": {"num_cycles": 2}, "fsdp": True, "tf32": True, "greater_is_better": True, "max_grad_norm": 0.5,
    "optim_args": "amsgrad=true", "eval_steps": 50, "hub_strategy": "end", "label_smoothing_factor": 0.1, "adam_beta1": 0.8,
    "adam_beta2": 0.9, "warmup_steps": 10, "deepspeed": "ds.json",
}  # fmt: skip


def other_value(name: str, default: Any) -> Any:
    """Return a value of a field that is not its default."""
    if name in OTHER:
        return OTHER[name]
    if isinstance(default, bool):
        return not default
    return default + 1 if isinstance(default, int | float) else "another"


@pytest.mark.parametrize("name", list(DEFAULTS))
def test_each_field_that_is_changed_reaches_the_config_or_is_named(name):
    plain = imported({})
    found = imported({name: other_value(name, DEFAULTS[name])})
    named = {one.key.partition(".")[0] for one in found.left_out}
    arrived = (found.values, found.seed, found.metric) != (plain.values, plain.seed, plain.metric)
    assert arrived or name in named, (found.values, named)
    assert plain.left_out == []


def test_what_stands_at_the_installed_versions_defaults_is_not_named(tmp_path):
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.set_verbosity_warning()  # by which a field has its default
    found = imported(json.loads(transformers.TrainingArguments().to_json_string()))
    assert found.left_out == []
    assert found == imported({})
    changed = transformers.TrainingArguments(save_strategy="steps", save_steps=50, output_dir=str(tmp_path), torch_compile=True)
    found = imported(json.loads(changed.to_json_string()))
    assert found.values["checkpoint"] == {"every_n_steps": 50}
    assert [one.key for one in found.left_out] == ["output_dir"]


def test_fields_of_earlier_versions_count_by_their_new_names():
    given = {
        "evaluation_strategy": "steps",
        "eval_steps": 20,
        "warmup_ratio": 0.1,
        "no_cuda": True,
        "past_index": -1,
        "_n_gpu": 1,
    }
    found = imported({**given, "fp16_backend": "auto", "sharded_ddp": "", "save_safetensors": True})
    assert (found.values["evaluate"], found.values["device"]) == ({"every_n_steps": 20}, "cpu")
    assert found.values["schedule"]["warmup_epochs"] == pytest.approx(0.3)
    assert found.left_out == []
    with pytest.raises(InputError, match="adafactor"):
        imported({"adafactor": True})


@pytest.mark.parametrize(
    ("fields", "evaluate", "checkpoint"),
    [
        ({"eval_strategy": "steps"}, {"every_n_steps": 500}, {"every_n_steps": 500}),
        ({"eval_strategy": "steps", "logging_steps": 30}, {"every_n_steps": 30}, {"every_n_steps": 500}),
        ({"eval_strategy": "steps", "eval_steps": 0.1, "num_train_epochs": 20}, {"every_n_epochs": 2}, {"every_n_steps": 500}),
        ({"save_strategy": "epoch", "save_total_limit": 5}, {"every_n_epochs": 1}, {"every_n_epochs": 1, "keep": 3}),
        ({"save_strategy": "best"}, {"every_n_epochs": 1}, {"save_best": True}),
    ],
)
def test_evaluations_and_checkpoints_are_those_of_the_file(fields, evaluate, checkpoint):
    found = imported(fields).values
    assert (found["evaluate"], found["checkpoint"]) == (evaluate, checkpoint)


SCHEDULES: list[dict[str, Any]] = [
    {"lr_scheduler_type": "cosine_with_restarts", "lr_scheduler_kwargs": {"num_cycles": 4}, "warmup_steps": 0.2},
    {"lr_scheduler_type": "cosine_with_restarts"},
    {"lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": {"num_stable_steps": 50, "num_decay_steps": 40},
     "warmup_steps": 10},
    {"lr_scheduler_type": "cosine_warmup_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.1}, "warmup_steps": 10},
    {"lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": {"power": 3.0}, "warmup_steps": 5},
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Both num_training_steps and num_stable_steps")
@pytest.mark.parametrize("given", SCHEDULES)
def test_a_schedule_of_transformers_gives_the_rates_that_it_gives_there(given):
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    found = imported({**given, "learning_rate": 1.0, "num_train_epochs": 10})
    assert found.left_out == []
    config = planned(epochs=10, schedule=found.values["schedule"])
    rate = learning_rate(config.schedule, 1.0, 100, 10)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    warmup = given.get("warmup_steps", 0)
    there = transformers.get_scheduler(
        given["lr_scheduler_type"], optimizer, int(warmup * 100 if warmup < 1 else warmup), 100, given.get("lr_scheduler_kwargs")
    )
    theirs = []
    for _ in range(100):
        theirs.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        there.step()
    # A step begins there where the one before it ended: of a curve over 100 steps, a step more or less.
    beside = [min(abs(rate(step) - theirs[min(99, place)]) for place in (step - 1, step)) for step in range(1, 101)]
    assert max(beside) < 0.02


def test_a_plateau_waits_as_long_as_pytorchs():
    torch = pytest.importorskip("torch")
    given = {
        "lr_scheduler_type": "reduce_lr_on_plateau",
        "lr_scheduler_kwargs": {"patience": 2, "factor": 0.5},
        "warmup_steps": 9,
    }
    found = imported(given)
    assert [one.key for one in found.left_out] == ["warmup_steps"]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    there = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="min", threshold=0.0, **given["lr_scheduler_kwargs"])
    config = planned(schedule=found.values["schedule"], metric={"name": "loss", "mode": "min"})
    losses = [3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1]
    for number, loss in enumerate(losses, 1):
        there.step(loss)
        history = [SimpleNamespace(step=step, validation={"loss": value}) for step, value in enumerate(losses[:number], 1)]
        ours = plateaus(history, config.metric, config.schedule.patience, config.schedule.min_delta)
        assert 0.5**ours == optimizer.param_groups[0]["lr"]


def test_a_cycle_or_a_decay_that_no_number_of_epochs_says_is_refused_with_the_way():
    with refused("steps at a constant rate", where="lr_scheduler_kwargs.num_stable_steps"):
        imported({"lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": {"num_decay_steps": 10}})
    with pytest.raises(InputError, match="whole number of epochs"):
        imported({"eval_strategy": "steps", "eval_steps": 0.1})


CHANGES: list[dict[str, Any]] = [
    {"id": "0123456789ab"}, {"conformal": {"coverage": 0.9}}, {"strategies": [{"name": "adversarial", "epsilon": 0.1}]},
    {"tensor_parallel": 2}, {"averaging": {"name": "ema"}}, {"gradients": {"normalize": True}}, {"spikes": {"action": "skip"}},
    {"threads": 2}, {"on_out_of_memory": "split"},
    {"numerics": "portable"}, {"channels_last": True}, {"signals": False}, {"callbacks": ["a:B"]}, {"clip": {"adaptive": 0.1}},
    {"checkpoint": {"every_n_steps": 50}}, {"checkpoint": {"every_n_epochs": 1}}, {"checkpoint": {"every_minutes": 5}},
    {"launch": {"restarts": 2}}, {"start": {"weights": "a.safetensors"}},
    {"metric": {"name": "accuracy", "mode": "max", "ties": "first"}},
    {"optimizer": {"name": "adamw", "sam": {"rho": 0.1}}}, {"optimizer": {"name": "adamw", "layer_decay": 0.5}},
    {"optimizer": {"name": "adamw", "groups": [{"match": "bias"}]}}, {"tracking": {"csv": {}}},
    {"checkpoint": {"save_best": False}, "early_stopping": {"patience": 3}},
    {"schedule": {"name": "plateau", "warmup_steps": 5}}, {"schedule": {"name": "cosine", "warmup_steps": 5, "warmup": "cosine"}},
    {"epochs": 7}, {"batch_size": 20}, {"accumulate": 3}, {"precision": "bf16"}, {"compile": True},
    {"loader": {"workers": 3}}, {"loader": {"workers": 3, "prefetch": 5}}, {"evaluate": {"every_n_steps": 9}}, {"seed": 3},
    {"gradient_checkpointing": ["block"]}, {"checkpoint": {"keep": 9}}, {"optimizer": {"name": "adamw", "eps": 1e-6}},
    {"optimizer": {"name": "schedule_free"}}, {"device": "cuda"}, {"replay": {"every": 9}}, {"forget": "forgotten/a.txt"},
]  # fmt: skip


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_each_key_that_is_changed_becomes_a_field_or_is_named(changes):
    plain, found = (exported(planned(**one), SAMPLES) for one in ({}, changes))
    values = [{field.name: field.value for field in one.fields} for one in (plain, found)]
    named = {one.key for one in found.left_out} - {one.key for one in plain.left_out}
    assert values[0] != values[1] or named, changes


def test_every_training_key_is_among_those_that_are_tried():
    tried = {key for changes in [*CHANGES, *CONFIGS] for key in changes}
    assert TrainingConfig.model_fields.keys() - tried == {
        "name", "task", "data", "split", "model", "acceptance", "budget", "augment", "class_weights", "label_smoothing",
    }  # fmt: skip


# --- files ------------------------------------------------------------------------------------------


def test_a_planned_project_gets_files_with_a_reason_on_every_line(tmp_path, cli):
    project = kept("0.9/digits", tmp_path / "a project")
    said = cli("export-config", "--for", "transformers", "--project", project.root, code=0)
    lines = (project.root / "transformers/training_arguments.yaml").read_text().splitlines()
    assert all("  # " in line for line in lines if line and not line.startswith("#"))
    compile((project.root / "transformers/train.py").read_text(), "train.py", "exec")
    left_out = "optimizer.decay_norms_and_biases"
    assert f"not carried over: {left_out}" in said.out
    assert any(left_out in line for line in lines if line.startswith("#"))
    cli("export-config", "--for", "trl", "--project", project.root, code=2)


def test_a_file_that_a_person_changed_is_kept_and_another_plan_overwrites_only_its_own(tmp_path, cli):
    root = kept("0.9/digits", tmp_path / "project").root
    again = ("export-config", "--for", "transformers", "--project", root)
    cli(*again, code=0)
    arguments, config = root / "transformers/training_arguments.yaml", root / "phases/01_planning/training_config.yaml"
    config.write_text(config.read_text().replace("\nepochs: 20", "\nepochs: 13"))
    cli(*again, "--json", code=0)  # as it was written
    assert "num_train_epochs: 13" in arguments.read_text()
    arguments.write_text(arguments.read_text().replace("num_train_epochs: 13", "num_train_epochs: 99"))
    cli(*again, code=1, err="transformers/training_arguments.yaml: made or changed by a person")
    assert "num_train_epochs: 99" in arguments.read_text()
    cli(*again, "--force", code=0)
    assert "num_train_epochs: 13" in arguments.read_text()


@pytest.mark.parametrize("folder", ["/tmp", "../beside", ".", "a b"])
def test_a_folder_outside_the_project_is_refused(tmp_path, cli, folder):
    root = kept("0.9/digits", tmp_path / "project").root
    cli("export-config", "--for", "transformers", "--to", folder, "--project", root, code=1, err=f"--to {folder}: expected")
    assert not (tmp_path / "beside").exists()


def test_accelerate_and_deepspeed_are_told_what_is_launched():
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


def test_an_unplanned_project_is_told_to_plan(tmp_path):
    (tmp_path / "mltrainer.yaml").write_text("name: a\n")
    with pytest.raises(InputError, match="not planned"):
        write_arguments(Project(tmp_path), "there")


class Planted:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("executed"),)


def test_a_pickle_is_refused_and_not_executed(tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("training_args.bin").write_bytes(pickle.dumps(Planted()))
    cli("init", "d", "--example", "digits", "--from-training-arguments", "training_args.bin", code=1, err="to_json_string")
    assert not Path("executed").exists()
    assert not Path("d").exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[1, 2]", "the file has no fields by name"),
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
def test_a_wrong_file_is_told_and_nothing_is_written(tmp_path, cli, content, told):
    (tmp_path / "args.json").write_text(content)
    cli("init", tmp_path / "d", "--example", "digits", "--from-training-arguments", tmp_path / "args.json", code=1, err=told)
    assert not (tmp_path / "d").exists()


def test_a_template_that_is_there_is_not_passed_over(tmp_path, cli):
    (tmp_path / "args.json").write_text('{"learning_rate": 0.002}')
    (tmp_path / "d/configs").mkdir(parents=True)
    (tmp_path / "d/configs/baseline_template.yaml").write_text("optimizer: {lr: 0.5}\n")
    words = ("init", tmp_path / "d", "--example", "digits", "--from-training-arguments", tmp_path / "args.json")
    cli(*words, code=1, err="there is a configs/baseline_template.yaml already, by which planning would start")


def test_a_project_begins_with_the_fields_of_a_file(tmp_path, cli):
    given = {"learning_rate": 0.002, "lr_scheduler_type": "cosine", "warmup_steps": 0.1, "seed": 7, "neftune_noise_alpha": 5.0}
    (tmp_path / "args.yaml").write_text(yaml.safe_dump({"output_dir": "out", "metric_for_best_model": "eval_f1", **given}))
    said = cli("init", tmp_path / "d", "--example", "digits", "--from-training-arguments", tmp_path / "args.yaml", code=0)
    assert "not carried over: neftune_noise_alpha" in said.out
    assert "chooses the best by f1" in said.out
    template = yaml.safe_load((tmp_path / "d/configs/baseline_template.yaml").read_text())
    assert (template["epochs"], template["batch_size"], template["optimizer"]["weight_decay"]) == (3, 8, 0.0)
    assert template["schedule"] == {"name": "cosine", "warmup_epochs": pytest.approx(0.3)}
    assert yaml.safe_load((tmp_path / "d/mltrainer.yaml").read_text())["seed"] == 7


def test_a_program_has_no_arguments_of_a_trainer(tmp_path, cli):
    (tmp_path / "args.json").write_text('{"seed": 1}')
    said = cli("init", tmp_path / "d", "--script", "python a.py", "--from-training-arguments", tmp_path / "args.json")
    assert (said.code, "leave one out" in said.err) == (1, True)


def test_json_and_yaml_are_read(tmp_path):
    (tmp_path / "a.json").write_text('{"seed": 3}')
    assert read_arguments(tmp_path / "a.json") == {"seed": 3}
    with pytest.raises(InputError, match="no such file"):
        read_arguments(tmp_path / "b.yaml")


# --- the script -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_trainer_trains_the_plans_samples_and_measures_the_tasks_metrics(tmp_path):
    transformers = pytest.importorskip("transformers")
    from mltrainer.trainers.task_trainer import TaskTrainer

    folder = kept("0.9/digits", tmp_path / "project").root
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
