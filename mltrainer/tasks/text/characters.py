"""Characters as tokens: those of the training text have a number each, all others are spelt by their bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))  # the names in `tokenizers`
CODE_POINTS = 0x110000
Encoder = Callable[[str], np.ndarray]


def numbered(texts: Iterable[str], most: int) -> dict[str, int]:
    """Return the number of each byte, and of the most frequent characters, which come after the bytes in code point order."""
    seen: Counter[int] = Counter()
    for text in texts:
        points, counts = np.unique(_code_points(text), return_counts=True)
        seen.update(dict(zip(points.tolist(), counts.tolist(), strict=True)))
    # Ties are broken by the character, so that the order of the texts has no effect.
    frequent = sorted(seen, key=lambda point: (-seen[point], point))[: max(0, most - len(BYTES))]
    return {name: number for number, name in enumerate([*BYTES, *map(chr, sorted(frequent))])}


def encoder(numbers: dict[str, int]) -> Encoder:
    """Return a function from a text to its int32 ids: those of the character tokenizer, some hundred times as fast."""
    table = np.full(CODE_POINTS, -1, dtype=np.int32)
    for name, number in numbers.items():
        if len(name) == 1:
            table[ord(name)] = number

    def encode(text: str) -> np.ndarray:
        ids: np.ndarray = table[_code_points(text)]
        unknown = np.flatnonzero(ids < 0)
        return ids if not len(unknown) else _spelt(text, ids, unknown)

    return encode


def _spelt(text: str, ids: np.ndarray, unknown: np.ndarray) -> np.ndarray:
    """Return ids with the bytes of unknown characters in their places; a byte's id is the byte."""
    known = np.split(ids, unknown)
    spelt = [np.frombuffer(text[place].encode(), dtype=np.uint8).astype(np.int32) for place in unknown]
    return np.concatenate([known[0], *(part for raw, rest in zip(spelt, known[1:], strict=True) for part in (raw, rest[1:]))])


def _code_points(text: str) -> np.ndarray:
    # UTF-32 has four bytes for every character: numpy reads them all at once, without a loop over the text.
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
