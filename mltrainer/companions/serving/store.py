"""Predictions and their later labels in a database: a SQLite file, or PostgreSQL by its URL."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import (
    JSON,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    delete,
    event,
    insert,
    select,
    tuple_,
)
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from mltrainer.configs import storage
from mltrainer.errors import InputError, MachineError

METADATA = MetaData()
# A prefix and a separate version table: the database may hold other programs' tables and migrations.
VERSION_TABLE = "served_version"
PREDICTIONS = Table(
    "served_predictions",
    METADATA,
    Column("id", String(32), primary_key=True),  # the answer's id
    Column("row", Integer, primary_key=True),  # the row's index in the request, from 0
    Column("at", DateTime(timezone=True), nullable=False, index=True),
    Column("weights_sha256", String(64), nullable=True, index=True),
    Column("checks", String(16), nullable=False),
    Column("answer", JSON, nullable=False),
    Column("input", JSON(none_as_null=True), nullable=True),  # the row as it was sent, with --store
)
LABELS = Table(
    "served_labels",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("row", Integer, primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("label", JSON, nullable=False),
    ForeignKeyConstraint(["id", "row"], ["served_predictions.id", "served_predictions.row"], ondelete="CASCADE"),
)

BUSY_S = 30  # a writer's longest wait for another process that writes; chosen by us
WHERE = "--database"
# By dialect: the lock under which one server at a time creates missing tables, until it commits.
_ALONE = {"sqlite": "BEGIN IMMEDIATE", "postgresql": "SELECT pg_advisory_xact_lock(7363727665)"}


class Place(NamedTuple):
    """Key of the answer to a row: the answer's id, and the row's index in the request."""

    id: str
    row: int


@dataclass(frozen=True)
class Kept:
    """A kept prediction.

    Attributes:
        at: Time of the answer.
        answer: The answer that was sent.
        input: The row as it was sent; None if rows are not kept.
        label: The true label; None until one comes.
    """

    at: datetime
    answer: dict[str, Any]
    input: Any
    label: Any


class Store:
    """A database with the tables of this version.

    Args:
        url: The database's URL.

    Attributes:
        place: The URL in messages, without its password.

    Raises:
        InputError: The URL names no known database, or a later version made its tables.
        MachineError: The database does not answer.
    """

    def __init__(self, url: str) -> None:
        self.place = storage.shown(url)
        self._engine = self._opened(url)
        with ExitStack() as stack:
            stack.callback(self._engine.dispose)
            with self._faults(), self._engine.begin() as connection:
                if alone := _ALONE.get(self._engine.dialect.name):
                    connection.exec_driver_sql(alone)
                self._upgrade(connection)
            stack.pop_all()  # from here on `close` disposes of it

    def _opened(self, url: str) -> Engine:
        try:
            parsed = make_url(url)
            engine = create_engine(parsed, pool_pre_ping=True, json_serializer=partial(json.dumps, allow_nan=False))
        except ArgumentError as error:
            raise InputError(
                f"expected a database's URL: {error}", where=WHERE, hint="sqlite:///FILE or postgresql://..."
            ) from None
        except ModuleNotFoundError as error:
            message = f"the database's driver, {error.name}, is not installed"
            raise InputError(message, where=self.place, hint="pip install 'mltrainer[postgres]'") from None
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _settle)
        return engine

    def _upgrade(self, connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            message = f"the tables are of another version: {error}"
            raise InputError(message, where=self.place, hint="upgrade mltrainer, or name another --database") from error

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            message = str(getattr(error, "orig", None) or error).strip().splitlines()[0][:300]
            is_file = self._engine.dialect.name == "sqlite"
            mend = "check the disk, the file and its folder's permissions" if is_file else "restart the database"
            raise MachineError(message, where=self.place, hint=f"{mend}, then type the same command again") from None

    def close(self) -> None:
        """Give up all connections."""
        self._engine.dispose()

    # --- writing ---

    def add(self, requests: Sequence[Sequence[dict[str, Any]]]) -> list[None]:
        """Keep the predictions of several requests, all or none; on return they are on the disk.

        Raises:
            SQLAlchemyError: The database does not take them.
        """
        with self._engine.begin() as connection:
            connection.execute(insert(PREDICTIONS), [row for rows in requests for row in rows])
        return [None] * len(requests)

    def label(self, labels: Sequence[tuple[Place, Any]]) -> list[Place]:
        """Keep labels, which replace earlier ones, if all their predictions are known.

        Returns:
            The unknown places; if there are any, no label is kept.

        Raises:
            SQLAlchemyError: The database does not take them.
        """
        places = [place for place, _ in labels]
        with self._engine.begin() as connection:
            given = select(PREDICTIONS.c.id, PREDICTIONS.c.row).where(PREDICTIONS.c.id.in_({place.id for place in places}))
            known = {Place(*row) for row in connection.execute(given)}
            if unknown := [place for place in places if place not in known]:
                return unknown
            newest = dict(labels)
            connection.execute(delete(LABELS).where(tuple_(LABELS.c.id, LABELS.c.row).in_([*newest])))
            now = datetime.now(UTC)
            connection.execute(
                insert(LABELS), [{**place._asdict(), "at": now, "label": label} for place, label in newest.items()]
            )
        return []

    def forget(self, days: float) -> int:
        """Delete predictions older than some days, with their labels, and return their number."""
        before = datetime.now(UTC) - timedelta(days=days)
        with self._engine.begin() as connection:
            count = int(connection.execute(delete(PREDICTIONS).where(PREDICTIONS.c.at < before)).rowcount)
        if count and self._engine.dialect.name == "sqlite":
            with self._engine.connect() as connection:  # else the write-ahead file still holds the deleted rows
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        return count

    # --- reading ---

    def answers(self) -> bool:
        """Return True if the database answers."""
        try:
            with self._engine.connect() as connection:
                connection.execute(select(1))
        except SQLAlchemyError:
            return False
        return True

    def kept(self, weights_sha256: str | None, days: float) -> list[Kept]:
        """Return a model's predictions of the last days, the oldest first.

        Raises:
            MachineError: The database does not answer.
        """
        on = (LABELS.c.id == PREDICTIONS.c.id) & (LABELS.c.row == PREDICTIONS.c.row)
        columns = (PREDICTIONS.c.at, PREDICTIONS.c.answer, PREDICTIONS.c.input, LABELS.c.label)
        after = datetime.now(UTC) - timedelta(days=days)
        asked = (
            select(*columns)
            .select_from(PREDICTIONS.outerjoin(LABELS, on))
            .where(PREDICTIONS.c.weights_sha256 == weights_sha256, PREDICTIONS.c.at >= after)
            .order_by(PREDICTIONS.c.at, PREDICTIONS.c.id, PREDICTIONS.c.row)
        )
        with self._faults(), self._engine.connect() as connection:
            return [Kept(row.at.replace(tzinfo=UTC), row.answer, row.input, row.label) for row in connection.execute(asked)]


def _settle(connection: Any, _: object) -> None:
    """Set up a connection to a SQLite file."""
    connection.execute(f"PRAGMA busy_timeout={BUSY_S * 1000}")
    _write_ahead(connection)
    for name, value in {
        "synchronous": "FULL",  # answers survive a power cut
        "foreign_keys": "ON",
        "secure_delete": "ON",  # deleted data is overwritten
    }.items():
        connection.execute(f"PRAGMA {name}={value}")


def _write_ahead(connection: Any) -> None:
    """Switch to the write-ahead log, where readers need not wait; SQLite itself does not wait for another process's switch."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)
