"""`python -m tests.forgeries`: writes the table of forgeries into docs/TRUST.md, from the table that the tests run."""

from __future__ import annotations

from pathlib import Path

from tests.forgeries.scene import Means
from tests.forgeries.table import KINDS, Variant

DOCUMENT = Path(__file__).parents[2] / "docs/TRUST.md"
BEGIN, END = "<!-- the table of forgeries -->", "<!-- the end of the table of forgeries -->"


def rendered() -> str:
    """Return the kinds with their variants by what catches them, and what each of these means costs."""
    kinds = [f"| {kind} | {'<br>'.join(_caught(variants))} |" for kind, variants in KINDS.items()]
    means = {variant.by.name: variant.by.cost for variants in KINDS.values() for variant in variants}
    costs = [f"| {name} | {cost} |" for name, cost in means.items()]
    return "\n".join(
        ["| forgery | caught by: its variants |", "| --- | --- |", *kinds, "", "| means | cost |", "| --- | --- |", *costs]
    )


def _caught(variants: tuple[Variant, ...]) -> list[str]:
    by: dict[Means, list[str]] = {}
    for variant in variants:
        by.setdefault(variant.by, []).append(variant.name)
    return [f"**{means.name}**: {'; '.join(names)}" for means, names in by.items()]


def document(text: str) -> str:
    """Return the document with the table as it is now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{rendered()}\n\n{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(document(DOCUMENT.read_text("utf-8")), "utf-8")
