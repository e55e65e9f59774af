"""The URL of a shared database: variables are filled in, and no password stands in a file or a message."""

from __future__ import annotations

import pytest

from mltrainer.configs.loading import validate_values
from mltrainer.configs.storage import fault_of, filled, shown
from mltrainer.configs.templates import TuningTemplate, tuning_template
from mltrainer.errors import InputError

GOOD = (
    "sqlite:////shared/search.db",
    "${SEARCH_DATABASE}",
    "postgresql://user:${DB_PASSWORD}@host:5432/search",
    "postgresql+psycopg://host/search?sslmode=require&passfile=/home/x/.pgpass",
    "mysql+pymysql://user@host/search?password=${DB_PASSWORD}",
)
BAD = (
    "postgresql://user:hunter22@host/search",
    "postgresql://user:hu/nter22@host/search",
    "mysql://user@host/search?password=hunter22",
    "postgresql://user:${DB}hunter22@host/search",
    "redis://user:hunter22@host",
    "hunter22",
)


@pytest.mark.parametrize("url", GOOD)
def test_a_url_without_a_password_may_stand_in_a_file(url):
    assert fault_of(url) is None


@pytest.mark.parametrize("url", BAD)
def test_a_password_in_the_template_is_refused_and_not_repeated(url):
    template = {key: value for key, value in tuning_template(None).items() if key != "comparison"}
    with pytest.raises(InputError, match="key storage") as caught:
        validate_values(TuningTemplate, {**template, "storage": url}, "configs/tuning_template.yaml")
    assert "hunter22" not in str(caught.value)
    assert "nter22" not in str(caught.value)


def test_variables_are_filled_in_and_quoted_where_they_stand_for_a_password():
    variables = {"DB_PASSWORD": "p@ss/{w}ord", "HOST": "db:5432", "WHOLE": "sqlite:///x.db"}
    assert filled("postgresql://me:${DB_PASSWORD}@${HOST}/x", variables) == "postgresql://me:p%40ss%2F%7Bw%7Dord@db:5432/x"
    assert filled("${WHOLE}", variables) == "sqlite:///x.db"


@pytest.mark.parametrize(("url", "told"), [("${NONE}", "NONE is not set"), ("${HOST}", "is not one of sqlite")])
def test_a_variable_that_holds_no_url_is_named(url, told):
    with pytest.raises(InputError, match=told):
        filled(url, {"HOST": "db"})


def test_what_is_shown_has_neither_user_nor_password():
    assert shown("postgresql+psycopg://me:secret@host:5432/x?password=secret") == "postgresql://host:5432/x"
