"""What each component of a config contributes: an ablation's table, from the metric of each run alone.

Every run of a variant is compared with that of the whole config on the same seed. Intervals and p-values are those of the exact
sign-flip test, as in the comparison of a search's winner; verdicts are corrected for being several, intervals are not.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from mltrainer.configs.components import Swap
from mltrainer.gates.statistics import (
    MAX_NEEDED,
    effect_size,
    fewest_pairs,
    holm,
    improvements,
    interval,
    seeds_needed,
    sign_flip_p_value,
)
from mltrainer.reports.values import as_float, counted, number

Row = dict[str, Any]
Runs = Sequence[Mapping[str, Any]]
CLEARLY = 0.1  # chosen by us: a step that is less than so much slower or faster is no reason to take anything out
TIMED = 5  # runs on each side: of five pairs without a difference all lie on one side once in sixteen times
WORDS = {True: {"worse": "helps", "better": "hurts"}, False: {"worse": "is worse", "better": "is better"}}
PERHAPS = {"helps": "may help", "hurts": "may hurt", "is worse": "may be worse", "is better": "may be better"}


def contributions(swaps: Sequence[Swap], sides: Sequence[Runs], seeds: Sequence[int], mode: str, level: float) -> Row:
    """Return an ablation's table.

    Args:
        swaps: What was swapped.
        sides: For the whole config, then for each swap, its run on each seed: `run`, `value`, `reason`, `parameters`,
            `step_us`, `weights_sha256`.
        seeds: The seeds.
        mode: "max" or "min": which direction of the metric is better.
        level: Of the one-sided tests; intervals have the confidence 1 - 2 * level.

    Returns:
        `whole` and `rows`, and by how many comparisons the verdicts are corrected, with the fewest seeds that could show one.
    """
    whole = sides[0]
    rows = [_compared(swap, runs, whole, seeds, mode, level) for swap, runs in zip(swaps, sides[1:], strict=True)]
    tested = [row for row in rows if row["p"] is not None]
    for row, corrected in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row["p_corrected"] = corrected
    for row in rows:
        row.update(_judged(row, len(tested), len(seeds), level))
    fewest = fewest_pairs(level, max(1, len(tested)))
    return {"whole": _measured(whole, seeds, level), "rows": rows, "comparisons": len(tested), "fewest_seeds": fewest}


def _measured(runs: Runs, seeds: Sequence[int], level: float) -> Row:
    """Return the metric statistics of some runs; with a failed run there is no mean, as that of the survivors would be biased."""
    values = [as_float(run["value"]) for run in runs]
    failed = [{"seed": seed, "reason": run["reason"]} for seed, run in zip(seeds, runs, strict=True) if run["reason"]]
    ends = None if failed else interval(values, level)
    return {
        "values": [run["value"] for run in runs],
        "mean": None if failed else math.fsum(values) / len(values),
        "interval": list(ends) if ends else None,
        "failed": failed,
        "runs": [run["run"] for run in runs],
        "parameters": next((run["parameters"] for run in runs if run["parameters"] is not None), None),
        "step_us": statistics.median(paces)
        if (paces := [run["step_us"] for run in runs if run["step_us"] is not None])
        else None,
    }


def _compared(swap: Swap, runs: Runs, whole: Runs, seeds: Sequence[int], mode: str, level: float) -> Row:
    gains = improvements([run["value"] for run in runs], [run["value"] for run in whole], mode)
    sign = 1 if mode == "max" else -1
    ends, effect = interval([sign * gain for gain in gains], level), effect_size(gains)
    return {
        "name": swap.name,
        "takes_out": swap.takes_out,
        **_measured(runs, seeds, level),
        "whole_failed": sum(run["reason"] is not None for run in whole),
        "differences": [sign * gain for gain in gains],
        "difference": sign * math.fsum(gains) / len(gains) if gains else None,
        "difference_interval": list(ends) if ends else None,
        "better": sum(gain > 0 for gain in gains),
        "worse": sum(gain < 0 for gain in gains),
        "swap_is": "better" if math.fsum(gains) > 0 else "worse",
        "effect_size": effect,
        "p": min(sign_flip_p_value(gains), sign_flip_p_value([-gain for gain in gains])) if gains else None,
        "p_corrected": None,
        "pace": _pace(runs, whole),
        "never_acts": _never_acts(runs, whole),
    }


def _pace(runs: Runs, whole: Runs) -> float | None:
    """Return the median ratio of step times to the whole config's; None unless all seeds are clearly slower, or all faster."""
    pairs = [(run["step_us"], other["step_us"]) for run, other in zip(runs, whole, strict=True)]
    ratios = [float(mine / other) for mine, other in pairs if mine and other]
    if len(ratios) < TIMED or not (min(ratios) > 1 + CLEARLY or max(ratios) < 1 - CLEARLY):
        return None
    return statistics.median(ratios)


def _never_acts(runs: Runs, whole: Runs) -> bool:
    """Return True if every run ended in the same weights, bit for bit, as the whole config's."""
    digests = [(run["weights_sha256"], other["weights_sha256"]) for run, other in zip(runs, whole, strict=True)]
    return all(mine is not None and mine == other for mine, other in digests)


# --- verdicts -------------------------------------------------------------------------------------


def _judged(row: Row, comparisons: int, seeds: int, level: float) -> Row:
    """Return a row's verdict in a word or two, and with its reason in a sentence."""
    if row["whole_failed"]:
        return _said("not known", f"the whole config failed on {counted(row['whole_failed'], 'seed')}, so nothing is compared")
    if row["failed"]:
        share = f"{len(row['failed'])} of {counted(seeds, 'training')} failed"
        return _said("fails", f"{share}: {row['failed'][0]['reason']}")
    word = WORDS[row["takes_out"]][row["swap_is"]]
    if row["p_corrected"] <= level:
        return _said(word, "")
    needed = _needed(row, comparisons, seeds, level)
    if row["p"] <= level:
        return _said(PERHAPS[word], f"shown alone, but not among {counted(comparisons, 'comparison')}; {needed}")
    if not any(row["differences"]):
        return _said("no difference", f"the same {'weights' if row['never_acts'] else 'metric'} on every seed")
    return _said("no difference shown", f"at {counted(seeds, 'seed')}; {needed}")


def _said(verdict: str, why: str) -> Row:
    return {"verdict": verdict, "why": why}


def _needed(row: Row, comparisons: int, seeds: int, level: float) -> str:
    """Return in words how many seeds would show a difference of the size that was seen, among the others."""
    fewest = fewest_pairs(level, comparisons)
    if seeds < fewest:
        return f"{fewest} seeds are the fewest that could"
    needed = seeds_needed(abs(row["effect_size"]), level / comparisons) if row["effect_size"] else None
    return f"more than {number(MAX_NEEDED)} would" if needed is None else f"about {number(max(needed, seeds + 1))} would"
