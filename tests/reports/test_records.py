"""The records that reports are tested with hold nothing that a phase does not write."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from mltrainer.records.envelope import parsed
from mltrainer.workspace import plain
from tests.reports import records

KEPT = Path(__file__).parents[1] / "kept/0.9"


@pytest.fixture(scope="module")
def real() -> dict[str, dict[str, Any]]:
    """A record of each phase as a project wrote it, and of optimization both kinds."""
    found = {}
    for name in ("houses", "digits"):
        with tarfile.open(KEPT / f"{name}.tar.gz") as files:
            members = [files.extractfile(member) for member in files if member.name.endswith("/record.json")]
            read = [json.loads(member.read()) for member in members if member]
        found |= {record["phase"] + ("-tuned" if "trials" in record["evidence"] else ""): record for record in read}
    return found


def completed(made: Any, whole: Any) -> Any:
    """Return a record in which what was left out for brevity is as in a real one; what was put in stays."""
    if isinstance(made, dict) and isinstance(whole, dict):
        return {**whole, **{key: completed(made[key], whole.get(key)) for key in made}}
    if isinstance(made, list) and isinstance(whole, list) and whole:
        return [completed(item, whole[0]) for item in made]
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", records.ALL)
def test_a_record_of_the_tests_holds_only_what_a_phase_writes(name, real):
    made = plain(records.ALL[name]())
    kind = made["phase"] + ("-tuned" if "trials" in made["evidence"] else "")
    whole = real[kind]
    if kind == "diagnostics":
        whole = {**whole, "evidence": {key: value for key, value in whole["evidence"].items() if key != "run"}}
    _, holes = parsed({**completed(made, whole), "schema": whole["schema"]}, made["phase"])
    assert holes == []
