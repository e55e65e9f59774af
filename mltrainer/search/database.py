"""Optuna's tables in a database that several machines reach, or in memory; calls are repeated while it does not answer."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

from mltrainer.configs import storage
from mltrainer.errors import InputError, MachineError, StoppedError
from mltrainer.redaction import shortened
from mltrainer.tools.program import EXIT_CODES, Events

if TYPE_CHECKING:
    from optuna.storages import InMemoryStorage, RDBStorage

T = TypeVar("T")
PATIENCE_S = 600.0  # chosen by us: a server restarts within minutes, and training goes on meanwhile
PAUSE_S = 5.0
OPENINGS = 5  # machines that begin at once create the tables at once, and all but one fail
_ANSWERS = {  # a connection that is dead is noticed within a minute or two, in place of hours
    "psycopg": {"connect_timeout": 15, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3},
    "psycopg2": {"connect_timeout": 15, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3},
    "pymysql": {"connect_timeout": 15, "read_timeout": 60, "write_timeout": 60},
    "mysqldb": {"connect_timeout": 15},
    "pysqlite": {"timeout": 60},
}
_DRIVERS = {"psycopg": "psycopg[binary]", "psycopg2": "psycopg2-binary", "MySQLdb": "mysqlclient"}  # pip's names of the modules


class Database:
    """A database with Optuna's tables.

    Attributes:
        place: The database's URL as messages show it.
        storage: Optuna's access to it; calls go through `ask`.

    Args:
        url: The URL, as in the tuning template; None: the tables are this process's own, in memory.
        events: The sender to which silence of the database is reported.
        stop: A function that returns the name of a signal, or None.

    Raises:
        InputError: The URL or the database's driver is missing.
        MachineError: The database does not answer, or refuses the login.
    """

    def __init__(self, url: str | None, events: Events, stop: Callable[[], str | None]) -> None:
        self._url, self._events, self._stop = storage.filled(url, os.environ) if url else "", events, stop
        self.place = storage.shown(self._url) if url else "memory"
        self.storage: RDBStorage | InMemoryStorage = self._open() if url else _in_memory()

    def ask(self, question: Callable[[], T]) -> T:
        """Return the result of a call to the storage, which is repeated while the database does not answer.

        Raises:
            MachineError: The database did not answer for `PATIENCE_S`.
            StoppedError: A signal came meanwhile.
        """
        silent_since = None
        while True:
            try:
                return question()
            except _failures() as error:
                now = time.monotonic()
                silent_since = silent_since or now
                if now - silent_since > PATIENCE_S:
                    raise self._fault(error) from None
                # The thread's session may still hold the connection that broke: the next try begins with another one.
                self.storage.remove_session()
                self._events.send("note", text=f"  {self.place} does not answer: {self._message_of(error)}; tried again")
                self._pause()

    def close(self) -> None:
        """Close the connections to the database."""
        self.storage.remove_session()
        if (engine := getattr(self.storage, "engine", None)) is not None:
            engine.dispose()

    def _pause(self) -> None:
        # Random, so that machines that lost the database together do not come back together.
        until = time.monotonic() + PAUSE_S * random.uniform(0.5, 1.5)
        while time.monotonic() < until:
            if (cause := self._stop()) is not None:
                hint = "type the same command again to go on"
                raise StoppedError(f"stopped by {cause}", exit_code=EXIT_CODES[cause], hint=hint)
            time.sleep(0.1)

    def _open(self) -> RDBStorage:
        for left in reversed(range(OPENINGS)):
            try:
                return self._opened()
            except ImportError as error:
                raise self._undriven(error) from None
            except RuntimeError as error:  # Optuna's, of tables of another version
                raise InputError(str(error), where=self.place, hint="use another database, or upgrade this one") from None
            except _failures() as error:
                if not left:
                    raise self._fault(error) from None
                time.sleep(random.uniform(0.2, 0.6))
        raise AssertionError("unreachable")

    def _undriven(self, error: ImportError) -> InputError:
        module = getattr(error.__cause__ or error, "name", None) or "its driver"
        hint = f"pip install '{_DRIVERS.get(module, module)}' on every machine before planning: what is installed is recorded"
        return InputError(f"the database's driver, {module}, is not installed", where=self.place, hint=hint)

    def _opened(self) -> RDBStorage:
        import optuna
        from optuna.storages import RDBStorage
        from sqlalchemy import event
        from sqlalchemy.engine import make_url

        optuna.logging.set_verbosity(optuna.logging.CRITICAL)
        driver = make_url(self._url).get_dialect().driver
        found = RDBStorage(self._url, {"pool_pre_ping": True, "connect_args": dict(_ANSWERS.get(driver, {}))})
        if driver == "pysqlite":  # it does not lock rows that it only reads: two machines would claim one trial
            event.listen(found.engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
            event.listen(found.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
            # Connections that were opened before do not have these listeners.
            found.engine.dispose()
        return found

    def _fault(self, error: BaseException) -> MachineError:
        hint = "bring the database back, or fix its URL or password, then type the same command again: trials that ended are kept"
        return MachineError(f"the database does not answer: {self._message_of(error)}", where=self.place, hint=hint)

    def _message_of(self, error: BaseException) -> str:
        """Return a failure's first line, without the password."""
        cause = getattr(error, "orig", None) or getattr(error.__cause__, "orig", None) or error.__cause__ or error
        text = next(iter(str(cause).strip().splitlines()), type(cause).__name__).replace(self._url, self.place)
        for secret in storage.secrets_of(self._url):
            text = text.replace(secret, "***").replace(unquote(secret), "***")
        return shortened(text, 300)


def _in_memory() -> InMemoryStorage:
    from optuna.storages import InMemoryStorage

    return InMemoryStorage()


def _failures() -> tuple[type[Exception], ...]:
    """Return the exception types of a database that does not answer, or refuses."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    return (StorageInternalError, SQLAlchemyError)
