"""Bad input: a clear error with the place, what was expected and found and what to do; nothing lost or half-written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mltrainer.workspace import Project
from tests.cli.conftest import contents
from tests.conftest import Cli, Said

DIGITS = """\
name: small
seed: 1
task: {kind: image_classification}
data: {source: "sklearn:digits"}
split: {validation: 0.2, test: 0.1}
model: {name: mlp, hidden: [8]}
metric: {name: accuracy, mode: max}
acceptance: {accuracy: ">= 0.95"}
"""


def refused(said: Said, *parts: str) -> None:
    """A refusal has exit code 1, a message with these parts and what to do next, and no traceback."""
    assert said.code == 1, said
    assert said.out == ""
    assert "Traceback" not in said.err
    assert [part for part in (*parts, "\n  next: ") if part not in said.err] == [], said.err


def test_a_command_typed_in_a_folder_that_was_removed_says_so(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    typed = f"cd {gone} && rmdir {gone} && {sys.executable} -P -m mltrainer status"
    said = subprocess.run(["bash", "-c", typed], capture_output=True, text=True, check=False)
    refused(Said(said.returncode, said.stdout, said.stderr), "the current folder was removed")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with the digits that has not run."""
    (tmp_path / "mltrainer.yaml").write_text(DIGITS)
    return Project(tmp_path)


# --- mltrainer.yaml -----------------------------------------------------------------------------

PROJECT_FAULTS = {
    "an unknown key": (DIGITS + "metrics: {}\n", "mltrainer.yaml:9, key metrics: unknown key 'metrics'; did you mean 'metric'?"),
    "a criterion without a side": (
        DIGITS.replace('{accuracy: ">= 0.95"}', "{accuracy: 0.95}"),
        'accuracy: say on which side, such as accuracy: ">= 0.95", or "<= 0.95" where less is better',
    ),
    "a key of the other file": (DIGITS + "epohcs: 3\n", "'epochs' belongs in phases/01_planning/training_config.yaml"),
    "a group of the other file": (DIGITS + "optimizer: {name: sgd}\n", "--set KEY=VALUE"),
    "a duplicate key": (DIGITS + "seed: 2\n", "mltrainer.yaml:9: the key 'seed' is here and on line 2"),
    "a duplicate key in a group": (
        DIGITS.replace("hidden: [8]", "hidden: [8], hidden: [9]"),
        "mltrainer.yaml:6: the key 'hidden'",
    ),
    "text for a number": (DIGITS.replace("seed: 1", "seed: one"), "mltrainer.yaml:2, key seed: Input should be a valid integer"),
    "a fraction for a whole number": (DIGITS.replace("seed: 1", "seed: 1.5"), "found 1.5"),
    "a number out of range": (DIGITS.replace("seed: 1", "seed: 4294967296"), "less than or equal to 4294967295"),
    "a list for a group": (DIGITS.replace("{validation: 0.2, test: 0.1}", "[1]"), "key split: keys with values were expected"),
    "a wrong kind": (DIGITS.replace("image_c", "imag_c"), "did you mean 'image_classification'?"),
    "a wrong model": (
        DIGITS.replace("name: mlp", "name: mpl"),
        "key model: 'mpl' is not one of 'mlp', 'cnn', ",
    ),
    "a wrong key of a model": (DIGITS.replace("hidden", "hiden"), "key model.hiden: unknown key 'hiden'; did you mean 'hidden'?"),
    "a criterion that is none": (DIGITS.replace(">= 0.95", "95%"), "'95%' is not a criterion such as \">= 0.95\""),
    "no training data left": (DIGITS.replace("0.2", "0.95"), "key split: validation 0.95 + test 0.1 leave no training data"),
    "no keys": ("", "key name: Field required"),
    "a list": ("- 1\n", "keys with values were expected"),
    "broken YAML": (DIGITS + "a: [1\n", "mltrainer.yaml:10: not valid YAML"),
    "a tab": (DIGITS + "\ta: 1\n", "mltrainer.yaml:9: not valid YAML"),
}


@pytest.mark.parametrize("fault", PROJECT_FAULTS)
def test_a_fault_in_the_project_file_is_refused_with_its_place(project, cli, fault):
    text, message = PROJECT_FAULTS[fault]
    project.file.write_text(text)
    before = contents(project.root)
    refused(cli("run", "--project", project.root), message)
    assert contents(project.root) == before


@pytest.mark.parametrize("flag", [(), ("--json",)])
def test_the_status_says_what_is_wrong_with_the_project_file(project, cli, flag):
    project.file.write_text(DIGITS + "a: [1\n")
    said = cli("status", *flag, "--project", project.root, code=1, err="mltrainer.yaml:10: not valid YAML", out="planning")
    assert "next: mltrainer" not in said.out


# --- training_config.yaml and --set -------------------------------------------------------------

CONFIG_FAULTS = {
    "an unknown key": (
        "bach_size: 32\n",
        ":9, key bach_size: unknown key 'bach_size'; did you mean 'batch_size'?",
    ),
    "a duplicate key": ("epochs: 3\nepochs: 4\n", ":10: the key 'epochs' is here and on line 9"),
    "text for a number": (
        "optimizer: {name: adamw, lr: fast}\n",
        ":9, key optimizer.lr: Input should be a valid number",
    ),
    "a quoted number": ('epochs: "3"\n', "key epochs: Input should be a valid integer; found '3'"),
    "yes for true": ("checkpoint: {save_best: yes}\n", "key checkpoint.save_best: Input should be a valid boolean; found 'yes'"),
}
SET_FAULTS = {
    "optimizer.lr=fast": "key optimizer.lr: Input should be a valid number; found 'fast'",
    "optimizer.rl=1": "key optimizer.rl: unknown key 'rl'; did you mean 'lr'?",
    "lr=0.1": "key lr: unknown key 'lr'; did you mean 'optimizer.lr'?",
    "learning_rate=0.1": "unknown key 'learning_rate'; did you mean 'optimizer.lr'?",
    "optimzer.lr=1": "unknown key 'optimzer'; did you mean 'optimizer'?",
    "optimizer.name=adan": "'own'; did you mean 'adam'?",
    "optimizer=adamw": "key optimizer: keys with values were expected; found 'adamw'; did you mean {name: adamw}?",
    "strategies=[lorra]": "key strategies.0: keys with values were expected; found 'lorra'; did you mean {name: lora}?",
    "strategies=[3]": "key strategies.0: keys with values were expected; found 3; one of them is `name`: adversarial, balancing",
    "clip=3": "key clip: keys with values were expected; found 3; known keys: adaptive, norm, value",
    "optimizer.lr=.nan": "finite number",
    "epochs": "--set: expected KEY=VALUE, found epochs",
    "epochs=[1": "not valid YAML",
    "seed.x=1": "seed: expected a group of keys, found 1",
}


@pytest.mark.parametrize("fault", CONFIG_FAULTS)
def test_a_fault_in_the_training_config_is_refused_and_the_file_stays(project, cli, fault):
    text, message = CONFIG_FAULTS[fault]
    path = project.phase_dir("planning") / "training_config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(DIGITS + text)
    refused(plan(cli, project), "phases/01_planning/", message)
    assert path.read_text() == DIGITS + text


@pytest.mark.parametrize("assignment", SET_FAULTS)
def test_a_fault_in_set_is_refused(project, cli, assignment):
    before = contents(project.root)
    said = cli("phase", "run", "planning", "--set", assignment, "--project", project.root)
    assert (said.code, "Traceback" in said.err) == (1, False)
    assert SET_FAULTS[assignment] in said.err
    assert contents(project.root) == before


@pytest.mark.slow
@pytest.mark.usefixtures("tools_here")
def test_scientific_notation_is_a_number_in_file_and_command_line(project, cli):
    path = project.phase_dir("planning") / "training_config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(DIGITS + "epochs: 1\noptimizer: {name: adamw, lr: 1e-3}\n")
    cli("phase", "run", "planning", "--set", "optimizer.weight_decay=1E-2", "--project", project.root, code=0)
    assert re.search(r"lr: 0\.001\b", path.read_text())
    assert re.search(r"weight_decay: 0\.01\b", path.read_text())


@pytest.mark.slow
@pytest.mark.usefixtures("tools_here")
def test_a_config_that_cannot_run_replaces_no_good_artifact(project, cli):
    cli("phase", "run", "planning", "--set", "epochs=1", "--project", project.root, code=0)
    before = contents(project.root)
    said = cli("phase", "run", "planning", "--set", "batch_size=100000", "--project", project.root)
    refused(said, "1260 training samples are fewer than batch_size 100000", "mltrainer phase run planning --set batch_size=")
    assert contents(project.root) == before
    cli("gate", "check", "planning", "--project", project.root, code=0)


# --- data ---------------------------------------------------------------------------------------

ROWS = [f"{i / 7:.3f},{i % 5},{'xyz'[i % 3]},{'yes' if i % 2 else 'no'}" for i in range(60)]
HEADER = "a,b,c,label"


def table(*changes: tuple[int, str]) -> str:
    """Return a good table with some rows replaced."""
    rows = [HEADER, *ROWS]
    for number, row in changes:
        rows[number - 1] = row
    return "\n".join(rows) + "\n"


TABLE_FAULTS = {
    "missing": (None, "--data: no such file or folder: '", "name one that exists"),
    "empty": ("", "data.csv: the file is empty", "bring the whole file"),
    "a header alone": (HEADER + "\n", "data.csv: a header with 4 columns, but no rows", "bring the whole file"),
    "no such column": (
        table().replace("label", "lable"),
        "there is no column 'label' in data.csv; did you mean 'lable'?",
        "name a column of data.csv",
    ),
    "one class": (table().replace("yes", "no"), "the target 'label' has one class only: 'no' in all 60 rows", "two classes"),
    "a long row": (
        table((9, "1,2,x,yes,5")),
        "data.csv:9: 1 of 60 rows: expected the header's 4 cells",
        "quoted",
    ),
    "a short row": (table((9, "1,2")), "line 9 has 2", "fix these rows"),
    "an unclosed quote": (
        table((9, '"1,2,x,yes')),
        "data.csv:9: a quote that opens in this record is never closed",
        "fix this record",
    ),
    "a NUL byte": (table((9, "\0,2,x,yes")), "data.csv:9: expected a text file, found a NUL byte at byte offset", "whole file"),
}


@pytest.mark.parametrize("fault", TABLE_FAULTS)
def test_a_faulty_table_is_refused_by_init_and_nothing_is_written(tmp_path, cli, fault):
    text, *parts = TABLE_FAULTS[fault]
    data = tmp_path / "data.csv"
    if text is not None:
        data.write_text(text)
    said = cli("init", tmp_path / "new", "--data", data, "--target", "label")
    assert (said.code, said.out, "Traceback" in said.err) == (1, "", False)
    assert [part for part in parts if part not in said.err] == [], said.err
    assert not (tmp_path / "new").exists()


def test_init_takes_no_address_and_repeats_none(tmp_path, cli):
    said = cli("init", tmp_path / "new", "--data", "http://ada:hunter22@host/data.csv", "--target", "label")
    assert (said.code, said.out) == (1, "")
    assert "--data: expected a file or folder of this machine, found an address" in said.err
    assert "hunter22" not in said.err
    assert not (tmp_path / "new").exists()


TOLD = {
    "a column without a value": (
        re.sub(r"(?m)^([\d.]+),\d", r"\1,", table()),
        "column 'b' is ignored: it has no value in any of 60 rows",
        None,
    ),
    "junk in a number column": (
        table((9, "hello,2,x,yes")),
        "warning: in column 'a', 1 of 60 cells holds no numbers that can be used (line 9): planning stops there until",
        "data.csv:9: column 'a', 1 cell in line 9: expected numbers, found 'hello'",
    ),
    "infinity": (
        table((9, "inf,2,x,yes")),
        "warning: in column 'a', 1 of 60 cells holds no numbers that can be used",
        "data.csv:9: column 'a' holds inf, which is not finite as float32",
    ),
    "no target": (table((9, "1,2,x,")), "warning: 1 of 60 rows has no target and is left out: line 9", None),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", TOLD)
@pytest.mark.usefixtures("tools_here")
def test_what_can_be_chosen_about_is_told_by_init_and_asked_by_planning(tmp_path, cli, fault):
    text, warning, question = TOLD[fault]
    (tmp_path / "data.csv").write_text(text)
    said = cli("init", tmp_path / "new", "--data", tmp_path / "data.csv", "--target", "label", code=0, out=warning)
    assert ("wrong_cells: stop" in (tmp_path / "new/mltrainer.yaml").read_text()) == (question is not None)
    if question is not None:
        said = cli("phase", "run", "planning", "--project", tmp_path / "new")
        refused(said, question, "data: {wrong_cells: missing} or {wrong_cells: drop}")


def test_a_file_in_an_unknown_encoding_is_refused_with_the_bytes_place(tmp_path, cli):
    (tmp_path / "data.csv").write_bytes(table((9, "1,2,ü,yes")).encode("cp437"))
    said = cli("init", tmp_path / "new", "--data", tmp_path / "data.csv", "--target", "label")
    refused(said, "data.csv:9: neither UTF-8 nor Windows-1252: byte 0x81 at byte offset", "iconv -f cp1251")


def tabular(folder: Path, source: str, kind: str = "tabular_classification", extra: str = "") -> Project:
    project = Project(folder)
    metric = "{name: r2, mode: max}" if kind == "tabular_regression" else "{name: accuracy, mode: max}"
    data = f"{{source: {source}}}" if source.endswith(".npz") else f"{{source: {source}, target: label}}"
    project.file.write_text(
        f"name: small\ntask: {{kind: {kind}}}\ndata: {data}\nmodel: {{name: mlp, hidden: [4]}}\nmetric: {metric}\n{extra}"
    )
    return project


def plan(cli: Cli, project: Project, *more: str) -> Said:
    return cli("phase", "run", "planning", "--project", project.root, *more)


DATA_FAULTS = {
    "fewer rows than a batch": (
        "\n".join([HEADER, *ROWS[:30]]),
        "training samples are fewer than batch_size 64",
        "--set batch_size=",
    ),
    "fewer rows than classes": (
        "a,label\n" + "".join(f"{i},c{i}\n" for i in range(9)),
        "9 samples of 9 classes",
        "bring more data",
    ),
    "a file that is gone": (None, "no such file or folder: 'data.csv'", "data.source in mltrainer.yaml"),
}


@pytest.mark.usefixtures("tools_here")
@pytest.mark.parametrize("fault", DATA_FAULTS)
def test_data_that_cannot_be_trained_on_is_refused_by_planning(tmp_path, cli, fault):
    text, *parts = DATA_FAULTS[fault]
    if text is not None:
        (tmp_path / "data.csv").write_text(text)
    project = tabular(tmp_path, "data.csv")
    said = plan(cli, project)
    assert said.code == 1, said.err
    assert [part for part in parts if part not in said.err] == [], said.err
    assert not project.phase_dir("planning").exists()


SEVENTH, LABELS = np.arange(90) == 7, np.arange(90) % 3
ARRAY_FAULTS = {
    "a label out of range": ({"y": np.where(SEVENTH, 5, LABELS)}, "found 5 in row 7"),
    "a negative label": ({"y": np.where(SEVENTH, -1, LABELS)}, "found -1 in row 7"),
    "NaN in a sample": (
        {"x": np.where(np.arange(90)[:, None] == 7, np.nan, np.ones((90, 2)))},
        "NaN or infinity; the first is row 7",
    ),
    "too few labels": ({"y": LABELS[:80]}, "expected [90], found [80]"),
    "text for numbers": ({"x": np.full((90, 2), "a")}, "x: expected numbers, found <U1"),
}


@pytest.mark.usefixtures("tools_here")
@pytest.mark.parametrize("fault", ARRAY_FAULTS)
def test_faulty_arrays_are_refused_with_the_row(tmp_path, cli, fault):
    changes, message = ARRAY_FAULTS[fault]
    np.savez(tmp_path / "data.npz", **{"x": np.ones((90, 2)), "y": LABELS, **changes})
    project = tabular(tmp_path, "data.npz")
    said = plan(cli, project)
    assert (said.code, "Traceback" in said.err) == (1, False), said.err
    assert f"data.npz: {message}" in said.err or message in said.err
    assert not project.phase_dir("planning").exists()


@pytest.mark.usefixtures("tools_here")
def test_a_pickled_array_is_never_loaded(tmp_path, cli):
    np.savez(tmp_path / "data.npz", x=np.array([object()] * 90), y=LABELS)
    said = plan(cli, tabular(tmp_path, "data.npz"))
    assert said.code == 1
    assert "without pickles" in said.err


@pytest.mark.usefixtures("tools_here")
def test_a_criterion_for_a_metric_that_is_not_measured_is_known_before_training(tmp_path, cli):
    (tmp_path / "data.csv").write_text(table() + "\n".join(ROWS) + "\n")
    said = plan(cli, tabular(tmp_path, "data.csv", extra="acceptance: {acuracy: '>= 0.9'}"))
    refused(said, "acceptance: there is no metric 'acuracy' of the task; did you mean 'accuracy'?")
