"""The form begins with a typical row, and says what the model predicts."""

from __future__ import annotations

from typing import Any

import pytest

from mltrainer.companions.serving.page import predicted, typical
from tests.companions.serving.conftest import IMAGES, TABLE


def training(edges: list[float], shares: list[float] | None = None) -> dict[str, Any]:
    found = {"edges": edges, "bins": []} if shares is None else {"shares": shares}  # as inference.json holds them
    return {"training": {**found, "missing": 0.0}}


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ({"kind": "number", **training([1.0, 2.5, 9.0])}, "2.5"),
        ({"kind": "decimal_comma", **training([1.0, 2.5, 9.0])}, "2,5"),
        ({"kind": "boolean", **training([1.0])}, "yes"),
        ({"kind": "date", **training([86400.0])}, "1970-01-02"),
        ({"kind": "date_day_first", **training([86400.0])}, "02.01.1970"),
        ({"kind": "category", "categories": ["a", "b"], **training([], [0.2, 0.8])}, "b"),
        ({"kind": "number", "unit": "kg", **training([1.0])}, ""),
        ({"kind": "number", **training([])}, ""),
        ({"kind": "number"}, ""),
    ],
)
def test_a_field_begins_with_the_median_or_the_most_frequent_category(column, text):
    assert typical(column) == text


def test_the_form_says_what_is_predicted():
    assert predicted(TABLE) == "Predicts paid: one of no, yes."
    assert predicted(IMAGES) == "Predicts one of dark, bright."
    assert predicted({**TABLE, "classes": None}) == "Predicts paid."
    assert predicted({**IMAGES, "classes": [*range(12)]}).endswith("8, 9 and 2 more.")
