"""A figure: its file, title, caption and drawing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A figure beside a report.

    Attributes:
        file: The name of its file.
        title: The title, also the alternative text.
        caption: A sentence that states its content in numbers.
        content: The SVG.
    """

    file: str
    title: str
    caption: str
    content: str

    def _repr_html_(self) -> str:
        return self.content
