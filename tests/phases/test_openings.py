"""What is known of the test split's openings, after somebody emptied the folders."""

from __future__ import annotations

import re
import shutil
from typing import Any

import pytest

from mltrainer.configs.pages import phase_page
from mltrainer.phases.context import Context
from mltrainer.phases.openings import known_openings, salt_of
from mltrainer.records.openings import breaks
from mltrainer.records.reading import sound_record
from mltrainer.records.tried import TRIED_FILE
from mltrainer.runs.launcher import launch
from mltrainer.workspace import Project, read_json, write_json
from tests.conftest import commit

LEDGER = "phases/05_finalization/test_openings.json"


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def ctx(digits: Project, notes: list[str]) -> Context:
    """Finalization of a finished project that is committed, ledger and all."""
    commit(digits.root)
    page, record = phase_page("finalization", digits.root), sound_record(digits, "finalization")
    return Context(digits, page, {}, record, None, (), lambda event: notes.append(event["text"]), launch)


def empty(ctx: Context) -> Context:
    """Remove the phase's folder and the runs, as somebody does who wants to begin anew."""
    shutil.rmtree(ctx.folder)
    shutil.rmtree(ctx.project.state_dir)
    return Context(ctx.project, ctx.page, {}, None, None, (), ctx.tell, ctx.launch)


def test_the_ledger_of_a_finished_project_is_what_is_known(ctx, notes):
    assert known_openings(ctx).recorded == read_json(ctx.project.root / LEDGER)
    assert notes == []


def test_an_opening_that_was_committed_is_known_after_all_folders_were_emptied(ctx, notes):
    before = known_openings(ctx)
    found = known_openings(empty(ctx))
    assert found == before
    assert notes == ["git's history holds 1 more of the test split's openings than the files here: they count"]


def test_a_tested_run_alone_tells_of_its_opening_and_rows(ctx):
    before = known_openings(ctx)
    shutil.rmtree(ctx.folder)
    shutil.rmtree(ctx.project.root / ".git")
    alone = Context(ctx.project, ctx.page, {}, None, None, (), ctx.tell, ctx.launch)
    assert known_openings(alone) == before


def test_an_opening_that_was_never_committed_is_known_by_the_ledger_of_tried_runs(ctx, notes):
    [before] = known_openings(ctx).openings
    shutil.rmtree(ctx.project.root / ".git")
    [found] = known_openings(empty(ctx)).openings
    assert (found["run"], "data_sha256" in found) == (before["run"], False)
    assert notes == []


def test_a_project_without_git_is_not_noted(ctx, notes):
    shutil.rmtree(ctx.project.root / ".git")
    (ctx.project.root / TRIED_FILE).unlink()
    assert known_openings(empty(ctx)).openings == []
    assert notes == []


def with_second(ctx: Context, **changes: Any) -> dict[str, Any]:
    ledger = read_json(ctx.project.root / LEDGER)
    other = {**ledger["openings"][0], "run": "a" * 12, "weights_sha256": "a" * 64, **changes}
    return {**ledger, "openings": [*ledger["openings"], other]}


def test_an_opening_on_another_branch_is_known(ctx):
    from tests.gates.test_recomputed import git

    git(ctx.project.root, "checkout", "--quiet", "-b", "other")
    write_json(ctx.project.root / LEDGER, with_second(ctx))
    commit(ctx.project.root)
    git(ctx.project.root, "checkout", "--quiet", "-")
    found = known_openings(ctx).openings
    assert [row["run"] for row in found][1:] == ["a" * 12]
    assert breaks(found) is None


@pytest.mark.parametrize("damage", [b"", b"[1]", b'{"openings": 3, "splits": [1]}', b'{"openings": [3, {}], "splits": {"x": 1}}'])
def test_a_damaged_ledger_is_made_good_by_the_other_sources(ctx, damage):
    before = known_openings(ctx)
    (ctx.project.root / LEDGER).write_bytes(damage)
    assert known_openings(ctx) == before


def test_rows_that_are_not_those_of_their_name_are_not_taken(ctx):
    ledger = read_json(ctx.project.root / LEDGER)
    (name,) = ledger["splits"]
    write_json(ctx.project.root / LEDGER, {**ledger, "splits": {name: {**ledger["splits"][name], "digests": ""}}})
    assert known_openings(ctx).splits[name]["digests"]


def rename(ctx: Context) -> None:
    """Give a project another id."""
    path = ctx.project.root / "mltrainer.yaml"
    path.write_text(re.sub(r"(?m)^id: .*$", "id: abcdef012345", path.read_text()))


def test_the_salt_stays_what_it_was_whatever_the_projects_id_is(ctx):
    first = salt_of(ctx, known_openings(ctx))
    rename(ctx)
    assert salt_of(ctx, known_openings(ctx)) == first
    shutil.rmtree(ctx.project.root / ".git")
    assert salt_of(ctx, known_openings(empty(ctx))) != first


def test_two_projects_have_two_salts(tmp_path, ctx):
    shutil.rmtree(ctx.project.root / ".git")
    alone = empty(ctx)
    one = salt_of(alone, known_openings(alone))
    rename(ctx)
    assert salt_of(alone, known_openings(alone)) != one
