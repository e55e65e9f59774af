"""Places drawn at an address without numpy, so that a gate's check computes the same places as the tool."""

from __future__ import annotations

import hashlib


def drawn(count: int, most: int, seed: int, purpose: str) -> list[int]:
    """Return at most `most` places below a count, drawn without replacement, in ascending order.

    By Floyd's algorithm (Bentley and Floyd, 1987, Communications of the ACM 30), each of whose draws is a hash of its address.

    Args:
        count: Number of places.
        most: Number of drawn places; all if there are no more.
        seed: Seed of the address.
        purpose: Purpose of the draw, such as "calibrate".
    """
    if most >= count:
        return [*range(count)]
    chosen: set[int] = set()
    for last in range(count - most, count):
        place = _below(last + 1, f"{seed}/{purpose}/{last}")
        chosen.add(last if place in chosen else place)
    return sorted(chosen)


def _below(bound: int, address: str) -> int:
    # From 128 bits: the remainder then favours no number by more than the bound in 2**128.
    return int.from_bytes(hashlib.blake2b(address.encode(), digest_size=16).digest(), "little") % bound
