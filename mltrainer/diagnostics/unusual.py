"""Values of a config far outside of what is usual: read from a table, one row for each key."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Usual(NamedTuple):
    """What is usual for a key: the ends of its range, and the value that most take."""

    key: str
    low: float
    high: float
    common: float


class Unusual(NamedTuple):
    """A key of a config whose value lies outside of what is usual."""

    key: str
    value: float
    usual: Usual


# Chosen by us around the values of papers and of PyTorch's defaults, with room: a value outside explains, and is no fault alone.
USUAL = (
    Usual("optimizer.eps", 0.0, 1e-3, 1e-8),  # Kingma and Ba, 2015; 1e-3 for transformers in half precision
    Usual("optimizer.momentum", 0.0, 0.995, 0.9),
    Usual("optimizer.sam.rho", 0.0, 0.5, 0.05),  # Foret et al., 2021; the adaptive form has 0.5 to 2 (Kwon et al., 2021)
    Usual("optimizer.layer_decay", 0.4, 1.0, 1.0),  # Bao et al., 2022: 0.65
    Usual("optimizer.groups.lr", 0.01, 100.0, 1.0),  # a share of the learning rate
    Usual("gradients.noise.eta", 0.0, 0.3, 0.01),  # Neelakantan et al., 2015: 0.01, 0.3, 1
    Usual("early_stopping.patience", 3, math.inf, 10),
    Usual("early_stopping.min_delta", 0.0, 0.02, 0.0),
)


def unusual(config: Mapping[str, Any]) -> Iterator[Unusual]:
    """Yield the values of a config, as nested plain values, that lie outside of what is usual."""
    for usual in USUAL:
        for value in _values(config, usual.key.split(".")):
            is_adaptive = usual.key == "optimizer.sam.rho" and config["optimizer"]["sam"].get("adaptive")
            if not usual.low <= value <= usual.high * (10 if is_adaptive else 1):
                yield Unusual(usual.key, value, usual)


def _values(config: Any, path: list[str]) -> Iterator[float]:
    if isinstance(config, list):
        for part in config:
            yield from _values(part, path)
    elif path and isinstance(config, Mapping):
        yield from _values(config.get(path[0]), path[1:])
    elif not path and isinstance(config, int | float) and not isinstance(config, bool):
        yield config
