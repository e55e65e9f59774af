"""Accelerate: `set_seed(deterministic=True)`, `use_seedable_sampler=True`, `load_state` and `skip_first_batches`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.benchmarks.scorecard.case import BATCH, EPOCHS, PER_EPOCH, SEED, Case, Weights
from tests.benchmarks.scorecard.trainers.peer import Peer


class Accelerate(Peer):
    """A loop of one's own with an Accelerator."""

    name = "Accelerate"
    distribution = "accelerate"

    def newest_weights(self, folder: Path) -> Path:
        """Return the model's file."""
        return self.newest(folder, "*/model.safetensors")

    def drop_optimizer(self, folder: Path) -> None:
        """Delete the optimizer's file."""
        (self.newest_weights(folder).parent / "optimizer.bin").unlink()

    def fit(self, folder: Path, case: Case, *, resume: bool) -> Weights:
        """Train as the guide to checkpointing advises."""
        from tests.benchmarks.scorecard.work import Probe, weights_of

        probe = Probe(case, folder)  # before the library takes its own references to torch.save
        loop = _Loop(folder, case, probe)
        if resume:
            loop.load()
        loop.run()
        return weights_of(loop.accelerator.unwrap_model(loop.net))


class Position:
    """The steps or epochs done, saved with the rest of the state."""

    def __init__(self) -> None:
        self.done = 0

    def state_dict(self) -> dict[str, int]:
        """Return the state, as the Accelerator saves it."""
        return vars(self)

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Take a saved state."""
        vars(self).update(state)


class _Loop:
    def __init__(self, folder: Path, case: Case, probe: Any) -> None:
        import torch
        from accelerate import Accelerator
        from accelerate.utils import DataLoaderConfiguration, ProjectConfiguration, set_seed
        from torch.utils.data import DataLoader

        from tests.benchmarks.scorecard.work import Samples, make_net

        set_seed(SEED, deterministic=True)
        self.case, self.probe, self.position = case, probe, Position()
        self.project = ProjectConfiguration(project_dir=str(folder), automatic_checkpoint_naming=True)
        loading = DataLoaderConfiguration(use_seedable_sampler=True)
        self.accelerator = Accelerator(cpu=True, project_config=self.project, dataloader_config=loading)
        net = probe.net = make_net()
        loader = DataLoader(Samples(folder, "train", case.noise), BATCH, shuffle=True, num_workers=case.workers)
        validation = DataLoader(Samples(folder, "validation", False), BATCH)
        optimizer = torch.optim.AdamW(net.parameters(), case.lr)
        self.net, self.optimizer, self.loader = self.accelerator.prepare(net, optimizer, loader)
        self.validation = self.accelerator.prepare(validation) if case.validate_every else None
        self.accelerator.register_for_checkpointing(self.position)

    def load(self) -> None:
        self.accelerator.load_state()
        self.project.iteration = self.position.done // self.case.save_every  # the next name, which is not taken

    def run(self) -> None:
        first, done = divmod(self.position.done, PER_EPOCH)
        for epoch in range(first, EPOCHS):
            self.net.train()
            self.loader.set_epoch(epoch)
            skip = epoch == first and done
            for x, y in self.accelerator.skip_first_batches(self.loader, done) if skip else self.loader:
                self._step(x, y)

    def _step(self, x: Any, y: Any) -> None:
        self.optimizer.zero_grad()
        self.accelerator.backward(self.probe.loss(self.net(x), y))
        self.optimizer.step()
        self.position.done += 1
        if self.case.validate_every and self.position.done % self.case.validate_every == 0:
            self._validate()
        if self.case.save_every and self.position.done % self.case.save_every == 0:
            self.accelerator.save_state()

    def _validate(self) -> None:
        import torch

        self.net.eval()
        with torch.no_grad():
            for x, y in self.validation:
                self.probe.loss(self.net(x), y)
        self.net.train()
