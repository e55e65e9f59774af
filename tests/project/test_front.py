"""The front door: what the command line does, as calls that return values and that a notebook shows."""

from __future__ import annotations

import doctest
import inspect
import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mltrainer
from mltrainer.checkpointing.weights import weights_sha256
from mltrainer.companions.questions import batch_size, exploration, learning_rate
from mltrainer.companions.questions.catalogue import CALLS
from mltrainer.errors import GateError, InputError
from mltrainer.gates.gate import GateItem
from mltrainer.gates.machine import Advice
from mltrainer.project import engine, front
from mltrainer.project.views import Status
from mltrainer.reports import notebook
from mltrainer.reports.frames import frame
from mltrainer.reports.runs import Difference, RunComparison, RunRow
from mltrainer.tasks.user_code import import_module
from tests.projects import as_cloned, write_rings

GUIDE = Path(__file__).parents[2] / "docs/API.md"


@pytest.fixture(scope="session")
def kept(digits_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished project as a clone has it."""
    return as_cloned(digits_once, tmp_path_factory.mktemp("kept")).root


# --- the six names --------------------------------------------------------------------------------


def test_the_six_names_are_shown_and_there():
    names = [name for name in dir(mltrainer) if not name.startswith("_")]
    assert names == ["Project", "Task", "fit", "load_model", "load_run", "records"]
    assert all(getattr(mltrainer, name) is not None for name in names)


@pytest.mark.slow
def test_looking_at_a_project_needs_no_torch(kept):
    code = f"import sys, mltrainer; p = mltrainer.Project({str(kept)!r}); p.gates()._repr_html_(); p.runs()._repr_html_()\n"
    code += "print({'torch', 'pandas', 'numpy'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout.strip() == "set()"


# --- the same as the command line -----------------------------------------------------------------


@pytest.mark.slow
def test_status_and_gates_are_those_of_the_command_line(kept, cli):
    project = mltrainer.Project(kept / "phases")
    shown = cli("status", "--json", "--project", kept).json
    assert [(p.name, p.state) for p in project.status().phases] == [(p["name"], p["state"]) for p in shown["phases"]]
    gates = cli("gate", "check", "--json", "--project", kept).json["phases"]
    assert [[item.view() for item in gate.items] for gate in project.gates()] == [gate["items"] for gate in gates]
    assert project.gates()["baseline"].phase == "baseline"


def test_runs_are_those_of_the_command_line(kept, cli):
    runs = mltrainer.Project(kept).runs()
    assert json.loads(json.dumps([run.row for run in runs])) == cli("runs", "list", "--json", "--project", kept).json["runs"]


def test_a_run_has_history_config_and_curves(kept):
    run = mltrainer.load_run(kept, "baseline")
    assert len(run.history) == run.result["epochs"]
    assert run.config["optimizer"]["name"] == "adamw"
    assert run.curves[0]._repr_html_().startswith("<svg")
    assert "nan_loss" in [row["id"] for row in run.diagnose()]


def test_records_are_there_by_phase(kept):
    found = mltrainer.records.read(kept)
    assert list(found) == list(mltrainer.Project(kept).records())
    assert found["planning"].trusted.evidence.config["seed"] == 42
    assert found["baseline"].trusted.evidence.run.state == "finished"


def test_what_was_edited_is_not_trusted(tmp_path):
    phase = tmp_path / "phases/02_baseline"
    phase.mkdir(parents=True)
    (tmp_path / "mltrainer.yaml").write_text("name: x\n")
    (phase / "record.json").write_text("{}")
    with pytest.raises(GateError, match=r"record.json has schema None"):
        mltrainer.Project(tmp_path).records()["baseline"].trusted  # noqa: B018 - reading it is what is tried


@pytest.mark.slow
def test_gates_phases_and_records_are_printed_in_a_line(kept):
    project = mltrainer.Project(kept)
    assert repr(project.gates()["baseline"]) == "Gate(baseline holds)"
    assert max(len(repr(row)) for row in (*project.status().phases, *project.records().values())) < 1000


def test_changes_reach_a_phase_as_typed_ones(kept, monkeypatch):
    asked: list[Any] = []
    monkeypatch.setattr(engine, "run_phase", lambda *given: asked.append(given[1:]))
    mltrainer.Project(kept).phase("planning", set={"optimizer.lr": 1e-7, "model.hidden": [8, 8], "clip": None})
    assert asked == [("planning", ("optimizer.lr=1e-07", "model.hidden=[8, 8]", "clip=null"), None)]


@pytest.mark.parametrize(
    "ask",
    [
        lambda p: p.phase("baselin"),
        lambda p: p.run("baselin"),
        lambda p: p.check("baselin"),
        lambda p: p.waive("baselin", "x", "y"),
    ],
)
def test_a_misspelled_phase_is_answered_with_the_nearest(kept, ask):
    with pytest.raises(InputError, match="did you mean 'baseline'"):
        ask(mltrainer.Project(kept))


def test_a_gate_that_there_is_not_is_told(kept):
    with pytest.raises(InputError, match="there are planning, baseline"):
        mltrainer.Project(kept).gates()["tuning"]


def test_events_are_shown_or_told(kept, monkeypatch, capfd):
    monkeypatch.setattr(engine, "walk", lambda tools, _until: tools.note("epoch 3 of 4") or [])
    told: list[Any] = []
    mltrainer.Project(kept).run(tell=told.append)
    assert (told, capfd.readouterr().err) == ([{"event": "note", "text": "epoch 3 of 4"}], "")
    mltrainer.Project(kept).run()
    assert "epoch 3 of 4" in capfd.readouterr().err


def test_exploring_and_forking_ask_what_the_commands_ask(kept, monkeypatch):
    asked, found = list[Any](), SimpleNamespace(written=dict)
    monkeypatch.setattr(learning_rate, "lr_find", lambda _tools, **named: asked.append(named) or found)
    monkeypatch.setattr(batch_size, "batch_size", lambda _tools, **named: asked.append(named) or found)
    monkeypatch.setattr(front, "fork_run", lambda _tools, *given: asked.append(given) or SimpleNamespace(run=given[0]))
    monkeypatch.setattr(front, "export_run", lambda _tools, *given, **named: asked.append((given, named)) or [])
    project, baseline = mltrainer.Project(kept), mltrainer.load_run(kept, "baseline").id
    project.lr_find(set={"batch_size": 32}, steps=20)
    project.batch_size(first=4)
    assert project.fork("baseline", step=120, set={"epochs": 9}).id == baseline
    project.export("baseline", to="out", formats=["onnx"])
    assert asked == [
        {"set": {"batch_size": 32}, "steps": 20},
        {"first": 4},
        (baseline, 120, ("epochs=9",)),
        ((baseline, ("onnx",), Path("out")), {"trained": False}),
    ]


@pytest.mark.parametrize("name", CALLS)
def test_a_question_is_a_method_with_its_own_arguments_and_tell(kept, name):
    project = mltrainer.Project(kept)
    assert name in dir(project)
    assert inspect.getdoc(getattr(project, name))
    assert {"tell", "tools"} & set(inspect.signature(getattr(project, name)).parameters) == {"tell"}


def test_what_a_project_does_not_have_is_said(kept):
    with pytest.raises(AttributeError, match="a project has no 'lr_fnd'"):
        mltrainer.Project(kept).lr_fnd()


def test_the_config_is_that_which_planning_would_write(kept):
    config = mltrainer.Project(kept).config(set={"optimizer.lr": 1e-7, "task": {"kind": "image_classification"}})
    assert config.optimizer.lr == 1e-7
    assert config.epochs == 12


def test_a_project_is_made(tmp_path):
    told: list[Any] = []
    project = mltrainer.Project.create(tmp_path / "wine", example="wine", tell=told.append)
    assert "mltrainer.yaml" in told[0]["text"]
    assert project.folder == tmp_path / "wine"
    assert project.status().next == "mltrainer phase run planning"


def test_a_project_is_made_of_a_program(tmp_path):
    told: list[Any] = []
    mltrainer.Project.create(tmp_path, script="python train.py --seed {seed}", metrics="out.json", metric="f1", tell=told.append)
    written = (tmp_path / "mltrainer.yaml").read_text()
    assert "task: {script: 'python train.py --seed {seed}', metrics: out.json}" in written
    assert "metric: {name: f1, mode: max}" in written
    assert "mltrainer guide tools/script_runner/README" in " ".join(row["text"] for row in told)


def test_errors_have_the_text_of_the_command_line(kept, cli):
    with pytest.raises(InputError) as caught:
        mltrainer.load_run(kept, "nope")
    assert cli("runs", "show", "nope", "--project", kept).err == "".join(caught.value._render_traceback_()) + "\n"


# --- gates and runs, looked at again --------------------------------------------------------------


@pytest.mark.slow
def test_a_check_holds_where_the_command_exits_with_0(kept, digits, cli):
    assert mltrainer.Project(kept).check().hold
    assert not mltrainer.Project(kept).check(files=True).hold  # a clone has no data and no weights
    assert mltrainer.Project(digits.root).check(files=True).hold
    (digits.phase_dir("finalization") / "final_report.md").write_text("better")
    project = mltrainer.Project(digits.root)
    assert (project.check().hold, project.check("baseline").hold, cli("gate", "check", "--project", digits.root).code) == (
        False,
        True,
        4,
    )


def test_a_check_of_what_has_not_run_does_not_hold(tmp_path):
    found = mltrainer.Project.create(tmp_path / "wine", example="wine", tell=lambda _event: None).check()
    assert ([gate.phase for gate in found], found.hold) == (["planning"], False)


def test_a_comparison_is_that_of_the_command_line(digits_once, cli):
    found = mltrainer.Project(digits_once).compare("baseline", "finalization")
    said = cli("runs", "compare", "baseline", "finalization", "--json", "--project", digits_once).json
    assert json.loads(json.dumps(found.found)) == said
    assert (found.differences["epochs"], found.same_bits) == ((12, 15), False)
    assert mltrainer.Project(digits_once).compare("baseline", "baseline").same_bits is True


def test_of_runs_that_are_not_here_it_is_not_known_whether_their_bits_are_the_same(kept):
    assert mltrainer.Project(kept).compare("baseline", "finalization").same_bits is None


def test_every_step_has_its_loss_and_its_norm(digits_once, kept):
    run = mltrainer.load_run(digits_once, "baseline")
    assert [row["step"] for row in run.steps] == list(range(1, run.row["steps"] + 1))
    assert run.steps[0]["loss"] == pytest.approx(run.result["first_loss"], rel=1e-6)
    first = run.history[0]
    assert max(row["grad_norm"] for row in run.steps[: first["step"]]) == pytest.approx(first["grad_norm"]["max"])
    assert mltrainer.load_run(kept, "baseline").steps == []


def test_histories_steps_and_runs_are_frames(digits_once):
    project = mltrainer.Project(digits_once)
    run = project.load_run("baseline")
    evaluations, steps, runs = run.frame(), run.frame(steps=True), project.runs().frame()
    assert list(evaluations.index) == [row["step"] for row in run.history]
    assert list(evaluations["validation.accuracy"]) == [row["validation"]["accuracy"] for row in run.history]
    assert len(steps) == run.row["steps"]
    assert runs.loc[run.id, "metrics.accuracy"] == run.metrics["accuracy"]
    assert runs.loc[run.id, "config.model.hidden"] == run.config["model"]["hidden"]


def test_a_number_that_json_cannot_hold_is_one_again_in_a_frame():
    found = frame([{"step": 1, "train": {"loss": "nan"}}, {"step": 2, "train": {"loss": "-inf"}}], "step")
    assert found["train.loss"].isna().tolist() == [True, False]
    assert found["train.loss"].tolist()[1] == -np.inf
    assert frame([], "step").empty


def test_without_pandas_a_frame_is_refused_with_what_to_do(kept, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="needs the package pandas") as caught:
        mltrainer.load_run(kept, "baseline").frame()
    assert "mltrainer[pandas]" in str(caught.value)


# --- notebooks ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_notebook_shows_tables(kept):
    project = mltrainer.Project(kept)
    assert "| planning |" in project._repr_markdown_()
    assert "| `finished` | ✅ pass |" in project.gates()["baseline"]._repr_markdown_()
    assert f"| {project.runs()[0].id} |".replace(" ", "") in project.runs()._repr_markdown_().replace(" ", "").replace("`", "")
    assert "accuracy 0.97" in project.load_run("baseline")._repr_markdown_()


@pytest.mark.slow
def test_a_notebook_shows_gates_runs_and_status_as_html(kept):
    project = mltrainer.Project(kept)
    gates, run = project.gates()._repr_html_(), project.load_run("baseline")._repr_html_()
    assert project._repr_html_() == project.status()._repr_html_()
    assert "passed</span>" in project._repr_html_()
    assert gates.count("<details>") == gates.count("<summary>") == 5  # what holds is folded away
    assert "<code>finished</code>" in gates
    assert "<svg" in run
    assert f"<code>{project.load_run('baseline').id}</code>" in project.runs()._repr_html_()


@pytest.mark.slow
def test_a_gate_that_does_not_hold_is_open_and_says_what_mends_it(digits):
    (digits.phase_dir("baseline") / "baseline_results.md").write_text("better")
    shown = mltrainer.Project(digits.root).gates()["baseline"]._repr_html_()
    assert shown.startswith("<details open>")
    assert "baseline_results.md where it is committed, or mltrainer phase run baseline" in shown


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>"


def shown_run(name: str, **known: Any) -> RunRow:
    """Return a run of which little is known."""
    return RunRow(**{**dict.fromkeys(entry.name for entry in fields(RunRow)), "id": name, **known})


def test_nothing_that_a_notebook_is_given_as_html_acts():
    row = shown_run(HOSTILE, phase=HOSTILE, state=HOSTILE, metrics={HOSTILE: 1.0}, step_time_us={HOSTILE: [HOSTILE]})
    item = GateItem(HOSTILE, HOSTILE, HOSTILE, {HOSTILE: {HOSTILE: HOSTILE}}, HOSTILE)
    found = RunComparison(HOSTILE, HOSTILE, [Difference(HOSTILE, HOSTILE, [HOSTILE])], None, 0, None)
    shown = [
        notebook.gate_html(HOSTILE, False, [item], [HOSTILE]),
        notebook.status_html([(HOSTILE, HOSTILE, [HOSTILE])], HOSTILE),
        notebook.runs_html([row]),
        notebook.run_html(row, notebook.Curves()),
        notebook.comparison_html(found),
    ]
    assert not [text for text in shown if "<script" in text or "<img" in text]
    assert all("&lt;script&gt;" in text for text in shown)


@pytest.mark.slow
def test_what_a_notebook_shows_asks_for_nothing_from_elsewhere(kept):
    project = mltrainer.Project(kept)
    views = [project, project.gates(), project.runs(), project.load_run("baseline"), project.compare("baseline", "finalization")]
    shown = "".join(view._repr_html_() for view in views)
    assert not re.findall(r"<script|<link|@import|(?:src|href)=[\"'](?!#)|url\((?!#)", shown)


def test_a_comparison_is_shown_as_tables(kept):
    found = mltrainer.Project(kept).compare("baseline", "finalization")
    assert "<code>epochs</code>" in found._repr_html_()
    assert "| `epochs` |" in found._repr_markdown_()
    assert "the chain of one of them is not here" in found._repr_html_()


def test_what_a_notebook_shows_of_a_record_is_escaped(kept):
    row = shown_run("x", phase="<script>", state="a|b", metrics={"<b>": 1.0})
    assert not {"<script>", "a|b", "<b>"} & set(notebook.runs_markdown([row]).split())


# --- exploring ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_exploring_changes_nothing_in_a_project(tmp_path, monkeypatch):
    places = write_rings(tmp_path / "rings")
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = exploration.files(places, places.state_dir / "none")
    found = mltrainer.Project(places.root).fit(set={"epochs": 1, "batch_size": 50})
    assert found.result["epochs"] == 1
    assert exploration.files(places, places.state_dir / "none") == before
    assert not mltrainer.Project(places.root).runs()


def test_a_module_of_another_project_is_not_taken_for_ones_own(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    first, second = (write_rings(tmp_path / name).root for name in ("first", "second"))
    import_module("my_task:Rings", first)
    with pytest.raises(InputError, match=r"imported from .*first"):
        import_module("my_task:Rings", second)


# --- models ---------------------------------------------------------------------------------------


def test_without_its_weights_a_model_is_refused_with_what_to_do(kept):
    for run in ("final_model", "baseline"):
        with pytest.raises(InputError, match="not in git"):
            mltrainer.load_model(kept, run)


def test_the_final_model_has_the_delivered_weights(digits_once):
    model = mltrainer.load_model(digits_once)
    expected = mltrainer.records.read(digits_once)["finalization"].evidence["delivered_sha256"]
    assert weights_sha256(model.state_dict()) == expected
    assert not model.training


def test_a_runs_model_has_its_best_weights(digits_once):
    final = mltrainer.load_run(digits_once, "finalization")
    expected = weights_sha256(mltrainer.load_model(digits_once).state_dict())
    assert weights_sha256(final.model().state_dict()) == expected
    assert weights_sha256(mltrainer.Project(digits_once).load_model().state_dict()) == expected
    with pytest.raises(InputError, match="the delivered weights alone"):
        mltrainer.Project(digits_once).load_model(trained=True)


@pytest.mark.parametrize("run", ["final_model", "finalization"])
def test_changed_weights_are_refused(digits, run):
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
    "described",
    [
        front.Project,
        front.Project.predict,
        front.Project.compare,
        front.load_run,
        front.load_model,
        mltrainer.records.read,
        mltrainer.fit,
    ],
)
def test_the_examples_of_the_docstrings_run(described, digits_once, monkeypatch):
    import torch

    monkeypatch.chdir(digits_once.parent)
    names = {"mltrainer": mltrainer, "numpy": np, "torch": torch}
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(described) or "", names, described.__name__, None, 0)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


@pytest.mark.slow
def test_the_session_of_the_guide_says_what_it_says(digits_once, monkeypatch):
    monkeypatch.chdir(digits_once.parent)
    (session,) = re.findall(r"```pycon\n(.*?)```", GUIDE.read_text("utf-8"), flags=re.DOTALL)
    example = doctest.DocTestParser().get_doctest(session, {}, "API.md", str(GUIDE), 0)
    assert len(example.examples) > 5
    assert doctest.DocTestRunner().run(example).failed == 0


def test_every_call_of_the_guide_is_there(kept):
    table = GUIDE.read_text("utf-8").partition("\n## ")[0]
    run = mltrainer.load_run(kept, "baseline")
    for name, of in (("project", mltrainer.Project), ("Project", mltrainer.Project), ("run", run)):
        calls = re.findall(rf"\b{name}\.(\w+)", table)
        assert calls
        assert not [call for call in calls if not hasattr(of, call)]


def test_what_comes_next_may_be_a_decision_and_no_command():
    status = Status((), Advice("optimization", None, "name a criterion", "nothing is decided", asks=True))
    assert (status.next, status.next_why) == (None, "nothing is decided; name a criterion")
    assert "name a criterion" in status._repr_markdown_()
