"""The files for agents: the handbook's own words, a project's own pages first, and no person's text overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mltrainer import handbook
from mltrainer.companions.agents.skill import AGENTS_FILE, RULES, SKILL_FOLDER, files_of
from mltrainer.configs.pages import shipped_page
from mltrainer.diagnostics.rules import shipped_pages
from mltrainer.workspace import PHASES

FILES = [AGENTS_FILE, *(f"{SKILL_FOLDER}/{name}" for name in ("SKILL.md", "gates.md", "diagnostics.md"))]
MINE = "# How we work here\n"


@pytest.fixture
def root(tmp_path: Path, cli) -> Path:
    cli("init", tmp_path / "p", "--example", "digits", code=0)
    return tmp_path / "p"


def test_the_files_hold_the_handbooks_rules_gates_and_findings(root, cli):
    assert cli("integrate", "agents", "--project", root, code=0).out.split() == FILES
    agents, skill, gates, findings = ((root / name).read_text() for name in FILES)
    rules = handbook.read_page(RULES, None).body.rstrip()
    assert rules in agents
    assert rules in skill
    for item in (item for phase in PHASES for item in shipped_page(phase).items):
        waived = next(line for line in gates.splitlines() if line.startswith(f"| `{item.id}` |")).rsplit("|", 2)[1].strip()
        assert (waived == "by a person") == item.waivable
    assert all(f"`mltrainer guide diagnostics/{name}`" in findings for name in shipped_pages())


def test_the_skill_begins_with_its_name_and_when_to_use_it(root):
    _, head, body = files_of(root)[f"{SKILL_FOLDER}/SKILL.md"].split("---\n", 2)
    said = yaml.safe_load(head)
    assert said["name"] == Path(SKILL_FOLDER).name
    assert "mltrainer.yaml" in said["description"]
    assert len(said["description"]) <= 1024
    assert "gates.md" in body


def test_a_projects_own_rules_come_first(root, cli):
    cli("guide", "phases/agents", "--copy", "--project", root, code=0)
    (root / RULES).write_text("# Ours\n\nAsk Eve before you train.\n")
    cli("integrate", "agents", "--project", root, code=0)
    assert "Ask Eve before you train." in (root / AGENTS_FILE).read_text()


def test_a_persons_own_agents_file_is_left_and_said(root, cli):
    (root / AGENTS_FILE).write_text(MINE)
    said = cli("integrate", "agents", "--project", root, code=0).out
    assert "AGENTS.md is yours" in said
    assert (root / AGENTS_FILE).read_text() == MINE
    assert (root / SKILL_FOLDER / "SKILL.md").is_file()
    cli("integrate", "agents", "--force", "--json", "--project", root, code=0)
    assert (root / AGENTS_FILE).read_text() != MINE


def test_a_changed_skill_is_not_overwritten_and_an_unchanged_one_is_written_again(root, cli):
    cli("integrate", "agents", "--project", root, code=0)
    cli("integrate", "agents", "--project", root, code=0)
    (root / SKILL_FOLDER / "SKILL.md").write_text(MINE)
    cli("integrate", "agents", "--project", root, code=1, err="made or changed by a person")
    assert (root / SKILL_FOLDER / "SKILL.md").read_text() == MINE


@pytest.mark.parametrize("option", [("--to", "elsewhere"), ("--allow-unchecked",)])
def test_options_of_a_models_files_are_refused(root, cli, option):
    cli("integrate", "agents", *option, "--project", root, code=2, err="leave them out")
