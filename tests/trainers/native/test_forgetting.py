"""Forgotten samples: the training without them has the same bits from step 0 as from an earlier run's checkpoint."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltrainer.checkpointing.format import folder_name, load
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.follow.splits import write_splits
from mltrainer.records.job import TrainingJob
from mltrainer.records.run import Split
from mltrainer.reproducibility import fingerprint
from mltrainer.runs.launcher import Placement, launch
from mltrainer.tasks.opening import open_task
from mltrainer.workspace import Project, digest, read_json, write_json
from tests.integrations import texts
from tests.trainers.native import digits_runs
from tests.trainers.native.digits_runs import job, make, part_of, same

pytestmark = pytest.mark.slow
TABLE = '''
class Table(mltrainer.Task):
    """A table of one's own, whose numbers are taken as they are."""

    def samples(self):
        made = np.random.default_rng(5)
        x = made.normal(size=(160, 6)).astype(np.float32)
        y = (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(np.int64)
        return torch.from_numpy(x), torch.from_numpy(y)

    def model(self):
        return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)

    def metrics(self, outputs, targets):
        return {"accuracy": (outputs.argmax(1) == targets).float().mean().item()}
'''
SHORT: dict[str, Any] = {
    "epochs": 2,
    "batch_size": 7,
    "accumulate": 2,
    "split": {"validation": 0.2, "test": 0.1},
    "metric": {"name": "loss", "mode": "min"},
    "checkpoint": {"segments": 16},  # a checkpoint after every step
}
KINDS: dict[str, dict[str, Any]] = {
    "table": {**SHORT, "task": {"use": "digits_task:Table"}},
    "text": {**SHORT, "task": texts.task("CausalLM", texts.GPT2, data="story.txt")},
    "images": {**SHORT, "task": {"use": "digits_task:Digits", "options": {"model": "cnn"}}},
}


def project(root: Path) -> Path:
    """Write what all kinds need into a folder."""
    make(root)
    (root / "digits_task.py").write_text(digits_runs.TASK + TABLE)
    texts.write_texts(root, 120)
    return root


def forgetting(root: Path, rows: list[int]) -> dict[str, Any]:
    """Write a file of rows, and return the key that names it."""
    name = f"forget-{digest(rows)[:8]}.txt"
    (root / name).write_text("".join(f"{row}\n" for row in rows))
    return {"forget": name}


def run(root: Path, name: str, changes: dict[str, Any], stop: int | None = None, **entries: Any) -> dict[str, Any]:
    """Train a run of this name, or go on with it, and return its result; a copy of the rest of the job is `entries`."""
    work = {**job(changes), "run": name, "folder": f".mltrainer/runs/{name}", **entries}
    write_json(root / work["folder"] / "job.json", TrainingJob.model_validate(work).written())
    return part_of(root, work, lambda step: step == stop)


def training_rows(root: Path, changes: dict[str, Any], name: str = "old") -> list[int]:
    """Return the ids of the training samples in the order in which a run saw them first."""
    config = TrainingConfig.model_validate(job(changes)["config"])
    with digits_runs._in(root):
        train = open_task(config, root).split("train")
    return np.asarray(train.ids[train.order(config.seed, 0)[:]]).tolist()


Old = tuple[Path, dict[str, Any], list[int]]


def trained(kind: str, folder: Path, **more: Any) -> Old:
    """Return a folder with a finished run of a kind of data, its config, and its samples in the order of the first epoch."""
    root, changes = project(folder), {**KINDS[kind], **more}
    run(root, "old", changes)
    return root, changes, training_rows(root, changes)


@pytest.fixture(scope="module", params=KINDS)
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Old:
    if request.param == "text":
        pytest.importorskip("transformers")
    return trained(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Old:
    return trained("table", tmp_path_factory.mktemp("table"))


def notes(capfd: pytest.CaptureFixture[str]) -> str:
    return capfd.readouterr().out


@pytest.mark.parametrize("number", range(10))
def test_ten_random_sets_of_rows_are_forgotten_to_the_bit(old, number):
    root, changes, order = old
    drawn = random.Random(number)
    later = order[28:]  # seen after the second step, so that there is a checkpoint before them
    left_out = {**changes, **forgetting(root, sorted(drawn.sample(later, min(drawn.choice([1, 3, 20]), len(later) - 1))))}
    never = run(root, f"never-{number}", left_out)
    restarted = run(root, f"restarted-{number}", left_out, earlier=["old"])
    assert same(restarted, never)
    (begun,) = restarted["interruptions"]
    assert begun["run"] == "old"
    assert begun["step"] >= 2
    assert never["interruptions"] == []
    files = [(root / ".mltrainer/runs" / f"{name}-{number}" / "gradients.f32").read_bytes() for name in ("never", "restarted")]
    assert files[0] == files[1]
    assert never["weights_sha256"] != read_json(root / ".mltrainer/runs/old/result.json")["weights_sha256"]


def test_the_others_keep_their_steps_and_empty_steps_train_nothing(table):
    root, changes, order = table
    step, micro_batch, one = order[14:28], order[28:35], order[50:51]
    left_out = {**changes, **forgetting(root, [*step, *micro_batch, *one])}
    result = run(root, "empty", left_out)
    chain = [line.split() for line in (root / ".mltrainer/runs/empty/chain.txt").read_text().splitlines()]
    lines = {int(words[0]): words for words in chain if words[0] != "w"}
    assert result["steps"] == len(lines) == read_json(root / ".mltrainer/runs/old/result.json")["steps"]
    kept = [
        np.array([row for row in order[low : low + 14] if row not in {*step, *micro_batch, *one}]) for low in range(0, 112, 14)
    ]
    assert [lines[number + 1][1] for number in range(8)] == [
        fingerprint.ids_digest(ids.astype(np.int64).tobytes()) for ids in kept
    ]
    assert lines[2][2:4] == [fingerprint.bits(0.0)] * 2
    assert (result["train_samples"], result["forgotten"]) == (len(order) - 22, 22)


def test_the_state_that_is_taken_over_is_that_of_a_training_without_the_rows(table):
    root, changes, order = table
    row = max(order)  # arrays by sample end with it
    place = order.index(row)
    assert place >= 14
    left_out = {**changes, **forgetting(root, [row])}
    for name, earlier in (("state-never", []), ("state-new", ["old"])):
        run(root, name, left_out, earlier=earlier)
    folders = [root / f".mltrainer/runs/{name}/checkpoints" / folder_name(place // 14) for name in ("state-never", "state-new")]
    never, new = (load(folder, None)[0] for folder in folders)
    assert len(never["signals"]["margins"]["sums"]) < row + 1
    assert repr(never) == repr(new)


def test_the_last_checkpoint_before_the_first_of_the_rows_is_taken(table, capfd):
    root, changes, order = table
    for place, step in ((13, 0), (14, 1), (97, 6)):
        left_out = {**changes, **forgetting(root, [order[place], order[100]])}
        found = run(root, f"from-{place}", left_out, earlier=["old"])
        assert [row["step"] for row in found["interruptions"]] == ([step] if step else [])
    assert "no checkpoint of run old is used: it has none of the same contract up to step 0" in notes(capfd)


def test_killed_while_it_goes_on_it_ends_in_the_same_bits(table):
    root, changes, order = table
    left_out = {**changes, **forgetting(root, order[60:64])}
    never = run(root, "never", left_out)
    count = [0]

    def dies() -> None:
        def kill(step: int) -> bool:
            count[0] += 1
            if count[0] == 5:
                os.kill(os.getpid(), 9)
            return False

        work = {**job(left_out), "run": "killed", "folder": ".mltrainer/runs/killed", "earlier": ["old"]}
        part_of(root, work, kill)

    assert digits_runs._forked(dies) == 9
    found = run(root, "killed", left_out, earlier=["old"])
    assert same(found, never)
    assert found["interruptions"][0]["run"] == "old"


@pytest.mark.parametrize("parallel", ["ddp", "zero1", "fsdp", "pipeline"])
def test_two_processes_go_on_with_the_bits_of_one(table, parallel):
    root, changes, order = table
    # A whole step, a whole micro-batch and a single sample; the first steps are the earlier run's.
    left_out = {**changes, **forgetting(root, [*order[42:56], *order[63:70], order[80]])}
    never = run(root, f"alone-{parallel}", left_out)
    work = {**job({**left_out, "launch": {"parallel": parallel}}), "run": parallel, "folder": f".mltrainer/runs/{parallel}"}
    work["earlier"] = ["old"]
    launch(Project(root), "training_orchestrator", TrainingJob.model_validate(work), lambda _: None, placement=Placement(2))
    found = read_json(root / work["folder"] / "result.json")
    assert same(found, never)
    assert (found["processes"], found["interruptions"][0]["run"]) == (2, "old")


def test_more_rows_are_forgotten_from_a_run_that_forgot_some(table):
    root, changes, order = table
    first, both = ({**changes, **forgetting(root, rows)} for rows in (order[40:41], [*order[40:41], *order[90:92]]))
    run(root, "first", first, earlier=["old"])
    found = run(root, "second", both, earlier=["first"])
    assert found["interruptions"][0] == {"step": 6, "cause": "begun by run first", "run": "first"}
    assert same(found, run(root, "second-never", both))


@pytest.mark.parametrize("is_measured", [True, False])
def test_an_evaluation_that_measured_a_row_is_made_again(tmp_path, is_measured):
    root, changes, order = trained("table", tmp_path, evaluate={"every_n_steps": 2})
    measured = measured_rows(root, changes, None) | measured_rows(root, changes, OBSERVED)
    row = next(row for row in order[70:] if (row in measured) is is_measured)
    left_out = {**changes, **forgetting(root, [row])}
    found = run(root, "new", left_out, earlier=["old"])
    assert (found["interruptions"][0]["step"] > 1) is not is_measured
    never = run(root, "never", left_out)
    assert same(found, never)
    assert [one["train"] for one in found["history"]] == [one["train"] for one in never["history"]]


OBSERVED = 16  # the training samples that signals are measured on in a run this short


def test_an_evaluation_that_observed_a_row_is_made_again(tmp_path):
    root, changes, order = trained("table", tmp_path, evaluate={"every_n_steps": 1}, signals=True)
    observed = measured_rows(root, changes, OBSERVED) - measured_rows(root, changes, None)
    left_out = {**changes, **forgetting(root, [next(row for row in order[70:] if row in observed)])}
    new, never = run(root, "new", left_out, earlier=["old"]), run(root, "never", left_out)
    assert same(new, never)
    seen = [[row["signals"][mode] for row in one["history"] if "signals" in row for mode in MODES] for one in (new, never)]
    assert seen[0]
    assert seen[0] == seen[1]


MODES = ("evaluating", "training")


def test_the_first_loss_is_of_a_step_with_samples(table):
    root, changes, order = table
    found = run(root, "first-empty", {**changes, **forgetting(root, order[:14])})
    second = (root / ".mltrainer/runs/first-empty/chain.txt").read_text().splitlines()[2].split()
    assert second[0] == "2"
    assert fingerprint.bits(found["first_loss"]) == second[2] != fingerprint.bits(0.0)


def measured_rows(root: Path, changes: dict[str, Any], count: int | None) -> set[int]:
    """Return the ids of the training samples that an evaluation measures; None: as many as validation samples."""
    with digits_runs._in(root):
        opened = open_task(TrainingConfig.model_validate(job(changes)["config"]), root)
    train = opened.split("train")
    wanted = len(opened.split("validation")) if count is None else count
    return set(np.asarray(train.ids[train.spread(wanted)]).tolist())


def _prepares(root: Path) -> dict[str, Any]:
    path = root / "digits_task.py"
    path.write_text(path.read_text() + "\n    def prepare(self, train):\n        self.mean = train[0].mean(0)\n")
    return {}


def _other_code(root: Path) -> dict[str, Any]:
    return {"contract": {"code_sha256": "1", "environment_sha256": "0", "config_sha256": "0"}}


def _other_data(root: Path) -> dict[str, Any]:
    path = root / "digits_task.py"
    path.write_text(path.read_text().replace("return torch.from_numpy(x), ", "return torch.from_numpy(x + 1), "))
    return {}


def _damaged(root: Path) -> dict[str, Any]:
    for path in (root / ".mltrainer/runs/old/checkpoints").glob("*/state.safetensors"):
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    return {}


def _forged_chain(root: Path) -> dict[str, Any]:
    path = root / ".mltrainer/runs/old/chain.txt"
    path.write_text(path.read_text().replace("a", "b", 1))
    return {}


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_prepares, "what was fitted on the training samples"),
        (_other_code, "it has none of the same contract"),
        (_other_data, "it has none of the same contract"),
        (_damaged, "it has none of the same contract"),
        (_forged_chain, "the chain breaks"),
    ],
)
def test_a_run_that_cannot_lend_its_beginning_is_not_believed(tmp_path, capfd, spoil, why):
    root, changes, order = trained("table", tmp_path, epochs=1)
    left_out = {**changes, **forgetting(root, order[60:64])}
    found = run(root, "new", left_out, earlier=["old"], **spoil(root))
    assert why in notes(capfd)
    assert found["interruptions"] == []
    assert found["steps"] == found["planned_steps"]


def test_a_run_that_may_go_back_at_a_spike_begins_at_its_start(tmp_path, capfd):
    root, changes, order = trained("table", tmp_path, epochs=1, spikes={"action": "rollback"})
    found = run(root, "new", {**changes, **forgetting(root, order[60:64])}, earlier=["old"])
    assert "a later spike, which may be one of the forgotten samples, may have left steps out" in notes(capfd)
    assert found["interruptions"] == []


def test_a_run_that_was_split_lends_its_beginning_up_to_the_split(tmp_path):
    root, changes = project(tmp_path), {**KINDS["table"], "batch_size": 8, "epochs": 1}
    write_splits(root / ".mltrainer/runs/old", [Split(step=3, place="the forward pass", accumulate=4)])
    run(root, "old", changes)
    left_out = {**changes, **forgetting(root, training_rows(root, changes)[90:94])}
    found = run(root, "new", left_out, earlier=["old"])
    assert [row["step"] for row in found["interruptions"]] == [2]
    assert same(found, run(root, "never", left_out))


BUILT_IN: dict[str, dict[str, Any]] = {
    "texts with a tokenizer of one's own": {
        "task": {"kind": "text_classification"},
        "data": {"source": "reviews.csv", "target": "label", "tokens": {"file": "tokenizer.json", "length": 16}},
        "model": {"name": "bag"},
    },
    "texts": {
        "task": {"kind": "text_classification"},
        "data": {"source": "reviews.csv", "target": "label", "tokens": {"length": 16}},
        "model": {"name": "bag"},
    },
    "images": {"task": {"kind": "image_classification"}, "data": {"source": "sklearn:digits"}, "model": {"name": "mlp"}},
    "table": {
        "task": {"kind": "tabular_classification"},
        "data": {"source": "sklearn:wine"},
        "model": {"name": "mlp"},
    },
}


@pytest.mark.parametrize("kind", BUILT_IN)
def test_what_is_fitted_on_the_rows_is_fitted_again(tmp_path, capfd, kind):
    pytest.importorskip("tokenizers")
    keys = {**SHORT, "batch_size": 16, "epochs": 1, **BUILT_IN[kind]}
    root = project(tmp_path)
    old = run(root, "old", keys)
    left_out = {**keys, **forgetting(root, training_rows(root, keys)[40:46])}
    found = run(root, "new", left_out, earlier=["old"])
    goes_on = kind == "texts with a tokenizer of one's own"
    assert ("what was fitted on the training samples" in notes(capfd)) is not goes_on
    assert [row["step"] for row in found["interruptions"]] == ([1] if goes_on else [])
    assert same(found, run(root, "never", left_out))
    assert found["weights_sha256"] != old["weights_sha256"]


def test_a_single_sample_that_is_left_in_a_micro_batch_is_named(tmp_path):
    root, keys = project(tmp_path), KINDS["images"] | {"task": {"use": "digits_task:Digits", "options": {"model": "mlp"}}}
    left_out = {**keys, **forgetting(root, training_rows(root, keys)[14:20])}
    with pytest.raises(InputError, match="cannot train on: all its others are forgotten"):
        run(root, "new", left_out)


def test_only_the_checkpoints_that_a_run_keeps_are_taken_over(tmp_path):
    root, changes, order = trained("table", tmp_path)
    few = {**changes, "checkpoint": {"segments": 4}, **forgetting(root, [order[100]])}
    run(root, "new", few, earlier=["old"])
    ledger = (root / ".mltrainer/runs/new/ledger.txt").read_text().splitlines()
    # 4 segments of 4 steps; the last one before the row is kept to go on from, and step 8 ends the epoch.
    assert [int(line.split()[0]) for line in ledger] == [4, 7, 8, 12, 16]
