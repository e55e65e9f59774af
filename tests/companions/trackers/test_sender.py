"""What a tracker is given of a run: all of it once, in whatever pieces it is written, also by who goes on later."""

from __future__ import annotations

import json
import math
import threading
import time
from typing import Any

import pytest

from mltrainer.companions.trackers.feed import MOST, Feed, Sent, param
from mltrainer.companions.trackers.sender import PhaseSender
from mltrainer.configs.tracking import TensorBoard, Tracker
from mltrainer.reproducibility import fingerprint
from mltrainer.workspace import Project, locked
from tests.companions.monitor.invented import Training, empty_project
from tests.companions.trackers.sinks import Kept

CONFIG = {"name": "invented", "optimizer": {"name": "sgd", "lr": 0.1}, "tracking": {"tensorboard": {}}, "device": "cpu"}


def follower(project: Project, kept: Kept, phase: str = "baseline", since: float = 0.0, **options: Any) -> PhaseSender:
    def late() -> None:
        raise AssertionError("it answers")

    return PhaseSender(project, phase, since, "kept", Tracker(**options), kept.begin, late)


def test_a_tracker_is_given_config_steps_evaluations_and_the_machine(tmp_path):
    project, kept = empty_project(tmp_path), Kept()
    training = Training(project, **CONFIG)
    following = follower(project, kept)
    with training.living():
        training.epoch(0.5)
        following.look()
        assert kept.tags["state"] == "running"
        training.steps(0.25, math.nan)
        following.look()
    following.end(has_ended=False)
    assert kept.params["optimizer.lr"] == 0.1
    assert not [key for key in kept.params if key.startswith("tracking")]
    steps = dict(kept.of("step/loss"))
    assert list(steps) == list(range(1, 23))
    assert (steps[20], steps[21]) == (0.5, 0.25)
    assert math.isnan(steps[22])
    assert kept.of("step/grad_norm")[0] == (1, 0.25)
    assert kept.of("validation/accuracy") == kept.of("train/accuracy") == [(20, 0.5)]
    assert kept.of("lr") == [(20, 0.1)]
    assert kept.of("system/memory_mb")[0][1] > 1
    assert (kept.tags["run"], kept.tags["phase"], kept.closed) == (training.run, "baseline", ["interrupted"])
    place = kept.places[0]
    assert (place.project, place.run, place.phase, place.known, place.step) == ("invented", training.run, "baseline", None, 0)


def test_who_goes_on_sends_nothing_twice_and_in_the_same_run(tmp_path):
    project, kept = empty_project(tmp_path), Kept()
    training = Training(project, **CONFIG)
    training.epoch(0.5)
    follower(project, kept).end(has_ended=False)
    training.log("resume", step=10, cause="killed")
    training.epoch(0.75)
    kept.params.clear()
    follower(project, kept).end(has_ended=False)
    assert [step for step, _ in kept.of("step/loss")] == list(range(1, 41))
    assert [step for step, _ in kept.of("validation/accuracy")] == [20, 40]
    assert [(place.known, place.step) for place in kept.places] == [(None, 0), (f"its-{training.run}", 20)]
    assert kept.params == {}


def test_after_a_spike_the_left_out_steps_are_named_and_their_evaluations_sent_again(tmp_path):
    project, kept = empty_project(tmp_path), Kept()
    training = Training(project, **CONFIG)
    training.epoch(0.5)
    following = follower(project, kept)
    training.steps(0.5, 90.0)
    following.look()
    # The spike in step 22 takes steps 18 to 24 out of the run, and the evaluation of step 20 is another one.
    head = fingerprint.verify(fingerprint.read(training.folder / fingerprint.CHAIN_FILE)[:10], "")
    lines = fingerprint.read(training.folder / fingerprint.CHAIN_FILE)[:10]
    (training.folder / fingerprint.CHAIN_FILE).write_text("".join(f"{line}\n" for line in lines))
    training._head, training.step = head, 10
    training.log("resume", step=10, cause="back from the spike in step 22", first=18, last=24)
    training.steps(*[0.5] * 7, 0.0, 0.0, 0.0)
    training.evaluate(0.25)
    following.look()
    assert kept.tags["left_out"] == "steps 18 to 24"
    training.steps(*[0.0] * 4, 0.5)
    following.end(has_ended=False)
    follower(project, kept).end(has_ended=False)
    assert [step for step, _ in kept.of("step/loss")] == [*range(1, 23), 25]
    assert kept.of("validation/accuracy") == [(20, 0.5), (20, 0.25)]


def test_a_long_history_comes_in_pieces_of_which_each_is_noted(tmp_path):
    project = empty_project(tmp_path)
    training = Training(project, **CONFIG)
    training.steps(*[0.5] * (2 * MOST + 7))
    kept = Kept()

    def dies(points: Any) -> None:
        if len(kept.points) >= MOST:
            raise ConnectionError("the server is gone")
        kept.points += points

    def begin(place: Any, options: Any) -> Any:
        taking = kept.begin(place, options)
        taking.metrics = dies  # type: ignore[method-assign]
        return taking

    dying = PhaseSender(project, "baseline", 0.0, "kept", Tracker(), begin, lambda: None)
    with pytest.raises(ConnectionError):
        dying.end(has_ended=False)
    assert dying.progress() == f"run {training.run}: step {MOST} of {2 * MOST + 7}"
    follower(project, kept).end(has_ended=False)
    assert [step for step, _ in kept.of("step/loss")] == list(range(1, 2 * MOST + 8))


def test_each_split_has_its_own_numbers(tmp_path):
    project, kept = empty_project(tmp_path), Kept()
    training = Training(project, **CONFIG)
    training.steps(0.5)
    training.evaluate(0.5, train=0.75)
    follower(project, kept).end(has_ended=False)
    assert (kept.of("train/accuracy"), kept.of("validation/accuracy")) == ([(1, 0.75)], [(1, 0.5)])


def test_the_terms_of_a_loss_are_sent(tmp_path):
    project, kept = empty_project(tmp_path), Kept()
    training = Training(project, **CONFIG)
    training.steps(0.5)
    training.evaluate(0.5, terms={"task": 0.75, "distillation": 0.25})
    follower(project, kept).end(has_ended=False)
    assert (kept.of("terms/task"), kept.of("terms/distillation")) == ([(1, 0.75)], [(1, 0.25)])


def test_of_every_n_steps_one_is_sent_and_all_evaluations(tmp_path):
    project, kept = empty_project(tmp_path), Kept()
    training = Training(project, **CONFIG)
    training.epoch(0.5)
    follower(project, kept, every_n_steps=8).look()
    assert [step for step, _ in kept.of("step/loss")] == [1, 8, 16]
    assert kept.of("validation/accuracy") == [(20, 0.5)]


def test_steps_are_sent_that_are_further_apart_than_a_piece(tmp_path):
    project, kept = empty_project(tmp_path), Kept()
    training = Training(project, **CONFIG)
    training.steps(*[0.5] * (2 * MOST + 300))
    follower(project, kept, every_n_steps=MOST + 100).end(has_ended=False)
    assert [step for step, _ in kept.of("step/loss")] == [1, MOST + 100, 2 * MOST + 200]


def test_of_a_program_no_gradient_norm_is_shown(tmp_path):
    project, kept = empty_project(tmp_path), Kept()
    training = Training(project, **CONFIG, task={"script": "python train.py"})
    training.steps(0.5, 0.25)
    follower(project, kept).end(has_ended=False)
    assert (kept.of("step/loss"), kept.of("step/grad_norm")) == ([(1, 0.5), (2, 0.25)], [])


def test_only_runs_that_the_phase_itself_began_are_followed(tmp_path):
    project, kept = empty_project(tmp_path), Kept()
    Training(project, **CONFIG)
    follower(project, kept, phase="finalization").look()
    follower(project, kept, since=time.time() + 60).look()
    assert kept.places == []


def test_a_tracker_that_does_not_answer_is_found_late(tmp_path):
    project = empty_project(tmp_path)
    Training(project, **CONFIG).epoch(0.5)
    late = threading.Event()

    def hangs(place: Any, options: Any) -> Any:
        assert late.wait(10)
        raise TimeoutError("at last")

    with pytest.raises(TimeoutError):
        PhaseSender(project, "baseline", 0.0, "kept", Tracker(wait_s=0.05), hangs, late.set).look()


@pytest.mark.slow
def test_a_phase_that_ended_adds_verdicts_reports_and_figures_to_its_run(digits):
    kept = Kept()
    since = time.time() + 60  # it trains nothing: the runs are there
    follower(digits, kept, "baseline", since).end(has_ended=True)
    assert {kept.tags[f"gate.{phase}"] for phase in ("planning", "baseline", "diagnostics", "finalization")} == {"holds"}
    assert kept.tags["gate.optimization"] == "skipped"
    assert kept.closed == [kept.tags["state"]] == ["finished"]
    assert len(kept.tags["weights_sha256"]) == 64
    assert "phases/02_baseline/learning_curves.svg" in kept.figures
    assert "phases/02_baseline/baseline_results.md" in kept.artifacts
    assert not [name for name in kept.artifacts if "03_diagnostics" in name]
    assert kept.of("step/loss")[0][0] == 1
    kept.artifacts.clear(), kept.figures.clear()
    follower(digits, kept, "diagnostics", since).end(has_ended=True)
    assert {name.split("/")[1] for name in kept.artifacts} == {"03_diagnostics"}  # nothing that it has already
    assert {place.run for place in kept.places} == {kept.tags["run"]}
    follower(digits, kept, "finalization", since).end(has_ended=True)
    assert len({place.run for place in kept.places}) == 2


@pytest.mark.slow
def test_of_the_reports_those_that_changed_are_sent_again(digits):
    kept = Kept()
    since = time.time() + 60  # it trains nothing: the runs are there
    follower(digits, kept, "diagnostics", since).end(has_ended=True)
    report = digits.phase_dir("diagnostics") / "diagnostic_report.md"
    report.write_text(f"{report.read_text('utf-8')}\n", "utf-8")
    kept.artifacts.clear()
    follower(digits, kept, "diagnostics", since).end(has_ended=True)
    assert kept.artifacts == ["phases/03_diagnostics/diagnostic_report.md"]


def test_an_edited_config_is_told_as_stale(digits):
    config = digits.phase_dir("planning") / "training_config.yaml"
    config.write_text(config.read_text("utf-8").replace("epochs: 12", "epochs: 13"), "utf-8")
    kept = Kept()
    follower(digits, kept, "baseline", time.time() + 60).end(has_ended=True)
    assert kept.tags["gate.planning"] == "stale"


def test_no_secret_reaches_a_tracker(tmp_path):
    project, kept = empty_project(tmp_path), Kept()
    secret = "hunter2-Zx81kQ9w"
    Training(project, **CONFIG, task={"options": {"password": secret, "url": f"postgresql://me:{secret}@host/db"}})
    follower(project, kept).end(has_ended=False)
    assert secret not in json.dumps(kept.params)
    assert kept.params["task.options.password"] == "[removed]"
    assert param("model.hidden", [256, 256]) == "[256, 256]"


def test_a_feed_of_a_run_without_steps_is_empty(tmp_path):
    project = empty_project(tmp_path)
    feed = Feed(project, Training(project, **CONFIG).run)
    feed.poll()
    assert feed.after(Sent()) == ([], Sent())
    with locked(feed.folder / "lock", "the run"):
        assert feed.usage()
        assert feed.usage() == []  # not yet


def test_options_are_checked():
    assert TensorBoard().folder == ".mltrainer/tensorboard"
    for wrong in ({"every_n_steps": 0}, {"wait_s": 0.0}, {"nothing": 1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            TensorBoard(**wrong)  # type: ignore[arg-type]
