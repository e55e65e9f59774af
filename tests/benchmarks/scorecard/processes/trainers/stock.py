"""PyTorch alone: a loop of one's own with DistributedDataParallel, or with FSDP2's `fully_shard`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from tests.benchmarks.scorecard.case import CHECKPOINTS, Weights
from tests.benchmarks.scorecard.processes.case import EPOCHS, LR, MICRO, SEED, SMALL_MB, Case
from tests.benchmarks.scorecard.processes.trainers.peer import Peer


class _Loop(ABC):
    """A training loop as the tutorials write it; each way of sharing wraps the model, and saves in its own way."""

    def __init__(self, folder: Path, case: Case) -> None:
        import torch
        import torch.distributed as dist
        from torch.utils.data import DataLoader, DistributedSampler

        from tests.benchmarks.scorecard.processes.work import Probe, Sequences, make_net

        dist.init_process_group("gloo")
        torch.manual_seed(SEED)
        torch.use_deterministic_algorithms(True)
        data = Sequences(folder)
        self.case, self.probe, self.checkpoints = case, Probe(case, folder), folder / CHECKPOINTS
        self.sampler: Any = DistributedSampler(data, seed=SEED)
        self.loader = DataLoader(data, MICRO, sampler=self.sampler)
        self.net = self.shared(make_net(case.dropout))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), LR)
        torch.manual_seed(SEED + dist.get_rank())  # so that not all processes draw one dropout

    def run(self, first: int) -> None:
        """Train from an epoch on."""
        import torch.distributed as dist

        for epoch in range(first, EPOCHS):
            self.net.train()
            self.sampler.set_epoch(epoch)
            for group in _grouped(self.loader, self.case.accumulate):
                self._step(group)
            if self.case.save:
                self.save(epoch + 1)
                dist.barrier()

    def _step(self, group: list[Any]) -> None:
        self.optimizer.zero_grad()
        for place, (x, y) in enumerate(group, start=1):
            with self.accumulating(last=place == len(group)):
                (self.probe.loss(self.net(x), y) / len(group)).backward()
        self.optimizer.step()

    @abstractmethod
    def shared(self, net: Any) -> Any:
        """Return the model as the processes share it."""

    @abstractmethod
    def accumulating(self, *, last: bool) -> AbstractContextManager[Any]:
        """Return the context of a micro-batch, of which only a step's last one exchanges gradients."""

    @abstractmethod
    def save(self, epochs: int) -> None:
        """Save a checkpoint after so many epochs."""

    @abstractmethod
    def load(self) -> int:
        """Load the newest checkpoint and return its epochs."""

    @abstractmethod
    def weights(self) -> Weights:
        """Return the whole model's weights."""

    def newest(self) -> Path:
        """Return the newest checkpoint's folder."""
        return max(self.checkpoints.iterdir())

    def save_generator(self, folder: Path) -> None:
        """Save the state of this process's generator beside the checkpoint, which the tutorials leave out."""
        import torch
        import torch.distributed as dist

        torch.save(torch.get_rng_state(), folder / f"generator-{dist.get_rank()}.pt")

    def load_generator(self, folder: Path) -> None:
        """Load the state of the generator of this process's number."""
        import torch
        import torch.distributed as dist

        torch.set_rng_state(torch.load(folder / f"generator-{dist.get_rank()}.pt"))


def _grouped(loader: Any, size: int) -> Iterator[list[Any]]:
    """Yield a step's micro-batches; the last step of an epoch may have fewer."""
    group: list[Any] = []
    for batch in loader:
        group.append(batch)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


class _Ddp(_Loop):
    def shared(self, net: Any) -> Any:
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(net, **({"bucket_cap_mb": SMALL_MB} if self.case.small else {}))

    def accumulating(self, *, last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if last else self.net.no_sync()

    def save(self, epochs: int) -> None:
        import torch
        import torch.distributed as dist

        folder = self.checkpoints / f"{epochs:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        if dist.get_rank() == 0:
            state = {"epochs": epochs, "model": self.net.module.state_dict(), "optimizer": self.optimizer.state_dict()}
            torch.save(state, folder / "state.pt")
        self.save_generator(folder)

    def load(self) -> int:
        import torch

        state = torch.load(self.newest() / "state.pt")
        self.net.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.load_generator(self.newest())
        return int(state["epochs"])

    def weights(self) -> Weights:
        from tests.benchmarks.scorecard.work import weights_of

        return weights_of(self.net.module)


class _Fsdp(_Loop):
    def shared(self, net: Any) -> Any:
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in () if self.case.small else net[1].layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(net, mesh=mesh)

    def accumulating(self, *, last: bool) -> AbstractContextManager[Any]:
        self.net.set_requires_gradient_sync(last)
        return nullcontext()

    def save(self, epochs: int) -> None:
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict

        folder = self.checkpoints / f"{epochs:03d}"
        model, optimizer = get_state_dict(self.net, self.optimizer)
        dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=folder)
        self.save_generator(folder)

    def load(self) -> int:
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

        model, optimizer = get_state_dict(self.net, self.optimizer)
        state = {"model": model, "optimizer": optimizer}
        dcp.load(state, checkpoint_id=self.newest())
        set_state_dict(self.net, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.load_generator(self.newest())
        return int(self.newest().name)

    def weights(self) -> Weights:
        return {name: value.full_tensor().numpy().copy() for name, value in self.net.state_dict().items()}


class _Stock(Peer):
    """PyTorch with one way of sharing a model."""

    distribution = "torch"
    loop: type[_Loop]

    def fit(self, folder: Path, case: Case, *, resume: bool) -> Weights:
        """Train as the tutorials write it, with deterministic algorithms and seeds."""
        import torch.distributed as dist

        loop = self.loop(folder, case)
        loop.run(loop.load() if resume else 0)
        weights = loop.weights()
        dist.destroy_process_group()
        return weights


class Ddp(_Stock):
    """DistributedDataParallel."""

    name = "PyTorch DDP"
    loop = _Ddp


class Fsdp(_Stock):
    """FSDP2, each layer of the transformer a unit."""

    name = "PyTorch FSDP2"
    loop = _Fsdp
