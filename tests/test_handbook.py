"""Pages are found in the project first, else in the handbook that is shipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltrainer import handbook
from mltrainer.configs.pages import committed_digest, declared, policy_digest
from mltrainer.configs.templates import tuning_template
from mltrainer.errors import InputError

PAGE = "checkpointing/recovery.md"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that replaces one page by its own."""
    (tmp_path / "checkpointing").mkdir()
    (tmp_path / PAGE).write_text("---\ntitle: Ours\n---\n\n# Ours\n")
    return tmp_path


def test_a_projects_own_page_is_read_and_marked(project):
    page = handbook.read_page(PAGE, project)
    assert page.overridden
    assert page.meta == "title: Ours"
    assert page.body == "# Ours\n"


def test_another_page_comes_from_the_shipped_handbook(project):
    page = handbook.read_page("checkpointing/strategy.md", project)
    assert not page.overridden
    assert page.body.startswith("# Checkpoint strategy")


def test_outside_a_project_the_shipped_page_is_read():
    assert not handbook.read_page(PAGE, None).overridden


def test_the_overridden_pages_are_listed(project):
    (project / "checkpointing/notes.md").write_text("no page of the handbook")
    assert handbook.overrides(project) == [PAGE]


def test_the_checkout_does_not_override_itself():
    assert handbook.overrides(handbook.shipped_folder()) == []


@pytest.mark.parametrize("path", ["diagnostics/none.md", "../mltrainer/errors.py", "/etc/passwd", "", "phases"])
def test_what_is_no_page_is_refused(path, tmp_path):
    with pytest.raises(InputError, match="no page"):
        handbook.read_page(path, tmp_path)


def test_front_matter_without_an_end_is_refused(project):
    (project / PAGE).write_text("---\ntitle: Ours\n\n# Ours\n")
    with pytest.raises(InputError, match="no closing ---"):
        handbook.read_page(PAGE, project)


def test_a_page_without_front_matter_declares_nothing(project):
    (project / PAGE).write_text("# Ours\n")
    page = handbook.read_page(PAGE, project)
    assert page.meta == ""
    assert page.body == "# Ours\n"


def test_a_page_is_shown_with_what_it_declares_below_its_text(project):
    (project / PAGE).write_text("---\ntitle: Ours\nsettings: {most: 3}\n---\n\n# Ours\n")
    shown = "# Ours\n\n## What this page declares\n\n```yaml\nsettings: {most: 3}\n```\n"
    assert handbook.read_page(PAGE, project).text == shown
    (project / PAGE).write_text("---\ntitle: Ours\n---\n\n# Ours\n")
    assert handbook.read_page(PAGE, project).text == "# Ours\n"


def test_lines_of_front_matter_are_those_of_the_file(project):
    assert declared(PAGE, project).where(("title",)) == f"{PAGE}:2, key title"


def test_a_template_that_is_no_mapping_is_refused(tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/tuning_template.yaml").write_text("- 1\n")
    with pytest.raises(InputError, match="keys with values were expected"):
        tuning_template(tmp_path)


def test_what_a_page_declares_has_a_digest_that_its_prose_does_not_change(project):
    before = policy_digest(PAGE, project)
    (project / PAGE).write_text("---\ntitle: Ours\n---\n\n# Ours, in other words\n")
    same = policy_digest(PAGE, project)
    (project / PAGE).write_text("---\ntitle: Theirs\n---\n")
    assert before == same != policy_digest(PAGE, project)


@pytest.mark.parametrize("path", [PAGE, "configs/tuning_template.yaml", "phases/03_diagnostics/report.md.j2"])
def test_a_committed_page_has_the_digest_of_the_same_page_here(path):
    assert committed_digest(path, (handbook.shipped_folder() / path).read_bytes()) == policy_digest(path, None)


@pytest.mark.parametrize("path", ["tools/../README.md", "tools/.hidden/README.md"])
def test_no_page_leads_out_of_the_tools(tmp_path, path):
    (tmp_path / "tools/.hidden").mkdir(parents=True)
    for file in (tmp_path / "README.md", tmp_path / "tools/.hidden/README.md"):
        file.write_text("---\ntitle: x\n---\nmine")
    assert not handbook.exists(path, tmp_path)
    with pytest.raises(InputError, match="no page"):
        handbook.read_page(path, tmp_path)
