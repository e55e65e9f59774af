"""Predictions with the delivered model: its own `inference.py`, run after all its files were verified."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mltrainer.errors import GateError, InputError
from mltrainer.executors import local
from mltrainer.executors.executor import PIPE, Command
from mltrainer.leftovers import scratch
from mltrainer.plugins import located
from mltrainer.records.checkpoint import DeliveredFiles
from mltrainer.records.partial import partial
from mltrainer.records.reading import read_record, sound_records
from mltrainer.reports.values import counted
from mltrainer.workspace import Project, files_of_model, sha256_file

if TYPE_CHECKING:
    import numpy as np

    from mltrainer.records.finalization import Finalization

SCRIPT = "inference.py"
WAIT_S = 60.0  # for a line, then again
MOST_SHOWN = 60  # characters of a model's unexpected output
TEXTS = (".csv", ".tsv")
TABLES = (*TEXTS, ".json", ".jsonl", ".ndjson", ".parquet")
FINISH = "mltrainer run"
BRING = "restore it, or: mltrainer phase run finalization"

Rows = Sequence[Mapping[str, Any]] | Sequence[str]


def delivered(project: Project) -> Path:
    """Return the folder of the delivered model, after comparing each of its files with the record.

    Raises:
        InputError: Finalization has not run, or a file is not here: weights stay out of git.
        GateError: The record or a file was changed, or there is one that was not delivered and might be run in place of another.
    """
    record = read_record(project, "finalization")
    if record is None or not partial(DeliveredFiles, record.evidence).model_files:
        raise InputError("finalization has delivered no model", hint=FINISH)
    if record.faults:
        raise GateError(record.faults[0], hint="mltrainer gate check finalization")
    final: Finalization = record.trusted.evidence
    for row in final.model_files:
        path = project.root / row.path
        if not path.is_file():
            raise InputError("a file of the delivered model is missing", where=row.path, hint=BRING)
        if sha256_file(path) != row.sha256:
            raise GateError("a file of the delivered model was changed", where=row.path, hint=BRING)
    script = next((row.path for row in final.model_files if Path(row.path).name == SCRIPT), None)
    if script is None and final.run.program:
        message = f"only the program can run its model: it left no {SCRIPT}"
        raise InputError(message, where=final.config["task"]["script"], hint="run it with your own code")
    if script is None:
        raise InputError(f"the delivered model has no {SCRIPT}", hint="mltrainer phase run finalization")
    folder = project.root / Path(script).parent
    known = {project.root / row.path for row in final.model_files}
    if added := next((path for path in files_of_model(folder) if path not in known), None):
        message = "a file beside the model was not delivered with it, and might run in its place"
        raise GateError(message, where=project.relative(added), hint="remove it")
    return folder


def require_apart(project: Project, out: Path, path: Path) -> None:
    """Refuse to write answers over the file that is asked about, or over one that the project was made from.

    Raises:
        InputError: It is such a file; the message says which.
    """
    records = sound_records(project)
    bound = {located(project.root, row.path).resolve() for record in records for row in record.inputs}
    what = "the file that is asked about" if out.resolve() == path.resolve() else "a file of the project's training"
    if out.resolve() in {path.resolve(), *bound}:
        raise InputError(f"it is {what}: nothing is written over it", where=str(out), hint="--out another file")


def predict(project: Project, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the delivered model's answer for each row, text or picture of a file.

    Args:
        project: The project.
        path: The model's input: rows as .csv, .json or .jsonl, texts, pictures or a folder of them, arrays as .npy.

    Raises:
        InputError: There is no delivered model, or the file does not suit it, with row and column, or has no row; or after the
            answers, they are fewer or more than the file's rows.
        GateError: A file of the model was changed.
    """
    folder = delivered(project)
    if not path.exists():
        hint = "name one that exists; a path is relative to the current folder"
        raise InputError("no such file or folder", where=str(path), hint=hint)
    if not (path.is_file() or path.is_dir()):
        hint = "write it to a file first, and name that"
        raise InputError(expected="a file or a folder", found="a pipe or a device", where=str(path), hint=hint)
    # -B, since asking the model must leave its folder as it was delivered.
    arguments = [sys.executable, "-B", str(folder / SCRIPT), str(path.resolve())]
    # A file: the script's messages are read at its end, and a full pipe would stop it.
    with tempfile.TemporaryFile() as errors:
        command = Command(arguments=arguments, folder=project.root, environment=os.environ, output=PIPE, errors=errors)
        process, given = local.start(command), 0
        try:
            while (lines := process.listen(WAIT_S)) is not None:
                for line in lines:
                    yield _answer(line, folder / SCRIPT)
                given += len(lines)
        finally:
            process.close()  # where not all answers were wanted, it ends at the next one
            code = process.wait()
        errors.seek(0)
        said = errors.read().decode("utf-8", errors="replace").strip()
    if code:
        message = said.rpartition("error: ")[2].splitlines()[-1] if said else "the model gave no answer"
        hint = f"{project.relative(folder / 'README.md')} says what the model reads and needs"
        raise InputError(message.removeprefix(f"{path.name}: "), where=str(path), hint=hint)
    _require_all(given, path, folder)


def _answer(line: bytes, script: Path) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        shown = line.decode("utf-8", "replace")[:MOST_SHOWN]
        message = f"it printed {shown!r}; one JSON object for each row was expected"
        raise InputError(message, where=str(script), hint=f"print everything else to standard error, then: {FINISH}") from error


def _require_all(given: int, path: Path, folder: Path) -> None:
    """Refuse a file without rows, and another number of answers than of rows; if they cannot be counted, no answers at all.

    Raises:
        InputError: There are no rows; or the numbers differ, and the message has both.
    """
    from mltrainer.checkpointing import inference_script

    script = folder / SCRIPT
    is_ours = script.read_bytes() == Path(inference_script.__file__).read_bytes()
    rows = (given,) if is_ours else rows_of(path, folder)  # ours answers each row, or ends with an error
    if given == 0 and rows is not None and 0 in rows:
        raise InputError("there are no rows to predict", where=str(path), hint="name a file that holds one row at least")
    is_wrong = given == 0 if rows is None else given not in rows
    if is_wrong:
        has = "an unknown number of rows" if rows is None else counted(rows[0], "row")
        message = f"expected one JSON object for each row, found {counted(given, 'answer')} for {path.name}, which has {has}"
        raise InputError(
            message, where=str(script), hint=f"let it print one for each row of the file that it is given, then: {FINISH}"
        )


def rows_of(path: Path, folder: Path) -> tuple[int, ...] | None:
    """Return the number of a file's rows; None if it cannot be counted, two if only the model knows of a header."""
    from mltrainer.checkpointing import inference_script

    suffix, described = inference_script.suffix_of(path), folder / "inference.json"
    if path.is_dir() or suffix not in (*TABLES, *inference_script.SHEETS, ".txt", ".npy"):
        return None
    try:
        if suffix in (".txt", ".json", ".jsonl", ".npy"):
            return (len(inference_script.read_raw(path)),)
        spec = json.loads(described.read_bytes()) if described.exists() else {}
        count = len(inference_script.read_table(path, spec))
    except (OSError, ValueError, inference_script.InvalidInputError):
        return None
    return (count,) if "header" in spec or suffix not in TEXTS else (count, count + 1)


@contextlib.contextmanager
def as_file(given: Path | Rows | np.ndarray, folder: Path) -> Iterator[Path]:
    """Yield the file that the delivered model reads; values are written to a file, which is removed afterwards.

    Args:
        given: A file or folder; or rows as mappings from column to value, texts, or an array that the model reads.
        folder: The folder of the delivered model; its inference.json names the column of texts.
    """
    if isinstance(given, Path):
        yield given
        return
    with scratch("predict-") as folder_of_rows:
        if isinstance(given, Sequence):
            path = folder_of_rows / "rows.jsonl"
            column = json.loads((folder / "inference.json").read_text("utf-8")).get("text")
            lines = ({column: row} if isinstance(row, str) and column else row for row in given)
            path.write_text("".join(json.dumps(_written(line), default=_cell) + "\n" for line in lines), "utf-8")
        else:
            import numpy as np

            path = folder_of_rows / "rows.npy"
            np.save(path, given, allow_pickle=False)
        yield path


def _written(row: Any) -> Any:
    """Return a row for JSON; a number that is not finite is a missing value."""
    if not isinstance(row, Mapping):
        return row
    return {name: None if isinstance(value, Real) and not _is_finite(value) else value for name, value in row.items()}


def _is_finite(value: Real) -> bool:
    return value == value and value not in (math.inf, -math.inf)


def _cell(value: Any) -> Any:
    """Return a value that JSON lacks: a scalar of NumPy as its number, a date as its text."""
    return value.item() if hasattr(value, "item") else str(value)
