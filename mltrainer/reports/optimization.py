"""`tuning_results.md`: the search for a better config and whether its winner is better, or why there was none."""

from __future__ import annotations

import math
from typing import Any

from mltrainer.reports import markdown as md
from mltrainer.reports import sections, svg
from mltrainer.reports.canvas import Series
from mltrainer.reports.figures import Figure
from mltrainer.reports.values import as_float, at, duration, finite, given, number, signed, visible

FINALIZE = ("Train and export the final model:", "mltrainer phase run finalization")


def render(record: sections.Record, waivers: sections.Waivers, gate: sections.GateView) -> dict[str, str]:
    """Return the report of the optimization, or of its skip, and its figures."""
    evidence = record["evidence"]
    drawn = [] if evidence.get("skipped") else [f for f in (_trials_figure(evidence), _comparison_figure(evidence)) if f]
    page = _skipped(evidence) if evidence.get("skipped") else _tuned(evidence, drawn)
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


def _tuned(evidence: dict[str, Any], drawn: list[Figure]) -> sections.Page:
    return sections.Page(
        title="Tuning results",
        verdict=_verdict(evidence),
        done=[_done(evidence), _space(evidence)],
        result=[*(f.markdown for f in drawn), _comparison(evidence), _trials(evidence), *_config(evidence)],
        findings=_findings(evidence),
        reproduce=_origin(evidence),
        commands=["mltrainer phase run optimization"],
        after=[FINALIZE],
    )


def _metric(evidence: dict[str, Any]) -> str:
    return str(at(evidence, "metric.name", "metric"))


def _verdict(evidence: dict[str, Any]) -> str:
    found = evidence.get("comparison") or {}
    differences = f"mean difference {signed(found.get('mean_difference'))} over {number(len(found.get('seeds') or []))} seeds"
    level = f"p {number(found.get('p_value'), 3)} against {given(found.get('level'))}"
    trials = number(len(evidence.get("trials") or []))
    better = "is better than the baseline" if found.get("improved") is True else "is **not shown to be better** than the baseline"
    promoted = f"promoted: **{md.text(evidence.get('promoted', 'nothing'))}**"
    return f"The best of {trials} trials {better} ({differences}, {level}); {promoted}."


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
    rows = [(md.code(key), md.plain_value(value)) for key, value in sorted((evidence.get("space") or {}).items())]
    return md.table(("searched", "range"), rows)


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


def _comparison(evidence: dict[str, Any]) -> str:
    found = evidence.get("comparison") or {}
    rows = [(given(seed), number(base, 5), number(new, 5), _change(base, new)) for seed, base, new in _pairs(evidence)]
    test = f"{md.text(found.get('test', 'no test'))}: p {number(found.get('p_value'), 4)}, level {given(found.get('level'))}"
    ends = f"mean difference {signed(found.get('mean_difference'), 4)}, worst {signed(found.get('worst_difference'), 4)}"
    return f"{md.table(('seed', 'baseline', 'candidate', 'difference'), rows, 'rrrr')}\n\n{test}; {ends}."


def _pairs(evidence: dict[str, Any]) -> list[tuple[Any, Any, Any]]:
    found = evidence.get("comparison") or {}
    columns = [found.get(key) or [] for key in ("seeds", "baseline", "candidate")]
    return list(zip(*columns, strict=False))


def _change(base: Any, new: Any) -> str:
    return signed(as_float(new) - as_float(base), 4) if finite(base) and finite(new) else number(None)


def _config(evidence: dict[str, Any]) -> list[str]:
    config = evidence.get("config") or {}
    return [md.details("The config that goes to finalization", sections.config_tables(config))] if config else []


def _findings(evidence: dict[str, Any]) -> list[str]:
    found = []
    failed = [t for t in evidence.get("trials") or [] if t.get("state") != "finished"]
    if failed:
        found.append(f"{number(len(failed))} trials did not finish: {', '.join(number(t.get('nr')) for t in failed)}.")
    if at(evidence, "replay.identical") is not True:
        found.append("**The best trial, run again, did not give the same bits.**")
    if at(evidence, "comparison.improved") is not True:
        found.append("The improvement is not more than luck with seeds would give.")
    return [md.bullets(found)] if found else []


def _origin(evidence: dict[str, Any]) -> list[tuple[str, str]]:
    base = evidence.get("baseline") or {}
    replay = "the same bits" if at(evidence, "replay.identical") is True else "**other bits**"
    return [
        ("baseline", f"run {md.code(base.get('run'))}, {md.text(_metric(evidence))} {number(base.get('value'), 5)}"),
        ("best trial", f"number {number(evidence.get('best'))}; run again in a fresh process it gave {replay}"),
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
    top = number(_pick(evidence)(whole), 5) if whole else "none"
    best = f"{top} (trial {number(evidence.get('best'))})"
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
    pairs = _pairs(evidence)
    if not pairs:
        return None
    name = visible(_metric(evidence))
    items = [(f"seed {given(seed)}", as_float(new) - as_float(base)) for seed, base, new in pairs]
    above = sum(1 for _, difference in items if difference > 0)
    caption = (
        f"The candidate's {name} is above the baseline's for {number(above)} of {number(len(items))} seeds, "
        f"by {signed(at(evidence, 'comparison.mean_difference'))} on average."
    )
    content = svg.bars(
        "Candidate against baseline, seed by seed", caption, items, unit=f"difference in {name}, candidate - baseline", sign=True
    )
    return Figure("comparison.svg", "Candidate against baseline, seed by seed", md.text(caption), content)
