"""`baseline_results.md`: the first full training, and what it reached."""

from __future__ import annotations

from mltrainer.figures import content
from mltrainer.reports import markdown as md
from mltrainer.reports import runs, sections
from mltrainer.reports.values import as_float, at, duration, finite, given, number, share


def render(record: sections.Record, waivers: sections.Waivers, gate: sections.GateView) -> dict[str, str]:
    """Return the report of the baseline and its content."""
    run = record["evidence"]["run"]
    drawn = content.of_run(run)
    page = sections.Page(
        title="Baseline results",
        verdict=" ".join(filter(None, [runs.outcome(run), _acceptance(record)])),
        done=[*runs.done(run), _budget(record), *_waiting(record)],
        result=runs.result(run, drawn),
        findings=_findings(record),
        reproduce=sections.digests(run),
        commands=[f"mltrainer reproduce {run['id']}"],
        after=[("The diagnostics look at this run and recommend what to do with it:", "mltrainer phase run diagnostics")],
    )
    return {
        "baseline_results.md": sections.assemble(page, record, waivers, gate),
        **{figure.file: figure.content for figure in drawn},
    }


def _acceptance(record: sections.Record) -> str:
    return sections.acceptance_line(at(record, "evidence.acceptance") or [])


def _budget(record: sections.Record) -> str:
    budget, wall = as_float(at(record, "evidence.budget_minutes")), as_float(at(record, "evidence.run.wall_s"))
    if not budget > 0 or not wall >= 0:
        return f"Time budget: {number(at(record, 'evidence.budget_minutes'))} minutes."
    return f"It took {duration(wall)} of a budget of {given(budget)} minutes ({share(wall / 60 / budget)})."


def _waiting(record: sections.Record) -> list[str]:
    """Return how long the loop waited for data, and what that means."""
    found = at(record, "evidence.waiting") or {}
    if not finite(found.get("share")):
        return []
    line = f"The loop waited for data for {share(found['share'])} of the time"
    if not found.get("starved"):
        return [f"{line}."]
    mend = "mltrainer phase run planning --set loader.workers=auto"
    return [f"**{line}**, more than {share(found.get('limit'))}: reading the samples holds it up. Next: {md.code(mend)}."]


def _findings(record: sections.Record) -> list[str]:
    evidence = record["evidence"]
    found = runs.findings(evidence["run"])
    found += [
        f"{md.code(row['id'])} fired: {md.text(row.get('reason', ''))} "
        f"See {md.code('mltrainer guide ' + str(row['page']).removesuffix('.md'))}."
        for row in evidence.get("diagnostics") or []
        if row.get("state") == "fired"
    ]
    found += [f"{md.text(one['why'])}: {md.setting(one['set'])}" for one in evidence.get("changes") or []]
    return [md.bullets(found)] if found else []
