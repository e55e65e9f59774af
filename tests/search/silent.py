"""Events of a search to which nobody listens."""

from __future__ import annotations

from typing import Any

from mltrainer.tools.program import Events


class Silent(Events):
    """Takes events, and shows none."""

    def __init__(self) -> None:
        super().__init__(None)

    def send(self, event: str, **values: Any) -> None:
        """Do nothing."""
