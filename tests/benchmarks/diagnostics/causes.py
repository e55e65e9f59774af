"""Faults whose cause config and record hold, five or more of each kind, each with a twin that lacks the fault alone.

The label of a case is the name of its cause, which must stand at something that fires. Of what else is said of these runs nothing
is judged; of a twin no cause may be told.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import lr_scheduler
from torch.utils.data import Dataset

from mltrainer.tasks.updating import Length, Scheduler, Updates
from tests.benchmarks.diagnostics.case import Case, adam, by, sgd
from tests.benchmarks.diagnostics.data import Parts, digits, friedman, shuffled_targets
from tests.benchmarks.diagnostics.judging import LABELS
from tests.benchmarks.diagnostics.models import Attention, convolutions, lstm, perceptron
from tests.benchmarks.diagnostics.pairs import Config, Maker, Reported, Splits
from tests.benchmarks.diagnostics.tasks import Classes, Loss, Make, Values
from tests.benchmarks.diagnostics.third_tokens import PAD, Language, filled_lines, topic_rows
from tests.benchmarks.diagnostics.third_tokens import Recurrent as Reading

SYMPTOMS = frozenset(LABELS.values())
plain: Make = functools.partial(perceptron, (64, 64, 10))
QUICK = by(adam(2e-3), 8)
cross = functional.cross_entropy


class Scheduled(Classes):
    """Makes its own optimizer and scheduler."""

    def __init__(self, make: Callable[[Any], Any], every: Any = "step") -> None:
        super().__init__(digits, plain)
        self.scheduler, self.every = make, every

    def updates(self, model: nn.Module, length: Length) -> Updates:
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        return Updates(optimizer, [Scheduler(self.scheduler(optimizer), self.every)])


OWN = by({"name": "own"}, 8, schedule={"name": "own"})


def of(schedule: dict[str, Any], epochs: int = 8) -> Config:
    return by(adam(2e-3), epochs, schedule=schedule)


def classes(loss: Loss = cross, model: Make = plain, data: Callable[[], Parts] = digits) -> Maker:
    return lambda: Classes(data, model, loss)


# --- losses ---------------------------------------------------------------------------------------


def over(loss: Loss, divisor: float | None) -> Loss:
    """Return a loss divided by a number, or by the number of its samples."""
    return lambda outputs, targets: loss(outputs, targets) / (divisor or len(outputs))


def against(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean binary cross-entropy of ten yes-or-no questions."""
    return functional.binary_cross_entropy_with_logits(outputs, functional.one_hot(targets, 10).float())


def by_hand(share: float) -> Loss:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        soft = (1 - share) * functional.one_hot(targets, 10).float() + share / 10
        return -(soft * outputs.log_softmax(1)).sum(1).mean()

    return loss


def kept(is_kept: Callable[[Tensor], Tensor]) -> Loss:
    """Return the cross-entropy of the samples or places whose targets are kept."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        rows, labels = outputs.flatten(0, -2), targets.flatten()
        losses = functional.cross_entropy(rows, labels.clamp(0), reduction="none")
        held = is_kept(labels).float()
        return (losses * held).sum() / held.sum().clamp(1)

    return loss


def padded_task(loss: Loss) -> Maker:
    """Return a language of filled sentences, whose metric counts all but the filling."""

    class Filled(Language):
        def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
            counted = targets != PAD
            return {"accuracy": float((outputs.argmax(-1) == targets)[counted].double().mean())}

    model = functools.partial(Reading, symbols=25, outputs=25)
    return lambda: Filled(functools.partial(filled_lines, True), model, loss=loss)


# --- models ---------------------------------------------------------------------------------------


def frozen(make: Make, *names: str) -> Make:
    def model() -> nn.Module:
        made = make()
        for name, parameter in made.named_parameters():
            parameter.requires_grad_(not name.startswith(names))
        return made

    return model


class Over(nn.Module):
    """A model with a change of what its first layers give.

    Args:
        change: Of [samples, 64].
        after: Whether it is the outputs that are changed.
    """

    def __init__(self, change: Callable[[Tensor], Tensor], after: bool = False) -> None:
        super().__init__()
        self.first, self.last, self.change, self.after = nn.Linear(64, 64), nn.Linear(64, 10), change, after

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).relu()
        answer: Tensor = self.change(self.last(hidden)) if self.after else self.last(self.change(hidden))
        return answer


class Rows(nn.Module):
    """Attention over the eight rows of a digit; one that takes the first dimension for the places looks at other digits."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.attend, self.head = nn.MultiheadAttention(8, 2, batch_first=batch_first), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.view(-1, 8, 8)
        answer: Tensor = self.head((rows + self.attend(rows, rows, rows)[0]).flatten(1))
        return answer


class Steps(nn.Module):
    """A recurrent network over the rows of a digit, whose state may go on from one digit to the next."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.cell, self.head = nn.GRU(8, 32, batch_first=batch_first), nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.cell(x.view(-1, 8, 8))[0].flatten(1))
        return answer


def dropping(share: float, kind: Callable[[float], nn.Module] = nn.Dropout) -> Make:
    return lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), kind(share), nn.Linear(64, 10))


class Dropped(Over):
    """Drops by a function."""

    def __init__(self, share: float) -> None:
        super().__init__(lambda x: functional.dropout(x, share, self.training))


class Pooling(nn.Module):
    """Tells the topic of a text by the pairs of its symbols."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.pairs, self.head = nn.Embedding(24, 24), nn.Conv1d(24, 48, 2), nn.Linear(48, 3)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.pairs(self.embed(x).transpose(1, 2)).relu().mean(2))
        return answer


# --- data -----------------------------------------------------------------------------------------


class Read(Dataset[tuple[Tensor, Tensor]]):
    """Rows of tensors, read one by one.

    Args:
        place: Of the row that stands at a place.
        alter: Changes inputs as they are read.
    """

    def __init__(
        self,
        rows: tuple[Tensor, Tensor],
        place: Callable[[int], int] = int,
        alter: Callable[[Tensor], Tensor] = Tensor.clone,
    ) -> None:
        self.rows, self.place, self.alter = rows, place, alter

    def __len__(self) -> int:
        return len(self.rows[1])

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        place = self.place(number)
        return self.alter(self.rows[0][place]), self.rows[1][place]


def read(model: Make = plain, **others: Any) -> Maker:
    """Return a task whose training rows are read one by one, with what differs."""

    class Listed(Reported):
        classes = 10

    parts = digits()
    return lambda: Listed(lambda: Splits(Read(parts.train, **others), Read(parts.validation)), model)


def repeating(rows: int) -> Maker:
    parts = digits()
    places = torch.arange(len(parts.train[1])) % rows
    return classes(data=lambda: Parts((parts.train[0][places], parts.train[1][places]), parts.validation))


def corner(x: Tensor) -> Tensor:
    """Return a part of two by two pixels, drawn anew, at the size of the whole."""
    top, left = (int(torch.randint(0, 7, ())) for _ in range(2))
    return x.view(8, 8)[top : top + 2, left : left + 2].repeat_interleave(4, 0).repeat_interleave(4, 1).flatten()


def shaken(x: Tensor) -> Tensor:
    return x[torch.randperm(64)]


def noisy(deviation: float) -> Callable[[Tensor], Tensor]:
    return lambda x: x + deviation * torch.randn_like(x)


def erased(share: float) -> Callable[[Tensor], Tensor]:
    return lambda x: x * (torch.rand(64) > share)


def turned(x: Tensor) -> Tensor:
    """Return the picture moved by a pixel at most, as a usual augmentation does."""
    return x.view(8, 8).roll(int(torch.randint(-1, 2, ())), 0).flatten()


class Shaking(nn.Module):
    """Alters its inputs in training by itself."""

    def __init__(self, alter: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.body, self.alter = plain(), alter

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.body(torch.stack([*map(self.alter, x)]) if self.training else x)
        return answer


def priced(change: Callable[[Tensor], Tensor], loss: Loss = functional.mse_loss) -> Maker:
    """Return a regression of which some training targets are changed."""
    return lambda: Values(lambda: friedman().in_training(lambda x, y: (x, change(y))), lambda: perceptron((10, 64, 1)), loss)


def far(count: int, value: float) -> Callable[[Tensor], Tensor]:
    def change(y: Tensor) -> Tensor:
        places = torch.arange(count) * (len(y) // count)
        return y.index_fill(0, places, value)

    return change


def in_other_units(y: Tensor) -> Tensor:
    return torch.where(torch.arange(len(y))[:, None] % 60 == 7, 1000 * y, y)


# --- cases ----------------------------------------------------------------------------------------

ids = iter(range(1, 1000))


def kind(cause: str, healthy: tuple[Maker, Config], *faults: tuple[str, Maker, Config]) -> list[Case]:
    """Return the cases of a cause, and the twin without it."""
    first = f"F4{next(ids):02}"
    cases = [
        Case(f"{first}{letter}", what, task, dict(config), frozenset([cause]), SYMPTOMS)
        for letter, (what, task, config) in zip("abcdefgh", faults, strict=False)
    ]
    task, config = healthy
    return [*cases, Case(f"T{first}", f"{cause}: without the fault", task, dict(config), frozenset(), SYMPTOMS)]


GENTLE = by(sgd(0.1, 0.9), 8)
CASES: list[Case] = [
    *kind(
        *("rate_gone", (classes(), QUICK)),
        ("a gamma of 0.001 each epoch", classes(), of({"name": "exponential", "gamma": 1e-3})),
        ("a step decay each epoch", classes(), of({"name": "step", "every_n_epochs": 1, "gamma": 1e-3})),
        ("a step decay of ten epochs, stepped each step", lambda: Scheduled(lambda it: lr_scheduler.StepLR(it, 10, 0.1)), OWN),
        ("an exponential of epochs, stepped each step", lambda: Scheduled(lambda it: lr_scheduler.ExponentialLR(it, 0.8)), OWN),
        ("milestones of epochs, stepped each step", lambda: Scheduled(lambda it: lr_scheduler.MultiStepLR(it, [3, 5, 7])), OWN),
        ("a line over eight epochs, stepped each step", lambda: Scheduled(lambda it: lr_scheduler.PolynomialLR(it, 8)), OWN),
    ),
    *kind(
        *("rate_rising", (lambda: Scheduled(lambda it: lr_scheduler.LambdaLR(it, lambda n: min(1.0, (n + 1) / 20))), OWN)),
        ("20,000 steps", classes(), of({"name": "constant", "warmup_steps": 20_000})),
        ("epochs of a longer run", classes(), of({"name": "cosine", "warmup_epochs": 100})),
        ("a cosine rise of 5,000 steps", classes(), of({"name": "constant", "warmup_steps": 5000, "warmup": "cosine"})),
        (
            "of 20,000 steps, by a scheduler",
            lambda: Scheduled(lambda it: lr_scheduler.LambdaLR(it, lambda n: (n + 1) / 2e4)),
            OWN,
        ),
        (
            "of 500 steps, stepped each epoch",
            lambda: Scheduled(lambda it: lr_scheduler.LinearLR(it, 1e-3, total_iters=500), "epoch"),
            OWN,
        ),
    ),
    *kind(
        *("loss_unlearnable", (classes(functools.partial(cross, label_smoothing=0.1)), QUICK)),
        ("label smoothing of .95", classes(functools.partial(cross, label_smoothing=0.95)), QUICK),
        ("label smoothing of .8", classes(functools.partial(cross, label_smoothing=0.8)), QUICK),
        ("soft targets by hand", classes(by_hand(0.9)), QUICK),
        ("outputs over a temperature of 1000", classes(lambda outputs, targets: cross(outputs.tanh() / 10, targets)), QUICK),
        ("targets that are nine parts uniform", classes(by_hand(0.95)), by(sgd(0.1, 0.9), 8)),
    ),
    *kind(
        *("loss_scaled", (classes(), GENTLE)),
        ("a mean over the samples once more", classes(over(cross, None)), by(sgd(0.1), 8)),
        ("a mean over the batch size", classes(over(cross, 64.0)), by(sgd(0.1), 8)),
        ("a sum", classes(functools.partial(cross, reduction="sum")), by(sgd(0.1), 8)),
        (
            "squares, over the samples once more",
            lambda: Values(friedman, lambda: perceptron((10, 64, 1)), over(functional.mse_loss, None)),
            by(sgd(0.05), 8),
        ),
        ("yes-or-no questions, over the samples once more", classes(over(against, None)), by(sgd(0.1), 8)),
    ),
    *kind(
        *("weights_held", (lambda: Reported(topic_rows, Pooling), by(adam(3e-3), 8))),
        ("first layers", classes(model=frozen(functools.partial(perceptron, (64, 4, 4, 10)), "0", "2")), QUICK),
        ("an embedding and what follows", lambda: Reported(topic_rows, frozen(Pooling, "embed", "pairs")), by(adam(3e-3), 8)),
        ("a transformer's block and embedding", classes(model=frozen(Attention, "embed", "block")), QUICK),
        ("a recurrent cell", classes(model=frozen(lstm, "cell")), by(adam(1e-3), 4)),
        ("convolutions", classes(model=frozen(convolutions, "1", "2", "4")), by(sgd(0.001), 4)),
    ),
    *kind(
        *("units_dropped", (classes(model=dropping(0.5)), QUICK)),
        (".97", classes(model=dropping(0.97)), QUICK),
        (".97 by a function", classes(model=lambda: Dropped(0.97)), QUICK),
        ("alpha dropout of .95", classes(model=dropping(0.95, nn.AlphaDropout)), QUICK),
        (".95, twice", classes(model=lambda: perceptron((64, 64, 64, 10), dropout=0.95)), QUICK),
        (
            ".95 in a transformer",
            classes(
                model=lambda: nn.Sequential(
                    nn.Unflatten(1, (8, 8)),
                    nn.TransformerEncoderLayer(8, 2, 32, 0.95, batch_first=True),
                    nn.Flatten(),
                    nn.Linear(64, 10),
                )
            ),
            QUICK,
        ),
    ),
    *kind(
        *("rows_repeated", (read(), QUICK)),
        ("40 rows, in memory", repeating(40), QUICK),
        ("40 rows, read one by one", read(place=lambda number: number % 40), QUICK),
        ("the same half of a batch", read(place=lambda number: number % 32), QUICK),
        ("a draw of few", read(place=lambda number: (number * number) % 100), QUICK),
        ("ten rows", repeating(10), QUICK),
    ),
    *kind(
        *("loss_overlooks", (padded_task(kept(lambda labels: labels != PAD)), by(adam(3e-3), 4))),
        ("ignore_index of a real class", classes(functools.partial(cross, ignore_index=3)), QUICK),
        ("a class weight of 0", classes(functools.partial(cross, weight=torch.tensor([1.0] * 9 + [0.0]))), QUICK),
        ("class 0 taken for what is left out", classes(kept(lambda labels: labels > 0)), QUICK),
        ("a mask that keeps the filling alone", padded_task(kept(lambda labels: labels == PAD)), by(adam(3e-3), 4)),
        ("a symbol left out in place of the filling", padded_task(kept(lambda labels: labels != 2)), by(adam(3e-3), 4)),
        ("half of the classes left out", classes(kept(lambda labels: labels < 5)), QUICK),
    ),
    *kind(
        *("batch_dependent", (classes(model=lambda: Rows(batch_first=True)), QUICK)),
        ("a softmax over the batch", classes(model=lambda: Over(lambda x: x.softmax(0), after=True)), QUICK),
        ("standardized by the batch", classes(model=lambda: Over(lambda x: (x - x.mean(0)) / (x.std(0) + 1e-5))), QUICK),
        ("attention over the batch", classes(model=lambda: Rows(batch_first=False)), QUICK),
        ("a recurrent network over the batch", classes(model=lambda: Steps(batch_first=False)), QUICK),
        ("a length over the batch", classes(model=lambda: Over(lambda x: 8 * functional.normalize(x, dim=0))), QUICK),
    ),
    *kind(
        *("inputs_destroyed", (read(alter=turned), QUICK)),
        ("a crop of two pixels", read(alter=corner), QUICK),
        ("pixels in any order", read(alter=shaken), QUICK),
        ("noise of ten deviations", read(alter=noisy(6.0)), QUICK),
        ("nearly all erased", read(alter=erased(0.96)), QUICK),
        ("a crop inside of the model", classes(model=lambda: Shaking(corner)), by(adam(2e-3), 4)),
        ("targets of other rows", classes(data=lambda: digits().in_training(shuffled_targets)), by(adam(2e-3), 2)),
    ),
    *kind(
        *("target_outliers", (priced(Tensor.clone), by(sgd(0.02), 8))),
        ("a number for what is missing", priced(far(6, 9999.0)), by(sgd(0.02), 8)),
        ("one of a million", priced(far(1, 1e6)), by(adam(2e-3), 8)),
        ("ten of other units", priced(in_other_units), by(sgd(0.02), 8)),
        ("-999 in five rows", priced(far(5, -999.0)), by(adam(2e-3), 8)),
        ("a hundred times too large", priced(far(8, 300.0)), by(adam(1e-2), 8)),
    ),
]
