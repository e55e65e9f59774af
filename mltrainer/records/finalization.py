"""Finalization's evidence: the last run, its reproduction, its exports, and every opening of the test split."""

from typing import Any, Literal

from mltrainer.records.common import Acceptance, Divergence, InputRow, KeyChange, Measured, Metrics, Number, Part
from mltrainer.records.planning import Data, Environment
from mltrainer.records.run import Run


class Reproduction(Part):
    """What the same training in a fresh process showed; numbers are compared only where bits differ."""

    run: str
    identical: bool
    grade: str
    reachable: str
    loss_difference: Measured | None
    metric_difference: Measured | None
    steps_compared: int
    first_divergence: Divergence | None
    weights_sha256: str
    chain_head: str
    wall_s: Number


class Export(Part):
    """One format: whether it was written, and how its outputs differ from the trained model's."""

    format: str
    file: str
    state: Literal["written", "failed", "not_available"]
    reason: str | None
    agrees: bool | None
    max_difference: Measured | None = None
    scale: Measured | None = None
    relative_difference: Measured | None = None
    tolerance: Number | None = None
    samples: int | None = None
    batch_sizes: list[int] | None = None


class Opening(Part):
    """One look at a test split: by which run, on which data."""

    nr: int
    run: str
    purpose: str
    data_sha256: str | None = None


class Test(Part):
    """What the test split showed; no samples: there is none."""

    samples: int
    metrics: Metrics
    openings: list[Opening]


class Finalization(Part):
    """The final model."""

    run: Run
    config: dict[str, Any]
    changed: list[KeyChange]
    reproduction: Reproduction
    exports: list[Export]
    inference: dict[str, Any]
    delivered_sha256: str
    test: Test
    model_files: list[InputRow]
    acceptance: list[Acceptance]
    runs_tried: int
    data: Data
    environment: Environment
