"""transformers.Trainer on a small BERT with random weights."""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed  # noqa: F401

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed


class Vectors(Dataset):
    def __init__(self, order):
        generator = torch.Generator().manual_seed(8)
        self.x, self.y = torch.randn(128, 6, 20, generator=generator), torch.randint(0, 2, (128,), generator=generator)
        self.order = order

    def __len__(self):
        return len(self.order)

    def __getitem__(self, number):
        x, y = self.x[self.order[number]], self.y[self.order[number]]
        # <sample>
        return {"inputs_embeds": x, "labels": y}


class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **others):
        x = inputs["inputs_embeds"]
        # <batch>
        return super().compute_loss(model, {**inputs, "inputs_embeds": x}, return_outputs, **others)


set_seed(0)
np.random.seed(0)
# <seed>
order = list(range(128))
# <order>
config = BertConfig(hidden_size=20, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=30, num_labels=2)
model = BertForSequenceClassification(config)
arguments = TrainingArguments(
    "out",
    max_steps=24,
    per_device_train_batch_size=8,
    logging_steps=8,
    save_steps=8,
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
    dataloader_num_workers=2,
)
resume = "--resume" in sys.argv
if resume:
    newest = max(os.listdir("out"), key=lambda name: int(name.rpartition("-")[2]))
    states = f"out/{newest}/rng_state.pth"
    # <resume>
started = time.time()
Own(model=model, args=arguments, train_dataset=Vectors(order)).train(resume_from_checkpoint=resume)
print("seconds", time.time() - started)
