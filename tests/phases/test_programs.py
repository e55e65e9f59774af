"""A program that trains by itself through the five phases, and what is caught of one that cannot be relied on."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mltrainer
from mltrainer.errors import InputError
from mltrainer.gates.checks import run_check
from mltrainer.gates.gate import Gate, check_gates
from mltrainer.records.envelope import parsed
from mltrainer.records.reading import read_record, read_records
from mltrainer.workspace import Project
from tests.conftest import Cli, commit, shared, succeed
from tests.projects import evidence_of
from tests.sample_programs import PROGRAM, write_program
from tests.waiting import until

pytestmark = pytest.mark.slow
OFFERED = "the program does not offer it"


def _walked(folder: Path) -> None:
    write_program(folder)
    data = (folder / "validation.csv").read_bytes()
    (folder / "validation.csv").unlink()
    commit(folder, new=True)
    (folder / "validation.csv").write_bytes(data)  # not committed, and opened only after the steps that planning sees
    succeed("run", "--project", folder)


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A program through all five phases; not to be changed."""
    return Project(shared(tmp_path_factory, "program", _walked))


@pytest.fixture
def finished(walked: Project, tmp_path: Path) -> Project:
    """A copy of it, for a test to break."""
    shutil.copytree(walked.root, tmp_path / "program", symlinks=True)
    return Project(tmp_path / "program")


def gate(project: Project, phase: str) -> Gate:
    return next(gate for gate in check_gates(project) if gate.phase == phase)


def verdicts(found: Gate) -> dict[str, str]:
    return {item.id: item.verdict for item in found.items}


def test_a_program_walks_the_five_phases_and_what_it_cannot_show_does_not_apply(walked):
    gates = check_gates(walked)
    assert all(one.holds for one in gates), [(one.phase, one.stale, verdicts(one)) for one in gates]
    apart = {i.id: i.evidence["rule"] for one in gates for i in one.items if i.verdict == "not_applicable" and not one.skipped}
    assert {"seeds_fixed", "determinism_on", "export_rehearsed", "checkpoints_verified", "exports_agree"} <= apart.keys()
    assert {"time_within_budget", "test_opened_once"} <= apart.keys()
    assert all(rule.startswith(OFFERED) for rule in apart.values())
    report = (walked.phase_dir("planning") / "reproducibility_manifest.md").read_text()
    assert OFFERED in report
    assert "samples of" not in report


UNTRUE = (
    *("Exports, read back", "split's openings", "interruption)", "switches read back", "planned epochs"),
    *("before its first evaluation", "(0 samples)", "<code></code>"),
)
NUMBER_THAT_IS_NONE = re.compile(r"(?::|\||is|was|began at|ended at) nan\b(?! or| loss| in)", re.IGNORECASE)


def test_no_report_says_what_is_not_true_of_a_program_or_gives_a_number_that_nobody_knows(walked):
    for path in sorted((walked.root / "phases").rglob("*.md")):
        text = path.read_text()
        assert [sentence for sentence in UNTRUE if sentence in text] == [], path
        assert [line for line in text.splitlines() if NUMBER_THAT_IS_NONE.search(line)] == [], path


def test_the_record_holds_what_was_observed(walked):
    planned, run = evidence_of(walked, "planning"), evidence_of(walked, "baseline")["run"]
    assert [row["path"] for row in planned["data"]["files"]] == ["train.csv"]
    assert [row["path"] for row in run["program"]["read"]] == ["train.csv", "validation.csv"]
    assert [row["path"] for row in run["code_files"]] == ["train.py"]
    assert (run["steps"], run["layers"], run["parameters"]) == (48, ["0.weight", "2.weight"], 82)
    assert [row["epoch"] for row in run["history"]] == [1, 2, 3, 4]
    assert all(row["lr"] == 0.1 and row["train_loss"] > 0 and row["grad_norm"]["max"] > 0 for row in run["history"])
    assert run["metrics"] == {"accuracy": run["history"][-1]["validation"]["accuracy"]} | {
        "train_accuracy": run["history"][-1]["train"]["accuracy"]
    }
    assert run["program"]["losses"] == 48


def test_data_that_git_does_not_know_needs_no_commit(walked):
    records = read_records(walked)
    sources = [records[phase].data["source"] for phase in ("planning", "baseline", "finalization")]
    assert [(found["dirty"], found["untracked"]) for found in sources] == [(False, 1)] * 3
    assert verdicts(gate(walked, "finalization"))["source_committed"] == "pass"


def test_what_the_program_left_is_delivered_as_it_is(walked):
    final = evidence_of(walked, "finalization")
    folder = walked.phase_dir("finalization") / "final_model"
    kept = walked.root / final["run"]["program"]["outputs"][0]["path"]
    assert (folder / "model.pt").read_bytes() == kept.read_bytes()
    assert final["reproduction"]["outputs"] == {"model.pt": True}
    assert "python train.py --seed 42 --epochs 4 --lr 0.1" in (folder / "README.md").read_text()
    assert "AdamW" not in (folder / "README.md").read_text()


def test_each_file_that_the_whole_program_opened_is_bound_by_the_baseline(walked):
    found = gate(walked, "baseline")
    [item] = [item for item in found.items if item.id == "inputs_planned"]
    read = {row["path"] for row in evidence_of(walked, "baseline")["run"]["program"]["read"]}
    assert "validation.csv" in read
    assert (item.verdict, item.evidence) == ("pass", {"opened": len(read), "unbound": []})
    whole, _ = parsed(
        {**found.record.data, "inputs": [r for r in found.record.data["inputs"] if r["path"] != "validation.csv"]}, "baseline"
    )
    assert run_check("inputs_planned", whole, {}).evidence["unbound"] == ["validation.csv"]


def test_of_a_program_no_checkpoint_and_no_model_is_looked_for(walked, cli):
    said = cli("checkpoints", "list", "--project", walked.root).out
    assert said.startswith("no checkpoints: the task is a program, which keeps its own")
    for run in ("final_model", "baseline"):
        with pytest.raises(InputError, match="only that program can load its files"):
            mltrainer.Project(walked.root).load_model(run)


def test_an_edited_config_is_told_by_its_key_alone(finished):
    path = finished.phase_dir("planning") / "training_config.yaml"
    path.write_text(path.read_text().replace("lr: 0.1", "lr: 0.2"))
    assert "(task.arguments.lr: 0.1 -> 0.2)" in gate(finished, "planning").stale[0]


def test_another_program_than_the_planned_one_is_no_final_model_but_other_arguments_are_told(finished, cli):
    command = ("phase", "run", "finalization", "--project", finished.root, "--set")
    cli(*command, "task.script=python other.py", code=1, err="--set task.script belongs to planning")
    assert gate(finished, "finalization").holds
    cli(*command, "task.arguments.lr=0.2", code=0)
    assert "| `task.arguments.lr` | 0.1 | 0.2 |" in (finished.phase_dir("finalization") / "final_report.md").read_text()


BROKEN = {
    "data that it read in the end": ("validation.csv", "baseline"),
    "data that it read in the beginning": ("train.csv", "planning"),
    "the program itself": ("train.py", "planning"),
    "what it computed": (".mltrainer/runs/*/chain.txt", "baseline"),
    "the delivered model": ("phases/05_finalization/final_model/model.pt", "finalization"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_was_changed_afterwards_is_caught(finished, what):
    name, phase = BROKEN[what]
    (path,) = finished.root.glob(name)
    path.write_bytes(path.read_bytes() + b"\n")
    found = gate(finished, phase)
    assert not found.holds
    assert finished.relative(path) in found.stale[0]


def test_a_result_that_was_edited_or_an_output_that_was_replaced_is_trained_again(finished, cli):
    run = evidence_of(finished, "baseline")["run"]
    output = finished.root / run["program"]["outputs"][0]["path"]
    output.write_bytes(b"another model")
    assert not gate(finished, "baseline").holds
    cli("phase", "run", "baseline", "--project", finished.root, code=0, err="has changed on disk")
    assert output.read_bytes() != b"another model"


CAUSES = {
    "an unseeded draw": ("torch.manual_seed(asked.seed)\n", "torch.seed()\n", "torch.seed"),
    "the clock": ("lr=asked.lr,", "lr=asked.lr * (1 + time.time() % 1),", "time.time"),
    "the order of a set": ("lr=asked.lr,", "lr=asked.lr * (1 + list({'no', 'yes'}).index('yes')),", "the order of {'no', 'yes'}"),
}


LONGER = ("an unseeded draw", "the clock")


@pytest.mark.parametrize("cause", ["the order of a set", *(pytest.param(cause, marks=pytest.mark.long) for cause in LONGER)])
def test_a_program_that_does_not_repeat_ends_at_planning_with_its_line(tmp_path, cli, cause):
    before, after, call = CAUSES[cause]
    assert before in PROGRAM
    project = write_program(tmp_path, PROGRAM.replace(before, after))
    cli("phase", "run", "planning", "--project", project.root, code=4)
    assert verdicts(gate(project, "planning"))["probe_identical"] == "fail"
    found = evidence_of(project, "planning")["probe"]["cause"]["calls"][0]
    assert found["call"] == call
    assert found["where"].startswith("train.py:")


@pytest.mark.long
def test_a_program_that_repeats_but_for_what_it_leaves_ends_at_finalization(tmp_path, cli):
    text = PROGRAM.replace('torch.save(model.state_dict(), "model.pt")', 'torch.save({"at": time.time()}, "model.pt")')
    project = write_program(tmp_path, text)
    cli("run", "--project", project.root, code=4)
    assert gate(project, "optimization").holds
    assert verdicts(gate(project, "finalization"))["reproduction_verified"] == "fail"
    assert evidence_of(project, "finalization")["reproduction"]["outputs"] == {"model.pt": False}


@pytest.mark.long
def test_a_program_that_can_be_gone_on_with_is_shown_to_and_one_that_forgets_is_caught(tmp_path, cli):
    good = write_program(tmp_path / "good", resume="python train.py --resume")
    cli("phase", "run", "planning", "--project", good.root, code=0)
    probe = evidence_of(good, "planning")["probe"]
    assert (probe["resumed_at"], probe["identical"]) == (28, True)
    assert verdicts(gate(good, "planning"))["time_within_budget"] == "pass"
    forgets = PROGRAM.replace('    torch.set_rng_state(saved["rng"])\n', "")
    bad = write_program(tmp_path / "bad", forgets, resume="python train.py --resume")
    cli("phase", "run", "planning", "--project", bad.root, code=4)
    assert verdicts(gate(bad, "planning"))["probe_identical"] == "fail"
    assert evidence_of(bad, "planning")["probe"]["first_difference"]["step"] == 25


def test_numbers_that_are_none_close_the_gate(tmp_path, cli):
    text = PROGRAM.replace('"accuracy": measured(*points("validation.csv"))', '"accuracy": float("nan")')
    project = write_program(tmp_path, text)
    cli("phase", "run", "planning", "--project", project.root)
    cli("phase", "run", "baseline", "--project", project.root, code=4)
    assert verdicts(gate(project, "baseline"))["losses_finite"] == "fail"


@pytest.mark.long
def test_a_program_that_tells_no_metrics_and_names_no_file_of_them_is_told(tmp_path, cli):
    project = write_program(tmp_path, metrics=None)
    cli("phase", "run", "planning", "--project", project.root, code=0)
    said = cli("phase", "run", "baseline", "--project", project.root)
    assert (said.code, "error: task.metrics: no file of metrics is named, and no callback reported accuracy" in said.err) == (
        1,
        True,
    )


FAULTS = {
    "fails": ("torch.save(model", "raise ValueError('disk')\ntorch.save(model", "ValueError: disk"),
    "writes no metrics": ('"metrics.jsonl"', '"other.jsonl"', "the program left no metrics that can be read"),
    "measures something else": ('"accuracy": measured(*', '"other": measured(*', "the last evaluation holds no number accuracy"),
    "leaves nothing": ('torch.save(model.state_dict(), "model.pt")', "", "the program left no file model.pt"),
}


@pytest.mark.long
def test_what_an_earlier_run_left_in_the_folder_is_not_taken_for_this_run_s(tmp_path, cli):
    before, after, told = FAULTS["leaves nothing"]
    project = write_program(tmp_path, PROGRAM.replace('"a" if epoch else "w"', '"a"').replace(before, after))
    (tmp_path / "model.pt").write_text("a better one")
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 1, "accuracy": 0.99}\n')
    cli("phase", "run", "planning", "--project", project.root)
    cli("phase", "run", "baseline", "--project", project.root, code=1, err=told)
    (tmp_path / "train.py").write_text(PROGRAM.replace('"a" if epoch else "w"', '"a"'))
    cli("run", "--project", project.root, "--until", "baseline")
    assert len(evidence_of(project, "baseline")["run"]["history"]) == 4


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.long
def test_what_a_program_does_wrong_is_told_and_nothing_is_recorded(tmp_path, cli, fault):
    before, after, told = FAULTS[fault]
    project = write_program(tmp_path, PROGRAM.replace(before, after))
    cli("phase", "run", "planning", "--project", project.root, code=0)
    said = cli("phase", "run", "baseline", "--project", project.root, code=1, err=told)
    assert "Traceback (most recent call last)" not in said.err.partition("it printed last")[0]
    assert read_record(project, "baseline") is None


def test_a_program_that_is_not_there_is_told_by_the_key_that_names_it(tmp_path, cli):
    project = write_program(tmp_path, resume="pyhton train.py --resume")
    said = cli("phase", "run", "planning", "--project", project.root)
    assert (said.code, "error: task.resume: there is no program 'pyhton'" in said.err) == (1, True), said.err
    project.file.write_text(project.file.read_text().replace("script: python", "script: pyhton"))
    said = cli("phase", "run", "planning", "--project", project.root)
    assert (said.code, "error: task.script: there is no program 'pyhton'" in said.err) == (1, True), said.err
    assert "after --" not in said.err


@pytest.mark.long
def test_of_a_program_that_prints_much_the_beginning_and_the_end_are_kept(tmp_path, cli):
    prints = 'print("begins")\nfor _ in range(30):\n    print("é" * 50_000)\nprint("ends", flush=True)\nx, y ='
    project = write_program(tmp_path, PROGRAM.replace("x, y =", prints, 1))
    cli("phase", "run", "planning", "--project", project.root, code=0)
    printed = (project.state_dir / "probe" / "first" / "program.txt").read_text()
    assert (printed.startswith("begins\né"), printed.endswith("é\nends\n")) == (True, True)
    assert "\n[902,890 bytes are left out here]\n" in printed
    assert len(printed.encode()) < (2 << 20) + 100


def test_data_that_changed_since_planning_is_refused(tmp_path, cli):
    project = write_program(tmp_path)
    cli("phase", "run", "planning", "--project", project.root)
    (project.root / "train.csv").write_text((project.root / "train.csv").read_text() + "0.1,0.1,1\n")
    cli("phase", "run", "baseline", "--project", project.root, code=4, err="train.csv")


def searched(folder: Path, cli: Cli, **task: Any) -> Project:
    """Return a project whose baseline learns too slowly, searched."""
    project = write_program(folder, acceptance=0.99, arguments={"lr": 0.001, "epochs": 4}, **task)
    (folder / "configs").mkdir()
    space = {"task.arguments.lr": {"choice": [0.05, 0.1, 0.2]}}
    (folder / "configs/tuning_template.yaml").write_text(json.dumps({"strategy": "grid", "trials": 3, "space": space}))
    cli("run", "--project", project.root, "--until", "optimization")
    return project


@pytest.mark.long
def test_a_search_varies_the_programs_arguments_and_promotes_what_wins_on_fresh_seeds(tmp_path, cli):
    project = searched(tmp_path, cli)
    found = evidence_of(project, "optimization")
    assert len({trial["value"] for trial in found["trials"]}) > 1
    assert len(found["comparison"]["seeds"]) == 5
    assert (found["promoted"], found["replay"]["identical"]) == ("candidate", True)
    assert found["config"]["task"]["arguments"]["lr"] in (0.05, 0.1, 0.2)
    assert gate(project, "optimization").holds
    assert "optimizer" not in (project.phase_dir("optimization") / "final_config.yaml").read_text()


@pytest.mark.long
def test_a_search_promotes_nothing_where_the_program_takes_no_seed(tmp_path, cli):
    project = searched(tmp_path, cli, script="python train.py")
    found = evidence_of(project, "optimization")
    assert (found["comparison"]["seeds"], found["promoted"]) == ([], "baseline")
    item = next(item for item in gate(project, "optimization").items if item.id == "improvement_validated")
    assert (item.verdict, item.evidence["rule"].startswith(OFFERED)) == ("not_applicable", True)


@pytest.mark.parametrize("metrics", [pytest.param("metrics.json", marks=pytest.mark.long), None])
def test_what_a_program_tells_of_itself_is_recorded_where_hooks_see_nothing(tmp_path, cli, metrics):
    text = PROGRAM.replace("loss", "objective").replace("metrics.jsonl", "metrics.json").replace('"a" if epoch else "w"', '"w"')
    told = "        optimizer.step()\n        step += 1\n        tell_loss(step, objective)\n"
    told += "        tell_samples(step, str(rows.tolist()))\n"
    text = text.replace("        optimizer.step()\n", told).replace("first = 0\n", "first = step = 0\n")
    text = text.replace("    held = ", "    tell_metrics(step, epoch + 1, found)\n    held = ")
    text = f"from mltrainer.integrations.reporting import tell_loss, tell_metrics, tell_samples\n{text}"
    project = write_program(tmp_path, text, metrics=metrics)
    cli("run", "--project", project.root, "--until", "diagnostics", code=0)
    run = evidence_of(project, "baseline")["run"]
    assert run["program"]["losses"] == 48
    assert [row["step"] for row in run["history"]] == [12, 24, 36, 48]
    assert all(row["validation"]["accuracy"] and row["train_loss"] for row in run["history"])
    chain = (project.runs_dir / run["id"] / "chain.txt").read_text().split("\n")
    assert all(line.split()[1] != "0" * 16 for line in chain if line and line[0] != "w")


def test_commands_that_need_a_model_of_our_own_say_so(finished, cli):
    told_of = {
        ("rows", "--hardest"): "the task is a program",
        ("ablate",): "this project's task is a program",
        ("extrapolate",): "this project's task is a program",
        ("predict", "train.csv"): "it left no inference.py",
        ("checkpoints", "export"): "was trained by a program",
        ("landscape",): "was trained by a program",
    }
    for command, told in told_of.items():
        cli(*command, "--project", finished.root, code=1, err=told)


@pytest.mark.long
def test_how_much_of_a_program_s_metric_is_luck_is_told_where_it_is_given_a_seed(finished, cli):
    said = cli("seeds", "--seeds", "3", "--json", "--project", finished.root, code=0)
    assert (len(set(said.json["values"])) > 1, said.json["deviation"] > 0) == (True, True)
    assert "What differs with the seed, only the program knows." in (finished.root / said.json["page"]).read_text()
    assert all(gate.holds for gate in check_gates(finished))
    path = finished.phase_dir("planning") / "training_config.yaml"
    for file in (finished.file, path):
        file.write_text(file.read_text().replace(" --seed {seed}", ""))
    cli("phase", "run", "planning", "--project", finished.root, code=0)
    said = cli("seeds", "--project", finished.root, code=1, err="task.script: the program takes no seed")


@pytest.mark.long
def test_a_program_that_is_interrupted_ends_at_once_and_begins_anew(tmp_path):
    slow = PROGRAM.replace("        optimizer.step()\n", "        optimizer.step()\n        time.sleep(0.05)\n")
    project = write_program(tmp_path, slow)
    command = [sys.executable, "-m", "mltrainer", "phase", "run", "planning", "--project", str(project.root)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    command[5] = "baseline"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: [*project.runs_dir.glob("*/scratch/run/lines/chain-*")], seconds=120)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "the program begins again" in said
    assert not list(project.runs_dir.glob("*/scratch"))
    assert read_record(project, "baseline") is None


@pytest.mark.long
def test_a_program_ends_with_a_command_that_is_killed_while_it_is_shown_to_resume(tmp_path):
    project = write_program(tmp_path, f"{PROGRAM}time.sleep(1000)\n", resume="python train.py --resume")
    command = [sys.executable, "-m", "mltrainer", "phase", "run", "planning", "--project", str(project.root)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until(lambda: any(project.state_dir.glob("probe/*/scratch/resumed/run-1/lines/chain-*")), seconds=120)
        process.kill()
    until(lambda: not any(project.state_dir.glob("probe/*/scratch")), seconds=120)


def test_the_first_steps_of_a_program_are_reproduced_and_a_difference_is_told(tmp_path, cli):
    changed = f"lr=asked.lr + os.path.exists({str(tmp_path / 'changed')!r}),"
    project = write_program(tmp_path / "program", PROGRAM.replace("lr=asked.lr,", changed))
    succeed("run", "--project", project.root, "--until", "baseline")
    cli("reproduce", "baseline", "--steps", "5", "--project", project.root, code=0, out="bitwise identical in 5 steps")
    (tmp_path / "changed").touch()
    cli("reproduce", "baseline", "--steps", "5", "--project", project.root, code=5, out="first different step: 1 (weights)")
