"""HTML for notebooks: every value is escaped, styles are inline, and there is no script and no request to a server."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mltrainer.reports.values import cut, measured, short, visible

LONGEST = 300  # characters of a value
MOST = 8  # entries of a list or a mapping
CELL = "text-align:left;vertical-align:top;padding:.15rem .8rem .15rem 0"
GREEN, RED, AMBER, GREY = "#1a7f37", "#cf222e", "#9a6700", "#6e7781"  # each readable under white
COLOURS = {
    **dict.fromkeys(("pass", "holds", "passed", "finished", "better"), GREEN),
    **dict.fromkeys(("fail", "does not hold", "failed", "stale", "worse"), RED),
    **dict.fromkeys(("waived", "interrupted", "running", "ready"), AMBER),
}


def escaped(value: object) -> str:
    """Return text escaped for HTML."""
    return html.escape(visible(value))


def words(value: Any) -> str:
    """Return any value of a record on one line, lists and mappings in short, escaped."""
    if isinstance(value, Mapping):
        return _few([f"{escaped(key)} {words(item)}" for key, item in list(value.items())[:MOST]], len(value))
    if isinstance(value, list | tuple):
        return _few([words(item) for item in value[:MOST]], len(value))
    if isinstance(value, str):
        return code(short(value)) if len(value) == 64 and value.isalnum() else escaped(cut(value, LONGEST))
    return escaped(measured(value))


def _few(words: Sequence[str], count: int) -> str:
    return (", ".join(words) or "none") + (f" and {count - MOST:,} more" if count > MOST else "")


def code(value: object) -> str:
    """Return a name, a digest or a command in code type."""
    return f"<code>{escaped(value)}</code>"


def pill(word: str) -> str:
    """Return a verdict or a state as a badge in its colour."""
    style = f"background:{COLOURS.get(word, GREY)};color:#fff;border-radius:.6em;padding:0 .5em;white-space:nowrap"
    return f'<span style="{style}">{escaped(word.replace("_", " "))}</span>'


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; headers are text, cells are HTML already."""
    head = _row("th", map(escaped, headers))
    return f"<table><thead>{head}</thead><tbody>{''.join(_row('td', row) for row in rows)}</tbody></table>"


def _row(kind: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f'<{kind} style="{CELL}">{cell}</{kind}>' for cell in cells) + "</tr>"


def bullets(items: Iterable[str]) -> str:
    """Return a list of items, which are HTML already; empty without items."""
    points = "".join(f"<li>{item}</li>" for item in items)
    return f"<ul>{points}</ul>" if points else ""


def folded(title: str, *blocks: str, is_open: bool = False) -> str:
    """Return blocks under a title that folds them away."""
    return f"<details{' open' if is_open else ''}><summary>{title}</summary>{''.join(blocks)}</details>"


def paragraph(*parts: str) -> str:
    """Return a paragraph of parts with spaces between."""
    return f"<p>{' '.join(parts)}</p>"


def whole(*blocks: str) -> str:
    """Return the blocks as one HTML element for a notebook."""
    return f"<div>{''.join(blocks)}</div>"
