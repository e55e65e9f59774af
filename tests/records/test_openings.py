"""How often a test split was opened, for how many models: by hand-made ledgers."""

from __future__ import annotations

from typing import Any

import pytest

from mltrainer.records.finalization import Opening, RowDigests
from mltrainer.records.openings import Looks, breaks, chained, identity, looks, merged, missing
from mltrainer.workspace import digest

Row = dict[str, Any]


def opening(run: str, data: str | None = "d", weights: str | None = None, rows: str | None = None) -> Row:
    return {"run": run, "purpose": "test", "data_sha256": data, "weights_sha256": weights, "rows_sha256": rows}


def rows(digests: str, salt: str = "s") -> Row:
    return {"samples": 3, "salt": salt, "digests": digests}


def opened(*found: Row, **splits: Row) -> tuple[int, int, int]:
    """Return openings, models and others of the split that the run `now` on the data `d` was tested on."""
    models = [Opening.model_validate({"nr": nr, **row}) for nr, row in enumerate(found, 1)]
    known = {name: RowDigests.model_validate(part) for name, part in splits.items()}
    answer = looks(models, known, "d", "now")
    return (answer.openings, answer.models, answer.others)


def test_each_run_on_the_same_data_is_a_model_of_its_own_and_the_same_weights_are_one():
    assert opened(opening("now", weights="w")) == (1, 1, 0)
    assert opened(opening("old", weights="w"), opening("now", weights="w")) == (2, 1, 0)
    assert opened(opening("old", weights="v"), opening("now", weights="w")) == (2, 2, 0)
    assert opened(opening("old"), opening("older"), opening("now")) == (3, 3, 0)


def test_splits_that_share_a_row_are_one_and_others_are_not():
    found = [opening("old", "c", "v", "r1"), opening("now", "d", "w", "r2")]
    assert opened(*found, r1=rows("aa bb cc"), r2=rows("cc dd ee")) == (2, 2, 0)
    assert opened(*found, r1=rows("aa bb cc"), r2=rows("ff dd ee")) == (1, 1, 1)
    assert opened(*found, r1=rows("aab bcc"), r2=rows("aa bb cc")) == (1, 1, 1)


def test_splits_that_share_rows_with_a_third_are_one():
    found = [opening("a", "x", "u", "r1"), opening("b", "y", "v", "r2"), opening("now", "d", "w", "r3")]
    splits = {"r1": rows("1 2"), "r2": rows("2 3"), "r3": rows("3 4")}
    assert opened(*found, **splits) == (3, 3, 0)
    assert opened(*reversed(found), **splits) == (3, 3, 0)


def test_rows_under_another_salt_count_because_nobody_can_tell():
    found = [opening("old", "c", "v", "r1"), opening("now", "d", "w", "r2")]
    assert opened(*found, r1=rows("aa", "s"), r2=rows("bb", "t")) == (2, 2, 0)


def test_openings_of_earlier_versions_are_told_apart_by_their_data():
    assert opened(opening("old", "c", "v"), opening("now", "d", "w", "r"), r=rows("aa")) == (1, 1, 1)
    assert opened(opening("old", None, "v"), opening("now", "d", "w", "r"), r=rows("aa")) == (2, 2, 0)
    assert opened(opening("old", "c"), opening("older", "c"), opening("now")) == (1, 1, 2)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (Looks(0, 0, 0), "The test split was not opened"),
        (Looks(1, 1, 0), "The test split was opened once, for this model alone"),
        (Looks(2, 1, 0), "The test split was opened twice, for this model alone"),
        (Looks(2, 2, 0), "The test split was opened twice, for 2 models: what it shows is no longer an unbiased estimate"),
        (
            Looks(3, 1, 1),
            "The test split was opened 3 times, for this model alone; the ledger has 1 opening of other test splits",
        ),
        (
            Looks(1, 1, 2),
            "The test split was opened once, for this model alone; the ledger has 2 openings of other test splits",
        ),
    ],
)
def test_the_sentence_says_how_often_for_how_many_models_and_what_follows(found, sentence):
    assert found.sentence == sentence


# --- the chain ------------------------------------------------------------------------------------


def test_an_entry_covers_itself_and_the_one_before():
    first, second = chained([opening("a", rows=None), opening("b", weights="w")])
    bare = {"run": "a", "purpose": "test", "data_sha256": "d", "nr": 1}
    assert first == {**bare, "chain": digest([None, bare])}
    assert second["chain"] == digest([first["chain"], {**{k: v for k, v in second.items() if k != "chain"}}])


@pytest.mark.parametrize("key", ["run", "data_sha256", "weights_sha256", "purpose", "nr", "rows_sha256", "chain"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_changed_entry_breaks_the_chain_where_it_stands(key, place):
    found = chained([opening(name, "d", f"w{name}", "r") for name in "abc"])
    assert breaks(found) is None
    found[place] = {**found[place], key: "other"}
    assert breaks(found) == place + 1


def test_a_removed_moved_or_inserted_entry_breaks_the_chain():
    found = chained([opening(name) for name in "abc"])
    assert breaks(found[1:]) == 1
    assert breaks([found[0], found[2]]) == 2
    assert breaks([found[1], found[0], found[2]]) == 1
    assert breaks([found[0], opening("x"), *found[1:]]) == 2
    assert breaks(found[:2]) is None  # a shorter one is sound; that it is shorter, git's history tells


def test_a_ledger_of_an_earlier_version_has_no_chain_that_could_break():
    assert breaks([{"nr": 1, **opening("a")}, {"nr": 2, **opening("b")}]) is None
    assert breaks([]) is None


# --- several sources ------------------------------------------------------------------------------


def test_several_sources_give_each_opening_once_in_the_order_of_the_first():
    found = merged([opening("a", weights="v"), opening("b", weights="w")], [opening("c", weights="x"), opening("b", weights="w")])
    assert [(row["nr"], row["run"]) for row in found] == [(1, "a"), (2, "b"), (3, "c")]
    assert breaks(found) is None


def test_the_same_weights_on_the_same_data_are_kept_once_and_on_other_data_again():
    found = merged([opening("a", weights="w"), opening("b", weights="w"), opening("c", "e", "w")])
    assert [row["run"] for row in found] == ["a", "c"]


def test_what_one_source_does_not_know_another_fills_in():
    (found,) = merged([opening("a", None, None)], [opening("a", "d", "w", "r")], [opening("b", "d", "w", "q")])
    assert (found["run"], found["data_sha256"], found["weights_sha256"], found["rows_sha256"]) == ("a", "d", "w", "r")


def test_an_opening_is_missing_where_neither_its_weights_nor_its_run_are_known():
    before = [opening("a", weights="v"), opening("b", weights="w")]
    assert missing(before, before[:1]) == [before[1]]
    assert missing(before, [before[0], opening("c", weights="w")]) == []
    assert missing(before, [before[0], opening("c", "e", "w")]) == [before[1]]
    assert missing(before, [before[0], opening("b")]) == []
    assert missing([opening("a")], [opening("b")]) == [opening("a")]
    assert identity(opening("a")) == ("d", "a")
