"""Custom gate items: a function in the project's own module, named on the project's own page.

    def enough_classes(evidence, settings):
        found = len(evidence["data"]["classes"])
        holds = found >= settings["at_least"]
        return {"verdict": "pass" if holds else "fail", "evidence": {"classes": found}, "mend": "bring more data"}

It is called when its phase runs, never when a gate is checked: a clone may be a stranger's. What it said is part of the
phase's record, with digests of its code, of the evidence and of its settings; a gate shows that verdict as one that was not
recomputed, and is stale where one of the three is another now. `gate check --custom-checks` calls it again and compares.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from mltrainer.configs.pages import Item, PhasePage
from mltrainer.executors.local import Ended
from mltrainer.executors.sandbox import Limits, closed_off, run
from mltrainer.gates.check import Outcome
from mltrainer.gates.sandboxed_check import Question
from mltrainer.records.common import FileRow
from mltrainer.records.envelope import CustomVerdict, Envelope
from mltrainer.redaction import redacted, shortened
from mltrainer.workspace import digest

SECONDS = 10.0  # chosen by us: importing a large library and reading a record; the item's setting `seconds` raises it
MEMORY = 16 << 30  # bytes of address space, of which torch with CUDA takes several GiB by being imported
LARGEST = 20_000  # characters of an answer; a longer one belongs in a separate report
OUTPUT = 1 << 22
VERDICTS = ("pass", "fail", "not_applicable")
NOT_RECORDED = "the record holds no verdict of it"
_Row = dict[str, Any]


# --- when the phase runs --------------------------------------------------------------------------


def judge(page: PhasePage, evidence: Mapping[str, Any], root: Path, isolated: bool) -> list[_Row]:
    """Return the verdicts of a page's custom checks on a phase's evidence, as rows of the phase's record.

    Args:
        page: The phase's page.
        evidence: The phase's evidence, in the form of its record.
        root: The project's folder.
        isolated: Whether the functions are closed off; else they run as the user, with limits and without the shell's variables.
    """
    return [_judged(item, page.phase, evidence, root, isolated) for item in page.items if item.check]


def _judged(item: Item, phase: str, evidence: Mapping[str, Any], root: Path, isolated: bool) -> _Row:
    outcome, files = call(item, phase, evidence, root, isolated)
    return {
        "item": item.id,
        "check": item.check,
        "verdict": outcome.verdict,
        "evidence": outcome.evidence,
        "mend": outcome.hint,
        "code": [FileRow.of(root / name, name).model_dump() for name in files],
        "evidence_sha256": digest(evidence),
        "settings_sha256": digest(item.settings),
    }


# --- whenever a gate is looked at -----------------------------------------------------------------


def recorded_outcome(item: Item, record: Envelope[Any]) -> Outcome:
    """Return the verdict that a custom check gave when its phase ran; if none is recorded, the item fails."""
    row = next((row for row in record.custom_checks or [] if row.item == item.id), None)
    if row is not None:
        return Outcome(row.verdict, row.evidence, row.mend)
    return Outcome("fail", {"own_check": NOT_RECORDED}, f"mltrainer phase run {record.phase}")


def changes(
    page: PhasePage, record: Envelope[Any], evidence: Mapping[str, Any], root: Path, sha256_of: Callable[[Path], str | None]
) -> Iterator[str]:
    """Yield, as messages with a next step, the changes of checks, settings, evidence and code since custom checks judged a phase.

    Args:
        page: The phase's present page.
        record: The phase's record.
        evidence: Its evidence, as the file holds it.
        root: The project's folder.
        sha256_of: Gives a file's digest, None where there is none.
    """
    rows = {row.item: row for row in record.custom_checks or []}
    for item in page.items:
        if item.check and item.id in rows:
            for change in _changes(item, rows[item.id], evidence, root, sha256_of):
                yield f"{change}; next: mltrainer phase run {record.phase}"


def _changes(
    item: Item, row: CustomVerdict, evidence: Mapping[str, Any], root: Path, sha256_of: Callable[[Path], str | None]
) -> Iterator[str]:
    if item.check != row.check:
        yield f"{item.id} was judged by {row.check}, and its page now names {item.check}"
    if digest(item.settings) != row.settings_sha256:
        yield f"{item.id} was judged by other settings than its page's present ones"
    if digest(evidence) != row.evidence_sha256:
        yield f"{item.id} was judged by other evidence than the record's"
    for file in row.code:
        sha256 = sha256_of(root / file.path)
        if sha256 != file.sha256:
            change = "is missing" if sha256 is None else f"changed: sha256 {file.sha256[:12]} -> {sha256[:12]}"
            yield f"{file.path} (code of the check {row.check}) {change}"
    # Only a check whose module is missing is judged by no code: it failed before anything was called.
    if row.evidence.keys() != {"own_check"} and not row.code:
        yield f"{item.id} was judged by code that the record does not name"


# --- calling --------------------------------------------------------------------------------------


class _Answer(NamedTuple):
    """The answer of a check's process: its function's return value, and the files that it read; neither is trusted."""

    found: Any
    files: Any


def call(item: Item, phase: str, evidence: Mapping[str, Any], root: Path, isolated: bool) -> tuple[Outcome, list[str]]:
    """Return a custom check's outcome and the project's files that it read; an error or an invalid answer fails its item."""
    assert item.check is not None
    file = module_file(item.check, root)
    if file is None:
        return _failed(item, f"there is no module {item.check.partition(':')[0]!r} in the project", phase), []
    question = json.dumps(Question(str(root.resolve()), item.check, phase, evidence, item.settings)._asdict()).encode()
    limits = Limits(float(item.settings.get("seconds", SECONDS)), MEMORY, OUTPUT)
    # -P, as with -m alone Python looks in the current folder first: a file there could take a library's place.
    command = [sys.executable, "-P", "-m", "mltrainer.gates.sandboxed_check"]
    start = closed_off if isolated else run
    answer = _answer(start(command, question, limits, root), limits)
    own = file.relative_to(root).as_posix()
    if isinstance(answer, str):
        return _failed(item, answer, phase), [own]
    # The module's own file is bound whatever the process answers: it could leave itself out.
    files = sorted({own, *_files_of(answer, root)})
    outcome = _outcome_of(answer.found)
    if isinstance(outcome, str):
        return _failed(item, outcome, phase), files
    return replace(outcome, hint=(outcome.hint or _hint(item, phase)) if outcome.verdict == "fail" else None), files


def _files_of(answer: _Answer, root: Path) -> Iterable[str]:
    """Return the project's files that a check read; the process that answers is not trusted."""
    names = answer.files if isinstance(answer.files, list) else []
    places = [(root / name).resolve() for name in names if isinstance(name, str)]
    whole = root.resolve()
    return [path.relative_to(whole).as_posix() for path in places if path.is_relative_to(whole) and path.is_file()]


def _answer(ended: Ended, limits: Limits) -> _Answer | str:
    """Return the answer of a check's process, or a text with the reason for its absence."""
    if not ended.in_time:
        return f"it took longer than {limits.seconds:g} s"
    if ended.code != 0:
        return shortened(f"it ended with exit code {ended.code}: {ended.last_words}", 500)
    try:
        content = redacted(json.loads(ended.out.decode("utf-8", errors="replace")))
    except (ValueError, RecursionError):
        return "its answer is no JSON: the process ended before the function returned"
    if not isinstance(content, dict) or content.keys() != {*_Answer._fields}:
        return "its process gave another answer"
    answer = _Answer(**content)
    size = len(json.dumps(answer.found))
    return answer if size <= LARGEST else f"its answer has {size} characters; at most {LARGEST} are shown in a report"


def _failed(item: Item, why: str, phase: str) -> Outcome:
    return Outcome("fail", {"own_check": why}, f"fix {item.check}, then mltrainer phase run {phase}")


def _hint(item: Item, phase: str) -> str:
    return f"fix what {item.check} names, then mltrainer phase run {phase}"


def _outcome_of(answer: Any) -> Outcome | str:
    """Return the outcome that a function returned, or the first fault in its form."""
    if not isinstance(answer, dict) or not answer.keys() <= {"verdict", "evidence", "mend"}:
        return "it must return a mapping with verdict, evidence and, for a failure, mend"
    verdict, evidence, hint = answer.get("verdict"), answer.get("evidence", {}), answer.get("mend")
    if verdict not in VERDICTS:
        return f"its verdict is {verdict!r}, expected one of {', '.join(VERDICTS)}"
    if not isinstance(evidence, dict) or not isinstance(hint, str | None):
        return "its evidence must be a mapping, and mend a text"
    if verdict == "not_applicable" and not evidence.get("rule"):
        return "an item that does not apply names the rule that says so: evidence['rule']"
    return Outcome(verdict, evidence, hint)


def module_file(check: str, root: Path) -> Path | None:
    """Return the file of the module that a check names, as Python would find it in the project; a package comes first."""
    place = root.joinpath(*check.partition(":")[0].split("."))
    return next((path for path in (place / "__init__.py", place.with_suffix(".py")) if path.is_file()), None)
