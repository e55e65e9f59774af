"""`mltrainer plan`: its text, and one plan of a real project."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mltrainer.companions.planner.sizing import PlannerSettings
from mltrainer.configs.pages import tool_page
from mltrainer.workspace import Project
from tests.projects import TASK, write_rings


@pytest.fixture
def rings(tmp_path: Path, tools_here: None) -> Project:
    """A project in which no phase has run."""
    return write_rings(tmp_path / "rings")


def contents(project: Project) -> dict[str, bytes]:
    """Return every file of a project outside the planner's folder."""
    paths = (p for p in project.root.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {project.relative(p): p.read_bytes() for p in paths if not p.is_relative_to(project.state_dir)}


def test_the_page_declares_the_planners_settings_and_no_other():
    assert set(tool_page("planner", None).settings) == set(PlannerSettings.model_fields)


def test_an_unknown_device_is_refused_before_anything_is_traced(rings, cli):
    cli("plan", "--device", "NVIDIA H10 SXM", "--project", rings.root, code=1, err="did you mean 'NVIDIA H100 SXM'?")
    assert not (rings.state_dir / "plan").exists()


def test_a_number_of_processes_that_cannot_train_is_refused(rings, cli):
    cli("plan", "--devices", "3", "--project", rings.root, code=1, err="take 2 or 4")


@pytest.mark.slow
def test_a_plan_tells_parts_that_add_up_and_leaves_the_project_as_it_is(rings, cli):
    before = contents(rings)
    found = cli("plan", "--json", "--project", rings.root, "--set", "batch_size=32", "--device", "NVIDIA H200").json
    assert contents(rings) == before
    memory = found["memory"]
    names = ("weights", "buffers", "gradients", "optimizer", "activations", "copies", "framework", "fragmentation")
    assert sum(memory[name] for name in names) == pytest.approx(memory["total"])
    assert memory["low"] <= memory["total"] <= memory["high"]
    assert memory["total"] == pytest.approx(found["measured"]["peak_mb"])
    assert (found["set"], found["command"]) == ({}, None)
    (device,) = found["devices"]
    assert (device["memory_mb"], device["fits"], device["step"]) == (None, None, None)
    assert "memory: blank on the page" in device["not_known"]
    assert found["reason"] == "no recommendation: the memory of NVIDIA H200 is blank on the page of devices"


@pytest.mark.slow
def test_the_memory_of_each_of_two_processes_is_that_of_one_and_its_share(rings, cli):
    sizes = ("--set", "batch_size=16", "--set", "accumulate=2")
    alone, several = (
        cli("plan", "--json", "--project", rings.root, *sizes, *more).json for more in ((), ("--set", "launch.processes=2"))
    )
    assert several["processes"] == 2
    for part in ("weights", "optimizer"):
        assert several["memory"][part] == alone["memory"][part]
    # One micro-batch each: the second sum of gradients that one process holds is the other one's.
    assert several["memory"]["gradients"] == pytest.approx(alone["memory"]["gradients"] / 2)
    known = {row["name"] for row in several["ways"] if row["peak"] is not None}
    assert {"as it is", "ZeRO-1 over 2", "FSDP2 over 2"} <= known


@pytest.mark.slow
def test_a_devices_table_shows_no_time_of_this_machine(rings, cli):
    found = cli("plan", "--json", "--project", rings.root, "--set", "batch_size=32", "--device", "NVIDIA A100 SXM 80GB").json
    assert found["measured"]["step"] is not None
    assert [row["step"] for row in found["ways"]] == [None] * len(found["ways"])
    assert "utilization was not measured" in found["ways"][0]["step_not_known"]
    said = cli("plan", "--project", rings.root, "--set", "batch_size=32", "--device", "NVIDIA A100 SXM 80GB").out
    assert "measured on this machine: a step takes" in said


@pytest.mark.slow
@pytest.mark.long
def test_a_devices_memory_holds_neither_checkpoints_nor_python(rings, cli):
    found = cli("plan", "--json", "--project", rings.root, "--set", "batch_size=32", "--device", "NVIDIA T4").json
    peak = found["ways"][0]["peak"]
    assert peak["framework"] == peak["fragmentation"] == 0
    assert peak["total"] == peak["high"] < found["memory"]["tensors"]
    assert found["reason"] == "the config fits into 90% of NVIDIA T4's 16 GiB as it is: nothing to set"


@pytest.mark.slow
def test_a_task_that_looks_at_numbers_is_told_as_not_known(tmp_path, cli, tools_here):
    source = TASK.replace("        time.sleep(self.pause)", "        time.sleep(self.pause * float(outputs.sum()))")
    project = write_rings(tmp_path, source)
    said = cli("plan", "--project", project.root, code=0, out="memory: not known")
    assert "no recommendation: DataDependentOutputException" in said.out


@pytest.mark.slow
@pytest.mark.long
def test_recommended_keys_are_written_with_those_that_were_asked_about(rings, cli):
    asked = ["--set", "batch_size=16", "--set", "accumulate=4", "--set", "optimizer.lr=0.002"]
    cli("plan", "--apply", "--project", rings.root, *asked, code=0, out="written: configs/baseline_template.yaml")
    written = yaml.safe_load((rings.root / "configs/baseline_template.yaml").read_text())
    assert (written["batch_size"], written["accumulate"], written["optimizer"]["lr"]) == (64, 1, 0.002)
