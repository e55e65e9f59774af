"""What the tests read out of a text: its links, and the commands that it tells people to type."""

from __future__ import annotations

import re
import shlex
from typing import Any

import typer
from typer.core import TyperGroup


def links(text: str) -> list[str]:
    """Return the targets of a text's links to other files."""
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    return [target.split("#")[0] for target in targets if not re.match(r"[a-z]+:|#", target)]


def blocks(text: str) -> list[list[str]]:
    """Return what each console block tells to type, without remarks; a line that ends in a backslash goes on in the next."""
    found = re.findall(r"^ *```(?:console|sh|bash)\n(.*?)^ *```", text, flags=re.DOTALL | re.MULTILINE)
    joined = [re.sub(r"\\\n\s*", "", block).splitlines() for block in found]
    return [[line.strip()[2:].split(" # ")[0].strip() for line in lines if line.strip().startswith("$ ")] for lines in joined]


def commands(text: str) -> list[str]:
    """Return the mltrainer commands in a text's console blocks and code spans."""
    parts = [part.strip() for block in blocks(text) for line in block for part in re.split(r"&&|>", line)]
    spans = re.findall(r"`(mltrainer [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [part for part in [*parts, *spans] if part.startswith("mltrainer ")]


def unknown_part(command: str) -> str | None:
    """Return what the command-line interface does not know of a command, or None."""
    from mltrainer.cli.app import cli

    node: Any = cli
    words = shlex.split(command.replace("...", ""))[1:]
    while isinstance(node, TyperGroup) and words and not words[0].startswith("-"):
        inner = node.get_command(typer.Context(node), words[0])
        if inner is None:
            return words[0]
        node, words = inner, words[1:]
    if node is cli:  # its own options act when they are read: one of them changes the shell's files
        known = {name for parameter in node.get_params(typer.Context(node)) for name in parameter.opts}
        return next((word for word in words if word not in known), None)
    return _refusal(node, words) if words else None


def _refusal(node: Any, words: list[str]) -> str | None:
    """Return why a command would refuse its arguments, without running it."""
    try:
        node.make_context(str(node.name), list(words))
    except typer.Exit:
        return None
    except typer.TyperException as error:
        return error.format_message()
    return None
