"""`mltrainer seeds`: how a metric spreads over seeds; what is trained is what an ablation trains as the whole config."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mltrainer.companions.questions import seed_variance as ask
from mltrainer.errors import InputError
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import Project
from tests.companions.questions.test_ablation import Values, invented
from tests.companions.questions.test_ablation import run as ablated


def run(project: Project, values: Values, seeds: int = 5) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is found, and the job, without training."""
    jobs: list[dict[str, Any]] = []
    found = ask.seeds(Tools(project, lambda event: None, invented(values, jobs)), seeds)
    return found.written(), jobs[0]


@pytest.mark.slow
def test_mean_interval_and_what_luck_makes_of_two_runs(digits):
    found, _ = run(digits, lambda _, nr: 0.90 + 0.01 * nr)
    assert found["mean"] == pytest.approx(0.92)
    assert found["interval"] == pytest.approx([0.90, 0.94])
    assert found["deviation"] == pytest.approx(0.01 * math.sqrt(2.5))
    assert found["luck"] == pytest.approx(
        2.7764 * math.sqrt(2) * found["deviation"], rel=1e-4
    )  # Student's t, 97.5 %, 4 degrees of freedom
    assert found["baseline"] is not None
    page = (digits.root / found["page"]).read_text()
    assert "| mean | 0.920 |" in page
    assert "| 90 % interval of the mean | 0.900 to 0.940 |" in page
    assert "| deviation of a single run | 0.0158 |" in page
    assert "| two runs differ by luck alone by up to | 0.0621 (19 of 20 times) |" in page
    assert (digits.root / found["page"]).with_name("seeds.svg").is_file()


@pytest.mark.slow
def test_a_seed_that_failed_leaves_no_mean_and_says_why(digits):
    found, _ = run(digits, lambda _, nr: None if nr == 1 else 0.9 + 0.01 * nr)
    assert (found["mean"], found["interval"]) == (None, None)
    assert found["deviation"] is not None
    page = (digits.root / found["page"]).read_text()
    assert "| mean | none: a run failed |" in page
    assert "| 90 % interval of the mean | none: a run failed |" in page
    assert "| failed on seed 1 | the loss was not finite at step 3" in page
    assert "<b>" not in page


@pytest.mark.slow
def test_its_runs_are_those_of_an_ablations_whole_config(digits):
    _, job = run(digits, lambda _, nr: 0.9, seeds=4)
    _, other = ablated(digits, "clip", seeds=4)
    assert {**job, "variants": 0, "run": 0, "folder": 0} == {**other, "variants": 0, "run": 0, "folder": 0}
    assert job["variants"] == []


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 4, 5])
def test_of_few_seeds_it_is_told_how_many_an_interval_takes(digits, seeds):
    found, _ = run(digits, lambda _, nr: 0.90 + 0.01 * nr, seeds)
    assert found["mean"] is not None
    page = (digits.root / found["page"]).read_text()
    assert (
        ("| 90 % interval of the mean | none: it takes 5 seeds at least |" in page) == (found["interval"] is None) == (seeds < 5)
    )


def test_too_few_seeds_are_refused(digits):
    with pytest.raises(InputError, match="expected 3 to 20 seeds, found 2"):
        run(digits, lambda _, nr: 0.9, seeds=2)
