"""Running a trainer through the rows, each run in a folder and in processes of its own."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from tests.benchmarks.scorecard.processes import work
from tests.benchmarks.scorecard.processes.case import Case, Outcome, Trainer
from tests.benchmarks.scorecard.processes.rows import KILLED_AT, witnessed


class Bench:
    """The runs of one trainer.

    Args:
        trainer: The trainer.
        folder: An empty folder.
    """

    def __init__(self, trainer: Trainer, folder: Path) -> None:
        self.trainer, self.folder, self.buckets = trainer, folder, trainer.buckets
        self._fresh: dict[tuple[Case, int], Outcome] = {}
        self._interrupted: dict[Case, Path] = {}

    def fresh(self, case: Case, number: int = 1) -> Outcome:
        """Return the outcome of a run from its start."""
        if (case, number) not in self._fresh:
            self._fresh[case, number] = self._trained(self._new_folder(case), case, resume=False)
        return self._fresh[case, number]

    def resumed(self, case: Case, processes: int) -> Outcome:
        """Return the outcome of a run of which one process was killed, and which another number of processes went on with."""
        folder = self._new_folder(case)
        shutil.copytree(self._killed(case), folder, dirs_exist_ok=True, symlinks=True)
        return self._trained(folder, dataclasses.replace(case, save=True, processes=processes), resume=True)

    def _killed(self, case: Case) -> Path:
        """Return the folder of a run that lost one process in mid-epoch."""
        if case not in self._interrupted:
            self._interrupted[case] = folder = self._new_folder(case)
            self.trainer.train(folder, dataclasses.replace(case, save=True, kill_at=KILLED_AT), resume=False)
        return self._interrupted[case]

    def _trained(self, folder: Path, case: Case, *, resume: bool) -> Outcome:
        work.forget_steps(folder)
        found = self.trainer.train(folder, case, resume=resume)
        loss = None if found.weights is None else work.final_loss(folder, found.weights)
        outcome = Outcome(found.code, found.said, found.weights, work.steps_taken(folder), loss)
        return witnessed(outcome, case, resume)

    def _new_folder(self, case: Case) -> Path:
        folder = self.folder / f"{len(list(self.folder.iterdir())):03d}"
        folder.mkdir()
        work.write_data(folder, case.samples)
        return folder
