"""What is to be seen of a project and its runs: the whole history to who comes late, then only what is new."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from mltrainer.companions.monitor.follower import Follower
from mltrainer.companions.monitor.run import Seen, WatchedRun
from mltrainer.companions.monitor.scene import Scene, unasked
from mltrainer.companions.monitor.shown import MetricShown, News, Planned, RunSummary, sent
from mltrainer.errors import InputError
from mltrainer.figures.series import Chart
from mltrainer.records import reading
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.fingerprint import Head
from mltrainer.runs.labels import label_run
from mltrainer.workspace import Project, locked, write_json
from tests.companions.monitor.invented import Training, empty_project


def all_of(run: WatchedRun) -> News:
    """Return what is to be seen of a run by who has seen nothing."""
    run.poll()
    run.look()
    found = run.since(None)
    assert found is not None
    return found


def test_who_comes_late_sees_the_whole_history(tmp_path):
    project = empty_project(tmp_path)
    training = Training(project)
    training.epoch(0.5)
    training.warn()
    training.epoch(0.75)
    with training.living():
        found = all_of(WatchedRun(project, training.run))
    assert found.whole
    assert found.steps.loss.mean == [0.5] * 20 + [0.25] * 20
    assert [row.validation["accuracy"] for row in found.rows] == [0.5, 0.75]
    assert found.rows[0].memory_mb == 300.0
    facts = found.facts
    assert (facts.state, facts.planned) == ("running", Planned(steps=200, epochs=10))
    assert facts.layers == ["first.weight", "second.weight"]
    assert [(one.id, one.epoch) for one in facts.findings] == [("loss_spike", 1)]


def test_the_terms_of_a_loss_have_a_chart_and_other_losses_have_none(tmp_path):
    project = empty_project(tmp_path)
    training, plain = Training(project), Training(project, "a" * 12)
    run = WatchedRun(project, training.run)
    assert "terms" not in charts_of(all_of(run))
    seen = run.seen
    training.steps(0.5)
    training.evaluate(0.5, terms={"task": 0.75, "distillation": 0.25})
    run.poll()
    found = run.since(seen)  # by who looked on before there was an evaluation, too
    assert found is not None
    curves = charts_of(found)["terms"].curves
    assert [(curve.name, curve.path) for curve in curves] == [
        ("task", ("terms", "task")),
        ("distillation", ("terms", "distillation")),
    ]
    assert found.rows[0].terms == {"task": 0.75, "distillation": 0.25}
    plain.epoch(0.5)
    assert "terms" not in charts_of(all_of(WatchedRun(project, plain.run)))


def charts_of(news: News) -> dict[str, Chart]:
    return {chart.name: chart for chart in news.facts.charts}


def test_a_run_is_listed_by_the_name_that_it_was_given_later(tmp_path):
    project = empty_project(tmp_path)
    training = Training(project)
    scene = Scene(project)
    for name in (None, "first try", "the best"):
        if name:
            label_run(project, training.run, name)
        assert [run.name for run in scene.runs()] == [name]


def test_who_looks_on_is_told_only_what_is_new(tmp_path):
    project = empty_project(tmp_path)
    training = Training(project)
    training.epoch(0.5)
    run = WatchedRun(project, training.run)
    all_of(run)
    seen = run.seen
    assert run.since(seen) is None
    training.steps(0.25, 40.0)
    run.poll()
    found = run.since(seen)
    assert (found.whole, found.rows, found.last) == (False, [], 22)
    assert (found.steps.step, found.steps.loss.mean) == ([21, 22], [0.25, 40.0])
    seen = run.seen
    training.warn()
    run.poll()
    found = run.since(seen)
    assert [one.reason for one in found.facts.findings] == ["So."]


def test_a_run_that_went_back_to_a_checkpoint_is_told_anew_without_what_it_took_back(tmp_path):
    project = empty_project(tmp_path)
    training = Training(project)
    training.epoch(0.5)
    run = WatchedRun(project, training.run)
    all_of(run)
    training.epoch(0.75)
    run.poll()
    seen = run.seen
    training.log("resume", step=20, cause="killed")
    run.poll()
    found = run.since(seen)
    assert found.whole
    assert [row.step for row in found.rows] == [20]


def test_steps_that_were_left_out_because_of_a_spike_are_gaps_and_not_zeros(tmp_path):
    project = empty_project(tmp_path)
    training = Training(project)
    training.steps(0.5, 0.4)
    training.log("resume", step=2, cause="back from the spike in step 4", first=3, last=5)
    training.steps(0.0, 0.0, 0.0, 0.3)
    run = WatchedRun(project, training.run)
    assert all_of(run).steps.loss.mean == [0.5, 0.4, None, None, None, 0.3]
    assert all_of(run).steps.norm.low == [0.25, 0.2, None, None, None, 0.15]
    with Follower(project) as follower:
        assert follower.steps(training.run, 4, 6, 100).loss.mean == [None, None, 0.3]
        assert follower.steps(training.run, 1, 6, 2).loss.low == [0.4, 0.3]
        assert follower.steps(training.run, 1, 6, 2).nonfinite == []


def test_a_run_that_ends_is_told_with_its_state_and_findings(digits):
    (run,) = [run for run in Scene(digits).runs() if run.phase == "baseline"]
    facts = all_of(WatchedRun(digits, run.id)).facts
    assert facts is not None
    assert run.metrics["accuracy"] > 0.9
    assert (facts.state, run.state) == ("finished", "finished")
    assert facts.planned.epochs == 12
    assert facts.config["optimizer.name"] == "adamw"


def test_a_process_that_died_leaves_an_interrupted_run(tmp_path):
    project = empty_project(tmp_path)
    training = Training(project)
    training.epoch(0.5)
    run = WatchedRun(project, training.run)
    with training.living():
        all_of(run)
        assert run.facts().state == "running"
        assert Scene(project).runs()[0].state == "running"
    assert run.look()
    assert run.facts().state == Scene(project).runs()[0].state == "interrupted"


@pytest.mark.parametrize(("metric", "expected"), [("loss", {"loss": 0.25}), ("accuracy", {"accuracy": 0.75})])
def test_a_run_so_far_is_shown_by_its_best_evaluation(tmp_path, metric, expected):
    project = empty_project(tmp_path)
    training = Training(project, metric={"name": metric, "mode": "min" if metric == "loss" else "max"})
    for accuracy in (0.5, 0.75, 0.625):
        training.epoch(accuracy)
    with training.living():
        (shown,) = Scene(project).runs()
    assert (shown.step, shown.epoch) == (60, 3)
    assert {metric: shown.metrics[metric]} == expected


def test_the_first_step_of_a_run_counts(tmp_path):
    project = empty_project(tmp_path)
    training = Training(project)
    _, lines = fingerprint.extend(Head(), [fingerprint.step_entry(1, "0123456789abcdef", 0.5, 0.25)])
    fingerprint.append(training.folder / fingerprint.CHAIN_FILE, lines)
    with training.living():
        assert Scene(project).runs()[0].step == 1


def test_a_run_that_left_an_error_failed(tmp_path):
    project = empty_project(tmp_path)
    training = Training(project)
    training.epoch(0.5)
    write_json(training.folder / "error.json", {"message": "So."})
    assert Scene(project).runs()[0].state == "failed"


@pytest.mark.slow
def test_gates_show_as_they_come_true(digits):
    scene = Scene(digits)
    assert [phase.state for phase in scene.look().phases] == ["passed", "passed", "passed", "skipped", "passed"]
    hidden = digits.phase_dir("finalization").rename(digits.root / "hidden")
    shown = scene.look()
    assert (shown.phases[4].state, shown.next.command) == ("ready", "mltrainer phase run finalization")
    hidden.rename(digits.phase_dir("finalization"))
    shown = scene.look()
    assert shown.phases[4].state == "passed"
    assert {item.verdict for item in shown.phases[4].items} <= {"pass", "not_applicable"}
    assert "phases/02_baseline/baseline_results.md" in [report.path for report in shown.reports]


@pytest.mark.parametrize(("took", "until"), [(0.5, 20.0), (3.0, 60.0)])
def test_gates_that_take_long_are_derived_the_less_often(digits, monkeypatch, took, until):
    now, asked = [100.0], []
    monkeypatch.setattr("mltrainer.companions.monitor.scene.time.monotonic", lambda: now[0])

    def derived(*_: Any, **__: Any) -> list[Any]:
        asked.append(now[0])
        now[0] += took
        return []

    monkeypatch.setattr("mltrainer.companions.monitor.scene.derive", derived)
    scene = Scene(digits)
    scene.look()
    for later in (until - 1, until + 1):
        now[0] = 100.0 + took + later
        scene.look()
    assert asked == [100.0, 101.0 + took + until]


def summary_of(run: str, state: str) -> RunSummary:
    return RunSummary(run, "baseline", None, state, None, MetricShown(), None, None, None, None, {}, None)


def test_unasked_those_are_looked_at_that_train_else_those_before_else_the_newest():
    ended = [summary_of(name, "finished") for name in "abc"]
    assert unasked([], []) == []
    assert unasked(ended, []) == ["c"]
    assert unasked(ended, ["a", "gone"]) == ["a"]
    live = [summary_of(str(nr), "running") for nr in range(6)]
    assert unasked([*ended, *live], ["a"]) == ["2", "3", "4", "5"]


def test_a_running_study_shows_with_its_trials(tmp_path):
    project = empty_project(tmp_path)
    write_json(project.state_dir / "running.json", {"phase": "optimization"})
    told = {"what": "trials", "done": 3, "planned": 8, "left_s": 60.0, "metric": "accuracy", "running": [{"nr": 3}]}
    write_json(project.state_dir / "studies/abc/live.json", told)
    assert Scene(project).look().study is None  # what a killed study left behind
    with locked(project.state_dir / "lock", "the project"):
        assert json.loads(sent(Scene(project).look()))["study"] == {**told, "text": "3 of 8 trials; 1 min left"}


@pytest.mark.slow
def test_nothing_of_the_project_is_written(digits):
    def state() -> dict[str, tuple[int, int, bytes]]:
        files = [path for path in digits.root.rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size, path.read_bytes()) for path in files}

    (digits.state_dir / "cache/digests.json").unlink()  # which other commands would write again
    before = state()
    with Follower(digits) as follower, follower.watching([run.id for run in follower.shown.runs]) as runs:
        assert len(follower.news(runs, {})) == len(runs) >= 2
        time.sleep(0.7)
    assert state() == before


def test_a_run_that_is_none_of_the_project_is_refused(tmp_path):
    follower = Follower(empty_project(tmp_path))
    with pytest.raises(InputError, match="expected at most 12 runs of this project"), follower.watching(["../../etc"]):
        pass


def latencies(project: Project, training: Training, events: int) -> list[float]:
    """Return for some steps the seconds from when they were written until who waits for them has them."""
    seen: dict[str, Seen] = {}
    written: dict[int, float] = {}
    found: list[float] = []

    def watch(follower: Follower, runs: list[WatchedRun]) -> None:
        version = -1
        while len(found) < events:
            for new in follower.news(runs, seen):
                found.extend(time.monotonic() - written[step] for step in new.steps.step if step in written)
            version = follower.wait(version, 2.0)

    with Follower(project) as follower, follower.watching([training.run]) as runs:
        thread = threading.Thread(target=watch, args=(follower, runs))
        thread.start()
        time.sleep(0.1)
        for _ in range(events):
            written[training.step + 1] = time.monotonic()
            training.steps(0.5)
            time.sleep(0.013)
        thread.join(10)
    return sorted(found)


@pytest.mark.slow
def test_a_step_reaches_who_waits_for_it_within_a_tenth_of_a_second(tmp_path):
    project = empty_project(tmp_path)
    training = Training(project)
    training.epoch(0.5)
    with training.living():
        found = latencies(project, training, 60)
    assert len(found) == 60
    assert (
        found[len(found) // 2] < 0.1
    )  # the 99th percentile is measured by tests/benchmarks/bench_monitor.py, where nothing else runs


@pytest.mark.slow
def test_following_costs_next_to_nothing(tmp_path):
    project = empty_project(tmp_path)
    training = Training(project)
    training.epoch(0.5)
    with Follower(project) as follower, follower.watching([training.run]):
        time.sleep(0.2)
        begun, busy = time.monotonic(), time.process_time()
        time.sleep(0.6)
        share = (time.process_time() - busy) / (time.monotonic() - begun)
    assert share < 0.2


@pytest.mark.slow
def test_no_torch_is_imported_by_looking(tmp_path):
    training = Training(empty_project(tmp_path))
    training.epoch(0.5)
    code = (
        "import sys, pathlib\n"
        "from mltrainer.workspace import Project\nfrom mltrainer.companions.monitor.follower import Follower\n"
        f"with Follower(Project(pathlib.Path({str(tmp_path)!r}))) as f, f.watching([f.shown.runs[0].id]) as r:\n"
        "    f.news(r, {})\n"
        "print([name for name in ('torch', 'polars', 'sklearn') if name in sys.modules])\n"
    )
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    assert json.loads(done.stdout.replace("'", '"')) == [], done.stderr


WRONG = b'{"config": {"metric": 7, "batch_size": "x", "clip": 1}, "phase": []}'
DAMAGE = [b"", b"[]", b"{", b'{"config": 3}', WRONG, b"\xff\x00\n\n", b"null\n1 2 3\n"]


FILES = ("job.json", "result.json", "events.jsonl", "chain.txt", "alerts.jsonl", "lock")


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_of_one_run_hides_no_other(tmp_path, damage):
    project = empty_project(tmp_path)
    names = [f"{nr:012x}" for nr in range(len(FILES) + 1)]
    for run in names:
        Training(project, run).epoch(0.5)
    for run, name in zip(names[1:], FILES, strict=True):
        (project.runs_dir / run / name).write_bytes(damage)
    with Follower(project) as follower, follower.watching(names) as runs:
        assert sorted(run.id for run in follower.shown.runs) == names
        found = {new.run: new for new in follower.news(runs, {})}
        assert sent(list(found.values()))
        assert found[names[0]].rows[0].validation["accuracy"] == 0.5


@pytest.mark.slow
def test_a_record_is_read_again_only_where_it_changed(digits, monkeypatch):
    scene = Scene(digits)
    read: list[bytes] = []
    scene.look()
    parsed = reading.from_json
    monkeypatch.setattr(reading, "from_json", lambda raw, pairs: (read.append(raw), parsed(raw, pairs))[1])
    scene.look()
    assert read == []
    path = digits.phase_dir("baseline") / "record.json"
    path.write_text(path.read_text().replace("accuracy", "accuracies"))
    assert {phase.name: phase.state for phase in scene.look().phases}["baseline"] == "stale"
    assert read == [path.read_bytes()]


def test_reading_a_run_ahead_keeps_nobody_waiting(tmp_path, monkeypatch):
    training = Training(empty_project(tmp_path))
    may_read, waited = threading.Event(), list[bool]()
    monkeypatch.setattr("mltrainer.companions.monitor.run.WatchedRun.look", lambda run: waited.append(may_read.wait(3)))
    with Follower(Project(tmp_path)) as follower, follower.reading([training.run]):
        may_read.set()
    assert all(waited)
