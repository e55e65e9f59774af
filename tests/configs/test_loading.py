"""Errors of a person's file: all at once, with file, line, key and the nearest valid name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltrainer.configs import yaml
from mltrainer.configs.loading import (
    assign,
    at,
    differences,
    each_entry,
    flatten,
    known_keys,
    parse_assignment,
    read_text,
    validate,
)
from mltrainer.configs.project import ProjectConfig, TrainingConfig
from mltrainer.errors import InputError
from tests.refusals import refused

MINIMAL = """\
name: digits
task: {kind: image_classification}
data: {source: "sklearn:digits"}
model: {name: mlp}
metric: {name: accuracy, mode: max}
"""


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        validate(TrainingConfig, yaml.parse(text, "training_config.yaml"))
    return caught.value.message


def test_a_minimal_file_is_valid():
    assert validate(TrainingConfig, yaml.parse(MINIMAL, "t.yaml")).name == "digits"


def test_a_number_in_scientific_notation_is_a_float():
    config = validate(TrainingConfig, yaml.parse(MINIMAL + "optimizer: {name: adamw, lr: 1e-3}\n", "t.yaml"))
    assert config.optimizer.lr == 0.001


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MINIMAL + "epoch: 3\n", "training_config.yaml:6, key epoch: unknown key 'epoch'; did you mean 'epochs'?"),
        (MINIMAL + "optimizer: {name: adamw, weigth_decay: 0.1}\n", "did you mean 'weight_decay'?"),  # a name of that group
        (MINIMAL + "optimizer: {name: adanw}\n", "did you mean 'adamw'?"),
        (MINIMAL + "clip: {zzz: 1}\n", "known keys: adaptive, norm, value"),
        (
            MINIMAL + "checkpoint: {segments: evaluation}\n",
            "key checkpoint.segments: evaluations, or a whole number of at least 1, was expected; found 'evaluation'",
        ),
        (MINIMAL + "loader: {workers: -1}\n", "key loader.workers: auto, or a whole number from 0 to 64, was expected"),
        ("name: x\ntask: {kind: image_classification}\n", "key metric: Field required"),
        ("", "key name: Field required"),
        ("[1, 2]", "found [1, 2]"),
    ],
)
def test_what_no_config_can_say_is_refused_with_what_it_can(text, said):
    assert said in refusal(text)


@pytest.mark.parametrize(
    "line",
    [
        'epochs: "20"',
        "epochs: 2.5",
        "epochs: 0",
        "epochs: true",
        "batch_size: -1",
        "seed: 4294967296",
        "seed: -1",
        "optimizer: {name: adamw, lr: .nan}",
        "optimizer: {name: adamw, lr: .inf}",
        "optimizer: {name: adamw, lr: '1e-3'}",
        "optimizer: {name: adamw, betas: [0.9]}",
        "optimizer: {name: sgd, betas: [0.9, 0.999]}",
        "precision: fp8",
        "clip: {norm: 0}",
        "epochs: null",
        "split: {validation: 0.7, test: 0.3}",
        "evaluate: {every_n_epochs: 1, every_n_steps: 5}",
        "evaluate: {}",
        "checkpoint: {every_n_steps: 0}",
        "checkpoint: {every_minutes: 0}",
        "checkpoint: {every_minutes: '5'}",
        "checkpoint: {every_n_steps: 50, save_last: false}",
        "checkpoint: {every_minutes: 5, save_last: false}",
        "acceptance: {accuracy: 0.95}",
        'acceptance: {accuracy: "about 0.95"}',
        'acceptance: {accuracy: "<= 0.95"}',
        "budget: {minutes: 0}",
    ],
)
def test_a_wrong_value_is_refused_with_its_line(line):
    assert refusal(MINIMAL + line + "\n").startswith("training_config.yaml:6, key ")


def test_checkpoints_to_go_on_from_and_none_to_be_kept_do_not_go_together():
    message = refusal(MINIMAL + "checkpoint: {every_minutes: 5, save_last: false}\n")
    assert "key checkpoint: " in message
    assert "every_minutes saves what an interrupted run goes on from, which needs save_last: true" in message


def test_all_faults_are_reported_at_once():
    message = refusal(MINIMAL + "epochs: 0\nbatch_sise: 3\nthreads: 0\n")
    assert sorted(line.split(",")[0] for line in message.splitlines()) == [f"training_config.yaml:{n}" for n in (6, 7, 8)]


def test_a_long_value_is_cut_in_the_message():
    assert len(refusal(MINIMAL + f"epochs: {'x' * 5000}\n")) < 500


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, kind):
    path = tmp_path if kind == "folder" else tmp_path / "none.yaml"
    with refused("the config cannot be read", where=str(path)):
        read_text(path, "the config")


def test_keys_are_known_at_every_place():
    assert "acceptance" in known_keys(ProjectConfig, ())
    assert "epochs" not in known_keys(ProjectConfig, ())
    sgd = known_keys(TrainingConfig, ("optimizer", "sgd"))
    assert {"lr", "momentum", "name", "nesterov", "weight_decay"} <= set(sgd)
    assert "betas" not in sgd


def test_an_assignment_is_read_as_yaml():
    assert parse_assignment("optimizer.lr=3e-4") == ("optimizer.lr", 0.0003)
    assert parse_assignment("model.hidden=[256,256]") == ("model.hidden", [256, 256])
    assert parse_assignment(" clip =null") == ("clip", None)


@pytest.mark.parametrize("assignment", ["optimizer.lr", "=3", " = 3"])
def test_an_assignment_without_key_or_value_is_refused(assignment):
    with pytest.raises(InputError, match="KEY=VALUE"):
        parse_assignment(assignment)


def test_a_key_that_leads_nowhere_gives_the_default():
    assert at({"a": {"b": 1}}, "a.b") == 1
    assert at({"a": None}, "a.b", 7) == 7
    assert at({"a": [{"b": 1}]}, "a.0.b") == 1
    assert [at({"a": [1]}, key, 7) for key in ("a.1", "a.b", "a.0.b", "a.-1")] == [7] * 4


def test_a_number_names_an_entry_of_a_list():
    value = {"strategies": [{"name": "lora", "rank": 8}, {"name": "distillation", "weight": 0.5}]}
    changed = assign(value, [("strategies.1.weight", 0.7), ("strategies.0.rank", 4)])
    assert changed == {"strategies": [{"name": "lora", "rank": 4}, {"name": "distillation", "weight": 0.7}]}
    assert value["strategies"][0]["rank"] == 8
    assert each_entry(changed)["strategies.1.weight"] == 0.7


def test_an_entry_that_gets_another_name_keeps_none_of_its_old_keys():
    changed = assign(
        {"strategies": [{"name": "lora", "rank": 8}]}, [("strategies.0.epochs", 3), ("strategies.0.name", "curriculum")]
    )
    assert changed == {"strategies": [{"name": "curriculum", "epochs": 3}]}


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("strategies.1.rank", "there is no entry '1' of the list; there is only 0"),
        ("strategies.lora.rank", "there is no entry 'lora' of the list; there is only 0"),
        ("callbacks.0.use", "there is no entry '0' of the list; there are none"),
        ("strategies.0.rank.more", "rank: expected a group of keys, found 8"),
    ],
)
def test_a_key_that_leads_nowhere_is_not_set(key, said):
    with pytest.raises(InputError, match=said):
        assign({"strategies": [{"name": "lora", "rank": 8}], "callbacks": []}, [(key, 1)])


def test_a_name_among_a_tasks_options_is_no_other_group():
    value = {"task": {"options": {"name": "a", "width": 3}}}
    assert assign(value, [("task.options.name", "b")]) == {"task": {"options": {"name": "b", "width": 3}}}


def test_a_dotted_key_is_replaced_and_its_input_left_alone():
    value = {"optimizer": {"name": "adamw", "lr": 0.1}}
    assert assign(value, [("optimizer.lr", 1)]) == {"optimizer": {"name": "adamw", "lr": 1}}
    assert value == {"optimizer": {"name": "adamw", "lr": 0.1}}


@pytest.mark.parametrize("order", [1, -1])
def test_another_name_drops_the_old_groups_keys_in_whatever_order_it_is_given(order):
    value = {"optimizer": {"name": "adamw", "lr": 0.1, "betas": [0.9, 0.999]}}
    changes = [("optimizer.lr", 0.2), ("optimizer.name", "sgd")][::order]
    assert assign(value, changes) == {"optimizer": {"name": "sgd", "lr": 0.2}}


def test_the_same_name_again_drops_nothing():
    value = {"optimizer": {"name": "sgd", "lr": 0.1}}
    assert assign(value, [("optimizer.name", "sgd")]) == value


def test_of_keys_that_exclude_one_another_the_new_one_stays():
    value = {"evaluate": {"every_n_epochs": 1, "every_n_steps": None}}
    assert assign(value, [("evaluate.every_n_steps", 50)]) == {"evaluate": {"every_n_steps": 50}}


def test_differences_of_two_configs_are_told_key_by_key():
    before, after = {"lr": 1, "clip": {"norm": 1.0}, "seed": 3}, {"lr": 1, "clip": None, "seed": 4}
    assert differences(before, after) == [
        {"key": "clip.norm", "before": 1.0, "after": None},
        {"key": "seed", "before": 3, "after": 4},
    ]


def test_a_key_below_a_plain_value_is_refused():
    with pytest.raises(InputError, match="epochs: expected a group of keys, found 20"):
        assign({"epochs": 20}, [("epochs.more", 1)])


GROUPS = st.dictionaries(st.text("xyz", min_size=1), st.integers(), min_size=1)


@pytest.mark.slow
@given(st.dictionaries(st.text("abc", min_size=1), st.integers() | GROUPS))
def test_flattened_values_can_be_put_together_again(value):
    assert assign({}, flatten(value).items()) == value


ONE_AT_A_TIME = {  # of these keys of a group, by what mltrainer documents
    "clip": {"norm": 1.0, "value": 0.5, "adaptive": 0.1},
    "evaluate": {"every_n_epochs": 2, "every_n_steps": 10},
    "schedule": {"warmup_epochs": 1.0, "warmup_steps": 5},
}
PAIRS = [(group, old, new) for group, keys in ONE_AT_A_TIME.items() for old in keys for new in keys if old != new]


@pytest.mark.parametrize(("group", "old", "new"), PAIRS)
def test_of_each_pair_of_keys_that_exclude_one_another_the_new_one_stays(group, old, new):
    keys = ONE_AT_A_TIME[group]
    assert assign({group: {"other": 1, old: keys[old]}}, [(f"{group}.{new}", keys[new])]) == {group: {"other": 1, new: keys[new]}}
