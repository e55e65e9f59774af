"""YAML as people mean it: YAML 1.2 scalars, no duplicate keys, and the line of every key.

PyYAML follows YAML 1.1, where `1e-3` is a string, `on` is true and `012` is ten. This loader reads
the first as a number, the second as text and the third as twelve.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from mltrainer.errors import InputError
from mltrainer.workspace import digest

MAX_BYTES = 1_000_000  # a file that a person writes is far smaller; larger ones are refused unparsed
MAX_DIGITS = 300  # no number in a config is longer; Python refuses to convert very long ones
AGAIN = "fix it, then type the same command again"
MAX_DEPTH = 40  # deeper nesting overflows the parser's stack

_BRACKETS = re.compile(r"[\[\]{}]")
_EXPLICIT_KEYS = re.compile(r"(?m)(?:^|(?<=[\s\[{,?:-]))\?(?=\s|$)")
_SCALARS: list[tuple[str, str, str]] = [
    ("tag:yaml.org,2002:null", r"^(?:~|null|Null|NULL|)$", "~nN\0"),
    ("tag:yaml.org,2002:bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("tag:yaml.org,2002:int", r"^[-+]?[0-9]+$", "-+0123456789"),
    (
        "tag:yaml.org,2002:float",
        r"^[-+]?(?:(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+.0123456789",
    ),
]

Path = tuple[str | int, ...]


class _Resolver(yaml.resolver.BaseResolver):
    """Scalar types of the YAML 1.2 core schema."""


for _tag, _pattern, _first in _SCALARS:
    # PyYAML looks for resolvers by a scalar's first character, and by "" for an empty one.
    _Resolver.add_implicit_resolver(_tag, re.compile(_pattern), [c if c != "\0" else "" for c in _first])

_Base: Any = getattr(getattr(yaml, "cyaml", None), "CParser", None)  # libyaml, where PyYAML was built with it

if _Base is not None:

    class _Composer(_Base, yaml.constructor.SafeConstructor, _Resolver):  # type: ignore[misc]  # a class where it is not None
        def __init__(self, text: str) -> None:
            _Base.__init__(self, text)
            yaml.constructor.SafeConstructor.__init__(self)
            _Resolver.__init__(self)

else:  # pragma: no cover - PyYAML without libyaml

    class _Composer(  # type: ignore[no-redef]  # one of the two is defined
        yaml.reader.Reader,
        yaml.scanner.Scanner,
        yaml.parser.Parser,
        yaml.composer.Composer,
        yaml.constructor.SafeConstructor,
        _Resolver,
    ):
        def __init__(self, text: str) -> None:
            yaml.reader.Reader.__init__(self, text)
            yaml.scanner.Scanner.__init__(self)
            yaml.parser.Parser.__init__(self)
            yaml.composer.Composer.__init__(self)
            yaml.constructor.SafeConstructor.__init__(self)
            _Resolver.__init__(self)


@dataclass(frozen=True)
class Document:
    """A parsed YAML text.

    Attributes:
        value: Plain dicts, lists, strings, numbers, booleans and None.
        lines: The line (from 1) of every key and list item, by its path.
        name: The file's name, for messages.
    """

    value: Any
    lines: dict[Path, int]
    name: str

    @functools.cached_property
    def sha256(self) -> str:
        """Digest of the value."""
        return digest(self.value)

    def where(self, path: Path) -> str:
        """Return `file:line, key a.b` for a path; the nearest known parent gives the line, where there are lines at all."""
        known = path
        while known and known not in self.lines:
            known = known[:-1]
        place = f"{self.name}:{self.lines.get(known, 1)}" if self.lines else self.name
        key = ".".join(str(part) for part in path)
        return place + (f", key {key}" if key else "")


def parse(text: str | bytes, name: str, first_line: int = 1) -> Document:
    """Parse one YAML document.

    Args:
        text: The YAML.
        name: The file's name, for messages.
        first_line: The line of the file at which the text begins.

    Raises:
        InputError: Not YAML, a duplicate key, an alias, a tag, too large or too deeply nested.
    """
    raw = text.encode() if isinstance(text, str) else text
    if len(raw) > MAX_BYTES:
        raise InputError(expected=f"a file of at most {MAX_BYTES} bytes", found=len(raw), where=name, hint=AGAIN)
    try:
        # Some editors begin a file with a byte order mark.
        decoded = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 text at byte {error.start}", where=name, hint=AGAIN) from error
    # Before the parser, whose own stack such a text overflows.
    _check_depth(decoded, name)
    try:
        composer = _Composer(decoded)
        node = composer.get_single_node()
    except yaml.YAMLError as error:
        raise InputError(_problem(error), where=_where(error, name, first_line), hint=AGAIN) from error
    builder = _Builder(name, first_line)
    value = builder.build(node, ()) if node is not None else None
    return Document(value, builder.lines, name)


def _check_depth(text: str, name: str) -> None:
    """Refuse nesting that would overflow the parser; brackets, indents and explicit keys bound it from above."""
    depth = deepest = 0
    for bracket in _BRACKETS.findall(text):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    indents = max((len(line) - len(line.lstrip(" -")) for line in text.splitlines()), default=0)
    keys = len(_EXPLICIT_KEYS.findall(text))  # `? ? ? a` nests a level with each; the parser's own stack overflows at 30,000
    if deepest > MAX_DEPTH or indents > 4 * MAX_DEPTH or keys > MAX_DEPTH:
        raise InputError(f"nested more than {MAX_DEPTH} levels deep", where=name, hint=AGAIN)


def _problem(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or str(error)
    return f"not valid YAML: {problem}"


def _where(error: yaml.YAMLError, name: str, first_line: int) -> str:
    mark = getattr(error, "problem_mark", None)
    return f"{name}:{mark.line + first_line}" if mark else name


@dataclass
class _Builder:
    """Turns nodes into plain values, noting lines and refusing duplicates, aliases and tags."""

    name: str
    first_line: int
    lines: dict[Path, int] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)

    def build(self, node: Any, path: Path) -> Any:
        where = self._where(node)
        self.lines.setdefault(path, node.start_mark.line + self.first_line)
        # An alias gives the same node again. A few levels of them are short to parse, and explode where they are written out.
        if id(node) in self.seen:
            raise InputError("aliases (*name) are not allowed", where=where, hint="write the value out")
        self.seen.add(id(node))
        if node.tag != _implied_tag(node):
            raise InputError(f"the tag {node.tag} is not allowed", where=where, hint="write plain values")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
        return _scalar(node, where)

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            where = self._where(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                raise InputError("a key must be plain text", where=where, hint="write it as `key: value`; quote braces in text")
            key = key_node.value
            if key in result:
                earlier = self.lines[(*path, key)]
                raise InputError(f"the key {key!r} is here and on line {earlier}", where=where, hint="remove one of the two")
            self.lines[(*path, key)] = key_node.start_mark.line + self.first_line
            result[key] = self.build(value_node, (*path, key))
        return result

    def _where(self, node: Any) -> str:
        return f"{self.name}:{node.start_mark.line + self.first_line}"


_RESOLVER: Any = _Resolver()


def _implied_tag(node: Any) -> str:
    """Return the tag that a node has by its form alone; any other one was written into the file."""
    if isinstance(node, yaml.ScalarNode) and not node.style:  # plain: None, or empty where libyaml read it
        return str(_RESOLVER.resolve(yaml.ScalarNode, node.value, (True, False)))
    return {yaml.MappingNode: _Resolver.DEFAULT_MAPPING_TAG, yaml.SequenceNode: _Resolver.DEFAULT_SEQUENCE_TAG}.get(
        type(node), _Resolver.DEFAULT_SCALAR_TAG
    )


def _scalar(node: Any, where: str) -> Any:
    kind = node.tag.rsplit(":", 1)[-1]
    text = node.value
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int":
        if len(text) > MAX_DIGITS:
            raise InputError(
                expected=f"a number of at most {MAX_DIGITS} digits",
                found=len(text),
                where=where,
                hint="put it in quotes if it is text",
            )
        return int(text)
    if kind == "float":
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


class _Dumper(yaml.SafeDumper):
    """Writes short mappings on one line, and quotes what this module would read as another type."""

    yaml_implicit_resolvers = _Resolver.yaml_implicit_resolvers

    def represent(self, data: Any) -> None:
        """Write the outermost mapping as a block, however short it is."""
        node = self.represent_data(data)
        if isinstance(node, yaml.MappingNode):
            node.flow_style = not node.value
        self.serialize(node)
        self.represented_objects, self.object_keeper, self.alias_key = {}, [], None

    def ignore_aliases(self, data: Any) -> bool:
        """Never write an alias: people read these files."""
        return True


def _float(dumper: Any, value: float) -> Any:
    text = repr(value)
    if "e" in text and "." not in text:
        # Readers of YAML 1.1 take 1e-05 for a text: with a point it is a number for them, too.
        text = text.replace("e", ".0e")
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


_Dumper.add_representer(float, _float)


def dump(value: Any) -> str:
    """Return the YAML text of plain values, keys in the given order, short mappings on one line."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)
