"""Attacks on inputs and embeddings beside foolbox and arithmetic by hand, and what is refused."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import mltrainer
from mltrainer.companions.strategies.adversarial import Adversarial, Inputs
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from mltrainer.tasks.opening import OpenTask, open_task
from mltrainer.tasks.strategies import Strategies
from mltrainer.tasks.strategy import MicroBatch, Training
from tests.toys import Toy, Wired
from tests.trainers.native.digits_runs import config

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of scipy's, by a module of it that no attack here uses
    import foolbox

EPSILON, STEPS = 0.15, 7
DRAWS = torch.Generator().manual_seed(3)
X, Y = torch.rand(40, 1, 6, 6, generator=DRAWS), torch.randint(4, (40,), generator=DRAWS)


class Pictures(mltrainer.Task):
    """Small pictures into classes."""

    def model(self) -> nn.Module:
        torch.manual_seed(1)
        features = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.4), nn.Flatten())
        return nn.Sequential(features, nn.Linear(96, 4))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets)


def tokens() -> Toy:
    """Token ids into classes, by the mean of their embeddings."""

    def model() -> nn.Module:
        torch.manual_seed(1)
        parts = {"codes": nn.Embedding(20, 5), "head": nn.Linear(5, 3)}
        return Wired(lambda model, ids: model.head(model.codes(ids).mean(1).tanh()), **parts)

    return Toy(model=model, loss=functional.cross_entropy)


def made(task: Any = None, model: nn.Module | None = None, **changes: Any) -> tuple[Adversarial, Training]:
    values = {"name": "adversarial", "epsilon": EPSILON, "steps": STEPS, "limits": [0, 1], **changes}
    settings = config({"strategies": [{k: v for k, v in values.items() if v is not None}]})
    task = task or Pictures()
    training = Training(
        task, task.model() if model is None else model, settings, Path(), lambda _model: task.model(), lambda _count: None
    )
    strategy = Adversarial(settings.strategies[0], "strategies.0", Path())  # type: ignore[arg-type]  # one of several kinds
    strategy.begin(training)
    return strategy, training


def theirs(model: nn.Module, attack: Any, **options: Any) -> Tensor:
    """Return the inputs that foolbox moved."""
    wrapped = foolbox.PyTorchModel(copy.deepcopy(model).eval(), bounds=(0, 1), device="cpu")
    _, moved, _ = attack(**options)(wrapped, X, foolbox.criteria.Misclassification(Y), epsilons=EPSILON)
    return torch.as_tensor(moved)


def distance(outputs: Tensor, given: Tensor) -> Tensor:
    return functional.kl_div(functional.log_softmax(outputs, 1), given, reduction="batchmean")


# --- the attack -------------------------------------------------------------------------------------


def test_steps_from_the_given_inputs_end_where_those_of_foolbox_end():
    strategy, training = made()
    attack = strategy._attack
    moved = attack.climb((X, Y), STEPS, 0.4, attack.zeros((X, Y)), training.task.loss)
    options = {"abs_stepsize": 0.4 * EPSILON, "steps": STEPS, "random_start": False}
    expected = theirs(training.model, foolbox.attacks.LinfPGD, **options)
    torch.testing.assert_close((X + EPSILON * moved).clamp(0, 1), expected, rtol=0, atol=1e-5)


def test_fgsm_is_foolboxs():
    strategy, training = made(method="fgsm")
    moved = strategy._moved((X, Y))
    expected = theirs(training.model, foolbox.attacks.LinfFastGradientAttack, random_start=False)
    torch.testing.assert_close((X + EPSILON * moved).clamp(0, 1), expected, rtol=0, atol=1e-5)


def test_robust_outputs_are_those_of_inputs_within_the_bound_and_about_as_wrong_as_under_foolboxs_attack():
    strategy, training = made(steps=20)
    training.model.eval()
    torch.manual_seed(4)
    with torch.no_grad():
        outputs, targets = strategy.views(training)["robust"]((X, Y))
        given = training.model(X)
    assert torch.equal(targets, Y)
    moved = theirs(training.model, foolbox.attacks.LinfPGD, abs_stepsize=2.5 / 20 * EPSILON, steps=20, random_start=True)
    with torch.no_grad():
        expected = functional.cross_entropy(training.model(moved), Y)
    found = functional.cross_entropy(outputs, Y)
    assert found > 1.05 * functional.cross_entropy(given, Y)
    assert found == pytest.approx(float(expected), rel=0.02)


def test_an_attack_leaves_modes_statistics_and_gradients_as_they_were():
    strategy, training = made()
    model, norm = training.model.train(), training.model[0][1]  # type: ignore[index]  # a Sequential
    before = copy.deepcopy(model.state_dict())
    for is_held in (False, True):
        norm.train(not is_held)
        strategy._moved((X, Y))
        assert (model.training, norm.training) == (True, not is_held)
        assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
        assert all(p.grad is None for p in model.parameters())


# --- the loss ---------------------------------------------------------------------------------------


def test_the_term_of_pgd_is_the_loss_of_the_moved_inputs_in_training_mode():
    strategy, training = made()
    training.model.train()
    before = copy.deepcopy(training.model.state_dict())
    torch.manual_seed(8)
    term = strategy.term(MicroBatch((X, Y), training.model(X), Y))
    training.model.load_state_dict(before)  # whose statistics the attack reads
    torch.manual_seed(8)
    training.model(X)
    moved = strategy._moved((X, Y))
    expected = functional.cross_entropy(training.model((X + EPSILON * moved).clamp(0, 1)), Y)
    assert term.item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_term_of_trades_is_the_distance_from_what_the_given_inputs_are_told_as():
    strategy, training = made(method="trades")
    model = training.model.eval()  # no dropout, so that one forward pass is as another
    torch.manual_seed(8)
    term = strategy.term(MicroBatch((X, Y), model(X), Y))
    torch.manual_seed(8)
    moved = strategy._moved((X, Y))
    given, seen = (functional.softmax(model(x), 1) for x in (X, (X + EPSILON * moved).clamp(0, 1)))
    assert term.item() == pytest.approx((given * (given.log() - seen.log())).sum(1).mean().item(), rel=1e-4)
    assert term.requires_grad


@pytest.mark.parametrize(("changes", "beta"), [({}, 6.0), ({"beta": 2.5}, 2.5)], ids=["default", "given"])
def test_the_loss_of_trades_is_that_of_the_given_inputs_and_beta_times_the_distance(changes, beta):
    strategy, training = made(method="trades", **changes)
    model = training.model.eval()
    joined = Strategies([strategy])
    joined.begin(training)
    joined.address = 8
    objective, reported = joined.join(training.task.loss(model(X), Y), MicroBatch((X, Y), model(X), Y))
    seeds.seed_everything(8)
    moved = strategy._moved((X, Y))
    given, seen = (functional.softmax(model(x), 1) for x in (X, (X + EPSILON * moved).clamp(0, 1)))
    natural, far = functional.cross_entropy(model(X), Y), (given * (given.log() - seen.log())).sum(1).mean()
    assert objective.item() == pytest.approx((natural + beta * far).item(), rel=1e-4)
    assert reported.tolist() == pytest.approx([objective.item(), natural.item(), far.item()], rel=1e-4)


def test_trades_with_its_default_learns_the_labels():
    draws = torch.Generator().manual_seed(5)
    x = torch.rand(256, 1, 6, 6, generator=draws)
    y = (x.flatten(1)[:, :18].mean(1) > x.flatten(1)[:, 18:].mean(1)).long()  # the brighter half, of which the bound hides little
    strategy, training = made(method="trades", epsilon=0.02, steps=3)
    joined, model = Strategies([strategy]), training.model.train()
    joined.begin(training)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for step in range(60):
        joined.address = step
        outputs = model(x)
        objective, _ = joined.join(functional.cross_entropy(outputs, y), MicroBatch((x, y), outputs, y))
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()
    accuracy = (model.eval()(x).argmax(1) == y).float().mean()
    assert accuracy > 0.8


def test_trades_moves_inputs_further_from_what_they_were_told_as_than_chance_does():
    strategy, training = made(method="trades", steps=10)
    model = training.model.eval()
    with torch.no_grad():
        given = functional.softmax(model(X), 1)
        attacked, random = (X + EPSILON * strategy._moved((X, Y)), X + EPSILON * torch.empty_like(X).uniform_(-1, 1).sign())
        far, near = (distance(model(x.clamp(0, 1)), given).item() for x in (attacked, random))
    assert far > 2 * near


# --- what is moved ----------------------------------------------------------------------------------


PLAIN: dict[str, Any] = {"name": "mlp", "hidden": [8]}
TABLE: dict[str, Any] = {"name": "tabular_mlp", "hidden": [8], "codes": True}


def opened(root: Path, rows: str, kind: str, model: dict[str, Any] = PLAIN, **strategy: Any) -> OpenTask:
    (root / "rows.csv").write_text(rows)
    values = {
        "name": "table",
        "task": {"kind": kind},
        "data": {"source": "rows.csv", "target": "y"},
        "model": model,
        "metric": {"name": "loss", "mode": "min"},
        "batch_size": 8,
        "strategies": [{"name": "adversarial", "epsilon": 0.5, "steps": 3, **strategy}],
    }
    return open_task(TrainingConfig.model_validate(values), root)


def rows() -> str:
    draws = np.random.default_rng(0)
    lines = [f"{draws.normal():.4f},{'rgb'[n % 3]},{10 * draws.normal():.4f},{n % 2}" for n in range(200)]
    return "\n".join(["a,colour,b,y", *lines])


def bound(task: OpenTask) -> Inputs:
    strategies = task.strategies
    model = task.task.model()
    task.strategies.begin(task.training(model))
    place = strategies._each[0]._attack.place  # type: ignore[attr-defined]  # of this strategy
    assert isinstance(place, Inputs)
    return place


def test_numbers_of_a_table_are_moved_in_deviations_and_categories_are_not(tmp_path):
    task = opened(tmp_path, rows(), "tabular_classification")
    x = task.split("train").tensors[0]  # type: ignore[index]  # in memory
    deviations = x.double().std(0, correction=0).tolist()
    moved = bound(task).bound
    assert moved.tolist() == pytest.approx([0.5 * deviations[0], 0.0, 0.5 * deviations[2]], rel=1e-4)


def test_whole_numbers_that_have_vectors_of_their_own_are_not_moved_to_fractions(tmp_path):
    draws = np.random.default_rng(0)
    shops = [*range(30)] * 20
    effects = draws.permutation(30)
    lines = [f"{shop},{draws.normal():.4f},{effects[shop] % 2}" for shop in shops]
    task = opened(tmp_path, "\n".join(["shop,b,y", *lines]), "tabular_classification", model=TABLE)
    assert [value > 0 for value in bound(task).bound] == [False, True]
    with pytest.raises(InputError, match="there is no column of numbers 'shop'"):
        bound(opened(tmp_path, "\n".join(["shop,b,y", *lines]), "tabular_classification", model=TABLE, columns=["shop"]))


def test_columns_are_those_that_may_be_moved(tmp_path):
    assert [value > 0 for value in bound(opened(tmp_path, rows(), "tabular_classification", columns=["b"])).bound] == [0, 0, 1]
    with pytest.raises(InputError, match="there is no column of numbers 'colour'; there are a, b"):
        bound(opened(tmp_path, rows(), "tabular_classification", columns=["colour"]))


def test_embeddings_are_moved_by_their_deviation():
    strategy, training = made(tokens(), layer="codes", limits=None)
    ids, y = torch.arange(12).view(3, 4), torch.tensor([0, 1, 2])
    model: Any = training.model.eval()
    moved = strategy._attack.climb((ids, y), 1, 1.0, strategy._attack.zeros((ids, y)), training.task.loss)
    codes = model.codes(ids).detach().requires_grad_()
    (slope,) = torch.autograd.grad(functional.cross_entropy(model.head(codes.mean(1).tanh()), y), codes)
    assert torch.equal(moved, slope.sign())
    outputs, _ = strategy._attack.forward((ids, y), moved)
    expected = model.head((codes + moved * EPSILON * model.codes.weight.std()).mean(1).tanh())
    torch.testing.assert_close(outputs, expected)
    assert torch.equal(model(ids), model.head(model.codes(ids).mean(1).tanh()))  # nothing is left in its place


# --- what is refused --------------------------------------------------------------------------------


class Deaf(Pictures):
    """Computes outside torch."""

    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        return super().forward(model, (torch.from_numpy(batch[0].detach().numpy()), batch[1]))


def test_tokens_without_a_named_embedding_and_columns_that_are_none_are_refused():
    strategy, _ = made(tokens())
    with pytest.raises(InputError, match="begins with int64, such as tokens,"):
        strategy._moved((torch.arange(12).view(3, 4), torch.tensor([0, 1, 2])))
    with pytest.raises(InputError, match=r"no nn\.Embedding whose name matches 'nothing'"):
        made(tokens(), layer="nothing")
    with pytest.raises(InputError, match="this task has no columns"):
        made(columns=["a"])


def test_a_loss_that_does_not_depend_on_the_inputs_is_refused():
    strategy, training = made(Deaf())
    for parameter in training.model.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(InputError, match="no gradient by the model's inputs"):
        strategy._moved((X, Y))


def test_trades_of_numbers_is_refused():
    strategy, training = made(method="trades")
    with pytest.raises(InputError, match="trades compares scores of classes"):
        strategy.term(MicroBatch((X, Y), training.model(X)[:, :1], Y))


def test_inputs_beyond_the_limits_are_moved_no_further_than_the_bound():
    strategy, _ = made(limits=[0.4, 0.6])
    attack = strategy._attack
    moved = attack.pgd((X, Y), STEPS, 0.4)
    assert float(moved.abs().max()) <= 1 + 1e-6
    seen: list[Tensor] = []
    hook = attack.model.register_forward_pre_hook(lambda _module, given: seen.append(given[0]))
    attack.forward((X, Y), moved)
    hook.remove()
    assert float((seen[0] - X).abs().max()) <= EPSILON + 1e-6
    beyond = X.clamp(0.4, 0.6) != X
    assert bool((seen[0][beyond] - 0.5).abs().le((X[beyond] - 0.5).abs() + 1e-6).all())


def test_a_constant_column_and_limits_of_a_built_in_task(tmp_path):
    same = "\n".join(f"{line},{'k' if nr == 0 else 1}" for nr, line in enumerate(rows().splitlines()))
    assert bound(opened(tmp_path, same, "tabular_classification")).bound.tolist()[-1] == 0
    with pytest.raises(InputError, match="limits are for custom tasks"):
        bound(opened(tmp_path, rows(), "tabular_classification", limits=[0.0, 1.0]))


def test_inputs_that_nothing_depends_on_are_refused(tmp_path):
    only = "\n".join(["colour,y", *(f"{'rgb'[n % 3]},{n % 2}" for n in range(100))])
    task = opened(tmp_path, only, "tabular_classification")
    task.strategies.begin(task.training(task.task.model()))
    x, y = task.split("train").tensors  # type: ignore[misc]  # in memory
    with pytest.raises(InputError, match="no gradient by the model's inputs"):
        task.strategies._each[0]._moved((x[:8], y[:8]))  # type: ignore[attr-defined]  # of this strategy


def test_an_embedding_that_is_not_called_is_refused():
    strategy, training = made(tokens(), layer="codes", limits=None)
    training.model.forward = lambda ids: torch.zeros(len(ids), 3)  # type: ignore[assignment]  # calls nothing
    with pytest.raises(InputError, match="the embedding is not called"):
        strategy._moved((torch.arange(12).view(3, 4), torch.tensor([0, 1, 2])))
