"""Supervised fine-tuning of a causal model of transformers: a model learns the answers of conversations, not their prompts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from mltrainer.errors import InputError
from mltrainer.integrations.chats import TEMPLATE_FILE, Encoder, Tokens, read_rows
from mltrainer.integrations.transformers import IGNORED, OPTIONS, CausalLM
from mltrainer.tasks.text import interface

SAME = 1e-6  # of the loss; chosen by us


class FineTuning(CausalLM):
    """The answers of conversations, or the completions of prompts, by any causal model of transformers.

    The loss is the mean over the tokens of the answers in the whole step; `perplexity` and `accuracy` are those of these tokens.

    Args:
        data: A JSONL file, relative to the project. A line is `{"messages": [{"role": ..., "content": ...}, ...]}`, rendered by
            the tokenizer's chat template, or `{"prompt": ..., "completion": ...}`, taken as it is and ended by the `eos_token`.
        model: Model as in `Texts`.
        tokenizer: A folder with `tokenizer.json` and the files beside it, as `save_pretrained` writes it; None for the model's.
        length: The largest number of tokens of a sample.
        pack: Whether samples of a micro-batch share rows in training, where each sees only itself: the same loss, less padding.
        cut: Whether longer samples are cut at their end; else they are refused.
        template: Values for names in the chat template, such as `{date_string: "26 Jul 2024"}`.
        lora: Adapters as in `Texts`.
        architecture: Model class as in `Texts`.

    Raises:
        InputError: A file is missing or invalid, or options do not fit together.
    """

    _pads = False  # its labels say which tokens count

    def __init__(
        self,
        data: str,
        model: dict[str, Any] | str,
        tokenizer: str | None = None,
        length: int = 1024,
        pack: bool = False,
        cut: bool = False,
        template: dict[str, Any] | None = None,
        lora: dict[str, Any] | None = None,
        architecture: str | None = None,
    ) -> None:
        super().__init__(data, model, tokenizer, None, length, lora, architecture)
        self._packs, self._cuts = pack, cut
        self._encoder = Encoder(self._tokenizer_file, self._tokenizer, template or {})

    def _data_files(self) -> list[str]:
        return [self._data, *self._encoder.files]

    def samples(self) -> Conversations:
        """Return the rows as pairs of token ids and labels, int64 [tokens]; a label is `IGNORED` outside of answers."""
        rows = [self._encoder.tokens(row, place) for place, row in read_rows(Path(self._data))]
        self._refuse_long(rows)
        self._width = min(self._length, max(len(row.ids) for row in rows))
        _refuse_mute([row for row in rows if all(label == IGNORED for label in row.labels[: self._length])], self._length)
        return Conversations([(row.ids[: self._length], row.labels[: self._length]) for row in rows])

    def _refuse_long(self, rows: list[Tokens]) -> None:
        """Refuse samples that would be cut without the user's word.

        Raises:
            InputError: There are some; the message has their number and the longest one.
        """
        longer = [row for row in rows if len(row.ids) > self._length]
        if longer and not self._cuts:
            longest = max(longer, key=lambda row: len(row.ids))
            what = f"{len(longer)} of {len(rows)} samples have more than {self._length} tokens, the longest {len(longest.ids)}"
            hint = f"length: {len(longest.ids)}, or cut: true to leave their ends out"
            raise InputError(f"{what} ({longest.place})", where=f"{OPTIONS}.length", hint=hint)

    def collate(self, rows: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
        """Return ids and labels [samples, tokens of the longest], filled up at the right; with packing, `slots` between them."""
        ids = pad_sequence([ids for ids, _ in rows], batch_first=True)
        labels = pad_sequence([labels for _, labels in rows], batch_first=True, padding_value=IGNORED)
        return (ids, slots([len(ids) for ids, _ in rows], ids.shape[1]), labels) if self._packs else (ids, labels)

    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        """Return costs, rightness and labels as `LanguageModel` does; of packed rows only in training, else of single samples."""
        ids, *places, labels = batch
        return self._packed(model, *batch) if places and model.training else super().forward(model, (ids, labels))

    def _packed(self, model: nn.Module, ids: Tensor, places: Tensor, labels: Tensor) -> tuple[Any, Any]:
        # A sample's tokens begin in the first column: their column is their position.
        return self._compared(model(ids.flatten()[places], places % ids.shape[1]), labels.flatten()[places])

    @torch.no_grad()
    def check(self, model: nn.Module, batch: Any) -> None:
        """Refuse to pack for a model in which samples of a row see one another.

        Raises:
            InputError: The loss of two samples in one row is not that of the two alone.
        """
        if not self._packs:
            return
        ids, _, labels = (part[[0, -1]] for part in batch)
        together = torch.arange(ids.numel())[None]
        packed, alone = (
            self.loss(*found).item()
            for found in (self._packed(model, ids, together, labels), super().forward(model, (ids, labels)))
        )
        if not abs(packed - alone) <= SAME * max(1.0, alone):
            what = f"two samples have the loss {packed:.8g} in one row, and {alone:.8g} alone"
            hint = "pack: false, as this model does not keep samples of a row apart"
            raise InputError(what, where=f"{OPTIONS}.pack", hint=hint)

    def inference(self) -> dict[str, Any]:
        """Return the description of inputs and outputs: the number of tokens, the tokenizer's file, and how a prompt is made."""
        chats = {"conversations": self._encoder.described()}
        return interface.inference("text_generation", self._width, [], "logits of each next token", **chats)

    def delivered(self) -> dict[str, bytes]:
        """Return the tokenizer, and the chat template by which a conversation becomes a prompt."""
        template = self._encoder.template
        return {**super().delivered(), **({} if template is None else {TEMPLATE_FILE: template.encode()})}


class Conversations(Dataset[tuple[Tensor, Tensor]]):
    """Samples of unequal lengths, held in memory.

    Args:
        rows: The token ids and labels of each sample.
    """

    def __init__(self, rows: list[tuple[list[int], list[int]]]) -> None:
        self._rows = [(torch.tensor(ids), torch.tensor(labels)) for ids, labels in rows]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        return self._rows[place]


def _refuse_mute(rows: list[Tokens], length: int) -> None:
    """Refuse samples without a token to learn.

    Raises:
        InputError: There are some; the message has their number and the first one.
    """
    if rows:
        what = f"{len(rows)} samples have no token of an answer among their first {length}"
        raise InputError(what, where=rows[0].place, hint="leave such lines out, or take a larger length")


def slots(lengths: Sequence[int], width: int) -> Tensor:
    """Return the place in [samples, width] of each token of packed rows, int64 [rows, width].

    The longest samples come first, and each goes into the first row with room (first-fit decreasing). Rows are in the order of
    their first samples. An empty slot has the first token of all, which is never learned, as a text by itself.

    Args:
        lengths: The number of tokens of each sample, at most `width`.
        width: The number of slots of a row.
    """
    rows: list[list[int]] = []
    for sample in sorted(range(len(lengths)), key=lambda one: -lengths[one]):
        tokens = [*range(sample * width, sample * width + lengths[sample])]
        row = next((row for row in rows if len(row) + len(tokens) <= width), None)
        rows.append(tokens) if row is None else row.extend(tokens)
    return torch.tensor([row + [0] * (width - len(row)) for row in sorted(map(sorted, rows))])
