"""mltrainer with models that were written for other frameworks: a Lightning module, and a model of transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.benchmarks.scorecard.case import BATCH, SAMPLES, SEED, Case
from tests.benchmarks.scorecard.trainers.builtin import FAULTS, GOOD, PLAIN, BuiltIn, Texts
from tests.benchmarks.scorecard.trainers.ours import shared_settings
from tests.benchmarks.scorecard.work import write_data

NET = f"""
from pathlib import Path

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.benchmarks.scorecard import work


class Data(lightning.LightningDataModule):
    def __init__(self, noise=False):
        super().__init__()
        self.noise = noise

    def train_dataloader(self):
        return DataLoader(work.Samples(Path.cwd(), "train", self.noise), batch_size={BATCH}, shuffle=True)

    def val_dataloader(self):
        return DataLoader(work.Samples(Path.cwd(), "validation", False), batch_size={BATCH})


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = work.make_net()

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        answers = self(batch[0]).argmax(1)
        self.log("accuracy", (answers == batch[1]).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1.0)  # the config's rate is a factor of it
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return [optimizer], [schedule]
"""
TEMPLATE, LIGHT = "configs/production_template.yaml", "export: {formats: [safetensors], samples: 8, tolerance: null}\n"
LIGHTNING = {
    "use": "mltrainer.integrations.lightning:Lightning",
    "options": {"module": "net:Net", "data": "net:Data", "data_options": {"noise": False}},
}
BERT = {
    "model_type": "bert",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
    "hidden_dropout_prob": 0.3,
}
HUGGING_FACE = {
    "use": "mltrainer.integrations.transformers:SequenceClassification",
    "options": {"data": "texts.csv", "target": "kind", "length": 16, "tokenizer": "tokenizer.json", "model": BERT},
}


def _project(task: dict[str, Any]) -> str:
    split = {"validation": 0.2, "test": 0.0}
    return json.dumps(
        {"name": "scored", "seed": SEED, "task": task, "split": split, "metric": {"name": "accuracy", "mode": "max"}}
    )


class LightningModule(BuiltIn):
    """A Lightning module with its own optimizer and scheduler."""

    name = "Lightning module"

    @property
    def files(self) -> dict[str, str]:  # type: ignore[override]
        """The project's files, by name."""
        return {"my_faults.py": FAULTS, TEMPLATE: LIGHT, "net.py": NET, "mltrainer.yaml": _project(LIGHTNING)}

    def write_data(self, folder: Path, seed: int) -> None:
        """Write the two noisy classes."""
        write_data(folder, SAMPLES, seed)

    def settings(self, case: Case) -> dict[str, Any]:
        """Return the config's values for a case."""
        own = {"optimizer.name": "own", "schedule": "{name: own}"}
        noise = {"task.options.data_options": f"{{noise: {str(case.noise).lower()}}}"}
        return {**shared_settings(case), **own, **noise, "callbacks": "[{use: 'my_faults:Faults', watch: true}]"}


class HuggingFaceModel(Texts):
    """A small BERT over the sentences of the column of texts."""

    name = "Hugging Face model"

    @property
    def files(self) -> dict[str, str]:  # type: ignore[override]
        """The project's files, by name."""
        from tokenizers import Tokenizer, models, pre_tokenizers

        words = ["[PAD]", "[UNK]", *GOOD, *PLAIN]
        tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        return {
            "my_faults.py": FAULTS,
            TEMPLATE: LIGHT,
            "tokenizer.json": tokenizer.to_str(),
            "mltrainer.yaml": _project(HUGGING_FACE),
        }
