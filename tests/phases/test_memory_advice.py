"""Ways to train in less memory, told where a training takes much of it: the planner's arithmetic on the probe's own peak."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mltrainer.companions.planner.memory_advice import memory_advice
from mltrainer.configs.items import PlanningSettings
from mltrainer.configs.pages import phase_page
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import MachineError, MltrainerError, StoppedError
from mltrainer.records.planning import Estimate, MemoryAdvice
from mltrainer.workspace import Project
from tests.companions.planner.test_memory import row, traced
from tests.exporters.test_program import table
from tests.results import probe_result

SETTINGS = PlanningSettings.model_validate(phase_page("planning", None).settings)
MIB = 2**20
PEAK_MB = 900  # of the config's own steps: 300 MiB of tensors beside 400 of the process, and the allocator's


def estimate(available_mb: float) -> Estimate:
    sizes = {"checkpoint_mb": 1, "disk_free_mb": 1e6, "budget_minutes": 60}
    return Estimate(steps=10, step_time_us=1, minutes=1, peak_mb=PEAK_MB, available_mb=available_mb, **sizes)


def advised(
    root: Path, available_mb: float, fault: MltrainerError | None = None, **changes: Any
) -> tuple[MemoryAdvice | None, list[Any]]:
    """Return the advice for a batch of 64 whose step takes 4 MiB a sample, and the jobs that were started for it."""
    config = TrainingConfig.model_validate({**table(root), "batch_size": 64, "optimizer": {"name": "sgd", "lr": 0.1}, **changes})
    found = traced(row(32, 128 * MIB), row(64, 256 * MIB), row(128, 512 * MIB)).model_copy(update={"resident_bytes": 400 * MIB})
    jobs: list[Any] = []

    def run(_tool: str, job: Any) -> dict[str, Any]:
        jobs.append(job)
        if fault is not None:
            raise fault
        return dict(found.model_dump())

    ctx = cast("Any", SimpleNamespace(project=Project(root), tools=SimpleNamespace(run=run)))
    probe = probe_result(memory=probe_result().memory.model_copy(update={"peak_rss_mb": PEAK_MB}))
    return memory_advice(ctx, config, probe, estimate(available_mb), SETTINGS), jobs


def test_nothing_is_traced_where_little_of_the_memory_is_taken(tmp_path):
    assert advised(tmp_path, PEAK_MB / SETTINGS.advise_memory + 1) == (None, [])


def test_the_config_is_left_as_it_is_where_it_fits(tmp_path):
    found, jobs = advised(tmp_path, PEAK_MB / 0.9 + 10)
    assert (found.set, found.command) == ({}, None)
    assert found.ways[0].batch_size == 64
    assert found.ways[0].peak_mb == pytest.approx(PEAK_MB)
    assert [job.question for job in jobs] == ["plan"]


def test_a_smaller_micro_batch_is_named_with_its_command_where_it_does_not_fit(tmp_path):
    found, _ = advised(tmp_path, PEAK_MB)
    assert found.set == {"batch_size": 32, "accumulate": 2}
    assert found.command == "mltrainer phase run planning --set batch_size=32 --set accumulate=2"
    assert cast("float", found.ways[0].peak_mb) < PEAK_MB * 0.9


def test_where_nothing_fits_that_is_said(tmp_path):
    found, _ = advised(tmp_path, 300)
    assert found.set == {}
    assert "no tried setting fits" in found.reason
    assert found.ways[0].why_not == "no micro-batch fits"


def test_a_trace_that_fails_leaves_the_plan_as_it_is_and_says_why(tmp_path):
    found, _ = advised(tmp_path, PEAK_MB, MachineError("out of memory: in the trace"))
    assert (found.ways, found.set, found.reason) == ([], {}, "not known: out of memory: in the trace")
    with pytest.raises(StoppedError):
        advised(tmp_path, PEAK_MB, StoppedError("stopped by SIGTERM", exit_code=143))


@pytest.mark.parametrize("changes", [{"device": "cuda"}, {"accumulate": 2, "launch": {"processes": 2}}])
def test_another_memory_than_this_process_s_is_not_advised_of(changes, tmp_path):
    assert advised(tmp_path, PEAK_MB, **changes) == (None, [])
