"""Templates of reports: read, checked, compiled; a project's own one fills blocks inside a frame that it cannot reach.

Each block is rendered apart from the frame, so that the frame sees nothing that a template sets or defines. Templates are
limited to an allow-list of Jinja's syntax: operators and filters that would bypass the escaping are not on it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, TemplateRuntimeError, TemplateSyntaxError, nodes
from jinja2.environment import Template
from jinja2.sandbox import SandboxedEnvironment
from markupsafe import Markup

from mltrainer import handbook
from mltrainer.errors import InputError
from mltrainer.reports.filters import FILTERS, final

PARTS = "phases/parts.md.j2"
_BLANK_LINES = re.compile(r"\n{3,}")
_TESTS = ("defined", "none", "equalto")
_JINJA_FILTERS = ("map", "selectattr", "list")  # they only select, and give no Markdown
_ALLOWED = (
    *(nodes.Output, nodes.TemplateData, nodes.If, nodes.For, nodes.Assign, nodes.Name, nodes.NSRef, nodes.Const, nodes.List),
    *(nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Keyword, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Filter, nodes.Test),
    *(nodes.Call, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.CondExpr, nodes.Sub, nodes.Mul, nodes.Neg),
)


class _Environment(SandboxedEnvironment):
    """A Jinja environment in which a dict has only its keys, and every value is escaped as Markdown."""

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined, autoescape=True, finalize=final, auto_reload=False
        )
        self.filters = {**{name: self.filters[name] for name in _JINJA_FILTERS}, **FILTERS}
        self.tests = {name: self.tests[name] for name in _TESTS}
        self.globals = {}

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return a dict's value under a key, or another object's attribute."""
        if not isinstance(obj, dict):
            return super().getattr(obj, attribute)
        # Jinja's own takes a dict's method, such as `items`, before the key of that name.
        return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)


@dataclass(frozen=True)
class Report:
    """A template of blocks, the project's own or the shipped one.

    Attributes:
        path: The template's path in the handbook.
        overridden: Whether the project's own file is used.
        shipped: The shipped template, whose blocks are used where the project's has none.
        own: The project's template, or the shipped one again.
    """

    path: str
    overridden: bool
    shipped: Template
    own: Template

    def blocks(self, names: Mapping[str, Any]) -> dict[str, Markup]:
        """Return each block's rendered Markdown, by name.

        Args:
            names: The template's names with their values.

        Raises:
            InputError: A block of the project's own leaves something open that would hide the frame's text.
        """
        context = self.own.new_context({**names, "parts": parts()})
        if self.overridden:
            for name, block in self.shipped.blocks.items():
                # After the project's own, where super() finds it; alone where the project has no such block.
                context.blocks.setdefault(name, []).append(block)
        return {name: self._block(name, context) for name in self.shipped.blocks}

    def _block(self, name: str, context: Any) -> Markup:
        if not (self.overridden and name in self.own.blocks):
            return _tidy(context.blocks[name][0](context))
        try:
            text = _tidy(context.blocks[name][0](context))
        except TemplateRuntimeError as error:
            raise InputError(f"block {name!r}: {error.message}", where=self.path, hint="mltrainer guide " + self.path) from error
        fault = left_open(text)
        if fault is not None:
            raise InputError(f"block {name!r} {fault}", where=self.path, hint="close it in the block, or remove it")
        return text


def _tidy(parts: Iterable[str]) -> Markup:
    return Markup(_BLANK_LINES.sub("\n\n", "".join(parts)).strip("\n"))


@functools.cache
def environment() -> _Environment:
    """Return this process's only environment; nothing compiled is kept on disk."""
    return _Environment()


@functools.cache
def parts() -> Any:
    """Return the macros that every template may call."""
    return environment().from_string(_shipped_text(PARTS)).make_module({})


@functools.cache
def frame(path: str) -> Template:
    """Return a frame of the handbook, which no project can replace."""
    return environment().from_string(_shipped_text(path))


def filled(template: Template, names: Mapping[str, Any]) -> str:
    """Return the document of a frame filled with names."""
    text = template.render({**names, "parts": parts()})
    return _BLANK_LINES.sub("\n\n", text).strip("\n") + "\n"


def _shipped_text(path: str) -> str:
    return (handbook.shipped_folder() / path).read_text("utf-8")


def report(path: str, project: Path | None) -> Report:
    """Return a report's template: the project's own over the shipped one.

    Args:
        path: The template's path, such as `phases/02_baseline/report.md.j2`.
        project: The project's folder, or None outside a project.

    Raises:
        InputError: The project's template is no template, or uses something that is not allowed.
    """
    shipped = frame(path)
    file, overridden = handbook.locate(path, project)
    return Report(path, overridden, shipped, _own(path, handbook.page_text(file), shipped) if overridden else shipped)


def _own(path: str, text: str, shipped: Template) -> Template:
    try:
        tree = environment().parse(text)
        faults = list(_faults(tree, path, set(shipped.blocks)))
        if faults:
            raise InputError("\n".join(faults), where=path, hint="a project's own report fills blocks of the shipped one")
        return environment().from_string(tree)
    except TemplateSyntaxError as error:
        raise InputError(f"line {error.lineno}: {error.message}", where=path, hint="mltrainer guide " + path) from error


# --- the limits of a project's template -----------------------------------------------------------


def _faults(tree: nodes.Template, path: str, blocks: set[str]) -> Iterator[str]:
    """Yield the faults of a project's own template, each with its line."""
    if not any(isinstance(node, nodes.Extends) for node in tree.body):
        yield f'line 1: it begins with {{% extends "{path}" %}}'
    for node in tree.body:
        if isinstance(node, nodes.Extends):
            if not (isinstance(node.template, nodes.Const) and node.template.value == path):
                yield f'line {node.lineno}: it extends "{path}" and nothing else'
        elif isinstance(node, nodes.Block):
            if node.name not in blocks:
                yield f"line {node.lineno}: there is no block {node.name!r}; expected one of {', '.join(sorted(blocks))}"
            yield from _inner_faults(node)
        elif not _blank(node):
            yield f"line {node.lineno}: outside of a block there is nothing to fill"


def _blank(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Output) and all(isinstance(n, nodes.TemplateData) and not n.data.strip() for n in node.nodes)


def _inner_faults(block: nodes.Node) -> Iterator[str]:
    for node in block.iter_child_nodes():
        if not isinstance(node, _ALLOWED):
            yield f"line {node.lineno}: {type(node).__name__} is not allowed: it may pass text by the escaping"
        elif isinstance(node, nodes.Call) and not _callable(node.node):
            yield f"line {node.lineno}: only super() and parts.NAME(...) can be called"
        yield from _inner_faults(node)


def _callable(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Getattr):
        return isinstance(node.node, nodes.Name) and node.node.name == "parts"
    return isinstance(node, nodes.Name) and node.name == "super"


# --- the end of a block ---------------------------------------------------------------------------

_FENCE = re.compile(r"(`{3,}|~{3,})([^`]*)$")
_FOLD = re.compile(r"<details>|</details>|<summary>[^<]*</summary>")
_TAG = re.compile(r"<(?=[A-Za-z/!?])|\$\$|```|~~~")
_INLINE = re.compile(r"<br>|<code>[^<]*</code>")
_ESCAPED = re.compile(r"\\[!-/:-@\[-`{-~]")  # a mark after a backslash is literal


def left_open(text: str) -> str | None:
    """Return the fault in a block's Markdown that would hide the text after the block, or None.

    It is stricter than Markdown, so that all parsers read it alike: fences begin their line, `<details>` and `</details>` are
    alone on theirs with a blank line after, and there is no other HTML than `<br>` and `<code>`.
    """
    fence, depth, lines = "", 0, text.split("\n")
    for nr, line in enumerate(lines):
        opened = _FENCE.match(line)
        if fence:
            fence = "" if opened and opened[1].startswith(fence) and not opened[2].strip() else fence
        elif opened:
            fence = opened[1]
        elif _FOLD.fullmatch(line):
            depth += {"<details>": 1, "</details>": -1}.get(line, 0)
            after = lines[nr + 1] if nr + 1 < len(lines) else ""
            if depth < 0 or (after and not (line == "<details>" and after.startswith("<summary>"))):
                return f"has {line} where Markdown may read it as something else, in its line {nr + 1}"
        elif found := _TAG.search(_INLINE.sub("", _ESCAPED.sub("", line))):
            return f"has {line[found.start() :][:40]!r} in its line {nr + 1}, which could hide what follows"
    if fence:
        return "leaves a code block open"
    return "leaves <details> open" if depth else None
