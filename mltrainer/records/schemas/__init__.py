"""The JSON Schema of each phase's record and of a referee's verdict, for other languages; written by `make schemas`."""

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from mltrainer.records.envelope import EVIDENCE, Envelope
from mltrainer.records.trial_table import FIRST, LAST, MOST_ROWS, TRIALS
from mltrainer.records.verdict import VERDICT_FILE, Verdict
from mltrainer.workspace import pretty_json, write_atomic

FOLDER = Path(__file__).parent
BESIDE = {
    "description": f"Of more than {MOST_ROWS} trials: the SHA-256 of {FIRST}<its first 12 digits>{LAST} beside the record, which "
    "holds JSON by columns: `of` the values, and `at` the rows that have them, where not all do.",
    "properties": {"rows": {"type": "integer"}, "table": {"pattern": "^[0-9a-f]{64}$", "type": "string"}},
    "required": ["rows", "table"],
    "type": "object",
}


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of each phase's records, and of a verdict, by file name."""
    record: Any = Envelope
    found = {f"{phase}.json": TypeAdapter(record[kind]).json_schema(by_alias=True) for phase, kind in EVIDENCE.items()}
    searched = found["optimization.json"]["$defs"]["Searched"]["properties"]
    searched[TRIALS] = {"anyOf": [searched[TRIALS], BESIDE]}
    return {**found, VERDICT_FILE: TypeAdapter(Verdict).json_schema(by_alias=True)}


def write() -> None:
    """Write the schemas to this folder."""
    for name, schema in schemas().items():
        write_atomic(FOLDER / name, pretty_json(schema))
