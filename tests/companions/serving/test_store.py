"""What is kept of answers: all that was answered, inputs only where that is asked for, labels that come later."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, select, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from mltrainer.companions.serving.admission import admitted
from mltrainer.companions.serving.serve import database_of
from mltrainer.companions.serving.store import LABELS, METADATA, PREDICTIONS, Place, Store
from mltrainer.errors import InputError, MachineError
from tests.companions.serving.conftest import ROW, VALUE, asking, deliver


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'kept.sqlite'}"


def connected(url: str) -> Connection:
    return create_engine(url, poolclass=NullPool).connect()  # which the pool would keep open


def rows_of(url: str) -> list[Any]:
    with connected(url) as connection:
        return list(connection.execute(select(PREDICTIONS).order_by(PREDICTIONS.c.row)))


def test_each_answer_is_kept_before_it_is_given_without_what_it_was_made_from(table, url):
    with asking(table, store=Store(url)) as client:
        said = client.post("/predict", json={"rows": [ROW, {**ROW, "age": 20}]}).json()
        kept = rows_of(url)
    assert [(row.id, row.row, row.input) for row in kept] == [(said["id"], 0, None), (said["id"], 1, None)]
    assert [row.answer for row in kept] == said["answers"]
    assert {(row.weights_sha256, row.checks) for row in kept} == {("1" * 64, "unchecked")}
    assert abs(kept[0].at.replace(tzinfo=UTC) - datetime.now(UTC)) < timedelta(minutes=1)
    data = b"".join(path.read_bytes() for path in Path(url.removeprefix("sqlite:///")).parent.glob("kept.sqlite*"))
    assert b"1.200,50" not in data


def test_inputs_are_kept_where_that_is_asked_for(table, url):
    with asking(table, store=Store(url), with_inputs=True) as client:
        client.post("/predict", json={"rows": [ROW, {**ROW, "age": None}]})
    assert [row.input for row in rows_of(url)] == [ROW, {**ROW, "age": None}]


def test_refused_rows_leave_nothing(table, url):
    with asking(table, store=Store(url)) as client:
        assert client.post("/predict", json={"rows": [{**ROW, "joined": "x"}]}).status_code == 422
    assert rows_of(url) == []


def test_what_cannot_be_kept_is_not_answered(table, url, monkeypatch):
    def full(*_: object) -> None:
        raise OperationalError("INSERT", {}, Exception("database or disk is full"))

    monkeypatch.setattr(Store, "add", full)
    with asking(table, store=Store(url)) as client:
        said = client.post("/predict", json={"rows": [ROW]})
    assert (said.status_code, said.json()["where"]) == (503, "database")
    assert "prediction" not in said.text
    assert "disk" not in said.text


def test_labels_come_later_and_the_newest_counts(table, url):
    store = Store(url)
    with asking(table, store=store) as client:
        name = client.post("/predict", json={"rows": [ROW, ROW]}).json()["id"]
        first = [{"id": name, "row": 0, "label": "no"}, {"id": name, "row": 1, "label": "yes"}]
        assert client.post("/labels", json={"labels": first}).json() == {"kept": 2}
        assert client.post("/labels", json={"labels": [{"id": name, "label": "yes"}]}).json() == {"kept": 1}
        assert [row.label for row in store.kept("1" * 64, 1)] == ["yes", "yes"]
        for wrong, where in (
            ({"id": "0" * 32, "label": "no"}, "labels[0]"),
            ({"id": name, "row": 2, "label": "no"}, "labels[0]"),
            ({"id": name, "label": "perhaps"}, "labels[0].label"),
            ({"id": "'; DROP TABLE served_labels; --", "label": "no"}, "labels[0].id"),
            ({"id": name}, "labels[0].label"),
        ):
            said = client.post("/labels", json={"labels": [wrong]})
            assert (said.status_code, said.json()["where"]) == (422, where), said.text
        assert [row.label for row in store.kept("1" * 64, 1)] == ["yes", "yes"]
        assert store.kept("2" * 64, 1) == []


def test_of_two_labels_in_one_request_the_last_counts(table, url):
    store = Store(url)
    with asking(table, store=store) as client:
        name = client.post("/predict", json={"rows": [ROW]}).json()["id"]
        labels = [{"id": name, "label": label} for label in ("no", "yes")]
        assert client.post("/labels", json={"labels": labels}).status_code == 200
        assert [row.label for row in store.kept("1" * 64, 1)] == ["yes"]


def test_a_label_of_a_quantity_is_a_number(tmp_path, url):
    with asking(deliver(tmp_path / "model", VALUE), store=Store(url)) as client:
        name = client.post("/predict", json={"rows": [ROW]}).json()["id"]
        assert client.post("/labels", json={"labels": [{"id": name, "label": 3.5}]}).status_code == 200
        assert client.post("/labels", json={"labels": [{"id": name, "label": "3.5"}]}).status_code == 422


def test_what_is_older_than_it_may_be_is_deleted_with_its_labels(url, tmp_path):
    store, now = Store(url), datetime.now(UTC)
    row = {
        "row": 0,
        "weights_sha256": "1" * 64,
        "checks": "held",
        "answer": {"prediction": "no"},
        "input": {"name": "Ada Lovelace"},
    }
    store.add([[{**row, "id": "old", "at": now - timedelta(days=8)}], [{**row, "id": "new", "at": now - timedelta(days=6)}]])
    assert store.label([(Place("old", 0), "no"), (Place("new", 0), "no")]) == []
    assert store.forget(7) == 1
    with connected(url) as connection:
        assert connection.execute(select(PREDICTIONS.c.id)).scalars().all() == ["new"]
        assert connection.execute(select(LABELS.c.id)).scalars().all() == ["new"]
    assert store.forget(1) == 1
    store.close()
    assert b"Lovelace" not in b"".join(path.read_bytes() for path in tmp_path.glob("kept.sqlite*"))


def test_the_migrations_make_the_tables_that_are_used(url):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    Store(url).close()
    Store(url).close()  # on tables that are there
    with connected(url) as connection:
        context = MigrationContext.configure(connection, opts={"version_table": "served_version"})
        assert compare_metadata(context, METADATA) == []
        assert connection.execute(text("SELECT version_num FROM served_version")).scalars().all() == ["1"]


STARTED_AT_ONCE = """
import multiprocessing, sys
from mltrainer.companions.serving.store import Store

def start(together):
    together.wait()
    Store(sys.argv[1]).close()

forking = multiprocessing.get_context("fork")
together = forking.Barrier(8)
servers = [forking.Process(target=start, args=(together,)) for _ in range(8)]
for server in servers:
    server.start()
for server in servers:
    server.join()
sys.exit(any(server.exitcode for server in servers))
"""


def at_once(url: str) -> subprocess.CompletedProcess[str]:
    """Open an empty database by eight processes at once."""
    command = [sys.executable, "-c", STARTED_AT_ONCE, url]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
def test_servers_that_start_at_once_make_the_tables_once(tmp_path):
    for number in range(3):
        done = at_once(f"sqlite:///{tmp_path / f'{number}.sqlite'}")
        assert done.returncode == 0, done.stderr[-2000:]


def test_a_migration_that_breaks_off_leaves_no_table(url, monkeypatch):
    def broken(self: Store, connection: Connection) -> None:
        upgrade(self, connection)
        raise OperationalError("CREATE TABLE", {}, Exception("the disk is full"))

    upgrade = Store._upgrade
    with monkeypatch.context() as patched:
        patched.setattr(Store, "_upgrade", broken)
        with pytest.raises(MachineError, match="the disk is full"):
            Store(url)
    with connected(url) as connection:
        assert connection.execute(text("SELECT count(*) FROM sqlite_master")).scalar() == 0
    Store(url).close()


def test_tables_of_a_later_version_are_refused(url):
    Store(url).close()
    with connected(url) as connection, connection.begin():
        connection.execute(text("UPDATE served_version SET version_num = '99'"))
    with pytest.raises(InputError, match="the tables are of another version"):
        Store(url)


def test_a_database_that_does_not_answer_is_told_without_its_password(tmp_path):
    with pytest.raises(MachineError) as silent:
        Store(f"sqlite:///{tmp_path}/no/such/folder/kept.sqlite")
    assert "unable to open database file" in str(silent.value)
    assert silent.value.hint == "check the disk, the file and its folder's permissions, then type the same command again"
    with pytest.raises((MachineError, InputError)) as refused:
        Store("postgresql+psycopg://user:secret-word@127.0.0.1:9/none")
    assert "secret-word" not in str(refused.value)


def test_readiness_tells_of_the_database(table, url, monkeypatch):
    with asking(table, store=Store(url)) as client:
        assert client.get("/ready").status_code == 200
        monkeypatch.setattr(Store, "answers", lambda _: False)
        assert (client.get("/ready").status_code, client.get("/health").status_code) == (503, 200)


def test_without_a_database_there_are_no_labels(client):
    assert client.post("/labels", json={"labels": []}).status_code == 404


@pytest.mark.slow
def test_a_project_keeps_its_predictions_in_its_state_folder(digits, table, monkeypatch):
    assert database_of(None, admitted(digits.root)) == f"sqlite:///{digits.root}/.mltrainer/served.sqlite"
    assert database_of("none", admitted(digits.root)) is None
    assert database_of(None, admitted(table, allow_unchecked=True)) is None  # a copy: nothing is written where it lies
    monkeypatch.setenv("PASSWORD", "p@ss")
    assert database_of("postgresql://me:${PASSWORD}@host/db", admitted(digits.root)) == "postgresql://me:p%40ss@host/db"


def test_inputs_need_a_time_after_which_they_go(digits, cli):
    cli("serve", digits.root, "--store", code=2, err="--keep-days")
    cli("serve", digits.root, "--store", "--keep-days", "7", "--database", "none", code=2)


# --- a server of its own process, killed -------------------------------------------------------------


@contextmanager
def server(folder: Path, url: str, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [
        sys.executable,
        "-m",
        "mltrainer",
        "serve",
        str(folder),
        "--allow-unchecked",
        "--port",
        "0",
        "--database",
        url,
        *more,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def hammered(address: str, answered: list[str], stop: threading.Event) -> None:
    """Ask again and again, and note the id of each answer that came whole."""
    body = json.dumps({"rows": [ROW, ROW, ROW]}).encode()
    request = urllib.request.Request(f"{address}predict", body, {"Content-Type": "application/json"})
    while not stop.is_set():
        try:
            with urllib.request.urlopen(request, timeout=10) as said:
                answered.append(json.loads(said.read())["id"])
        except (OSError, HTTPException):
            return


@pytest.mark.slow
@pytest.mark.long
def test_nothing_that_was_answered_is_missing_after_kill_9_under_load(table, url):
    answered: list[str] = []
    for _ in range(5):
        with server(table, url) as (process, address):
            stop = threading.Event()
            clients = [threading.Thread(target=hammered, args=(address, answered, stop)) for _ in range(4)]
            for client in clients:
                client.start()
            time.sleep(1.5)
            os.kill(process.pid, signal.SIGKILL)
            stop.set()
            for client in clients:
                client.join()
    with connected(url) as connection:
        kept = list(connection.execute(select(PREDICTIONS.c.id, PREDICTIONS.c.row)))
        assert connection.execute(text("PRAGMA integrity_check")).scalar() == "ok"
    print(f"{len(answered)} answers, {len(kept)} rows kept")
    assert len(answered) > 100
    assert {(name, row) for name in answered for row in range(3)} <= {(row.id, row.row) for row in kept}


@pytest.mark.slow
@pytest.mark.long
def test_a_server_that_is_told_to_stop_answers_what_is_under_way(table, url):
    answered: list[str] = []
    with server(table, url) as (process, address):
        stop = threading.Event()
        clients = [threading.Thread(target=hammered, args=(address, answered, stop)) for _ in range(2)]
        for client in clients:
            client.start()
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        stop.set()
        for client in clients:
            client.join()
    assert len(answered) > 10


# --- PostgreSQL ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.service
def test_postgresql_keeps_the_same(table, postgres):
    store = Store(postgres)
    with asking(table, store=store, with_inputs=True) as client:
        odd = {**ROW, "town": "NUL \0, a snowman \u2603"}
        name = client.post("/predict", json={"rows": [ROW, odd]}).json()["id"]
        assert client.post("/labels", json={"labels": [{"id": name, "row": 1, "label": "yes"}]}).json() == {"kept": 1}
        kept = store.kept("1" * 64, 1)
        assert [(row.input, row.label) for row in kept] == [(ROW, None), (odd, "yes")]
        assert store.forget(0) == 2
        assert store.kept("1" * 64, 1) == []
    Store(postgres).close()


@pytest.mark.slow
@pytest.mark.service
def test_servers_that_start_at_once_make_postgresqls_tables_once(postgres):
    done = at_once(postgres)
    assert done.returncode == 0, done.stderr[-2000:]
