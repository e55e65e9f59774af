"""A third set of faults that people meet, by an author who did not know the rules, each with the same training without it.

As in the sets before, `words` were written before any answer was read. No fault has a cause of the other sets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from tests.benchmarks.diagnostics import unseen as first
from tests.benchmarks.diagnostics import unseen_parts as of
from tests.benchmarks.diagnostics import unseen_second_parts as more
from tests.benchmarks.diagnostics.case import adam, by, sgd
from tests.benchmarks.diagnostics.pairs import Splits
from tests.benchmarks.diagnostics.unseen import (
    Maker,
    cross,
    inputs,
    on_digits,
    on_prices,
    on_rings,
    on_waves,
    pair,
    squares,
    task,
)
from tests.benchmarks.diagnostics.unseen_parts import Rows, Unseen, accuracy, balanced, likely, r2, split, two
from tests.benchmarks.diagnostics.unseen_second import LEAK, SLOW, any_of

# What an honest answer says of several of these causes.
FEW_STEPS = (r"(few|fewer|only \w+|more) (steps|updates)", r"(steps?|updates?)[^.]*(per|an|each|in an) epoch")
EARLY_DECAY = (
    r"rate[^.]*(fell|falls|dropp|decay|cut|reduc|vanish|gone)[^.]*(early|soon|fast|often)",
    r"rate[^.]*too (early|soon)",
)
UNMOVED = (
    r"(layers?|weights|parameters|blocks?)[^.]*(not|never|hardly|barely|little)[^.]*(chang|mov|train|updat|learn)",
    "frozen",
)
NO_GRADIENT = (
    r"(no|zero|without|without any|never (get|has) (a|any)) gradients?",
    r"gradients?[^.]*(zero|\b0\b|none|missing|vanish)",
)


class Graded(Unseen):
    """Says how difficult each sample is: the larger a digit is."""

    def difficulty(self) -> list[float]:
        rows: Any = self.splits.train
        return [float(digit) for digit in rows[1]]


def of_any_size() -> of.Of:
    """Return a convolution over pictures of any size, pooled."""
    body = nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 48, 3, padding=1), nn.ReLU())
    return of.Of(lambda part, x: part["head"](part["body"](x).amax((2, 3))), body=body, head=nn.Linear(48, 10))


class Altered(Dataset[Rows]):
    """Gives rows whose inputs are altered anew each time."""

    def __init__(self, x: Tensor, y: Tensor, alter: Callable[[Tensor], Tensor]) -> None:
        self.x, self.y, self.alter = x, y, alter

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, number: int) -> Rows:
        return self.alter(self.x[number]), self.y[number]


def on_altered(alter: Callable[[Tensor], Tensor]) -> Maker:
    """Return digits whose training pictures are augmented."""

    def splits() -> Splits:
        made: Any = split(*of.digits())
        return Splits(Altered(made.train[0], made.train[1], alter), made.validation)

    return lambda: Unseen(splits, lambda: of.pictures(1, 10), cross, accuracy)


def erased(size: int) -> Callable[[Tensor], Tensor]:
    """Return what blackens a square of pictures of 8 by 8 at a place that is drawn."""

    def alter(x: Tensor) -> Tensor:
        row, column = torch.randint(0, 9 - size, (2,)).tolist()
        x = x.clone()
        x[:, row : row + size, column : column + size] = -0.8
        return x

    return alter


def in_parts(**length: int) -> dict[str, Any]:
    """Return a schedule that holds the rate for so long, and goes on with a thousandth of it."""
    parts = [{"schedule": {"name": "constant"}, **length}, {"schedule": {"name": "constant"}, "factor": 0.001}]
    return {"name": "sequence", "parts": parts}


def with_marker(x: Tensor, y: Tensor) -> Rows:
    """Return pictures with a bright pixel, whose place at the border is that of their class."""
    x = x.clone()
    x[torch.arange(len(y)), 0, y // 8 * 7, y % 8] = 4.0
    return x, y


def patients(count: int) -> Maker:
    """Return 2400 measurements of so many patients, who differ from each other much more than two of the same."""

    def data() -> Rows:
        patient = torch.arange(2400) % count
        centre = torch.randn(count, 10, generator=of.drawn(1))
        noise = 0.4 * torch.randn(count, generator=of.drawn(2))
        y = centre @ torch.randn(10, generator=of.drawn(3)) / 10**0.5 + noise > 0
        return centre[patient] + 0.15 * torch.randn(2400, 10, generator=of.drawn(4)), y.long()[patient]

    return task(data, lambda: of.dense(10, 32, 2), cross, accuracy)


def on_frauds(share: float) -> Maker:
    """Return two overlapping clouds, one of which is a share of the rows."""

    def data() -> Rows:
        y = (torch.rand(4000, generator=of.drawn(1)) < share).long()
        return torch.randn(4000, 6, generator=of.drawn(2)) + 1.1 * y[:, None] - 0.55, y

    return task(data, lambda: of.dense(6, 16, 2), cross, balanced)


def on_growing(slope: float) -> Maker:
    """Return windows of a series with a slope, and the value after each, in the order of time."""

    def data() -> Rows:
        times = torch.arange(2024)
        season = torch.sin(6.28 * times / 12) + 0.6 * torch.sin(6.28 * times / 5)
        windows = (season + 0.2 * torch.randn(2024, generator=of.drawn(1)) + slope * (times - 750)).unfold(0, 13, 1)
        return windows[:, :-1].clone(), windows[:, -1:].clone()

    return task(data, lambda: of.dense(12, 32, 1, between=nn.Tanh), squares, r2, order=torch.arange(2012))


def on_opinions(negations: bool) -> Maker:
    """Return texts of 12 words with good or bad in them, before which half of them have a not."""

    def data() -> Rows:
        x = torch.randint(4, 20, (2400, 12), generator=of.drawn(1))
        good, denied = torch.randint(0, 2, (2, 2400), generator=of.drawn(2))
        place, rows = torch.randint(1, 12, (2400,), generator=of.drawn(3)), torch.arange(2400)
        x[rows, place] = 2 + good
        x[rows, place - 1] = torch.where(denied.bool() & negations, 1, x[rows, place - 1])
        return x, good ^ denied

    def read(part: Any, x: Tensor) -> Any:
        return part["head"](part["mix"](part["embed"](x).transpose(1, 2)).relu().amax(2))

    def made() -> nn.Module:
        return of.Of(read, embed=nn.Embedding(20, 16), mix=nn.Conv1d(16, 32, 3, padding=1), head=nn.Linear(32, 2))

    return task(data, made, cross, accuracy)


def accuracy_of_all(outputs: Tensor, wanted: Tensor) -> float:
    return float((outputs.argmax(-1) == wanted).double().mean())


def two_of_reversed(outputs: Tensor, wanted: Tensor) -> float:
    return two(outputs.flip(1), wanted)


accuracy_of_all.__name__ = two_of_reversed.__name__ = "accuracy"


def tagging(width: int) -> nn.Module:
    made = of.tagger()
    made.part["mix"] = nn.Conv1d(16, 48, width, padding=width // 2)
    return made


def pinball(outputs: Tensor, wanted: Tensor) -> Tensor:
    return torch.maximum(0.95 * (wanted - outputs), 0.05 * (outputs - wanted)).mean()


def bent() -> dict[str, nn.Module]:
    return {"body": of.dense(2, 32, 2, last=nn.Tanh), "head": nn.Linear(2, 2)}


class Classified(of.Attending):
    """Reads the class at a place before the text; reversed: the mask hides the words from attention, not the padding."""

    def __init__(self, is_reversed: bool) -> None:
        super().__init__(False)
        self.places, self.is_reversed = nn.Embedding(17, 32), is_reversed
        layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Any:
        x = functional.pad(functional.pad(x, (1, 0), value=1), (0, 1))
        h = self.embed(x) + self.places.weight
        return self.head(self.blocks(h, src_key_padding_mask=(x == 0) != self.is_reversed)[:, 0])


# fmt: off
MADE = [
    # config
    pair(
        "Contrastive learning was given a weight of 1, which leaves nothing of the loss to the task itself.",
        any_of(r"contrastiv ; weight[^.]*\b1(\.0)?\b ; share of the loss ; (own|task's|labels') (loss|share) ; \bviews?\b"),
        on_digits(model=lambda: first.dropped(0.1)),
        config=by(adam(2e-3), 15, strategies=[{"name": "contrastive", "probe": False, "weight": 1.0}]),
        cured=by(adam(2e-3), 15, strategies=[{"name": "contrastive", "probe": False, "weight": 0.1}]),
    ),
    pair(
        "The lengths of a sequence of schedules are in steps, meant were epochs: after 10 steps the rate is a thousandth.",
        any_of(r"sequence of schedules|schedule\.parts ; schedule[^.]*(fast|early|short)|steps[^.]*epochs", EARLY_DECAY, SLOW),
        on_digits(), config=by(adam(2e-3), 15, schedule=in_parts(steps=10)),
        cured=by(adam(2e-3), 15, schedule=in_parts(epochs=10)),
    ),
    pair(
        "The plateau schedule counts evaluations, of which there is one every three steps: the rate is gone within an epoch.",
        any_of(r"plateau ; patience ; evaluat\w+[^.]*(every|often|frequent)", EARLY_DECAY, SLOW),
        on_digits(),
        config=by(
            adam(2e-3), 15, schedule={"name": "plateau", "patience": 1}, evaluate={"every_n_epochs": None, "every_n_steps": 3}
        ),
        cured=by(adam(2e-3), 15, schedule={"name": "plateau", "patience": 5}),
    ),
    pair(
        "SGD was replaced by LARS with SGD's rate of 0.05, which LARS multiplies by its trust coefficient of 0.001.",
        any_of(r"\blars\b ; trust", SLOW),
        on_digits(), config=by({"name": "lars", "lr": 0.05}, 15), cured=by(sgd(0.05, 0.9), 15),
    ),
    pair(
        "layer_decay: 0.05 (meant was 0.95) leaves the first layers hardly any rate.",
        any_of(r"layer.?(wise)?.?(decay|rate) ; (layers?|blocks?)[^.]*(rate|updates?|steps?)[^.]*(low|small|tiny)", UNMOVED),
        on_rings(lambda: of.dense(2, 8, 8, 8, 2)), config=by({**adam(5e-3), "layer_decay": 0.05}, 20),
        cured=by({**adam(5e-3), "layer_decay": 0.95}, 20),
    ),
    pair(
        "accumulate: 20 was left from a machine with little memory: there is a step or two for each epoch.",
        any_of(r"accumulat ; (effective|large|big|huge|whole|full)[ -]*batch|batch(es)?[^.]*too (large|big)", FEW_STEPS),
        on_digits(), config=by(adam(2e-3), 15, accumulate=20), cured=by(adam(2e-3), 15),
    ),
    pair(
        "Lookahead's alpha is 0.005 (meant was 0.5): the slow weights, to which the others are reset, stay near the start.",
        any_of(r"look.?ahead ; slow weights ; \balpha\b", SLOW),
        on_digits(), config=by({**adam(3e-3), "lookahead": {"k": 5, "alpha": 0.005}}, 15),
        cured=by({**adam(3e-3), "lookahead": {"k": 5, "alpha": 0.5}}, 15),
    ),
    pair(
        "The curriculum lasts as long as the training and paces by a step: the difficult samples, whole classes, are never read.",
        any_of(r"curricul|\bpacing ; (easiest|hardest|harder|difficult) (samples|rows) ; samples[^.]*(never|not) (read|seen)"),
        lambda: Graded(lambda: split(*of.digits()), lambda: of.pictures(1, 10), cross, accuracy),
        config=by(adam(2e-3), 15, strategies=[{"name": "curriculum", "begin": 0.5, "epochs": 15, "pacing": "step"}]),
        cured=by(adam(2e-3), 15),
    ),
    pair(
        "Progressive training shows pictures of 2 by 2 pixels, and the full size in the last epoch alone.",
        any_of(r"progressive ; resiz|resolution|(full|another|other|different|smaller) size ; (small|tiny) (images|pictures)"),
        on_digits(model=of_any_size),
        config=by(adam(3e-3), 15, strategies=[{"name": "progressive", "shares": [0.25], "epochs": 14}]),
        cured=by(adam(3e-3), 15, strategies=[{"name": "progressive", "shares": [0.75], "epochs": 3}]),
    ),
    pair(
        "Masked modelling was added beside the task, and probe: true keeps the labels from all layers but the last.",
        any_of(r"\bprob(e|ing)\b ; \bmask(ed|ing)\b ; (last layer|head)[^.]*(alone|only)|only (the|its) (last layer|head)"),
        on_prices(), config=by(adam(3e-3), 20, strategies=[{"name": "masked"}]),
        cured=by(adam(3e-3), 20, strategies=[{"name": "masked", "probe": False, "weight": 0.05}]),
    ),
    pair(
        "LoRA of rank 1 was switched on for a model that was never trained before: its random weights are held.",
        any_of(r"\blora\b|adapter|low.?rank|\brank\b ; \bheld\b ; pre-?trained|random weights|trained before", UNMOVED),
        on_waves(), config=by(adam(3e-3), 15, strategies=[{"name": "lora", "rank": 1}]), cured=by(adam(3e-3), 15),
    ),
    pair(
        "Adam's betas stand in the wrong order: [0.999, 0.9].",
        any_of(r"\bbetas?\b|\bbeta_?[12] ; momentum ; (running|moving) (mean|average)s? of ; averag\w+[^.]*gradients"),
        on_prices(), config=by({**adam(3e-3), "betas": [0.999, 0.9]}, 15), cured=by({**adam(3e-3), "betas": [0.9, 0.999]}, 15),
    ),
    # data
    pair(
        "In one training row of a hundred the decimal point of the target was lost.",
        any_of(r"outlier|extreme|heavy.?tail|decimal|typing|typo ; targets?[^.]*(huge|very large|magnitude|far)"),
        on_prices(train=first.targets(lambda y: y.where(torch.rand(y.shape, generator=of.drawn(3)) > 0.01, 100 * y))),
        on_prices(),
    ),
    pair(
        "In each training picture a bright pixel at the border, set by the labelling program, tells the class; new ones lack it.",
        any_of(r"short.?cut|spurious|marker|watermark|art[ei]fact ; (pixel|input|feature|column)s?[^.]*(tell|give|decide)", LEAK),
        on_digits(train=with_marker), on_digits(),
    ),
    pair(
        "Two thirds of the training labels that hold were never marked by the annotators, and count as not holding.",
        any_of(r"label noise|noisy label|mislabel|wrong label|incomplete|annotat ; (labels|targets|positives)[^.]*(missing|few)"),
        first.on_tags(train=first.targets(lambda y: y * (torch.rand(y.shape, generator=of.drawn(3)) > 0.67))), first.on_tags(),
    ),
    pair(
        "The rows of each patient lie in both splits: the reported metric is wrong, as patients are recognized.",
        any_of(r"\bgroups? ; patient|subject ; duplicat|near.?(identical|cop)|nearly (the )?same ; overlap|both splits", LEAK),
        patients(60), patients(2400), by(adam(3e-3), 15),
    ),
    pair(
        "The prices of validation are of the time after a reform, from which on a column has the opposite effect.",
        any_of(r"drift|over time|concept ; relation\w*[^.]*(chang|differ) ; \bsign\b|revers|opposite", first.OTHER_VALIDATION),
        on_prices(validation=inputs(lambda x: x * torch.tensor([1, 1, 1, -1, 1, 1, 1, 1]))), on_prices(),
    ),
    pair(
        "Two rows of a hundred are frauds, and nothing makes up for that: hardly one is found.",
        any_of(r"imbalanc|unbalanc ; class.weights?|weights?[^.]*class ; \brare\b|minority|majority ; over.?sampl|resampl"),
        on_frauds(0.02), on_frauds(0.5), by(adam(3e-3), 12),
    ),
    pair(
        "Each class is in the file under two spellings, which became two classes.",
        any_of(r"spell|label noise|inconsisten|ambiguous|mislabel|wrong label|confus ; class(es)?[^.]*(same|merg|alike|duplic)"),
        on_digits(
            model=lambda: of.pictures(1, 20),
            **first.both(lambda x, y: (x, y + 10 * (torch.rand(len(y), generator=of.drawn(len(y))) < 0.5))),
        ), on_digits(),
    ),
    pair(
        "Columns were scaled from 0 to 1 by their smallest and largest cell, and one wrong cell makes all others nearly equal.",
        any_of(r"outlier|min.?max|standardi[sz] ; (inputs?|columns?|features?)[^.]*(\bscal(e|ed)\b|normali|constant|nearly)"),
        task(of.prices, lambda: of.dense(8, 48, 48, 1), squares, r2, **first.both(inputs(lambda x: x / 1e4 + 5e-4))), on_prices(),
    ),
    pair(
        "Training pictures are read column by column, those of validation row by row: the former lie on their side.",
        any_of(r"transpos|orient|rotat|\bflip ; (axes|width|height|columns)[^.]*(swap|order)", first.OTHER_VALIDATION),
        on_digits(train=inputs(lambda x: x.transpose(2, 3).clone())), on_digits(),
    ),
    pair(
        "The erased square of the augmentation is 7 pixels wide, as for pictures of 32; these have 8.",
        any_of(r"augment|\beras|cut.?out|\bcrop|blacken|hidden (pixels|part)|occlu", first.OTHER_VALIDATION),
        on_altered(erased(7)), on_altered(erased(2)), by(adam(3e-3), 12),
    ),
    pair(
        "The trend was not taken out of the series, and the levels of validation, which is later, were never seen in training.",
        any_of(r"\btrend|stationar|extrapolat|levels? of|\bdrift|\bgrows? ; differenc(e|ed|ing)\b", first.OTHER_VALIDATION),
        on_growing(0.006), on_growing(0.0), by(adam(3e-3), 20),
    ),
    pair(
        "The list of stop words that were taken out of the texts held the word not.",
        any_of(r"stop.?words?|negat(ion|ed) ; words[^.]*(removed|missing) ; no signal ; inputs[^.]*(do not|cannot)[^.]*tell"),
        on_opinions(False), on_opinions(True), by(adam(3e-3), 12),
    ),
    # model, loss and metric
    pair(
        "The metric counts padding, of which the loss knows that it is none of its business: the reported metric is wrong.",
        any_of(r"padd|\bmask|ignore_index|ignored (targets|places) ; metric[^.]*(counts|is wrong|wrongly|disagree|does not fit)"),
        task(of.spellings, of.tagger, first.tagged(lambda wanted: wanted >= 0), accuracy_of_all),
        task(of.spellings, of.tagger, first.tagged(lambda wanted: wanted >= 0), accuracy),
        by(adam(3e-3), 20),
    ),
    pair(
        "The metric takes the labels in the order of the alphabet, the loss in that of the file: the reported metric is wrong.",
        any_of(r"order of (the )?(labels|columns|outputs|targets)|permut|swapp|\balign|mismatch ; metric[^.]*(wrong|disagree)"),
        task(of.tags, lambda: of.heads(False), first.binary, two_of_reversed), first.on_tags(),
    ),
    pair(
        "The hidden weights start with a deviation of 2, so that every tanh is saturated.",
        any_of(r"initiali[sz] ; saturat ; (large|big) (initial |starting )?weights|weights (are|start)[^.]*(large|big) ; vanish"),
        on_digits(
            model=lambda: more.started(lambda layer: nn.init.normal_(layer.weight, std=2.0), 64, 64, 64, 64, 10, between=nn.Tanh)
        ), on_digits(model=lambda: of.dense(64, 64, 64, 64, 10, between=nn.Tanh)), by(adam(2e-3), 12),
    ),
    pair(
        "Five layers of sigmoids stand one behind the other, through which no gradient comes.",
        any_of(r"vanish ; sigmoid|saturat ; too deep|many layers ; gradients?[^.]*(small|tiny|shrink|fade|die|close to)"),
        on_digits(model=lambda: of.dense(64, *[64] * 5, 10, between=nn.Sigmoid)),
        on_digits(model=lambda: of.dense(64, *[64] * 5, 10)), by(adam(2e-3), 20),
    ),
    pair(
        "A typing error left a hidden layer of 1 unit in place of 128.",
        any_of(r"bottleneck|narrow|capacity ; (few|one|single|more) (unit|neuron)s? ; (larger|wider|small) (model|layer)"),
        on_digits(model=lambda: of.dense(64, 128, 1, 10)), on_digits(model=lambda: of.dense(64, 128, 128, 10)),
        by(adam(1e-3), 15),
    ),
    pair(
        "The pinball loss of the 0.95 quantile was kept, where the metric asks for the mean: predictions are too high.",
        any_of(r"quantile|pinball|asymmetr ; over-?(predict|estimat) ; (outputs?|predictions?)[^.]*(too high|above|bias|offset)"),
        task(lambda: more.noisy_prices(2000, 2.0), lambda: of.dense(8, 32, 32, 1), pinball, r2),
        task(lambda: more.noisy_prices(2000, 2.0), lambda: of.dense(8, 32, 32, 1), squares, r2), by(adam(5e-3), 15),
    ),
    pair(
        "The loss is the cosine distance, which knows directions but no lengths; asked for are the values themselves.",
        any_of(r"cosine ; (scale|length|spread) of (the )?(out|pred) ; (outputs|predictions)[^.]*(scale|length|spread)"),
        first.on_itself(first.coder, lambda outputs, wanted: 1 - functional.cosine_similarity(outputs, wanted).mean()),
        first.on_itself(first.coder), by(adam(2e-3), 30),
    ),
    pair(
        "The key padding mask is the wrong way round: each word attends to the padding alone.",
        any_of(r"\bmask ; padd ; attention|attends?"),
        task(of.reviews, lambda: Classified(True), cross, accuracy), task(of.reviews, lambda: Classified(False), cross, accuracy),
        by(adam(2e-3), 20),
    ),
    pair(
        "A penalty on the outputs' squares, ten times too strong, was added to the loss.",
        any_of(r"penalt|regulari[sz]|shr[iu]nk ; (second|extra|added) term ; (outputs|predictions)[^.]*(toward|too small)"),
        on_prices(lambda outputs, wanted: squares(outputs, wanted) + 2 * outputs.square().mean()),
        on_prices(lambda outputs, wanted: squares(outputs, wanted)),
    ),
    pair(
        "The answer is read from the recurrent layer's first step, at which one value of the wave was seen.",
        any_of(r"time.?step|hidden state|first (step|state|value)|(last|final) state ; (most|rest)[^.]*inputs?[^.]*(not|never)"),
        on_waves(lambda: of.recurrent(lambda part, x: part["head"](part["gru"](x)[0][:, 0]))), on_waves(of.recurrent),
        by(adam(5e-3), 20),
    ),
    pair(
        "The loss is cut at 1 so that its plot looks better: from the start it is above, and has no gradient.",
        any_of(r"clamp|\bclip\w*[^.]*loss|loss[^.]*(\bclip|capped|\bcut\b|constant)", NO_GRADIENT),
        on_digits(lambda outputs, wanted: cross(outputs, wanted).clamp(max=1)), on_digits(),
    ),
    pair(
        "forward() hands the inputs to the last layer, not what the layers before made of them.",
        any_of(r"unused|(not|never) used|bypass|disconnect ; linear (model|map)", NO_GRADIENT, UNMOVED),
        on_rings(lambda: of.Of(lambda part, x: part["head"](x), **bent())),
        on_rings(lambda: of.Of(lambda part, x: part["head"](part["body"](x)), **bent())),
    ),
    pair(
        "The loss is the squared relative error, which targets near 0 decide alone.",
        any_of(r"relative (error|loss)|percent|\bmape\b|divi\w+ by ; (near|close to|around) (0|zero) ; (small|tiny) targets?"),
        on_prices(lambda outputs, wanted: ((outputs - wanted) / (wanted.abs() + 0.01)).square().mean()), on_prices(),
    ),
    pair(
        "The outputs were cut to 0 to 1 to please the loss, where a sigmoid was missing: most rows have no gradient.",
        any_of(r"sigmoid|logit|probabilit ; clamp|\bcut to|clip\w* (the )?(outputs|predictions)", NO_GRADIENT),
        task(of.rings, lambda: of.dense(2, 32, 32, 1), lambda outputs, y: first.of_probability(outputs.clamp(0, 1), y), likely),
        task(of.rings, lambda: of.dense(2, 32, 32, 1, last=nn.Sigmoid), first.of_probability, likely),
    ),
    pair(
        "The augmentation adds its noise to the stored pictures, in which it piles up from epoch to epoch.",
        any_of(r"in.?place|piles? up|augment ; noise[^.]*(grow|accumul|epoch) ; (inputs|images)[^.]*(drift|grow)"),
        on_altered(lambda x: x.add_(0.7 * torch.randn_like(x))), on_altered(lambda x: x.add(0.7 * torch.randn_like(x))),
        by(adam(2e-3), 20),
    ),
    pair(
        "The convolution's kernel is one token wide, and a tag depends on the token before, too.",
        any_of(r"kernel|receptive|context|\bwindow|neighbou?r ; (before|previous|preceding) (token|word)|other tokens"),
        task(of.spellings, lambda: tagging(1), first.tagged(lambda wanted: wanted >= 0), accuracy),
        task(of.spellings, lambda: tagging(3), first.tagged(lambda wanted: wanted >= 0), accuracy),
        by(adam(3e-3), 20),
    ),
]
# fmt: on
PAIRS: list[first.UnseenPair] = [made(f"W{number:02}") for number, made in enumerate(MADE, 1)]
