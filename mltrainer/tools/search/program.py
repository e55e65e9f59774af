"""A search: a study of trials in worker processes, and the comparison of the best with the baseline over fresh seeds."""

from __future__ import annotations

from typing import Any

from mltrainer.configs.project import Metric
from mltrainer.records.job import Searching
from mltrainer.reproducibility import seeds
from mltrainer.tools.program import Events, StopSignals
from mltrainer.tools.search.pool import Pool, places
from mltrainer.tools.search.runs import Runs
from mltrainer.tools.search.space import Values, reseeded, trial_config
from mltrainer.tools.search.study import Study, best_trial, outcome, told
from mltrainer.workspace import write_json

Row = dict[str, Any]
NO_COMPARISON: Row = {"seeds": [], "baseline": [], "candidate": []}
RECORDED = (
    *("nr", "run", "values", "seed", "state", "value", "reason", "steps", "wall_s"),
    "curve",
    "pruned_at",
    "attempts",
    "folds",
)


def work(job: dict[str, Any], events: Events) -> int:
    """Run a study: trials, the best of them, and its comparison with the baseline at equal budget.

    Args:
        job: As `records.job.Searching`.
        events: Where progress goes.

    Raises:
        InputError: A trial's config is not valid, and then none is run; or not one of them could be trained.
        StoppedError: A signal stopped it; finished trials are kept and not run again.
    """
    stop = StopSignals(events)
    job = Searching.model_validate(job).model_dump(by_alias=True)
    config = job["config"]
    with Pool(job, places(job["workers"], config["device"], job["threads"]), 60 * job["silent_minutes"]) as pool:
        runs = Runs(job, pool, events, stop)
        study = Study(job, runs, events)
        trials = study.search()
        about = study.about()
        best = best_trial(trials, config["metric"]["mode"])
        comparison = compare(runs, job, best["values"]) if best else NO_COMPARISON
    told = [{key: trial[key] for key in RECORDED if key in trial} for trial in trials]
    found = {"trials": told, "best": best and best["nr"], "comparison": comparison, **about}
    write_json(runs.folder / "result.json", found)
    return 0


def compare(runs: Runs, job: Row, values: Values) -> Row:
    """Train baseline and candidate on the same fresh seeds, and in turn on each fold; a run that failed has the value "nan"."""
    config, metric = job["config"], Metric.model_validate(job["config"]["metric"])
    fresh = [seeds.key(config["seed"], "comparison", number) % 2**32 for number in range(job["seeds"])]
    sides = {"baseline": trial_config(config, {}), "candidate": trial_config(config, values)}
    runs.events.send("note", text=f"baseline and candidate on {len(fresh)} fresh seeds")
    sown = [reseeded(side, seed) for side in sides.values() for seed in fresh]
    results = runs.all([one.on_fold(one.folds[nr % len(fresh) % len(one.folds)]) for nr, one in enumerate(sown)])
    found = [outcome(result, metric) for result in results]
    for nr, one in enumerate(found):
        name, seed = [*sides][nr // len(fresh)], fresh[nr % len(fresh)]
        runs.events.send("note", text=f"  {name}, seed {seed}: {told(one, metric)}")
    scores = [one["value"] for one in found]
    return {"seeds": fresh, "baseline": scores[: len(fresh)], "candidate": scores[len(fresh) :]}
