"""Faults that people meet, by an author who did not know the rules, each with the same training without it.

`words` are regular expressions of which an honest answer holds one; they were written before any answer was read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.benchmarks.diagnostics import unseen_parts as of
from tests.benchmarks.diagnostics.case import Case, adam, by, sgd
from tests.benchmarks.diagnostics.pairs import Splits
from tests.benchmarks.diagnostics.unseen_parts import Change, Rows, Unseen, accuracy, balanced, r2, split, two

Maker = Callable[[], Unseen]
GOOD = by(adam(5e-3), 12)
cross, squares, binary = functional.cross_entropy, functional.mse_loss, functional.binary_cross_entropy_with_logits
# What an honest answer says where validation is prepared otherwise than training.
OTHER_VALIDATION = (
    r"(another|different|other) (distribution|scale|range|preprocessing|preparation)",
    r"prepared (differently|otherwise|in another way)",
    r"distribution shift|shifted",
    r"preprocess",
    r"validation[^.]*(differs?|unlike|not like)[^.]*train",
)
OTHER_ROWS = (
    r"other (samples|rows)[^.]*batch",
    r"rest of (the|its) batch",
    r"mix\w* (samples|rows)",
    r"across (samples|the batch)",
    r"depends? on[^.]*batch",
)


@dataclass(frozen=True)
class UnseenPair:
    """A fault and its twin.

    Attributes:
        id: U, V or W, by its set, and a number.
        cause: What is wrong, as its user says it once it was found.
        words: Regular expressions; an answer that one of them matches, whatever its case, has named the cause.
        faulty: The training with the fault.
        twin: The same without it.
    """

    id: str
    cause: str
    words: tuple[str, ...]
    faulty: Case
    twin: Case


def pair(
    cause: str, words: tuple[str, ...], faulty: Maker, twin: Maker | None = None, config: Any = GOOD, cured: Any = None
) -> Any:
    """Return a pair that has no number yet; without a twin the fault is in the config, without `cured` in the task."""

    def numbered(id: str) -> UnseenPair:
        mended = Case(f"T{id}", f"{cause}: without the fault", twin or faulty, cured or config)
        return UnseenPair(id, cause, words, Case(id, cause, faulty, config), mended)

    return numbered


def task(data: Any, model: Any, loss: Any, score: Any, updates: Any = None, **changes: Any) -> Maker:
    """Return what makes a task of rows, split and changed."""
    return lambda: Unseen(lambda: split(*data(), **changes), model, loss, score, updates)


# --- tasks as they should be, of which a part may be another --------------------------------------


def on_digits(loss: Any = cross, model: Any = lambda: of.pictures(1, 10), **others: Any) -> Maker:
    return task(of.digits, model, loss, accuracy, **others)


def on_table(loss: Any = cross, model: Any = lambda: of.dense(30, 24, 2), **others: Any) -> Maker:
    return task(of.cancer, model, loss, accuracy, **others)


def on_rings(model: Any = lambda: of.dense(2, 32, 32, 2), **others: Any) -> Maker:
    return task(of.rings, model, cross, accuracy, **others)


def on_prices(loss: Any = squares, inputs: int = 8, last: Any = None, **others: Any) -> Maker:
    return task(of.prices, lambda: of.dense(inputs, 48, 48, 1, last=last), loss, r2, **others)


def on_tags(model: Any = lambda: of.heads(False), loss: Any = binary, **others: Any) -> Maker:
    return task(of.tags, model, loss, two, **others)


def on_waves(model: Any = of.convolved, loss: Any = cross, **others: Any) -> Maker:
    return task(of.waves, model, loss, accuracy, **others)


def on_loads(inputs: int = 12, **changes: Any) -> Maker:
    return task(of.loads, lambda: of.dense(inputs, 32, 1), squares, r2, order=torch.arange(2012), **changes)


def on_reviews(model: Any = of.reader, data: Any = of.reviews, **others: Any) -> Maker:
    return task(data, model, cross, accuracy, **others)


def on_spellings(loss: Any) -> Maker:
    return task(of.spellings, of.tagger, loss, accuracy)


def on_itself(model: Any, loss: Any = squares) -> Maker:
    return task(lambda: of.to_itself(*of.digits()), model, loss, r2)


def coder(last: Any = None) -> nn.Module:
    return of.dense(64, 64, 24, 64, 64, last=last)


# --- what is changed of data ----------------------------------------------------------------------


def inputs(change: Callable[[Tensor], Tensor]) -> Change:
    return lambda x, y: (change(x), y)


def targets(change: Callable[[Tensor], Tensor]) -> Change:
    return lambda x, y: (x, change(y))


def both(change: Change) -> dict[str, Change]:
    return {"train": change, "validation": change}


def few_repeated(x: Tensor, y: Tensor) -> Rows:
    return x[:40].repeat(38, *[1] * (x.ndim - 1)), y[:40].repeat(38, 1)


def by_class() -> Splits:
    x, y = of.digits()
    return split(x, y, order=y.argsort(stable=True))


# --- losses and optimizers ------------------------------------------------------------------------


def tagged(keep: Callable[[Tensor], Tensor]) -> Any:
    """Return the mean loss over the tags that a mask keeps."""

    def loss(outputs: Tensor, wanted: Tensor) -> Tensor:
        each = cross(outputs.flatten(0, 1), wanted.flatten().clamp(min=0), reduction="none")
        mask = keep(wanted.flatten()).float()
        return (each * mask).sum() / mask.sum().clamp(min=1)

    return loss


def head_alone(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(list(model.parameters())[-2:], lr=5e-3)


def weighing(*weights: float) -> Any:
    return lambda outputs, wanted: cross(outputs, wanted, weight=torch.tensor(weights))


def of_plus_minus(outputs: Tensor, wanted: Tensor) -> Tensor:
    return binary(outputs, 2 * wanted - 1)


def of_probability(outputs: Tensor, wanted: Tensor) -> Tensor:
    return functional.binary_cross_entropy(outputs.flatten(), wanted.float())


def dropped(share: float, kind: type[nn.Sequential] = nn.Sequential) -> nn.Module:
    parts = (nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(share), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(share))
    return kind(*parts, nn.Linear(64, 10))


def mixed(part: Any, x: Tensor) -> Tensor:
    return part["head"](part["gru"](x.reshape(x.shape[1], x.shape[0], 2))[0][-1])


def turned(part: Any, x: Tensor) -> Tensor:
    return part["head"](part["gru"](x.transpose(0, 1))[0][-1])


def reduced(by: str) -> Any:
    return lambda outputs, wanted: squares(outputs, wanted, reduction=by)


MADE = [
    # data
    pair(
        "Training pictures are normalized, validation pictures are still 0 to 255.",
        (*OTHER_VALIDATION, r"normali[sz]", r"scale of (the )?(inputs|validation)"),
        on_digits(validation=inputs(lambda x: (x * 0.38 + 0.3) * 255)),
        on_digits(),
    ),
    pair(
        "Training rows were merged from two sources, one of which (42 %) codes the classes the other way round.",
        (r"label noise", r"mislabel", r"wrong(ly)? label", r"labels? (are|is|may be|seem)[^.]*wrong", r"misalign"),
        on_table(train=of.recoded(0.42)),
        on_table(),
    ),
    pair(
        "Pixels between 0 and 1 were cast to whole numbers, so nearly all became 0.",
        (
            r"whole numbers?|integer|dtype|cast",
            r"constant (inputs?|columns?|features?|pixels?)",
            r"(inputs?|columns?|features?|pixels?)[^.]*(all|always) (the same|0|zero|constant)",
            r"are the same in all",
        ),
        on_digits(**both(inputs(lambda x: (x * 0.38 + 0.3).long().float()))),
        on_digits(),
    ),
    pair(
        "A join repeated 40 training rows 38 times.",
        (
            r"duplicat",
            r"repeated (rows|samples)",
            r"(rows|samples)[^.]*(repeated|more than once|identical|copies)",
            r"distinct (rows|samples)",
        ),
        on_prices(train=few_repeated),
        on_prices(),
    ),
    pair(
        "A feature is the mean target of the row's customer, the row itself included, and is unknown for new customers.",
        (
            r"leak",
            r"(feature|column|input)[^.]*(tells|holds|contains|is made of|follows)[^.]*target",
            r"target[^.]*(by itself|alone)",
        ),
        on_prices(inputs=9, train=of.with_mean_target(True), validation=of.with_mean_target(False)),
        on_prices(),
    ),
    pair(
        "Training windows reach one step too far and hold the value to be predicted; those of validation do not.",
        (
            r"leak",
            r"(feature|column|input)[^.]*(tells|holds|contains|is made of|follows|equals)[^.]*target",
            r"target[^.]*(by itself|alone)",
        ),
        on_loads(train=inputs(lambda x: x[:, 1:].clone()), validation=of.earlier),
        on_loads(train=of.earlier, validation=of.earlier),
    ),
    pair(
        "The inputs were shuffled without their targets.",
        (
            r"shuffled (labels|targets)",
            r"label noise",
            r"(labels|targets)[^.]*(random|do not (fit|belong|match)|unrelated|nothing to do|noise)",
            r"no (relation|signal)",
        ),
        on_waves(train=targets(lambda y: y[torch.randperm(len(y), generator=of.drawn(9))])),
        on_waves(),
    ),
    pair(
        "Two columns are in millimetres in 30 % of the rows, in metres in the others.",
        (r"\bunits?\b", r"outlier", r"scale", r"(column|feature|input)[^.]*(large|range)", r"standardi[sz]|normali[sz]"),
        on_prices(**both(of.mixed_units)),
        on_prices(),
    ),
    pair(
        "Targets of training were capped at a limit of the sensor, those of validation were not.",
        (
            r"clipped|capped|censor|ceiling|saturat\w* target",
            r"targets?[^.]*(distribution|range|same value|largest value)",
            r"distribution shift",
        ),
        on_prices(train=targets(lambda y: y.clamp(max=-0.3))),
        on_prices(),
    ),
    pair(
        "Validation texts are padded at the right, training texts at the left, and the model has weights for each place.",
        (r"padd", *OTHER_VALIDATION),
        on_reviews(lambda: of.by_place(), of.wide_reviews, train=of.padded_left),
        on_reviews(lambda: of.by_place(), of.wide_reviews, **both(of.padded_left)),
    ),
    pair(
        "Texts are cut after 10 tokens, and what decides stands behind.",
        (
            r"truncat|cut (off|short)|too short|max\w*.length",
            r"inputs?[^.]*(do not|don't|hardly|cannot)[^.]*(tell|determine|predict|hold)",
            r"no signal|not (in|enough) (the )?(inputs?|information)",
        ),
        on_reviews(data=lambda: of.reviews(True), **both(inputs(lambda x: x[:, :10].clone()))),
        on_reviews(data=lambda: of.reviews(True)),
    ),
    pair(
        "Validation pictures are read as BGR, training pictures as RGB.",
        (r"channel", r"\bBGR\b", *OTHER_VALIDATION),
        task(of.colours, lambda: of.pictures(3, 3), cross, accuracy, validation=inputs(lambda x: x.flip(1))),
        task(of.colours, lambda: of.pictures(3, 3), cross, accuracy),
    ),
    pair(
        "Training features come from a stale cache whose columns stand in another order.",
        (r"cache|stale (data|features|file)", r"(columns?|features?)[^.]*order", *OTHER_VALIDATION),
        on_prices(train=inputs(lambda x: x[:, torch.randperm(8, generator=of.drawn(4))])),
        on_prices(),
    ),
    # loss
    pair(
        "The loss is summed over the batch while the rate was chosen for a mean.",
        (r"reduction", r"\bsum\b|\bsummed\b|\bsums\b"),
        on_prices(reduced("sum")),
        on_prices(reduced("mean")),
        by(sgd(0.02, 0.9), 12),
    ),
    pair(
        "Targets are -1 and 1 where the loss expects 0 and 1.",
        (r"targets?[^.]*(0 and 1|between 0 and 1|probabilit|range|encod|-1|outside)", r"-1 and 1"),
        on_tags(loss=of_plus_minus),
        on_tags(),
    ),
    pair(
        "The minus in front of the log-likelihood is missing.",
        (r"\bminus\b", r"\bsign\b", r"maximi[sz]", r"negat(ed|ive) (log|loss)", r"loss[^.]*(below (0|zero)|negative)"),
        on_waves(loss=lambda outputs, wanted: outputs.log_softmax(1).gather(1, wanted[:, None]).mean()),
        on_waves(),
    ),
    pair(
        "ignore_index=0 was copied from a text task, but 0 is a class here.",
        (
            r"ignore",
            r"class[^.]*(never|not|no|without)[^.]*(predict|learn|gradient|count|loss)",
            r"never predict",
            r"loss[^.]*(leaves out|skips|does not count)",
        ),
        on_waves(loss=lambda outputs, wanted: cross(outputs, wanted, ignore_index=0)),
        on_waves(),
    ),
    pair(
        "The model ends in a sigmoid, though loss and metric expect logits.",
        (
            r"sigmoid",
            r"activation[^.]*(last|output|end)|(last|output|final)[^.]*activation",
            r"logits?[^.]*expect|expects? logits?",
        ),
        on_tags(lambda: nn.Sequential(of.dense(16, 32, 6), nn.Sigmoid())),
        on_tags(lambda: of.dense(16, 32, 6)),
    ),
    pair(
        "Class weights are the frequencies in place of their inverses.",
        (r"imbalanc", r"class.weights?|weights?[^.]*class", r"rare|minority|majority"),
        task(of.rare, lambda: of.dense(6, 16, 2), weighing(11 / 6, 1 / 6), balanced),
        task(of.rare, lambda: of.dense(6, 16, 2), weighing(6 / 11, 6), balanced),
    ),
    pair(
        "The mask of the loss is inverted: only padding counts.",
        (r"\bmask", r"padd"),
        on_spellings(tagged(lambda wanted: wanted < 0)),
        on_spellings(tagged(lambda wanted: wanted >= 0)),
    ),
    # model
    pair(
        "There is no activation between the layers.",
        (
            r"non-?linear",
            r"(no|without|missing|lack\w*)( an)? activation",
            r"activations?[^.]*(missing|between)",
            r"linear (model|map|function)",
        ),
        on_rings(lambda: of.dense(2, 32, 32, 2, between=nn.Identity)),
        on_rings(),
    ),
    pair(
        "A ReLU stands behind the last layer of a regression.",
        (
            r"(last|output|final)[^.]*(activation|relu)",
            r"(activation|relu)[^.]*(last|output|end)",
            r"(outputs?|predictions?)[^.]*(negative|below (0|zero)|non-negative|never)",
        ),
        on_prices(last=nn.ReLU),
        on_prices(),
    ),
    pair(
        "A softmax is taken over the single output of a binary classifier, so it is always 1.",
        (
            r"softmax",
            r"(last|output|final)[^.]*activation",
            r"activation[^.]*(last|output|end)",
            r"(outputs?|predictions?)[^.]*(always|constant)[^.]*\b(1|one)\b",
        ),
        task(of.rings, lambda: of.dense(2, 32, 32, 1, last=lambda: nn.Softmax(1)), of_probability, of.likely),
        task(of.rings, lambda: of.dense(2, 32, 32, 1, last=nn.Sigmoid), of_probability, of.likely),
    ),
    pair(
        "A detach() left from debugging cuts the stem off its gradients.",
        (
            r"detach",
            r"(no|without|any) gradients?",
            r"frozen",
            r"never (changed?|moved?|trained|updated)",
            r"(not|did not) (change|move|train|update)",
        ),
        on_rings(lambda: of.two_stages(True)),
        on_rings(lambda: of.two_stages(False)),
        by(adam(2e-2), 15),
    ),
    pair(
        "Batch norm has a momentum of 0.0005 (meant was the other convention), so its running statistics stay at the start.",
        (r"batch.?norm", r"running (mean|var|stat|average)"),
        on_digits(
            model=lambda: of.pictures(1, 10, lambda: nn.BatchNorm2d(12, momentum=5e-4)), **both(inputs(lambda x: 20 * x + 100))
        ),
        on_digits(
            model=lambda: of.pictures(1, 10, lambda: nn.BatchNorm2d(12, momentum=0.1)), **both(inputs(lambda x: 20 * x + 100))
        ),
    ),
    pair(
        "The wave is averaged over time before anything looks at it.",
        (r"pool", r"averag\w* (over|away)", r"throws? away|loses?[^.]*information|information[^.]*(lost|thrown)", r"collaps"),
        on_waves(lambda: of.convolved(pool=nn.AdaptiveAvgPool1d(1))),
        on_waves(),
    ),
    pair(
        "A list of heads was multiplied, so that six labels share one head.",
        (r"shared?\b|sharing", r"\btied\b", r"(outputs?|heads?|labels?|columns?)[^.]*(same|identical|equal)", r"symmetr"),
        on_tags(lambda: of.heads(True)),
        on_tags(),
    ),
    pair(
        "Dropout is 0.95, where the author took it for the share that is kept.",
        (r"dropout",),
        on_digits(model=lambda: dropped(0.95)),
        on_digits(model=lambda: dropped(0.05)),
    ),
    pair(
        "The attention has no positions, and the class depends on the order of two words.",
        (r"position", r"\border of (the |its )?(tokens|words|inputs|sequence)", r"permut"),
        on_reviews(lambda: of.Attending(False)),
        on_reviews(lambda: of.Attending(True)),
        by(adam(2e-3), 15),
    ),
    pair(
        "The batch is reshaped to time first in place of transposed, which mixes the rows.",
        (r"reshape|\bview\b|transpos|permute|batch_first", *OTHER_ROWS),
        on_waves(lambda: of.recurrent(mixed, batch_first=False)),
        on_waves(lambda: of.recurrent(turned, batch_first=False)),
    ),
    # optimization
    pair(
        "The learning rate is a hundred times too high.",
        (r"(learning )?rate[^.]*too (high|large)", r"(lower|smaller|reduce|decrease)[^.]*rate"),
        on_itself(coder),
        config=by(adam(0.3), 12),
        cured=by(adam(3e-3), 12),
    ),
    pair(
        "The schedule divides the rate by ten each epoch; meant was every tenth.",
        (
            r"schedule",
            r"rate[^.]*(too (low|small|early|fast|soon)|decay|fell|falls|vanish)",
            r"(raise|higher|larger|increase)[^.]*rate",
        ),
        on_digits(),
        config=by(adam(1e-3), 15, schedule={"name": "step", "gamma": 0.1, "every_n_epochs": 1}),
        cured=by(adam(1e-3), 15, schedule={"name": "step", "gamma": 0.1, "every_n_epochs": 10}),
    ),
    pair(
        "The weight decay is 0.5 of L2 with Adam.",
        (r"weight.decay", r"regulari[sz]", r"L2"),
        on_prices(),
        config=by(adam(5e-3, 0.5), 12),
        cured=by(adam(5e-3, 5e-5), 12),
    ),
    pair(
        "The momentum is 0.999.",
        (r"momentum",),
        on_prices(),
        config=by(sgd(0.02, 0.999), 12),
        cured=by(sgd(0.02, 0.9), 12),
    ),
    pair(
        "Gradients are clipped to a norm of 0.0005.",
        (r"\bclip",),
        on_waves(),
        config=by(sgd(0.1, 0.9), 15, clip={"norm": 5e-4}),
        cured=by(sgd(0.1, 0.9), 15, clip={"norm": 5.0}),
    ),
    pair(
        "The optimizer was given the last layer alone.",
        (
            r"optimizer[^.]*(miss|not|never|lack|without|given)",
            r"(not|never|did not) (in the optimizer|changed?|moved?|trained?|updated?)",
            r"frozen",
            r"held",
        ),
        on_rings(lambda: of.dense(2, 4, 4, 2), updates=head_alone),
        on_rings(lambda: of.dense(2, 4, 4, 2), updates=lambda model: torch.optim.Adam(model.parameters(), lr=2e-2)),
        by({"name": "own", "lr": 1.0}, 15, schedule={"name": "own"}),
    ),
    pair(
        "The loss is divided by the number of micro-batches and by the batch size again.",
        (r"loss[^.]*(divid|scale|small)", r"rate[^.]*too (low|small)", r"(raise|higher|larger|increase)[^.]*rate"),
        on_digits(lambda outputs, wanted: cross(outputs, wanted) / 256),
        on_digits(),
        by(sgd(0.05, 0.9), 12),
    ),
    # evaluation
    pair(
        "The model stays in training mode when it is evaluated, and drops half of its units.",
        (r"(evaluation|training|eval|train)[- ]mode", r"\.eval\(\)|model\.eval", r"dropout"),
        on_digits(model=lambda: dropped(0.6, of.AlwaysTraining)),
        on_digits(model=lambda: dropped(0.6)),
    ),
    pair(
        "The rows were sorted by class and split without shuffling: validation has classes that were never trained.",
        (
            r"stratif",
            r"class(es)?[^.]*(missing|absent|not in|lack|without|never|only|no sample)",
            r"shuffl|sorted",
            r"distribution shift",
        ),
        lambda: Unseen(by_class, lambda: of.pictures(1, 10), cross, accuracy),
        on_digits(),
    ),
    pair(
        "Validation comes from another clinic, whose device adds an offset.",
        OTHER_VALIDATION,
        on_table(validation=inputs(lambda x: 1.3 * x + 2.0)),
        on_table(),
    ),
]
PAIRS: list[UnseenPair] = [made(f"U{number:02}") for number, made in enumerate(MADE, 1)]
