"""The table of causes: each named with its figures where config and record show it, and by nothing that only looks like it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mltrainer import handbook
from mltrainer.diagnostics.causes import ALONE, CAUSES, causes_of
from mltrainer.diagnostics.rules import diagnose, findings, not_fired, suggested_changes, warning_of
from mltrainer.diagnostics.signals import Run
from mltrainer.runs import find
from mltrainer.trainers.native.session import Session
from mltrainer.workspace import Project
from tests.benchmarks.diagnostics.causes import CASES
from tests.benchmarks.diagnostics.judging import judged
from tests.benchmarks.diagnostics.training import trained
from tests.diagnostics.observed import observed

MODEL, DATA = "signals__start__model__", "signals__start__data__"
LENGTH = {"planned_steps": 200, "planned_epochs": 10}
CONFIG = {
    "optimizer": {"name": "adam", "lr": 1e-3},
    "schedule": {"name": "cosine", "warmup_epochs": 1},
    "model": {"dropout": 0.1},
    "label_smoothing": 0.1,
}
PLAIN = {"floor": 0.0, "losses": {"constant": [2.3] * 16}}


def rates(*used: float, first: float = 1e-3) -> dict[str, Any]:
    """Return a run whose own scheduler set these rates at its evaluations."""
    run = observed(groups=[{"lr": first, "weight_decay": 0.0, "parameters": []}], **LENGTH)
    for row, rate in zip(run["history"], used, strict=True):
        row["lr"] = rate
    return run


def run_of(changes: dict[str, Any] | None = None, **config: Any) -> Run:
    return Run.of(observed(**{**LENGTH, **(changes or {})}), config={**CONFIG, **config})


def own(run: dict[str, Any], name: str = "own") -> Run:
    return Run.of(run, config={**CONFIG, "optimizer": {"name": "own", "lr": 1e-3}, "schedule": {"name": name}})


def blocks(whole: float, part: float) -> dict[str, Any]:
    """Return a loss of all samples that were looked at, and that of parts of them."""
    return {"history__0__signals__validation__loss": whole, "history__0__signals__validation__losses": [part] * 16}


LONG = {"name": "constant", "warmup_steps": 20_000}
ONE_OUTPUT = {f"{MODEL}output__shape": [1]}
SHORT = {"name": "cosine", "warmup_epochs": 0.05}
SGD = {"optimizer": {"name": "sgd", "lr": 0.1}}
UNLEARNED = {"unlearned": True}
GIVEN = "signals__start__as_given"
HELD = {f"{MODEL}held": ["0.weight"], f"{MODEL}trained_share": 0.03}
OVERLOOKS = {"share": 0.1, "metrics": ["accuracy"], "classes": [3], "seen": [0, 1, 2]}
PADDING_ALONE = {"share": 0.7, "metrics": ["accuracy"], "classes": [1, 2, 3], "seen": [0]}

FORM = {"repeats": True, "ignored": {}, "rank": 5, "layers": 3, "linear": False, "orderless": [], "same_answers": 0}
FORM |= {"batch_norms": 0, "levelless": False, "unregistered": 0}


def form(**changes: Any) -> dict[str, Any]:
    """Return what a model's answers cannot depend on."""
    return {f"{MODEL}structure": {**FORM, **changes}}


FAR = {
    f"{MODEL}target__classes": None,
    f"{MODEL}target__lowest": 1e5,
    f"{MODEL}target__largest": 5e5,
    f"{MODEL}output__lowest": -0.1,
    f"{MODEL}output__largest": 0.2,
}

ONE_OUTPUT = {f"{MODEL}output__shape": [1]}
FEW = {"planned_steps": 24, "planned_epochs": 3}
ATTACK = [{"name": "adversarial", "epsilon": 8.0}]


def labels(*held: int) -> dict[str, Any]:
    """Return a loss over several labels of ten samples that does not change where all outputs grow by one."""
    shape = [len(held)]
    target = {f"{MODEL}target__classes": None, f"{MODEL}target__shape": shape, f"{MODEL}output__shape": shape}
    seen = {f"{MODEL}by_class": [[count, 1, 10 - count] for count in held], f"{MODEL}loss": 2.0, f"{MODEL}shifted_loss": 2.0}
    return {**target, **seen}


def wanted(last: str, low: float, high: float) -> dict[str, Any]:
    return {f"{MODEL}plain": {**PLAIN, "wanted": [low, high]}, f"{MODEL}last": last}


def fitted(metric: float, floor: float = 0.0) -> dict[str, Any]:
    return {f"{MODEL}plain": {**PLAIN, "fitted": metric, "floor": floor}}


def by_adam(**others: Any) -> dict[str, Any]:
    return {"optimizer": {"name": "adam", "lr": 1e-3, **others}}


def adam(decay: float) -> dict[str, Any]:
    return {"optimizer": {"name": "adam", "lr": 1e-3, "weight_decay": decay}}


NAMED: list[tuple[str, str, Run]] = [
    ("rate_gone", "After 10 % of the run", run_of(schedule={"name": "exponential", "gamma": 1e-3})),
    ("rate_gone", "at the end: the schedule (own)", own(rates(*[1e-9] * 10))),
    ("rate_rising", "takes 20,000 steps and the run has 200", run_of(schedule=LONG)),
    ("rate_rising", "takes 160 steps and the run has 200", run_of(schedule={"name": "cosine", "warmup_epochs": 8})),
    ("rate_rising", "rose to the end of the run", own(rates(*[n * 1e-6 for n in range(1, 11)], first=5e-8))),
    ("labels_smoothed_away", "leaves the right one of 10 classes 0.145", run_of(label_smoothing=0.95)),
    ("loss_unlearnable", "reach a loss of 2.2", run_of({f"{MODEL}plain": {**PLAIN, "floor": 2.2}})),
    ("loss_overlooks", "at 10 % of the answers, all those of class 3, which", run_of({f"{MODEL}overlooks": OVERLOOKS})),
    ("loss_overlooks", "It looks at class 0 alone", run_of({f"{MODEL}overlooks": PADDING_ALONE})),
    ("batch_dependent", "differ by 0.4 times", run_of({f"{MODEL}part": 0.4})),
    ("inputs_destroyed", "as the model gets them, of 12 %", run_of({GIVEN: [0.12, 0.9], **UNLEARNED})),
    ("linear_model", "between its 3 layers with weights", run_of({**form(linear=True), **UNLEARNED})),
    ("same_answers", "5 of the numbers of each answer", run_of(form(same_answers=5))),
    ("weights_decayed", "A weight decay of 0.5 pulls the weights to zero", run_of(UNLEARNED, **adam(0.5))),
    ("order_blind", "inputs along dimension 1 changes no answer", run_of({**form(orderless=[1]), **UNLEARNED})),
    ("one_direction", "answers to 10 classes differ in one direction", run_of({**form(rank=1), **UNLEARNED})),
    ("answers_change", "the model keeps a state", run_of(form(repeats=False))),
    ("inputs_ignored", "No answer looks at 60 % of the places", run_of({**form(ignored={"1": 0.6}), **UNLEARNED})),
    ("targets_unscaled", "The targets reach 5e+05", run_of({**FAR, **UNLEARNED})),
    ("metric_turned", "accuracy is better the larger it is", run_of(metric={"name": "accuracy", "mode": "min"})),
    ("metric_turned", "rmse is better the smaller it is", run_of(metric={"name": "rmse", "mode": "max"})),
    ("one_direction", "10 classes are answered by a single output", run_of({**form(rank=1), **ONE_OUTPUT, **UNLEARNED})),
    ("few_steps", "only 24 steps, in 3 epochs: too few", run_of({**FEW, **UNLEARNED})),
    ("few_steps", "of large batches (900 samples)", run_of({**FEW, **UNLEARNED}, batch_size=900)),
    ("labels_exclusive", "Of 3 labels a sample has 1.5 on average, and the loss takes a softmax", run_of(labels(5, 5, 5))),
    ("beyond_activation", "(Softplus) gives none below 0", run_of(wanted("Softplus", -3.0, 2.0))),
    ("beyond_activation", "(Tanh) gives none above 1", run_of(wanted("Tanh", -0.5, 40.0))),
    ("metric_disagrees", "Answers that fit each sample by the loss reach accuracy 0.52", run_of(fitted(0.52))),
    ("not_registered", "4 tensors that want gradients are not among", run_of(form(unregistered=4))),
    ("unusual_value", "optimizer.sam.rho is 2 (usual: 0.05)", run_of(**by_adam(sam={"rho": 2.0}))),
    ("unusual_value", "optimizer.groups.lr is 0.001 (usual: 1)", run_of(**by_adam(groups=[{"lr": 1e-3}]))),
    ("unusual_value", "optimizer.eps is 1 (usual: 1e-08)", run_of(**by_adam(eps=1.0))),
    ("unusual_value", "early_stopping.patience is 1", run_of(early_stopping={"patience": 1})),
    ("small_batches", "deviation of batches of 2 samples", run_of(form(batch_norms=1), batch_size=2)),
    ("attack_too_strong", "moves inputs by 8, and these differ by 1 only", run_of({f"{DATA}spread": 1.0}, strategies=ATTACK)),
    ("level_lost", "a number is added to all inputs of a sample", run_of({**form(levelless=True), **UNLEARNED})),
    ("mostly_padding", "81 % of the places of the inputs", run_of({f"{DATA}constant": 0.81, **UNLEARNED})),
    ("units_dropped", "Dropout of 0.97 leaves 3 %", run_of({f"{MODEL}dropped": 0.97})),
    ("units_dropped", "Dropout of 0.95", run_of(model={"dropout": 0.95})),
    ("loss_scaled", "divided by the number of samples once more", run_of(blocks(0.01, 0.16), **SGD)),
    ("loss_scaled", "a sum over the samples", run_of(blocks(160.0, 10.0), **SGD)),
    ("loss_scaled", "it is divided by 64", run_of({f"{MODEL}loss": 2.31 / 64, f"{MODEL}plain": PLAIN}, **SGD)),
    ("weights_held", "3 % of the parameters are trained: 0.weight is held", run_of({**HELD, **UNLEARNED})),
    ("target_outliers", "5 of the training targets", run_of({f"{DATA}outliers": 5, f"{DATA}outlying": 0.99})),
    ("rows_repeated", "96 % of the training samples", run_of({f"{DATA}repeated": 0.96})),
]  # fmt: skip

SOUND: list[tuple[str, Run]] = [
    ("a step decay late in the run", run_of(schedule={"name": "step", "every_n_epochs": 3, "gamma": 0.1})),
    ("a schedule of a task's own", own(rates(*[1e-3 * 0.8**n for n in range(10)]))),
    ("a scheduler's warm-up of a tenth", own(rates(*[1e-3] * 10, first=1e-5))),
    ("restarts", run_of(schedule={"name": "cosine_restarts", "first_epochs": 1, "growth": 1.0})),
    ("a warm-up of a tenth", run_of(schedule={"name": "constant", "warmup_steps": 20})),
    ("a program, whose schedule is its own", run_of(task={"script": ["python"]}, schedule=LONG)),
    ("usual label smoothing", run_of(label_smoothing=0.3)),
    ("a floor of usual label smoothing", run_of({f"{MODEL}plain": {**PLAIN, "floor": 0.5}})),
    ("rounding of answers", run_of({f"{MODEL}part": 1e-4})),
    ("an augmentation that leaves the classes", run_of({GIVEN: [0.6, 0.9], **UNLEARNED})),
    ("an augmentation by which a model learned", run_of({GIVEN: [0.12, 0.9]})),
    ("classes that no neighbours tell", run_of({GIVEN: [0.1, 0.15], **UNLEARNED})),
    ("one linear layer", run_of({**form(linear=True, layers=1), **UNLEARNED})),
    ("linear layers that learned", run_of(form(linear=True))),
    ("a set whose order tells nothing", run_of(form(orderless=[1]))),
    ("weights that all begin alike", run_of({**form(same_answers=1, rank=1), f"{MODEL}symmetric": ["0"], **UNLEARNED})),
    ("the border of a picture", run_of({**form(ignored={"2": 0.1}), **UNLEARNED})),
    ("an answer by the last place that learned", run_of(form(ignored={"1": 0.9}))),
    ("one direction in a model that learned", run_of(form(rank=1))),
    ("large targets in a model that learned", run_of(FAR)),
    ("a metric of one's own", run_of(metric={"name": "regret", "mode": "min"})),
    ("few steps of a model that learned all", run_of({**FEW, "history__9__validation__accuracy": 0.99})),
    ("one label of three for each sample", run_of(labels(3, 3, 4))),
    ("answers that the activation gives", run_of(wanted("Softplus", 0.1, 9.0))),
    ("a metric that fits the loss", run_of(fitted(1.0))),
    ("a loss without an end, whose fit has none", run_of(fitted(0.1, floor=-1e4))),
    ("usual values", run_of(**by_adam(eps=1e-8, sam={"rho": 0.05}), early_stopping={"patience": 5})),
    ("the adaptive form of SAM", run_of(**by_adam(sam={"rho": 2.0, "adaptive": True}))),
    ("batches of 2 without batch norm", run_of(form(), batch_size=2)),
    ("a weak attack", run_of({f"{DATA}spread": 1.0}, strategies=[{"name": "adversarial", "epsilon": 0.1}])),
    ("padded texts that were learned", run_of({f"{DATA}constant": 0.81})),
    ("usual weight decay", run_of(UNLEARNED, **adam(0.01))),
    ("much weight decay in a model that learned", run_of({}, **adam(0.5))),
    ("dropout of a half", run_of({f"{MODEL}dropped": 0.5})),
    ("a small loss for Adam", run_of(blocks(0.01, 0.16))),
    ("a contrastive loss, which grows with the batch", run_of(blocks(5.5, 2.8), **SGD)),
    ("an adapter beside held weights", run_of({**HELD, **UNLEARNED}, strategies=[{"name": "lora"}])),
    ("a head on a held body that learned", run_of(HELD)),
    ("a long tail", run_of({f"{DATA}outliers": 30, f"{DATA}outlying": 0.5})),
    ("rows of few values", run_of({f"{DATA}repeated": 0.2})),
]  # fmt: skip


@pytest.mark.parametrize(("name", "told", "run"), NAMED, ids=[f"{name}: {told}" for name, told, _ in NAMED])
def test_a_cause_is_named_alone_and_with_its_figures(name, told, run):
    (found,) = causes_of(run)
    assert found.cause.name == name
    assert told in found.found.sentence


@pytest.mark.parametrize("run", [run for _, run in SOUND], ids=[what for what, _ in SOUND])
def test_what_only_looks_like_a_cause_is_none(run):
    assert causes_of(run) == []


def test_every_cause_is_shown_by_a_run_and_described_on_the_page():
    assert {name for name, _, _ in NAMED} == {cause.name for cause in CAUSES}
    body = handbook.read_page(f"diagnostics/{ALONE}.md", None).body
    by_itself, beside = body.split("Some causes explain a finding")
    for cause in CAUSES:
        assert f"| `{cause.name}` |" in (by_itself if cause.is_wrong else beside)


def fired(run: Run) -> dict[str, Any]:
    return {row.id: row for row in diagnose(run, None) if row.state == "fired"}


def test_what_is_wrong_in_itself_is_told_of_a_run_that_learned_and_other_causes_are_not():
    wrong, other = run_of(label_smoothing=0.95), run_of({f"{DATA}repeated": 0.96})
    assert [*fired(wrong)] == [ALONE]
    assert fired(other) == {}
    assert fired(run_of()) == {}


def test_a_finding_has_the_cause_first_and_its_cure_as_the_first_to_try():
    run = run_of({f"{DATA}repeated": 0.96, **UNLEARNED}, label_smoothing=0.95, model={"dropout": 0.95, "name": "mlp"})
    found = fired(run)["underfitting"]
    assert [cause.partition(" ")[0] for cause in found.causes[:3]] == ["label_smoothing:", "Dropout", "96"]
    assert found.suggestions[0].set == {"label_smoothing": 0.1}
    assert [change.set for change in suggested_changes([found], run.config)][:2] == [
        {"label_smoothing": 0.1},
        {"model.dropout": 0.19},
    ]
    assert "96 %" not in " ".join(fired(run)[ALONE].causes), "what is no fault by itself stands at the symptom alone"


def test_a_phase_gives_the_rules_the_config_of_its_run():
    rows = {row.id: row for row in findings(Run.of(observed(**LENGTH)), {**CONFIG, "label_smoothing": 0.95}, None)}
    assert rows[ALONE].evidence["causes"] == ["labels_smoothed_away"]
    unplanned = {row.id: row for row in diagnose(Run.of(observed()), None)}
    assert unplanned[ALONE].state == "not_applicable"


def test_a_warm_up_is_cut_to_a_twentieth_of_the_run():
    run = run_of(schedule=LONG)
    (change, *_) = suggested_changes([fired(run)[ALONE]], run.config)
    assert change.set == {"schedule.warmup_steps": 10}


def test_planning_warns_of_what_is_wrong_in_itself_and_of_nothing_else():
    planned: Any = SimpleNamespace(plan=SimpleNamespace(steps=200, epochs=10), config=SimpleNamespace(model_dump=lambda: CONFIG))
    start = {"model": {"dropped": 0.97, "held": ["0.weight"]}, "data": {"not_finite": 0, "features": 1, "repeated": 0.96}}
    (warning,) = Session._wrong_setup(planned, start)
    command = "mltrainer phase run planning --set model.dropout=0.02"
    assert warning == ("warning", f"Dropout of 0.97 leaves 3 % of the units in a step. A fifth of the dropout: {command}")


def test_a_quick_try_of_one_epoch_is_told_once_what_to_set():
    config = {**CONFIG, "epochs": 1, "schedule": {"name": "cosine", "warmup_epochs": 1.0}}
    run = Run.of(observed(planned_steps=20, planned_epochs=1), config=config)
    warnings = [warning_of(one, config) for one in causes_of(run)]
    found = "The warm-up takes 20 steps and the run has 20: the learning rate rises in 100 % of it."
    command = "mltrainer phase run planning --set schedule.warmup_epochs=0.05"
    assert warnings == [f"{found} A warm-up of a twentieth of the run: {command}"]
    rows = diagnose(run, None)
    assert not_fired([*warnings, "net predicts the target"], rows) == ["net predicts the target"]
    assert not_fired(warnings, []) == warnings
    assert not causes_of(Run.of(observed(planned_steps=20, planned_epochs=1), config=config | {"schedule": SHORT}))


def test_a_recorded_run_is_diagnosed_with_its_config(tmp_path, monkeypatch):
    told = {"result_of": observed(**LENGTH), "references_of": None, "config_of": {**CONFIG, "label_smoothing": 0.95}}
    for name, found in told.items():
        monkeypatch.setattr(find, name, lambda project, run, found=found: found)
    (row,) = (row for row in find.diagnoses_of(Project(tmp_path), "abc") if row.id == ALONE)
    assert row.reason.startswith("label_smoothing: 0.95 leaves the right one of 10 classes")


FIRST = [case for case in CASES if case.id.endswith("a") or not case.is_faulty]


@pytest.mark.slow
@pytest.mark.parametrize("case", FIRST, ids=[f"{case.id} {case.what}" for case in FIRST])
def test_a_training_is_told_its_cause_and_its_twin_none(case):
    found = judged(case, 41, trained(case, 41))
    assert (found.missed, found.wrong) == (frozenset(), frozenset())
