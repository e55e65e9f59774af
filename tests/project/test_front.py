"""The front door: what the command line does, as calls that return values and that a notebook shows."""

from __future__ import annotations

import doctest
import inspect
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mltrainer
from mltrainer.checkpointing.weights import weights_sha256
from mltrainer.errors import GateError, InputError
from mltrainer.gates.machine import Advice
from mltrainer.project import engine, exploring, front
from mltrainer.project.views import Status
from mltrainer.tasks.user_code import import_module
from mltrainer.workspace import Project as Places
from tests.conftest import Cli
from tests.projects import write_rings

KEPT = Path(__file__).parents[1] / "kept/0.1/digits.tar.gz"
README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished project as a clone has it: without runs, data and weights."""
    folder = tmp_path_factory.mktemp("kept")
    with tarfile.open(KEPT) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.rglob("mltrainer.yaml")).parent


# --- the six names --------------------------------------------------------------------------------


def test_the_six_names_are_shown_and_there() -> None:
    names = [name for name in dir(mltrainer) if not name.startswith("_")]
    assert names == ["Project", "Task", "fit", "load_model", "load_run", "records"]
    assert all(getattr(mltrainer, name) is not None for name in names)


def test_looking_at_a_project_needs_no_torch(kept: Path) -> None:
    code = f"import sys, mltrainer; p = mltrainer.Project({str(kept)!r}); p.gates(); p.runs(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout.strip() == "False"


# --- the same as the command line -----------------------------------------------------------------


def test_status_and_gates_are_those_of_the_command_line(kept: Path, cli: Cli) -> None:
    project = mltrainer.Project(kept / "phases")
    shown = cli("status", "--json", "--project", kept).json
    assert [(p.name, p.state) for p in project.status().phases] == [(p["name"], p["state"]) for p in shown["phases"]]
    gates = cli("gate", "check", "--json", "--project", kept).json["phases"]
    assert [[item.view() for item in gate.items] for gate in project.gates()] == [gate["items"] for gate in gates]
    assert project.gates()["baseline"].phase == "baseline"


def test_runs_are_those_of_the_command_line(kept: Path, cli: Cli) -> None:
    runs = mltrainer.Project(kept).runs()
    assert json.loads(json.dumps([run.row for run in runs])) == cli("runs", "list", "--json", "--project", kept).json["runs"]


def test_a_run_has_history_config_and_curves(kept: Path) -> None:
    run = mltrainer.load_run(kept, "baseline")
    assert len(run.history) == run.result["epochs"]
    assert run.config["optimizer"]["name"] == "adamw"
    assert run.curves[0]._repr_html_().startswith("<svg")
    assert "nan_loss" in [row["id"] for row in run.diagnose()]


def test_records_are_there_by_phase(kept: Path) -> None:
    found = mltrainer.records.read(kept)
    assert list(found) == list(mltrainer.Project(kept).records())
    assert found["planning"].typed.evidence.config["seed"] == 42
    assert found["baseline"].typed.evidence.run.state == "finished"


def test_changes_reach_a_phase_as_typed_ones(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(engine, "run_phase", lambda *given: asked.append(given[1:]))
    mltrainer.Project(kept).phase("planning", set={"optimizer.lr": 1e-7, "model.hidden": [8, 8], "clip": None})
    assert asked == [("planning", ("optimizer.lr=1e-07", "model.hidden=[8, 8]", "clip=null"), None)]


@pytest.mark.parametrize(
    "ask", [lambda p: p.phase("baselin"), lambda p: p.run("baselin"), lambda p: p.waive("baselin", "x", "y")]
)
def test_a_misspelled_phase_is_answered_with_the_nearest(kept: Path, ask: Any) -> None:
    with pytest.raises(InputError, match="did you mean 'baseline'"):
        ask(mltrainer.Project(kept))


def test_a_gate_that_there_is_not_is_told(kept: Path) -> None:
    with pytest.raises(InputError, match="there are planning, baseline"):
        mltrainer.Project(kept).gates()["tuning"]


def test_events_are_shown_or_told(kept: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(engine, "walk", lambda tools, _until: tools.note("epoch 3 of 4") or [])
    told: list[Any] = []
    mltrainer.Project(kept).run(tell=told.append)
    assert (told, capfd.readouterr().err) == ([{"event": "note", "text": "epoch 3 of 4"}], "")
    mltrainer.Project(kept).run()
    assert "epoch 3 of 4" in capfd.readouterr().err


def test_exploring_and_forking_ask_what_the_commands_ask(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(exploring, "find_rate", lambda _tools, *given, **named: asked.append((given, named)))
    monkeypatch.setattr(exploring, "find_batch_size", lambda _tools, *given, **named: asked.append((given, named)))
    monkeypatch.setattr(front, "fork_run", lambda _tools, *given: asked.append(given) or {"run": given[0]})
    monkeypatch.setattr(front, "export_run", lambda _tools, *given, **named: asked.append((given, named)))
    project, baseline = mltrainer.Project(kept), mltrainer.load_run(kept, "baseline").id
    project.lr_find(set={"batch_size": 32}, steps=20)
    project.batch_size(first=4)
    assert project.fork("baseline", step=120, set={"epochs": 9}).id == baseline
    project.export("baseline", to="out", formats=["onnx"])
    assert asked == [
        ((("batch_size=32",),), {"steps": 20}),
        (((),), {"first": 4}),
        (baseline, 120, ("epochs=9",)),
        ((baseline, ("onnx",), Path("out")), {"trained": False}),
    ]


def test_the_config_is_that_which_planning_would_write(kept: Path) -> None:
    config = mltrainer.Project(kept).config(set={"optimizer.lr": 1e-7, "task": {"kind": "image_classification"}})
    assert config.optimizer.lr == 1e-7
    assert config.epochs == 12


def test_a_project_is_made(tmp_path: Path) -> None:
    told: list[Any] = []
    project = mltrainer.Project.create(tmp_path / "wine", example="wine", tell=told.append)
    assert "mltrainer.yaml" in told[0]["text"]
    assert project.folder == tmp_path / "wine"
    assert project.status().next == "mltrainer phase run planning"


def test_errors_have_the_text_of_the_command_line(kept: Path, cli: Cli) -> None:
    with pytest.raises(InputError) as caught:
        mltrainer.load_run(kept, "nope")
    assert cli("runs", "show", "nope", "--project", kept).err == "".join(caught.value._render_traceback_()) + "\n"


# --- notebooks ------------------------------------------------------------------------------------


def test_a_notebook_shows_tables(kept: Path) -> None:
    project = mltrainer.Project(kept)
    assert "| planning |" in project._repr_markdown_()
    assert "| `finished` | ✅ pass |" in project.gates()["baseline"]._repr_markdown_()
    assert f"| {project.runs()[0].id} |".replace(" ", "") in project.runs()._repr_markdown_().replace(" ", "").replace("`", "")
    assert "accuracy 0.97" in project.load_run("baseline")._repr_markdown_()


def test_what_a_notebook_shows_of_a_record_is_escaped(kept: Path) -> None:
    from mltrainer.reports.notebook import runs_markdown

    row = {"id": "x", "phase": "<script>", "state": "a|b", "steps": 1, "metrics": {"<b>": 1.0}}
    assert not {"<script>", "a|b", "<b>"} & set(runs_markdown([row]).split())


# --- exploring ------------------------------------------------------------------------------------


def test_exploring_changes_nothing_in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = write_rings(tmp_path / "rings")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_task", raising=False)
    before = exploring.files(places, places.state_dir / "none")
    found = mltrainer.Project(places.root).fit(set={"epochs": 1, "batch_size": 50})
    sys.modules.pop("my_task")
    assert found.result["epochs"] == 1
    assert exploring.files(places, places.state_dir / "none") == before
    assert not mltrainer.Project(places.root).runs()


def test_a_module_of_another_project_is_not_taken_for_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    first, second = (write_rings(tmp_path / name).root for name in ("first", "second"))
    import_module("my_task:Rings", first)
    with pytest.raises(InputError, match=r"imported from .*first"):
        import_module("my_task:Rings", second)
    sys.modules.pop("my_task")


# --- models ---------------------------------------------------------------------------------------


def test_without_its_weights_a_model_is_refused_with_what_to_do(kept: Path) -> None:
    for run in ("final_model", "baseline"):
        with pytest.raises(InputError, match="out of git"):
            mltrainer.load_model(kept, run)


def test_the_final_model_has_the_delivered_weights(digits_once: Path) -> None:
    model = mltrainer.load_model(digits_once)
    expected = mltrainer.records.read(digits_once)["finalization"].evidence["delivered_sha256"]
    assert weights_sha256(model.state_dict()) == expected
    assert not model.training


def test_a_runs_model_has_its_best_weights(digits_once: Path) -> None:
    final = mltrainer.load_run(digits_once, "finalization")
    assert weights_sha256(final.model().state_dict()) == weights_sha256(mltrainer.load_model(digits_once).state_dict())


@pytest.mark.parametrize("run", ["final_model", "finalization"])
def test_changed_weights_are_refused(digits: Places, run: str) -> None:
    best = next(row for row in mltrainer.load_run(digits.root, "finalization").result["checkpoints"] if "best" in row["roles"])
    places = {"final_model": "phases/05_finalization/final_model/model.safetensors", "finalization": best["path"]}
    path = digits.root / places[run]
    path = path if path.is_file() else path / "state.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(GateError, match="sha256"):
        mltrainer.load_model(digits.root, run)


# --- examples -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "described", [front.Project, front.Project.predict, front.load_run, front.load_model, mltrainer.records.read, mltrainer.fit]
)
def test_the_examples_of_the_docstrings_run(described: Any, digits_once: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.chdir(digits_once.parent)
    names = {"mltrainer": mltrainer, "numpy": np, "torch": torch}
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(described) or "", names, described.__name__, None, 0)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


def test_the_readmes_session_says_what_it_says(digits_once: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(digits_once.parent)
    (session,) = re.findall(r"```pycon\n(.*?)```", README.read_text("utf-8"), flags=re.DOTALL)
    example = doctest.DocTestParser().get_doctest(session, {}, "README.md", str(README), 0)
    assert len(example.examples) > 5
    assert doctest.DocTestRunner().run(example).failed == 0


def test_what_comes_next_may_be_a_decision_and_no_command() -> None:
    status = Status((), Advice("optimization", None, "name a criterion", "nothing is decided", asks=True))
    assert (status.next, status.next_why) == (None, "nothing is decided; name a criterion")
    assert "name a criterion" in status._repr_markdown_()
