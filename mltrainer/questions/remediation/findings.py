"""What changes of a config did against the findings over a run, and what was written of one."""

from __future__ import annotations

from typing import Any

from mltrainer.questions.ablation.findings import ChangedKey
from mltrainer.questions.findings import Findings, Value
from mltrainer.records.common import MetricChoice


class LeftOut(Findings):
    """What is not judged by a trial, and why."""

    name: str
    reason: str


class Training(Findings):
    """What a training showed.

    Attributes:
        run: Its id.
        value: The metric; NaN where it failed.
        reason: Why it failed; None where it did not.
        wall_s: Its wall time.
        fired: The diagnostics that fired.
        critical: Those of them that are critical.
        fit: good, overfitting, underfitting or unknown.
        samples: Of how many rows the metric is a share; None where it is none.
        beats_constant: Whether the metric is better than a constant answer's; None where that is not known.
    """

    run: str
    value: Value
    reason: str | None
    wall_s: Value | None
    fired: list[str]
    critical: list[str]
    fit: str
    samples: int | None
    beats_constant: bool | None = None


class Candidate(Training):
    """A training with a change of the config, and the verdict on it.

    Attributes:
        candidate: What the change is called.
        why: Who proposes it, or what it is for.
        changes: Dotted key and new value.
        keys: Each key with what it was and is then.
        verdict: In a word or two.
        because: Its reason.
        command: It adopts the change.
    """

    candidate: str
    why: str
    changes: dict[str, Any]
    keys: list[ChangedKey]
    verdict: str
    because: str
    command: str


class Trial(Findings):
    """What changes did against the findings over a run.

    Attributes:
        run: The run.
        epochs: For how many each was trained.
        metric: The metric.
        fired: The diagnostics that fired on the run.
        left_out: What is not judged.
        symptoms: Those that fire on the unchanged config of the trial, too.
        unchanged: The unchanged config; None where nothing was trained.
        rows: The candidates, the best first.
        best: The first of them; None where none helps.
    """

    run: str
    epochs: int
    metric: MetricChoice
    fired: list[str]
    left_out: list[LeftOut]
    symptoms: list[str]
    unchanged: Training | None
    rows: list[Candidate]
    best: Candidate | None


class WrittenFile(Findings):
    """A file that a change was written into, relative to the project, and whether it was not there before."""

    path: str
    is_new: bool


class Applied(Findings):
    """A change that was written: its keys, the files, the unified diff, and the commands to type next."""

    changes: dict[str, Any]
    files: list[WrittenFile]
    diff: str
    next: list[str]
