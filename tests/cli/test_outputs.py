"""Each command's JSON has a published schema, and an object that differs from it is refused, however deep the difference lies."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from mltrainer.cli.output import show_address
from tests import outputs

STATUS = {
    "next": None,
    "next_phase": None,
    "next_why": None,
    "phases": [
        {
            "artifacts": [{"path": "a", "sha256": "b"}],
            "name": "planning",
            "reasons": [],
            "run": None,
            "state": "passed",
        }
    ],
    "project": "digits",
}


def test_every_command_has_a_schema():
    with_json = {name for name, one in outputs.commands().items() if any("--json" in param.opts for param in one.params)}
    assert with_json == {*outputs.published()} - {outputs.ERROR}


def test_the_schemas_of_questions_are_those_of_their_models():
    of_models = outputs.of_models()
    assert {name: outputs.published()[name] for name in of_models} == of_models, "python -m tests.outputs"


@pytest.mark.parametrize("name", outputs.SERVERS)
def test_a_server_prints_its_address_as_published(name, capsys):
    show_address("http://127.0.0.1:8000", "open it in a browser", as_json=True)
    assert outputs.check([name], capsys.readouterr().out) == {"url": "http://127.0.0.1:8000"}


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield each part of a schema that is an object."""
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    if isinstance(schema, dict):
        yield schema
    for part in inner:
        yield from parts(part)


@pytest.mark.parametrize("name", outputs.published())
def test_a_schema_is_valid_and_allows_keys_of_later_versions(name):
    schema = outputs.published()[name]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert not [part for part in parts(schema) if part.get("additionalProperties") is False]


def renamed(found: dict[str, Any]) -> None:
    found["phases"][0]["condition"] = found["phases"][0].pop("state")


def deeper(found: dict[str, Any]) -> None:
    found["phases"][0]["artifacts"][0]["digest"] = found["phases"][0]["artifacts"][0].pop("sha256")


def added(found: dict[str, Any]) -> None:
    found["phases"][0]["holds"] = True


def left_out(found: dict[str, Any]) -> None:
    del found["next_why"]


def another_kind(found: dict[str, Any]) -> None:
    found["phases"][0]["reasons"] = "none"


@pytest.mark.parametrize("change", [renamed, deeper, added, left_out, another_kind])
def test_an_object_that_differs_is_refused(change):
    assert outputs.fault_of("status", STATUS) is None
    found = copy.deepcopy(STATUS)
    change(found)
    assert outputs.fault_of("status", found) is not None


def test_what_a_command_prints_in_a_test_is_checked():
    outputs.check(["status", "--json"], json.dumps(STATUS))
    with pytest.raises(AssertionError, match=r"python -m tests\.outputs"):
        outputs.check(["status", "--json"], json.dumps({**STATUS, "phases": [{"name": "planning"}]}))


def test_a_schema_is_widened_by_what_is_seen_and_takes_no_key_away():
    seen = [{"rows": [{"a": 1, "b": "x"}], "none": None}, {"rows": [{"a": None}], "none": []}, {"other": True}]
    schema = None
    for found in seen:
        schema = outputs.widened(schema, found)
    assert [*map(jsonschema.Draft202012Validator(schema).is_valid, [*seen, {"rows": [{}], "none": None}])] == [True] * 3 + [False]
    rows = schema["anyOf"][0]["properties"]["rows"]["items"]
    assert (rows["required"], [*rows["properties"]]) == (["a"], ["a", "b"])
