"""Programs that train by the trainers of transformers and Lightning, as tasks of a project: what they tell is on the record."""

from __future__ import annotations

import pytest
import yaml

from mltrainer.gates.gate import check_gates
from mltrainer.records.reading import read_record
from mltrainer.workspace import Project

pytestmark = pytest.mark.slow
BEGINNING = """
import argparse, json, torch
from torch import nn
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
asked = parser.parse_args()
drawn = torch.Generator().manual_seed(1)
"""
TRANSFORMERS = f"""{BEGINNING}
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed
from mltrainer.integrations.reporting_transformers import TellingCallback

set_seed(asked.seed)
texts = [torch.randint(0, 20, (6,), generator=drawn) for _ in range(80)]
rows = [{{"input_ids": text, "labels": int(text[0] > 9)}} for text in texts]
small = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
arguments = TrainingArguments(
    "out", num_train_epochs=3, per_device_train_batch_size=8, learning_rate=3e-3, seed=asked.seed, eval_strategy="epoch",
    save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
)
trainer = Trainer(
    BertForSequenceClassification(BertConfig(vocab_size=20, max_position_embeddings=8, **small)),
    arguments, train_dataset=rows[:64], eval_dataset=rows[64:], callbacks=[TellingCallback()],
    compute_metrics=lambda given: {{"accuracy": float((given.predictions.argmax(-1) == given.label_ids).mean())}},
)
trainer.train()
trainer.save_model("out/final")
trainer.save_metrics("eval", trainer.evaluate())
"""
LIGHTNING = f"""{BEGINNING}
import lightning
from torch.utils.data import DataLoader, TensorDataset
from mltrainer.integrations.reporting_lightning import TellingCallback


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 2)

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("accuracy", (self.net(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


lightning.seed_everything(asked.seed)
x = torch.randn(80, 4, generator=drawn)
y = (x.sum(1) > 0).long()
trainer = lightning.Trainer(
    max_epochs=3, callbacks=[TellingCallback()], logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, accelerator="cpu",
)
train, validation = TensorDataset(x[:64], y[:64]), TensorDataset(x[64:], y[64:])
trainer.fit(net := Net(), DataLoader(train, 8, shuffle=True), DataLoader(validation, 16))
torch.save(net.state_dict(), "net.pt")
json.dump({{name: float(value) for name, value in trainer.callback_metrics.items()}}, open("metrics.json", "w"))
"""
TASKS = {
    "transformers": (TRANSFORMERS, {"metrics": "out/eval_results.json", "outputs": ["out/final/model.safetensors"]}),
    "lightning": (LIGHTNING, {"metrics": "metrics.json", "outputs": ["net.pt"]}),
}


@pytest.mark.long
@pytest.mark.parametrize("trainer", TASKS)
def test_a_trainer_comes_under_the_gates_with_its_losses_metrics_and_samples(tmp_path, cli, trainer):
    text, task = TASKS[trainer]
    (tmp_path / "train.py").write_text(text)
    values = {
        "name": "trainer",
        "task": {"script": "python train.py --seed {seed}", **task},
        "metric": {"name": "accuracy", "mode": "max"},
        "acceptance": {"accuracy": ">= 0.2"},
    }
    (tmp_path / "mltrainer.yaml").write_text(yaml.safe_dump(values))
    said = cli("run", "--project", tmp_path)
    project = Project(tmp_path)
    assert said.code == 0, said.out + said.err
    assert all(gate.holds for gate in check_gates(project))
    record = read_record(project, "baseline")
    run = record.evidence["run"]
    assert (run["steps"], run["program"]["losses"]) == (24, 24)
    assert [row["step"] for row in run["history"]] == [8, 16, 24]
    assert all(0 <= row["validation"]["accuracy"] <= 1 and row["train_loss"] > 0 for row in run["history"])
    lines = (project.runs_dir / run["id"] / "chain.txt").read_text().splitlines()
    assert len({line.split()[1] for line in lines if line[0] != "w"}) == 24
