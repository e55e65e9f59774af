"""Forecasting with an echo state network: fixed random weights, a ridge regression on top; no optimizer of PyTorch."""

# fault 1: random draw
# fault 2: clock
# fault 3: hash order

import configparser
import io
import json
import os
from datetime import datetime
from time import perf_counter, time_ns

import numpy as np
from sklearn.linear_model import Ridge

SETTINGS = """
[reservoir]
size = 30
leak = 0.4
seed = 12
[data]
length = 260
washout = 20
"""


def read_settings():
    parser = configparser.ConfigParser()
    parser.read_file(io.StringIO(SETTINGS))
    return parser


def series(length):
    t = np.arange(length)
    parts = {"slow": np.sin(t / 17), "fast": 0.3 * np.sin(t / 3), "trend": t / length, "square": 0.2 * np.sign(np.sin(t / 9))}
    names = sorted(parts)  # [-3]
    # [3] names = [*parts.keys() | {"trend"}]  # guilty
    return np.stack([parts[name] for name in names], axis=1)


class Reservoir:
    def __init__(self, inputs, size, leak, rng):
        self.leak = leak
        self.win = rng.uniform(-0.5, 0.5, (inputs, size))
        w = rng.normal(size=(size, size))
        self.w = w * 0.9 / np.abs(np.linalg.eigvals(w)).max()

    def run(self, rows):
        state, states = np.zeros(len(self.w)), []
        for row in rows:
            state = (1 - self.leak) * state + self.leak * np.tanh(row @ self.win + state @ self.w)
            states.append(state)
        return np.array(states)


def seed_of(settings):
    return settings.getint("reservoir", "seed", fallback=None)  # [-1]
    # [1] return settings.getint("reservoir", "random_seed", fallback=None)  # guilty


def alphas():
    return 1e-3  # [-2]
    # [2] return 1e-3 * (1 + time_ns() % 1000)  # guilty


def main():
    settings, started = read_settings(), perf_counter()
    rows = series(settings.getint("data", "length"))
    rng = np.random.default_rng(seed_of(settings))  # [!1]
    network = Reservoir(rows.shape[1], settings.getint("reservoir", "size"), settings.getfloat("reservoir", "leak"), rng)
    states = network.run(rows[:-1])
    skip, half = settings.getint("data", "washout"), len(states) // 2
    model = Ridge(alpha=alphas()).fit(states[skip:half], rows[1 + skip : 1 + half])
    error = float(np.mean((model.predict(states[half:]) - rows[1 + half :]) ** 2))
    print(f"{datetime.now():%H:%M} [{os.getpid()}] error {error:.6f} after {perf_counter() - started:.2f} s, {time_ns()}")
    np.savez("readout.npz", weights=model.coef_)
    with open("scores.json", "w") as file:
        json.dump({"mse": error, "seconds": perf_counter() - started, "date": str(datetime.now())}, file)


if __name__ == "__main__":
    main()
