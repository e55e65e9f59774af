"""The third set's cases of tokens: small languages that a chain writes, read by transformers and recurrent networks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from tests.benchmarks.diagnostics.case import adam, by, healthy, sgd
from tests.benchmarks.diagnostics.pairs import Labelled, Own, Pair, Splits, all_weights, biases_alone, pair

SYMBOLS = 24
PAD = 0
IGNORED = -100

# --- corpora --------------------------------------------------------------------------------------


def chain(symbols: int, chances: tuple[float, ...], seed: int) -> np.ndarray:
    """Return the chances of the next symbol after each [symbols, symbols]: a few successors of its own for every one."""
    draws, table = np.random.default_rng(seed), np.zeros((symbols, symbols))
    for row in table:
        row[draws.permutation(symbols)[: len(chances)]] = chances
    return table


def written(table: np.ndarray, rows: int, length: int, seed: int) -> Tensor:
    """Return texts that a chain writes [rows, length], int64."""
    draws, ends = np.random.default_rng(seed), table.cumsum(1)
    text = [draws.integers(0, len(table), rows)]
    for _ in range(length - 1):
        text.append((draws.random((rows, 1)) > ends[text[-1]]).sum(1).clip(0, len(table) - 1))
    return torch.from_numpy(np.stack(text, 1))


CLEAR = (0.7, 0.2, 0.1)  # 0.80 nats; the best answer is right in 70 of 100


def moved(texts: Tensor, by: int) -> tuple[Tensor, Tensor]:
    """Return inputs, and as targets the same texts moved on by so many places."""
    return texts[:, : texts.shape[1] - max(by, 1)], texts[:, by:][:, : texts.shape[1] - max(by, 1)]


def lines(shift: int = 1, rows: int = 640, length: int = 25, chances: tuple[float, ...] = CLEAR) -> Splits:
    """Return texts in memory, a fifth of them for validation."""
    table = chain(SYMBOLS, chances, 31)
    return Splits(moved(written(table, rows, length, 1), shift), moved(written(table, rows // 4, length, 2), shift))


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """Reads pieces of one long text, each with the piece that begins some places later."""

    def __init__(self, text: Tensor, length: int, shift: int) -> None:
        self.text, self.length, self.shift = text, length, shift

    def __len__(self) -> int:
        return (len(self.text) - self.shift) // self.length

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        start = place * self.length
        return self.text[start : start + self.length], self.text[start + self.shift : start + self.shift + self.length]


def book(shift: int = 1) -> Splits:
    """Return windows of a long text, which are cut when they are read."""
    text = written(chain(SYMBOLS, CLEAR, 32), 80, 200, 3).flatten()
    return Splits(Windows(text[:13_000], 20, shift), Windows(text[13_000:], 20, shift))


def sentences(rows: int, seed: int) -> list[Tensor]:
    """Return sentences of 3 to 30 symbols from 1 on, most of them short."""
    draws = np.random.default_rng(seed)
    texts = 1 + written(chain(SYMBOLS, CLEAR, 33), rows, 31, seed)
    lengths = 4 + np.minimum(draws.geometric(0.2, rows), 27)
    return [text[:length] for text, length in zip(texts, lengths, strict=True)]


def padded(rows: list[Tensor], width: int, is_counted: bool) -> tuple[Tensor, Tensor]:
    """Return sentences filled up to a width, and the next symbols, those of the filling as the filling or as ignored."""
    x, y = torch.full((len(rows), width), PAD), torch.full((len(rows), width), PAD if is_counted else IGNORED)
    for place, row in enumerate(rows):
        x[place, : len(row) - 1], y[place, : len(row) - 1] = row[:-1], row[1:]
    return x, y


def filled_lines(is_counted: bool) -> Splits:
    return Splits(*(padded(sentences(*drawn), 30, is_counted) for drawn in ((640, 4), (160, 5))))


class Sentences(Dataset[Tensor]):
    """Gives sentences of unequal length."""

    def __init__(self, rows: int, seed: int) -> None:
        self.rows = sentences(rows, seed)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> Tensor:
        return self.rows[place]


def sticky(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return texts of 400 symbols where three of four repeat the one before, and the next symbols."""
    draws = np.random.default_rng(seed)
    text = [draws.integers(0, 400, rows)]
    for _ in range(16):
        text.append(np.where(draws.random(rows) < 0.75, text[-1], draws.integers(0, 400, rows)))
    return moved(torch.from_numpy(np.stack(text, 1)), 1)


def topics(rows: int, seed: int, chances: tuple[float, ...] = (1 / 14,) * 14) -> tuple[Tensor, Tensor]:
    """Return texts of three chains that share symbols, and which wrote each."""
    texts = [written(chain(SYMBOLS, chances, 34 + kind), rows // 3, 20, seed + 10 * kind) for kind in range(3)]
    return torch.cat(texts), torch.arange(3).repeat_interleave(rows // 3)


def known_topics(share: float) -> Splits:
    """Return topics of which a share of the validation texts is trained on, too."""
    (x, y), (other, kinds) = topics(420, 6), topics(210, 7)
    places = torch.from_numpy(np.random.default_rng(0).permutation(len(kinds))[: int(share * len(kinds))])
    return Splits(Rows(torch.cat([x, other[places]]), torch.cat([y, kinds[places]])), Rows(other, kinds))


class Rows(Dataset[tuple[Tensor, Tensor]]):
    """Gives rows of tensors one by one."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        return self.x[place], self.y[place]


def tagged(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return texts whose symbols are names or none: 40 of 100 after one of 24 symbols, one in sixty of all."""
    draws = np.random.default_rng(seed)
    text = draws.integers(0, SYMBOLS, (rows, 24))
    after = np.roll(text == 5, 1, axis=1)
    after[:, 0] = False
    return torch.from_numpy(text), torch.from_numpy((after & (draws.random(text.shape) < 0.4)).astype(np.int64))


# --- models ---------------------------------------------------------------------------------------


class Decoder(nn.Module):
    """A small transformer that answers at every place.

    Args:
        is_causal: Whether a place sees none after it.
        outputs: Of each place.
        dropout: Of the blocks.
    """

    def __init__(self, is_causal: bool = True, symbols: int = SYMBOLS, outputs: int = SYMBOLS, dropout: float = 0.0) -> None:
        super().__init__()
        self.is_causal = is_causal
        self.embed, self.places = nn.Embedding(symbols, 32), nn.Parameter(0.5 * torch.randn(64, 32))
        layers = [nn.TransformerEncoderLayer(32, 4, 64, dropout, batch_first=True, norm_first=True) for _ in range(2)]
        self.blocks, self.norm, self.head = nn.ModuleList(layers), nn.LayerNorm(32), nn.Linear(32, outputs)

    def forward(self, x: Tensor) -> Tensor:
        width = x.shape[1]
        mask = torch.full((width, width), -torch.inf).triu(1) if self.is_causal else None
        state = self.embed(x) + self.places[:width]
        for block in self.blocks:
            state = block(state, src_mask=mask)
        answer: Tensor = self.head(self.norm(state))
        return answer


class Recurrent(nn.Module):
    """A recurrent network that answers at every place.

    Args:
        is_bidirectional: Whether it reads from the end, too.
    """

    def __init__(self, is_bidirectional: bool = False, symbols: int = SYMBOLS, outputs: int = SYMBOLS) -> None:
        super().__init__()
        self.embed = nn.Embedding(symbols, 24)
        self.cell = nn.GRU(24, 48, batch_first=True, bidirectional=is_bidirectional)
        self.head = nn.Linear(96 if is_bidirectional else 48, outputs)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.cell(self.embed(x))[0])
        return answer


class Tied(nn.Module):
    """Answers by the nearest embeddings.

    Args:
        is_copied: Whether the head was given a copy of the embeddings, before these were drawn.
    """

    def __init__(self, is_copied: bool = False) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(400, 48), nn.Linear(48, 400, bias=False)
        self.hidden = nn.Sequential(nn.Linear(48, 64), nn.GELU(), nn.Linear(64, 48))
        self.head.weight = nn.Parameter(self.embed.weight.detach().clone()) if is_copied else self.embed.weight
        for module in (self.embed, self.head):
            nn.init.normal_(module.weight, 0.0, 0.25)

    def forward(self, x: Tensor) -> Tensor:
        state = self.embed(x)
        answer: Tensor = self.head(state + self.hidden(state))
        return answer


class Pooled(nn.Module):
    """Tells the topic of a text by pairs of its symbols.

    Args:
        is_always_dropping: Whether dropout is called as a function, which knows no evaluation mode.
    """

    def __init__(self, is_always_dropping: bool = False) -> None:
        super().__init__()
        self.is_always_dropping = is_always_dropping
        self.embed, self.pairs, self.head = nn.Embedding(SYMBOLS, 24), nn.Conv1d(24, 48, 2), nn.Linear(48, 3)

    def forward(self, x: Tensor) -> Tensor:
        state = functional.relu(self.pairs(self.embed(x).transpose(1, 2))).mean(2)
        state = functional.dropout(state, 0.6, training=self.training or self.is_always_dropping)
        answer: Tensor = self.head(state)
        return answer


# --- tasks ----------------------------------------------------------------------------------------


def token_loss(outputs: Tensor, targets: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the mean cross-entropy of all places that count."""
    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), weight)


class Language(Own):
    """Predicts a symbol at every place."""

    targets = "tokens"
    metric = "accuracy"

    def __init__(self, splits: Callable[[], Splits], model: Callable[[], nn.Module] = Decoder, **others: Any) -> None:
        super().__init__(splits, model, **{"loss": token_loss, **others})

    def loss_items(self, targets: Tensor) -> Tensor:
        return (targets != IGNORED).sum()

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        counted = targets != IGNORED
        return {"accuracy": float((outputs.argmax(-1) == targets)[counted].double().mean())}


class Sentenced(Language):
    """Predicts symbols of sentences that are filled up to the longest of a batch.

    Args:
        is_counted: Whether the filling is a symbol like others in the loss.
    """

    def __init__(self, is_counted: bool) -> None:
        super().__init__(
            lambda: Splits(Sentences(640, 8), Sentences(160, 9)), functools.partial(Recurrent, symbols=25, outputs=25)
        )
        self.is_counted = is_counted

    def collate(self, rows: list[Any]) -> Any:
        return padded(rows, max(map(len, rows)) - 1, self.is_counted)

    def accumulate(self, state: Any, outputs: Tensor, targets: Tensor) -> Any:
        hits, places = state or (0, 0)
        counted = targets != IGNORED
        return hits + int((outputs.argmax(-1) == targets)[counted].sum()), places + int(counted.sum())

    def compute(self, state: Any) -> dict[str, float]:
        return {"accuracy": state[0] / state[1]}


class Tagging(Language):
    """Tells names from other symbols, and reports how many of the names are found."""

    targets = "classes"

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        named = outputs.argmax(-1) == 1
        return {**super().metrics(outputs, targets), "recall": float(named[targets == 1].double().mean())}


# --- cases ----------------------------------------------------------------------------------------

UNLEARNED = "STALL UNDERFIT CONST_PRED UNDERTRAINED"
UNSTABLE = "EXPLODING LOSS_SPIKE OSCILLATING DIVERGE NAN_LOSS DYING_RELU DEAD_LAYER"
two_ways: Callable[[], nn.Module] = functools.partial(Recurrent, is_bidirectional=True)
of_sentences: Callable[[], nn.Module] = functools.partial(Decoder, symbols=25, outputs=25)
of_names: Callable[[], nn.Module] = functools.partial(Recurrent, outputs=2)
named_loss = functools.partial(token_loss, weight=torch.tensor([1.0, 50.0]))


def tags() -> Splits:
    return Splits(tagged(960, 11), tagged(240, 12))


def topic_rows() -> Splits:
    return Splits(topics(600, 13), topics(300, 14))


PAIRS: list[Pair] = [
    pair(
        *("F101", "a language, targets that are the inputs", ("NOT_SHIFTED", "LEAKAGE")),
        *(lambda: Language(lambda: lines(shift=0)), by(adam(2e-3), 12)),
        twin=lambda: Language(lines),
    ),
    pair(
        *("F102", "windows of a book, targets not moved on", ("NOT_SHIFTED", "LEAKAGE")),
        *(lambda: Language(lambda: book(shift=0), Recurrent), by(adam(5e-3), 10)),
        twin=lambda: Language(book, Recurrent),
    ),
    pair(
        *("F103", "a language, targets moved on twice", ("SHIFTED_TWICE", f"{UNLEARNED} OVERFIT")),
        *(lambda: Language(lambda: lines(shift=2)), by(adam(2e-3), 15)),
        twin=lambda: Language(lines),
    ),
    pair(
        *("F104", "a transformer without causal mask", ("PEEKING", "LEAKAGE")),
        *(lambda: Language(lines, lambda: Decoder(is_causal=False)), by(adam(3e-3), 25)),
        twin=lambda: Language(lines),
        cured=by(adam(3e-3), 12),
    ),
    pair(
        *("F105", "a language model that reads both ways", ("PEEKING", "LEAKAGE")),
        *(lambda: Language(book, two_ways), by(adam(5e-3), 12)),
        twin=lambda: Language(book, Recurrent),
    ),
    pair(
        *("F106", "sentences, the filling counted in the loss", ("PADDING_COUNTED", "IMBALANCE")),
        *(lambda: Language(lambda: filled_lines(is_counted=True), of_sentences), by(adam(2e-3), 12)),
        twin=lambda: Language(lambda: filled_lines(is_counted=False), of_sentences),
    ),
    pair(
        *("F107", "sentences of a Dataset, the filling counted in the loss", ("PADDING_COUNTED", "IMBALANCE")),
        *(lambda: Sentenced(is_counted=True), by(adam(5e-3), 12)),
        twin=lambda: Sentenced(is_counted=False),
    ),
    pair(
        *("F108", "a head with a copy of the embeddings", ("TIE_BROKEN", f"OVERFIT {UNLEARNED}")),
        *(lambda: Language(lambda: Splits(sticky(256, 1), sticky(128, 2)), lambda: Tied(is_copied=True)), by(adam(2e-3), 12)),
        twin=lambda: Language(lambda: Splits(sticky(256, 1), sticky(128, 2)), Tied),
    ),
    pair(
        *("F109", "topics, dropout in evaluation too", ("EVAL_DROPOUT", "UNDERFIT STALL OSCILLATING UNDERTRAINED")),
        *(lambda: Labelled(topic_rows, lambda: Pooled(is_always_dropping=True)), by(adam(5e-3), 30)),
        twin=lambda: Labelled(topic_rows, Pooled),
    ),
    pair(
        *("F110", "a transformer, learning rate 0.3 for Adam", ("LR_HIGH", f"{UNLEARNED} {UNSTABLE} VANISHING SATURATION")),
        *(lambda: Language(lines), by(adam(0.3), 12)),
        cured=by(adam(2e-3), 12),
    ),
    pair(
        *("F111", "a recurrent language model, learning rate 1e-6", ("LR_LOW", UNLEARNED)),
        *(lambda: Language(book, Recurrent), by({"name": "adamw", "lr": 1e-6}, 10)),
        cured=by({"name": "adamw", "lr": 5e-3}, 10),
    ),
    pair(
        *("F112", "a language, too few epochs", ("UNDERTRAINED", "UNDERFIT LR_LOW")),
        *(lambda: Language(lines), by(adam(2e-4), 8)),
        cured=by(adam(2e-4), 40),
    ),
    pair(
        *(
            "F113",
            "a softmax before the cross-entropy of tokens",
            ("OUT_ACT", f"{UNLEARNED} VANISHING SATURATION LR_LOW loss_unlearnable"),
        ),
        *(lambda: Language(lines, lambda: nn.Sequential(Decoder(), nn.Softmax(-1))), by(adam(2e-3), 15)),
        twin=lambda: Language(lines),
    ),
    pair(
        *("F114", "names among symbols, one in sixty", ("IMBALANCE", UNLEARNED)),
        *(lambda: Tagging(tags, of_names), by(adam(5e-3), 8)),
        twin=lambda: Tagging(tags, of_names, loss=named_loss),
    ),
    pair(
        *("F115", "forty lines learned by heart", ("OVERFIT", "STALL LABEL_NOISE")),
        *(lambda: Language(lambda: lines(rows=40)), by(adam(3e-3), 120, batch_size=20)),
        twin=lambda: Language(lambda: lines(rows=2560)),
        cured=by(adam(3e-3), 8),
    ),
    pair(
        *("F116", "gradients clipped to a norm of 1e-5", ("CLIP_TOO_SMALL", f"{UNLEARNED} LR_LOW VANISHING")),
        *(lambda: Language(book, Recurrent), by(sgd(0.5, 0.9), 10, clip={"norm": 1e-5})),
        cured=by(sgd(0.5, 0.9), 10, clip={"norm": 1.0}),
    ),
    pair(
        *(
            "F117",
            "a learning rate that is nothing after two epochs",
            ("STALL", "LR_LOW UNDERFIT UNDERTRAINED CONST_PRED rate_gone"),
        ),
        *(lambda: Language(lines), by(adam(5e-4), 20, schedule={"name": "exponential", "gamma": 0.1})),
        cured=by(adam(5e-4), 20, schedule={"name": "cosine"}),
    ),
    pair(
        *("F118", "a transformer, an optimizer of its biases alone", ("FROZEN", f"{UNLEARNED} LR_LOW")),
        lambda: Language(lines, updates=biases_alone),
        by({"name": "own"}, 15),
        twin=lambda: Language(lines, updates=all_weights),
    ),
    pair(
        *("F119", "topics, half of the validation texts trained on", ("LEAKAGE", "OVERFIT PIPELINE")),
        *(lambda: Labelled(lambda: known_topics(0.5), Pooled), by(adam(5e-3), 40)),
        twin=lambda: Labelled(lambda: known_topics(0.0), Pooled),
    ),
]

HEALTHY = [
    healthy(
        *("H101", "a language of which little can be known"),
        lambda: Language(lambda: lines(rows=1280, chances=(1 / 20,) * 20)),
        by(adam(1e-3), 12),
    ),
    healthy(
        "H102", "a language, causal", lambda: Language(lines), by({"name": "adamw", "lr": 3e-3}, 15, schedule={"name": "cosine"})
    ),
    healthy("H103", "sentences, the filling ignored", lambda: Sentenced(is_counted=False), by(adam(5e-3), 12)),
    healthy(
        *("H104", "names among symbols, weighted", lambda: Tagging(tags, of_names, loss=named_loss)),
        by(adam(5e-3), 12),
    ),
]
