"""The models of a custom tool's result."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

SHA256 = r"^[0-9a-f]{64}$"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Data(_Part):
    """The data that a tool read.

    Attributes:
        sha256: The digest of all samples and their split.
        files: The paths of the files that were read, relative to the project.
        train: The number of training samples.
        validation: The number of samples behind the metrics.
        test: The number of sealed test samples.
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
        weights_sha256: The digest of the final weights.
        data: The data that was read.
        losses: The training loss of each step, in order.
        history: The evaluations; the last one follows the last step.
        planned_steps: The steps of the whole run; fewer were made if the job's `max_steps` is lower.
        planned_epochs: The epochs of the whole run.
        batch_size: The number of samples of a step.
        parameters: The number of trained parameters.
        draws: For each random generator a digest of its first numbers; needs the capability `draws`.
        more: Further keys of a run's result, which the tool's other capabilities fill.
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
