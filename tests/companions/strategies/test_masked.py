"""Masked modelling: what is hidden, how far what is told of it is off by hand, and the layer that tells it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import mltrainer
from mltrainer.companions.strategies.hiding import Cells, Patches, Tokens, standardized
from mltrainer.companions.strategies.masked import Masked
from mltrainer.companions.strategies.probing import probes
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.strategies import Masked as Settings
from mltrainer.errors import InputError
from mltrainer.tasks.opening import OpenTask, make_model, open_task
from mltrainer.tasks.strategies import strategies_of
from mltrainer.tasks.strategy import MicroBatch, Training
from tests.companions.strategies.test_progressive import texts
from tests.trainers.native.digits_runs import config

DRAWS = torch.Generator().manual_seed(3)
MASKED = {"name": "masked"}


class Own(mltrainer.Task):
    """A batch and a model as a test gives them."""

    def __init__(self, x: Any, model: nn.Module) -> None:
        self.x, self.made = x, model

    def model(self) -> nn.Module:
        return self.made

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets)

    @property
    def batch(self) -> Any:
        return self.x, torch.arange(len(self.x)) % 2


def made(x: Any, model: nn.Module, **changes: Any) -> tuple[Masked, Training, str]:
    """Return a strategy on a model, and the line on it."""
    task, settings = Own(x, model), config({"strategies": [{**MASKED, **changes}]})
    strategy = Masked(settings.strategies[0], "strategies.0", Path())  # type: ignore[arg-type]  # one of several kinds
    training = Training(task, model, settings, Path(), lambda _model: task.model(), lambda _count: task.batch)
    strategy.adapt(training, ())
    return strategy, training, strategy.begin(training)


def term(strategy: Masked, training: Training, batch: Any) -> Tensor:
    torch.manual_seed(8)
    return strategy.term(MicroBatch(batch, None, None))


# --- images -----------------------------------------------------------------------------------------


def test_patches_are_hidden_whole_by_the_mean_of_their_image():
    x = torch.randint(0, 256, (200, 3, 8, 10), generator=DRAWS, dtype=torch.uint8)
    given, is_hidden = Patches(0.6, 4, (3, 8, 10)).hide(x)
    assert torch.equal(given[~is_hidden.expand_as(x)], x.float()[~is_hidden.expand_as(x)])
    mean = x.float().mean((2, 3), keepdim=True).expand_as(x)
    assert torch.equal(given[is_hidden.expand_as(x)], mean[is_hidden.expand_as(x)])
    assert float(is_hidden.float().mean()) == pytest.approx(0.6, abs=0.05)
    for rows, columns in ((slice(0, 4), slice(4, 8)), (slice(4, 8), slice(8, 10))):
        part = is_hidden[:, 0, rows, columns].flatten(1)
        assert torch.equal(part.any(1), part.all(1))


def hand(x: Tensor, told: Tensor, is_hidden: Tensor) -> float:
    """Return the mean absolute difference over the hidden pixels, in deviations of their channel."""
    target = (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), correction=0, keepdim=True)
    return float((told - target).abs()[is_hidden.expand_as(x)].mean())


@pytest.mark.parametrize("form", ["map", "places", "row"])
def test_the_loss_of_images_is_simmims_wherever_the_states_lie(form):
    x, told = (torch.rand(5, 2, 6, 4, generator=DRAWS) for _ in range(2))
    hiding = Patches(0.5, 2, (2, 6, 4))
    _, is_hidden = hiding.hide(x)
    # Parts of 2x2 pixels, 3 rows of 2: all numbers of a part come from one state.
    parts = torch.stack([told[:, :, 2 * r : 2 * r + 2, 2 * c : 2 * c + 2].flatten(1) for r in range(3) for c in range(2)], dim=1)
    shapes = {"map": parts.unflatten(1, (3, 2)), "places": parts, "row": told.flatten(1)}
    assert hiding.loss(shapes[form], x, is_hidden).item() == pytest.approx(hand(x, told, is_hidden), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "layer"),
    [
        ({"name": "cnn", "channels": [4, 8]}, "pool2"),
        ({"name": "resnet", "stages": 2, "width": 4, "stem": 1}, "blocks"),
        ({"name": "vit", "patch": 2, "width": 16, "depth": 1, "heads": 2}, "norm"),
        ({"name": "mlp"}, None),
    ],
)
def test_the_last_layer_with_places_tells_what_is_hidden(tmp_path, model, layer):
    task = opened(tmp_path, "image_classification", {"source": "sklearn:digits"}, model, patch=2)
    adapted = make_model(task)
    (said,) = task.strategies.begin(task.training(adapted))
    read = f"the outputs of {layer}" if layer else "the last layer's input"
    assert said == f"hides 60% of the patches of 2x2 pixels, and learns to predict them from {read}"
    assert_learns(task, adapted)


def opened(root: Path, kind: str, data: dict[str, Any], model: dict[str, Any], **strategy: Any) -> OpenTask:
    values = {
        "name": "hidden",
        "task": {"kind": kind},
        "data": data,
        "model": model,
        "metric": {"name": "loss", "mode": "min"},
        "batch_size": 32,
        "strategies": [{**MASKED, **strategy}],
    }
    return open_task(TrainingConfig.model_validate(values), root)


def assert_learns(task: OpenTask, model: nn.Module, steps: int = 60) -> None:
    """Let a model learn from the term alone: it falls, and every weight but the last layer's is reached."""
    batch: Any = task._first(64)
    (strategy,) = task.strategies._each
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = term(strategy, task.training(model), batch)  # type: ignore[arg-type]  # the one strategy
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    (probe,) = probes(model).values()
    untouched = {id(p) for p in probe.base_layer.parameters()}
    unreached = [name for name, p in model.named_parameters() if id(p) not in untouched and p.grad is None]
    assert not unreached


# --- tables -----------------------------------------------------------------------------------------


def test_the_loss_of_cells_is_that_of_numbers_and_of_categories_by_hand():
    x = torch.tensor([[1.0, 0, 7], [3.0, 2, 7], [8.0, -1, 7], [torch.nan, 1, 7]])
    is_hidden = torch.tensor([[True, True, True], [True, False, True], [False, True, True], [True, True, True]])
    told = torch.randn(4, 5, generator=DRAWS)  # two numbers, then three scores
    known = np.array([1.0, 3.0, 8.0])
    scaled = (known - known.mean()) / known.std()
    squares = [(float(told[row, 0]) - scaled[row]) ** 2 for row in (0, 1)]  # the third is not hidden, the fourth is missing
    scores = [-float(told[row, 2:].log_softmax(0)[code]) for row, code in ((0, 0), (3, 1))]  # the third has no category
    expected = np.mean([*squares, *scores])  # the last column is constant, and has no deviation
    assert Cells(0.3, [None, 3, None]).loss(told, x, is_hidden).item() == pytest.approx(expected, rel=1e-5)


def test_a_column_of_one_rounded_number_has_no_deviation():
    found, has_one = standardized(torch.full((7, 1), 0.1), (0,))
    assert not has_one.any()
    assert not found.any()


def test_a_tables_missing_cells_and_categories_are_known(tmp_path):
    draws = np.random.default_rng(0)
    rows = [f"{n % 9},{draws.choice(['red', 'green', 'blue'])},{'' if n % 5 == 0 else n % 4},{n % 2}" for n in range(120)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,colour,b,y", *rows]))
    data = {"source": "rows.csv", "target": "y", "columns": {"a": "number", "b": "number", "colour": "category"}}
    task = opened(tmp_path, "tabular_classification", data, {"name": "mlp", "hidden": [32, 32]})
    assert sorted(map(str, task.task.categories())) == ["3", "None", "None"]  # type: ignore[attr-defined]  # of tables
    model = make_model(task)
    (said,) = task.strategies.begin(task.training(model))
    assert said == "hides 30% of the cells, and learns to predict them from the last layer's input"
    assert_learns(task, model)


# --- texts ------------------------------------------------------------------------------------------


def test_a_hidden_token_is_read_as_the_vector_and_padding_is_never_hidden():
    model = nn.Sequential(nn.Embedding(20, 3, padding_idx=0))
    tokens = torch.randint(1, 20, (300, 6), generator=DRAWS)
    tokens[:, 4:] = 0
    hiding = Tokens(0.15, 6, "0", 20, 0)
    given, is_hidden = hiding.hide(tokens)
    assert given is tokens
    assert not is_hidden[:, 4:].any()
    assert float(is_hidden[:, :4].float().mean()) == pytest.approx(0.15, abs=0.03)
    vector = torch.tensor([1.0, 2.0, 3.0])
    with hiding.within(model, is_hidden, vector):
        read = model(tokens)
    assert torch.equal(read[is_hidden], vector.expand(int(is_hidden.sum()), 3))
    assert torch.equal(read[~is_hidden], model(tokens)[~is_hidden])


def test_the_loss_of_tokens_is_berts():
    tokens, told = torch.randint(0, 9, (4, 5), generator=DRAWS), torch.randn(4, 5, 9, generator=DRAWS)
    is_hidden = torch.rand(4, 5, generator=DRAWS) < 0.5
    expected = functional.cross_entropy(told[is_hidden], tokens[is_hidden])
    hiding = Tokens(0.15, 5, "0", 9, None)
    assert hiding.loss(told, tokens, is_hidden).item() == pytest.approx(expected.item(), rel=1e-5)
    assert hiding.loss(told, tokens, torch.zeros_like(is_hidden)).item() == 0


@pytest.mark.slow
@pytest.mark.parametrize("model", ["transformer", "gru"])
def test_texts_are_told_by_a_state_for_each_token(tmp_path, model):
    texts(tmp_path)
    data = {"source": "texts.csv", "target": "label"}
    task = opened(tmp_path, "text_classification", data, {"name": model}, share=0.3)
    adapted = make_model(task)
    (said,) = task.strategies.begin(task.training(adapted))
    assert said == "hides 30% of the tokens, and learns to predict them from the outputs of body.reader"
    assert_learns(task, adapted)


# --- the model --------------------------------------------------------------------------------------


def pictures() -> tuple[Tensor, nn.Module]:
    torch.manual_seed(1)
    body = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2))
    return torch.rand(6, 1, 8, 8, generator=DRAWS), nn.Sequential(
        body, nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 2)
    )


def test_no_map_is_read_that_lies_before_other_weights_unless_it_is_named():
    assert made(*pictures())[2].endswith("from the last layer's input")
    assert made(*pictures(), layer="^0$")[2].endswith("from the outputs of 0")


def test_what_is_hidden_is_drawn_anew_and_the_same_again_at_its_address():
    strategy, training, _ = made(*pictures())
    batch = training.batch(6)
    one, again = term(strategy, training, batch).item(), term(strategy, training, batch).item()
    torch.manual_seed(9)
    assert one == again != strategy.term(MicroBatch(batch, None, None)).item()


def test_the_term_hides_what_it_asks_for():
    """A model that could copy its inputs gets nothing of what is hidden, and the pixels that are not do not count."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Flatten(), nn.Linear(64, 2))
    x = torch.rand(40, 1, 8, 8, generator=DRAWS)
    strategy, training, _ = made(x, model, share=0.5, patch=1)
    (probe,) = probes(training.model).values()
    with torch.no_grad():
        for layer in (model[0], probe.beside.layer):  # type: ignore[union-attr]  # of a decoder
            layer.weight.fill_(1.0)  # type: ignore[union-attr, operator]  # of a layer
            layer.bias.zero_()  # type: ignore[union-attr, operator]
    torch.manual_seed(8)
    given, is_hidden = Patches(0.5, 1, (1, 8, 8)).hide(x)
    found = term(strategy, training, training.batch(6)).item()
    assert found == pytest.approx(hand(x, given, is_hidden), rel=1e-4)


def test_what_tells_the_hidden_part_is_not_delivered():
    strategy, training, _ = made(*pictures())
    own = pictures()[1].state_dict()
    assert strategy.plain(training.model).keys() == own.keys()
    strategy.release(training.model)
    assert training.model.state_dict().keys() == own.keys()


@pytest.mark.slow
def test_features_learned_without_labels_begin_another_training(tmp_path):
    keys: dict[str, Any] = {"data": {"source": "sklearn:digits"}, "model": {"name": "mlp", "hidden": [32]}, "epochs": 1}
    kind, quiet = {"kind": "image_classification"}, {"tell": lambda _event: None}
    first = mltrainer.fit(kind, **keys, strategies=[{**MASKED, "patch": 2}], **quiet)
    assert first.metrics.keys() >= {"knn_accuracy", "feature_spread", "accuracy"}
    assert not [name for name in first.model.state_dict() if "beside" in name or "base_layer" in name]
    torch.save(first.model.state_dict(), tmp_path / "learned.pt")
    start = {"weights": str(tmp_path / "learned.pt"), "replace_head": True, "freeze": ["hidden1"]}
    second = mltrainer.fit(kind, **keys, start=start, **quiet)
    for name, tensor in second.model.state_dict().items():
        assert torch.equal(tensor, first.model.state_dict()[name]) is ("output" not in name)


# --- what is refused --------------------------------------------------------------------------------


def test_models_and_inputs_without_what_is_needed_are_refused():
    tokens = torch.randint(0, 9, (4, 5))
    pooled = nn.Sequential(nn.EmbeddingBag(9, 6), nn.Linear(6, 2))
    with pytest.raises(InputError, match=r"begins with int64 \[4, 5\], of which no part can be hidden"):
        made(tokens, pooled)
    flat = nn.Sequential(nn.Embedding(9, 6), nn.Flatten(), nn.Linear(30, 8), nn.ReLU(), nn.Linear(8, 2))
    with pytest.raises(InputError, match="no layer right before the last one gives a state for each token"):
        made(tokens, flat)
    with pytest.raises(InputError, match="no layer whose name matches '3' gives a map"):
        made(*pictures(), layer="3")
    with pytest.raises(InputError, match="only images have patches"):
        made(torch.rand(4, 5), nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 2)), patch=2)


def test_settings_stand_within_their_bounds():
    for wrong in ({"share": 1}, {"share": 0}, {"patch": 0}):
        with pytest.raises(ValueError, match=r"less than|greater than"):
            Settings.model_validate({**MASKED, **wrong})
    assert math.isclose(strategies_of(config({"strategies": [{**MASKED, "weight": 0.8}]}), Path())._left, 0.2)
