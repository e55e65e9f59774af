"""Policy and mechanism fit together: what a page declares is enforced, and what is enforced is declared."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import mltrainer
import mltrainer.gates.checks  # registers the checks
from mltrainer import handbook
from mltrainer.configs.items import SETTINGS, GradeSettings, phase_settings_model
from mltrainer.configs.pages import (
    PhasePage,
    diagnostic_page,
    page_path,
    phase_page,
    shipped_page,
    tool_page,
    verification_page,
)
from mltrainer.diagnostics.rules import RULES
from mltrainer.gates.check import CHECKS
from mltrainer.workspace import PHASES

pytestmark = pytest.mark.wheel

PACKAGE = Path(mltrainer.__file__).parent
TOOLS = sorted(path.split("/")[1] for path in handbook.page_paths() if path.startswith("tools/") and path.endswith("README.md"))
PROGRAMS = [tool for tool in TOOLS if re.search(r"mltrainer\.tools\.|\.tool$", tool_page(tool, None).entry_point)]
DIAGNOSTICS = sorted(
    path.removeprefix("diagnostics/").removesuffix(".md")
    for path in handbook.page_paths()
    if path.startswith("diagnostics/") and path != "diagnostics/README.md"
)
NEVER_WAIVABLE = {
    "seeds_fixed",
    "determinism_on",
    "environment_captured",
    "probe_identical",
    "reproduction_verified",
    "config_valid",
    "data_valid",
    "no_secrets",
    "checkpoints_verified",
    "losses_finite",
}


@pytest.fixture(params=PHASES)
def page(request: pytest.FixtureRequest) -> PhasePage:
    return phase_page(request.param, None)


def test_every_item_has_a_check_and_every_check_an_item():
    declared = {item.id for phase in PHASES for item in phase_page(phase, None).items}
    assert declared == set(CHECKS)


def test_no_item_stands_twice_on_a_page(page):
    ids = [item.id for item in page.items]
    assert len(ids) == len(set(ids))


def test_a_check_reads_exactly_the_settings_that_its_item_declares(page):
    for item in page.items:
        function = CHECKS[item.id].function
        assert set(re.findall(r"\bsettings\.(\w+)", inspect.getsource(function))) == set(item.settings), item.id
        asked = [SETTINGS[item.id].__name__] if item.id in SETTINGS else []
        assert [found.annotation for found in list(inspect.signature(function).parameters.values())[1:]] == asked, item.id


DECLARED = {
    **{page_path(phase): (phase_settings_model(phase), shipped_page(phase).settings) for phase in PHASES},
    "reproducibility/verification.md": (GradeSettings, verification_page(None).settings.model_dump(exclude_unset=True)),
}


@pytest.mark.slow
@pytest.mark.parametrize("path", DECLARED)
def test_every_setting_of_a_page_is_declared_there_and_read(path):
    model, declared = DECLARED[path]
    assert set(declared) == set(model.model_fields)
    code = "".join(file.read_text("utf-8") for file in PACKAGE.rglob("*.py") if file.parent.name != "configs")
    assert not [name for name in declared if not re.search(rf"\b(settings|limits|asked|_settings\(ctx\))\.{name}\b", code)]


def test_items_about_reproducibility_cannot_be_waived(page):
    assert not [item.id for item in page.items if item.waivable and item.id in NEVER_WAIVABLE]


def test_each_item_is_explained_on_its_page_and_in_the_checklist(page):
    folder = f"phases/{PHASES.index(page.phase) + 1:02d}_{page.phase}"
    workflow, checklist = (handbook.read_page(f"{folder}/{name}.md", None).body for name in ("workflow", "checklist"))
    assert not [item.id for item in page.items if f"`{item.id}`" not in workflow or f"`{item.id}`" not in checklist]


def test_a_numeric_setting_stands_in_the_front_matter_only(page):
    body = handbook.read_page(f"phases/{PHASES.index(page.phase) + 1:02d}_{page.phase}/workflow.md", None).body.partition("\n")[2]
    settings = [item.settings for item in page.items] + [page.settings]
    values = [value for part in settings for value in part.values()]
    numbers = [str(value) for value in values if type(value) in (int, float) and value != 1]
    assert not [number for number in numbers if re.search(rf"(?<![\w.]){re.escape(number)}(?![\w.])", body)]


def test_the_significance_level_can_be_reached_with_the_number_of_seeds():
    settings = next(item.settings for item in phase_page("optimization", None).items if item.id == "improvement_validated")
    assert 0.5 ** int(settings["seeds"]) <= float(settings["level"])


def test_a_phase_names_a_tool_that_serves_it(page):
    assert page.phase in tool_page(page.tool, None).phases


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tools_manifest_names_itself_and_a_module_that_exists(tool):
    manifest = tool_page(tool, None)
    assert manifest.tool == tool
    assert importlib.util.find_spec(manifest.entry_point) is not None


@pytest.mark.parametrize("tool", PROGRAMS)
def test_a_program_starts_with_what_must_be_set_before_the_interpreter(tool):
    environment = tool_page(tool, None).environment
    assert environment["PYTHONHASHSEED"] == "0"
    assert environment["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert environment["OMP_NUM_THREADS"].format(threads=3) == "3"


def test_every_tool_is_listed_in_the_index():
    body = handbook.read_page("tools/INDEX.md", None).body
    assert not [tool for tool in TOOLS if f"({tool}/README.md)" not in body]


@pytest.mark.parametrize("name", DIAGNOSTICS)
def test_a_diagnostics_page_is_paired_with_its_module(name):
    assert diagnostic_page(name, None).diagnostic == name
    assert importlib.util.find_spec(f"mltrainer.diagnostics.{name}") is not None


@pytest.mark.parametrize("name", DIAGNOSTICS)
def test_a_page_gives_each_threshold_of_its_rule_and_no_other(name):
    _, *thresholds = inspect.signature(RULES[name]).parameters
    assert thresholds == list(diagnostic_page(name, None).thresholds)
