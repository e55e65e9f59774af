"""The first set: faults that other tools' own tests seed and the field's guides warn of, and healthy runs that look like them.

Sources of the faults: AutoTrainer (Zhang et al., 2021), DeepDiagnosis (Wardat et al., 2022), DeepFD (Cao et al., 2022),
TheDeepChecker (Braiek and Khomh, 2023), UMLAUT (Schoop et al., 2021), SageMaker Debugger's rules, Karpathy's recipe (2019),
Google's tuning playbook (2023), the logbooks of OPT and PaLM (2022).
"""

from __future__ import annotations

from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from torch import nn

from tests.benchmarks.diagnostics import data, models, tasks
from tests.benchmarks.diagnostics.case import Case, adam, by, faulty, healthy, hook, sgd
from tests.benchmarks.diagnostics.data import Parts, blobs, circles, diabetes, digits, friedman, moons, table
from tests.benchmarks.diagnostics.models import filled, perceptron
from tests.benchmarks.diagnostics.tasks import Classes, Given, InOrder, OneBadBatch, Two, TwoByProbability, Values, Waiting

DIGITS_STEPS = 22  # steps of an epoch of digits in batches of 64


def deep_sigmoid(inputs: int, depth: int, outputs: int) -> nn.Module:
    return filled(perceptron([inputs, *[5] * depth, outputs], nn.Sigmoid), models.he_uniform)


def small() -> nn.Module:
    """Return the network that most cases train on digits."""
    return perceptron([64, 64, 64, 10])


def of_digits(model: tasks.Make = small, **loss: tasks.Loss) -> Given:
    return Classes(digits, model, **loss)


def noisy_digits() -> Parts:
    parts = digits()
    train, validation = (data.wrong_targets(0.4, seed) for seed in (0, 1))
    return Parts(train(*parts.train), validation(*parts.validation))


def few_digits_with_noise() -> Parts:
    parts = digits()
    train, validation = (data.with_noise_columns(200, seed) for seed in (1, 2))
    return Parts(data.first_rows(120)(*train(*parts.train)), validation(*parts.validation))


UNLEARNED = "STALL UNDERFIT CONST_PRED"  # what else is true of a model that has learned nothing
ONE_INPUT = "LEAKAGE"  # of data whose classes are made of the sign of one input: it does tell them

FAULTY = [
    faulty(
        *("F01", "ten sigmoid layers of five units, circles", "VANISHING", f"{UNLEARNED} LR_LOW"),
        lambda: Two(circles, lambda: deep_sigmoid(2, 10, 1)),
        by(adam(1e-3), 60, batch_size=128),
    ),
    faulty(
        *("F02", "twelve sigmoid layers of five units, blobs", "VANISHING", f"SATURATION {UNLEARNED} LR_LOW"),
        lambda: Classes(blobs, lambda: deep_sigmoid(2, 12, 3)),
        by(sgd(0.01), 60, batch_size=128),
    ),
    faulty(
        *("F03", "exponential activations", "NAN_LOSS", f"EXPLODING {UNLEARNED} DIVERGE INPUT_SCALE BAD_INIT LR_HIGH"),
        lambda: Two(lambda: circles(3.0), lambda: filled(perceptron([2, *[5] * 9, 1], models.Exponential), models.he_uniform)),
        by(adam(1e-3), 20, batch_size=128),
    ),
    faulty(
        *(
            "F04",
            "positive weights on negative inputs",
            "DYING_RELU",
            f"{UNLEARNED} VANISHING DEAD_LAYER LR_LOW BAD_INIT {ONE_INPUT}",
        ),
        lambda: Classes(
            data.negative_inputs, lambda: filled(perceptron([4, *[16] * 4, 2]), lambda w: nn.init.uniform_(w, 0.0, 0.5))
        ),
        by(adam(1e-3), 30),
    ),
    faulty(
        *("F05", "steps so large that units die", "DYING_RELU"),
        f"{UNLEARNED} LR_HIGH EXPLODING VANISHING DEAD_LAYER LOSS_SPIKE DIVERGE OSCILLATING LR_LOW",
        lambda: of_digits(lambda: perceptron([64, 64, 64, 64, 10])),
        by(sgd(8.0), 30),
    ),
    faulty(
        *("F06", "batches of one row, momentum", "OSCILLATING"),
        f"{UNLEARNED} LR_HIGH EXPLODING INPUT_SCALE LOSS_SPIKE DYING_RELU OVERFIT BAD_INIT",
        lambda: Classes(blobs, lambda: filled(perceptron([2, 50, 3]), models.he_uniform)),
        by(sgd(0.01, 0.9), 40, batch_size=1),
    ),
    faulty(
        *("F07", "learning rate 1 for Adam", "LR_HIGH"),
        f"{UNLEARNED} OSCILLATING DYING_RELU EXPLODING DIVERGE LOSS_SPIKE VANISHING DEAD_LAYER",
        of_digits,
        by(adam(1.0), 30),
    ),
    faulty(
        *("F08", "learning rate 1e-6 for Adam", "LR_LOW", f"{UNLEARNED} UNDERTRAINED"),
        of_digits,
        by(adam(1e-6), 30),
    ),
    faulty(
        *("F09", "learning rate 1e-12", "LR_LOW", f"{UNLEARNED} DEAD_LAYER"),
        of_digits,
        by(sgd(1e-12), 20),
    ),
    faulty(
        *("F10", "learning rate 8, a regression", "NAN_LOSS", f"LR_HIGH EXPLODING DIVERGE LOSS_SPIKE {UNLEARNED}"),
        lambda: Values(diabetes, lambda: perceptron([10, 64, 64, 1])),
        by(sgd(8.0), 15),
    ),
    faulty(
        *("F11", "pixels up to 3000", "INPUT_SCALE EXPLODING"),
        f"{UNLEARNED} OSCILLATING LR_HIGH NAN_LOSS DYING_RELU BAD_INIT LOSS_SPIKE VANISHING DEAD_LAYER OVERFIT",
        lambda: Classes(lambda: digits(3000.0), small),
        by(sgd(0.05), 30),
    ),
    faulty(
        *("F12", "pixels divided twice", "INPUT_SCALE", f"{UNLEARNED} LR_LOW UNDERTRAINED"),
        lambda: Classes(lambda: digits(1 / 4096), small),
        by(sgd(0.05), 30),
    ),
    faulty(
        *("F13", "gradients of the wrong sign", "DIVERGE"),
        f"{UNLEARNED} EXPLODING NAN_LOSS LR_HIGH LOSS_SPIKE VANISHING OSCILLATING DYING_RELU",
        lambda: of_digits(lambda: models.ascending(small())),
        by(sgd(0.05), 20),
    ),
    faulty(
        *("F14", "a ReLU at the end", "OUT_ACT", f"{UNLEARNED} DYING_RELU VANISHING LR_LOW UNDERTRAINED DEAD_LAYER"),
        lambda: Classes(blobs, lambda: perceptron([2, *[50] * 4, 3], last=nn.ReLU())),
        by(adam(1e-4), 40, batch_size=256),
    ),
    faulty(
        *("F15", "a softmax before the cross-entropy", "OUT_ACT", "STALL UNDERFIT VANISHING"),
        lambda: of_digits(lambda: perceptron([64, 64, 64, 10], last=nn.Softmax(1))),
        by(adam(1e-3), 40),
    ),
    faulty(
        *("F16", "a softmax over one unit", "CONST_PRED", "OUT_ACT STALL UNDERFIT VANISHING DEAD_LAYER LR_LOW BAD_INIT"),
        lambda: TwoByProbability(circles, lambda: perceptron([2, 16, 16, 1], last=nn.Softmax(1))),
        by(adam(1e-3), 20),
    ),
    faulty(
        *("F17", "all weights 0.01", "SYMMETRY", f"{UNLEARNED} VANISHING LR_LOW OSCILLATING"),
        lambda: of_digits(lambda: filled(small(), lambda w: nn.init.constant_(w, 0.01))),
        by(sgd(0.05), 30),
    ),
    faulty(
        *("F18", "all weights 0", "DEAD_LAYER SYMMETRY", f"{UNLEARNED} VANISHING LR_LOW DYING_RELU"),
        lambda: of_digits(lambda: filled(small(), nn.init.zeros_)),
        by(adam(1e-3), 20),
    ),
    faulty(
        *("F19", "weights of deviation 1", "BAD_INIT"),
        "EXPLODING LR_HIGH LOSS_SPIKE OVERFIT OSCILLATING STALL DYING_RELU UNDERTRAINED LR_LOW UNDERFIT",
        lambda: of_digits(lambda: filled(perceptron([64, 128, 128, 10]), models.normal(1.0))),
        by(adam(1e-3), 30),
    ),
    faulty(
        *("F20", "weights of deviation 0.001", "VANISHING", f"DYING_RELU {UNLEARNED} LR_LOW"),
        lambda: of_digits(lambda: filled(perceptron([64, *[64] * 5, 10]), models.normal(1e-3))),
        by(sgd(0.05), 30),
    ),
    faulty(
        *("F21", "targets of other rows", "LABEL_NOISE", f"OVERFIT {UNLEARNED} UNDERTRAINED"),
        lambda: Classes(lambda: digits().in_training(data.shuffled_targets), lambda: perceptron([64, 256, 256, 10])),
        by(adam(1e-3), 60),
    ),
    faulty(
        *("F22", "40 % wrong targets", "LABEL_NOISE", "OVERFIT STALL UNDERTRAINED UNDERFIT"),
        lambda: Classes(noisy_digits, lambda: perceptron([64, 256, 256, 10])),
        by(adam(1e-3), 60),
    ),
    faulty(
        *("F23", "errors summed, not averaged", "EXPLODING"),
        f"{UNLEARNED} LR_HIGH NAN_LOSS DIVERGE DYING_RELU LOSS_SPIKE BAD_INIT OSCILLATING VANISHING DEAD_LAYER LOSS_SCALE",
        lambda: Values(diabetes, lambda: perceptron([10, 64, 64, 1]), tasks.squares_summed),
        by(sgd(0.05), 20),
    ),
    faulty(
        *("F24", "every output compared with every target", "BROADCAST", f"{UNLEARNED} VANISHING UNDERTRAINED"),
        lambda: Values(lambda: friedman().each(data.flat_targets), lambda: perceptron([10, 64, 1]), tasks.broadcast_loss),
        by(adam(1e-3), 30),
    ),
    faulty(
        *("F25", "a loss of probabilities for quantities", "NEG_LOSS"),
        f"{UNLEARNED} EXPLODING DIVERGE LOSS_SPIKE OUT_ACT OVERFIT BAD_INIT",
        lambda: Values(lambda: diabetes(False), lambda: perceptron([10, 32, 1]), tasks.logistic_loss),
        by(adam(1e-3), 20),
    ),
    faulty(
        *("F26", "one class in fifty", "IMBALANCE", f"{UNLEARNED} OVERFIT VANISHING DYING_RELU"),
        lambda: Classes(lambda: moons(0.5, 3000).each(data.rarer(0.02)), lambda: perceptron([2, 16, 2])),
        by(adam(1e-3), 30),
    ),
    faulty(
        *("F27", "weight decay 1", "UNDERFIT", "STALL CONST_PRED VANISHING LR_LOW DEAD_LAYER DYING_RELU OVER_REG"),
        of_digits,
        by(adam(1e-3, decay=1.0), 30),
    ),
    faulty(
        *("F28", "120 rows, 200 columns of noise", "OVERFIT", "STALL"),
        lambda: Classes(few_digits_with_noise, lambda: perceptron([264, 256, 256, 10])),
        by(adam(1e-3), 60),
    ),
    faulty(
        *("F29", "the target among the inputs", "LEAKAGE", ""),
        lambda: Classes(lambda: digits().each(data.with_target), lambda: perceptron([65, 64, 10])),
        by(adam(3e-3), 30),
    ),
    faulty(
        *("F30", "validation rows in training", "LEAKAGE", ""),
        lambda: Classes(lambda: data.with_validation_rows(digits()), lambda: perceptron([64, 64, 10])),
        by(adam(1e-3), 30),
    ),
    faulty(
        *("F31", "gradients never set to zero", "ZERO_GRAD"),
        f"{UNLEARNED} OSCILLATING EXPLODING LR_HIGH LOSS_SPIKE DIVERGE DYING_RELU DEAD_LAYER VANISHING NAN_LOSS",
        lambda: of_digits(lambda: models.piling(small())),
        by(sgd(0.05), 30),
    ),
    faulty(
        *("F32", "an optimizer of the last layer alone", "FROZEN", f"ZERO_GRAD OSCILLATING {UNLEARNED} UNDERTRAINED LR_LOW"),
        of_digits,
        by(sgd(0.05), 20, callbacks=hook("Forgetting", prefix="4.")),
    ),
    faulty(
        *("F33", "the lower half detached", "DEAD_LAYER", "FROZEN UNDERTRAINED STALL UNDERFIT VANISHING"),
        lambda: of_digits(models.Detached),
        by(adam(1e-3), 30),
    ),
    faulty(
        *("F34", "a recurrent matrix of gain 1.9 over 100 steps", "EXPLODING"),
        f"NAN_LOSS LR_HIGH {UNLEARNED} OVERFIT LOSS_SPIKE OSCILLATING DIVERGE BAD_INIT {ONE_INPUT}",
        lambda: Classes(data.long_sequences, lambda: models.simple_rnn("relu", 1.9)),
        by(adam(1e-3), 20),
    ),
    faulty(
        *("F35", "a recurrent matrix of gain 0.5 over 100 steps", "UNDERFIT"),
        f"STALL VANISHING CONST_PRED OVERFIT LR_LOW OSCILLATING {ONE_INPUT}",
        lambda: Classes(data.long_sequences, lambda: models.simple_rnn("tanh", 0.5)),
        by(sgd(0.05), 30),
    ),
    faulty(
        *("F36", "the logarithm of a probability of 0", "NAN_LOSS"),
        f"DYING_RELU LR_HIGH EXPLODING LOSS_SPIKE {UNLEARNED} OUT_ACT DIVERGE BAD_INIT INPUT_SCALE",
        lambda: Classes(lambda: digits(30.0), lambda: perceptron([64, 64, 10], last=nn.Softmax(1)), loss=tasks.likelihood_loss),
        by(sgd(0.5), 15),
    ),
    faulty(
        *("F37", "a pixel that is NaN", "NAN_LOSS DATA_NAN", UNLEARNED),
        lambda: Classes(lambda: digits().in_training(data.with_a_gap), lambda: perceptron([64, 64, 10])),
        by(adam(1e-3), 10),
    ),
    faulty(
        *("F38", "one batch a hundred times too large", "LOSS_SPIKE", "OSCILLATING EXPLODING DYING_RELU DIVERGE"),
        lambda: OneBadBatch(digits, small, bad_step=12 * DIGITS_STEPS + 4),
        by(sgd(0.05), 25),
    ),
    faulty(
        *("F39", "the learning rate times 300 after ten epochs", "LOSS_SPIKE"),
        f"LR_HIGH EXPLODING OSCILLATING {UNLEARNED} DYING_RELU DIVERGE VANISHING DEAD_LAYER",
        of_digits,
        by(sgd(0.05), 25, callbacks=hook("RateJump", step=10 * DIGITS_STEPS + 2, factor=300.0)),
    ),
    faulty(
        *("F40", "a stream sorted by class", "NO_SHUFFLE"),
        f"{UNLEARNED} DIVERGE OSCILLATING LOSS_SPIKE LR_HIGH OVERFIT EXPLODING DYING_RELU DEAD_LAYER PIPELINE",
        lambda: InOrder(lambda: digits().each(data.in_order_of_class), small),
        by(sgd(0.1, 0.9), 25, batch_size=32),
    ),
    faulty(
        *("F41", "dropout 0.9 in narrow layers", "UNDERFIT"),
        "DYING_RELU HIGH_DROPOUT STALL CONST_PRED OSCILLATING LR_LOW UNDERTRAINED",
        lambda: of_digits(lambda: perceptron([64, 32, 32, 32, 10], dropout=0.9)),
        by(adam(1e-3), 30),
    ),
    faulty(
        *("F42", "batch norm that evaluates with other statistics", "EVAL_MISMATCH"),
        f"EXPLODING LOSS_SPIKE OVERFIT {UNLEARNED}",
        lambda: of_digits(lambda: models.with_dead_statistics(perceptron([64, 64, 64, 10], norm=True))),
        by(adam(1e-3), 25),
    ),
    faulty(
        *("F43", "slow reading", "PIPELINE", ""),
        lambda: Waiting(digits, lambda: perceptron([64, 64, 10])),
        by(adam(1e-3), 8),
    ),
    faulty(
        *("F44", "a learning rate that fades too early", "STALL", "LR_LOW UNDERFIT UNDERTRAINED CONST_PRED"),
        of_digits,
        by(sgd(0.05), 30, schedule={"name": "exponential", "gamma": 0.2}),
    ),
    faulty(
        *("F45", "training pictures inverted", "OVERFIT", f"LABEL_NOISE {UNLEARNED} SHIFT EVAL_MISMATCH"),
        lambda: Classes(lambda: digits().in_training(data.inverted), small),
        by(adam(1e-3), 30),
    ),
    faulty(
        *("F46", "sigmoids on inputs of hundreds", "SATURATION"),
        f"INPUT_SCALE OVERFIT {UNLEARNED} VANISHING LR_LOW UNDERTRAINED",
        lambda: Classes(lambda: blobs(scale=50.0), lambda: perceptron([2, 32, 32, 3], nn.Sigmoid)),
        by(sgd(0.01), 30),
    ),
    faulty(
        *("F47", "too few epochs", "UNDERTRAINED", "UNDERFIT LR_LOW"),
        of_digits,
        by(sgd(0.05), 6),
    ),
    faulty(
        *("F48", "24 layers of ReLU", "VANISHING", f"{UNLEARNED} LR_LOW DYING_RELU DEAD_LAYER"),
        lambda: of_digits(lambda: perceptron([64, *[32] * 24, 10])),
        by(sgd(0.05), 30),
    ),
]

HEALTHY = [
    healthy("H01", "two hidden layers", of_digits, by(adam(1e-3), 30)),
    healthy("H02", "convolutions with batch norm", lambda: of_digits(models.convolutions), by(adam(1e-3), 12)),
    healthy("H03", "momentum", of_digits, by(sgd(0.05, 0.9), 30)),
    healthy(
        *("H04", "trained long past its best", lambda: of_digits(lambda: perceptron([64, 128, 128, 10]))),
        by(adam(3e-3), 100),
    ),
    healthy(
        *("H05", "clouds that overlap", lambda: Classes(blobs, lambda: perceptron([2, 32, 32, 3]))),
        by(adam(3e-3), 50),
    ),
    healthy(
        *("H06", "circles", lambda: Two(circles, lambda: perceptron([2, 32, 32, 1]))),
        by(adam(1e-2), 40),
    ),
    healthy(
        *("H07", "moons", lambda: Classes(lambda: moons(0.3), lambda: perceptron([2, 32, 32, 2]))),
        by(adam(3e-3), 40),
    ),
    healthy(
        *("H08", "112 irises", lambda: Classes(lambda: table(load_iris), lambda: perceptron([4, 16, 3]))),
        by(adam(1e-2), 40, batch_size=16),
    ),
    healthy(
        *("H09", "wine", lambda: Classes(lambda: table(load_wine), lambda: perceptron([13, 16, 3]))),
        by(adam(5e-3), 40, batch_size=16),
    ),
    healthy(
        *("H10", "a linear model of tumours", lambda: Classes(lambda: table(load_breast_cancer), lambda: perceptron([30, 2]))),
        by(adam(1e-2), 40),
    ),
    healthy(
        *("H11", "a noisy regression", lambda: Values(diabetes, lambda: perceptron([10, 16, 1]))),
        by(adam(1e-3, decay=1e-2), 18, batch_size=32),
    ),
    healthy(
        *("H12", "a regression on Friedman 1", lambda: Values(friedman, lambda: perceptron([10, 64, 64, 1]))),
        by(adam(3e-3), 50),
    ),
    healthy("H13", "an LSTM", lambda: of_digits(models.lstm), by(adam(3e-3), 25)),
    healthy("H14", "a transformer", lambda: of_digits(models.Attention), by(adam(1e-3), 30)),
    healthy("H15", "smoothed labels", lambda: of_digits(loss=tasks.smoothed_loss), by(adam(1e-3), 40)),
    healthy(
        *("H16", "dropout 0.5", lambda: of_digits(lambda: perceptron([64, 256, 256, 10], dropout=0.5))),
        by(adam(1e-3), 40),
    ),
    healthy(
        *("H17", "one class four times the other"),
        lambda: Classes(lambda: moons(0.2, 2000).each(data.rarer(0.25)), lambda: perceptron([2, 32, 32, 2])),
        by(adam(3e-3), 30),
    ),
    healthy(
        *("H18", "warm-up and a cosine to zero", of_digits),
        by(sgd(0.1, 0.9), 40, schedule={"name": "cosine", "warmup_epochs": 5}),
    ),
    healthy(
        *("H19", "batches of four rows", lambda: of_digits(lambda: perceptron([64, 64, 10]))),
        by(sgd(0.02), 15, batch_size=4),
    ),
    healthy("H20", "twenty residual blocks", lambda: of_digits(models.Residual), by(adam(5e-4), 15)),
    healthy(
        *("H21", "a regression of raw values", lambda: Values(lambda: diabetes(False), lambda: perceptron([10, 8, 1]))),
        by(adam(1e-1, decay=1e-2), 14, batch_size=32),
    ),
    healthy(
        *("H22", "an autoencoder"),
        lambda: Values(lambda: digits().each(data.to_itself), lambda: perceptron([64, 48, 24, 48, 64], nn.GELU)),
        by(adam(2e-3), 60),
    ),
    healthy(
        *("H23", "two layers of sigmoids", lambda: of_digits(lambda: perceptron([64, 64, 64, 10], nn.Sigmoid))),
        by(adam(5e-3), 40),
    ),
    healthy(
        *("H24", "clouds far apart", lambda: Classes(lambda: blobs(0.4, seed=3), lambda: perceptron([2, 32, 3]))),
        by(adam(1e-2), 25),
    ),
    healthy(
        *("H25", "an LSTM with clipped gradients", lambda: of_digits(models.lstm)),
        by(sgd(0.5, 0.9), 40, clip={"norm": 1.0}),
    ),
    healthy(
        *("H26", "wide layers that are mostly zero"),
        lambda: of_digits(lambda: filled(perceptron([64, 512, 512, 10]), nn.init.kaiming_normal_, bias=-0.5)),
        by(adam(1e-3), 25),
    ),
    healthy(
        *("H27", "one class nine times the other, weighted"),
        lambda: Classes(
            *(lambda: moons(0.2, 3000).each(data.rarer(0.11)), lambda: perceptron([2, 32, 32, 2])),
            loss=tasks.weighted_loss(1.0, 9.0),
        ),
        by(adam(3e-3), 30),
    ),
    healthy(
        *("H28", "all rows in one batch", lambda: of_digits(lambda: perceptron([64, 64, 10]))),
        by(adam(1e-2), 60, batch_size=1347),
    ),
    healthy(
        *("H29", "AdamW", of_digits),
        by({"name": "adamw", "lr": 2e-3, "weight_decay": 0.05}, 30),
    ),
    healthy(
        *("H30", "moons that overlap", lambda: Classes(lambda: moons(0.45, 2000), lambda: perceptron([2, 16, 2]))),
        by(adam(3e-3), 40),
    ),
]

CASES: list[Case] = [*FAULTY, *HEALTHY]
