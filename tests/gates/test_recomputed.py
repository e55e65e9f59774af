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
from mltrainer.gates.digests import NOT_HASHED, WHY_NOT_HASHED, FileDigests
from mltrainer.gates.gate import check_gates
from mltrainer.project.engine import waive
from mltrainer.records.openings import chained
from mltrainer.workspace import Project, sha256_file, write_json
from tests.conftest import Cli, commit, git
from tests.gates import evidence
from tests.projects import evidence_of

FINAL = "phases/05_finalization"
MODEL = f"{FINAL}/final_model"
Record = dict[str, Any]


def reasons(project: Project, phase: str = "finalization") -> str:
    return "\n".join(next(gate for gate in check_gates(project, demand_files=True) if gate.phase == phase).stale)


def forge(project: Project, change: Callable[[Record], None], phase: str = "finalization") -> str:
    """Change a record as `evidence.forge` does, and return what its gate says."""
    evidence.forge(project, change, phase)
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


@pytest.mark.slow
def test_nothing_is_told_of_a_record_that_is_only_rendered_again(digits):
    assert forge(digits, lambda record: None) == ""
    assert bind_anew(digits) == ""


def test_delivered_weights_that_were_replaced_and_bound_anew_are_told(digits, cli):
    path = f"{MODEL}/model.safetensors"
    add_noise(digits.root / path)
    assert f"{path} has other weights than the measured ones" in bind_anew(digits, path)
    cli("checkpoints", "verify", "--project", digits.root, code=4, out=f"DAMAGED  {MODEL}")


def test_delivered_weights_that_are_no_tensors_are_told(digits):
    path = f"{MODEL}/model.safetensors"
    (digits.root / path).write_bytes((digits.root / path).read_bytes()[:-5])
    assert f"{path} cannot be read as the delivered weights" in bind_anew(digits, path)


@pytest.mark.slow
def test_a_weights_digest_that_fits_replaced_weights_is_not_the_checkpoints(digits):
    from mltrainer.checkpointing.tensors import file_weights_sha256

    path = f"{MODEL}/model.safetensors"
    add_noise(digits.root / path)
    bind_anew(digits, path)

    def change(record: Record) -> None:
        evidence = record["evidence"]
        evidence["delivered_sha256"] = file_weights_sha256(digits.root / path)
        evidence["test"]["openings"][0]["weights_sha256"] = evidence["delivered_sha256"]

    assert "state.safetensors has other weights than the measured ones" in forge(digits, change)


@pytest.mark.parametrize("version", ["9.9.9", "0.0.1", ""])
def test_a_record_of_another_version_is_told(digits, version):
    found = forge(digits, lambda record: record.update(mltrainer=version))
    assert f"the record says that mltrainer {version} made it; this is {mltrainer.__version__}" in found


def weaker(record: Record) -> None:
    item = next(item for item in record["policy"]["items"] if item["id"] == "exports_agree")
    item["settings"]["tolerance"] = 1.0


POLICIES: dict[str, tuple[Callable[[Record], None], str]] = {
    "a weaker one": (weaker, "the handbook's checklist of this phase changed"),
    "another page": (
        lambda record: record["handbook"].update({f"{FINAL}/workflow.md": "0" * 64}),
        f"the handbook's page {FINAL}/workflow.md changed what it declares",
    ),
    "no page": (lambda record: record.update(handbook={}), "the record does not name the checklist that it was made under"),
}


@pytest.mark.parametrize("what", POLICIES)
def test_a_policy_that_is_not_the_one_that_stands_now_is_told(digits, what):
    change, told = POLICIES[what]
    assert f"{told}; next: mltrainer phase run finalization" in forge(digits, change)


@pytest.mark.slow
@pytest.mark.parametrize("listed", [True, False])
def test_a_template_of_the_projects_own_is_named_among_the_overrides(digits, listed):
    path = f"{FINAL}/report.md.j2"
    own = f'{{% extends "{path}" %}}\n{{% block title %}}accuracy 0.999{{% endblock %}}\n'
    (digits.root / path).write_text(own)

    def change(record: Record) -> None:
        record["handbook"][path] = sha256_file(digits.root / path)
        record["policy_overrides"] = [path] if listed else []

    told = f"{path} is this project's own, and the record does not name it among its policy_overrides"
    assert (told in forge(digits, change)) != listed


def test_a_weakened_page_with_its_list_of_changes_emptied_is_told(digits):
    path = f"{FINAL}/workflow.md"
    (digits.root / path).write_text((handbook.shipped_folder() / path).read_text().replace("1.0e-4", "1.0e-1"))

    def change(record: Record) -> None:
        from mltrainer.configs.pages import phase_page, policy_digest

        record["handbook"][path] = policy_digest(path, digits.root)
        record["policy"] = phase_page("finalization", digits.root).model_dump()
        record["policy_overrides"] = [path]

    assert "policy_changes lists none; its page has exports_agree.tolerance: 0.0001 -> 0.1" in forge(digits, change)


def test_checksums_hold_after_a_second_finalization_and_leave_out_the_card(digits):
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
def test_checksums_that_are_not_those_of_the_delivered_files_are_told(digits, change):
    path = digits.root / MODEL / "SHA256SUMS"
    text = change(path.read_text())

    def bind(record: Record) -> None:
        path.write_text(text)
        for row in [*record["inputs"], *record["evidence"]["model_files"]]:
            if row["path"] == f"{MODEL}/SHA256SUMS":
                row.update(sha256=sha256_file(path), size=path.stat().st_size)

    assert "SHA256SUMS is not the list of the delivered files: config.yaml has sha256" in forge(digits, bind)


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


def other_delivered(evidence: Record) -> None:
    evidence["delivered_tree_sha256"] = "0" * 64


def other_weights_again(evidence: Record) -> None:
    evidence["reproduction"]["weights_tree_sha256"] = evidence["run"]["weights_tree_sha256"] = "0" * 64


FORGED = {
    better: "the record and .mltrainer/runs/RUN/test.json differ on metrics",
    one_more: "the record and .mltrainer/runs/RUN/test.json differ on samples",
    exact: "the record and .mltrainer/exports/RUN/result.json differ on exports",
    other_inputs: "the record and .mltrainer/exports/RUN/result.json differ on inference",
    other_delivered: "the record and .mltrainer/exports/RUN/result.json differ on weights_tree_sha256",
    other_weights_again: "the record and .mltrainer/reproductions/RUN/result.json differ on weights_tree_sha256",
    other_end: "the record and .mltrainer/reproductions/RUN/result.json differ on chain",
}


@pytest.mark.parametrize("change", FORGED, ids=lambda change: change.__name__)
def test_a_number_that_the_runs_own_files_do_not_hold_is_told(digits, change):
    run = evidence_of(digits, "finalization")["run"]["id"]
    assert FORGED[change].replace("RUN", run) in forge(digits, lambda record: change(record["evidence"]))


@pytest.mark.parametrize("phase", ["baseline", "finalization"])
def test_a_chain_that_does_not_lead_to_the_records_head_is_told(digits, phase):
    found = forge(digits, lambda record: record["evidence"]["run"]["chain"].update(head="0" * 32), phase)
    assert f"in the record in {'0' * 32} after" in found.replace(", the record", " in the record")


@pytest.mark.parametrize("phase", ["baseline", "finalization"])
@pytest.mark.parametrize("value", ["0" * 64, None], ids=["another", "none"])
def test_another_digest_of_the_weights_than_the_chains_is_told(digits, phase, value):
    def change(record: Record) -> None:
        record["evidence"]["run"].pop("weights_tree_sha256")
        record["evidence"]["run"].update({} if value is None else {"weights_tree_sha256": value})

    assert f"chain.txt: weights_tree_sha256 is {value}, the chain has " in forge(digits, change, phase)


@pytest.mark.slow
def test_a_digest_over_chunks_that_the_delivered_weights_do_not_have_is_told(digits, cli):
    found = forge(digits, lambda record: other_delivered(record["evidence"]))
    assert f"{MODEL}/model.safetensors has other weights than the measured ones: sha256 {'0' * 12}" in found
    assert f"state.safetensors has other weights than the measured ones: sha256 {'0' * 12}" in found
    said = cli("checkpoints", "verify", "--project", digits.root)
    assert (said.code, f"model.safetensors: expected weights of sha256 {'0' * 12}" in said.out) == (4, True)


def test_a_chain_with_a_changed_line_is_told(digits):
    run = evidence_of(digits, "finalization")["run"]["id"]
    path = digits.runs_dir / run / "chain.txt"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:5], *lines[6:]]) + "\n")

    def bind(record: Record) -> None:
        for row in record["inputs"]:
            if row["path"].endswith("chain.txt"):
                row.update(sha256=sha256_file(path), size=path.stat().st_size)

    assert "chain.txt:6: the chain breaks" in forge(digits, bind)


def test_weights_and_chain_that_would_take_a_look_too_long_are_noted(digits, monkeypatch):
    monkeypatch.setattr(FileDigests, "computed", lambda *_: NOT_HASHED)
    gate = next(gate for gate in check_gates(digits) if gate.phase == "finalization")
    assert not gate.stale
    told = [note.partition(":")[0] for note in gate.notes if note.endswith(WHY_NOT_HASHED)]
    assert [Path(path).name for path in told] == ["chain.txt", "model.safetensors", "state.safetensors"]


@pytest.mark.slow
def test_reports_that_a_clone_says_were_compared_already_are_rendered_all_the_same(digits, tmp_path):
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


# --- the ledger, and what git's history holds -----------------------------------------------------


def second(project: Project, **changes: Any) -> Record:
    """Return a ledger as a second model on the same test split would leave it."""
    ledger = json.loads((project.root / FINAL / "test_openings.json").read_bytes())
    other = {**ledger["openings"][0], "run": "aaaaaaaaaaaa", "weights_sha256": "a" * 64, "data_sha256": "b" * 64, **changes}
    return {"openings": chained([*ledger["openings"], other]), "splits": ledger["splits"]}


def put_ledger(project: Project, ledger: Record, record_too: bool = True) -> str:
    """Write a ledger, bind it in the record, which may tell the same, and return what the gate says."""
    path = project.root / FINAL / "test_openings.json"
    write_json(path, ledger)

    def change(record: Record) -> None:
        for row in record["inputs"]:
            if row["role"] == "ledger":
                row.update(sha256=sha256_file(path), size=path.stat().st_size)
        if record_too:
            record["evidence"]["test"].update(ledger)

    return forge(project, change)


def opened_item(project: Project) -> Any:
    return next(item for item in check_gates(project)[-1].items if item.id == "test_opened_once")


def test_a_second_model_on_the_same_rows_fails_the_gate_though_its_data_has_another_digest(digits):
    assert put_ledger(digits, second(digits)) == ""
    item = opened_item(digits)
    sentence = "The test split was opened twice, for 2 models: what it shows is no longer an unbiased estimate"
    assert (item.verdict, item.evidence["openings"], item.evidence["models"]) == ("fail", 2, 2)
    assert item.evidence["opened"] == sentence
    for name in ("final_report.md", "final_model/README.md"):
        assert sentence in (digits.root / FINAL / name).read_text()
        assert "this model alone (" not in (digits.root / FINAL / name).read_text()


def test_a_model_on_rows_of_its_own_is_told_and_does_not_count(digits):
    ledger = second(digits, rows_sha256=None)
    assert put_ledger(digits, ledger) == ""
    assert (opened_item(digits).verdict, opened_item(digits).evidence["models"]) == ("pass", 1)
    assert opened_item(digits).evidence["opened"].endswith("alone; the ledger has 1 opening of other test splits")


LEDGERS: dict[str, Callable[[Record], object]] = {
    "opening 2 of the record does not follow from those before it": lambda made: made["openings"][1].update(run="bbbbbbbbbbbb"),
    "opening 1 of the record does not follow from those before it": lambda made: made["openings"].pop(0),
    "do not match its name, which is their digest": lambda made: next(iter(made["splits"].values())).update(digests="aa"),
    "the record has no rows of 1 opened test splits": lambda made: made["splits"].clear(),
}


@pytest.mark.parametrize("told", LEDGERS)
def test_a_ledger_that_is_not_what_was_written_is_told(digits, told):
    ledger = second(digits)
    LEDGERS[told](ledger)
    assert told in put_ledger(digits, ledger)


def test_a_ledger_with_other_openings_than_the_record_is_told(digits):
    assert "has 2 openings, which differ from the record's 1" in put_ledger(digits, second(digits), record_too=False)


def test_a_record_without_its_ledger_is_told(digits):
    (digits.root / FINAL / "test_openings.json").unlink()
    unbound = forge(digits, lambda record: record.update(inputs=[row for row in record["inputs"] if row["role"] != "ledger"]))
    assert "test_openings.json, the openings of the test split, is missing" in unbound


@pytest.mark.slow
def test_an_opening_that_was_committed_and_is_on_record_no_more_is_told(digits, tmp_path):
    ledger = json.loads((digits.root / FINAL / "test_openings.json").read_bytes())
    put_ledger(digits, second(digits))
    commit(digits.root)
    told = "the ledger lacks the opening by run aaaaaaaaaaaa, which earlier commits hold"
    assert told in put_ledger(digits, ledger)
    commit(digits.root)
    git(tmp_path, "clone", "--quiet", digits.root.as_uri(), "clone")
    assert told in "\n".join(check_gates(Project(tmp_path / "clone"))[-1].stale)
    git(tmp_path, "clone", "--quiet", "--depth=1", digits.root.as_uri(), "shallow")
    assert told not in "\n".join(check_gates(Project(tmp_path / "shallow"))[-1].stale)


def test_git_is_asked_once_for_what_did_not_change(digits, monkeypatch):
    commit(digits.root)
    check_gates(digits)

    def refuse(*arguments: Any, **named: Any) -> bytes:
        raise AssertionError(arguments)

    with monkeypatch.context() as here:
        here.setattr("mltrainer.reproducibility.history.run", refuse)
        assert all(gate.holds for gate in check_gates(digits))
    git(digits.root, "commit", "--quiet", "--allow-empty", "--message", "x")
    monkeypatch.setattr("mltrainer.reproducibility.history.run", refuse)
    with pytest.raises(AssertionError):
        check_gates(digits)


def with_commit(commit: str) -> Callable[[Record], None]:
    return lambda record: record["source"].update(commit=commit)


@pytest.mark.slow
def test_a_commit_that_the_repository_does_not_hold_is_told(digits, tmp_path):
    told = "commit 000000000000, which the record names, is not in this repository: rebased, squashed away, or never there"
    assert told in forge(digits, with_commit("0" * 40))
    assert all(gate.holds for gate in check_gates(digits))  # a squashed branch leaves such records behind
    assert told in check_gates(digits)[-1].notes
    assert told in check_gates(digits)[-1].notes  # a doubt is not remembered as settled
    commit(digits.root)
    git(tmp_path, "clone", "--quiet", "--depth=1", digits.root.as_uri(), "shallow")
    notes = check_gates(Project(tmp_path / "shallow"))[-1].notes
    assert "commit 000000000000 is not here: a shallow clone, whose older history was not fetched" in notes


@pytest.mark.slow
def test_a_commit_that_holds_other_code_than_ran_is_told(digits):
    (digits.root / "task.py").write_text("x = 1\n")
    commit(digits.root)
    before = git(digits.root, "rev-parse", "HEAD")
    (digits.root / "task.py").write_text("x = 2\n")
    commit(digits.root)
    row = {"path": "task.py", "sha256": sha256_file(digits.root / "task.py"), "size": 6}
    for named, told in ((before, True), (git(digits.root, "rev-parse", "HEAD"), False)):
        found = forge(digits, lambda record, named=named: record["source"].update(commit=named, files=[row]))
        assert (f"commit {named[:12]} does not hold task.py as it ran" in found) == told


@pytest.mark.slow
def test_a_waiver_in_the_name_of_somebody_who_did_not_commit_it_is_told(digits, cli):
    put_ledger(digits, second(digits))
    commit(digits.root)
    waive(digits, "finalization", "test_opened_once", "seen before", "Ada <ada@example.org>")

    def notes() -> str:
        return "\n".join(check_gates(digits)[-1].notes)

    named = "test_opened_once was waived in the name of Ada <ada@example.org>"
    assert f"{named}; it is not committed yet, so its author is unknown" in notes()
    git(digits.root, "add", "--all")
    git(digits.root, "commit", "--quiet", "--message", "x", name="Bob")
    assert f"{named}, and committed by Bob <bob@example.org>" in notes()
    cli("report", "--against", "HEAD~1", "--project", digits.root, out="committed by <code>Bob &lt;bob@example.org></code>")
    git(digits.root, "commit", "--quiet", "--amend", "--no-edit", "--author", "Ada <ada@example.org>")
    assert "waived in the name of" not in notes()
    assert "committed by" not in cli("report", "--against", "HEAD~1", "--project", digits.root).out


# --- beside another version -----------------------------------------------------------------------


def test_the_same_run_with_other_numbers_is_impossible(digits, cli):
    commit(digits.root)
    shutil.rmtree(digits.state_dir)

    def change(record: Record) -> None:
        record["evidence"]["run"]["metrics"]["accuracy"] = 0.999
        record["evidence"]["test"]["metrics"]["accuracy"] = 0.998

    forge(digits, change)
    cli("report", "--against", "HEAD", "--project", digits.root, code=4, out="the records say what cannot be true")
    found = {(row["what"].split()[0], row["key"], row["after"]) for row in told_impossible(cli, digits)}
    assert found == {("run", "metrics.accuracy", 0.999), ("weights", "metrics.accuracy", 0.998)}


def told_impossible(cli: Cli, project: Project) -> list[Record]:
    return cli("report", "--against", "HEAD", "--json", "--project", project.root).json["impossible"]


@pytest.mark.slow
def test_another_machines_arithmetic_may_bring_other_bits(digits, cli):
    commit(digits.root)

    def change(record: Record) -> None:
        record["evidence"]["run"].update(numerics_class="other", weights_sha256="0" * 64)

    forge(digits, change)
    assert told_impossible(cli, digits) == []


@pytest.mark.slow
def test_openings_that_the_other_side_knows_and_this_one_does_not_are_told(digits, cli):
    ledger = json.loads((digits.root / FINAL / "test_openings.json").read_bytes())
    put_ledger(digits, second(digits))
    commit(digits.root)
    assert "known at `HEAD`" not in cli("report", "--against", "HEAD", "--project", digits.root).out
    put_ledger(digits, ledger)
    said = cli("report", "--against", "HEAD", "--project", digits.root)
    assert "the opening of the test split by run `aaaaaaaaaaaa`, known at `HEAD`, is not in the ledger here" in said.out
    put_ledger(digits, second(digits, weights_sha256="c" * 64))
    said = cli("report", "--against", "HEAD", "--project", digits.root)
    assert "is in the ledger here with other weights or data" in said.out
    shutil.rmtree(digits.root / FINAL)
    assert "is not in the ledger here" in cli("report", "--against", "HEAD", "--project", digits.root).out


# --- files that planning did not bind -------------------------------------------------------------

LATE = {"path": "late.txt", "sha256": "1" * 64, "size": 1}


def opens_late(record: Record) -> None:
    record["evidence"]["run"]["opened"] = [*(record["evidence"]["run"]["opened"] or []), LATE]


@pytest.mark.parametrize("told", [[], None])
def test_a_record_that_hides_a_file_which_planning_did_not_bind_is_told(digits, told):
    def hide(record: Record) -> None:
        opens_late(record)
        record["evidence"]["unplanned"] = told

    words = "nobody looked" if told is None else "none"
    assert f"planning did not bind: {words}; its run opened: late.txt" in forge(digits, hide, "baseline")


@pytest.mark.slow
def test_a_record_that_names_the_file_fails_by_its_item(digits):
    def tell(record: Record) -> None:
        opens_late(record)
        record["evidence"]["unplanned"] = ["late.txt"]

    assert "planning did not bind" not in forge(digits, tell, "baseline")
    [item] = [item for item in check_gates(digits)[1].items if item.id == "inputs_planned"]
    assert item.verdict == "fail"
