"""The JSON Schema of each phase's record, for readers in other languages; written by `make schemas`."""

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from mltrainer.records.envelope import EVIDENCE, Envelope
from mltrainer.workspace import pretty_json, write_atomic

FOLDER = Path(__file__).parent


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of each phase's records, by file name."""
    record: Any = Envelope
    return {f"{phase}.json": TypeAdapter(record[kind]).json_schema(by_alias=True) for phase, kind in EVIDENCE.items()}


def write() -> None:
    """Write the schemas anew."""
    for name, schema in schemas().items():
        write_atomic(FOLDER / name, pretty_json(schema))
