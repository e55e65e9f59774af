"""The JSON Schema of each phase's record, for readers in other languages; written by `make schemas`."""

from pathlib import Path
from typing import Any

from mltrainer.records.envelope import EVIDENCE, adapter
from mltrainer.workspace import pretty_json, write_atomic

FOLDER = Path(__file__).parent


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of each phase's records, by file name."""
    return {f"{phase}.json": adapter(phase).json_schema(by_alias=True) for phase in EVIDENCE}


def write() -> None:
    """Write the schemas anew."""
    for name, schema in schemas().items():
        write_atomic(FOLDER / name, pretty_json(schema))
