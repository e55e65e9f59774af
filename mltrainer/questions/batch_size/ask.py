"""`mltrainer batch-size`: throughput and memory of growing batch sizes."""

from __future__ import annotations

from typing import Any

from mltrainer.configs.loading import Changes
from mltrainer.errors import KilledError
from mltrainer.questions.batch_size.decisions import adaptations, suggest_size
from mltrainer.questions.batch_size.findings import AdoptedBy, Asked, FoundSize, Present, Size, SizeTest
from mltrainer.questions.exploration import exploring
from mltrainer.runs.launcher import Tools

FIRST_SIZE = 8  # unless asked otherwise


def batch_size(tools: Tools, *, set: Changes | None = None, first: int = FIRST_SIZE, minutes: float | None = None) -> FoundSize:
    """Find a batch size on a copy: return what each size measured, the largest that fits, the suggested one or None, and why.

    Args:
        tools: The project's tools.
        set: Changes of the config.
        first: The first batch size.
        minutes: No size is begun that would go beyond them; None: as many as the explorer's page says.
    """
    rows: list[Size] = []

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "size":
            rows.append(Size.model_validate({key: value for key, value in event.items() if key != "event"}))
        tools.tell(event)

    with exploring(tools, "batch_size", set) as exploration:
        try:
            limit = exploration.limits.minutes if minutes is None else minutes
            test = SizeTest.model_validate(exploration.ask(Asked(first=first, minutes=limit), on_event))
        except KilledError:  # what was measured before has been told
            tried = 2 * rows[-1].batch_size if rows else first
            test = SizeTest(limit_mb=None, stopped=f"{tried} does not fit: the system killed the process, as it does for memory")
        config, found = exploration.config, suggest_size(rows, exploration.limits.near_best)
        changes = [] if found.value is None else adaptations(int(found.value), config)
        return exploration.kept(
            FoundSize.of(
                test,
                sizes=rows,
                largest=rows[-1].batch_size if rows else None,
                present=Present(batch_size=config.batch_size, accumulate=config.accumulate),
                suggestion=found.value,
                reason=found.reason,
                changes=[AdoptedBy.of(change, command=exploration.command(change.changes)) for change in changes],
            )
        )
