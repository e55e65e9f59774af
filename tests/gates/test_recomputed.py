"""Claims of a record that its seal cannot show: forged, sealed anew, rendered by our own code, and told."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mltrainer
from mltrainer import handbook
from mltrainer.gates.gate import check_gates
from mltrainer.project.engine import write
from mltrainer.workspace import Project, seal, sha256_file
from tests.conftest import Cli

FINAL = "phases/05_finalization"
MODEL = f"{FINAL}/final_model"
Record = dict[str, Any]


def reasons(project: Project, phase: str = "finalization") -> str:
    return "\n".join(next(gate for gate in check_gates(project, demand_files=True) if gate.phase == phase).stale)


def forge(project: Project, change: Callable[[Record], None], phase: str = "finalization") -> str:
    """Change a record, seal it anew, render its reports by our own code, and return what its gate says."""
    record = json.loads((project.phase_dir(phase) / "record.json").read_bytes())
    change(record)
    write(project, phase, seal(record))
    return reasons(project, phase)


def bind_anew(project: Project, *paths: str) -> str:
    """Let record and SHA256SUMS take the files as they lie there for those that were delivered, and return what the gate says."""
    sums = project.root / MODEL / "SHA256SUMS"
    folder = sums.parent
    names = [line.partition("  ")[2] for line in sums.read_text().splitlines()]
    sums.write_text("".join(f"{sha256_file(folder / name)}  {name}\n" for name in names))

    def change(record: Record) -> None:
        for row in [*record["inputs"], *record["evidence"]["model_files"]]:
            if row["path"] in (*paths, f"{MODEL}/SHA256SUMS"):
                row.update(sha256=sha256_file(project.root / row["path"]), size=(project.root / row["path"]).stat().st_size)

    return forge(project, change)


def add_noise(path: Path) -> None:
    """Flip the last bit of every element of a safetensors file."""
    data = bytearray(path.read_bytes())
    for place in range(8 + struct.unpack("<Q", data[:8])[0], len(data), 4):
        data[place] ^= 1
    path.write_bytes(data)


def test_nothing_is_told_of_a_record_that_is_only_rendered_again(digits: Project) -> None:
    assert forge(digits, lambda record: None) == ""
    assert bind_anew(digits) == ""


def test_delivered_weights_that_were_replaced_and_bound_anew_are_told(digits: Project, cli: Cli) -> None:
    path = f"{MODEL}/model.safetensors"
    add_noise(digits.root / path)
    assert f"{path} holds other weights than those that were measured" in bind_anew(digits, path)
    said = cli("checkpoints", "verify", "--project", digits.root)
    assert said.code == 4
    assert f"DAMAGED  {MODEL}" in said.out


def test_delivered_weights_that_are_no_tensors_are_told(digits: Project) -> None:
    path = f"{MODEL}/model.safetensors"
    (digits.root / path).write_bytes((digits.root / path).read_bytes()[:-5])
    assert f"{path} cannot be read as the weights that were delivered" in bind_anew(digits, path)


def test_a_weights_digest_that_fits_replaced_weights_is_not_the_checkpoints(digits: Project) -> None:
    from mltrainer.checkpointing.tensors import file_weights_sha256

    path = f"{MODEL}/model.safetensors"
    add_noise(digits.root / path)
    bind_anew(digits, path)

    def change(record: Record) -> None:
        evidence = record["evidence"]
        evidence["delivered_sha256"] = file_weights_sha256(digits.root / path)
        evidence["test"]["openings"][0]["weights_sha256"] = evidence["delivered_sha256"]

    assert "state.safetensors holds other weights than those that were measured" in forge(digits, change)


@pytest.mark.parametrize("version", ["9.9.9", "0.0.1", ""])
def test_a_version_that_was_never_released_is_told(digits: Project, version: str) -> None:
    found = forge(digits, lambda record: record.update(mltrainer=version))
    assert f"the record says that mltrainer {version} made it; this is {mltrainer.__version__}" in found


def test_a_released_versions_report_is_said_not_to_be_recomputed(digits: Project) -> None:
    forge(digits, lambda record: record.update(mltrainer="0.2.0"))
    (found,) = [gate for gate in check_gates(digits) if gate.phase == "finalization"]
    assert any("mltrainer 0.2.0: compared by digest only, not recomputed" in note for note in found.notes)


@pytest.mark.parametrize("listed", [True, False])
def test_a_template_of_the_projects_own_is_named_among_the_overrides(digits: Project, listed: bool) -> None:
    path = f"{FINAL}/report.md.j2"
    own = f'{{% extends "{path}" %}}\n{{% block title %}}accuracy 0.999{{% endblock %}}\n'
    (digits.root / path).write_text(own)

    def change(record: Record) -> None:
        record["handbook"][path] = sha256_file(digits.root / path)
        record["policy_overrides"] = [path] if listed else []

    told = f"{path} is this project's own, and the record does not name it among its policy_overrides"
    assert (told in forge(digits, change)) != listed


def test_a_weakened_page_with_its_list_of_changes_emptied_is_told(digits: Project) -> None:
    path = f"{FINAL}/workflow.md"
    (digits.root / path).write_text((handbook.shipped_folder() / path).read_text().replace("1.0e-4", "1.0e-1"))

    def change(record: Record) -> None:
        from mltrainer.configs.pages import phase_page, policy_digest

        record["handbook"][path] = policy_digest(path, digits.root)
        record["policy"] = phase_page("finalization", digits.root).model_dump()
        record["policy_overrides"] = [path]

    assert "policy_changes lists none; the page that it was judged by has exports_agree.tolerance: 0.0001 -> 0.1" in forge(
        digits, change
    )


def test_checksums_hold_after_a_second_finalization_and_leave_out_the_card(digits: Project) -> None:
    from mltrainer.checkpointing.deployment import write_deployment

    folder = digits.root / MODEL
    assert (folder / "README.md").is_file()
    write_deployment(folder, [], {}, {}, {})
    lines = [line.partition("  ") for line in (folder / "SHA256SUMS").read_text().splitlines()]
    assert {name: sha256_file(folder / name) for _, _, name in lines} == {name: sha256 for sha256, _, name in lines}
    assert "README.md" not in {name for _, _, name in lines}


@pytest.mark.parametrize(
    "change", [lambda text: text.replace("  config.yaml", "  other.yaml"), lambda text: text[65:] + "0" * 64]
)
def test_checksums_that_are_not_those_of_the_delivered_files_are_told(digits: Project, change: Callable[[str], str]) -> None:
    path = digits.root / MODEL / "SHA256SUMS"
    text = change(path.read_text())

    def bind(record: Record) -> None:
        path.write_text(text)
        for row in [*record["inputs"], *record["evidence"]["model_files"]]:
            if row["path"] == f"{MODEL}/SHA256SUMS":
                row.update(sha256=sha256_file(path), size=path.stat().st_size)

    assert "SHA256SUMS is not the list of what was delivered: config.yaml has sha256" in forge(digits, bind)


def test_a_card_in_the_checksums_of_an_earlier_version_is_a_note(digits: Project) -> None:
    path = digits.root / MODEL / "SHA256SUMS"
    path.write_text(path.read_text() + f"{'0' * 64}  README.md\n")

    def bind(record: Record) -> None:
        record["mltrainer"] = "0.2.0"
        for row in [*record["inputs"], *record["evidence"]["model_files"]]:
            if row["path"] == f"{MODEL}/SHA256SUMS":
                row.update(sha256=sha256_file(path), size=path.stat().st_size)

    assert "SHA256SUMS" not in forge(digits, bind)
    assert any("SHA256SUMS lists README.md" in note for note in check_gates(digits)[-1].notes)


def better(evidence: Record) -> None:
    evidence["test"]["metrics"]["accuracy"] = 1.0


def one_more(evidence: Record) -> None:
    evidence["test"]["samples"] += 1


def exact(evidence: Record) -> None:
    evidence["exports"][-1]["relative_difference"] = 0.0


def other_inputs(evidence: Record) -> None:
    evidence["inference"]["classes"] = ["a"]


def other_end(evidence: Record) -> None:
    evidence["reproduction"]["chain_head"] = evidence["run"]["chain"]["head"] = "0" * 32


FORGED = {
    better: "the record tells of metrics what .mltrainer/runs/RUN/test.json does not",
    one_more: "the record tells of samples what .mltrainer/runs/RUN/test.json does not",
    exact: "the record tells of exports what .mltrainer/exports/RUN/result.json does not",
    other_inputs: "the record tells of inference what .mltrainer/exports/RUN/result.json does not",
    other_end: "the record tells of chain what .mltrainer/reproductions/RUN/result.json does not",
}


@pytest.mark.parametrize("change", FORGED, ids=lambda change: change.__name__)
def test_a_number_that_the_runs_own_files_do_not_hold_is_told(digits: Project, change: Callable[[Record], None]) -> None:
    run = json.loads((digits.root / FINAL / "record.json").read_bytes())["evidence"]["run"]["id"]
    assert FORGED[change].replace("RUN", run) in forge(digits, lambda record: change(record["evidence"]))


@pytest.mark.parametrize("phase", ["baseline", "finalization"])
def test_a_chain_that_does_not_lead_to_the_records_head_is_told(digits: Project, phase: str) -> None:
    found = forge(digits, lambda record: record["evidence"]["run"]["chain"].update(head="0" * 32), phase)
    assert f"in the record in {'0' * 32} after" in found.replace(", the record", " in the record")


def test_a_chain_with_a_changed_line_is_told(digits: Project) -> None:
    run = json.loads((digits.root / FINAL / "record.json").read_bytes())["evidence"]["run"]["id"]
    path = digits.runs_dir / run / "chain.txt"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:5], *lines[6:]]) + "\n")

    def bind(record: Record) -> None:
        for row in record["inputs"]:
            if row["path"].endswith("chain.txt"):
                row.update(sha256=sha256_file(path), size=path.stat().st_size)

    assert "chain.txt:6: the chain breaks" in forge(digits, bind)


def test_reports_that_a_clone_says_were_compared_already_are_rendered_all_the_same(digits: Project, tmp_path: Path) -> None:
    check_gates(digits)
    cache = digits.state_dir / "cache" / "digests.json"
    known = json.loads(cache.read_bytes())
    report = digits.root / FINAL / "final_report.md"
    report.write_text(report.read_text().replace("reproduced", "seen"))
    known["rendered finalization"][1]["final_report.md"] = sha256_file(report)
    clone = tmp_path / "clone"
    shutil.copytree(digits.root, clone)
    (clone / ".mltrainer/cache/digests.json").write_text(json.dumps(known))
    assert "final_report.md" in "\n".join(check_gates(Project(clone))[-1].stale)
