"""Running a trainer through the rows, each run in a folder and a process of its own."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

from tests.benchmarks.scorecard.case import LR, PER_EPOCH, Case, Outcome, Trainer
from tests.benchmarks.scorecard.damage import flip_bit
from tests.benchmarks.scorecard.rows import Damage
from tests.benchmarks.scorecard.work import WRITES_FILE

DATA_SEED, OTHER_SEED = 1, 2


class Bench:
    """The runs of one trainer.

    Args:
        trainer: The trainer.
        folder: An empty folder.
    """

    def __init__(self, trainer: Trainer, folder: Path) -> None:
        self.trainer, self.folder = trainer, folder
        self._fresh: dict[tuple[Case, int], Outcome] = {}
        self._stopped: dict[Case, Path] = {}
        self._resumed: dict[tuple[Case, int, Damage, float], Outcome] = {}

    def fresh(self, case: Case, number: int = 1) -> Outcome:
        """Return the outcome of a run from its start."""
        if (case, number) not in self._fresh:
            self._fresh[case, number] = self.trainer.train(self._new_folder(), case, resume=False)
        return self._fresh[case, number]

    def resumed(self, case: Case, stop: int, damage: Damage = "none", lr: float = LR) -> Outcome:
        """Return the outcome of a run that was stopped after a step, damaged or changed, and resumed."""
        key = (case, stop, damage, lr)
        if key not in self._resumed:
            folder = self._copy(self._interrupted(case, stop))
            self._damage(folder, damage)
            self._resumed[key] = self.trainer.train(folder, dataclasses.replace(case, lr=lr), resume=True)
        return self._resumed[key]

    def killed_while_saving(self, case: Case, stop: int) -> list[Outcome]:
        """Return the outcomes of resuming runs that were killed at the first, a middle and the last write of one save."""
        writes = json.loads((self._interrupted(case, stop) / WRITES_FILE).read_text())
        return [self._killed(case, stop, number) for number in moments(len(writes))]

    def _killed(self, case: Case, stop: int, number: int) -> Outcome:
        folder = self._new_folder()
        self.trainer.train(folder, dataclasses.replace(case, stop_after=stop, kill_at=number), resume=False)
        return self.trainer.train(folder, case, resume=True)

    def _interrupted(self, case: Case, stop: int) -> Path:
        """Return the folder of a run that was stopped after a step: killed, or asked to where no save is due by itself."""
        gently = stop % PER_EPOCH != 0 and self.trainer.saves_when_asked
        stopped = dataclasses.replace(case, stop_after=stop, gently=gently)
        if stopped not in self._stopped:
            self._stopped[stopped] = self._new_folder()
            self.trainer.train(self._stopped[stopped], stopped, resume=False)
        return self._stopped[stopped]

    def _damage(self, folder: Path, damage: Damage) -> None:
        if damage == "bit":
            flip_bit(self.trainer.newest_weights(folder))
        elif damage == "optimizer":
            self.trainer.drop_optimizer(folder)
        elif damage == "data":
            self.trainer.write_data(folder, OTHER_SEED)

    def _new_folder(self) -> Path:
        folder = self.folder / f"{len(list(self.folder.iterdir())):03d}"
        folder.mkdir()
        self.trainer.write_data(folder, DATA_SEED)
        return folder

    def _copy(self, folder: Path) -> Path:
        target = self._new_folder()
        shutil.copytree(folder, target, dirs_exist_ok=True, symlinks=True)
        return target


def moments(writes: int) -> list[int]:
    """Return the numbers of the first, the middle and the last of some writes."""
    return sorted({1, (writes + 1) // 2, writes}) if writes else []
