"""The ledger of tried runs beside the records that count by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltrainer.gates.gate import check_gates
from mltrainer.records.tried import TEST, TRIED_FILE, Begun, appended, ends, read, runs
from mltrainer.workspace import Project
from tests.conftest import commit
from tests.gates.evidence import forge

pytestmark = pytest.mark.slow
OTHER = "f" * 12


def reasons(project: Project) -> str:
    return "\n".join(reason for gate in check_gates(project) for reason in gate.stale)


def begin(project: Project, *begun: Begun) -> None:
    """Add lines to the ledger, and end the last record there."""
    lines = appended(read(project), begun, "2026-11-01T00:00:00Z")
    write(project.root / TRIED_FILE, [line.text for line in lines])
    forge(project, lambda record: record.update(tried=ends(lines)))
    forge(project, lambda record: record["evidence"].update(runs_tried=len(runs(lines))))


def write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


def test_another_number_of_tried_runs_is_told(digits):
    forge(digits, lambda record: record["evidence"].update(runs_tried=2))
    assert reasons(digits) == ""
    begin(digits, Begun("baseline", OTHER))
    assert reasons(digits) == ""
    forge(digits, lambda record: record["evidence"].update(runs_tried=2))
    assert f"record.json has runs_tried 2, by {TRIED_FILE} it is 3" in reasons(digits)


def test_an_opening_that_the_ledger_alone_knows_is_told(digits):
    begin(digits, Begun("finalization", OTHER), Begun(TEST, OTHER))
    assert f"record.json lacks the opening of the test split by run {OTHER}, which {TRIED_FILE} names" in reasons(digits)


def test_committed_lines_that_are_gone_are_told(digits):
    before = read(digits)
    begin(digits, Begun("baseline", OTHER))
    commit(digits.root)
    assert reasons(digits) == ""
    write(digits.root / TRIED_FILE, [line.text for line in before])
    assert f"{TRIED_FILE} lacks 1 line that earlier commits hold, the first of run {OTHER} (baseline," in reasons(digits)


def test_a_run_of_other_code_than_plannings_is_told(digits):
    forge(digits, lambda record: record["evidence"]["run"].update(code_sha256="0" * 64))
    assert f"run.code_sha256 is '{'0' * 64}', expected" in reasons(digits)


def test_a_phase_that_began_a_run_and_has_no_record_is_noted(digits):
    run = next(line.begun.run for line in read(digits) if line.begun.what == "finalization")
    for path in (digits.root / "phases/05_finalization").iterdir():
        if path.is_file():
            path.unlink()
    notes = check_gates(digits)[3].notes
    assert notes[0].startswith(f"finalization began run {run} (")


def test_a_record_that_names_no_ledger_is_told(digits):
    (digits.root / TRIED_FILE).unlink()
    forge(digits, lambda record: record.pop("tried"))
    assert f"record.json does not name the end of {TRIED_FILE}, the ledger of tried runs" in reasons(digits)
