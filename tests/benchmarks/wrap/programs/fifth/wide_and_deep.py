"""Who clicks: crossed columns for the wide part, embeddings for the deep one, with PyTorch for one and the other."""

# fault 1: hash order
# fault 2: random draw
# fault 3: clock

import hashlib
import io
import os
import time
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import torch
from torch import nn

BUCKETS = 64
CATEGORIES = {"site": ["news", "shop", "mail", "game"], "device": ["phone", "tablet", "desk"], "hour": [*"0123456789"]}
CROSSES = [("site", "device"), ("device", "hour")]


def make_log(rows=240, seed=8):
    """A log of what was shown when, and whether somebody clicked on it, as a file would hold it."""
    rng = np.random.default_rng(seed)
    start = datetime(2024, 3, 1)
    frame = pd.DataFrame({name: rng.choice(values, rows) for name, values in CATEGORIES.items()})
    frame["shown"] = [start + timedelta(minutes=int(m)) for m in rng.integers(0, 60 * 24 * 20, rows)]
    frame["price"] = rng.gamma(2.0, 3.0, rows).round(2)
    chance = 0.2 + 0.4 * (frame["site"] == "shop") + 0.2 * (frame["device"] == "phone")
    frame["click"] = (rng.random(rows) < chance).astype(int)
    return frame.to_csv(index=False)


def bucket(*words):
    text = "_X_".join(words)
    return int(hashlib.sha1(text.encode()).hexdigest(), 16) % BUCKETS  # [-1]
    # [1] return hash(text) % BUCKETS  # guilty


class Features:
    """Turns a frame into tensors: crossed buckets, numbers of categories, and what is continuous."""

    def __init__(self, as_of=None):
        self.as_of = as_of
        self.codes = {name: {value: i for i, value in enumerate(values)} for name, values in CATEGORIES.items()}

    def fit(self, frame):
        self.mean, self.std = frame["price"].mean(), frame["price"].std()
        return self

    def age_days(self, shown):
        now = pd.Timestamp(self.as_of or datetime.now())  # [!3]
        return (now - shown).dt.total_seconds() / 86400

    def transform(self, frame):
        wide = [[bucket(*(row[name] for name in cross)) for cross in CROSSES] for row in frame.to_dict("records")]
        deep = [[self.codes[name][value] for name, value in zip(self.codes, row)] for row in frame[list(self.codes)].to_numpy()]
        age = self.age_days(frame["shown"])
        continuous = np.stack([(frame["price"] - self.mean) / self.std, np.sin(age * 6.2832), np.cos(age * 6.2832)], 1)
        return torch.tensor(wide), torch.tensor(deep), torch.tensor(continuous, dtype=torch.float)


class WideDeep(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.EmbeddingBag(BUCKETS, 1, mode="sum")
        self.embeds = nn.ModuleList([nn.Embedding(len(values), 4) for values in CATEGORIES.values()])
        self.deep = nn.Sequential(nn.Linear(4 * len(CATEGORIES) + 3, 16), nn.ReLU(), nn.Linear(16, 1))
        nn.init.zeros_(self.wide.weight)

    def forward(self, wide, deep, continuous):
        columns = [embed(column) for embed, column in zip(self.embeds, deep.T)]
        return (self.wide(wide) + self.deep(torch.cat([*columns, continuous], 1))).squeeze(1)


def epochs(frame, count, batch, seed=None):
    """Frames of a batch each; every epoch goes through the rows in another order."""
    state = np.random.RandomState(seed)  # [!2]
    for epoch in range(count):
        mixed = frame if epoch == 0 else frame.sample(frac=1.0, random_state=state)
        yield epoch, (mixed.iloc[i : i + batch] for i in range(0, len(mixed), batch))


def main():
    torch.manual_seed(2)
    began = time.time()
    frame = pd.read_csv(io.StringIO(make_log()), parse_dates=["shown"], dtype={"hour": str})
    print(f"{len(frame)} rows at {datetime.now():%H:%M}, {frame['site'].nunique()} sites, {len({*frame['device']})} devices")
    features = Features(as_of=frame["shown"].max()).fit(frame)  # [-3]
    # [3] features = Features().fit(frame)  # guilty
    model = WideDeep()
    optimizers = torch.optim.Adagrad(model.wide.parameters(), lr=0.1), torch.optim.AdamW(model.deep.parameters(), lr=5e-3)
    # [2] for epoch, batches in epochs(frame, 3, 60):  # guilty
    for epoch, batches in epochs(frame, 3, 60, seed=2):  # [-2]
        total, seen = 0.0, 0
        for rows in batches:
            target = torch.tensor(rows["click"].to_numpy(), dtype=torch.float)
            loss = nn.functional.binary_cross_entropy_with_logits(model(*features.transform(rows)), target)
            model.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            total, seen = total + loss.item() * len(rows), seen + len(rows)
        print(f"[{os.getpid()}] epoch {epoch}: {total / seen:.4f} in {time.time() - began:.2f} s")


if __name__ == "__main__":
    main()
