"""Projects that earlier versions finished keep their verdicts: unpacked as from a clone, judged by their own policy."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mltrainer import handbook
from mltrainer.configs.pages import phase_page
from mltrainer.errors import InputError
from mltrainer.gates.gate import check_gates
from mltrainer.gates.released import release
from mltrainer.project.engine import waive
from mltrainer.workspace import PHASES, Project, pretty_json, seal
from tests.conftest import Cli

HERE = Path(__file__).parent
KEPT = sorted(path.relative_to(HERE).as_posix().removesuffix(".tar.gz") for path in HERE.glob("*/*.tar.gz"))
FINAL_RECORD = "phases/05_finalization/record.json"


@pytest.fixture
def unpacked(tmp_path: Path) -> Callable[[str], Project]:
    def unpack(name: str) -> Project:
        with tarfile.open(HERE / f"{name}.tar.gz") as archive:
            archive.extractall(tmp_path, filter="data")
        return Project(tmp_path)

    return unpack


def edit_final_record(project: Project, change: Callable[[dict[str, Any]], None]) -> None:
    path = project.root / FINAL_RECORD
    record = json.loads(path.read_bytes())
    change(record)
    path.write_bytes(pretty_json(seal(record)))


def of_then(now: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """Return an item without what this version shows beside what the earlier one did; of a custom check the verdict alone."""
    if not now["recomputed"]:
        return {**then, "verdict": now["verdict"]}
    evidence = {key: value for key, value in now["evidence"].items() if key in then["evidence"]}
    return {key: value for key, value in {**now, "evidence": evidence}.items() if key in then}


def final_reasons(project: Project) -> str:
    return "\n".join(check_gates(project)[-1].stale)


@pytest.mark.parametrize("name", KEPT)
def test_a_finished_project_keeps_its_verdicts(name: str, unpacked: Callable[[str], Project], cli: Cli) -> None:
    project, expected = unpacked(name), json.loads((HERE / f"{name}.json").read_bytes())
    assert not project.state_dir.exists()
    said = cli("gate", "check", "--json", "--project", project.root)
    assert said.code == 0, said.out
    for found, before in zip(said.json["phases"], expected["phases"], strict=True):
        assert {key: found[key] for key in ("name", "holds", "stale")} == {key: before[key] for key in ("name", "holds", "stale")}
        assert [of_then(now, then) for now, then in zip(found["items"], before["items"], strict=True)] == before["items"]


@pytest.mark.parametrize("name", KEPT)
def test_a_finished_project_was_made_under_the_policy_that_its_version_released(name: str, unpacked: Any) -> None:
    for gate in check_gates(unpacked(name)):
        assert gate.record is not None
        record = gate.record.data
        made = release(record["mltrainer"])
        assert made is not None
        own = [path for path in record["handbook"] if path not in record["policy_overrides"]]
        assert {path: made.pages[path] for path in own} == {path: record["handbook"][path] for path in own}


def test_a_policy_that_moved_on_is_told_with_the_command_that_adopts_it(unpacked: Any) -> None:
    for gate in check_gates(unpacked("0.1/digits")):
        if gate.phase == "finalization":
            assert "judged by the policy of mltrainer 0.1.0" in gate.notes[0]
            assert "adopt it with `mltrainer phase run finalization`" in gate.notes[0]


def test_one_gate_that_does_not_hold_is_enough(unpacked: Callable[[str], Project], cli: Cli) -> None:
    project = unpacked("0.2/digits")
    (project.phase_dir("baseline") / "baseline_results.md").write_text("", "utf-8")
    said = cli("gate", "check", "--json", "--project", project.root)
    assert (said.code, said.json["holds"]) == (4, False)
    assert [phase["holds"] for phase in said.json["phases"]][:2] == [True, False]


def _weaker(record: dict[str, Any]) -> None:
    item = next(item for item in record["policy"]["items"] if item["id"] == "exports_agree")
    item["settings"]["tolerance"] = 1.0


def _of_no_release(record: dict[str, Any]) -> None:
    record["handbook"]["phases/05_finalization/workflow.md"] = "0" * 64


def _of_another_version(record: dict[str, Any]) -> None:
    record["mltrainer"] = "0.0.9"


def _of_no_page(record: dict[str, Any]) -> None:
    record["handbook"] = {}


@pytest.mark.parametrize("change", [_weaker, _of_no_release, _of_another_version, _of_no_page])
def test_a_policy_that_was_never_released_is_stale(change: Callable[[dict[str, Any]], None], unpacked: Any) -> None:
    project = unpacked("0.1/digits")
    assert not final_reasons(project)
    edit_final_record(project, change)
    assert "mltrainer phase run finalization" in final_reasons(project)


def test_a_page_of_ones_own_takes_the_place_of_a_released_one(unpacked: Any) -> None:
    project = unpacked("0.1/digits")
    page = project.root / "phases/05_finalization/workflow.md"
    page.write_text((handbook.shipped_folder() / "phases/05_finalization/workflow.md").read_text().replace("1.0e-4", "1.0e-5"))
    assert "phases/05_finalization/workflow.md changed what it declares" in final_reasons(project)


@pytest.fixture
def newer_baseline(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handbook of a later version, whose baseline asks for one item more."""
    folder = tmp_path_factory.mktemp("handbook")
    for name in handbook.FOLDERS:
        shutil.copytree(handbook.shipped_folder() / name, folder / name)
    page = folder / "phases/02_baseline/workflow.md"
    page.write_text(page.read_text().replace("items:\n", "items:\n  - id: asked_later\n    statement: It is new.\n", 1))
    monkeypatch.setattr(handbook, "shipped_folder", lambda: folder)


@pytest.mark.usefixtures("newer_baseline")
@pytest.mark.parametrize("name", KEPT)
def test_an_item_that_a_later_version_asks_for_breaks_no_finished_project(name: str, unpacked: Any) -> None:
    gates = check_gates(unpacked(name))
    assert [gate.phase for gate in gates if gate.holds] == list(PHASES)
    assert "phases/02_baseline/workflow.md" in "".join(gates[1].notes)


@pytest.mark.usefixtures("newer_baseline")
def test_running_a_phase_anew_demands_what_a_page_of_ones_own_lacks(unpacked: Any) -> None:
    with pytest.raises(InputError, match="'asked_later' is missing") as caught:
        phase_page("baseline", unpacked("0.1/rings").root)
    assert "statement: It is new." in str(caught.value.mend)


def test_a_waiver_for_a_record_of_an_earlier_version_renders_its_report_with_its_figures(unpacked: Any) -> None:
    project = unpacked("0.1/rings")
    folder = project.phase_dir("baseline")
    (folder / "waivers.json").unlink()
    gate = waive(project, "baseline", "within_time_budget", "seconds are still fine", "Tester <tester@example.org>")
    assert gate.holds, gate.stale
    assert "Reason: seconds are still fine" in (folder / "baseline_results.md").read_text()
    assert (folder / "learning_curves.svg").read_text().startswith("<svg")
    (folder / "gap.svg").write_text("")
    assert "phases/02_baseline/gap.svg is not what the gate record says" in "\n".join(check_gates(project)[1].stale)
