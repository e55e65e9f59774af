"""Training needs no more memory after many steps than after some."""

from __future__ import annotations

import pytest

from tests.benchmarks.bench_memory import child


@pytest.mark.slow
def test_ten_thousand_steps_need_no_more_memory_than_one_thousand() -> None:
    before, after = child("--grow").values()
    assert after / before < 1.02
