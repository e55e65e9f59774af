"""`tuning_results.md`: the search for a better config and whether its winner is better, or why there was none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mltrainer.figures import svg
from mltrainer.figures.canvas import Series
from mltrainer.figures.content import Figure
from mltrainer.reports import markdown as md
from mltrainer.reports import sections
from mltrainer.reports.values import as_float, at, counted, duration, finite, given, number, signed, visible

ITEM = "improvement_validated"
REASONS = 10  # failed trials whose reason is told; the record holds them all
FINALIZE = ("Train and export the final model:", "mltrainer phase run finalization")


@dataclass(frozen=True)
class Judged:
    """Whether the improvement is more than luck, and the test that says so."""

    improved: bool
    p_value: Any
    level: Any


def render(record: sections.Record, waivers: sections.Waivers, gate: sections.GateView) -> dict[str, str]:
    """Return the report of the optimization, or of its skip, and its figures."""
    evidence = record["evidence"]
    drawn = [] if evidence.get("skipped") else [f for f in (_trials_figure(evidence), _comparison_figure(evidence)) if f]
    page = _skipped(evidence) if evidence.get("skipped") else _tuned(evidence, drawn, judge(record, gate))
    return {
        "tuning_results.md": sections.assemble(page, record, waivers, gate),
        **{figure.file: figure.content for figure in drawn},
    }


# --- skipped ------------------------------------------------------------------------------------


def _skipped(evidence: dict[str, Any]) -> sections.Page:
    rows = evidence.get("acceptance") or []
    line = sections.acceptance_line(rows)
    return sections.Page(
        title="Tuning results",
        verdict=f"Optimization was skipped: {md.text(evidence.get('rule', 'no rule recorded'))}.{f' {line}' if line else ''}",
        done=["No search was run. The rule that skipped it is recorded and checked with every `mltrainer gate check`."],
        result=[sections.acceptance_table(rows)],
        findings=[],
        reproduce=[("rule", md.text(evidence.get("rule", "none")))],
        commands=["mltrainer gate check optimization"],
        after=[FINALIZE],
    )


# --- tuned --------------------------------------------------------------------------------------


def _tuned(evidence: dict[str, Any], drawn: list[Figure], judged: Judged) -> sections.Page:
    return sections.Page(
        title="Tuning results",
        verdict=_verdict(evidence, judged),
        done=[_done(evidence), _space(evidence), *_cheaper(evidence)],
        result=[*(f.markdown for f in drawn), _comparison(evidence, judged), _trials(evidence), *_config(evidence)],
        findings=_findings(evidence, judged),
        reproduce=_origin(evidence),
        commands=["mltrainer phase run optimization"],
        after=[FINALIZE],
    )


def _metric(evidence: dict[str, Any]) -> str:
    return str(at(evidence, "metric.name", "metric"))


def judge(record: sections.Record, gate: sections.GateView) -> Judged:
    """Return the test of the improvement: its p-value as the gate computed it, its level as the policy sets it."""
    found = next((item for item in gate if item.get("id") == ITEM), {})
    items = at(record, "policy.items") or []
    settings: dict[str, Any] = next((item.get("settings") or {} for item in items if item.get("id") == ITEM), {})
    return Judged(found.get("verdict") == "pass", at(found, "evidence.p_value"), settings.get("level"))


def _verdict(evidence: dict[str, Any], judged: Judged) -> str:
    found = evidence.get("comparison") or {}
    mean = f"mean improvement {signed(found.get('mean_difference'))} over {number(len(found.get('seeds') or []))} seeds"
    better = "is better than the baseline" if judged.improved else "is **not shown to be better** than the baseline"
    trials, promoted = number(len(evidence.get("trials") or [])), md.text(evidence.get("promoted", "nothing"))
    if _none_finished(evidence):
        return f"Not one of {trials} trials finished, so that nothing was compared with the baseline; promoted: **{promoted}**."
    return f"The best of {trials} trials {better} ({mean}, {_p_value(judged)}); promoted: **{promoted}**."


def _none_finished(evidence: dict[str, Any]) -> bool:
    """Return whether all trials failed, so that there is no best one, and nothing was run again or compared."""
    return all(trial.get("state") != "finished" for trial in evidence.get("trials") or [{}])


def _p_value(judged: Judged) -> str:
    return f"p {number(judged.p_value, 3)} against {given(judged.level)}"


def _done(evidence: dict[str, Any]) -> str:
    trials = evidence.get("trials") or []
    states = [str(trial.get("state")) for trial in trials]
    counts = ", ".join(f"{number(states.count(state))} {md.text(state)}" for state in sorted(set(states)))
    planned = evidence.get("planned_trials")
    spent = math.fsum(as_float(trial.get("wall_s")) for trial in trials if finite(trial.get("wall_s")))
    search = f"{md.text(evidence.get('strategy', 'unknown'))} search, seed {given(evidence.get('seed'))}"
    wanted = "" if planned is None else f" of {number(planned)} planned"
    return f"{search}: {number(len(trials))} trials{wanted} ({counts or 'none'}) in {duration(spent)}."


def _space(evidence: dict[str, Any]) -> str:
    rows = [(md.code(key), md.setting(value)) for key, value in sorted((evidence.get("space") or {}).items())]
    return md.table(("searched", "range"), rows)


def _cheaper(evidence: dict[str, Any]) -> list[str]:
    line = (
        "The trials, and both sides of the comparison, were trained with what the template changes for them; "
        "the baseline's own value was reached as planned."
    )
    table = sections.changes_table(evidence.get("cheaper") or [], "planned", "in a trial")
    return [line, table] if table else []


def _trials(evidence: dict[str, Any]) -> str:
    trials = evidence.get("trials") or []
    keys = sorted({key for trial in trials for key in trial.get("values") or {}})
    heads = ("trial", "run", *(md.code(key) for key in keys), "seed", "state", md.text(_metric(evidence)), "steps", "time")
    rows = [
        (
            f"**{number(t.get('nr'))}** (best)" if t.get("nr") == evidence.get("best") else number(t.get("nr")),
            md.code(t.get("run")),
            *(_tried((t.get("values") or {}).get(key)) for key in keys),
            given(t.get("seed")),
            md.text(t.get("state")),
            number(t.get("value"), 5),
            number(t.get("steps")),
            duration(t.get("wall_s")),
        )
        for t in trials
    ]
    return md.details(f"Trials ({number(len(trials))})", md.table(heads, rows, "ll" + "r" * len(keys) + "rlrrr"))


def _tried(value: Any) -> str:
    return number(value) if isinstance(value, float) else md.plain_value(value)


def _comparison(evidence: dict[str, Any], judged: Judged) -> str:
    found = evidence.get("comparison") or {}
    rows = [(given(seed), number(base, 5), number(new, 5), signed(_plain(gain), 4)) for seed, base, new, gain in _gains(evidence)]
    test = f"{md.text(found.get('test', 'no test'))}: {_p_value(judged)}"
    ends = f"mean improvement {signed(found.get('mean_difference'), 4)}, worst {signed(found.get('worst_difference'), 4)}"
    return f"{md.table(('seed', 'baseline', 'candidate', 'improvement'), rows, 'rrrr')}\n\n{test}; {ends}."


def _gains(evidence: dict[str, Any]) -> list[tuple[Any, Any, Any, float]]:
    """Return seed, baseline, candidate and how much better the candidate is, whatever the metric's direction."""
    found = evidence.get("comparison") or {}
    sign = -1.0 if at(evidence, "metric.mode") == "min" else 1.0
    columns = [found.get(key) or [] for key in ("seeds", "baseline", "candidate")]
    return [(seed, base, new, sign * (as_float(new) - as_float(base))) for seed, base, new in zip(*columns, strict=False)]


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else repr(value)


def _config(evidence: dict[str, Any]) -> list[str]:
    config = evidence.get("config") or {}
    return [md.details("The config that goes to finalization", sections.config_tables(config))] if config else []


def _findings(evidence: dict[str, Any], judged: Judged) -> list[str]:
    found = []
    failed = [t for t in evidence.get("trials") or [] if t.get("state") != "finished"]
    if failed:
        numbers = ", ".join(number(t.get("nr")) for t in failed)
        found.append(f"{counted(len(failed), 'trial')} of {number(len(evidence['trials']))} failed: {numbers}.")
        found += [f"Trial {number(t.get('nr'))}: {md.text(t['reason'])}." for t in failed[:REASONS] if t.get("reason")]
    if _none_finished(evidence):
        return [md.bullets([*found, "No trial was run again, because none finished."])]
    if at(evidence, "replay.identical") is not True:
        found.append("**The best trial, run again, did not give the same bits.**")
    if not judged.improved:
        found.append("The improvement is not more than luck with seeds would give.")
    return [md.bullets(found)] if found else []


def _origin(evidence: dict[str, Any]) -> list[tuple[str, str]]:
    base = evidence.get("baseline") or {}
    replay = "the same bits" if at(evidence, "replay.identical") is True else "**other bits**"
    best = f"number {number(evidence.get('best'))}; run again in a fresh process it gave {replay}"
    return [
        ("baseline", f"run {md.code(base.get('run'))}, {md.text(_metric(evidence))} {number(base.get('value'), 5)}"),
        ("best trial", "none, because no trial finished" if _none_finished(evidence) else best),
        ("search", f"{md.text(evidence.get('strategy'))}, seed {given(evidence.get('seed'))}"),
    ]


# --- figures ------------------------------------------------------------------------------------


def _trials_figure(evidence: dict[str, Any]) -> Figure | None:
    trials = [(as_float(t.get("nr")), as_float(t.get("value"))) for t in evidence.get("trials") or []]
    if not trials:
        return None
    name = visible(_metric(evidence))
    whole = [y for _, y in trials if math.isfinite(y)]
    base = as_float(at(evidence, "baseline.value"))
    series = [Series("best so far", _best_so_far(trials, _pick(evidence)))]
    if math.isfinite(base):
        series.append(Series("baseline", [(trials[0][0], base), (trials[-1][0], base)], dashed=True))
    series.append(Series("trial", trials, dots=True))
    best = f"{number(_pick(evidence)(whole), 5)} (trial {number(evidence.get('best'))})" if whole else "none, all failed"
    caption = f"Best {name} of the {number(len(trials))} trials: {best}; the baseline has {_base(base)}."
    content = svg.line_chart("Trials", caption, series, x_label="trial", y_label=name)
    return Figure("trials.svg", "Trials", md.text(caption), content)


def _base(value: float) -> str:
    return number(value, 5) if math.isfinite(value) else "no finite value"


def _pick(evidence: dict[str, Any]) -> Any:
    return min if at(evidence, "metric.mode") == "min" else max


def _best_so_far(trials: list[tuple[float, float]], pick: Any) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for x, y in trials:
        if math.isfinite(y):
            found.append((x, pick(y, found[-1][1]) if found else y))
        elif found:
            found.append((x, found[-1][1]))
    return found


def _comparison_figure(evidence: dict[str, Any]) -> Figure | None:
    gains = _gains(evidence)
    if not gains:
        return None
    title, name = "Candidate against baseline, seed by seed", visible(_metric(evidence))
    above = sum(1 for *_, gain in gains if gain > 0)
    mean = signed(at(evidence, "comparison.mean_difference"))
    seeds = f"{number(above)} of {number(len(gains))} seeds"
    caption = f"The candidate is better than the baseline for {seeds}, by {mean} {name} on average."
    items = [(f"seed {given(seed)}", gain) for seed, _, _, gain in gains]
    return Figure(
        "comparison.svg", title, md.text(caption), svg.bars(title, caption, items, unit=f"improvement of {name}", sign=True)
    )
