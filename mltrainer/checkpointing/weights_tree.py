"""The byte format of the digest of weights as a tree over chunks, without torch: what several processes and a clone share.

The digest, `weights_tree_sha256`, is a SHA-256 over the digests of chunks, so that processes and threads each hash a share:

- A tensor's bytes are its elements in row-major order, little-endian, cut into chunks of 4,194,304 bytes; the last one of a
  tensor may be shorter, and a tensor without elements has none. No chunk holds bytes of two tensors.
- A leaf is the SHA-256 of one byte 0 and the chunk's bytes: 32 bytes.
- The root is the SHA-256 of one byte 1, the text `weights tree, chunks of 4194304 bytes` and a newline, and then, for each tensor
  in the order of the names' Unicode code points, its header and its leaves in order.
- A header is the UTF-8 text `NAMELENGTH:NAME DTYPE D0,D1,... BYTES` and a newline, as `weights.weights_sha256` has it. BYTES
  gives the number of leaves that follow, so that no leaf can be taken for a part of another tensor, or of a header.
- The digest is the root in hex. The bytes 0 and 1 keep a chunk that looks like a root, and a root like a chunk, apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

# Large enough that the digests of chunks cost nothing beside their bytes and that threads of Python do not wait for each other,
# both from 1 MiB on; small enough that shares are even, and that what a process copies from a GPU at once is small.
CHUNK_BYTES = 4 << 20
LEAF_BYTES = hashlib.sha256().digest_size
_LEAF, _ROOT = b"\0", b"\1weights tree, chunks of %d bytes\n" % CHUNK_BYTES


@dataclass(frozen=True)
class Layout:
    """A tensor without its bytes: name, element type without torch's prefix, shape, and number of bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int

    @property
    def header(self) -> bytes:
        """The bytes that bind it in both digests of weights."""
        # With its length before it, so that no name can look like another one's name and type.
        encoded = self.name.encode("utf-8", "surrogatepass")
        shape = ",".join(map(str, self.shape))
        return b"%d:%s %s %s %d\n" % (len(encoded), encoded, self.dtype.encode(), shape.encode(), self.size)

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return -(-self.size // CHUNK_BYTES)


@dataclass(frozen=True)
class Chunk:
    """A place in the weights: the tensor's number, its first byte, and the byte after its last."""

    tensor: int
    begin: int
    end: int


def leaf(chunk: bytes | memoryview) -> bytes:
    """Return a chunk's digest."""
    total = hashlib.sha256(_LEAF)
    total.update(chunk)
    return total.digest()


def share(layouts: Sequence[Layout], number: int, of: int) -> Iterator[Chunk]:
    """Yield one of several shares of all chunks: contiguous, of about equal bytes, in the order of the shares.

    Args:
        layouts: The layouts of all tensors, sorted by name.
        number: The share's number, from 0.
        of: The number of shares.
    """
    total, before = sum(layout.size for layout in layouts), 0
    for tensor, layout in enumerate(layouts):
        for begin in range(0, layout.size, CHUNK_BYTES):
            if (before + begin) * of // total == number:
                yield Chunk(tensor, begin, min(begin + CHUNK_BYTES, layout.size))
        before += layout.size


def root(layouts: Sequence[Layout], leaves: Iterable[bytes]) -> str:
    """Return the digest of weights.

    Args:
        layouts: The layouts of all tensors, sorted by name.
        leaves: The digests of all chunks, one after the other, in any number of pieces.

    Raises:
        ValueError: There are more or fewer than the tensors have chunks.
    """
    content, place = b"".join(leaves), 0
    expected = LEAF_BYTES * sum(layout.chunks for layout in layouts)
    if len(content) != expected:
        raise ValueError(f"expected {expected} bytes of leaves, found {len(content)}")
    total = hashlib.sha256(_ROOT)
    for layout in layouts:
        end = place + LEAF_BYTES * layout.chunks
        total.update(layout.header + content[place:end])
        place = end
    return total.hexdigest()
