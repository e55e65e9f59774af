"""The documents beside the handbook, which a wheel does not carry, and the guide to every key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mltrainer import handbook
from mltrainer.configs.loading import known_keys
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.templates import Combine, Export, TuningTemplate
from tests.handbook.reading import commands, links, unknown_part

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *sorted(path.relative_to(ROOT).as_posix() for folder in ("docs", "examples") for path in (ROOT / folder).rglob("*.md")),
]


def documented_keys() -> set[str]:
    """Return the keys, and lists of keys, that stand in the first columns of the guide's tables."""
    _, _, body = handbook.read_page("configs/README.md", None).body.partition("\n## Keys")
    rows = re.findall(r"^\| (`[^|]+) \|", body, flags=re.MULTILINE)
    return {key for row in rows for key in re.findall(r"`([a-z0-9_.]+)`", row)}


def all_keys() -> set[str]:
    """Return every dotted key of a training config."""
    names = {name: known_keys(TrainingConfig, (name,)) for name in TrainingConfig.model_fields}
    return {f"{name}.{key}" if key else name for name, keys in names.items() for key in (keys or [""])}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_of_a_document_resolve(name):
    page = ROOT / name
    assert not [target for target in links(page.read_text("utf-8")) if not (page.parent / target).exists()]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_of_a_document_exist(name):
    text = (ROOT / name).read_text("utf-8")
    assert not {command: part for command in commands(text) if (part := unknown_part(command))}


def test_the_page_of_commands_lists_every_command_group():
    from mltrainer.cli.catalogue import COMMANDS

    text = (ROOT / "docs/COMMANDS.md").read_text("utf-8")
    assert not [name for name in COMMANDS if f"`mltrainer {name}" not in text]


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/DESIGN.md"])
def test_a_file_that_a_document_names_is_there(name):
    named = re.findall(r"`((?:mltrainer|tests|docs|configs|tools)/[\w./]+)`", (ROOT / name).read_text("utf-8"))
    assert named
    assert not [path for path in named if not (ROOT / path).exists()]


def _listed(text: str, indent: str) -> set[str]:
    """Return the folders and modules that begin the lines of that indent."""
    first = [re.split(r"\s{2,}", line.strip())[0] for line in text.splitlines() if re.match(rf"{indent}\S", line)]
    return {name for names in first for name in re.findall(r"\w+(?:/|\.py)", names)}


def _rooms(folder: Path) -> set[str]:
    return {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}


def test_the_map_for_contributors_names_every_room_and_no_other():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("\nmltrainer/ ")[2].partition("\nphases/")[0]
    core, _, companions = text.partition("  companions/")
    package = ROOT / "mltrainer"
    modules = {path.name for path in package.glob("*.py")} - {"__main__.py"}
    assert _listed(core, "  ") == (_rooms(package) | modules) - {"companions/"}
    assert _listed(companions, "    ") == _rooms(package / "companions")


def test_the_guide_explains_every_key_of_a_config():
    assert all_keys() <= documented_keys()


def test_the_guide_explains_no_key_that_does_not_exist():
    exports = {f"export.{key}" for key in Export.model_fields} | {"combine"} | {f"combine.{key}" for key in Combine.model_fields}
    assert set(TuningTemplate.model_fields) | exports <= documented_keys()
    assert documented_keys() <= all_keys() | set(TuningTemplate.model_fields) | exports
