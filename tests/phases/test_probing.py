"""Planning's probes: what each is asked, and what the whole run's time and memory are taken to be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mltrainer.configs.pages import phase_page
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.observe.disturbances import ALL
from mltrainer.phases.context import Context
from mltrainer.phases.probing import Probes, estimate, probe, probe_again
from mltrainer.records.event import Tell
from mltrainer.records.job import TrainingJob
from mltrainer.records.planning import Estimate
from mltrainer.records.run import ProbeResult
from mltrainer.workspace import Project
from tests.projects import PROJECT
from tests.results import probe_result

REFUSED = 99  # threads
CONFIG = TrainingConfig.model_validate({**PROJECT, "name": "rings", "loader": {"workers": 2}})


class Asked:
    """A tool that notes the jobs that it is given, and how strings hash there."""

    def __init__(self, *capabilities: str) -> None:
        self.capabilities, self.jobs, self.variables = capabilities, [], []  # type: ignore[var-annotated]
        self.tell: Tell = lambda event: None

    def first_probe(self, job: TrainingJob) -> ProbeResult:
        return self.probe(job)

    def probe(self, job: TrainingJob, variables: dict[str, str] | None = None) -> ProbeResult:
        self.jobs.append(job)
        self.variables.append(variables or {})
        if job.config.threads == REFUSED:
            raise InputError("it is refused")
        self.tell({"event": "start"})
        return probe_result(loader={"workers": 3})


def context(tmp_path: Any, tool: Asked, told: list[str]) -> Context:
    def telling(tell: Tell) -> Asked:
        tool.tell = tell
        return tool

    given = {"trainer": tool, "trainer_reporting_to": telling, "note": told.append, "tell": lambda event: None}
    return cast(Context, SimpleNamespace(project=Project(tmp_path), page=phase_page("planning", None), **given))


def asked(tmp_path: Any, *capabilities: str, config: TrainingConfig = CONFIG) -> Asked:
    tool = Asked(*capabilities)
    ctx = context(tmp_path, tool, [])
    probe_again(ctx, config, probe(ctx, config))
    return tool


@pytest.mark.parametrize("capabilities", [(), ("resume",)])
def test_the_steps_are_told_of(tmp_path, capabilities):
    told: list[str] = []
    probe(context(tmp_path, Asked(*capabilities), told), CONFIG)
    assert [line.partition(";")[0] for line in told] == ["probing 8 steps, twice, in fresh processes"]


def test_of_a_config_that_is_refused_no_steps_are_told(tmp_path):
    told: list[str] = []
    with pytest.raises(InputError, match="it is refused"):
        probe(context(tmp_path, Asked("resume"), told), CONFIG.model_copy(update={"threads": REFUSED}))
    assert told == []


def test_the_second_probe_stops_half_way_and_goes_on_under_all_that_must_not_matter(tmp_path):
    tool = asked(tmp_path, "resume")
    assert [job.max_steps for job in tool.jobs] == [8, 4, 8]
    assert [job.resumable for job in tool.jobs] == [False, True, True]
    assert [job.disturbances for job in tool.jobs] == [[], ALL.names, ALL.names]
    assert [job.config.loader.workers for job in tool.jobs] == [2, 2, 1]
    assert [bool(variables) for variables in tool.variables] == [False, True, True]
    assert tool.jobs[1].folder == tool.jobs[2].folder != tool.jobs[0].folder


def test_of_several_processes_one_begins_the_second_probe_alone_and_all_go_on(tmp_path):
    tool = asked(tmp_path, "resume", config=CONFIG.model_copy(update={"accumulate": 4}).with_processes(4))
    assert [job.config.launch.processes for job in tool.jobs] == [4, 1, 4]


def test_the_first_probe_rehearses_and_finds_the_loader_processes_that_the_second_is_fed_by(tmp_path):
    auto = CONFIG.model_copy(update={"loader": CONFIG.loader.model_copy(update={"workers": "auto"})})
    tool = asked(tmp_path, config=auto)
    first, *others = tool.jobs
    assert (first.rehearse, first.measure_loader is not None) == (True, True)
    assert not any(job.rehearse or job.measure_loader for job in others)
    assert others[-1].config.loader.workers == 3


def measured(**changes: Any) -> ProbeResult:
    values = {
        "planned_steps": 100,
        "step_pace_us": 50_000.0,
        "rehearsal": {"samples": 10, "seconds": 0.5, "held_bytes": 10 * 2**20},
        "data": {"splits": {"validation": {"samples": 30}}},
        "time_s": {"setup": 7.0},
        "memory": {"peak_rss_mb": 200.0, "device_peak_mb": None},
    }
    return probe_result(**{**values, **changes})


def estimated(**config: Any) -> Estimate:
    given = CONFIG.model_copy(update={"epochs": 10, **config})
    faster = measured(step_pace_us=40_000.0, memory={"peak_rss_mb": 210.0, "device_peak_mb": None})
    return estimate(given, Probes(measured(), faster, ("0", "1"), 2**20), 1000.0, 2**30)


def test_the_whole_runs_time_is_steps_evaluations_and_setup():
    # 100 steps of 40 ms, 10 evaluations of 30 validation and 30 training samples of 50 ms each, 7 s before the first step
    assert estimated().minutes == pytest.approx((100 * 0.04 + 10 * 60 * 0.05 + 7) / 60)
    averaged = CONFIG.model_validate({**CONFIG.model_dump(), "averaging": {"name": "ema"}}).averaging
    assert estimated(averaging=averaged).minutes == pytest.approx((100 * 0.04 + 10 * 90 * 0.05 + 7) / 60)


def test_the_whole_runs_memory_holds_all_outputs_twice_for_a_moment():
    found = estimated()
    assert found.held_mb == pytest.approx(2 * 1.0 * 20)  # 1 MiB a sample, of which 10 were measured
    assert found.peak_mb == pytest.approx(210 + 40)
    assert (found.checkpoint_mb, found.disk_free_mb, found.available_mb) == (1.0, 1024.0, 1000.0)


def test_a_training_that_fails_only_once_disturbed_says_what_was_changed(tmp_path):
    tool = Asked("resume")
    ctx = context(tmp_path, tool, [])
    first = probe(ctx, CONFIG)
    refused = CONFIG.model_copy(update={"threads": REFUSED})
    with pytest.raises(InputError, match=r"it trained as it is, and failed once .*order of listings.*date.*: it is refused"):
        probe_again(ctx, refused, first)
