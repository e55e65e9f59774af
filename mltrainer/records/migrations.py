"""From the form that an earlier version wrote to today's: pure functions of plain data, one for each schema number."""

from collections.abc import Callable
from typing import Any

SCHEMA = 2
Content = dict[str, Any]


def _from_1(record: Content) -> Content:
    """Schema 2 has more fields, all of which may be absent."""
    return {**record, "schema": 2}


MIGRATIONS: dict[int, Callable[[Content], Content]] = {1: _from_1}


def migrated(record: Content) -> Content:
    """Return a record in today's form."""
    while record["schema"] in MIGRATIONS:
        record = MIGRATIONS[record["schema"]](record)
    return record
