"""A lineage: things, and what each came from; as text, as plain data, and as a drawing. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mltrainer.reports.values import counted

# How a thing came from another: W3C PROV's relations where it has one, and the words for them in the text.
RELATIONS = {
    "wasGeneratedBy": "made by",
    "used": "from",
    "wasDerivedFrom": "taken from",
    "wasInformedBy": "after",
    "judgedBy": "judged by",
    "registeredAs": "registered as",
}


@dataclass(frozen=True)
class Node:
    """A thing of a lineage.

    Attributes:
        kind: The kind, such as `run` or `data`.
        name: Its name among those of its kind.
        sha256: Its digest; None where it has none.
        facts: What else the records say of it.
    """

    kind: str
    name: str
    sha256: str | None = None
    facts: dict[str, Any] = field(default_factory=dict, compare=False, hash=False)

    @property
    def id(self) -> str:
        """Its name among all."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Edge:
    """What a thing came from; `relation` is one of `RELATIONS`."""

    source: str
    relation: str
    target: str


@dataclass
class Lineage:
    """Things and what they came from.

    Attributes:
        focus: The thing whose lineage it is; empty: all of a project.
        nodes: The things by id.
        edges: What each came from, in the order in which they are shown.
        files: The digests of the files of a thing, each with the thing's id.
    """

    focus: str = ""
    nodes: dict[str, Node] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)

    def add(self, node: Node) -> str:
        """Add a thing that is not there yet, and return its id."""
        self.nodes.setdefault(node.id, node)
        return node.id

    def link(self, source: str, relation: str, target: str) -> None:
        """Add what a thing came from, once."""
        edge = Edge(source, relation, target)
        if edge not in self.edges:
            self.edges.append(edge)

    def of(self, focus: str) -> Lineage:
        """Return the lineage of one thing: all that it came from, and what those came from."""
        found, left = dict[str, Node](), [focus]
        while left:
            if (name := left.pop()) not in found:
                found[name] = self.nodes[name]
                left += [edge.target for edge in self.edges if edge.source == name]
        return Lineage(focus, found, [edge for edge in self.edges if edge.source in found])

    def written(self) -> dict[str, Any]:
        """Return it as `lineage --format json` prints it."""
        nodes = [
            {"id": node.id, "kind": node.kind, "name": node.name, "sha256": node.sha256, **node.facts}
            for node in self.nodes.values()
        ]
        return {"focus": self.focus, "nodes": nodes, "edges": [vars(edge) for edge in self.edges]}


# --- in words and as a drawing --------------------------------------------------------------------


def described(node: Node) -> str:
    """Return a thing in a few words."""
    facts = node.facts
    details = {
        "data": (facts.get("source"), facts.get("samples") and counted(facts["samples"], "sample")),
        "code": (facts.get("commit") and f"commit {facts['commit'][:12]}",),
        "run": (facts.get("phase"), facts.get("steps") and counted(facts["steps"], "step")),
        "search": (facts.get("trials") and counted(facts["trials"], "trial"), f"promoted: {facts.get('promoted')}"),
        "version": (", ".join(facts.get("stages", [])), facts.get("registry") and f"in {facts['registry']}"),
    }.get(node.kind, (facts.get("state"),))
    digest = f"sha256 {node.sha256[:12]}" if node.sha256 and not node.sha256.startswith(node.name) else None
    more = ", ".join(str(part) for part in (*details, digest) if part)
    return f"{node.id}{f' ({more})' if more else ''}"


def as_text(found: Lineage) -> str:
    """Return a lineage as a tree; what a thing came from is shown once."""
    return "\n".join([described(found.nodes[found.focus]), *_branches(found, found.focus, "", set())])


def _branches(found: Lineage, source: str, indent: str, shown: set[str]) -> Iterator[str]:
    shown.add(source)
    edges = [edge for edge in found.edges if edge.source == source]
    for edge in edges:
        is_last, is_shown = edge is edges[-1], edge.target in shown
        again = " (above)" if is_shown and any(one.source == edge.target for one in found.edges) else ""
        yield f"{indent}{'└─ ' if is_last else '├─ '}{RELATIONS[edge.relation]} {described(found.nodes[edge.target])}{again}"
        if not is_shown:
            yield from _branches(found, edge.target, f"{indent}{'   ' if is_last else '│  '}", shown)


def as_mermaid(found: Lineage) -> str:
    """Return a lineage as a flowchart of Mermaid, which GitHub and GitLab draw in Markdown."""
    names = {name: f"n{number}" for number, name in enumerate(found.nodes)}
    nodes = [f'  {names[name]}["{_quoted(described(node))}"]' for name, node in found.nodes.items()]
    edges = [f"  {names[edge.source]} -->|{RELATIONS[edge.relation]}| {names[edge.target]}" for edge in found.edges]
    return "\n".join(["flowchart LR", *nodes, *edges])


def _quoted(text: str) -> str:
    """Return a text for a label of Mermaid: its own characters would end the label."""
    return "".join(char if char.isalnum() or char in " .,:;_-/()@+=" else f"#{ord(char)};" for char in text)
