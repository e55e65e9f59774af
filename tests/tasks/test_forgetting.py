"""Forgotten training samples leave the training split before anything is fitted on it, and their slots stay empty."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.tasks.forgetting import Forgotten, forgotten
from mltrainer.tasks.opening import OpenTask, open_task
from mltrainer.tasks.samples import Samples
from mltrainer.trainers.native.data.addresses import plan_for, training_steps
from tests.projects import PROJECT

DIGITS: dict[str, Any] = {
    "name": "digits",
    "task": {"kind": "image_classification"},
    "data": {"source": "sklearn:digits"},
    "model": {"name": "mlp"},
    "metric": {"name": "accuracy", "mode": "max"},
}


def config(root: Path, rows: list[int] | None, **changes: Any) -> TrainingConfig:
    if rows is not None:
        (root / "rows.txt").write_text("".join(f"{row}\n" for row in rows))
        changes = {**changes, "forget": "rows.txt"}
    return TrainingConfig.model_validate({**DIGITS, **changes})


def opened(root: Path, rows: list[int] | None, **changes: Any) -> OpenTask:
    return open_task(config(root, rows, **changes), root)


@pytest.mark.parametrize("accumulate", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_each_step_has_its_own_samples_without_the_forgotten_ones(accumulate, seed):
    rows = np.arange(29)
    settings = TrainingConfig.model_validate({**PROJECT, "batch_size": 3, "accumulate": accumulate, "epochs": 2})
    whole = Samples(rows + 100, (torch.arange(29.0)[:, None], torch.arange(29)))
    gone = np.random.default_rng(seed).choice(29, 15, replace=False) + 100
    left = forget(whole, gone)
    assert (len(left), left.slots) == (14, 29)
    plan = plan_for(settings, left)
    assert plan == plan_for(settings, whole)
    for start in (0, 3):
        pairs = list(zip(*(training_steps(one, plan, settings, start) for one in (whole, left)), strict=True))
        assert len(pairs) == plan.steps - start
        for before, after in pairs:
            expected = [ids[~np.isin(ids, gone)].tolist() for ids in before.micro_ids]
            assert [ids.tolist() for ids in after.micro_ids] == [ids for ids in expected if ids]
            assert after.ids.tolist() == [row for ids in expected for row in ids]
            assert [(micro[1] + 100).tolist() for micro in after.micro_batches] == [ids for ids in expected if ids]
            assert after.count == len(after.micro_batches)


def forget(whole: Samples, gone: np.ndarray) -> Samples:
    rows = Forgotten(np.sort(gone), forgotten_row())
    return rows.left(whole, {"train": whole.ids})


def forgotten_row() -> Any:
    return type("Row", (), {"path": "rows.txt"})()


@pytest.mark.parametrize("wanted", [1, 5, 14, 40])
def test_measured_training_samples_are_those_of_before_where_none_is_forgotten(wanted):
    whole = Samples(np.arange(40), (torch.arange(40.0), torch.arange(40)))
    measured = whole.ids[whole.spread(wanted)]
    others = np.setdiff1d(whole.ids, measured)[:7]
    if len(others):
        left = forget(whole, others)
        assert left.ids[left.spread(wanted)].tolist() == measured.tolist()
    left = forget(whole, measured[:1])
    found = left.ids[left.spread(wanted)]
    assert len(found) == min(wanted, 39)
    assert len(np.intersect1d(found, measured)) == len(measured) - 1
    assert (np.diff(found) > 0).all()


def test_nothing_is_fitted_on_a_forgotten_sample(tmp_path):
    before = opened(tmp_path, None)
    rows = np.sort(before.split("train").ids[:40]).tolist()
    after = opened(tmp_path, rows)
    left = np.setdiff1d(before.split("train").ids, rows)
    assert after.split("train").ids.tolist() == left.tolist()
    pixels = after.task.rows(left)[0].double()
    assert np.allclose(after.task._mean, pixels.mean((0, 2, 3)).numpy())
    assert not np.allclose(before.task._mean, after.task._mean, atol=1e-12)
    assert before.fitted() != after.fitted()
    assert opened(tmp_path, rows).fitted() == after.fitted()
    assert len({before.data_sha256, after.data_sha256, opened(tmp_path, rows[1:]).data_sha256}) == 3
    assert [row.path for row in after.files if row.path == "rows.txt"] == ["rows.txt"]
    for split in ("validation",):
        assert after.split(split).ids.tolist() == before.split(split).ids.tolist()


def test_planning_tells_which_samples_are_forgotten(tmp_path):
    rows = opened(tmp_path, None).split("train").ids[:5].tolist()
    found = opened(tmp_path, rows).facts(DataLimits())
    (told,) = (row["what"] for row in found["findings"] if "forgotten" in row["what"])
    assert told.startswith("5 training samples are forgotten, and their slots in each epoch are empty: ")
    assert told.endswith(", ...")


def test_only_training_samples_can_be_forgotten(tmp_path):
    whole = opened(tmp_path, None)
    row, held_out = int(whole.split("train").ids[0]), whole.split("validation").ids[:5].tolist()
    with pytest.raises(InputError) as error:
        opened(tmp_path, [row, *held_out, 99999])
    assert error.value.where == "forget: rows.txt"
    shown = ", ".join(map(str, held_out[:3]))
    assert error.value.message == f"in the validation split: {shown} and 2 more; no sample has the number 99999"
    with pytest.raises(InputError, match="to be forgotten"):
        opened(tmp_path, whole.split("train").ids.tolist())


def test_a_run_without_the_key_has_its_digest_of_before():
    from mltrainer.configs.project import config_digest

    assert config_digest(TrainingConfig.model_validate({**DIGITS, "forget": None})) == config_digest(
        TrainingConfig.model_validate(DIGITS)
    )
    assert config_digest(TrainingConfig.model_validate({**DIGITS, "forget": "a.txt"})) != config_digest(
        TrainingConfig.model_validate(DIGITS)
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"split": {"folds": 3}}, "does not go with split.folds"),
        ({"forget": "../rows.txt"}, "outside of the project"),
        ({"forget": "/tmp/rows.txt"}, "outside of the project"),
    ],
)
def test_keys_that_do_not_fit_are_refused(changes, why):
    with pytest.raises(ValueError, match=why):
        TrainingConfig.model_validate({**DIGITS, "forget": "rows.txt", **changes})


def test_tokens_that_were_learned_from_the_text_are_refused(tmp_path):
    (tmp_path / "story.txt").write_text("it was a dark night. " * 400)
    keys: dict[str, Any] = {
        "task": {"kind": "text_generation"},
        "data": {"source": "story.txt", "tokens": {"kind": "char", "length": 16}},
        "model": {"name": "gru"},
        "metric": {"name": "loss", "mode": "min"},
    }
    with pytest.raises(InputError, match="tokens were learned from the whole training text"):
        opened(tmp_path, [3], **keys)


def test_an_order_that_depends_on_the_samples_is_refused(tmp_path):
    row = int(opened(tmp_path, None).split("train").ids[0])
    with pytest.raises(InputError, match="orders the training samples by what is in them"):
        opened(tmp_path, [row], strategies=[{"name": "curriculum", "by": "brightness", "begin": 0.5, "epochs": 2}])


def test_a_stream_is_refused():
    from mltrainer.tasks.samples import Stream

    samples = Samples(np.arange(3), dataset=Stream([1, 2, 3], 3))
    with pytest.raises(InputError, match="come as a stream"):
        forget(samples, np.array([1]))


def test_without_the_key_nothing_is_read(tmp_path):
    assert forgotten(None, tmp_path) is None
    assert math.isfinite(opened(tmp_path, None).split("train").slots)
