"""The questions that lead to the diagnostics' recommendation, and the command that follows from it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mltrainer.diagnostics.rules import HEALTHY_FITS
from mltrainer.records.diagnostics import Diagnosis, Diagnostics
from mltrainer.records.partial import partial
from mltrainer.reports.values import number, visible


def decisions(content: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the questions that lead to a recommendation, in order, each with its answer and its consequence.

    The first question with a consequence decides; later ones are not asked.
    """
    rows = list(_questions(partial(Diagnostics, content)))
    # There is one: the last question always has a consequence.
    deciding = next(nr for nr, (_, _, then) in enumerate(rows) if then)
    return [
        {"question": question, "answer": answer, "then": then if nr == deciding else "go on" if nr < deciding else "not asked"}
        for nr, (question, answer, then) in enumerate(rows)
    ]


def _questions(evidence: Diagnostics) -> Iterator[tuple[str, str, str]]:
    assessment = evidence.assessment
    state, fit, gradients = assessment.state or "finished", assessment.fit or "finished", assessment.gradients or "finished"
    critical = [row.id for row in evidence.diagnostics if row.state == "fired" and row.severity == "critical"]
    unlearned = gradients == "exploding" and fit not in HEALTHY_FITS
    met = [f"{row.metric} {number(row.value)} ({row.criterion})" for row in evidence.acceptance if row.met]
    missed = [f"{row.metric} {number(row.value)}, not {row.criterion}" for row in evidence.acceptance if not row.met]
    good = "deploy" if met and not missed else "optimize"
    yield "Did a critical diagnostic fire?", ", ".join(critical) or "none", "debug" if critical else ""
    yield "Did the run come to its end?", state, "" if state == "finished" else "debug"
    yield "Do gradients explode while nothing was learned?", f"gradients {gradients}, fit {fit}", "debug" if unlearned else ""
    known = {
        "no": fit == gradients == "unknown",
        "neither, which is no fault": fit == "unknown" and gradients == "not applicable",
    }
    judged = next((answer for answer, holds in known.items() if holds), "yes")
    yield "Can fit or gradients be judged?", judged, "debug" if judged == "no" else ""
    better = {True: "yes", False: "no", None: "not known"}[assessment.beats_constant]
    yield "Is it better than a constant answer?", better, "debug" if assessment.beats_constant is False else ""
    yield "Is every acceptance criterion met?", ", ".join([*missed, *met]) or "none is set", good


def next_command(recommendation: str, fired: Sequence[Diagnosis]) -> str:
    """Return the command that a recommendation leads to; for `debug`, planning with the changes that the findings suggest."""
    if recommendation == "optimize":
        return "mltrainer phase run optimization"
    if recommendation != "debug":
        return "mltrainer run"
    suggested = [pair for row in fired for one in row.suggestions for pair in one.set.items()]
    # A factor such as x0.1 is no value that --set takes.
    changes = {key: value for key, value in suggested if not str(value).startswith("x")}
    return " ".join(["mltrainer phase run planning", *(_assignment(key, value) for key, value in changes.items())])


def _assignment(key: str, value: Any) -> str:
    return f"--set {shlex.quote(visible(f'{key}={_plain(value)}'))}"


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(_plain(item) for item in value)}]"
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else "null" if value is None else str(value)
