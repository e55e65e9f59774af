"""Events that a tool reports while it works, one JSON object on a line, through the pipe that its launcher gave it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from mltrainer.errors import FaultAt, MltrainerError, error_for_exit
from mltrainer.records.common import Measured, Metrics, Number, Part

Event = dict[str, Any]  # as it is handed on, also by users' functions
Tell = Callable[[Event], None]


class Note(Part):
    """A sentence for the person at the keyboard."""

    event: Literal["note"]
    text: str


class Start(Part):
    """Training begins, at `step` of `steps`."""

    event: Literal["start"]
    run: str
    step: int
    steps: int
    epochs: int


class Progress(Part):
    """The progress of a training, with its recent rates; `tokens_per_s` where each sample has as many tokens."""

    event: Literal["progress"]
    epoch: int | None = None
    epochs: int | None = None
    step: int
    steps: int
    loss: Measured | None
    steps_per_s: Measured | None
    samples_per_s: Measured | None = None
    tokens_per_s: Measured | None = None


class Row(Part):
    """An evaluation; `metric` names the one of the validation metrics that chooses the best checkpoint."""

    event: Literal["row"]
    epoch: Measured
    epochs: int
    step: int
    steps: int
    train_loss: Measured | None
    metric: str
    validation: Metrics


class Trial(Part):
    """A trial of a search begins."""

    event: Literal["trial"]
    nr: int
    trials: int
    values: dict[str, Any]


class Running(Part):
    """A run that a worker of a search trains now; values that are not known yet are missing.

    Attributes:
        nr: The trial's number, or the run's in the comparison.
        value: The metric of its last evaluation.
        steps_per_s: The recent rate in steps a second.
    """

    nr: int
    epoch: Measured | None = None
    epochs: int | None = None
    step: int = 0
    steps: int = 1
    value: Measured | None = None
    steps_per_s: Measured | None = None


class Best(Part):
    """The best trial so far."""

    nr: int
    value: Measured
    values: dict[str, Any]


class Study(Part):
    """The progress of a search: `done` of `planned` trials or runs of its comparison, the time left, and each worker's run."""

    event: Literal["study"]
    what: Literal["trials", "runs"]
    done: int
    planned: int
    left_s: Number | None = None
    metric: str | None = None
    best: Best | None = None
    running: list[Running] = Field(default_factory=list)


class Size(Part):
    """A batch size was tried: the time of a step, and the peak of memory in MiB."""

    event: Literal["size"]
    batch_size: int
    step_us: Number
    samples_per_s: Number
    peak_mb: Number


class Alert(Part):
    """A diagnostic that fired while a run trained; the process that watches the run sends it, no tool."""

    event: Literal["alert"] = "alert"
    run: str
    diagnostic: str
    epoch: Measured
    step: int
    title: str
    severity: str
    reason: str
    page: str


class Copy(Part):
    """The progress of copying files, in bytes, with the rate; the command itself sends it, no tool."""

    event: Literal["copy"] = "copy"
    what: Literal["sent", "fetched"]
    done: int
    size: int
    bytes_per_s: float


class Done(Part):
    """The work is done, the result written: a tool's last word."""

    event: Literal["done"]


class Error(Part):
    """The error that ended the work: a tool's last word. `where` names file, line or key, `mend` is the next step."""

    event: Literal["error"]
    exit_code: int
    message: str
    where: str | None
    mend: str | None
    faults: tuple[FaultAt, ...] = ()

    def raised(self) -> MltrainerError:
        """Return the exception to raise for the event."""
        error = error_for_exit(self.exit_code, self.message)
        error.where, error.hint, error.faults = self.where, self.mend, self.faults
        return error


@functools.cache
def adapter() -> TypeAdapter[Any]:
    """Return the validator of events."""
    kinds = Note | Start | Progress | Row | Trial | Study | Size | Done | Error
    return TypeAdapter(Annotated[kinds, Field(discriminator="event")])


def read(line: bytes) -> dict[str, Any] | None:
    """Return the event of a line, or None for one that a tool's death cut short, or of no known kind."""
    try:
        found: dict[str, Any] = adapter().validate_json(line).model_dump(exclude_unset=True)
    except ValidationError:
        return None
    return found
