"""The third set: faults of one's own code, on tokens, Datasets, streams and tables, and healthy runs of unusual kinds."""

from __future__ import annotations

from tests.benchmarks.diagnostics import third_sets, third_tables, third_tokens
from tests.benchmarks.diagnostics.case import Case
from tests.benchmarks.diagnostics.pairs import Pair

PAIRS: list[Pair] = [*third_tokens.PAIRS, *third_sets.PAIRS, *third_tables.PAIRS]
HEALTHY: list[Case] = [*third_tokens.HEALTHY, *third_sets.HEALTHY, *third_tables.HEALTHY]
CASES: list[Case] = [*(one.case for one in PAIRS), *HEALTHY]
