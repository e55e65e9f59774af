"""Places drawn at an address without numpy: who holds a gate to them computes them as the tool did that read them."""

from __future__ import annotations

import hashlib


def drawn(count: int, most: int, seed: int, purpose: str) -> list[int]:
    """Return at most so many places below a count, drawn without replacement, in ascending order.

    By Floyd's algorithm (Bentley and Floyd, 1987, Communications of the ACM 30), each of whose draws is a hash of its address.

    Args:
        count: How many places there are.
        most: How many are drawn, all where there are no more.
        seed: Of the address.
        purpose: What is drawn, such as "calibrate".
    """
    if most >= count:
        return [*range(count)]
    chosen: set[int] = set()
    for last in range(count - most, count):
        place = _below(last + 1, f"{seed}/{purpose}/{last}")
        chosen.add(last if place in chosen else place)
    return sorted(chosen)


def _below(bound: int, address: str) -> int:
    # Of 128 bits: the remainder then favours no number by more than the bound in 2**128.
    return int.from_bytes(hashlib.blake2b(address.encode(), digest_size=16).digest(), "little") % bound
