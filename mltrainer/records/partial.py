"""Models of incomplete content: a run that still trains, a program of which little was seen."""

import functools
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin

from pydantic.fields import FieldInfo

from mltrainer.records.common import Part

P = TypeVar("P", bound=Part)
Reader = Callable[[Any], Any]


def partial(kind: type[P], content: Mapping[str, Any]) -> P:
    """Return a model of the fields that a mapping holds, not validated.

    A list, a mapping or a part that is missing is an empty one, or None where the model allows it; any other value is its
    default, or None whatever the annotation says. `known` separates an empty part from one of which something was recorded.
    """
    fields = _fields(kind)
    values = {name: read(content[key]) if key in content else missing() for name, key, read, missing in fields}
    present = {name for name, key, *_ in fields if key in content}
    return cast("P", kind.model_construct(present, **values))  # whose type pydantic's plugin for mypy takes for the base's


def known(part: P | None) -> P | None:
    """Return a part of which something was recorded, else None."""
    return part if part is not None and part.model_fields_set else None


@functools.cache
def _fields(kind: type[Part]) -> list[tuple[str, str, Reader, Callable[[], Any]]]:
    """Return each field's name, its key in a file, the reader of its values, and the maker of a missing one."""
    found = ((name, field, _reader(field.annotation)) for name, field in kind.model_fields.items())
    return [(name, field.alias or name, read, _maker(field, read)) for name, field, read in found]


def _maker(field: FieldInfo, read: Reader) -> Callable[[], Any]:
    """Return a function that makes a missing value; pydantic's way to make a default takes longer than everything else here."""
    if field.is_required():
        return lambda: read(None)
    return cast("Callable[[], Any] | None", field.default_factory) or (lambda: field.default)


def _reader(annotation: Any) -> Reader:
    """Return a function that makes a value of an annotated type; a value of another shape counts as missing."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType) and NoneType in arguments:
        read = _reader(arguments[0])
        return lambda value: None if value is None else read(value)
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return lambda value: partial(annotation, value if isinstance(value, Mapping) else {})
    if origin is list:
        item = _reader(arguments[0])
        return lambda value: [item(one) for one in value] if isinstance(value, list) else []
    if origin is dict:
        item = _reader(arguments[1])
        return lambda value: {key: item(one) for key, one in value.items()} if isinstance(value, Mapping) else {}
    return lambda value: value
