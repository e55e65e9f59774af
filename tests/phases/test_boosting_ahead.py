"""A table on which gradient boosting wins says so in the first screen of every report; one on which the network wins does not."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from mltrainer.tables import open_table
from mltrainer.workspace import PHASES, Project
from tests.conftest import Cli, commit
from tests.known_tables import plane, stepped
from tests.projects import evidence_of

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]
SCREEN = 25  # lines
AHEAD = "**Gradient boosting is better than "


def walked(folder: Path, cli: Cli, table: str, epochs: int) -> tuple[Project, str]:
    """Walk a table through all phases with few epochs; return the project, and what was said."""
    (folder / "table.csv").write_text(table)
    cli("init", folder / "net", "--data", folder / "table.csv", "--target", "price", code=0)
    for path in (folder / "net/configs").glob("*.yaml"):
        shorter = re.sub(r"(?m)^epochs: .*", f"epochs: {epochs}", path.read_text())
        path.write_text(re.sub(r"every_n_epochs: \d+", "every_n_epochs: 1", shorter))
    with (folder / "net/mltrainer.yaml").open("a") as file:
        file.write('acceptance: {r2: ">= 0.05"}\n')
    commit(folder / "net")
    said = cli("run", "--project", folder / "net", code=0)
    return Project(folder / "net"), said.err


def screens(project: Project) -> dict[str, str]:
    """Return the first lines of each report, and of the card below its front matter, by file name."""
    folders = [project.phase_dir(phase) for phase in PHASES]
    found = {path.name: path.read_text() for folder in folders for path in folder.glob("*.md")}
    card = (folders[-1] / "final_model/README.md").read_text()
    found["card"] = card.split("\n---\n", 1)[1]
    return {name: "\n".join(text.splitlines()[:SCREEN]) for name, text in found.items()}


def test_every_report_names_the_boosting_that_is_ahead_with_both_figures_and_the_command(tmp_path, cli):
    lightgbm = pytest.importorskip("lightgbm")
    project, said = walked(tmp_path, cli, stepped(1500), 4)
    assert said.count("LightGBM, to compare with") == 2, (
        "once for the validation rows, which planning measured, once for the test"
    )
    shown = screens(project)
    assert "**Gradient boosting is ahead of smooth models on this table" in shown["reproducibility_manifest.md"]
    names = ["baseline_results.md", "diagnostic_report.md", "tuning_results.md", "final_report.md", "card"]
    assert set(names) <= set(shown)
    assert [name for name in names if AHEAD not in shown[name]] == []
    final = evidence_of(project, "finalization")
    ahead = final["boosting"]
    assert [row["split"] for row in ahead["beside"]] == ["validation", "test"]
    on_test = ahead["beside"][1]
    assert on_test["network"] == pytest.approx(final["test"]["metrics"]["r2"], rel=1e-6)
    for name in ("final_report.md", "card"):
        assert f"On the {on_test['samples']} test rows LightGBM has r2 {on_test['value']:.3f}" in shown[name]
        assert f"{on_test['network']:.3f}" in shown[name]
    assert "the test split stays sealed" not in (project.phase_dir("finalization") / "final_report.md").read_text()

    # The command as it stands there, and its program's figures beside those that the network's reports name.
    typed = shlex.split(ahead["command"])
    assert ahead["command"] in shown["baseline_results.md"]
    cli("init", project.root / typed[2], "--data", project.root / typed[4], *typed[5:], code=0)
    assert ahead["command"] in shown["reproducibility_manifest.md"]
    table = open_table(project.root / typed[2] / "table.yaml")
    model = lightgbm.LGBMRegressor(deterministic=True, force_row_wise=True, n_jobs=1, verbose=-1)
    model.fit(table.train.cells, table.train.target, categorical_feature=table.categories)
    for row, rows in zip(ahead["beside"], (table.validation, table.open_test()), strict=True):
        assert row["value"] == pytest.approx(table.metrics(model, rows)["r2"], rel=1e-6), row["split"]


def test_no_report_recommends_boosting_where_the_network_is_ahead(tmp_path, cli):
    project, _ = walked(tmp_path, cli, plane(800), 30)
    manifest = screens(project)["reproducibility_manifest.md"]
    assert "**A network is likely at least as good as gradient boosting on this table**" in manifest
    assert "mltrainer init" not in manifest.split("## To decide")[0].replace("as `mltrainer init` or a person", "")
    assert [name for name, text in screens(project).items() if AHEAD in text] == []
    final = evidence_of(project, "finalization")
    assert "boosting" not in final
    verdicts = {row["name"]: row["verdict"] for row in final["tested_references"]["rows"]}
    assert verdicts["boosting"] == "ahead"
