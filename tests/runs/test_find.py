"""Runs that have no result yet: found by their phase, and shown from what they have written down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mltrainer.errors import InputError
from mltrainer.reproducibility import fingerprint
from mltrainer.runs import find
from mltrainer.runs.find import compare_runs, describe_run, find_run, list_runs
from mltrainer.workspace import PHASES, Project, locked, seal, write_json
from tests.projects import evidence_of, kept

RUN, LATER = "0123456789ab", "abcdef012345"


def begin(project: Project, run: str = RUN, phase: str = "baseline", **job: Any) -> Path:
    """Write what a run has when its process has begun."""
    config = {"metric": {"name": "accuracy", "mode": "max"}}
    write_json(project.runs_dir / run / "job.json", {"run": run, "phase": phase, "config": config, "contract": {}, **job})
    return project.runs_dir / run


def log(folder: Path, *events: dict[str, Any], torn: str = "") -> None:
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events) + torn)


def row(step: int, accuracy: float) -> dict[str, Any]:
    return {"event": "row", "epoch": step // 10, "step": step, "validation": {"accuracy": accuracy}, "train": {"accuracy": 1.0}}


def chain(folder: Path, steps: int) -> None:
    entries = [fingerprint.weights_entry(0, "0" * 64), *(fingerprint.step_entry(n, "ab", 0.5, 1.0) for n in range(1, steps + 1))]
    fingerprint.append(folder / fingerprint.CHAIN_FILE, fingerprint.extend(fingerprint.Head(), entries)[1])


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "mltrainer.yaml").write_text("name: small\n")
    return Project(tmp_path)


def test_a_phase_that_trains_goes_by_its_name_and_is_shown_as_far_as_it_has_come(project, cli):
    folder = begin(project)
    log(folder, row(10, 0.5), row(20, 0.75), row(30, 0.625), torn='{"event": "row", "st')
    chain(folder, 37)
    with locked(folder / "lock", "the run"):
        found = cli("runs", "show", "baseline", "--json", "--project", project.root).json
    assert (found["id"], found["state"], found["steps"], found["epochs"]) == (RUN, "running", 37, 3)
    assert found["metrics"] == {"accuracy": 0.75, "train_accuracy": 1.0}  # of the best evaluation
    assert 0 <= found["wall_s"] < 60


def test_a_result_of_an_earlier_process_does_not_hide_that_the_run_goes_on(project):
    folder = begin(project)
    end = {"step": 12, "cause": "SIGINT"}
    log(folder, row(10, 0.5), {"event": "stopped", **end}, {"event": "resume", **end})
    chain(folder, 14)
    write_json(folder / "result.json", {"id": RUN, "state": "interrupted", "steps": 12})
    with locked(folder / "lock", "the run"):
        found = describe_run(project, RUN)
    assert (found.state, found.steps) == ("running", 14)
    assert found.interruptions == [end]


def test_what_a_killed_process_trained_after_its_checkpoint_does_not_count(project):
    folder = begin(project)
    log(folder, row(10, 0.5), row(20, 0.9), {"event": "resume", "step": 10, "cause": "killed"})
    found = describe_run(project, RUN)
    assert (found.state, (found.metrics or {})["accuracy"]) == ("interrupted", 0.5)


def test_an_interrupted_phase_without_a_record_goes_by_its_name_too(project):
    begin(project)
    begin(project, LATER, contract={"parent_sha256": "0" * 64})  # a fork of it
    assert find_run(project, "baseline") == RUN
    with pytest.raises(InputError, match="finalization has no run yet"):
        find_run(project, "finalization")


@pytest.mark.parametrize("job", ["{", "[]", '{"phase": "baseline", "config": 3}'])
def test_a_damaged_job_is_shown_all_the_same(project, job):
    folder = begin(project)
    log(folder, row(10, 0.5))
    (folder / "job.json").write_text(job)
    assert describe_run(project, RUN).state == "interrupted"


def some_runs(tmp_path: Path, **chains: str) -> Project:
    """A project in which only jobs and chains of some runs lie."""
    project = Project(tmp_path)
    for run, chain in chains.items():
        write_json(project.runs_dir / run[1:] / "job.json", {"phase": "baseline"})
        (project.runs_dir / run[1:] / "chain.txt").write_text(chain)
    return project


def test_a_list_reads_each_record_once_however_many_runs_have_no_result(project, monkeypatch):
    for nr in range(4):
        begin(project, f"{nr:012x}")
    asked: list[str] = []
    monkeypatch.setattr(find, "read_record", lambda _, phase: asked.append(phase))
    assert [run.state for run in list_runs(project)] == ["interrupted"] * 4
    assert sorted(asked) == sorted(PHASES)


def test_a_prefix_that_fits_several_runs_is_refused_with_their_names(project, cli):
    some_runs(project.root, _aaaa00000000="", _aaaa11111111="", _bbbb00000000="")
    assert find_run(project, "b") == "bbbb00000000"
    assert find_run(project, "aaaa11111111") == "aaaa11111111"
    cli("runs", "show", "aaaa", "--project", project.root, code=1, err="'aaaa' matches 2 runs: aaaa00000000, aaaa11111111")


def test_entries_of_weights_are_no_steps_that_were_compared(tmp_path):
    steps = "".join(f"{nr} 0 0 0 h\n" for nr in (1, 2, 3))
    project = some_runs(tmp_path, _aaaa00000000=f"w 0 s h\n{steps}w 3 s h\n", _bbbb00000000=f"w 0 s h\n{steps}4 0 0 0 h\n")
    assert compare_runs(project, "aaaa00000000", "bbbb00000000").steps_compared == 3


def test_runs_that_read_other_files_differ_by_their_digest(tmp_path):
    project = two_results(tmp_path, {"inputs_sha256": "a" * 64}, {})
    (found,) = compare_runs(project, "aaaa00000000", "bbbb00000000").differences
    assert (found.what, found.first, found.second) == ("inputs_sha256", "a" * 64, None)


def test_a_group_that_is_empty_in_one_run_is_told_by_the_entries_of_the_other(tmp_path):
    project = two_results(tmp_path, {"metrics": {"averaging": 0.5}}, {"metrics": {"averaging": 0.6}})
    for run, criteria in (("aaaa00000000", {}), ("bbbb00000000", {"accuracy": ">= 85"})):
        config = {"acceptance": criteria, "averaging": {"name": "ema"}}  # a metric may be called as a group is
        write_json(project.runs_dir / run / "job.json", {"phase": "baseline", "config": config})
    found = compare_runs(project, "aaaa00000000", "bbbb00000000").differences
    assert [(row.what, row.first, row.second) for row in found] == [
        ("averaging", 0.5, 0.6),
        ("acceptance.accuracy", None, ">= 85"),
    ]


# --- how far apart two runs lie -------------------------------------------------------------------

HITS = {"metric": {"name": "accuracy", "mode": "max"}, "measured_samples": {"train": 40, "validation": 10}}


def two_results(tmp_path: Path, first: dict[str, Any], second: dict[str, Any]) -> Project:
    """A project with two runs that ended with these results."""
    project = some_runs(tmp_path, _aaaa00000000="", _bbbb00000000="")
    (tmp_path / "mltrainer.yaml").write_text("name: two\n")
    for run, result in (("aaaa00000000", first), ("bbbb00000000", second)):
        write_json(project.runs_dir / run / "result.json", seal({"id": run, **result}))
    return project


def with_seeds(project: Project, name: str, values: Sequence[float]) -> None:
    """Add runs of one config that differ in their seed alone."""
    for seed, value in enumerate(values):
        folder = project.runs_dir / f"cccc0000000{seed}"
        write_json(folder / "job.json", {"config": {"seed": seed, "epochs": 3}})
        result = {**HITS, "metric": {"name": name, "mode": "max"}, "metrics": {name: value}, "state": "finished"}
        result["speed"] = {"samples_per_s": 1000 * value}
        write_json(folder / "result.json", seal({"id": folder.name, **result}))


UNKNOWN = "seed variation is unknown: mltrainer seeds"
# Standard deviation 0.02 with 4 degrees of freedom: 2.7764 (Student's t, 97.5 %) times the root of two times 0.02
SEEDS, LEAST = (0.5, 0.52, 0.48, 0.52, 0.48), "seeds alone change up to 0.0785"
# 9 of 10 less 3 of 10: Newcombe, 1998, 17:873-890, table II, method 10: 0.1705 to 0.8090
ROWS = "95 % interval +0.171 to +0.809 from 10 rows"
TOLD = [
    ("accuracy", (0.3, 0.9), SEEDS, "better", f"+0.600 ({ROWS}; {LEAST}"),
    ("accuracy", (0.9, 0.3), SEEDS, "worse", "-0.600 (95 % interval -0.809 to -0.171 from 10 rows; seeds alone"),
    ("accuracy", (0.3, 0.9), (), "no clear difference", f"+0.600 ({ROWS}; {UNKNOWN}): no clear difference"),
    ("accuracy", (0.3, 0.9), (0.1, 0.9), "no clear difference", "seeds alone change up to 10"),
    ("accuracy", (0.5, 0.6), SEEDS, "no clear difference", "from 10 rows; seeds alone change"),
    ("r2", (0.3, 0.9), SEEDS, "better", "+0.600 (seeds alone change up to"),
    ("r2", (0.3, 0.36), SEEDS, "no clear difference", "+0.0600 (seeds alone change up to"),
    ("r2", (0.3, 0.9), (), "no clear difference", f"+0.600 ({UNKNOWN}): no clear difference"),
    ("r2", (0.3, 0.3), SEEDS, "same", "the same"),
]


@pytest.mark.parametrize(("name", "values", "seeds", "verdict", "line"), TOLD)
def test_two_runs_differ_only_by_more_than_their_rows_and_another_seed_explain(tmp_path, cli, name, values, seeds, verdict, line):
    results = [{**HITS, "metric": {"name": name, "mode": "max"}, "metrics": {name: value}} for value in values]
    with_seeds(two_results(tmp_path, *results), name, seeds)
    row = cli("runs", "compare", "aaaa", "bbbb", "--json", "--project", tmp_path).json["metric"]
    samples = 10 if name == "accuracy" else None
    assert (row["name"], row["mode"], row["verdict"], row["samples"]) == (name, "max", verdict, samples)
    assert row["difference"] == pytest.approx(values[1] - values[0])
    said = cli("runs", "compare", "aaaa", "bbbb", "--project", tmp_path).out
    assert f"{name} on validation: " in said
    assert line in said


@pytest.mark.parametrize(
    ("rates", "seeds", "verdict"),
    [((100.0, 200.0), SEEDS, "the second is faster"), ((100.0, 110.0), SEEDS, "no clear difference"),
     ((100.0, 900.0), SEEDS[:1], "no clear difference")],
)  # fmt: skip
def test_a_run_is_faster_only_by_more_than_runs_of_one_config_differ_by(tmp_path, cli, rates, seeds, verdict):
    results = [{**HITS, "metrics": {"accuracy": 0.5}, "speed": {"samples_per_s": rate}} for rate in rates]
    with_seeds(two_results(tmp_path, *results), "accuracy", seeds)
    said = cli("runs", "compare", "aaaa", "bbbb", "--project", tmp_path).out
    (line,) = [line for line in said.splitlines() if line.startswith("speed: ")]
    assert line.endswith(f": {verdict}")
    assert "samples/s" in said


@pytest.mark.parametrize(
    ("phases", "reason", "verdict"),
    [
        (("baseline", "optimization"), "one trained in optimization, where several runs can train at", "no clear difference"),
        (("diagnose", "baseline"), "one trained in diagnose, where several runs can train at the same", "no clear difference"),
        (("optimization", "ablation"), "two runs of one config differ by up to", "the second is faster"),
        (("baseline", "finalization"), "two runs of one config differ by up to", "the second is faster"),
    ],
)
def test_a_run_that_trained_alone_is_not_called_faster_than_one_of_many(tmp_path, cli, phases, reason, verdict):
    rates = zip(phases, (100.0, 200.0), strict=True)
    results = [{**HITS, "phase": phase, "metrics": {"accuracy": 0.5}, "speed": {"samples_per_s": rate}} for phase, rate in rates]
    with_seeds(two_results(tmp_path, *results), "accuracy", SEEDS)
    said = cli("runs", "compare", "aaaa", "bbbb", "--project", tmp_path).out
    line = said[said.index("speed: ") :].partition("\n\n")[0]
    assert reason in line
    assert f": {verdict}" in line


def test_the_best_of_many_trials_is_called_so(tmp_path, cli):
    project = kept("0.9/houses", tmp_path)
    searched = evidence_of(project, "optimization")
    said = cli("runs", "compare", "baseline", "finalization", "--project", project.root).out
    assert searched["promoted"] == "candidate"
    assert f"the better one is the best of {len(searched['trials'])} trials" in said


def test_a_final_run_that_no_search_chose_is_not_called_the_best_of_many(tmp_path, cli):
    project = kept("0.9/digits", tmp_path)
    said = cli("runs", "compare", "baseline", "finalization", "--project", project.root).out
    assert "accuracy on validation" in said
    assert "the best of" not in said


def test_of_runs_with_other_metrics_or_other_rows_no_interval_is_made(tmp_path):
    first = {**HITS, "metrics": {"accuracy": 0.3}}
    other = {**first, "metric": {"name": "f1", "mode": "max"}}
    more = {**HITS, "metrics": {"accuracy": 0.9}, "measured_samples": {"validation": 11}}
    assert compare_runs(two_results(tmp_path / "a", first, other), "aaaa00000000", "bbbb00000000").metric is None
    row = compare_runs(two_results(tmp_path / "b", first, more), "aaaa00000000", "bbbb00000000").metric
    assert (row and row.interval, row and row.verdict) == (None, "no clear difference")


def test_a_run_that_only_a_record_names_is_not_shown_as_interrupted(tmp_path, cli):
    project = kept("0.9/houses", tmp_path)
    run = evidence_of(project, "optimization")["replay"]["run"]
    what = f"run {run} is not here, and no record holds its result"
    cli("runs", "show", "optimization", "--project", project.root, code=1, err=what)
    cli("runs", "compare", "baseline", "optimization", "--project", project.root, code=1, err=what)
    assert find.config_of(project, run) == {}
    assert find.config_of(project, evidence_of(project, "baseline")["run"]["id"])["epochs"]
