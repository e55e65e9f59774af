"""A model is fine-tuned on the answers of conversations alone, with losses as by hand and the bits of every run."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mltrainer
from mltrainer.checkpointing import inference_script as script
from mltrainer.companions.serving.contract import Prompt
from mltrainer.companions.serving.predictor import Generator
from mltrainer.configs.items import DataLimits
from mltrainer.errors import InputError
from mltrainer.integrations.fine_tuning import slots
from mltrainer.reproducibility import seeds
from mltrainer.tasks.opening import check_model, make_model, open_task
from mltrainer.tasks.user_code import make_task
from mltrainer.trainers.native.data.addresses import plan_for, training_steps
from tests.integrations.conversations import GPT2, LLAMA, MARKED, PLAIN, chats, completions, task, write_chats
from tests.projects import write_light_template
from tests.trainers.native.digits_runs import config, same, train
from tests.trainers.native.test_ranks import bits, train_on

transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")
pytestmark = pytest.mark.slow
KEYS: dict[str, Any] = {
    "metric": {"name": "loss", "mode": "min"},
    "split": {"validation": 0.2, "test": 0.1},
    "batch_size": 3,
    "accumulate": 4,
    "epochs": 2,
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a project with conversations and a tokenizer."""
    write_chats(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(**options: Any) -> Any:
    given = task(**options)
    return make_task(given["use"], given["options"], Path.cwd())


def opened(**options: Any) -> Any:
    return open_task(config({**KEYS, "task": task(**options)}), Path.cwd())


def tokenizer() -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file("tok/tokenizer.json")


def parts_of(row: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return the texts of a row, part by part, each with whether it is an answer: written here, not by a template."""
    if "prompt" in row:
        return [(row["prompt"], False), (f"{row['completion']}</s>", True)]
    found = []
    for said in row["messages"]:
        found += [(f"<|im_start|>{said['role']}\n", False), (f"{said['content']}<|im_end|>\n", said["role"] == "assistant")]
    return found


def by_hand(net: Any, rows: list[dict[str, Any]]) -> float:
    """Return the mean cost of the answers' tokens, in double precision: one sample, and one token of it, after the other."""
    total, count = 0.0, 0
    for row in rows:
        parts = [(tokenizer().encode(text, add_special_tokens=False).ids, is_answer) for text, is_answer in parts_of(row)]
        ids = [token for tokens, _ in parts for token in tokens]
        answers = [is_answer for tokens, is_answer in parts for _ in tokens]
        with torch.no_grad():
            scores = net(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(1)
        for place in range(1, len(ids)):
            if answers[place]:
                total, count = total - scores[place - 1, ids[place]].item(), count + 1
    return total / count


CASES = {
    "a template without marks": (chats(12), PLAIN),
    "a template with marks": (chats(12), MARKED),
    "prompts": (completions(12), None),
    "both forms": (chats(6) + completions(6), PLAIN),
}


@pytest.mark.parametrize("model", [LLAMA, GPT2], ids=["llama", "gpt2"])
@pytest.mark.parametrize("case", CASES)
def test_the_loss_is_the_mean_over_the_tokens_of_the_answers(tmp_path, case, model):
    rows, template = CASES[case]
    write_chats(tmp_path, rows, template)
    found = made(model=model)
    samples = found.samples()
    torch.manual_seed(3)
    net = found.model().eval()
    outputs, targets = found.forward(net, found.collate([samples[place] for place in range(12)]))
    assert found.loss(outputs, targets).item() == pytest.approx(by_hand(net.net, rows), rel=1e-6)


def test_a_step_weighs_each_token_of_its_answers_alike_however_it_is_divided(tmp_path):
    losses = []
    for size, parts, pack in ((12, 1, False), (3, 4, False), (3, 4, True)):
        folder = tmp_path / f"{size} {pack}"
        write_chats(folder)
        keys = {**KEYS, "task": task(pack=pack), "batch_size": size, "accumulate": parts}
        losses.append(train(folder, **keys)["first_loss"])
    found = open_task(config({**KEYS, "task": task()}), tmp_path)
    seeds.seed_everything(seeds.key(42, "model"))
    net = make_model(found).eval().net
    plan = plan_for(found.config, found.split("train"))
    step = next(iter(training_steps(found.split("train"), plan, found.config, 0)))
    rows = [json.loads(line) for line in (tmp_path / "chat.jsonl").read_text().splitlines()]
    expected = by_hand(net, [rows[number] for number in step.ids])
    assert losses == pytest.approx([expected] * 3, rel=1e-6)
    means = [by_hand(net, [rows[number] for number in part]) for part in step.micro_ids]
    assert sum(means) / 4 != pytest.approx(expected, rel=1e-4)  # a mean of means would be noticed


# A window of two tokens less than a question has: positions within a sample decide what is in it.
MISTRAL = {**LLAMA, "model_type": "mistral", "num_key_value_heads": 1, "sliding_window": 8}


@pytest.mark.parametrize("model", [LLAMA, MISTRAL], ids=["llama", "mistral"])
def test_samples_that_share_rows_have_the_loss_of_single_ones(tmp_path, model):
    rows = chats(12)
    found = made(model=model, pack=True)
    samples = found.samples()
    torch.manual_seed(3)
    net = found.model().train()
    read: list[int] = []
    net.register_forward_pre_hook(lambda _net, given: read.append(given[0].shape))
    batch = found.collate([samples[place] for place in range(12)])
    packed, alone = found.forward(net, batch), found.forward(net.eval(), batch)
    assert read[0][0] < read[1][0] == 12
    assert read[0][1] == read[1][1]
    expected = pytest.approx(by_hand(net.net, rows), rel=1e-6)
    assert found.loss(*packed).item() == expected
    assert found.loss(*alone).item() == expected


def test_a_sample_does_not_depend_on_the_one_before_it_in_its_row():
    found = made(pack=True)
    samples = found.samples()
    ids, _, labels = found.collate([samples[0], samples[1]])
    net, row, width = found.model().train(), torch.arange(ids.numel())[None], ids.shape[1]
    costs = []
    for first in (ids[0], ids[0].flip(0)):
        outputs, _ = found.forward(net, (torch.stack([first, ids[1]]), row, labels))
        costs.append(outputs["costs"][0, :, 0])
    assert not torch.equal(costs[0][:width], costs[1][:width])
    assert torch.equal(costs[0][width:], costs[1][width:])


def test_the_first_token_of_a_sample_is_never_learned_as_another_one_may_be_before_it(tmp_path):
    write_chats(
        tmp_path, [{"prompt": "", "completion": "four"}, {"messages": [{"role": "assistant", "content": "five"}]}] * 2, MARKED
    )
    samples = made(pack=True).samples()
    assert [samples[place][1][0].item() for place in range(4)] == [-100] * 4


@pytest.mark.parametrize("seed", range(20))
def test_each_token_has_one_slot_beside_those_of_its_sample(seed):
    draws = random.Random(seed)
    lengths = [draws.randint(1, 30) for _ in range(draws.randint(1, 40))]
    width = max(lengths)
    found = slots(lengths, width)
    own = [sample * width + column for sample, length in enumerate(lengths) for column in range(length)]
    assert sorted(found.flatten().tolist()) == sorted(own + [0] * (found.numel() - len(own)))
    for sample, length in enumerate(lengths):
        row, begin = (found == sample * width).nonzero()[0].tolist()
        assert found[row, begin : begin + length].tolist() == own[sum(lengths[:sample]) :][:length]


def test_rows_are_filled_first_fit_and_stay_in_the_order_of_the_samples():
    assert slots([2, 5, 3, 4], 5).tolist() == [[0, 1, 10, 11, 12], [5, 6, 7, 8, 9], [15, 16, 17, 18, 0]]
    assert slots([4, 5], 5).tolist() == [[0, 1, 2, 3, 0], [5, 6, 7, 8, 9]]


BLOOM = {"model_type": "bloom", "hidden_size": 32, "n_layer": 2, "n_head": 2}
OPT = {**LLAMA, "model_type": "opt", "ffn_dim": 32, "word_embed_proj_dim": 16}
OPT = {key: value for key, value in OPT.items() if key != "intermediate_size"}


@pytest.mark.parametrize("model", [BLOOM, OPT], ids=["bloom", "opt"])
def test_to_pack_for_a_model_that_mixes_the_samples_of_a_row_is_refused(model):
    found = opened(model=model, pack=True)
    seeds.seed_everything(seeds.key(42, "model"))
    net = make_model(found)
    with pytest.raises(InputError, match=r"task.options.pack: two samples have the loss [\d.]+ in one row, and [\d.]+ alone"):
        check_model(found, net)
    check_model(opened(model=model), net)


RUNS: dict[str, dict[str, Any]] = {
    "packed": task(pack=True),
    "gpt2 with adapters": task(GPT2, lora={"r": 2, "fan_in_fan_out": True}),
}


@pytest.mark.parametrize("case", RUNS)
def test_a_run_that_is_interrupted_has_the_bits_of_a_whole_one(tmp_path, case):
    runs = []
    for name, stops in (("whole", ()), ("parts", (2, 5))):
        write_chats(tmp_path / name)
        runs.append(train(tmp_path / name, stops, **{**KEYS, "task": RUNS[case]}))
    assert same(runs[1], runs[0])


def test_two_processes_have_the_bits_of_one(tmp_path):
    keys = {**KEYS, "task": RUNS["packed"], "epochs": 1}
    for name in ("one", "two"):
        write_chats(tmp_path / name)
    shared = train_on(tmp_path / "two", 2, **keys)
    assert bits(shared, tmp_path / "two") == bits(train(tmp_path / "one", **keys), tmp_path / "one")


def test_adapters_are_trained_and_nothing_else():
    given = task(lora={"r": 2})
    seeds.seed_everything(seeds.key(42, "model"))
    before = make_model(opened(lora={"r": 2})).state_dict()
    after = mltrainer.fit(given, **{**KEYS, "optimizer": {"name": "adamw", "lr": 0.01}}).model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all("lora_" in name for name in changed)


def test_both_kinds_of_templates_mark_the_same_tokens(tmp_path):
    found = []
    for template in (PLAIN, MARKED):
        write_chats(tmp_path, template=template)
        samples = made().samples()
        found.append([samples[place] for place in range(len(samples))])
    for (ids, labels), (others, marks) in zip(*found, strict=True):
        assert torch.equal(ids, others)
        assert torch.equal(labels, marks)


SPOKEN = "{% for m in messages %}{{ m.role }}: {{ m.content }}|{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
BARE = (
    "{% for m in messages %}{{ m.role }}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>{% endfor %}"
)


@pytest.mark.parametrize(
    ("template", "content", "learned"),
    [
        (PLAIN, "two", "two<|im_end|>\n"),
        (PLAIN, " two ", " two <|im_end|>\n"),
        (MARKED, "\ntwo", "\ntwo<|im_end|>\n"),
        (BARE, " two ", " two "),
        (SPOKEN, "comes", " comes|"),  # the prompt's last blank is a token together with the answer's first word
    ],
)
def test_no_token_of_a_prompt_is_learned_and_each_of_an_answer_is(tmp_path, template, content, learned):
    said = [{"role": "user", "content": "one?"}, {"role": "assistant", "content": content}]
    write_chats(tmp_path, [{"messages": said}], template)
    ids, labels = made().samples()[0]
    found = [token for token, label in zip(ids.tolist(), labels.tolist(), strict=True) if label != -100]
    assert tokenizer().decode(found, skip_special_tokens=False) == learned
    assert all(label in (-100, token) for token, label in zip(ids.tolist(), labels.tolist(), strict=True))


@pytest.mark.parametrize("later", ["m.content", "m.content if m.role == 'user' else ''"])
def test_a_template_that_renders_a_message_differently_later_on_is_refused(tmp_path, later):
    said = f"{{% for m in messages %}}<{{{{ m.role }}}}>{{{{ m.content | upper if loop.last else {later} }}}}{{% endfor %}}"
    turn = [{"role": "user", "content": "ONE?"}, {"role": "assistant", "content": "two"}]
    write_chats(tmp_path, [{"messages": turn * 2}], said)
    with pytest.raises(InputError, match=r"chat.jsonl:1: .*renders the messages before messages.1 differently"):
        made().samples()


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ messages.__class__.__mro__ }}", "SecurityError: access to attribute '__class__'"),
        ("{{ cycler.__init__.__globals__.os.system('touch executed') }}", "SecurityError"),
        ("{{ messages.append(messages[0]) }}", "SecurityError"),
        ("{% include '/etc/hostname' %}", "no loader"),
        ("{% for n in range(1000000000) %}{% endfor %}", "Range too big"),
        ("{{ raise_exception('user and assistant must alternate') }}", "user and assistant must alternate"),
        ("{{ strftime_now('%d %b %Y') }}", "samples must be the same each day"),
    ],
)
def test_a_template_cannot_do_more_than_read_the_messages(tmp_path, template, words):
    write_chats(tmp_path, template=template + PLAIN)
    with pytest.raises(InputError, match=words):
        made().samples()
    assert not (tmp_path / "executed").exists()


def test_a_date_is_given_to_a_template_by_the_config(tmp_path):
    asks = "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}{{ date_string }}"
    write_chats(tmp_path, template=asks + PLAIN)
    ids, _ = made(template={"date_string": "26 Jul 2024"}).samples()[0]
    assert tokenizer().decode(ids.tolist()).startswith("26 Jul 2024")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[]", "chat.jsonl:2: .*found list"),
        ('{"text": "a"}', "chat.jsonl:2: .*found 'text'"),
        ('{"messages": []}', "chat.jsonl:2: .*messages: .*at least 1"),
        ('{"messages": [{"role": "user"}]}', "chat.jsonl:2: .*messages.0.content: Field required"),
        ('{"messages": [{"role": "user", "content": 3}]}', "chat.jsonl:2: .*messages.0.content: .*string"),
        ('{"messages": [{"role": "user", "content": "a"}]}', "chat.jsonl:2: .*no message has the role 'assistant'"),
        ('{"messages": [{"role": "assistant", "content": "a"}]}', "chat.jsonl:2: .*messages.0 is an answer, and no message"),
        ('{"prompt": "a\\ud83d", "completion": "b"}', "chat.jsonl:2: .*half of a character"),
        ('{"prompt": "a", "completion": ""}', "chat.jsonl:2: .*completion: .*at least 1"),
        ('{"prompt": "a"', "chat.jsonl:2: .*not readable as JSON"),
        ('{"prompt": "a", "prompt": "b", "completion": "c"}', "chat.jsonl:2: .*duplicate keys 'prompt'"),
        (json.dumps({"prompt": "a " * 300, "completion": "b"}), r"1 of 3 samples have more than 256 tokens, the longest \d+"),
    ],
)
def test_a_line_that_does_not_fit_is_told(tmp_path, line, words):
    path = tmp_path / "chat.jsonl"
    first, *_ = path.read_text().splitlines()
    path.write_text(f"{first}\n{line}\n{first}\n")
    with pytest.raises(InputError, match=words):
        made().samples()


def test_a_file_that_is_not_there_is_told(tmp_path):
    (tmp_path / "chat.jsonl").rename(tmp_path / "chats.jsonl")
    with pytest.raises(InputError, match=r"no such file: did you mean|no such file.*chats.jsonl"):
        made().samples()


def test_a_long_sample_is_cut_only_where_that_is_asked_for_and_must_keep_a_token_to_learn(tmp_path):
    write_chats(tmp_path, [*completions(3), {"prompt": "a", "completion": "b " * 300}])
    assert len(made(cut=True).samples()[3][0]) == 256
    write_chats(tmp_path, [*completions(3), {"prompt": "a " * 300, "completion": "b"}])
    with pytest.raises(InputError, match=r"chat.jsonl:4: 1 samples have no token of an answer among their first 256"):
        made(cut=True).samples()


@pytest.mark.parametrize(("rows", "words"), [(chats(3), "chat.template"), (completions(3), "no eos_token")])
def test_a_folder_that_lacks_what_the_rows_need_is_told(tmp_path, rows, words):
    write_chats(tmp_path, rows)
    (tmp_path / "tok/tokenizer_config.json").write_text("{}")
    with pytest.raises(InputError, match=words):
        made().samples()


@pytest.mark.parametrize("name", ["chat.jsonl", "tok/tokenizer.json", "tok/tokenizer_config.json"])
def test_another_file_is_other_data(tmp_path, name):
    before = opened().data_sha256
    path = tmp_path / name
    path.write_text(f"{path.read_text()}\n")
    assert opened().data_sha256 != before


def test_a_line_that_is_in_two_splits_is_named_as_leakage_with_what_to_do(tmp_path):
    write_chats(tmp_path, chats(60) + chats(20))
    (found,) = [one["what"] for one in opened().facts(DataLimits())["findings"] if one["what"].startswith("leakage")]
    assert "are in the training split too" in found
    assert found.endswith("leave the repeated samples out of the data")


def test_the_template_is_delivered_and_the_tokenizer_gets_no_token_that_the_model_does_not_know():
    delivered = made().delivered()
    assert delivered["chat_template.jinja"].decode() == PLAIN
    assert json.loads(delivered["tokenizer.json"]) == json.loads(Path("tok/tokenizer.json").read_bytes())


def spec_beside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Deliver the model's files into a folder, and return what inference.json says there."""
    found = made()
    found.samples()
    for name, data in found.delivered().items():
        (folder / name).write_bytes(data)
    monkeypatch.setattr(script, "__file__", str(folder / "inference.py"))
    spec: dict[str, Any] = json.loads(json.dumps(found.inference()))
    return spec


@pytest.mark.parametrize("template", [PLAIN, PLAIN.replace("{{ m.content }}", "{{ bos_token or '' }}{{ m.content }}{{ date }}")])
def test_the_delivered_model_is_asked_what_came_before_an_answer_in_training(tmp_path, monkeypatch, template):
    rows = [*chats(8), *completions(4)]
    write_chats(tmp_path, rows, template)
    prompts = script.prompts_of(tmp_path / "chat.jsonl", spec_beside(tmp_path, monkeypatch))
    assert prompts == ["".join(text for text, _ in parts_of(row)[:-1]) for row in rows]
    for prompt, (ids, labels) in zip(prompts, made().samples(), strict=True):
        asked = tokenizer().encode(prompt, add_special_tokens=False).ids
        assert ids[: len(asked)].tolist() == asked
        assert labels[len(asked)] != -100


@pytest.mark.parametrize("end", ["</s>", "<|im_end|>"])
def test_the_delivered_model_ends_where_an_answer_does(tmp_path, monkeypatch, end):
    spec, end = spec_beside(tmp_path, monkeypatch), tokenizer().token_to_id(end)
    said = [*tokenizer().encode("four", add_special_tokens=False).ids, end, end]

    def run(given: Any) -> Any:
        scores = np.full((1, given.shape[1], 300), -1e9)
        scores[0, :, said.pop(0)] = 0.0
        return scores

    assert script.continued(run, "After three comes ", spec, 50, seed=0, temperature=1.0) == "four"
    assert said == [end]


@pytest.mark.parametrize("answer", ["four", ""])
def test_the_served_model_ends_there_too(tmp_path, monkeypatch, answer):
    spec, ends = spec_beside(tmp_path, monkeypatch), tokenizer().token_to_id("<|im_end|>")
    said = [*tokenizer().encode(answer, add_special_tokens=False).ids, ends, ends]

    def run(given: Any) -> Any:
        scores = np.full((1, given.shape[1], 300), -1e9)
        scores[0, :, said.pop(0)] = 0.0
        return scores

    monkeypatch.setattr(script, "open_model", lambda _folder: run)
    model = Generator(tmp_path, spec)

    async def ask(window: Any, _size: int) -> Any:
        return model.work([window])[0]

    prompt = Prompt(prompt="After three comes ", tokens=50)
    assert asyncio.run(model.answer([prompt], ask)) == [{"continuation": answer}]
    assert said == [ends]


def test_the_served_model_is_asked_what_the_delivered_one_is(tmp_path, monkeypatch):
    spec, asked = spec_beside(tmp_path, monkeypatch), chats(1)[0]
    (tmp_path / "new.jsonl").write_text(json.dumps(asked))
    (expected,) = script.prompts_of(tmp_path / "new.jsonl", spec)
    monkeypatch.setattr(script, "here", lambda: Path("/nowhere"))  # a server runs the script of the package
    monkeypatch.setattr(script, "open_model", lambda _folder: None)
    model = Generator(tmp_path, spec)
    assert model.prompt_of(model.row(**asked), 1) == expected
    assert expected.endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("row", "template", "words"),
    [
        ('{"text": "a"}', PLAIN, 'row 2: expected .* found {"text": "a"}'),
        ('{"messages": ["a"]}', PLAIN, "row 2: expected"),
        ('{"messages": []}', PLAIN, "row 2: expected"),
        ('{"messages": [{"role": "assistant", "content": "a"}]}', PLAIN, "row 2: expected"),
        (
            json.dumps(chats(1)[0]),
            "{{ raise_exception('no questions') }}",
            "row 2: the chat template did not render it: no questions",
        ),
    ],
)
def test_a_row_that_the_delivered_model_cannot_be_asked_is_told(tmp_path, monkeypatch, row, template, words):
    spec = spec_beside(tmp_path, monkeypatch)
    (tmp_path / "chat_template.jinja").write_text(template)
    (tmp_path / "new.jsonl").write_text(f'"After three comes "\n{row}\n')
    with pytest.raises(script.InvalidInputError, match=words):
        script.prompts_of(tmp_path / "new.jsonl", spec)


def test_rows_are_read_whatever_case_their_files_name_is_in(tmp_path, monkeypatch):
    spec = spec_beside(tmp_path, monkeypatch)
    for name in ("new.ndjson", "new.JSONL", "new.Json"):
        (tmp_path / name).write_text('{"prompt": "After three comes "}')
        assert script.prompts_of(tmp_path / name, spec) == ["After three comes "]


def test_a_model_that_learned_prompts_is_not_asked_by_messages(tmp_path, monkeypatch):
    write_chats(tmp_path, completions(5), None)
    spec = spec_beside(tmp_path, monkeypatch)
    (tmp_path / "new.jsonl").write_text(json.dumps(chats(1)[0]))
    with pytest.raises(script.InvalidInputError, match="row 1: the model has no chat template"):
        script.prompts_of(tmp_path / "new.jsonl", spec)
    (tmp_path / "new.txt").write_text("After three comes ")
    assert script.prompts_of(tmp_path / "new.txt", spec) == ["After three comes "]


def test_a_project_of_conversations_holds_its_first_gates(tmp_path, cli):
    values = {"name": "chat", "task": task(pack=True), "metric": {"name": "perplexity", "mode": "min"}}
    (tmp_path / "mltrainer.yaml").write_text(json.dumps({**values, "acceptance": {"perplexity": "<= 200"}}))
    write_light_template(tmp_path)
    settings = ("--set", "epochs=6", "--set", "batch_size=8", "--set", "optimizer.lr=0.03")
    cli("phase", "run", "planning", *settings, "--project", tmp_path, code=0, out="planning: holds")
    cli("phase", "run", "baseline", "--project", tmp_path, code=0, out="baseline: holds")
