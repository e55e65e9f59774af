"""A long training needs no more memory after ten thousand steps than after one thousand."""

from __future__ import annotations

import gc
import resource
import sys
from pathlib import Path

import pytest

from mltrainer.trainers.native import recording
from tests.trainers.native.digits_runs import job, make, part_of

FIRST, LAST = 1_000, 10_000
STATM = Path("/proc/self/statm")
OBJECTS, RESIDENT_BYTES = 3_000, 4 * 2**20  # one of Python's objects each third step, 466 bytes a step
LONG = {
    "task": {"kind": "image_classification"},
    "data": {"source": "sklearn:digits"},
    "model": {"name": "mlp", "hidden": [4]},
    "epochs": 1_000,
    "batch_size": 144,
    "accumulate": 1,
    "evaluate": {"every_n_steps": 5_000},
    "early_stopping": None,
    "checkpoint": {"every_n_epochs": 1_000},
}


def resident() -> int:
    """Return this process's resident memory, in bytes."""
    return int(STATM.read_text().split()[1]) * resource.getpagesize()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(not STATM.exists(), reason="resident memory is read where Linux tells it")
def test_ten_thousand_steps_need_no_more_memory_than_one_thousand(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "RECENT_TIMES", 100)  # what is bounded has reached its bound by the first look
    seen: dict[int, tuple[int, int]] = {}

    def look(step: int) -> bool:
        if step in (FIRST, LAST):
            gc.collect()
            seen[step] = (sys.getallocatedblocks(), resident())
        return False

    result = part_of(make(tmp_path), job(LONG), look)
    assert result["steps"] == LAST
    objects, size = (last - first for first, last in zip(seen[FIRST], seen[LAST], strict=True))
    assert objects < OBJECTS
    assert size < RESIDENT_BYTES
