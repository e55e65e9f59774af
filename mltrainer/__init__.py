"""mltrainer: training runs that can be trusted, walked through five gated phases.

`import mltrainer` is light; `mltrainer.Task` is loaded, with torch, when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mltrainer.tasks.task import Task as Task

__version__ = "0.2.0"
__all__ = ["Task", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "Task":
        from mltrainer.tasks.task import Task

        return Task
    raise AttributeError(f"module 'mltrainer' has no attribute {name!r}")
