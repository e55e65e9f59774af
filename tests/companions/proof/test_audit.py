"""A random part of a run trained again from its checkpoints: what is the same holds, and each kind of forgery is refused."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mltrainer.checkpointing import ledger
from mltrainer.checkpointing.format import load, save, snapshot
from mltrainer.checkpointing.manifest import folder_name
from mltrainer.companions.proof.segments import Segment, drawn, segments
from mltrainer.follow.splits import SPLITS_FILE
from mltrainer.records.finalization import Divergence
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.fingerprint import Head
from mltrainer.runs.find import find_run
from mltrainer.tools.life import NOW
from mltrainer.trainers.native.objective import Objective
from mltrainer.workspace import Project, pretty_json, seal, sha256_file
from tests.conftest import Cli, shared, succeed, train_baseline
from tests.projects import write_rings

pytestmark = pytest.mark.slow
ALL = "100%"
KEEPS = ("epochs=4", "checkpoint.segments=8", "averaging={name: ema, decay: 0.9}")


def _train(folder: Path) -> None:
    train_baseline(write_rings(folder).root, *KEEPS)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared(tmp_path_factory, "audited", _train)


@pytest.fixture
def rings(trained: Path, tmp_path: Path) -> Project:
    return Project(Path(shutil.copytree(trained, tmp_path / "rings")))


@pytest.fixture
def audit(cli: Cli, tools_here: None) -> Callable[..., Any]:
    def call(project: Project, *more: str | Path, share: str = ALL, code: int | None = None, err: str = "") -> Any:
        return cli("reproduce", "baseline", "--segments", share, "--project", project.root, *more, code=code, err=err)

    return call


def run_folder(project: Project) -> Path:
    return project.runs_dir / find_run(project, "baseline")


def rewrite(project: Project, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a run's result and seal it again; the phase's record, which is bound to it, is removed."""
    path = run_folder(project) / "result.json"
    result = json.loads(path.read_bytes())
    change(result)
    path.write_bytes(pretty_json(seal(result)))
    shutil.rmtree(project.phase_dir("baseline"))


def test_every_segment_of_an_honest_run_has_the_same_bits(rings, audit):
    said = audit(rings, "--json", code=0).json
    assert (said["identical"], said["replayed"], said["steps"], len(said["segments"])) == (True, 16, 16, 8)
    assert all(row["compared_state"] and row["first_divergence"] is None for row in said["segments"])
    assert (said["evaluations"], said["measured"], said["checkpoints"]) == (4, 4, 8)
    assert [row["probability"] for row in said["missed"]] == [0, 0, 0, 0, 0]


def _stopped_and_gone_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    left = iter([None] * 6)
    with monkeypatch.context() as here:
        here.setattr("mltrainer.trainers.native.job.StopSignals", lambda events: lambda: next(left, "SIGINT"))
        with pytest.raises(AssertionError, match="exited 130"):
            succeed("phase", "run", "baseline", "--project", root)
    succeed("phase", "run", "baseline", "--project", root)
    return "baseline"


def _in_two_processes(root: Path, _: pytest.MonkeyPatch) -> str:
    succeed("phase", "run", "baseline", "--processes", "2", "--project", root)
    return "baseline"


def _forked(root: Path, _: pytest.MonkeyPatch) -> str:
    succeed("phase", "run", "baseline", "--project", root)
    succeed("fork", "baseline", "--step", "6", "--set", "optimizer.lr=3e-4", "--project", root)
    parent = find_run(Project(root), "baseline")
    return next(path.name for path in Project(root).runs_dir.iterdir() if path.name != parent)


@pytest.mark.parametrize("train", [_stopped_and_gone_on, _in_two_processes, _forked])
def test_a_run_that_was_trained_in_parts_is_audited(tmp_path, tools_here, cli, monkeypatch, train):
    root = write_rings(tmp_path).root
    succeed("phase", "run", "planning", "--project", root, *(word for one in KEEPS for word in ("--set", one)))
    run = train(root, monkeypatch)
    said = cli("reproduce", run, "--segments", ALL, "--json", "--project", root, code=0).json
    assert (said["identical"], said["replayed"]) == (True, said["steps"])
    assert said["steps"] == (10 if train is _forked else 16)


def test_a_run_that_was_split_is_audited_and_disputed_by_the_splits_of_its_result(tmp_path, tools_here, cli, monkeypatch):
    project, loss = write_rings(tmp_path), Objective.loss

    def hungry(objective: Objective, batch: Any, *more: Any) -> Any:
        if NOW.step == 6 and len(batch[1]) > 32:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return loss(objective, batch, *more)

    keys = (word for one in (*KEEPS, "on_out_of_memory=split") for word in ("--set", one))
    succeed("phase", "run", "planning", "--project", project.root, *keys)
    with monkeypatch.context() as here:
        here.setattr(Objective, "loss", hungry)
        with pytest.raises(AssertionError, match="exited 7"):
            succeed("phase", "run", "baseline", "--project", project.root)
        succeed("phase", "run", "baseline", "--project", project.root)
    (run_folder(project) / SPLITS_FILE).unlink()
    said = cli("reproduce", "baseline", "--segments", ALL, "--json", "--project", project.root, code=0).json
    assert (said["identical"], said["replayed"], len(said["segments"])) == (True, 16, 8)
    cli("reproduce", "baseline", "--dispute", "6", "--project", project.root, code=0)
    cli("reproduce", "baseline", "--project", project.root, code=0)
    # Segments end after every second step: the first one that differs begins undivided.
    rewrite(project, lambda result: result.pop("splits"))
    found = cli("reproduce", "baseline", "--segments", ALL, "--json", "--project", project.root, code=5).json
    assert [row["end"] for row in found["segments"] if row["first_divergence"]] == [6, 8, 10, 12, 14, 16]


def test_a_share_is_drawn_by_the_nonce_and_every_checkpoint_with_an_evaluation_is_measured(rings, audit):
    said = audit(rings, "--nonce", "ours", "--json", share="0.3", code=0).json
    again = audit(rings, "--nonce", "ours", "--json", share="30%", code=0).json
    assert [row["begin"] for row in said["segments"]] == [row["begin"] for row in again["segments"]]
    assert (len(said["segments"]), said["replayed"], said["measured"]) == (4, 8, 4)
    assert said["missed"][0] == {"share": 0.01, "segments": 1, "probability": 4 / 6}
    assert "which is not committed: the author can still change it" in audit(rings, share="0.3", code=0).out


def test_each_evaluation_is_measured_again_where_each_keeps_a_checkpoint(tmp_path, cli, tools_here):
    root = write_rings(tmp_path / "rings").root
    train_baseline(root, "epochs=6", "evaluate.every_n_steps=3", "checkpoint.segments=evaluations", "checkpoint.every_n_epochs=6")
    said = cli("reproduce", "baseline", "--segments", "1%", "--json", "--project", root, code=0).json
    assert (said["steps"], said["evaluations"], said["measured"], said["checkpoints"]) == (24, 8, 8, 8)
    assert (len(said["segments"]), said["replayed"]) == (3, 9)
    shutil.rmtree(run_folder(Project(root)) / "checkpoints" / folder_name(6))
    told = "the checkpoint of step 6 is missing, which checkpoint.segments: evaluations keeps"
    cli("reproduce", "baseline", "--segments", "1%", "--project", root, code=4, err=told)


def test_a_clone_is_audited_by_the_authors_checkpoints(rings, audit, tmp_path):
    author = Path(shutil.move(run_folder(rings), tmp_path / "author"))
    shutil.rmtree(rings.state_dir)
    audit(rings, code=1, err="name the author's folder of the run")
    said = audit(rings, "--checkpoints", author, "--json", share="50%", code=0).json
    assert (said["identical"], said["record"]) == (True, "baseline")


def forged_chain(project: Project, at: int) -> None:
    """Give a step another loss, and make chain, checkpoints, ledger and result agree with it."""
    folder = run_folder(project)
    path = folder / fingerprint.CHAIN_FILE
    entries = [line.rpartition(" ")[0] for line in fingerprint.read(path)]
    number = next(nr for nr, entry in enumerate(entries) if entry.startswith(f"{at} "))
    step, ids, _, norm = entries[number].split()
    entries[number] = f"{step} {ids} {fingerprint.bits(0.125)} {norm}"
    head, lines = fingerprint.extend(Head(), entries)
    path.write_text("".join(f"{line}\n" for line in lines))
    checkpoints = ledger.read(folder / ledger.LEDGER_FILE)
    (folder / ledger.LEDGER_FILE).unlink()
    for one in checkpoints:
        place = one.chain.entries
        value = Head(place, lines[place - 1].rpartition(" ")[2])
        digest = save_changed(folder, one.step, lambda tree: tree["chain"].update(value=value.value))  # noqa: B023
        ledger.note(folder / ledger.LEDGER_FILE, ledger.Entry(one.step, value, digest))
    end = ledger.head(ledger.read(folder / ledger.LEDGER_FILE))
    chains = {"chain": {"entries": head.entries, "head": head.value}, "ledger": {"entries": end.entries, "head": end.value}}
    rewrite(project, lambda result: result.update(chains))


def save_changed(folder: Path, step: int, change: Callable[[dict[str, Any]], object]) -> str:
    """Change the state of a run's checkpoint, with a manifest of its own; return the manifest's digest."""
    path = folder / "checkpoints" / folder_name(step)
    tree, manifest = load(path)
    change(tree)
    save(
        path, snapshot(tree), {key: value for key, value in manifest.written().items() if key not in ("files", "seal", "schema")}
    )
    return sha256_file(path / "manifest.json")


def test_a_forged_step_is_found_in_the_segment_that_holds_it(rings, audit):
    forged_chain(rings, 7)
    said = audit(rings, "--json", code=5).json
    (first,) = (row for row in said["segments"] if row["first_divergence"])
    assert (first["begin"], first["end"]) == (6, 8)
    assert (first["first_divergence"]["step"], first["first_divergence"]["what"]) == (7, "loss")
    assert "NOT the same as recorded" in audit(rings, code=5).out


def test_a_forged_step_is_missed_where_its_segment_was_not_drawn(rings, audit):
    forged_chain(rings, 7)
    commitment = audit(rings, "--nonce", "0", "--json").json["commitment"]
    every = segments(0, range(2, 17, 2), 16)
    forged = Segment(6, 8)
    for is_drawn in (True, False):
        nonce = next(n for n in map(str, range(99)) if (forged in drawn(every, 0.3, commitment, n)) is is_drawn)
        said = audit(rings, "--nonce", nonce, "--json", share="30%").json
        assert (6 in {row["begin"] for row in said["segments"]}) is is_drawn
        assert said["identical"] is not is_drawn


@pytest.mark.long
def test_a_step_forged_in_any_of_200_places_is_caught_as_often_as_the_answer_states(tmp_path, audit):
    root = write_rings(tmp_path / "rings").root
    train_baseline(root, "epochs=10", "checkpoint.segments=20")
    places, caught, stated = random.Random(1), 0, set()
    for number in range(200):
        copy = Project(Path(shutil.copytree(root, tmp_path / str(number))))
        forged_chain(copy, places.randint(3, 38))  # the first and the last segment are always trained again
        said = audit(copy, "--nonce", str(number), "--json", share="30%").json
        stated.add(said["missed"][0]["probability"])
        caught += not said["identical"]
        shutil.rmtree(copy.root)
    (missed,) = stated
    expected = 200 * (1 - missed)
    assert abs(caught - expected) < 3 * math.sqrt(expected * missed), (caught, expected)


def saved_again(project: Project, step: int, change: Callable[[dict[str, Any]], object], *, in_ledger: bool) -> None:
    """Change a checkpoint, with a manifest of its own; with its line in the ledger if its author was careful."""
    changed = save_changed(run_folder(project), step, change)
    path = run_folder(project) / ledger.LEDGER_FILE
    entries = ledger.read(path) if in_ledger else []
    for one in entries:
        digest = changed if one.step == step else one.manifest_sha256
        ledger.note(path, ledger.Entry(one.step, one.chain, digest))
    if in_ledger:
        end = ledger.head(ledger.read(path))
        rewrite(project, lambda result: result.update(ledger={"entries": end.entries, "head": end.value}))


def _other_momentum(tree: dict[str, Any]) -> None:
    tree["optimizer"]["state"][0]["exp_avg"].add_(1e-8)


def test_a_checkpoint_that_was_changed_after_the_training_is_in_no_line(rings, audit):
    saved_again(rings, 8, _other_momentum, in_ledger=False)
    audit(rings, code=4, err="not in the ledger: it was made or changed after the training")


def test_a_state_that_no_training_reaches_is_found_where_it_ends_a_segment_and_where_it_starts_one(rings, audit):
    saved_again(rings, 8, _other_momentum, in_ledger=True)
    said = audit(rings, "--json", code=5).json
    found = {(row["begin"], row["end"]): row["first_divergence"] for row in said["segments"] if row["first_divergence"]}
    assert {*found} == {(6, 8), (8, 10)}
    assert found[6, 8]["what"] == "state optimizer.state.0.exp_avg"
    assert "sha256" in Divergence(**found[6, 8]).expected


def test_a_checkpoint_of_another_run_is_refused(rings, audit):
    saved_again(rings, 8, lambda tree: tree["model"].update(extra=torch.zeros(1)), in_ledger=False)
    audit(rings, code=4, err="expected weights of sha256")


def test_a_damaged_checkpoint_is_named(rings, audit):
    path = run_folder(rings) / "checkpoints" / folder_name(8) / "state.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    audit(rings, code=4, err="state.safetensors: expected")


def _better(result: dict[str, Any]) -> None:
    for row in (result["history"][1], *(row for row in (result["best"], result["final"]) if row["step"] == 8)):
        row["validation"]["accuracy"] = 0.999


def test_a_number_that_was_not_measured_is_told_whatever_was_drawn(rings, audit):
    rewrite(rings, _better)
    said = audit(rings, "--json", share="1%", code=5).json
    sentence = said["unlike"][0]
    assert sentence.startswith("step 8: accuracy on validation is 0.")
    assert sentence.endswith("not 0.999 as the run claims")


def _worse_is_best(result: dict[str, Any]) -> None:
    row = min(result["history"], key=lambda row: row["validation"]["accuracy"])
    result["best"] |= {key: row[key] for key in ("step", "epoch", "validation", "train")}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda result: result.update(weights_sha256="0" * 64), "the final weights are of sha256"),
        (
            lambda result: result["metrics"].update(accuracy=0.999),
            "the metrics that it claims are not those of its best evaluation",
        ),
        (lambda result: result["best"]["validation"].update(accuracy=0.999), "the best evaluation that it claims"),
        (lambda result: result["final"]["validation"].update(accuracy=0.999), "the last evaluation that it claims"),
        (_worse_is_best, "the best evaluation is that of step"),
    ],
)
def test_a_summary_that_its_history_contradicts_is_told(rings, audit, change, told):
    rewrite(rings, change)
    said = audit(rings, "--json", share="1%", code=5).json
    assert any(sentence.startswith(told) for sentence in said["unlike"])


def test_what_the_contract_does_not_hold_of_a_job_does_not_cut_the_audit(rings, audit):
    path = run_folder(rings) / "job.json"
    path.write_bytes(pretty_json({**json.loads(path.read_bytes()), "rungs": [[1, 2.0]]}))
    said = audit(rings, "--json", code=0).json
    assert (said["identical"], said["replayed"]) == (True, 16)


def test_an_evaluation_that_the_training_does_not_make_is_told(rings, audit):
    def one_more(result: dict[str, Any]) -> None:
        result["history"].insert(1, {**result["history"][1], "step": 6})

    rewrite(rings, one_more)
    said = audit(rings, "--json", code=5).json
    assert "step 6: the training makes no evaluation there" in said["unlike"]


@pytest.mark.parametrize("key", ["lr", "train_loss"])
def test_any_number_of_the_history_that_is_not_the_trainings_is_told(rings, audit, key):
    rewrite(rings, lambda result: result["history"][0].update({key: 0.125}))
    assert f"step 4: {key} is not what the training gives" in audit(rings, "--json", code=5).json["unlike"]


def test_a_claimed_best_that_nobody_measured_is_told(rings, audit):
    def claim_another(result: dict[str, Any]) -> None:
        result["history"].append({**result["history"][-1], "step": 17, "epoch": 5})
        result["best"] |= {"step": 17, "epoch": 5}

    rewrite(rings, claim_another)
    told = "the claimed best evaluation, of step 17, was not measured: there is no checkpoint of that step"
    assert told in audit(rings, "--json", code=5).json["unlike"]


def test_a_training_that_is_over_was_not_stopped_early(rings, audit):
    rewrite(rings, lambda result: result.update(stop_reason="early_stopping"))
    said = audit(rings, "--json", code=5).json
    assert "after its last step the training is over, and the run claims: early_stopping" in said["unlike"]


def test_a_checkpoint_that_segments_keeps_must_be_there(rings, audit):
    shutil.rmtree(run_folder(rings) / "checkpoints" / folder_name(8))
    audit(rings, code=4, err="the checkpoint of step 8 is missing, which checkpoint.segments: 8 keeps")


def test_a_checkpoint_beyond_the_last_step_is_refused(rings, audit):
    folder = run_folder(rings)
    entries = ledger.read(folder / ledger.LEDGER_FILE)
    ledger.note(folder / ledger.LEDGER_FILE, ledger.Entry(17, entries[-1].chain, entries[-1].manifest_sha256))
    end = ledger.head(ledger.read(folder / ledger.LEDGER_FILE))
    rewrite(rings, lambda result: result.update(ledger={"entries": end.entries, "head": end.value}))
    audit(rings, code=4, err="the chain does not contain the hash that the checkpoint of step 17 recorded")


def test_a_run_that_is_no_fork_begins_with_no_checkpoint(rings, audit, cli):
    start = run_folder(rings) / "start"
    shutil.copytree(run_folder(rings) / "checkpoints" / folder_name(2), start / folder_name(2))
    audit(rings, code=4, err="the start of the run: expected none, found")
    cli("reproduce", "baseline", "--project", rings.root, code=4, err="the start of the run: expected none, found")


def test_a_record_that_says_something_else_than_the_result_is_refused(rings, audit):
    path = rings.phase_dir("baseline") / "record.json"
    record = json.loads(path.read_bytes())
    record["evidence"]["run"]["metrics"]["accuracy"] = 0.999
    record["inputs"] = [row for row in record["inputs"] if row["role"] != "run"]
    path.write_bytes(pretty_json(seal(record)))
    audit(rings, code=4, err="the record of baseline has other values of run")


def test_a_digest_over_chunks_that_is_not_the_chains_is_refused(rings, audit):
    rewrite(rings, lambda result: result.update(weights_tree_sha256="0" * 64))
    audit(rings, code=4, err="weights_tree_sha256 is 0000")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--segments", "0"), "expected a share above 0 and at most 1"),
        (("--segments", "101%"), "expected a share above 0 and at most 1"),
        (("--segments", "much"), "expected a share above 0 and at most 1"),
        (("--nonce", "a"), "--nonce needs --segments"),
        (("--checkpoints", "a"), "--checkpoints needs --segments or --dispute"),
        (("--against", "a", "--steps", "3"), "--against needs --dispute"),
        (("--segments", "5%", "--against", "a"), "--segments and --against exclude each other"),
        (("--dispute", "3", "--nonce", "a"), "--dispute and --nonce exclude each other"),
        (("--dispute", "three"), "expected the number of a step, or first, found 'three'"),
        (("--segments", "5%", "--steps", "3"), "exclude each other"),
    ],
)
def test_wrong_usage_is_told(cli, rings, arguments, told):
    cli("reproduce", "baseline", *arguments, "--project", rings.root, code=2, err=told)
