"""Files for a team's own stack, taken by what reads them: PostgreSQL, and Next.js with its compiler."""

from __future__ import annotations

import contextlib
import html.parser
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import httpx
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from mltrainer.companions.serving.templates.languages import typescript_literal
from tests.companions.serving.conftest import (
    CHAT,
    GENERATOR,
    ROW,
    TABLE,
    VALUE,
    deliver_generator,
    listening_at,
    one_by_one,
    read_one_by_one,
)
from tests.companions.serving.test_templates import ODD, ODD_NAMES, SPECS, TOKEN, files

# --- Supabase -----------------------------------------------------------------------------------------

ALICE, BOB = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
ANSWER, OTHER = "a" * 32, "b" * 32
# What Supabase brings: its roles, all of a new table granted to them, and the user of a request.
PLATFORM = f"""
create role anon; create role authenticated; create role service_role bypassrls;
create schema auth;
create table auth.users (id uuid primary key);
insert into auth.users values ('{ALICE}'), ('{BOB}');
create function auth.uid() returns uuid stable language sql
  as $$ select nullif(nullif(current_setting('request.jwt.claims', true), '')::json ->> 'sub', '')::uuid $$;
grant usage on schema auth to anon, authenticated, service_role;
grant execute on function auth.uid() to anon, authenticated, service_role;
alter default privileges in schema public grant all on tables to anon, authenticated, service_role;
"""


@pytest.fixture
def supabase(postgres: str) -> Iterator[Engine]:
    """A database as Supabase makes one."""
    engine = create_engine(postgres, poolclass=NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(PLATFORM)
    yield engine
    engine.dispose()


def migrate(engine: Engine, spec: dict[str, Any]) -> None:
    ((name, sql),) = files("supabase", spec).items()
    assert name == "migrations/20261127000000_haeuser_111111111111.sql"
    with engine.begin() as connection:
        connection.connection.dbapi_connection.cursor().execute(sql)


@contextlib.contextmanager
def role(engine: Engine, name: str, user: str = "") -> Iterator[Connection]:
    """Yield a connection with the rights of a role, for a user."""
    with engine.begin() as connection:
        connection.execute(text("select set_config('request.jwt.claims', :claims, true)"), {"claims": json.dumps({"sub": user})})
        connection.exec_driver_sql(f"set local role {name}")
        yield connection


def refuses(engine: Engine, user: str, sql: str, name: str = "authenticated") -> str:
    """Return the reason why the database refuses a statement of a user."""
    with pytest.raises(SQLAlchemyError) as refused:
        with role(engine, name, user) as connection:
            connection.execute(text(sql))
    return str(getattr(refused.value, "orig", refused.value))


def count(engine: Engine, table: str, user: str, name: str = "authenticated") -> int:
    with role(engine, name, user) as connection:
        return int(connection.execute(text(f"select count(*) from haeuser_{table}")).scalar_one())


def keep(engine: Engine, user: str, answer: str, said: Any = None, row: Any = None) -> None:
    """Keep an answer as a team's server does."""
    said = said or {"prediction": "yes", "probabilities": {"no": 0.25, "yes": 0.75}}
    values = {"id": answer, "user": user, "answer": json.dumps(said), "input": None if row is None else json.dumps(row)}
    columns = "insert into haeuser_predictions (id, row, user_id, answer, input)"
    into = f"{columns} values (:id, 0, :user, cast(:answer as jsonb), cast(:input as jsonb))"
    with role(engine, "service_role") as connection:
        connection.execute(text(into), values)


def labels(answer: str, user: str | None = None) -> str:
    columns, values = ("id, label, user_id", f", '{user}'") if user else ("id, label", "")
    return f"""insert into haeuser_labels ({columns}) values ('{answer}', '"no"'{values})"""


@pytest.mark.slow
@pytest.mark.service
def test_each_user_sees_labels_and_deletes_their_own_answers_alone(supabase):
    migrate(supabase, TABLE)
    keep(supabase, ALICE, ANSWER, row=ROW)
    keep(supabase, BOB, OTHER)
    with role(supabase, "authenticated", ALICE) as connection:
        connection.execute(text(labels(ANSWER)))
    assert [count(supabase, "predictions", user) for user in (ALICE, BOB)] == [1, 1]
    assert [count(supabase, "labels", user) for user in (ALICE, BOB)] == [1, 0]
    assert count(supabase, "predictions", "") == 0
    for table in ("predictions", "labels"):
        assert "permission denied" in refuses(supabase, "", f"select * from haeuser_{table}", "anon")

    assert "foreign key" in refuses(supabase, BOB, labels(ANSWER))
    assert "row-level security" in refuses(supabase, BOB, labels(ANSWER, ALICE))
    assert "permission denied" in refuses(supabase, BOB, f"update haeuser_labels set user_id = '{BOB}'")
    forged = f"insert into haeuser_predictions (id, row, user_id, answer) values ('{'c' * 32}', 0, '{BOB}', '{{}}')"
    assert "permission denied" in refuses(supabase, BOB, forged)
    assert "permission denied" in refuses(supabase, BOB, "update haeuser_predictions set answer = '{}'")

    for user, left in ((BOB, 1), (ALICE, 0)):
        with role(supabase, "authenticated", user) as connection:
            connection.execute(text("""update haeuser_labels set label = '"yes"'"""))
            connection.execute(text("delete from haeuser_predictions"))
        with role(supabase, "service_role") as connection:
            found = connection.execute(text("select label from haeuser_labels")).scalars().all()
        assert found == ["no"] * left, "nobody else changes or deletes it; with the answer goes its label"


@pytest.mark.slow
@pytest.mark.service
def test_rows_and_answers_are_those_of_the_model_whatever_its_columns_are_called(supabase):
    migrate(supabase, TABLE)
    keep(supabase, ALICE, ANSWER, row={**ROW, "age": None})
    for number, (said, row) in enumerate(
        (
            ({"prediction": "maybe", "probabilities": {}}, None),
            ({"prediction": "no"}, None),
            ("no", None),
            (None, {**ROW, "age": "old"}),
            (None, {**ROW, "mystery": 1}),
            (None, {"age": 1}),
            (None, [ROW]),
        )
    ):
        with pytest.raises(SQLAlchemyError, match="check constraint"):
            keep(supabase, ALICE, f"{number:032x}", said, row)

    migrate(supabase, ODD)  # a later model of the same project
    migrate(supabase, ODD)
    row = {name: True if kind == "boolean" else 1 if kind == "number" else "x" for name, kind in ODD_NAMES.items()}
    for number, label in enumerate(ODD["classes"]):
        keep(supabase, BOB, f"{number:032x}", {"prediction": label, "probabilities": {}}, row)
    with pytest.raises(SQLAlchemyError, match="check constraint"):
        keep(supabase, BOB, OTHER, {"prediction": "no", "probabilities": {}}, ROW)
    assert [count(supabase, "predictions", user) for user in (ALICE, BOB)] == [1, 3]


@pytest.mark.slow
@pytest.mark.service
def test_the_migration_of_each_form_of_rows_is_applied(supabase):
    for spec in (*SPECS.values(), VALUE):
        migrate(supabase, spec)


# --- Next.js ------------------------------------------------------------------------------------------

NEXT = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(shutil.which("npm") is None, reason="no npm is here: install Node.js"),
]


def npx(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NEXT_TELEMETRY_DISABLED": "1", "CI": "1"}
    return subprocess.run(["npx", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False)


def put(folder: Path, spec: dict[str, Any]) -> Path:
    for name, content in files("nextjs", spec).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The app of the table's model, built."""
    folder = put(tmp_path_factory.mktemp("table"), TABLE)
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
    if (done := subprocess.run(install, cwd=folder, capture_output=True, text=True, check=False)).returncode:
        pytest.skip(f"npm cannot install the packages here: {done.stderr[-200:]}")
    return build(folder)


@pytest.fixture(scope="module")
def built_generator(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The app of a model that continues texts, built."""
    folder = put(tmp_path_factory.mktemp("generator"), GENERATOR)
    shutil.copytree(built / "node_modules", folder / "node_modules", symlinks=True, copy_function=os.link)
    return build(folder)


def build(folder: Path) -> Path:
    done = npx(folder, "next", "build")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Form(html.parser.HTMLParser):
    """The elements of a page: all of them, by their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


class TestNext:
    pytestmark = NEXT

    def test_each_field_of_the_form_has_a_label_and_a_hint(self, built):
        elements = Form((built / ".next/server/app/index.html").read_text("utf-8")).found
        ids = {attributes["id"] for _, attributes in elements if "id" in attributes}
        named = {attributes["for"] for tag, attributes in elements if tag == "label"}
        fields = [attributes for tag, attributes in elements if tag in ("input", "select", "textarea")]
        assert len(fields) == len(TABLE["columns"])
        for field in fields:
            assert field["id"] in named
            assert set((field["aria-describedby"] or "").split()) <= ids
            assert "tabindex" not in field
        assert [attributes["type"] for tag, attributes in elements if tag == "button"] == ["submit"]
        assert [attributes for _, attributes in elements if attributes.get("role") == "alert"]

    def test_the_route_answers_with_the_model_and_keeps_the_token(self, built, table):
        with listening_at(table, TOKEN) as model, serving(built, model) as url:
            said = asked(url, {"rows": [ROW]})
            assert said[0] == 200
            assert said[1]["answers"][0]["prediction"] in ("no", "yes")
            assert asked(url, {"rows": [{**ROW, "age": "old"}]})[1]["where"] == "rows[0].age"
            assert asked(url, {"rows": [ROW]}, "text/plain")[0] == 415
            page = urllib.request.urlopen(url, timeout=30).read().decode()
        assert TOKEN not in page
        with serving(built, "http://127.0.0.1:9") as url:
            assert asked(url, {"rows": [ROW]}) == (503, {"where": "server", "what": "the model's server does not answer"})

    def test_a_continuation_is_passed_on_while_it_is_made(self, built_generator, tmp_path, monkeypatch):
        wanted = one_by_one(monkeypatch)
        with listening_at(deliver_generator(tmp_path / "model"), TOKEN) as model, serving(built_generator, model) as url:
            assert read_one_by_one(f"{url}/api/continue", wanted) == "cda"
            said = httpx.post(f"{url}/api/continue", json={"prompt": "ab", "tokens": 0}, timeout=60)
            assert (said.status_code, said.json()["where"]) == (422, "tokens")

    @pytest.mark.parametrize("form", [*SPECS, "odd", "chat"])
    def test_the_types_of_each_form_of_rows_compile(self, built, form):
        put(built, {**SPECS, "odd": ODD, "chat": CHAT}[form])
        done = npx(built, "tsc", "--noEmit")
        assert done.returncode == 0, done.stdout

    def test_a_form_that_forgets_a_column_does_not_compile(self, built):
        path = put(built, TABLE) / "lib/model.ts"
        line = f"    [{typescript_literal('age')}]: read.number(0),\n"
        assert line in path.read_text()
        path.write_text(path.read_text().replace(line, ""))
        assert "age" in npx(built, "tsc", "--noEmit").stdout


@contextlib.contextmanager
def serving(folder: Path, model: str) -> Iterator[str]:
    """Yield the address of the built app, which asks a model's server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "HAEUSER_MODEL_URL": model, "HAEUSER_MODEL_TOKEN": TOKEN, "NEXT_TELEMETRY_DISABLED": "1"}
    program = ["node", "node_modules/next/dist/bin/next", "start", "--hostname", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(program, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def asked(url: str, body: Any, kind: str = "application/json") -> tuple[int, Any]:
    request = urllib.request.Request(f"{url}/api/predict", json.dumps(body).encode(), {"Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=60) as said:
            return said.status, json.load(said)
    except HTTPError as error:
        return error.code, json.load(error)
