"""What a person types after memory ran out: the keys that take fewer samples at a time and as many in a step."""

from __future__ import annotations

from mltrainer.configs.loading import as_typed
from mltrainer.configs.project import TrainingConfig

OTHERS = "stop other programs here, or take a smaller model or a larger machine, then type the same command again"
PLANNED = ("planning", "baseline", "finalization")  # phases whose command takes the keys


def finer(batch_size: int, accumulate: int) -> tuple[int, int] | None:
    """Return batch size and micro-batches of the next finer division of a step's samples; None if each is one sample."""
    parts = next((parts for parts in range(2, batch_size + 1) if batch_size % parts == 0), None)
    return (batch_size // parts, accumulate * parts) if parts else None


def less_memory(config: TrainingConfig, phase: str | None, purpose: str) -> str:
    """Return the next step for a training that ran out of memory, with its command.

    Args:
        config: The training's config.
        phase: The phase that it belongs to, where it is of one.
        purpose: Its purpose; a reproduction has the batches of its run.
    """
    divided = None if config.task.is_opaque else finer(config.batch_size, config.accumulate)
    if purpose == "reproduction" or divided is None:
        return OTHERS
    changes = dict(zip(("batch_size", "accumulate"), divided, strict=True))
    samples = config.batch_size * config.accumulate
    kept = f"a step keeps its {samples} samples, {divided[0]} at a time in place of {config.batch_size}"
    if purpose == "explore":
        return f"{' and '.join(f'{key}: {value}' for key, value in changes.items())} ({kept}); or {OTHERS}"
    command = f"mltrainer phase run {phase if phase in PLANNED else 'planning'} {as_typed(changes)}"
    return f"{command} ({kept}); `mltrainer plan` finds other ways; or {OTHERS}"
