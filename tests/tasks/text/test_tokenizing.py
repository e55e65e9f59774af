import hashlib
import subprocess
import sys

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from mltrainer.configs.project import Tokens
from mltrainer.tasks.text import tokenizing
from tests.refusals import refused

TEXTS = ["The film was good, really good.", "the plot was BAD", "a film", "naïve café: 3 times"]


def digest(kind):
    return hashlib.sha256(tokenizing.train(TEXTS * 3, Tokens(kind=kind)).to_str().encode()).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_training_on_the_same_texts_twice_gives_the_same_bytes(kind):
    code = f"from tests.tasks.text.test_tokenizing import digest; print(digest({kind!r}))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {digest(kind), digest(kind), other.stdout.strip()} == {digest(kind)}


def test_words_are_known_in_any_case_and_others_are_unknown():
    tokenizer = tokenizing.train(TEXTS, Tokens())
    assert tokenizer.encode("FILM").ids == tokenizer.encode("film").ids
    assert tokenizer.encode("unheard").ids == [tokenizing.unknown_of(tokenizer)]
    assert tokenizing.padding_of(tokenizer) == 0


def test_pieces_spell_every_text():
    tokenizer = tokenizing.train(TEXTS, Tokens(kind="bpe"))
    assert tokenizer.decode(tokenizer.encode("Ünheard 的 words\n").ids) == "Ünheard 的 words\n"
    assert tokenizing.unknown_of(tokenizer) is None


def test_a_vocabulary_keeps_the_most_frequent_words():
    texts = [f"often w{number}" for number in range(400)]
    tokenizer = tokenizing.train(texts, Tokens(vocabulary=300))
    assert tokenizer.get_vocab_size() == 300
    assert tokenizer.token_to_id("often") is not None


def test_the_matrix_is_cut_and_filled_up():
    tokenizer = tokenizing.train(TEXTS, Tokens())
    found = tokenizing.encode(tokenizer, ["the film was good", "", "bad"], limit=3)
    assert found.lengths.tolist() == [4, 0, 1]
    rows = found.matrix(np.array([2, 0, 1]), 3, 0)
    assert rows.dtype == np.int64
    assert rows[0].tolist() == [tokenizer.token_to_id("bad"), 0, 0]
    assert rows[1].tolist() == [tokenizer.token_to_id(word) for word in ("the", "film", "was")]
    assert rows[2].tolist() == [0, 0, 0]


def test_many_texts_are_encoded_like_each_alone():
    tokenizer = tokenizing.train(TEXTS, Tokens(kind="bpe"))
    texts = [f"{number} {TEXTS[number % 4]}" for number in range(tokenizing.AT_ONCE + 10)]
    together = tokenizing.encode(tokenizer, texts, 9).matrix(np.arange(len(texts)), 9, 0)
    for row in (0, tokenizing.AT_ONCE - 1, tokenizing.AT_ONCE, len(texts) - 1):
        assert together[row].tolist() == tokenizing.encode(tokenizer, [texts[row]], 9).matrix(np.arange(1), 9, 0)[0].tolist()


def test_the_delivered_file_alone_makes_the_models_input():
    tokenizer = tokenizing.train(TEXTS, Tokens())
    texts = ["the film was good", "", "unheard"]
    alone = Tokenizer.from_buffer(tokenizing.fixed(tokenizer, 3))
    wanted = tokenizing.encode(tokenizer, texts, 3).matrix(np.arange(3), 3, 0)
    assert np.array_equal([one.ids for one in alone.encode_batch(texts)], wanted)


def own_tokenizer(pad="<pad>"):
    tokenizer = Tokenizer(models.WordLevel({"<s>": 0, pad: 1, "film": 2, "good": 3, "?": 4}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A <s>", special_tokens=[("<s>", 0)])
    return tokenizer.to_str().encode()


def test_a_tokenizer_that_was_brought_along_keeps_its_own_tokens_around_a_text_that_is_cut():
    tokenizer = tokenizing.load(own_tokenizer(), "t.json")
    assert tokenizing.padding_of(tokenizer) == 1
    found = tokenizing.encode(tokenizer, ["good film film film", "good"], 4).matrix(np.arange(2), 4, 1)
    assert found.tolist() == [[0, 3, 2, 0], [0, 3, 0, 1]]


def test_a_tokenizer_without_padding_gets_some():
    tokenizer = tokenizing.load(own_tokenizer(pad="other"), "t.json")
    assert tokenizing.padding_of(tokenizer) == tokenizer.token_to_id(tokenizing.PAD) == 5


def test_a_file_that_is_no_tokenizer_is_told():
    with refused(r"not readable as a tokenizer\.json", where="mine.json"):
        tokenizing.load(b"{}", "mine.json")
