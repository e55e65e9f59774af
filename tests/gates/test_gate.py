"""Gates are recomputed: whatever is blank, truncated, edited, copied, older or missing is caught, and nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from mltrainer import handbook
from mltrainer.configs.pages import phase_page, policy_digest
from mltrainer.errors import InputError
from mltrainer.figures.drawn import draw, rows
from mltrainer.gates.digests import CACHE_FROM_BYTES, NOT_HASHED, OTHER_SIZE, FileDigests
from mltrainer.gates.gate import check_gates, evaluate
from mltrainer.gates.machine import PhaseState, advice, derive
from mltrainer.handbook import shipped_folder
from mltrainer.looking import looking
from mltrainer.project.engine import waive, write
from mltrainer.records.partial import partial
from mltrainer.records.planning import Environment
from mltrainer.records.reading import SCHEMA
from mltrainer.reproducibility.pins import requirements_file
from mltrainer.workspace import PHASES, Project, pretty_json, seal, sha256_file
from tests.conftest import commit, git, shared, start_digits, succeed
from tests.gates.evidence import forge, reseal, typed
from tests.projects import recorded


def holding(project: Project) -> list[str]:
    return [gate.phase for gate in check_gates(project) if gate.holds]


def stale_reasons(project: Project) -> str:
    return "\n".join(reason for gate in check_gates(project) for reason in gate.stale)


def artifact_files(project: Path) -> list[str]:
    files = sorted(path for path in (project / "phases").rglob("*") if path.parent.name != "schema")  # an editor's, no artifact
    return [
        p.relative_to(project).as_posix() for p in files if p.is_file() and p.suffix in (".md", ".svg", ".json", ".yaml", ".txt")
    ]


def test_the_finished_project_holds(digits):
    assert holding(digits) == list(PHASES)
    assert [s.state for s in derive(digits)] == ["passed", "passed", "passed", "skipped", "passed"]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "blank": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "one byte changed": lambda data: data[:-10] + bytes([data[-10] ^ 1]) + data[-9:],
    "a line added": lambda data: data + b"looks fine\n",
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.slow
def test_no_artifact_can_change_without_being_named(digits, damage):
    for name in artifact_files(digits.root):
        path = digits.root / name
        before = path.read_bytes()
        path.write_bytes(DAMAGE[damage](before))
        reasons = stale_reasons(digits)
        assert name in reasons, f"{damage}: {name} was not named in:\n{reasons}"
        path.write_bytes(before)
    assert holding(digits) == list(PHASES)


def test_the_pins_beside_the_manifest_are_the_recorded_environment(digits):
    folder = digits.phase_dir("planning")
    environment = json.loads((folder / "record.json").read_bytes())["evidence"]["environment"]
    assert (folder / "requirements.txt").read_text() == requirements_file(partial(Environment, environment))
    assert not (digits.phase_dir("finalization") / "requirements.txt").exists()


def test_an_edited_number_in_a_report_is_found_with_its_line(digits):
    path = digits.phase_dir("baseline") / "baseline_results.md"
    lines = path.read_text().splitlines()
    number = next(i for i, line in enumerate(lines) if "accuracy" in line and "0.9" in line)
    lines[number] = lines[number].replace("0.9", "0.8", 1)
    path.write_text("\n".join(lines) + "\n")
    assert f"baseline_results.md:{number + 1}" in stale_reasons(digits)


def test_a_report_without_its_record_is_caught(digits, cli):
    report = digits.phase_dir("finalization") / "final_report.md"
    (digits.phase_dir("finalization") / "record.json").unlink()
    report.write_text(report.read_text().replace("0.9", "1.0"))
    cli("gate", "check", "-v", "--project", digits.root, code=4, out="final_report.md has no record.json beside it")


def test_a_resealed_record_no_longer_continues_the_chain(digits):
    reseal(digits, lambda record: record["evidence"]["run"]["metrics"].update(accuracy=1.0), "baseline")
    assert "baseline" not in holding(digits)
    assert "a record of baseline that differs from the one here" in stale_reasons(digits)


@pytest.fixture(scope="session")
def neighbour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        start_digits(folder)
        succeed("run", "--until", "baseline", "--project", folder)

    return shared(tmp_path_factory, "neighbour", make)


@pytest.mark.parametrize("phase", ["planning", "baseline"])
def test_a_phase_copied_from_another_project_is_caught(digits, neighbour, phase):
    target = digits.phase_dir(phase)
    shutil.rmtree(target)
    shutil.copytree(Project(neighbour).phase_dir(phase), target)
    assert phase not in holding(digits)


@pytest.mark.slow
def test_an_older_record_put_back_is_caught(digits):
    folder = digits.phase_dir("planning")
    shutil.copytree(folder, digits.root / "older")
    succeed("phase", "run", "planning", "--project", digits.root)
    succeed("run", "--until", "baseline", "--project", digits.root)
    assert holding(digits)[:2] == ["planning", "baseline"]
    shutil.rmtree(folder)
    (digits.root / "older").rename(folder)
    assert "baseline" not in holding(digits)


EDITS: dict[str, tuple[str, Callable[[str], str], str]] = {
    "project file": ("mltrainer.yaml", lambda text: text.replace("minutes: 60", "minutes: 61"), "planning"),
    "training config": (
        "phases/01_planning/training_config.yaml",
        lambda text: text.replace("epochs: 12", "epochs: 13"),
        "planning",
    ),
    "final config": (
        "phases/04_optimization/final_config.yaml",
        lambda text: text.replace("epochs: 12", "epochs: 13"),
        "optimization",
    ),
    "template": ("configs/production_template.yaml", lambda text: text.replace("epochs: 15", "epochs: 16"), "finalization"),
    "ledger": ("phases/05_finalization/test_openings.json", lambda text: text.replace('"nr": 1', '"nr": 2'), "finalization"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_makes_the_right_gates_stale(digits, edit):
    name, change, phase = EDITS[edit]
    path = digits.root / name
    before = path.read_text()
    assert change(before) != before
    path.write_text(change(before))
    assert holding(digits) == list(PHASES[: PHASES.index(phase)])
    assert name in stale_reasons(digits)
    assert f"mltrainer phase run {phase}" in stale_reasons(digits)
    assert edit != "training config" or "epochs: 12 -> 13" in stale_reasons(digits)


def test_an_edited_project_file_is_told_by_key(digits):
    digits.file.write_text(digits.file.read_text().replace("minutes: 60", "minutes: 7"))
    assert "(budget.minutes: 60.0 -> 7); next" in stale_reasons(digits)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("accuracy", "ACCURACY", ("expected '", "accuracy", "found '", "ACCURACY")),
        ("\n\n", "\n", ("differs from the record's rendering",)),
    ],
)
def test_an_edited_line_of_a_report_is_shown_as_it_was_and_as_it_is(digits, before, after, told):
    path = digits.root / "phases/02_baseline/baseline_results.md"
    path.write_text(path.read_text().replace(before, after, 1))
    reasons = stale_reasons(digits)
    assert all(part in reasons for part in told)
    assert (
        "next: git checkout -- phases/02_baseline/baseline_results.md where it is committed, or mltrainer phase run baseline"
        in reasons
    )


def test_a_report_that_was_cut_off_is_told_by_its_first_missing_line(digits):
    path = digits.root / "phases/02_baseline/baseline_results.md"
    path.write_text("\n".join(path.read_text().split("\n")[:3]))
    assert "baseline_results.md:4 differs" in stale_reasons(digits)
    assert "found no such line" in stale_reasons(digits)


@pytest.mark.parametrize(("phase", "roles"), [("planning", {"config"}), ("finalization", {"document", "ledger"})])
def test_an_input_that_a_clone_has_is_missed_where_it_was_removed(digits, phase, roles):
    record = recorded(digits, phase)
    rows = [row for row in record["inputs"] if row["role"] in roles]
    assert {row["role"] for row in rows} == roles
    for row in rows:
        path = digits.root / row["path"]
        kept = path.read_bytes()
        path.unlink()
        assert f"{row['path']} ({row['role']}) is missing" in stale_reasons(digits)
        path.write_bytes(kept)
    assert holding(digits) == list(PHASES)


CONFIG = "phases/01_planning/training_config.yaml"
NO_VALUES: dict[str, tuple[str, Callable[[str], str]]] = {
    "a comment": ("mltrainer.yaml", lambda text: f"# why\n{text}  # the end\n"),
    "a tracker": ("mltrainer.yaml", lambda text: f"{text}\ntracking: [tensorboard]\n"),
    "keys in another order": ("mltrainer.yaml", lambda text: yaml.safe_dump(yaml.safe_load(text), sort_keys=True)),
    "a default spelled out": ("mltrainer.yaml", lambda text: f"{text}\nstart: null\n"),
    "no comments in the config": (CONFIG, lambda text: yaml.safe_dump(yaml.safe_load(text))),
    "a tracker in the config": (CONFIG, lambda text: re.sub(r"tracking: .*", "tracking: [mlflow]", text)),
    "an engine in the config": (CONFIG, lambda text: text.replace("engine: local", "engine: slurm")),
}
VALUES: dict[str, tuple[str, Callable[[str], str]]] = {
    "the seed": ("mltrainer.yaml", lambda text: text.replace("seed: 42", "seed: 43")),
    "the name": ("mltrainer.yaml", lambda text: re.sub("name: .*", "name: other", text, count=1)),
    "the budget, beside a comment": ("mltrainer.yaml", lambda text: text.replace("minutes: 60}", "minutes: 59}  # 60")),
    "an unknown key": ("mltrainer.yaml", lambda text: f"{text}\ncolour: blue\n"),
    "nothing left": ("mltrainer.yaml", lambda text: ""),
    "what is kept": (CONFIG, lambda text: text.replace("keep: 3", "keep: 4")),
    "who observes": (CONFIG, lambda text: text.replace("signals: true", "signals: false")),
    "how many train together": (CONFIG, lambda text: text.replace("processes: 1", "processes: 2")),
    "cut off": (CONFIG, lambda text: text[: text.index("# classes of your own")]),
}


@pytest.mark.slow
@pytest.mark.parametrize("edit", NO_VALUES)
def test_an_edit_that_changes_no_value_makes_nothing_stale_and_is_noted(digits, edit):
    name, change = NO_VALUES[edit]
    path = digits.root / name
    before = path.read_text()
    path.write_text(change(before))
    assert path.read_text() != before
    assert holding(digits) == list(PHASES)
    assert f"{name}: edited since, to the same values" in check_gates(digits)[0].notes


@pytest.mark.slow
@pytest.mark.parametrize("edit", VALUES)
def test_an_edit_of_a_value_makes_planning_stale(digits, edit):
    name, change = VALUES[edit]
    path = digits.root / name
    before = path.read_text()
    path.write_text(change(before))
    assert path.read_text() != before
    assert holding(digits) == []
    assert f"{name} (" in stale_reasons(digits)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["signals", "augment"])
def test_a_key_that_was_deleted_is_named_as_missing_whatever_its_value(digits, key):
    path = digits.root / CONFIG
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if not line.startswith(f"{key}:")))
    assert f"({key}: missing)" in stale_reasons(digits)


FILES_OF_RUNS = ["checkpoints/*/state.safetensors", "result.json", "chain.txt"]


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [f".mltrainer/runs/*/{name}" for name in FILES_OF_RUNS])
def test_a_changed_checkpoint_result_or_chain_is_caught(digits, pattern):
    for path in digits.root.glob(pattern):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    assert holding(digits) == ["planning"]


@pytest.mark.slow
def test_a_file_that_was_put_beside_the_delivered_model_is_caught_but_not_what_python_leaves_there(digits):
    folder = digits.phase_dir("finalization") / "final_model"
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__/inference.cpython-311.pyc").touch()
    assert holding(digits) == list(PHASES)
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer/README.md").touch()
    assert holding(digits) == list(PHASES[:-1])
    assert "final_model/tokenizer/README.md was not delivered with the model; next: move it elsewhere" in stale_reasons(digits)


@pytest.mark.slow
def test_a_fresh_clone_without_runs_holds_and_says_what_is_not_here(digits, tmp_path, cli):
    commit(digits.root)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", digits.root, clone)
    assert not (clone / ".mltrainer").exists()
    cli("gate", "check", "--project", clone, code=0, out="not here, digest recorded")
    cli("gate", "check", "--files", "--project", clone, code=4, out="is missing")


def test_a_clone_with_other_line_endings_holds(digits, tmp_path, cli):
    commit(digits.root)
    git(tmp_path, "clone", "--quiet", "-c", "core.autocrlf=true", digits.root, "clone")
    cli("gate", "check", "--project", tmp_path / "clone", code=0)


def test_committing_the_reports_changes_nothing(digits, cli):
    before = cli("gate", "check", "--json", "--project", digits.root).json
    commit(digits.root)
    assert cli("gate", "check", "--json", "--project", digits.root).json == before


def test_gate_check_demands_files_and_hashes_them_whole(digits, cli):
    cli("gate", "check", "--files", "--project", digits.root, code=0)


@pytest.mark.slow
def test_a_page_of_the_team_makes_its_gate_stale_and_is_enforced(digits, cli):
    page = digits.phase_dir("planning") / "workflow.md"
    shipped = shipped_folder() / "phases/01_planning/workflow.md"
    page.write_text(shipped.read_text().replace("max_share: 0.9", "max_share: 1.0e-6"))
    assert "the handbook's checklist of this phase changed" in stale_reasons(digits)
    cli("phase", "run", "planning", "--project", digits.root, code=4, out="memory_fits fails")
    report = (digits.phase_dir("planning") / "reproducibility_manifest.md").read_text()
    assert "phases/01_planning/workflow.md" in report
    assert "memory_fits.max_share: 0.9 -> 1e-06" in report


def test_a_locked_phase_is_refused_by_every_command(digits, cli):
    (digits.phase_dir("planning") / "record.json").unlink()
    for phase in PHASES[1:]:
        cli("phase", "run", phase, "--project", digits.root, code=4, err="mltrainer phase run planning")


@pytest.mark.slow
def test_an_opening_of_the_test_split_is_not_forgotten_with_its_ledger(digits, cli):
    ledger = digits.phase_dir("finalization") / "test_openings.json"
    first = json.loads(ledger.read_bytes())["openings"][0]
    ledger.unlink()
    said = cli("phase", "run", "finalization", "--set", "optimizer.lr=0.004", "--project", digits.root, code=4)
    assert "test_opened_once fails" in said.out
    assert [row["run"] for row in json.loads(ledger.read_bytes())["openings"]].index(first["run"]) == 0


@pytest.mark.parametrize("assignment", ['acceptance.accuracy=">= 0.1"', "metric.name=loss", "split.test=0.2"])
def test_the_last_phase_does_not_choose_what_it_is_judged_by(digits, cli, assignment):
    cli("phase", "run", "finalization", "--set", assignment, "--project", digits.root, code=1, err="belongs to planning")
    assert holding(digits) == list(PHASES)


def test_a_large_file_changed_behind_its_restored_time_is_hashed_again(tmp_path):
    path, project = tmp_path / "data.bin", Project(tmp_path)
    path.write_bytes(bytes(CACHE_FROM_BYTES))
    (digests := FileDigests(project)).of(path)
    digests.save()
    times = path.stat()
    path.write_bytes(b"x" + bytes(CACHE_FROM_BYTES - 1))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert FileDigests(project).of(path) == sha256_file(path)


@pytest.mark.parametrize(("size", "expected", "hashed"), [(200, 199, False), (200, 200, True), (99, 98, True), (100, 99, False)])
def test_a_large_file_of_another_size_is_not_read_to_be_told_as_another(tmp_path, monkeypatch, size, expected, hashed):
    monkeypatch.setattr("mltrainer.gates.digests.SIZE_FIRST_FROM", 100)
    (path := tmp_path / "data.bin").write_bytes(bytes(size))
    assert FileDigests(Project(tmp_path)).of(path, expected) == (sha256_file(path) if hashed else OTHER_SIZE)


def test_who_only_looks_hashes_a_bounded_amount_and_what_a_phase_hashed_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr("mltrainer.gates.digests.MOST_HASHED", 2 * CACHE_FROM_BYTES)
    paths = [tmp_path / name for name in "abc"]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * CACHE_FROM_BYTES)
    digests = [sha256_file(path) for path in paths]
    with looking(lambda _root, _path: True):
        assert [*map(FileDigests(Project(tmp_path)).of, paths)] == [*digests[:2], NOT_HASHED]
        assert [*map(FileDigests(Project(tmp_path), trust_times=False).of, paths)] == digests
    a_phases = FileDigests(Project(tmp_path))
    assert [*map(a_phases.of, paths)] == digests
    a_phases.save()
    with looking(lambda _root, _path: True):
        assert [*map(FileDigests(Project(tmp_path)).of, paths)] == digests


def test_what_is_computed_from_files_counts_as_their_digests_do(tmp_path, monkeypatch):
    monkeypatch.setattr("mltrainer.gates.digests.MOST_HASHED", 2 * CACHE_FROM_BYTES)
    for name in "ab":
        (tmp_path / name).write_bytes(bytes(CACHE_FROM_BYTES))
    with looking(lambda _root, _path: True):
        digests = FileDigests(Project(tmp_path))
        found = [digests.computed(tmp_path / name, what, lambda path: path.name) for name in "ab" for what in ("x", "y")]
    assert found == ["a", "a", NOT_HASHED, NOT_HASHED]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_what_the_system_makes_when_it_is_read_is_no_file(tmp_path):
    assert FileDigests(Project(tmp_path), trust_times=False).of(Path("/proc/self/status")) == "not a file"


def test_a_folder_of_pictures_counts_as_much_as_its_pictures_hold(tmp_path, monkeypatch):
    monkeypatch.setattr("mltrainer.gates.digests.MOST_HASHED", 9)
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(bytes(5))
    with looking(lambda _root, _path: True):
        assert FileDigests(Project(tmp_path)).of(tmp_path) == NOT_HASHED


@pytest.mark.slow
def test_a_tools_manifest_of_the_team_is_policy_too(digits, cli):
    page = digits.root / "tools/training_orchestrator/README.md"
    page.parent.mkdir(parents=True)
    page.write_text(
        (shipped_folder() / "tools/training_orchestrator/README.md").read_text().replace("TZ: UTC", "TZ: UTC\n  LANG: C")
    )
    assert "tools/training_orchestrator/README.md changed what it declares" in stale_reasons(digits)
    cli("phase", "run", "planning", "--project", digits.root, code=0)
    assert "tools/training_orchestrator/README.md" in (digits.phase_dir("planning") / "reproducibility_manifest.md").read_text()


def test_what_has_another_shape_is_stale_and_no_fault_of_ours(digits, cli):
    reseal(digits, lambda record: record.update(inputs=None), "finalization")
    waiver = {
        "item": ["no_secrets"],
        "reason": 1,
        "by": "me",
        "record": sha256_file(digits.phase_dir("planning") / "record.json"),
    }
    (digits.phase_dir("planning") / "waivers.json").write_bytes(pretty_json({"waivers": [waiver]}))
    said = cli("gate", "check", "--project", digits.root, code=4, out="lacks what finalization records: inputs")
    assert "waivers.json is not readable" in said.out


def test_a_record_sealed_and_rendered_again_is_contradicted_by_its_run(digits):
    forge(digits, lambda record: record["evidence"]["run"]["metrics"].update(accuracy=1.0))
    assert " differ on run " in stale_reasons(digits)
    assert holding(digits) == list(PHASES[:-1])


def test_after_code_that_was_not_committed_a_run_begins_with_planning(digits, cli):
    forge(digits, lambda record: record["source"].update(dirty=True))
    assert "next: commit your changes, then mltrainer run (" in cli("status", "--project", digits.root).out
    found = cli("status", "--json", "--project", digits.root).json
    assert (found["next"], found["next_phase"]) == (None, "planning")  # a commit is no command of ours
    assert "source_committed of finalization does not hold; commit your changes" in found["next_why"]


def test_what_comes_next_after_a_failed_item_is_what_mends_it(digits):
    record = recorded(digits, "finalization")
    record["evidence"]["config"]["acceptance"] = {"accuracy": ">= 1.1"}
    states = derive(digits)
    failed = replace(states[-1].gate, items=tuple(evaluate(typed(record), phase_page("finalization", None), [])))
    found = advice([*states[:-1], PhaseState("finalization", "failed", (), failed)])
    assert found.why.startswith("bring new data for a test split, then mltrainer run: this one has been seen")
    assert "or mltrainer gate waive finalization acceptance_met --reason" in found.why


@pytest.mark.parametrize("phase", ["finalization", "diagnostics"])
def test_a_phase_that_was_committed_and_removed_is_named(phase, digits, cli):
    commit(digits.root)
    shutil.rmtree(digits.phase_dir(phase))
    said = cli("gate", "check", "--project", digits.root)
    name = f"{digits.relative(digits.phase_dir(phase))}/record.json"
    assert (said.code, f"{name} is in the last commit and not here; next: git checkout HEAD -- {name}" in said.out) == (4, True)


@pytest.mark.parametrize("phase", PHASES)
def test_a_gate_record_that_was_removed_is_missing(phase, digits):
    (digits.phase_dir(phase) / "gate.json").unlink()
    assert f"{digits.relative(digits.phase_dir(phase))}/gate.json is missing" in stale_reasons(digits)


def test_a_report_that_cannot_be_read_is_not_said_to_be_missing(digits):
    path = digits.phase_dir("planning") / "reproducibility_manifest.md"
    path.unlink()
    path.mkdir()
    assert f"{digits.relative(path)} cannot be read: Is a directory; next: " in stale_reasons(digits)


def test_what_the_test_split_showed_is_not_silent_where_it_was_removed(digits, cli):
    path = next(digits.runs_dir.glob("*/test.json"))
    path.unlink()
    assert f"{digits.relative(path)}, the test split's metrics beside the result of its run, is missing" in stale_reasons(digits)
    shutil.rmtree(digits.state_dir)
    said = cli("gate", "check", "--files", "-v", "--project", digits.root).out
    assert f"{digits.relative(path)} (run) is missing" in said


def test_a_number_written_before_the_one_that_counts_is_caught(digits):
    folder = digits.phase_dir("finalization")
    (folder / "gate.json").unlink()
    raw = (folder / "record.json").read_bytes()
    (folder / "record.json").write_bytes(raw.replace(b'"accuracy": 0.', b'"accuracy": 1.0, "accuracy": 0.', 1))
    assert "record.json was edited" in stale_reasons(digits)


def test_what_takes_a_models_place_is_not_taken_for_absent(digits):
    path = digits.phase_dir("finalization") / "final_model/model.safetensors"
    path.unlink()
    path.mkdir()
    assert "model.safetensors (model) changed" in stale_reasons(digits)


def test_a_page_of_another_phase_is_refused(digits):
    page = shipped_folder() / "phases/05_finalization/workflow.md"
    (digits.phase_dir("finalization") / "workflow.md").write_text(
        page.read_text().replace("phase: final", "phase: diagnostics #")
    )
    with pytest.raises(InputError, match="found diagnostics"):
        check_gates(digits)


def plan_over_budget(digits, cli):
    """Plan with less time than any training takes, so that an item fails which may be waived."""
    config = digits.root / "mltrainer.yaml"
    config.write_text(config.read_text().replace("minutes: 60", "minutes: 1.0e-6"))
    cli("phase", "run", "planning", "--project", digits.root, code=4)


@pytest.mark.slow
def test_a_waiver_needs_a_waivable_failing_item_and_is_shown(digits, cli):
    project = ("--project", digits.root)
    plan_over_budget(digits, cli)
    said = cli("gate", "waive", "planning", "nosuch", "--reason", "no", *project, code=1, err="no item 'nosuch' of planning")
    assert said.err.endswith("next: mltrainer gate check planning\n")
    cli("gate", "waive", "planning", "probe_identical", "--reason", "no", *project, code=1)
    cli("gate", "waive", "planning", "memory_fits", "--reason", "no", *project, code=1)
    cli("gate", "waive", "planning", "time_within_budget", "--reason", " ", *project, code=1)
    cli("gate", "waive", "planning", "time_within_budget", "--reason", "the estimate is for a laptop", "--json", *project, code=0)
    report = (digits.phase_dir("planning") / "reproducibility_manifest.md").read_text()
    assert "the estimate is for a laptop" in report
    assert "waived" in cli("gate", "check", "planning", *project).out


@pytest.mark.slow
def test_a_waiver_whose_command_was_killed_before_the_reports_is_finished_by_the_same_command(digits, cli, monkeypatch):
    project, reason = ("--project", digits.root), "the estimate is for a laptop"
    plan_over_budget(digits, cli)
    with monkeypatch.context() as killed:
        killed.setattr("mltrainer.project.engine.render_phase", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            waive(digits, "planning", "time_within_budget", reason, "Ann <ann@example.org>")
    cli("gate", "check", "planning", *project, code=4)
    cli("gate", "waive", "planning", "time_within_budget", "--reason", reason, *project, code=0)
    cli("gate", "check", "planning", *project, code=0, out="waived")
    assert len(json.loads((digits.phase_dir("planning") / "waivers.json").read_bytes())["waivers"]) == 1


@pytest.mark.slow
def test_a_stale_gate_is_not_waived(digits, cli):
    plan_over_budget(digits, cli)
    report = digits.phase_dir("planning") / "reproducibility_manifest.md"
    report.write_text(report.read_text() + "edited")
    before = report.read_bytes()
    waiver = ("gate", "waive", "planning", "time_within_budget", "--reason", "in a hurry", "--project", digits.root)
    said = cli(*waiver, code=1, err="error: planning is stale: ")
    assert "next: " in said.err
    assert report.read_bytes() == before


@pytest.mark.slow
def test_a_waiver_does_not_outlive_its_record(digits, cli):
    test_a_waiver_needs_a_waivable_failing_item_and_is_shown(digits, cli)
    cli("phase", "run", "planning", "--project", digits.root, code=4)


def test_one_gate_that_does_not_hold_is_enough(digits, cli):
    (digits.phase_dir("baseline") / "baseline_results.md").write_text("", "utf-8")
    said = cli("gate", "check", "--json", "--project", digits.root)
    assert (said.code, said.json["holds"]) == (4, False)
    assert [phase["holds"] for phase in said.json["phases"]][:2] == [True, False]


@pytest.mark.parametrize("schema", [SCHEMA + 1, SCHEMA - 1, None])
def test_another_schema_is_refused_with_a_reason(digits, schema):
    reseal(digits, lambda record: record.update(schema=schema), "planning")
    told = f"phases/01_planning/record.json has schema {schema}, expected {SCHEMA}: another version of mltrainer made it"
    assert f"{told}; next: mltrainer phase run planning" in stale_reasons(digits)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_project_can_still_be_checked(digits, cli):  # pragma: no cover - not as root
    subprocess.run(["chmod", "-R", "a-w", digits.root], check=True)
    cli("gate", "check", "--project", digits.root, code=0)
    subprocess.run(["chmod", "-R", "u+w", digits.root], check=True)


def test_a_last_record_that_names_no_result_of_its_run_is_caught(digits):
    forge(digits, lambda record: record.update(inputs=[row for row in record["inputs"] if row["role"] != "run"]))
    assert "is not bound to the result of run" in stale_reasons(digits)


def test_a_figure_of_an_earlier_record_is_removed_and_one_that_a_person_changed_stays(digits):
    folder = digits.phase_dir("baseline")
    record = json.loads((folder / "record.json").read_bytes())
    own = folder / "gap.svg"
    own.write_text("drawn by hand")
    (folder / "notes.svg").write_text("a person's")
    record["evidence"]["run"] |= {"history": [], "evaluation": None, "errors": None, "signals": None}
    drawn = draw("baseline", record["evidence"])
    record["figures"] = rows("baseline", record["evidence"], drawn)
    write(digits, "baseline", seal(record), drawn)
    left = {path.name for path in folder.glob("*.svg")}
    assert left == {"gap.svg", "notes.svg", "time.svg"}


def test_a_figure_that_is_missing_edited_or_of_another_run_is_named(digits):
    folder = digits.phase_dir("baseline")
    (folder / "gap.svg").unlink()
    (folder / "time.svg").write_bytes((digits.phase_dir("finalization") / "time.svg").read_bytes())
    found = stale_reasons(digits)
    assert "phases/02_baseline/gap.svg is missing; next: mltrainer phase run baseline" in found
    assert "phases/02_baseline/time.svg is not the figure that the record binds" in found


def test_a_figure_of_the_baseline_is_the_diagnostics_own_matter_too(digits):
    record = recorded(digits, "diagnostics")
    shown = {row["file"].rsplit("/", 1)[1] for row in record["figures"]}
    assert {"calibration.svg", "weights.svg", "activations.svg", "gradient_layers.svg"} <= shown
    figure = digits.phase_dir("baseline") / "calibration.svg"
    figure.write_text(figure.read_text().replace("calibration error", "calibration mistake"))
    told = {gate.phase for gate in check_gates(digits) if any("calibration.svg is not the figure" in r for r in gate.stale)}
    assert {"baseline", "diagnostics"} <= told


def test_figures_that_a_record_took_from_another_run_are_named(digits):
    first, last = (digits.phase_dir(phase) / "record.json" for phase in ("baseline", "finalization"))
    record = json.loads(last.read_bytes()) | {"figures": json.loads(first.read_bytes())["figures"]}
    for row in record["figures"]:
        (last.parent / row["file"]).write_bytes((first.parent / row["file"]).read_bytes())
    write(digits, "finalization", seal(record))
    assert "phases/05_finalization/gap.svg was drawn from other evidence than the record's" in stale_reasons(digits)


def test_a_check_draws_no_figure_again(digits, monkeypatch):
    monkeypatch.setattr("mltrainer.figures.canvas.picture", None)
    monkeypatch.setattr("mltrainer.figures.svg.picture", None)
    assert holding(digits) == list(PHASES)


@pytest.mark.slow
def test_the_projects_own_report_is_policy_and_hides_no_failing_gate(digits):
    own = digits.phase_dir("baseline") / "report.md.j2"
    own.write_text('{% extends "phases/02_baseline/report.md.j2" %}{% block findings %}Ours.{% endblock %}')
    assert "phases/02_baseline/report.md.j2" in handbook.overrides(digits.root)
    record = json.loads((own.parent / "record.json").read_bytes())
    record["handbook"]["phases/02_baseline/report.md.j2"] = policy_digest("phases/02_baseline/report.md.j2", digits.root)
    record["evidence"]["run"]["state"] = "failed"
    write(digits, "baseline", seal(record))
    told = (own.parent / "baseline_results.md").read_text()
    assert "**The gate does not hold**: `finished`" in told
    assert "Ours." in told
    own.write_text(own.read_text().replace("Ours", "Other"))
    assert "page phases/02_baseline/report.md.j2 changed" in stale_reasons(digits)


def test_a_second_check_renders_nothing_and_still_names_an_edit(digits, monkeypatch):
    assert holding(digits) == list(PHASES)
    report = digits.phase_dir("baseline") / "baseline_results.md"
    monkeypatch.setattr("mltrainer.gates.gate.render", None)
    assert holding(digits) == list(PHASES)
    monkeypatch.undo()
    report.write_text(report.read_text().replace("finished", "perfect", 1))
    assert "phases/02_baseline/baseline_results.md:" in stale_reasons(digits)
