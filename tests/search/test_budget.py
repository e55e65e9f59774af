"""What a search will take, and when its time is over."""

from __future__ import annotations

from typing import Any

import pytest

from mltrainer.records.job import SearchJob
from mltrainer.search.budget import Budget
from tests.search.test_program import study


def budget(trials: int = 20, workers: int = 2, minutes: float = 60, **changes: Any) -> Budget:
    job = study({}, trials)
    job["config"]["budget"] = {"minutes": minutes}
    return Budget.of(SearchJob.model_validate({**job, "seeds": 5, **changes}), trials, workers)


def test_the_trials_have_what_baseline_and_comparison_leave_of_the_budget():
    found = budget(baseline_s=300, run_s=120)
    assert (found.search_s, found.comparison_s, found.minutes) == (1200, 600, 45)


def test_half_of_the_budget_is_there_for_the_trials_however_long_the_baseline_took():
    assert budget(baseline_s=3000, run_s=1500).minutes == 30


def test_the_templates_minutes_come_first_and_without_a_baseline_there_is_no_limit():
    assert Budget.of(job_of().model_copy(update={"minutes": 7.0, "baseline_s": 60.0, "run_s": 60.0}), 20, 2).minutes == 7.0
    assert (budget().minutes, budget().told()) == (None, None)


def job_of() -> SearchJob:
    return SearchJob.model_validate({**study({}, 20), "seeds": 5})


THEN = "to compare the best with the baseline and to repeat it"
LATE = (
    "20 trials of about 10 min, 2 at a time, about 1 h 40 min; there are 30 min for them, in which about 6 begin: the same as "
    "the first 6 of a longer search. --set minutes=100 lets all of them begin"
)


@pytest.mark.parametrize(
    ("run_s", "told"),
    [
        (0.4, f"20 trials of about 400 ms, 2 at a time, about 4.00 s; then about 2.40 s {THEN}"),
        (12, f"20 trials of about 12.0 s, 2 at a time, about 2 min; then about 1 min 12 s {THEN}"),
        (600, LATE),
    ],
)  # fmt: skip
def test_a_search_says_what_it_takes_and_whether_it_fits(run_s, told):
    assert budget(baseline_s=2 * run_s, run_s=run_s).told() == told


def test_the_start_of_the_workers_is_part_of_a_search_and_changes_no_limit():
    job = study({}, 8)
    job["config"]["budget"] = {"minutes": 60}
    asked = SearchJob.model_validate({**job, "seeds": 5, "baseline_s": 0.8, "run_s": 0.5})
    at_once, started = Budget.of(asked, 8, 2), Budget.of(asked, 8, 2, start_s=3.0)
    assert (at_once.search_s, started.search_s) == (2.0, 5.0)
    assert (at_once.replay_s, started.replay_s) == (0.5, 3.5)
    assert at_once.minutes == started.minutes
    assert "about 5.00 s; then about 6.00 s to compare" in str(started.told())


def test_a_trial_has_a_run_for_each_fold_and_a_seed_of_the_comparison_has_one():
    config = study({}, 20)["config"]
    found = budget(
        baseline_s=50, run_s=10, config={**config, "split": {**config["split"], "folds": 5}, "budget": {"minutes": 60}}
    )
    assert (found.trial_s, found.comparison_s) == (50, 50)


def test_the_comparison_is_forecast_by_whole_runs_and_the_trials_by_what_rungs_leave():
    whole = budget(baseline_s=300, run_s=120, planned_s=240)
    assert whole.forecast() == {"search_s": 1200, "comparison_s": 1200}
    pruning = {"name": "successive_halving", "eta": 3, "first": 1}
    job = {**study({}, 20), "seeds": 5, "run_s": 120.0, "baseline_s": 300.0, "lag": 4, "pruning": pruning}
    job["config"] = {**job["config"], "epochs": 10, "budget": {"minutes": 60}}
    pruned = Budget.of(SearchJob.model_validate(job), 20, 2)
    share = (1 + 2 / 3 + 6 / 9 + 1 / 27) / 10  # of the 14 trials that older ones can end: 4 + 3 - 1 go first
    assert pruned.search_s == pytest.approx(10 * 120 * (6 + 14 * share) / 20)


def test_a_forecast_is_no_longer_than_the_time_that_there_is():
    assert budget(baseline_s=300, run_s=600).forecast()["search_s"] == 60 * 30
    assert budget().forecast() == {"search_s": None, "comparison_s": None}
