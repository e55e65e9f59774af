"""The published schemas of the commands' JSON: those of the questions' models, else inferred from what commands print in tests.

`python -m tests.outputs TESTS` runs tests and widens the schemas by what their commands print. Every other run of the tests
refuses an object that its command's schema does not describe, keys within keys included.
"""

from __future__ import annotations

import functools
import importlib
import json
import operator
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_type_hints

import pytest
import typer
from pydantic import TypeAdapter
from typer.core import TyperGroup

from mltrainer.cli.app import cli as program
from mltrainer.companions.questions.catalogue import QUESTIONS
from mltrainer.records import schemas
from mltrainer.workspace import pretty_json, write_atomic

Schema = dict[str, Any]

FILE = schemas.FOLDER / "commands.json"
WRITES = "MLTRAINER_WRITES_SCHEMAS"  # the variable that says so to the tests
ERROR = "error"  # the name of what every command prints in place of its object
NUMBER = ["number", "string"]  # JSON has none that is not finite: those are "nan", "inf" and "-inf"
ANY = ("array", "boolean", "null", "object", *NUMBER)
NOT_FINITE = {"nan", "inf", "-inf"}
# Objects whose keys are names of the project or of the machine: metrics, files, config keys, libraries.
BY_NAME = {
    "acceptance",
    "aliases",
    "behind",
    "by",
    "contract",
    "damaged",
    "files",
    "left",
    "libraries",
    "metrics",
    "numbers",
    "set",
    "stages",
}
BY_NAME |= {"tested", "thresholds", "verdicts"}
SERVERS = ("monitor", "serve")  # commands that print their address alone, and answer until a signal ends them
FREE = {"answers", "evidence", "task"}  # objects that each check or task makes itself


def published() -> dict[str, Schema]:
    """Return the schema of each command's object, by the command's name."""
    return json.loads(FILE.read_bytes()) if FILE.exists() else {}


def of_models() -> dict[str, Schema]:
    """Return the schemas of the questions that print their answer as it is."""
    found = {}
    for question in QUESTIONS:
        calls = [getattr(importlib.import_module(question.module), call) for call in question.calls]
        answer: Any = functools.reduce(operator.or_, [get_type_hints(call)["return"] for call in calls])
        found[question.command] = _opened(TypeAdapter(answer).json_schema(mode="serialization"))
    return {name: schema for name, schema in found.items() if name != "diagnose"}  # prints findings, and these by option


def of_servers() -> dict[str, Schema]:
    """Return the schemas of the commands that print their address."""
    return {name: widened(None, {"url": ""}) for name in SERVERS}


def check(words: Sequence[str], printed: str) -> Any:
    """Return the object that a command printed, which must be as published; or publish it, where that was asked for.

    None for what is no object, as a test of this expects, and for a command of a plug-in.
    """
    try:
        found = json.loads(printed)
    except ValueError:
        return None
    if (name := command_of(words)) is None:
        return None
    name = ERROR if found.keys() == {ERROR} else name
    if os.environ.get(WRITES) and name not in of_models():
        known = published()
        write_atomic(FILE, pretty_json({**known, name: widened(known.get(name), found)}))
    assert (fault := fault_of(name, found)) is None, f"{name}: {fault}; a new key is published by: python -m tests.outputs TESTS"
    return found


def command_of(words: Sequence[str]) -> str | None:
    """Return the name of the command that some words are; None for that of a plug-in, or of none."""
    names = (" ".join(words[:count]) for count in (3, 2, 1))
    return next((name for name in names if name in commands()), None)


@functools.cache
def commands() -> dict[str, Any]:
    """Return every command that does something, by its name."""
    return dict(_commands(program))


def _commands(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(command, TyperGroup):
        yield path, command
        return
    context = typer.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from _commands(found, f"{path} {name}".strip())


def fault_of(name: str, found: Any) -> str | None:
    """Return what a command's schema refuses of an object, with its place; None where it describes the object."""
    import jsonschema

    schema = published().get(name, {"not": {}})
    faults = jsonschema.Draft202012Validator(_closed(schema)).iter_errors(found)
    worst = jsonschema.exceptions.best_match(faults)
    return worst and f"{worst.json_path}: {worst.message}"


# --- inferring ------------------------------------------------------------------------------------


def widened(schema: Schema | None, found: dict[str, Any]) -> Schema:
    """Return a schema that describes an object, too; objects of other keys are alternatives."""
    new = inferred(found)
    ways = (schema or {"anyOf": []})["anyOf"]
    same = [one for one in ways if one["properties"].keys() == new["properties"].keys()]
    others = [one for one in ways if one not in same]
    return {"anyOf": sorted([*others, _joined([*same, new])], key=lambda one: sorted(one["properties"]))}


def inferred(value: Any, key: str = "") -> Schema:
    """Return the schema of a value, which stands under a key."""
    if isinstance(value, dict) and key in FREE:
        return {"type": ["object"]}
    if isinstance(value, dict) and key in BY_NAME:
        return {"type": ["object"], "additionalProperties": _joined(map(inferred, value.values()))}
    if isinstance(value, dict):
        inner = {name: inferred(item, name) for name, item in value.items()}
        return {"type": ["object"], "properties": inner, "required": sorted(inner)}
    if isinstance(value, list):
        return {"type": ["array"], "items": _joined(inferred(item, key) for item in value)}
    if isinstance(value, str) and value in NOT_FINITE:
        return {"type": NUMBER}
    kinds = {bool: ["boolean"], int: NUMBER, float: NUMBER, str: ["string"], type(None): ["null"]}
    return {"type": kinds[type(value)]}


def _joined(schemas: Iterable[Schema]) -> Schema:
    """Return the schema of values that have one of some schemas; of none: that of any value."""
    first, *others = [*schemas] or [{}]
    for other in others:
        first = _both(first, other)
    return first


def _both(one: Schema, other: Schema) -> Schema:
    if not one or not other:
        return one or other
    both = {**one, **other, "type": sorted({*one["type"], *other["type"]})}
    if "properties" in one and "properties" in other:
        inner = [one["properties"], other["properties"]]
        both["properties"] = {key: _joined(part[key] for part in inner if key in part) for key in sorted({*inner[0], *inner[1]})}
        both["required"] = sorted({*one["required"]} & {*other["required"]})
    for key in {"items", "additionalProperties"} & one.keys() & other.keys():
        both[key] = _both(one[key], other[key])
    return both


def _closed(schema: Any) -> Any:
    """Return a schema that refuses keys that it does not name; published ones allow them, since later versions add some.

    Any value may be null, and what was always null may be anything: that depends on the machine and its pace.
    """
    if isinstance(schema, list):
        return [*map(_closed, schema)]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(part) for key, part in schema.items()}
    if isinstance(schema.get("type"), list):
        closed["type"] = [*{*schema["type"], "null"}] if schema["type"] != ["null"] else [*ANY]
    return (
        {"additionalProperties": False, **closed} if isinstance(schema.get("properties"), dict) and "type" in schema else closed
    )


def _opened(schema: Any) -> Any:
    if isinstance(schema, list):
        return [*map(_opened, schema)]
    if not isinstance(schema, dict):
        return schema
    left_out = {"additionalProperties": False, "title": schema.get("title", "")}
    kept = {key: _opened(part) for key, part in schema.items() if isinstance(part, dict) or left_out.get(key) != part}
    return {**kept, "type": NUMBER} if kept.get("type") == "number" else kept


if __name__ == "__main__":
    write_atomic(FILE, pretty_json({**published(), **of_models(), **of_servers()}))
    os.environ[WRITES] = "1"
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
