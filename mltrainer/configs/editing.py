"""Changes of a config file that leave a person's comments and layout where they are."""

from __future__ import annotations

import re
from typing import Any

from mltrainer.configs import yaml
from mltrainer.configs.loading import flatten
from mltrainer.errors import InputError


def edited(text: str, values: dict[str, Any]) -> str | None:
    """Return a config file's text with other values, as `rewritten`; a word that takes another's place leaves its line's comment.

    Args:
        text: The file.
        values: The new values, by key.
    """
    document = yaml.parse(text, "config")
    old = flatten(document.value) if isinstance(document.value, dict) else {}
    lines = text.splitlines(keepends=True)
    for key, value in flatten(values).items():
        line = document.lines.get(tuple(key.split(".")))
        if line is not None and key in old and old[key] != value and not isinstance(value, list | dict):
            lines[line - 1] = _with_word(lines[line - 1], key.rpartition(".")[2], value)
    in_place = "".join(lines)
    # Read back before it is taken: a key that is twice in a line, say, cannot be changed by its first word.
    return (in_place if _text_if_whole(in_place, values) else None) or rewritten(text, values)


def _with_word(line: str, key: str, value: Any) -> str:
    """Return a line with another value of a key, which is one word there."""
    word = yaml.dump({key: value}).partition(":")[2].strip()
    found = re.search(rf"(?<![\w.]){re.escape(key)}:[ ]+([^\s,#{{}}\[\]]+)", line)
    if found is None:
        return line
    rest = line[found.end() :]
    aligned = word.ljust(len(found[1])) if rest.lstrip().startswith("#") else word
    return line[: found.start(1)] + aligned + rest


def rewritten(text: str, values: dict[str, Any]) -> str | None:
    """Return a config file's text with other values: top-level keys that changed are rewritten, the rest stays as it is.

    Args:
        text: The file; a mapping with one top-level key to a line.
        values: The new values, by key.

    Returns:
        The new text, or None where the file is laid out in a way that cannot be changed key by key.
    """
    document = yaml.parse(text, "config")
    if not isinstance(document.value, dict):
        return None
    # The last line may lack its end: a key that is written behind it would become part of it.
    lines = f"{text.rstrip()}\n".splitlines(keepends=True)
    starts = sorted((line - 1, str(path[0])) for path, line in document.lines.items() if len(path) == 1)
    ends = [_end(lines, start) for start, _ in starts[1:]] + [_end(lines, len(lines))]
    result = lines[: starts[0][0]] if starts else lines
    for (start, key), end, after in zip(starts, ends, [s for s, _ in starts[1:]] + [len(lines)], strict=True):
        same = key in values and values[key] == document.value[key]
        result += lines[start:end] if same else [_key_text(key, values)] if key in values else []
        result += lines[end:after]
    result += [_key_text(key, values) for key in values if key not in document.value]
    return _text_if_whole("".join(result), values)


def _end(lines: list[str], next_start: int) -> int:
    """Return the end of a key's lines (exclusive): comments and blank lines before the next key belong to that key."""
    end = next_start
    while end > 0 and (not lines[end - 1].strip() or lines[end - 1].startswith("#")):
        end -= 1
    return end


def _key_text(key: str, values: dict[str, Any]) -> str:
    return yaml.dump({key: values[key]})


def _text_if_whole(text: str, values: dict[str, Any]) -> str | None:
    """Return the text where it holds what it should, whatever the layout was."""
    try:
        return text if yaml.parse(text, "config").value == values else None
    except InputError:
        return None
