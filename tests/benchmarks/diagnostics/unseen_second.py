"""A second set of faults that people meet, by an author who did not know the rules, each with the same training without it.

As in the first set, `words` were written before any answer was read. No fault has a cause of the first set.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.benchmarks.diagnostics import unseen as first
from tests.benchmarks.diagnostics import unseen_parts as of
from tests.benchmarks.diagnostics import unseen_second_parts as more
from tests.benchmarks.diagnostics.case import adam, by, sgd
from tests.benchmarks.diagnostics.data import Ordered
from tests.benchmarks.diagnostics.pairs import Splits
from tests.benchmarks.diagnostics.unseen import Maker, both, cross, inputs, on_digits, on_prices, on_rings, on_waves, pair
from tests.benchmarks.diagnostics.unseen_parts import Change, Rows, Unseen, accuracy, likely, r2, split, two

# What an honest answer says where the steps were too short to arrive.
SLOW = (r"rate[^.]*too (low|small)", r"(raise|higher|larger|increase)[^.]*rate", r"(steps?|updates?)[^.]*too (small|short)")
EARLY = (r"stop\w*[^.]*too (early|soon)", r"(ended|cut) (too )?(early|soon|short)", r"still (falling|improving|rising|learning)")
LEAK = (r"leak", r"too good", r"(known|available)[^.]*(predict|use)", r"target[^.]*(by itself|alone)")
FEW_ROWS = (r"(few|fewer|little|small|tiny|only)[^.]*(rows|samples|data|training set)", r"more (data|rows|samples)")
SCALES = (
    r"standardi[sz]",
    r"normali[sz]",
    r"\bscal(e|ed|ing)\b",
    r"\bunscaled\b",
    r"magnitude",
    r"(different|large|wide) ranges?",
)


def any_of(words: str, *others: tuple[str, ...]) -> tuple[str, ...]:
    """Return the regular expressions that a text holds, and others."""
    return (*words.split(" ; "), *itertools.chain(*others))


# --- tasks as they should be, of which a part may be another --------------------------------------


def on_clouds(size: int = 6, **changes: Any) -> Maker:
    return first.task(more.clouds, lambda: of.dense(size, 16, 2), cross, accuracy, **changes)


def on_turns(is_mirrored: bool) -> Maker:
    """Return bends; mirrored: training pictures are augmented."""

    def splits() -> Splits:
        made = split(*more.turns())
        return Splits(more.Mirrored(*made.train) if is_mirrored else made.train, made.validation)

    return lambda: Unseen(splits, lambda: of.pictures(1, 3), cross, accuracy)


def on_shops(coded: bool) -> Maker:
    return first.task(lambda: more.shops(coded), lambda: of.dense(3 if coded else 52, 32, 1), first.squares, r2)


def on_chains(ahead: int = 1, after: int = 0) -> Maker:
    return first.task(lambda: more.chains(ahead), lambda: more.foreteller(1, after), by_token, accuracy)


def on_counts(loss: Any) -> Maker:
    return first.task(more.counts, lambda: of.dense(5, 48, 48, 1, last=nn.Softplus), loss, r2)


# --- what is changed of data ----------------------------------------------------------------------


def with_holes(filled: float) -> Change:
    """Return a change that fills the missing cells, a fortieth of all, with a number."""
    return inputs(lambda x: x.masked_fill(torch.rand(x.shape, generator=of.drawn(3)) < 1 / 40, filled))


def unread(x: Tensor, y: Tensor) -> Rows:
    """Return pictures of which more than a half could not be read, and are black."""
    return torch.where((torch.rand(len(x), generator=of.drawn(3)) < 0.55)[:, None, None, None], x.min(), x), y


def numbered_by_place(x: Tensor, y: Tensor) -> Rows:
    """Return classes numbered in the order in which they first come up."""
    seen = list(dict.fromkeys(y.tolist()))
    return x, torch.tensor([seen.index(one) for one in y.tolist()])


def ordered(is_ordered: bool) -> Maker:
    """Return digits; ordered: training rows come class by class, as a stream that nothing shuffles."""

    def splits() -> Splits:
        made = split(*of.digits())
        x, y = made.train
        order = y.argsort(stable=True)
        return Splits(Ordered(x[order], y[order]) if is_ordered else (x, y), made.validation)

    return lambda: Unseen(splits, lambda: of.pictures(1, 10), cross, accuracy)


def sorted_by_class(x: Tensor, y: Tensor) -> Rows:
    order = y.argsort(stable=True)
    return x[order], y[order]


# --- losses and parts of models -------------------------------------------------------------------


def by_token(outputs: Tensor, wanted: Tensor) -> Tensor:
    return cross(outputs.flatten(0, 1), wanted.flatten())


def over_rows(outputs: Tensor, wanted: Tensor) -> Tensor:
    return functional.nll_loss(outputs.log_softmax(0), wanted)


def over_classes(outputs: Tensor, wanted: Tensor) -> Tensor:
    return functional.nll_loss(outputs.log_softmax(1), wanted)


def of_last_row(outputs: Tensor, wanted: Tensor) -> Tensor:
    for output, one in zip(outputs, wanted, strict=True):
        loss = cross(output, one)
    return loss


def evidence(weight: float) -> Any:
    """Return the loss of a variational autoencoder of pictures with a weight of its divergence."""

    def loss(outputs: Tensor, wanted: Tensor) -> Tensor:
        mean, spread = outputs[:, 64:].chunk(2, 1)
        divergence = (mean.square() + spread.exp() - 1 - spread).sum(1).mean() / 2
        return first.squares(outputs[:, :64], wanted) + weight * divergence / 64

    return loss


def certain() -> nn.Module:
    return nn.Sequential(of.dense(2, 32, 32, 1, last=nn.Sigmoid), nn.Flatten(0))


MADE = [
    # config
    pair(
        "The batch holds all training rows, so that an epoch has a single step.",
        any_of(
            r"batch.?size ; (large|big|huge|whole|full)[ -]*batch|batch(es)?[^.]*too (large|big) ; "
            r"(few|fewer|only \w+|one|single) (steps?|updates?) ; steps?[^.]*(per|an|each|in an) epoch ; "
            r"more (steps|updates)"
        ),
        on_digits(),
        config=by(adam(2e-3), 15, batch_size=1347),
        cured=by(adam(2e-3), 15),
    ),
    pair(
        "epochs: 1 was left from a smoke test.",
        any_of(
            r"(more|few|fewer|single|one|1|longer) epochs?|epochs: 1\b ; (train|run)\w*( for)? (longer|too short) ; "
            r"not (yet )?(converged|finished)",
            EARLY,
        ),
        on_digits(),
        config=by(adam(1.5e-3), 1),
        cured=by(adam(1.5e-3), 15),
    ),
    pair(
        "Early stopping asks for steps of 0.1 in the metric, which few epochs bring: it stops after two or three evaluations.",
        any_of(r"early.?stopping ; patience ; min_?delta", EARLY),
        on_waves(),
        config=by(adam(1e-3), 20, early_stopping={"patience": 1, "min_delta": 0.1}),
        cured=by(adam(1e-3), 20, early_stopping={"patience": 5, "min_delta": 0.0}),
    ),
    pair(
        "The noise that is added to gradients for privacy has a deviation of 1, far above the gradients themselves.",
        any_of(r"noise[^.]*gradients?|gradients?[^.]*\bnois(e|y) ; gradients\.noise ; \beta\b ; privacy"),
        on_digits(),
        config=by(adam(3e-3), 12, gradients={"noise": {"eta": 1.0, "gamma": 0.0}}),
        cured=by(adam(3e-3), 12, gradients={"noise": {"eta": 1e-6, "gamma": 0.0}}),
    ),
    pair(
        "Adam's eps is 1, as a framework's page recommends it for one network.",
        any_of(r"\beps\b|epsilon ; denominator", SLOW),
        on_digits(),
        config=by({**adam(3e-3), "eps": 1.0}, 12),
        cured=by(adam(3e-3), 12),
    ),
    pair(
        "The rate is that of fine-tuning (2e-5), though the model starts from random weights.",
        SLOW,
        on_waves(),
        config=by(adam(2e-5), 15),
        cured=by(adam(5e-3), 15),
    ),
    pair(
        "SAM's rho is 2, which is meant for its adaptive form.",
        any_of(r"\brho\b ; \bsam\b ; sharpness ; perturb"),
        on_waves(),
        config=by({**adam(5e-3), "sam": {"rho": 2.0}}, 8),
        cured=by({**adam(5e-3), "sam": {"rho": 0.05}}, 8),
    ),
    pair(
        "A group's lr was written as an absolute rate, but it is a share of the rate: the first layers hardly learn.",
        any_of(
            r"\bgroups?\b ; "
            r"(layers?|parameters|weights)[^.]*(hardly|barely|never|not|almost|slow)[^.]*(mov|chang|train|learn|updat) ; "
            r"frozen|\bheld\b ; layers?[^.]*rate[^.]*(low|small)|rate[^.]*(low|small)[^.]*layers?"
        ),
        on_rings(lambda: of.dense(2, 6, 6, 2)),
        config=by({**adam(1e-2), "groups": [{"match": r"^[13]\.", "lr": 1e-3}]}, 20),
        cured=by({**adam(1e-2), "groups": [{"match": r"^[13]\.", "lr": 1.0}]}, 20),
    ),
    pair(
        "The metric's mode is min, though larger is better: early stopping sees no progress.",
        any_of(
            r"mode: |metric\.mode|\bmode\b[^.]*metric|metric[^.]*(\bmode\b|direction) ; "
            r"(larger|higher|bigger|smaller|lower) is better ; metric[^.]*(max|min)imi[sz]|(max|min)imi[sz][^.]*metric ; "
            r"best (epoch|checkpoint|weights)[^.]*(first|worst|wrong)|(first|worst|wrong)[^.]*(best|checkpoint)"
        ),
        on_prices(),
        config=by(adam(1e-3), 25, early_stopping={"patience": 3}, metric={"name": "r2", "mode": "min"}),
        cured=by(adam(1e-3), 25, early_stopping={"patience": 3}),
    ),
    pair(
        "Batches of 2 rows, with batch norm.",
        any_of(
            r"batch.?norm ; batch.?size ; "
            r"small(er)? batch|batch(es)?[^.]*too small|larger batch|batch(es)? of (two|2) ; running (mean|var|stat)"
        ),
        on_rings(lambda: more.normed(nn.BatchNorm1d(32))),
        config=by(adam(5e-3), 3, batch_size=2),
        cured=by(adam(5e-3), 3),
    ),
    pair(
        "A large network was trained for 150 epochs on 120 rows with much noise, with nothing to stop it.",
        any_of(
            r"over-?fit ; memori[sz] ; early.?stop ; (fewer|too many|less) epochs|too long ; regulari[sz] ; "
            r"(smaller|simpler) (model|network)|capacity|too many parameters",
            FEW_ROWS,
        ),
        first.task(
            lambda: more.noisy_prices(2000, 1.5),
            lambda: of.dense(8, 128, 128, 1),
            first.squares,
            r2,
            train=lambda x, y: (x[:120], y[:120]),
        ),
        first.task(lambda: more.noisy_prices(2000, 1.5), lambda: of.dense(8, 32, 1), first.squares, r2),
        by(adam(3e-3), 150),
        by(adam(3e-3), 15),
    ),
    pair(
        "The attack of adversarial training moves inputs by 8: meant were 8 of 255 levels.",
        any_of(r"adversar|attack|\bpgd\b ; epsilon ; perturb ; moved inputs|inputs?[^.]*moved"),
        on_digits(model=lambda: of.dense(64, 64, 10)),
        config=by(adam(5e-3), 10, strategies=[{"name": "adversarial", "epsilon": 8.0, "steps": 2}]),
        cured=by(adam(5e-3), 10, strategies=[{"name": "adversarial", "epsilon": 0.08, "steps": 2}]),
    ),
    pair(
        "Pictures are mirrored at random, but the class says whether the road turns left or right.",
        any_of(r"\bflip|mirror ; augment ; left and right|left or right"),
        on_turns(True),
        on_turns(False),
        by(adam(5e-3), 8),
    ),
    # data
    pair(
        "Missing cells are -999, and are read as numbers.",
        any_of(r"missing ; sentinel|placeholder ; -?999 ; outlier|extreme|far (away )?from"),
        on_prices(**both(with_holes(-999.0))),
        on_prices(**both(with_holes(0.0))),
    ),
    pair(
        "A feature is the row's number in a file sorted by class, which new rows have not: the reported metric is wrong.",
        any_of(r"(row|line)[^.]*(number|id\b|index) ; \bid\b ; index ; (feature|column|input)[^.]*(tells|gives|follows)", LEAK),
        on_clouds(7, **both(more.numbered)),
        on_clouds(),
    ),
    pair(
        "Rows were copied ten times before the split: the reported metric is wrong, as validation rows were trained on.",
        any_of(
            r"leak ; duplicat ; cop(y|ies|ied) ; identical|same rows|repeated ; "
            r"(both|in training and|overlap)[^.]*(splits?|validation)|overlap"
        ),
        first.task(lambda: more.noisy_prices(200, 1.0), lambda: of.dense(8, 64, 64, 1), first.squares, r2),
        first.task(lambda: more.noisy_prices(2000, 1.0), lambda: of.dense(8, 64, 64, 1), first.squares, r2),
        by(adam(5e-3), 15),
    ),
    pair(
        "Targets are raw prices in the hundred thousands.",
        any_of(
            r"targets?[^.]*(scale|large|magnitude|range|unit|standardi|normali|mean|far) ; "
            r"(scale|standardi[sz]\w*|normali[sz]\w*|divide)[^.]*targets? ; "
            r"(outputs?|predictions?)[^.]*(far|reach|scale|too small)"
        ),
        on_prices(**both(first.targets(lambda y: 80_000 * y + 300_000))),
        on_prices(),
    ),
    pair(
        "Columns were never standardized: some reach 0.01, others 4000.",
        SCALES,
        first.task(more.raw_cancer, lambda: of.dense(30, 24, 2), cross, accuracy),
        first.on_table(),
        by(sgd(0.02, 0.9), 15),
    ),
    pair(
        "The number of a shop is read as a quantity; it is the name of a category.",
        any_of(r"categor ; one.?hot ; embed ; nominal|ordinal ; \bcodes?\b"),
        on_shops(True),
        on_shops(False),
    ),
    pair(
        "The label encoder was fitted again on the validation rows, so that their classes have other numbers.",
        any_of(
            r"encod ; class(es)?[^.]*(numbered|numbering|order|ind(ex|ices)|names|mapping) ; label.?(map|order|number|ind) ; "
            r"permut|renumber|swapped ; "
            r"validation[^.]*(labels?|targets?|class\w*)[^.]*(other|differ|wrong|mismatch|match) ; "
            r"(labels?|targets?|class\w*)[^.]*(other|differ|wrong|mismatch|match)[^.]*validation ; "
            r"prepared (differently|otherwise|in another way)"
        ),
        on_digits(validation=numbered_by_place),
        on_digits(),
    ),
    pair(
        "Training rows are read class by class, and nothing shuffles them.",
        any_of(r"shuffl ; sorted|\border(ed)?\b ; (one|single|same) class[^.]*batch|batch[^.]*(one|single|same|few) class"),
        ordered(True),
        ordered(False),
    ),
    pair(
        "The vocabulary was cut to 4 words, so that nearly every token is the unknown one.",
        any_of(
            r"vocab ; unknown|\bunk\b ; "
            r"(same|one|single) (token|word|value) ; (tokens?|words?)[^.]*(mostly|nearly all|almost all)[^.]*(same|one) ; "
            r"inputs?[^.]*(do not|don't|hardly|cannot)[^.]*(tell|determine|predict|hold) ; "
            r"no signal|not (in|enough) (the )?(inputs?|information)"
        ),
        first.task(lambda: more.opinions(4), more.bag, cross, accuracy),
        first.task(more.opinions, more.bag, cross, accuracy),
        by(adam(1e-2), 20),
    ),
    pair(
        "More than half of the pictures could not be read, and a black one was taken for each.",
        any_of(
            r"black|blank|empty|all zeros? ; identical|same (inputs?|pictures?|images?|rows?)|duplicat|equal inputs ; "
            r"constant (inputs?|pictures?|images?|rows?) ; "
            r"(could not|failed to|cannot) (be )?(load|read|open|decode)|corrupt|damaged|unread"
        ),
        on_digits(**both(unread)),
        on_digits(),
    ),
    pair(
        "Targets of training are the logarithm, those of validation are not: the reported metric compares two units.",
        any_of(r"targets?[^.]*(scale|unit|range|distribution|transform|differ|log\b) ; \blog(arithm)?\b", first.OTHER_VALIDATION),
        on_prices(validation=first.targets(lambda y: (1.5 * y).exp())),
        on_prices(),
    ),
    # loss
    pair(
        "The softmax is taken over the rows of the batch in place of the classes (dim=0).",
        any_of(r"softmax ; \b(dim|axis|dimension)\b ; (over|across|along) (the )?(batch|rows|samples)", first.OTHER_ROWS),
        on_digits(over_rows),
        on_digits(over_classes),
    ),
    pair(
        "Outputs [rows, 1] and targets [rows] are broadcast to all pairs.",
        any_of(r"broadcast ; \bshapes?\b ; dimensions? ; every (output|prediction)[^.]*every target|\bpair"),
        on_prices(lambda outputs, wanted: first.squares(outputs, wanted.flatten())),
        on_prices(),
    ),
    pair(
        "Ten classes are learned as one number by squared error.",
        any_of(
            r"regress ; \bmse\b|squared|mean.square ; cross.?entropy ; "
            r"(output|logit)s? (for|per|of) each class|one output|single output ; "
            r"class(es)?[^.]*(as numbers?|as quantit|no order|ordinal)|ordinal"
        ),
        first.task(
            of.digits,
            lambda: of.dense(64, 64, 1),
            lambda outputs, wanted: first.squares(outputs.flatten(), wanted.float()),
            more.rounded_accuracy,
        ),
        first.task(of.digits, lambda: of.dense(64, 64, 10), cross, accuracy),
    ),
    pair(
        "Six labels that may hold at once are learned by a softmax, as if one excluded the others.",
        any_of(
            r"softmax ; multi.?label ; exclu(de|sive) ; binary.cross|\bbce\b|sigmoid ; cross.?entropy ; "
            r"sum\w* to (1|one)|several labels|more than one (label|class)"
        ),
        first.on_tags(loss=cross),
        first.on_tags(),
    ),
    pair(
        "The Poisson loss expects the logarithm of the rate, and is given the rate.",
        any_of(
            r"log_input ; poisson ; \blog(arithm|-rate)?\b ; "
            r"softplus|activation[^.]*(last|output|end)|(last|output|final)[^.]*activation"
        ),
        on_counts(lambda outputs, wanted: functional.poisson_nll_loss(outputs, wanted)),
        on_counts(lambda outputs, wanted: functional.poisson_nll_loss(outputs, wanted, log_input=False)),
    ),
    pair(
        "The loss is overwritten in a loop over the rows, so that the last row of each batch alone counts.",
        any_of(
            r"(last|one|single|only)[^.]*\b(row|sample|item)\b ; "
            r"(rows|samples)[^.]*(no gradient|not count|do not|ignored|without|left out|never) ; "
            r"rest of (the|its|each) batch ; reduction|averag\w* over (the )?(batch|rows)"
        ),
        on_digits(of_last_row),
        on_digits(),
        by(adam(3e-3), 10),
    ),
    pair(
        "The divergence of a variational autoencoder weighs 50 in place of 0.05: the latent says nothing.",
        any_of(r"diverg(ence|ing term)|\bkl\b ; collaps ; latent ; \bbeta\b ; (term|loss)[^.]*(weigh|dominat|outweigh)"),
        first.task(lambda: of.to_itself(*of.digits()), more.Variational, evidence(50.0), more.r2_of_pictures),
        first.task(lambda: of.to_itself(*of.digits()), more.Variational, evidence(0.05), more.r2_of_pictures),
        by(adam(5e-3), 20),
    ),
    # model
    pair(
        "The state that is summed over time is not set to zero: each batch starts from the sums of the batch before.",
        any_of(
            r"(hidden|recurrent|internal|kept|its|a) state|\bstate[^.]*(batch|reset|zero|kept|carr) ; carr(y|ies|ied) ; "
            r"batch before|previous batch|other batch|between batches ; reset",
            first.OTHER_ROWS,
        ),
        on_waves(lambda: more.Summing(True)),
        on_waves(lambda: more.Summing(False)),
    ),
    pair(
        "The convolution is centred: it sees the token that it shall predict, and the reported metric is wrong.",
        any_of(r"future ; causal ; sees?[^.]*(next|target|ahead) ; inputs?[^.]*(hold|contain|tell|same as)[^.]*target", LEAK),
        on_chains(after=1),
        on_chains(),
    ),
    pair(
        "The answer is read behind 65 places of padding, not at the last word.",
        any_of(r"padd ; \bpack ; last (word|token|real|valid) ; lengths?\b"),
        first.on_reviews(more.ending, of.reviews, **both(inputs(lambda x: functional.pad(x, (0, 65))))),
        first.on_reviews(of.reader, of.reviews, **both(inputs(lambda x: functional.pad(x, (0, 65))))),
        by(adam(5e-3), 4),
    ),
    pair(
        "All weights of the hidden layers start at the same number, so that the units of a layer stay the same.",
        any_of(
            r"initiali[sz] ; symmetr ; (units|neurons|weights|features)[^.]*(same|identical|equal) ; "
            r"start\w*[^.]*(same|equal|constant)"
        ),
        on_digits(model=lambda: more.started(more.constant, 64, 64, 64, 10)),
        on_digits(model=lambda: of.dense(64, 64, 64, 10)),
    ),
    pair(
        "Batch norm takes the statistics of each batch in evaluation too, and the validation rows are sorted by class.",
        any_of(
            r"batch.?norm ; track_running ; running (mean|var|stat|average) ; "
            r"batch statistic|statistics of (the|its|each|a) batch",
            first.OTHER_ROWS,
        ),
        on_rings(lambda: more.normed(nn.BatchNorm1d(32, track_running_stats=False)), validation=sorted_by_class),
        on_rings(lambda: more.normed(nn.BatchNorm1d(32)), validation=sorted_by_class),
    ),
    pair(
        "Labels are shifted by one twice, by the data and by the loss: the token after the next is predicted.",
        any_of(
            r"shift\w* (twice|by)|(labels?|targets?|tokens?)[^.]*shift|shift[^.]*(label|target|token) ; align ; "
            r"off.by.one|one (step|token|place) (too )?(far|late|off) ; next token|token after"
        ),
        on_chains(2),
        on_chains(),
    ),
    pair(
        "The hidden layers are in a Python list, of which PyTorch does not know: they are not trained.",
        any_of(
            r"module.?list|python list|\bplain list ; regist ; optimizer[^.]*(miss|not|never|lack|without|given) ; "
            r"(not|never) (in the optimizer|trained?|among|part of)[^.]* ; "
            r"(few|fewer|missing) parameters|parameters[^.]*(miss|unknown|few)"
        ),
        on_rings(lambda: more.Listed(False)),
        on_rings(lambda: more.Listed(True)),
        by(adam(1e-2), 20),
    ),
    pair(
        "Inputs are normalized over the features of each row, which takes their level away.",
        any_of(
            r"layer.?norm ; "
            r"per.?(row|sample)|(each|every|a) (row|sample)[^.]*(normali|standardi|mean) ; "
            r"(normali|standardi)[^.]*(each|every|a) (row|sample) ; "
            r"\b(axis|dim)\b ; "
            r"(level|information|signal)[^.]*(lost|away|gone|removed|destroy)|loses?[^.]*information|throws? away"
        ),
        on_rings(lambda: nn.Sequential(nn.LayerNorm(2), of.dense(2, 32, 32, 2))),
        on_rings(),
    ),
    pair(
        "Outputs are probabilities, but the metric takes those above 0 for the class: the reported metric is wrong.",
        any_of(r"threshold|\b0\.5\b ; probabilit ; logit ; metric[^.]*(wrong|loss|disagree|does not fit|outputs?|computed)"),
        first.task(of.rings, certain, first.of_probability, two),
        first.task(of.rings, certain, first.of_probability, likely),
    ),
]
PAIRS: list[first.UnseenPair] = [made(f"V{number:02}") for number, made in enumerate(MADE, 1)]
