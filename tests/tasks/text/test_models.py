import pytest
import torch

from mltrainer.checkpointing.export import export
from mltrainer.configs.project import Bag, Gru, TextCnn, Transformer
from mltrainer.tasks.text.models import Attentive, Neighbours, classifier

SMALL = [
    Bag(width=4, ngrams=1),
    TextCnn(width=4, channels=3, kernels=[1, 2, 3]),
    Gru(width=4, hidden=5, layers=2),
    Transformer(width=4, heads=2, layers=1),
    Bag(width=4, ngrams=3),
]
NAMES = [*(config.name for config in SMALL[:4]), "bag of neighbours"]


def made(config, length=6):
    torch.manual_seed(0)
    model = classifier(config, 20, 0, length, 3).eval()
    for module in model.modules():
        if isinstance(module, Neighbours):
            torch.nn.init.normal_(module.neighbours.weight, std=0.1)  # as after some steps; they begin as 0
    return model


def test_bag_recurrent_and_attentive_models_do_not_see_the_padding():
    for config in (SMALL[0], SMALL[2], SMALL[3], SMALL[4]):
        model, tokens = made(config), torch.tensor([[5, 6, 7, 0, 0, 0]])
        with torch.no_grad():
            before = model(tokens)
            next(module for module in model.modules() if isinstance(module, torch.nn.Embedding)).weight[0] = 9.0
            assert torch.allclose(before, model(tokens), atol=1e-6), config.name


def test_more_padding_changes_nothing_for_convolutions():
    model = made(SMALL[1])
    with torch.no_grad():
        assert torch.equal(model(torch.tensor([[5, 6, 7]])), model(torch.tensor([[5, 6, 7, 0, 0, 0]])))


@pytest.mark.parametrize("config", SMALL, ids=NAMES)
def test_the_paddings_embedding_is_never_trained(config):
    model = made(config).train()
    model(torch.tensor([[5, 6, 0, 0, 0, 0]])).sum().backward()
    embedding = next(module for module in model.modules() if isinstance(module, torch.nn.Embedding))
    assert not embedding.weight[0].any()
    assert not embedding.weight.grad[0].any()
    assert embedding.weight.grad[5].any()


@pytest.mark.parametrize("config", SMALL, ids=NAMES)
def test_a_text_without_a_token_has_finite_logits_and_gradients(config):
    model = made(config).train()
    logits = model(torch.zeros(2, 6, dtype=torch.int64))
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(("config", "sees"), list(zip(SMALL, [False, True, True, True, True], strict=True)), ids=NAMES)
def test_all_but_the_bag_see_the_order_of_the_words(config, sees):
    model = made(config)
    with torch.no_grad():
        here, there = model(torch.tensor([[5, 6, 7, 8, 0, 0], [8, 7, 6, 5, 0, 0]]))
    assert torch.allclose(here, there, atol=1e-6) is not sees


def test_neighbours_that_no_training_text_has_say_nothing():
    tokens = torch.tensor([[5, 6, 7, 8, 0, 0]])
    torch.manual_seed(0)
    model = classifier(SMALL[4], 20, 0, 6, 3).eval()
    with torch.no_grad():
        plain = model.output(model.body.reader.tokens(tokens).sum(1) / 4)
        assert torch.allclose(model(tokens), plain, atol=1e-6)
    model(tokens).sum().backward()
    assert 4 <= int((model.body.reader.neighbours.weight.grad != 0).any(1).sum()) <= 8


def test_in_a_causal_transformer_no_token_sees_those_after_it():
    torch.manual_seed(0)
    reader = Attentive(Transformer(width=4, heads=2), 20, None, 6, causal=True).eval()
    with torch.no_grad():
        here, there = reader(torch.tensor([[1, 2, 3, 4, 5, 6], [1, 2, 3, 9, 9, 9]]))
    assert torch.allclose(here[:3], there[:3], atol=1e-6)
    assert not torch.allclose(here[3:], there[3:], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("config", SMALL, ids=NAMES)
def test_every_model_exports_with_any_batch_size_and_agrees(config, tmp_path):
    model = made(config, length=4)
    tokens = torch.randint(1, 20, (11, 4), generator=torch.Generator().manual_seed(1))
    tokens[:, 3], tokens[4] = 0, 0
    formats = ["torch_export"] if config.name in ("bag", "gru") else ["torch_export", "onnx"]
    rows = export(model, (tokens[:2],), formats, tmp_path, 1e-4, (tokens,))
    assert [(row.state, row.agrees) for row in rows] == [("written", True)] * len(formats)
