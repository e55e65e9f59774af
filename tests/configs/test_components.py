"""Components of a config: what is switched on is found and taken out alone; what is asked for is valid or refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from mltrainer import handbook
from mltrainer.configs import yaml
from mltrainer.configs.components import COMPONENTS, Swap, components, swaps_of
from mltrainer.configs.loading import flatten, known_keys
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.templates import baseline_template
from mltrainer.errors import InputError

BARE: dict[str, Any] = {
    "name": "pictures",
    "task": {"kind": "image_classification"},
    "data": {"source": "sklearn:digits"},
    "model": {"name": "mlp"},
    "metric": {"name": "accuracy", "mode": "max"},
    "optimizer": {"name": "adam"},
    "schedule": {"name": "constant"},
    "clip": None,
}
EVERYTHING: dict[str, Any] = {
    **BARE,
    "model": {"name": "mlp", "dropout": 0.2},
    "optimizer": {"name": "sgd", "nesterov": True, "decay_norms_and_biases": False, "layer_decay": 0.9, "sam": {}},
    "schedule": {"name": "cosine", "warmup_steps": 7, "warmup": "cosine", "final": 0.1},
    "clip": {"adaptive": 0.1},
    "gradients": {"normalize": True, "noise": {}},
    "averaging": {"name": "ema"},
    "augment": {"flip": "horizontal", "mixup": 0.2},
    "label_smoothing": 0.1,
    "class_weights": "balanced",
    "start": {"weights": "w.safetensors", "freeze": ["^0"], "unfreeze": [{"epoch": 2, "match": "^0"}]},
    "strategies": [{"name": "distillation", "teacher": {"weights": "t.safetensors"}}],
    "precision": "bf16",
}


def config(**changes: Any) -> TrainingConfig:
    return TrainingConfig.model_validate({**BARE, **changes})


def names(found: TrainingConfig) -> list[str]:
    return [swap.name for swap in components(found)]


def after(found: TrainingConfig, swap: Swap) -> dict[str, Any]:
    """Return the values that a swap changes, by dotted key."""
    old, new = flatten(found.model_dump()), flatten(swap.applied(found).model_dump())
    return {key: new.get(key) for key in old.keys() | new.keys() if old.get(key) != new.get(key)}


# --- what is found --------------------------------------------------------------------------------


def test_a_bare_config_has_no_component():
    assert components(config()) == []


def test_every_component_that_is_on_is_found_once():
    found = names(TrainingConfig.model_validate(EVERYTHING))
    assert len(set(found)) == len(found)
    assert {"dropout", "weight decay", "momentum", "learning-rate schedule", "warm-up", "augmentation: mixup"} <= set(found)
    elsewhere = {"lookahead", "parameter groups", "embeddings of numbers", "ensemble", "neighbouring tokens"}
    alterations = {f"augmentation: {name}" for name in ("crops", "affine maps", "colours", "RandAugment", "erasing", "CutMix")}
    assert {component.name for component in COMPONENTS} - set(found) == elsewhere | alterations


@pytest.mark.parametrize("swap", components(TrainingConfig.model_validate(EVERYTHING)), ids=lambda swap: swap.name)
def test_a_component_is_taken_out_alone(swap):
    whole = TrainingConfig.model_validate(EVERYTHING)
    changed = after(whole, swap)
    together = {"learning-rate schedule": "schedule.", "augmentation": "augment", "pretrained weights": "start", "clip": "clip"}
    group = together.get(swap.name, next(iter(swap.changes)).rpartition(".")[0] or next(iter(swap.changes)))
    assert changed
    assert all(key.startswith(group) for key in changed)


def test_a_constant_schedule_keeps_the_warm_up():
    whole = TrainingConfig.model_validate(EVERYTHING)
    swap = next(swap for swap in components(whole) if swap.name == "learning-rate schedule")
    schedule = swap.applied(whole).schedule
    assert (schedule.name, schedule.warmup_steps, schedule.warmup) == ("constant", 7, "cosine")
    assert after(whole, swap) == {"schedule.name": "constant", "schedule.final": None}


def test_momentum_takes_nesterovs_form_of_it_with_it():
    whole = config(optimizer={"name": "sgd", "nesterov": True})
    swap = next(swap for swap in components(whole) if swap.name == "momentum")
    assert after(whole, swap) == {"optimizer.momentum": 0.0, "optimizer.nesterov": False}


def test_what_decays_matters_only_where_something_does():
    optimizer = {"name": "adam", "decay_norms_and_biases": False}
    assert names(config(optimizer=optimizer)) == []
    assert names(config(optimizer={**optimizer, "weight_decay": 0.1})) == ["weight decay", "no decay of norms and biases"]


@pytest.mark.parametrize(
    ("augment", "found"),
    [
        ({}, []),
        ({"flip": "both"}, ["augmentation"]),
        ({"flip": "both", "crop": 2}, ["augmentation", "augmentation: crops", "augmentation: flips"]),
    ],
)
def test_alterations_are_taken_apart_where_there_are_several(augment, found):
    assert names(config(augment=augment)) == found


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ({"name": "linear"}, []),
        ({"name": "resnet", "dropout": 0.1}, ["dropout"]),
        ({"name": "tabular_mlp", "dropout": 0.0}, ["embeddings of numbers", "ensemble"]),
        ({"name": "tabular_mlp", "dropout": 0.0, "numbers": "plain", "members": 1}, []),
        ({"name": "ft_transformer"}, ["dropout", "embeddings of numbers"]),
    ],
)
def test_a_models_own_components_are_found(model, found):
    kind = "tabular_classification" if model["name"] in ("tabular_mlp", "ft_transformer") else "image_classification"
    assert names(config(model=model, task={"kind": kind})) == found


def test_every_key_of_the_table_is_a_key_of_a_config():
    for component in COMPONENTS:
        for key in (component.key, *component.beside, *component.keeps, *filter(None, (component.needs,))):
            *parents, last = key.split(".")
            assert last in known_keys(TrainingConfig, tuple(parents)), key


# --- what is asked for ----------------------------------------------------------------------------


def asked(*given: Any, **changes: Any) -> list[Swap]:
    return swaps_of(TrainingConfig.model_validate({**EVERYTHING, **changes}), given)


def test_without_a_wish_all_components_are_swapped():
    assert asked() == components(TrainingConfig.model_validate(EVERYTHING))


@pytest.mark.parametrize("wish", ["clip", "gradient clipping", "clip=null", {"clip": None}])
def test_a_component_goes_by_key_name_or_value(wish):
    (swap,) = asked(wish)
    assert (swap.name, swap.changes, swap.takes_out) == ("gradient clipping", {"clip": None}, True)


def test_a_swap_of_ones_own_may_have_several_keys():
    (swap,) = asked("optimizer.name=adam+optimizer.lr=1e+0", model={"name": "mlp"})
    assert swap.changes == {"optimizer.name": "adam", "optimizer.lr": 1.0}
    assert (swap.name, swap.takes_out) == ("optimizer.name=adam + optimizer.lr=1.0", False)


def test_swaps_that_are_the_same_are_one():
    assert len(asked("clip", "clip=null", "model.dropout=0.3", {"model.dropout": 0.3})) == 2


REFUSED = {
    "optimizer.lrr=1": "there is no key 'optimizer.lrr' of a training config; did you mean 'optimizer.lr'?",
    "dropuot": "there is no component 'dropuot' that is switched on; did you mean 'dropout'?",
    "weight_decay": "did you mean 'weight decay'?",
    "seed=3": "seed is the same for all compared runs",
    "data.source=other.csv": "data is the same for all compared runs",
    "metric.name=loss": "metric is the same for all compared runs",
    "threads=2": "threads is set before a process starts",
    "model.hidden=3": "key model.hidden: Input should be a valid list; found 3",
    "model.dropout=1.5": "mltrainer ablate model.dropout=1.5, key model.dropout: Input should be less than 1",
    "model.members=4": "unknown key 'members'",
    "model.dropout=0.2": "the swap changes nothing of a training: model.dropout is 0.2 in the config",
    "loader.workers=2": "the swap changes nothing of a training",
    "optimizer.lookahead": "there is no component 'optimizer.lookahead' that is switched on; ",
    "precision=fp16": "precision: fp16 does not go with sam",
    "=": "mltrainer ablate: expected KEY=VALUE, found =",
    "clip=[": "mltrainer ablate clip:",
}


@pytest.mark.parametrize("wish", REFUSED)
def test_a_swap_that_cannot_be_is_refused_by_name(wish):
    with pytest.raises(InputError) as refused:
        asked(wish)
    assert REFUSED[wish] in str(refused.value)
    assert "--set" not in str(refused.value)  # which the command does not have


def test_the_next_step_after_an_unknown_component_stands_alone():
    with pytest.raises(InputError) as refused:
        asked("dropuot")
    assert refused.value.hint == (
        "name one that `mltrainer ablate --list` shows, or give a key's other value: mltrainer ablate KEY=VALUE"
    )
    with pytest.raises(InputError) as refused:
        swaps_of(config(), ["dropout"])
    assert refused.value.hint == "give a key's other value: mltrainer ablate KEY=VALUE"


def test_a_config_without_components_asks_for_a_swap():
    with pytest.raises(InputError, match="no component that could be taken out"):
        swaps_of(config(), [])


def test_the_tools_examples_are_valid_swaps():
    path = handbook.shipped_folder() / "tools/ablation_study/example.yaml"
    whole = TrainingConfig.model_validate({**BARE, **baseline_template(None)})
    assert len(swaps_of(whole, yaml.parse(path.read_bytes(), path.name).value["swaps"])) == 3
