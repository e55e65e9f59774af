"""A study as a journal file of Optuna's, which Optuna's dashboard and plots open, also while the study runs."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mltrainer.configs.project import Metric
from mltrainer.search import space as spaces
from mltrainer.search.suggest import new_study, state_of
from mltrainer.search.trial import Ended, Trial

if TYPE_CHECKING:
    import optuna

FILE = "study.journal"


class Journal:
    """Writes trials as they end, in their order; each process that goes on with the study writes a new file.

    Attributes:
        added: The number of trials in it.

    Args:
        folder: The study's folder.
        name: The study's name.
        space: The dimensions, by dotted key.
        metric: The objective.
    """

    def __init__(self, folder: Path, name: str, space: Mapping[str, spaces.Dimension], metric: Metric) -> None:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        self._space, self._metric, self.added = space, metric, 0
        # The lock, too: Optuna would wait for one that a killed process has left. It is renamed before it is removed.
        for left in (folder / FILE, *folder.glob(f"{FILE}.lock*")):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(left)
        with _disk_failures():
            self._study = new_study(metric, JournalStorage(JournalFileBackend(str(folder / FILE))), name)

    def add(self, trial: Trial) -> None:
        """Append an ended trial."""
        from optuna.trial import create_trial

        values, kinds = in_optuna(self._space, trial.values)
        curve = dict(points(trial))
        attributes = {"run": trial.run, "reason": trial.reason}
        state = state_of(trial.state)
        value = float(trial.value) if trial.state == "finished" else None
        self.added += 1
        row = create_trial(
            state=state, value=value, params=values, distributions=kinds, intermediate_values=curve, user_attrs=attributes
        )
        with _disk_failures():
            self._study.add_trial(row)


@contextlib.contextmanager
def _disk_failures() -> Iterator[None]:
    """Raise the disk's own error where Optuna's lock of a file turns it into a RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def points(ended: Ended) -> list[tuple[int, float]]:
    """Return a trial's curve in Optuna's form: by epochs, or by steps where evaluations are within epochs, too."""
    whole = all(epoch == int(epoch) for epoch, _ in ended.curve)
    places = [epoch for epoch, _ in ended.curve] if whole else [row.step for row in ended.history]
    return [(int(place), float(value)) for place, (_, value) in zip(places, ended.curve, strict=True)]


def in_optuna(
    space: Mapping[str, spaces.Dimension], values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, optuna.distributions.BaseDistribution]]:
    """Return a trial's values and their dimensions in Optuna's form."""
    return {key: _value(space[key], value) for key, value in values.items()}, {key: _distribution(space[key]) for key in values}


def _value(dimension: spaces.Dimension, value: Any) -> Any:
    return json.dumps(value) if spaces.form_of(dimension) == "choice" else value


def _distribution(dimension: spaces.Dimension) -> optuna.distributions.BaseDistribution:
    from optuna import distributions

    form = spaces.form_of(dimension)
    given = dimension[form]
    if form == "choice":
        return distributions.CategoricalDistribution([json.dumps(value) for value in given])
    kind = distributions.FloatDistribution if form in ("uniform", "log_uniform") else distributions.IntDistribution
    return kind(given[0], given[1], log=form.startswith("log_"))
