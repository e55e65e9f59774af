"""The second set: other data, models and optimizers."""

from __future__ import annotations

from tests.benchmarks.diagnostics.case import Case

CASES: list[Case] = []
