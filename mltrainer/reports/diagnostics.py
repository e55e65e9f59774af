"""`diagnostic_report.md`: what the recorded run's signals say, and what to do about it."""

from __future__ import annotations

import shlex
from typing import Any

from mltrainer.figures import content
from mltrainer.reports import markdown as md
from mltrainer.reports import runs, sections
from mltrainer.reports.values import number, visible

STATES = {"fired": "🔴 **fired**", "clear": "🟢 clear", "not_applicable": "⚪ not applicable"}
ADVICE = {
    "deploy": "The model is good enough: optimization is skipped, on the record, and finalization follows.",
    "optimize": "The model trains soundly but does not meet its criterion yet: search for a better config.",
    "debug": "Something is wrong with the training: change the config, or mend the data or the code, and plan again.",
}
FIGURES = {
    "nan_loss": ["learning_curves.svg"],
    "overfitting": ["gap.svg"],
    "exploding_gradients": ["gradients.svg"],
    "vanishing_gradients": ["gradient_layers.svg"],
    "resource_inefficiency": ["throughput.svg", "data_wait.svg"],
    "convergence_stall": ["metric.svg"],
}


def render(record: sections.Record, waivers: sections.Waivers, gate: sections.GateView) -> dict[str, str]:
    """Return the report of the diagnostics and its content."""
    evidence = record["evidence"]
    run = evidence.get("run") or {}
    drawn = content.of_run(run)
    page = sections.Page(
        title="Diagnostic report",
        verdict=_verdict(evidence),
        done=[_done(evidence), _run(evidence, run)],
        result=[*_assessment(evidence), sections.acceptance_table(evidence.get("acceptance") or []), *_figures(drawn, evidence)],
        findings=[*_reasons(evidence), *(part for row in fired(evidence) for part in _finding(row, drawn))],
        reproduce=sections.digests(run),
        commands=["mltrainer diagnose baseline"],
        after=_after(evidence),
    )
    return {
        "diagnostic_report.md": sections.assemble(page, record, waivers, gate),
        **{figure.file: figure.content for figure in drawn},
    }


def fired(evidence: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the diagnostics whose rule applied."""
    return [row for row in evidence.get("diagnostics") or [] if row.get("state") == "fired"]


def _verdict(evidence: dict[str, Any]) -> str:
    rows = fired(evidence)
    names = f": {', '.join(md.code(row['id']) for row in rows)}" if rows else ""
    line = sections.acceptance_line(evidence.get("acceptance") or [])
    count = number(len(evidence.get("diagnostics") or []))
    advice = f"Recommendation: **{md.text(evidence.get('recommendation'))}**."
    return f"{advice} {number(len(rows))} of {count} diagnostics fired{names}.{f' {line}' if line else ''}"


def _done(evidence: dict[str, Any]) -> str:
    rows = [
        (
            md.code(row["id"]),
            STATES.get(str(row.get("state")), md.text(row.get("state"))),
            md.text(row.get("reason", "")),
            md.evidence(row.get("evidence") or {}) or "none",
            md.evidence(row.get("thresholds") or {}) or "none",
        )
        for row in evidence.get("diagnostics") or []
    ]
    head = f"Every diagnostic was evaluated on run {md.code(evidence.get('run_id'))}."
    return f"{head}\n\n{md.table(('diagnostic', 'state', 'why', 'measured', 'threshold'), rows)}"


def _run(evidence: dict[str, Any], run: dict[str, Any]) -> str:
    metrics = f"Metrics, on validation but for `train_`: {md.plain_value(evidence.get('metrics') or {})}."
    parts = [*runs.done(run), runs.states(run), metrics, runs.checkpoints(run)]
    return md.details("The run that was looked at", "\n\n".join(parts))


def _assessment(evidence: dict[str, Any]) -> list[str]:
    found = evidence.get("assessment") or {}
    rows = [
        ("learning curves", md.text(found.get("curves", "not analysed"))),
        ("fit", f"**{md.text(found.get('fit', 'unknown'))}**: {md.text(found.get('fit_reason', ''))}"),
        ("gradients", f"**{md.text(found.get('gradients', 'unknown'))}**: {md.text(found.get('gradients_reason', ''))}"),
    ]
    return [md.table(("question", "answer"), rows)]


def _figures(drawn: list[content.Figure], evidence: dict[str, Any]) -> list[str]:
    """Return the figures that no finding shows."""
    taken = {file for row in fired(evidence) for file in _files(row)}
    return [figure.markdown for figure in drawn if figure.file not in taken] + runs.tables(evidence.get("run") or {})


def _files(row: dict[str, Any]) -> list[str]:
    return [*(row.get("figures") or []), *FIGURES.get(str(row.get("id")), [])]


def _reasons(evidence: dict[str, Any]) -> list[str]:
    reasons = evidence.get("reasons") or []
    return (
        [f"Why **{md.text(evidence.get('recommendation'))}**:\n\n{md.bullets(md.text(reason) for reason in reasons)}"]
        if reasons
        else []
    )


def _finding(row: dict[str, Any], drawn: list[content.Figure]) -> list[str]:
    """Return the page of a diagnostic that fired, with what was measured."""
    page = str(row.get("page", f"diagnostics/{row['id']}.md"))
    shown = [figure.markdown for figure in drawn if figure.file in _files(row)]
    command = f"mltrainer guide {shlex.quote(visible(page).removesuffix('.md'))}"
    return [
        f"### {md.text(row.get('title', row['id']))}",
        f"Severity: **{md.text(row.get('severity', 'unknown'))}**. {md.text(row.get('reason', ''))}",
        md.table(("measured", "threshold"), [(md.evidence(row.get("evidence") or {}), md.evidence(row.get("thresholds") or {}))]),
        *shown,
        f"Likely causes:\n\n{md.bullets(md.text(cause) for cause in row.get('causes') or ['none named'])}",
        f"What to try:\n\n{md.bullets(_suggestion(one) for one in row.get('suggestions') or [])}",
        *_page_body(row),
        f"The whole page: {md.code(command)} ({md.code(page)})",
    ]


def _suggestion(one: dict[str, Any]) -> str:
    changes = one.get("set") or {}
    shown = ", ".join(f"{md.code(key)} {_change(value)}" for key, value in changes.items())
    return f"{md.text(one.get('why', ''))}{f': {shown}' if shown else ''}"


def _change(value: Any) -> str:
    if isinstance(value, str) and value[:1] == "x":
        return f"times {md.text(value[1:])}"
    return f"= {md.setting(value)}"


def _page_body(row: dict[str, Any]) -> list[str]:
    """Return the guide's own text where the record holds it, its headings moved below the report's."""
    body = row.get("body")
    if not isinstance(body, str) or not body.strip():
        return []
    return [md.details("The guide", md.embedded(body, 3))]


def _after(evidence: dict[str, Any]) -> list[tuple[str, str]]:
    advice = str(evidence.get("recommendation"))
    why = ADVICE.get(advice, "The recommendation is not one that the workflow knows.")
    if advice == "optimize":
        return [(why, "mltrainer phase run optimization")]
    if advice != "debug":
        return [(why, "mltrainer run")]
    changes = {
        key: value
        for row in fired(evidence)
        for one in row.get("suggestions") or []
        for key, value in (one.get("set") or {}).items()
    }
    return [
        (
            why,
            " ".join(
                ["mltrainer phase run planning", *(_assignment(k, v) for k, v in changes.items() if not str(v).startswith("x"))]
            ),
        )
    ]


def _assignment(key: str, value: Any) -> str:
    return f"--set {shlex.quote(visible(f'{key}={_plain(value)}'))}"


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(_plain(item) for item in value)}]"
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else "null" if value is None else str(value)
