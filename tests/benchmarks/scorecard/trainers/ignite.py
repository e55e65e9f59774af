"""Ignite: `DeterministicEngine`, `manual_seed`, `Checkpoint` with `DiskSaver`, `Checkpoint.load_objects`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.benchmarks.scorecard.case import BATCH, CHECKPOINTS, EPOCHS, PER_EPOCH, SEED, Case, Weights
from tests.benchmarks.scorecard.damage import drop_key
from tests.benchmarks.scorecard.trainers.peer import Peer


class Ignite(Peer):
    """PyTorch-Ignite's engine for deterministic training."""

    name = "Ignite"
    distribution = "pytorch-ignite"

    def newest_weights(self, folder: Path) -> Path:
        """Return the checkpoint file, which holds everything."""
        return self.newest(folder, "*.pt")

    def drop_optimizer(self, folder: Path) -> None:
        """Remove the optimizer's state from the file."""
        drop_key(self.newest_weights(folder), "optimizer")

    def fit(self, folder: Path, case: Case, *, resume: bool) -> Weights:
        """Train as the documentation on deterministic training advises."""
        from tests.benchmarks.scorecard.work import Probe, Samples, make_net, weights_of

        probe = Probe(case, folder)  # before the library takes its own references to torch.save

        import ignite.utils
        import torch
        from torch.utils.data import DataLoader

        torch.use_deterministic_algorithms(True)
        ignite.utils.manual_seed(SEED)
        net = probe.net = make_net()
        state = {"model": net, "optimizer": torch.optim.AdamW(net.parameters(), case.lr)}
        engine = state["trainer"] = _engine(state, probe)
        loader = DataLoader(Samples(folder, "train", case.noise), BATCH, shuffle=True, num_workers=case.workers)
        validation = DataLoader(Samples(folder, "validation", False), BATCH)
        _attach(engine, state, validation, folder, case)
        if resume:
            _load(state, self.newest_weights(folder))
        engine.run(loader, max_epochs=EPOCHS)
        return weights_of(net)


def _engine(state: dict[str, Any], probe: Any) -> Any:
    from ignite.engine.deterministic import DeterministicEngine

    def step(_engine: Any, batch: Any) -> float:
        state["model"].train()
        state["optimizer"].zero_grad()
        loss = probe.loss(state["model"](batch[0]), batch[1])
        loss.backward()
        state["optimizer"].step()
        return float(loss)

    return DeterministicEngine(step)


def _attach(engine: Any, state: dict[str, Any], validation: Any, folder: Path, case: Case) -> None:
    from ignite.engine import create_supervised_evaluator
    from ignite.handlers import Checkpoint, DiskSaver
    from ignite.metrics import Accuracy

    if case.validate_every:
        evaluator = create_supervised_evaluator(state["model"], {"accuracy": Accuracy()})
        engine.add_event_handler(_when(case.validate_every), lambda _: evaluator.run(validation))
    if case.save_every:
        saver = DiskSaver(str(folder / CHECKPOINTS), create_dir=True, require_empty=False)
        engine.add_event_handler(_when(case.save_every), Checkpoint(state, saver, n_saved=None))
    if case.log:
        from ignite.engine import Events
        from ignite.handlers import ProgressBar

        ProgressBar(persist=True).attach(
            engine, output_transform=lambda loss: {"loss": loss}, event_name=Events.ITERATION_COMPLETED
        )


def _when(every: int) -> Any:
    from ignite.engine import Events

    return Events.EPOCH_COMPLETED if every == PER_EPOCH else Events.ITERATION_COMPLETED(every=every)


def _load(state: dict[str, Any], path: Path) -> None:
    import torch
    from ignite.handlers import Checkpoint

    # given a path, load_objects refuses the NumPy generator's state that the deterministic engine saves
    Checkpoint.load_objects(to_load=state, checkpoint=torch.load(path, weights_only=False))
