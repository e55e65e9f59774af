"""The one key: what it may say, and where it belongs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import mltrainer
from mltrainer.companions.trackers.sink import ADAPTERS
from mltrainer.configs.project import load_project
from mltrainer.configs.tracking import Tracking
from mltrainer.errors import InputError
from mltrainer.phases.finalization import final_config
from mltrainer.project.doctor import EXTRAS
from tests.companions.monitor.invented import PROJECT


def tracking(folder: Path, text: str) -> Tracking | None:
    path = folder / "mltrainer.yaml"
    path.write_text(f"{PROJECT}tracking: {text}\n", "utf-8")
    return load_project(path).tracking


def test_names_alone_mean_the_defaults_and_no_name_means_off(tmp_path):
    found = tracking(tmp_path, "[tensorboard, wandb]")
    assert [name for name, _ in found.named()] == ["tensorboard", "wandb"]
    assert found == tracking(tmp_path, "{tensorboard: {}, wandb: {}}")
    assert tracking(tmp_path, "[]") is None is tracking(tmp_path, "null")


def test_a_wrong_name_is_refused_with_the_nearest(tmp_path):
    with pytest.raises(InputError, match=r"mltrainer.yaml:6.*did you mean 'tensorboard'"):
        tracking(tmp_path, "[tensorbord]")


def test_a_name_without_its_list_is_refused_with_what_to_write(tmp_path):
    with pytest.raises(InputError, match=r"key tracking: a list .* such as \[tensorboard\], .*; found 'wandb'"):
        tracking(tmp_path, "wandb")


@pytest.mark.parametrize(("scheme", "told"), [("http", "the address contains a password"), ("postgres", "an address begins")])
def test_a_password_is_refused_and_not_repeated(tmp_path, scheme, told):
    with pytest.raises(InputError, match=told) as caught:
        tracking(tmp_path, f"{{mlflow: {{uri: '{scheme}://me:abcdefgh@host'}}}}")
    assert "abcdefgh" not in str(caught.value)


def test_each_tracker_has_an_adapter_and_a_way_to_get_it():
    assert set(Tracking.model_fields) == set(ADAPTERS)
    ways = [way for _, _, way in EXTRAS]
    assert not [name for name in ADAPTERS if f"pip install 'mltrainer[{name}]'" not in ways]


def test_finalization_takes_plannings_trackers():
    ctx: Any = SimpleNamespace(assignments=("tracking=[tensorboard]",))
    with pytest.raises(InputError, match="--set tracking belongs to planning: all phases are shown alike"):
        final_config(ctx, {})


def test_fit_which_leaves_nothing_behind_refuses_it():
    with pytest.raises(InputError, match="trackers have nothing to read"):
        mltrainer.fit({"kind": "image_classification"}, data={"source": "x"}, model={"name": "mlp"}, tracking=["tensorboard"])
