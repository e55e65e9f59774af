"""Hugging Face Trainer: `full_determinism=True`, `resume_from_checkpoint=True`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.benchmarks.scorecard.case import BATCH, CHECKPOINTS, EPOCHS, PER_EPOCH, SEED, Case, Weights
from tests.benchmarks.scorecard.trainers.peer import Peer


class HuggingFace(Peer):
    """The Trainer of transformers."""

    name = "HF Trainer"
    distribution = "transformers"

    def newest_weights(self, folder: Path) -> Path:
        """Return the model's file."""
        return self.newest(folder, "*/model.safetensors")

    def drop_optimizer(self, folder: Path) -> None:
        """Delete the files of optimizer and schedule."""
        checkpoint = self.newest_weights(folder).parent
        for name in ("optimizer.pt", "scheduler.pt"):
            (checkpoint / name).unlink()

    def fit(self, folder: Path, case: Case, *, resume: bool) -> Weights:
        """Train as the documentation on reproducibility advises."""
        from tests.benchmarks.scorecard.work import Probe, Samples, make_net, weights_of

        probe = Probe(case, folder)  # before the library takes its own references to torch.save

        from transformers import Trainer, TrainingArguments, enable_full_determinism

        enable_full_determinism(SEED)
        net = probe.net = make_net()
        trainer = Trainer(
            with_loss(net, probe),
            TrainingArguments(**_arguments(folder, case)),
            train_dataset=Named(Samples(folder, "train", case.noise)),
            eval_dataset=Named(Samples(folder, "validation", False)) if case.validate_every else None,
        )
        trainer.train(resume_from_checkpoint=resume)
        return weights_of(net)


class Named:
    """Samples as dictionaries, as this trainer wants them."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, place: int) -> dict[str, Any]:
        x, y = self.samples[place]
        return {"x": x, "labels": y}


def with_loss(net: Any, probe: Any) -> Any:
    """Return a model that answers with its loss, as this trainer wants it."""
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
            outputs = self.net(x)
            return {"loss": probe.loss(outputs, labels), "logits": outputs}

    return Model()


def _arguments(folder: Path, case: Case) -> dict[str, Any]:
    arguments: dict[str, Any] = {"output_dir": str(folder / CHECKPOINTS), "num_train_epochs": EPOCHS, "use_cpu": True}
    arguments |= {"per_device_train_batch_size": BATCH, "per_device_eval_batch_size": BATCH, "seed": SEED}
    arguments |= {"full_determinism": True, "learning_rate": case.lr, "lr_scheduler_type": "constant", "report_to": []}
    arguments |= {"dataloader_num_workers": case.workers, "disable_tqdm": True, "remove_unused_columns": False}
    arguments |= {"logging_strategy": "steps" if case.log else "no", "logging_steps": 1}
    arguments |= _when("eval", case.validate_every) | _when("save", case.save_every)
    return arguments


def _when(what: str, every: int) -> dict[str, Any]:
    if not every:
        return {f"{what}_strategy": "no"}
    return {f"{what}_strategy": "epoch"} if every == PER_EPOCH else {f"{what}_strategy": "steps", f"{what}_steps": every}
