"""The data of examples is the same bytes everywhere, and what it says of itself is so."""

import csv
import hashlib
import io
import itertools
from datetime import date

import pytest

from mltrainer.project import corpora

DIGESTS = {"trades": "ac871403d20d73b0"}


@pytest.mark.parametrize("name", DIGESTS)
def test_an_examples_data_is_the_same_bytes_everywhere(name):
    assert hashlib.sha256(getattr(corpora, name)().encode()).hexdigest()[:16] == DIGESTS[name]


def test_a_trading_day_knows_the_past_and_its_label_is_the_next_day():
    rows = list(csv.DictReader(io.StringIO(corpora.trades(60))))
    for day, following in itertools.pairwise(rows):
        assert day["next_day"] == ("up" if float(following["return_1"]) > 0 else "down")
        assert float(following["return_2"]) == pytest.approx(float(day["return_1"]) + float(following["return_1"]), abs=2e-5)
        assert date.fromisoformat(day["date"]) < date.fromisoformat(following["date"])
    assert all(date.fromisoformat(row["date"]).weekday() < 5 for row in rows)
