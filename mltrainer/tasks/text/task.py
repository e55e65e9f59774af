"""Text classification: texts as token ids, their tokenizer trained on the training split or given as a file."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import Split, TextModel, Tokens, TrainingConfig
from mltrainer.errors import InputError
from mltrainer.tasks import data_findings
from mltrainer.tasks.builtin import Classification, ReferenceInputs
from mltrainer.tasks.content import Source, Table
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.metric_names import CLASSIFICATION_METRICS
from mltrainer.tasks.segments import SegmentFeature
from mltrainer.tasks.sources import table_of
from mltrainer.tasks.splits import SplitConstraints, SplitIds
from mltrainer.tasks.tables import split_columns
from mltrainer.tasks.text import interface, tokenizing
from mltrainer.tasks.text.labelled_texts import classes_of, folder_target, text_cells, text_column
from mltrainer.tasks.text.models import classifier


class TextClassification(Classification):
    """The classification of texts.

    Attributes:
        texts: The texts of all samples; rows without a text or without a class are left out.
    """

    def __init__(self, config: TrainingConfig, source: Source) -> None:
        assert config.data is not None
        if not isinstance(source.content, Table):
            what = "text_classification needs texts with their classes, found arrays"
            raise InputError(
                what, where="task.kind", hint="bring a CSV, Parquet or JSONL file, or a folder of .txt files per class"
            )
        table, self._target = table_of(source.content, config.data.target or folder_target(source.content))
        self._column = text_column(table, config.data.text, self._target, config.data.ignore)
        self._config, self._source, self._tokens = config, source, config.data.tokens or Tokens()
        self._table = table
        self._take(text_cells(table, self._column), text_cells(table, self._target))
        data_findings.refuse_one_class(self.classes, table.place)
        data_findings.refuse_unknown_metric(config.metric.name, CLASSIFICATION_METRICS)

    def _take(self, texts: list[str], cells: list[str]) -> None:
        """Keep the rows that have both a text and a class, and note the number of the others."""
        kept = [row for row, (text, cell) in enumerate(zip(texts, cells, strict=True)) if text and cell]
        self._kept, self.texts = kept, [texts[row] for row in kept]
        self.labels, self.classes = classes_of([cells[row] for row in kept])
        self.size = len(kept)
        self.given = None if self._source.given is None else self._source.given[kept]
        without = {self._column: sum(not text for text in texts), self._target: sum(not cell for cell in cells)}
        gaps = [f"{count} rows have no {name!r}" for name, count in without.items() if count]
        self._left_out = f"{len(texts) - self.size} of {len(texts)} rows were left out: {', '.join(gaps)}" if gaps else None

    def fit(self, train: np.ndarray) -> None:
        """Train the tokenizer on the training texts, unless one is given, and encode all texts."""
        given = self._source.tokenizer
        if given is None:
            self._tokenizer = tokenizing.train((self.texts[row] for row in train), self._tokens)
        else:
            self._tokenizer = tokenizing.load(given, str(self._tokens.file))
        self._padding = tokenizing.padding_of(self._tokenizer)
        self._encoded = tokenizing.encode(self._tokenizer, self.texts, self._tokens.length)
        self._width = self._encoded.width(train, self._tokens.length)

    def rows(self, ids: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return token ids int64 [texts, tokens of the longest training text] and class numbers."""
        return torch.from_numpy(self._encoded.matrix(ids, self._width, self._padding)), torch.from_numpy(self.labels[ids])

    def place(self, row: int) -> str:
        """Return the file and line of a text."""
        return self._table.where(self._kept[row])

    def cells(self, row: int) -> dict[str, str]:
        """Return the text."""
        return {self._column: self.texts[row]}

    def keys(self) -> np.ndarray:
        """Return a hash of each text."""
        digests = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in self.texts)
        return np.frombuffer(digests, dtype=np.uint64)

    def split_constraints(self, split: Split) -> SplitConstraints:
        """Return the constraints by the split's columns, or of equal texts.

        Raises:
            InputError: There is no such column, or its cells are not valid.
        """
        assert self._config.data is not None
        rows = split_columns.Rows(self._table, np.array(self._kept))
        return split_columns.of_columns(rows, split, self.keys, self._config.data)

    def model(self) -> nn.Module:
        """Return the config's model of texts."""
        assert isinstance(self._config.model, TextModel)
        return classifier(self._config.model, self._tokenizer.get_vocab_size(), self._padding, self._width, len(self.classes))

    def inference(self) -> dict[str, Any]:
        """Return the text's column, the target, the tokenizer's file and the classes."""
        assert self._config.data is not None
        columns: dict[str, Any] = {"text": self._column, "target": self._target, **self._config.data.reading}
        return interface.inference("text_classification", self._width, self._source.notes, **columns, classes=self.classes)

    def delivered(self) -> dict[str, bytes]:
        """Return the tokenizer, which cuts and pads the model's input."""
        return {interface.TOKENIZER_FILE: tokenizing.fixed(self._tokenizer, self._width)}

    def features(self, ids: np.ndarray) -> list[SegmentFeature]:
        """Return the texts' lengths in tokens, before the cut to the model's width."""
        return [SegmentFeature("tokens", self._encoded.lengths[ids].astype(np.float64))]

    def reference_inputs(self, ids: np.ndarray) -> ReferenceInputs:
        """Return the texts and class numbers of some rows."""
        return ReferenceInputs("texts", [self.texts[row] for row in ids], self.labels[ids])

    def describe(self, ids: SplitIds) -> dict[str, Any]:
        """Return the column of texts, and the number of tokens of a sample."""
        seen = [self.texts[row] for part in ids.values() for row in part]
        column = {"name": self._column, "kind": "text", "missing": 0, "distinct": len(set(seen))}
        return {"columns": [column], "target": None, "shape": [self._width]}

    def findings(self, ids: SplitIds, limits: DataLimits) -> list[Finding]:
        """Return imbalance, rows that were left out, lengths, cut texts, and the share of unknown tokens."""
        notes = [Finding("info", note) for note in [*self._source.notes, *self._lengths(ids), self._known(ids)]]
        left_out = [Finding("warning", self._left_out)] if self._left_out else []
        return [*self._class_findings(ids, limits), *left_out, *self._near_duplicates(ids, limits), *notes]

    def _near_duplicates(self, ids: SplitIds, limits: DataLimits) -> list[Finding]:
        """Return a warning where validation texts have the words of a training text, but are no exact copies."""
        texts = {self.texts[row] for row in ids.train}
        words = set(map(_words, texts))
        held_out = [self.texts[row] for row in ids.validation]
        near = sum(text not in texts and _words(text) in words for text in held_out)
        if near < limits.leak_rows * len(held_out):
            return []
        what = f"{near} of {len(held_out)} validation texts have the words of a training text: are they copies?"
        return [Finding("warning", f"{what} Then remove them, or split by what they share")]

    def _lengths(self, ids: SplitIds) -> list[str]:
        lengths = self._encoded.lengths[ids.train]
        # Lengths that occur, as interpolated ones would be no numbers of tokens.
        median, most = np.percentile(lengths, [50, 95], method="inverted_cdf")
        lengths_note = (
            f"training texts have {median} tokens in the median, {most} at the 95th percentile, {lengths.max()} at most"
        )
        cut = float((lengths > self._tokens.length).mean())
        return [
            lengths_note,
            f"{cut:.1%} of the training texts are longer than data.tokens.length {self._tokens.length} and cut at their end",
        ]

    def _known(self, ids: SplitIds) -> str:
        size, unknown = self._tokenizer.get_vocab_size(), tokenizing.unknown_of(self._tokenizer)
        rows = self._encoded.matrix(ids.validation, self._width, self._padding)
        share = float((rows == unknown).sum() / max(1, (rows != self._padding).sum())) if unknown is not None else 0.0
        origin = f"comes from {self._tokens.file}" if self._tokens.file else "was trained on the training texts"
        return f"the tokenizer {origin} and knows {size} tokens; {share:.1%} of those of the validation texts are unknown to it"


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", text.casefold()))
