"""A referee judges from code and config alone: an honest project holds, and each way to deceive it is named."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from mltrainer.companions.proof.findings import Score, Scored
from mltrainer.companions.proof.referee.checking import checked_scores, named_modules
from mltrainer.companions.proof.referee.referee import _audited, _comparable, _foreign, _of_author, _scored, _uncompared
from mltrainer.companions.proof.replay.scoring import _own
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError, MachineError, MltrainerError, UsageError
from mltrainer.executors.sandbox import unavailable
from mltrainer.handbook import shipped_folder
from mltrainer.records.finalization import Finalization
from mltrainer.records.job import JobBase, TrainingJob
from mltrainer.records.partial import partial
from mltrainer.runs import launcher
from mltrainer.trainers.native.evaluation import Evaluated
from mltrainer.workspace import Project, pretty_json, seal, sha256_file
from tests.conftest import Cli, Said, commit, git, shared, succeed
from tests.projects import TASK, recorded, write_light_template, write_rings

pytestmark = pytest.mark.slow
SHUT = pytest.mark.skipif(unavailable() is not None, reason=f"no process can be closed off here: {unavailable()}")
CONFIG: dict[str, Any] = {
    "name": "held",
    "id": "b642da856fcd",
    "task": {"kind": "tabular_classification"},
    "data": {"source": "../all-author.csv", "target": "answer", "missing": ["maybe"]},
    "model": {"name": "mlp", "hidden": [16]},
    "metric": {"name": "accuracy", "mode": "max"},
    "acceptance": {"accuracy": ">= 0.6"},
}


def write_table(path: Path) -> None:
    drawn = random.Random(3)
    rows = [[drawn.gauss(0, 1) for _ in range(3)] for _ in range(600)]
    lines = [f"{a:.4f},{b:.4f},{c:.4f},{'yes' if a + b * c + drawn.gauss(0, 0.3) > 0 else 'no'}\n" for a, b, c in rows]
    path.write_text("a,b,c,answer\n" + "".join(lines))


def write_author(folder: Path) -> None:
    """Divide a table, plan the author's project, walk its phases and commit it."""
    folder.mkdir(parents=True)
    write_table(folder / "all.csv")
    succeed("hold-out", "--data", folder / "all.csv", "--share", "15%", "--seed", "5", "--name", "lab")
    root = folder / "author"
    write_light_template(root)
    held = {"held_by": "lab", "held_rows": 90, "held_sha256": sha256_file(folder / "all-held.csv")}
    (root / "mltrainer.yaml").write_text(yaml.safe_dump({**CONFIG, "split": {"validation": 0.2, **held}}))
    (root / ".gitignore").write_text(".mltrainer/\n*.safetensors\n")
    commit(root, new=True)
    settings = ("epochs=6", "checkpoint.segments=6")
    succeed("phase", "run", "planning", "--project", root, *(word for one in settings for word in ("--set", one)))
    succeed("run", "--project", root)
    commit(root)


@pytest.fixture(scope="session")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared(tmp_path_factory, "held", write_author)


@pytest.fixture
def lab(walked: Path, tmp_path: Path) -> Path:
    """A folder with the author's project, the author's data and the held rows."""
    return Path(shutil.copytree(walked, tmp_path / "lab"))


Judge = Callable[..., Any]


@pytest.fixture
def judge(cli: Cli, lab: Path) -> Judge:
    def call(
        *more: str | Path, source: Path | str = lab / "author", held: Path | None = lab / "all-held.csv", code: int = 0
    ) -> Any:
        given = () if held is None else ("--held", held)
        data = () if "--data" in more else ("--data", lab / "all-author.csv")
        out = lab / "verdict.json"
        return cli("referee", source, *data, *given, "--out", out, "--json", "--not-closed-off", *more, code=code).json

    return call


def wrong(verdict: dict[str, Any]) -> dict[str, str]:
    """Return what does not hold, by what it is, with what was found."""
    return {row["what"]: row["found"] for row in verdict["checked"] if row["outcome"] == "no"}


@SHUT
def test_an_honest_project_holds_in_every_bit_and_on_rows_that_its_author_never_had(judge, lab):
    verdict = judge()
    assert (wrong(verdict), verdict["open"], verdict["foreign"], verdict["sample"]) == ({}, None, None, None)
    outcomes = {row["what"]: row["outcome"] for row in verdict["checked"]}
    assert outcomes.pop("accuracy on the held rows, as on validation") == "within"
    assert outcomes.pop("acceptance of accuracy on the held rows") == "met"
    assert {"delivered weights", "accuracy on validation", "weights after the last step"} <= outcomes.keys()
    assert set(outcomes.values()) == {"same"}
    assert (verdict["held"]["by"], verdict["held"]["samples"]) == ("lab", 90)
    low, high = verdict["held"]["intervals"]["accuracy"]
    assert 0.6 < low < verdict["held"]["metrics"]["accuracy"] < high
    assert verdict["commit"] == git(lab / "author", "rev-parse", "HEAD")
    text = (lab / "verdict.md").read_text()
    assert "**Everything that was compared holds:**" in text
    assert "90 rows, held by lab" in text
    assert [path.name for path in (lab / "author").iterdir() if path.name == ".mltrainer"] == [".mltrainer"]


def test_a_part_of_the_run_is_judged_by_the_authors_checkpoints(judge, lab, tools_here):
    run = recorded(lab / "author", "finalization")["evidence"]["run"]["id"]
    saved = lab / "author/.mltrainer/runs" / run
    verdict = judge("--segments", "40%", "--nonce", "ours", "--checkpoints", saved)
    assert (wrong(verdict), verdict["sample"]["nonce"]) == ({}, "ours")
    assert 0 < verdict["sample"]["replayed"] < verdict["sample"]["steps"]
    assert verdict["held"]["samples"] == 90


def test_an_audit_sees_of_the_authors_run_its_chain_and_its_checkpoints_alone(lab):
    run = recorded(lab / "author", "finalization")["evidence"]["run"]["id"]
    saved = lab / "author/.mltrainer/runs" / run
    assert (saved / "result.json").is_file()
    assert _audited(saved) == [saved / "chain.txt", saved / "checkpoints"]
    assert _audited(None) == []


def test_data_that_the_author_committed_and_the_referee_did_not_give_is_listed_as_not_compared(tmp_path):
    evidence = SimpleNamespace(config={"data": {"source": "all.csv", "test": "../last.csv"}})
    copy: Any = SimpleNamespace(project=SimpleNamespace(root=tmp_path / "copy"), record=SimpleNamespace(evidence=evidence))
    assert _of_author(copy, [tmp_path / "last.csv"]) == ["all.csv against your own copy: --data names none"]
    assert _of_author(copy, [tmp_path / "last.csv", tmp_path / "copy/all.csv"]) == []


def test_its_author_audits_a_final_run_that_the_baseline_trained(lab, cli, tools_here):
    root = lab / "author"
    first, last = (recorded(root, phase)["evidence"]["run"] for phase in ("baseline", "finalization"))
    assert (first["id"], first["phase"], last["phase"]) == (last["id"], "baseline", "finalization")
    said = cli("reproduce", "finalization", "--segments", "10%", "--json", "--project", root, code=0).json
    assert (said["identical"], said["record"]) == (True, "finalization")


def test_a_git_address_and_a_folder_without_git_are_judged_too(judge, lab, tools_here):
    by_address = judge(source=f"file://{lab / 'author'}")
    shutil.rmtree(lab / "author/.git")
    in_folder = judge()
    assert by_address["commit"]
    assert in_folder["commit"] is None
    assert wrong(by_address) == {}


# --- ways to deceive -----------------------------------------------------------------------------


def rewrite(root: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the evidence of finalization's record, seal it again, render its reports and commit: with our own functions."""
    from mltrainer.project.engine import render_phase

    path = Project(root).phase_dir("finalization") / "record.json"
    record = json.loads(path.read_bytes())
    change(record["evidence"])
    path.write_bytes(pretty_json(seal(record)))
    render_phase(Project(root), "finalization")
    commit(root)


@pytest.mark.parametrize("suffix", [".tsv", ".parquet"])
def test_held_rows_of_another_format_than_the_authors_are_listed_as_not_compared(lab, suffix):
    held, data = (lab / "all-held.csv", lab / "all-author.csv")
    assert (_comparable([data], held), _uncompared([data], held), _uncompared([data], None)) == ([data], [], [])
    other = held.with_suffix(suffix)
    assert _comparable([data], other) == []
    assert f"all-held{suffix} and all-author.csv are not of one format" in _uncompared([data], other)[0]
    assert "no file of --data" in _uncompared([], held)[0]


@pytest.fixture
def gates_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates that hold, as a careful forger makes them: otherwise nothing runs."""
    monkeypatch.setattr("mltrainer.companions.proof.referee.referee.check_gates", lambda _: [])


def better_metric(evidence: dict[str, Any]) -> None:
    run = evidence["run"]
    best = next(row for row in run["history"] if row["step"] == run["best"]["step"])
    for row in (run["best"]["validation"], best["validation"], run["metrics"]):
        row["accuracy"] = 0.99


def other_weights(evidence: dict[str, Any]) -> None:
    evidence["delivered_sha256"] = "0" * 64


def other_steps(evidence: dict[str, Any]) -> None:
    evidence["run"]["chain"]["head"] = "0" * 32


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (better_metric, "accuracy on validation"),
        (other_weights, "delivered weights"),
        (other_steps, "samples, loss and gradient norm of"),
    ],
)
def test_an_edited_record_is_named_though_its_seal_fits(judge, lab, tools_here, gates_hold, change, what):
    rewrite(lab / "author", change)
    assert any(row.startswith(what) for row in wrong(judge(code=5)))


def test_a_metric_too_good_for_the_held_rows_is_named(judge, lab, tools_here, gates_hold):
    rewrite(lab / "author", better_metric)
    assert "accuracy on the held rows, as on validation" in wrong(judge(code=5))


def test_other_data_than_the_authors_is_named(judge, lab, tools_here):
    path = lab / "all-author.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], *reversed(lines[1:])]))
    assert {"data: ../all-author.csv", "the training"} == wrong(judge(code=5)).keys()


def test_held_rows_that_the_author_trains_on_are_counted(judge, lab, tools_here):
    path = lab / "all-author.csv"
    path.write_text(path.read_text() + "".join((lab / "all-held.csv").read_text().splitlines(keepends=True)[1:8]))
    assert wrong(judge(code=5))["held rows that the author's data has"] == "7"


def test_other_held_rows_than_the_config_names_are_told(judge, lab, tools_here):
    path = lab / "all-held.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert "file of the held rows" in wrong(judge(code=5))


def test_held_rows_that_the_config_leaves_out_are_counted(judge, lab, tools_here):
    path = lab / "all-held.csv"
    path.write_text(path.read_text().replace("yes\n", "maybe\n", 11))
    assert wrong(judge(code=5))["held rows that were judged"] == "79"


@pytest.mark.parametrize("kind", [MltrainerError, UsageError, MachineError])
def test_a_process_that_fails_while_it_measures_does_not_hold_and_the_verdict_is_written(
    judge, lab, tools_here, monkeypatch, kind
):
    def lied(*_: Any) -> None:
        raise kind("all 14 values hold")

    monkeypatch.setattr("mltrainer.companions.proof.referee.referee._scored", lied)
    assert wrong(judge(code=5)) == {"the measuring": "all 14 values hold"}
    assert "| the measuring | finished | all 14 values hold | **no** |" in (lab / "verdict.md").read_text()


@pytest.mark.parametrize("result", [{}, {"weights_sha256": "a", "splits": {}}])
def test_a_process_that_leaves_no_scores_has_measured_nothing(monkeypatch, result):
    monkeypatch.setattr("mltrainer.companions.proof.referee.referee.production_template", lambda _: {"export": {}})
    monkeypatch.setattr("mltrainer.companions.proof.referee.referee.ScoreJob.model_validate", lambda _: None)
    tools = SimpleNamespace(project=Project(Path("/nowhere")), run=lambda *_: result)
    evidence = partial(Finalization, {"run": {"id": "a"}, "delivered_sha256": "a"})
    config = TrainingConfig.model_construct(threads=1, acceptance={})
    with pytest.raises(InputError, match="the process that measured left no score"):
        _scored(tools, evidence, config, Path("c"), ["validation"])


OWN = {"callbacks": [{"use": "spy:Spy"}], "distillation": {"use": "deep.teacher:make"}, "task": {"options": {"use": "x"}}}


def test_all_code_of_the_projects_own_is_named_and_not_the_task_alone(tmp_path):
    (tmp_path / "deep/teacher").mkdir(parents=True)
    assert [*named_modules(OWN, tmp_path)] == ["spy.py", "deep/teacher/__init__.py"]
    code = [{"path": "helper.py", "sha256": "a", "size": 1}]
    evidence = partial(Finalization, {"run": {"code_files": code}})
    copy = SimpleNamespace(record=SimpleNamespace(evidence=evidence), project=Project(tmp_path))
    config = TrainingConfig.model_validate({**CONFIG, "callbacks": ["spy:Spy"]})
    told = _foreign(config, copy, ["hidden.py"])
    assert told.endswith("takes part where the model is trained or measured; read helper.py, hidden.py, spy.py")
    evidence = partial(Finalization, {"run": {"code_files": []}})
    copy = SimpleNamespace(record=SimpleNamespace(evidence=evidence), project=Project(tmp_path))
    assert _foreign(TrainingConfig.model_validate(CONFIG), copy, []) is None


def test_a_criterion_that_the_held_rows_miss_is_told(judge, lab, tools_here):
    path = lab / "all-held.csv"
    flipped = {"yes\n": "no\n", "no\n": "yes\n"}
    rows = [line.rpartition(",") for line in path.read_text().splitlines(keepends=True)]
    path.write_text("".join(f"{head},{flipped.get(answer, answer)}" for head, _, answer in rows))
    assert "acceptance of accuracy on the held rows" in wrong(judge(code=5))


def test_a_changed_checkpoint_is_refused(judge, lab, tools_here):
    run = recorded(lab / "author", "finalization")["evidence"]["run"]["id"]
    saved = lab / "author/.mltrainer/runs" / run
    weights = next((saved / "checkpoints").glob("*/*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    assert "the training" in wrong(judge("--segments", "40%", "--checkpoints", saved, code=5))


def test_what_is_not_committed_is_not_judged(judge, lab, tools_here):
    (lab / "author/mltrainer.yaml").write_text("name: other\n")
    (lab / "author/phases/05_finalization/record.json").write_text("{}")
    assert wrong(judge()) == {}


def test_what_cannot_be_closed_off_runs_only_where_the_referee_says_so(judge, lab, cli, tools_here, monkeypatch):
    monkeypatch.setattr("mltrainer.companions.proof.referee.closing.unavailable", lambda: "no namespaces here")
    refusal = refused(cli, lab, "--data", lab / "all-author.csv", code=7).err
    assert "cannot be closed off here (no namespaces here)" in refusal
    assert "--not-closed-off" in refusal
    assert not (lab / "v.json").exists()
    assert judge()["open"] == "no namespaces here"
    assert "| closed off | **no**: no namespaces here |" in (lab / "verdict.md").read_text()


def test_without_the_held_rows_it_says_that_they_were_not_measured(judge, tools_here):
    verdict = judge(held=None)
    assert verdict["held"] is None
    assert "the rows that lab holds: give their file as --held" in verdict["unchecked"]


def test_nothing_that_the_training_left_is_there_when_the_weights_are_measured(judge, lab, tools_here, monkeypatch):
    kinds, real = [], launcher.launch

    def launch(project: Project, tool: str, job: JobBase, *more: Any, **named: Any) -> None:
        kinds.append((isinstance(job, TrainingJob), (project.state_dir / "tables/poison").exists()))
        real(project, tool, job, *more, **named)
        (project.state_dir / "tables").mkdir(exist_ok=True)
        (project.state_dir / "tables/poison").touch()

    monkeypatch.setattr("mltrainer.runs.launcher.launch", launch)
    assert wrong(judge()) == {}
    assert kinds == [(True, False), (False, False)]


# --- code of the project's own -------------------------------------------------------------------


SPY = """
    def samples(self):
        import os, socket
        from pathlib import Path
        if Path.home() != Path("/tmp"):
            return Noisy(self.n)
        found = [name for name in ("phases/05_finalization/record.json", ".git/HEAD") if Path(name).exists()]
        found += [name for name in os.environ if name == "SECRET_TOKEN"]
        try:
            socket.create_connection(("127.0.0.1", 9), 1)
        except ConnectionRefusedError:
            found.append("the network")
        except OSError:
            pass
        raise ValueError(f"sees {found}")
"""


@pytest.fixture(scope="session")
def rings_walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        code = TASK.replace("    def samples(self):\n        return Noisy(self.n)\n", SPY)
        assert code != TASK
        root = write_rings(folder, code).root
        (root / ".gitignore").write_text(".mltrainer/\n*.safetensors\n__pycache__/\n")
        commit(root, new=True)
        succeed("run", "--project", root)
        commit(root)

    make.__module__ = __name__
    return shared(tmp_path_factory, "rings_spying", make)


@SHUT
def test_a_training_sees_no_record_no_variable_and_no_network(rings_walked, tmp_path, cli, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "canary")
    verdict = cli("referee", rings_walked, "--out", tmp_path, "--json", code=5).json
    assert json.loads((tmp_path / "verdict.json").read_bytes())["seal"] == verdict["seal"]
    assert wrong(verdict)["the training"].endswith("sees []")
    assert verdict["foreign"].startswith("the task is the project's own code")


def test_nothing_runs_of_code_that_is_not_the_recorded_one(rings_walked, tmp_path, cli):
    root = Path(shutil.copytree(rings_walked, tmp_path / "rings"))
    (root / "my_task.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{TASK}")
    commit(root)
    verdict = cli("referee", root, "--not-closed-off", "--out", tmp_path / "v.json", "--json", code=5).json
    assert wrong(verdict)["the training"] == "not run: see above"
    assert "code: my_task.py" in wrong(verdict)
    assert not (tmp_path / "ran").exists()


def test_an_evaluator_of_the_projects_own_that_lies_is_told():
    outputs, targets = torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1, 1, 1])
    lied = Evaluated({"loss": 0.1, "accuracy": 0.99}, outputs, targets)
    assert _own(lied) == {"accuracy": 0.5}
    score = Score(samples=4, metrics=lied.metrics, intervals={}, own=_own(lied))
    evidence = partial(Finalization, {"run": {"best": {"validation": {"accuracy": 0.99}}}, "delivered_sha256": "a"})
    rows = {row.what: row.outcome for row in checked_scores(evidence, Scored(weights_sha256="a", splits={"validation": score}))}
    assert rows == {
        "delivered weights": "same",
        "accuracy on validation": "same",
        "accuracy on validation, by the project's own code and by mltrainer": "no",
    }


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [
        (torch.zeros(3, 2), torch.tensor([0, 1, -100])),
        (torch.zeros(3, 2), torch.tensor([0, 1, 2])),
        (torch.zeros(3, 4, 4), torch.zeros(3, 4, dtype=torch.int64)),
        ({"a": torch.zeros(3)}, torch.zeros(3)),
    ],
)
def test_outputs_of_another_form_are_not_judged_by_our_evaluator(outputs, targets):
    assert _own(Evaluated({"accuracy": 0.5}, outputs, targets)) == {}


# --- the verdict in the author's project ---------------------------------------------------------


CARD = "phases/05_finalization/final_model/README.md"


def test_a_verdict_is_added_and_the_card_shows_it(judge, lab, cli, tools_here):
    root = lab / "author"
    unmeasured = "90 rows to test on are held by lab, and the model has **not been measured on them yet**"
    assert unmeasured in (root / CARD).read_text()
    item = next(
        one for one in cli("gate", "check", "--json", "--project", root).json["phases"][-1]["items"] if "opened" in one["id"]
    )
    assert (item["verdict"], "held by lab" in item["evidence"]["rule"]) == ("not_applicable", True)
    judge()
    cli("verdict", lab / "verdict.json", "--project", root, code=0, out="shown by the model card")
    card = (root / CARD).read_text()
    assert "On 90 rows that lab holds and the author never had, accuracy is" in card
    assert "values that were compared hold" in card
    assert unmeasured not in card
    assert "On 90 rows that lab holds" in (root / "phases/05_finalization/final_report.md").read_text()
    cli("gate", "check", "--project", root, code=0)
    commit(root)
    git(lab, "clone", "--quiet", root, lab / "clone")
    cli("gate", "check", "--project", lab / "clone", code=0)


def test_a_verdict_that_says_no_is_shown_as_such(judge, lab, cli, tools_here):
    path = lab / "all-author.csv"
    path.write_text(path.read_text() + "0.1,0.2,0.3,yes\n")
    judge(code=5)
    cli("verdict", lab / "verdict.json", "--project", lab / "author", code=0)
    assert "do not hold: data: ../all-author.csv" in (lab / "author" / CARD).read_text()


def test_an_edited_verdict_is_refused_and_one_that_is_edited_later_closes_the_gate(judge, lab, cli, tools_here):
    root, path = lab / "author", lab / "verdict.json"
    verdict = judge(held=None)
    path.write_bytes(pretty_json({**verdict, "commit": "0" * 40}))
    cli("verdict", path, "--project", root, code=4, err="it was edited")
    path.write_text("{}")
    cli("verdict", path, "--project", root, code=1, err="it is no verdict")
    path.write_bytes(pretty_json(seal({**verdict, "record": "0" * 64})))
    cli("verdict", path, "--project", root, code=1, err="it is on the record 000000000000")
    path.write_bytes(pretty_json(verdict))
    cli("verdict", path, "--project", root, code=0)
    added = root / "phases/05_finalization/verdict.json"
    added.write_text(added.read_text().replace('"same"', '"met"', 1))
    cli("gate", "check", "--project", root, code=4, out="verdict.json: it was edited")
    added.write_bytes(pretty_json(seal({**verdict, "checked": verdict["checked"][:3]})))
    cli("gate", "check", "--project", root, code=4, out="final_model/README.md")
    added.write_bytes(pretty_json(seal({**verdict, "record": "0" * 64})))
    cli("gate", "check", "--project", root, code=4, out="final_model/README.md")
    added.unlink()
    cli("gate", "check", "--project", root, code=4, out="final_model/README.md")


def test_pages_of_the_projects_own_decide_neither_how_it_is_trained_nor_how_wide_an_interval_is(
    judge, lab, tools_here, monkeypatch
):
    root = lab / "author"
    usual = judge()
    # As an author's gates do who had these pages from the beginning: otherwise nothing would run.
    monkeypatch.setattr("mltrainer.companions.proof.referee.referee.check_gates", lambda _: [])
    for path in ("tools/segment_replayer/README.md", "phases/05_finalization/workflow.md"):
        text = (shipped_folder() / path).read_text()
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        changed = text.replace("environment_of:", "environment: {PYTHONPATH: .}\nenvironment_of:")
        (root / path).write_text(changed.replace("interval_level: 0.95", "interval_level: 0.9999"))
    commit(root)
    verdict = judge()
    assert wrong(verdict) == {}
    assert verdict["held"] == usual["held"]


# --- what is no project --------------------------------------------------------------------------


def refused(cli: Cli, lab: Path, *words: str | Path, code: int = 1, source: str | Path | None = None) -> Said:
    return cli("referee", source or lab / "author", *words, "--out", lab / "v.json", code=code)


def test_wrong_arguments_are_answered(cli, lab):
    assert "no such folder" in refused(cli, lab, source="nowhere").err
    assert "../all-author.csv, which is not committed" in refused(cli, lab).err
    assert "no such file or folder" in refused(cli, lab, "--data", lab / "all-author-2.csv").err
    assert "belong together" in refused(cli, lab, "--segments", "5%", code=2).err
    assert "--nonce needs --segments" in refused(cli, lab, "--nonce", "a", code=2).err
    shutil.rmtree(lab / "author/phases/05_finalization")
    commit(lab / "author")
    assert "no record of finalization is committed" in refused(cli, lab, "--data", lab / "all-author.csv", code=4).err


def test_a_committed_link_does_not_lead_the_data_elsewhere(cli, lab, tmp_path):
    (tmp_path / "home").mkdir()
    root = lab / "author"
    (root / "data").symlink_to(tmp_path / "home")
    change = lambda evidence: evidence["config"]["data"].update(source="data/all-author.csv")  # noqa: E731
    path = Project(root).phase_dir("finalization") / "record.json"
    record = json.loads(path.read_bytes())
    change(record["evidence"])
    path.write_bytes(pretty_json(seal(record)))
    commit(root)
    assert "leads out of the copy" in refused(cli, lab, "--data", lab / "all-author.csv").err
    assert list((tmp_path / "home").iterdir()) == []
