"""Processes that share the optimizer's state: each updates some rows, and all have the bits of one process."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import save_file

from mltrainer.checkpointing.format import load
from mltrainer.checkpointing.manifest import faults, folders, newest_intact
from mltrainer.checkpointing.weights import weights_sha256
from mltrainer.configs.project import UPDATED_BY_NUMBER, TrainingConfig
from mltrainer.errors import GateError, InputError, MltrainerError, StoppedError
from mltrainer.trainers.native.optimization.optimizers import build_optimizer
from mltrainer.trainers.native.parallel.parallelism import Parallelism
from mltrainer.trainers.native.parallel.partition import VECTOR, cut
from mltrainer.trainers.native.parallel.zero1 import Zero1
from mltrainer.trainers.native.ranks import Ranks, padded
from tests.refusals import refused
from tests.trainers.native.digits_runs import CONFIG, make, train
from tests.trainers.native.test_ranks import at_step, bits, killed, ranks_of, train_on

WIDE: dict[str, Any] = {
    "task": {"use": "digits_task:Digits", "options": {"model": "wide"}},
    "batch_size": 7,
    "accumulate": 3,  # of two processes one then has a micro-batch less than the other
    "epochs": 2,
}
HELD = {"weights": "begin.safetensors", "freeze": ["0.1.*"], "unfreeze": [{"match": "0.1.*", "epoch": 2}]}
ZERO: dict[str, Any] = {"parallel": "zero1"}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    root = make(tmp_path_factory.mktemp("alone"))
    return *bits(train(root, **WIDE), root), states_of(root)


@pytest.mark.parametrize(
    ("processes", "parallel"),
    [(2, "fsdp"), (2, "zero1"), (4, "zero1"), (4, "fsdp")],
)
@pytest.mark.slow
def test_processes_that_share_the_model_have_the_bits_of_one(tmp_path, processes, parallel, alone):
    result = train_on(make(tmp_path), processes, launch={"parallel": parallel}, **WIDE)
    assert (*bits(result, tmp_path), states_of(tmp_path)) == alone


@pytest.mark.parametrize("name", UPDATED_BY_NUMBER)
def test_rows_that_are_updated_apart_have_the_bits_of_a_whole_parameter(name):
    config = TrainingConfig.model_validate({**CONFIG, "optimizer": {"name": name}})
    shapes = {"even": (1100, 64), "uneven": (77, 1100), "odd": (900, 77), "pictures": (256, 32, 3, 3), "small": (77,)}

    def model() -> torch.nn.Module:
        torch.manual_seed(0)
        made = torch.nn.Module()
        for key, shape in shapes.items():
            layout = torch.channels_last if len(shape) == 4 else torch.contiguous_format
            made.register_parameter(key, torch.nn.Parameter(torch.randn(shape).to(memory_format=layout)))
        return made

    def updated(rank: int, size: int) -> dict[str, torch.Tensor]:
        trained, ranks = model(), Ranks()
        ranks.rank, ranks.size = rank, size
        partition = (Parallelism if size == 1 else Zero1)(trained, ranks).partition
        optimizer = build_optimizer(config.optimizer, trained, partition.own)
        for step in range(8):
            draw = torch.Generator().manual_seed(step)
            gradients = [torch.empty_like(p).copy_(torch.randn(p.shape, generator=draw)) for p in trained.parameters()]
            named = dict(zip(partition.own, gradients, strict=True))
            rows = partition.rows_of({key: named[key] for key in partition.cut})
            for own, gradient in zip(partition.own.values(), partition.in_order(rows, named), strict=True):
                own.grad = gradient
            optimizer.step()
        return {key: own.detach() for key, own in partition.own.items()}

    whole = updated(0, 1)
    for size in (2, 4, 8):
        parts = [updated(rank, size) for rank in range(size)]
        assert parts[0]["even"].shape[0] < 1100
        for key in ("even", "uneven", "odd", "pictures"):
            assert torch.equal(torch.cat([part[key] for part in parts]), whole[key]), (key, size)
        assert torch.equal(parts[-1]["small"], whole["small"])


@pytest.mark.parametrize("shape", [(1100, 64), (77, 1100), (900, 77), (3, 70000), (256, 32, 3, 3)])
@pytest.mark.parametrize("size", [2, 4, 16])
def test_every_row_has_one_process_and_blocks_end_where_a_vector_ends(shape, size):
    found = cut(torch.Size(shape), size)
    rows = [range(shape[0])[found.rows(rank)] for rank in range(size)]
    assert [row for block in rows for row in block] == [*range(shape[0])]
    assert found.block % VECTOR == 0


@pytest.mark.slow
@pytest.mark.long
def test_a_training_goes_on_with_another_number_and_another_way_to_share(tmp_path):
    root, one = make(tmp_path / "run"), make(tmp_path / "one")
    more = {**WIDE, "epochs": 30, "early_stopping": None, "checkpoint": {"every_n_steps": 10, "keep": 2}}
    with pytest.raises(MltrainerError, match="process 3 of 4 was ended by signal 9"):
        train_on(root, 4, at_step(10, lambda: killed(root, 3, signal.SIGKILL)), launch=ZERO, **more)
    with pytest.raises(StoppedError):
        train_on(root, 2, at_step(20, lambda: signal.raise_signal(signal.SIGINT)), **more)
    with pytest.raises(StoppedError):
        train_on(root, 2, at_step(30, lambda: signal.raise_signal(signal.SIGINT)), launch={"parallel": "fsdp"}, **more)
    result = train_on(root, 1, launch=ZERO, **more)
    assert bits(result, root) == bits(train(one, **more), one)
    assert states_of(root) == states_of(one)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["penalized", "odd"], ids=["two types and what a block leaves behind", "blocks called oddly"])
def test_unusual_models_have_the_bits_of_one_process(tmp_path, model):
    changes = {**WIDE, "task": {"use": "digits_task:Digits", "options": {"model": model}}, "batch_size": 5}
    one, several = make(tmp_path / "one"), make(tmp_path / "several")
    expected = bits(train(one, **changes), one)
    assert bits(train_on(several, 2, launch={"parallel": "fsdp"}, **changes), several) == expected


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("parallel", ["zero1", "fsdp"])
@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize(
    "changes",
    [
        {"accumulate": 4, "averaging": {"name": "ema", "decay": 0.9}, "clip": {"adaptive": 0.01}},
        {"accumulate": 5, "optimizer": {"name": "schedule_free", "lr": 0.01}},
        {"precision": "bf16", "gradient_checkpointing": ["0"], "clip": {"value": 0.01}},
        {"optimizer": {"name": "sgd", "lr": 0.01}, "start": HELD},
        {"task": {"use": "digits_task:Digits", "options": {"model": "pictures"}}, "channels_last": True},
        {"task": {"use": "digits_task:Digits", "options": {"model": "large"}}, "loader": {"workers": 2}, "batch_size": 5},
        {"task": {"use": "digits_task:Digits", "options": {"model": "large"}}, "gradient_checkpointing": ["layers.0"]},
        {"batch_size": 24, "accumulate": 2, "evaluate": {"every_n_steps": 2}},
    ],
    ids=[
        "4 shards, averaged",
        "schedule-free",
        "bf16, recomputed",
        "held at first",
        "channels last",
        "transformer, loader processes",
        "transformer, recomputed",
        "steps of one shard",
    ],
)
def test_the_way_to_share_does_not_matter(tmp_path, processes, parallel, changes):
    one, several = make(tmp_path / "one"), make(tmp_path / "several")
    given = {**WIDE, **changes}
    for root in (one, several) if "start" in changes else ():
        torch.manual_seed(0)
        save_file(weights_of(root), root / "begin.safetensors")
    processes = min(processes, padded(given["accumulate"]))
    launch = {"parallel": parallel}
    assert bits(train_on(several, processes, launch=launch, **given), several) == bits(train(one, **given), one)
    assert states_of(several) == states_of(one)


def weights_of(root: Path, model: str = "wide") -> dict[str, torch.Tensor]:
    """Return new weights of a model of the digits task."""
    names: dict[str, Any] = {}
    exec(compile((root / "digits_task.py").read_text(), "digits_task.py", "exec"), names)
    return {name: tensor.contiguous() for name, tensor in names[model]().state_dict().items()}


def states_of(root: Path) -> list[str]:
    """Return the digests of the states in a run's checkpoints, which do not depend on how many processes wrote them."""
    return [weights_sha256(dict(flat(load(folder)[0]))) for folder in checkpoints_of(root)]


def checkpoints_of(root: Path) -> list[Path]:
    return folders(root / ".mltrainer/runs/run/checkpoints")


def flat(tree: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a tree by their places."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, (list, tuple)) else ()
    for key, value in items:
        yield from [(f"{path}.{key}", value)] if isinstance(value, torch.Tensor) else flat(value, f"{path}.{key}")


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["zero1", "fsdp"])
def test_a_loss_that_is_not_finite_is_found_where_one_process_finds_it(tmp_path, parallel):
    changes = {**WIDE, "optimizer": {"name": "sgd", "lr": 1e12}, "clip": None, "schedule": {"name": "constant"}}
    one, several = make(tmp_path / "one"), make(tmp_path / "several")
    expected = train(one, **changes)["nonfinite"]
    found = train_on(several, 2, launch={"parallel": parallel}, **changes)["nonfinite"]
    assert (found["step"], found["what"], found["samples"]) == (expected["step"], expected["what"], expected["samples"])
    assert found["located"] == expected["located"]
    assert not ranks_of(several)


@pytest.mark.slow
def test_rows_that_a_killed_process_left_enter_no_checkpoint(tmp_path, alone):
    root = make(tmp_path)
    left = root / ".mltrainer/runs/run/rows/step-00000005"
    left.mkdir(parents=True)
    for name in ("rows-0001.safetensors", "rows-0001.json"):
        (left / name).write_text("left behind")
    result = train_on(root, 2, launch=ZERO, **WIDE)
    assert (*bits(result, root), states_of(root)) == alone


@pytest.mark.slow
def test_a_disk_that_fails_one_process_ends_all_with_its_message(tmp_path):
    root = make(tmp_path)
    (root / ".mltrainer/runs/run").mkdir(parents=True)
    (root / ".mltrainer/runs/run/rows").write_text("in the way")
    with pytest.raises(MltrainerError, match="Not a directory") as caught:
        train_on(root, 2, launch=ZERO, **WIDE)
    assert "rows/step-00000005" in str(caught.value.where)
    assert not ranks_of(root)


@pytest.mark.slow
def test_a_model_without_large_matrices_is_told_to_share_nothing(tmp_path):
    notes: list[str] = []

    def tell(event: dict[str, Any]) -> None:
        notes.extend([event["text"]] if event["event"] == "note" else [])

    train_on(make(tmp_path), 2, tell, launch=ZERO, epochs=1)
    assert any("zero1 shares nothing: no matrix has more than 65,536 numbers" in note for note in notes)


@pytest.mark.slow
def test_a_matrix_that_is_read_outside_of_its_block_is_explained(tmp_path):
    changes = {"task": {"use": "digits_task:Digits", "options": {"model": "borrowing"}}, "batch_size": 5}
    root = make(tmp_path)
    with pytest.raises(InputError, match=r"with launch\.parallel: fsdp a block's matrices are empty while another") as caught:
        train_on(root, 2, launch={"parallel": "fsdp"}, **changes)
    assert "zero1 shares the optimizer's state alone" in caught.value.message
    assert "digits_task.py:" in str(caught.value.where)


@pytest.mark.slow
def test_blocks_that_are_computed_for_some_micro_batches_alone_are_refused_and_nothing_hangs(tmp_path):
    changes = {"task": {"use": "digits_task:Digits", "options": {"model": "dropping"}}, "batch_size": 5, "epochs": 9}
    root = make(tmp_path)
    begun = time.monotonic()
    with refused("some blocks are computed for some micro-batches alone", hint="zero1"):
        train_on(root, 2, launch={"parallel": "fsdp"}, **changes)
    assert time.monotonic() - begun < 60
    assert not ranks_of(root)


@pytest.mark.slow
def test_each_process_writes_its_rows_and_damage_to_one_of_them_is_found(tmp_path):
    root, one = make(tmp_path / "run"), make(tmp_path / "one")
    train_on(root, 2, launch=ZERO, **WIDE)
    train(one, **WIDE)
    newest, whole = checkpoints_of(root)[-1], checkpoints_of(one)[-1]
    sizes = {path.name: path.stat().st_size for path in newest.iterdir()}
    rows = sizes["rows-0000.safetensors"], sizes["rows-0001.safetensors"]
    assert rows[0] == pytest.approx(rows[1], rel=0.1)
    assert sizes["state.safetensors"] + sum(rows) == pytest.approx((whole / "state.safetensors").stat().st_size, rel=0.02)
    assert not (root / ".mltrainer/runs/run/rows").exists() or not any((root / ".mltrainer/runs/run/rows").iterdir())

    content = (path := newest / "rows-0001.safetensors").read_bytes()
    path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    with pytest.raises(GateError, match=r"expected .* bytes with sha256") as caught:
        load(newest)
    assert "rows-0001.safetensors" in str(caught.value.where)
    assert newest_intact(newest.parent)[0] == checkpoints_of(root)[-2]
    path.unlink()
    assert any("rows-0001.safetensors: expected sha256" in fault for fault in faults(newest))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": {"name": "lamb"}}, "lamb, which looks at whole parameters"),
        ({"optimizer": {"name": "sgd", "sam": {}}}, "optimizer.sam, which looks at all"),
        ({"optimizer": {"name": "sgd", "lookahead": {}}}, "optimizer.lookahead"),
        ({"precision": "fp16"}, "precision: fp16"),
        ({"gradients": {"noise": {"eta": 0.1}}}, "gradients.noise"),
    ],
)
def test_what_cannot_be_updated_by_rows_is_refused_by_name(changes, message):
    given = {**CONFIG, **WIDE, **changes}
    with pytest.raises(ValidationError, match=message):
        TrainingConfig.model_validate({**given, "launch": {**ZERO, "processes": 2}})
    alone = TrainingConfig.model_validate({**given, "launch": ZERO})
    with pytest.raises(InputError, match=message):
        alone.require_processes(2)
