"""A file of predicted rows: the given columns, and behind them the answers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mltrainer.errors import InputError
from mltrainer.workspace import write_atomic

FORMATS = (".csv", ".parquet")
Row = dict[str, Any]


def require_format(out: Path) -> Path:
    """Return the path of a table to write.

    Raises:
        InputError: Its name ends in neither of `FORMATS`.
    """
    if out.suffix.lower() not in FORMATS:
        raise InputError(
            f"a table is written as {' or '.join(FORMATS)}", where=str(out), hint="name the file so: --out answers.csv"
        )
    return out


def write_answers(out: Path, rows: Path, model: Path, answers: Iterable[Mapping[str, Any]]) -> int:
    """Write the answers beside their rows, and return the number of rows.

    Args:
        out: The file, a .csv or a .parquet.
        rows: The file or folder that was predicted from; pictures and arrays have no columns to be repeated.
        model: The folder of the delivered model; its inference.json describes its input.
        answers: One for each row.

    Raises:
        InputError: A column of the rows is called as one of the answers'.
    """
    spec = json.loads((model / "inference.json").read_text("utf-8"))
    answer_rows = [columns_of(answer) for answer in answers]
    given = _input_rows(rows, spec) or [{} for _ in answer_rows]
    names = dict.fromkeys(name for row in answer_rows for name in row)
    if taken := [name for name in names if given and name in given[0]]:
        raise InputError(f"column {taken[0]!r} has the name of an answer's column", where=str(rows), hint="rename it in the file")
    table = [{**row, **dict.fromkeys(names), **answer} for row, answer in zip(given, answer_rows, strict=True)]
    write_atomic(out, _parquet(table) if out.suffix.lower() == ".parquet" else _csv(table))
    return len(table)


def columns_of(answer: Mapping[str, Any]) -> Row:
    """Return an answer as cells: the prediction, its probability, the ends of its interval, the set of classes.

    With several targets each column ends in the target's name.
    """
    value, chances = answer.get("prediction"), answer.get("probabilities") or {}
    if isinstance(value, Mapping):
        parts = [(name, {"prediction": one, "probabilities": chances.get(name)}) for name, one in value.items()]
        return {f"{column} {name}": cell for name, part in parts for column, cell in columns_of(part).items()}
    cells = {key: cell for key, cell in answer.items() if key not in ("probabilities", "interval", "set", "output")}
    cells |= {"probability": chances.get(str(value))} if chances else {}
    cells |= dict(zip(("low", "high"), answer.get("interval", ()), strict=False))
    cells |= {"set": " | ".join(map(str, answer["set"]))} if "set" in answer else {}
    return cells | {f"output {nr}": cell for nr, cell in enumerate(answer.get("output", ()))}


def _input_rows(path: Path, spec: Mapping[str, Any]) -> list[Row]:
    """Return the rows of a table or the texts that a model reads; empty for pictures, arrays and a project module's input."""
    from mltrainer.checkpointing.inference_script import read_table, read_texts  # here, because it imports numpy

    kind = spec["input"].get("name") if isinstance(spec.get("input"), dict) else None
    if "preprocess" in spec or kind not in ("table", "texts"):
        return []
    if kind == "texts" and path.suffix == ".txt":
        return [{"text": text} for text in read_texts(path, dict(spec))]
    return [dict(row) for row in read_table(path, dict(spec))]


def _csv(table: Sequence[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(table[0]) if table else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue().encode()


def _parquet(table: Sequence[Row]) -> bytes:
    import polars

    data = io.BytesIO()
    polars.DataFrame(table, infer_schema_length=None).write_parquet(data)
    return data.getvalue()
