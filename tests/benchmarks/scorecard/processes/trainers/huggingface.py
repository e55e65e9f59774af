"""Hugging Face Trainer under torchrun: `full_determinism=True`, `resume_from_checkpoint=True`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.benchmarks.scorecard.case import CHECKPOINTS, Weights
from tests.benchmarks.scorecard.processes.case import EPOCHS, LR, MICRO, SEED, SMALL_MB, Case
from tests.benchmarks.scorecard.processes.trainers.peer import Peer
from tests.benchmarks.scorecard.trainers.huggingface import Named, with_loss


class HuggingFace(Peer):
    """The Trainer of transformers."""

    name = "HF Trainer"
    distribution = "transformers"

    def fit(self, folder: Path, case: Case, *, resume: bool) -> Weights:
        """Train as the documentation on reproducibility advises."""
        from transformers import Trainer, TrainingArguments, enable_full_determinism

        from tests.benchmarks.scorecard.processes.work import Probe, Sequences, make_net
        from tests.benchmarks.scorecard.work import weights_of

        enable_full_determinism(SEED)
        probe, net = Probe(case, folder), make_net(case.dropout)
        trainer = Trainer(
            with_loss(net, probe), TrainingArguments(**_arguments(folder, case)), train_dataset=Named(Sequences(folder))
        )
        trainer.train(resume_from_checkpoint=resume)
        return weights_of(net)


def _arguments(folder: Path, case: Case) -> dict[str, Any]:
    arguments: dict[str, Any] = {"output_dir": str(folder / CHECKPOINTS), "num_train_epochs": EPOCHS, "use_cpu": True}
    arguments |= {"per_device_train_batch_size": MICRO, "gradient_accumulation_steps": case.accumulate, "seed": SEED}
    arguments |= {"full_determinism": True, "learning_rate": LR, "lr_scheduler_type": "constant", "report_to": []}
    arguments |= {"disable_tqdm": True, "remove_unused_columns": False, "logging_strategy": "no"}
    arguments |= {"ddp_bucket_cap_mb": SMALL_MB} if case.small else {}
    return arguments | {"save_strategy": "epoch" if case.save else "no"}
