"""What a change brings, for its review: two versions of a project's records compared, and a comment that tells it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from mltrainer.configs.items import is_weaker
from mltrainer.configs.pages import PhasePage, numbers, shipped_page
from mltrainer.configs.project import TrainingConfig
from mltrainer.records.envelope import Waiver
from mltrainer.records.partial import partial
from mltrainer.records.planning import Environment
from mltrainer.reports import markdown as md
from mltrainer.reports.changes import DIGESTS, decided, differences, digests
from mltrainer.reports.impossible import contradictions, lost
from mltrainer.reports.values import as_float, at, counted, cut, finite, given, number, signed
from mltrainer.reports.views import flat
from mltrainer.reproducibility import environment
from mltrainer.tasks.proportions import metric_verdict
from mltrainer.workspace import PHASES, TRAINING, canonical, digest

Found = Mapping[str, Any]
Row = dict[str, Any]
Records = Mapping[str, Found]

MOST_ROWS = 25  # of one table
MOST_OPEN = 8  # rows of a table that is not folded away
MOST_REASONS = 4
LONGEST_COMMENT = 60_000  # characters; GitHub takes 65 536
TOO_LONG = "What changed is more than a comment can hold: `mltrainer report --against BRANCH --json` prints all of it."
LONGEST = 300  # characters of a reason
STATES = {"passed": "✅ holds", "skipped": "✅ skipped", "stale": "❌ stale", "failed": "❌ does not hold"}
VERDICTS = {"better": "better by {}", "worse": "**worse** by {}", "same": "the same"}
UNTOLD = "not told apart"


@dataclass(frozen=True)
class Side:
    """One version of a project.

    Attributes:
        records: The content of each phase's record, of those that can be trusted.
        waivers: The waivers that count for them, by phase.
        committed: By whom each of them was committed, by phase; None where git cannot be asked.
    """

    records: Records
    waivers: Mapping[str, Sequence[Waiver]]
    committed: Mapping[str, Mapping[Waiver, str | None]] = field(default_factory=dict)


# --- comparing ----------------------------------------------------------------------------------


def compare(now: Side, before: Side) -> Row:
    """Return the differences between two versions of a project, as `mltrainer report --json` prints them.

    Args:
        now: The version that is reviewed.
        before: The one that it is compared with.
    """
    pairs = {phase: (now.records[phase], before.records[phase]) for phase in PHASES if _both(phase, now, before)}
    trained = {phase: pairs[phase] for phase in ("planning", *TRAINING) if phase in pairs}  # 0.1 told of a run in diagnostics too
    return {
        "is_new": not before.records,
        "added": [phase for phase in PHASES if phase in now.records and phase not in before.records],
        "removed": [phase for phase in PHASES if phase in before.records and phase not in now.records],
        "metrics": [row for phase in TRAINING for row in _metrics(phase, now.records, before.records)],
        "config": _merged(pairs, _config),
        "digests": _merged(trained, digests),
        "unchanged": [name for name in DIGESTS if trained and all(_same(name, *pair) for pair in trained.values())],
        "data": _data(pairs),
        "code": _code(pairs),
        "environment": _environment(pairs),
        "decisions": _merged(pairs, decided),
        "policy": [row for phase in now.records for row in _policy(phase, now.records[phase], before.records.get(phase))],
        "pages": _merged({phase: (now.records[phase], before.records.get(phase) or {}) for phase in now.records}, _own_pages),
        "waivers": _new_waivers(now, before),
        "impossible": contradictions(now.records, before.records),
        "openings": lost(now.records, before.records),
    }


def _both(phase: str, now: Side, before: Side) -> bool:
    return phase in now.records and phase in before.records


def _merged(pairs: Mapping[str, tuple[Found, Found]], part: Callable[[Found], Found]) -> list[Row]:
    """Return the differences in one part of all phases' records; the same difference in several phases is one row."""
    rows: dict[bytes, Row] = {}
    for phase, (now, before) in pairs.items():
        for row in differences(part(now), part(before)):
            rows.setdefault(canonical(row), {**row, "phases": []})["phases"].append(phase)
    return list(rows.values())


def _config(record: Found) -> Row:
    """Return the config's keys; those that came after the record's version have the defaults that it was trained with."""
    config = record["evidence"].get("config")
    if not isinstance(config, dict):
        return {}
    try:
        keys = flat(TrainingConfig.model_validate(config).model_dump())
    except ValidationError:
        keys = flat(config)
    return {key: value for key, value in keys if value != {}}  # a mapping is reported by its entries


def _same(name: str, now: Found, before: Found) -> bool:
    found = digests(now).get(name)
    return found is not None and found == digests(before).get(name)


def _metrics(phase: str, now: Records, before: Records) -> Iterator[Row]:
    """Yield the metric that chose a phase's checkpoint, on each split that it was measured on."""
    tables, others = (_measured(side[phase]) if phase in side else {} for side in (now, before))
    chosen: Found = at(now.get(phase), "evidence.run.metric") or at(before.get(phase), "evidence.run.metric")
    for split in tables | others:
        old, new = (side.get(split, {}).get(chosen["name"]) for side in (others, tables))
        count = _rows(split, now.get(phase), before.get(phase))
        yield {"phase": phase, "split": split, **_judged(chosen, old, new, count)}


def _rows(split: str, *records: Found | None) -> int | None:
    """Return on how many rows both sides measured a split; None where that is not one number, as over folds."""
    if any(record is None or at(record, "evidence.folds.metrics") for record in records):
        return None
    path = "evidence.test.samples" if split == "test" else "evidence.run.measured_samples.validation"
    counts = {at(record, path) for record in records}
    return counts.pop() if len(counts) == 1 else None


def _measured(record: Found) -> dict[str, Found]:
    """Return the metrics of a phase's run by split; over folds their mean."""
    evidence = record["evidence"]
    splits = {"validation": at(evidence, "folds.metrics") or at(evidence, "run.metrics"), "test": at(evidence, "test.metrics")}
    return {split: metrics for split, metrics in splits.items() if metrics}


def _judged(chosen: Found, before: Any, after: Any, count: int | None) -> Row:
    row = {"metric": chosen["name"], "mode": chosen["mode"], "before": before, "after": after}
    if not (finite(before) and finite(after)):
        verdict = "new" if before is None else "gone" if after is None else "not comparable"
        return {**row, "difference": None, "samples": None, "interval": None, "verdict": verdict}
    return {**row, **metric_verdict(chosen["name"], chosen["mode"], as_float(before), as_float(after), count)}


def _code(pairs: Mapping[str, tuple[Found, Found]]) -> list[Row]:
    """Return the files of code that differ, by what the newest phase of both sides recorded."""
    return _files(*(side["source"]["files"] for side in list(pairs.values())[-1])) if pairs else []


def _data(pairs: Mapping[str, tuple[Found, Found]]) -> list[Row]:
    """Return the files of data that differ, as planning recorded them; a task may make its data without any."""
    return _files(*(at(side, "evidence.data.files") or [] for side in pairs["planning"])) if "planning" in pairs else []


def _files(now: Sequence[Found], before: Sequence[Found]) -> list[Row]:
    found = differences(*({row["path"]: row["sha256"] for row in rows} for rows in (now, before)))
    return [{"path": row["key"], "change": _change(row["before"], row["after"])} for row in found]


def _change(before: Any, after: Any) -> str:
    return "new" if before is None else "gone" if after is None else "changed"


def _environment(pairs: Mapping[str, tuple[Found, Found]]) -> list[Row]:
    found = [
        environment.difference(*(partial(Environment, side["evidence"]["environment"]) for side in pair[::-1]))
        for pair in _with_environment(pairs)
    ]
    rows = {row.what: {"what": row.what, "before": row.expected, "after": row.found} for part in found for row in part}
    return list(rows.values())


def _with_environment(pairs: Mapping[str, tuple[Found, Found]]) -> list[tuple[Found, Found]]:
    return [pair for pair in pairs.values() if all(isinstance(side["evidence"].get("environment"), dict) for side in pair)]


def _policy(phase: str, now: Found, before: Found | None) -> list[Row]:
    """Return the changes of a phase's policy as rows; a phase without an earlier record is compared with the shipped page."""
    page, other = _page(now), _page(before) if before else shipped_page(phase)
    if page is None or other is None:
        return []
    items, others = ({item.id for item in side.items} for side in (page, other))
    left_out = [_asked(phase, item, item in items) for item in sorted(items ^ others)]
    changed = [row for row in differences(numbers(page), numbers(other)) if row["key"].partition(".")[0] not in items ^ others]
    return left_out + [{"phase": phase, **row, "weaker": is_weaker(phase, *row.values())} for row in changed]


def _page(record: Found) -> PhasePage | None:
    """Return a record's policy as a phase page; None where it is not a valid one, which the gate reports."""
    try:
        return PhasePage.model_validate(record["policy"])
    except ValidationError:
        return None


def _asked(phase: str, item: str, is_asked: bool) -> Row:
    words = ("not asked for", "asked for")
    return {"phase": phase, "key": item, "before": words[not is_asked], "after": words[is_asked], "weaker": not is_asked}


def _own_pages(record: Found) -> Row:
    """Return the pages and templates of a project's own, in place of the shipped ones, with the digests of what they declare."""
    return {path: record["handbook"].get(path) for path in record.get("policy_overrides", [])}


def _new_waivers(now: Side, before: Side) -> list[Row]:
    known = {_waived(phase, waiver) for phase, given in before.waivers.items() for waiver in given}
    return [
        {
            "phase": phase,
            **waiver.model_dump(include={"item", "reason", "by", "when"}),
            "committed_by": now.committed.get(phase, {}).get(waiver),
        }
        for phase, given in now.waivers.items()
        for waiver in given
        if _waived(phase, waiver) not in known
    ]


def _waived(phase: str, waiver: Waiver) -> tuple[str, ...]:
    return (phase, waiver.item, waiver.reason, waiver.by)


# --- telling ------------------------------------------------------------------------------------


def comment(found: Found) -> str:
    """Return a comparison, with the gates' verdicts, as the body of a comment."""
    head = [
        mark(found["place"]),
        f"### mltrainer, {_said(found['project'])}: {_verdict(found)}",
        _where(found),
        _gates(found["phases"]),
        _older(found["phases"]),
    ]
    whole = md.document([*head, *(block for part in _PARTS for block in part(found)), _rest(found)])
    return whole if len(whole) <= LONGEST_COMMENT else md.document([*head, TOO_LONG])


def mark(place: str) -> str:
    """Return a comment's first line, by which a job finds the one that it wrote before for the project at a place."""
    return f"<!-- mltrainer report {digest(place)[:12]} -->"


def _verdict(found: Found) -> str:
    if found["impossible"]:
        return "❌ the records say what cannot be true"
    open_ = [row["name"] for row in found["phases"] if not row["holds"]]
    count = sum(len(row.get("not_recomputed", ())) for row in found["phases"])
    beside = f" ({count} by the project's own checks, not recomputed)" if count else ""
    return f"❌ not every gate holds: {', '.join(open_)}" if open_ else f"✅ every gate that there is holds{beside}"


def _where(found: Found) -> str:
    against = f"{md.code(found['against'])} ({md.code(found['commit'][:12])})"
    return f"Nothing is on record at {against}: all of this is new." if found["is_new"] else f"Compared with {against}."


def _gates(phases: Sequence[Found]) -> str:
    return md.table(("phase", "gate", ""), [(md.text(row["name"]), _state(row), _why(row)) for row in phases])


def _older(phases: Sequence[Found]) -> str:
    """Warn where the records tell of other files than those that are here."""
    stale = [row["name"] for row in phases if row["stale"]]
    told = f"⚠️ What follows is what the records say, and those of {', '.join(stale)} are stale"
    return f"{told}: it may not hold of the files as they are now." if stale else ""


def _state(row: Found) -> str:
    return STATES.get(row["state"], f"❌ {'not run' if row['run'] is None else row['state']}")


def _why(row: Found) -> str:
    """Return the reasons for which a gate does not hold, or the number of items per verdict."""
    failing = [f"{md.code(item['id'])}: {_said(item['statement'])} next: {md.code(item['mend'])}" for item in row["failing"]]
    reasons = [*map(_said, row["stale"]), *failing]
    if reasons:
        more = [f"and {len(reasons) - MOST_REASONS} more"] if len(reasons) > MOST_REASONS else []
        return "<br>".join([*reasons[:MOST_REASONS], *more])
    counts = [f"{count} {verdict.replace('_', ' ')}" for verdict, count in row["verdicts"].items()]
    own = ", ".join(map(md.code, row.get("not_recomputed", ())))
    return ", ".join([*counts, *([f"by the project's own check, not recomputed: {own}"] if own else [])])


def _metric_table(found: Found) -> Iterator[str]:
    rows = [
        (
            f"{md.text(row['phase'])}, {row['split']} {md.code(row['metric'])}",
            _value(row["before"]),
            _value(row["after"]),
            _gain(row),
        )
        for row in found["metrics"]
    ]
    yield from _table("", ("metric", _name(found), "here", ""), rows, "lrrl")


def _value(value: Any) -> str:
    return "—" if value is None else number(value, 5)


def _gain(row: Found) -> str:
    if row["verdict"] != UNTOLD:
        return VERDICTS.get(row["verdict"], str(row["verdict"])).format(number(abs(row["difference"] or 0.0), 3))
    difference = signed(row["difference"], 3)
    if row["interval"] is None:
        return f"{difference}; one run each shows no interval of it"
    return f"{difference}: {UNTOLD} on {counted(row['samples'], 'row')}"


def _config_table(found: Found) -> Iterator[str]:
    yield from _changes("**Config**", found["config"], found)
    yield from _changes("**Decided**", found["decisions"], found)


def _changes(title: str, changed: Sequence[Found], found: Found) -> Iterator[str]:
    rows = [(md.code(row["key"]), _shown(row["before"]), _shown(row["after"]), ", ".join(row["phases"])) for row in changed]
    yield from _table(title, ("", _name(found), "here", "in"), rows)


def _identity(found: Found) -> Iterator[str]:
    """Yield the digests, and what is behind those of code and environment."""
    yield from _changes("**Data, code and environment, by digest**", found["digests"], found)
    for name in ("data", "code"):
        yield _listed(name, [f"{md.code(row['path'])} {row['change']}" for row in found[name]])
    rows = [(md.code(row["what"]), _said(row["before"]), _said(row["after"])) for row in found["environment"]]
    yield from _folded("environment", _table("", ("", _name(found), "here"), rows), len(rows))


def _policy_list(found: Found) -> Iterator[str]:
    rows = [
        (
            f"{md.text(row['phase'])}: {md.code(row['key'])}",
            _shown(row["before"]),
            _shown(row["after"]),
            _direction(row["weaker"]),
        )
        for row in found["policy"]
    ]
    yield from _table("**Judged by another policy**", ("", _name(found), "here", ""), rows)
    pages = [f"{md.code(row['key'])} {_change(row['before'], row['after'])}" for row in found["pages"]]
    yield _listed("pages and templates of this project's own", pages)


def _direction(weaker: bool | None) -> str:
    return {True: "⚠️ **asks for less**", False: "asks for more", None: ""}[weaker]


def _waiver_list(found: Found) -> Iterator[str]:
    told = [
        f"⚠️ {md.code(row['item'])} of {md.text(row['phase'])}, by {md.code(row['by'])}{_committed(row)}: {_said(row['reason'])}"
        for row in found["waivers"]
    ]
    yield from (["**Waived**", md.bullets(_few(told))] if told else [])


def _committed(row: Found) -> str:
    """Return the committer of a waiver in words, where it is not the person named in it."""
    who = row.get("committed_by")
    return "" if who in (None, row["by"]) else f" (**committed by {md.code(who)}**)"


def _impossible(found: Found) -> Iterator[str]:
    """Yield the table of contradictions between both sides' records."""
    rows = [
        (f"{md.code(row['what'])}: {md.code(row['key'])}", _shown(row["before"]), _shown(row["after"]))
        for row in found["impossible"]
    ]
    yield from _table("**Impossible**: the same bits have one outcome, and these have two", ("", _name(found), "here"), rows)


def _forgotten(found: Found) -> Iterator[str]:
    """Yield the openings of the test split that are not on record any more."""
    words = {"lost": "is not in the ledger here", "replaced": "stands in the ledger here with other weights or data"}
    told = [
        f"⚠️ the opening of the test split by run {md.code(row['run'])}, known at {_name(found)}, {words[row['change']]}"
        for row in found["openings"]
    ]
    yield md.bullets(_few(told)) if told else ""


def _lost(found: Found) -> Iterator[str]:
    notes = [f"⚠️ {md.text(phase)} has a record at {_name(found)}, and none here" for phase in found["removed"]]
    yield md.bullets([*notes, *map(_said, found["notes"])])


_PARTS: tuple[Callable[[Found], Iterable[str]], ...] = (
    *(_impossible, _forgotten, _lost, _waiver_list, _policy_list, _metric_table, _config_table, _identity),
)


def _rest(found: Found) -> str:
    """Return a sentence on unchanged digests and new phases."""
    if found["is_new"]:
        return ""
    same = f"{', '.join(found['unchanged'])}: the same" if found["unchanged"] else ""
    added = f"new here: {', '.join(found['added'])}" if found["added"] else ""
    changed = any(
        found[key]
        for key in ("config", "digests", "decisions", "policy", "pages", "waivers", "added", "removed", "impossible", "openings")
    )
    told = "; ".join(filter(None, [added, same, "" if changed else "no config key, digest, policy or waiver changed"]))
    return f"By the stale records: {told}" if told and any(row["stale"] for row in found["phases"]) else told


def _table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], align: str = "") -> Iterator[str]:
    if rows:
        yield title
        yield md.table(headers, rows[:MOST_ROWS], align)
        yield f"and {len(rows) - MOST_ROWS} more" if len(rows) > MOST_ROWS else ""


def _folded(name: str, blocks: Iterator[str], count: int) -> Iterator[str]:
    """Fold away what is too long to be read by everybody."""
    if count <= MOST_OPEN:
        yield from blocks
        return
    yield from (f"<details><summary>{name}: {count} differences</summary>", *blocks, "</details>")


def _listed(name: str, told: Sequence[str]) -> str:
    return f"{name}: {'; '.join(_few(told))}" if told else ""


def _few(told: Sequence[str]) -> list[str]:
    return [*told[:MOST_ROWS], *([f"and {len(told) - MOST_ROWS} more"] if len(told) > MOST_ROWS else [])]


def _name(found: Found) -> str:
    return md.code(found["against"])


def _shown(value: Any) -> str:
    return _quiet(md.plain_value(value, given))


def _said(value: object) -> str:
    return _quiet(md.text(cut(str(value), LONGEST)))


def _quiet(markdown: str) -> str:
    """Return Markdown in which nobody is mentioned and no issue is linked: a comment would call them."""
    return re.sub(r"@(?=\w)|(?<!&)#(?=\w)", lambda match: f"{match[0]}&#8203;", markdown)
