"""What a teacher says of each sample, kept in a file: the same bits whether it is computed or found, and never a wrong file."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import mltrainer
from mltrainer.companions.strategies import kept_rows
from mltrainer.configs.project import TrainingConfig, config_digest
from mltrainer.errors import InputError
from mltrainer.leftovers import sweep
from mltrainer.reproducibility import seeds
from mltrainer.tasks.opening import OpenTask, make_model, open_task
from mltrainer.tasks.samples import Samples
from mltrainer.tasks.strategy import MicroBatch, Reading
from mltrainer.tasks.text.generation import TextGeneration
from mltrainer.workspace import append_json_line
from tests.companions.strategies.test_runs import SETTING, prepared, terms
from tests.refusals import refused
from tests.trainers.native.digits_runs import config, train

KEYS = ("data", "model", "metric", "strategies", "batch_size", "split")
DIGITS: dict[str, Any] = {
    "task": {"kind": "image_classification"},
    "data": {"source": "sklearn:digits"},
    "model": {"name": "mlp", "hidden": [8]},
}
LANGUAGE: dict[str, Any] = {
    "name": "speaking",
    "task": {"kind": "text_generation"},
    "data": {"source": "story.txt", "tokens": {"kind": "char", "length": 16}},
    "model": {"name": "gru", "width": 8, "hidden": 8},
    "metric": {"name": "perplexity", "mode": "min"},
}


def taught(settings: dict[str, Any], **strategy: Any) -> TrainingConfig:
    """Return a config with a teacher of the student's form in t.safetensors."""
    given = {"name": "distillation", "teacher": {"weights": "t.safetensors", "model": settings.get("model")}, **strategy}
    return config({**settings, "strategies": [given]})


def begun(root: Path, settings: TrainingConfig) -> tuple[OpenTask, list[str]]:
    """Return an opened task whose teacher was asked, and the lines on what is kept."""
    task = open_task(settings, root)
    model = make_model(task)
    task.strategies.begin(task.training(model))
    reading = Reading(task.split("train"), task.data_sha256, lambda _done, _count: None)
    return task, task.strategies.read(task.training(model), reading)


def teacher_of(task: OpenTask) -> nn.Module:
    found = task.strategies.teacher()
    return found[1]


def save_teacher(root: Path, settings: dict[str, Any], seed: int = 1) -> None:
    torch.manual_seed(seed)
    model = make_model(open_task(config(settings), root))
    for parameter in model.parameters():
        nn.init.normal_(parameter)  # so that it says something else of each sample
    state = model.state_dict()
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in state.items()}, root / "t.safetensors")


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    save_teacher(tmp_path, DIGITS)
    return tmp_path


def files(root: Path) -> list[Path]:
    return sorted((root / ".mltrainer/teacher").glob("*.npy"))


# --- outputs --------------------------------------------------------------------------------------


def test_each_sample_has_what_the_teacher_gives_of_it_in_evaluation_mode(digits):
    task, (told,) = begun(digits, taught(DIGITS, keep=True))
    train_part = task.split("train")
    assert train_part.tensors is not None
    kept = np.load(files(digits)[0])
    order = np.argsort(np.asarray(train_part.ids))
    with torch.no_grad():
        expected = torch.cat([teacher_of(task)(train_part.tensors[0][part]) for part in torch.from_numpy(order).split(256)])
    assert np.array_equal(kept, expected.numpy())
    assert told == f"the teacher's outputs on {len(kept):,} samples: .mltrainer/teacher/{files(digits)[0].name} (computed)"


def test_a_step_reads_the_rows_of_its_samples_and_asks_the_teacher_nothing(digits):
    found = {}
    for keep in (False, True):
        task, _ = begun(digits, taught(DIGITS, keep=keep, weight=1.0))
        train_part = task.split("train")
        assert train_part.tensors is not None
        chosen = np.array([700, 3, 41, 3])
        batch = tuple(tensor[torch.from_numpy(chosen)] for tensor in train_part.tensors)
        outputs = torch.randn(4, 10, generator=torch.Generator().manual_seed(1))
        if keep:
            for parameter in teacher_of(task).parameters():
                parameter.data.fill_(torch.nan)
        micro = MicroBatch(batch, outputs, batch[-1], np.asarray(train_part.ids)[chosen])
        found[keep] = task.strategies.join(torch.zeros(()), micro)[0].item()
    assert found[True] == pytest.approx(found[False], rel=1e-5)


IN_MEMORY: dict[str, Any] = {
    **SETTING,
    "task": {"use": "digits_task:InMemory", "options": {"model": "mlp"}},
    "epochs": 1,
    "strategies": [{"name": "distillation", "teacher": {"weights": "teacher.pt"}, "weight": 0.7, "keep": True}],
}


@pytest.mark.slow
def test_a_run_has_the_same_bits_where_they_are_computed_found_or_damaged_and_where_it_was_stopped(tmp_path):
    roots = [teaching(tmp_path / name) for name in ("one", "other")]
    one = train(roots[0], **IN_MEMORY)
    (kept,) = files(roots[0])
    (roots[1] / ".mltrainer/teacher").mkdir(parents=True)
    for path in (kept, kept.with_suffix(".json")):
        (roots[1] / ".mltrainer/teacher" / path.name).write_bytes(path.read_bytes())
    flip(files(roots[1])[0])
    other = train(roots[1], stops=(2,), **IN_MEMORY)
    assert (other["chain"], other["weights_sha256"], terms(other)) == (one["chain"], one["weights_sha256"], terms(one))
    assert files(roots[1])[0].read_bytes() == kept.read_bytes()


def teaching(root: Path) -> Path:
    """Write the digits task, its samples in memory, with the weights of its teacher."""
    return prepared(root, "mlp")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


@pytest.mark.slow
def test_a_flipped_bit_is_seen_and_all_is_computed_anew(digits):
    begun(digits, taught(DIGITS, keep=True))
    (path,) = files(digits)
    before = path.read_bytes()
    assert begun(digits, taught(DIGITS, keep=True))[1][0].endswith("(found)")
    flip(path)
    assert begun(digits, taught(DIGITS, keep=True))[1][0].endswith("(damaged, and computed again)")
    assert path.read_bytes() == before


def write_rows(root: Path, first: float) -> None:
    draws = np.random.default_rng(1)
    x = draws.random((60, 8, 8), np.float32)
    x[0, 0, 0] = first
    np.savez(root / "rows.npz", x=x, y=np.arange(60) % 10)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["teacher", "data", "split", "threads"])
def test_of_another_teacher_or_other_data_nothing_is_found(digits, what, monkeypatch):
    write_rows(digits, 0.25)
    settings = {**DIGITS, "data": {"source": "rows.npz"}}
    begun(digits, taught(settings, keep=True))
    if what == "teacher":
        save_teacher(digits, DIGITS, 2)
    if what == "data":
        write_rows(digits, 0.75)
    if what == "split":
        settings["split"] = {"validation": 0.3, "test": 0.0}
    if what == "threads":
        monkeypatch.setattr(torch, "get_num_threads", lambda: 99)
    _, (told,) = begun(digits, taught(settings, keep=True))
    assert told.endswith("(computed)")
    assert len(files(digits)) == 2


MAKES = """
from safetensors.torch import load_file
from torch import nn

def teacher():
    made = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    made.load_state_dict(load_file("own.safetensors"))
    return made
"""


def test_of_a_function_that_returns_a_teacher_with_other_weights_nothing_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_teachers.py").write_text(MAKES)
    for value in (0.0, 1.0):
        safetensors.torch.save_file({"1.weight": torch.full((10, 64), value), "1.bias": torch.zeros(10)}, "own.safetensors")
        _, (told,) = begun(tmp_path, taught(DIGITS, keep=True, teacher={"use": "own_teachers:teacher"}))
        assert told.endswith("(computed)")
    assert len(files(tmp_path)) == 2


def test_what_is_kept_names_another_run():
    assert config_digest(taught(DIGITS)) == config_digest(taught(DIGITS, keep=False))
    assert config_digest(taught(DIGITS)) != config_digest(taught(DIGITS, keep=True))


# --- the file -------------------------------------------------------------------------------------


def reading(count: int = 600) -> Reading:
    x = torch.arange(float(count))[:, None]
    # In no order, and some of them twice, as an exploration may choose them.
    ids = np.random.default_rng(1).permutation(count)
    return Reading(Samples(np.append(ids, ids[:5]), (torch.cat([x[ids], x[ids[:5]]]), torch.zeros(count + 5))), "d", silent)


def silent(_done: int, _count: int) -> None:
    """Take no note of progress."""


def keep(root: Path, say: Callable[[Any, np.ndarray], Tensor], given: Reading | None = None) -> kept_rows.KeptRows:
    return kept_rows.kept_rows(given or reading(), root, "cpu", {}, say, "strategies.0.keep")


def forked(work: Callable[[], None]) -> int:
    """Do work in a forked process, and return its id."""
    if (child := os.fork()) == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def doubled(batch: Any, _ids: np.ndarray) -> Tensor:
    return torch.cat([batch[0], 2 * batch[0]], 1)


def test_rows_are_found_by_the_ids_of_their_samples(tmp_path):
    found = keep(tmp_path, doubled).of(np.array([599, 0, 7, 7]), torch.device("cpu"))
    assert found.tolist() == [[599, 1198], [0, 0], [7, 14], [7, 14]]


@pytest.mark.parametrize("what", ["imported_files", "numerics_class", "BATCH", "__version__"])
def test_of_other_code_or_arithmetic_nothing_is_found(tmp_path, what, monkeypatch):
    keep(tmp_path, doubled)
    assert "(found)" in keep(tmp_path, doubled).source
    others = {"imported_files": lambda _: ["task.py"], "numerics_class": lambda _: "0" * 16, "BATCH": 128, "__version__": "9"}
    monkeypatch.setattr(kept_rows, what, others[what])
    assert "(computed)" in keep(tmp_path, doubled).source


def test_progress_is_told_batch_by_batch_and_not_where_all_is_found(tmp_path):
    told: list[tuple[int, int]] = []
    given = dataclasses.replace(reading(), progress=lambda *place: told.append(place))
    for _ in range(2):
        keep(tmp_path, doubled, given)
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_half_floats_are_kept_as_floats_and_whole_numbers_as_they_are(tmp_path):
    half = keep(tmp_path / "half", lambda batch, _: batch[0].bfloat16())
    whole = keep(tmp_path / "whole", lambda batch, _: batch[0].short())
    assert (half.rows.dtype, whole.rows.dtype) == (np.float32, np.int16)


def test_a_process_that_is_killed_while_it_writes_leaves_no_file_that_is_used(tmp_path):
    path = tmp_path / "rows.npy"

    def dying() -> Any:
        yield np.zeros((2, 3), np.float32)
        os.kill(os.getpid(), 9)

    assert os.waitpid(forked(lambda: kept_rows._make(path, 4, dying(), "")), 0)[1] == 9
    assert [each.name[:5] for each in tmp_path.iterdir()] == [".tmp-"]
    assert not kept_rows._holds(path)
    sweep(tmp_path)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
@pytest.mark.parametrize("missing", [".npy", ".json"])
def test_a_file_without_the_other_is_made_anew(tmp_path, missing):
    keep(tmp_path, doubled)
    (path,) = files(tmp_path)
    before = path.read_bytes()
    path.with_suffix(missing).unlink()
    assert "found" not in keep(tmp_path, doubled).source
    assert path.read_bytes() == before


@pytest.mark.slow
def test_of_several_processes_that_train_together_one_computes(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_rows, "numerics_class", lambda _device: "0" * 16)

    def slowly(batch: Any, ids: np.ndarray) -> Tensor:
        append_json_line(tmp_path / "computed.jsonl", len(ids))
        time.sleep(0.05)
        return doubled(batch, ids)

    def work() -> None:
        append_json_line(tmp_path / "told.jsonl", keep(tmp_path, slowly).of(np.array([7]), torch.device("cpu")).tolist())

    children = [forked(work) for _ in range(3)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert (tmp_path / "computed.jsonl").read_text().split() == ["256", "256", "88"]
    assert (tmp_path / "told.jsonl").read_text().splitlines() == ["[[7.0, 14.0]]"] * 3


def drawing(generator: str) -> Callable[[Any, np.ndarray], Tensor]:
    def say(batch: Any, ids: np.ndarray) -> Tensor:
        if generator == "torch":
            torch.rand(())
        elif generator == "numpy":
            np.random.random()
        return doubled(batch, ids)

    return say


@pytest.mark.parametrize("generator", ["torch", "numpy"])
def test_outputs_that_are_drawn_are_refused_and_nothing_is_kept(tmp_path, generator):
    with refused(f"outputs are drawn, by the generator of {generator}, and would be", where="strategies.0.keep"):
        keep(tmp_path, drawing(generator))
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    ("say", "message"),
    [
        (lambda batch, ids: batch[0][1:], "gives 255 outputs for 256 samples; one for each can be kept"),
        (lambda batch, ids: torch.zeros(len(ids), 1 + int(ids[0]) // 256), r"several shapes for a sample: \[1\] and \[2\]"),
    ],
)
def test_outputs_that_are_not_one_for_each_sample_are_refused(tmp_path, say, message):
    with refused(message, where="strategies.0.keep"):
        keep(tmp_path, say)
    assert files(tmp_path) == []


# --- what does not go with it ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "strategy", "message"),
    [
        ({**DIGITS, "augment": {"crop": 1}}, {"keep": True}, "asks the teacher of each sample once, does not go with augment"),
        (DIGITS, {"keep": True, "teacher": {"ema": 0.9}}, "keep asks the teacher once, and the average of teacher.ema changes"),
        (DIGITS, {"keep": True, "features": [{"student": "a", "teacher": "a"}]}, "keep keeps what the teacher gives in the end"),
        (LANGUAGE, {"keep": True}, "keep would hold a score of each token of the vocabulary for each token"),
        (DIGITS, {"texts": {"prompt": 4}}, "texts are what a teacher of text_generation writes"),
        (LANGUAGE, {"texts": {"prompt": 17}}, "texts.prompt: 17 is more than a sample's 16 tokens"),
        (LANGUAGE, {"texts": {"prompt": 4}, "keep": True}, "texts are kept anyway: leave it out"),
        (LANGUAGE, {"texts": {"prompt": 4}, "temperature": 3.0}, "texts are drawn by texts.temperature"),
        (LANGUAGE, {"texts": {"prompt": 4}, "teacher": {"ema": 0.9}}, "texts asks the teacher once"),
    ],
)
def test_what_would_say_something_else_each_time_is_refused(settings, strategy, message):
    with pytest.raises(ValueError, match=message):
        taught(settings, **strategy)


def test_smaller_inputs_first_do_not_go_with_it():
    strategies = [*taught(DIGITS, keep=True).model_dump()["strategies"], {"name": "progressive", "epochs": 2}]
    with pytest.raises(ValueError, match="asks the teacher of each sample once, does not go with progressive"):
        config({**DIGITS, "strategies": strategies})


@pytest.mark.slow
def test_hidden_parts_of_the_same_samples_go_with_it(digits, monkeypatch):
    monkeypatch.chdir(digits)
    found = []
    for keep_ in (False, True):
        settings = taught(DIGITS, keep=keep_).model_dump()
        keys = {name: value for name, value in settings.items() if name in KEYS}
        keys["strategies"] = [{"name": "masked", "patch": 2}, *settings["strategies"]]
        fit = mltrainer.fit({"kind": "image_classification"}, **keys, epochs=1, signals=False, tell=lambda _event: None)
        found.append(fit.history[0]["terms"]["distillation"])
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_samples_that_are_read_anew_each_time_are_refused(tmp_path):
    settings = {**IN_MEMORY, "task": {"use": "digits_task:Digits", "options": {"model": "mlp"}}}
    with refused("read one by one in each epoch", where="strategies.0.keep"):
        train(teaching(tmp_path), **settings)


def test_a_task_that_follows_the_steps_is_refused(tmp_path):
    settings = {**IN_MEMORY, "task": {"use": "digits_task:Following", "options": {"model": "mlp"}}}
    with pytest.raises(InputError, match=r"follows the step in enter\(\)"):
        train(teaching(tmp_path), **settings)


# --- texts ----------------------------------------------------------------------------------------


@pytest.fixture
def story(tmp_path: Path) -> Path:
    (tmp_path / "story.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 60)
    save_teacher(tmp_path, LANGUAGE)
    return tmp_path


def windows(task: OpenTask) -> Tensor:
    tensors = task.split("train").tensors
    return tensors[0]


def learned(task: OpenTask) -> Tensor:
    """Return the windows that the student is given, in the order of their ids."""
    train_part = task.split("train")
    assert train_part.tensors is not None
    (alter,) = task.alterations
    return alter(train_part.batch(train_part.tensors), np.asarray(train_part.ids), 0)[0]


def test_a_student_is_given_the_likeliest_texts_that_its_teacher_writes(story):
    task, _ = begun(story, taught(LANGUAGE, texts={"prompt": 5, "temperature": 0.0}, weight=1.0))
    teacher = teacher_of(task).eval()
    found, given = learned(task), windows(task)
    assert torch.equal(found[:, :5], given[:, :5])
    for row in found[::20]:  # token by token, from what stands before it alone
        for place in range(5, 17):
            with torch.no_grad():
                scores = teacher(torch.cat([row[:place], torch.zeros(16 - place, dtype=row.dtype)])[None].long())[0, place - 1]
            assert scores[row[place]] == scores.max()


@pytest.mark.slow
def test_texts_are_drawn_as_often_as_the_teacher_says(story):
    task, _ = begun(story, taught(LANGUAGE, texts={"prompt": 4}))
    assert isinstance(task.task, TextGeneration)
    teacher, first = teacher_of(task), windows(task)[:1]
    written = task.task.written(teacher, first.expand(4000, -1), 16, 0.5, seeds.uniforms(3, np.arange(4000), 1))
    with torch.no_grad():
        expected = (teacher(first[:, :16].long())[0, -1] / 0.5).softmax(0)
    counts = torch.bincount(written[:, 16].long(), minlength=len(expected)) / 4000
    assert counts.tolist() == pytest.approx(expected.tolist(), abs=0.03)


def test_the_weight_is_the_teachers_share_of_the_samples_and_the_rest_stay(story):
    task, (told,) = begun(story, taught(LANGUAGE, texts={"prompt": 4}, weight=0.3))
    changed = (learned(task) != windows(task)).any(1)
    assert f"the teacher's texts, {int(changed.sum())} of {len(changed)} samples, such as '" in told
    assert 0.15 < changed.float().mean() < 0.45
    assert task.strategies.terms == []


@pytest.mark.slow
def test_texts_are_the_same_each_time_and_others_of_another_seed_or_temperature(story):
    found = [
        learned(begun(story, taught({**LANGUAGE, "seed": seed}, texts={"prompt": 4, "temperature": heat}))[0])
        for seed, heat in ((1, 1.0), (1, 1.0), (2, 1.0), (1, 0.7))
    ]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[3])
    assert len(files(story)) == 3


@pytest.mark.slow
def test_a_run_is_trained_on_exactly_those_texts_and_repeats(story, monkeypatch):
    monkeypatch.chdir(story)
    seen: list[bytes] = []
    forward = TextGeneration.forward

    def noting(task: TextGeneration, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        if model.training and torch.is_grad_enabled():
            seen.extend(row.numpy().tobytes() for row in batch[0])
        return forward(task, model, batch)

    monkeypatch.setattr(TextGeneration, "forward", noting)
    keys = {name: value for name, value in taught(LANGUAGE, texts={"prompt": 4}, weight=1.0).model_dump().items() if name in KEYS}
    digests = []
    for _ in range(2):
        seen.clear()
        fit = mltrainer.fit({"kind": "text_generation"}, **keys, epochs=2, signals=False, tell=lambda _event: None)
        digests.append(fit.result["weights_sha256"])
        assert sorted(seen) == sorted(2 * [row.tobytes() for row in np.load(files(story)[0])])
    assert digests[0] == digests[1]
