"""What planning's checks tell of the samples of a case, as labels."""

from __future__ import annotations

from pathlib import Path

from mltrainer.configs.items import DataLimits
from mltrainer.tasks.opening import open_task
from tests.benchmarks.diagnostics.case import Case
from tests.benchmarks.diagnostics.training import config_of

TOLD = {  # words of a finding, and the label that it stands for
    "are in the training split too": "LEAKAGE",
    "classes are imbalanced": "IMBALANCE",
    "classes without a": "ONE_CLASS",
    "hold NaN or infinity": "DATA_NAN",
}
SEED = 0  # of the config alone: the samples of a case are the same with every seed


def checked(case: Case) -> frozenset[str]:
    """Return the labels of the warnings and errors that planning's checks give, with their default limits."""
    task = case.task()
    opened = open_task(config_of(case, SEED, task), Path.cwd(), task)
    texts = [row["what"] for row in opened.facts(DataLimits())["findings"] if row["severity"] != "info"]
    return frozenset(label for text in texts for words, label in TOLD.items() if words in text)
