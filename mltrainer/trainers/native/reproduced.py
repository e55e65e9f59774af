"""The comparison of a training with the run that it reproduces, line by line of their chains."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from mltrainer.checkpointing.weights import weights_sha256
from mltrainer.records.common import Divergence
from mltrainer.records.job import TrainingJob
from mltrainer.records.partial import partial
from mltrainer.records.run import Initial
from mltrainer.reproducibility import fingerprint
from mltrainer.trainers.native.recording import Recorder, gradient_row
from mltrainer.workspace import read_if_whole, write_json

INITIAL_FILE = "initial.json"


class Reproduced:
    """The reproduced run of a training, if there is one.

    Args:
        job: The training's job, which names the reproduced run's folder.
        folder: The training's folder.
        root: The project's folder.
        recorder: The training's recorder.
    """

    def __init__(self, job: TrainingJob, folder: Path, root: Path, recorder: Recorder) -> None:
        self._folders, self._recorder, self._chain = (root / (job.compare or ""), folder), recorder, list[str]()
        if job.compare:
            self._chain = fingerprint.read(self._folders[0] / fingerprint.CHAIN_FILE)
            fingerprint.verify(self._chain, f"{job.compare}/{fingerprint.CHAIN_FILE}")

    def divergence(self, lines: list[str]) -> Divergence | None:
        """Return the first difference of the chain's new lines from those of the reproduced run."""
        if not self._chain or not lines:
            return None
        end = self._recorder.head.entries
        found = fingerprint.first_divergence(self._chain[end - len(lines) : end], lines)
        return found.model_copy(update={"tensor": self._tensor(found.step, found.what)}) if found else None

    def _tensor(self, step: int, what: str) -> str | None:
        """Return the first tensor that differs: at the start by digest, later by its gradient's norm, if both runs have it."""
        if what == "samples":
            return None
        expected, found = (partial(Initial, read_if_whole(folder / INITIAL_FILE)) for folder in self._folders)
        if step == 0 or expected.trainable != found.trainable:
            return _first_difference(expected, found)
        names = found.trainable
        left, right = (gradient_row(folder, step, len(names)) or [] for folder in self._folders)
        return next((name for name, a, b in zip(names, left, right, strict=False) if a != b), None)


def note_initial(model: nn.Module, folder: Path | None) -> str:
    """Return the digest of a model's initial weights; write its tensors' digests, which locate a different start, to a folder."""
    state = model.state_dict()
    if folder is not None:
        tensors = {name: weights_sha256({name: tensor})[:16] for name, tensor in state.items()}
        trainable = [name for name, p in model.named_parameters() if p.requires_grad]
        write_json(folder / INITIAL_FILE, Initial(tensors=tensors, trainable=trainable).written())
    return weights_sha256(state)


def _first_difference(expected: Initial, found: Initial) -> str | None:
    """Return the first tensor, in the model's order, that differs between two initial models, or that only one of them trains."""
    if not (expected.tensors and found.tensors):
        return None
    trained = {*expected.trainable} ^ {*found.trainable}
    names = dict.fromkeys([*found.tensors, *expected.tensors])
    return next((name for name in names if name in trained or expected.tensors.get(name) != found.tensors.get(name)), None)
