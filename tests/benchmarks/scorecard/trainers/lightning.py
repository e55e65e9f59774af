"""Lightning: `seed_everything(workers=True)`, `deterministic=True`, `ckpt_path="last"`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.benchmarks.scorecard.case import BATCH, CHECKPOINTS, EPOCHS, PER_EPOCH, SEED, Case, Weights
from tests.benchmarks.scorecard.damage import drop_key
from tests.benchmarks.scorecard.trainers.peer import Peer


class Lightning(Peer):
    """The Lightning Trainer."""

    name = "Lightning"
    distribution = "lightning"

    def newest_weights(self, folder: Path) -> Path:
        """Return the checkpoint file, which holds everything."""
        return folder / CHECKPOINTS / "last.ckpt"

    def drop_optimizer(self, folder: Path) -> None:
        """Remove the optimizer's states from the file."""
        drop_key(self.newest_weights(folder), "optimizer_states")

    def fit(self, folder: Path, case: Case, *, resume: bool) -> Weights:
        """Train as the documentation on reproducibility advises."""
        from tests.benchmarks.scorecard.work import Probe, Samples, weights_of

        probe = Probe(case, folder)  # before the library takes its own references to torch.save

        import lightning
        from torch.utils.data import DataLoader

        lightning.seed_everything(SEED, workers=True)
        module = _module(case, probe)
        loader = DataLoader(Samples(folder, "train", case.noise), BATCH, shuffle=True, num_workers=case.workers)
        validation = DataLoader(Samples(folder, "validation", False), BATCH) if case.validate_every else None
        trainer = lightning.Trainer(**_arguments(folder, case))
        trainer.fit(module, loader, validation, ckpt_path="last" if resume else None)
        return weights_of(module.net)


def _module(case: Case, probe: Any) -> Any:
    import lightning
    import torch

    from tests.benchmarks.scorecard.work import make_net

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = probe.net = make_net()

        def training_step(self, batch: Any, number: int) -> Any:
            loss = probe.loss(self.net(batch[0]), batch[1])
            if case.log:
                self.log("train_loss", loss, on_step=True, prog_bar=True)
            return loss

        def validation_step(self, batch: Any, number: int) -> None:
            self.log("validation_loss", probe.loss(self.net(batch[0]), batch[1]))

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), case.lr)

    return Module()


def _arguments(folder: Path, case: Case) -> dict[str, Any]:
    from lightning.pytorch.loggers import CSVLogger

    arguments: dict[str, Any] = {"accelerator": "cpu", "devices": 1, "max_epochs": EPOCHS, "deterministic": True}
    arguments |= {"default_root_dir": folder, "enable_model_summary": False, "log_every_n_steps": 1}
    arguments |= {"enable_progress_bar": case.log, "logger": CSVLogger(folder) if case.log else False}
    arguments |= {"enable_checkpointing": bool(case.save_every), "callbacks": _callbacks(folder, case)}
    if case.validate_every and case.validate_every != PER_EPOCH:
        arguments |= {"val_check_interval": case.validate_every, "check_val_every_n_epoch": None}
    return arguments


def _callbacks(folder: Path, case: Case) -> list[Any]:
    from lightning.pytorch.callbacks import ModelCheckpoint

    if not case.save_every:
        return []
    by_epoch = {"every_n_epochs": 1, "save_on_train_epoch_end": True}
    when: dict[str, Any] = by_epoch if case.save_every == PER_EPOCH else {"every_n_train_steps": case.save_every}
    return [ModelCheckpoint(dirpath=folder / CHECKPOINTS, save_top_k=-1, save_last=True, **when)]
