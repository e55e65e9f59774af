"""Keys that make a large training fit: the planner's trace, calibrated by the probe's peak.

It is advice: no gate reads it. The threshold is on planning's page, all other settings on the planner's.
"""

from __future__ import annotations

from mltrainer.companions.planner import PLANNER
from mltrainer.companions.planner.recommendation import Choice, Way
from mltrainer.companions.planner.sizing import MIB, PlannerSettings, Sizing, variants
from mltrainer.configs.items import PlanningSettings
from mltrainer.configs.loading import as_typed
from mltrainer.configs.pages import tool_page
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import MltrainerError, StoppedError
from mltrainer.phases.context import Context
from mltrainer.records.common import dumped
from mltrainer.records.job import ExplorationJob
from mltrainer.records.partial import partial
from mltrainer.records.planner import Traced
from mltrainer.records.planning import Estimate, MemoryAdvice, MemoryWay
from mltrainer.records.run import ProbeResult
from mltrainer.reports.values import megabytes


def memory_advice(
    ctx: Context, config: TrainingConfig, probe: ProbeResult, estimate: Estimate, settings: PlanningSettings
) -> MemoryAdvice | None:
    """Return the ways to train in less memory, and the one to take; None if little memory is taken, or another machine's.

    Args:
        ctx: Planning's context.
        config: The config of the training.
        probe: A probe of it.
        estimate: Estimate of the whole run.
        settings: Planning's settings.
    """
    is_ours = config.device == "cpu" and config.processes == 1 and not config.task.is_opaque
    if not is_ours or estimate.peak_mb < settings.advise_memory * estimate.available_mb:
        return None
    page = tool_page(PLANNER, ctx.project.root)
    limits = partial(PlannerSettings, page.settings)
    limit_mb = estimate.available_mb * limits.memory_share
    try:
        sizing = Sizing(config, _traced(ctx, config, page.settings), limits, processes=1)
    # A stop is a MltrainerError, too; any other leaves the plan as it is, since nothing depends on this advice.
    except StoppedError:
        raise
    except MltrainerError as error:
        return MemoryAdvice(limit_mb=limit_mb, ways=[], set={}, reason=f"not known: {error.message}", command=None)
    if not sizing.own.not_known:
        sizing.calibrate(probe.memory.peak_rss_mb * MIB)
    ways = sizing.ways()
    limit = f"the {megabytes(limit_mb)} of this machine that may be planned with"
    choices, advice = sizing.recommended(ways, limit_mb * MIB, limit)
    rows = [_row(way, choice) for way, choice in zip(ways, choices, strict=True)]
    command = f"mltrainer phase run planning {as_typed(advice.set)}" if advice.set else None
    return MemoryAdvice(limit_mb=limit_mb, ways=rows, set=advice.set, reason=advice.reason, command=command)


def _traced(ctx: Context, config: TrainingConfig, settings: dict[str, int | float]) -> Traced:
    """Return the trace of a config, made in a separate process."""
    job = ExplorationJob(
        run="memory",
        purpose="explore",
        question="plan",
        folder=ctx.project.relative(ctx.project.state_dir / "probe" / "memory"),
        config=config,
        contract={},
        threads=config.threads,
        settings=settings,
        asked={"variants": dumped(variants(config))},
    )
    return Traced.model_validate(ctx.tools.run(PLANNER, job))


def _row(way: Way, choice: Choice | None) -> MemoryWay:
    return MemoryWay(
        name=way.name,
        set=way.changes,
        batch_size=choice.batch if choice else None,
        accumulate=choice.accumulate if choice else None,
        peak_mb=choice.parts.total / MIB if choice else None,
        why_not=way.refused or way.not_known or (None if choice else "no micro-batch fits"),
    )
