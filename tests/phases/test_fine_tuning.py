"""The usual learning rate and warm-up of a model that begins with given weights, by its size: advice, which no gate reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.items import PlanningSettings
from mltrainer.configs.loading import assign
from mltrainer.configs.pages import phase_page
from mltrainer.configs.project import TrainingConfig
from mltrainer.phases.planning import fine_tuning
from mltrainer.records.planning import FineTuning
from mltrainer.workspace import read_json
from tests.exporters.test_program import table
from tests.projects import write_rings
from tests.results import probe_result

SETTINGS = PlanningSettings.model_validate(phase_page("planning", None).settings)
START = {"weights": "first.safetensors"}
HUGGING_FACE = {"use": "mltrainer.integrations.transformers:SequenceClassification"}


def config(tmp_path: Path, *changes: tuple[str, Any], **more: Any) -> TrainingConfig:
    made = TrainingConfig.model_validate({**table(tmp_path), "start": START, "epochs": 10, **more}).model_dump()
    return TrainingConfig.model_validate(assign(made, list(changes)))


def advised(given: TrainingConfig, parameters: int = 1000, steps: int = 300) -> FineTuning | None:
    probe = probe_result(parameters=parameters, planned_steps=steps, planned_epochs=10)
    return fine_tuning(given, probe, SETTINGS)


@pytest.mark.parametrize(
    ("parameters", "low", "high"),
    [
        (1, 5e-5, 1e-4),
        (499_999_999, 5e-5, 1e-4),
        (500_000_000, 1e-5, 5e-5),
        (3_000_000_000, 1e-5, 5e-5),
        (3_000_000_001, 5e-6, 1e-5),
        (70_000_000_000, 5e-6, 1e-5),
    ],
)
def test_the_rate_falls_with_the_size(parameters, low, high, tmp_path):
    found = advised(config(tmp_path, ("optimizer.lr", 1e-3)), parameters)
    assert (found.rate.low, found.rate.high, found.rate.value, found.rate.proposed) == (low, high, 1e-3, high)
    assert found.parameters == parameters


@pytest.mark.parametrize(("lr", "proposed"), [(1e-6, 5e-5), (5e-5, None), (7e-5, None), (1e-4, None), (1.01e-4, 1e-4)])
def test_the_nearest_end_is_proposed_where_the_config_lies_outside(lr, proposed, tmp_path):
    found = advised(config(tmp_path, ("optimizer.lr", lr)))
    assert found.rate.proposed == proposed


@pytest.mark.parametrize(
    ("schedule", "share", "key", "proposed"),
    [
        ({"name": "constant"}, 0.0, "schedule.warmup_steps", 15),
        ({"name": "linear", "warmup_steps": 14}, 14 / 300, "schedule.warmup_steps", 15),
        ({"name": "linear", "warmup_steps": 15}, 0.05, "schedule.warmup_steps", None),
        ({"name": "linear", "warmup_steps": 30}, 0.1, "schedule.warmup_steps", None),
        ({"name": "linear", "warmup_steps": 31}, 31 / 300, "schedule.warmup_steps", 30),
        ({"name": "cosine", "warmup_epochs": 3.0}, 0.3, "schedule.warmup_epochs", 1.0),
        ({"name": "cosine", "warmup_epochs": 0.1}, 0.01, "schedule.warmup_epochs", 0.5),
    ],
)
def test_the_warm_up_is_a_share_of_all_steps(schedule, share, key, proposed, tmp_path):
    given = config(tmp_path, schedule=schedule)
    found = advised(given)
    assert found.warmup.value == pytest.approx(share)
    assert (found.warmup.key, found.warmup.proposed) == (key, proposed)
    if proposed is not None:
        again = advised(TrainingConfig.model_validate(assign(given.model_dump(), [(key, proposed)])))
        assert again.warmup.proposed is None


def test_what_rounding_keeps_from_the_range_is_not_proposed(tmp_path):
    found = advised(config(tmp_path, schedule={"name": "constant"}), steps=10)
    assert found.warmup.proposed == 1  # a tenth
    few = advised(config(tmp_path, schedule={"name": "constant"}, epochs=1), steps=9)
    assert few.warmup.proposed is None


@pytest.mark.parametrize("schedule", [{"name": "one_cycle"}, {"name": "sequence", "parts": [{"schedule": {"name": "constant"}}]}])
def test_a_schedule_that_rises_by_itself_is_given_no_warm_up(schedule, tmp_path):
    found = advised(config(tmp_path, schedule=schedule))
    assert found.warmup is None


@pytest.mark.parametrize(
    "more",
    [
        {"start": None},
        {"optimizer": {"name": "sgd", "lr": 0.1}},
        {"start": None, "task": {**HUGGING_FACE, "options": {"model": "bert", "lora": {"r": 8}}}, "data": None, "model": None},
        {"start": None, "task": {**HUGGING_FACE, "options": {"model": {"type": "bert"}}}, "data": None, "model": None},
    ],
    ids=["drawn weights", "another optimizer", "adapters of peft", "a model's config alone"],
)
def test_nothing_is_advised_of(more, tmp_path):
    assert advised(config(tmp_path, **more)) is None


def test_a_folder_of_hugging_face_holds_given_weights(tmp_path):
    task = {**HUGGING_FACE, "options": {"model": "bert"}}
    assert advised(config(tmp_path, start=None, task=task, data=None, model=None)) is not None


def test_adapters_take_other_rates(tmp_path):
    assert advised(config(tmp_path, strategies=[{"name": "lora"}])) is None


def test_a_page_that_came_before_the_numbers_means_the_shipped_ones():
    names = ("fine_tuning", "rate_", "warmup_")
    kept = {key: value for key, value in phase_page("planning", None).settings.items() if not key.startswith(names)}
    assert PlanningSettings.model_validate(kept) == SETTINGS


@pytest.mark.slow
@pytest.mark.usefixtures("tools_here")
def test_planning_tells_it_and_its_gate_holds_all_the_same(cli, tmp_path):
    import torch
    from safetensors.torch import save_file
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 2))
    for name, start in (("drawn", None), ("given", START)):
        project = write_rings(tmp_path / name, **({"start": start} if start else {}))
        save_file(model.state_dict(), project.root / "first.safetensors")
        cli("phase", "run", "planning", "--project", project.root, "--set", "optimizer.lr=0.01", code=0)
        folder = project.phase_dir("planning")
        told = read_json(folder / "record.json")["evidence"].get("fine_tuning")
        text = (folder / "reproducibility_manifest.md").read_text("utf-8")
        assert (told is None) == (start is None)
        assert ("fine-tuning 226 parameters" in text) == (start is not None)
        assert ("`optimizer.lr` = 0.0001 is the nearest" in text) == (start is not None)
