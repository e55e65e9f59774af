"""Reports and pages of the handbook as HTML: nothing in them can run, and nothing but files of these kinds is read."""

from __future__ import annotations

import html
import posixpath
import re
from pathlib import Path

from markdown_it import MarkdownIt

from mltrainer import handbook
from mltrainer.errors import InputError
from mltrainer.workspace import Project

PICTURES = {".svg": "image/svg+xml", ".png": "image/png"}
# What our own reports write as HTML; everything else that looks like HTML is shown as text.
_OURS = re.compile(r"&lt;(/?(?:details|summary)|br ?/?)&gt;")
_ALIGNED = re.compile(r' style="text-align:(\w+)"')  # an inline style, which the page's policy refuses

_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="{up}icon.svg"><link rel="stylesheet" href="{up}style.css"><script src="{up}theme.js"></script></head>
<body class="page"><header class="bar"><a href="{up}">&larr; {project}</a><span>{title}</span></header>
<main class="paper">{body}</main></body></html>
"""


def report_file(project: Project, path: str) -> Path:
    """Return the file of a report or of one of its figures.

    Raises:
        InputError: It is none, or it does not lie in the phases' folders.
    """
    folder = (project.root / "phases").resolve()
    # Resolved before it is compared, so that neither `..` nor a link leads out.
    file = (project.root / path).resolve()
    if not file.is_relative_to(folder) or file.suffix not in (".md", *PICTURES) or not file.is_file():
        raise InputError("no report of this project", where=path[:200])
    return file


def rendered(text: str) -> str:
    """Return Markdown as HTML; HTML in it is shown as text, but for what folds a part away and ends a line."""
    return _ALIGNED.sub(r' class="\1"', _OURS.sub(r"<\1>", _MARKDOWN.render(text)))


def page(text: str, title: str, project: str, depth: int) -> bytes:
    """Return Markdown as a whole page.

    Args:
        text: The Markdown.
        title: What the page is called.
        project: The project's name.
        depth: How many folders below the monitor's own page it lies.
    """
    shown = {"title": html.escape(title), "project": html.escape(project), "up": "../" * depth or "./"}
    return PAGE.format(**shown, body=rendered(text)).encode()


def guide(path: str, project: Project, depth: int) -> bytes:
    """Return a page of the handbook.

    Raises:
        InputError: There is no such page.
    """
    found = handbook.read_page(posixpath.normpath(path), project.root)
    if not found.path.endswith(".md"):
        raise InputError("no page of the handbook", where=path[:200])
    return page(found.body, found.path, project.root.name, depth)
