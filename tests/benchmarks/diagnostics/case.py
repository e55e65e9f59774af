"""A labelled case: what is trained, and what a monitor must and may say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.diagnostics.tasks import Given

HOOKS = "tests.benchmarks.diagnostics.callbacks"


@dataclass(frozen=True)
class Case:
    """One training with its labels.

    Attributes:
        id: F and a number where something is wrong, H where nothing is.
        what: What is trained, in a few words.
        task: Makes the task.
        config: Keys of the training config that are not the benchmark's own.
        must: The labels that must be found; none where nothing is wrong.
        may: Further labels that are no mistake.
    """

    id: str
    what: str
    task: Callable[[], Given]
    config: Mapping[str, Any]
    must: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()

    @property
    def is_faulty(self) -> bool:
        return bool(self.must)


def faulty(id: str, what: str, must: str, may: str, task: Callable[[], Given], config: Mapping[str, Any]) -> Case:
    """Return a case with something wrong; labels are separated by spaces; what must be found may stand among the others."""
    needed = frozenset(must.split())
    return Case(id, what, task, config, needed, frozenset(may.split()) - needed)


def healthy(id: str, what: str, task: Callable[[], Given], config: Mapping[str, Any]) -> Case:
    """Return a case with nothing wrong."""
    return Case(id, what, task, config)


def by(optimizer: dict[str, Any], epochs: int, **others: Any) -> dict[str, Any]:
    """Return the config of a case: optimizer, epochs, and what differs from the benchmark's own."""
    return {"optimizer": optimizer, "epochs": epochs, **others}


def sgd(lr: float, momentum: float = 0.0) -> dict[str, Any]:
    return {"name": "sgd", "lr": lr, "momentum": momentum, "weight_decay": 0.0}


def adam(lr: float, decay: float = 0.0) -> dict[str, Any]:
    return {"name": "adam", "lr": lr, "weight_decay": decay}


def hook(name: str, **options: Any) -> list[dict[str, Any]]:
    """Return the `callbacks` of a case with one of this benchmark's own."""
    return [{"use": f"{HOOKS}:{name}", "options": options}]
