"""The benchmark of the diagnostics: cases are trained, labels are compared, nothing is counted twice or silently."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mltrainer.diagnostics.causes import ALONE
from mltrainer.diagnostics.rules import RULES
from tests.benchmarks import bench_diagnostics as bench
from tests.benchmarks.diagnostics import third
from tests.benchmarks.diagnostics.case import Case, by, faulty, healthy, sgd
from tests.benchmarks.diagnostics.data_checks import checked
from tests.benchmarks.diagnostics.judging import (
    CAUSE_NAMES,
    LABELS,
    UNNAMED,
    WRONG_CAUSES,
    Verdict,
    by_case,
    by_label,
    judged,
    totals,
)
from tests.benchmarks.diagnostics.tasks import Classes
from tests.benchmarks.diagnostics.training import config_of, kept, train_and_keep, trained

CASES = [case for cases in bench.SETS.values() for case in cases]
FAULTY, HEALTHY = (
    Case("F", "faulty", Classes, {}, frozenset(["LR_LOW"]), frozenset(["STALL"])),
    Case("H", "healthy", Classes, {}),
)


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.id == name)


def verdict(case: Case, *said: str, since: float | None = None, refused: str | None = None) -> Verdict:
    shares = {} if since is None else dict.fromkeys(said, since)
    return Verdict(case, 11, frozenset(said), shares, refused)


def test_a_faulty_run_is_found_by_its_label():
    found = judged(case_of("F10"), 11, trained(case_of("F10"), 11))
    assert (found.found, found.missed, found.wrong) == ({"NAN_LOSS"}, set(), set())


@pytest.mark.slow
def test_nothing_is_said_of_a_healthy_run():
    assert judged(case_of("H24"), 11, trained(case_of("H24"), 11)).said == frozenset()


@pytest.mark.slow
def test_validation_samples_of_one_class_do_not_show_that_training_samples_lost_theirs():
    found = judged(case_of("F129"), 21, trained(case_of("F129"), 21))
    assert (found.said & WRONG_CAUSES, found.wrong) == (set(), set())


def test_a_case_of_a_tasks_own_optimizer_is_judged_with_that_ones_defaults():
    case = Case("F", "faulty", Classes, {"optimizer": {"name": "own"}}, frozenset(["LR_LOW"]))
    result = {"planned_steps": 20, "planned_epochs": 10, "state": "finished"}
    assert judged(case, 11, result).said == frozenset()


def test_a_result_is_kept_for_the_code_that_gave_it(tmp_path):
    case = case_of("F37")
    train_and_keep(case, 11, tmp_path)
    assert kept(case, 11, tmp_path) == kept(case, 11, tmp_path, of_any_code=True)
    (path,) = tmp_path.iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), "code": "other"}))
    assert kept(case, 11, tmp_path) is None
    assert kept(case, 11, tmp_path, of_any_code=True)["nonfinite"]["step"] >= 1


def test_labels_of_cases_are_labels_of_diagnostics_or_of_none_that_is_judged():
    unjudged = {"OVER_REG", "HIGH_DROPOUT", "LOSS_SCALE", *UNNAMED}
    third = {label for case in bench.SETS["third"] for label in case.must}
    assert {label for case in CASES for label in case.must} - third <= {*LABELS.values(), *CAUSE_NAMES}
    assert third <= {*LABELS.values(), *UNNAMED}
    assert set(UNNAMED) <= third, "each label without a diagnostic is that of a case"
    assert {label for case in CASES for label in case.may} <= {*LABELS.values(), *WRONG_CAUSES, *unjudged}
    assert not any(case.must & case.may for case in CASES)


def test_every_case_and_every_diagnostic_is_named_once():
    assert len({case.id for case in CASES}) == len(CASES)
    assert len({case.id for case in bench.SETS["first"] if case.is_faulty}) == 48
    assert len({case.id for case in bench.SETS["first"] if not case.is_faulty}) == 30
    twice = {label: names for label in LABELS.values() if len(names := [n for n, other in LABELS.items() if other == label]) > 1}
    assert twice == {"PIPELINE": ["input_starvation", "resource_inefficiency"]}
    missing = set(RULES) - {*LABELS, ALONE}
    assert not missing, f"add a label of {sorted(missing)} to LABELS of tests/benchmarks/diagnostics/judging.py"


def test_the_third_set_has_a_twin_without_the_fault_for_each_faulty_case():
    cases = bench.SETS["third"]
    assert len([case for case in cases if case.is_faulty]) == len(third.PAIRS) >= 28
    assert len([case for case in cases if not case.is_faulty]) >= 12
    for one in third.PAIRS:
        assert one.twin.id == f"T{one.case.id}"
        assert one.twin.task is not one.case.task or one.twin.config != one.case.config
        assert not one.twin.is_faulty


@pytest.mark.parametrize("name", ["F103", "TF107", "F114", "F124", "F132", "F141", "TF146", "H121", "H147"])
def test_a_case_of_the_third_set_has_a_config_data_and_a_model(name):
    assert_whole(next(case for case in bench.KNOWN[bench.TWINS] if case.id == name))


@pytest.mark.slow
@pytest.mark.long
def test_every_case_of_the_third_set_has_a_config_data_and_a_model():
    for case in bench.KNOWN[bench.TWINS]:
        assert_whole(case)


def assert_whole(case: Case) -> None:
    task = case.task()
    assert config_of(case, 21, task).epochs == case.config["epochs"]
    assert task.dataset("train") is not None
    assert task.dataset("validation") is not None
    assert sum(one.numel() for one in task.model().parameters()) < 200_000


@pytest.mark.slow
def test_planning_s_checks_are_asked_of_the_data():
    assert "LEAKAGE" in checked(case_of("F125"))
    assert "ONE_CLASS" in checked(case_of("F144"))
    assert checked(case_of("H141")) == frozenset()


def test_a_label_that_a_check_of_the_data_tells_is_found_and_never_wrong():
    one = judged(FAULTY, 11, trained(case_of("F37"), 11), checked=frozenset(["LR_LOW", "LEAKAGE"]))
    assert (one.found, one.missed) == ({"LR_LOW"}, set())
    assert "LEAKAGE" not in one.wrong
    warned = replace(verdict(HEALTHY), checked=frozenset(["IMBALANCE"]))
    found = totals([one, warned])
    assert (found["must_found_by_checks_alone"], found["healthy_warned_by_checks"], found["healthy_flagged"]) == (1, 1, 0)


def test_what_neither_must_nor_may_be_said_is_wrong():
    one = verdict(FAULTY, "STALL", "OVERFIT")
    assert (one.missed, one.wrong) == ({"LR_LOW"}, {"OVERFIT"})
    assert verdict(HEALTHY, "STALL").wrong == {"STALL"}


def test_runs_that_were_not_trained_do_not_count_and_are_told():
    found = totals([verdict(FAULTY, "LR_LOW", since=0.25), verdict(FAULTY, refused="no loss"), verdict(HEALTHY, "STALL")])
    assert (found["faulty"], found["must"], found["must_found"], found["refused"], found["since"]) == (1, 1, 1, 1, 0.25)
    assert (found["healthy_flagged"], found["wrong"], found["wrong_of_faulty"]) == (1, 1, 0)
    assert by_case([verdict(FAULTY, refused="no loss")])[0]["refused"] == "no loss"


def test_a_label_is_counted_by_how_it_was_said():
    rows = {
        row["label"]: row for row in by_label([verdict(FAULTY, "STALL"), verdict(FAULTY, "LR_LOW"), verdict(HEALTHY, "STALL")])
    }
    assert (rows["LR_LOW"]["found"], rows["LR_LOW"]["missed"]) == (1, 1)
    assert (rows["STALL"]["allowed"], rows["STALL"]["wrong"], rows["STALL"]["wrong_of_healthy"]) == (1, 1, 1)


def test_the_page_says_of_cases_only_where_it_may():
    verdicts = [verdict(FAULTY, "OVERFIT"), verdict(HEALTHY)]
    assert "| F | faulty | LR_LOW 1 | OVERFIT 1 |" in bench.block(verdicts)
    assert "| F |" not in bench.block(verdicts, with_cases=False)


def test_a_brief_outcome_is_a_line():
    verdicts = [verdict(FAULTY, "OVERFIT"), verdict(FAULTY, "LR_LOW"), verdict(HEALTHY)]
    labels, healthy = "1 of 2 (50.0%) of the labels found", "something said of 0 of 1 (0.0%) healthy runs"
    assert bench.brief(verdicts) == f"2 cases with seeds 11: {labels}, {healthy}, wrong labels: 1."


@pytest.mark.parametrize("name", list(bench.MARKS))
def test_the_page_has_a_place_for_each_set(name):
    assert "HERE" in bench.placed(bench.PAGE.read_text("utf-8"), "HERE", bench.MARKS[name])


def test_cases_are_written_with_labels_apart():
    case = faulty("F", "what", "NAN_LOSS DATA_NAN", "", Classes, by(sgd(1.0), 3, batch_size=2))
    assert (case.must, case.may, case.is_faulty) == ({"NAN_LOSS", "DATA_NAN"}, frozenset(), True)
    assert not healthy("H", "what", Classes, by(sgd(1.0), 3)).is_faulty
