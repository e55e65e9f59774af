"""A claim measured again in a clone, which has the committed records and no file of any run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mltrainer.records.job import TrainingJob
from mltrainer.records.run import RunResult, read_result
from mltrainer.runs.contract import run_id
from mltrainer.workspace import Project, digest, pretty_json, seal
from tests.conftest import Cli
from tests.gates import evidence
from tests.projects import evidence_of

Record = dict[str, Any]
FINAL = "finalization"


@pytest.fixture
def clone(digits: Project) -> Project:
    """The finished project as a clone has it: without state folder and without the delivered weights."""
    shutil.rmtree(digits.state_dir)
    (digits.phase_dir(FINAL) / "final_model/model.safetensors").unlink()
    return digits


@pytest.fixture
def trained(digits_once: Path, monkeypatch: pytest.MonkeyPatch) -> list[TrainingJob]:
    """What the tool is asked to train; it answers with what the original run came to, as training anew does."""
    asked: list[TrainingJob] = []

    class Trained:
        def __init__(self, root: Path) -> None:
            self.root = root

        def run(self, job: TrainingJob) -> RunResult:
            asked.append(job)
            evidence = evidence_of(digits_once, str(job.phase))
            shutil.copytree(digits_once / ".mltrainer/runs" / evidence["run"]["id"], self.root / job.folder)
            path = self.root / job.folder / "result.json"
            if "delivered_sha256" in evidence and job.delivers_after == evidence["run"]["best"]["step"]:
                delivered = {"delivered_sha256": evidence["delivered_sha256"]}
                path.write_bytes(pretty_json(seal({**json.loads(path.read_bytes()), **delivered})))
            return read_result(path, RunResult)

    monkeypatch.setattr("mltrainer.runs.recorded.trainer_for", lambda tools, *others: Trained(tools.project.root))
    return asked


def forge(project: Project, change: Callable[[Record], object], phase: str = FINAL) -> None:
    evidence.forge(project, lambda record: change(record["evidence"]), phase)


def reproduced(cli: Cli, project: Project, run: str = FINAL) -> tuple[int, Record]:
    said = cli("reproduce", run, "--json", "--project", project.root)
    return said.code, said.json


@pytest.mark.slow
def test_a_clone_trains_from_the_record_and_compares_bit_for_bit(clone, cli):
    said = cli("reproduce", "finalization", "--project", clone.root, code=0, out="bitwise identical in 300 steps")
    assert "compared with the record of finalization: weights, metrics and the head of the chain" in said.out
    assert "the delivered weights were passed through again, bit for bit" in said.out
    assert (clone.state_dir / ".gitignore").read_text() == "*\n"
    assert not clone.runs_dir.exists()


def test_what_is_trained_is_what_the_record_says(clone, cli, trained):
    assert reproduced(cli, clone)[0] == reproduced(cli, clone, "baseline")[0] == 0
    final, first = trained
    evidence = evidence_of(clone, FINAL)
    assert (final.run, final.config.epochs, final.purpose) == (evidence["run"]["id"], 15, "reproduction")
    assert (first.config.epochs, first.contract["data_sha256"]) == (12, evidence["run"]["data_sha256"])
    assert final.contract["config_sha256"] == evidence["run"]["config_sha256"]


def test_a_run_whose_project_opens_more_than_data_and_code_is_trained_from_its_record(clone, cli, trained):
    row = {"path": "teacher.pt", "sha256": "0" * 64, "size": 3}
    told = evidence_of(clone, FINAL)["run"]
    contract = {key: told[key] for key in ("config_sha256", "data_sha256", "code_sha256", "environment_sha256")}
    contract["inputs_sha256"] = digest([row["sha256"]])
    forge(clone, lambda evidence: evidence.update(opened=[row]), "planning")
    forge(clone, lambda evidence: evidence["run"].update(id=run_id(contract), inputs_sha256=contract["inputs_sha256"]))
    cli("reproduce", FINAL, "--project", clone.root, code=0)
    (job,) = trained
    assert (job.contract, [dict(one) for one in job.input_files or []]) == (contract, [row])


INVENTED: dict[str, Callable[[Record], object]] = {
    "metric accuracy": lambda evidence: evidence["run"]["metrics"].update(accuracy=0.999),
    "head of the chain": lambda evidence: evidence["run"]["chain"].update(head="0" * 32),
    "": lambda evidence: evidence["run"].update(weights_sha256="0" * 64),
    "weights over chunks, of which no step tells": lambda evidence: evidence["run"].update(weights_tree_sha256="0" * 64),
}


@pytest.mark.slow
@pytest.mark.parametrize("told", INVENTED)
def test_an_invented_number_head_or_digest_is_not_reproduced(told, clone, cli, trained):
    forge(clone, INVENTED[told])
    code, found = reproduced(cli, clone)
    assert (code, found["identical"], len(trained)) == (5, False, 1)
    assert (found["first_divergence"] or {"what": ""})["what"] == ("" if "no step" in told else told)


@pytest.mark.parametrize("key", ["delivered_sha256", "delivered_tree_sha256"])
def test_delivered_weights_that_the_training_never_had_are_told(key, clone, cli, trained):
    forge(clone, lambda evidence: evidence.update({key: "0" * 64}))
    said = cli("reproduce", "finalization", "--project", clone.root)
    assert "the delivered weights were NOT among those that it passed through" in said.out
    assert said.code == 5
    assert len(trained) == 1


@pytest.mark.parametrize("change", [lambda e: e["config"].update(seed=7), lambda e: e["run"].update(data_sha256="0" * 64)])
def test_a_config_that_is_not_the_runs_is_refused(change, clone, cli, trained):
    forge(clone, change)
    said = cli("reproduce", "finalization", "--project", clone.root, code=4)
    assert "does not hold the config and the contract that determine the name of run" in said.err
    assert not trained


def test_a_part_of_the_steps_cannot_be_compared_without_the_chain(clone, cli, trained):
    cli("reproduce", "finalization", "--steps", "5", "--project", clone.root, code=1, err="the chain of run")
    assert not trained


def test_data_that_is_not_here_is_named(clone, cli, trained):
    row = {"path": "data/rows.csv", "sha256": "0" * 64, "size": 3}
    forge(clone, lambda evidence: evidence["data"].update(files=[row]), "planning")
    said = cli("reproduce", "finalization", "--project", clone.root, code=1)
    assert "cannot be trained from its record without data/rows.csv" in said.err
    assert not trained


# --- the arithmetic of a run that nobody measured it of -------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recorded", "variable", "code", "reachable", "differences"),
    [
        ("environment", None, 0, "bitwise", set()),  # an unrelated package changes the digest alone
        ("environment", "NUMEXPR_NUM_THREADS", 5, "numerically equal", {"NUMEXPR_NUM_THREADS"}),
        ("earlier rule", None, 5, "numerically equal", {"numerics"}),
    ],
)
def test_the_digest_of_the_whole_environment_is_no_arithmetic_that_differs(
    recorded, variable, code, reachable, differences, clone, cli, trained, monkeypatch
):
    def of_a_program(evidence: Record) -> None:
        known = evidence["run"]["environment_sha256"]
        evidence["run"]["numerics_class"] = known if recorded == "environment" else "1" * 64

    forge(clone, of_a_program)
    if variable:
        monkeypatch.setenv(variable, "3")
    found_code, found = reproduced(cli, clone)
    assert len(trained) == 1  # it answers with the class that was measured, which is neither
    assert (found_code, found["reachable"], found["identical"]) == (code, reachable, True)
    assert {row["what"] for row in found["differences"]} == differences
