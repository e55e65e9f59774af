"""Models of transformers are trained with the bits of every run, by the losses that they have of their own."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import mltrainer
from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from mltrainer.tasks.opening import make_model, open_task
from mltrainer.tasks.user_code import make_task
from tests.integrations.texts import BERT, GPT2, task, write_texts
from tests.projects import write_light_template
from tests.refusals import refused
from tests.trainers.native.digits_runs import config, same, train

transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")
pytestmark = pytest.mark.slow
KEYS: dict[str, Any] = {
    "metric": {"name": "loss", "mode": "min"},
    "split": {"validation": 0.2, "test": 0.1},
    "batch_size": 16,
    "epochs": 2,
}
CASES: dict[str, dict[str, Any]] = {
    "classes": task("SequenceClassification"),
    "next token": task("CausalLM", data="story.txt"),
    "masked": task("MaskedLM"),
    "masked, adapters": task("MaskedLM", lora={"r": 2}),
    "classes, adapters": task("SequenceClassification", lora={"r": 4, "target_modules": ["query", "value", "dense"]}),
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a project with texts and a tokenizer."""
    write_texts(tmp_path, 120)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(given: dict[str, Any]) -> Any:
    """Return a task with its samples read."""
    found: Any = make_task(given["use"], given["options"], Path.cwd())
    found.samples()
    return found


def opened(given: dict[str, Any]) -> Any:
    return open_task(config({**KEYS, "task": given}), Path.cwd())


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_is_interrupted_and_one_that_computes_twice_have_the_bits_of_a_whole_one(tmp_path, case):
    runs = []
    for name, stops, replay in (("whole", (), None), ("parts", (2, 5), None), ("twice", (), {"every": 1})):
        write_texts(tmp_path / name, 120)
        runs.append(train(tmp_path / name, stops, **{**KEYS, "task": CASES[case], "replay": replay}))
    whole, parts, twice = runs
    assert same(parts, whole)
    assert same(twice, whole)


def test_validating_more_often_changes_no_mask_of_the_training(tmp_path):
    digests = []
    for every in ({"every_n_epochs": 1}, {"every_n_steps": 2}):
        write_texts(tmp_path / str(every), 120)
        digests.append(train(tmp_path / str(every), **{**KEYS, "task": CASES["masked"], "evaluate": every})["weights_sha256"])
    assert digests[0] == digests[1]


def test_the_share_of_tokens_that_is_asked_for_is_masked_replaced_or_kept():
    found = made(task("MaskedLM", masked=0.3))
    ids = torch.full((200, 100), 9)
    ids[:, 0], ids[:, 1] = 2, 0  # [CLS] and padding, which are never asked for
    torch.manual_seed(1)
    given, labels = found._inputs_and_labels(ids, ids)
    is_asked = labels != -100
    assert not is_asked[:, :2].any()
    assert is_asked[:, 2:].float().mean().item() == pytest.approx(0.3, abs=0.02)
    assert (given == 4)[is_asked].float().mean().item() == pytest.approx(0.8, abs=0.02)
    assert torch.equal(given[~is_asked], ids[~is_asked])


def test_losses_are_those_of_transformers():
    for name in ("SequenceClassification", "CausalLM", "MaskedLM"):
        found = made(task(name))
        ids, labels = (part[:16] for part in found.samples())
        torch.manual_seed(3)
        model = found.model().eval()
        torch.manual_seed(5)
        outputs, targets = found.forward(model, (ids, labels))
        torch.manual_seed(5)
        read, asked = found._inputs_and_labels(ids, labels) if name == "MaskedLM" else (ids, labels)
        theirs = model.net(input_ids=read, attention_mask=(ids != 0).long(), labels=asked).loss
        assert found.loss(outputs, targets).item() == pytest.approx(theirs.item(), rel=1e-5), name


def test_adapters_and_a_new_head_are_trained_and_nothing_else(tmp_path):
    given = task("SequenceClassification", lora={"r": 2, "target_modules": ["query"]})
    seeds.seed_everything(seeds.key(42, "model"))
    before = make_model(opened(given)).state_dict()
    keys = {**KEYS, "task": given, "optimizer": {"name": "adamw", "lr": 0.01}}
    after = mltrainer.fit(given, **{key: value for key, value in keys.items() if key != "task"}).model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all("lora_" in name or "classifier" in name for name in changed)


def saved(folder: Path, kind: str = "BertForSequenceClassification", **keys: Any) -> Any:
    """Write a model of random weights as transformers does, and return it."""
    shape = {**{k: v for k, v in BERT.items() if k != "model_type"}, "vocab_size": 28, **keys}
    net = getattr(transformers, kind)(transformers.BertConfig(**shape))
    net.save_pretrained(folder)
    return net


def test_a_model_begins_with_the_weights_of_its_folder(tmp_path):
    net = saved(tmp_path / "net")
    model = make_model(opened(task("SequenceClassification", "net")))
    own = net.state_dict()
    assert all(torch.equal(own[name.removeprefix("net.")], tensor) for name, tensor in model.state_dict().items())


def test_a_folder_of_another_head_gives_the_body_and_the_head_is_new(tmp_path):
    net = saved(tmp_path / "net", "BertForMaskedLM")
    model = make_model(opened(task("SequenceClassification", "net")))
    word = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(model.state_dict()[f"net.{word}"], net.state_dict()[word])


@pytest.mark.parametrize("name", ["net/model.safetensors", "reviews.csv", "tokenizer.json"])
def test_another_file_is_other_data(tmp_path, name):
    saved(tmp_path / "net")
    given = task("SequenceClassification", "net")
    before = opened(given)
    path = tmp_path / name
    path.write_bytes(path.read_bytes().replace(b"lovely", b"lively") if name.endswith(("csv", "json")) else changed(path))
    assert opened(given).data_sha256 != before.data_sha256


def changed(path: Path) -> bytes:
    from safetensors.torch import load, save

    return save({name: tensor + 1 for name, tensor in load(path.read_bytes()).items()}, {"format": "pt"})


def test_pickled_weights_are_never_read(tmp_path):
    net = saved(tmp_path / "net")
    os.unlink(tmp_path / "net/model.safetensors")
    torch.save(net.state_dict(), tmp_path / "net/pytorch_model.bin")
    with pytest.raises(InputError, match=r"no \.safetensors; pickled weights are never read"):
        make_model(opened(task("SequenceClassification", "net")))


def test_code_that_a_folder_names_is_never_executed(tmp_path):
    saved(tmp_path / "net")
    path = tmp_path / "net/config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "auto_map": {"AutoModel": "evil.Model"}}))
    (tmp_path / "net/evil.py").write_text("raise SystemExit('executed')")
    with pytest.raises(InputError, match=r"names custom code .auto_map., which is never executed"):
        make_model(opened(task("SequenceClassification", "net")))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (task("MaskedLM", {**BERT, "model_type": "bret"}), "there is no model_type 'bret'; did you mean 'bert'"),
        (
            task("MaskedLM", {**BERT, "hiden_size": 8}),
            "there is no key of a bert's config 'hiden_size'; did you mean 'hidden_size'",
        ),
        (task("MaskedLM", {**BERT, "vocab_size": 5}), "the tokenizer has 28 tokens, the model knows 5"),
        (task("MaskedLM", {**BERT, "max_position_embeddings": 8}), "samples have 14 tokens, the model reads 8"),
        (task("MaskedLM", {**BERT, "num_attention_heads": 3}), "ValueError: The hidden size"),
        (task("MaskedLM", GPT2), "ValueError: Unrecognized configuration class"),
        (task("MaskedLM", tokenizer="tok.json"), "there is no tok.json"),
        (task("MaskedLM", "net", tokenizer="tokenizer.json"), "there is no net/config.json"),
        (task("MaskedLM", masked=1.5), "expected a share between 0 and 1 for masked, found 1.5"),
        (task("MaskedLM", lora={"rank": 2}), "TypeError: .*rank"),
        (task("SequenceClassification", target="lable"), "has no column 'lable'"),
        (
            task("SequenceClassification", architecture="BertForSequenceClasification"),
            "did you mean 'BertForSequenceClassification'",
        ),
        (task("CausalLM", data="story.txt", length=9999), "fewer than one sample's"),
        (task("SequenceClassification", data="story.txt"), "story.txt has no column 'label'"),
    ],
)
def test_what_does_not_fit_is_told(given, words):
    with pytest.raises(InputError, match=words):
        make_model(opened(given))


def test_a_tokenizer_without_a_mask_is_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text().replace("[MASK]", "[OTHER]"))
    with pytest.raises(InputError, match=r"has no token \[MASK\] or <mask>"):
        opened(task("MaskedLM"))


def test_a_package_that_is_missing_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with refused("transformers is not installed", hint="mltrainer[hf]"):
        make_model(opened(task("CausalLM")))


@pytest.mark.parametrize(("options", "column"), [({"text": None}, "review"), ({"data": "story.txt"}, "text")])
def test_a_masked_model_says_which_column_its_texts_are_in(tmp_path, options, column):
    path = tmp_path / "reviews.csv"
    path.write_text("\n".join(line.partition(",")[0] for line in path.read_text().splitlines()))
    assert made(task("MaskedLM", **options)).inference()["text"] == column


def test_the_perplexity_of_a_model_that_broke_is_not_a_number():
    found = made(task("CausalLM"))
    assert math.isnan(found.compute((math.nan, 0, 10))["perplexity"])
    assert found.compute((1e6, 0, 10))["perplexity"] == math.inf


LONGER = ("next token", "masked", "classes, adapters")


@pytest.mark.parametrize("case", ["classes", *(pytest.param(case, marks=pytest.mark.long) for case in LONGER)])
def test_a_model_walks_all_five_phases(tmp_path, cli, case):
    name, mode, criterion = ("accuracy", "max", ">= 0.3") if "classes" in case else ("perplexity", "min", "<= 60")
    values = {"name": "hf", "task": CASES[case], "metric": {"name": name, "mode": mode}, "acceptance": {name: criterion}}
    (tmp_path / "mltrainer.yaml").write_text(json.dumps(values))
    write_light_template(tmp_path)
    settings = ("--set", "epochs=15", "--set", "batch_size=16", "--set", "optimizer.lr=0.03")
    cli("phase", "run", "planning", *settings, "--project", tmp_path, code=0)
    cli("run", "--project", tmp_path, code=0, out="all five gates hold")
