"""The ledger binds each checkpoint when it is saved: one that was made or changed later is in no line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltrainer.checkpointing import ledger
from mltrainer.errors import GateError
from mltrainer.reproducibility.fingerprint import Head


def entry(step: int, digest: str = "a") -> ledger.Entry:
    return ledger.Entry(step, Head(step + 1, f"{step:032x}"), digest * 64)


@pytest.fixture
def noted(tmp_path: Path) -> Path:
    path = tmp_path / ledger.LEDGER_FILE
    for step in (10, 20, 30):
        ledger.note(path, entry(step))
    return path


def steps(path: Path) -> list[int]:
    return [one.step for one in ledger.read(path)]


def test_entries_are_read_back_and_a_missing_file_has_none(noted, tmp_path):
    assert ledger.read(noted) == [entry(10), entry(20), entry(30)]
    assert ledger.read(tmp_path / "none.txt") == []
    assert ledger.head(()) == Head()


def test_lines_of_an_interrupted_process_are_replaced(noted):
    ledger.note(noted, entry(20, "b"))
    assert ledger.read(noted) == [entry(10), entry(20, "b")]


@pytest.mark.parametrize(("step", "expected"), [(30, [10, 20, 30]), (20, [10, 20]), (25, [10, 20, 25])])
def test_a_run_that_goes_on_has_the_line_of_the_checkpoint_that_it_goes_on_from_as_the_last(noted, step, expected):
    ledger.go_on(noted, entry(step))  # of step 25 it was killed before it wrote the line
    assert steps(noted) == expected


def test_a_run_does_not_go_on_from_a_checkpoint_that_was_changed(noted):
    with pytest.raises(GateError, match="step 20 is not the one that was saved") as refused:
        ledger.go_on(noted, entry(20, "b"))
    assert "restore the file" in str(refused.value.hint)
    assert steps(noted) == [10, 20, 30]


def test_a_run_does_not_go_on_where_an_earlier_checkpoint_has_no_line(noted):
    ledger.go_on(noted, entry(40), [10, 20, 30])
    with pytest.raises(GateError, match="no line for the checkpoint of step 15"):
        ledger.go_on(noted, entry(40), [10, 15, 20, 30])


@pytest.mark.parametrize(
    ("forge", "told"),
    [
        (lambda text: text.replace("a" * 64, "b" * 64, 1), "the chain breaks"),
        (lambda text: text.partition("\n")[2], "the chain breaks"),
        (lambda text: text.replace("20 21", "21 21"), "the chain breaks"),
    ],
    ids=["another checkpoint", "a line removed", "another step"],
)
def test_a_changed_ledger_is_refused(noted, forge, told):
    noted.write_text(forge(noted.read_text()))
    for use in (ledger.read, lambda path: ledger.note(path, entry(40)), lambda path: ledger.go_on(path, entry(30))):
        with pytest.raises(GateError, match=told):
            use(noted)


def test_a_line_that_was_cut_in_two_by_a_crash_is_left_out(noted):
    noted.write_bytes(noted.read_bytes()[:-5])
    assert steps(noted) == [10, 20]
