"""Tables of which it is known what learns them: thresholds, which boosted trees learn, and a plane, which a network learns."""

from __future__ import annotations

import io

import numpy as np


def stepped(rows: int, target: str = "price", seed: int = 0) -> str:
    """Return a CSV with a `price` that changes by thresholds of three features at a time, or `grade`, three classes of it.

    It has a category `kind`, gaps, and customers with several rows on consecutive days.
    """
    rng, drawn = np.random.default_rng(seed), np.random.default_rng(1)
    cells = rng.uniform(size=(rows, 6))
    price = rng.normal(size=rows) * 0.1
    for _ in range(40):
        places, ends = drawn.integers(0, 6, 3), drawn.uniform(0.2, 0.8, 3)
        price += 2 * drawn.normal() * (cells[:, places] > ends).all(axis=1)
    kind = rng.choice(list("abcd"), rows)
    price += 2.0 * (kind == "b")
    grade = np.digitize(price, np.quantile(price, [1 / 3, 2 / 3]))
    gaps = rng.random(cells.shape) < 0.02
    out = io.StringIO()
    out.write("a,b,c,d,e,f,kind,customer,day," + target + "\n")
    for row in range(rows):
        numbers = ["" if gap else f"{cell:.6f}" for cell, gap in zip(cells[row], gaps[row], strict=True)]
        value = f"{price[row]:.6f}" if target == "price" else ["low", "mid", "high"][grade[row]]
        day = f"2024-{1 + row * 12 // rows:02d}-{1 + row % 28:02d}"
        out.write(",".join([*numbers, kind[row], f"c{row // 4}", day, value]) + "\n")
    return out.getvalue()


def plane(rows: int, seed: int = 0) -> str:
    """Return a CSV whose `price` is a plane over ten features, with little noise."""
    rng = np.random.default_rng(seed)
    cells = rng.normal(size=(rows, 10))
    price = cells @ np.linspace(-1, 1, 10) + rng.normal(size=rows) * 0.1
    lines = [",".join(f"{cell:.6f}" for cell in (*row, y)) for row, y in zip(cells, price, strict=True)]
    return "\n".join([",".join([*"abcdefghij", "price"]), *lines]) + "\n"
