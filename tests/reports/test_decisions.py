"""The table of questions in the diagnostic report decides as the recommendation does."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from mltrainer.diagnostics.rules import recommend
from mltrainer.records.common import Acceptance
from mltrainer.records.diagnostics import Assessment, Diagnosis
from mltrainer.reports.decisions import decisions
from tests.reports import records

STATES = ("finished", "failed")
FITS = ("good", "underfitting", "unknown")
GRADIENTS = ("healthy", "exploding", "unknown")
ACCEPTANCES: dict[str, list[dict[str, Any]]] = {"none": [], "met": records.acceptance(), "missed": records.acceptance(met=False)}


@pytest.mark.slow
@pytest.mark.parametrize("severity", ["critical", "warning"])
@pytest.mark.parametrize("acceptance", ACCEPTANCES)
def test_what_decides_in_the_table_is_what_is_recommended(severity, acceptance):
    for fired, state, fit, gradients in itertools.product((True, False), STATES, FITS, GRADIENTS):
        evidence = records.diagnostics(fired=fired)["evidence"]
        evidence["diagnostics"][0]["severity"] = severity
        evidence["acceptance"] = ACCEPTANCES[acceptance]
        evidence["assessment"] |= {"state": state, "fit": fit, "gradients": gradients}
        found = [Diagnosis.model_validate(row) for row in evidence["diagnostics"]]
        acceptances = [Acceptance.model_validate(row) for row in evidence["acceptance"]]
        recommended, _ = recommend(found, acceptances, Assessment.model_validate(evidence["assessment"]))
        rows = decisions(evidence)
        assert [row["then"] for row in rows if row["then"] not in ("go on", "not asked")] == [recommended]
