"""Training in bfloat16 with a scaler and a warm-up."""

# fault 1: clock
# fault 2: threads
# fault 3: unwritten memory

import threading
import time

import torch
from torch import nn

torch.manual_seed(42)
BEGAN = time.time()
BASE_LR, WARMUP = 0.05, 10


def elapsed():
    return time.time() - BEGAN  # [!1]


class Noise:
    """Noise whose strength another thread lowers while the training goes on."""

    def __init__(self):
        self.strength, self.ticks, self.stopped = 1.0, 0, False
        self.thread = threading.Thread(target=self.lower, daemon=True)  # [!2]
        self.thread.start()  # [!2]

    def lower(self):
        while not self.stopped:
            time.sleep(0.0007)
            self.ticks += 1
            # [2] self.strength *= 0.999  # guilty

    def __call__(self, x):
        return x + self.strength * 0.01


def learning_rate(step):
    share = min(1.0, (step + 1) / WARMUP)  # [-1]
    # [1] share = min(1.0, elapsed() / WARMUP)  # guilty
    return BASE_LR * share


model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=BASE_LR, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
running = torch.zeros(5)  # [-3]
# [3] running = torch.empty(5)  # guilty
noise = Noise()
x, y = torch.randn(96, 16), torch.randint(0, 5, (96,))
for step in range(20):
    chosen = torch.randint(0, 96, (24,))
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step)
    running.mul_(0.9).add_(torch.bincount(y[chosen], minlength=5) / 24, alpha=0.1)
    weights = 1.0 + running.nan_to_num(0.0, 0.0, 0.0).clamp(0, 1)
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        out = model(noise(x[chosen]))
    loss = nn.functional.cross_entropy(out.float(), y[chosen], weight=weights)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    if step % 5 == 0:
        print(f"step {step} loss {loss.item():.4f} scale {scaler.get_scale()} ticks {noise.ticks} {elapsed():.2f} s")
noise.stopped = True
