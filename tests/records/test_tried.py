"""The ledger of tried runs: what an edit, a removed line and a merge make of it."""

from __future__ import annotations

import pytest

from mltrainer.errors import GateError
from mltrainer.records.tried import TEST, Begun, Line, appended, ends, opened, parsed, runs, up_to

A, B, C = (letter * 12 for letter in "abc")
LINES = appended(
    [], [Begun("baseline", A), Begun("optimization", B), Begun("finalization", C), Begun(TEST, C)], "2026-11-29T20:00:00Z"
)


def text(lines: list[Line], end: str = "\n") -> bytes:
    return "".join(f"{line.text}{end}" for line in lines).encode()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_ledger_is_read_as_it_was_written(end):
    assert parsed(text(LINES, end)) == LINES
    assert (runs(LINES), opened(LINES), ends(LINES)) == ({A, B, C}, {C}, [LINES[-1].link])


def test_what_was_begun_before_gets_no_second_line():
    assert appended(LINES, [Begun("baseline", A), Begun(TEST, C)], "2027-01-01T00:00:00Z") == LINES


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda rows: rows[:1] + rows[2:], ":2: the line that it follows was removed"),
        (lambda rows: rows[1:], ":1: the line that it follows was removed"),
        (lambda rows: [rows[1], rows[0], *rows[2:]], ":1: the line that it follows was removed"),
        (lambda rows: [*rows[:1], rows[1].replace(b" bbb", b" abb"), *rows[2:]], ":2: the line was edited"),
        (lambda rows: [rows[0].replace(b"2026", b"2025"), *rows[1:]], ":1: the line was edited"),
        (lambda rows: [*rows[:2], b"<<<<<<< HEAD", *rows[2:]], ":3: expected TIME, one of planning"),
        (lambda rows: [*rows, b""], ":5: expected TIME"),
    ],
)
def test_a_ledger_that_was_edited_is_refused_with_the_line(change, told):
    rows = change(text(LINES).splitlines())
    with pytest.raises(GateError) as caught:
        parsed(b"".join(row + b"\n" for row in rows))
    assert told in f"{caught.value.where}: {caught.value.message}".removeprefix("phases/tried_runs.txt")


def test_a_record_knows_the_lines_of_its_time_alone_and_two_branches_are_merged_by_keeping_both():
    ours = appended(LINES, [Begun("baseline", "1" * 12)], "2026-11-30T00:00:00Z")
    theirs = appended(LINES, [Begun("baseline", "2" * 12), Begun("baseline", "3" * 12)], "2026-11-30T00:00:00Z")
    merged = [*ours, *theirs[len(LINES) :]]
    assert parsed(text(merged)) == merged
    assert ends(merged) == [ours[-1].link, theirs[-1].link]
    assert runs(up_to(merged, ends(ours))) == runs(ours)
    assert runs(up_to(merged, ends(theirs))) == runs(theirs)
    assert runs(up_to(merged, ends(merged))) == runs(ours) | runs(theirs)
