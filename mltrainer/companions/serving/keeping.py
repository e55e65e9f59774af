"""Writing of answers to the database: concurrent ones in one transaction, and each before its client gets it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from mltrainer.companions.serving.admission import Identity
from mltrainer.companions.serving.batching import Batches
from mltrainer.companions.serving.contract import as_sent
from mltrainer.companions.serving.guard import RefusedError
from mltrainer.companions.serving.predictor import Answers, Rows
from mltrainer.companions.serving.store import Place, Store

AT_ONCE = 5000  # rows of one transaction
FORGET_EVERY_S = 3600.0
_UNKEPT = RefusedError(503, "database", "the answer could not be kept, and so is not sent: ask again later")


@dataclass(frozen=True)
class Keeping:
    """Policy for kept answers, and the queue that writes them.

    Attributes:
        store: The database.
        with_inputs: Whether the sent rows are kept, too.
        days: Age at which answers are deleted, in days; None: never.
    """

    store: Store
    with_inputs: bool = False
    days: float | None = None
    _batches: list[Batches[list[dict[str, Any]], None]] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep answers for the length of a block, and delete old ones."""
        self._batches.append(Batches(self.store.add, AT_ONCE, 20 * AT_ONCE))
        forgetting = asyncio.create_task(self._forgetting())
        try:
            yield
        finally:
            forgetting.cancel()
            await self._batches.pop().close()
            self.store.close()

    async def keep(self, name: str, rows: Rows, answers: Answers, identity: Identity) -> None:
        """Keep the answer to each row; on return they are on the disk.

        Raises:
            RefusedError: The database does not take them.
        """
        shared = {
            "id": name,
            "at": datetime.now(UTC),
            "weights_sha256": identity.weights_sha256,
            "checks": identity.checks,
        }
        kept = [
            {**shared, "row": number, "answer": answer, "input": as_sent(row) if self.with_inputs else None}
            for number, (row, answer) in enumerate(zip(rows, answers, strict=True))
        ]
        try:
            await self._batches[-1].ask(kept, len(kept))
        except SQLAlchemyError:
            raise _UNKEPT from None

    async def label(self, labels: Sequence[tuple[Place, Any]]) -> list[Place]:
        """Keep labels; if some belong to no known answer, keep none and return their places.

        Raises:
            RefusedError: The database does not take them.
        """
        try:
            return await asyncio.to_thread(self.store.label, labels)
        except SQLAlchemyError:
            raise RefusedError(503, "database", "the labels could not be kept: send them again later") from None

    async def answers(self) -> bool:
        """Return True if the database answers."""
        return await asyncio.to_thread(self.store.answers)

    async def _forgetting(self) -> None:
        while self.days is not None:
            with contextlib.suppress(SQLAlchemyError):  # tried again in an hour
                await asyncio.to_thread(self.store.forget, self.days)
            await asyncio.sleep(FORGET_EVERY_S)
