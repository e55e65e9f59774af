"""`mltrainer ablate`: which config it takes, what it writes, that it touches no gate; and real runs, interrupted and gone on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

import mltrainer
from mltrainer.companions.questions.ablation import DATA, PAGE, ablate, components
from mltrainer.errors import InputError
from mltrainer.project.engine import write
from mltrainer.records.job import AblationJob
from mltrainer.reproducibility.code import source
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import Project, digest, read_json, seal, sha256_file, write_json
from tests.conftest import Cli, commit
from tests.projects import TASK, recorded, results, write_rings

Values = Callable[[int, int], float | None]  # of a side, from 0 for the whole config, and of a seed's number


def invented(values: Values, jobs: list[dict[str, Any]]) -> Any:
    """Return what takes the tool's place and trains nothing."""

    def launch(project: Project, tool: str, job: AblationJob, on_event: Any, variables: Any = None, **_: Any) -> None:
        assert tool == "ablation_study"
        jobs.append(job.written())
        sides = [[_run(values(side, nr)) for nr in range(job.seeds)] for side in range(1 + len(job.variants))]
        write_json(project.root / job.folder / "result.json", {"seeds": [*range(job.seeds)], "sides": sides})

    return launch


def _run(value: float | None) -> dict[str, Any]:
    reason = "the loss was not finite at step 3 | <b>" if value is None else None
    found = {"state": "failed" if reason else "finished", "value": "nan" if value is None else value, "reason": reason}
    return {**found, "run": "0123456789ab", "parameters": 10, "weights_sha256": None, "step_us": 10.0, "wall_s": 1.0}


def steady(side: int, seed: int) -> float:
    """The first component that is taken out helps, the others do nothing."""
    return 0.9 + 0.01 * (seed % 3) - (0.1 + 0.001 * seed if side == 1 else 0.0)


def run(
    project: Project, *asked: Any, values: Values = steady, seeds: int | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Ablate without training; return the table and the job."""
    jobs: list[dict[str, Any]] = []
    found = ablate(Tools(project, lambda event: None, invented(values, jobs)), *asked, seeds=seeds)
    return found.written(), jobs[0]


def page(project: Project) -> str:
    return (project.phase_dir("optimization") / PAGE).read_text()


# --- what is compared -----------------------------------------------------------------------------


def test_before_planning_it_says_what_to_do(tmp_path, cli):
    project = write_rings(tmp_path)
    said = cli("ablate", "--project", project.root, code=4, err="an ablation is locked: planning has not run")
    assert "next: mltrainer phase run planning" in said.err


@pytest.mark.slow
def test_the_config_is_what_optimization_decided_else_the_planned_one(digits):
    found, job = run(digits, "clip")
    about = {"why": "the gate of optimization holds", "folds": 0, "program": False}
    assert found["config"] == {"file": "phases/04_optimization/final_config.yaml", **about}
    assert job["config"]["epochs"] == 12
    (digits.phase_dir("optimization") / "record.json").unlink()
    found, _ = run(digits, "clip")
    about = {"why": "optimization has not run", "folds": 0, "program": False}
    assert found["config"] == {"file": "phases/01_planning/training_config.yaml", **about}


@pytest.mark.slow
def test_all_components_are_compared_on_as_many_seeds_as_can_show_each(digits):
    found, job = run(digits)
    assert [row["name"] for row in found["rows"]] == ["weight decay", "learning-rate schedule", "warm-up", "gradient clipping"]
    assert (job["seeds"], found["fewest_seeds"], found["comparisons"], found["runs"]) == (7, 7, 4, 35)
    assert [row["verdict"] for row in found["rows"]] == ["helps", *["no difference"] * 3]
    assert found["rows"][1]["keys"] == [{"key": "schedule.name", "before": "cosine", "after": "constant"}]


@pytest.mark.slow
def test_runs_are_named_like_any_other_and_keep_only_best_and_last(digits):
    planned = recorded(digits, "planning")
    _, job = run(digits, "clip", seeds=2)
    assert job["contract"]["data_sha256"] == planned["evidence"]["data"]["sha256"]
    assert set(job["contract"]) == {"data_sha256", "code_sha256", "environment_sha256"}
    assert job["config"]["checkpoint"]["keep"] == 0
    assert job["phase"] == "ablation"


@pytest.mark.slow
def test_runs_are_held_to_the_files_that_planning_saw_opened(digits):
    teacher = digits.root / "teacher.pt"
    teacher.write_bytes(b"abc")
    row = {"path": "teacher.pt", "sha256": sha256_file(teacher), "size": 3}
    record = recorded(digits, "planning")
    record["evidence"]["opened"] = [row]
    write(digits, "planning", seal(record))
    _, job = run(digits, "clip", seeds=2)
    assert job["input_files"] == [row]
    assert job["contract"]["inputs_sha256"] == digest([row["sha256"]])


@pytest.mark.slow
@pytest.mark.parametrize("wish", ["model.dropuot=0.3", "clip=3", "seed=1"])
def test_a_swap_that_cannot_be_is_refused_before_anything_is_written(digits, cli, wish):
    cli("ablate", wish, "--project", digits.root, code=1, err=wish.partition("=")[0])
    assert not (digits.phase_dir("optimization") / PAGE).exists()


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [0, 1, 21])
def test_seeds_that_the_test_cannot_take_are_refused(digits, seeds):
    with pytest.raises(InputError, match=f"expected 2 to 20 seeds, found {seeds}"):
        run(digits, "clip", seeds=seeds)


@pytest.mark.slow
def test_a_secret_is_neither_written_nor_run(digits):
    with pytest.raises(InputError, match="the config contains a secret"):
        run(digits, {"gradient_checkpointing": ["AKIA" + "IOSFODNN7QXAMPLE"]})


def test_the_list_trains_nothing_and_tells_how_long_it_would_take(digits, cli):
    said = cli("ablate", "--list", "--project", digits.root, code=0, out="gradient clipping")
    assert "35 runs: the whole config and 4 swaps on 7 seeds; about " in said.out
    found = components(Tools(digits, lambda event: None, invented(steady, [])), "clip", seeds=6).written()
    assert (found["runs"], found["seeds"]) == (12, 6)
    assert found["about_s"] == pytest.approx(found["run_s"] * 12 / found["workers"])


def test_the_list_shows_the_options_of_a_task_of_ones_own_and_how_one_is_swapped(tmp_path, cli):
    task = {"use": "my_task:Rings", "options": {"n": 100, "pause": 0.0}}
    project = write_rings(tmp_path / "rings", TASK, task=task)
    cli("phase", "run", "planning", "--project", project.root, "--set", "epochs=2", "--set", "batch_size=16", code=0)
    said = cli("ablate", "--list", "--project", project.root, code=0).out
    assert "task.options.n" in said
    assert "Compare another value: mltrainer ablate task.options.n=VALUE" in said
    listed = cli("ablate", "--list", "--json", "--project", project.root).json
    assert listed["options"] == [{"key": "task.options.n", "value": 100}, {"key": "task.options.pause", "value": 0.0}]
    assert not any(key["key"].startswith("task.") for swap in listed["swaps"] for key in swap["keys"])
    swapped = cli("ablate", "--list", "task.options.n=50", "--json", "--project", project.root).json
    assert swapped["swaps"][0]["keys"] == [{"key": "task.options.n", "before": 100, "after": 50}]


# --- what it leaves -------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_gate_and_no_record_changes_and_nothing_asks_for_a_commit(digits, cli):
    commit(digits.root)
    before = cli("gate", "check", "--json", "--project", digits.root).json
    records = {path: path.read_bytes() for path in digits.root.glob("phases/*/record.json")}
    run(digits)
    assert cli("gate", "check", "--json", "--project", digits.root).json == before
    assert {path: path.read_bytes() for path in digits.root.glob("phases/*/record.json")} == records
    assert source(digits.root, []).dirty is False


@pytest.mark.slow
def test_the_page_shows_the_table_its_figure_and_how_to_repeat_it(digits):
    table, _ = run(digits)
    text = page(digits)
    assert "# Ablation: digits" in text
    assert "1 is shown to make a difference: weight decay (helps)." in text
    assert "| weight decay | optimizer.weight_decay: 0.01 → 0 | 0.806 | -0.103 |" in text
    assert "mltrainer ablate --seeds 7" in text
    assert "corrected for 4 comparisons (Holm, 1979)" in text
    assert table == read_json(digits.phase_dir("optimization") / DATA)
    figure = ElementTree.fromstring((digits.phase_dir("optimization") / "ablation.svg").read_text())
    assert {"weight decay", "gradient clipping", "change of accuracy by the swap"} <= {element.text for element in figure}


@pytest.mark.slow
def test_what_is_better_without_comes_with_the_command_that_leaves_it_out(digits):
    def better(side: int, seed: int) -> float:
        return 1.8 - steady(side, seed)

    found, _ = run(digits, "schedule.name", values=better)
    keys = "--set 'schedule.name=\"constant\"' --set schedule.warmup_epochs=1.0 --set schedule.warmup_steps=0"
    assert found["rows"][0]["command"].startswith(f"mltrainer phase run finalization {keys}")
    assert found["rows"][0]["command"] in page(digits)
    (digits.phase_dir("optimization") / "record.json").unlink()
    found, _ = run(digits, "schedule.name", values=better)
    assert found["rows"][0]["command"].startswith(f"mltrainer phase run planning {keys}")


@pytest.mark.slow
def test_the_same_runs_give_the_same_bytes(digits):
    folder = digits.phase_dir("optimization")
    files = [folder / name for name in (PAGE, DATA, "ablation.svg")]
    run(digits)
    before = [path.read_bytes() for path in files]
    run(digits)
    assert [path.read_bytes() for path in files] == before


@pytest.mark.slow
def test_a_failed_training_is_told_in_every_place_and_acts_in_none(digits, cli, monkeypatch):
    jobs: list[dict[str, Any]] = []
    launch = invented(lambda side, seed: None if (side, seed) == (1, 2) else 0.9, jobs)
    monkeypatch.setattr("mltrainer.runs.launcher.launch", launch)
    said = cli("ablate", "clip", "warm-up", "--seeds", "6", "--project", digits.root, code=0)
    assert "fails: 1 of 6 trainings failed: the loss was not finite at step 3 | <b>" in said.out
    assert "## Trainings that failed" in page(digits)
    assert "<b>" not in page(digits)
    found = cli("ablate", "clip", "warm-up", "--seeds", "6", "--json", "--project", digits.root).json
    assert found["rows"][0]["failed"] == [{"seed": 2, "reason": "the loss was not finite at step 3 | <b>"}]


@pytest.mark.slow
def test_a_config_that_fails_whole_is_told_first(digits):
    run(digits, values=lambda side, seed: None if side == 0 else 0.9)
    assert "The whole config could not be trained on 7 seeds, so that nothing is compared" in page(digits)


@pytest.mark.slow
def test_where_all_trainings_with_a_swap_failed_an_earlier_page_stays(digits, cli, monkeypatch):
    run(digits, "clip", "warm-up", seeds=2)
    folder = digits.phase_dir("optimization")
    before = {name: (folder / name).read_bytes() for name in (PAGE, DATA, "ablation.svg")}
    monkeypatch.setattr("mltrainer.runs.launcher.launch", invented(lambda side, seed: None if side else 0.9, []))
    said = cli("ablate", "model.dropout=0.9", "clip", "--seeds", "2", "--project", digits.root, code=1)
    assert "mltrainer ablate model.dropout=0.9: all 4 trainings with a swap failed: the loss was not finite at step 3" in said.err
    assert {name: (folder / name).read_bytes() for name in before} == before


@pytest.mark.slow
def test_python_has_it_too(digits, monkeypatch):
    monkeypatch.setattr("mltrainer.runs.launcher.launch", invented(steady, []))
    project = mltrainer.Project(digits.root)
    found = project.ablate("clip", {"model.dropout": 0.3}, seeds=6, tell=lambda event: None)
    assert [row["name"] for row in found["rows"]] == ["gradient clipping", "model.dropout=0.3"]
    assert project.components("clip")["runs"] == 10
    assert "clip model.dropout=0.3 --seeds 6" in found["command"]


def test_a_baseline_of_another_trainer_is_not_compared(digits, monkeypatch):
    monkeypatch.setattr("mltrainer.companions.questions.variants.trained_by", lambda *_: SimpleNamespace(tool="another"))
    with pytest.raises(InputError, match="baseline is trained by another"):
        run(digits)


@pytest.mark.slow
def test_torch_stays_out_of_the_commands_process(digits):
    code = "import sys; from mltrainer.cli.main import run; run(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    arguments = ("ablate", "--list", "--project", str(digits.root))
    assert subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True).returncode == 0


# --- real runs ------------------------------------------------------------------------------------


@pytest.fixture
def rings(tmp_path: Path, cli: Cli) -> Project:
    """A planned project whose batches take a while."""
    options = {"use": "my_task:Rings", "options": {"n": 100, "pause": 0.05}}
    project = write_rings(tmp_path / "rings", TASK, task=options)
    changes = ("--set", "epochs=2", "--set", "batch_size=16")
    cli("phase", "run", "planning", "--project", project.root, *changes, code=0)
    return project


def command(project: Project, *more: str) -> list[str]:
    return [sys.executable, "-m", "mltrainer", "ablate", "clip", "optimizer.lr=1e30", "--seeds", "2", *more]


@pytest.mark.slow
@pytest.mark.long
def test_an_interrupted_ablation_goes_on_repeats_nothing_and_its_runs_are_like_any_other(rings, cli):
    process = subprocess.Popen(command(rings), cwd=rings.root, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    while process.poll() is None and not results(rings):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert not (rings.phase_dir("optimization") / PAGE).exists()
    kept = {path: path.stat().st_mtime for path in rings.runs_dir.glob("*/result.json") if read_json(path)["state"] == "finished"}
    done = subprocess.run(command(rings, "--json"), cwd=rings.root, capture_output=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert kept.items() <= {path: path.stat().st_mtime for path in rings.runs_dir.glob("*/result.json")}.items()
    assert [row["verdict"] for row in found["rows"]] in (["no difference", "fails"], ["no difference shown", "fails"])
    assert len(results(rings)) == 6
    assert len({row["data_sha256"] for row in results(rings).values()}) == 1
    assert {row["seed"] for row in results(rings).values()} == set(found["seeds"])
    name = found["whole"]["runs"][0]
    assert cli("reproduce", name, "--json", "--project", rings.root).json["identical"] is True
    before = {path: path.stat().st_mtime for path in rings.runs_dir.glob("*/result.json")}
    shutil.rmtree(rings.state_dir / "ablations")
    again = subprocess.run(command(rings, "--json"), cwd=rings.root, capture_output=True, env=os.environ)
    assert json.loads(again.stdout) == found
    assert {path: path.stat().st_mtime for path in rings.runs_dir.glob("*/result.json")} == before
