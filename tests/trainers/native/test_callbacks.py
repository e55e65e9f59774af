"""Callbacks of one's own: those that watch cannot disturb a run, those that take part are resumed with it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from mltrainer.trainers.native.callbacks import Callbacks, misfit
from mltrainer.workspace import read_json
from tests.trainers.native.digits_runs import CONFIG, STEPS, TASK, _forked, _in, agrees, job, part_of, same, train

CALLBACKS = '''

class Greedy:
    """Draws, reseeds, and spoils all that it is handed."""

    def on_start(self, run):
        run["config"].clear()

    def on_step(self, step, loss, grad_norm):
        random.seed(0), np.random.seed(0), torch.manual_seed(0), torch.rand(3)

    def on_evaluation(self, row):
        random.random(), np.random.rand(), torch.rand(1)
        row["validation"].clear(), row.clear()

    on_checkpoint = on_end = lambda self, _: torch.manual_seed(1)


class Diary:
    def __init__(self, path="diary.txt"):
        self.path = path

    def write(self, *words):
        with open(self.path, "a") as file:
            print(*words, file=file)

    def on_start(self, run):
        self.write("start", run["step"], run["steps"], run["config"]["name"])

    def on_step(self, step, loss, grad_norm):
        self.write("step", step, loss > 0 and grad_norm > 0)

    def on_evaluation(self, row):
        self.write("evaluation", row["step"], 0 <= row["validation"]["accuracy"] <= 1)

    def on_checkpoint(self, step):
        self.write("checkpoint", step)

    def on_end(self, outcome):
        self.write("end", outcome["step"], outcome["reason"])


class Shaky:
    """Cools the learning rate as evaluations go by, and shakes a layer by draws that add up in its state."""

    def __init__(self, lr=0.5):
        self.lr, self.rows, self.moved = lr, 0, torch.zeros(10)

    def on_evaluation(self, row):
        self.rows += 1

    def on_before_step(self, step, model, optimizer):
        for group in optimizer.param_groups:
            group["lr"] *= self.lr ** self.rows
        self.moved += 0.01 * torch.randn(10)
        model[-1].bias.add_(self.moved)

    def state_dict(self):
        return {"rows": self.rows, "moved": self.moved}

    def load_state_dict(self, state):
        self.rows, self.moved = state["rows"], state["moved"].clone()


def shift():
    import gc
    for found in gc.get_objects():
        if type(found) is nn.Sequential and isinstance(found[-1], nn.Linear):  # no model of another test
            with torch.no_grad():
                found[-1].bias.add_(1)


class Thief:
    def on_evaluation(self, row):
        shift()


class Pickpocket:
    def on_step(self, step, loss, grad_norm):
        shift()


class Burglar:
    def on_step(self, step, loss, grad_norm):
        import gc
        for found in gc.get_objects():
            if type(found) is nn.Sequential and isinstance(found[-1], nn.Linear):  # no model of another test
                found[-1].bias.data[0] += 1


class Hurried:
    def on_evaluation(self, row):
        torch.set_num_threads(2)


class Freezer:
    def on_step(self, step, loss, grad_norm):
        import gc
        for found in gc.get_objects():
            if type(found) is nn.Sequential and isinstance(found[-1], nn.Linear):  # no model of another test
                found[-1].bias.requires_grad_(False)


class Impatient(Shaky):
    def on_evaluation(self, row):
        shift()


class Broken:
    def on_evaluation(self, row):
        raise ValueError("no disk for the plot")
'''


def make(root: Path) -> Path:
    root.mkdir()
    (root / "digits_task.py").write_text(TASK + CALLBACKS)
    return root


def using(name: str, **options: Any) -> dict[str, Any]:
    return {"callbacks": [{"use": f"digits_task:{name}", "options": options}]}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The run without callbacks."""
    return train(make(tmp_path_factory.mktemp("plain") / "run"))


@pytest.mark.slow
def test_one_that_draws_reseeds_and_spoils_leaves_the_bits_alone(tmp_path, plain):
    assert same(train(make(tmp_path / "a"), **using("Greedy")), plain)
    assert same(train(make(tmp_path / "b"), (8,), **using("Greedy")), plain)


@pytest.mark.slow
def test_a_watcher_is_told_of_all_steps_in_turn(tmp_path):
    train(make(tmp_path / "a"), callbacks=["digits_task:Diary"])
    lines = (tmp_path / "a" / "diary.txt").read_text().splitlines()
    assert (lines[0], lines[-1]) == (f"start 0 {STEPS} digits", f"end {STEPS} epochs")
    assert [line for line in lines if line.startswith("step")] == [f"step {n} True" for n in range(1, STEPS + 1)]
    assert lines[7:9] == ["evaluation 6 True", "checkpoint 6"]


@pytest.mark.slow
def test_one_with_state_is_resumed_with_it(tmp_path, plain):
    whole = train(make(tmp_path / "whole"), **using("Shaky", lr=0.7))
    assert whole["weights_sha256"] != plain["weights_sha256"]
    assert same(train(make(tmp_path / "stopped"), (4, 11), **using("Shaky", lr=0.7)), whole)
    killed, chosen = make(tmp_path / "killed"), using("Shaky", lr=0.7)
    assert _forked(lambda: part_of(killed, job(chosen), lambda step: step == 10 and os.kill(os.getpid(), 9) is not None)) == 9
    assert _forked(lambda: train(killed, **chosen)) == 0
    assert agrees(killed, whole)


@pytest.mark.slow
def test_the_history_has_the_learning_rate_that_a_callback_set(tmp_path, plain):
    cooled = train(make(tmp_path / "cooled"), **using("Shaky", lr=0.5))
    rates = [[row["lr"] for row in result["history"]] for result in (plain, cooled)]
    assert rates[1] == pytest.approx([rate * 0.5**number for number, rate in enumerate(rates[0])])


@pytest.mark.slow
def test_the_code_of_a_callback_is_recorded(tmp_path):
    root = make(tmp_path / "a")
    (root / "quiet.py").write_text("class Quiet:\n    def on_end(self, outcome): pass\n")
    result = train(root, callbacks=["quiet:Quiet"], epochs=1)
    assert {row["path"] for row in result["code_files"]} == {"digits_task.py", "quiet.py"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "event"),
    [("Thief", "on_evaluation"), ("Pickpocket", "on_step"), ("Burglar", "on_step"), ("Impatient", "on_evaluation")],
)
def test_one_that_changes_weights_where_it_may_only_watch_is_caught(tmp_path, name, event):
    with pytest.raises(InputError, match=f"digits_task:{name} changed the model's weights in {event}"):
        train(make(tmp_path / "a"), **using(name))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "event"), [("Hurried", "on_evaluation"), ("Freezer", "on_step")])
def test_one_that_changes_how_is_trained_where_it_may_only_watch_is_caught(tmp_path, name, event):
    with pytest.raises(InputError, match=f"digits_task:{name} changed settings of torch or of the model in {event}"):
        train(make(tmp_path / "a"), **using(name))


def test_its_exception_is_the_users_with_file_and_line(tmp_path):
    with pytest.raises(InputError, match="digits_task:Broken, on_evaluation: ValueError: no disk for the plot") as raised:
        train(make(tmp_path / "a"), **using("Broken"))
    line = (TASK + CALLBACKS).splitlines().index('        raise ValueError("no disk for the plot")') + 1
    assert (raised.value.where, raised.value.exit_code) == (f"digits_task.py:{line}", 1)
    assert "Broken" in read_json(tmp_path / "a/.mltrainer/runs/run/error.json")["error"]


def callbacks(root: Path, *given: Any) -> Callbacks:
    with _in(root):
        return Callbacks(TrainingConfig.model_validate({**CONFIG, "callbacks": list(given)}), root)


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ([], "expected digits_task:Shaky, found none"),
        ([{"use": "digits_task:Other", "state": {}}], "expected digits_task:Shaky, found digits_task:Other"),
        (
            [{"use": "digits_task:Shaky", "state": {"rows": 1}}],
            r"digits_task.py:\d+: digits_task:Shaky, load_state_dict: KeyError",
        ),
    ],
)
def test_a_state_that_is_missing_or_does_not_fit_is_told(tmp_path, states, message):
    made = callbacks(make(tmp_path / "a"), "digits_task:Shaky", "digits_task:Diary")
    with pytest.raises(InputError, match=message):
        made.load_state_dict(states)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("digits_tusk:Diary", r"callbacks\[0\]: there is no module 'digits_tusk' in a; did you mean 'digits_task'"),
        ("digits_task:Dairy", r"callbacks\[0\]: there is no class 'Dairy' in digits_task; did you mean 'Diary'"),
        ("digits_task:Rows", "digits_task:Rows has none of the events on_before_step, on_checkpoint"),
        ({"use": "digits_task:Diary", "options": {"pth": "x"}}, "no option 'pth' of Diary; did you mean 'path'"),
        ({"use": "digits_task:Diary", "options": {"path": 1}}, None),
    ],
)
def test_a_name_or_option_that_is_wrong_is_refused(tmp_path, given, message):
    root = make(tmp_path / "a")
    if message is None:
        assert callbacks(root, given).state_dict() == []
        return
    with pytest.raises(InputError, match=message):
        callbacks(root, given)


@pytest.mark.parametrize(
    ("methods", "fault"),
    [
        ("on_step on_end", None),
        ("on_before_step on_evaluation state_dict load_state_dict", None),
        ("on_evaluate", "has on_evaluate, which is no event; did you mean on_evaluation"),
        ("", "has none of the events"),
        ("state_dict load_state_dict", "has none of the events"),
        ("on_before_step", "must have load_state_dict and state_dict too"),
        ("on_evaluation state_dict", "must have load_state_dict too"),
        ("on_before_step on_step state_dict load_state_dict", "has state and on_step, which comes at no fixed step"),
    ],
)
def test_a_class_watches_or_takes_part(methods, fault):
    found = misfit(type("Given", (), dict.fromkeys(methods.split(), len)))
    assert found is None if fault is None else fault in str(found)


def test_draws_are_put_back_after_an_exception_too():
    before = torch.get_rng_state()
    with contextlib.suppress(KeyError), seeds.kept():
        torch.manual_seed(9)
        raise KeyError
    assert torch.equal(torch.get_rng_state(), before)


# --- planning's rehearsal -------------------------------------------------------------------------


FRAIL = """

class Frail:
    def on_evaluation(self, row):
        raise KeyError(sorted(row))
"""


def probed(root: Path, callback: str, **changes: Any) -> dict[str, Any]:
    make_with(root, FRAIL)
    work = {**job({"callbacks": [{"use": callback, "watch": True}]}), "purpose": "probe", "max_steps": 2, **changes}
    return part_of(root, work, lambda step: False)


def make_with(root: Path, source: str) -> None:
    root.mkdir(parents=True, exist_ok=True)
    (root / "digits_task.py").write_text(TASK + CALLBACKS + source)


@pytest.mark.slow
def test_a_probe_rehearses_an_evaluation_with_the_callbacks_and_keeps_its_bits(tmp_path):
    plain = probed(tmp_path / "plain", "digits_task:Diary")
    rehearsed = probed(tmp_path / "rehearsed", "digits_task:Diary", rehearse=True)
    assert same(plain, rehearsed)
    assert "evaluation" not in (tmp_path / "plain/diary.txt").read_text()
    told = (tmp_path / "rehearsed/diary.txt").read_text().splitlines()
    assert told.index("evaluation 2 True") < told.index("end 2 epochs")


def test_a_callback_that_fails_at_the_first_evaluation_is_told_before_the_training(tmp_path):
    with pytest.raises(InputError, match="digits_task:Frail, on_evaluation: KeyError") as error:
        probed(tmp_path, "digits_task:Frail", rehearse=True)
    assert all(f"'{key}'" in str(error.value) for key in ("epoch", "grad_norm", "signals", "train", "validation"))


@pytest.mark.slow
def test_a_probe_that_came_to_an_evaluation_tells_it_once(tmp_path):
    make_with(tmp_path, FRAIL)
    evaluate = {"every_n_epochs": None, "every_n_steps": 2}
    values = job({"callbacks": [{"use": "digits_task:Diary", "watch": True}], "evaluate": evaluate})
    part_of(tmp_path, {**values, "purpose": "probe", "max_steps": 2, "rehearse": True}, lambda step: False)
    assert (tmp_path / "diary.txt").read_text().count("evaluation") == 1
