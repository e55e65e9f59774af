"""Advice on the next search, from a finished one: each sentence has the numbers it rests on; few trials give none."""

from __future__ import annotations

import bisect
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mltrainer.records.optimization import Comparison, Searched, Trial
from mltrainer.records.pareto import feasible
from mltrainer.reports.importance import RANKED, Importance, chi_squared_tail, importances, ranked, top_count
from mltrainer.reports.space import Dimension, as_yaml, dimensions, narrower, wider
from mltrainer.reports.values import apart, as_float, counted, given, number, signed

MIN_TRIALS = 12  # chosen by us: the best quarter is three trials, and all three at one end of a range are no longer chance
MIN_UNIMPORTANT = 40  # chosen by us: the best quarter is ten trials, among which a dimension that matters shows
MAX_SEEDS = 20  # the most that the gate's exact test takes
LEVEL = 0.025  # of each of a range's two ends
QUARTER = 0.25  # of a range, at its end: it must hold the best trial, and more of the best ones than by chance
EDGE = 0.1  # of a range: with a fifth of those here, the best ones do not peak before the end
MAX_BEST = 100  # enough to show where the best ones crowd
UNEVEN = 0.05  # a p-value up to which trials do not cover a range evenly
LIKELY = 0.3  # a p-value from which on a dimension looks like chance


@dataclass(frozen=True)
class Advice:
    """One thing to change.

    Attributes:
        what: The key that it is about; None where it is about none.
        text: The finding, and the next step.
        section: The section of the tuning template for its line, `space` or `trial`; empty for the top level.
        line: The line to write there; empty where there is none.
    """

    what: str | None
    text: str
    section: str = ""
    line: str = ""


@dataclass(frozen=True)
class Search:
    """A search with the values that advice rests on."""

    record: Searched

    @property
    def mode(self) -> str:
        """The direction of the metric, "max" or "min"."""
        return self.record.metric.mode

    @cached_property
    def trials(self) -> list[Trial]:
        """The trials that can be ranked, the best first."""
        return ranked(self.record.trials, self.mode)

    @cached_property
    def finished(self) -> list[Trial]:
        """The trials that were trained to their end, the best first."""
        return [trial for trial in self.trials if trial.state == "finished"]

    @cached_property
    def candidates(self) -> list[Trial]:
        """Those of them that meet the constraints, the best first."""
        return feasible(self.finished, self.record.constraints)

    @cached_property
    def failed(self) -> list[Trial]:
        """The trials that failed."""
        return [trial for trial in self.record.trials if trial.state not in RANKED]

    @cached_property
    def space(self) -> list[Dimension]:
        """The dimensions of its space."""
        return dimensions(self.record.space)

    @cached_property
    def importances(self) -> list[Importance]:
        """The dimensions' importances, the largest first; empty with few trials."""
        return importances(self.space, self.trials)

    def gain(self, new: float, old: float) -> float:
        """Return the difference by which a value is better than another one."""
        return old - new if self.mode == "min" else new - old


def advice(search: Search) -> list[Advice]:
    """Return the changes that a search's results suggest for the next one, at most one per key.

    Empty with fewer than `MIN_TRIALS` trials that can be ranked.
    """
    if len(search.trials) < MIN_TRIALS or not search.candidates:
        return []
    found: dict[Any, Advice] = {}
    for one in (one for rule in _RULES for one in rule(search)):
        found.setdefault(one.what or one.text, one)
    return list(found.values())


def template_lines(found: Sequence[Advice]) -> list[str]:
    """Return the lines of the tuning template that follow the advice; of several lines for one key, the first."""
    lines: dict[tuple[str, str], str] = {}
    for one in found:
        if one.line:
            lines.setdefault((one.section, one.line.split(":")[0]), one.line)
    sections = {section: [line for (under, _), line in lines.items() if under == section] for section in ("", "space", "trial")}
    named = (text for key, own in sections.items() if own and key for text in (f"{key}:", *(f"  {line}" for line in own)))
    return [*sections[""], *named]


SEARCH = "mltrainer phase run optimization"
KEEP = 'mltrainer gate waive optimization improvement_validated --reason "..."'


def next_search(record: Searched, *, keep: bool = True) -> str:
    """Return the next step, in a line, after a search that found no config good enough: its report's advice as a command.

    Args:
        record: The search's evidence.
        keep: Whether the baseline may be kept in place of a better config.
    """
    search = Search(record)
    found = advice(search)
    lines = template_lines(found)
    if len(lines) == 1 and lines[0].startswith("trials:"):
        return f"{SEARCH} --set trials={lines[0].removeprefix('trials:').strip()}"
    if lines:
        return f"change configs/tuning_template.yaml as tuning_results.md advises, then {SEARCH}"
    if _left(search) and 0 < len(search.trials) < MIN_TRIALS:  # too few to advise anything
        return f"{SEARCH} --set trials={_more(search)}"
    another = f"search another space (configs/tuning_template.yaml), then {SEARCH}"
    return f"{another}; or keep the baseline: {KEEP}" if keep else another


def _left(search: Search) -> bool:
    """Return True while the space has untried points; a space without a recorded number of points always has."""
    points = search.record.points
    return points is None or len(search.record.trials) < points


def _more(search: Search) -> int:
    """Return the number of trials for a longer search of the same space: twice as many, at most the number of its points."""
    wanted, points = 2 * len(search.record.trials), search.record.points
    return wanted if points is None else min(wanted, points)


# --- against the baseline -----------------------------------------------------------------------


def _behind(search: Search) -> Iterator[Advice]:
    """No trial reaches the baseline."""
    base, best = as_float(search.record.baseline.value), as_float(search.candidates[0].value)
    if not search.gain(best, base) < 0:
        return
    text = f"No trial reaches the baseline ({apart(best, base)} against {apart(base, best)})"
    epochs = next((row for row in search.record.cheaper if row.key == "epochs"), None)
    if epochs and as_float(epochs.after) < as_float(epochs.before):
        trained = f"trials train for {given(epochs.after)} epochs, the baseline for {given(epochs.before)}: train them longer."
        yield Advice(None, f"{text}; {trained}", "trial", f"epochs: {given(epochs.before)}")
    else:
        yield Advice(None, f"{text}: the space misses what makes the baseline good; put its values into the ranges.")


# --- the ends of ranges -------------------------------------------------------------------------


def _ends(search: Search) -> Iterator[Advice]:
    """The best trials crowd at an end of a range."""
    for dimension in search.space:
        best_first = _on(dimension, search.trials)
        if len(best_first) >= MIN_TRIALS and dimension.is_ordered:
            yield from _crowded(dimension, best_first)


def _crowded(dimension: Dimension, best: Sequence[Any]) -> Iterator[Advice]:
    """Yield advice to widen a range at whose end the best trials crowd; `best` has the values of all trials, the best first."""
    numbers, count = [dimension.number(value) for value in best], min(MAX_BEST, top_count(len(best)))
    for upwards in (True, False):
        at_end = _at_end(dimension, numbers, count, upwards)
        if not at_end:
            continue
        end = dimension.values[-1 if upwards else 0]
        where = "upper end" if upwards else "lower end"
        text = (
            f"the best trial ({_text(best[0])}) is near the {where} of its range ({_text(end)}), and so do {number(at_end)} "
            f"of the best {number(count)}"
        )
        wide = wider(dimension, upwards)
        narrow = narrower(dimension, numbers[:count], upwards) if dimension.form != "choice" and not wide else None
        if wide:
            yield Advice(dimension.key, f"{text}: widen it there.", "space", as_yaml(dimension, wide))
        elif narrow:
            sentence = f"{text}: nothing is to be searched beyond it, so narrow it to where the best ones are."
            yield Advice(dimension.key, sentence, "space", as_yaml(dimension, narrow))


def _at_end(dimension: Dimension, numbers: Sequence[float], count: int, upwards: bool) -> int:
    """Return the number of best trials near an end of a dimension's range, or 0 where chance explains them.

    Three conditions must hold: the best trial, and more of the best ones than by chance, are at the end; the trials there are
    better than the others, as a strategy that learns crowds its trials where the first ones were lucky; and they do not peak
    before the end.
    """
    near = _beyond(numbers, dimension.bound(QUARTER, upwards), upwards)
    edge = _beyond(numbers[:count], dimension.bound(EDGE, upwards), upwards)
    there = sum(near[:count])
    crowd = near[0] and binomial_tail(there, count, _share(dimension)) <= LEVEL and rank_tail(near) <= LEVEL
    return there if crowd and sum(edge) >= there / 5 else 0


def _beyond(numbers: Sequence[float], bound: float, upwards: bool) -> list[bool]:
    return [number >= bound if upwards else number <= bound for number in numbers]


def rank_tail(marked: Sequence[bool]) -> float:
    """Return the one-sided p-value of the hypothesis that marked entries are no nearer to the front than the others.

    Mann and Whitney, 1947, On a Test of Whether One of Two Random Variables is Stochastically Larger than the Other, by the
    normal approximation. 1 where all are marked, or none is.
    """
    count, some = len(marked), sum(marked)
    if some in (0, count):
        return 1.0
    expected = some * (count + 1) / 2
    spread = math.sqrt(some * (count - some) * (count + 1) / 12)
    places = sum(place for place, mark in enumerate(marked, 1) if mark)
    return math.erfc((expected - places) / spread / math.sqrt(2)) / 2


def _share(dimension: Dimension) -> float:
    return 1 / len(dimension.values) if dimension.form == "choice" else QUARTER


def binomial_tail(least: int, draws: int, chance: float) -> float:
    """Return the probability of at least `least` hits in `draws` draws."""
    return math.fsum(math.comb(draws, hits) * chance**hits * (1 - chance) ** (draws - hits) for hits in range(least, draws + 1))


def _text(value: Any) -> str:
    return number(value) if isinstance(value, float) else json.dumps(value)


# --- failures -----------------------------------------------------------------------------------


def _failures(search: Search) -> Iterator[Advice]:
    """Trials failed at one end of a range, where few others came through."""
    failed = search.failed
    for dimension in search.space if len(failed) >= 3 else []:
        if dimension.form != "choice":
            sides = [list(map(as_float, _on(dimension, trials))) for trials in (failed, search.trials)]
            yield from _broken_end(dimension, *sides)


def _on(dimension: Dimension, trials: Sequence[Trial]) -> list[Any]:
    return [trial.values[dimension.key] for trial in trials if dimension.key in trial.values]


def _broken_end(dimension: Dimension, failed: Sequence[float], well: Sequence[float]) -> Iterator[Advice]:
    if len(failed) < 3 or not well:
        return
    (low, high), least, most = dimension.values, min(failed), max(failed)
    sides = [("from", least, [v for v in well if v >= least], [low, least])]
    sides.append(("up to", most, [v for v in well if v <= most], [most, high]))
    for words, end, through, kept in sides:
        if len(through) <= len(failed) / 3 and len(through) <= len(well) / 4 and kept[0] < kept[1]:
            wrong = f"all {number(len(failed))} failed trials" if len(failed) > 3 else "all three failed trials"
            text = (
                f"{wrong} have values {words} {number(end)} on, where {number(len(through))} came through: end the range there."
            )
            text = text.replace(" on, where", ", where") if words == "up to" else text
            rounded = [int(one) if dimension.is_whole else float(f"{as_float(one):.3g}") for one in kept]
            yield Advice(dimension.key, text, "space", as_yaml(dimension, {dimension.form: rounded}))


# --- length and number of trials ----------------------------------------------------------------


def _still_learning(search: Search) -> Iterator[Advice]:
    """The best trials were best at their last evaluation."""
    curves = [trial.curve for trial in search.candidates[: max(3, top_count(len(search.candidates)))]]
    series = [[as_float(value) for _, value in curve] for curve in curves if len(curve) > 1]
    last = [search.gain(values[-1], max(values[:-1], key=lambda v: search.gain(v, 0.0))) > 0 for values in series]
    if len(last) < 3 or not last[0] or sum(last) < 2 * len(last) / 3:
        return
    epochs = max(epoch for curve in curves for epoch, _ in curve)
    text = (
        f"{number(sum(last))} of the best {number(len(last))} trials were at their best in their last evaluation "
        f"(epoch {number(epochs)}): train them longer."
    )
    yield Advice(None, text, "trial", f"epochs: {math.ceil(2 * epochs)}")


def _progress(search: Search) -> Iterator[Advice]:
    """The last trials still improved more than seeds differ, or the last half nothing."""
    spread = seed_spread(search.record.comparison)
    in_order = sorted(search.candidates, key=lambda trial: trial.nr)
    if spread is None or len(in_order) < MIN_TRIALS:
        return
    best = as_float(search.candidates[0].value)
    recent = search.gain(best, _best_of(search, in_order[: len(in_order) * 3 // 4]))
    half = search.gain(best, _best_of(search, in_order[: len(in_order) // 2]))
    seeds = f"seeds alone make a difference of {number(spread)}"
    if recent > spread and not _left(search):
        text = f"The last quarter of the trials still improved the best value by {number(recent)}; {seeds}"
        yield Advice(None, f"{text}: every point of the space was tried, so widen it.")
    elif recent > spread:
        text = f"The last quarter of the trials still improved the best value by {number(recent)}; {seeds}"
        if search.record.ended == "time":
            yield Advice(None, f"{text}: give the search more time.")
        elif search.record.ended == "stagnation":
            yield Advice(None, f"{text}: a larger terminator.patience tries more trials.")
        else:
            yield Advice(None, f"{text}: run more trials.", "", f"trials: {_more(search)}")
    elif half < spread / 2:
        brought = f"improved the best value by {number(half)}" if half > 0 else "did not improve the best value"
        yield Advice(None, f"The second half of the trials {brought}; {seeds}: more trials of this space will hardly help.")


def _best_of(search: Search, trials: Sequence[Trial]) -> float:
    return max((as_float(trial.value) for trial in trials), key=lambda value: search.gain(value, 0.0))


def seed_spread(comparison: Comparison) -> float | None:
    """Return the standard deviation of the metric between seeds, pooled over both sides; None with fewer than three of each."""
    sides = [[as_float(value) for value in side] for side in (comparison.baseline, comparison.candidate)]
    if any(len(side) < 3 or not all(map(math.isfinite, side)) for side in sides):
        return None
    return math.sqrt(statistics.fmean(statistics.variance(side) for side in sides))


# --- dimensions that do not matter --------------------------------------------------------------


def _unimportant(search: Search) -> Iterator[Advice]:
    """Dimensions that made no difference, beside one that did."""
    if not any(row.is_clear for row in search.importances):
        return
    for row in search.importances:
        if (
            row.trials >= MIN_UNIMPORTANT
            and row.p_value > LIKELY
            and _is_spread(row.dimension, _on(row.dimension, search.trials))
        ):
            seen = f"{counted(row.trials, 'trial')} show (p {number(row.p_value, 2)})"
            yield Advice(row.dimension.key, f"it made no difference that {seen}: leave it out of the space.")


def _is_spread(dimension: Dimension, values: Sequence[Any]) -> bool:
    """Return True if trials cover the whole range evenly (chi-squared test); a learning sampler crowds an important key."""
    numbers = [dimension.number(value) for value in values]
    if dimension.form == "choice":
        counts = [numbers.count(place) for place in range(len(dimension.values))]
    else:
        bounds = [dimension.bound(share, False) for share in (0.25, 0.5, 0.75)]
        cells = [bisect.bisect_right(bounds, value) for value in numbers]
        counts = [cells.count(cell) for cell in range(len(bounds) + 1)]
    expected = sum(counts) / len(counts)
    return chi_squared_tail(math.fsum((n - expected) ** 2 / expected for n in counts), len(counts) - 1) > UNEVEN


# In this order: of several pieces of advice on one key the first is kept.
_RULES = (_behind, _failures, _ends, _still_learning, _progress, _unimportant)


# --- the comparison -----------------------------------------------------------------------------


def comparison_power(judged: Mapping[str, Any], seeds: int) -> str | None:
    """Return a sentence on the effect size and the number of seeds that would show it; None where the gate measured none.

    Args:
        judged: The gate's findings: `improved`, `effect_size`, `seeds_needed`.
        seeds: The number of seeds that were compared.
    """
    effect, needed = judged.get("effect_size"), judged.get("seeds_needed")
    if effect is None:
        return None
    size = f"The effect is {signed(effect)} standard deviations of the differences"
    if as_float(effect) <= 0:
        return f"{size}: no number of seeds would show an improvement."
    if needed is None or needed > MAX_SEEDS:
        return f"{size}: more than {number(MAX_SEEDS)} seeds would be needed to show it, so that it hardly matters."
    if needed <= seeds:
        return f"{size}; {counted(needed, 'seed')} show one of that size with a probability of 0.8."
    return (
        f"{size}: {counted(needed, 'seed')} would show one of that size with a probability of 0.8, {number(seeds)} were compared."
    )
