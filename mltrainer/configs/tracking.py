"""Which trackers a project's runs are shown in: they read what a run writes, and decide nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from mltrainer.configs.loading import Strict


class Tracker(Strict):
    """What is said of any tracker."""

    every_n_steps: int = Field(1, ge=1, description="of so many steps one is sent; evaluations are sent all")
    wait_s: float = Field(
        30,
        gt=0,
        le=600,
        description="seconds without an answer after which it is given up, and for what is left when a phase ends",
    )


class TensorBoard(Tracker):
    """Event files in a folder."""

    folder: str = Field(".mltrainer/tensorboard", description="where a folder for each run is made; relative to the project")


class Tracking(Strict):
    """The trackers; each that is not named is off."""

    tensorboard: TensorBoard | None = None

    def named(self) -> Iterator[tuple[str, Tracker]]:
        """Yield the trackers that are on, by name."""
        for name in type(self).model_fields:
            tracker = getattr(self, name)
            if tracker is not None:
                yield name, tracker


def _spelled_out(given: Any) -> Any:
    """Return names alone as the mapping that they mean."""
    if isinstance(given, list) and all(isinstance(name, str) for name in given):
        return {name: {} for name in given} or None
    return given


TrackingKey = Annotated[Tracking | None, BeforeValidator(_spelled_out, json_schema_input_type=Tracking | list[str] | None)]
