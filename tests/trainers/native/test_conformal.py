"""Sets and intervals against another library, against sums by hand, and their coverage over many draws."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from torch import Tensor, nn

from mltrainer.checkpointing import inference_script as script
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.records.finalization import Conformal
from mltrainer.tasks.samples import Samples
from mltrainer.tasks.statistics import rank
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.conformal import Answers, answers_of, calibrated, covered, fits, require_samples, score_of

CLASSES = ["a", "b", "c", "d", "e"]
LOGITS = {"output": "logits", "classes": CLASSES}
VALUE = {"output": "value", "classes": None}


def config(**conformal: Any) -> TrainingConfig:
    return TrainingConfig.model_validate(
        {
            "name": "x",
            "task": {"use": "x:Y"},
            "metric": {"name": "loss", "mode": "min"},
            "conformal": {"coverage": 0.9, **conformal},
        }
    )


class Given(Task):
    """A task whose model gives what it reads."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.float().mean()


def samples(outputs: np.ndarray, truth: np.ndarray) -> Samples:
    tensors = (torch.from_numpy(outputs.astype(np.float32)), torch.from_numpy(truth))
    return Samples(ids=np.arange(len(truth)), tensors=tensors)


def of_classes(random: np.random.Generator, count: int, scale: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Return logits, and classes drawn by their softmax."""
    logits = (random.normal(size=(count, len(CLASSES))) * scale).astype(np.float32)
    chances = script.probabilities(logits)
    return logits, (chances.cumsum(1) > random.random((count, 1))).argmax(1)


def of_values(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    predicted = random.normal(size=(count, 1)).astype(np.float32)
    return predicted, (predicted[:, 0] + random.standard_t(3, size=count)).astype(np.float32)


def from_validation(logits: np.ndarray, truth: np.ndarray, interface: Any, **asked: Any) -> Conformal:
    return calibrated(Given(), nn.Identity(), config(**asked), samples(logits, truth), interface)


# --- another library ------------------------------------------------------------------------------


class Chances(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    def __init__(self) -> None:
        self.classes_, self.n_features_in_, self.is_fitted_ = np.arange(len(CLASSES)), len(CLASSES), True

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        return script.probabilities(x)

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x.argmax(1))


class Values(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    def __init__(self) -> None:
        self.n_features_in_, self.is_fitted_ = 1, True

    def fit(self, x: np.ndarray, y: np.ndarray) -> Values:
        raise AssertionError("it is fitted")

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x[:, 0])


@pytest.mark.parametrize("coverage", [0.6, 0.8, 0.9])
def test_sets_are_those_of_mapie(coverage):
    mapie = pytest.importorskip("mapie.classification")
    random = np.random.default_rng(3)
    logits, truth = of_classes(random, 437)
    new, _ = of_classes(random, 500)
    found = from_validation(logits, truth, LOGITS, coverage=coverage)
    other = mapie.SplitConformalClassifier(Chances(), confidence_level=coverage, conformity_score="lac", prefit=True)
    _, theirs = other.conformalize(logits, truth).predict_set(new)
    expected = theirs[:, :, 0]
    expected[np.arange(500), new.argmax(1)] = True  # where they leave a set empty
    assert found.rank == rank(coverage, 437)
    assert (script.plausible(script.probabilities(new), found.written()) == expected).all()


@pytest.mark.parametrize("coverage", [0.6, 0.8, 0.9])
def test_intervals_are_those_of_mapie(coverage):
    mapie = pytest.importorskip("mapie.regression")
    random = np.random.default_rng(4)
    predicted, truth = of_values(random, 437)
    new, _ = of_values(random, 50)
    found = from_validation(predicted, truth, VALUE, coverage=coverage)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = mapie.SplitConformalRegressor(Values(), confidence_level=coverage, prefit=True)
        _, theirs = other.conformalize(predicted.astype(float), truth.astype(float)).predict_interval(new.astype(float))
    assert script.interval(new[:, 0], found.written()) == pytest.approx(theirs[:, :, 0], abs=1e-5)


# --- by hand ----------------------------------------------------------------------------------------


def test_aps_adds_up_what_is_less_likely_and_fits_the_likeliest_class_best():
    chances = np.array([[0.1, 0.5, 0.15, 0.25], [0.25, 0.25, 0.25, 0.25]])
    assert script.conformity(chances, "aps") == pytest.approx(np.array([[0.0, 1.0, 0.1, 0.25], [1.0, 0.5, 0.25, 0.0]]))
    doubt = {"score": "aps", "threshold": 0.1}
    assert script.plausible(chances, doubt).tolist() == [[False, True, True, True], [True, True, True, False]]


def test_what_is_unlikely_does_not_get_lost_beside_what_is_likely():
    chances = script.probabilities(np.array([[0.0, -50.0, -60.0]]))
    assert script.conformity(chances, "aps")[0, 1] == pytest.approx(math.exp(-60), rel=1e-9, abs=0)


def test_a_set_has_the_likeliest_class_and_all_classes_where_outputs_are_no_numbers():
    logits = np.array([[0.0, 5.0, 1.0], [np.nan, 0.0, 0.0]])
    for score in ("lac", "aps"):
        found = script.plausible(script.probabilities(logits), {"score": score, "threshold": 0.9999})
        assert found.tolist() == [[False, True, False], [True, True, True]]


def test_equal_probabilities_of_another_runtime_stay_in_the_set():
    chances = np.array([[0.6, 0.4]])
    for nearly in (0.4, 0.4 * (1 + 5e-5)):
        assert script.plausible(chances, {"score": "lac", "threshold": nearly}).all()
    assert not script.plausible(chances, {"score": "lac", "threshold": 0.4 * (1 + 2e-4)}).all()


def test_answers_tell_the_set_with_the_likeliest_class_first_and_the_interval():
    spec = {"output": "logits", "classes": ["x", "y", "z"], "conformal": {"score": "lac", "threshold": 0.2}}
    first, second = script.answers(np.log(np.array([[0.3, 0.6, 0.1], [0.1, 0.1, 0.8]])), spec)
    assert (first["prediction"], first["set"], second["set"]) == ("y", ["y", "x"], ["z"])
    both = [[0.0], [3.0]]
    two = list(script.answers(np.array(both), {**spec, "classes": ["no", "yes"]}))
    assert [row["set"] for row in two] == [["no", "yes"], ["yes"]]
    value = {"output": "value", "classes": None, "conformal": {"score": "residual", "threshold": 0.5}}
    assert list(script.answers(np.array([[2.0], [np.nan]]), value)) == [
        {"prediction": 2.0, "interval": [1.5, 2.5]},
        {"prediction": None, "interval": [None, None]},
    ]


def test_answers_are_without_doubt_where_the_interface_has_none():
    assert set(next(iter(script.answers(np.zeros((1, 2)), {"output": "logits", "classes": ["x", "y"]})))) == {
        "prediction",
        "probabilities",
    }
    assert list(script.answers(np.zeros((1, 1)), {"output": "value"})) == [{"prediction": 0.0}]


def test_what_is_covered_is_counted_by_class_and_by_size():
    chances = np.array([[0.7, 0.2, 0.1], [0.5, 0.45, 0.05], [0.1, 0.8, 0.1], [0.34, 0.33, 0.33]])
    answers = Answers(np.log(chances), np.array([0, 1, 2, 2]), ["x", "y", "z"])
    found = covered(answers, Conformal(coverage=0.9, score="lac", threshold=0.4, samples=9, rank=9), 0.95)
    assert (found.samples, found.covered, found.share, found.mean_size, found.alone) == (4, 2, 0.5, 1.25, 3)
    assert (found.weakest.name, found.weakest.samples, found.weakest.covered) == ("z", 2, 0)
    assert found.interval == pytest.approx([0.150, 0.850], abs=1e-3)  # Wilson's of 2 in 4


def test_a_class_without_rows_is_not_the_one_covered_least():
    answers = Answers(np.log(np.array([[0.1, 0.7, 0.2], [0.1, 0.2, 0.7]])), np.array([1, 1]), ["x", "y", "z"])
    found = covered(answers, Conformal(coverage=0.9, score="lac", threshold=0.5, samples=9, rank=9), 0.95)
    assert (found.weakest.name, found.weakest.samples, found.weakest.covered) == ("y", 2, 1)


# --- over many draws --------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["lac", "aps", "residual"])
@pytest.mark.parametrize("count", [19, 60])
def test_the_coverage_over_many_draws_is_the_one_that_was_asked_for(score, count):
    """Its mean is rank / (n + 1), and larger only where a set is filled up or scores are tied (Lei et al., 2018, theorem 2.2)."""
    random, place, shares = np.random.default_rng(5), rank(0.9, count), []
    draw, names = (of_values, []) if score == "residual" else (of_classes, CLASSES)
    for _ in range(600):
        validation, test = Answers(*draw(random, count), names), Answers(*draw(random, 200), names)
        threshold = float(np.sort(fits(validation, score))[-place])
        doubt = Conformal(coverage=0.9, score=score, threshold=abs(threshold), samples=count, rank=place)
        shares.append(float(covered(test, doubt, 0.95).share))
    error = float(np.std(shares)) / math.sqrt(len(shares))
    assert np.mean(shares) >= place / (count + 1) - 4 * error
    assert np.mean(shares) <= place / (count + 1) + 4 * error + 0.005


# --- what is refused --------------------------------------------------------------------------------


def test_too_few_samples_are_told_with_how_many_it_takes():
    assert require_samples(0.9, 9) == 9
    with pytest.raises(InputError, match=r"a coverage of 0.9 needs at least 9 validation samples, found 8"):
        require_samples(0.9, 8)


def test_outputs_of_which_nothing_is_said_are_refused():
    assert score_of(config(), LOGITS) == "lac"
    assert score_of(config(score="aps"), LOGITS) == "aps"
    assert score_of(config(), VALUE) == "residual"
    with pytest.raises(InputError, match="your task does not say that they are"):
        score_of(config(), {})
    with pytest.raises(InputError, match=r"aps makes sets of classes, and the outputs are values"):
        score_of(config(score="aps"), VALUE)


@pytest.mark.parametrize(
    ("outputs", "truth", "interface", "told"),
    [
        (np.zeros((12, 4)), np.zeros(12, np.int64), LOGITS, r"logits of 5 classes, .*, found outputs of shape \[12, 4\]"),
        (np.zeros((12, 5)), np.full(12, 5), LOGITS, "found targets that are no class numbers"),
        (np.zeros((12, 5)), np.full(12, 0.5), LOGITS, "found targets that are no class numbers"),
        (np.zeros((12, 2)), np.zeros(12), VALUE, r"one value, with one as target, .*, found outputs of shape \[12, 2\]"),
        (np.zeros((12, 5)), np.zeros((12, 5), np.int64), LOGITS, r"targets of shape \[12, 5\]"),
    ],
)
def test_outputs_and_targets_that_are_not_as_they_are_said_to_be_are_refused(outputs, truth, interface, told):
    with pytest.raises(InputError, match=told):
        answers_of(Given(), nn.Identity(), config(), samples(outputs, truth), "validation", interface)


def test_outputs_that_are_no_numbers_fit_worst_and_too_many_of_them_are_refused():
    logits, truth = of_classes(np.random.default_rng(1), 40)
    logits[:2] = np.nan
    assert math.isfinite(float(from_validation(logits, truth, LOGITS).threshold))
    logits[:8] = np.nan
    with pytest.raises(InputError, match=r"a coverage of 0.9 needs finite outputs of 37 of 40 validation samples"):
        from_validation(logits, truth, LOGITS)


def test_outputs_are_computed_in_fp32_as_the_delivered_model_does():
    seen: list[torch.dtype] = []

    class Layer(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            found = nn.functional.linear(x, torch.eye(5))
            seen.append(found.dtype)
            return found

    logits, truth = of_classes(np.random.default_rng(1), 10)
    asked = config().model_copy(update={"precision": "bf16"})
    answers_of(Given(), Layer(), asked, samples(logits, truth), "validation", LOGITS)
    assert set(seen) == {torch.float32}


class Altered(Given):
    """A task whose forward() changes what the model gives."""

    def forward(self, model: nn.Module, batch: Any) -> Any:
        outputs, targets = super().forward(model, batch)
        return self.change(outputs), targets

    def change(self, outputs: Tensor) -> Tensor:
        return outputs / 3


class Same(Altered):
    def change(self, outputs: Tensor) -> Tensor:
        return outputs.log_softmax(1)


def test_outputs_that_the_delivered_model_does_not_give_are_refused():
    logits, truth = of_classes(np.random.default_rng(1), 40)
    given = samples(logits, truth)
    with pytest.raises(InputError, match=r"forward\(\) of your task returns other outputs than its model gives"):
        calibrated(Altered(), nn.Identity(), config(), given, LOGITS)
    plain = calibrated(Given(), nn.Identity(), config(), given, LOGITS)
    assert calibrated(Same(), nn.Identity(), config(), given, LOGITS).threshold == pytest.approx(plain.threshold, rel=1e-5)
