"""Published faults, rebuilt: silent errors that TrainCheck was measured on, and the faults that DEFault seeds.

TrainCheck (Jiang et al., OSDI 2025, arXiv 2506.14813) names 18 errors of PyTorch programs and of the libraries below them; here
are those that a user's own task can still hold (P01 to P04). DEFault (Jahan et al., ICSE 2025, arXiv 2501.12560) seeds faults of
its published kinds into programs; here is one of each kind that does harm to a small network (P11 to P30), and two programs of
the benchmark by which it was measured, which is DeepFD's (Cao et al., ICSE 2022; P31 and P32). The data are others: digits, rings
and small sequences.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.benchmarks.diagnostics import models
from tests.benchmarks.diagnostics.case import adam, by, sgd
from tests.benchmarks.diagnostics.data import Parts, circles, digits
from tests.benchmarks.diagnostics.models import convolutions, filled, perceptron
from tests.benchmarks.diagnostics.pairs import pair
from tests.benchmarks.diagnostics.tasks import Classes, Given, Loss, Two

UNLEARNED = "STALL UNDERFIT CONST_PRED"
SLOW = f"{UNLEARNED} LR_LOW UNDERTRAINED"
BAD = f"{SLOW} VANISHING DEAD_LAYER DYING_RELU SATURATION BAD_INIT SYMMETRY"
WILD = "EXPLODING LR_HIGH OSCILLATING DIVERGE LOSS_SPIKE"


# --- silent errors of programs and libraries ------------------------------------------------------


class Normed(nn.Module):
    """Convolutions with batch norm; all but the norms can be frozen, as in a forum's program that learned nothing."""

    def __init__(self, frozen: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten()),
            nn.Linear(128, 10),
        )
        for module in self.layers:
            if frozen and not isinstance(module, nn.BatchNorm2d):
                module.requires_grad_(requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.layers(x)
        return answer


class Attending(nn.Module):
    """One attention over the rows of a digit; its dropout is given as a number, in evaluation too where it is wrong."""

    def __init__(self, always: bool) -> None:
        super().__init__()
        self.always = always
        self.embed, self.mixed, self.head = nn.Linear(8, 32), nn.Linear(32, 96), nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = self.mixed(self.embed(x.view(-1, 8, 8))).chunk(3, dim=2)
        share = 0.3 if self.always or self.training else 0.0
        answer: Tensor = self.head(functional.scaled_dot_product_attention(queries, keys, values, dropout_p=share).flatten(1))
        return answer


class Whole(nn.Module):
    """A perceptron that leaves autocast, so that a lower precision has no effect."""

    def __init__(self, leaves: bool) -> None:
        super().__init__()
        self.leaves, self.layers = leaves, perceptron([64, 64, 10])

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=not self.leaves, dtype=torch.bfloat16):
            answer: Tensor = self.layers(x)
        return answer


class Stages(nn.Module):
    """Its first stage is meant to be frozen, which is done where the model is put into training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.rest = nn.Sequential(nn.Linear(64, 64), nn.ReLU()), perceptron([64, 64, 10])

    def train(self, mode: bool = True) -> Stages:
        self.first.requires_grad_(requires_grad=False)
        super().train(mode)
        return self

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.rest(self.first(x))
        return answer


def of_digits(model: Callable[[], nn.Module], loss: Loss = functional.cross_entropy) -> Callable[[], Given]:
    return lambda: Classes(digits, model, loss)


def of_circles(model: Callable[[], nn.Module]) -> Callable[[], Given]:
    return lambda: Two(circles, model)


SILENT = [
    pair(
        *("P01", "all layers but the norms are frozen (PyTorch forum 84911)", ("FROZEN", SLOW)),
        of_digits(lambda: Normed(True)),
        by(adam(1e-3), 20),
        twin=of_digits(lambda: Normed(False)),
    ),
    pair(
        *("P02", "dropout of an attention in evaluation (Transformers 33844)", ("EVAL_DROPOUT", "EVAL_MISMATCH UNDERTRAINED")),
        of_digits(lambda: Attending(True)),
        by(adam(1e-3), 30),
        twin=of_digits(lambda: Attending(False)),
    ),
    pair(
        *("P03", "a lower precision without effect (Lightning Thunder 725)", ("PRECISION_UNUSED", "")),
        of_digits(lambda: Whole(True)),
        by(adam(1e-3), 30, precision="bf16"),
        twin=of_digits(lambda: Whole(False)),
    ),
    pair(
        *("P04", "gradients of earlier steps are kept (Stack Overflow 60335387)", ("ZERO_GRAD", f"{BAD} {WILD}")),
        of_digits(lambda: models.piling(perceptron([64, 64, 64, 10]))),
        by(adam(1e-3), 20),
        twin=of_digits(lambda: perceptron([64, 64, 64, 10])),
    ),
]
FROZEN_WHEN_TRAINING = pair(
    *("P05", "a stage frozen where training begins (mmpretrain 702)", ("NONE", "")),
    of_digits(Stages),
    by(adam(1e-3), 30),
).twin

# --- seeded faults --------------------------------------------------------------------------------


def one_hot(loss: Callable[[Tensor, Tensor], Tensor], probabilities: bool = False) -> Loss:
    """Return a loss of outputs, or of their softmax, and targets of which one number is 1."""

    def measure(outputs: Tensor, targets: Tensor) -> Tensor:
        wanted = functional.one_hot(targets, outputs.shape[1]).to(outputs.dtype)
        return loss(outputs.softmax(1) if probabilities else outputs, wanted)

    return measure


def poisson(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.poisson_nll_loss(outputs, targets, log_input=False, eps=0.0)


def divergence(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.kl_div(outputs, targets, reduction="batchmean")


def squared_hinge(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.relu(1 - outputs * targets).square().mean()


def absolute_share(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs - targets).abs() / targets.abs().clamp_min(1e-7)).mean() * 100


def pooled(kernel: int, filters: int = 16, pool: int = 2, stride: int = 1) -> nn.Sequential:
    """Return two convolutions with a pooling, of which kernel, filters, pooling and stride can be wrong."""
    layers = [nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, filters, kernel, stride=stride, padding=kernel // 2), nn.ReLU()]
    layers += [nn.MaxPool2d(pool), nn.Conv2d(filters, filters, kernel, padding=kernel // 2), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.LazyLinear(10))


def made(kernel: int = 3, filters: int = 16, pool: int = 2, stride: int = 1) -> Callable[[], nn.Module]:
    """Return a maker of convolutions whose last layer knows its size."""

    def make() -> nn.Module:
        model = pooled(kernel, filters, pool, stride)
        model(torch.zeros(1, 64))
        return model

    return make


PLAIN = of_digits(lambda: perceptron([64, 64, 64, 10]))
DEEP = of_digits(lambda: perceptron([64, *[32] * 6, 10]))
RINGS = of_circles(lambda: perceptron([2, 32, 32, 1]))
CONVOLUTIONS = of_digits(convolutions)
TRAINED = by(adam(1e-3), 30)

SEEDED = [
    pair(
        *("P11", "activation: linear in place of ReLU", ("UNDERFIT", f"{BAD} linear_model")),
        of_circles(lambda: perceptron([2, 32, 32, 1], nn.Identity)),
        by(adam(1e-2), 30),
        twin=RINGS,
    ),
    pair(
        *("P12", "activation: softmax in place of ReLU", ("VANISHING", f"{BAD} COLLAPSE OSCILLATING")),
        of_digits(lambda: perceptron([64, *[32] * 6, 10], lambda: nn.Softmax(1))),
        TRAINED,
        twin=DEEP,
    ),
    pair(
        *("P13", "activation: sigmoid in place of ReLU", ("VANISHING", BAD)),
        of_digits(lambda: perceptron([64, *[32] * 6, 10], nn.Sigmoid)),
        TRAINED,
        twin=DEEP,
    ),
    pair(
        *(
            "P14",
            "activation: exponential in place of ReLU",
            ("EXPLODING", f"{BAD} {WILD} NAN_LOSS"),
        ),
        of_digits(lambda: perceptron([64, *[32] * 6, 10], models.Exponential)),
        TRAINED,
        twin=DEEP,
    ),
    pair(
        *("P15", "activation: ReLU after the last layer", ("OUT_ACT", BAD)),
        of_digits(lambda: perceptron([64, 64, 64, 10], last=nn.ReLU())),
        by(adam(1e-2), 30),
        twin=PLAIN,
    ),
    pair(
        *("P16", "weights: ones", ("SYMMETRY", f"{BAD} {WILD}")),
        of_digits(lambda: filled(convolutions(), nn.init.ones_)),
        TRAINED,
        twin=CONVOLUTIONS,
    ),
    pair(
        *("P17", "weights: zeros", ("SYMMETRY", BAD)),
        of_digits(lambda: filled(perceptron([64, 64, 64, 10]), nn.init.zeros_)),
        TRAINED,
        twin=PLAIN,
    ),
    pair(
        *(
            "P18",
            "weights: normal of deviation 1",
            ("BAD_INIT", f"{BAD} {WILD} OVERFIT"),
        ),
        of_digits(lambda: filled(perceptron([64, *[128] * 4, 10]), models.normal(1.0))),
        TRAINED,
        twin=of_digits(lambda: perceptron([64, *[128] * 4, 10])),
    ),
    pair(
        *("P19", "loss: Poisson of raw outputs", ("NAN_LOSS", f"{BAD} {WILD} NEG_LOSS OUT_ACT")),
        of_digits(
            lambda: perceptron([64, 64, 64, 10]),
            one_hot(lambda o, t: functional.poisson_nll_loss(o, t, log_input=False, eps=0.0)),
        ),
        TRAINED,
        twin=PLAIN,
    ),
    pair(
        *("P20", "loss: divergence of outputs that are no logarithms", ("NEG_LOSS", f"{BAD} {WILD} OUT_ACT")),
        of_digits(lambda: perceptron([64, 64, 64, 10]), one_hot(divergence)),
        TRAINED,
        twin=PLAIN,
    ),
    pair(
        *("P21", "loss: percentage of targets that are 0", ("UNDERFIT", f"{BAD} {WILD}")),
        of_digits(lambda: perceptron([64, 64, 64, 10]), one_hot(absolute_share, probabilities=True)),
        TRAINED,
        twin=PLAIN,
    ),
    pair(
        *("P22", "loss: squared hinge of targets 0 and 1", ("UNDERFIT", f"{BAD} OSCILLATING loss_unlearnable")),
        of_digits(lambda: perceptron([64, 64, 64, 10]), one_hot(squared_hinge)),
        TRAINED,
        twin=PLAIN,
    ),
    pair(
        *("P23", "optimizer: SGD at Adam's learning rate", ("LR_LOW", f"{SLOW} VANISHING")),
        PLAIN,
        by(sgd(1e-3), 30),
        cured=TRAINED,
    ),
    pair(*("P24", "learning rate: near 0", ("LR_LOW", f"{SLOW} VANISHING DEAD_LAYER")), PLAIN, by(adam(1e-7), 30), cured=TRAINED),
    pair(
        *("P25", "epochs: 1", ("UNDERTRAINED", f"{SLOW} few_steps")),
        PLAIN,
        by(adam(1e-3), 1, evaluate={"every_n_steps": 4}),
        cured=TRAINED,
    ),
    pair(
        *("P26", "batch: 512", ("UNDERTRAINED", f"{SLOW} few_steps")),
        PLAIN,
        by(adam(1e-3), 5, batch_size=512),
        cured=by(adam(1e-3), 30, batch_size=32),
    ),
    pair(
        *("P27", "dropout: 0.95", ("UNDERFIT", f"{BAD} UNDERTRAINED units_dropped")),
        of_digits(lambda: perceptron([64, 64, 64, 10], dropout=0.95)),
        TRAINED,
        twin=of_digits(lambda: perceptron([64, 64, 64, 10], dropout=0.1)),
    ),
    pair(
        *("P28", "regularization: weight decay 1 inside the gradient", ("UNDERFIT", f"{BAD} weights_decayed")),
        PLAIN,
        by(adam(1e-3, 1.0), 30),
        cured=TRAINED,
    ),
    pair(
        *("P29", "layer: one unit in the middle", ("UNDERFIT", f"{BAD} COLLAPSE one_direction")),
        of_digits(lambda: perceptron([64, 64, 1, 10])),
        TRAINED,
        twin=PLAIN,
    ),
    pair(
        *("P30", "layer: stride 5 and pooling 2 of pictures of 8 pixels", ("UNDERFIT", BAD)),
        of_digits(made(kernel=1, stride=5)),
        TRAINED,
        twin=of_digits(made()),
    ),
]

# --- programs of a benchmark ----------------------------------------------------------------------


def either_or() -> Parts:
    """Return the four rows of an exclusive or to train on, and rows beside them to look at."""
    rows, classes = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]]), torch.tensor([0, 1, 1, 0])
    return Parts((rows, classes), (rows * 0.9 + 0.05, classes))


class Probability(Two):
    """Tells two classes apart by one probability, with a loss of quantities."""

    def __init__(self, model: Callable[[], nn.Module], loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__(either_or, model)
        self.measure = lambda outputs, targets: loss(outputs, targets.float()[:, None])

    def logits(self, outputs: Tensor) -> Tensor:
        return super().logits(torch.logit(outputs, eps=1e-6))


def gate() -> nn.Module:
    return perceptron([2, 4, 1], nn.Sigmoid, last=nn.Sigmoid())


PROGRAMS = [
    pair(
        *("P31", "exclusive or: absolute errors, rate 0.05, 1000 epochs (31556268)", ("LR_LOW", f"{SLOW} VANISHING OUT_ACT")),
        lambda: Probability(gate, functional.l1_loss),
        by(sgd(0.05, 0.11), 1000, batch_size=4, evaluate={"every_n_epochs": 50}),
        twin=lambda: Probability(gate, functional.mse_loss),
        cured=by(sgd(2.0, 0.9), 4000, batch_size=4, evaluate={"every_n_epochs": 200}),
    ),
    pair(
        *("P32", "a recurrent network that ends after two epochs (59282996)", ("UNDERTRAINED", SLOW)),
        of_digits(models.lstm),
        by(adam(1e-3), 2, evaluate={"every_n_steps": 8}),
        cured=by(adam(3e-3), 30),
    ),
]
PAIRS = [*SILENT, *SEEDED, *PROGRAMS]
CASES = [*(one.case for one in PAIRS), *(one.twin for one in PAIRS), FROZEN_WHEN_TRAINING]
