"""Planning's rehearsal of finalization: everything that it needs of a task, tried on the untrained model.

In: the config and the production template. Out: the result of each format of the template, and the first fault with its line.
A fault is then known in seconds, before anything is trained and long before the test split is opened.
"""

from __future__ import annotations

from collections.abc import Callable

import mltrainer
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.templates import production_template
from mltrainer.phases.context import Context
from mltrainer.phases.side_by_side import prepare
from mltrainer.records.common import dumped
from mltrainer.records.job import ExportJob
from mltrainer.records.partial import partial
from mltrainer.records.planning import Environment, Rehearsal
from mltrainer.records.run import ProbeResult
from mltrainer.reproducibility.environment import environment_digest
from mltrainer.runs.exporting import MANAGER, ExportSettings
from mltrainer.workspace import digest

DECIDING = ("task", "model", "data", "split", "seed")  # the config keys that an untrained model and its inputs come from


def rehearsal(ctx: Context, config: TrainingConfig, probe: ProbeResult, environment: Environment) -> Callable[[], Rehearsal]:
    """Return a function that exports an untrained model and returns the outcome; the last planning's if nothing changed.

    What failed is tried again: it may be repaired where no digest shows it.
    The export's imports begin now, beside the work that runs meanwhile.

    Args:
        ctx: Planning's context.
        config: The config with the number of loader processes that the probe found.
        probe: The first probe's result, for the digests of data and code.
        environment: The environment of this machine that planning recorded.
    """
    export = production_template(ctx.project.root)["export"]
    settings, values = ExportSettings(**export), config.model_dump()
    tried = {
        "version": mltrainer.__version__,
        "config": {key: values[key] for key in (*DECIDING, *_later_keys(config))},
        "data": probe.data_sha256,
        "code": dumped(probe.code_files),
        "environment": environment_digest(environment),
        "export": export,
    }
    name = digest(tried)
    last: Rehearsal | None = getattr(ctx.last, "rehearsal", None)  # none of a planning that stopped
    if last is not None and last.sha256 == name and _is_whole(last):
        return lambda: last
    prepare(ctx, config, probe.memory.peak_rss_mb, [MANAGER], settings.formats)
    return lambda: _rehearsed(ctx, config, settings, name)


def _is_whole(last: Rehearsal) -> bool:
    return last.fault is None and all(row.state != "failed" for row in last.exports)


def _later_keys(config: TrainingConfig) -> list[str]:
    """Return the deciding keys of later versions, where they are set; without them, the name is that of earlier versions."""
    return [*(["conformal"] if config.conformal else []), *(["start", "strategies"] if config.strategies else [])]


def _rehearsed(ctx: Context, config: TrainingConfig, export: ExportSettings, name: str) -> Rehearsal:
    ctx.note(f"trying the export on the untrained model: {', '.join(export.formats)}")
    return partial(Rehearsal, {**ctx.tools.run(MANAGER, _job(ctx, config, export)), "sha256": name})


def _job(ctx: Context, config: TrainingConfig, export: ExportSettings) -> ExportJob:
    folder = ctx.project.relative(ctx.project.state_dir / "probe" / "rehearsal")
    return ExportJob(
        run="probe-rehearsal",
        folder=folder,
        run_folder=folder,
        checkpoint=None,
        config=config,
        out=f"{folder}/model",
        **export.written(),
        test=None,
        threads=config.threads,
    )
