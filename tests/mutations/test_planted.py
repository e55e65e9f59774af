"""The table of planted faults is as old as the code: each can be planted, and is named once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.mutations.__main__ import Met, asked_for, holds, table
from tests.mutations.fault import TOP, Fault, faults, planted_text, read, replaced


@pytest.mark.slow
@pytest.mark.parametrize("room", sorted({fault.room for fault in faults()}))
def test_the_faults_of_a_room_can_be_planted_and_tested(room):
    said = [line for fault in faults() if fault.room == room for line in out_of_date(fault)]
    assert not said, "\n".join(said)


def out_of_date(fault: Fault) -> Iterator[str]:
    """Yield what keeps a row from being planted and tested."""
    try:
        planted_text(TOP, fault)
    except SystemExit as error:
        yield str(error)
    yield from (f"{fault.place}: no such test: {word}" for word in missing(fault.tests))


def missing(tests: str) -> Iterator[str]:
    """Yield the files and functions that are not there, and the word after `-k` that stands in none of the files."""
    named, _, word = tests.partition(" -k ")
    texts = []
    for test in named.split():
        path, _, function = test.partition("[")[0].partition("::")
        texts += [(TOP / path).read_text("utf-8") if (TOP / path).is_file() else ""]
        if not texts[-1] or (function and f"def {function}(" not in texts[-1]):
            yield test
    if not any(word in text for text in texts):
        yield word


def fault(
    function: str = "", old: str = "right", new: str = "wrong", file: str = "", tests: str = "", survives: str = ""
) -> Fault:
    return Fault(2, file, function, old, new, tests, "a fault", survives)


CODE = """
EDGE = 1
WIDTH = 2

class Ladder:
    edge = 1

    @cache
    def limits(self, last):
        def of(rung):
            return first if rung < last else last
        return [  # one for each rung
            last, of(1),
        ]
"""


@pytest.mark.parametrize(
    ("function", "old", "new", "wrong"),
    [
        ("", "1", "2", ("EDGE = 1", "EDGE = 2")),
        ("", "EDGE = 1; WIDTH = 2", "EDGE = 3", ("EDGE = 1\nWIDTH = 2", "EDGE = 3")),
        ("Ladder", "1", "2", ("edge = 1", "edge = 2")),
        ("Ladder.limits", "@cache", "", ("@cache", "")),
        ("Ladder.limits.of", "rung<last", "True", ("rung < last", "True")),
        ("Ladder.limits", "[last, of(1)]", "[]", ("[  # one for each rung\n            last, of(1),\n        ]", "[]")),
    ],
)
def test_a_place_is_found_in_its_own_function_whatever_the_layout(function, old, new, wrong):
    assert replaced(CODE, fault(function, old, new)) == CODE.replace(*wrong)


@pytest.mark.parametrize(
    ("function", "old", "said"),
    [
        ("Ladder.limit", "last", "no such function or class"),
        ("Ladder.limits.of", "last", "expected once, found 2 times: last"),
        ("Ladder", "EDGE", "expected once, found 0 times: EDGE"),
    ],
)
def test_a_row_that_is_older_than_the_code_says_what_is_found(function, old, said):
    with pytest.raises(LookupError, match=f"^{said}$"):
        replaced(CODE, fault(function, old, ""))


def test_a_row_that_cannot_be_planted_or_tested_is_named_with_its_function():
    row = fault("none", "1", "2", file="mltrainer/errors.py", tests="tests/none.py -k none")
    assert list(out_of_date(row)) == [
        "tests/mutations/planted.tsv:2: mltrainer/errors.py, none: no such function or class",
        "tests/mutations/planted.tsv:2: mltrainer/errors.py, none: no such test: tests/none.py",
        "tests/mutations/planted.tsv:2: mltrainer/errors.py, none: no such test: none",
    ]


def test_a_row_that_lacks_cells_is_named():
    with pytest.raises(SystemExit, match=r"planted\.tsv:2: expected 6 or 7 cells with tabs between, found 1"):
        read("file\nmltrainer/errors.py")


def test_no_fault_is_planted_twice():
    assert max(Counter((fault.file, fault.function, fault.old, fault.new) for fault in faults()).values()) == 1


def met(met: Met, survives: str = "", room: str = "runs") -> tuple[Fault, Met]:
    return fault(survives=survives, file=f"mltrainer/{room}/a.py"), met


CAUGHT, SURVIVED, FAILS_ANYWAY = Met("tests/test_a.py", 1.0), Met("", 1.0), Met("tests/test_a.py", 1.0, fails_anyway=True)


@pytest.mark.parametrize(
    ("missed", "enough"),
    [
        ([], True),
        ([met(SURVIVED, "nothing changes")], True),
        ([met(SURVIVED)], False),
        ([met(FAILS_ANYWAY, "nothing changes")], False),
        ([met(SURVIVED, "nothing changes")] * 2, False),
    ],
)
def test_nineteen_of_twenty_are_caught_and_the_rest_is_explained(missed, enough):
    assert holds([met(CAUGHT)] * (20 - len(missed)) + missed) is enough


def test_the_table_counts_each_room_and_all():
    found = [met(CAUGHT), met(SURVIVED, "nothing changes"), met(SURVIVED), met(FAILS_ANYWAY), met(CAUGHT, room="wrap")]
    rows = [line.split() for line in table(found).splitlines()]
    assert rows[1:] == [["runs", "4", "1", "1", "2", "4"], ["wrap", "1", "1", "0", "0", "1"], ["all", "5", "2", "1", "2", "5"]]


def test_a_rooms_name_chooses_its_faults_alone():
    assert {fault.room for fault in asked_for("runs")} == {"runs"}
    assert asked_for("") == faults()
