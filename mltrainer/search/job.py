"""A search: a study of trials in worker processes, and the comparison of the best one with the baseline on fresh seeds."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from mltrainer.errors import DifferenceError
from mltrainer.records.job import SearchJob
from mltrainer.records.pareto import best_trial
from mltrainer.search.budget import Budget
from mltrainer.search.comparing import NO_COMPARISON, Comparison
from mltrainer.search.database import Database
from mltrainer.search.runs import Runs, workers_of
from mltrainer.search.sharing import OF_ONE_KIND, SharedStudy
from mltrainer.search.space import trial_config
from mltrainer.search.study import Study, outcome
from mltrainer.search.trial import Trial
from mltrainer.tools.program import Events, StopSignals
from mltrainer.workspace import write_json


def work(job: SearchJob, root: Path, events: Events) -> int:
    """Run a study (its trials, and the comparison of the best one with the baseline at equal budget), and return the exit code.

    Args:
        job: The study's job.
        root: The project's folder.
        events: The sender to which progress is reported.

    Raises:
        InputError: A trial's config is not valid, and no trial is run; or no trial could be trained.
        StoppedError: A signal stopped the study; finished trials are kept and not run again.
    """
    stop = StopSignals(events)
    with workers_of(job, root, events) as pool, closing(Database(job.storage, events, stop)) as database:
        job = job.model_copy(update={"minutes": Budget.of(job, job.trials, pool.room).minutes})
        runs = Runs(job, root, pool, events, stop)
        with SharedStudy(job, database, runs.folder, events) as shared:
            shared.introduce()
            study = Study(job, runs, events, shared)
            trials = study.search()
        about = study.about()
        best = best_trial(trials, job.config.metric.mode, job.constraints, job.objectives)
        comparison = NO_COMPARISON
        if best:
            bring_here(runs, job, best)
        if best and job.config.task.is_seeded:
            comparison = Comparison(job, best.values).run(runs, database)
        compared_s = runs.seconds - about.search_s
    told = [trial.recorded() for trial in trials]
    found = {"trials": told, "best": best and best.nr, "comparison": comparison, "comparison_s": compared_s, **vars(about)}
    write_json(runs.folder / "result.json", found)
    runs.live.close()
    return 0


def bring_here(runs: Runs, job: SearchJob, best: Trial) -> None:
    """Train the best trial, unless its run is here: its replay is compared with the run here.

    Raises:
        DifferenceError: The trial had another value on the machine that trained it.
    """
    config = trial_config(job.config.model_dump(), best.values)
    result = runs.known(config, [])
    if result is None:
        runs.events.send("note", text=f"trial {best.nr}, the best, was trained by another machine: trained here too")
        result = runs.all([config])[0]
    found, expected = outcome(result, config.metric), best.folds[0].value if best.folds else best.value
    if found.value != expected:
        what = f"{config.metric.name} {expected} on the machine that trained it, and here {found.value}"
        raise DifferenceError(f"trial {best.nr} has {what}", hint=OF_ONE_KIND)
