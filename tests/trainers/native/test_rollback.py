"""At a spike a run goes back and leaves steps out: its bits are those of a run that never saw them."""

from __future__ import annotations

import itertools
import os
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from mltrainer.companions.proof.replay.work import work
from mltrainer.companions.trackers.feed import Feed, Sent
from mltrainer.configs.pages import diagnostic_page
from mltrainer.configs.spikes import Spikes
from mltrainer.diagnostics import signals
from mltrainer.diagnostics.loss_spike import find
from mltrainer.errors import InputError
from mltrainer.follow.log import read_events, read_rows
from mltrainer.records.job import AuditJob, DisputeJob, ReplayJob, TrainingJob
from mltrainer.records.partial import partial
from mltrainer.records.run import RunResult
from mltrainer.reproducibility import fingerprint
from mltrainer.runs.retrain import _past_spikes
from mltrainer.tools.program import Events
from mltrainer.trainers.native import saving
from mltrainer.trainers.native.frozen_parameters import Held
from mltrainer.trainers.native.saving import Checkpoints
from mltrainer.trainers.native.session import Session
from mltrainer.workspace import Project, read_json
from tests.trainers.native.digits_runs import _forked, _in, agrees, config, job, part_of, same, train
from tests.trainers.native.test_spikes import Spiked, in_two, project

RULE = {"action": "rollback", "window": 8, "before": 2, "after": 1}
SPIKES = [[8, 1e4], [15, "nan"]]
SETTING: dict[str, Any] = {
    "task": {"use": "digits_task:Spiking", "options": {"spikes": SPIKES}},
    "averaging": {"name": "ema", "decay": 0.9},
    "spikes": RULE,
}
ONE = {"use": "digits_task:Spiking", "options": {"spikes": SPIKES[:1]}}
LEFT_OUT = [6, 7, 8, 9, 13, 14, 15, 16]
ROWS = [(8, 6, 9), (15, 13, 16)]
NO_SAMPLES = fingerprint.ids_digest(b"")


def spikes_of(result: dict[str, Any]) -> list[tuple[int, int, int]]:
    return [(row["step"], row["first"], row["last"]) for row in result["skipped"]]


def found_in(root: Path) -> dict[str, Any]:
    return dict(read_json(root / ".mltrainer/runs/run/result.json"))


def without(root: Path, steps: list[int], changes: dict[str, Any]) -> tuple[Any, ...]:
    """Return chain and weights of a training that knows from its start which steps are spikes."""
    work = TrainingJob.model_validate(job(changes))
    with _in(project(root)):
        session = Session(work, root / work.folder, Events(None), lambda: None, root)
        session.spikes = [{"step": step, "loss": 1.0, "norm": 1.0, "what": "loss"} for step in steps]
        session.prepare()
        session.train()
        return session.trainer.recorder.head, session.model.state_dict()["1.weight"].tolist()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    root = project(tmp_path_factory.mktemp("whole"))
    return root, train(root, **SETTING)


# --- what a run leaves out ----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_goes_back_and_leaves_out_the_steps_around_its_spikes(whole):
    root, result = whole
    assert spikes_of(result) == ROWS
    assert [row["what"] for row in result["skipped"]] == ["loss", "loss"]
    assert result["skipped"][0]["loss"] > 1e3
    assert (result["state"], result["steps"], result["earlier_s"]) == ("finished", 18, 0)
    assert len([*read_events(root / ".mltrainer/runs/run", ("began",))]) == 1  # so that its time counts once
    lines = [line.split() for line in fingerprint.read(root / ".mltrainer/runs/run/chain.txt")]
    empty = [int(words[0]) for words in lines if words[0] != "w" and words[1] == NO_SAMPLES]
    assert empty == LEFT_OUT
    assert [row["skipped"] for row in result["history"]] == pytest.approx([1 / 6, 3 / 6, 4 / 6])
    assert [row["step"] for row in read_rows(root / ".mltrainer/runs/run")] == [6, 12, 18]
    assert [(row["step"], row["cause"]) for row in result["interruptions"]] == [
        (0, "back from the spike in step 8"),
        (12, "back from the spike in step 15"),
    ]
    feed = Feed(Project(root), "run")
    feed.poll()
    assert feed.tags()["left_out"] == "steps 6 to 9, 13 to 16"
    assert [point.step for point in feed.after(Sent())[0] if "step/loss" in point.values] == [
        *range(1, 6),
        *range(10, 13),
        17,
        18,
    ]


def test_the_bits_are_those_of_a_training_that_never_takes_these_steps():
    usual = [number for number in range(1, 15) if number not in (6, 7, 8, 9)]
    rule = {**RULE, "window": 64}  # so that nothing else is a spike
    found, reference = Spiked({}, spikes=rule), Spiked({})
    found.stepper.guard.restore({"skipped": [{"step": 8}]})
    assert found.walk([*range(1, 15)]) == reference.walk(usual) == usual
    assert found.digests() == reference.digests()


@pytest.mark.slow
def test_the_bits_are_those_of_a_run_that_knows_the_spikes_from_its_start(tmp_path, whole):
    head, weights = without(tmp_path / "known", [8, 15], SETTING)
    assert (head.entries, head.value) == (whole[1]["chain"]["entries"], whole[1]["chain"]["head"])
    calm = {**SETTING, "task": {"use": "digits_task:Spiking", "options": {"spikes": []}}}
    assert without(tmp_path / "calm", [8, 15], calm) == (head, weights)
    assert without(tmp_path / "other", [8], calm)[0] != head


@pytest.mark.slow
def test_spikes_whose_steps_overlap_and_an_evaluation_without_a_step(tmp_path):
    spiked = {**SETTING, "task": {"use": "digits_task:Spiking", "options": {"spikes": [[8, 1e4], [11, "nan"]]}}}
    result = train(project(tmp_path / "run"), **spiked)
    assert spikes_of(result) == [(8, 6, 9), (11, 9, 12)]
    assert [row["train_loss"] for row in result["history"]][1] is None
    assert result["history"][1]["update_ratios"] == [None, None]
    head, _ = without(tmp_path / "known", [8, 11], spiked)
    assert head.value == result["chain"]["head"]


@pytest.mark.slow
def test_the_finding_on_spikes_says_that_the_run_went_back(whole):
    found = find(signals.Run.of(whole[1]), **diagnostic_page("loss_spike", None).thresholds)
    assert (found.state, found.evidence) == ("clear", {"spikes": 0, "left_out_steps": [[6, 9], [13, 16]]})
    assert found.reason.endswith("Spikes at which the run went back, and left out the steps around them: 2.")


@pytest.mark.slow
def test_one_spike_more_than_the_most_ends_the_run_as_failed(tmp_path):
    root, changes = project(tmp_path), {**SETTING, "spikes": {**RULE, "most": 1}, "checkpoint": {"segments": 9}}
    result = train(root, **changes)
    assert (result["state"], result["stop_reason"], result["steps"]) == ("failed", "spikes", 15)
    assert [(row["step"], row.get("first")) for row in result["skipped"]] == [(8, 6), (15, None)]
    parts = {"segments": [*itertools.pairwise(range(0, 15, 2))], "measured": []}
    audit = replay(root, changes, AuditJob, spikes=result["skipped"], **parts)
    assert [row["first_divergence"] for row in audit["segments"]] == [None] * 7


@pytest.mark.slow
def test_the_best_checkpoint_of_the_steps_left_behind_is_gone_and_the_best_before_them_is_there(tmp_path):
    # Steps 12 to 14 are the best until the run goes back from step 15; then the best is step 3, which had been deleted.
    changes = {
        **SETTING,
        "spikes": {**RULE, "before": 4, "after": 3},
        "metric": {"name": "loss", "mode": "min"},
        "evaluate": {"every_n_steps": 1},
        "checkpoint": {"every_n_steps": 2, "keep": 4},
        "early_stopping": None,
    }
    result = train(project(tmp_path / "run"), **changes)
    assert spikes_of(result) == [(8, 4, 11), (15, 11, 18)]
    assert result["interruptions"][1]["step"] >= 3  # not the start, though step 12 was a better one than step 3
    assert result["best"]["step"] == 3
    kept = [(row["step"], row["roles"], row["verified"]) for row in result["checkpoints"]]
    assert kept[0] == (3, ["best"], True)
    assert all(verified for _, _, verified in kept)
    head, _ = without(tmp_path / "known", [8, 15], changes)
    assert head.value == result["chain"]["head"]


@pytest.mark.slow
def test_a_run_that_keeps_one_checkpoint_goes_back_to_the_one_before_the_steps_left_out(tmp_path):
    task = {"use": "digits_task:Spiking", "options": {"spikes": [[15, "nan"]]}}
    policy = {"every_n_epochs": 1, "keep": 1, "save_best": False}  # of steps 6, 12 and 18
    result = train(project(tmp_path), **{**SETTING, "task": task, "spikes": {**RULE, "before": 4}, "checkpoint": policy})
    assert spikes_of(result) == [(15, 11, 16)]
    assert [row["step"] for row in result["interruptions"]] == [6]
    assert [row["step"] for row in result["checkpoints"]] == [18]


@pytest.mark.slow
def test_a_run_that_stops_early_among_steps_left_out_is_reproduced(tmp_path):
    changes = {**SETTING, "evaluate": {"every_n_steps": 1}, "spikes": {**RULE, "before": 4}}
    root = project(tmp_path)
    result = train(root, **changes)
    assert (result["stop_reason"], result["steps"], spikes_of(result)) == ("early_stopping", 6, [(8, 4, 9)])
    assert same(reproduced(root, changes), result)


@pytest.mark.slow
def test_a_run_whose_time_is_over_ends_after_the_spike_and_is_reproduced(tmp_path, monkeypatch):
    changes = {**SETTING, "budget": {"minutes": 1e-6, "action": "stop"}, "task": ONE}
    late = Session._time_is_over
    monkeypatch.setattr(Session, "_time_is_over", lambda session: session.spikes and late(session))
    root = project(tmp_path)
    result = train(root, **changes)
    assert (result["stop_reason"], result["steps"], spikes_of(result)) == ("budget", 12, [(8, 6, 9)])
    assert reproduced(root, changes, max_steps=12)["chain"] == result["chain"]


@pytest.mark.slow
def test_the_model_left_behind_is_freed_before_another_is_made(tmp_path, monkeypatch):
    made, alive, make_model = list[weakref.ref[torch.nn.Module]](), list[int](), Session._make_model

    def counted(session: Session) -> Held:
        alive.append(sum(model() is not None for model in made))
        held = make_model(session)
        made.append(weakref.ref(session.model))
        return held

    monkeypatch.setattr(Session, "_make_model", counted)
    train(project(tmp_path), **SETTING)
    assert alive == [0, 0, 0]


# --- what must not matter -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("stop", [7, 10, 14, 16])
def test_a_run_that_is_stopped_goes_on_with_the_same_bits(tmp_path, whole, stop):
    result = train(project(tmp_path), stops=(stop,), **SETTING)
    assert same(result, whole[1])
    assert result["skipped"] == whole[1]["skipped"]


def _killed_in(patch: pytest.MonkeyPatch, owner: Any, name: str, call: int, after: bool) -> None:
    """Kill the process before or after a call of a function."""
    real, calls = getattr(owner, name), [0]

    def counted(*arguments: Any, **keys: Any) -> Any:
        calls[0] += 1
        if calls[0] == call and not after:
            os.kill(os.getpid(), 9)
        found = real(*arguments, **keys)
        if calls[0] == call:
            os.kill(os.getpid(), 9)
        return found

    patch.setattr(owner, name, counted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "call", "after"),
    [("leave", 1, False), ("leave", 1, True), ("discard", 1, True), ("go_on", 1, True), ("leave", 2, True), ("submit", 9, True)],
)
def test_a_run_that_is_killed_while_it_goes_back_goes_on_with_the_same_bits(tmp_path, whole, monkeypatch, name, call, after):
    root, changes = project(tmp_path), {**SETTING, "checkpoint": {"every_n_steps": 2}}

    def doomed() -> None:
        _killed_in(monkeypatch, saving if name == "discard" else Checkpoints, name, call, after)
        train(root, **changes)

    assert _forked(doomed) == 9
    assert _forked(lambda: train(root, **changes)) == 0
    assert agrees(root, whole[1])
    assert found_in(root)["skipped"] == whole[1]["skipped"]


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_goes_on_with_the_same_bits(tmp_path, whole):
    root, changes = project(tmp_path), {**SETTING, "checkpoint": {"every_n_steps": 2}}
    for step in (7, 9, 17):
        killed = _forked(lambda step=step: part_of(root, job(changes), lambda now: now == step and os.kill(os.getpid(), 9)))
        assert killed == 9
    assert _forked(lambda: train(root, **changes)) == 0
    assert agrees(root, whole[1])
    assert found_in(root)["skipped"] == whole[1]["skipped"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", [{"every_n_steps": 1, "keep": 30}, {"every_minutes": 1e-9}, {"every_n_epochs": 9, "save_best": False}], ids=str
)
def test_the_checkpoint_that_a_run_goes_back_to_changes_no_bit(tmp_path, whole, policy):
    result = train(project(tmp_path), **{**SETTING, "checkpoint": policy})
    assert same(result, whole[1])


@pytest.mark.slow
def test_two_processes_leave_out_the_steps_of_one(tmp_path, whole):
    told: list[str] = []
    result = in_two(project(tmp_path), SETTING, lambda event: told.append(str(event.get("text"))))
    assert any("goes back, and leaves out steps 6 to 9" in text for text in told)
    assert result["processes"] == 2
    assert same(result, whole[1])
    assert result["skipped"] == whole[1]["skipped"]


SLOW = '''

class Slow(Spiking):
    """In the second process, the first metric that is measured while there is a chain ends after the first one removed it."""

    chain, waits = pathlib.Path(".mltrainer/runs/run/chain.txt"), os.environ.get("RANK") == "1"

    def metrics(self, outputs, targets):
        if Slow.waits and self.chain.exists():
            Slow.waits, end = False, time.monotonic() + 60
            while self.chain.exists() and time.monotonic() < end:
                time.sleep(0.01)
        return super().metrics(outputs, targets)
'''


@pytest.mark.slow
def test_two_processes_begin_again_where_one_has_removed_the_chain_before_the_other_looks(tmp_path):
    changes = {"task": {"use": "digits_task:Slow", "options": {"spikes": [[3, "nan"]]}}, "spikes": RULE}
    root = project(tmp_path / "two")
    with open(root / "digits_task.py", "a") as file:
        file.write(f"import pathlib\n{SLOW}")
    result = in_two(root, changes)
    assert spikes_of(result) == [(3, 1, 4)]
    assert [row["step"] for row in result["interruptions"]] == [0]
    alone = {**changes, "task": {"use": "digits_task:Spiking", "options": {"spikes": [[3, "nan"]]}}}
    assert same(result, train(project(tmp_path / "one"), **alone))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("kind", "model"), [("zero1", "wide"), ("fsdp", "large"), ("pipeline", "large")])
def test_processes_that_share_the_parameters_leave_out_the_steps_of_one(tmp_path, kind, model):
    task = {"use": "digits_task:Spiking", "options": {"spikes": SPIKES, "model": model}}
    changes = {"task": task, "spikes": RULE}
    alone = train(project(tmp_path / "alone"), **changes)
    shared = {**changes, "launch": {"parallel": kind, "processes": 2}, "checkpoint": {"every_n_steps": 2}}
    result = in_two(project(tmp_path / "shared"), shared)
    assert same(result, alone)
    assert spikes_of(result) == ROWS


# --- reproduced -------------------------------------------------------------------------------------------


def reproduced(root: Path, changes: dict[str, Any], **of_job: Any) -> dict[str, Any]:
    """Train a run again in its project, beside it and compared with it."""
    of_run = {"start_of": ".mltrainer/runs/run", "compare": ".mltrainer/runs/run"}
    folder = ".mltrainer/reproductions/run"
    shutil.rmtree(root / folder, ignore_errors=True)
    return part_of(root, {**job(changes), **of_run, "purpose": "reproduction", "folder": folder, **of_job}, lambda _: False)


@pytest.mark.slow
def test_a_reproduction_finds_the_same_spikes(whole):
    root, result = whole
    again = reproduced(root, SETTING)
    assert (again["first_divergence"], again["chain"], again["skipped"]) == (None, result["chain"], result["skipped"])
    assert same(again, result)
    assert reproduced(root, SETTING, resumable=True)["interruptions"] == result["interruptions"]
    part = reproduced(root, SETTING, max_steps=15)
    assert (part["first_divergence"], part["steps"], spikes_of(part)) == (None, 15, [(8, 6, 9), (15, 13, 16)])


@pytest.mark.parametrize(("step", "least"), [(5, 5), (6, 8), (7, 8), (8, 8), (9, 9), (13, 15), (18, 18)])
def test_a_part_that_ends_among_steps_left_out_is_reproduced_up_to_their_spike(step, least):
    rows = [{"step": spike, "first": first, "last": last} for spike, first, last in ROWS]
    assert _past_spikes(partial(RunResult, {"skipped": rows}), step) == least
    assert _past_spikes(partial(RunResult, {"skipped": None}), step) == step


@pytest.mark.slow
def test_a_reproduction_shows_a_left_out_step_that_no_spike_explains(tmp_path):
    changes = {**SETTING, "task": {"use": "digits_task:Spiking", "options": {"spikes": []}}}
    without(tmp_path, [8], changes)
    again = reproduced(tmp_path, changes)
    assert again["stop_reason"] == "diverged"
    assert (again["first_divergence"]["step"], again["first_divergence"]["what"]) == (6, "samples")


def replay(root: Path, changes: dict[str, Any], kind: type[ReplayJob], **of_job: Any) -> dict[str, Any]:
    """Go on from checkpoints of a run that has one after every second step."""
    run, folder = ".mltrainer/runs/run", ".mltrainer/replay"
    of_run = {"start_of": run, "compare": run, "saved": run, "compared": [*range(2, 19, 2)]}
    (root / folder).mkdir(exist_ok=True)
    with _in(root):
        of_run |= {"purpose": "reproduction", "folder": folder}
        assert work(kind.model_validate({**job(changes), **of_run, **of_job}), root, Events(None)) == 0
    return dict(read_json(root / folder / "result.json"))


@pytest.mark.slow
def test_segments_are_trained_again_with_the_steps_that_a_later_spike_left_out(tmp_path, whole):
    root, changes = project(tmp_path), {**SETTING, "checkpoint": {"segments": 9}}
    result = train(root, **changes)
    assert same(result, whole[1])
    parts = {"segments": [*itertools.pairwise(range(0, 19, 2))], "measured": []}
    audit = replay(root, changes, AuditJob, spikes=result["skipped"], **parts)
    assert [row["first_divergence"] for row in audit["segments"]] == [None] * 9
    unaware = {row["end"]: row["first_divergence"] for row in replay(root, changes, AuditJob, **parts)["segments"]}
    assert [end for end, found in unaware.items() if found is not None] == [6, 14]
    assert (unaware[6]["step"], unaware[6]["what"]) == (6, "samples")
    with pytest.raises(InputError, match="step 6 changed nothing, because of the spike in step 8"):
        replay(root, changes, DisputeJob, spikes=result["skipped"], disputed_step=6)
    assert replay(root, changes, DisputeJob, spikes=result["skipped"], disputed_step=10)["operators"]


# --- the config -------------------------------------------------------------------------------------------


def test_the_steps_around_a_spike_that_are_left_out():
    assert [*Spikes(action="rollback", before=2, after=1).left_out(8)] == [6, 7, 8, 9]
    assert [*Spikes(action="rollback").left_out(3)] == [*range(1, 14)]


def test_what_it_does_not_go_with_is_refused():
    with pytest.raises(ValidationError, match="rollback does not go with on_out_of_memory: split: take"):
        config({"spikes": RULE, "on_out_of_memory": "split"})
