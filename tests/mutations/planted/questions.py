"""Faults planted in `mltrainer/questions`."""

from __future__ import annotations

from tests.mutations.fault import Fault

TABLE, SEEDS = "tests/questions/test_contributions.py", "tests/questions/test_seed_variance.py"
COST = "tests/questions/test_cost.py"
FAULTS = (
    Fault(
        "an ablation's interval has half the confidence that it is said to have",
        "mltrainer/questions/ablation/contributions.py",
        "ends, effect = interval([sign * gain for gain in gains], level), effect_size(gains)",
        "ends, effect = interval([sign * gain for gain in gains], 2 * level), effect_size(gains)",
        TABLE,
    ),
    Fault(
        "the interval of the whole config's mean is at another level",
        "mltrainer/questions/ablation/contributions.py",
        "ends = None if failed else interval(values, level)",
        "ends = None if failed else interval(values, level / 2)",
        TABLE,
    ),
    Fault(
        "an ablation's p is of one direction alone",
        "mltrainer/questions/ablation/contributions.py",
        "min(sign_flip_p_value(gains), sign_flip_p_value([-gain for gain in gains]))",
        "sign_flip_p_value(gains)",
        TABLE,
    ),
    Fault(
        "a difference counts without its correction for being several",
        "mltrainer/questions/ablation/contributions.py",
        "if p_corrected <= level:",
        "if row.p <= level:",
        TABLE,
    ),
    Fault(
        "the deviation of a single run divides by n",
        "mltrainer/questions/seed_variance/ask.py",
        "return statistics.stdev(finite_ones) if len(finite_ones) > 1 else None",
        "return statistics.pstdev(finite_ones) if len(finite_ones) > 1 else None",
        SEEDS,
    ),
    Fault(
        "the luck of two runs is that of one",
        "mltrainer/questions/seed_variance/ask.py",
        "1.959964 * math.sqrt(2) * deviation",
        "1.959964 * deviation",
        SEEDS,
    ),
    Fault(
        "the confidence of a mean over seeds is that of one side",
        "mltrainer/questions/seed_variance/ask.py",
        "confidence=1 - 2 * level",
        "confidence=1 - level",
        SEEDS,
    ),
    Fault(
        "an ablation takes as many seeds as one comparison needs",
        "mltrainer/questions/ablation/ask.py",
        "fewest_pairs(level, len(swaps))",
        "fewest_pairs(level)",
        "tests/questions/test_ablation.py::test_the_list_trains_nothing_and_tells_how_long_it_would_take",
    ),
    Fault(
        "changes that are tried are judged as if each were the only one",
        "mltrainer/questions/remediation/ask.py",
        "after, symptoms, len(asked))",
        "after, symptoms, 1)",
        "tests/questions/test_remediation.py::test_each_of_several_changes_has_its_part_of_the_level",
    ),
    Fault(
        "an ablation's seeds are those of a search's comparison",
        "mltrainer/questions/ablation/measure.py",
        'fresh_seeds(config.seed, "ablation", job.seeds)',
        'fresh_seeds(config.seed, "comparison", job.seeds)',
        "tests/questions/test_ablation_measure.py",
    ),
    Fault(
        "a result of an ablation lacks the weights",
        "mltrainer/questions/ablation/measure.py",
        "weights_sha256=result.weights_sha256 if result else None,",
        "weights_sha256=None,",
        "tests/questions/test_ablation_measure.py",
    ),
    Fault(
        "a metric that is not finite is read as a text",
        "mltrainer/questions/findings.py",
        "return float(value) if isinstance(value, str) and value in _NOT_FINITE else value",
        "return value",
        TABLE,
    ),
    Fault(
        "findings are written with what nobody measured",
        "mltrainer/questions/findings.py",
        "exclude_unset=True",
        "exclude_unset=False",
        "tests/questions/test_decisions.py",
    ),
    Fault(
        "a time is billed to the second where the minimum is a minute",
        "mltrainer/questions/cost/decisions.py",
        "    return steps * minimum_s / HOUR_S",
        "    return max(hours, minimum_s / HOUR_S)",
        COST,
    ),
    Fault(
        "the cheapest is taken among those that end late",
        "mltrainer/questions/cost/decisions.py",
        "if hours and money and hours.high <= deadline_h]",
        "if hours and money]",
        f"{COST} -k cheapest",
    ),
    Fault(
        "the comparison of a search trains one side alone",
        "mltrainer/questions/cost/ask.py",
        "high=all_trials.high + trial.high + 2 * seeds",
        "high=all_trials.high + trial.high + seeds",
        f"{COST} -k worth",
    ),
    Fault(
        "a price is old on the last day that it is not",
        "mltrainer/questions/cost/decisions.py",
        "(today - oldest).days) > days:",
        "(today - oldest).days) >= days:",
        f"{COST} -k stale",
    ),
)
