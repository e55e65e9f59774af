"""The values of a trial: a function of the study's seed, the trial's number, and the older trials' results."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from mltrainer.configs.loading import each_entry
from mltrainer.configs.project import Metric, excess
from mltrainer.configs.templates import GENETIC
from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from mltrainer.search import space as spaces
from mltrainer.search.space import Dimension, Values
from mltrainer.search.trial import Trial

if TYPE_CHECKING:
    import optuna

NOTHING: Mapping[str, str] = {}
SPREAD = 10  # first trials of a strategy that learns, which only fill the space for later ones to learn from, as in Optuna's TPE


class Window(NamedTuple):
    """The ended trials that a sampler sees, so that a suggestion takes the same time however many there are.

    Attributes:
        best: The number of trials among those that are not the newest, the best of them.
        newest: The number of the newest trials.
    """

    best: int
    newest: int


POPULATION = SPREAD  # of NSGA, chosen by us: a search has tens of trials, not thousands
WINDOWED = ("tpe", "cma_es")
WINDOW = Window(best=500, newest=1500)  # chosen by us: a suggestion of TPE then takes some 40 ms of processor time


class Strategy(ABC):
    """The choice of trials' values.

    Attributes:
        learns: Whether values depend on other trials' results.
        trials: The largest number of trials.
    """

    learns = False

    def __init__(self, space: Mapping[str, Dimension], config: Values, trials: int) -> None:
        self.space, self.config, self.trials = space, config, trials
        self.seed = int(config["seed"])

    @abstractmethod
    def values(self, trial: int) -> Values:
        """Return a trial's values; a strategy that learns gets the trials in order, from 1."""

    def learn(self, trial: Trial) -> None:  # noqa: B027 - most strategies learn nothing
        """Take in an ended trial; trials come in their order, none before its values were asked for."""


class Random(Strategy):
    """Independent draws (Bergstra and Bengio, 2012, JMLR 13:281-305)."""

    def values(self, trial: int) -> Values:
        """Return a trial's random values."""
        return spaces.active(self.space, spaces.trial_values(self.space, self.seed, trial), self.config)


class Grid(Strategy):
    """Every combination, in order."""

    def __init__(self, space: Mapping[str, Dimension], config: Values, trials: int) -> None:
        self._all = list(itertools.islice(spaces.grid(space, config), trials))
        super().__init__(space, config, len(self._all))

    def values(self, trial: int) -> Values:
        """Return a trial's combination."""
        return self._all[trial - 1]


class QuasiRandom(Strategy):
    """A scrambled Sobol sequence, which fills the space more evenly than draws (Owen, 1998; Joe and Kuo, 2008)."""

    def values(self, trial: int) -> Values:
        """Return a trial's point."""
        from scipy.stats import qmc

        keys = sorted(self.space)
        points = qmc.Sobol(len(keys), scramble=True, rng=seeds.key(self.seed, "tuner/sobol", 0) % 2**32)
        if trial > 1:
            points.fast_forward(trial - 1)
        shares = points.random(1)[0].tolist()
        found = {key: spaces.at(self.space[key], share) for key, share in zip(keys, shares, strict=True)}
        return spaces.active(self.space, found, self.config)


class Learning(Strategy):
    """A sampler of Optuna: TPE (Bergstra et al., 2011), a Gaussian process, or CMA-ES (Hansen and Ostermeier, 2001).

    For several metrics: NSGA-II (Deb et al., 2002, IEEE TEC 6:182-197) and NSGA-III (Deb and Jain, 2014, IEEE TEC 18:577-601).
    All but CMA-ES avoid values that miss the constraints.

    The first trials are those of `QuasiRandom` (a space-filling design: Jones, Schonlau and Welch, 1998). Each trial has its own
    sampler, seeded by its number, so that no state of another one's draws is left. The study is in memory; a process that goes on
    with it asks it again, in the same order. TPE and CMA-ES see the trials of a window.
    """

    learns = True

    def __init__(
        self,
        name: str,
        space: Mapping[str, Dimension],
        config: Values,
        trials: int,
        objectives: Mapping[str, str],
        constraints: Mapping[str, str],
        window: Window | None = None,
    ) -> None:
        super().__init__(space, config, trials)
        self._objectives, self._constraints = objectives if name in GENETIC else {}, constraints
        self._spread = QuasiRandom(space, config, trials)
        self._name = name
        self._open: dict[int, optuna.Trial] = {}
        metric = Metric.model_validate(config["metric"])
        storage = None
        if name in WINDOWED:
            from mltrainer.search.window import WindowedStorage  # here, because it imports Optuna

            storage = WindowedStorage(*(window or WINDOW), metric.mode == "max")
        self._study = new_study(metric, storage, further=self._objectives)

    def values(self, trial: int) -> Values:
        """Return the sampler's suggestion; the first trials' values are those of `QuasiRandom`."""
        self._study.sampler = _sampler(self._name, seeds.key(self.seed, f"tuner/{self._name}", trial) % 2**32)
        fixed, found = each_entry(self.config), Values()
        with _quiet():
            if trial <= SPREAD:
                self._study.enqueue_trial(self._labelled(self._spread.values(trial)))
            asked = self._open[trial] = self._study.ask()
            for key in spaces.in_order(self.space):
                if spaces.is_there(self.space[key], {**fixed, **found}):
                    found[key] = suggested(asked, key, self.space[key])
        return dict(sorted(found.items()))

    def _labelled(self, values: Values) -> Values:
        """Return values in Optuna's form."""
        return {key: json.dumps(value) if "choice" in self.space[key] else value for key, value in values.items()}

    def learn(self, trial: Trial) -> None:
        """Report the trial to the study: without values where it failed, with its last value where it ended early."""
        asked, state = self._open.pop(trial.nr), state_of(trial.state)
        if state.name == "PRUNED":
            asked.report(float(trial.value), round(1e6 * (trial.pruned_at or 0)))  # samplers look at the order alone
        if state.name != "COMPLETE":
            self._study.tell(asked, None, state)
            return
        values = [float(trial.value), *(float(trial.objectives[name]) for name in self._objectives)]
        missed = {name: excess(float(trial.objectives[name]), text) for name, text in self._constraints.items()}
        if not all(map(math.isfinite, (*values, *missed.values()))):  # a metric that could not be computed
            self._study.tell(asked, None, state_of("failed"))
            return
        for name, by in missed.items():
            asked.set_constraint(name, by)
        self._study.tell(asked, values)


def strategy(
    name: str,
    space: Mapping[str, Dimension],
    config: Values,
    trials: int,
    objectives: Mapping[str, str] = NOTHING,
    constraints: Mapping[str, str] = NOTHING,
) -> Strategy:
    """Return a strategy by its name in the tuning template, for the metrics and the criteria of `SearchJob`."""
    simple: dict[str, type[Strategy]] = {"random": Random, "grid": Grid, "quasi_random": QuasiRandom}
    if name in simple:
        return simple[name](space, config, trials)
    return Learning(name, space, config, trials, objectives, constraints)


# --- Optuna ---------------------------------------------------------------------------------------


def new_study(metric: Metric, storage: Any = None, name: str = "study", further: Mapping[str, str] = NOTHING) -> optuna.Study:
    """Return a study of Optuna's, by a metric and further ones: an empty one, or the one of that name in a shared storage."""
    import optuna

    optuna.logging.set_verbosity(logging.ERROR)
    kinds = {"max": optuna.study.StudyDirection.MAXIMIZE, "min": optuna.study.StudyDirection.MINIMIZE}
    directions = [kinds[mode] for mode in (metric.mode, *further.values())]
    return optuna.create_study(study_name=name, directions=directions, storage=storage, load_if_exists=True)


def _sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    from optuna import samplers

    with _quiet():
        if name == "tpe":
            # constant_liar: trials in training count as bad ones; else trials begun beside them would be drawn at the same place.
            return samplers.TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)
        if name == "gp":
            return samplers.GPSampler(seed=seed, deterministic_objective=False)
        if name == "nsga2":
            return samplers.NSGAIISampler(seed=seed, population_size=POPULATION)
        if name == "nsga3":
            return samplers.NSGAIIISampler(seed=seed, population_size=POPULATION)
        try:
            return samplers.CmaEsSampler(seed=seed)
        except ImportError as error:
            raise InputError("CMA-ES needs the package cmaes", hint='pip install "mltrainer[cmaes]"') from error


def state_of(state: str) -> optuna.trial.TrialState:
    """Return Optuna's name of a trial's state."""
    from optuna.trial import TrialState

    return {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}[state]


def suggested(trial: optuna.Trial, key: str, dimension: Dimension) -> Any:
    """Return the value of a dimension that Optuna suggests for a trial."""
    form = spaces.form_of(dimension)
    given = dimension[form]
    if form == "choice":
        labels = [json.dumps(value) for value in given]  # lists are no choice of Optuna's
        return given[labels.index(trial.suggest_categorical(key, labels))]
    if form in ("uniform", "log_uniform"):
        return trial.suggest_float(key, float(given[0]), float(given[1]), log=form == "log_uniform")
    return trial.suggest_int(key, given[0], given[1], log=form == "log_integer")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of experimental parts of Optuna, and of samplers that draw where they cannot model
        yield
