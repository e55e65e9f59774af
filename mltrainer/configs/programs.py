"""The command of a program that trains by itself, with what fills its places: values by name, in braces or behind it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping

Argument = str | int | float | bool
SEED = "seed"  # means the config's seed
_PLACE = re.compile(r"\{([^{}]*)\}")
_OUTSIDE = re.compile(r"^(/|~)|(^|/)\.\.(/|$)")


def places(text: str) -> list[str]:
    """Return the names that stand in braces."""
    return _PLACE.findall(text)


def leads_out(path: str) -> bool:
    """Return True for a path outside its base folder: absolute, from the home folder, or with a part `..`."""
    return _OUTSIDE.search(path) is not None


def require_command(text: str, names: Collection[str]) -> None:
    """Refuse a command that has no words, or a place that nothing is known for.

    Args:
        text: The command, as it is typed.
        names: The names that can be filled in.

    Raises:
        ValueError: The command is refused; the message has the fault.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no command: {error}") from error
    if not words:
        raise ValueError(f"{text!r} is no command: it has no word")
    if unknown := [name for name in places(text) if name not in names]:
        raise ValueError(f"{{{unknown[0]}}} is no placeholder: {', '.join(sorted(names))} can be filled in")


def words_of(text: str, arguments: Mapping[str, Argument], seed: int) -> tuple[str, ...]:
    """Return the words of a command.

    Args:
        text: The command, as it is typed; `{name}` stands for an argument, `{seed}` for the seed.
        arguments: The arguments by name. Those without a place follow as `--name value`, true as `--name`, false not at all.
        seed: The seed.
    """
    values = {SEED: seed, **arguments}
    # Split before the places are filled: a value with spaces or quotes stays one word.
    words = [_PLACE.sub(lambda place: str(values[place[1]]), word) for word in shlex.split(text)]
    rest = {name: value for name, value in arguments.items() if name not in places(text) and value is not False}
    return (*words, *(word for name, value in rest.items() for word in _option(name, value)))


def _option(name: str, value: Argument) -> tuple[str, ...]:
    return (f"--{name}",) if value is True else (f"--{name}", str(value))
