"""A review as the body of a comment in Markdown: no text of a record acts as markup, mentions anyone or links an issue."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from mltrainer.reports import markdown as md
from mltrainer.reports.criteria import MovedCriterion
from mltrainer.reports.review import MetricChange, NewWaiver, PhaseVerdict, Review, SharedChange, change_of
from mltrainer.reports.runs import of_seeds
from mltrainer.reports.values import counted, cut, given, number, signed
from mltrainer.workspace import digest

MOST_ROWS = 25  # of one table
MOST_OPEN = 8  # rows of a table that is not folded away
MOST_REASONS = 4
LONGEST_COMMENT = 60_000  # characters; GitHub takes 65 536
TOO_LONG = "What changed is more than a comment can hold: `mltrainer report --against BRANCH --json` prints all of it."
LONGEST = 300  # characters of a reason
STATES = {"passed": "✅ holds", "skipped": "✅ skipped", "stale": "❌ stale", "failed": "❌ does not hold"}
VERDICTS = {"better": "better by {}", "worse": "**worse** by {}", "same": "the same"}
NOT_SEPARATED = "no clear difference"


def comment(review: Review) -> str:
    """Return a review as the body of a comment."""
    head = [
        mark(review.place),
        f"### mltrainer, {_text(review.project)}: {_verdict(review)}{_moved(review.moved)}",
        _where(review),
        _gates(review.phases),
        _older(review.phases),
    ]
    whole = md.document([*head, *(block for part in _PARTS for block in part(review)), _rest(review)])
    return whole if len(whole) <= LONGEST_COMMENT else md.document([*head, TOO_LONG])


def mark(place: str) -> str:
    """Return a comment's first line, by which a job finds its earlier comment on the project in a folder."""
    # By digest, as a folder's name could end the HTML comment.
    return f"<!-- mltrainer report {digest(place)[:12]} -->"


# --- the gates ----------------------------------------------------------------------------------


def _verdict(review: Review) -> str:
    if review.impossible:
        return "❌ the records say what cannot be true"
    if review.removed:
        return f"❌ {', '.join(review.removed)} had a record at {_name(review)} and has none here"
    closed = [row.name for row in review.phases if not row.holds]
    count = sum(len(row.not_recomputed) for row in review.phases)
    beside = f" ({count} by the project's own checks, not recomputed)" if count else ""
    return f"❌ not every gate holds: {', '.join(closed)}" if closed else f"✅ every gate that there is holds{beside}"


def _moved(criteria: Sequence[MovedCriterion]) -> str:
    """Return, for the first line, the criteria that moved after numbers were known, with their committers and these numbers."""
    reasons = [
        f"{md.code(row.key)} {' -> '.join(_both(row.before, row.after))}, by {md.code(row.by or 'nobody yet: not committed')}"
        f"{f' on {row.when}' if row.when else ''}, when {_text(' and '.join(row.known))} was known"
        for row in criteria
    ]
    return f"; ⚠️ **moved after numbers were known**: {'; '.join(_few(reasons, MOST_REASONS))}" if reasons else ""


def _where(review: Review) -> str:
    against = f"{_name(review)} ({md.code(review.commit[:12])})"
    return f"Nothing is on record at {against}: all of this is new." if review.is_new else f"Compared with {against}."


def _gates(phases: Sequence[PhaseVerdict]) -> str:
    return md.table(("phase", "gate", ""), [(md.text(row.name), _state(row), _why(row)) for row in phases])


def _older(phases: Sequence[PhaseVerdict]) -> str:
    """Return a warning where the records are of other files than those that are here."""
    stale = ", ".join(row.name for row in phases if row.stale)
    text = f"⚠️ What follows is what the records say, and those of {stale} are stale"
    return f"{text}: it may not hold of the files as they are now." if stale else ""


def _state(row: PhaseVerdict) -> str:
    return STATES.get(row.state, f"❌ {'not run' if row.run is None else row.state}")


def _why(row: PhaseVerdict) -> str:
    """Return the reasons why a gate does not hold, or the number of items per verdict."""
    failing = [f"{md.code(item.id)}: {_text(item.statement)} next: {md.code(item.mend)}" for item in row.failing]
    reasons = [*map(_text, row.stale), *failing]
    if reasons:
        return "<br>".join(_few(reasons, MOST_REASONS))
    counts = [f"{count} {verdict.replace('_', ' ')}" for verdict, count in row.verdicts.items()]
    own = ", ".join(map(md.code, row.not_recomputed))
    return ", ".join([*counts, *([f"by the project's own check, not recomputed: {own}"] if own else [])])


# --- differences --------------------------------------------------------------------------------


def _impossible(review: Review) -> Iterator[str]:
    """Yield the table of contradictions between both sides' records."""
    rows = [(f"{md.code(row.what)}: {md.code(row.key)}", *_both(row.before, row.after)) for row in review.impossible]
    yield from _table("**Impossible**: the same bits have one outcome, and these have two", ("", _name(review), "here"), rows)


def _forgotten(review: Review) -> Iterator[str]:
    """Yield the openings of the test split that are not on record any more."""
    words = {"lost": "is not in the ledger here", "replaced": "is in the ledger here with other weights or data"}
    lines = [
        f"⚠️ the opening of the test split by run {md.code(row.run)}, known at {_name(review)}, {words[row.change]}"
        for row in review.openings
    ]
    yield md.bullets(_few(lines)) if lines else ""


def _lost(review: Review) -> Iterator[str]:
    notes = [f"⚠️ {md.text(phase)} has a record at {_name(review)}, and none here" for phase in review.removed]
    yield md.bullets([*notes, *map(_text, review.notes)])


def _waivers(review: Review) -> Iterator[str]:
    lines = [
        f"⚠️ {md.code(row.item)} of {md.text(row.phase)}, by {md.code(row.by)}{_committed(row)}: {_text(row.reason)}"
        for row in review.waivers
    ]
    yield from (["**Waived**", md.bullets(_few(lines))] if lines else [])


def _committed(row: NewWaiver) -> str:
    """Return the committer of a waiver in words, where it is not the person named in it."""
    return "" if row.committed_by in (None, row.by) else f" (**committed by {md.code(row.committed_by)}**)"


def _policy(review: Review) -> Iterator[str]:
    rows = [
        (f"{md.text(row.phase)}: {md.code(row.key)}", *_both(row.before, row.after), _direction(row.weaker))
        for row in review.policy
    ]
    yield from _table("**Judged by another policy**", ("", _name(review), "here", ""), rows)
    pages = [f"{md.code(row.key)} {change_of(row.before, row.after)}" for row in review.pages]
    yield _listed("pages and templates of this project's own", pages)


def _direction(weaker: bool | None) -> str:
    return {True: "⚠️ **asks for less**", False: "asks for more", None: ""}[weaker]


def _metrics(review: Review) -> Iterator[str]:
    rows = [
        (f"{md.text(row.phase)}, {row.split} {md.code(row.metric)}", _value(row.before), _value(row.after), _gain(row))
        for row in review.metrics
    ]
    yield from _table("", ("metric", _name(review), "here", ""), rows, "lrrl")


def _value(value: Any) -> str:
    return "—" if value is None else number(value)


def _gain(row: MetricChange) -> str:
    if row.verdict not in (NOT_SEPARATED, "better", "worse"):
        return VERDICTS.get(row.verdict, row.verdict)
    rows = f"{counted(row.samples, 'row')}; " if row.interval else ""
    verdict = VERDICTS.get(row.verdict, f"{signed(row.difference)}: {NOT_SEPARATED}").format(number(abs(row.difference or 0.0)))
    return f"{verdict} ({rows}{of_seeds(row.least)})"


def _config(review: Review) -> Iterator[str]:
    yield from _changes("**Config**", review.config, review)
    yield from _changes("**Decided**", review.decisions, review)


def _changes(title: str, changed: Sequence[SharedChange], review: Review) -> Iterator[str]:
    rows = [(md.code(row.key), *_both(row.before, row.after), ", ".join(row.phases)) for row in changed]
    yield from _table(title, ("", _name(review), "here", "in"), rows)


def _identity(review: Review) -> Iterator[str]:
    """Yield the digests, and the files and parts that differ behind those of data, code and environment."""
    yield from _changes("**Data, code and environment, by digest**", review.digests, review)
    for name, files in (("data", review.data), ("code", review.code)):
        yield _listed(name, [f"{md.code(row.path)} {row.change}" for row in files])
    rows = [(md.code(row.what), _text(row.before), _text(row.after)) for row in review.environment]
    yield from _folded("environment", _table("", ("", _name(review), "here"), rows), len(rows))


_PARTS: tuple[Callable[[Review], Iterable[str]], ...] = (
    *(_impossible, _forgotten, _lost, _waivers, _policy, _metrics, _config, _identity),
)


def _rest(review: Review) -> str:
    """Return a sentence on unchanged digests and new phases."""
    if review.is_new:
        return ""
    same = f"{', '.join(review.unchanged)}: the same" if review.unchanged else ""
    added = f"new here: {', '.join(review.added)}" if review.added else ""
    changes = (
        *(review.config, review.digests, review.decisions, review.policy, review.pages, review.waivers),
        *(review.added, review.removed, review.impossible, review.openings),
    )
    none = "" if any(changes) else "no config key, digest, policy or waiver changed"
    text = "; ".join(filter(None, [added, same, none]))
    return f"By the stale records: {text}" if text and any(row.stale for row in review.phases) else text


# --- blocks -------------------------------------------------------------------------------------


def _table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], align: str = "") -> Iterator[str]:
    if rows:
        yield title
        yield md.table(headers, rows[:MOST_ROWS], align)
        yield f"and {len(rows) - MOST_ROWS} more" if len(rows) > MOST_ROWS else ""


def _folded(name: str, blocks: Iterator[str], count: int) -> Iterator[str]:
    """Yield blocks, folded away where there are too many differences to show."""
    if count <= MOST_OPEN:
        yield from blocks
        return
    yield from (f"<details><summary>{name}: {count} differences</summary>", *blocks, "</details>")


def _listed(name: str, entries: Sequence[str]) -> str:
    return f"{name}: {'; '.join(_few(entries))}" if entries else ""


def _few(lines: Sequence[str], most: int = MOST_ROWS) -> list[str]:
    return [*lines[:most], *([f"and {len(lines) - most} more"] if len(lines) > most else [])]


def _name(review: Review) -> str:
    return md.code(review.against)


def _both(before: Any, after: Any) -> tuple[str, str]:
    old, new = (_quiet(md.plain_value(value, given)) for value in (before, after))
    return old, new


def _text(value: str) -> str:
    # Cut first: a later cut could split a character reference.
    return _quiet(md.text(cut(value, LONGEST)))


def _quiet(markdown: str) -> str:
    """Return Markdown that mentions nobody and links no issue: a comment would notify them."""
    # The # of a character reference such as &#42; is no number of an issue.
    return re.sub(r"@(?=\w)|(?<!&)#(?=\w)", lambda match: f"{match[0]}&#8203;", markdown)
