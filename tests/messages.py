"""Every sentence that the product can show: the strings of three or more words in its code, without docstrings.

`python -m tests.messages` prints them by file and line, to be read as a whole.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "mltrainer"
FEWEST_WORDS = 3
WORD = re.compile(r"[A-Za-z']{2,}")


def _text(node: ast.expr) -> str:
    """Return a string's text; a filled-in value is shown in braces, as it is written in the code."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return f"{{{ast.unparse(node.value)}}}"
    return ""


def _strings(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the outermost strings below a node, without those that stand alone as a statement, which are docstrings."""
    for child in ast.iter_child_nodes(node):
        is_string = isinstance(child, ast.JoinedStr) or (isinstance(child, ast.Constant) and isinstance(child.value, str))
        if is_string and not isinstance(node, ast.Expr):
            assert isinstance(child, ast.expr)
            yield child
        elif not is_string:
            yield from _strings(child)


def messages() -> Iterator[tuple[str, str]]:
    """Yield the place (file:line) and the text of every sentence, in the order of the files."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in _strings(ast.parse(path.read_text(encoding="utf-8"))):
            text = _text(node)
            if len(WORD.findall(text)) >= FEWEST_WORDS:
                yield f"{path.relative_to(PACKAGE.parent).as_posix()}:{node.lineno}", text


if __name__ == "__main__":
    for place, text in messages():
        print(f"{place}: {text}")
