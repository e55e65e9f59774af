"""A new project's file is read alike by every YAML library."""

from __future__ import annotations

import secrets

import pytest
import yaml

from mltrainer.configs.yaml import parse
from mltrainer.project import start


@pytest.mark.parametrize("drawn", ["5e2855886828", "012345678901", "1e0000000000"])
def test_an_id_stays_a_text_whoever_writes_the_file_again(monkeypatch: pytest.MonkeyPatch, drawn: str) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: drawn)
    found = start._new_id()
    assert parse(yaml.safe_dump({"id": found}), "mltrainer.yaml").value == {"id": found}
    assert found[1:] == drawn[1:]
