"""Accelerate: `set_seed(deterministic=True)`, `use_seedable_sampler=True`, `gradient_accumulation_steps`, `load_state`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.benchmarks.scorecard.case import Weights
from tests.benchmarks.scorecard.processes.case import EPOCHS, LR, MICRO, SEED, SMALL_MB, Case
from tests.benchmarks.scorecard.processes.trainers.peer import Peer
from tests.benchmarks.scorecard.trainers.accelerate import Position


class Accelerate(Peer):
    """A loop of one's own with an Accelerator."""

    name = "Accelerate"
    distribution = "accelerate"

    def fit(self, folder: Path, case: Case, *, resume: bool) -> Weights:
        """Train as the guides to checkpointing and gradient accumulation advise."""
        from tests.benchmarks.scorecard.work import weights_of

        loop = _Loop(folder, case)
        loop.run(loop.load() if resume else 0)
        weights = weights_of(loop.accelerator.unwrap_model(loop.net))
        loop.accelerator.end_training()
        return weights


class _Loop:
    def __init__(self, folder: Path, case: Case) -> None:
        import torch
        from accelerate import Accelerator
        from accelerate.utils import DataLoaderConfiguration, DistributedDataParallelKwargs, ProjectConfiguration, set_seed
        from torch.utils.data import DataLoader

        from tests.benchmarks.scorecard.processes.work import Probe, Sequences, make_net

        self.case, self.probe, self.position = case, Probe(case, folder), Position()
        self.project = ProjectConfiguration(project_dir=str(folder), automatic_checkpoint_naming=True)
        self.accelerator = Accelerator(
            cpu=True,
            project_config=self.project,
            dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True),
            gradient_accumulation_steps=case.accumulate,
            kwargs_handlers=[DistributedDataParallelKwargs(bucket_cap_mb=SMALL_MB)] if case.small else [],
        )
        set_seed(SEED, deterministic=True)
        net = make_net(case.dropout)
        loader = DataLoader(Sequences(folder), MICRO, shuffle=True)
        optimizer = torch.optim.AdamW(net.parameters(), LR)
        self.net, self.optimizer, self.loader = self.accelerator.prepare(net, optimizer, loader)
        self.accelerator.register_for_checkpointing(self.position)

    def load(self) -> int:
        self.accelerator.load_state()
        self.project.iteration = self.position.done  # the next name, which is not taken
        return self.position.done

    def run(self, first: int) -> None:
        for epoch in range(first, EPOCHS):
            self.net.train()
            self.loader.set_epoch(epoch)
            for x, y in self.loader:
                self._step(x, y)
            self.position.done = epoch + 1
            if self.case.save:
                self.accelerator.save_state()

    def _step(self, x: Any, y: Any) -> None:
        with self.accelerator.accumulate(self.net):
            self.accelerator.backward(self.probe.loss(self.net(x), y))
            self.optimizer.step()
            self.optimizer.zero_grad()
