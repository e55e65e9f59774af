"""Faults planted in `mltrainer/search`."""

from __future__ import annotations

from tests.mutations.fault import Fault

STUDY, COUNTING = "tests/search/test_study.py", "tests/search/test_counting.py"
HALVING, BUDGET = "tests/search/test_halving.py", "tests/search/test_budget.py"
LAG = f"{STUDY}::test_trial_n_is_decided_by_just_those_up_to_n_less_the_lag"
FAULTS = (
    Fault(
        "a trial is chosen by one trial less than it waits for",
        "mltrainer/search/study.py",
        "self._learn(number - self.job.lag)",
        "self._learn(number - self.job.lag - 1)",
        LAG,
    ),
    Fault(
        "of two equal trials the later one is the best",
        "mltrainer/search/trial.py",
        "key=lambda trial: (sign * trial.value, -trial.nr)",
        "key=lambda trial: (sign * trial.value, trial.nr)",
        "tests/search/test_study.py::test_of_equal_trials_the_earlier_is_the_best_whichever_ended_first",
    ),
    Fault(
        "a trial over folds has its first fold's value",
        "mltrainer/search/study.py",
        "math.fsum(one.value for one in found) / len(found)",
        "found[0].value",
        STUDY,
    ),
    Fault(
        "a rung lets one more go on",
        "mltrainer/search/halving.py",
        "there[-((len(there) + 1) // eta)]",
        "there[-((len(there) + 1) // eta) - 1 :][0]",
        HALVING,
    ),
    Fault(
        "the last rung is where the training ends",
        "mltrainer/search/halving.py",
        "return [epoch for epoch in found if epoch < epochs]",
        "return [epoch for epoch in found if epoch <= epochs]",
        HALVING,
    ),
    Fault(
        "every comparison has the first one's seeds",
        "mltrainer/search/counting.py",
        'return "comparison" if number == 1 else f"comparison/{number}"',
        'return "comparison"',
        COUNTING,
    ),
    Fault(
        "another seed of the plan starts its comparisons anew",
        "mltrainer/search/counting.py",
        'if key != "seed"}',
        'if key != "name"}',
        COUNTING,
    ),
    Fault(
        "comparisons on other data count",
        "mltrainer/search/counting.py",
        "== (key.plan_sha256, key.data_sha256)",
        "== (key.plan_sha256, one.data_sha256)",
        COUNTING,
    ),
    Fault(
        "a later comparison takes no more pairs than the first",
        "mltrainer/search/counting.py",
        "return 0 if least > max(MOST_PAIRS, seeds) else max(seeds, least)",
        "return 0 if least > max(MOST_PAIRS, seeds) else seeds",
        COUNTING,
    ),
    Fault(
        "a comparison is trained as the trials were",
        "mltrainer/search/comparing.py",
        "planned = job.planned or job.config",
        "planned = job.config",
        COUNTING,
    ),
    Fault(
        "a candidate may be trained for more epochs than the baseline",
        "mltrainer/search/comparing.py",
        '{"epochs": max(planned.epochs, candidate.epochs)}',
        '{"epochs": planned.epochs}',
        COUNTING,
    ),
    Fault(
        "the short last batch is counted as a whole one",
        "mltrainer/search/comparing.py",
        "return epochs * size + steps * batch",
        "return epochs * -(-size // batch) * batch + steps * batch",
        COUNTING,
    ),
    Fault(
        "a forecast takes the comparison's runs for as short as trials",
        "mltrainer/search/budget.py",
        "whole_s = run_s if job.planned_s is None else job.planned_s",
        "whole_s = run_s",
        BUDGET,
    ),
    Fault(
        "a range of few whole numbers is searched as if it had no end",
        "mltrainer/search/points.py",
        "== dimension[form][1] - dimension[form][0] + 1",
        "== dimension[form][1] - dimension[form][0]",
        "tests/phases/test_optimization.py::test_a_space_of_few_points_is_gone_through_once_and_what_is_left_out_is_said",
    ),
    Fault(
        "a worker's beat lacks the epochs to come",
        "mltrainer/search/worker.py",
        'PLACE = ("epoch", "epochs", "step", "steps", "steps_per_s")',
        'PLACE = ("epoch", "step", "steps", "steps_per_s")',
        "tests/search/test_worker.py",
    ),
    Fault(
        "a worker's beats of one run tell of the run before",
        "mltrainer/search/worker.py",
        'self._state = {} if event == "start" else {**self._state, **_known(**values)}',
        "self._state = {**self._state, **_known(**values)}",
        "tests/search/test_worker.py",
    ),
    Fault(
        "what a search's workers print keeps its secrets",
        "mltrainer/search/pool.py",
        "redact_file(self._folder / LOG_FILE)",
        "(self._folder / LOG_FILE).exists()",
        "tests/search/test_pool.py::test_what_a_worker_prints_is_kept_without_secrets",
    ),
    Fault(
        "a trial is not held to the files that planning saw opened",
        "mltrainer/search/runs.py",
        '"data_files", "input_files", "parent")',
        '"data_files", "parent")',
        "tests/search/test_pool.py -k planned_with",
    ),
    Fault(
        "of the older trials the newest are kept, not the best",
        "mltrainer/search/window.py",
        "heapq.heappush(self._best, (self._rank(older), older))",
        "heapq.heappush(self._best, ((True, 0, 0.0, older.number), older))",
        "tests/search/test_window.py -k best_of_the_older",
    ),
    Fault(
        "an old project's study sees a window",
        "mltrainer/search/suggest.py",
        'config.get("rules", 1) >= SINCE_RULES',
        'config.get("rules", 1) >= 1',
        "tests/search/test_window.py -k new_rules_alone",
    ),
    Fault(
        "a trial decides rungs before it may",
        "mltrainer/search/study.py",
        "self._learn(number - self.job.lag)",
        "self._learn(min(number - 1, self._journal.added))",
        "tests/search/test_study.py -k rungs_are_decided",
    ),
)
