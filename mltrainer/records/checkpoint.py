"""A checkpoint's manifest, and the parts of runs, jobs and records that are about checkpoints."""

from pydantic import Field

from mltrainer.records.common import FileRow, Measured, Metrics, Part
from mltrainer.records.run import CheckpointRow


class Manifest(Part):
    """A checkpoint's files and origin, in `manifest.json` beside them; entries that the trainer left out are empty.

    Attributes:
        schema_number: The number of this form.
        run: The id of the run that saved it.
        step: The step after which it was saved.
        epoch: The epoch of that step, from 1.
        metric: The chosen metric of the evaluation at that step; None where none was made.
        metrics: All metrics of that evaluation.
        periodic: Whether it was saved by the calendar of epochs or steps.
        contract: The digests that the run's bits are a function of, by name.
        files: The files of state.
        weights_tree_sha256: The digest over chunks of the trained weights, where the chain has one after that step.
        seal: The digest of everything else.
    """

    schema_number: int = Field(alias="schema")
    run: str | None
    step: int
    epoch: int
    metric: Measured | None
    metrics: Metrics
    periodic: bool | None
    contract: dict[str, str]
    files: list[FileRow]
    weights_tree_sha256: str | None = None
    seal: str


class RunCheckpoints(Part):
    """The part of a run's result or job about the origin of its checkpoints."""

    parent: str | None
    checkpoints: list[CheckpointRow]


class RunId(Part):
    """The part of a run's result that names it."""

    id: str | None


class DeliveredFiles(Part):
    """The part of finalization's evidence that the delivered model is verified by."""

    run: RunId
    model_files: list[FileRow]
    delivered_sha256: str | None
    delivered_tree_sha256: str | None


class BoundFiles(Part):
    """The part of a record that binds files."""

    inputs: list[FileRow]
    evidence: DeliveredFiles
