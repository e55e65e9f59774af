"""Exploring: learning rates, batch sizes and a step's time, from real steps that leave no trace."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from mltrainer.companions.questions import exploration
from mltrainer.companions.questions.catalogue import EXPLORED
from mltrainer.companions.questions.findings import ExplorerSettings
from mltrainer.companions.questions.measurements import batch_size as measure
from mltrainer.configs.pages import peak_flops_per_s, tool_page
from mltrainer.errors import KilledError
from mltrainer.phases import present_config
from mltrainer.records.reading import sound_record
from mltrainer.runs import launcher
from mltrainer.runs.launcher import tools_of
from mltrainer.tools.program import Events
from mltrainer.workspace import Project, locked
from tests.conftest import Cli
from tests.projects import TASK, results, write_rings

SECRET = "AKIA" + "IOSFODNN7QXAMPLE"  # put together here, so that no scanner takes this file for a leak


@pytest.fixture
def new(tmp_path: Path, tools_here: None) -> Project:
    """A project in which no phase has run."""
    return write_rings(tmp_path / "new")


@pytest.fixture
def rings(new: Project, cli: Cli) -> Project:
    """A planned project."""
    cli("phase", "run", "planning", "--project", new.root, "--set", "epochs=2", code=0)
    return new


def contents(project: Project) -> dict[str, bytes]:
    """Return every file of a project outside the explorer's folders."""
    scratch = [project.state_dir / name for name in ("lr_find", "batch_size", "profile")]
    paths = (p for p in project.root.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {project.relative(p): p.read_bytes() for p in paths if not any(p.is_relative_to(s) for s in scratch)}


# --- learning rates -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_after_a_range_test_has_the_weights_of_one_without_it(rings, cli):
    twin = Project(Path(shutil.copytree(rings.root, rings.root.with_name("twin"))))
    before, status = contents(rings), cli("status", "--json", "--project", rings.root).json
    found = cli("lr-find", "--json", "--project", rings.root).json
    assert found["state"]["before"] == found["state"]["after"]
    assert found["state"]["changed"] == []
    assert contents(rings) == before
    assert cli("status", "--json", "--project", rings.root).json == status
    cli("gate", "check", "--project", rings.root, code=0)
    for project in (rings, twin):
        cli("phase", "run", "baseline", "--project", project.root, code=0)
    (run, explored), (other, plain) = (next(iter(results(p).items())) for p in (rings, twin))
    assert (run, explored["weights_sha256"], explored["chain"]) == (other, plain["weights_sha256"], plain["chain"])


@pytest.mark.slow
def test_a_suggestion_comes_with_its_reason_its_figure_and_what_to_type(new, cli):
    said = cli("lr-find", "--project", new.root, "--set", "batch_size=32", "--set", "seed=3", code=0)
    assert "the loss falls steepest at" in said.out
    assert "next: mltrainer phase run planning --set batch_size=32 --set seed=3 --set optimizer.lr=" in said.out
    found = json.loads((new.state_dir / "lr_find/result.json").read_bytes())
    assert f"figure: {found['figure']}" in said.out
    ElementTree.fromstring((new.root / found["figure"]).read_text())
    assert 1e-4 < found["suggestion"] < 1
    assert found["rates"][0] == 1e-7
    assert not new.phase_dir("planning").exists()


@pytest.mark.slow
def test_the_range_test_gives_the_same_numbers_again(new, cli):
    first, second = (cli("lr-find", "--json", "--steps", "20", "--project", new.root).json for _ in range(2))
    assert first == {**second, "state": first["state"]}


@pytest.mark.slow
def test_a_loss_that_never_falls_gets_no_suggestion(new, cli):
    said = cli("lr-find", "--to", "1e-6", "--project", new.root, code=0, out="No suggestion: the loss never fell clearly")
    assert "next:" not in said.out


@pytest.mark.slow
def test_a_loss_that_is_not_a_number_is_told(tmp_path, cli, tools_here):
    project = write_rings(
        tmp_path, TASK.replace("cross_entropy(outputs, targets)", "cross_entropy(outputs, targets) * float('nan')")
    )
    found = cli("lr-find", "--json", "--project", project.root).json
    assert (found["suggestion"], found["losses"], found["stopped"]) == (None, ["nan"], True)
    assert "not a finite number before any step" in found["reason"]
    cli("lr-find", "--project", project.root, code=0)


@pytest.mark.slow
def test_groups_keep_their_share_of_the_rate(new, cli):
    frozen = "optimizer.groups=[{match: '.*', lr: 0.0}]"
    assert cli("lr-find", "--json", "--project", new.root, "--set", frozen).json["suggestion"] is None


# --- batch sizes ----------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "MOST", 4)


def test_no_batch_size_is_begun_that_would_go_beyond_the_minutes(new, cli, quick):
    found = cli("batch-size", "--from", "16", "--minutes", "0", "--json", "--project", new.root).json
    assert [row["batch_size"] for row in found["sizes"]] == [16]  # the first one is always measured
    assert found["stopped"] == "32 would go beyond 0 s; --minutes allows more"


def test_the_explorers_page_says_how_long_it_may_take(new):
    assert tool_page("training_explorer", new.root).settings["minutes"] > 0


def test_batch_sizes_are_measured_up_to_the_samples(new, cli, quick):
    found = cli("batch-size", "--from", "32", "--json", "--project", new.root).json
    assert [row["batch_size"] for row in found["sizes"]] == [32, 64, 128]
    assert all(row["samples_per_s"] > 0 and row["peak_mb"] > 10 for row in found["sizes"])
    assert (found["largest"], found["state"]["changed"]) == (128, [])
    assert found["suggestion"] in (32, 64, 128)
    assert "210 training samples" in found["stopped"]


def test_a_size_that_does_not_fit_ends_it_and_the_largest_that_fits_is_told(new, cli, quick, monkeypatch):
    source = TASK.replace(
        "def loss(self, outputs, targets):",
        "def loss(self, outputs, targets):\n        if outputs.requires_grad and len(targets) > 32: raise MemoryError",
    )
    (new.root / "my_task.py").write_text(source)
    said = cli("batch-size", "--from", "16", "--project", new.root, code=0, out="64 does not fit into the memory")
    assert "largest that fits" in next(line for line in said.out.splitlines() if line.strip().startswith("32 "))


def test_a_size_beyond_the_memorys_share_is_not_tried(new, cli, quick, monkeypatch):
    peaks = iter([100.0, 200.0])
    monkeypatch.setattr(measure, "memory_mb", lambda device: 400.0)
    monkeypatch.setattr(measure, "peak_mb", lambda device: next(peaks))
    found = cli("batch-size", "--from", "16", "--json", "--project", new.root).json
    assert (found["largest"], found["stopped"]) == (32, "64 would take about 400 MiB of 360 MiB")


@pytest.mark.parametrize("command", ["lr-find", "profile"])
def test_a_killed_process_is_told_without_a_checkpoint_that_never_was(command, new, cli, monkeypatch):
    def killed(*_: Any, **_options: Any) -> None:
        raise KilledError("the tool was killed (signal 9)", hint="type the same command again to go on from the last checkpoint")

    monkeypatch.setattr(launcher, "launch", killed)
    told = cli(command, "--project", new.root)
    assert "checkpoint" not in told.err
    assert "lower batch_size" in told.err


def test_a_killed_process_leaves_what_it_had_measured(new, cli, monkeypatch):
    def killed(project: Project, tool: str, job: dict[str, Any], on_event: Any, *_: Any, **_options: Any) -> None:
        on_event({"event": "size", "batch_size": 8, "step_us": 100.0, "samples_per_s": 80000.0, "peak_mb": 300.0})
        raise KilledError("the tool was killed (signal 9)")

    monkeypatch.setattr(launcher, "launch", killed)
    found = cli("batch-size", "--json", "--project", new.root).json
    assert (found["largest"], found["suggestion"]) == (8, 8)
    assert found["stopped"].startswith("16 does not fit: the system killed the process")


@pytest.mark.slow
def test_throughput_is_not_more_than_the_loader_processes_can_read(new, cli, quick, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})  # they sleep, so any machine runs them side by side
    slow = TASK.replace("        noise = np", "        import time\n        time.sleep(0.005)\n        noise = np")
    (new.root / "my_task.py").write_text(slow)
    line = ("batch-size", "--from", "16", "--json", "--set", "loader.workers=4")
    rates = [row["samples_per_s"] for row in cli(*line, "--project", new.root).json["sizes"]]
    assert len(rates) == 4
    assert max(rates) < 1.1 * 4 / 0.005


# --- a step's time --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_profile_tells_where_the_time_goes(new, cli):
    slow = TASK.replace("time.sleep(self.pause)", "time.sleep(0.05)")
    (new.root / "my_task.py").write_text(slow)
    found = cli("profile", "--json", "--steps", "6", "--project", new.root).json
    shares = {row["name"]: row["share"] for row in found["sections"]}
    assert list(shares) == ["data", "forward", "backward", "optimizer", "other"]
    assert sum(shares.values()) == pytest.approx(1)
    assert max(shares, key=lambda name: shares[name]) == "forward"
    assert next(r["us"] for r in found["sections"] if r["name"] == "forward") > 50_000
    assert found["step_us"] >= max(row["us"] for row in found["sections"])
    assert (found["steps"], len(found["operators"]), found["host_waits"]) == (6, 10, None)
    samples = round(found["speed"]["samples_per_s"] * found["step_us"] * 1e-6)
    # Two layers, 2 -> 32 -> 2: their products and both gradients of the weights, but for the inputs the second one's alone.
    assert found["speed"]["flops"] == samples * 2 * (2 * 64 + 2 * 64 + 64)
    assert 0 < found["utilization"] < 1
    assert found["state"]["changed"] == []


@pytest.mark.parametrize(
    ("device", "precision", "peak"),
    [
        ("NVIDIA A100 SXM 80GB", "bf16", 312e12),
        ("NVIDIA A100 SXM 80GB", "fp32", 19.5e12),
        ("NVIDIA H200", "bf16", None),
        ("x", "fp32", None),
    ],
)
def test_a_gpus_peak_is_its_pages(tmp_path, device, precision, peak):
    assert peak_flops_per_s(device, precision, tmp_path) == peak


def test_a_file_of_a_lock_is_no_change_of_the_project(new):
    before = exploration.files(new, new.state_dir / "profile")
    new.state_dir.mkdir(exist_ok=True)
    for name in ("lock", "tried.lock"):
        (new.state_dir / name).touch()
    assert exploration.files(new, new.state_dir / "profile") == before
    (new.root / "mine.lock").touch()
    assert exploration.files(new, new.state_dir / "profile") != before


@pytest.mark.slow
def test_samples_are_read_by_as_many_processes_as_planning_found(rings, monkeypatch):
    def workers() -> object:
        with tools_of(rings, print) as tools:
            return present_config.present_config(tools, ("loader.workers=auto",)).loader.workers

    planned = sound_record(rings, "planning")
    evidence = planned.evidence.model_copy(update={"loader": planned.evidence.loader.model_copy(update={"workers": 3})})
    changed = planned.model_copy(update={"evidence": evidence})
    monkeypatch.setattr(present_config, "sound_record", lambda project, phase: changed)
    assert workers() == 3
    monkeypatch.setattr(present_config, "sound_record", lambda project, phase: None)
    assert workers() == 0


@pytest.mark.slow
def test_more_steps_than_the_config_has_are_profiled(new, cli):
    short = (
        "--set",
        "epochs=1",
        "--set",
        "schedule.name=polynomial",
        "--set",
        "accumulate=2",
        "--set",
        "optimizer.sam={rho: 0.05}",
    )
    found = cli("profile", "--json", "--steps", "3", "--project", new.root, *short).json
    assert (found["steps"], min(row["us"] for row in found["sections"]) > 0) == (3, True)


@pytest.mark.slow
def test_the_trace_can_be_read_by_viewers(new, cli):
    said = cli("profile", "--steps", "2", "--project", new.root, out="operator")
    assert "trace: .mltrainer/profile/trace.json" in said.out
    events = json.loads((new.state_dir / "profile/trace.json").read_bytes())["traceEvents"]
    assert {"data", "forward", "backward", "optimizer", "other"} <= {event.get("name") for event in events}


# --- what goes wrong ------------------------------------------------------------------------------

COMMANDS = ("lr-find", "batch-size", "profile")
MISTAKES = {
    "lr-find --from 1 --to 0.1": "--from 1 is not below --to 0.1",
    "lr-find --set optimizer.rate=1": "unknown key 'rate'",
    "batch-size --set epochs=0": "greater than or equal to 1",
    "profile --set nonsense": "--set: expected KEY=VALUE, found nonsense",
    f"profile --set task.options.cloud={SECRET}": "the config contains a secret (AWS access key)",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_named_and_nothing_is_written(new, cli, line):
    said = cli(*line.split(), "--project", new.root)
    assert (said.code, MISTAKES[line] in said.err, "Traceback" in said.err) == (1, True, False)
    assert sorted(path.name for path in new.state_dir.iterdir()) in ([], ["lock"]) if new.state_dir.exists() else True


def test_a_last_batch_of_one_sample_that_cannot_be_normalized_is_told(new, cli):
    said = cli("profile", "--set", "batch_size=11", "--project", new.root)  # 210 are 19 times 11, and 1
    assert (said.code, "batch_size: a batch of one sample" in said.err) == (1, True)


def test_a_rate_too_small_to_be_multiplied_is_wrong_usage(new, cli):
    cli("lr-find", "--from", "5e-324", "--project", new.root, code=2, err="greater than or equal to")


def test_a_fault_of_the_users_code_is_named_with_its_line(new, cli):
    (new.root / "my_task.py").write_text(TASK.replace("import time\n", "raise ValueError('no such thing')\n"))
    for command in COMMANDS:
        said = cli(command, "--project", new.root)
        assert (said.code, "my_task.py:" in said.err, "no such thing" in said.err) == (1, True, True)


def test_a_project_in_use_is_not_explored(new, cli):
    with locked(new.state_dir / "lock", "the project"):
        cli("profile", "--project", new.root, code=6)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_stop_leaves_nothing_behind(new, cli, monkeypatch, command):
    monkeypatch.setattr(Events, "listener_gone", True)
    cli(command, "--project", new.root, code=143, err="stopped by SIGTERM")
    assert sorted(path.name for path in new.state_dir.iterdir()) == ["lock"]


@pytest.mark.slow
def test_a_file_that_changes_meanwhile_is_told_and_a_servers_answers_are_not(new, cli):
    written = "".join(f"pathlib.Path('{name}').write_text('x')\n" for name in ("notes.txt", ".mltrainer/served.sqlite-wal"))
    (new.root / "my_task.py").write_text(f"{TASK}\nimport pathlib\n{written}")
    said = cli("profile", "--steps", "1", "--project", new.root, code=0)
    assert "these files changed meanwhile, by somebody else or by your code: notes.txt" in said.out
    assert "served" not in said.out


# --- policy and weight ----------------------------------------------------------------------------


def test_every_number_of_the_tools_page_is_read():
    folder = Path(exploration.__file__).parent
    paths = [path for name in EXPLORED.values() for path in (folder / f"{name}.py", folder / f"measurements/{name}.py")]
    source = "".join(path.read_text() for path in paths)
    read = set(re.findall(r"(?:\bsettings|limits|job\.settings\))\.(\w+)", source))
    assert read == set(ExplorerSettings.model_fields) == set(tool_page("training_explorer", None).settings)


@pytest.mark.slow
def test_the_commands_own_process_does_not_import_torch():
    code = "import sys, mltrainer.companions.questions.learning_rate\nassert not {'torch', 'numpy'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
