"""What a search's report says of its space and of the next search: what the data show, and nothing more."""

from __future__ import annotations

import json
import math
import random
import time
from typing import Any

import pytest

from mltrainer.configs.templates import Dimension as Given
from mltrainer.figures.drawn import draw
from mltrainer.records.optimization import Comparison, Searched, Trial
from mltrainer.records.pareto import front, taken
from mltrainer.records.partial import partial
from mltrainer.reports.advice import Search, advice, comparison_power, next_search, seed_spread, template_lines
from mltrainer.reports.importance import chi_squared_tail, importances, ranked
from mltrainer.reports.render import render
from mltrainer.reports.space import Dimension, as_yaml, dimensions, wider
from mltrainer.reports.tuning import reasons, rungs, saved, tradeoff
from mltrainer.reports.values import number
from tests.reports import records

WANTED = {"calibration_error": "min"}
POINTS = [(0.90, 0.10), (0.895, 0.04), (0.80, 0.01), (0.79, 0.05)]
RATE = {"optimizer.lr": {"log_uniform": [1e-4, 1e-2]}}
SPACE = {**RATE, "model.dropout": {"uniform": [0.0, 0.5]}, "batch_size": {"choice": [16, 32, 64]}}


def trial(nr: int, value: float, state: str = "finished", **changes: Any) -> dict[str, Any]:
    values = {"optimizer.lr": 10 ** (-4 + 2 * (nr % 10) / 10), "model.dropout": (nr % 7) / 14, "batch_size": 16 * 2 ** (nr % 3)}
    return {"nr": nr, "values": values, "state": state, "value": value, "reason": None, **changes}


def search(trials: list[dict[str, Any]], space: dict[str, Any] | None = None, **changes: Any) -> Search:
    compared = {"seeds": [1, 2, 3], "baseline": [0.5, 0.51, 0.49], "candidate": [0.6, 0.61, 0.59]}
    evidence = {"metric": {"name": "accuracy", "mode": "max"}, "space": space or SPACE, "trials": trials, "cheaper": []}
    values = {**evidence, "baseline": {"run": "a", "value": 0.1}, "comparison": compared, **changes}
    return Search(partial(Searched, values))


def drawn_trials(count: int, seed: int, slope: float) -> list[dict[str, Any]]:
    """Return trials of a space in which the learning rate alone matters, as strongly as the slope says."""
    draw = random.Random(seed)
    found = []
    for nr in range(1, count + 1):
        exponent = draw.uniform(-4, -2)
        others = {"model.dropout": draw.uniform(0, 0.5), "batch_size": draw.choice([16, 32, 64])}
        value = slope * exponent + draw.gauss(0, 0.3)
        found.append(trial(nr, value, values={"optimizer.lr": 10**exponent, **others}))
    return found


def best_first(trials: list[dict[str, Any]], mode: str = "max") -> list[Trial]:
    return ranked([partial(Trial, one) for one in trials], mode)


def texts(found: Search) -> str:
    return "\n".join(f"{one.what}: {one.text}" for one in advice(found))


def report(found: dict[str, Any]) -> str:
    return render(records.again(found), [], records.improvement("pass", 0.03125))["tuning_results.md"]


# --- importance ---------------------------------------------------------------------------------


def test_the_dimension_that_matters_is_found_and_the_others_are_told_from_it():
    found = importances(dimensions(SPACE), best_first(drawn_trials(60, 1, 1.0)))
    assert (found[0].dimension.key, found[0].is_clear) == ("optimizer.lr", True)
    assert found[0].share > 0.8
    assert not any(row.is_clear for row in found[1:])


def test_of_pure_noise_hardly_any_study_names_an_important_dimension():
    noise = [importances(dimensions(SPACE), best_first(drawn_trials(40, seed, 0.0))) for seed in range(200)]
    assert sum(any(row.is_clear for row in rows) for rows in noise) <= 0.06 * 200


def test_a_metric_that_should_be_small_is_ranked_the_other_way_round():
    trials = drawn_trials(60, 1, 1.0)
    assert best_first(trials, "min") == best_first(trials)[::-1]


def test_few_trials_have_no_importances():
    assert importances(dimensions(SPACE), best_first(drawn_trials(19, 1, 1.0))) == []


def test_trials_stopped_at_a_rung_rank_behind_those_that_trained_on_and_failed_ones_nowhere():
    trials = [
        trial(1, 0.9, "pruned", pruned_at=2),
        trial(2, 0.5),
        trial(3, 0.7, "pruned", pruned_at=4),
        trial(4, 0.8, "failed"),
        trial(5, "nan"),  # type: ignore[arg-type]
    ]
    assert [one.nr for one in best_first(trials)] == [2, 3, 1]


@pytest.mark.parametrize(
    ("statistic", "freedom", "tail"), [(3.841, 1, 0.05), (5.991, 2, 0.05), (7.815, 3, 0.05), (14.067, 7, 0.05)]
)
def test_the_chi_squared_tail_is_that_of_the_tables(statistic, freedom, tail):
    assert chi_squared_tail(statistic, freedom) == pytest.approx(tail, abs=1e-4)
    assert chi_squared_tail(5000.0, freedom) == 0.0


# --- what to search next ------------------------------------------------------------------------


def test_best_trials_at_the_end_of_a_range_widen_it_as_the_template_says_it():
    found = search(drawn_trials(60, 3, 1.0))
    assert "optimizer.lr: the best trial" in texts(found)
    assert "is near the upper end of its range (0.0100)" in texts(found)
    assert "  optimizer.lr: {log_uniform: [0.0001, 0.1]}" in template_lines(advice(found))


def test_best_trials_in_the_middle_of_a_range_widen_nothing():
    trials = drawn_trials(60, 1, 0.0)
    peaked = [{**one, "value": -((math.log10(one["values"]["optimizer.lr"]) + 3) ** 2)} for one in trials]
    assert "widen" not in texts(search(peaked, RATE))


def test_best_trials_that_peak_before_the_end_widen_nothing():
    trials = drawn_trials(200, 1, 0.0)
    peaked = [{**one, "value": -((math.log10(one["values"]["optimizer.lr"]) + 2.3) ** 2)} for one in trials]
    assert "widen" not in texts(search(peaked, RATE))


def test_noise_widens_hardly_any_range():
    advised = [texts(search(drawn_trials(40, seed, 0.0))).count("its range") for seed in range(200)]
    assert sum(advised) <= 0.06 * 200 * len(SPACE)


def crowded(count: int, value: Any, seed: int = 4) -> list[dict[str, Any]]:
    """Return trials of which all but ten lie in the upper tenth of the learning rate's range, as of a search that learned."""
    draw = random.Random(seed)
    found = []
    for nr in range(1, count + 1):
        exponent = -2 - draw.random() * (2 if nr <= 10 else 0.2)
        values = {"optimizer.lr": 10**exponent, "model.dropout": draw.uniform(0, 0.5), "batch_size": draw.choice([16, 32, 64])}
        found.append(trial(nr, value(values, draw), values=values))
    return found


def test_a_search_that_crowded_its_trials_by_luck_widens_nothing():
    assert "optimizer.lr" not in texts(search(crowded(60, lambda values, draw: draw.random())))
    better_there = crowded(60, lambda values, draw: math.log10(values["optimizer.lr"]) + draw.gauss(0, 0.1))
    assert "optimizer.lr: the best trial" in texts(search(better_there))


def test_a_key_whose_trials_the_search_crowded_is_never_called_unimportant():
    found = search(crowded(80, lambda values, draw: values["model.dropout"] + draw.gauss(0, 0.01), seed=5))
    assert next(row for row in found.importances if row.dimension.key == "optimizer.lr").p_value > 0.3
    assert "optimizer.lr" not in texts(found)


def test_an_end_that_is_zero_is_not_widened_and_the_range_narrowed_to_it():
    trials = [{**one, "value": -one["values"]["model.dropout"]} for one in drawn_trials(60, 3, 0.0)]
    found = search(trials, {"model.dropout": SPACE["model.dropout"]})
    assert "model.dropout: the best trial" in texts(found)
    assert "nothing is to be searched beyond it" in texts(found)
    (line,) = (line for line in template_lines(advice(found)) if "dropout" in line)
    low, high = json.loads(line.partition("uniform: ")[2].removesuffix("}"))
    assert (low, 0.05 < high < 0.2) == (0.0, True)


@pytest.mark.parametrize(
    ("given", "up", "down"),
    [
        ({"log_uniform": [1e-4, 1e-2]}, [1e-4, 0.1], [1e-5, 1e-2]),
        ({"uniform": [0.0, 0.5]}, [0.0, 0.75], None),
        ({"uniform": [0.5, 0.9]}, [0.5, 0.95], [0.3, 0.9]),
        ({"uniform": [-1.0, 3.0]}, [-1.0, 5.0], [-3.0, 3.0]),
        ({"integer": [2, 6]}, [2, 8], [0, 6]),
        ({"log_integer": [16, 64]}, [16, 128], [8, 64]),
        ({"log_integer": [1, 64]}, [1, 128], None),
        ({"choice": [16, 32, 64]}, [16, 32, 64, 128], [8, 16, 32, 64]),
        ({"choice": [1, 2, 4]}, [1, 2, 4, 8], None),
    ],
)
def test_a_wider_range_goes_one_step_further(given, up, down):
    (dimension,) = dimensions({"key": given})
    for upwards, expected in ((True, up), (False, down)):
        found = wider(dimension, upwards)
        assert (next(iter(found.values())) if found else None) == expected


def test_what_is_proposed_is_what_the_template_reads():
    when = Dimension("model.width", "log_uniform", [1e-6, 1e-3], {"model.name": ["mlp", "cnn"]})
    assert (
        as_yaml(when, wider(when, False) or {})
        == 'model.width: {log_uniform: [1e-07, 0.001], when: {model.name: ["mlp", "cnn"]}}'
    )
    for given in SPACE.values():
        (dimension,) = dimensions({"key": given})
        for upwards in (True, False):
            Given.model_validate(wider(dimension, upwards) or given)


def test_failures_at_one_end_of_a_range_end_it_there():
    trials = [trial(nr, nr / 30, values={"optimizer.lr": 10 ** (-4 + nr / 20)}) for nr in range(30)]
    trials += [trial(nr, "nan", "failed", values={"optimizer.lr": 10 ** (-4 + nr / 20)}) for nr in range(35, 40)]  # type: ignore[arg-type]
    found = search(trials, RATE)
    assert "all 5 failed trials have values from 0.00562 on, where 0 came through" in texts(found)
    assert "  optimizer.lr: {log_uniform: [0.0001, 0.00562]}" in template_lines(advice(found))


def test_failures_all_over_a_range_say_nothing_of_it():
    trials = [trial(nr, "nan" if nr % 5 == 0 else 0.5, "failed" if nr % 5 == 0 else "finished") for nr in range(1, 40)]  # type: ignore[arg-type]
    assert "failed" not in texts(search(trials))


def test_no_trial_that_reaches_the_baseline_is_told_with_what_the_trials_lack():
    shorter = [{"key": "epochs", "before": 20, "after": 10}]
    found = search([trial(nr, 0.5) for nr in range(1, 20)], baseline={"run": "a", "value": 0.9}, cheaper=shorter)
    assert "No trial reaches the baseline (0.500 against 0.900); trials train for 10 epochs, the baseline for 20" in texts(found)
    assert template_lines(advice(found))[-2:] == ["trial:", "  epochs: 20"]


def test_trials_that_were_best_at_their_last_evaluation_should_train_longer():
    rising = [trial(nr, 0.5, curve=[[1, 0.1], [2, 0.3], [3, 0.5]]) for nr in range(1, 20)]
    fallen = [trial(nr, 0.5, curve=[[1, 0.1], [2, 0.5], [3, 0.3]]) for nr in range(1, 20)]
    assert "were at their best in their last evaluation (epoch 3)" in texts(search(rising))
    assert "last evaluation" not in texts(search(fallen))


def test_more_trials_are_advised_where_the_last_ones_improved_by_more_than_seeds_do():
    improving = [trial(nr, 0.1 * nr) for nr in range(1, 21)]
    hardly = [trial(nr, 0.0001 * nr) for nr in range(1, 21)]
    assert "run more trials" not in texts(search(hardly))
    finished_early = [trial(nr, 2.0 - 0.1 * nr) for nr in range(1, 21)]
    assert "The last quarter of the trials still improved" in texts(search(improving))
    assert "trials: 40" in template_lines(advice(search(improving)))
    assert "more trials of this space will hardly help" in texts(search(finished_early))
    assert "give the search more time" in texts(search(improving, ended="time"))


FLAT = [trial(nr, 0.5 if nr == 1 else 0.1) for nr in range(1, 17)]  # nothing after the first


def test_the_spread_between_seeds_is_pooled_with_the_variance_of_a_sample():
    compared = {"seeds": [1, 2, 3], "baseline": [1.0, 2.0, 3.0], "candidate": [2.0, 6.0, 10.0]}
    assert seed_spread(partial(Comparison, compared)) == pytest.approx(math.sqrt((1 + 16) / 2))
    assert seed_spread(partial(Comparison, {**compared, "candidate": [2.0, 6.0]})) is None
    assert seed_spread(partial(Comparison, {**compared, "candidate": [2.0, "nan", 6.0]})) is None


def test_gate_and_report_advise_the_same():
    improving = search([trial(nr, 0.1 + (0.1 if nr > 13 else 0)) for nr in range(1, 17)], RATE)
    assert "run more trials" in texts(improving)
    assert next_search(improving.record) == "mltrainer phase run optimization --set trials=32"
    assert "more trials of this space will hardly help" in texts(search(FLAT, RATE))
    assert "trials" not in next_search(search(FLAT, RATE).record)
    assert "gate waive" in next_search(search(FLAT, RATE).record)


def test_no_more_trials_are_advised_than_the_space_has_points():
    values = [trial(nr, 0.1 + (0.1 if nr > 13 else 0)) for nr in range(1, 17)]
    assert "every point of the space was tried" in texts(search(values, RATE, points=16))
    assert next_search(search(values, RATE, points=20).record).endswith("--set trials=20")
    few = [trial(nr, 0.1) for nr in range(1, 4)]
    assert next_search(search(few, RATE).record).endswith("--set trials=6")
    assert "another space" in next_search(search(few, RATE, points=3).record)


def test_the_report_shows_the_budget_of_both_sides_and_what_a_grid_left_out():
    record = records.searched(12)
    sides = {"baseline": (20, [10, 11], [320, 352]), "candidate": (20, [40, 44], [320, 352])}
    budget = {name: dict(zip(("epochs", "steps", "samples"), given, strict=True)) for name, given in sides.items()}
    comparison = {**record["evidence"]["comparison"], "budget": budget, "number": 2}
    forecast = {"search_s": 100.0, "comparison_s": 50.0}
    changes = {"comparison": comparison, "points": 15, "planned_trials": 12, "forecast": forecast, "comparison_s": 70.0}
    gate = records.improvement("fail", 0.2, comparison=2, level=0.009375)
    told = render(records.again({**record, "evidence": {**record["evidence"], **changes}}), [], gate)["tuning_results.md"]
    assert "| baseline | 20 | 21 | 672 |" in told
    assert "| candidate | 20 | 84 | 672 |" in told
    assert "comparison 2 of a candidate with this plan's baseline" in told
    assert "The grid has 15 points: 12 were tried and 3 left out" in told
    assert "at most 0.009375 promotes" in told


def test_a_key_without_importance_beside_one_with_it_is_left_out():
    found = texts(search(drawn_trials(60, 7, 1.0)))
    assert "model.dropout: it made no difference that 60 trials show (p 0.78)" in found
    assert "batch_size: it made no difference" not in found  # p is 0.17: it may
    assert "made no difference" not in texts(search(drawn_trials(60, 2, 0.0)))  # nothing is clear, so nothing is told apart


def test_few_trials_advise_nothing_and_the_report_says_so():
    assert advice(search(drawn_trials(11, 1, 1.0))) == []
    found = records.searched(6)
    assert "6 trials: too few to say what to search next" in report(found)
    assert "What to search next" not in report(found)
    assert "Which keys mattered" not in report(found)


@pytest.mark.parametrize(
    ("judged", "seeds", "told"),
    [
        (
            {"effect_size": 1.0, "seeds_needed": 8},
            5,
            "8 seeds would show one of that size with a probability of 0.8, 5 were compared",
        ),
        ({"effect_size": 3.0, "seeds_needed": 5}, 5, "5 seeds show one of that size"),
        ({"effect_size": 0.1, "seeds_needed": 619}, 5, "more than 20 seeds would be needed"),
        ({"effect_size": -1.0, "seeds_needed": None}, 5, "no number of seeds would show an improvement"),
    ],
)
def test_the_report_says_how_many_seeds_the_effect_would_need(judged, seeds, told):
    assert told in (comparison_power(judged, seeds) or "")
    assert comparison_power({}, seeds) is None


# --- rows and figures ---------------------------------------------------------------------------


def test_rungs_say_how_many_trials_came_to_each_and_what_was_saved():
    ends = [(2, "pruned"), (2, "pruned"), (4, "pruned"), (8, "finished"), (1, "failed")]
    trials = [
        trial(nr, 0.5, state, curve=[[epoch, 0.5] for epoch in range(1, last + 1)], pruned_at=last if state == "pruned" else None)
        for nr, (last, state) in enumerate(ends, 1)
    ]
    cheaper = [{"key": "epochs", "before": 20, "after": 8}]
    found = partial(Searched, {"trials": trials, "rungs": [2, 4], "cheaper": cheaper, "config": {}})
    assert rungs(found) == [{"epoch": 2, "reached": 4, "stopped": 2}, {"epoch": 4, "reached": 2, "stopped": 1}]
    assert saved(found) == {"epochs": 16, "of": 40, "share": 0.4}
    assert saved(found.model_copy(update={"trials": found.trials[3:]})) is None


def test_failures_that_differ_in_a_number_alone_are_one_group():
    failed = [trial(nr, 0.0, "failed", reason=f"the loss was not finite at step {nr * 100}") for nr in range(1, 12)]
    failed.append(trial(20, 0.0, "failed", reason="out of memory"))
    rows = reasons([partial(Trial, row) for row in failed])
    assert [(row["count"], row["trials"]) for row in rows] == [(11, "1, 2, 3, 4, 5, 6, 7, 8 and 3 more"), (1, "20")]


def test_the_best_values_stand_beside_the_baselines():
    text = report(records.searched(24))
    assert "| `batch_size` | 32 |" in text
    assert "| `model.name` | does not apply |" in text


def several(count: int, spread: bool = True) -> dict[str, Any]:
    """Return a search by two metrics, of which the second is the better the worse the first is, but for a few trials."""
    found = records.searched(count)
    evidence = found["evidence"]
    for row in evidence["trials"]:
        if row["state"] == "finished":
            row["objectives"] = {"calibration_error": row["value"] / 10 + (row["nr"] % 5 == 0)}
    best = taken([partial(Trial, row) for row in evidence["trials"]], "max", WANTED)
    few = {} if spread else {"comparison": {**evidence["comparison"], "baseline": [], "candidate": [], "seeds": []}}
    return records.again({**found, "evidence": {**evidence, **few, "objectives": WANTED, "best": best and best.nr}})


def test_a_search_by_several_metrics_shows_its_trade_off_and_tells_the_rule():
    found = several(24)
    text = report(found)
    best, trials = found["evidence"]["best"], [partial(Trial, row) for row in found["evidence"]["trials"]]
    assert f"Trial {best} was taken: of the Pareto set, the one closest to the best value of each" in text
    table = text.partition("| trial | accuracy (max) | calibration_error (min) |")[2].partition("Between seeds")[0]
    listed = [int(line.split("|")[1].replace("(taken)", "").strip("* ")) for line in table.splitlines()[2:] if line]
    assert sorted(listed) == [trial.nr for trial in front(trials, "max", WANTED)]
    values = [trial.value for nr in listed for trial in trials if trial.nr == nr]
    assert values == sorted(values, reverse=True)
    assert "How much the further metrics vary between seeds was not measured." in text
    assert "tradeoff_1.svg" in {figure.file for figure in draw("optimization", found["evidence"])}
    assert "Pareto" not in report(records.searched(24))


def test_a_report_tells_the_constraints_and_how_many_trials_missed_them():
    found = several(24)
    evidence = found["evidence"]
    finished = [row for row in evidence["trials"] if row["state"] == "finished"]
    missed = sum(row["objectives"]["calibration_error"] > 1 for row in finished)
    assert 0 < missed < len(finished)
    limits = {"calibration_error": "<= 1"}
    text = report(records.again({**found, "evidence": {**evidence, "constraints": limits}}))
    assert (
        f"{missed} finished trials did not meet the constraints, and could not be the best: `calibration_error` `<= 1`." in text
    )
    none = {**evidence, "constraints": {"calibration_error": "<= -1"}, "best": None, "objectives": {}}
    assert "Not one of 24 trials finished and met the constraints" in report(records.again({**found, "evidence": none}))


def test_those_within_the_spread_between_seeds_are_named():
    rows = [trial(nr, value, objectives={"calibration_error": error}) for nr, (value, error) in enumerate(POINTS, 1)]
    told = tradeoff(search(rows, objectives=WANTED, best=2).record)
    assert told["spread"] == pytest.approx(0.01)
    assert (told["level"], [row["nr"] for row in told["rows"]]) == ([1], [1, 2, 3])


def test_a_search_has_its_figures_where_it_has_the_trials_for_them():
    many = {figure.file for figure in draw("optimization", records.searched(60)["evidence"])}
    few = {figure.file for figure in draw("optimization", records.searched(4)["evidence"])}
    assert many == {"trials.svg", "comparison.svg", "slices.svg", "important.svg", "parallel.svg", "curves.svg"}
    assert few == {"trials.svg", "comparison.svg", "curves.svg"}


def test_a_trial_that_was_stopped_at_a_rung_is_never_the_best_of_a_figure():
    found = records.searched(20)["evidence"]
    ahead = [{**one, "value": 0.999} if one["state"] == "pruned" else one for one in found["trials"]]
    before, after = (draw("optimization", {**found, "trials": trials})[0] for trials in (found["trials"], ahead))
    assert after.caption == before.caption
    assert "stopped at a rung" in after.content


def test_a_trial_that_misses_a_constraint_is_never_the_best_of_a_figure():
    found = several(20)["evidence"]
    finished = [one for one in found["trials"] if one["state"] == "finished"]
    worst = min(finished, key=lambda one: one["value"])
    trials = [{**one, "objectives": {"calibration_error": int(one is not worst)}} for one in found["trials"]]
    limits = {"constraints": {"calibration_error": "<= 0"}, "trials": trials, "best": worst["nr"], "objectives": {}}
    caption = draw("optimization", {**found, **limits})[0].caption
    assert f"{number(worst['value'], 5)} (trial {worst['nr']})" in caption


def test_a_record_without_the_newer_fields_has_the_report_that_it_had():
    found = records.searched(30)
    newer = ("curve", "pruned_at", "attempts")
    trials = [{key: value for key, value in one.items() if key not in newer} for one in found["evidence"]["trials"]]
    older = [{**one, "state": "finished"} if one["state"] == "pruned" else one for one in trials]
    evidence = {key: value for key, value in found["evidence"].items() if key not in ("rungs", "lag", "search_s", "ended")}
    evidence |= {"trials": older, "baseline": {"run": "a", "value": 0.9}, "promoted": "candidate"}
    text = report({**found, "evidence": evidence})
    for heading in ("Rungs", "curves.svg", "| searched key | baseline |", "more than one process", "The time ended"):
        assert heading not in text
    assert "<summary>Trials (30)</summary>" in text


def test_a_search_that_the_time_ended_is_told():
    found = records.searched(20)
    assert "The time ended the search" not in report(found)
    assert "The time ended the search" in report({**found, "evidence": {**found["evidence"], "ended": "time"}})


@pytest.mark.slow
def test_ten_thousand_trials_are_rendered_and_drawn_quickly_and_the_best_hundred_shown():
    found = records.searched(10_000)
    render(records.searched(20), [], [])  # compiles the templates, which is not what is measured
    started = time.process_time()
    text = render(found, [], [])["tuning_results.md"]
    figures = draw("optimization", found["evidence"])
    assert time.process_time() - started < 3.0
    assert "the best 100 of 10,000; the record holds all" in text
    assert len(text) < 40_000
    assert all(len(figure.content) < 30_000 for figure in figures)
    assert json.dumps(found)  # nothing of it was changed
