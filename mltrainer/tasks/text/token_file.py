"""A corpus as token ids in a file of the state folder: made once by streaming, verified by digest, and mapped into memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mltrainer.configs.project import Tokens
from mltrainer.errors import InputError
from mltrainer.tasks.content import Corpus
from mltrainer.tasks.splits import BySplit
from mltrainer.tasks.text import characters, tokenizing
from mltrainer.tasks.text.characters import Encoder
from mltrainer.tasks.text.corpus import pieces
from mltrainer.workspace import (
    digest,
    new_whole,
    read_json,
    sha256_bytes,
    sha256_file,
    write_atomic,
    write_json,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FORM = 1  # the version of the files here: one of another version is made again
LEARNED_BYTES = 64 << 20  # bytes of the training text that train byte pairs, taken evenly: more would change few of them
Bounds = BySplit[tuple[int, int]]


@dataclass(frozen=True)
class TokenFile:
    """Token ids of a corpus, split after split.

    Attributes:
        ids: The token ids, int16 or int32, mapped from the file.
        counts: Number of ids of each split, in their order.
        tokenizer: The `tokenizer.json` that made them.
    """

    ids: np.ndarray
    counts: BySplit[int]
    tokenizer: bytes


def token_file(corpus: Corpus, tokens: Tokens, given: bytes | None, bounds: Bounds) -> TokenFile:
    """Return a corpus as token ids: from the state folder where the files there agree with their digests, else made again.

    Args:
        corpus: The corpus.
        tokens: The kind of the tokenizer and the size of its vocabulary.
        given: A `tokenizer.json` in place of one that is trained on the training block; None for none.
        bounds: Each split's first and last byte.

    Raises:
        InputError: The text is not UTF-8, or the tokenizer's file is no tokenizer.
        MachineError: There is no space, no permission, or the disk failed.
    """
    asked = {"form": FORM, "corpus": corpus.sha256, "kind": tokens.kind, "vocabulary": tokens.vocabulary, "bounds": bounds}
    # The digest of all that decides the ids is the name: another corpus or tokenizer never finds these files.
    name = digest({**asked, "given": sha256_bytes(given) if given is not None else None})[:16]
    made = _TokenFilePaths(corpus.cache / f"{name}.bin", corpus.cache / f"{name}.tokenizer.json", corpus.cache / f"{name}.json")
    if not made.holds():
        _make(made, corpus, tokens, given, bounds)
    meta = _Meta(**read_json(made.meta))
    # Copy on write, as torch wants memory that is writable; an empty file cannot be mapped.
    ids = np.memmap(made.ids, dtype=meta.type, mode="c") if sum(meta.counts.values()) else np.zeros(0, dtype=meta.type)
    return TokenFile(ids, BySplit(meta.counts), made.tokenizer.read_bytes())


@dataclass(frozen=True)
class _Meta:
    """The contents of a token file: digests of the ids and of the tokenizer, the ids' type, and their number in each split."""

    ids: str
    tokenizer: str
    type: str
    counts: dict[str, int]


@dataclass(frozen=True)
class _TokenFilePaths:
    """The files of one token file."""

    ids: Path
    tokenizer: Path
    meta: Path

    def holds(self) -> bool:
        """Return True if the files are there and have the recorded digests."""
        try:
            meta = _Meta(**read_json(self.meta))
            return meta.ids == sha256_file(self.ids) and meta.tokenizer == sha256_file(self.tokenizer)
        except (InputError, OSError, TypeError):
            return False


def _make(made: _TokenFilePaths, corpus: Corpus, tokens: Tokens, given: bytes | None, bounds: Bounds) -> None:
    tokenizer, encode = _tokenizer(corpus, tokens, given, bounds.train)
    kind = np.dtype(np.int16 if tokenizer.get_vocab_size() <= np.iinfo(np.int16).max else np.int32)
    with new_whole(made.ids) as temporary:
        counts = _write(temporary, corpus, encode, kind, bounds)
    write_atomic(made.tokenizer, str(tokenizer.to_str(pretty=True)).encode())
    # Last: the digests vouch for the two files before it, and without them all are made again.
    write_json(made.meta, vars(_Meta(sha256_file(made.ids), sha256_file(made.tokenizer), kind.str, counts)))


def _write(path: Path, corpus: Corpus, encode: Encoder, kind: np.dtype[Any], bounds: Bounds) -> dict[str, int]:
    counts = dict.fromkeys(bounds, 0)
    with path.open("wb") as file:
        for split, (start, end) in bounds.items():
            for piece in pieces(corpus, start, end):
                ids = encode(piece).astype(kind)
                file.write(ids.tobytes())
                counts[split] += len(ids)
    return counts


def _tokenizer(corpus: Corpus, tokens: Tokens, given: bytes | None, train: tuple[int, int]) -> tuple[Tokenizer, Encoder]:
    """Return the tokenizer, and a function that encodes a text in the same way."""
    if given is None and tokens.kind == "char":
        numbers = characters.numbered(pieces(corpus, *train), tokens.vocabulary)
        return tokenizing.of_characters(numbers), characters.encoder(numbers)
    if given is None:
        tokenizer = tokenizing.train(_evenly(corpus, train), tokens)
    else:
        tokenizer = tokenizing.load(given, str(tokens.file))
        tokenizer.no_padding()
    return tokenizer, lambda text: np.array(tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int32)


def _evenly(corpus: Corpus, block: tuple[int, int]) -> Iterator[str]:
    """Yield lines of a block: all, or those of evenly spaced pieces where it is too long."""
    every = -(-(block[1] - block[0]) // LEARNED_BYTES)
    for number, piece in enumerate(pieces(corpus, *block)):
        if number % every == 0:
            yield from piece.splitlines(keepends=True)
