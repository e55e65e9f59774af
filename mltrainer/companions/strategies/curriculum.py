"""A curriculum: training begins with the easiest samples, and the others come in epoch by epoch.

Bengio et al., 2009 (ICML). The share of the samples grows with the place in the training, as in Hacohen and Weinshall, 2019,
arXiv 1904.03626, and Platanios et al., 2019, arXiv 1903.09848, whose function is the root.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from mltrainer.configs import strategies as configs
from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from mltrainer.tasks.content import file_row
from mltrainer.tasks.ids import Ids
from mltrainer.tasks.strategy import EpochOrder, Ranked, Strategy, Training
from mltrainer.workspace import machine_faults, read_json

MARGIN_BYTES = 4
LOSSES = "mltrainer rows RUN --hardest --most 10000 --json"
POWER = {"linear": 1.0, "root": 0.5}


class Curriculum(Strategy[configs.Curriculum]):
    """The order of a training by difficulty."""

    name = "curriculum"
    _difficulty: np.ndarray

    def __init__(self, settings: configs.Curriculum, key: str, root: Path) -> None:
        super().__init__(settings, key, root)
        if settings.margins is not None:
            hint = "copy its margins.f32 from .mltrainer/runs/RUN/ into the project"
            self.files = [file_row(self._file("margins", settings.margins, hint), settings.margins)]
        if settings.losses is not None:
            self.files = [file_row(self._file("losses", settings.losses, f"{LOSSES} > {settings.losses}"), settings.losses)]

    def _file(self, what: str, name: str, hint: str) -> Path:
        path = self.root / name
        if not path.is_file():
            raise InputError(expected=f"the {what} of a run", found=f"no file at {name!r}", where=f"{self.key}.{what}", hint=hint)
        return path

    def begin(self, training: Training) -> str:
        """Return a line on the order."""
        settings = self.settings
        easy = settings.margins or settings.losses or settings.by or "difficulty() of the task"
        return f"begins with the easiest {settings.begin:.0%} by {easy}; all samples from epoch {settings.epochs + 1} on"

    def rank(self, samples: Ranked) -> EpochOrder:
        """Read each training sample's difficulty, and return the order of an epoch.

        Raises:
            InputError: A sample has no difficulty.
        """
        ids = np.asarray(samples.ids)
        found = self._found(samples)
        if len(found) <= ids.max(initial=-1) or not np.isfinite(found[ids]).all():
            short = len(found) <= ids.max(initial=-1)
            first = len(found) if short else int(ids[~np.isfinite(found[ids])][0])
            what = f"{samples.place(first)} has no difficulty"
            hint = "give each training sample one; margins and losses are those of a run on the same data and split"
            raise InputError(what, where=self.key, hint=hint)
        self._difficulty = -found if self.settings.descending else found
        return self.order

    def _found(self, samples: Ranked) -> np.ndarray:
        """Return the difficulties by sample id, float64."""
        settings = self.settings
        if settings.losses is not None:
            return _losses(self.root / settings.losses, f"{self.key}.losses", int(np.max(samples.ids, initial=-1)) + 1)
        if settings.margins is not None:
            with machine_faults(settings.margins):
                # A larger margin: the run was surer of the sample's own class.
                content = (self.root / settings.margins).read_bytes()
            if len(content) % MARGIN_BYTES:
                what = f"{len(content)} bytes are no margins, which have {MARGIN_BYTES} for each sample"
                raise InputError(what, where=f"{self.key}.margins", hint="copy the file from the run again")
            return -np.frombuffer(content, np.float32).astype(np.float64)
        return samples.difficulty(settings.by, f"{self.key}.by")

    def order(self, ids: Ids, seed: int, epoch: int) -> np.ndarray:
        """Return the positions of an epoch's samples, as many as there are: the easiest ones in turns, each turn in a new order.

        A pure function of its arguments: a checkpoint holds nothing of it.
        """
        count = len(ids)
        pool = min(count, max(1, math.ceil(count * admitted(self.settings, epoch))))
        if pool == count:
            return seeds.epoch_order(seed, epoch, count)
        easiest = np.argsort(self._difficulty[np.asarray(ids)], kind="stable")[:pool]
        turns = [seeds.generator(seed, "curriculum", epoch, turn).permutation(pool) for turn in range(math.ceil(count / pool))]
        return easiest[np.concatenate(turns)[:count]]


def _losses(path: Path, where: str, count: int) -> np.ndarray:
    """Return the losses by sample id, float64 [count], from `mltrainer rows`; NaN for a sample that it does not show.

    Raises:
        InputError: The file holds something else.
    """
    try:
        shown = {int(row["sample"]): float(row["loss"]) for row in read_json(path)["rows"] if row["split"] == "train"}
    except (KeyError, TypeError, ValueError, InputError) as error:
        what = f"{path.name} holds no losses of samples by their ids"
        raise InputError(what, where=where, hint=f"{LOSSES} > {path.name}") from error
    return np.array([shown.get(sample, np.nan) for sample in range(count)])


def admitted(settings: configs.Curriculum, epoch: int) -> float:
    """Return the share of the samples that an epoch (from 0) reads."""
    done = min(1.0, epoch / settings.epochs)
    if settings.pacing == "step":
        return settings.begin if done < 1 else 1.0
    return settings.begin + (1 - settings.begin) * float(done ** POWER[settings.pacing])
