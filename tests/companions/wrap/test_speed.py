"""`wrap --profile`: what holds a program's steps up, by one run of it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.data import dataloader

from mltrainer.companions.wrap import speed
from mltrainer.companions.wrap.speed import ProcessTimes, SpeedVerdict, judged, text
from mltrainer.follow.usage import Gpu
from mltrainer.observe.process import Settings
from mltrainer.observe.speed import Speed
from tests import outputs

SCRIPT = """
import sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

fault, rank = sys.argv[1], 0


class Rows(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        if fault == "data":
            time.sleep(0.005)
        return torch.ones(64), torch.ones(1)


torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
if fault == "straggler":
    dist.init_process_group("gloo")
    rank, model = dist.get_rank(), DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for x, y in DataLoader(Rows(), batch_size=8):
    if fault == "waits" or (fault == "straggler" and rank == 1):
        time.sleep(0.2)
    for _ in range(4):
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def times(name: str = "a", own_s: float = 0.01, cores: float = 1.0, data: float = 0.0, **more: Any) -> ProcessTimes:
    shares = {"data": data, "before": 0.5, "backward": 0.4, "after": 0.1}
    return ProcessTimes(name, 20, 0.05, own_s, shares, cores, more.get("delayed", 0.0), more.get("has_cuda", False))


@pytest.mark.parametrize(
    ("process", "gpu", "bound", "why"),
    [
        (times(data=0.31), None, "data", "31.0 % of the time in PyTorch's data loaders (more than 30.0 % holds a training up)"),
        (times(data=0.29), None, "device", "the CPU computes: its threads keep 1.00 processors busy; 50.0 % of the time before"),
        (times(data=0.6, has_cuda=True), 20.0, "data", "60.0 %"),
        (times(cores=0.2), None, "host", "its threads keep 0.200 processors busy"),
        (times(cores=0.2, delayed=0.29), None, "host", "its threads keep 0.200 processors busy, and"),
        (times(cores=0.4, delayed=0.29), None, "device", "the CPU computes"),
        (times(cores=0.6, delayed=0.4), None, "host", "for 40.0 % of the time it was ready to run, and other programs had the"),
        (times(cores=0.2, has_cuda=True), 95.0, "device", "the GPU is busy for 95.0 %"),
        (times(has_cuda=True), 40.0, "host", "the GPU is busy for 40.0 % (median; 70 % or more are usual)"),
        (times(has_cuda=True), None, "unknown", "the GPU's utilization is unknown"),
    ],
    ids=[
        "data",
        "computes",
        "data of a GPU",
        "waits",
        "waits and others run",
        "computes between others",
        "others run",
        "GPU",
        "idle GPU",
        "GPU that nothing measures",
    ],
)
def test_the_verdict_follows_from_the_times(process, gpu, bound, why):
    found, said, _ = judged([process], gpu)
    assert found == bound
    assert why in said


def test_of_a_gpu_that_nothing_measures_the_next_step_names_the_package():
    verdict = SpeedVerdict("python train.py", *judged([times(has_cuda=True)], None), 3.0, None, (times(has_cuda=True),))
    lines = text(verdict).splitlines()
    assert lines[0] == "speed: what holds it up is unknown"
    assert lines[2].startswith('  next: pip install "mltrainer[gpu]"')


@pytest.mark.parametrize(
    ("steps", "shown", "noted"),
    [(2, None, []), (3, None, [99]), (3, "1", [10]), (3, "1, 2", [20]), (3, "GPU-1a", [99]), (3, "7", [])],
    ids=["warm-up", "all", "one", "two", "by name", "one that is not here"],
)
def test_the_gpus_of_a_program_are_looked_at_after_its_first_steps(tmp_path, monkeypatch, steps, shown, noted):
    monkeypatch.setattr(speed, "gpus", lambda: [Gpu(percent, 0) for percent in (99, 10, 20)])
    (tmp_path / "chain-0-1.jsonl").write_text("1 1 0 0 0 0 0 0 1\n" * steps)
    seen: list[int] = []
    speed._sampler(seen, shown)(tmp_path)
    assert seen == noted


def test_of_several_processes_the_one_is_named_that_the_others_wait_for():
    found, why, _ = judged([times("0"), times("1", own_s=0.03), times("2")], None)
    assert found == "stragglers"
    assert why == "process 1 takes 30.0 ms before its backward pass, the others 10.0 ms: they wait 40.0 % of a step for it"
    assert judged([times("0"), times("1", own_s=0.014), times("2")], None)[0] == "device"


@pytest.mark.parametrize("names", [("1a2b3c4d", "5e6f7a8b"), ("12345678", "87654321"), ("0.1", "0.2"), ("0", "1a2b3c4d")])
def test_processes_without_a_rank_are_not_compared(names):
    assert judged([times(names[0]), times(names[1], own_s=0.03)], None)[0] == "device"


def test_the_words_name_verdict_evidence_and_the_next_step():
    lines = text(SpeedVerdict("python train.py", "data", "so", "then", 3.0, None, (times(),))).splitlines()
    assert lines[:3] == ["speed: it waits for data", "  so", "  next: then"]
    assert lines[5].split()[:4] == ["a", "20", "50.0", "ms"]


def profiled(tmp_path: Path, *command: str) -> dict[str, Any]:
    (tmp_path / "train.py").write_text(SCRIPT)
    line = [sys.executable, "-m", "mltrainer", "wrap", "--profile", "--steps", "24", "--json", "--", sys.executable, *command]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(outputs.check(["wrap"], done.stdout))


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "bound"), [("data", "data"), ("waits", "host"), ("none", "device")])
def test_a_planted_slowness_is_named(tmp_path, fault, bound):
    found = profiled(tmp_path, "train.py", fault)
    is_taken = "other programs had the processors" in found["why"]  # as a machine with other tests may have it
    assert found["bound"] == bound or (fault == "none" and is_taken), found
    (process,) = found["processes"]
    assert process["steps"] == 22
    assert sum(process["shares"].values()) == pytest.approx(1)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.slow
def test_a_slow_process_of_two_is_named(tmp_path):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "train.py", "straggler")
    found = profiled(tmp_path, *launcher)
    assert found["bound"] == "stragglers", found
    assert found["why"].startswith("process 1 takes ")


@pytest.mark.slow
def test_a_program_with_too_few_steps_is_refused_with_what_to_type(tmp_path):
    (tmp_path / "train.py").write_text("print('nothing')")
    line = [sys.executable, "-m", "mltrainer", "wrap", "--profile", "--", sys.executable, "train.py"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "too few to judge their speed" in done.stderr
    assert "--steps 10" in done.stderr


class Rows:
    """A process of the observer, whose lines a test reads."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []

    def on_fork(self, _: Any) -> None:
        """Nothing forks."""

    def map(self, _: str) -> Rows:
        return self

    def write(self, line: bytes) -> None:
        self.rows.append([int(word) for word in line.split()])


def observed(monkeypatch: pytest.MonkeyPatch, backward: Any) -> tuple[Speed, Rows]:
    """Return an observer of this process, with this backward pass in place of torch's, and its lines."""
    monkeypatch.setattr(sys.modules["torch.optim.optimizer"], "register_optimizer_step_post_hook", lambda _: None)
    monkeypatch.setattr(torch.autograd, "backward", backward)
    monkeypatch.setattr(dataloader._BaseDataLoaderIter, "__next__", dataloader._BaseDataLoaderIter.__next__)
    rows = Rows()
    observer = Speed(Settings(), rows)  # type: ignore[arg-type]
    observer.attach(torch)
    return observer, rows


def test_a_backward_pass_inside_a_backward_pass_is_counted_once(monkeypatch):
    def slow(x):
        y = 2 * x
        if y.requires_grad:  # where the checkpoint computes it once more
            y.register_hook(lambda _: time.sleep(0.02))
        return y

    observer, rows = observed(monkeypatch, torch.autograd.backward)
    loss = checkpoint(slow, torch.ones(1, requires_grad=True), use_reentrant=True)
    observer._restart()
    begun = observer._at
    loss.backward()
    observer._stepped(None, (), {})
    (row,) = rows.rows
    assert row[4] > 20_000_000
    assert sum(row[2:6]) <= row[0] - begun


def test_the_time_of_each_pass_of_a_step_adds_up(monkeypatch):
    observer, rows = observed(monkeypatch, lambda *_, **__: time.sleep(0.02))
    weight = torch.ones(1, requires_grad=True)
    for batch in dataloader.DataLoader([1.0, 2.0]):
        for _ in range(3):
            (weight * batch).backward()
        observer._stepped(None, (), {})
    assert [row[1] for row in rows.rows] == [1, 2]
    assert all(backward > 60_000_000 for _, _, _, _, backward, *_ in rows.rows)
    assert all(data > 0 for _, _, data, *_ in rows.rows)
    assert all(row[-1] == 0 for row in rows.rows)
