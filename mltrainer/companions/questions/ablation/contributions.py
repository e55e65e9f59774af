"""The contribution of each component of a config: an ablation's table, from the metric of each run alone.

Every run of a variant is compared with that of the whole config on the same seed. Intervals and p-values are those of the exact
sign-flip test, as in the comparison of a search's winner; verdicts are corrected for being several, intervals are not.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from mltrainer.companions.questions.ablation.findings import Comparison, Contribution, Contributions, Failure, MeasuredRun, Side
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
from mltrainer.reports.values import counted, number

Runs = Sequence[MeasuredRun]
CLEARLY = 0.1  # smallest relative change of step time that is a reason to take a component out; chosen by us
TIMED = 5  # runs on each side: of five pairs without a difference all lie on one side once in sixteen times
WORDS = {True: {"worse": "helps", "better": "hurts"}, False: {"worse": "is worse", "better": "is better"}}
PERHAPS = {"helps": "may help", "hurts": "may hurt", "is worse": "may be worse", "is better": "may be better"}


def contributions(swaps: Sequence[Swap], sides: Sequence[Runs], seeds: Sequence[int], mode: str, level: float) -> Contributions:
    """Return the contribution of each swap of an ablation.

    Args:
        swaps: The swaps.
        sides: Runs on each seed, for the whole config and then for each swap.
        seeds: The seeds.
        mode: Better direction of the metric: "max" or "min".
        level: Level of the one-sided tests; intervals have the confidence 1 - 2 * level.
    """
    whole = sides[0]
    rows = [_compared(swap, runs, whole, seeds, mode, level) for swap, runs in zip(swaps, sides[1:], strict=True)]
    # Only tested swaps count as comparisons: a failed one had no chance of a false positive.
    tested = [row.p for row in rows if row.p is not None]
    corrected = iter(holm(tested))
    judged = [
        _judged(row, next(corrected) if row.p is not None else None, comparisons=len(tested), seeds=len(seeds), level=level)
        for row in rows
    ]
    fewest = fewest_pairs(level, max(1, len(tested)))
    return Contributions(whole=_side(whole, seeds, level), rows=judged, comparisons=len(tested), fewest_seeds=fewest)


def _side(runs: Runs, seeds: Sequence[int], level: float) -> Side:
    """Return the metric statistics of some runs; with a failed run there is no mean, as that of the survivors would be biased."""
    values = [float(run.value) for run in runs]
    failed = [Failure(seed=seed, reason=run.reason) for seed, run in zip(seeds, runs, strict=True) if run.reason]
    ends = None if failed else interval(values, level)
    paces = [run.step_us for run in runs if run.step_us is not None]
    return Side(
        values=[run.value for run in runs],
        mean=None if failed else math.fsum(values) / len(values),
        interval=list(ends) if ends else None,
        failed=failed,
        runs=[run.run for run in runs],
        parameters=next((run.parameters for run in runs if run.parameters is not None), None),
        step_us=statistics.median(paces) if paces else None,
    )


def _compared(swap: Swap, runs: Runs, whole: Runs, seeds: Sequence[int], mode: str, level: float) -> Comparison:
    gains = improvements([run.value for run in runs], [run.value for run in whole], mode)
    sign = 1 if mode == "max" else -1
    ends, effect = interval([sign * gain for gain in gains], level), effect_size(gains)
    return Comparison.of(
        _side(runs, seeds, level),
        name=swap.name,
        takes_out=swap.takes_out,
        whole_failed=sum(run.reason is not None for run in whole),
        differences=[sign * gain for gain in gains],
        difference=sign * math.fsum(gains) / len(gains) if gains else None,
        difference_interval=list(ends) if ends else None,
        better=sum(gain > 0 for gain in gains),
        worse=sum(gain < 0 for gain in gains),
        swap_is="better" if math.fsum(gains) > 0 else "worse",
        effect_size=effect,
        p=min(sign_flip_p_value(gains), sign_flip_p_value([-gain for gain in gains])) if gains else None,
        pace=_pace(runs, whole),
        never_acts=_never_acts(runs, whole),
    )


def _pace(runs: Runs, whole: Runs) -> float | None:
    """Return the median ratio of step times to the whole config's; None unless all seeds are clearly slower, or all faster."""
    pairs = [(run.step_us, other.step_us) for run, other in zip(runs, whole, strict=True)]
    ratios = [float(mine / other) for mine, other in pairs if mine and other]
    if len(ratios) < TIMED or not (min(ratios) > 1 + CLEARLY or max(ratios) < 1 - CLEARLY):
        return None
    return statistics.median(ratios)


def _never_acts(runs: Runs, whole: Runs) -> bool:
    """Return True if every run ended in the same weights, bit for bit, as the whole config's."""
    digests = [(run.weights_sha256, other.weights_sha256) for run, other in zip(runs, whole, strict=True)]
    return all(mine is not None and mine == other for mine, other in digests)


# --- verdicts -------------------------------------------------------------------------------------


def _judged(row: Comparison, p_corrected: float | None, *, comparisons: int, seeds: int, level: float) -> Contribution:
    verdict, why = _verdict(row, p_corrected, comparisons, seeds, level)
    return Contribution.of(row, p_corrected=p_corrected, verdict=verdict, why=why)


def _verdict(row: Comparison, p_corrected: float | None, comparisons: int, seeds: int, level: float) -> tuple[str, str]:
    """Return a row's verdict in a word or two, and its reason in a sentence."""
    if row.whole_failed:
        return "not known", f"the whole config failed on {counted(row.whole_failed, 'seed')}, so nothing is compared"
    if row.failed or row.p is None or p_corrected is None:
        share = f"{len(row.failed)} of {counted(seeds, 'training')} failed"
        return "fails", f"{share}: {row.failed[0].reason}"
    word = WORDS[row.takes_out][row.swap_is]
    if p_corrected <= level:
        return word, ""
    needed = _needed(row, comparisons, seeds, level)
    if row.p <= level:
        return PERHAPS[word], f"shown alone, but not among {counted(comparisons, 'comparison')}; {needed}"
    if not any(row.differences):
        return "no difference", f"the same {'weights' if row.never_acts else 'metric'} on every seed"
    return "no difference shown", f"at {counted(seeds, 'seed')}; {needed}"


def _needed(row: Comparison, comparisons: int, seeds: int, level: float) -> str:
    """Return in words the number of seeds that would show a difference of the measured size."""
    fewest = fewest_pairs(level, comparisons)
    if seeds < fewest:
        return f"{fewest} seeds are the fewest that could"
    needed = seeds_needed(abs(row.effect_size), level / comparisons) if row.effect_size else None
    # At least one more than now: an estimate from few seeds may be too small, and these seeds have shown nothing.
    return f"more than {number(MAX_NEEDED)} would" if needed is None else f"about {number(max(needed, seeds + 1))} would"
