"""mltrainer, through its command line: `--processes`, with a task of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from tests.benchmarks.scorecard.case import Outcome
from tests.benchmarks.scorecard.processes.case import EPOCHS, LR, MICRO, SHARDS, Case
from tests.benchmarks.scorecard.processes.work import forget_steps
from tests.benchmarks.scorecard.trainers import ours

TASK = """
from pathlib import Path

import mltrainer
from tests.benchmarks.scorecard.processes import work


class Scored(mltrainer.Task):
    def __init__(self, dropout):
        self.dropout = dropout
        self.probe = work.Probe(work.case_of_process(), Path.cwd())

    def dataset(self, split):
        return None if split == "test" else work.Sequences(Path.cwd(), split)

    def model(self):
        return work.make_net(self.dropout)

    def loss(self, outputs, targets):
        return self.probe.loss(outputs, targets)

    def metrics(self, outputs, targets):
        return {"accuracy": (outputs.argmax(1) == targets).float().mean().item()}
"""


class Mltrainer(ours.Mltrainer):
    """This project, which sends all gradients at once."""

    buckets = False
    parallel = "ddp"
    files: ClassVar = {"my_task.py": TASK, "mltrainer.yaml": ours.PROJECT}

    def train(self, folder: Path, case: Case, *, resume: bool) -> Outcome:
        """Plan, in one process, and train in several; a resumed run is the same command again."""
        if not resume:
            code, said = self._plan(folder, case)
            if code != 0:
                return Outcome(code, said, None)
            forget_steps(folder)  # planning tries some
        code, said = self._command(folder, case, "phase", "run", "baseline", "--processes", str(case.processes))
        return Outcome(code, said, self._weights(folder) if code == 0 else None)

    def settings(self, case: Case) -> dict[str, Any]:
        """Return the config's values for a case."""
        return {
            "task.options": f"{{dropout: {case.dropout}}}",
            "epochs": EPOCHS,
            "batch_size": MICRO,
            "accumulate": SHARDS,
            "optimizer.name": "adamw",
            "optimizer.lr": LR,
            "schedule": "{name: constant}",
            "early_stopping": "null",
            "evaluate": f"{{every_n_epochs: {EPOCHS}}}",
            "checkpoint.every_n_epochs": 1,
            "launch.parallel": self.parallel,
        }


class Zero(Mltrainer):
    """This project, its processes sharing the optimizer's state too."""

    name = "mltrainer, zero1"
    parallel = "zero1"


class Fsdp(Mltrainer):
    """This project, its processes sharing the optimizer's state, gradients and parameters."""

    name = "mltrainer, fsdp"
    parallel = "fsdp"
