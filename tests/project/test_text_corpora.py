"""The data of examples is the same bytes everywhere, and what it says of itself is so."""

import csv
import hashlib
import io
import itertools
from datetime import date

import pytest

from mltrainer.project import text_corpora

DIGESTS = {"reviews": "8065cc756906ba68", "ships_log": "a7ea733a909fb208", "trades": "ac871403d20d73b0"}


@pytest.mark.parametrize("name", DIGESTS)
def test_an_examples_data_is_the_same_bytes_everywhere(name):
    assert hashlib.sha256(getattr(text_corpora, name)().encode()).hexdigest()[:16] == DIGESTS[name]


def test_a_trading_day_knows_the_past_and_its_label_is_the_next_day():
    rows = list(csv.DictReader(io.StringIO(text_corpora.trades(60))))
    for day, following in itertools.pairwise(rows):
        assert day["next_day"] == ("up" if float(following["return_1"]) > 0 else "down")
        assert float(following["return_2"]) == pytest.approx(float(day["return_1"]) + float(following["return_1"]), abs=2e-5)
        assert date.fromisoformat(day["date"]) < date.fromisoformat(following["date"])
    assert all(date.fromisoformat(row["date"]).weekday() < 5 for row in rows)


def test_reviews_are_distinct_balanced_and_no_word_tells_the_label():
    rows = list(csv.DictReader(io.StringIO(text_corpora.reviews(800))))
    assert len({row["review"] for row in rows}) == len(rows) == 800
    assert 300 < sum(row["sentiment"] == "positive" for row in rows) < 500
    said = [row["sentiment"] for row in rows if " great" in row["review"]]
    assert {*said} == {"positive", "negative"}


def test_a_but_weighs_more_than_what_stands_before_it():
    rows = csv.DictReader(io.StringIO(text_corpora.reviews(2000)))
    short = [row for row in rows if row["review"].count(".") == 1 and row["review"].count(", but the") == 1]
    after = [row for row in short if row["review"].partition(" but ")[2].split("was ")[1].rstrip(".") in text_corpora.GOOD]
    assert len(after) > 10
    assert sum(row["sentiment"] == "positive" for row in after) > 0.85 * len(after)


def test_the_log_counts_its_crates_and_its_days():
    lines = text_corpora.ships_log(260).splitlines()
    assert [line.partition(",")[0] for line in lines[30:32]] == ["31 March 1801", "1 April 1801"]
    assert any(line.startswith("1 March 1802") for line in lines)
    held = 40
    for line in lines:
        if "we left" in line:
            words = line.partition("we left ")[2].split()
            held += int(words[words.index("took") + 1]) - int(words[0])
            assert f"the hold has {held}." in line
