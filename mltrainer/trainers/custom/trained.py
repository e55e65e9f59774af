"""The result of a custom tool's job."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

SHA256 = r"^[0-9a-f]{64}$"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Data(_Part):
    """The data that a tool read.

    Attributes:
        sha256: Digest of all samples and of how they were split.
        files: The files that were read, relative to the project.
        train: Number of training samples.
        validation: Number of samples that the metrics were measured on.
        test: Number of sealed samples.
    """

    sha256: str = Field(pattern=SHA256)
    files: tuple[str, ...] = ()
    train: int = Field(gt=0)
    validation: int = Field(gt=0)
    test: int = Field(0, ge=0)


class Evaluation(_Part):
    """One evaluation after a step: losses and metrics by name."""

    step: int = Field(gt=0)
    epoch: float
    train_loss: float
    train: dict[str, float] = {}
    validation: dict[str, float]


class Trained(_Part):
    """A custom tool's result.

    Attributes:
        weights_sha256: Digest of the weights at the end.
        data: The data that was read.
        losses: The training loss of each step, in order.
        history: The evaluations; the last one after the last step.
        planned_steps: Steps of the whole run; fewer were made where the job's `max_steps` said so.
        planned_epochs: Epochs of the whole run.
        batch_size: Samples of a step.
        parameters: Number of trained parameters.
        draws: With the capability `draws`: for each random generator a digest of its first numbers.
        more: Keys of a run's result that the tool's further capabilities fill.
    """

    weights_sha256: str = Field(pattern=SHA256)
    data: Data
    losses: tuple[float, ...] = Field(min_length=1)
    history: tuple[Evaluation, ...] = Field(min_length=1)
    planned_steps: int = Field(gt=0)
    planned_epochs: int = Field(gt=0)
    batch_size: int = Field(gt=0)
    parameters: int = 0
    draws: dict[str, str] = {}
    more: dict[str, Any] = {}
