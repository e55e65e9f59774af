"""`final_report.md`: the model that is handed over, and the proof that it is what it is said to be."""

from __future__ import annotations

from typing import Any

from mltrainer.figures import content
from mltrainer.reports import markdown as md
from mltrainer.reports import runs, sections
from mltrainer.reports.model_card import model_card
from mltrainer.reports.values import at, given, number, share, short, times

CARD = "final_model/README.md"
EXPORT_STATES = {"written": "written", "not_available": "not available", "failed": "❌ **failed**"}


def render(record: sections.Record, waivers: sections.Waivers, gate: sections.GateView) -> dict[str, str]:
    """Return the final report and its content."""
    evidence = record["evidence"]
    run = evidence["run"]
    drawn = content.of_run(run)
    page = sections.Page(
        title="Final report",
        verdict=_verdict(evidence),
        done=[*runs.done(run), *_changed(evidence), *_config(evidence)],
        result=[
            *_test(evidence),
            sections.acceptance_table(evidence.get("acceptance") or []),
            *_fit(evidence),
            *_exports(evidence),
            *_files(evidence),
            *runs.result(run, drawn),
        ],
        findings=_findings(evidence),
        reproduce=[*sections.digests(run), *_delivered(evidence), ("reproduction", _reproduction(evidence))],
        commands=[f"mltrainer reproduce {run['id']}"],
        after=[
            (
                "The model and its card lie in `final_model/`. Commit the reports, and let the gates guard the pull request:",
                "mltrainer gate check",
            ),
        ],
    )
    return {
        "final_report.md": sections.assemble(page, record, waivers, gate),
        CARD: model_card(record, waivers),
        **{figure.file: figure.content for figure in drawn},
    }


def _verdict(evidence: dict[str, Any]) -> str:
    metrics = at(evidence, "test.metrics") or {}
    sealed = at(evidence, "test.sealed")
    unmeasured = f"**still sealed**, because {md.text(sealed)}" if sealed else "not measured"
    shown = ", ".join(f"{md.text(name)} {number(value)}" for name, value in sorted(metrics.items())) or unmeasured
    line = sections.acceptance_line(evidence.get("acceptance") or [])
    again = "reproduced bit for bit" if at(evidence, "reproduction.identical") is True else "**not reproduced**"
    return f"{runs.outcome(evidence['run'])} Test split: {shown}. {f'{line} ' if line else ''}The training was {again}."


def _changed(evidence: dict[str, Any]) -> list[str]:
    line = "What tuning found, and what the production template or the command line set for this training, is not as planned:"
    table = sections.changes_table(evidence.get("changed") or [], "planned", "trained")
    return [line, table] if table else []


def _config(evidence: dict[str, Any]) -> list[str]:
    config = evidence.get("config") or {}
    return [md.details("The whole config", sections.config_tables(config))] if config else []


def _test(evidence: dict[str, Any]) -> list[str]:
    test = evidence.get("test") or {}
    openings = test.get("openings") or []
    bounds = at(test, "intervals.bounds") or {}
    metrics = sorted((test.get("metrics") or {}).items())
    rows = [(md.text(name), number(value, 5), sections.interval(bounds.get(name))) for name, value in metrics]
    tried = f"{number(evidence.get('runs_tried'))} runs were tried before this one was chosen"
    head = f"The test split ({number(test.get('samples'))} samples) was opened {times(len(openings))}; {tried}."
    table = [md.table(("metric, test split", "value", "interval"), rows, "lrr"), *_spread(test)] if rows else []
    opened = [(number(o.get("nr")), md.code(o.get("run")), md.text(o.get("purpose", ""))) for o in openings]
    return [*table, head, *([md.table(("opening", "run", "purpose"), opened)] if opened else [])]


def _fit(evidence: dict[str, Any]) -> list[str]:
    found = evidence.get("assessment")
    if not isinstance(found, dict):
        return []
    return [f"Fit of the final training: **{md.text(found.get('fit'))}**. {md.text(found.get('fit_reason', ''))}"]


def _spread(test: dict[str, Any]) -> list[str]:
    """Return how the intervals were measured, and why a metric has none."""
    found = test.get("intervals")
    if not isinstance(found, dict):
        return []
    how = f"An interval holds {share(found['level'])} of {number(found['resamples'])} values, each over test samples drawn anew"
    why_none = f"; {md.text(found['reason'])}" if found.get("reason") else ""
    return [f"{how}{why_none}."]


def _exports(evidence: dict[str, Any]) -> list[str]:
    rows = [
        (
            md.code(e.get("format")),
            md.code(e.get("file")),
            EXPORT_STATES.get(str(e.get("state")), md.text(e.get("state"))),
            number(e.get("max_difference"), 3),
            number(e.get("relative_difference"), 3),
            given(e.get("tolerance")),
            "not compared" if e.get("agrees") is None else ("✅ yes" if e["agrees"] is True else "❌ no"),
            number(e.get("samples")),
            md.text(e.get("reason") or ""),
        )
        for e in evidence.get("exports") or []
    ]
    heads = ("format", "file", "state", "largest difference", "relative", "tolerance", "agrees", "samples", "why")
    return ["### Exports, read back and compared with the trained model", md.table(heads, rows, "lllrrrlrl")]


def _files(evidence: dict[str, Any]) -> list[str]:
    files = evidence.get("model_files") or []
    documents = ", ".join(md.code(d if isinstance(d, str) else d.get("path")) for d in evidence.get("documents") or [])
    listed = [f"Documents: {documents}."] if documents else []
    return [*listed, *([md.details(f"Files of the model ({number(len(files))})", sections.file_table(files))] if files else [])]


def _delivered(evidence: dict[str, Any]) -> list[tuple[str, str]]:
    found = evidence.get("delivered_sha256")
    return [("digest of the delivered weights", md.code(short(found, 16)))] if found else []


def _reproduction(evidence: dict[str, Any]) -> str:
    found = evidence.get("reproduction") or {}
    same = "the same bits" if found.get("identical") is True else "**other bits**"
    first = found.get("first_divergence")
    where = f"; first divergence: {md.plain_value(first)}" if first else ""
    grade = f", grade {md.text(found['grade'])}" if found.get("grade") else ""
    return (
        f"run {md.code(found.get('run'))} in a fresh process: {same} in {number(found.get('steps_compared'))} steps{grade}{where}"
    )


def _findings(evidence: dict[str, Any]) -> list[str]:
    found = runs.findings(evidence["run"])
    found += [
        f"{md.code(row['id'])} fired on the final training: {md.text(row.get('reason', ''))} "
        f"See {md.code('mltrainer guide ' + str(row['page']).removesuffix('.md'))}."
        for row in evidence.get("diagnostics") or []
        if row.get("state") == "fired"
    ]
    openings = len(at(evidence, "test.openings") or [])
    if openings > 1:
        found.append(f"**The test split was opened {times(openings)}**: its metrics are no longer an unbiased estimate.")
    absent = [e for e in evidence.get("exports") or [] if e.get("state") == "not_available"]
    found += [f"Not exported as {md.code(e.get('format'))}: {md.text(e.get('reason') or 'no reason recorded')}." for e in absent]
    return [md.bullets(found)] if found else []
