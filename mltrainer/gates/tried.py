"""The ledger of tried runs beside a record: whole, and with the runs and openings that the record mentions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from mltrainer.errors import GateError
from mltrainer.gates.digests import FileDigests
from mltrainer.records.envelope import Envelope
from mltrainer.records.finalization import Finalization
from mltrainer.records.reading import RECORD_FILE
from mltrainer.records.tried import TRIED_FILE, Line, opened, read, runs, sound_lines, up_to
from mltrainer.reproducibility.git import GitError
from mltrainer.reproducibility.history import marks, versions
from mltrainer.workspace import TRAINING, Project

NEXT = f"next: bring them back (git log -p -- {TRIED_FILE})"


def faults(project: Project, record: Envelope[Any], digests: FileDigests) -> Iterator[str]:
    """Yield the faults of the ledger and of what a record says about it, each with the next step."""
    rerun = f"mltrainer phase run {record.phase}"
    try:
        lines = read(project)
    except GateError as error:
        yield f"{error.placed_message}; next: {error.hint}"
        return
    if record.phase == "baseline":  # once, at the first phase that begins a run
        yield from _forgotten(project, lines, digests)
    links = {line.link for line in lines}
    if not record.tried and record.phase in TRAINING:
        yield f"{RECORD_FILE} does not name the end of {TRIED_FILE}, the ledger of tried runs; next: {rerun}"
    elif record.tried and not links.issuperset(record.tried):
        what = "lacks lines that it had when the phase ended" if lines else "is missing or empty"
        yield f"{TRIED_FILE}, the ledger of tried runs, {what}; next: git checkout HEAD -- {TRIED_FILE}, or {rerun}"
    elif record.tried:
        for fault in _unlike(record, [*up_to(lines, record.tried)]):
            yield f"{fault}; next: {rerun}"


def removed(project: Project, phases: Collection[str]) -> list[str]:
    """Return, in words, those of phases without a record that began a run: they were stopped, or removed."""
    try:
        last = {line.begun.what: line for line in read(project)}
    except GateError:  # which the gates report
        return []
    found = [(phase, last[phase]) for phase in phases if phase in last]
    why = "and has no record here: it was stopped, or its record was removed"
    return [f"{phase} began run {line.begun.run} ({line.when}) {why}" for phase, line in found]


def _unlike(record: Envelope[Any], lines: Sequence[Line]) -> Iterator[str]:
    """Yield the contradictions between a record and the ledger as it was when the phase ended."""
    known, evidence = runs(lines), record.evidence
    if record.phase in TRAINING and evidence.run.id not in known:
        yield f"{TRIED_FILE} has no line for run {evidence.run.id} of the record"
    if not isinstance(evidence, Finalization):
        return
    if evidence.runs_tried != len(known):
        yield f"{RECORD_FILE} has runs_tried {evidence.runs_tried}, by {TRIED_FILE} it is {len(known)}"
    if more := sorted(opened(lines) - {row.run for row in evidence.test.openings}):
        yield f"{RECORD_FILE} lacks the opening of the test split by run {', '.join(more[:3])}, which {TRIED_FILE} names"


def _forgotten(project: Project, lines: Sequence[Line], digests: FileDigests) -> Iterator[str]:
    """Yield the lines that were committed before and are not here; git is asked again when the repository or record changes."""
    record, repository = project.phase_dir("baseline") / RECORD_FILE, marks(project.root)
    if repository is None or digests.agreed("tried runs", record, state := [*repository, *(line.link for line in lines[-1:])]):
        return
    try:
        # This branch alone: whoever reviews it has not fetched the others, and must come to the same verdict as its author.
        committed = versions(project.root, TRIED_FILE, every_branch=False)
    except GitError:
        return
    here = {line.link for line in lines}
    lost = {line.link: line for version in committed for line in sound_lines(version) if line.link not in here}
    if not lost:
        digests.agree("tried runs", record, state)
        return
    first = next(iter(lost.values()))
    count = f"{len(lost)} line{'' if len(lost) == 1 else 's'} that earlier commits hold"
    yield f"{TRIED_FILE} lacks {count}, the first of run {first.begun.run} ({first.begun.what}, {first.when}); {NEXT}"
