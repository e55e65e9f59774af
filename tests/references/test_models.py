"""ReferenceInputs models on a task's rows: what they read, what they answer, and how far a network is from them."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.dummy import DummyClassifier

from mltrainer.records.job import ReferenceSettings
from mltrainer.records.partial import partial
from mltrainer.references import job
from mltrainer.references.job import Asked, compare
from mltrainer.references.models import PlainModel, fit, predict, references
from mltrainer.references.packages import Setting, catboost
from mltrainer.tasks.builtin import ReferenceInputs

ASKED = Asked(level=0.95, resamples=200, draws=10**7, sign=1, seed=42)
GENERATOR = np.random.default_rng(7)
CELLS = GENERATOR.normal(size=(200, 3)).astype(np.float32)
CELLS[:, 2] = np.arange(200) % 3  # a category
CELLS[::9] = np.nan
LABELS = np.where(np.nan_to_num(CELLS[:, 2]) == 1, 2, 0)  # class 1 is in no row
TABLE = ReferenceInputs("table", CELLS, LABELS, (2,))
TEXTS = ReferenceInputs("texts", ["good film", "bad film"] * 20, np.arange(40) % 2)
PIXELS = ReferenceInputs("pixels", GENERATOR.random((40, 9), dtype=np.float32), np.arange(40) % 2)


def predicted(reference: PlainModel, plain: ReferenceInputs, classes: int) -> torch.Tensor:
    model = reference.make(Setting(plain, 3))
    fit(model, plain)
    return predict(model, plain.inputs, classes)


@pytest.mark.parametrize("reference", references("table", classification=True), ids=lambda one: one.name)
def test_a_class_without_a_training_row_is_never_predicted_and_its_logit_is_finite(reference):
    found = predicted(reference, TABLE, 3)
    assert found.shape == (200, 3)
    assert bool(found.isfinite().all())
    assert 1 not in found.argmax(1)
    assert torch.equal(found, predicted(reference, TABLE, 3))


def test_categories_are_declared_and_told_apart():
    seen = ~np.isnan(CELLS[:, 2])
    for one in references("table", classification=True)[1:]:
        assert (predicted(one, TABLE, 3).argmax(1).numpy() == LABELS)[seen].all(), one.name


def test_the_models_of_a_package_are_there_where_it_is_installed(monkeypatch):
    pytest.importorskip("lightgbm")
    assert "lightgbm" in [one.name for one in references("table", classification=False)]
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert [one.name for one in references("table", classification=False)] == ["constant", "linear", "boosting"]


def test_a_category_that_no_training_row_has_is_missing_to_the_models_of_packages():
    pytest.importorskip("lightgbm")
    model = next(one for one in references("table", classification=True) if one.name == "lightgbm").make(Setting(TABLE, 3))
    fit(model, TABLE)
    unknown, missing = CELLS[1:2].copy(), CELLS[1:2].copy()
    unknown[:, 2], missing[:, 2] = 77, np.nan
    assert torch.equal(predict(model, unknown, 3), predict(model, missing, 3))


@pytest.mark.parametrize("plain", [TEXTS, PIXELS], ids=["texts", "pixels"])
def test_texts_and_images_have_models_of_their_own(plain):
    found = {one.name: predicted(one, plain, 2).argmax(1).numpy() for one in references(plain.form, classification=True)}
    assert (found["constant"] == found["constant"][0]).all()
    assert (found["linear"] == plain.targets).mean() > 0.7


def test_quantities_are_predicted_in_their_own_units():
    plain = ReferenceInputs("table", CELLS, 1000 + 5 * np.nan_to_num(CELLS[:, 0]).astype(float), (2,))
    mean, ridge, boosting = (predicted(one, plain, 0) for one in references("table", classification=False)[:3])
    assert mean[0] == pytest.approx(plain.targets.mean())
    assert (ridge - torch.from_numpy(plain.targets)).abs().mean() < (mean - torch.from_numpy(plain.targets)).abs().mean() / 5
    assert boosting.dtype == torch.float32


# --- comparing ------------------------------------------------------------------------------------


def hits(outputs: torch.Tensor, _targets: torch.Tensor) -> float:
    return float(outputs.mean())


def right(share: float, rows: int = 400) -> torch.Tensor:
    return (torch.arange(rows) < share * rows).float()


@pytest.mark.parametrize(
    ("other", "sign", "verdict"),
    [(0.9, 1, "behind"), (0.3, 1, "ahead"), (0.605, 1, "level"), (0.9, -1, "ahead"), (0.3, -1, "behind"), (0.6, 1, "level")],
)
def test_a_network_is_behind_where_the_whole_lead_is_on_the_other_side_of_zero(other, sign, verdict):
    asked = Asked(**{**vars(ASKED), "sign": sign})
    found = compare(right(0.6), {"it": right(other)}, torch.zeros(400), hits, asked).others["it"]
    assert found.verdict == verdict
    assert found.lead[0] <= sign * (0.6 - other) <= found.lead[1]


def test_a_resample_without_a_number_gives_no_verdict():
    found = compare(right(0.6), {"it": right(0.6) * torch.nan}, torch.zeros(400), hits, ASKED).others["it"]
    assert (found.verdict, found.lead, found.interval) == (None, None, None)


def test_many_rows_are_drawn_less_often_but_a_hundred_times():
    assert [ASKED.resamples_of(rows) for rows in (10, 80_000, 10**7)] == [200, 125, 100]


# --- what may go wrong ----------------------------------------------------------------------------


def fitted(make: Any, seconds: float = 5) -> job.Fit:
    return job._fitted(PlainModel("it", "a model", make), Setting(TEXTS, 1), TEXTS, 2, seconds)


def test_a_model_that_fails_says_why_in_its_row():
    assert fitted(lambda _: 1 / 0).reason == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(("classes", "is_fitted"), [(3, True), (30, True), (3000, False)])
def test_a_model_is_left_out_by_what_it_reads_and_not_by_a_clock(classes, is_fitted):
    model = PlainModel("it", "a model", lambda _: DummyClassifier(), cell_ns=1000)
    found = job._fitted(model, Setting(TABLE, 1), TABLE, classes, 60)
    assert (found.outputs is not None) == is_fitted
    assert found.reason == (None if is_fitted else "this number of rows, columns and classes would take it longer than 60 s")


def test_the_time_that_a_fit_is_expected_to_take_is_about_the_one_it_takes():
    rows = np.random.default_rng(1).normal(size=(20_000, 20)).astype(np.float32)
    plain = ReferenceInputs("table", rows, (rows[:, 0] * rows[:, 1] > 0).astype(np.int64))
    linear, boosting = references("table", classification=True)[1:3]
    assert linear.seconds(plain, 2) < 0.1
    assert boosting.seconds(plain, 2) == pytest.approx(0.6, rel=0.5)
    assert boosting.seconds(plain, 10) == 10 * boosting.seconds(plain, 2)


def test_more_rows_than_the_limits_allow_are_drawn_by_the_seed():
    limits = partial(ReferenceSettings, {"max_rows": 50, "max_cells": 120})
    ids = np.arange(100, 200)
    found = job._some(ids, TABLE, limits, 1)
    assert len(found) == 40
    assert set(found) <= set(ids)
    assert np.array_equal(found, job._some(ids, TABLE, limits, 1))
    assert not np.array_equal(found, job._some(ids, TABLE, limits, 2))
    assert len(job._some(ids, TEXTS, limits, 1)) == 50


def test_a_fit_is_kept_for_the_next_run_on_the_same_rows(tmp_path):
    found = fitted(lambda asked: references("texts", classification=True)[1].make(asked))
    job._store_fit(tmp_path / "it", found)
    kept = job._stored_fit(tmp_path / "it")
    assert kept is not None
    assert found.outputs is not None
    assert torch.equal(kept.outputs, found.outputs)
    assert (kept.seconds, kept.rows) == (found.seconds, 40)
    (tmp_path / "it.npy").write_bytes(b"damaged")
    assert job._stored_fit(tmp_path / "it") is None


def test_a_task_without_plain_rows_has_no_models():
    opened = SimpleNamespace(split=lambda _: SimpleNamespace(ids=np.arange(3)))
    task = SimpleNamespace(reference_inputs=lambda _: None)
    assert job._fits(opened, task, SimpleNamespace(config=None), None, None, None) == []  # type: ignore[arg-type]


def test_catboost_is_given_categories_as_texts(monkeypatch):
    """Of CatBoost, which is too large to be installed for this, a stand-in that asks what it asks."""
    seen: list[Any] = []

    class Classifier:
        classes_ = np.array([0, 2])

        def __init__(self, **arguments: Any) -> None:
            self.arguments = arguments

        def fit(self, frame: Any, _targets: np.ndarray) -> None:
            seen.append((self.arguments["cat_features"], self.arguments["thread_count"]))
            assert all(type(cell) is str for name in self.arguments["cat_features"] for cell in frame[name])

        def predict_proba(self, frame: Any) -> np.ndarray:
            return np.full((len(frame), 2), 0.5)

    monkeypatch.setitem(sys.modules, "catboost", SimpleNamespace(CatBoostClassifier=Classifier))
    model = catboost("CatBoostClassifier")(Setting(TABLE, 3, "balanced"))
    fit(model, TABLE)
    assert seen == [(["x2"], 1)]
    assert model.model.arguments["auto_class_weights"] == "Balanced"
    assert predict(model, CELLS, 3).shape == (200, 3)
