"""Changes of a config file that leave a person's comments and layout where they are."""

from __future__ import annotations

from typing import Any

from mltrainer.configs import yaml
from mltrainer.errors import InputError


def rewritten(text: str, values: dict[str, Any]) -> str | None:
    """Return a config file's text with other values: top-level keys that changed are written anew, the rest stays as it is.

    Args:
        text: The file; a mapping with one top-level key to a line.
        values: What it is to hold.

    Returns:
        The new text, or None where the file is laid out in a way that cannot be changed key by key.
    """
    document = yaml.parse(text, "config")
    if not isinstance(document.value, dict):
        return None
    lines = f"{text.rstrip()}\n".splitlines(keepends=True)
    starts = sorted((line - 1, str(path[0])) for path, line in document.lines.items() if len(path) == 1)
    ends = [_end(lines, start) for start, _ in starts[1:]] + [_end(lines, len(lines))]
    result = lines[: starts[0][0]] if starts else lines
    for (start, key), end, after in zip(starts, ends, [s for s, _ in starts[1:]] + [len(lines)], strict=True):
        same = key in values and values[key] == document.value[key]
        result += lines[start:end] if same else [_written(key, values)] if key in values else []
        result += lines[end:after]
    result += [_written(key, values) for key in values if key not in document.value]
    return _checked("".join(result), values)


def _end(lines: list[str], next_start: int) -> int:
    """Return where a key's lines end: comments and blank lines before the next key belong to that."""
    end = next_start
    while end > 0 and (not lines[end - 1].strip() or lines[end - 1].startswith("#")):
        end -= 1
    return end


def _written(key: str, values: dict[str, Any]) -> str:
    return yaml.dump({key: values[key]})


def _checked(text: str, values: dict[str, Any]) -> str | None:
    """Return the text where it holds what it should, whatever the layout was."""
    try:
        return text if yaml.parse(text, "config").value == values else None
    except InputError:
        return None
