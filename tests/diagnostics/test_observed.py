"""Rules over what is observed beside a training: each finds its fault by name, and is silent on a sound run and its traps."""

from __future__ import annotations

from typing import Any

import pytest

from mltrainer.configs.pages import diagnostic_page
from mltrainer.diagnostics.rules import RULES, assess, diagnose, fitting
from mltrainer.diagnostics.signals import Finding, Run
from tests.diagnostics.observed import DATA, SEEN, beside, exploded, observed, of_numbers, of_sorted_numbers

START, LAST = "signals__start__model__", "history__9__signals__"
DATA_AT = "signals__start__data__"
OVERLAPPING = {f"{DATA_AT}neighbours": 0.7}


def say(name: str, run: dict[str, Any]) -> Finding:
    return RULES[name](Run.of(run), **diagnostic_page(name, None).thresholds)


def epochs(**values: Any) -> dict[str, Any]:
    """Return changes of every evaluation."""
    return {f"history__{nr}__{key}": value for nr in range(10) for key, value in values.items()}


def binary(trained: float | None = None, **output: float) -> dict[str, Any]:
    """Return a run of one logit for each target of 0 or 1; `trained` is its largest one at the end."""
    run = observed(**{f"{START}as_binary": 2.31, f"{START}target__largest": 1.0, f"{START}output__shape": [1]})
    run["signals"]["start"]["model"]["output"] |= output
    for each in run["history"]:
        each["signals"]["validation"]["output"] |= {**output, "largest": trained or output["largest"]}
    return run


def falling(losses: list[float]) -> dict[str, Any]:
    """Return a run that has losses and no metric."""
    rows = [{"epoch": nr, "step": nr, "train_loss": loss, "train": {}, "validation": {}} for nr, loss in enumerate(losses, 1)]
    return {"state": "finished", "metric": {"name": "loss", "mode": "min"}, "history": rows}


def flat(run: dict[str, Any], metrics: bool = True) -> dict[str, Any]:
    """Return a run whose losses do not move over twenty epochs, with or without a metric."""
    values = {"loss": 2.3, "accuracy": 0.1} if metrics else {"loss": 2.3}
    rows = [{**row, "epoch": 2 * row["epoch"], "train": values, "validation": values} for row in run["history"]]
    chosen = {} if metrics else {"metric": {"name": "loss", "mode": "min"}, "evaluation": None}
    return {**run, "history": rows, **chosen}


NORMS_ALONE: dict[str, Any] = {
    **epochs(layer_norms=[], update_ratios=[]),
    "layers": [],
    f"{START}weights": {"0": 0.58, "3": 0.57},
}


def lowered(*bits: int) -> dict[str, Any]:
    """Return a run in bf16, with the bits in which each of its layers computed."""
    modules = {str(nr): {"mean": 0.0, "std": 1.0, "largest": 3.0, "bits": found} for nr, found in enumerate(bits)}
    return observed(precision={"asked": "bf16", "chosen": "bf16", "reason": "the config says so"}, **{f"{START}modules": modules})


def in_fp16(*norms: float, scales: tuple[float, ...] = (65536.0,)) -> dict[str, Any]:
    """Return a run in fp16 with its layers' gradients, of which both are above zero in fp32, and the loss scales in turn."""
    run = observed(
        unlearned=True,
        precision={"asked": "fp16", "chosen": "fp16", "reason": "the config says so"},
        **epochs(layer_norms=[*norms], zero_gradients=0.97),
        **{f"{START}reached": ["0.weight", "3.weight"]},
    )
    for nr, one in enumerate(run["history"]):
        one["loss_scale"] = scales[min(nr, len(scales) - 1)]
    return run


FAULTS: list[tuple[str, str, dict[str, Any]]] = [
    ("symmetric_weights", "0.weight", observed(unlearned=True, **{f"{START}symmetric": ["0.weight"]})),
    ("dead_layers", "No gradient ever reached 0.weight: exactly zero", observed(**epochs(layer_norms=[0.0, 0.3]))),
    ("frozen_layers", "Gradients reached 0.weight, which never moved", observed(**epochs(update_ratios=[0.0, 1e-3]))),
    ("dead_units", "60 %", observed(unlearned=True, **{f"{LAST}validation__modules__1__dead": 0.6})),
    ("dead_units", "90 %", observed(**{f"{LAST}validation__modules__1__dead": 0.9})),
    ("saturation", "80 % of the inputs of 2", observed(**{f"{START}modules__2__saturated": 0.8})),
    ("output_activation", "normalizes them once more", observed(**{f"{START}output__sums_to_one": True})),
    ("output_activation", "rectifier", observed(**{f"{START}output__lowest": 0.0, f"{START}output__zero": 0.5})),
    ("loss_broadcast", "every output is compared", {**of_numbers()}),
    (
        "feature_collapse",
        "was 0.01 at the end",
        observed(**{f"history__{nr}__validation__feature_spread": 0.01 for nr in range(10)}),
    ),
    (
        "gradient_conflict",
        "gradients of near, far had a cosine of -0.7",
        observed(unlearned=True, **epochs(signals__cosines={"near, far": -0.7, "near, third": 0.3})),
    ),
    ("negative_loss", "nothing was learned", observed(unlearned=True, history__4__train_loss=-3.0)),
    (
        "negative_loss",
        "which has no lower end for targets from 0 to 9",
        observed(history__4__train_loss=-3.0, **{f"{START}as_binary": 2.31}),
    ),
    ("frozen_layers", "while the validation loss did", observed(**epochs(update_ratios=[0.0, 0.0]))),
    ("frozen_layers", "Of 0, 3 no weight is trained", observed(unlearned=True, **NORMS_ALONE)),
    ("unused_precision", "Of 3 linear layers and convolutions that were seen, 0 computed in bf16", lowered(32, 32, 32)),
    (
        "gradient_underflow",
        "they are too small for fp16. The loss scale was 65,536 from epoch 1, 0.5 from epoch 2, 1 from epoch 3",
        in_fp16(0.0, 0.3, scales=(65536.0, 0.5, 1.0)),
    ),
    ("output_activation", "from 0 to 1 throughout", binary(lowest=0.4, largest=0.6)),
    ("output_activation", "rectifier", binary(lowest=0.0, largest=3.0, zero=0.5)),
    ("evaluation_mode", "calls dropout of 0.5:", observed(**{f"{START}training_calls": ["dropout of 0.5"]})),
    (
        "nonfinite_data",
        "7 numbers",
        observed(**{f"{DATA_AT}not_finite": 7, "nonfinite": {"step": 3, "epoch": 1, "what": "loss", "samples": [1]}}),
    ),
    ("input_scale", "reach 3e+03", observed(**{f"{DATA_AT}largest": 3000.0})),
    ("input_scale", "deviation is 0.0001", observed(**{f"{DATA_AT}spread": 1e-4})),
    ("bad_initialization", "loss is 40", observed(**{f"{START}loss": 40.0})),
    ("unshuffled_data", "0 %", observed(signals__early__labels=[0.0] * 32)),
    (
        "unshuffled_data",
        "0 %",  # a sorted stream, whose first samples are of one class
        observed(signals__early__labels=[0.0] * 32, **{f"{START}target__classes": 1, f"{START}target__entropy": 0.0}),
    ),
    (
        "train_eval_mismatch",
        "in evaluation mode",
        observed(**{f"{LAST}evaluating": {"loss": 5.0, "accuracy": 0.2}, f"{LAST}training": {"loss": 0.1, "accuracy": 0.98}}),
    ),
    ("leakage", "60 % of the validation samples", observed(**{f"{DATA_AT}shared": 0.6})),
    ("leakage", "one feature alone", observed(**{f"{DATA_AT}telling": 1.0})),
    ("class_imbalance", "50 times", observed(**{f"{DATA_AT}counts": [500, 10], "evaluation": None})),
    (
        "label_noise",
        "nearest samples vote for 60 %",
        observed(
            **{f"{DATA_AT}neighbours": 0.6},
            **epochs(train={"loss": 0.1, "accuracy": 0.99}, validation={"loss": 2.0, "accuracy": 0.5}),
        ),
    ),
]

TRAPS: list[tuple[str, str, dict[str, Any]]] = [
    (
        "feature_collapse",
        "features that were alike at first alone",
        observed(**{f"history__{nr}__validation__feature_spread": 0.01 if nr < 2 else 0.4 for nr in range(10)}),
    ),
    ("gradient_conflict", "gradients at right angles", observed(unlearned=True, **epochs(signals__cosines={"near, far": -0.2}))),
    ("gradient_conflict", "a compromise that was learned", observed(**epochs(signals__cosines={"near, far": -0.9}))),
    (
        "gradient_conflict",
        "a conflict that is over",
        observed(
            unlearned=True,
            **{f"history__{nr}__signals__cosines": {"near, far": -0.9 if nr < 8 else 0.1} for nr in range(10)},
        ),
    ),
    ("symmetric_weights", "a head of zeros in a model that learns", observed(**{f"{START}symmetric": ["3.weight"]})),
    ("dead_layers", "one evaluation without a gradient", observed(history__9__layer_norms=[0.0, 0.0])),
    (
        "dead_layers",
        "a vector that stands for a missing value",
        observed(layers=["gap", "3.weight"], **epochs(layer_norms=[0.0, 0.3])),
    ),
    (
        "input_scale",
        "a built-in task, which scales its inputs",
        observed(**{f"{DATA_AT}largest": None, f"{DATA_AT}spread": None}),
    ),
    ("leakage", "a built-in task, which planning judges", observed(**{f"{DATA_AT}shared": None, f"{DATA_AT}telling": None})),
    ("frozen_layers", "norms of a pretrained model that are tuned", observed(**NORMS_ALONE)),
    ("unused_precision", "a last layer that is kept in 32 bits", lowered(16, 16, 32)),
    ("gradient_underflow", "layers whose gradients fp16 holds", in_fp16(1e-9, 0.3)),
    ("gradient_underflow", "a layer that the loss does not reach in fp32 either", observed(**epochs(layer_norms=[0.0, 0.3]))),
    ("dead_layers", "gradients that are too small for fp16", in_fp16(0.0, 0.3)),
    ("vanishing_gradients", "gradients that are too small for fp16", in_fp16(0.0, 0.3)),
    (
        "frozen_layers",
        "a rate so low that nothing moves",
        observed(**epochs(update_ratios=[0.0, 0.0], validation={"loss": 2.3, "accuracy": 0.1})),
    ),
    ("negative_loss", "the log-likelihood of a density", observed(history__4__train_loss=-3.0)),
    ("negative_loss", "a density without a metric", falling([1.0, -1.0, -2.0, -2.5, -2.6, -2.7])),
    ("output_activation", "logits that were near one another before training", binary(lowest=0.4, largest=0.6, trained=8.0)),
    ("bad_initialization", "a batch norm on raw inputs", observed(**{f"{START}loss": 40.0, f"{START}training_loss": 2.4})),
    ("evaluation_mode", "a model that was looked at", observed(**{f"{START}training_calls": []})),
    ("dead_units", "a wide layer that spares units", observed(**{f"{LAST}validation__modules__1__dead": 0.6})),
    (
        "frozen_layers",
        "updates of gradients so small that they round to zero",
        observed(**epochs(update_ratios=[0.0, 1e-3], layer_norms=[1e-9, 0.3])),
    ),
    (
        "dead_units",
        "inputs that hardly differ",
        observed(unlearned=True, **{f"{LAST}validation__modules__1__dead": 0.9, f"{DATA_AT}spread": 1e-4}),
    ),
    (
        "dead_units",
        "a run that ended as its loss exploded",
        exploded(),
    ),
    (
        "output_activation",
        "a layer that is zero for every sample",
        observed(**{f"{START}output__lowest": 0.0, f"{START}output__zero": 1.0}),
    ),
    ("bad_initialization", "samples sorted by class", observed(**{f"{START}target__classes": 2})),
    ("saturation", "a model that is sure at its end", observed(**{f"{LAST}validation__modules__2__saturated": 0.9})),
    (
        "output_activation",
        "probabilities in their own loss",
        observed(**{f"{START}output__sums_to_one": True, f"{START}loss": 2.3, f"{START}as_probabilities": 2.3}),  # not as_logits
    ),
    (
        "loss_broadcast",
        "other shapes in a loss that takes care",
        {
            **of_numbers(),
        },
    ),
    ("nonfinite_data", "masked values", observed(**{f"{DATA_AT}not_finite": 7})),
    ("input_scale", "a normalization first", observed(**{f"{DATA_AT}largest": 3000.0, f"{START}first": "BatchNorm1d"})),
    ("unshuffled_data", "batches of four among ten classes", observed(signals__early__labels=[1.0] * 32, batch_size=4)),
    (
        "train_eval_mismatch",
        "dropout, which makes training the worse one",
        observed(**{f"{LAST}training": {"loss": 5.0, "accuracy": 0.2}}),
    ),
    (
        "leakage",
        "few possible rows, which repeat in training too",
        observed(**{f"{DATA_AT}shared": 0.4, f"{DATA_AT}repeated": 0.35}),
    ),
    ("class_imbalance", "a rare class that is found", observed(**{f"{DATA_AT}counts": [500, 10]})),
    ("label_noise", "classes that overlap, and no gap", observed(**OVERLAPPING)),
    (
        "label_noise",
        "few samples among many features",
        observed(
            **{f"{DATA_AT}neighbours": 0.3, f"{DATA_AT}features": 264, "train_samples": 120},
            **epochs(train={"loss": 0.1, "accuracy": 0.99}, validation={"loss": 2.0, "accuracy": 0.3}),
        ),
    ),
]


@pytest.mark.parametrize(("name", "told", "run"), FAULTS, ids=[f"{name}: {told}" for name, told, _ in FAULTS])
def test_a_fault_is_found_by_name_with_its_numbers(name, told, run):
    if name == "loss_broadcast":
        run["signals"]["start"]["model"] |= {"loss": 1.5, "shuffled_loss": 1.5}
    found = say(name, run)
    assert found.state == "fired"
    assert told in found.reason


@pytest.mark.parametrize(("name", "trap", "run"), TRAPS, ids=[f"{name}: {trap}" for name, trap, _ in TRAPS])
def test_a_sound_run_that_looks_like_a_fault_is_none(name, trap, run):
    assert say(name, run).state != "fired"


def test_of_a_healthy_run_nothing_fires_and_of_an_empty_record_nothing_is_said():
    assert [row.id for row in diagnose(Run.of(observed()), None) if row.state == "fired"] == []
    for name in {name for name, _, _ in FAULTS}:
        assert say(name, {}).state == "not_applicable"


def test_a_regression_whose_last_module_cannot_reach_the_targets():
    run = of_numbers()
    run["signals"]["start"]["model"]["last"] = "Sigmoid"
    assert "Sigmoid, the last module, gives 0 to 1" in say("output_activation", run).reason
    run["signals"]["start"]["model"]["last"] = "Linear"
    assert say("output_activation", run).state == "clear"


def test_a_loss_that_falls_without_end_is_told_where_no_metric_is():
    assert "as fast as at its beginning" in say("negative_loss", falling([1.0, -1.0, -3.0, -5.0, -8.0, -12.0])).reason
    assert say("negative_loss", falling([1.0, -1.0])).state == "fired"  # too few to tell
    assert say("negative_loss", falling([1.0, 0.5, 0.2])).state == "clear"


def test_a_loss_that_looks_at_no_target_is_no_broadcast():
    run = of_numbers()
    run["signals"]["start"]["model"] |= {"loss": 1.5, "shuffled_loss": 1.5, "constant_loss": 1.5}
    assert "whatever the targets are" in say("loss_broadcast", run).reason
    run["signals"]["start"]["model"]["constant_loss"] = 1.2
    assert say("loss_broadcast", run).state == "fired"


def test_constant_outputs_are_no_broadcast():
    run = of_numbers()
    output = {**SEEN["output"], "shape": [1], "spread": 0.0}
    run["signals"]["start"]["model"] |= {"loss": 1.5, "shuffled_loss": 1.5, "output": output}
    assert say("loss_broadcast", run).state == "clear"


def test_classes_that_were_not_counted_are_not_judged():
    run = observed(**{f"{DATA_AT}counts": None, f"{DATA_AT}neighbours": None})
    assert DATA["counts"] is not None
    assert say("class_imbalance", run).state == say("label_noise", run).state == "not_applicable"


def test_a_class_is_found_by_the_share_of_its_own_samples():
    confusion = [[400, 100], [0, 10]]  # nine of ten that are taken for the rare class are none of it
    run = observed(**{f"{DATA_AT}counts": [500, 10], "evaluation__confusion": confusion})
    assert say("class_imbalance", run).evidence["worst_recall"] == 0.8


def counted_answers(*rows: list[int], counts: list[int] | None = None) -> dict[str, Any]:
    """Return a run of a task of one's own with what was observed of its classes last."""
    return observed(
        evaluation=None,
        signals__early__labels=[],
        **{f"{DATA_AT}counts": counts, "history__9__signals__validation__by_class": [*rows]},
    )


def test_observed_answers_excuse_an_imbalance_where_there_are_enough_of_them():
    assert say("class_imbalance", counted_answers([240, 230, 240], [12, 9, 240], counts=[500, 25])).state == "clear"
    assert say("class_imbalance", counted_answers([240, 230, 240], [12, 3, 240], counts=[500, 25])).state == "fired"
    assert say("class_imbalance", counted_answers([240, 230, 240], [4, 4, 240], counts=[500, 25])).state == "fired"


def test_rare_classes_of_places_and_labels_that_hold_seldom_are_told_where_they_are_not_named():
    found = say("class_imbalance", counted_answers([3000, 2990, 3000], [100, 90, 3000], [60, 2, 3000]))
    assert (found.state, found.evidence["times"]) == ("fired", 50)
    assert "found least, 3.33 % are" in found.reason
    for rows in ([[3000, 2990, 3000], [60, 12, 3000]], [[3000, 2990, 3000], [400, 2, 3000]], [[90, 80, 90], [3, 0, 90]]):
        assert say("class_imbalance", counted_answers(*rows)).state == "clear"
    assert say("class_imbalance", counted_answers([5, 2, 5], [3, 0, 5])).state == "not_applicable"
    unforeseen = counted_answers([3000, 2990, 3000], [100, 90, 3000], [60, 2, 3000])
    unforeseen["signals"]["start"]["model"]["plain"] = {"floor": 0.0, "losses": {"constant": [2.3] * 4, "linear": [2.3] * 4}}
    for row in unforeseen["history"]:
        row["signals"]["validation"]["losses"] = [2.3] * 4
    assert say("class_imbalance", unforeseen).state == "not_applicable"


@pytest.mark.parametrize(("rarest", "state"), [(20, "clear"), (11, "fired")])
def test_of_many_words_some_are_rare_by_nature(rarest, state):
    words = [[320 // place, 0 if place > 20 else 40, 320] for place in range(1, 25)]
    assert say("class_imbalance", counted_answers(*words, [rarest, 0, 320])).state == state


def test_a_class_that_most_batches_have_none_of_is_no_order():
    run = observed(evaluation=None, signals__early__labels=[0.0] * 20 + [0.08] * 12, **{f"{DATA_AT}counts": [500]})
    run["signals"]["early"]["counts"] = [2035, 13]
    assert say("unshuffled_data", run).state == "clear"
    assert "157 times" in say("class_imbalance", run).reason


# --- beside plain answers to a task of one's own ---


def test_a_run_that_is_ahead_of_a_constant_answer_and_behind_none_has_learned_what_can_be_learned():
    for name in ("underfitting", "convergence_stall"):
        assert say(name, flat(beside(2.0, constant=2.3, linear=2.1))).state == "clear"
        assert say(name, flat(beside(2.0, constant=2.3, linear=1.9))).state == "fired"
        assert "nor is any plain model better" in say(name, flat(beside(2.3, constant=2.3, linear=2.3))).reason


def test_steps_that_are_too_long_are_told_though_no_plain_answer_does_better():
    run = flat(beside(2.0, constant=2.3, linear=2.1))
    for row in run["history"]:
        row["update_ratios"] = [0.5, 0.5]
    run["signals"]["early"]["updates"] = [[1, 0.5, 0.5], [2, 0.5, 0.5]]
    assert say("learning_rate_high", run).state == say("convergence_stall", run).state == "fired"


def test_what_was_learned_by_heart_is_no_missing_signal():
    run = beside(2.3, constant=2.3, linear=2.3)
    for row in run["history"]:
        row["train"]["accuracy"] = 0.9
    assert say("underfitting", run).state == "clear"


def test_one_answer_for_all_is_no_fault_where_no_plain_model_has_a_better_one():
    for linear, state in ((2.3, "clear"), (1.5, "fired")):
        run = flat(beside(2.3, constant=2.3, linear=linear))
        run["steps"] = 2000
        for row in run["history"]:
            row["signals"]["validation"]["output"]["top"] = 1.0
        assert say("constant_predictions", run).state == state


def test_a_loss_that_looks_at_no_target_is_not_judged_by_how_far_it_fell():
    run = flat(observed(**{f"{START}uses_targets": False}), metrics=False)
    for name in ("underfitting", "convergence_stall", "constant_predictions", "loss_oscillation"):
        assert say(name, run).state == "not_applicable"
    assert say("underfitting", flat(observed(**{f"{START}uses_targets": True}), metrics=False)).state == "fired"


def test_a_density_is_judged_by_plain_answers_alone():
    assert say("underfitting", flat(beside(2.0, floor=-1.0, constant=2.3, linear=2.1), metrics=False)).state == "not_applicable"
    assert (
        say("convergence_stall", flat(beside(2.0, floor=-1.0, constant=2.3, linear=2.1), metrics=False)).state == "not_applicable"
    )
    assert say("convergence_stall", flat(beside(2.0, floor=-1.0, constant=2.3, linear=1.5), metrics=False)).state == "fired"


def test_the_share_of_a_loss_that_is_gone_is_of_what_can_go():
    run = flat(beside(2.0, floor=1.8, constant=2.3, linear=2.2), metrics=False)
    run["first_loss"] = 2.8
    assert Run.of(run).skill == pytest.approx(0.5)


def test_an_untrained_model_is_compared_with_the_best_constant_answer():
    run = beside(2.0, constant=20.0, linear=2.1)
    run["signals"]["start"]["model"]["loss"] = 30.0
    assert say("bad_initialization", run).state == "clear"
    run["signals"]["start"]["model"]["loss"] = 50.0
    assert "2.5 times that of the best constant answer" in say("bad_initialization", run).reason
    run["signals"]["start"]["model"]["trained_share"] = 0.05
    assert say("bad_initialization", run).state == "not_applicable"


def test_whole_numbers_that_are_no_classes_are_not_counted_as_such():
    assert say("class_imbalance", observed(evaluation=None, **{f"{DATA_AT}counts": [500, 90, 1]})).state == "fired"
    events = observed(evaluation=None, **{f"{DATA_AT}counts": [500, 90, 1], f"{START}output__shape": [1]})
    assert say("class_imbalance", events).state == "not_applicable"


@pytest.mark.parametrize(("losses", "fit"), [([2.3, 1.1, 0.7], "good"), ([2.5, 2.6, 2.7], "underfitting")])
def test_the_fit_of_a_loss_without_targets_goes_by_its_fall(losses, fit):
    run = {**falling(losses), "first_loss": 2.4}
    rows = [
        {**row, "train": {"loss": loss}, "validation": {"loss": loss}} for row, loss in zip(run["history"], losses, strict=True)
    ]
    start = {"model": {"uses_targets": False}, "data": None}
    run |= {"history": rows, "signals": {"start": start, "early": {"updates": [], "labels": []}, "spikes": []}}
    found = assess(diagnose(Run.of(run), None), Run.of(run))
    assert found.fit == fit
    assert found.fit_reason.startswith("How far the loss can fall is not known")


# --- streams, data sets, numbers and places ---


def test_targets_that_come_in_a_sorted_order_are_told_of_numbers_too():
    assert say("unshuffled_data", of_sorted_numbers(spread=1.0)).state == "clear"
    outlier = of_sorted_numbers(spread=1.0)
    outlier["signals"]["early"]["numbers"][9] = [300.0, 1200.0]  # one target in its batch is far off
    assert say("unshuffled_data", outlier).state == "clear"
    assert "targets spread over 2.5" in say("unshuffled_data", of_sorted_numbers()).reason
    assert say("unshuffled_data", of_sorted_numbers()).state == "fired"


def test_classes_of_a_stream_are_counted_in_its_first_batches_where_these_are_mixed():
    run = observed(evaluation=None, **{f"{DATA_AT}counts": None})
    run["signals"]["early"] |= {"counts": [2000, 48], "labels": [0.1] * 32}
    assert "41.7 times" in say("class_imbalance", run).reason
    run["signals"]["early"]["labels"] = [0.0] * 31 + [0.6]
    assert say("class_imbalance", run).state == "not_applicable"


def test_a_sorted_stream_of_one_class_first_is_told_by_the_validation_samples():
    run = observed(evaluation=None, signals__early__labels=[0.0] * 32, **{f"{DATA_AT}counts": None})
    run["signals"]["start"]["model"]["target"] |= {"classes": 1, "entropy": 0.0}
    assert say("unshuffled_data", run).state == "fired"


def test_targets_of_validation_that_spread_more_widely_are_no_order_of_training():
    run = of_sorted_numbers(spread=1.0)
    seen = run["history"][-1]["signals"]["validation"]
    seen["target"] = {**seen["target"], "spread": 30.0}
    assert say("unshuffled_data", run).state == "clear"
    run["signals"]["start"]["data"] = None  # of a stream the first samples tell nothing of the others
    assert say("unshuffled_data", run).state == "fired"


@pytest.mark.parametrize(("trained", "state"), [([950, 50], "clear"), ([500, 500], "fired")])
def test_classes_of_validation_in_other_shares_are_no_order_of_training(trained, state):
    even = {"confusion": [[90, 10], [10, 90]]}
    run = observed(evaluation=even, signals__early__labels=[0.18] * 32, **{f"{DATA_AT}counts": trained})
    assert say("unshuffled_data", run).state == state


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({}, "fired"),
        ({"train_samples": 50, f"{DATA_AT}features": 4}, "not_applicable"),
        ({"nonfinite": {"step": 9, "epoch": 2, "what": "loss", "samples": [1]}}, "not_applicable"),
    ],
    ids=["as many as that", "fifty samples", "a run that diverged"],
)
def test_few_samples_and_a_run_that_diverged_tell_no_noise(change, state):
    heart = epochs(train={"loss": 0.1, "accuracy": 0.99}, validation={"loss": 2.0, "accuracy": 0.5})
    assert say("label_noise", observed(**{f"{DATA_AT}neighbours": 0.6}, **heart, **change)).state == state


@pytest.mark.parametrize(("train", "validation"), [(-5e6, -9e6), (0.05, -0.9), (-9e6, -5e6)])
def test_numbers_that_no_model_learned_are_not_learned_by_heart(train, validation):
    run = of_sorted_numbers()
    for row in run["history"]:
        row |= {"train": {"loss": 0.1, "r2": train}, "validation": {"loss": 1.0, "r2": validation}}
    assert say("label_noise", run).state == "not_applicable"


def test_noise_is_told_by_what_was_observed_where_the_task_has_no_accuracy():
    def own(train: float, validation: float) -> dict[str, Any]:
        run = observed(**{f"{DATA_AT}neighbours": 0.6})
        for row in run["history"]:
            row |= {"train": {"f1": 0.5}, "validation": {"f1": 0.5}}
        seen = run["history"][-1]["signals"]
        seen["evaluating"]["accuracy"], seen["validation"]["accuracy"] = train, validation
        return run

    assert "accuracy is 99 % on training, 50 % on validation" in say("label_noise", own(0.99, 0.5)).reason
    assert say("label_noise", own(0.99, 0.5)).state == "fired"
    assert say("label_noise", own(0.6, 0.58)).state == "clear"


def test_a_loss_beside_that_of_a_constant_stands_for_r2_and_is_not_called_so():
    run = of_sorted_numbers(spread=1.0)
    run["signals"]["start"]["model"]["plain"] = {"floor": 0.0, "losses": {"constant": [2.0] * 4}}
    for row in run["history"]:
        row |= {"train": {"mae": 1.0}, "validation": {"mae": 1.0}}
        row["signals"]["evaluating"]["loss"], row["signals"]["validation"]["loss"] = 0.2, 1.8
    found = say("label_noise", run)
    assert found.state == "fired"
    assert found.reason.endswith(
        "the loss on training is 10 % of that of the best constant answer to the validation samples, the loss on validation 90 %."
    )
    assert "R2" not in found.reason
    assert found.evidence["metric"] == "share of a constant answer's loss that is gone"


def advice(run: dict[str, Any], config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what the row on label noise suggests for a config: what to set, by why."""
    rows = [row for row in fitting(diagnose(Run.of(run), None), config) if row.id == "label_noise"]
    assert [row.state for row in rows] == ["fired"]
    return {one.why: one.set for row in rows for one in row.suggestions}


NOISY = observed(
    **{f"{DATA_AT}neighbours": 0.6}, **epochs(train={"loss": 0.1, "accuracy": 0.99}, validation={"loss": 2.0, "accuracy": 0.5})
)
LABELS = "Look at suspicious labels (mltrainer rows --mislabelled)"
LOSSES = "Look at the samples with the largest losses (mltrainer rows --hardest)"


def test_noise_in_quantities_is_told_with_advice_that_fits_them():
    config = {"task": {"kind": "tabular_regression"}, "label_smoothing": 0.0, "early_stopping": {"patience": 9}}
    assert advice(of_sorted_numbers(), config) == {LOSSES: {}, "Stop earlier": {"early_stopping.patience": 5}}
    classes = advice(NOISY, {**config, "task": {"kind": "tabular_classification"}})
    assert list(classes) == [LABELS, "Smooth the labels", "Stop earlier"]
    assert classes["Smooth the labels"] == {"label_smoothing": 0.1}
    of_own = advice(NOISY, {**config, "task": {"use": "tasks:Own", "kind": None}})
    assert list(of_own) == [LABELS, "Stop earlier"]  # its own loss smooths


def test_a_page_names_no_class_where_quantities_were_judged():
    (row,) = [row for row in diagnose(Run.of(of_sorted_numbers()), None) if row.id == "label_noise"]
    assert not any("class" in cause.lower() for cause in row.causes)


def test_wrong_labels_of_training_alone_are_told_though_they_are_learned_by_heart_in_the_end():
    def learned(*train: float) -> str:
        run = observed(**{f"{DATA_AT}neighbours": 0.6})
        for row, one in zip(run["history"], [*train, *[1.0] * 10], strict=False):
            row["train"]["accuracy"], row["validation"]["accuracy"] = one, 0.85
        return say("label_noise", run).state

    assert learned(0.55, 0.6, 0.65, 0.7, 0.8, 0.9) == "fired"
    assert learned(0.6, 0.8, 0.85, 0.9) == "clear"


def test_noise_in_targets_that_are_numbers_is_told_where_it_is_learned_by_heart():
    def learned(train: float, validation: float) -> dict[str, Any]:
        run = of_sorted_numbers()
        for row in run["history"]:
            row |= {"train": {"loss": 0.1, "r2": train}, "validation": {"loss": 1.0, "r2": validation}}
        return run

    assert "explain 10 % of the training targets' variance" in say("label_noise", learned(0.9, 0.1)).reason
    assert say("label_noise", learned(0.9, 0.1)).state == "fired"
    assert say("label_noise", learned(0.3, 0.15)).state == "clear"
    assert say("label_noise", learned(0.5, 0.7)).state == "fired"  # of training alone
    assert say("label_noise", learned(0.9, 0.8)).state == "clear"
    unstable = learned(0.3, 0.15)
    for row in unstable["history"][:4]:
        row["train"]["r2"] = -3.0
    assert say("label_noise", unstable).state == "clear"


@pytest.mark.parametrize(("logits", "state"), [(2.31, "fired"), (4.0, "clear")])
def test_probabilities_for_each_place_that_the_loss_takes_for_logits(logits, state):
    run = observed(**{f"{START}output__shape": [16, 10], f"{START}target__classes": None, f"{START}as_logits": logits})
    run["signals"]["start"]["model"]["output"]["sums_to_one"] = True
    assert say("output_activation", run).state == state


def test_a_loss_that_a_constant_does_not_change_takes_outputs_for_logits():
    run = observed(**{f"{START}as_logits": None, f"{START}shifted_loss": 2.31})  # with smoothed labels, perhaps
    run["signals"]["start"]["model"]["output"]["sums_to_one"] = True
    assert say("output_activation", run).state == "fired"
    run["signals"]["start"]["model"]["shifted_loss"] = 2.0  # the loss of probabilities
    assert say("output_activation", run).state == "clear"


def test_a_sigmoid_before_the_cross_entropy_is_told_by_its_range():
    run = observed(**{f"{START}output__lowest": 0.1, f"{START}output__largest": 0.9})
    for row in run["history"]:
        row["signals"]["validation"]["output"] |= {"lowest": 0.0, "largest": 1.0}
    assert "from 0 to 1 throughout" in say("output_activation", run).reason
    for row in run["history"]:
        row["signals"]["validation"]["output"]["largest"] = 0.6  # of a model that learns nothing, perhaps
    assert say("output_activation", run).state == "clear"
    run["history"][-1]["signals"]["validation"]["output"]["largest"] = 8.0
    assert say("output_activation", run).state == "clear"


def test_a_run_that_still_falls_behind_a_plain_answer_ended_early():
    def falling_by_halves(linear: float) -> dict[str, Any]:
        run = beside(2.0, constant=2.3, linear=linear)
        for nr, row in enumerate(run["history"], 1):
            row["validation"] = {"loss": 1.5 + 0.8 * 0.85**nr, "accuracy": 0.1}
        return run

    assert say("undertrained", falling_by_halves(1.5)).state == "fired"
    assert say("undertrained", falling_by_halves(2.1)).state == "clear"
