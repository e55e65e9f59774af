"""Small trainings in this process: digits with dropout and augmentation per sample, stopped and gone on with as a test wants."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import MltrainerError
from mltrainer.records.job import TrainingJob
from mltrainer.tools.program import Events
from mltrainer.trainers.native.job import run_job
from mltrainer.workspace import digest, read_json

TASK = '''
import contextlib
import dataclasses
import os
import random
import time
import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import Dataset
import mltrainer


class Moved(Dataset):
    """Digits, each moved and made noisy by draws from three generators."""

    def __init__(self, n):
        digits = load_digits()
        self.x, self.y = digits.images[:n].astype(np.float32) / 16, digits.target[:n]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        image = np.roll(self.x[i], random.randint(-1, 1), axis=1) + np.random.normal(0, 0.05, (8, 8))
        return torch.tensor(image, dtype=torch.float32) + 0.05 * torch.randn(8, 8), int(self.y[i])


class Rows(nn.Module):
    """Reads an image row by row."""

    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 10)

    def forward(self, x):
        return self.head(nn.functional.dropout(self.rnn(x)[0][:, -1], 0.2, self.training))


class Attention(nn.Module):
    """A transformer over the rows of an image."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 32, dropout=0.1, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


class Counting(nn.Module):
    """Counts its batches whatever its mode, and fades by the count."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 10)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.head(x.flatten(1)) / (1 + 0.01 * self.calls)


class OwnNorm(nn.BatchNorm1d):
    """A batch norm with a forward pass of its own."""

    def forward(self, x):
        return super().forward(x)


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 10))


def cnn():
    features = nn.Sequential(nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
    return nn.Sequential(features, nn.Dropout(0.3), nn.Linear(288, 10))


def colour():
    """Convolutions over three channels: the order of channels in memory matters."""
    features = nn.Sequential(nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 3, 3), nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten())
    return nn.Sequential(features, nn.Dropout(0.3), nn.Linear(128, 10))


def wide():
    """Matrices that several processes cut: into equal blocks, into unequal ones, by rows whose length no vector divides."""
    first, second, third = nn.Linear(64, 1100), nn.Linear(1100, 77), nn.Linear(77, 900)
    body = nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Dropout(0.3), second, nn.ReLU(), third, nn.BatchNorm1d(900))
    return nn.Sequential(body, nn.ReLU(), nn.Linear(900, 10))


def pictures():
    """A large convolution over many channels."""
    features = nn.Sequential(nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 33, 3), nn.ReLU(), nn.Conv2d(33, 250, 3), nn.ReLU())
    return nn.Sequential(features, nn.Flatten(), nn.Linear(4000, 10))


class Large(nn.Module):
    """A transformer whose blocks have large matrices."""

    def __init__(self):
        super().__init__()
        layers = [nn.TransformerEncoderLayer(264, 4, 520, dropout=0.1, batch_first=True) for _ in range(2)]
        self.entry, self.layers, self.head = nn.Linear(8, 264), nn.ModuleList(layers), nn.Linear(264, 10)
        self.codes = nn.Embedding(600, 264)

    def forward(self, x):
        x = self.entry(x) + self.codes((x.sum(-1) * 9).long().clamp(0, 599))
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


class Dropping(Large):
    """Leaves out each of its blocks for half of the batches, by draws (Fan et al., 2020, LayerDrop)."""

    def forward(self, x):
        x = self.entry(x)
        for layer in self.layers:
            if not self.training or torch.rand(()) < 0.5:
                x = layer(x)
        return self.head(x.mean(1))


class Gated(nn.Module):
    """A block with matrices of two types, whose penalty is an attribute and depends on a matrix after its output does."""

    def __init__(self):
        super().__init__()
        self.low, self.high = nn.Linear(264, 264, dtype=torch.bfloat16), nn.Linear(264, 264)

    def forward(self, x):
        out = x + self.high(self.low(x.bfloat16()).float())
        self.penalty = (x @ self.high.weight).square().mean()
        return out


class Penalized(nn.Module):
    """Adds up what its blocks leave behind; the last one's output is not used by the loss alone."""

    def __init__(self):
        super().__init__()
        self.entry, self.blocks, self.head = nn.Linear(64, 264), nn.ModuleList([Gated(), Gated()]), nn.Linear(264, 10)

    def forward(self, x):
        x = self.entry(x.flatten(1))
        for block in self.blocks:
            x = block(x)
        x = self.head(x.detach()) + x[:, :10]
        return x + sum(block.penalty for block in self.blocks)


class Borrowing(Penalized):
    """Reads a matrix of one of its blocks while that does not compute."""

    def forward(self, x):
        return super().forward(x) + (self.blocks[0].high.weight @ torch.ones(264))[:10]


class Link(nn.Module):
    """A block that draws from three generators, and hands on what the first of several makes."""

    def __init__(self):
        super().__init__()
        self.linear, self.bias = nn.Linear(264, 264), nn.Linear(264, 8)

    def forward(self, x, bias=None, mask=None):
        bias = self.bias(x) if bias is None else bias
        noise = random.random() * np.random.normal() + torch.randn(()).item()
        return x + self.linear(x * mask).tanh() * (1 + 0.01 * noise) + bias.mean(-1, keepdim=True), bias


class Chained(nn.Module):
    """Blocks that hand on tuples, under a head that is a part of the table before them."""

    around = False

    def __init__(self):
        super().__init__()
        self.codes, self.links = nn.Embedding(600, 264), nn.ModuleList([Link() for _ in range(5)])

    def forward(self, x):
        first = x = self.codes((x.sum(-1) * 9).long().clamp(0, 599))
        bias, mask = None, (x > 0).float()
        for link in self.links:
            x, bias = link(x, bias, mask=mask)
        x = x + first if self.around else x
        return x.mean(1) @ self.codes.weight[:10].T


class Around(Chained):
    """Adds what goes into its blocks to what comes out."""

    around = True


class GatedAround(Chained):
    """Adds what goes into its blocks through a gate that is closed at first."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(264))

    def forward(self, x):
        first = x = self.codes((x.sum(-1) * 9).long().clamp(0, 599))
        bias, mask = None, (x > 0).float()
        for link in self.links:
            x, bias = link(x, bias, mask=mask)
        return (x + self.gate * first).mean(1) @ self.codes.weight[:10].T


def changed_in_place():
    """Entries that change what they are given in place."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 77), nn.ReLU(inplace=True), nn.BatchNorm1d(77), nn.Linear(77, 10))


class NormBefore(nn.Module):
    """A norm with running statistics before the blocks."""

    def __init__(self):
        super().__init__()
        self.norm, self.blocks = nn.BatchNorm1d(64), nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.blocks(self.norm(x.flatten(1)))


class Planned(nn.Sequential):
    """An MLP whose middle processes split, and its last layer."""

    tp_plan = {"1": "colwise", "3": "rowwise", "5": "colwise_rep"}

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32), nn.Dropout(0.1), nn.Linear(32, 10))


class PlannedNorm(nn.Sequential):
    """A norm before what processes split."""

    tp_plan = {"2": "colwise", "4": "rowwise"}

    def __init__(self):
        super().__init__(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 10))


class Wrong(nn.Module):
    """Has a plan by which it cannot be split, each kind for another reason."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.scale = kind, nn.Parameter(torch.ones(()))
        self.up, self.down = nn.Linear(64, 96), nn.Linear(96, 10)
        self.tp_plan = {"down": "colwise"} if kind == "open" else {"up": "colwise", "down": "rowwise"}
        if kind == "alone":
            self.tp_plan = {"up": "colwise"}
        if kind.endswith("late"):  # nothing behind it has a gradient at first
            nn.init.zeros_(self.down.weight)

    def forward(self, x):
        x = self.up(x.flatten(1))
        if self.kind == "mixed late":
            return self.down(x.softmax(-1))
        if self.kind == "penalized":
            self.penalty = x.square().mean()
        if self.kind == "normed":
            x = nn.functional.layer_norm(x, x.shape[-1:])
        if self.kind.startswith("scaled"):
            x = x * self.scale
        return self.down(x.relu())


class PlannedBlock(nn.Module):
    """A block of a transformer that takes the number of its heads from what its projections give."""

    def __init__(self, width=32):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.first(x)
        q, k, v = (part(y).unflatten(-1, (-1, 8)).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + nn.functional.dropout(self.o(y), 0.1, self.training)
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class PlannedTransformer(nn.Module):
    """A transformer over the rows of an image, and a table that is looked up by processes together."""

    def __init__(self):
        super().__init__()
        self.entry, self.layers = nn.Linear(8, 32), nn.ModuleList([PlannedBlock(), PlannedBlock()])
        self.codes, self.head = nn.Embedding(64, 32), nn.Linear(32, 10)

    def tp_plan(self):
        split = {f"layers.*.{name}": "colwise" for name in "qkv"} | {"layers.*.o": "rowwise"}
        return {"codes": "embedding_rowwise", **split, "layers.*.up": "colwise", "layers.*.down": "rowwise"}

    def forward(self, x):
        x = self.entry(x) + self.codes((x.sum(-1) * 9).long().clamp(0, 63))
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


@dataclasses.dataclass
class Given:
    """What a block returns, in a form of its own."""

    hidden: torch.Tensor
    keep: torch.Tensor | None = None


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(264, 264)

    def forward(self, x):
        return Given(x + self.linear(x).tanh())


class Handing(nn.Module):
    """A block that hands on a dataclass with a mask, and is given its numbers twice."""

    def __init__(self):
        super().__init__()
        self.linear, self.memory = nn.Linear(264, 264), nn.Linear(264, 264)

    def forward(self, given, memory):
        out = torch.where(given.keep, self.linear(given.hidden).tanh(), 0.1) + self.memory(memory).sigmoid() * memory
        return Given(given.hidden + out, out > 0)


class Handed(nn.Module):
    """Blocks around each of which all is in a form of its own."""

    def __init__(self):
        super().__init__()
        self.entry, self.blocks = nn.Linear(64, 264), nn.ModuleList([Handing() for _ in range(4)])
        self.head = nn.Linear(264, 10)

    def forward(self, x):
        x = self.entry(x.flatten(1))
        given = Given(x, x > 0)
        for block in self.blocks:
            given = block(given, given.hidden)
        return self.head(given.hidden)


class Leaving(nn.Module):
    """A block that returns a number, or leaves it behind."""

    def __init__(self, returns):
        super().__init__()
        self.linear, self.returns = nn.Linear(264, 264), returns

    def forward(self, x):
        self.size, out = x.detach().abs().mean(), x + self.linear(x).tanh()
        return (out, self.size.item()) if self.returns else out


class Catching(nn.Module):
    """Goes on without a block that fails in whatever way."""

    def __init__(self):
        super().__init__()
        self.entry, self.blocks = nn.Linear(64, 264), nn.ModuleList([nn.Linear(264, 264) for _ in range(4)])
        self.head = nn.Linear(264, 10)

    def forward(self, x):
        x = self.entry(x.flatten(1))
        for block in self.blocks:
            with contextlib.suppress(BaseException):
                x = block(x).tanh()
        return self.head(x)


class Left(nn.Module):
    """Divides by what its blocks tell of their inputs, which no gradient passes."""

    def __init__(self, returns=False):
        super().__init__()
        self.entry, self.blocks = nn.Linear(64, 264), nn.ModuleList([Leaving(returns) for _ in range(2)])
        self.head, self.returns = nn.Linear(264, 10), returns

    def forward(self, x):
        x, sizes = self.entry(x.flatten(1)), []
        for block in self.blocks:
            x, size = block(x) if self.returns else (block(x), block.size)
            sizes.append(size)
        return self.head(x) / (1 + sum(sizes))


class Odd(nn.Module):
    """Calls a block twice, and one without gradients; looks a sparse table up, one row of which no sample names."""

    def __init__(self):
        super().__init__()
        self.codes = nn.Embedding(600, 264, sparse=True)
        self.blocks = nn.ModuleList([Wrapped(), Wrapped()])
        self.head = nn.Linear(264, 10)

    def forward(self, x):
        x = self.codes((x.sum(-1) * 9).long().clamp(0, 599)).mean(1)
        x = self.blocks[0](self.blocks[1](self.blocks[0](x).hidden).hidden).hidden
        with torch.no_grad():
            shift = self.blocks[1](x).hidden.mean()
        return self.head(x - shift)


class Digits(mltrainer.Task):
    def __init__(self, model="mlp", n=120, greedy=False):
        self.name, self.n, self.greedy = model, n, greedy

    def samples(self):
        return Moved(self.n)

    def model(self):
        if self.name.startswith("wrong "):
            self.made = Wrong(self.name.partition(" ")[2])
            return self.made
        return {"mlp": mlp, "cnn": cnn, "colour": colour, "lstm": Rows, "transformer": Attention,
                "counting": Counting, "own norm": lambda: nn.Sequential(nn.Flatten(), OwnNorm(64), nn.Linear(64, 10)),
                "large": Large, "dropping": Dropping, "penalized": Penalized, "odd": Odd,
                "borrowing": Borrowing, "chained": Chained, "around": Around, "gated around": GatedAround,
                "handed": Handed, "left": Left, "catching": Catching, "numbers": lambda: Left(returns=True),
                "changed in place": changed_in_place, "norm before": NormBefore,
                "wide": wide, "pictures": pictures, "planned": Planned, "planned_norm": PlannedNorm,
                "planned_transformer": PlannedTransformer}[self.name]()

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)

    def metrics(self, outputs, targets):
        if self.greedy:
            random.random(), np.random.permutation(9), torch.rand(7)
        return {"accuracy": (outputs.argmax(1) == targets).float().mean().item()}


class Doubled(Digits):
    """Gives its loss in another type than that of the weights."""

    def loss(self, outputs, targets):
        return super().loss(outputs, targets).double()


class Hanging(Digits):
    """Hangs in the loss of a step, or is slow in each, in the second of several processes."""

    def __init__(self, how, step):
        super().__init__("transformer")
        self.how, self.last, self.step = how, step, 0

    def enter(self, step, length):
        self.step = step

    def loss(self, outputs, targets):
        if self.step == self.last and os.environ["RANK"] == "1":
            hang = {"sleep": lambda: time.sleep(600), "all_reduce": lambda: dist.all_reduce(torch.ones(1)),
                    "barrier": dist.barrier}
            hang[self.how]()
        if self.how == "slow" and os.environ["RANK"] == "1":
            time.sleep(0.05)
        return super().loss(outputs, targets)


class GoingAround(Digits):
    """Has a model that goes around its blocks from some step on."""

    since = 8

    def model(self):
        self.made = Chained()
        return self.made

    def enter(self, step, length):
        self.made.around = step >= self.since


class GoingAroundAtLast(GoingAround):
    """Goes around only in the last epoch of four."""

    since = 20


class Penalizing(Digits):
    """Adds what the model leaves behind to the loss."""

    def loss(self, outputs, targets):
        return super().loss(outputs, targets) + self.made.penalty
'''
CONFIG: dict[str, Any] = {
    "name": "digits",
    "task": {"use": "digits_task:Digits"},
    "split": {"validation": 0.2, "test": 0.0},
    "metric": {"name": "accuracy", "mode": "max"},
    "epochs": 3,
    "batch_size": 8,
    "accumulate": 2,
    "optimizer": {"name": "adamw", "lr": 0.01},
    "schedule": {"name": "cosine", "warmup_epochs": 1},
    "clip": {"norm": 1.0},
    "early_stopping": {"patience": 3},
    "checkpoint": {"every_n_epochs": 1, "save_best": True, "save_last": True, "keep": 2},
}
STEPS = 18
Stop = Callable[[int], bool]


def make(root: Path) -> Path:
    """Write the task into a folder."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "digits_task.py").write_text(TASK)
    return root


def config(changes: dict[str, Any]) -> TrainingConfig:
    """Return the config of a run."""
    return TrainingConfig.model_validate({**CONFIG, **changes})


def job(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the job of a run; loader and launch are no part of its contract."""
    values = config(changes).model_dump()
    named = digest({key: value for key, value in values.items() if key not in ("loader", "launch")})
    contract = {"config_sha256": named, "code_sha256": "0", "environment_sha256": "0"}
    base = {"schema": 1, "run": "run", "phase": "test", "purpose": "train", "folder": ".mltrainer/runs/run", "threads": 1}
    return {**base, "config": values, "contract": contract}


def train(root: Path, stops: tuple[int, ...] = (), workers: tuple[int, ...] = (), **changes: Any) -> dict[str, Any]:
    """Train to the end, stopped after some steps and gone on with, as a fresh process would; return the last result.

    Args:
        root: The project's folder, made by `make`.
        stops: The steps after which to stop, rising.
        workers: Loader processes of each part, before and after each stop.
        changes: Config keys.
    """
    result: dict[str, Any] = {}
    for part, stop in enumerate([*stops, None]):
        loader = {"loader": {"workers": workers[part % len(workers)]}} if workers else {}
        result = part_of(root, job({**changes, **loader}), lambda step, stop=stop: step == stop)
    return result


def part_of(root: Path, work: dict[str, Any], stop: Stop) -> dict[str, Any]:
    """Run a job in this process until a step at which `stop` says so, or to its end."""
    chain, start = root / work["folder"] / "chain.txt", [0]

    def signal() -> str | None:
        start[0] += 1
        return "SIGINT" if stop(begun + start[0]) else None

    begun = _saved_step(root / work["folder"] / "checkpoints") if chain.exists() else 0
    with _in(root):
        run_job(TrainingJob.model_validate(work), root, Events(None), signal)
        return dict(read_json(root / work["folder"] / "result.json"))


def _saved_step(folder: Path) -> int:
    return max((int(path.name.partition("-")[2]) for path in folder.glob("step-*")), default=0)


@contextlib.contextmanager
def _in(root: Path) -> Iterator[None]:
    """Stand in a project, with nothing of another one imported, and leave torch as it was."""
    before, path, threads = Path.cwd(), [*sys.path], torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    sys.modules.pop("digits_task", None)
    importlib.invalidate_caches()
    os.chdir(root)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        sys.modules.pop("digits_task", None)
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)


def kill_points(root: Path, points: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Kill a run at each point, go on with it in a fresh process, and return the points after which the bits were others.

    Processes are forked from this one, which has trained once itself and so imported all that they need. A point is
    ("step", n): after that step; or ("file", n): before the n-th call that makes a checkpoint's files durable or renames
    them into place. A last run is killed five times.
    """
    reference, wrong = train(make(root / "reference")), []
    for number, point in enumerate(points):
        folder = make(root / str(number))
        killed = _forked(lambda folder=folder, point=point: _die_at(folder, [point]))
        ended = _forked(lambda folder=folder, workers=number % 2: train(folder, workers=(workers,)))
        if killed != 9 or ended != 0 or not agrees(folder, reference):
            wrong.append(point)
        shutil.rmtree(folder)
    folder = make(root / "five")
    killed = [_forked(lambda step=step: _die_at(folder, [("step", step)], step % 2)) for step in (2, 7, 8, 13, 16)]
    if killed != [9] * 5 or _forked(lambda: train(folder)) != 0 or not agrees(folder, reference):
        wrong.append(("five times", 5))
    return wrong


def agrees(root: Path, reference: dict[str, Any]) -> bool:
    """Return whether a finished run has the reference's weights, chain, history's numbers and best."""
    return same(read_json(root / ".mltrainer/runs/run/result.json"), reference)


def same(found: dict[str, Any], reference: dict[str, Any]) -> bool:
    """Return whether two results have the same weights, chain, measurements and first loss."""
    rows = [
        [(row["step"], row["train_loss"], row["validation"], row["grad_norm"]) for row in r["history"]]
        for r in (found, reference)
    ]
    keys = ("weights_sha256", "chain", "metrics", "first_loss", "steps")
    return rows[0] == rows[1] and all(found[key] == reference[key] for key in keys)


def _die_at(root: Path, points: list[tuple[str, int]], workers: int = 0) -> None:
    steps = {n for kind, n in points if kind == "step"}
    calls = {n for kind, n in points if kind == "file"}
    count = [0]

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            if count[0] in calls:
                os.kill(os.getpid(), 9)
            return call(*args, **kwargs)

        return wrapped

    for name in ("fsync", "rename", "replace"):
        setattr(os, name, dying(getattr(os, name)))
    part_of(root, job({"loader": {"workers": workers}}), lambda step: step in steps and os.kill(os.getpid(), 9) is not None)


def _forked(work: Callable[[], Any]) -> int:
    """Run work in a forked process; return its exit code, or the signal that ended it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except MltrainerError as error:
            sys.stderr.write(f"{error}\n")
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
