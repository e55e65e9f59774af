"""How often a search's winner is promoted: where all configs are equal, and where it is really better.

    PYTHONPATH=. python tests/benchmarks/bench_promotion.py [STUDIES]

A study is 20 trials of configs that are equally good, with one seed each, whose best is compared with the baseline on fresh
seeds by the gate's own functions. A metric is the config's own value and the noise of a seed, normal with the standard
deviation 1; `effect` is by how much the configs are better than the baseline, in standard deviations of the paired
difference (Cohen's d_z).
"""

from __future__ import annotations

import json
import math
import random
import sys

from mltrainer.gates.statistics import improvements, is_better, seeds_needed

LEVEL, SEEDS, TRIALS = 0.05, 5, 20
EFFECTS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
PAIRED = math.sqrt(2)  # standard deviation of the difference of two runs whose seeds' noise is 1


def trained(draw: random.Random, values: list[float]) -> list[float]:
    """Return the metric of a run of each of the configs."""
    return [value + draw.gauss(0.0, 1.0) for value in values]


def is_promoted(draw: random.Random, effect: float, seeds: int) -> bool:
    """Return whether a study's winner passes the comparison."""
    values = [effect * PAIRED] * TRIALS
    found = trained(draw, values)
    winner = values[found.index(max(found))]
    candidate, baseline = trained(draw, [winner] * seeds), trained(draw, [0.0] * seeds)
    return is_better(improvements(candidate, baseline, "max"), seeds, LEVEL)


def promoted_share(studies: int, effect: float, seeds: int = SEEDS) -> float:
    """Return the share of studies whose winner is promoted."""
    draw = random.Random(42)
    return sum(is_promoted(draw, effect, seeds) for _ in range(studies)) / studies


def trials_share(studies: int) -> float:
    """Return the share of studies of pure noise whose best trial has a better value than the baseline's run."""
    draw = random.Random(42)
    return sum(max(trained(draw, [0.0] * TRIALS)) > trained(draw, [0.0])[0] for _ in range(studies)) / studies


def main() -> None:
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    print(json.dumps({"studies": 200, "noise_promoted": promoted_share(200, 0.0), "by_best_trial": trials_share(200)}))
    for effect in EFFECTS:
        shares = {seeds: round(promoted_share(studies, effect, seeds), 3) for seeds in (5, 6, 8, 10)}
        print(json.dumps({"studies": studies, "effect": effect, "promoted": shares, "needed": seeds_needed(effect, LEVEL)}))


if __name__ == "__main__":
    main()
