"""From a file that a person wrote to a validated model, or an error that says where and what."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from mltrainer.configs import yaml
from mltrainer.errors import InputError

Model = TypeVar("Model", bound=BaseModel)


class Strict(BaseModel):
    """Base of every model of a file: frozen, exact types, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def read_text(path: Path, what: str) -> bytes:
    """Read a file that a person writes.

    Raises:
        InputError: It is missing, a folder, or may not be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{what} cannot be read: {error.strerror}", where=str(path)) from error


def validate(model: type[Model], document: yaml.Document) -> Model:
    """Return the model that a document describes.

    Raises:
        InputError: All faults at once, each with file, line, key, what was expected and found.
    """
    value = {} if document.value is None else document.value
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = [_fault(model, document, fault) for fault in error.errors(include_url=False)]
        raise InputError("\n".join(dict.fromkeys(faults))) from error


def _fault(model: type[BaseModel], document: yaml.Document, fault: Any) -> str:
    path = _own_path(document, fault["loc"])
    if fault["type"] == "extra_forbidden":
        names = known_keys(model, fault["loc"][:-1])
        close = difflib.get_close_matches(str(path[-1]), names, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(sorted(names)) or 'none'}"
        return f"{document.where(path)}: unknown key {path[-1]!r}; {hint}"
    found = fault.get("input")
    shown = "" if fault["type"] == "missing" else f"; found {found!r}"[:200]
    return f"{document.where(path)}: {fault['msg']}{shown}{_nearest(fault)}"


def _nearest(fault: Any) -> str:
    """Suggest the nearest allowed word for a wrong one."""
    context = fault.get("ctx") or {}
    allowed = str(context.get("expected_tags") or context.get("expected") or "")
    words = [word.strip(" '\"") for word in allowed.replace(" or ", ",").split(",")]
    found = context.get("tag", fault.get("input"))
    close = difflib.get_close_matches(found, words, n=1, cutoff=0.5) if isinstance(found, str) else []
    return f"; did you mean {close[0]!r}?" if close else ""


def _own_path(document: yaml.Document, location: tuple[Any, ...]) -> yaml.Path:
    """Drop the names of union members that pydantic adds to a location."""
    path: yaml.Path = ()
    for position, part in enumerate(location):
        if (*path, part) in document.lines or position == len(location) - 1:
            path = (*path, part)
    return path


def known_keys(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """Return the keys that are valid at a place, whose union members are named by their tag."""
    schema = model.model_json_schema()
    return sorted(_keys(schema, schema, list(location)))


def _keys(root: dict[str, Any], node: dict[str, Any], rest: list[Any]) -> set[str]:
    while "$ref" in node:
        node = root["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    for tag, target in node.get("discriminator", {}).get("mapping", {}).items():
        if rest and rest[0] == tag:
            return _keys(root, {"$ref": target}, rest[1:])
    branches = node.get("anyOf", []) + node.get("oneOf", [])
    if branches:
        return set().union(*(_keys(root, branch, rest) for branch in branches))
    properties = node.get("properties", {})
    if not rest:
        return set(properties)
    head, tail = rest[0], rest[1:]
    if head in properties:
        return _keys(root, properties[head], tail)
    if isinstance(head, int) and "items" in node:
        return _keys(root, node["items"], tail)
    return _keys(root, node, tail) if tail else set(properties)


def set_dotted(value: dict[str, Any], assignment: str) -> dict[str, Any]:
    """Return a copy of nested values with one `a.b=value` applied; the value is read as YAML.

    Raises:
        InputError: The assignment is not of the form KEY=VALUE, or a part of the key is not a mapping.
    """
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set {assignment}: KEY=VALUE was expected", mend="for example --set optimizer.lr=3e-4")
    parsed = yaml.parse(text, f"--set {key}").value
    return _set(value, key.strip().split("."), parsed, assignment)


def _set(value: dict[str, Any], keys: list[str], item: Any, assignment: str) -> dict[str, Any]:
    inner = value.get(keys[0])
    if len(keys) == 1:
        return {**value, keys[0]: item}
    if inner is not None and not isinstance(inner, dict):
        raise InputError(f"--set {assignment}: {keys[0]} is {inner!r}, not a group of keys")
    return {**value, keys[0]: _set(inner or {}, keys[1:], item, assignment)}


def flatten(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values by dotted key; lists stay whole."""
    flat: dict[str, Any] = {}
    for key, item in value.items():
        name = f"{prefix}{key}"
        flat.update(flatten(item, f"{name}.") if isinstance(item, dict) and item else {name: item})
    return flat
