"""What a training script tells of itself stands in a file, in order, and changes nothing of the training."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mltrainer.integrations import reporting
from mltrainer.integrations.batches import Digest, Step, _weighed, digest_of
from mltrainer.integrations.reporting import tell_loss, tell_metrics, tell_samples

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is read by somebody."""
    monkeypatch.setenv("MLTRAINER_WRAP", json.dumps({"folder": str(tmp_path)}))
    return tmp_path


def told(folder: Path) -> list[list[Any]]:
    """Return the lines of the one process that told something, their times left out after a look at them."""
    (path,) = folder.glob("reported-*.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    times = [row[0] for row in rows]
    assert times == sorted(times)
    return [row[1:] for row in rows]


class Elsewhere:
    """A number on a device, which notes that it was fetched."""

    device = "cuda:0"

    def __init__(self, value: float) -> None:
        self.value, self.fetched = value, False

    def __float__(self) -> float:
        self.fetched = True
        return self.value


def python(*arguments: str, told_in: Path | None = None, place: Path | None = None, **variables: str) -> str:
    """Run a program, heard or not, and return what it printed."""
    heard = {} if told_in is None else {"MLTRAINER_WRAP": json.dumps({"folder": str(told_in)})}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **heard, **variables}
    done = subprocess.run([sys.executable, *arguments], cwd=place, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- the lines ----------------------------------------------------------------------------------


def test_what_is_told_stands_in_a_file_of_the_process(folder):
    tell_samples(1, "ab12")
    tell_samples(2, None)
    tell_loss(1, 0.5)
    tell_loss(2, torch.tensor(math.nan))
    tell_metrics(2, None, {"accuracy": np.float32(0.5), "loss": math.inf})
    assert json.dumps(told(folder)) == (
        '[["samples", 1, "ab12"], ["loss", 1, 0.5], ["loss", 2, NaN], ["metrics", 2, null, {"accuracy": 0.5, "loss": Infinity}]]'
    )
    assert [path.name for path in folder.iterdir()] == [f"reported-0-{os.getpid()}.jsonl"]


def test_without_a_reader_nothing_is_written_or_fetched(tmp_path, monkeypatch):
    monkeypatch.delenv("MLTRAINER_WRAP", raising=False)
    monkeypatch.chdir(tmp_path)
    loss = Elsewhere(1.0)
    for step in range(100):
        tell_loss(step, loss)
    tell_metrics(1, 1.0, {"loss": loss})  # type: ignore[dict-item]  # a tensor will do
    assert not loss.fetched
    assert not list(tmp_path.iterdir())


def test_a_loss_on_a_device_is_fetched_with_others_or_by_an_evaluation(folder):
    first = Elsewhere(1.0)
    tell_loss(1, first)
    assert not first.fetched
    for step in range(2, reporting.HELD + 1):
        tell_loss(step, Elsewhere(float(step)))
    assert len(told(folder)) == reporting.HELD
    tell_loss(reporting.HELD + 1, Elsewhere(0.25))
    tell_metrics(reporting.HELD + 1, 1.0, {"loss": 0.5})
    assert told(folder)[-2:] == [["loss", reporting.HELD + 1, 0.25], ["metrics", reporting.HELD + 1, 1.0, {"loss": 0.5}]]


def test_what_is_held_back_is_written_at_the_end_and_once(tmp_path):
    code = (
        "import os, sys\nfrom mltrainer.integrations.reporting import tell_loss\n"
        "class There:\n    device = 'cuda:0'\n    def __float__(self): return 0.5\n"
        "tell_loss(1, There())\n"
        "if os.fork() == 0:\n    sys.exit()\n"
        "os.wait()\n"
        "assert not {'torch', 'pydantic', 'numpy'} & set(sys.modules)\n"
    )
    python("-c", code, told_in=tmp_path, RANK="3")
    assert told(tmp_path) == [["loss", 1, 0.5]]
    assert next(tmp_path.iterdir()).name.startswith("reported-3-")


# --- digests ------------------------------------------------------------------------------------


def test_a_digest_is_of_content_and_order(folder):
    batch = {"x": torch.arange(12.0).reshape(4, 3), "names": ["a", "b"], "y": np.arange(4), "n": 3}
    order = torch.tensor([1, 0, 2, 3])
    others = [
        {**batch, "x": batch["x"][order]},
        {**batch, "x": batch["x"].reshape(3, 4)},
        {**batch, "x": batch["x"].double()},
        {**batch, "y": batch["y"][::-1]},
        {**batch, "names": ["b", "a"]},
        {"z" if name == "x" else name: value for name, value in batch.items()},
    ]
    strided = {**batch, "x": batch["x"].t().contiguous().t()}
    assert str(digest_of(batch)) == str(digest_of(strided))
    assert len({str(digest_of(each)) for each in [batch, *others]}) == 7
    tell_samples(1, digest_of(batch))
    assert told(folder) == [["samples", 1, str(digest_of(batch))]]


def test_a_digest_is_of_types_and_of_what_lies_in_what():
    zeros = [torch.zeros(2, dtype=kind) for kind in (torch.float32, torch.int32)]
    nested = [[[1], [2]], [[1, 2]], [1, [2]], [1, 2]]
    assert len({str(digest_of(each)) for each in [*zeros, *nested]}) == 6


@pytest.mark.parametrize("kind", [torch.bool, torch.uint8, torch.float16, torch.bfloat16, torch.int64, torch.complex64])
def test_tensors_of_any_type_have_a_digest(kind):
    one, other = torch.zeros(3, 5).to(kind), torch.zeros(3, 5).to(kind)
    other[2, 4] = 1
    assert str(digest_of(one)) != str(digest_of(other))


def test_a_batch_of_unknown_content_is_not_told(folder):
    assert digest_of([torch.zeros(2), object()]) is None
    assert digest_of(torch.zeros(2).to_sparse()) is None
    assert digest_of(np.array(["a", "b"])) is None
    step = Step()
    step.see(torch.zeros(2))
    step.see(object())
    assert not step.tell(1)
    assert not list(folder.iterdir())


def test_a_digest_takes_no_draw():
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
    digest_of(torch.rand(3, generator=torch.Generator()))
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


@pytest.mark.parametrize("kind", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_the_number_of_bits_on_a_device_is_of_their_values_and_places(kind):
    bits = torch.arange(100).to(kind)
    others = [bits.flip(0), bits.roll(1), *(bits.index_fill(0, torch.tensor([n]), 98) for n in (0, 99)), bits[:99]]
    assert len({int(_weighed(each)) for each in [bits, *others]}) == 6
    assert int(_weighed(bits)) == int(_weighed(bits.clone()))


def test_a_digest_stays_where_it_was_taken():
    digest = digest_of({"x": torch.zeros(2, device="meta")})
    assert isinstance(digest, Digest)
    assert str(digest.device) == "meta"


# --- callbacks ----------------------------------------------------------------------------------

HEARD = {
    "transformers": ("plain", "again", "other order", "validated each step", "own module", "smoothing", "own loss"),
    "lightning": ("plain", "manual"),
}
UNHEARD = ("plain", "bare")


@pytest.fixture(scope="module")
def heard(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """What a program printed whose trainings were heard, by case, and where."""
    return trained(request.param, HEARD[request.param], tmp_path_factory.mktemp("heard"), heard=True)


def trained(name: str, cases: Sequence[str], place: Path, *, heard: bool) -> tuple[dict[str, Any], Path]:
    pytest.importorskip(name)
    said = python(str(HERE / f"told_{name}.py"), *cases, told_in=place if heard else None, place=place)
    return json.loads(said.splitlines()[-1]), place


def of(kind: str, rows: list[list[Any]]) -> list[Any]:
    """Return what was told of a kind, by step."""
    return [row[1:] for row in rows if row[0] == kind]


BY_TRANSFORMERS = pytest.mark.parametrize("heard", ["transformers"], indirect=True)
BY_LIGHTNING = pytest.mark.parametrize("heard", ["lightning"], indirect=True)
Heard = tuple[dict[str, Any], Path]


@pytest.mark.slow
@pytest.mark.parametrize("heard", ["transformers", "lightning"], indirect=True)
@pytest.mark.long
def test_the_weights_are_the_same_heard_unheard_and_without_the_callback(tmp_path, heard, request):
    found, place = trained(request.node.callspec.params["heard"], UNHEARD, tmp_path, heard=False)
    assert heard[0]["plain"]["weights"] == found["plain"]["weights"] == found["bare"]["weights"]
    assert len(list((heard[1] / "plain").iterdir())) == 1
    assert not list(place.glob("*/*"))


@BY_TRANSFORMERS
@pytest.mark.parametrize(("case", "steps"), [("plain", 6), ("own module", 6), ("smoothing", 12), ("own loss", 12)])
def test_the_losses_told_are_those_that_transformers_logs_at_each_step(heard, case, steps):
    logged = [[row["step"], pytest.approx(row["loss"], rel=1e-6)] for row in heard[0][case]["history"] if "loss" in row]
    assert of("loss", told(heard[1] / case)) == logged
    assert [step for step, _ in logged] == list(range(1, steps + 1))


@BY_TRANSFORMERS
def test_the_metrics_told_are_those_of_transformers_evaluations(heard):
    rows = [row for row in heard[0]["plain"]["history"] if "eval_loss" in row]
    expected = [[row["step"], row["epoch"], {"loss": row["eval_loss"], "accuracy": row["eval_accuracy"]}] for row in rows]
    assert of("metrics", told(heard[1] / "plain")) == expected
    assert [(step, epoch) for step, epoch, _ in expected] == [(3, 1.0), (6, 2.0)]


@BY_TRANSFORMERS
def test_the_samples_told_of_transformers_are_of_their_order(heard):
    one, again, other = (of("samples", told(heard[1] / case)) for case in ("plain", "again", "other order"))
    assert [step for step, _ in one] == [1, 2, 3, 4, 5, 6]
    assert one == again
    assert not {digest for _, digest in one} & {digest for _, digest in other}
    validated = of("samples", told(heard[1] / "validated each step"))
    assert validated[:3] == one[:3]  # of the first epoch: evaluations alter the order of those that follow


@BY_LIGHTNING
def test_losses_samples_and_metrics_of_lightning_are_told_by_step(heard):
    found, rows = heard[0]["plain"], told(heard[1] / "plain")
    halves = [loss / 2 for loss in found["losses"]]  # two batches a step, of five in an epoch
    steps = [halves[0:2], halves[2:4], halves[4:5], halves[5:7], halves[7:9], halves[9:10]]
    assert of("loss", rows) == [[step, pytest.approx(sum(parts), rel=1e-6)] for step, parts in enumerate(steps, 1)]
    assert len({digest for _, digest in of("samples", rows)}) == 6
    metrics = [{"val_acc": value, "val/constant": 1.0} for value in found["measured"]]
    assert of("metrics", rows) == [[3, 1.0, metrics[0]], [6, 2.0, metrics[1]]]


@BY_LIGHTNING
def test_steps_that_a_module_makes_itself_are_counted_as_lightning_does(heard):
    rows, last = told(heard[1] / "manual"), heard[0]["manual"]["losses"][1::2]
    assert of("loss", rows) == [[2 * number, pytest.approx(loss)] for number, loss in enumerate(last, 1)]
    assert [step for step, _ in of("samples", rows)] == list(range(2, 21, 2))
