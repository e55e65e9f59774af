"""Faults planted in `mltrainer/tools`."""

from __future__ import annotations

from tests.mutations.fault import Fault

STUDY, COUNTING = "tests/tools/search/test_study.py", "tests/tools/search/test_counting.py"
HALVING, BUDGET = "tests/tools/search/test_halving.py", "tests/tools/search/test_budget.py"
LAG = f"{STUDY}::test_trial_n_is_decided_by_just_those_up_to_n_less_the_lag"
FAULTS = (
    Fault(
        "a trial is chosen by one trial less than it waits for",
        "mltrainer/tools/search/study.py",
        'older = [self._rows[nr] for nr in range(1, number - self.job["lag"] + 1)]',
        'older = [self._rows[nr] for nr in range(1, number - self.job["lag"])]',
        LAG,
    ),
    Fault(
        "of two equal trials the later one is the best",
        "mltrainer/tools/search/study.py",
        'key=lambda trial: (sign * trial["value"], -trial["nr"])',
        'key=lambda trial: (sign * trial["value"], trial["nr"])',
        "tests/tools/search/test_study.py::test_of_equal_trials_the_earlier_is_the_best_whichever_ended_first",
    ),
    Fault(
        "a trial over folds has its first fold's value",
        "mltrainer/tools/search/study.py",
        'math.fsum(one["value"] for one in found) / len(found)',
        'found[0]["value"]',
        STUDY,
    ),
    Fault(
        "a rung lets one more go on",
        "mltrainer/tools/search/halving.py",
        '(len(there) + 1) // pruning["eta"] - 1]',
        '(len(there) + 1) // pruning["eta"]]',
        HALVING,
    ),
    Fault(
        "the last rung is where the training ends",
        "mltrainer/tools/search/halving.py",
        "return [epoch for epoch in found if epoch < epochs]",
        "return [epoch for epoch in found if epoch <= epochs]",
        HALVING,
    ),
    Fault(
        "every comparison has the first one's seeds",
        "mltrainer/tools/search/counting.py",
        'return "comparison" if number == 1 else f"comparison/{number}"',
        'return "comparison"',
        COUNTING,
    ),
    Fault(
        "another seed of the plan starts its comparisons anew",
        "mltrainer/tools/search/counting.py",
        'if key != "seed"}',
        'if key != "name"}',
        COUNTING,
    ),
    Fault(
        "comparisons on other data count",
        "mltrainer/tools/search/counting.py",
        '== (row["plan_sha256"], row["data_sha256"])',
        '== (row["plan_sha256"], one["data_sha256"])',
        COUNTING,
    ),
    Fault(
        "a later comparison takes no more pairs than the first",
        "mltrainer/tools/search/counting.py",
        "return 0 if least > max(MOST_PAIRS, seeds) else max(seeds, least)",
        "return 0 if least > max(MOST_PAIRS, seeds) else seeds",
        COUNTING,
    ),
    Fault(
        "a comparison is trained as the trials were",
        "mltrainer/tools/search/comparing.py",
        'TrainingConfig.model_validate(job["planned"] or job["config"])',
        'TrainingConfig.model_validate(job["config"])',
        COUNTING,
    ),
    Fault(
        "a candidate may be trained for more epochs than the baseline",
        "mltrainer/tools/search/comparing.py",
        '{"epochs": max(planned.epochs, candidate.epochs)}',
        '{"epochs": planned.epochs}',
        COUNTING,
    ),
    Fault(
        "the short last batch is counted as a whole one",
        "mltrainer/tools/search/comparing.py",
        "return int(epochs * size + steps * batch)",
        "return int(epochs * -(-size // batch) * batch + steps * batch)",
        COUNTING,
    ),
    Fault(
        "a forecast takes the comparison's runs for as short as trials",
        "mltrainer/tools/search/budget.py",
        'whole_s = run_s if job["planned_s"] is None else job["planned_s"]',
        "whole_s = run_s",
        BUDGET,
    ),
    Fault(
        "a range of few whole numbers is searched as if it had no end",
        "mltrainer/tools/search/points.py",
        "== dimension[form][1] - dimension[form][0] + 1",
        "== dimension[form][1] - dimension[form][0]",
        "tests/phases/test_optimization.py::test_a_space_of_few_points_is_gone_through_once_and_what_is_left_out_is_said",
    ),
    Fault(
        "an ablation's seeds are those of a search's comparison",
        "mltrainer/tools/ablation/program.py",
        'fresh_seeds(config.seed, "ablation", job["seeds"])',
        'fresh_seeds(config.seed, "comparison", job["seeds"])',
        "tests/tools/ablation",
    ),
    Fault(
        "a result of an ablation lacks the weights",
        "mltrainer/tools/ablation/program.py",
        'for key in ("parameters", "weights_sha256")',
        'for key in ("parameters",)',
        "tests/tools/ablation",
    ),
    Fault(
        "a worker's beat lacks the epochs to come",
        "mltrainer/tools/worker/program.py",
        'PLACE = ("epoch", "epochs", "step", "steps", "steps_per_s")',
        'PLACE = ("epoch", "step", "steps", "steps_per_s")',
        "tests/tools/test_worker.py",
    ),
    Fault(
        "a worker's beats of one run tell of the run before",
        "mltrainer/tools/worker/program.py",
        'self._state = {} if event == "start" else {**self._state, **_known(values)}',
        "self._state = {**self._state, **_known(values)}",
        "tests/tools/test_worker.py",
    ),
    Fault(
        "what a search's workers print keeps its secrets",
        "mltrainer/tools/search/pool.py",
        "redact_file(self._folder / LOG_FILE)",
        "(self._folder / LOG_FILE).exists()",
        "tests/tools/search/test_pool.py::test_what_a_worker_prints_is_kept_without_secrets",
    ),
)
