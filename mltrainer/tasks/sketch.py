"""A sketch of a test split, by which it is recognized in another state of the data: salted digests of its rows, of bounded size.

Of at most `KEPT` different rows every digest is kept, of more the smallest ones (a bottom-k sketch, Cohen and Kaplan, 2007,
Summarizing data using bottom-k sketches): two splits with the share J of rows in common have about J times
`KEPT` digests in common, so that half a percent is found with 99 in 100. Two different splits of twice `KEPT` rows have one in
common by accident once in 100 million pairs.
"""

from __future__ import annotations

import hashlib

import numpy as np

from mltrainer.tasks.data_findings import row_hashes
from mltrainer.tasks.distinct import distinct

KEPT = 1024
DIGEST_BYTES = 6


def sketch(hashes: np.ndarray, salt: str) -> str:
    """Return the digests that a split is known by: hex, sorted, with blanks between them.

    Args:
        hashes: A 64-bit hash of each row.
        salt: The project's salt, without which rows cannot be recognized among the digests.
    """
    key = hashlib.blake2b(salt.encode(), digest_size=32).digest()
    word = np.frombuffer(key[:8], dtype="<u8")
    rows = distinct(hashes)
    # The order is salted too: the smallest plain hashes would be the same rows in every project.
    order = row_hashes([np.broadcast_to(word, rows.shape).astype(np.uint64), rows.astype(np.uint64)])
    chosen = rows[np.argsort(order, kind="stable")[:KEPT]].astype("<u8")
    return " ".join(sorted(hashlib.blake2b(row.tobytes(), digest_size=DIGEST_BYTES, key=key).hexdigest() for row in chosen))
