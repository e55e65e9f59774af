"""What a figure is beside its drawing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A figure beside a report.

    Attributes:
        file: Its file's name.
        title: What it shows; the alternative text.
        caption: One sentence that states what it shows in numbers.
        content: The SVG.
    """

    file: str
    title: str
    caption: str
    content: str

    def _repr_html_(self) -> str:
        return self.content
