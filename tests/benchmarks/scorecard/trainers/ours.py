"""mltrainer, through its command line, with a task of one's own."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tests.benchmarks.scorecard import process
from tests.benchmarks.scorecard.case import BATCH, EPOCHS, LR, PER_EPOCH, SAMPLES, SEED, Case, Outcome, Weights
from tests.benchmarks.scorecard.damage import drop_tensors
from tests.benchmarks.scorecard.work import write_data

TASK = """
from pathlib import Path

import mltrainer
from tests.benchmarks.scorecard import work


class Scored(mltrainer.Task):
    def __init__(self, noise=False):
        self.noise = noise
        self.probe = work.Probe(work.case_of_process(), Path.cwd())

    def dataset(self, split):
        return None if split == "test" else work.Samples(Path.cwd(), split, self.noise and split == "train")

    def model(self):
        self.probe.net = work.make_net()
        return self.probe.net

    def loss(self, outputs, targets):
        return self.probe.loss(outputs, targets)

    def metrics(self, outputs, targets):
        return {"accuracy": (outputs.argmax(1) == targets).float().mean().item()}
"""
PROJECT = f"""name: scored
seed: {SEED}
task: {{use: "my_task:Scored"}}
metric: {{name: accuracy, mode: max}}
"""
CONFIG = Path("phases/01_planning/training_config.yaml")
MODEL, OPTIMIZER = "model.", "optimizer."


class Mltrainer:
    """This project. It always measures a validation set; without one in the case, only once, at the end."""

    name = "mltrainer"
    distribution = "mltrainer"
    saves_when_asked = True
    files: ClassVar = {"my_task.py": TASK, "mltrainer.yaml": PROJECT}

    def write_data(self, folder: Path, seed: int) -> None:
        """Write the two noisy classes."""
        write_data(folder, SAMPLES, seed)

    def train(self, folder: Path, case: Case, *, resume: bool) -> Outcome:
        """Plan and train; a resumed run is the same command again."""
        if resume:
            self._edit_rate(folder, case.lr)
        else:
            code, said = self._plan(folder, case)
            if code != 0:
                return Outcome(code, said, None)
        code, said = self._command(folder, case, "phase", "run", "baseline")
        return Outcome(code, said, self._weights(folder) if code == 0 else None)

    def newest_weights(self, folder: Path) -> Path:
        """Return the tensors' file of the newest checkpoint."""
        return max(folder.glob(".mltrainer/runs/*/checkpoints/step-*/state.safetensors"))

    def drop_optimizer(self, folder: Path) -> None:
        """Remove the optimizer's tensors from the file."""
        drop_tensors(self.newest_weights(folder), OPTIMIZER)

    def _command(self, folder: Path, case: Case, *arguments: str) -> tuple[int, str]:
        return process.run([sys.executable, "-m", "mltrainer", *arguments, "--project", str(folder)], folder, case)

    def _plan(self, folder: Path, case: Case) -> tuple[int, str]:
        """Plan in the folder, or take the plan of an earlier run with the same settings and data: planning trains nothing."""
        changes = [f"--set={key}={value}" for key, value in self.settings(case).items()]
        planned = folder.parent / f"planned-{_key(folder, changes)}"
        if planned.exists():
            shutil.copytree(planned, folder, dirs_exist_ok=True)
            return 0, ""
        for name, text in self.files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        code, said = self._command(folder, case.unharmed(), "phase", "run", "planning", *changes)
        if code == 0:
            shutil.copytree(folder, planned)
        return code, said

    def _edit_rate(self, folder: Path, lr: float) -> None:
        if lr == LR:
            return
        text = (folder / CONFIG).read_text()
        (folder / CONFIG).write_text(text.replace(f"lr: {LR}", f"lr: {lr}"))

    def _weights(self, folder: Path) -> Weights:
        from safetensors.numpy import load_file

        tensors = load_file(self.newest_weights(folder))
        return {name.removeprefix(MODEL): np.array(value) for name, value in tensors.items() if name.startswith(MODEL)}

    def settings(self, case: Case) -> dict[str, Any]:
        """Return the config's values for a case."""
        noise = f"{{noise: {str(case.noise).lower()}}}"
        return {**shared_settings(case), "task.options": noise}


def _key(folder: Path, changes: list[str]) -> str:
    """Return a name for a plan: of the settings and of the data."""
    found = hashlib.sha256(" ".join(changes).encode())
    for path in sorted(folder.iterdir()):
        found.update(hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b"")
    return found.hexdigest()[:8]


def shared_settings(case: Case) -> dict[str, Any]:
    """Return the config's values for a case of any work."""
    every = case.validate_every
    cadence = ("every_n_epochs", every // PER_EPOCH or EPOCHS) if every % PER_EPOCH == 0 else ("every_n_steps", every)
    return {
        "epochs": EPOCHS,
        "batch_size": BATCH,
        "optimizer.name": "adamw",
        "optimizer.lr": case.lr,
        "schedule": "{name: constant}",
        "early_stopping": "null",
        "evaluate": f"{{{cadence[0]}: {cadence[1]}}}",
        "checkpoint.every_n_epochs": 1,
        "loader.workers": case.workers,
    }
