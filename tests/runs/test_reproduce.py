"""`mltrainer reproduce`: the same bits, or the first step and tensor that differ, and what is not what it was."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.project import TrainingConfig
from mltrainer.reproducibility.fingerprint import CHAIN_FILE
from mltrainer.reproducibility.seeds import epoch_order
from mltrainer.runs.contract import JOB_FILE, RESULT_FILE
from mltrainer.runs.find import find_run
from mltrainer.tasks.opening import open_task
from mltrainer.workspace import Project, pretty_json, read_json, seal
from tests.conftest import Cli, Said, shared, succeed, train_baseline
from tests.projects import TASK, write_light_template, write_rings

SHORT = ("epochs=2", "batch_size=32")


def make_rings(folder: Path) -> None:
    write_rings(folder)
    train_baseline(folder, *SHORT)


def make_table(folder: Path) -> None:
    draw = random.Random(1)
    rows = [f"{draw.gauss(0, 1):.4f},{draw.choice('abc')},{draw.choice('uv')}" for _ in range(120)]
    folder.mkdir(parents=True)
    (folder / "table.csv").write_text("\n".join(["x,kind,answer", *rows]) + "\n")
    succeed("init", folder, "--data", folder / "table.csv", "--target", "answer")
    write_light_template(folder)
    train_baseline(folder, *SHORT)


@pytest.fixture(scope="session")
def rings_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared(tmp_path_factory, "rings", make_rings)


@pytest.fixture
def rings(rings_once: Path, tmp_path: Path) -> Project:
    """A copy of a project with a task of its own, whose baseline is trained."""
    return Project(Path(shutil.copytree(rings_once, tmp_path / "rings")))


@pytest.fixture
def table(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Project:
    """A copy of a project with a CSV file, whose baseline is trained."""
    once = shared(tmp_path_factory, "table", make_table)
    return Project(Path(shutil.copytree(once, tmp_path / "table", symlinks=True)))


def reproduce(cli: Cli, project: Project, *arguments: str) -> Said:
    return cli("reproduce", *arguments, "--json", "--project", project.root)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def named(found: dict[str, Any]) -> set[tuple[str, str]]:
    return {(row["kind"], row["what"]) for row in found["differences"]}


# --- the same bits --------------------------------------------------------------------------------


@pytest.mark.slow
def test_another_environment_is_exit_5_although_the_bits_are_the_same(rings, cli, monkeypatch):
    monkeypatch.setenv("NUMEXPR_NUM_THREADS", "3")
    said = reproduce(cli, rings, "baseline")
    assert said.code == 5
    assert said.json["identical"] is True
    assert said.json["steps_compared"] == read_json(rings.runs_dir / said.json["run"] / RESULT_FILE)["steps"]
    assert named(said.json) == {("environment", "NUMEXPR_NUM_THREADS")}


# --- other bits -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_another_initialization_differs_before_the_first_step(rings, cli):
    edit(rings.root / "my_task.py", "return nn.Sequential(nn.Linear(2, 32), ", "return nn.Sequential(self.first(), ")
    extra = "\n    def first(self):\n        layer = nn.Linear(2, 32)\n        nn.init.zeros_(layer.bias)\n        return layer\n"
    (rings.root / "my_task.py").write_text((rings.root / "my_task.py").read_text() + extra)
    said = cli("reproduce", "baseline", "--project", rings.root, code=5, out="first different step: 0 (weights, tensor 0.bias)")
    assert "code differs: my_task.py" in said.out


@pytest.mark.slow
def test_one_changed_sample_is_named_by_the_step_that_first_sees_it(rings, cli):
    config = TrainingConfig.model_validate(read_json(rings.runs_dir / find_run(rings, "baseline") / JOB_FILE)["config"])
    ids = open_task(config, rings.root).split("train").ids
    sample = ids[epoch_order(config.seed, 0, len(ids))[2 * config.batch_size]]  # the first one of step 3
    edit(
        rings.root / "my_task.py",
        "return torch.tensor(self.x[i] + noise",
        f"return torch.tensor(self.x[i] + noise + (i == {sample})",
    )
    said = reproduce(cli, rings, "baseline")
    assert said.code == 5
    assert {"step": 3, "tensor": "0.weight", "what": "loss"}.items() <= said.json["first_divergence"].items()
    assert said.json["steps_compared"] == 3
    assert named(said.json) == {("code", "my_task.py"), ("data", "samples and splits")}


@pytest.mark.slow
def test_another_numerics_class_is_judged_by_its_numbers(rings, cli, monkeypatch):
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    said = reproduce(cli, rings, "baseline")
    assert (said.code, said.json["identical"], said.json["reachable"]) == (5, False, "numerically equal")
    assert said.json["grade"] == "numerically equal"
    assert 0 < said.json["loss_difference"] <= 1e-3
    assert {("environment", "ATEN_CPU_CAPABILITY"), ("environment", "numerics")} <= named(said.json)
    write_bound(rings, "1.0e-15")
    strict = cli("reproduce", "baseline", "--project", rings.root).out
    assert "is not reproduced" in strict
    assert "numerically equal means at most 1e-15" in strict


def write_bound(project: Project, bound: str) -> None:
    page = project.root / "reproducibility/verification.md"
    page.parent.mkdir(exist_ok=True)
    page.write_text(f"---\ntitle: Verification\nsettings:\n  loss_bound: {bound}\n---\n")


def test_a_bound_that_means_nothing_is_refused_before_anything_is_trained(rings, cli):
    write_bound(rings, "7")
    said = cli("reproduce", "baseline", "--project", rings.root, code=1)
    assert "reproducibility/verification.md:4, key settings.loss_bound: " in said.err
    assert not (rings.state_dir / "reproductions").exists()


@pytest.mark.slow
def test_what_nothing_recorded_explains_is_replayed(cli, tmp_path, monkeypatch):
    loss = "return nn.functional.cross_entropy(outputs, targets)"
    hidden = (
        "hidden = os.environ.get('HIDDEN')\n        noise = random.Random().random() if hidden == 'draw' else float(hidden or 0)"
    )
    source = TASK.replace("import random\n", "import os, random\n").replace(loss, f"{hidden}\n        {loss} * (1 + noise)")
    project = write_rings(tmp_path, source)
    train_baseline(project.root, *SHORT)
    for value, cause in (
        ("1", "undetermined: two further processes agree"),
        ("draw", "the loss of Rings first differs at step 1: likely a random"),
    ):
        monkeypatch.setenv("HIDDEN", value)
        cli("reproduce", "baseline", "--project", project.root, code=5, out=f"cause: {cause}")


def test_code_that_can_no_longer_be_trained_is_the_difference(rings, cli):
    (rings.root / "my_task.py").unlink()
    said = reproduce(cli, rings, "baseline")
    assert said.code == 5
    assert (said.json["identical"], said.json["steps_compared"], said.json["first_divergence"]) == (False, 0, None)
    assert said.json["differences"][0]["found"] == "missing"
    assert "no module 'my_task'" in said.json["error"]


@pytest.mark.slow
def test_one_changed_value_of_a_table_is_told_as_data(table, cli):
    lines = (table.root / "table.csv").read_text().splitlines()
    (table.root / "table.csv").write_text("\n".join([lines[0], *lines[1:60], f"9{lines[60]}", *lines[61:]]) + "\n")
    said = reproduce(cli, table, "baseline", "--steps", "3")
    assert said.code == 5
    assert said.json["identical"] is False
    assert named(said.json) == {("data", "table.csv")}


@pytest.mark.slow
def test_a_changed_file_that_the_task_opens_is_told_as_data(cli, tmp_path):
    source = TASK.replace(
        "return nn.Sequential(", "self.teacher = float(open('teacher.txt').read())\n        return nn.Sequential("
    )
    loss = "nn.functional.cross_entropy(outputs, targets)"
    (tmp_path / "teacher.txt").write_text("1.0")
    project = write_rings(tmp_path, source.replace(f"return {loss}", f"return self.teacher * {loss}"))
    train_baseline(project.root, *SHORT)
    (project.root / "teacher.txt").write_text("1.5")
    said = reproduce(cli, project, "baseline", "--steps", "3")
    assert (said.code, said.json["identical"], said.json["cause"]) == (5, False, None)
    assert named(said.json) == {("data", "teacher.txt")}
    (project.root / "teacher.txt").write_text("none")  # what cannot be trained at all is still that file's doing
    said = reproduce(cli, project, "baseline", "--steps", "3")
    assert (said.code, said.json["steps_compared"]) == (5, 0)
    assert named(said.json) == {("data", "teacher.txt")}


# --- damaged files --------------------------------------------------------------------------------


def on_line(number: int, change: Callable[[str], str]) -> Callable[[str], str]:
    def damage(text: str) -> str:
        lines = text.splitlines(keepends=True)
        return "".join([*lines[:number], change(lines[number]), *lines[number + 1 :]])

    return damage


DAMAGE: dict[str, tuple[str, Callable[[str], str]]] = {
    "a line of the chain": (CHAIN_FILE, on_line(3, lambda line: "9" + line[1:])),
    "the end of the chain": (CHAIN_FILE, lambda text: text[: text.rindex("\n", 0, -1) + 1]),
    "the whole chain": (CHAIN_FILE, lambda text: ""),
    "a blank result": (RESULT_FILE, lambda text: ""),
    "half a result": (RESULT_FILE, lambda text: text[: len(text) // 2]),
    "a result of another kind": (RESULT_FILE, lambda text: "[1, 2]"),
    "an edited result": (RESULT_FILE, lambda text: text.replace('"state": "finished"', '"state": "failed"')),
    "a blank job": (JOB_FILE, lambda text: ""),
    "an edited config": (JOB_FILE, lambda text: text.replace('"batch_size": 32', '"batch_size": 16')),
    "an edited contract": (JOB_FILE, lambda text: text.replace('"code_sha256": "', '"code_sha256": "0')),
    "a config that is none": (JOB_FILE, lambda text: json.dumps({**json.loads(text), "config": 7})),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_of_the_run_is_exit_4_and_named(rings, cli, damage):
    name, change = DAMAGE[damage]
    path = rings.runs_dir / find_run(rings, "baseline") / name
    before = path.read_text()
    assert change(before) != before
    path.write_text(change(before))
    said = reproduce(cli, rings, "baseline")
    assert (said.code, *said.json) == (4, "error")
    assert said.json["error"]["message"].startswith("damaged")
    assert f"{rings.relative(path)}: damaged" in said.err
    assert "mltrainer phase run baseline" in said.err


def test_a_broken_chain_is_named_by_its_line(rings, cli):
    path = rings.runs_dir / find_run(rings, "baseline") / CHAIN_FILE
    path.write_text(DAMAGE["a line of the chain"][1](path.read_text()))
    assert "damaged: line 4: the chain breaks" in reproduce(cli, rings, "baseline").err


def test_a_result_that_was_edited_and_sealed_again_is_not_the_records(rings, cli):
    path = rings.runs_dir / find_run(rings, "baseline") / RESULT_FILE
    path.write_bytes(pretty_json(seal({**read_json(path), "wall_s": 1.0})))
    said = reproduce(cli, rings, "baseline")
    assert said.code == 4
    assert "it differs from the file that the record of baseline is bound to" in said.err


def test_damage_does_not_keep_other_commands_from_working(rings, cli):
    folder = rings.runs_dir / find_run(rings, "baseline")
    for name in (RESULT_FILE, JOB_FILE):
        (folder / name).write_text("{")
    for arguments in (
        ("runs", "list"),
        ("runs", "show", "baseline"),
        ("diagnose",),
        ("runs", "compare", folder.name, "baseline"),
    ):
        cli(*arguments, "--project", rings.root, code=0)


def test_a_run_without_a_result_is_to_be_finished_first(rings, cli):
    (rings.runs_dir / find_run(rings, "baseline") / RESULT_FILE).unlink()
    said = reproduce(cli, rings, "baseline")
    assert said.code == 1
    assert "has not ended\n  next: mltrainer phase run baseline" in said.err


@pytest.mark.slow
def test_in_a_fresh_clone_the_recorded_run_is_trained_and_compared(rings, cli):
    shutil.rmtree(rings.state_dir)
    said = reproduce(cli, rings, "baseline")
    assert (said.code, said.json["identical"]) == (0, True)
    assert said.json["steps_compared"] > 0


# --- a run that is found again --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("damaged", ["edited", "sealed again", "chain.txt"])
def test_a_result_that_was_edited_or_that_its_run_contradicts_is_trained_again(rings, cli, damaged):
    path = rings.runs_dir / find_run(rings, "baseline") / RESULT_FILE
    before = read_json(path)
    better = {**before, "metrics": {**before["metrics"], "accuracy": 1.0}}
    if damaged == "chain.txt":
        path.with_name(damaged).write_text("1 a b c\n")
    else:
        path.write_bytes(pretty_json(better if damaged == "edited" else seal(better)))
    cli("phase", "run", "baseline", "--project", rings.root, code=0, err="damaged-1, and trained again")
    assert read_json(path)["metrics"] == before["metrics"]
    assert cli("runs", "list", "--json", "--project", rings.root).json["runs"][0]["metrics"] == before["metrics"]
