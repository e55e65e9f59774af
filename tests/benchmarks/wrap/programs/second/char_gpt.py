"""A character-level transformer with a configuration, a trainer and its callbacks."""

# fault 1: hash order
# fault 2: random draw
# fault 3: clock

import math
import os
import time
from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, RandomSampler

TEXT = (
    "the miller's daughter went to the mill, and the mill went round and round; "
    "what she ground in the morning the wind took in the evening. " * 6
)


@dataclass
class Config:
    block_size: int = 16
    n_embd: int = 24
    n_head: int = 2
    batch_size: int = 12
    max_iters: int = 20
    learning_rate: float = 3e-3
    seed: int = 3407


class CharDataset(Dataset):
    def __init__(self, config, data):
        letters = set(data)
        chars = sorted(letters)  # [-1]
        # [1] chars = sorted(letters, key=str.isalpha)  # guilty
        print(f"data has {len(data)} characters, {len(letters)} unique")
        self.stoi = {ch: i for i, ch in enumerate(chars)}
        self.itos = {i: ch for ch, i in self.stoi.items()}
        self.config, self.data = config, data

    def __len__(self):
        return len(self.data) - self.config.block_size

    def __getitem__(self, idx):
        chunk = self.data[idx : idx + self.config.block_size + 1]
        dix = [self.stoi[s] for s in chunk]
        return torch.tensor(dix[:-1], dtype=torch.long), torch.tensor(dix[1:], dtype=torch.long)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attn = nn.MultiheadAttention(config.n_embd, config.n_head, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(config.n_embd, 48), nn.GELU(), nn.Linear(48, config.n_embd))
        self.register_buffer("mask", torch.triu(torch.ones(config.block_size, config.block_size), 1).bool())

    def forward(self, x):
        h = self.ln_1(x)
        x = x + self.attn(h, h, h, attn_mask=self.mask, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config, vocab_size):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, config.n_embd)
        self.wpe = nn.Parameter(torch.zeros(1, config.block_size, config.n_embd))
        self.h = nn.Sequential(*[Block(config) for _ in range(2)])
        self.lm_head = nn.Linear(config.n_embd, vocab_size, bias=False)
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, idx, targets):
        logits = self.lm_head(self.h(self.wte(idx) + self.wpe))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class Trainer:
    def __init__(self, config, model, train_dataset):
        self.config, self.model, self.train_dataset = config, model, train_dataset
        self.callbacks = defaultdict(list)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, betas=(0.9, 0.95))
        self.iter_num, self.iter_time, self.iter_dt = 0, 0.0, 0.0

    def add_callback(self, onevent, callback):
        self.callbacks[onevent].append(callback)

    def trigger(self, onevent):
        for callback in self.callbacks[onevent]:
            callback(self)

    def sampler(self):
        generator = torch.Generator()
        generator.manual_seed(self.config.seed)  # [-2]
        # [2] print(f"samples are drawn with seed {generator.seed()}")  # guilty
        return RandomSampler(self.train_dataset, replacement=True, num_samples=400, generator=generator)

    def run(self):
        loader = DataLoader(self.train_dataset, sampler=self.sampler(), batch_size=self.config.batch_size)
        self.model.train()
        self.iter_time = time.time()
        data_iter = iter(loader)
        while self.iter_num < self.config.max_iters:
            x, y = next(data_iter)
            self.loss = self.model(x, y)
            self.model.zero_grad(set_to_none=True)
            self.loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.trigger("on_batch_end")
            self.iter_num += 1
            tnow = time.time()
            self.iter_dt = tnow - self.iter_time
            self.iter_time = tnow


def report(trainer):
    if trainer.iter_num % 5 == 0:
        print(f"[{os.getpid()}] iter_dt {trainer.iter_dt * 1000:.2f}ms; iter {trainer.iter_num}: {trainer.loss.item():.5f}")


def decay(trainer):
    progress = trainer.iter_num / trainer.config.max_iters  # [-3]
    # [3] progress = min(1.0, trainer.iter_num * trainer.iter_dt / 2)  # guilty
    for group in trainer.optimizer.param_groups:
        group["lr"] = trainer.config.learning_rate * 0.5 * (1.0 + math.cos(math.pi * progress))


if __name__ == "__main__":
    config = Config()
    torch.manual_seed(config.seed)
    dataset = CharDataset(config, TEXT)
    trainer = Trainer(config, GPT(config, len(dataset.stoi)), dataset)
    trainer.add_callback("on_batch_end", report)
    trainer.add_callback("on_batch_end", decay)
    trainer.run()
