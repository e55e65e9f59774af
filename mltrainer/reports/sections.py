"""The parts that every report has: verdict, banners, checklist, origin, reproduction, what next."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mltrainer.reports import markdown as md
from mltrainer.reports.values import at, counted, number, short, visible
from mltrainer.reproducibility.claims import MEANING, claim_of

Record = dict[str, Any]
Waivers = list[dict[str, Any]]
GateView = list[dict[str, Any]]
VERDICTS = {"pass": "✅ pass", "fail": "❌ **FAIL**", "not_applicable": "⚪ not applicable", "waived": "⚠️ **WAIVED**"}


@dataclass
class Page:
    """What a phase's module says; the rest of a report is the same for all.

    Attributes:
        title: The report's title.
        verdict: What was done and with what result against what criterion, in a line of Markdown.
        done: Markdown on what was done.
        result: Markdown on what came of it, with tables and figures.
        findings: Markdown on what to look at, one entry per finding.
        reproduce: Facts for the table of digests, name and Markdown.
        commands: What to type to do it again.
        after: Command and explanation of what comes next when the gate holds.
        banners: Banners beside those that every report may have.
    """

    title: str
    verdict: str
    done: list[str]
    result: list[str]
    findings: list[str]
    reproduce: list[tuple[str, str]]
    commands: list[str]
    after: list[tuple[str, str]]
    banners: list[str] = field(default_factory=list)


def assemble(page: Page, record: Record, waivers: Waivers, gate: GateView) -> str:
    """Return a whole report: its reader's questions answered in their order."""
    project = at(record, "project.name", "unnamed")
    return md.document(
        [
            f"# {page.title}: {md.text(project)}",
            f"{gate_line(gate)} {page.verdict}",
            *page.banners,
            *banners(record, waivers, gate),
            "## Gate",
            gate_table(gate),
            "## What was done",
            *page.done,
            "## Result",
            *page.result,
            "## What to look at",
            *(page.findings or ["Nothing stands out."]),
            "## How it is reproduced",
            *_reproduction(page, record),
            "## What next",
            *_next(page, record, gate),
            _footer(record),
        ]
    )


# --- verdict and gate ---------------------------------------------------------------------------


def failing(gate: GateView) -> list[dict[str, Any]]:
    """Return the items that do not hold."""
    return [item for item in gate if item.get("verdict") == "fail"]


def gate_line(gate: GateView) -> str:
    """Return whether the gate holds, in one bold sentence."""
    counts = {verdict: sum(1 for item in gate if item.get("verdict") == verdict) for verdict in VERDICTS}
    failed = failing(gate)
    if failed:
        names = ", ".join(md.code(item["id"]) for item in failed)
        return f"❌ **The gate does not hold**: {names}."
    if not gate:
        return "❌ **The gate does not hold**: nothing was checked."
    beside = [
        f"{number(counts[key])} {word}"
        for key, word in (("waived", "waived"), ("not_applicable", "not applicable"))
        if counts[key]
    ]
    rest = f", {', '.join(beside)}" if beside else ""
    return f"✅ **The gate holds** ({number(counts['pass'])} of {number(len(gate))} items pass{rest})."


def gate_table(gate: GateView) -> str:
    """Return the checklist with each item's verdict and what was measured."""
    rows = [
        (
            md.code(item["id"]),
            md.text(item.get("statement", "")),
            VERDICTS.get(str(item.get("verdict")), md.text(item.get("verdict"))),
            md.evidence(item.get("evidence") or {}) or "none",
        )
        for item in gate
    ]
    return md.table(("item", "what must hold", "verdict", "measured"), rows)


# --- banners ------------------------------------------------------------------------------------


def banners(record: Record, waivers: Waivers, gate: GateView) -> list[str]:
    """Return what a reader must not miss: waivers, a tree that was not committed, overridden pages."""
    return [*(_waiver(waiver, gate) for waiver in waivers), *_source_banner(record.get("source") or {}), *_overrides(record)]


def _waiver(waiver: dict[str, Any], gate: GateView) -> str:
    date = f" on {md.text(waiver['when'])}" if waiver.get("when") else ""
    verdicts = {item["id"]: item.get("verdict") for item in gate}
    who = waiver.get("by") or waiver.get("who") or "nobody named"
    effect = "" if not gate or verdicts.get(waiver.get("item")) == "waived" else " It has no effect on the item's verdict now."
    head = f"**WAIVED: {md.code(waiver.get('item', 'unnamed'))}**, by {md.text(who)}{date}.{effect}"
    return md.alert("CAUTION", f"{head}\n\nReason: {md.text(waiver.get('reason', 'none given'))}")


def _source_banner(source: dict[str, Any]) -> Iterable[str]:
    note = f"\n\n{md.text(source['note'])}" if source.get("note") else ""
    imported = counted(len(source.get("files") or []), "imported file")
    digest = f"The digest of {imported} is {md.code(short(source.get('sha256')))}."
    if source.get("commit") is None:
        yield md.alert("WARNING", f"**NOT COMMITTED**: no commit names the code that ran. {digest}{note}")
    elif source.get("dirty"):
        yield md.alert("WARNING", _dirty(source) + note)
    elif note:
        yield md.alert("NOTE", note.strip())


def _dirty(source: dict[str, Any]) -> str:
    commit, snapshot = source["commit"], source.get("snapshot")
    untracked = source.get("untracked") or 0
    head = (
        f"**NOT COMMITTED**: the tree had changes on top of commit {md.code(short(commit))}: the difference has the digest "
        f"{md.code(short(source.get('diff_sha256')))}, {counted(untracked, 'untracked file')}."
    )
    if not snapshot:
        return f"{head} No snapshot of it was kept, so it cannot be restored."
    commands = md.block(restore_commands(source), "sh")
    where = f"Its snapshot is {md.code(snapshot)}, in this repository only until it is pushed."
    return f"{head} {where} To restore it in a folder of its own:\n\n{commands}"


def restore_commands(source: dict[str, Any]) -> list[str]:
    """Return the commands that bring the recorded tree back, beside the one that is worked in."""
    commit, snapshot = shlex.quote(visible(source.get("commit"))), source.get("snapshot")
    commands = [f"git worktree add --detach ../restored {commit}"]
    if source.get("dirty") and snapshot:
        commands.append(f"git -C ../restored read-tree -u --reset {shlex.quote(visible(snapshot))}")
    return commands


def _overrides(record: Record) -> Iterable[str]:
    pages = record.get("policy_overrides") or []
    if pages:
        names = ", ".join(md.code(path) for path in pages)
        changes = "".join(f"\n- {md.text(change)}" for change in record.get("policy_changes") or [])
        head = f"**The project's own handbook pages were used** instead of the shipped ones: {names}"
        yield md.alert("IMPORTANT", f"{head}\n{changes}" if changes else head)


# --- origin and reproduction --------------------------------------------------------------------


def _reproduction(page: Page, record: Record) -> list[str]:
    source = record.get("source") or {}
    rows = [
        ("code", _code(source)),
        *page.reproduce,
        *claim_rows(record),
        (
            "previous phase's record",
            md.code(short(record["previous"])) if record.get("previous") else "none: this is the first phase",
        ),
    ]
    return [md.facts(rows), md.block(page.commands, "sh"), *_elsewhere(record, source), *_files(record, source)]


def claim_rows(record: Record) -> list[tuple[str, str]]:
    """Return the level of reproducibility that was tested, and the one that was not."""
    claim = claim_of(record)
    meaning = f": {MEANING[claim.level]}" if claim.level in MEANING else ""
    return [
        ("level tested", f"**{claim.level}**{meaning} ({md.text(claim.tested)})"),
        ("level aimed at, not tested", f"{claim.intended}: {MEANING[claim.intended]}"),
    ]


def _elsewhere(record: Record, source: dict[str, Any]) -> Iterable[str]:
    if source.get("commit"):
        yield "From the recorded code, in a folder of its own (the digests above are what to expect):"
        again = f"mltrainer run --until {shlex.quote(visible(record['phase']))}"
        yield md.block([*restore_commands(source), "cd ../restored", again], "sh")


def _code(source: dict[str, Any]) -> str:
    files = counted(len(source.get("files") or []), "imported file")
    commit = f"commit {md.code(short(source['commit']))}" if source.get("commit") else "no commit"
    branch = f" on {md.code(source['branch'])}" if source.get("branch") else ""
    dirty, untracked = source.get("dirty"), source.get("untracked")
    state = "" if dirty is None else ", with uncommitted changes" if dirty else ", clean"
    beside = f", {counted(untracked, 'untracked file')}" if untracked else ""
    return f"{commit}{branch}{state}{beside}; {files}, digest {md.code(short(source.get('sha256')))}"


def _files(record: Record, source: dict[str, Any]) -> Iterable[str]:
    inputs = record.get("inputs") or []
    if inputs:
        yield md.details(f"Files that this phase is bound to ({number(len(inputs))})", file_table(inputs))
    if source.get("files"):
        yield md.details(f"Code that was imported ({counted(len(source['files']), 'file')})", file_table(source["files"]))


def file_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return paths, digests and sizes, with the role where the rows have one."""
    roles = any("role" in row for row in rows)
    headers = ("file", *(("role",) if roles else ()), "SHA-256", "bytes")
    cells = [
        (
            md.code(r["path"]),
            *((md.text(r.get("role", "")),) if roles else ()),
            md.code(short(r.get("sha256"), 16)),
            number(r.get("size")),
        )
        for r in rows
    ]
    return md.table(headers, cells, "llr" if not roles else "lllr")


def digests(run: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what a run's bits are a function of, and what they came to."""
    names = ("config", "data", "code", "environment", "weights")
    rows = [(f"{name} digest", md.code(short(run.get(f"{name}_sha256"), 16))) for name in names]
    chain = f"{md.code(short(at(run, 'chain.head'), 16))} after {number(at(run, 'chain.entries'))} entries"
    return [*rows, ("chain of fingerprints", chain), ("numerics class", md.code(run.get("numerics_class")))]


# --- what next ----------------------------------------------------------------------------------


def _next(page: Page, record: Record, gate: GateView) -> list[str]:
    failed = failing(gate)
    if failed:
        rows = [f"{md.code(item['id'])}: {md.text(item.get('mend') or 'see the gate table')}" for item in failed]
        return ["Mend what failed, then check again:", md.bullets(rows), md.block(["mltrainer gate check"], "sh")]
    return [part for why, command in page.after for part in ([why] if not command else [why, md.block([command], "sh")])]


def _footer(record: Record) -> str:
    version, seal = md.text(record.get("mltrainer", "of unknown version")), md.code(short(record.get("seal"), 16))
    return f"---\n\nRendered by mltrainer {version} from `record.json` (seal {seal}), which holds every number above in full."


# --- parts that several phases show -------------------------------------------------------------


def acceptance_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return each acceptance criterion with the value and whether it is met."""
    if not rows:
        return "`mltrainer.yaml` names no acceptance criterion."
    heads = ("metric", "measured on", "criterion", "value", "interval", "met")
    return md.table(heads, [_criterion(row) for row in rows], "lllrr")


def _criterion(row: dict[str, Any]) -> tuple[str, ...]:
    value = number(row.get("value"), 6)
    return md.code(row["metric"]), split_of(row), md.code(row["criterion"]), value, interval(row.get("interval")), _met(row)


def split_of(row: dict[str, Any]) -> str:
    """Return which split a criterion was judged on; records of 0.1 do not tell, and judged on validation."""
    return md.text(row.get("split") or "validation")


def interval(ends: Any) -> str:
    """Return an interval's two ends, or that there is none."""
    return f"{number(ends[0])} to {number(ends[1])}" if isinstance(ends, list) and len(ends) == 2 else "none"


def _met(row: dict[str, Any]) -> str:
    return "✅ yes" if row.get("met") is True else "❌ no"


def acceptance_line(rows: Sequence[dict[str, Any]]) -> str:
    """Return the result against the criteria as a sentence; empty without criteria."""
    parts = []
    for row in rows:
        verdict = "met" if row.get("met") is True else "**not met**"
        value = f"{md.text(row['metric'])} {number(row.get('value'))} on {split_of(row)}"
        ends = f" ({interval(row['interval'])})" if row.get("interval") else ""
        parts.append(f"{value}{ends}, criterion {md.code(row['criterion'])}: {verdict}")
    return f"Acceptance: {'; '.join(parts)}." if parts else ""


def changes_table(rows: Sequence[dict[str, Any]], before: str, after: str) -> str:
    """Return the values in which two configs differ, under two heads; nothing where they do not."""
    cells = [(md.code(row["key"]), md.setting(row["before"]), md.setting(row["after"])) for row in rows]
    return md.table(("key", before, after), cells) if cells else ""


def config_tables(config: dict[str, Any], edited: dict[str, Any] | None = None) -> str:
    """Return a config as dotted keys and values; those that a person changed are marked."""
    changed = edited or {}
    rows = [(md.code(key), md.setting(value), "edited" if key in changed else "") for key, value in flat(config)]
    return md.table(("key", "value", ""), rows) if changed else md.table(("key", "value"), [row[:2] for row in rows])


def flat(value: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yield dotted keys and values of nested dicts, sorted."""
    for key in sorted(value, key=str):
        path, item = f"{prefix}{key}", value[key]
        if isinstance(item, dict) and item:
            yield from flat(item, f"{path}.")
        else:
            yield path, item
