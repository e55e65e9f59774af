"""The command line's contract: help, --project, --json, exit codes, names of runs, and odd arguments."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mltrainer.cli.gates
from mltrainer.cli.app import cli as program
from mltrainer.cli.catalogue import COMMANDS, MEANT
from mltrainer.handbook import shipped_folder
from mltrainer.records.common import Export
from mltrainer.workspace import LOCK_FILE, PHASES, Project, locked, pretty_json, read_json, seal, sha256_file
from tests.outputs import commands
from tests.projects import evidence_of

PROMISED = {  # every command of the contract that there is
    *("init", "run", "phase run", "status", "gate check", "gate waive", "reproduce", "runs list", "runs show", "runs compare"),
    *("checkpoints list", "checkpoints verify", "checkpoints export", "diagnose", "doctor", "guide", "lr-find"),
}
HEAVY = ("torch", "numpy", "rich", "sklearn", "scipy", "pandas", "matplotlib")


ALL = commands()
ALL_FIRST = {name.partition(" ")[0] for name in ALL}
GROUPS = sorted({name.rpartition(" ")[0] for name in ALL if " " in name})


@pytest.fixture(scope="module")
def project(digits_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The finished digits project, for commands that only look."""
    return Project(Path(shutil.copytree(digits_once, tmp_path_factory.mktemp("contract") / "digits", symlinks=True)))


def ids(project: Project) -> list[str]:
    return sorted(path.name for path in project.runs_dir.iterdir())


# --- help and options -----------------------------------------------------------------------------


def test_the_promised_commands_are_there():
    assert set(ALL) >= PROMISED


@pytest.mark.parametrize("name", [*ALL, *GROUPS])
def test_help_has_an_example_of_the_command(cli, name):
    for flag in ("--help", "-h") if name in ("status", "runs") else ("--help",):
        cli(*name.split(), flag, code=0, out=f"Example: mltrainer {name}")


def test_the_programs_own_help_has_an_example_without_markup(cli):
    said = cli("--help").out
    assert "Example: mltrainer init demo --example digits && cd demo && mltrainer run" in said
    assert "\\" not in said


@pytest.mark.parametrize("name", ALL)
def test_the_example_can_be_typed_as_it_stands(name):
    words = shlex.split((ALL[name].epilog or "").removeprefix("Example: mltrainer "))
    assert ALL[name].make_context(name, words[len(name.split()) :]) is not None


OF_A_REGISTRY = [name for name in ALL if name.startswith("registry ") and name != "registry add"]


@pytest.mark.parametrize(
    "name", [name for name in ALL if name not in ("wrap", "verify-case", "hold-out", "referee", *OF_A_REGISTRY)]
)  # they need none
def test_every_command_takes_a_project(name):
    assert "--project" in {option for parameter in ALL[name].params for option in parameter.opts}


def test_a_misspelled_command_is_answered_with_the_nearest(cli):
    said = cli("stauts")
    assert (said.code, "did you mean 'status'?" in said.err.lower()) == (2, True)
    assert "did you mean" not in cli("zzz").err.lower()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("train", "run"), ("tune", "phase run optimization"), ("eval", "runs show RUN"), ("export", "checkpoints export")],
)
def test_a_word_of_other_programs_is_answered_with_what_it_is_called_here(cli, typed, meant):
    cli(typed, "--epochs", "3", code=2, err=f"did you mean `mltrainer {meant}`?")


def test_each_such_answer_names_a_command_that_there_is():
    for meant in MEANT.values():
        assert meant.split()[0] in COMMANDS
    assert not MEANT.keys() & COMMANDS.keys()


def test_a_misspelled_option_or_phase_is_answered_with_the_nearest(cli):
    for line, nearest in (("status --jsn", "--json"), ("phase run plannin", "mean 'planning'?"), ("gate chek", "'check'")):
        cli(*line.split(), code=2, err=nearest)


def test_a_group_without_a_command_shows_its_commands(cli):
    said = cli("runs")
    assert (said.code, said.out) == (2, "")
    assert "Example: mltrainer runs list" in said.err


def test_the_version_is_told(cli):
    assert cli("--version").out == f"mltrainer, version {mltrainer.__version__}\n"


# --- the program's name alone ---------------------------------------------------------------------


@pytest.mark.parametrize("place", [".", "phases/01_planning"])
def test_inside_a_project_the_name_alone_shows_the_status(project, cli, monkeypatch, place):
    monkeypatch.chdir(project.root / place)
    assert cli().out == cli("status").out


def test_outside_a_project_the_name_alone_shows_help(tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = cli(code=0)
    assert said.out == cli("--help").out


def test_runs_show_says_which_weights_its_digest_is_of(project, cli):
    shown = cli("runs", "show", "finalization", "--project", project.root).out
    last = cli("runs", "show", "finalization", "--json", "--project", project.root).json["weights_sha256"]
    assert f"{last} (the weights after the last step" in shown


def test_the_model_card_names_the_weights_that_lie_beside_it(project):
    folder = project.phase_dir("finalization") / "final_model"
    weights = json.loads((folder / "manifest.json").read_bytes())["weights_sha256"]
    assert f"| digest of the delivered weights | `{weights}` |" in (folder / "README.md").read_text("utf-8")


def test_the_record_tells_on_how_many_samples_the_metrics_were_measured(project):
    run = evidence_of(project, "baseline")["run"]
    validation = sum(map(sum, run["evaluation"]["confusion"]))
    assert run["train_samples"] > validation
    assert run["measured_samples"] == {"train": validation, "validation": validation}


# --- pages of the handbook ------------------------------------------------------------------------

PAGE = "configs/tuning_template.yaml"


def test_a_page_is_copied_into_the_project_once(tmp_path, cli):
    (tmp_path / "mltrainer.yaml").touch()
    said = cli("guide", PAGE, "--copy", "--project", tmp_path)
    assert (said.code, said.out) == (0, f"wrote {PAGE}: from now on this project reads it instead of the handbook's\n")
    assert (tmp_path / PAGE).read_bytes() == (shipped_folder() / PAGE).read_bytes()
    cli("guide", PAGE, "--copy", "--project", tmp_path, code=1, err="this project has its own page already")


@pytest.mark.parametrize("page", [PAGE, "diagnostics/nan_loss"])
def test_a_page_that_is_redirected_into_its_own_place_is_the_handbooks(tmp_path, cli, page):
    (tmp_path / "mltrainer.yaml").touch()
    own = tmp_path / (page if page == PAGE else f"{page}.md")
    own.parent.mkdir()
    own.touch()  # as a shell does before the command begins
    said = cli("guide", page, "--raw", "--project", tmp_path)
    assert (said.code, "this project's own page is empty: this is the handbook's" in said.err) == (0, True)
    assert said.out == (shipped_folder() / own.relative_to(tmp_path)).read_text("utf-8")


# --- JSON -----------------------------------------------------------------------------------------

JSON = [
    *("status", "gate check", "gate check baseline", "runs list", "runs show baseline"),
    *("runs compare baseline finalization", "runs tag baseline"),
    *(
        "checkpoints list",
        "checkpoints verify",
        "checkpoints prune --dry-run",
        "checkpoints select",
        "diagnose",
        "doctor",
        "report --against HEAD",
        "cite --list accuracy",
        "claim",
        "run",
        "run --dry-run",
        "guide",
        "guide diagnostics/nan_loss",
        "guide configs/tuning_template.yaml",
        "launch print --for slurm",
        "launch keys",
        "lineage",
    ),
]
NO_JSON = {  # commands without it
    "mcp": "speaks its protocol on standard output",
}


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_json_and_quiet(name):
    options = {option for parameter in ALL[name].params for option in parameter.opts}
    assert "--quiet" in options
    assert ("--json" in options) != (name in NO_JSON)


@pytest.mark.parametrize("line", JSON)
def test_json_is_one_object_and_nothing_else(project, cli, line):
    said = cli(*line.split(), "--json", "--project", project.root, code=0)
    found = json.loads(said.out)
    assert isinstance(found, dict)


def test_the_status_has_the_promised_keys(project, cli):
    found = cli("status", "--json", "--project", project.root).json
    assert set(found) == {"project", "next", "phases"} | {"next_phase", "next_why"}
    assert (found["next"], found["next_phase"], found["next_why"]) == (None, None, None)  # all is done
    assert [phase["name"] for phase in found["phases"]] == list(PHASES)
    assert {phase["state"] for phase in found["phases"]} == {"passed", "skipped"}
    assert all(set(phase) == {"name", "state", "reasons", "run", "artifacts"} for phase in found["phases"])
    assert all(set(row) == {"path", "sha256"} for phase in found["phases"] for row in phase["artifacts"])


def test_the_status_tells_a_command_and_why(tmp_path, cli):
    cli("init", tmp_path / "new", "--example", "digits", code=0)
    found = cli("status", "--json", "--project", tmp_path / "new").json
    assert (found["next"], found["next_phase"]) == ("mltrainer phase run planning", "planning")
    assert found["next_why"] == "planning has not run yet"
    assert "next: mltrainer phase run planning\n" in cli("status", "--project", tmp_path / "new").out


def test_the_artifacts_are_those_of_the_folders_within_too(project, cli):
    found = cli("status", "--json", "--project", project.root).json["phases"][-1]["artifacts"]
    model = "phases/05_finalization/final_model/model.safetensors"
    assert {row["path"]: row["sha256"] for row in found}[model] == sha256_file(project.root / model)


def test_a_gate_has_the_promised_keys(project, cli):
    found = cli("gate", "check", "--json", "--project", project.root).json
    assert set(found) == {"holds", "phases"}
    assert all(set(phase) == {"name", "holds", "items", "stale"} | {"notes"} for phase in found["phases"])
    items = [item for phase in found["phases"] for item in phase["items"]]
    assert all(set(item) == {"id", "statement", "verdict", "evidence", "mend", "recomputed"} for item in items)
    assert {item["verdict"] for item in items} <= {"pass", "fail", "not_applicable", "waived"}


RUN_KEYS = {
    *("id", "phase", "state", "config_sha256", "data_sha256", "code_sha256", "environment_sha256", "numerics_class", "steps"),
    *(
        "inputs_sha256",
        "epochs",
        "weights_sha256",
        "weights_tree_sha256",
        "metrics",
        "step_time_us",
        "wall_s",
        "interruptions",
        "parent",
    ),
}


def test_a_run_has_the_promised_keys(project, cli):
    found = cli("runs", "show", "baseline", "--json", "--project", project.root).json
    assert set(found) == RUN_KEYS
    assert (found["phase"], found["state"], found["parent"]) == ("baseline", "finished", None)
    assert set(found["step_time_us"]) == {"median", "p95"}
    assert all(isinstance(value, float) for value in found["metrics"].values())


def test_a_run_is_shown_in_plain_lines(digits, cli):
    run = cli("runs", "show", "baseline", "--json", "--project", digits.root).json["id"]
    path = digits.runs_dir / run / "result.json"
    path.write_text(pretty_json(seal({**read_json(path), "interruptions": [{"step": 12, "cause": "SIGINT"}]})).decode())
    shown = cli("runs", "show", path.parent.name, "--project", digits.root).out
    lines = {words[0]: " ".join(words[1:]) for line in shown.splitlines() if (words := line.split())}
    assert not set("{}[]'") & set(shown)
    assert lines["interruptions"] == "step 12: SIGINT"
    assert lines["step_time_us"].startswith("median ")
    assert lines["parent"] == "-"


def test_a_run_that_was_cut_off_has_them_too(digits, cli):
    for path in digits.runs_dir.glob("*/result.json"):
        path.unlink()
    for path in digits.root.glob("phases/*/record.json"):
        path.unlink()
    found = cli("runs", "list", "--json", "--project", digits.root).json["runs"]
    assert [set(row) for row in found] == [RUN_KEYS, RUN_KEYS]
    assert {row["state"] for row in found} == {"interrupted"}


@pytest.mark.slow
def test_a_reproduction_has_the_promised_keys_and_is_of_the_newest_phases_run(digits, cli):
    said = cli("reproduce", "--steps", "10", "--json", "--project", digits.root, code=0)
    promised = {"run", "identical", "steps_compared", "first_divergence", "differences"}
    assert set(said.json) == promised | {
        "grade",
        "reachable",
        "loss_difference",
        "metric_difference",
        "error",
        "cause",
        "after_step",
    }
    assert said.json["run"] == cli("runs", "show", "finalization", "--json", "--project", digits.root).json["id"]
    assert (said.json["identical"], said.json["steps_compared"], said.json["first_divergence"]) == (True, 10, None)


# --- the name of a run ----------------------------------------------------------------------------


def test_a_run_goes_by_its_id_a_unique_prefix_or_its_phase(project, cli):
    own = cli("runs", "show", "finalization", "--json", "--project", project.root).json["id"]
    for name in (own, own[:6]):
        assert cli("runs", "show", name, "--json", "--project", project.root).json["id"] == own


def test_a_run_that_was_set_aside_is_not_in_the_way(digits, cli):
    own = ids(digits)[0]
    shutil.copytree(digits.runs_dir / own, digits.runs_dir / f"{own}.damaged-1")
    cli("runs", "show", own[:6], "--project", digits.root, code=0)
    assert len(cli("runs", "list", "--json", "--project", digits.root).json["runs"]) == 2


NO_RUN = {"planning": "planning has no run", "optimization": "was skipped and has no run", "0123456789ab": "there is no run"}


@pytest.mark.parametrize("name", NO_RUN)
def test_where_there_is_no_run_it_says_why(project, cli, name):
    cli("runs", "show", name, "--project", project.root, code=1, err=NO_RUN[name])


def test_in_a_fresh_clone_runs_are_shown_from_the_records(digits, cli):
    before = cli("runs", "list", "--json", "--project", digits.root).json
    shutil.rmtree(digits.state_dir)
    assert cli("runs", "list", "--json", "--project", digits.root).json == before
    cli("diagnose", "baseline", "--project", digits.root, code=0)
    compared = cli("runs", "compare", "baseline", "finalization", "--project", digits.root, out="epochs")
    assert "the chain of one of them is not here" in compared.out


def test_two_runs_are_compared_to_the_step_at_which_they_part(project, cli):
    found = cli("runs", "compare", "baseline", "finalization", "--json", "--project", project.root).json
    assert {"what": "epochs", "first": 12, "second": 15} in found["differences"]
    assert found["first_divergence"]["what"] == "loss"
    speed = found["speed"]
    assert speed["ratio"] == pytest.approx(speed["second"]["samples_per_s"] / speed["first"]["samples_per_s"])
    assert (speed["least"], speed["verdict"]) == (None, "no clear difference")  # each config was trained once
    same = cli("runs", "compare", "baseline", "baseline", "--project", project.root).out
    assert same == "no difference\naccuracy on validation: the same\nthe same bits in all 240 steps that both made\n"


# --- exit codes -----------------------------------------------------------------------------------

USAGE = [
    *("nonsense", "--nonsense", "runs", "gate", "phase run", "phase run nonsense", "gate check nonsense", "run --until nonsense"),
    *("gate waive", "gate waive baseline", "gate waive baseline finished", "runs show", "runs compare baseline", "status extra"),
    *("lr-find --from 0", "lr-find --steps 1", "batch-size --from 0", "profile --steps many"),
    *("reproduce --steps 0", "reproduce --steps many", "checkpoints export --format nonsense", "phase run planning --set"),
    *("init one --project two",),
]


@pytest.mark.parametrize("line", USAGE)
def test_wrong_usage_is_exit_2(project, cli, monkeypatch, line):
    monkeypatch.chdir(project.root)
    said = cli(*line.split(), code=2)
    assert "Usage: " in said.out + said.err or "Error: " in said.err


def test_a_format_that_cannot_be_written_is_a_row_with_its_reason(project, cli, monkeypatch):
    row = Export(format="torchscript", file="model.pt", state="failed", reason="ValueError: no such thing", agrees=None)
    monkeypatch.setattr("mltrainer.runs.exports.export_run", lambda *_, **__: [row])
    said = cli("checkpoints", "export", "baseline", "--project", project.root, code=4, out="failed")
    assert "no such thing" in said.out
    (found,) = cli("checkpoints", "export", "baseline", "--json", "--project", project.root, code=4).json["exports"]
    assert (found["state"], found["reason"]) == ("failed", "ValueError: no such thing")


MISTAKES = [
    *(
        "runs show nonsense",
        "runs compare baseline nonsense",
        "reproduce nonsense",
        "diagnose nonsense",
        "checkpoints verify nonsense",
    ),
    *(
        "checkpoints export nonsense",
        "guide nonsense",
        "gate waive baseline nonsense --reason r",
        "init --example nonsense other",
    ),
    *(
        "gate waive baseline finished --reason r",
        "gate waive baseline within_time_budget --reason r",
        "init",
        "init --target t other",
    ),
    *("phase run planning --set nonsense", "phase run planning --set nonsense=1", "phase run diagnostics --set epochs=1"),
    *("init --data nonsense.csv --target t other", "status --project nonsense"),
]


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_in_what_was_given_is_exit_1(project, cli, monkeypatch, line):
    monkeypatch.chdir(project.root if "status" not in line else project.root.parent)
    said = cli(*line.split(), code=1)
    assert said.err.startswith("error: ")
    assert "Traceback" not in said.err
    assert not (project.root / "other").exists()


def test_a_project_without_a_phase_does_not_hold(tmp_path, cli):
    cli("init", tmp_path / "new", "--example", "digits", code=0)
    said = cli("gate", "check", "--json", "--project", tmp_path / "new")
    assert (said.code, said.json["holds"]) == (4, False)


def test_a_project_in_use_is_exit_6(digits, cli):
    with locked(digits.state_dir / LOCK_FILE, "the project"):
        said = cli("phase", "run", "diagnostics", "--project", digits.root)
    assert said.code == 6
    assert "is in use by process" in said.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "somewhere"), 7),
        (PermissionError(errno.EACCES, "Permission denied", "somewhere"), 7),
        (OSError(errno.ENAMETOOLONG, "File name too long", "somewhere"), 1),
        (KeyboardInterrupt(), 130),
        (RuntimeError("a bug"), 3),
    ],
)
def test_what_goes_wrong_has_its_code(digits, cli, monkeypatch, error, code):
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.chdir(digits.root)
    monkeypatch.setattr(mltrainer.cli.gates, "derive", fail)
    said = cli("status")
    assert said.code == code
    assert "Traceback" not in said.err
    saved = digits.state_dir / "mltrainer-fault.txt"
    assert saved.exists() == (code == 3)


@pytest.mark.parametrize("inside", [".", "new", "new/er"])
def test_a_project_is_not_made_where_a_file_stands(tmp_path, cli, inside):
    (tmp_path / "file").write_text("mine")
    said = cli("init", tmp_path / "file" / inside, "--example", "digits")
    assert (said.code, f"{tmp_path / 'file'}: expected a folder, found a file" in said.err) == (1, True)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("error", [PermissionError(errno.EACCES, "Permission denied"), FileNotFoundError(errno.ENOENT, "Gone")])
def test_a_project_that_cannot_be_made_is_the_machines_failure(tmp_path, cli, monkeypatch, error):
    def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(Path, "mkdir", refuse)
    said = cli("init", tmp_path / "new", "--example", "digits")
    assert (said.code, f"error: {tmp_path / 'new'}: " in said.err, "\n  next: " in said.err) == (7, True, True)


# --- odd arguments --------------------------------------------------------------------------------

ODD = [
    "../../x",
    "/etc/passwd",
    ".",
    "",
    "a/b",
    "\x1b[31mred\x1b[0m",
    "nul\0byte",
    "new\nline",
    "x" * 5000,
    "%s{0}",
    "\u202ereversed",
]
TAKERS = [
    *("runs show", "runs compare baseline", "reproduce", "diagnose", "checkpoints verify", "checkpoints export", "guide"),
    *("gate check", "gate waive baseline --reason r", "phase run", "run --until", "init --example", "phase run planning --set"),
    *("status --project", "doctor --project"),
]


@pytest.mark.slow
@pytest.mark.parametrize("line", TAKERS)
def test_odd_arguments_are_refused_in_plain_text(project, cli, monkeypatch, line):
    monkeypatch.chdir(project.root.parent if "--project" in line else project.root)
    before = sorted(project.root.rglob("*"))
    for odd in ODD:
        said = cli(*line.split(), "--", odd) if "--" not in line else cli(*line.split(), odd)
        assert said.code in (1, 2), (odd, said)
        assert "Traceback" not in said.err
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", said.out + said.err.replace("\t", " ")), odd
    assert sorted(project.root.rglob("*")) == before


def test_a_leading_dash_is_an_option_unless_it_stands_after_two(project, cli):
    cli("runs", "show", "-x", "--project", project.root, code=2)
    cli("runs", "show", "--project", project.root, "--", "-x", code=1)


def test_an_odd_folder_is_made_and_shown_in_plain_text(tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = cli("init", "a b\x1b[31m", "--example", "digits", code=0)
    assert "\x1b" not in said.out
    cli("status", "--project", "a b\x1b[31m", code=0)


# --- light ----------------------------------------------------------------------------------------

LIGHT = [
    *("--help", "status", "gate check", "runs list", "runs show baseline", "runs compare baseline finalization", "diagnose"),
    *("checkpoints list", "checkpoints verify", "doctor", "guide", "guide diagnostics/nan_loss", "gate check --files"),
    "run --dry-run",
]


def test_the_programs_help_imports_no_library():
    code = (
        "import sys\nfrom mltrainer.cli.main import run\nassert run(['--help']) == 0\n"
        "assert not {'typer', 'pydantic', 'yaml', 'rich', 'torch', 'dataclasses'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0


def test_the_programs_help_names_its_options_and_every_command(cli):
    said = cli("--help").out
    options = {name for parameter in program.params for name in parameter.opts}
    assert all(f"  {name} " in said for name in {*options, *ALL_FIRST})


@pytest.mark.slow
def test_commands_that_only_look_import_nothing_heavy(project):
    code = (
        "import sys\n"
        "from mltrainer.cli.main import run\n"
        f"for line in {LIGHT!r}:\n"
        "    assert run(line.split()) == 0, line\n"
        f"    heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "    assert not heavy, (line, heavy)\n"
    )
    environment = {**os.environ, "PYTHONWARNINGS": "default"}
    done = subprocess.run([sys.executable, "-c", code], cwd=project.root, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
