"""The test by which a candidate must beat the baseline."""

from __future__ import annotations

import itertools
import math


def sign_flip_p_value(differences: list[float]) -> float:
    """Return the exact one-sided p-value of Fisher's sign-flip test that the mean difference is above zero.

    With n pairs the smallest value is 1 / 2**n (Fisher, 1935, The Design of Experiments, section 21).
    """
    observed = math.fsum(differences)
    flips = list(itertools.product((1, -1), repeat=len(differences)))
    as_large = sum(math.fsum(s * d for s, d in zip(signs, differences, strict=True)) >= observed for signs in flips)
    return as_large / len(flips)
