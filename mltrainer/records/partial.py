"""Models of what is not whole: a run that still trains, a program of which little was seen, a result of an early version."""

import functools
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin

from mltrainer.records.common import Part

P = TypeVar("P", bound=Part)
Reader = Callable[[Any], Any]


def partial(kind: type[P], content: Mapping[str, Any]) -> P:
    """Return a model of whatever a mapping holds of it, not validated.

    A list, a mapping or a part that is missing is an empty one, or None where the model allows it; any other value is its
    default, or None whatever the annotation says. `known` tells an empty part from one of which something was recorded.
    """
    fields = _fields(kind)
    values = {name: read(content.get(key)) for name, key, read, is_required in fields if is_required or key in content}
    present = {name for name, key, *_ in fields if key in content}
    return cast("P", kind.model_construct(present, **values))  # whose type pydantic's plugin for mypy takes for the base's


def known(part: P | None) -> P | None:
    """Return a part of which something was recorded, else None."""
    return part if part is not None and part.model_fields_set else None


@functools.cache
def _fields(kind: type[Part]) -> list[tuple[str, str, Reader, bool]]:
    """Return each field's name, its key in a file, the reader of its values, and whether it has no default."""
    fields = kind.model_fields.items()
    return [(name, field.alias or name, _reader(field.annotation), field.is_required()) for name, field in fields]


def _reader(annotation: Any) -> Reader:
    """Return a function that makes a value of an annotated type; what has another shape is missing."""
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
