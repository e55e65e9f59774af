"""What planning's checks tell of the samples of a case, as labels."""

from __future__ import annotations

from pathlib import Path

from mltrainer.configs.items import DataLimits
from mltrainer.reproducibility import seeds
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.opening import check_model, make_model, open_task
from mltrainer.trainers.native.signals.tokens import copy_findings, token_findings
from tests.benchmarks.diagnostics.case import Case
from tests.benchmarks.diagnostics.training import config_of

TOLD = {  # words of a finding, and the label that it stands for
    "are in the training split too": "LEAKAGE",
    "classes are imbalanced": "IMBALANCE",
    "classes without a": "ONE_CLASS",
    "hold NaN or infinity": "DATA_NAN",
    "the targets are not shifted": "NOT_SHIFTED",
    "the targets are shifted by": "SHIFTED_TWICE",
    "mask what comes later": "PEEKING",
    "and the loss counts them": "PADDING_COUNTED",
    "another scale than training": "SHIFT",
    "(distribution shift)": "SHIFT",
    "far nearer to one training sample": "GROUP_SPLIT",
    "almost by itself": "LEAKAGE",
    "leave it out of the inputs": "LEAKAGE",
    "the targets of all": "CONST_TARGET",
    "are the same in all": "CONST_INPUT",
    "of another and another class": "LABEL_NOISE",
    "begin as a copy of": "TIE_BROKEN",
    "change with each reading": "VALIDATION_AUGMENTED",
}
SEED = 0  # of the config alone: the samples of a case are the same with every seed


def checked(case: Case) -> frozenset[str]:
    """Return the labels of the warnings and errors that planning's checks give, with their default limits."""
    task = case.task()
    opened = open_task(config_of(case, SEED, task), Path.cwd(), task)
    seeds.seed_everything(seeds.key(SEED, "model"))
    model = make_model(opened)
    check_model(opened, model)
    rows = [Finding(**row) for row in opened.facts(DataLimits())["findings"]]
    rows += [*token_findings(opened, model, opened.config), *copy_findings(model)]
    texts = [row.what for row in rows if row.severity != "info"]
    return frozenset(label for text in texts for words, label in TOLD.items() if words in text)
