"""From a file that a person wrote to a validated model, or an error that says where and what."""

from __future__ import annotations

import difflib
import functools
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo
from pydantic.fields import FieldInfo

from mltrainer.configs import yaml
from mltrainer.errors import FaultAt, InputError
from mltrainer.looking import is_looking
from mltrainer.validation import Fault, faults_of
from mltrainer.workspace import read_whole

MOST_FAULTS = 50  # are reported of one file; each costs a search for the nearest name
PLUGINS = "plugins"  # in a validation's context: whether the plug-ins that a person's file names must be there; records say none
NO_MAPPING = ("model_type", "model_attributes_type", "dict_type")  # pydantic's faults of a value that is none
Model = TypeVar("Model", bound=BaseModel)
EXCLUSIVE = {  # of these keys of a group one at a time is given
    "clip": ("norm", "value", "adaptive"),
    "evaluate": ("every_n_epochs", "every_n_steps"),
    "schedule": ("warmup_epochs", "warmup_steps"),
}


NO_BITS = "no bits"  # marks a key of a training config that decides no bit of a run, and so takes no part in its digest


class Strict(BaseModel):
    """Base of every model of a file: frozen, exact types, unknown keys refused.

    Defaults are validated too: a float's `Field(0)` becomes the 0.0 that is read back from a file, and has its digest.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True, validate_default=True
    )


def without_defaults(model: BaseModel) -> dict[str, Any]:
    """Return a model as plain values for a digest, without the keys that have their defaults: a key that is added changes none.

    The name that distinguishes a union's members stays, as in `{name: adam}`.
    """
    fields = type(model).model_fields
    values = {name: getattr(model, name) for name, field in fields.items() if _counts(field, getattr(model, name))}
    return {name: _plain(value) for name, value in {**values, **(model.__pydantic_extra__ or {})}.items()}


def _counts(field: FieldInfo, value: Any) -> bool:
    is_tag = get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
    return is_tag or value != field.get_default(call_default_factory=True)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return without_defaults(value)
    return [_plain(item) for item in value] if isinstance(value, list) else value


def needs_plugins(info: ValidationInfo) -> bool:
    """Return True where what is validated will be used as a person wrote it, so that its plug-ins must be installed.

    A record is read, and a project is looked at, wherever its plug-ins are.
    """
    return bool((info.context or {}).get(PLUGINS))


def read_text(path: Path, what: str) -> bytes:
    """Read a file that a person writes.

    Raises:
        InputError: It is missing, a folder, or may not be read.
    """
    try:
        return read_whole(path, yaml.MAX_BYTES)
    except OSError as error:
        hint = "bring it back, such as from git, as a file that you may read"
        raise InputError(f"{what} cannot be read: {error.strerror}", where=str(path), hint=hint) from error


def validate(model: type[Model], document: yaml.Document, elsewhere: Mapping[str, str] | None = None) -> Model:
    """Return the model that a document describes.

    Args:
        model: The file's model.
        document: Its content.
        elsewhere: Keys of another file, each with where it belongs, for who looks for them here.

    Raises:
        InputError: All faults at once, up to fifty, each with file, line, key, what was expected and found.
    """
    value = {} if document.value is None else document.value
    try:
        return model.model_validate(value, context={PLUGINS: not is_looking()})
    except ValidationError as error:
        found = faults_of(error)
        faults = dict(_fault(model, document, fault, elsewhere or {}) for fault in found[:MOST_FAULTS])
        more = [f"and {len(found) - MOST_FAULTS} more"] if len(found) > MOST_FAULTS else []
        raise InputError("\n".join([*faults, *more]), hint=yaml.AGAIN, faults=[*faults.values()]) from error


def validate_values(model: type[Model], values: dict[str, Any], where: str) -> Model:
    """Return the model of values that were put together here and stand in no file; `where` names them in messages.

    Raises:
        InputError: All faults at once, each with its key.
    """
    return validate(model, yaml.Document(values, {}, where))


def _fault(model: type[BaseModel], document: yaml.Document, fault: Fault, elsewhere: Mapping[str, str]) -> tuple[str, FaultAt]:
    """Return a fault as a line, and in its parts."""
    path = _own_path(document, fault.loc)
    where = document.where(path)
    if fault.type == "extra_forbidden":
        names, beside = known_keys(model, fault.loc[:-1]), elsewhere if len(path) == 1 else {}
        is_near = bool(difflib.get_close_matches(str(path[-1]), [*names, *beside], n=1, cutoff=0.8))
        inner = _inner_key(model, str(path[0])) if len(path) == 1 and not is_near else None
        hint = inner or _hint(str(path[-1]), names, beside)
        return f"{where}: unknown key {path[-1]!r}; {hint}", FaultAt(where, found=str(path[-1]))
    # of these the wrong word is in what was expected, or nowhere
    says_it = fault.type in ("missing", "union_tag_invalid", "secret", "not_installed", "plugin_options")
    says_it = says_it or (fault.type == "value_error" and not path)  # the whole file would be shown
    shown = "" if says_it else f"; found {fault.input!r}"[:200]
    parts = FaultAt(where, _expected(fault), shown.removeprefix("; found ") or None)
    if fault.type in NO_MAPPING:
        line = f"{where}: keys with values were expected{shown}{_mapping_hint(model, fault)}"
        return line, parts._replace(expected="keys with values")
    return f"{where}: {_expected(fault)}{shown}{_nearest(fault)}", parts


def _mapping_hint(model: type[BaseModel], fault: Fault) -> str:
    """Return a hint on a value that is no mapping: that of the nearest name, all names, or the known keys."""
    names = _names(model, fault.loc)
    close = difflib.get_close_matches(fault.input, names, n=1, cutoff=0.5) if isinstance(fault.input, str) else []
    if close:
        return f"; did you mean {{name: {close[0]}}}?"
    if names:
        return f"; one of them is `name`: {', '.join(names)}"
    keys = known_keys(model, fault.loc)
    return f"; known keys: {', '.join(keys)}" if keys else ""


def _inner_key(model: type[BaseModel], key: str) -> str | None:
    """Return a hint on a key that is one level too high, such as `lr`; None where no part has a key of that name."""
    name = {"learning_rate": "lr"}.get(key, key)
    inner = next((f"{part}.{name}" for part in known_keys(model, ()) if name in known_keys(model, (part,))), None)
    return f"did you mean {inner!r}?" if inner else None


def _hint(key: str, names: list[str], elsewhere: Mapping[str, str]) -> str:
    """Return a hint on an unknown key: the file it belongs in, the closest known key, or all known keys."""
    close = [key] if key in elsewhere else difflib.get_close_matches(key, [*names, *elsewhere], n=1, cutoff=0.5)
    if not close:
        return f"known keys: {', '.join(sorted(names)) or 'none'}"
    return f"{close[0]!r} belongs in {elsewhere[close[0]]}" if close[0] in elsewhere else f"did you mean {close[0]!r}?"


def _expected(fault: Fault) -> str:
    """Return the expectation that a value failed, in plain words instead of pydantic's where those are unclear."""
    if fault.type == "union_tag_not_found":
        return "a {discriminator} was expected, which says what it is".format(**fault.ctx)
    if fault.type == "union_tag_invalid":
        return "{tag!r} is not one of {expected_tags}".format(**fault.ctx)
    return fault.msg.removeprefix("Value error, ")


def _nearest(fault: Fault) -> str:
    """Suggest the nearest allowed word for a wrong one."""
    allowed = str(fault.ctx.get("expected_tags") or fault.ctx.get("expected") or "")
    # pydantic gives them as one text: 'a', 'b' or 'c'.
    words = [word.strip(" '\"") for word in allowed.replace(" or ", ",").split(",")]
    found = fault.ctx.get("tag", fault.input)
    close = difflib.get_close_matches(found, words, n=1, cutoff=0.5) if isinstance(found, str) else []
    return f"; did you mean {close[0]!r}?" if close else ""


def _own_path(document: yaml.Document, location: tuple[Any, ...]) -> yaml.Path:
    """Drop the names of union members that pydantic adds to a location; the last part may be a key that is missing."""
    path: yaml.Path = ()
    place = document.value
    for position, part in enumerate(location):
        is_here = part in place if isinstance(place, dict) else isinstance(place, list) and part in range(len(place))
        if is_here:
            place = place[part]
        if is_here or position == len(location) - 1:
            path = (*path, part)
    return path


def known_keys(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """Return the keys that are valid at a place, whose union members are named by their tag."""
    schema = _schema_of(model)
    return sorted({key for node in _nodes(schema, schema, list(location)) for key in node.get("properties", {})})


@functools.cache
def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's JSON schema, whose making takes a tenth of a second, and more for the larger models."""
    return model.model_json_schema()


def _names(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """Return the names of which one chooses the keys at a place, such as those of the schedules; [] elsewhere."""
    schema = _schema_of(model)
    nodes = _nodes(schema, schema, list(location))
    return sorted({name for node in nodes for name in node.get("discriminator", {}).get("mapping", {})})


def _nodes(root: dict[str, Any], node: dict[str, Any], rest: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the nodes of a JSON schema at a place, with the members of a union."""
    while "$ref" in node:
        node = root["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    branches = node.get("anyOf", []) + node.get("oneOf", [])
    for tagged in (node, *branches):
        if rest and (target := tagged.get("discriminator", {}).get("mapping", {}).get(rest[0])):
            yield from _nodes(root, {"$ref": target}, rest[1:])
            return
    if not rest:
        yield node
    for branch in branches:
        yield from _nodes(root, branch, rest)
    if not rest or branches:
        return
    head, tail = rest[0], rest[1:]
    if head in node.get("properties", {}):
        yield from _nodes(root, node["properties"][head], tail)
    elif isinstance(others := node.get("additionalProperties"), dict):  # such as the options of a plug-in's tracker
        yield from _nodes(root, others, tail)
    elif str(head).isdecimal() and "items" in node:
        yield from _nodes(root, node["items"], tail)
    else:
        yield from _nodes(root, node, tail)


def parse_assignment(assignment: str, after: str = "--set") -> tuple[str, Any]:
    """Return the dotted key and the value of a `KEY=VALUE`; the value is read as YAML.

    Args:
        assignment: The text, as it was typed.
        after: The option before it, which messages name.

    Raises:
        InputError: It is not of that form, or the value is not YAML.
    """
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise InputError(after, expected="KEY=VALUE", found=assignment, hint=f"for example {after} optimizer.lr=3e-4")
    return key.strip(), yaml.parse(text, f"{after} {key}").value


Changes = Mapping[str, Any] | Sequence[str]  # by dotted key, or as they are typed


def as_assignments(changes: Changes | None) -> tuple[str, ...]:
    """Return changes by dotted key as they are typed after `--set`, `KEY=VALUE`; those that are typed already stay."""
    if not isinstance(changes, Mapping):
        return tuple(changes or ())
    return tuple(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in changes.items())


def as_typed(changes: Mapping[str, Any]) -> str:
    """Return config changes as they are typed in a shell: `--set KEY=VALUE` for each."""
    # JSON, which YAML reads alike: it quotes a text such as "12", which would else come back as a number.
    values = {key: json.dumps(value, separators=(",", ":")) for key, value in changes.items()}
    return " ".join(f"--set {shlex.quote(f'{key}={value}')}" for key, value in values.items())


def assign(values: dict[str, Any], changes: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return a copy of nested values with dotted keys replaced.

    A group that gets another `name` (another optimizer) keeps none of its old keys; names are applied first, so that the
    order of the changes does not matter to that. Of keys that exclude one another the new one stays. A number names an entry
    of a list, from 0: `strategies.0.weight`.

    Args:
        values: Nested values, such as a full training config.
        changes: Dotted key and value.

    Raises:
        InputError: A part of a key is no mapping, and no entry of a list.
    """
    result = values
    for key, item in sorted(changes, key=lambda change: not change[0].endswith(".name")):
        group, _, last = key.rpartition(".")
        # A task's options are its own: a name among them is no other group.
        held = at(result, group) if "." not in group or group.rpartition(".")[2].isdecimal() else None
        if isinstance(held, dict):
            renamed = last == "name" and held.get("name") != item
            result = _set(result, group.split("."), {} if renamed else yielding(group, held, {last: item}), key)
        result = _set(result, key.split("."), item, key)
    return result


def yielding(group: str, old: dict[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return a group's old values without those that give way to a new one, because one at a time is given."""
    rivals = EXCLUSIVE.get(group, ())
    return {key: value for key, value in old.items() if key not in rivals} if any(map(new.get, rivals)) else old


def apply(values: dict[str, Any], assignments: Sequence[str], name: str) -> tuple[dict[str, Any], str]:
    """Return values after every `--set KEY=VALUE`, and what messages call them: the command line's, or `name`."""
    where = " ".join(f"--set {assignment}" for assignment in assignments) or name
    return assign(values, map(parse_assignment, assignments)), where


def at(values: Any, key: str, default: Any = None) -> Any:
    """Return the value at a dotted key of nested values, or the default where there is none; a number names a list's entry."""
    for part in key.split("."):
        if isinstance(values, list) and part.isdecimal() and int(part) < len(values):
            values = values[int(part)]
        elif isinstance(values, Mapping) and part in values:
            values = values[part]
        else:
            return default
    return values


def _set(value: Any, keys: list[str], item: Any, key: str) -> Any:
    if not keys:
        return item
    first, rest = keys[0], keys[1:]
    if isinstance(value, list):
        place = _place(value, first, key)
        return [*value[:place], _set(value[place], rest, item, key), *value[place + 1 :]]
    inner = value.get(first)
    if rest and inner is not None and not isinstance(inner, dict | list):
        hint = f"{first} is one value: give it without a key below it"
        raise InputError(first, expected="a group of keys", found=repr(inner), where=f"key {key}", hint=hint)
    return {**value, first: _set({} if inner is None else inner, rest, item, key)}


def _place(entries: list[Any], word: str, key: str) -> int:
    """Return the place in a list that a part of a key names.

    Raises:
        InputError: It names none.
    """
    if word.isdecimal() and int(word) < len(entries):
        return int(word)
    raise InputError.unknown(
        "entry",
        word,
        range(len(entries)),
        of="of the list",
        where=f"key {key}",
        hint="name one, or set the whole list",
    )


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """Return `key` (dotted), `before` and `after` of each value in which two nested configs differ; None: no such key."""
    old, new = flatten(before), flatten(after)
    return [
        {"key": key, "before": old.get(key), "after": new.get(key)}
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
    ]


def each_entry(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested values by dotted key, those of a list of groups by its entries' numbers too: `strategies.0.weight`."""
    flat = flatten(dict(values))
    lists = {key: item for key, item in flat.items() if isinstance(item, list)}
    entries = {f"{key}.{nr}": entry for key, item in lists.items() for nr, entry in enumerate(item) if isinstance(entry, dict)}
    return flat | {f"{name}.{key}": value for name, entry in entries.items() for key, value in each_entry(entry).items()}


def flatten(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values by dotted key; lists stay whole."""
    flat: dict[str, Any] = {}
    for key, item in value.items():
        name = f"{prefix}{key}"
        # An empty group is a value of its own: without its key, a config that has it would look like one that has none.
        flat.update(flatten(item, f"{name}.") if isinstance(item, dict) and item else {name: item})
    return flat
