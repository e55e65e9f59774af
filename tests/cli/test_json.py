"""What commands print with `--json` and `--quiet`: one object on standard output, and nothing more than was asked for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from mltrainer.workspace import Project

ERROR = {"where", "message", "expected", "found", "next", "exit_code", "faults"}
NEXT = {"next", "next_phase", "next_why"}
PHASE = {"name", "state", "reasons", "run", "artifacts", "holds", "failed"}


@pytest.fixture
def new(begun: Project) -> Path:
    """The folder of a project in which no phase has run."""
    return begun.root


@pytest.fixture(scope="module")
def project(digits_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The finished digits project."""
    return Project(Path(shutil.copytree(digits_once, tmp_path_factory.mktemp("json") / "digits", symlinks=True)))


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "where", "following"),
    [
        ("runs show nonsense", 1, None, "mltrainer runs list"),
        ("phase run baseline", 4, "planning", "mltrainer phase run planning"),
        ("phase run nonsense", 2, "mltrainer phase run", "mltrainer phase run --help"),
        ("runs show", 2, "mltrainer runs show", "mltrainer runs show --help"),
        ("status --nonsense", 2, "mltrainer status", "mltrainer status --help"),
        ("nonsense", 2, "mltrainer", "mltrainer --help"),
    ],
)
def test_an_error_is_one_object_beside_the_message_for_a_person(new, cli, monkeypatch, line, code, where, following):
    monkeypatch.chdir(new)
    plain = cli(*line.split(), code=code)
    said = cli(*line.split(), "--json", code=code)
    error = json.loads(said.out)["error"]
    assert set(error) == ERROR
    assert (error["exit_code"], error["where"], error["next"]) == (code, where, following)
    assert error["message"] in said.err
    assert (plain.out, plain.err) == ("", said.err)


def test_an_error_after_the_object_is_told_on_standard_error_alone(new, cli):
    (new / "mltrainer.yaml").write_text("name: digits\nnonsense: 1\n")
    said = cli("status", "--json", "--project", new, code=1, err="unknown key 'nonsense'")
    assert set(json.loads(said.out)) == {"project", "phases"} | NEXT


def test_a_fault_of_a_config_tells_its_place_and_what_was_expected_and_found(new, cli):
    text = (new / "mltrainer.yaml").read_text()
    line = text.splitlines().index("seed: 42") + 1
    (new / "mltrainer.yaml").write_text(text.replace("seed: 42", "seed: many"))
    error = cli("run", "--json", "--project", new, code=1).json["error"]
    assert error["where"] == f"mltrainer.yaml:{line}, key seed"
    assert (error["expected"], error["found"]) == ("Input should be a valid integer", "'many'")
    assert error["faults"] == [{key: error[key] for key in ("where", "expected", "found")}]
    (new / "mltrainer.yaml").write_text(text.replace("seed: 42", "seed: many\nnonsense: 1"))
    error = cli("run", "--json", "--project", new, code=1).json["error"]
    assert (error["where"], error["expected"], error["found"]) == (None, None, None)
    assert {fault["found"] for fault in error["faults"]} == {"'many'", "nonsense"}


COMPARED = {  # by command: the words of what was expected and of what was found
    "status --jsn": ("--json", "'--jsn'"),
    "stauts": ("status", "'stauts'"),
    "gate chek": ("check", "'chek'"),
    "runs show": ("RUN", None),
    "phase run plannin": ("planning", "'plannin'"),
    "reproduce --steps 0": ("greater than or equal to 1", "'0'"),
    "reproduce --segments 4": ("a share above 0", "'4'"),
    "phase run planning --set epochs": ("KEY=VALUE", "epochs"),
    "phase run baseline": ("a record that holds", "none"),
    "runs show nonsense": (None, "'nonsense'"),
    "gate waive planning nonsense --reason r": ("seeds_fixed", "'nonsense'"),
    "init other --example digts": ("digits", "'digts'"),
    "lr-find --set epochs.0=3": ("a group of keys", "20"),
}


@pytest.mark.parametrize("line", COMPARED)
def test_an_error_that_compares_tells_what_was_expected_and_found(new, cli, monkeypatch, line):
    monkeypatch.chdir(new)
    error = cli(*line.split(), "--json").json["error"]
    expected, found = COMPARED[line]
    assert error["found"] == found
    assert error["expected"] is None if expected is None else expected in error["expected"]
    assert error["faults"] == [{key: error[key] for key in ("where", "expected", "found")}]


def test_a_secret_in_an_error_is_not_printed(new, cli):
    secret = "AKIA" + "Q3ZP7XK2LM5NR8TV"
    said = cli("runs", "show", secret, "--json", "--project", new, code=1)
    assert secret not in said.out + said.err


def test_one_command_after_another_prints_as_it_was_asked(new, cli):
    cli("runs", "show", "nonsense", "--json", "--quiet", "--project", new, code=1)
    assert cli("runs", "show", "nonsense", "--project", new, code=1, err="error: ").out == ""
    assert "planning" in cli("status", "--project", new, code=0).out


# --- quiet ----------------------------------------------------------------------------------------


def test_quiet_leaves_errors_answers_and_the_object(new, cli):
    own = ("--project", new)
    for line, code in (("status -q", 0), ("gate check --quiet", 4)):
        said = cli(*line.split(), *own, code=code)
        assert (said.out, said.err) == ("", "")
    cli("runs", "show", "nonsense", "--quiet", *own, code=1, err="error: there is no run 'nonsense'")
    cli("status", "--nonsense", "--quiet", code=2, err="No such option")
    cli("guide", "diagnostics/nan_loss", "--quiet", *own, code=0, out="# NaN loss")
    said = cli("status", "--json", "--quiet", *own, code=0)
    assert (said.json["next_phase"], said.err) == ("planning", "")


# --- what a command's object holds ----------------------------------------------------------------


def test_init_tells_what_was_made_and_what_is_next(tmp_path, cli):
    said = cli("init", tmp_path / "new", "--example", "digits", "--json", code=0)
    assert (said.json["folder"], said.json["task"]) == (str(tmp_path / "new"), {"kind": "image_classification"})
    assert said.json["next"] == "mltrainer phase run planning"
    assert all(line in said.err for line in said.json["notes"])


@pytest.mark.slow
def test_a_phase_tells_its_files_its_failed_items_and_what_is_next(new, cli):
    said = cli("phase", "run", "planning", "--json", "--quiet", "--project", new, code=0)
    assert said.err == ""
    (phase,) = said.json["phases"]
    assert set(phase) == PHASE
    assert (phase["name"], phase["state"], phase["holds"], phase["failed"]) == ("planning", "passed", True, [])
    assert "phases/01_planning/training_config.yaml" in {row["path"] for row in phase["artifacts"]}
    assert said.json["next"] == "mltrainer phase run baseline"


@pytest.mark.slow
def test_a_finished_project_has_nothing_to_run(project, cli):
    found = cli("run", "--json", "--project", project.root, code=0).json
    assert (found["exit_code"], found["waits"], found["phases"], found["next"]) == (0, False, [], None)


@pytest.mark.slow
def test_predictions_are_one_object(project, cli, tmp_path):
    pictures = tmp_path / "rows.npy"
    np.save(pictures, np.zeros((2, 8, 8), dtype=np.float32))
    lines = cli("predict", pictures, "--project", project.root, code=0).out.splitlines()
    found = cli("predict", pictures, "--json", "--project", project.root, code=0).json
    assert (found["rows"], found["answers"]) == (len(lines), [json.loads(line) for line in lines])


def test_a_copy_to_a_store_tells_its_numbers(new, cli, tmp_path):
    place = f"file://{tmp_path}/store"
    sent = cli("store", "push", place, "--json", "--project", new, code=0).json
    assert cli("store", "pull", place, "--json", "--project", new, code=0).json["same"] == sent["files"]


def test_a_page_that_is_copied_is_named(new, cli):
    said = cli("guide", "configs/tuning_template.yaml", "--copy", "--json", "--project", new, code=0)
    assert said.json == {"page": "configs/tuning_template.yaml", "written": "configs/tuning_template.yaml"}
