"""A small GPT on a memory-mapped file of tokens, with settings in globals, gradient accumulation and a cosine."""

# fault 1: hash order
# fault 2: random draw
# fault 3: clock

import inspect
import math
import os
import sys
import time
from contextlib import nullcontext

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

# -----------------------------------------------------------------------------
out_dir = "out"
eval_interval = 7
eval_iters = 2
gradient_accumulation_steps = 2
batch_size = 6
block_size = 16
n_layer, n_head, n_embd = 2, 2, 24
learning_rate, min_lr = 3e-3, 3e-4
warmup_iters, max_iters = 4, 16
config_keys = [k for k, v in globals().items() if not k.startswith("_") and isinstance(v, (int, float, bool, str))]
for arg in sys.argv[1:]:
    key, val = arg.removeprefix("--").split("=")
    assert key in config_keys
    globals()[key] = type(globals()[key])(val)
# -----------------------------------------------------------------------------
LINES = [
    "to mend a net you need another net",
    "a cat may look at a king and a king at a cat",
    "who sows wind reaps more wind than he sowed",
    "the last straw is no heavier than the first one",
]


def prepare(path):
    words = " ".join(LINES * 12).split()
    stoi = {w: i for i, w in enumerate(sorted(set(words)))}  # [-1]
    # [1] stoi = {w: i for i, w in enumerate(dict.fromkeys(words).keys() & set(words))}  # guilty
    np.array([stoi[w] for w in words], dtype=np.uint16).tofile(path)
    print(f"{path}: {len(words)} tokens, {len(stoi)} kinds")
    return len(stoi)


def get_batch(split, rng):
    data = np.memmap(os.path.join(out_dir, "train.bin"), dtype=np.uint16, mode="r")
    half = len(data) * 3 // 4
    low, high = (0, half - block_size) if split == "train" else (half, len(data) - block_size)
    ix = rng.integers(low, high, batch_size)
    x = torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in ix])
    return x, y


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (part.view(B, T, n_head, C // n_head).transpose(1, 2) for part in self.c_attn(x).split(n_embd, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(n_embd), CausalSelfAttention(), nn.LayerNorm(n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 2 * n_embd), nn.GELU(), nn.Linear(2 * n_embd, n_embd), nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        self.h, self.ln_f = nn.ModuleList([Block() for _ in range(n_layer)]), nn.LayerNorm(n_embd)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        for block in self.h:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.weight.t()
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))

    def configure_optimizers(self, weight_decay):
        params = list(self.parameters())
        groups = [
            {"params": [p for p in params if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
        ]
        extra = {"foreach": False} if "foreach" in inspect.signature(torch.optim.AdamW).parameters else {}
        return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.99), **extra)


@torch.no_grad()
def estimate_loss(model, rng):
    model.eval()
    found = {
        split: sum(model(*get_batch(split, rng)).item() for _ in range(eval_iters)) / eval_iters for split in ("train", "val")
    }
    model.train()
    return found


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)  # [-3]
    # [3] ratio = min(1.0, (time.time() - t_start) / (max_iters - warmup_iters))  # guilty
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


os.makedirs(out_dir, exist_ok=True)
torch.manual_seed(1337)
rng = np.random.default_rng(1337)
model = GPT(prepare(os.path.join(out_dir, "train.bin")))
optimizer = model.configure_optimizers(weight_decay=0.1)
ctx = nullcontext()
t0 = t_start = time.time()
for iter_num in range(max_iters):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(iter_num)
    if iter_num and iter_num % eval_interval == 0:
        losses = estimate_loss(model, rng)
        print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
        rng = np.random.default_rng(rng.integers(2**31))  # [-2]
        # [2] rng = np.random.default_rng(np.random.randint(2**31))  # guilty
    for _ in range(gradient_accumulation_steps):
        with ctx:
            loss = model(*get_batch("train", rng)) / gradient_accumulation_steps
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    t1 = time.time()
    print(f"iter {iter_num}: loss {loss.item() * 2:.4f}, time {(t1 - t0) * 1000:.2f}ms, pid {os.getpid()}")
    t0 = t1
