"""A search: a study of trials in worker processes, and the comparison of the best with the baseline over fresh seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mltrainer.configs.project import Metric, Task, TrainingConfig
from mltrainer.errors import DifferenceError
from mltrainer.records.job import Searching
from mltrainer.tools.program import Events, StopSignals
from mltrainer.tools.search.budget import Budget
from mltrainer.tools.search.pool import Pool, places
from mltrainer.tools.search.runs import Runs
from mltrainer.tools.search.seeded import fresh_seeds, sown
from mltrainer.tools.search.sharing import OF_ONE_KIND, Machines, Sharing
from mltrainer.tools.search.space import Values, trial_config
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
    workers = places(job["workers"], config["device"], job["threads"])
    job["minutes"] = Budget.of(job, job["trials"], len(workers)).minutes
    with Pool(job, workers, 60 * job["silent_minutes"]) as pool:
        runs = Runs(job, pool, events, stop)
        machines = Machines(job, runs.folder, events, stop)
        with machines.trials() as sharing:
            study = Study(job, runs, events, sharing)
            trials = study.search()
        about = study.about()
        best = best_trial(trials, config["metric"]["mode"])
        comparison = NO_COMPARISON
        if best:
            bring_here(runs, job, best)
        if best and has_seeds(job["config"]):
            with machines.comparison(best["values"]) as sharing:
                comparison = compare(runs, job, best["values"], sharing)
    told = [{key: trial[key] for key in RECORDED if key in trial} for trial in trials]
    found = {"trials": told, "best": best and best["nr"], "comparison": comparison, **about}
    write_json(runs.folder / "result.json", found)
    runs.live.close()
    return 0


def has_seeds(config: Row) -> bool:
    """Return whether runs of a config differ by their seed: a program that takes none trains the same one again."""
    task = Task.model_validate(config["task"])
    return task.script is None or task.takes_a_seed


def bring_here(runs: Runs, job: Row, best: Row) -> None:
    """Train the best trial, unless its run is here: its replay compares with what lies here.

    Raises:
        DifferenceError: It gave something else on the machine that has trained it.
    """
    config = trial_config(job["config"], best["values"])
    result = runs.known(config, [])
    if result is None:
        runs.events.send("note", text=f"trial {best['nr']}, the best, was trained by another machine: trained here too")
        result = runs.all([config])[0]
    found, expected = outcome(result, config.metric), (best.get("folds") or [best])[0]["value"]
    if found["value"] != expected:
        what = f"{config.metric.name} {expected} on the machine that trained it, and here {found['value']}"
        raise DifferenceError(f"trial {best['nr']} has {what}", mend=OF_ONE_KIND)


def compare(runs: Runs, job: Row, values: Values, sharing: Sharing) -> Row:
    """Train baseline and candidate on the same fresh seeds, and in turn on each fold; a run that failed has the value "nan"."""
    config, metric = job["config"], Metric.model_validate(job["config"]["metric"])
    fresh = fresh_seeds(config["seed"], "comparison", job["seeds"])
    sides = {"baseline": trial_config(config, {}), "candidate": trial_config(config, values)}
    runs.events.send("note", text=f"baseline and candidate on {len(fresh)} fresh seeds")
    named = [(name, seed) for name in sides for seed in fresh]
    asked = [one for side in sides.values() for one in sown(side, fresh)]
    found = together(
        runs, sharing, [(one, {"side": each[0], "seed": each[1]}) for one, each in zip(asked, named, strict=True)], metric
    )
    for nr, one in enumerate(found):
        name, seed = [*sides][nr // len(fresh)], fresh[nr % len(fresh)]
        runs.events.send("note", text=f"  {name}, seed {seed}: {told(one, metric)}")
    scores = [one["value"] for one in found]
    return {"seeds": fresh, "baseline": scores[: len(fresh)], "candidate": scores[len(fresh) :]}


def together(runs: Runs, sharing: Sharing, asked: Sequence[tuple[TrainingConfig, Values]], metric: Metric) -> list[Row]:
    """Return the outcomes of runs, each trained by one of the machines that share them.

    Args:
        runs: Where those of this machine are trained.
        sharing: Which are this one's.
        asked: Their configs, each with what it is called.
        metric: What is measured.
    """
    found: dict[int, Row] = {}
    training: set[int] = set()
    while len(found) < len(asked):
        runs.live.at("runs", len(found), len(asked))
        sharing.look()
        for nr in sorted(set(range(len(asked))) - set(found) - training):
            (config, named), row = asked[nr], sharing.row(nr + 1)
            if row is not None:
                found[nr] = row
            elif (known := runs.known(config, [])) is not None:
                found[nr] = sharing.report(nr + 1, named, _row(known, metric))
            elif runs.pool.room and sharing.claim(nr + 1, named):
                runs.begin(nr, config, [])
                training.add(nr)
        for nr, result in runs.wait() if len(found) < len(asked) else ():
            found[nr] = sharing.report(nr + 1, asked[nr][1], _row(result, metric))
    sharing.end()
    return [found[nr] for nr in range(len(asked))]


def _row(result: Row, metric: Metric) -> Row:
    return {
        **outcome(result, metric),
        "run": result["id"],
        "history": [],
        "curve": [],
        **{key: result[key] for key in ("steps", "wall_s")},
    }
