"""Foreign weights as they were imported: `origin.json` beside them."""

from __future__ import annotations

from typing import Any

from mltrainer.records.common import FileRow, Part

ORIGIN_FILE = "origin.json"


class TensorRow(Part):
    """A tensor that the file and the model do not have in common; the shape is None where it is missing."""

    name: str
    in_file: list[int] | None
    in_model: list[int] | None


class Imported(Part):
    """Imported weights.

    Attributes:
        files: The foreign files; their paths are as they were given.
        declared: What a `config.json` beside them says of the model; empty without one.
        tensors: The number of tensors in the files; `loaded`: of those that the model takes.
        others: The tensors that only one of both has, or that have another shape.
        start: The keys of `start` in mltrainer.yaml by which a model begins with them.
        weights_sha256: The digest of the imported weights.
    """

    files: list[FileRow]
    declared: dict[str, Any]
    tensors: int
    loaded: int
    others: list[TensorRow]
    start: dict[str, Any]
    weights_sha256: str
