"""The trials of a long search beside its record: none is lost, no record of today has another form, no edit passes."""

from __future__ import annotations

import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

import pytest

from mltrainer.figures.drawn import draw, rows
from mltrainer.gates.gate import Gate, check_gates
from mltrainer.project.engine import write
from mltrainer.project.review import review
from mltrainer.records import trial_table
from mltrainer.records.layout import record_json
from mltrainer.records.reading import read_record
from mltrainer.records.trial_table import MOST_ROWS, divided, whole
from mltrainer.workspace import MOST_BYTES, PHASES, Project, pretty_json, read_json, seal, sha256_bytes
from tests.conftest import commit, git
from tests.reports.records import searched

KEPT = Path(__file__).parents[1] / "kept/0.9/houses.tar.gz"
RESTORE = "bring it back from git; next: mltrainer phase run optimization"


def record(trials: int) -> dict[str, Any]:
    return seal(json.loads(json.dumps(searched(trials))))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    with tarfile.open(KEPT) as archive:
        archive.extractall(tmp_path, filter="data")
    return Project(tmp_path)


def put(project: Project, trials: int) -> Path:
    """Write the record of a search of so many generated trials, and return its folder."""
    folder = project.phase_dir("optimization")
    kept = read_json(folder / "record.json")
    own = {key: kept["evidence"][key] for key in ("replay", "comparison", "acceptance", "config", "promoted")}
    made = {**kept, "evidence": {**searched(trials)["evidence"], **own}}
    figures = draw("optimization", made["evidence"])
    write(project, "optimization", seal({**made, "figures": rows("optimization", made["evidence"], figures)}), figures)
    return folder


def gate(project: Project) -> Gate:
    return check_gates(project)[PHASES.index("optimization")]


def table(folder: Path) -> Path:
    (found,) = folder.glob("trials-*.json.xz")
    return found


def test_a_search_of_today_keeps_its_bytes():
    whole_record = record(MOST_ROWS)
    found = divided(whole_record)
    assert found.table is None
    assert record_json(found.content) == record_json(whole_record)


@pytest.mark.parametrize("trials", [MOST_ROWS + 1, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_longer_one_has_its_trials_beside_it_and_loses_none(trials):
    before = record(trials)
    found = divided(before)
    assert found.table is not None
    assert len(record_json(found.content)) + len(found.table) <= 1e6
    assert whole(json.loads(record_json(found.content)), found.table).content == before
    assert divided(before) == found  # equal records have equal bytes


def test_what_some_trials_lack_they_lack_again():
    trials = [{"nr": 1, "values": {"a": 1}}, {"nr": 2, "values": {"b": 1.0}, "folds": []}, {"nr": 3, "values": {}}]
    assert trial_table._rows_of(json.loads(json.dumps(trial_table._Columns.of(trials).written()))) == trials


@pytest.mark.slow
def test_gate_and_reports_are_those_of_a_record_that_holds_its_trials(project, monkeypatch):
    monkeypatch.setattr(trial_table, "MOST_ROWS", 60)
    folder = put(project, 60)
    inside, pages = gate(project), {path.name: path.read_bytes() for path in folder.glob("*.md")}
    assert not [*folder.glob("trials-*")]
    monkeypatch.setattr(trial_table, "MOST_ROWS", 59)
    put(project, 60)
    beside = gate(project)
    assert beside.record is not None
    assert inside.record is not None
    assert isinstance(read_json(folder / "record.json")["evidence"]["trials"], dict)
    assert (beside.items, beside.stale, beside.record.data) == (inside.items, inside.stale, inside.record.data)
    assert {path.name: path.read_bytes() for path in folder.glob("*.md")} == pages


@pytest.mark.slow
def test_an_edited_missing_or_strange_table_is_named(project, monkeypatch):
    monkeypatch.setattr(trial_table, "MOST_ROWS", 20)
    folder = put(project, 30)
    path = table(folder)
    before = path.read_bytes()
    for place in (12, len(before) // 2, len(before) - 1):
        flipped = bytearray(before)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        assert gate(project).stale == (
            f"phases/04_optimization/record.json: {path.name}, which holds the trials, was edited: {RESTORE}",
        )
    path.unlink()
    assert f"{path.name}, which holds the trials, is not beside it: {RESTORE}" in gate(project).stale[0]
    path.write_bytes(before)
    assert "which holds the trials" not in "".join(gate(project).stale)


def test_other_trials_do_not_fit_the_seal(project, monkeypatch):
    monkeypatch.setattr(trial_table, "MOST_ROWS", 20)
    folder = put(project, 30)
    columns = json.loads(lzma.decompress(table(folder).read_bytes()))
    columns["columns"]["value"]["of"][4] = 0.999
    other = lzma.compress(json.dumps(columns).encode())
    content = read_json(folder / "record.json")
    content["evidence"]["trials"]["table"] = sha256_bytes(other)
    (folder / "record.json").write_bytes(pretty_json(content))
    (folder / f"trials-{sha256_bytes(other)[:12]}.json.xz").write_bytes(other)
    assert "was edited: its content does not match its seal" in gate(project).stale[0]


STRANGE = {
    "is cut off, or has more than": lzma.compress(b" " * (MOST_BYTES + 1), preset=0),
    "more than 4000000 values": lzma.compress(b'{"rows": 999999999, "columns": {}}'),
    "not readable: TypeError": lzma.compress(b'{"rows": 3, "columns": {"nr": {"of": 7}}}'),
    "not readable: KeyError": lzma.compress(b"{}"),
    "not readable: Input format": b"no table, and longer than the header of one",
    "holds 2 trials, and not 30": lzma.compress(b'{"rows": 2, "columns": {}}'),
}


@pytest.mark.parametrize("reason", STRANGE)
def test_a_table_that_is_none_is_refused(reason):
    reference = {"table": sha256_bytes(STRANGE[reason]), "rows": 30}
    with pytest.raises(ValueError, match=reason):
        whole({"evidence": {"trials": reference}}, STRANGE[reason])


@pytest.mark.parametrize("stands", [{"table": "../../x", "rows": 1}, {"rows": 1}, {"table": "0" * 64, "rows": "many"}])
def test_a_record_names_no_other_file(stands, project):
    path = project.phase_dir("optimization") / "record.json"
    content = read_json(path)
    path.write_bytes(pretty_json({**content, "evidence": {**content["evidence"], "trials": stands}}))
    assert "names no table" in gate(project).stale[0]


def test_the_table_of_the_record_before_goes_and_nothing_is_lost_on_the_way(project, monkeypatch):
    monkeypatch.setattr(trial_table, "MOST_ROWS", 20)
    folder = put(project, 30)
    first, old = table(folder), read_record(project, "optimization")

    def killed(*_: Any) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as until:
        until.setattr("mltrainer.project.engine.record_json", killed)  # when the new table is there, and the record not yet
        with pytest.raises(KeyboardInterrupt):
            put(project, 31)
    assert read_record(project, "optimization") == old
    put(project, 31)
    assert table(folder) != first
    put(project, 10)
    assert not [*folder.glob("trials-*")]


@pytest.mark.slow
def test_a_review_reads_the_table_of_the_other_revision(project, monkeypatch):
    monkeypatch.setattr(trial_table, "MOST_ROWS", 20)
    put(project, 30)
    commit(project.root, new=True)
    put(project, 40)
    assert not [note for note in review(project, "main").notes if "record.json" in note]
    git(project.root, "rm", "--quiet", "--cached", "phases/04_optimization/trials-*")
    git(project.root, "commit", "--quiet", "--message", "without the table")
    assert [note for note in review(project, "main").notes if "is not beside it" in note]
