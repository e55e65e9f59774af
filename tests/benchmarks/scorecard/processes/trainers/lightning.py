"""Lightning: `strategy="ddp"`, `seed_everything(workers=True)`, `deterministic=True`, `ckpt_path="last"`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.benchmarks.scorecard.case import CHECKPOINTS, Weights
from tests.benchmarks.scorecard.processes.case import EPOCHS, LR, MICRO, SEED, SMALL_MB, Case
from tests.benchmarks.scorecard.processes.trainers.peer import Peer


class Lightning(Peer):
    """The Lightning Trainer."""

    name = "Lightning"
    distribution = "lightning"

    def fit(self, folder: Path, case: Case, *, resume: bool) -> Weights:
        """Train as the documentation on reproducibility advises."""
        import lightning
        from torch.utils.data import DataLoader

        from tests.benchmarks.scorecard.processes.work import Probe, Sequences
        from tests.benchmarks.scorecard.work import weights_of

        lightning.seed_everything(SEED, workers=True)
        module = _module(case, Probe(case, folder))
        trainer = lightning.Trainer(**_arguments(folder, case))
        loader = DataLoader(Sequences(folder), MICRO, shuffle=True)
        trainer.fit(module, loader, ckpt_path="last" if resume else None)
        return weights_of(module.net)


def _module(case: Case, probe: Any) -> Any:
    import lightning
    import torch

    from tests.benchmarks.scorecard.processes.work import make_net

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = make_net(case.dropout)

        def training_step(self, batch: Any, number: int) -> Any:
            return probe.loss(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), LR)

    return Module()


def _arguments(folder: Path, case: Case) -> dict[str, Any]:
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.strategies import DDPStrategy

    by_epoch = ModelCheckpoint(
        dirpath=folder / CHECKPOINTS, save_top_k=-1, save_last=True, every_n_epochs=1, save_on_train_epoch_end=True
    )
    arguments: dict[str, Any] = {"accelerator": "cpu", "devices": case.processes, "max_epochs": EPOCHS, "deterministic": True}
    arguments |= {"strategy": DDPStrategy(bucket_cap_mb=SMALL_MB) if case.small else "ddp"}
    arguments |= {"accumulate_grad_batches": case.accumulate, "default_root_dir": folder, "logger": False}
    arguments |= {"enable_model_summary": False, "enable_progress_bar": False}
    return arguments | {"enable_checkpointing": case.save, "callbacks": [by_epoch] if case.save else []}
