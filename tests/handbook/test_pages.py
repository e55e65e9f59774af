"""The handbook's text: front matter, links, and the commands it tells people to type."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from mltrainer import handbook
from mltrainer.configs.loading import validate
from mltrainer.configs.pages import DevicesPage, DiagnosticPage, PhasePage, ToolPage, VerificationPage, declared
from mltrainer.configs.prices import PRICES, PricesPage
from tests.handbook.reading import commands, links, unknown_part

pytestmark = pytest.mark.wheel

ROOT = handbook.shipped_folder()
PAGES = [path for path in handbook.page_paths() if path.endswith(".md")]
REQUIRED = [
    "phases/WORKFLOW.md",
    "phases/01_planning/workflow.md",
    "phases/02_baseline/workflow.md",
    "phases/03_diagnostics/workflow.md",
    "phases/04_optimization/workflow.md",
    "phases/05_finalization/workflow.md",
    "reproducibility/README.md",
    "reproducibility/seed_control.md",
    "reproducibility/determinism.md",
    "reproducibility/environment.md",
    "reproducibility/verification.md",
    "diagnostics/README.md",
    "diagnostics/nan_loss.md",
    "diagnostics/overfitting.md",
    "diagnostics/exploding_gradients.md",
    "diagnostics/vanishing_gradients.md",
    "diagnostics/resource_inefficiency.md",
    "diagnostics/convergence_stall.md",
    "configs/README.md",
    "configs/baseline_template.yaml",
    "configs/tuning_template.yaml",
    "configs/production_template.yaml",
    "checkpointing/README.md",
    "checkpointing/strategy.md",
    "checkpointing/recovery.md",
    "checkpointing/best_model_selection.md",
    "checkpointing/deployment_export.md",
    "tools/INDEX.md",
    "tools/training_orchestrator/README.md",
    "tools/hyperparameter_tuner/README.md",
    "tools/checkpoint_manager/README.md",
    "tools/training_monitor/README.md",
    "tools/training_explorer/README.md",
]


def model_of(path: str) -> type[BaseModel] | None:
    """Return the model that a page's front matter must satisfy; None where it has none, as it declares nothing."""
    folder, _, name = path.rpartition("/")
    if folder.startswith("phases/") and name == "workflow.md":
        return PhasePage
    if folder == "diagnostics" and name != "README.md":
        return DiagnosticPage
    if path == "reproducibility/verification.md":
        return VerificationPage
    if path == "tools/planner/devices.md":
        return DevicesPage
    if path.startswith(PRICES):
        return PricesPage
    return ToolPage if folder.startswith("tools/") and name == "README.md" else None


def test_every_promised_page_is_there():
    assert set(REQUIRED) <= set(handbook.page_paths())


@pytest.mark.parametrize("path", PAGES)
def test_front_matter_is_valid(path):
    model = model_of(path)
    if model is None:
        assert handbook.read_page(path, None).meta == ""
    else:
        assert validate(model, declared(path, None)).title  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_a_text_with_one_title(path):
    body = re.sub(r"```.*?```", "", handbook.read_page(path, None).body, flags=re.DOTALL)
    assert body.startswith("# ")
    assert len(re.findall(r"^# ", body, flags=re.MULTILINE)) == 1
    assert len(body.split()) > 60


@pytest.mark.parametrize("path", PAGES)
def test_links_between_pages_resolve(path):
    folder = (ROOT / path).parent
    broken = [target for target in links(handbook.read_page(path, None).body) if not (folder / target).exists()]
    assert not broken


@pytest.mark.parametrize("path", PAGES)
def test_every_command_in_a_page_exists(path):
    unknown = {command: part for command in commands(handbook.read_page(path, None).body) if (part := unknown_part(command))}
    assert not unknown


@pytest.mark.parametrize("path", PAGES)
def test_every_page_can_be_reached_from_another_one(path):
    entries = {"phases/WORKFLOW.md", "tools/INDEX.md", *(f"{folder}/README.md" for folder in handbook.FOLDERS)}
    reviewing = path.endswith("/checklist.md")
    targets = [(ROOT / other).parent / link for other in PAGES for link in links(handbook.read_page(other, None).body)]
    linked = {target.resolve() for target in targets}
    is_linked = reviewing or path in entries or (ROOT / path).resolve() in linked
    assert is_linked, f"add a link to {path} in its folder's README.md, and its name to `nav` of mkdocs.yml"


def test_the_handbook_holds_no_python():
    assert not [path for folder in handbook.FOLDERS for path in Path(ROOT / folder).rglob("*.py")]


def test_no_page_names_an_absolute_path_of_somebodys_machine():
    suspects = re.compile(r"(?<![\w.])/(?:home|root|Users|work|tmp)/")
    assert not [path for path in handbook.page_paths() if suspects.search((ROOT / path).read_text("utf-8"))]
