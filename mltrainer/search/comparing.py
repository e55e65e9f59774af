"""The comparison of a search's best trial with the baseline: both as planned, at equal budget, on the same fresh seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mltrainer.configs.project import Metric, TrainingConfig
from mltrainer.records.common import dumped
from mltrainer.records.job import SearchJob
from mltrainer.records.optimization import CountedComparison
from mltrainer.records.run import RunResult
from mltrainer.search import counting
from mltrainer.search.database import Database
from mltrainer.search.runs import Runs
from mltrainer.search.sharing import SharedStudy
from mltrainer.search.space import Dimension, Values, fresh_seeds, sown, trial_config
from mltrainer.search.study import outcome
from mltrainer.search.trial import Ended, Trained

Row = dict[str, Any]
SIDES = ("baseline", "candidate")
SPACE: dict[str, Dimension] = {"side": {"choice": [*SIDES]}, "seed": {"integer": [0, 2**32]}}
NO_COMPARISON: Row = {"seeds": [], "baseline": [], "candidate": []}


def sides_of(planned: TrainingConfig, values: Values) -> dict[str, TrainingConfig]:
    """Return the config of each side at equal budget: both as planned, without the changes that make trials cheaper.

    Equal budget: the baseline may be trained on as many samples as the candidate, that is, for as many epochs. Where the search
    chose more epochs than were planned, the baseline gets them, too; where it chose fewer, the candidate keeps them. Steps are
    not made equal, as a smaller batch takes more of them for the same samples: both are recorded.
    """
    candidate = trial_config(planned.model_dump(), values)
    baseline = trial_config(planned.model_dump(), {"epochs": max(planned.epochs, candidate.epochs)})
    return {"baseline": baseline, "candidate": candidate}


class Comparison:
    """A comparison: both sides' configs, its number among those with this plan's baseline, and its seeds.

    Args:
        job: The study's job.
        values: The best trial's values, by dotted key.
    """

    def __init__(self, job: SearchJob, values: Values) -> None:
        self._job, planned = job, job.planned or job.config
        self.metric, self.sides = planned.metric, sides_of(planned, values)
        _, candidate = self.sides.values()
        self.key = counting.key_of(planned, candidate, job.contract.get("data_sha256"), job.run)
        self.number, self.earlier = counting.counted(self.key, job.earlier)
        self.seeds = fresh_seeds(
            planned.seed, counting.address(self.number), counting.pairs_of(job.seeds, job.level, self.number)
        )

    def run(self, runs: Runs, database: Database) -> Row:
        """Train both sides on each seed, and in turn on each fold; a run that failed has the value "nan"."""
        counted = CountedComparison(**self.key.model_dump(), number=self.number)
        about = {**counted.model_dump(), "earlier": dumped(self.earlier)}
        if not self.seeds:
            runs.events.send("note", text=f"not compared: {len(self.earlier)} candidates were, and no level is left for another")
            return {**NO_COMPARISON, **about}
        counting.enter(runs.root, counted)
        which = f", comparison {self.number} with this plan's baseline" if self.number > 1 else ""
        runs.events.send("note", text=f"baseline and candidate on {len(self.seeds)} fresh seeds, as planned{which}")
        name = f"{self._job.run} comparison {self.key.candidate_sha256[:6]} {self.number}"
        with SharedStudy(self._job, database, runs.folder, runs.events, name, SPACE) as shared:
            found = self._trained(runs, shared)
        values = {side: [one.value for one in found[side]] for side in SIDES}
        budget = {side: trained(found[side], self.sides[side]) for side in SIDES}
        return {"seeds": self.seeds, **values, "budget": budget, **about}

    def _trained(self, runs: Runs, shared: SharedStudy) -> dict[str, list[Ended]]:
        named: list[Values] = [{"side": name, "seed": seed} for name in SIDES for seed in self.seeds]
        asked = [one for name in SIDES for one in sown(self.sides[name], self.seeds)]
        found = together(runs, shared, list(zip(asked, named, strict=True)), self.metric)
        places = ((side, seed) for side in SIDES for seed in self.seeds)
        for (side, seed), one in zip(places, found, strict=True):
            runs.events.send("note", text=f"  {side}, seed {seed}: {one.told(self.metric.name)}")
        return {"baseline": found[: len(self.seeds)], "candidate": found[len(self.seeds) :]}


def trained(rows: Sequence[Ended], config: TrainingConfig) -> Row:
    """Return a side's budget: its epochs, and for each run the numbers of steps and of trained samples."""
    epochs = None if config.task.is_opaque else config.epochs
    return {"epochs": epochs, "steps": [row.steps for row in rows], "samples": [row.samples for row in rows]}


def samples_of(result: RunResult | None) -> int | None:
    """Return the number of training samples that a run has seen, repeated ones included; None where unknown."""
    if result is None or not result.train_samples or not result.batch_size:
        return None
    size, batch = result.train_samples, result.batch_size * (result.accumulate or 1)
    # Whole epochs by their samples, as the last step of each may be of a smaller batch.
    epochs, steps = divmod(result.steps, -(-result.slots // batch))
    return epochs * size + steps * batch


def together(runs: Runs, shared: SharedStudy, asked: Sequence[tuple[TrainingConfig, Values]], metric: Metric) -> list[Ended]:
    """Return the outcomes of runs, each trained by one of the machines that share them.

    Args:
        runs: The study's runs, which train this machine's share.
        shared: The division of the runs among machines.
        asked: The runs' configs, each with the values that name it.
        metric: The metric to measure.
    """
    found: dict[int, Ended] = {}
    training: set[int] = set()
    while len(found) < len(asked):
        runs.live.at("runs", len(found), len(asked))
        shared.look()
        for nr in sorted(set(range(len(asked))) - set(found) - training):
            (config, named), row = asked[nr], shared.row(nr + 1)
            if row is not None:
                found[nr] = row
            elif (known := runs.known(config, [])) is not None:
                found[nr] = shared.report(nr + 1, named, _row(known, metric))
            elif runs.pool.room and shared.claim(nr + 1, named):
                runs.begin(nr, config, [])
                training.add(nr)
        for nr, result in runs.wait() if len(found) < len(asked) else ():
            found[nr] = shared.report(nr + 1, asked[nr][1], _row(result, metric))
    shared.end()
    return [found[nr] for nr in range(len(asked))]


def _row(run: Trained, metric: Metric) -> Ended:
    return Ended(**vars(outcome(run, metric)), run=run.id, steps=run.steps, wall_s=run.wall_s, samples=samples_of(run.result))
