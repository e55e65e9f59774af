"""The weights' digests over chunks: in the chain, the result and the checkpoints' manifests."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mltrainer.checkpointing.format import load
from mltrainer.checkpointing.weights import weights_tree_sha256
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.evidence import sound_result
from mltrainer.workspace import pretty_json, read_json, seal
from tests.trainers.native.digits_runs import job, make, part_of, train
from tests.trainers.native.test_ranks import SETTING, train_on

TWO: dict[str, Any] = {"epochs": 2}
STOP = 4  # in the first epoch, of six steps


def noted(root: Path, run: str = "run") -> list[list[str]]:
    """Return the lines of weights of a run's chain, in words without the heads."""
    lines = fingerprint.read(root / ".mltrainer/runs" / run / "chain.txt")
    return [line.split()[1:-1] for line in lines if line.startswith("w ")]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make(tmp_path_factory.mktemp("two"))
    train(root, **TWO)
    return root


def result_of(root: Path) -> dict[str, Any]:
    return dict(read_json(root / ".mltrainer/runs/run/result.json"))


def test_chain_result_and_manifests_hold_one_digest_over_chunks(root):
    result, lines = result_of(root), noted(root)
    trees = {int(step): text for step, text in lines}
    assert all(text.startswith("tree:") and len(text) == 69 for text in trees.values())
    folder = root / ".mltrainer/runs/run/checkpoints"
    told = {path: read_json(path / "manifest.json")["weights_tree_sha256"] for path in folder.iterdir()}
    assert {f"tree:{weights_tree_sha256(load(path)[0]['model'])}" == f"tree:{tree}" for path, tree in told.items()} == {True}
    assert {trees[int(path.name[5:])] == f"tree:{tree}" for path, tree in told.items()} == {True}
    assert trees[result["steps"]] == f"tree:{result['weights_tree_sha256']}"
    assert result["weights_tree_sha256"] != result["weights_sha256"]


@pytest.mark.slow
def test_a_stopped_run_goes_on_with_the_digests_of_a_whole_one(tmp_path, root):
    assert train(make(tmp_path), (STOP,), **TWO)["chain"] == result_of(root)["chain"]


def test_a_checkpoint_that_no_evaluation_came_before_has_no_digest_over_chunks(tmp_path):
    part_of(make(tmp_path), job(TWO), lambda step: step == STOP)
    assert [step for step, _ in noted(tmp_path)] == ["0"]
    (path,) = tmp_path.glob(".mltrainer/runs/run/checkpoints/*/manifest.json")
    assert (read_json(path)["step"], "weights_tree_sha256" in read_json(path)) == (STOP, False)


@pytest.mark.slow
def test_two_processes_share_the_chunks_and_have_the_chain_of_one(tmp_path):
    one, two = make(tmp_path / "one"), make(tmp_path / "two")
    alone, shared = train(one, **{**SETTING, **TWO}), train_on(two, 2, **TWO)
    keys = ("chain", "weights_sha256", "weights_tree_sha256")
    assert [shared[key] for key in keys] == [alone[key] for key in keys]
    assert noted(two) == noted(one)


# --- told on purpose ------------------------------------------------------------------------------


@pytest.fixture
def run(root: Path, tmp_path: Path) -> Path:
    """A copy of the run's folder, as of a run that a phase started."""
    folder = Path(shutil.copytree(root / ".mltrainer/runs/run", tmp_path / "run"))
    forge(folder / "result.json", purpose="train")
    return folder


def forge(path: Path, **values: Any) -> None:
    content = {key: value for key, value in {**read_json(path), **values}.items() if value is not None or key not in values}
    path.write_bytes(pretty_json(seal(content)))


@pytest.mark.parametrize("value", ["0" * 64, None], ids=["another", "none"])
@pytest.mark.parametrize("name", ["result.json", "checkpoints/step-*/manifest.json"])
def test_a_result_or_manifest_with_another_digest_than_the_chain_is_not_sound(run, name, value):
    contract = job(TWO)["contract"]
    assert sound_result(run, contract) is not None
    forge(max(run.glob(name)), weights_tree_sha256=value)
    assert sound_result(run, contract) is None


def test_a_chain_without_digests_over_chunks_is_not_the_results(run):
    entries = [line.rpartition(" ")[0].replace("tree:", "") for line in fingerprint.read(run / "chain.txt")]
    head, lines = fingerprint.extend(fingerprint.Head(), entries)
    (run / "chain.txt").unlink()
    fingerprint.append(run / "chain.txt", lines)
    forge(run / "result.json", chain={"entries": head.entries, "head": head.value})
    assert sound_result(run, job(TWO)["contract"]) is None
    for path in [run / "result.json", *run.glob("checkpoints/*/manifest.json")]:
        forge(path, weights_tree_sha256=None)
    assert sound_result(run, job(TWO)["contract"]) is not None
