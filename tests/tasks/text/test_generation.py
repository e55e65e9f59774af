import json
import math

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from mltrainer.checkpointing import inference_script as script
from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import Split, TrainingConfig
from mltrainer.errors import InputError
from mltrainer.project.text_corpora import ships_log
from mltrainer.tasks.content import Corpus
from mltrainer.tasks.opening import open_task
from mltrainer.tasks.text import characters, corpus, generation, token_file, tokenizing

TEXT = ships_log(60)


@pytest.fixture
def open_text(tmp_path):
    """Open a text that a test wrote; keyword arguments replace keys of the config, `tokens` those of its tokens."""

    def opened(text=TEXT, tokens=None, **changes):
        if text is not None:
            (tmp_path / "log.txt").write_text(text, encoding="utf-8")
        values = {
            "name": "log",
            "task": {"kind": "text_generation"},
            "data": {"source": "log.txt", "tokens": {"kind": "char", "length": 16, **(tokens or {})}},
            "model": {"name": "transformer", "width": 8, "heads": 2, "layers": 1, "dropout": 0.0},
            "metric": {"name": "bits_per_byte", "mode": "min"},
            "batch_size": 4,
            **changes,
        }
        return open_task(TrainingConfig.model_validate(values), tmp_path)

    return opened


def spelt(opened, split):
    """Return the text that a split's windows hold."""
    windows = opened.split(split).tensors[0] if split != "test" else opened.open_test().tensors[0]
    ids = torch.cat([windows[:1, :1].flatten(), windows[:, 1:].flatten()]).tolist()
    return opened.task._tokenizer.decode(ids)


@pytest.mark.parametrize("tokens", [{}, {"kind": "bpe", "vocabulary": 300}], ids=["char", "bpe"])
def test_the_splits_are_blocks_that_follow_each_other_without_overlap(open_text, tokens):
    opened = open_text(tokens=tokens)
    parts = [spelt(opened, split) for split in ("train", "validation", "test")]
    places = [TEXT.index(part) for part in parts]
    assert places[0] == 0
    assert places[0] + len(parts[0]) <= places[1]
    assert places[1] + len(parts[1]) <= places[2]
    assert all(TEXT[place - 1] == "\n" for place in places[1:])
    assert len("".join(parts)) > 0.95 * len(TEXT)


def test_windows_overlap_by_the_one_token_that_is_predicted(open_text):
    windows = open_text().split("train").tensors[0]
    assert windows.shape[1] == 17
    assert torch.equal(windows[:-1, -1], windows[1:, 0])


@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_the_tokenizer_is_trained_on_the_training_block_alone(open_text, kind):
    tokens = {"kind": kind, "vocabulary": 300}
    before = open_text(tokens=tokens).task.delivered()
    train = TEXT.encode()[: open_text(tokens=tokens).task._bounds["train"][1]].decode()
    changed = train + TEXT[len(train) :].replace("Wind", "Ŵind")
    assert open_text(changed[: len(TEXT)], tokens=tokens).task.delivered() == before


def test_a_sample_predicts_as_many_tokens_as_its_length(open_text):
    assert open_text(tokens={"length": 24}).task.tokens_per_sample == 24


def test_unseen_characters_are_spelt_by_their_bytes(open_text):
    train = len(TEXT) * 9 // 10
    opened = open_text(TEXT[:train] + TEXT[train:].replace("Wind", "Ŵ€"), split={"validation": 0.2, "test": 0.0})
    assert "Ŵ€" in spelt(opened, "validation")


def test_the_fast_encoder_and_the_tokenizer_agree():
    numbers = characters.numbered([TEXT], 290)
    text = TEXT[:300] + "Ŵ€ naïve\r\n\t的"
    assert characters.encoder(numbers)(text).tolist() == tokenizing.of_characters(numbers).encode(text).ids


def test_the_metrics_are_those_of_the_tokens_loss(open_text):
    opened = open_text()
    model, batch = opened.task.model(), opened.split("validation").tensors
    with torch.no_grad():
        outputs, sizes = opened.task.forward(model, batch)
        logits = model(batch[0][:, :-1].long())
    mean = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[0][:, 1:].flatten().long()).item()
    found = opened.task.metrics(outputs, sizes)
    assert float(opened.task.loss(outputs, sizes)) == pytest.approx(mean, rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(mean), rel=1e-5)
    assert found["bits_per_byte"] == pytest.approx(mean / math.log(2), rel=1e-5)  # every character here is one byte


def test_bits_per_byte_count_bytes_and_not_tokens(open_text):
    opened = open_text(tokens={"kind": "bpe", "vocabulary": 400})
    with torch.no_grad():
        outputs, sizes = opened.task.forward(opened.task.model(), opened.split("validation").tensors)
    nats = float(outputs.double().sum())
    assert float(sizes.sum()) == pytest.approx(len(spelt(opened, "validation")), rel=0.02)
    assert opened.task.metrics(outputs, sizes)["bits_per_byte"] == pytest.approx(nats / math.log(2) / float(sizes.sum()))


def test_diverged_outputs_give_no_number_that_looks_like_a_result(open_text):
    task = open_text().task
    assert math.isnan(task.metrics(torch.tensor([math.nan]), torch.ones(1))["perplexity"])
    assert task.metrics(torch.tensor([1e6]), torch.ones(1))["perplexity"] == math.inf


def test_the_token_file_is_made_once_and_anew_where_it_was_changed(open_text, tmp_path):
    first = open_text()
    windows = first.split("train").tensors[0].clone()  # which lie in the file
    file = next((tmp_path / ".mltrainer" / "tokens").glob("*.bin"))
    made, content = file.stat().st_mtime_ns, file.read_bytes()
    assert open_text(None).data_sha256 == first.data_sha256
    assert file.stat().st_mtime_ns == made
    file.write_bytes(bytes(len(content)))
    assert torch.equal(open_text(None).split("train").tensors[0], windows)
    assert file.read_bytes() == content


def test_a_text_is_read_in_pieces_and_never_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "PIECE", 64)
    monkeypatch.setattr(corpus, "LONGEST_LINE", 100)
    for name, text in {"a.txt": TEXT[:500], "b.txt": "的" * 300, "c.txt": "end"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    content, rows = corpus.read_corpus(tmp_path, "texts", tmp_path)
    found = list(corpus.pieces(content, 0, sum(content.sizes)))
    assert "".join(found) == TEXT[:500] + "的" * 300 + "end"
    assert max(len(piece.encode()) for piece in found) < 300
    assert [row.path for row in rows] == ["a.txt", "b.txt", "c.txt"]
    cut = corpus.blocks(content, Split(validation=0.3, test=0.3))
    assert "".join("".join(corpus.pieces(content, *cut[name])) for name in cut) == "".join(found)


def test_hidden_files_are_no_part_of_a_text(tmp_path):
    for name in (".h.txt", "a.txt", "b.TXT"):
        (tmp_path / name).write_text(name)
    assert corpus.is_corpus(tmp_path)
    assert [row.path for row in corpus.read_corpus(tmp_path, "texts", tmp_path)[1]] == ["a.txt", "b.TXT"]


def test_a_byte_that_is_no_text_is_told_by_its_place(open_text, tmp_path):
    (tmp_path / "log.txt").write_bytes(b"a" * 5000 + b"\xff" + b"a" * 5000)
    with pytest.raises(InputError, match="byte 0xff at byte offset 5000 of the text"):
        open_text(None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": {"length": 2000}}, "the validation block has [0-9]+ tokens, fewer than one sample of 2000"),
        ({"tokens": {"kind": "word"}}, "words in lower case cannot be turned back into a text"),
        (
            {"metric": {"name": "accuracy", "mode": "max"}},
            "there is no metric 'accuracy' of the task; there are loss, perplexity, bits_per_byte",
        ),
    ],
)
def test_what_does_not_fit_is_refused(open_text, changes, message):
    with pytest.raises(InputError, match=message):
        open_text(**changes)


def test_a_model_that_does_not_read_from_left_to_right_is_refused(open_text):
    with pytest.raises(InputError, match="bag does not predict the next token"):
        open_text(model={"name": "bag"}).task.model()


def test_the_facts_say_how_the_text_was_cut(open_text):
    facts = open_text().facts(DataLimits())
    assert facts["duplicates_across_splits"] is None
    assert facts["findings"][0]["what"].startswith("the text is cut into contiguous blocks: train ")
    assert isinstance(facts["shape"], list)


def test_the_same_seed_shows_the_same_samples_and_another_seed_others(open_text, monkeypatch):
    monkeypatch.setattr(generation, "SHOWN_TOKENS", 20)
    opened = open_text()
    model = opened.task.model().eval()
    shown = opened.task.shown(model)
    assert shown == opened.task.shown(model)
    assert shown["samples"][0] != shown["samples"][1]
    assert open_text(seed=7).task.shown(model)["samples"] != shown["samples"]
    assert TEXT.encode()[opened.task._bounds["validation"][0] :].decode().startswith(shown["prompt"])


def test_a_delivered_model_continues_a_text_as_the_seed_says(open_text, tmp_path, monkeypatch):
    opened = open_text()
    model = opened.task.model().eval()
    (tmp_path / "tokenizer.json").write_bytes(opened.task.delivered()["tokenizer.json"])
    monkeypatch.setattr(script, "__file__", str(tmp_path / "inference.py"))

    def run(given):
        with torch.no_grad():
            return np.asarray(model(torch.from_numpy(given)))

    spec = json.loads(json.dumps(opened.task.inference()))
    first, again = (script.continued(run, "1 March", spec, 30, seed=3, temperature=1.0) for _ in range(2))
    assert first == again
    assert len(first) > 0
    assert script.continued(run, "1 March", spec, 30, seed=4, temperature=1.0) != first
    assert len(script.continued(run, "1 March 1801, aboard the ship", spec, 5, seed=3, temperature=0.5)) > 0
    with pytest.raises(script.InvalidInputError, match="the prompt is empty"):
        script.continued(run, "", spec, 5, seed=3, temperature=1.0)


def test_a_tokenizer_of_ones_own_may_spell_the_text(open_text, tmp_path):
    numbers = characters.numbered([TEXT], 400)
    (tmp_path / "mine.json").write_text(tokenizing.of_characters(numbers).to_str())
    opened = open_text(tokens={"file": "mine.json"})
    assert spelt(opened, "train") == spelt(open_text(), "train")
    assert Tokenizer.from_buffer(opened.task.delivered()["tokenizer.json"]).encode("aboard").ids == [numbers[c] for c in "aboard"]


def test_only_so_much_of_a_long_text_is_learned_from(tmp_path, monkeypatch):
    monkeypatch.setattr(token_file, "LEARNED_BYTES", 1000)
    monkeypatch.setattr(corpus, "PIECE", 200)
    (tmp_path / "log.txt").write_text(TEXT)
    content, _ = corpus.read_corpus(tmp_path / "log.txt", "log.txt", tmp_path)
    assert isinstance(content, Corpus)
    learned = "".join(token_file._evenly(content, (0, len(TEXT))))
    assert 500 < len(learned) < 1500


@pytest.mark.parametrize("tokens", [{}, {"kind": "bpe", "vocabulary": 300}], ids=["char", "bpe"])
def test_a_test_block_is_known_again_by_its_lines_whatever_stands_before_it(open_text, tokens):
    known = set(open_text(tokens=tokens).test_rows("s")["digests"].split())
    edited = set(open_text(TEXT.replace(TEXT[:20], "Another beginning, é", 1), tokens=tokens).test_rows("s")["digests"].split())
    other = set(open_text(TEXT.translate(str.maketrans("aeo", "oae")), tokens=tokens).test_rows("s")["digests"].split())
    assert len(known) > 5
    assert len(known & edited) >= len(known) - 1
    assert not known & other
