"""`mltrainer diagnose --try` and `--apply`: what is trained, what is told, and which files are written."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

import mltrainer
from mltrainer.companions.questions import remediation as ask
from mltrainer.companions.questions.remediation import Trial, text
from mltrainer.configs.templates import BASELINE
from mltrainer.diagnostics.remedies import Candidate
from mltrainer.errors import InputError
from mltrainer.handbook import shipped_folder
from mltrainer.records.diagnostics import Diagnosis
from mltrainer.records.job import AblationJob
from mltrainer.runs.find import find_run, result_of
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import Project, write_json
from tests.cli.conftest import contents
from tests.conftest import commit, succeed
from tests.projects import evidence_of, results


def never(*_: Any) -> None:
    raise AssertionError("nothing is to be trained")


def tools(project: Project, launch: Any = never) -> Tools:
    return Tools(project, lambda event: None, launch)


def measured(run: str, value: float) -> dict[str, Any]:
    row = {"state": "finished", "run": run, "value": value, "reason": None, "wall_s": 1.0}
    return {**row, "parameters": None, "weights_sha256": None, "step_us": None}


def template_of(project: Project) -> str:
    return (project.root / BASELINE).read_text()


# --- trying ---------------------------------------------------------------------------------------


def _fires(rows: list[Diagnosis], *names: str) -> list[Diagnosis]:
    return [row.model_copy(update={"state": "fired" if row.id in names else "clear"}) for row in rows]


def test_where_nothing_fired_it_says_so_and_trains_nothing(digits, monkeypatch):
    whole = ask.diagnoses_of
    monkeypatch.setattr(ask, "diagnoses_of", lambda project, run: _fires(whole(project, run)))
    found = ask.try_fixes(tools(digits), find_run(digits, "baseline"))
    assert (found.rows, found.best, found.fired) == ([], None, [])


def test_what_is_only_about_time_is_told_and_not_tried(digits, monkeypatch, cli):
    whole = ask.diagnoses_of
    monkeypatch.setattr(ask, "diagnoses_of", lambda project, run: _fires(whole(project, run), "input_starvation"))
    said = cli("diagnose", "--try", "--project", digits.root, code=0)
    assert "no diagnostic fired that a change of the config could cure; nothing was trained" in said.out
    assert "not judged: input_starvation: " in said.out


@pytest.mark.slow
def test_the_unchanged_config_is_trained_on_the_runs_own_seed(digits, monkeypatch):
    jobs: list[dict[str, Any]] = []
    baseline = find_run(digits, "baseline")

    def launch(project: Project, tool: str, job: AblationJob, on_event: Any, variables: Any = None) -> None:
        assert tool == "ablation_study"
        jobs.append(job.written())
        side = measured(baseline, 0.9)
        write_json(project.root / job.folder / "result.json", {"seeds": [42], "sides": [[side]] * (1 + len(job.variants))})

    whole = ask.diagnoses_of
    monkeypatch.setattr(ask, "diagnoses_of", lambda project, run: _fires(whole(project, run), "underfitting"))
    found = ask.try_fixes(tools(digits, launch), baseline, epochs=5)
    assert (jobs[0]["seeds"], jobs[0]["config"]["epochs"], found.epochs) == (0, 5, 5)
    assert found.symptoms == []  # so short a trial does not show it, which is said
    assert {row.verdict for row in found.rows} == {"changes nothing"}
    assert found.best is None
    with pytest.raises(InputError, match=r"fewer epochs than the .* of the run, found 13"):
        ask.try_fixes(tools(digits), baseline, epochs=13)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "word"), [(358, "no clear difference"), (100_000, "helps")])
def test_what_lies_within_the_interval_of_so_few_rows_helps_nothing_and_the_table_says_why(rows, word, digits, monkeypatch):
    found = tried(digits, monkeypatch, rows, [0.9777, 0.9888])
    assert [row.verdict for row in found.rows] == [word]
    told = text(found)
    assert ("within what 358 validation rows leave to chance at 95 % (1 change compared)" in told) == (rows == 358)
    assert ("no change helps" in told) == (rows == 358)


def test_each_of_several_changes_has_its_part_of_the_level(digits, monkeypatch):
    alone, among = (tried(digits, monkeypatch, 358, [0.93, *values]) for values in ([0.966], [0.966, 0.966, 0.966, 0.966]))
    assert {row.verdict for row in alone.rows} == {"helps"}
    assert {row.verdict for row in among.rows} == {"no clear difference"}


def tried(project: Project, monkeypatch: pytest.MonkeyPatch, rows: int, values: list[float]) -> Trial:
    """Return what a trial of changes finds whose runs gave these accuracies on so many rows, the unchanged config's first."""
    baseline = find_run(project, "baseline")

    def launch(project: Project, tool: str, job: AblationJob, on_event: Any, variables: Any = None) -> None:
        sides = [[measured(baseline, value)] for value in values]
        write_json(project.root / job.folder / "result.json", {"seeds": [42], "sides": sides})

    changes = [Candidate(f"change {nr}", {"optimizer.lr": 0.1 + nr}, "a test") for nr in range(1, len(values))]
    whole = ask.diagnoses_of
    monkeypatch.setattr(ask, "diagnoses_of", lambda project, run: _fires(whole(project, run), "underfitting"))
    monkeypatch.setattr(ask, "candidates", lambda *_, **__: (changes, []))
    monkeypatch.setattr(ask, "result_of", lambda *_: {**result_of(project, baseline), "measured_samples": {"validation": rows}})
    return ask.try_fixes(tools(project, launch), baseline, epochs=5)


def test_epochs_go_with_try_alone(digits, cli):
    cli("diagnose", "--epochs", "2", "--project", digits.root, code=2)


# --- applying -------------------------------------------------------------------------------------


def test_a_change_goes_into_a_copy_of_the_shipped_template_whose_comments_stay(digits):
    commit(digits.root)
    found = ask.apply_fix(tools(digits), {"optimizer.lr": 0.25}).written()
    shipped = (shipped_folder() / BASELINE).read_text()
    assert template_of(digits) == shipped.replace("lr: 1.0e-3 ", "lr: 0.25   ")
    changed = [line for line in found["diff"].splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert [line.split("#")[0].strip("+- ") for line in changed] == ["lr: 1.0e-3", "lr: 0.25"]
    assert found["next"][0] == f"git add --intent-to-add {BASELINE}"
    assert ask._present(tools(digits)).config.optimizer.lr == 0.25


def test_keys_go_where_they_stand(digits):
    commit(digits.root)
    found = ask.apply_fix(tools(digits), {"epochs": 3, "model.dropout": 0.4, "batch_size": 32}).written()
    paths = {"phases/01_planning/training_config.yaml", "mltrainer.yaml", BASELINE}
    assert {file["path"] for file in found["files"]} == paths  # the epochs were edited before
    config = ask._present(tools(digits)).config
    assert (config.epochs, config.model.dropout, config.batch_size) == (3, 0.4, 32)  # type: ignore[union-attr]
    git = subprocess.run(["git", "diff", "--stat"], cwd=digits.root, capture_output=True, text=True).stdout
    assert "mltrainer.yaml" in git


def test_a_file_with_other_changes_is_refused_and_nothing_is_written(digits, cli):
    commit(digits.root)
    with digits.file.open("a") as file:
        file.write("# mine\n")
    before = contents(digits.root)
    with pytest.raises(InputError, match=r"mltrainer\.yaml: changes that are not committed would mix"):
        ask.apply_fix(tools(digits), {"model.dropout": 0.4, "batch_size": 32})
    assert contents(digits.root) == before


@pytest.mark.parametrize("changes", [{"optimizer.lr": -1.0}, {"optimizer.lrr": 1.0}, {"optimizer.lr": 1e-3}])
def test_what_does_not_fit_or_stands_there_already_is_refused(digits, changes):
    commit(digits.root)
    before = contents(digits.root)
    with pytest.raises(InputError):
        mltrainer.Project(digits.root).apply_fix(changes)
    assert contents(digits.root) == before


def test_where_nothing_is_suggested_nothing_is_written(digits, monkeypatch, cli):
    whole = ask.diagnoses_of
    monkeypatch.setattr(ask, "diagnoses_of", lambda project, run: _fires(whole(project, run)))
    before = contents(digits.root)
    for line in (("--apply",), ("--try", "--apply")):
        cli("diagnose", *line, "--project", digits.root, code=1, err="nothing")
    assert contents(digits.root) == before


# --- a real walk ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.long
def test_a_rate_that_is_far_too_low_is_cured_and_the_cure_is_taken_over(tmp_path, cli):
    folder = tmp_path / "digits"
    succeed("init", folder, "--example", "digits")
    own = ("--project", folder)
    succeed("phase", "run", "planning", "--set", "optimizer.lr=1e-8", "--set", "epochs=6", *own)
    succeed("phase", "run", "baseline", *own)
    commit(folder)
    before = contents(folder)
    project = Project(folder)
    baseline = find_run(project, "baseline")
    kept = (project.runs_dir / baseline / "result.json").stat().st_mtime_ns
    found = cli("diagnose", "--try", "--json", *own).json["tried"]
    assert "learning_rate_low" in found["fired"]
    assert found["unchanged"]["run"] == baseline
    assert (project.runs_dir / baseline / "result.json").stat().st_mtime_ns == kept
    assert found["best"]["verdict"] == "cures"
    assert "optimizer.lr" in found["best"]["changes"]
    assert contents(folder) == before  # no gate, no record, no page
    ended = set(results(project))
    said = cli("diagnose", "--try", "--apply", *own, code=0)
    assert set(results(project)) == ended  # found again
    assert f"next: {found['best']['command']}" in said.out
    assert "+  lr: " in said.out
    cli("phase", "run", "planning", *own, code=0)
    planned = evidence_of(project, "planning")["config"]
    assert planned["optimizer"]["lr"] == found["best"]["changes"]["optimizer.lr"]
    assert json.dumps(found["rows"])
