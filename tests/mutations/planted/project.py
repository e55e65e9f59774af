"""Faults planted in `mltrainer/project`."""

from __future__ import annotations

from tests.mutations.fault import Fault

TABLE, LUCK = "tests/project/test_contributions.py", "tests/project/test_luck.py"
FAULTS = (
    Fault(
        "an ablation's interval has half the confidence that it is said to have",
        "mltrainer/project/contributions.py",
        "ends, effect = interval([sign * gain for gain in gains], level), effect_size(gains)",
        "ends, effect = interval([sign * gain for gain in gains], 2 * level), effect_size(gains)",
        TABLE,
    ),
    Fault(
        "the interval of the whole config's mean is at another level",
        "mltrainer/project/contributions.py",
        "ends = None if failed else interval(values, level)",
        "ends = None if failed else interval(values, level / 2)",
        TABLE,
    ),
    Fault(
        "an ablation's p is of one direction alone",
        "mltrainer/project/contributions.py",
        "min(sign_flip_p_value(gains), sign_flip_p_value([-gain for gain in gains]))",
        "sign_flip_p_value(gains)",
        TABLE,
    ),
    Fault(
        "a difference counts without its correction for being several",
        "mltrainer/project/contributions.py",
        'if row["p_corrected"] <= level:',
        'if row["p"] <= level:',
        TABLE,
    ),
    Fault(
        "the deviation of a single run divides by n",
        "mltrainer/project/luck.py",
        "deviation = statistics.stdev(values) if len(values) > 1 else None",
        "deviation = statistics.pstdev(values) if len(values) > 1 else None",
        LUCK,
    ),
    Fault(
        "the luck of two runs is that of one",
        "mltrainer/project/luck.py",
        "1.959964 * math.sqrt(2) * deviation",
        "1.959964 * deviation",
        LUCK,
    ),
    Fault(
        "the confidence of a mean over seeds is that of one side",
        "mltrainer/project/luck.py",
        '"confidence": 1 - 2 * level',
        '"confidence": 1 - level',
        LUCK,
    ),
    Fault(
        "an ablation takes as many seeds as one comparison needs",
        "mltrainer/project/ablating.py",
        "fewest_pairs(level, len(swaps))",
        "fewest_pairs(level)",
        "tests/project/test_ablating.py::test_the_list_trains_nothing_and_tells_how_long_it_would_take",
    ),
    Fault(
        "changes that are tried are judged as if each were the only one",
        "mltrainer/project/curing.py",
        "after, symptoms, len(asked))",
        "after, symptoms, 1)",
        "tests/project/test_curing.py::test_each_of_several_changes_has_its_part_of_the_level",
    ),
    Fault(
        "a search's first rung lies within the warm-up",
        "mltrainer/project/model_size_defaults.py",
        "max(1, epochs // 9)",
        "max(1, epochs // 90)",
        "tests/project/test_model_size_defaults.py",
    ),
)
