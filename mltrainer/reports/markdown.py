"""Markdown, as GitHub shows it: text from records is escaped, so that it is shown and never acts as markup.

`text` and `code` are the two ways to put a value of a record into a document. A character that could be markup, a
link, a formula or a template (`{{...}}`) gets a backslash before it, which shows it unchanged and can be read in the file;
a `<` is written as `&lt;`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mltrainer.reports.values import NOT_MEASURED, given, labelled, measured, plain, visible

# Characters that act: `&` where it begins a character reference, `<` everywhere; `>` and `-` only at the start of a line.
_MARKUP = re.compile(r"&(?=#?\w+;)|[<`*\[\]|\\{}$~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|:(?=//)|(?<=www)\.")
_AT_START = re.compile(r"^[#+=!>-]")
_ORDERED = re.compile(r"^(\d+)([.)])(?=\s|$)")
_CODE_MARKUP = re.compile(r"[&<\"`|\\{}$*_\[\]~:]")
_SIMPLE_CODE = re.compile(r"(?:[^`|{}$\\<]|<(?![A-Za-z/!?]))+")


def _escaped(match: re.Match[str]) -> str:
    # A parser of HTML, which knows no backslash, must not see a tag begin.
    return "&lt;" if match[0] == "<" else f"\\{match[0]}"


def text(value: object) -> str:
    """Return a value as literal text on one line, safe also at the line's start."""
    shown = _AT_START.sub(_escaped, words(value))
    # Four blanks would begin a block of code, a number with a point or a bracket a list.
    return _ORDERED.sub(r"\1\\\2", re.sub("^ (?=   )", "&nbsp;", shown))


def words(value: object) -> str:
    """Return a value as literal text after other text of its line."""
    return _MARKUP.sub(_escaped, visible(value))


def code(value: object) -> str:
    """Return a value in code type, for names, paths, digests and commands."""
    if value is None:
        return NOT_MEASURED
    shown = visible(value)
    # Between backticks Markdown strips a blank at each end.
    if _SIMPLE_CODE.fullmatch(shown) and shown == shown.strip():
        return f"`{shown}`"
    return f"<code>{_CODE_MARKUP.sub(_escaped, shown)}</code>"


def block(lines: Iterable[object], language: str = "") -> str:
    """Return lines in a fenced code block that none of them can close."""
    body = [visible(line) for line in lines]
    longest = max((len(run) for line in body for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([fence + language, *body, fence])


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> str:
    """Return a table; the cells are Markdown already.

    Args:
        headers: The columns' names.
        rows: The rows' cells, made by `text`, `code` or `number`.
        align: The alignment, a letter per column, `l` or `r`; left where it is too short.
    """
    rules = ["---:" if align[place : place + 1] == "r" else "---" for place in range(len(headers))]
    lines = [headers, rules, *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a table of two columns: labels, and values as Markdown."""
    return table(("", ""), pairs)


def bullets(items: Iterable[str]) -> str:
    """Return a list of Markdown lines."""
    return "\n".join(f"- {item}" for item in items)


def setting(value: Any, written: Callable[[Any], str] = given) -> str:
    """Return a value that a person set as a line of Markdown: every entry, inner ones in parentheses; by default every digit."""
    if isinstance(value, dict):
        return ", ".join(f"{text(key)} {_inner(item, written)}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(_inner(item, written) for item in value) or "none"
    return plain_value(value, written)


def _inner(value: Any, written: Callable[[Any], str]) -> str:
    shown = setting(value, written)
    return f"({shown})" if isinstance(value, (dict, list)) and value else shown


def plain_value(value: Any, written: Callable[[Any], str] = measured) -> str:
    """Return any value of a record as one line of Markdown, lists and dicts in short; `written` shows a number."""
    return plain(value, written, words, code)


def evidence(values: Any) -> str:
    """Return the measured values beside a verdict, one per line of a table's cell."""
    if not isinstance(values, dict):
        return plain_value(values)
    rows = (labelled(str(key), item, plain_value) for key, item in values.items())
    return "<br>".join(f"{text(label)}: {shown}" for label, shown in rows)


def document(blocks: Iterable[str]) -> str:
    """Return the whole text: the blocks that are not empty, with a line between them."""
    return "\n\n".join(part for part in blocks if part) + "\n"


def embedded(body: str, depth: int) -> str:
    """Return another document's Markdown with its headings `depth` levels down, code blocks untouched."""
    lines, fence = [], ""
    for line in body.strip().splitlines():
        opened = re.match(r" {0,3}(`{3,}|~{3,})", line)
        if opened and not fence:
            fence = opened[1]
        # A fence is closed by its own character alone, and by no fewer of them.
        elif opened and fence and opened[1].startswith(fence):
            fence = ""
        heading = re.match(r"#{1,6} ", line) if not fence else None
        shown = f"{'#' * min(6, len(heading[0]) - 1 + depth)} {line[len(heading[0]) :]}" if heading else line
        lines.append(_unseen_but_tabs(shown))
    # Closed here where the document left it open: the rest of the report would be read as code.
    return "\n".join([*lines, fence] if fence else lines)


def _unseen_but_tabs(line: str) -> str:
    return "\t".join(visible(part) for part in line.split("\t"))
