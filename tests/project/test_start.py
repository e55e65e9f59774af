"""A new project's file is read alike by every YAML library."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
import yaml

from mltrainer.configs.yaml import parse
from mltrainer.errors import InputError
from mltrainer.project import start
from mltrainer.project.start import Script, make_project


@pytest.mark.parametrize("drawn", ["5e2855886828", "012345678901", "1e0000000000"])
def test_an_id_stays_a_text_whoever_writes_the_file_again(monkeypatch, drawn):
    monkeypatch.setattr(secrets, "token_hex", lambda _: drawn)
    found = start._new_id()
    assert parse(yaml.safe_dump({"id": found}), "mltrainer.yaml").value == {"id": found}
    assert found[1:] == drawn[1:]


@pytest.mark.slow
def test_a_program_that_is_not_there_yet_is_told(tmp_path, cli):
    (tmp_path / "there.py").write_text("")
    for name, is_told in (("there", False), ("missing", True)):
        told = cli("init", tmp_path, "--script", f"{name}.py --lr 1").out
        assert ("is not there yet: put it into" in told) is is_told
        (tmp_path / "mltrainer.yaml").unlink()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("train.py --seed {seed}", "python train.py --seed {seed}"),
        ("python train.py", "python train.py"),
        ("./train.py", "./train.py"),
        ("train.pyz", "train.pyz"),
    ],
)
def test_a_python_file_that_is_named_alone_is_given_to_python(tmp_path, typed, written):
    make_project(tmp_path, None, None, None, script=Script(typed, "metrics.json", "accuracy"))
    assert yaml.safe_load((tmp_path / "mltrainer.yaml").read_text())["task"]["script"] == written


@pytest.mark.slow
def test_the_next_step_names_the_answer_that_planning_waits_for(tmp_path):
    lines = [f"{number % 7},{number * 3 % 11},{number * 3 % 11 * 10}" for number in range(200)]
    (tmp_path / "leak.csv").write_text("\n".join(["a,b,price", *lines]))
    told = make_project(tmp_path / "stops", None, tmp_path / "leak.csv", "price")
    assert told[-1] == f"next: answer what stops planning, in mltrainer.yaml; then cd {tmp_path / 'stops'} && mltrainer run"
    answered = make_project(tmp_path / "runs", None, tmp_path / "leak.csv", "price", ignore=["b"])
    assert answered[-1] == f"next: cd {tmp_path / 'runs'} && mltrainer run"


ROW = '{"messages": [{"role": "user", "content": "one?"}, {"role": "assistant", "content": "two"}]}\n'
PAIR = '{"prompt": "one ", "completion": "two", "source": "me"}\n'


@pytest.mark.parametrize(("folder", "place"), [(Path(), ""), (Path("churn2"), "churn2 "), (Path("my churn"), "'my churn' ")])
def test_the_command_with_a_target_can_be_typed_as_it_stands(tmp_path, monkeypatch, folder, place):
    monkeypatch.chdir(tmp_path)
    Path("customers 2025.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError) as refused:
        make_project(folder, None, Path("customers 2025.csv"), None)
    assert refused.value.hint == f"mltrainer init {place}--data 'customers 2025.csv' --target COLUMN"


@pytest.mark.parametrize("line", [ROW, PAIR])
def test_a_file_of_conversations_begins_a_fine_tuning(tmp_path, line):
    (tmp_path / "chat.jsonl").write_text(line * 3)
    told = make_project(tmp_path, None, tmp_path / "chat.jsonl", None)
    assert told[0].startswith("each line of chat.jsonl is a conversation")
    task = yaml.safe_load((tmp_path / "mltrainer.yaml").read_text())["task"]
    assert task["use"] == "mltrainer.integrations.fine_tuning:FineTuning"
    assert task["options"] == {"data": "chat.jsonl", "model": "weights/base", "length": 1024, "pack": False}


@pytest.mark.parametrize(
    ("line", "options", "words"),
    [
        (ROW, {"held_out": {"test": "chat.jsonl"}}, "--test belongs to other data"),
        (ROW, {"ignore": ["a"]}, "--ignore belongs to other data"),
        (ROW, {"model": "boosting"}, "and this is a file of conversations"),
        ('{"prompt": "one"}\n', {}, "--data needs --target, .*; the first has 'prompt'\n"),
        ('{"message": []}\n', {}, """ or lines of {"messages": .*; the first has 'message'; did you mean 'messages'"""),
        ('{"prompts": "one", "completion": "two"}\n', {}, "'prompts', 'completion'; did you mean 'prompt'"),
        ('{"conversations": []}\n', {}, "; the first has 'conversations'\n"),
        ("[1, 2]\n", {}, "--data needs --target"),
        ("{\n", {}, "--data needs --target"),
    ],
)
def test_what_does_not_suit_a_file_of_conversations_is_told(tmp_path, line, options, words):
    path = tmp_path / "chat.jsonl"
    path.write_text(line * 3)
    options = {**options, "held_out": dict.fromkeys(options.get("held_out", {}), path)}
    with pytest.raises(InputError, match=words):
        make_project(tmp_path / "new", None, path, None, **options)
    assert not (tmp_path / "new").exists()
