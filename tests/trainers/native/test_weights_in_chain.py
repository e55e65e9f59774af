"""The weights' digests in the chain: over chunks under `rules: 2`, over all bytes before; a chain keeps its first line's form."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mltrainer.checkpointing.format import load
from mltrainer.checkpointing.weights import weights_tree_sha256
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.evidence import sound_result
from mltrainer.trainers.native.session import Session
from mltrainer.workspace import Project, pretty_json, read_json, seal, write_json
from tests.conftest import Cli
from tests.projects import write_rings
from tests.trainers.native.digits_runs import job, make, part_of, train
from tests.trainers.native.test_ranks import SETTING, train_on

TWO: dict[str, Any] = {"rules": 2, "epochs": 2}
STOP = 4  # in the first epoch, of six steps


@contextmanager
def an_earlier_version() -> Iterator[None]:
    """Train as a version did that noted all weights by the digest of `rules: 1`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "_notes_trees", lambda self: False)
        yield


def noted(root: Path, run: str = "run") -> list[list[str]]:
    """Return the lines of weights of a run's chain, in words without the heads."""
    lines = fingerprint.read(root / ".mltrainer/runs" / run / "chain.txt")
    return [line.split()[1:-1] for line in lines if line.startswith("w ")]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make(tmp_path_factory.mktemp("two"))
    train(root, **TWO)
    return root


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make(tmp_path_factory.mktemp("earlier"))
    with an_earlier_version():
        train(root, **TWO)
    return root


def result_of(root: Path) -> dict[str, Any]:
    return dict(read_json(root / ".mltrainer/runs/run/result.json"))


def test_under_rules_2_chain_result_and_manifests_hold_one_digest_over_chunks(root: Path) -> None:
    result, lines = result_of(root), noted(root)
    trees = {int(step): text for step, text in lines}
    assert all(text.startswith("tree:") and len(text) == 69 for text in trees.values())
    folder = root / ".mltrainer/runs/run/checkpoints"
    told = {path: read_json(path / "manifest.json")["weights_tree_sha256"] for path in folder.iterdir()}
    assert {f"tree:{weights_tree_sha256(load(path)[0]['model'])}" == f"tree:{tree}" for path, tree in told.items()} == {True}
    assert {trees[int(path.name[5:])] == f"tree:{tree}" for path, tree in told.items()} == {True}
    assert trees[result["steps"]] == f"tree:{result['weights_tree_sha256']}"
    assert result["weights_tree_sha256"] != result["weights_sha256"]


def test_under_rules_1_nothing_is_over_chunks(tmp_path: Path) -> None:
    result = train(make(tmp_path), epochs=1, rules=1)
    assert noted(tmp_path)[-1] == [str(result["steps"]), result["weights_sha256"]]
    assert "weights_tree_sha256" not in result
    manifests = [read_json(path) for path in tmp_path.glob(".mltrainer/runs/run/checkpoints/*/manifest.json")]
    assert manifests
    assert not any("weights_tree_sha256" in manifest for manifest in manifests)


def test_the_weights_are_those_of_the_other_form(root: Path, earlier: Path) -> None:
    ours, theirs = result_of(root), result_of(earlier)
    assert ours["weights_sha256"] == theirs["weights_sha256"]
    assert (ours["chain"] == theirs["chain"], "weights_tree_sha256" in theirs) == (False, False)
    assert noted(earlier)[-1][1] == theirs["weights_sha256"]


def test_a_stopped_run_goes_on_in_its_form(tmp_path: Path, root: Path, earlier: Path) -> None:
    assert train(make(tmp_path / "new"), (STOP,), **TWO)["chain"] == result_of(root)["chain"]
    old = make(tmp_path / "old")
    with an_earlier_version():
        part_of(old, job(TWO), lambda step: step == STOP)
    assert fingerprint.has_trees(fingerprint.read(old / ".mltrainer/runs/run/chain.txt")) is False
    went_on = train(old, **TWO)
    assert went_on["interruptions"] == [{"step": STOP, "cause": "SIGINT"}]
    assert (went_on["chain"], went_on.get("weights_tree_sha256")) == (result_of(earlier)["chain"], None)


def test_a_checkpoint_that_no_evaluation_came_before_has_no_digest_over_chunks(tmp_path: Path) -> None:
    part_of(make(tmp_path), job(TWO), lambda step: step == STOP)
    assert [step for step, _ in noted(tmp_path)] == ["0"]
    (path,) = tmp_path.glob(".mltrainer/runs/run/checkpoints/*/manifest.json")
    assert (read_json(path)["step"], "weights_tree_sha256" in read_json(path)) == (STOP, False)


@pytest.mark.slow
def test_two_processes_share_the_chunks_and_have_the_chain_of_one(tmp_path: Path) -> None:
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
def test_a_result_or_manifest_with_another_digest_than_the_chain_is_not_sound(run: Path, name: str, value: str | None) -> None:
    contract = job(TWO)["contract"]
    assert sound_result(run, contract) is not None
    forge(max(run.glob(name)), weights_tree_sha256=value)
    assert sound_result(run, contract) is None


def test_a_chain_of_the_other_form_is_not_the_results(run: Path) -> None:
    entries = [line.rpartition(" ")[0].replace("tree:", "") for line in fingerprint.read(run / "chain.txt")]
    head, lines = fingerprint.extend(fingerprint.Head(), entries)
    (run / "chain.txt").unlink()
    fingerprint.append(run / "chain.txt", lines)
    forge(run / "result.json", chain={"entries": head.entries, "head": head.value})
    assert sound_result(run, job(TWO)["contract"]) is None
    for path in [run / "result.json", *run.glob("checkpoints/*/manifest.json")]:
        forge(path, weights_tree_sha256=None)
    assert sound_result(run, job(TWO)["contract"]) is not None


# --- of a project, by the commands -----------------------------------------------------------------

PLAN = ("--set", "epochs=2", "--set", "batch_size=32")


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("projects")


@pytest.fixture
def project(projects: Path, tmp_path: Path, tools_here: None, cli: Cli) -> Project:
    """A project of an earlier version that ended its baseline; trained once, copied for each test."""
    made = projects / "p"
    if not made.exists():
        made.mkdir()
        write_rings(made)
        with an_earlier_version():
            assert cli("phase", "run", "planning", *PLAN, "--project", made).code == 0
            assert cli("phase", "run", "baseline", "--project", made).code == 0
    return Project(Path(shutil.copytree(made, tmp_path / "p", symlinks=True)))


def test_a_run_of_the_earlier_form_holds_and_is_reproduced_in_it(project: Project, cli: Cli) -> None:
    assert cli("gate", "check", "baseline", "--project", project.root).code == 0
    said = cli("reproduce", "baseline", "--json", "--project", project.root)
    assert (said.code, said.json["identical"]) == (0, True), said.err
    assert fingerprint.has_trees(fingerprint.read(project.state_dir / "reproductions" / said.json["run"] / "chain.txt")) is False
    assert cli("checkpoints", "verify", "--project", project.root).code == 0


def test_a_run_of_the_earlier_form_is_reproduced_from_its_record_alone(project: Project, cli: Cli) -> None:
    shutil.rmtree(project.state_dir)
    said = cli("reproduce", "baseline", "--json", "--project", project.root)
    assert (said.code, said.json["identical"]) == (0, True), said.err


def test_a_run_of_the_earlier_form_trained_anew_differs_from_it_in_no_step(project: Project, cli: Cli) -> None:
    (before,) = project.runs_dir.iterdir()
    kept = Path(shutil.copytree(before, project.runs_dir / "abcdef012345"))
    shutil.rmtree(before)
    assert cli("phase", "run", "baseline", "--project", project.root).code == 0
    assert fingerprint.has_trees(fingerprint.read(before / "chain.txt")) is True
    said = cli("runs", "compare", before.name, kept.name, "--json", "--project", project.root).json
    assert (said["first_divergence"], said["differences"]) == (None, [])
    assert said["steps_compared"] > 0


def test_a_result_with_another_digest_than_the_chain_is_not_reproduced(project: Project, cli: Cli) -> None:
    path = next(project.runs_dir.glob("*/result.json"))
    write_json(path, seal({**read_json(path), "weights_tree_sha256": "0" * 64}))
    said = cli("reproduce", path.parent.name, "--project", project.root)
    assert said.code == 4
    assert f"weights_tree_sha256 is {'0' * 64}, the chain has no digest of that form" in said.err
