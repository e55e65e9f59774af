"""Several processes of one training: the bits of one, and all of them or none."""

from __future__ import annotations

import os
import signal
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch._C._distributed_c10d import FileStore

import mltrainer
from mltrainer.configs.project import require_shared_steps
from mltrainer.errors import InputError, KilledError, MltrainerError, StoppedError
from mltrainer.executors.signs import NO_STACK
from mltrainer.records.job import TrainingJob
from mltrainer.runs.launcher import Placement, launch, tools_of
from mltrainer.trainers.native.ranks import Group, Ranks, joined, measure_alone, padded, require_no_synchronized_norm
from mltrainer.trainers.native.shards import TreeSum
from mltrainer.workspace import Project, read_json
from tests.projects import write_rings
from tests.refusals import refused
from tests.trainers.native.digits_runs import job, make, train

# 96 training samples: 24 of each step but the last of an epoch's; micro-batches of 6, so that a step has 4 shards.
SETTING: dict[str, Any] = {
    "task": {"use": "digits_task:Digits", "options": {"model": "transformer"}},
    "batch_size": 5,
    "accumulate": 4,
    "epochs": 2,
}
CNN: dict[str, Any] = {"task": {"use": "digits_task:Digits", "options": {"model": "cnn"}}, "batch_size": 7}
Event = dict[str, Any]


def train_on(root: Path, processes: int, tell: Callable[[Event], None] = lambda _: None, **changes: Any) -> dict[str, Any]:
    """Train in so many processes, and return the result."""
    work = TrainingJob.model_validate(job({**SETTING, **changes}))
    launch(Project(root), "training_orchestrator", work, tell, placement=Placement(processes))
    return dict(read_json(root / work.folder / "result.json"))


def bits(result: dict[str, Any], root: Path) -> tuple[Any, ...]:
    """Return what must not depend on the number of processes."""
    margins = root / ".mltrainer/runs/run/margins.f32"
    gradients = root / ".mltrainer/runs/run/gradients.f32"
    files = [path.read_bytes() for path in (margins, gradients) if path.exists()]
    return result["chain"], result["weights_sha256"], result["metrics"], files


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    root = make(tmp_path_factory.mktemp("alone"))
    return bits(train(root, **SETTING), root)


@pytest.mark.slow
def test_two_processes_give_the_bits_of_one(tmp_path, alone):
    result = train_on(make(tmp_path), 2)
    assert bits(result, tmp_path) == alone
    assert result["processes"] == 2


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"accumulate": 5, "batch_size": 7, "clip": {"value": 0.01}},
        {"accumulate": 6, "batch_size": 3, "averaging": {"name": "ema", "decay": 0.9}},
        {"precision": "bf16", "optimizer": {"name": "sgd", "lr": 0.01, "sam": {"rho": 0.05}}},
        {"task": {"use": "digits_task:Digits", "options": {"model": "lstm"}}, "loader": {"workers": 2}},
        {"gradients": {"noise": {"eta": 0.01}}, "gradient_checkpointing": ["encoder.layers.0"]},
        {"optimizer": {"name": "lamb", "lr": 0.01}, "evaluate": {"every_n_steps": 2}},
        {**CNN, "accumulate": 6, "optimizer": {"name": "sgd", "lr": 0.01, "sam": {"rho": 0.05}}},
        {**CNN, "precision": "bf16", "gradient_checkpointing": ["0"], "averaging": {"name": "ema", "decay": 0.9}},
        {**CNN, "compile": True},
    ],
    ids=[
        "plain",
        "5 shards",
        "6 shards, averaged",
        "bf16, SAM",
        "LSTM, loader processes",
        "noise, recomputed",
        "LAMB",
        "batch norm, SAM",
        "batch norm, bf16, recomputed",
        "batch norm, compiled",
    ],
)
def test_the_number_of_processes_does_not_matter(tmp_path, processes, changes):
    one, several = make(tmp_path / "one"), make(tmp_path / "several")
    assert bits(train_on(several, processes, **changes), several) == bits(train(one, **{**SETTING, **changes}), one)


@pytest.mark.slow
def test_four_processes_with_shards_for_three_give_the_bits_of_one(tmp_path):
    # 96 samples: the last step of an epoch is one shard, which all compute
    changes = {"accumulate": 3, "batch_size": 6, "clip": {"value": 0.01}, "averaging": {"name": "ema", "decay": 0.9}}
    one, several = make(tmp_path / "one"), make(tmp_path / "several")
    assert bits(train_on(several, 4, **changes), several) == bits(train(one, **{**SETTING, **changes}), one)


def ranks_of(root: Path) -> list[psutil.Process]:
    """Return the processes that train in a folder, in the order in which they were started."""
    found = [p for p in psutil.Process().children() if str(root) in " ".join(p.cmdline())]
    return sorted(found, key=lambda p: p.pid)


def at_step(step: int, do: Callable[[], None]) -> Callable[[Event], None]:
    """Return a listener that does something once, when so many steps are taken."""
    done: list[bool] = []

    def tell(event: Event) -> None:
        if event["event"] in ("progress", "row") and event["step"] >= step and not done:
            done.append(True)
            do()

    return tell


def killed(root: Path, rank: int, number: int) -> None:
    os.kill(ranks_of(root)[rank].pid, number)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [3, pytest.param(0, marks=pytest.mark.long)])
def test_a_killed_process_ends_all_and_any_number_goes_on(tmp_path, rank):
    root, one = make(tmp_path / "run"), make(tmp_path / "one")
    more = {"epochs": 40, "early_stopping": None}  # long enough for a signal to arrive before its end
    with pytest.raises(MltrainerError) as caught:
        train_on(root, 4, at_step(10, lambda: killed(root, rank, signal.SIGKILL)), **more)
    assert f"process {rank} of 4 was ended by signal 9" in caught.value.message
    assert caught.value.exit_code == 7
    assert not ranks_of(root)
    with pytest.raises(StoppedError):
        train_on(root, 2, at_step(25, lambda: signal.raise_signal(signal.SIGINT)), **more)
    assert not ranks_of(root)
    result = train_on(root, 1, **more)
    assert [row["cause"] for row in result["interruptions"]] == ["killed", "SIGINT"]
    assert bits(result, root) == bits(train(one, **{**SETTING, **more}), one)


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "restarts", "epochs"), [(2, 1, 60), pytest.param(4, 2, 60, marks=pytest.mark.long)])
@pytest.mark.long
def test_a_killed_training_goes_on_by_itself_with_the_bits_of_an_undisturbed_one(tmp_path, processes, restarts, epochs):
    root, one = make(tmp_path / "run"), make(tmp_path / "one")
    more = {"epochs": epochs, "early_stopping": None}
    kills = [at_step(8 * number, lambda: killed(root, -1, signal.SIGKILL)) for number in range(1, restarts + 1)]
    notes: list[str] = []

    def tell(event: Event) -> None:
        notes.extend([event["text"]] if "restart" in event.get("text", "") else [])
        for kill in kills[: len(notes) + 1]:
            kill(event)

    result = train_on(root, processes, tell, launch={"restarts": restarts}, **more)
    assert [f"restart {number} of {restarts}" in note for number, note in enumerate(notes, 1)] == [True] * restarts
    assert [row["cause"] for row in result["interruptions"]] == ["killed"] * restarts
    assert bits(result, root) == bits(train(one, **{**SETTING, **more}), one)


@pytest.mark.slow
def test_a_training_that_is_killed_once_more_than_it_may_ends(tmp_path):
    root, kills = make(tmp_path), []

    def tell(event: Event) -> None:
        if event["event"] in ("progress", "row") and ranks_of(root):
            kills.append(event["step"])
            killed(root, 0, signal.SIGKILL)

    with pytest.raises(KilledError, match="process 0 of 2 was ended by signal 9"):
        train_on(root, 2, tell, launch={"restarts": 1}, epochs=400, early_stopping=None)
    assert not ranks_of(root)
    assert len(kills) >= 2


@pytest.mark.slow
def test_a_frozen_process_is_named_and_nothing_is_left(tmp_path):
    root = make(tmp_path)
    begun: list[float] = []

    def freeze() -> None:
        begun.append(time.monotonic())
        killed(root, 1, signal.SIGSTOP)

    words = r"process 1 of 2 gave no sign of life and used no CPU time for 5 s \(launch.life_sign_s\), last seen in step \d+ at "
    with pytest.raises(MltrainerError, match=words + r"\S+\.py:\d+"):
        train_on(root, 2, at_step(100, freeze), launch={"life_sign_s": 5}, epochs=400, early_stopping=None)
    assert time.monotonic() - begun[0] < 30
    assert not ranks_of(root)
    log = (root / ".mltrainer/runs/run/log.txt").read_text()
    assert "--- process 0 in step" in log
    assert log.endswith(f"{NO_STACK}\n")


def hung(root: Path, how: str, step: int = 7) -> MltrainerError:
    """Train in two processes, of which the second hangs in its loss at a step, and return the error."""
    task = {"use": "digits_task:Hanging", "options": {"how": how, "step": step}}
    with pytest.raises(MltrainerError) as caught:
        train_on(make(root), 2, task=task, launch={"life_sign_s": 5})
    assert not ranks_of(root)
    return caught.value


@pytest.mark.slow
def test_one_that_sleeps_in_its_loss_is_named_with_step_and_line(tmp_path):
    error = hung(tmp_path, "sleep")
    task = (tmp_path / "digits_task.py").read_text().splitlines()
    sleeps = next(number for number, line in enumerate(task, 1) if "time.sleep(600)" in line)
    place = f"process 1 of 2 hangs in step 7 at digits_task.py:{sleeps}"
    assert error.message == f"{place}: it used no CPU time for 5 s (launch.life_sign_s); the others were ended with it"
    assert error.where == ".mltrainer/runs/run/log.txt"
    log = (tmp_path / error.where).read_text()
    assert "--- process 0 in step 7 at mltrainer/trainers/native/parallel/parallelism.py:" in log
    assert log.count(f'digits_task.py", line {sleeps} in') == 1  # of the other one no line of the task


@pytest.mark.slow
def test_one_that_enters_a_collective_alone_is_named_with_step_and_line(tmp_path):
    message = hung(tmp_path, "all_reduce").message
    assert message.startswith("process 1 of 2 hangs in step 7 at digits_task.py:")
    assert ", in all_reduce: it used no CPU time for 5 s (launch.life_sign_s); process 0 waits in step 7 at mltrainer/" in message


@pytest.mark.slow
def test_the_slowest_is_named_at_the_end(tmp_path):
    told: list[Event] = []
    task = {"use": "digits_task:Hanging", "options": {"how": "slow", "step": -1}}
    train_on(make(tmp_path), 2, told.append, task=task, epochs=20, early_stopping=None)
    (text,) = [event["text"] for event in told if "slowest" in event.get("text", "")]
    assert text.startswith("process 1 was the slowest: it waited ")


@pytest.mark.slow
def test_a_barrier_that_meets_another_one_stops_the_training_in_its_step(tmp_path):
    error = hung(tmp_path, "barrier")
    assert error.message.startswith("processes exchange different numbers: count, type and number of the sum are")
    assert "all processes call the collective operations" in str(error.hint)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_batch_norms_have_the_bits_of_one_process(tmp_path, processes):
    changes = {"task": {"use": "digits_task:Digits", "options": {"model": "mlp"}}, "batch_size": 7}
    one, several = make(tmp_path / "one"), make(tmp_path / "several")
    assert bits(train_on(several, processes, **changes), several) == bits(train(one, **{**SETTING, **changes}), one)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"gradients": {"noise": {"eta": 0.01}}}])
def test_images_in_the_layout_of_channels_last_have_the_bits_of_one_process(tmp_path, more):
    changes = {**CNN, "task": {"use": "digits_task:Digits", "options": {"model": "colour"}}, "channels_last": True, **more}
    one, several = make(tmp_path / "one"), make(tmp_path / "several")
    assert bits(train_on(several, 2, **changes), several) == bits(train(one, **{**SETTING, **changes}), one)


@pytest.mark.slow
def test_a_process_without_a_shard_adds_nothing_in_the_type_of_the_others_loss(tmp_path):
    changes = {"task": {"use": "digits_task:Doubled", "options": {"model": "cnn"}}, "accumulate": 3}
    one, several = make(tmp_path / "one"), make(tmp_path / "several")
    assert bits(train_on(several, 4, **changes), several) == bits(train(one, **{**SETTING, **changes}), one)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """Yield a group of one process, which exchanges as several do."""
    torch.distributed.init_process_group("gloo", store=FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield Group(0, 1)
    torch.distributed.destroy_process_group()


def test_sums_keep_the_layout_of_gradients_and_leave_those_of_the_step_before_alone(group):
    def gradients(value: float) -> list[torch.Tensor]:
        images = torch.arange(2.0 * 3 * 4 * 4).view(2, 3, 4, 4).to(memory_format=torch.channels_last)
        return [images + value, torch.full((3,), value), torch.full((), value, dtype=torch.float64)]

    first, second = group.tree_sum(gradients(1.0)), group.tree_sum(gradients(2.0))
    assert all(torch.equal(found, given) for found, given in zip(first, gradients(1.0), strict=True))
    assert all(torch.equal(found, given) for found, given in zip(second, gradients(2.0), strict=True))
    assert first[0].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.slow
def test_a_buffer_that_a_forward_pass_changes_is_refused_by_name(tmp_path):
    root = make(tmp_path)
    with pytest.raises(InputError) as caught:
        train_on(root, 2, task={"use": "digits_task:Digits", "options": {"model": "own norm"}}, batch_size=6)
    assert "1.running_mean of process 1 is" in caught.value.message
    assert "--processes 1" in str(caught.value.hint)
    assert not (root / ".mltrainer/runs/run/result.json").exists()


def test_a_norm_over_all_processes_is_refused_by_name():
    ranks, model = Ranks(), torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.SyncBatchNorm(2))
    require_no_synchronized_norm(ranks, model)
    ranks.size = 2
    with refused("1 is a SyncBatchNorm", hint="BatchNorm"):
        require_no_synchronized_norm(ranks, model)


SYNCHRONIZED = """

class Synchronized(Digits):
    def model(self):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.SyncBatchNorm(8), nn.Linear(8, 10))
"""


@pytest.mark.slow
def test_a_norm_over_all_processes_is_refused_before_the_model_is_called(tmp_path):
    root = make(tmp_path)
    path = root / "digits_task.py"
    path.write_text(path.read_text() + SYNCHRONIZED)
    with pytest.raises(InputError, match="2 is a SyncBatchNorm, whose results depend on the number of processes"):
        train_on(root, 2, task={"use": "digits_task:Synchronized"}, signals=True)


def test_metrics_that_would_ask_other_processes_count_alone():
    torchmetrics = pytest.importorskip("torchmetrics")
    model, task = (
        torch.nn.Sequential(torchmetrics.MeanMetric()),
        types.SimpleNamespace(metric=torchmetrics.MeanMetric(), name="x"),
    )
    ranks = Ranks()
    ranks.size = 2
    measure_alone(ranks, model, task)
    assert model[0].distributed_available_fn() is task.metric.distributed_available_fn() is False


@pytest.mark.slow
def test_a_fault_of_the_users_code_in_a_later_process_is_reported_as_such(tmp_path):
    root = make(tmp_path)
    task = root / "digits_task.py"
    broken = "def loss(self, outputs, targets):\n        import os\n        assert os.environ.get('RANK') != '1', 'of rank 1'\n"
    task.write_text(task.read_text().replace("def loss(self, outputs, targets):\n", broken))
    with pytest.raises(InputError, match="of rank 1"):
        train_on(root, 2)
    assert not ranks_of(root)


@pytest.mark.parametrize(
    ("numbers", "message", "hint"),
    [
        ((3, 4, 16), "3 processes", "take 2 or 4"),
        ((4, 1, 64), "accumulate: 1 gives fewer", "mltrainer phase run planning --set accumulate=4 --set batch_size=16"),
    ],
)
def test_a_number_that_cannot_share_steps_is_refused_with_what_to_type(numbers, message, hint):
    require_shared_steps(4, 3, 16)
    with refused(message, hint=hint):
        require_shared_steps(*numbers)


def test_a_wrong_number_is_refused_though_nothing_is_left_to_train(tmp_path):
    with pytest.raises(InputError, match="3 processes"), tools_of(Project(tmp_path), lambda _: None, Placement(3)):
        pass


def test_a_phase_without_a_shared_run_takes_no_number_of_processes(tmp_path):
    write_rings(tmp_path)
    with refused("planning trains no run in several processes", hint="--set launch.processes=2"):
        mltrainer.Project(tmp_path).phase("planning", processes=2)


def test_an_executor_that_starts_one_process_is_not_given_several(tmp_path, monkeypatch):
    monkeypatch.setenv("MLTRAINER_EXECUTOR", "cluster")
    with pytest.raises(InputError, match="the executor cluster starts one process, and 2"):
        train_on(make(tmp_path), 2)


@pytest.mark.slow
def test_a_signal_is_heard_where_each_step_is_one_shard(tmp_path):
    root = make(tmp_path)
    small = {"batch_size": 96, "accumulate": 2, "epochs": 400, "early_stopping": None, "evaluate": {"every_n_epochs": 1000}}
    with pytest.raises(StoppedError):
        train_on(root, 2, at_step(5, lambda: signal.raise_signal(signal.SIGINT)), **small)
    # A stop that comes too late is told like one that was heard; the result says which it was.
    assert read_json(root / ".mltrainer/runs/run/result.json")["state"] == "interrupted"


def test_another_trainer_trains_in_one_process(tmp_path):
    work = TrainingJob.model_validate(job(SETTING))
    with pytest.raises(InputError, match="script_runner trains in one process"):
        launch(Project(make(tmp_path)), "script_runner", work, lambda _: None, placement=Placement(2))


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("shards", range(1, 9))
def test_blocks_of_shards_are_subtrees_of_the_tree_over_all(size, shards):
    parts = [[torch.randn(9, generator=torch.Generator().manual_seed(shard)) * 10**shard] for shard in range(shards)]
    blocks = []
    for rank in range(size):
        ranks = Ranks()
        ranks.rank, ranks.size = rank, size
        own = [[parts[shard][0].clone()] for shard in ranks.own(shards, 8)]
        blocks.append(summed(own) if own else [torch.full((9,), -0.0)])
    whole = summed([[tensor.clone() for tensor in part] for part in parts])[0]
    assert torch.equal(blocks[-1][0] if shards == 1 else summed(blocks)[0], whole)


def summed(parts: Any) -> list[torch.Tensor]:
    tree = TreeSum()
    for part in parts:
        tree.add(part)
    return tree.total()


@pytest.mark.parametrize(("gpus", "hint"), [(3, "--processes 2"), (0, "device: cpu")])
def test_more_processes_than_gpus_are_refused(monkeypatch, gpus, hint):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    of_machine = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}  # there are eight, on two machines
    with pytest.raises(InputError, match=f"this machine has {gpus}") as caught:
        joined("cuda", {"RANK": "5", "WORLD_SIZE": "8", "MLTRAINER_RENDEZVOUS": "none", **of_machine}).__enter__()
    assert caught.value.hint == hint


def test_a_count_is_padded_to_a_power_of_two():
    assert [padded(count) for count in (1, 2, 3, 4, 5, 8, 9)] == [1, 2, 4, 4, 8, 8, 16]


def test_a_workflow_that_torchrun_starts_is_told_what_to_type(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError) as caught, tools_of(Project(tmp_path), lambda _: None):
        pass
    assert "--processes 2" in str(caught.value.hint)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "zero1"])
def test_weights_that_go_apart_in_one_process_are_named_before_they_are_saved(tmp_path, parallel):
    root = make(tmp_path)
    task = root / "digits_task.py"
    apart = (
        "def enter(self, step, length):\n"
        "        import os\n"
        "        if step == 3 and os.environ.get('RANK') == '1':\n"
        "            with torch.no_grad():\n"
        "                next(self.made.parameters()).view(-1)[5] += 1e-6\n\n"
        "    def model(self):\n"
        "        self.made = {'transformer': Attention}[self.name]()\n"
        "        return self.made\n\n"
        "    def loss(self, outputs, targets):"
    )
    text = task.read_text()
    place = text.index("class Digits(mltrainer.Task)")
    body = text[place:].replace("def model(self):", "def unused(self):", 1).replace("def loss(self, outputs, targets):", apart, 1)
    task.write_text(text[:place] + body)
    with refused(r"of process 1 is \S+, of process 0", hint="every process must do the same to the weights"):
        train_on(root, 2, launch={"parallel": parallel})
    assert not [*root.glob(".mltrainer/runs/run/checkpoints/step-*")]
