"""The types of a model's requests and answers as JSON Schema, by name: the server checks requests against the same types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from mltrainer.companions.serving import contract

Schema = dict[str, Any]
_MOST = 1000  # rows; never written into a file: the server has its own limit
_REFERENCE = "#/$defs/"


def schemas_of(spec: Mapping[str, Any]) -> dict[str, Schema]:
    """Return the schemas of Request, Response, Labels and Fault, each after the ones that it refers to.

    Args:
        spec: Content of the model's `inference.json`.
    """
    row = contract.row_of(spec)
    roots = (contract.request_of(row, _MOST), contract.response_of(spec), contract.labels_of(spec, _MOST), contract.Fault)
    schemas: dict[str, Schema] = {}
    for root in roots:
        schema = TypeAdapter(root).json_schema()
        schemas |= schema.pop("$defs", {}) | {root.__name__: schema}
    return schemas


def row_schema(schemas: Mapping[str, Schema]) -> Schema:
    """Return the schema of one row of a request."""
    return resolved(schemas["Request"]["properties"]["rows"]["items"], schemas)


def resolved(schema: Schema, schemas: Mapping[str, Schema]) -> Schema:
    """Return a schema, or the one that it refers to."""
    name = reference(schema)
    return schemas[name] if name else schema


def reference(schema: Schema) -> str | None:
    """Return the name of the schema that one refers to."""
    target = schema.get("$ref")
    return str(target).removeprefix(_REFERENCE) if target else None


def kinds(schema: Schema) -> list[Schema]:
    """Return the alternatives of a schema; a list of types counts as several."""
    if isinstance(types := schema.get("type"), list):
        return [{**schema, "type": one} for one in types]
    return list(schema["anyOf"]) if "anyOf" in schema else [schema]


def choices(schema: Schema) -> list[Any]:
    """Return the values that a schema lists, if any."""
    return [schema["const"]] if "const" in schema else list(schema.get("enum", []))
