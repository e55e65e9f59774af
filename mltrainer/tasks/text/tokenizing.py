"""Texts as token ids; the one module that imports tokenizers.

A tokenizer is trained on the training texts alone, and the same texts give the same file, byte for byte. The delivered one
cuts and pads as training did, so that `tokenizer.json` alone makes the model's input from a text.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mltrainer.configs.project import Tokens
from mltrainer.errors import InputError
from mltrainer.tasks.text import characters

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAD, UNKNOWN = "[PAD]", "[UNK]"
PAD_NAMES = (PAD, "<pad>", "<|padding|>", "<|endoftext|>")  # names in the tokenizers of well-known models
AT_ONCE = 1024  # texts: an encoding takes some hundred times the memory of its ids


def _library() -> Any:
    # One thread, as every operation here: and a process that forks later would be warned of threads that it does not have.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        import tokenizers
    except ImportError as error:
        raise InputError("texts need the package tokenizers", where="task.kind", hint='pip install "mltrainer[text]"') from error
    return tokenizers


def train(texts: Iterable[str], tokens: Tokens) -> Tokenizer:
    """Return a tokenizer that was trained on texts; it has a token for padding.

    Args:
        texts: The texts of the training split.
        tokens: The kind and the size of the vocabulary.

    Raises:
        InputError: tokenizers is not installed.
    """
    if tokens.kind == "char":
        tokenizer = of_characters(characters.numbered(texts, tokens.vocabulary))
        tokenizer.add_special_tokens([PAD])
        return tokenizer
    made = _words(tokens) if tokens.kind == "word" else _pieces(tokens)
    made[0].train_from_iterator(texts, made[1])
    return made[0]


def _words(tokens: Tokens) -> tuple[Tokenizer, Any]:
    """Return an untrained tokenizer of words in lower case and runs of punctuation, the most frequent ones known."""
    lib = _library()
    tokenizer = lib.Tokenizer(lib.models.WordLevel(unk_token=UNKNOWN))
    tokenizer.normalizer = lib.normalizers.Sequence([lib.normalizers.NFKC(), lib.normalizers.Lowercase()])
    tokenizer.pre_tokenizer = lib.pre_tokenizers.Whitespace()
    special = [PAD, UNKNOWN]
    return tokenizer, lib.trainers.WordLevelTrainer(vocab_size=tokens.vocabulary, special_tokens=special, show_progress=False)


def _pieces(tokens: Tokens) -> tuple[Tokenizer, Any]:
    """Return an untrained tokenizer of byte pairs, which spells every text (Sennrich et al., 2016, arXiv 1508.07909)."""
    lib = _library()
    tokenizer = lib.Tokenizer(lib.models.BPE())
    tokenizer.pre_tokenizer = lib.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = lib.decoders.ByteLevel()
    # Sorted, as the library gives its alphabet in another order in each process.
    alphabet = sorted(lib.pre_tokenizers.ByteLevel.alphabet())
    trainer = lib.trainers.BpeTrainer(
        vocab_size=tokens.vocabulary, special_tokens=[PAD], initial_alphabet=alphabet, show_progress=False
    )
    return tokenizer, trainer


def of_characters(numbers: dict[str, int]) -> Tokenizer:
    """Return a tokenizer of characters, which spells those that it does not know by their bytes.

    Args:
        numbers: The number of each byte, and of each known character.
    """
    lib = _library()
    tokenizer: Tokenizer = lib.Tokenizer(lib.models.BPE(vocab=numbers, merges=[], byte_fallback=True))
    tokenizer.decoder = lib.decoders.Sequence([lib.decoders.ByteFallback(), lib.decoders.Fuse()])
    return tokenizer


def load(data: bytes, place: str, *, pads: bool = True) -> Tokenizer:
    """Return the tokenizer of a `tokenizer.json`, which holds data alone; with `pads` it gets a padding token where it has none.

    Raises:
        InputError: The file is no tokenizer, or tokenizers is not installed.
    """
    lib = _library()
    try:
        tokenizer: Tokenizer = lib.Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises Exception itself
        raise InputError(
            f"not readable as a tokenizer.json: {error}", where=place, hint="data: {tokens: {file: null}}"
        ) from error
    tokenizer.no_truncation()
    if pads and _padding(tokenizer) is None:
        tokenizer.add_special_tokens([PAD])
    return tokenizer


def without_processor(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy that adds no special tokens, and whose offsets include blanks, which a processor may leave out."""
    plain = _library().Tokenizer.from_str(tokenizer.to_str())
    plain.post_processor = None
    plain.no_padding()
    found: Tokenizer = plain
    return found


def padding_of(tokenizer: Tokenizer) -> int:
    """Return the id of the padding token, which each tokenizer of this module has."""
    found = _padding(tokenizer)
    assert found is not None
    return found


def _padding(tokenizer: Tokenizer) -> int | None:
    own = tokenizer.padding
    if own is not None:
        return int(own["pad_id"])
    known = (tokenizer.token_to_id(name) for name in PAD_NAMES)
    return next((number for number in known if number is not None), None)


def unknown_of(tokenizer: Tokenizer) -> int | None:
    """Return the id of the token for words that are not in the vocabulary; None where every text can be spelt."""
    name = getattr(tokenizer.model, "unk_token", None)
    return tokenizer.token_to_id(name) if name else None


def fixed(tokenizer: Tokenizer, width: int) -> bytes:
    """Return a tokenizer as a file that cuts and pads every text to a number of tokens."""
    lib, padding = _library(), padding_of(tokenizer)
    # A copy: cutting and padding are switched on in the tokenizer itself, and this one still encodes whole texts.
    delivered = lib.Tokenizer.from_str(tokenizer.to_str())
    delivered.enable_truncation(width)
    delivered.enable_padding(length=width, pad_id=padding, pad_token=tokenizer.id_to_token(padding))
    return str(delivered.to_str(pretty=True)).encode()


# --- token ids ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Encoded:
    """Texts as token ids, one after the other.

    Attributes:
        flat: The ids of all texts, int32, none longer than the limit.
        ends: The end of each text in `flat`, int64.
        lengths: Number of tokens of each text before it was cut, int64.
    """

    flat: np.ndarray
    ends: np.ndarray
    lengths: np.ndarray

    def width(self, rows: np.ndarray, limit: int) -> int:
        """Return the length in tokens of the longest of some texts, at most a limit and at least 1."""
        return max(1, min(limit, int(self.lengths[rows].max(initial=1))))

    def matrix(self, rows: np.ndarray, width: int, padding: int) -> np.ndarray:
        """Return some texts as int64 [rows, width], cut or filled up with padding."""
        ends = self.ends[rows]
        # The first text begins at 0: its -1 would pick the end of the last one.
        starts = np.where(rows > 0, self.ends[rows - 1], 0)
        places = starts[:, None] + np.arange(width)
        inside = places < ends[:, None]
        found = self.flat[np.where(inside, places, 0)] if len(self.flat) else np.zeros(places.shape, dtype=np.int32)
        return np.where(inside, found, padding).astype(np.int64)


def encode(tokenizer: Tokenizer, texts: Sequence[str], limit: int) -> Encoded:
    """Return texts as token ids, each cut at its end to a limit."""
    parts, kept, lengths = [], [], []
    for ids, length in _encoded(tokenizer, texts, limit):
        parts.append(ids)
        kept.append(len(ids))
        lengths.append(length)
    flat = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)
    return Encoded(flat, np.cumsum(kept, dtype=np.int64), np.array(lengths, dtype=np.int64))


def _encoded(tokenizer: Tokenizer, texts: Sequence[str], limit: int) -> Iterator[tuple[np.ndarray, int]]:
    tokenizer.no_padding()
    for start in range(0, len(texts), AT_ONCE):
        some = list(texts[start : start + AT_ONCE])
        tokenizer.no_truncation()
        # Whole at first: the lengths of texts before the cut are reported.
        whole = [one.ids for one in tokenizer.encode_batch_fast(some)]
        tokenizer.enable_truncation(limit)  # by the library: a tokenizer may put special tokens around the cut text
        for text, ids in zip(some, whole, strict=True):
            kept = ids if len(ids) <= limit else tokenizer.encode(text).ids
            yield np.array(kept, dtype=np.int32), len(ids)
