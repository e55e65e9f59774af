"""Samples of a run, and how a checkpoint does on each."""

from __future__ import annotations

from mltrainer.questions.findings import Findings, Value

Label = bool | int | float | str | None  # a class by its name, or a value; one that is not finite is read as JSON holds it


class Content(Findings):
    """Where a sample comes from, and what it holds.

    Attributes:
        place: Its file and line, or the like.
        cells: Of its source, by column.
        picture: A PNG in base64; None where it is no picture.
        values: Its first numbers, where it has neither.
    """

    place: str
    cells: dict[str, str]
    picture: str | None
    values: list[bool | Value]


class Row(Content):
    """A sample with the model's score on it.

    Attributes:
        sample: Its id.
        split: The split it is of.
        loss: Of the sample by itself.
        label: Its class or value; None where the target is neither.
        answer: The model's prediction, in the same form; None where it has none.
        share: The probability that the model gives to its own class.
        reason: Why it is shown.
        then: Its loss in the step that is asked for, in training mode; of the largest of a step whose loss stood out.
    """

    sample: int
    split: str
    loss: Value
    label: Label
    answer: Label
    share: Value | None
    reason: str | None
    then: Value | None = None


class Facts(Findings):
    """What is common to the samples; each where it was asked for.

    Attributes:
        step: The step that took them.
        epoch: Its epoch.
        as_recorded: Whether they are those that the run recorded; None where it recorded none.
        recorded_loss: The step's loss, in training mode.
        notes: On how they were chosen.
    """

    step: int | None = None
    epoch: int | None = None
    as_recorded: bool | None = None
    recorded_loss: Value | None = None
    notes: list[str] | None = None


class Samples(Facts):
    """The samples that are shown, of so many that were found."""

    total: int
    rows: list[Row]


class FoundRows(Samples):
    """The samples of a run.

    Attributes:
        run: The run.
        chosen: Which ones: of a `step` or an `epoch`, the `hardest`, the `mislabelled` or the `nonfinite`.
        number: The step or the epoch.
        because: Why these are asked for.
        checkpoint: Whose losses and answers are reported, in words.
    """

    run: str
    chosen: str
    number: int | None
    because: str | None
    checkpoint: str
