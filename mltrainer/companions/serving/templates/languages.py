"""JSON Schema in Python, TypeScript and SQL. A user's text becomes a quoted value, or a name of safe letters."""

from __future__ import annotations

import builtins
import json
import keyword
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, TypeAdapter

from mltrainer.companions.serving import contract
from mltrainer.errors import InputError

MOST_NAME = 40  # characters; PostgreSQL cuts names after 63 bytes, and endings are added here
_GERMAN = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"})


# --- values ---------------------------------------------------------------------------------------


def python_literal(value: Any) -> str:
    """Return a value as Python source, in ASCII."""
    # JSON's escapes are Python's, too, except for characters past U+FFFF, which JSON writes as two.
    return json.dumps(value) if isinstance(value, str) and value.isascii() else ascii(value)


def typescript_literal(value: Any) -> str:
    """Return a value as TypeScript source, in ASCII: JSON is a subset of TypeScript."""
    return json.dumps(value)


def sql_literal(text: str) -> str:
    """Return a text as a literal of standard SQL.

    Raises:
        InputError: The text holds NUL, which PostgreSQL cannot store.
    """
    if "\0" in text:
        raise InputError("PostgreSQL cannot store the character NUL", where=repr(text), hint="rename the column or class")
    return "'" + text.replace("'", "''") + "'"


def comment(text: str) -> str:
    """Return a text for a comment: on one line, in printable ASCII."""
    return re.sub(r"[^\x20-\x7e]", "?", text)


def word(text: str) -> str:
    """Return the letters, digits, points, underscores and hyphens of a text: nothing that a shell or a path reads otherwise."""
    return re.sub(r"[^\w.-]", "", text, flags=re.ASCII)


# --- names ----------------------------------------------------------------------------------------


def identifier(text: str) -> str:
    """Return a name for a text in Python, TypeScript, SQL, a file and a variable: small letters, digits, underscores."""
    plain = unicodedata.normalize("NFKD", text.translate(_GERMAN)).encode("ascii", "ignore").decode().lower()
    name = re.sub("[^a-z0-9]+", "_", plain).strip("_")[:MOST_NAME].rstrip("_")
    return name if name[:1].isalpha() else f"x_{name}".rstrip("_")


def attributes(names: Iterable[str]) -> dict[str, str]:
    """Return a pydantic attribute for each name: no duplicate, no attribute of pydantic, no built-in name."""
    attribute_of: dict[str, str] = {}
    for name in names:
        base = identifier(name)
        base = f"{base}_" if keyword.iskeyword(base) or hasattr(BaseModel, base) or hasattr(builtins, base) else base
        taken, number, free = set(attribute_of.values()), 1, base
        while free in taken:
            number += 1
            free = f"{base}_{number}"
        attribute_of[name] = free
    return attribute_of


# --- types ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Language:
    """How a language writes types.

    Attributes:
        names: Types of the language by JSON Schema's.
        anything: Type of any value.
        array: Template of a list's type.
        mapping: Template of the type of an object with texts as keys.
        chosen: Function that returns the type of listed values.
    """

    names: Mapping[str, str]
    anything: str
    array: str
    mapping: str
    chosen: Callable[[list[Any]], str]

    def type_of(self, schema: Schema) -> str:
        """Return a schema's type."""
        return " | ".join(dict.fromkeys(map(self._one, kinds(schema))))

    def _one(self, schema: Schema) -> str:
        if name := reference(schema):
            return name
        if values := choices(schema):
            return self.chosen(values)
        kind = schema.get("type")
        if kind == "array":
            return self.array.format(self.type_of(schema.get("items", {})))
        if kind == "object":
            inner = schema.get("additionalProperties")
            return self.mapping.format(self.type_of(inner if isinstance(inner, dict) else {}))
        return self.names[kind] if kind else self.anything


_BOTH = "int | float"  # a whole number stays one: as a category 3 is not 3.0
PYTHON = Language(
    {"string": "str", "number": _BOTH, "integer": "int", "boolean": "bool", "null": "None"},
    anything="Any",
    array="list[{}]",
    mapping="dict[str, {}]",
    chosen=lambda values: f"Literal[{', '.join(map(python_literal, values))}]",
)
TYPESCRIPT = Language(
    {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"},
    anything="unknown",
    array="Array<{}>",
    mapping="Record<string, {}>",
    chosen=lambda values: " | ".join(map(typescript_literal, values)),
)


# --- checks of PostgreSQL -------------------------------------------------------------------------


def sql_check(schema: Schema, schemas: Mapping[str, Schema], value: str) -> str:
    """Return an SQL expression that is true if a jsonb value fulfils a schema; lists are only checked to be lists.

    Args:
        schema: Schema of the value.
        schemas: Schemas that it may refer to, by name.
        value: SQL expression of the value.
    """
    resolved_schema = resolved(schema, schemas)
    if values := choices(resolved_schema):
        return f"{value} in ({', '.join(_jsonb(one) for one in values)})"
    if "properties" in resolved_schema:
        return _sql_object(resolved_schema, schemas, value)
    types = [one.get("type") for one in kinds(resolved_schema)]
    if None in types:
        return "true"
    known = ["number" if kind == "integer" else str(kind) for kind in types]
    return f"jsonb_typeof({value}) in ({', '.join(map(sql_literal, dict.fromkeys(known)))})"


def _sql_object(schema: Schema, schemas: Mapping[str, Schema], value: str) -> str:
    names = f"array[{', '.join(map(sql_literal, schema['properties']))}]::text[]"
    needed = ", ".join(map(sql_literal, schema.get("required", [])))
    tests = [f"{value} ?& array[{needed}]::text[]"] if needed else []
    tests += [f"{value} - {names} = '{{}}'::jsonb"] if schema.get("additionalProperties") is False else []
    for name, part in schema["properties"].items():
        cell = f"{value} -> {sql_literal(name)}"
        test = sql_check(part, schemas, f"({cell})")
        tests.append(test if name in schema.get("required", []) else f"({cell} is null or {test})")
    # A case expression, so that keys are read only from an object.
    inner = "\n      and ".join(tests) or "true"
    return f"case when jsonb_typeof({value}) = 'object' then\n      {inner}\n    else false end"


def _jsonb(value: Any) -> str:
    return f"{sql_literal(json.dumps(value, ensure_ascii=False))}::jsonb"


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
