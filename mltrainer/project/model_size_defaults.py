"""Defaults by the number of rows, texts or pictures: the length of training, the batch size, the search, the last training.

The three config templates of a project of its own have these values, under comments; whoever changes them changes where planning,
optimization and finalization start from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mltrainer import handbook
from mltrainer.configs import yaml
from mltrainer.configs.editing import rewritten
from mltrainer.configs.templates import BASELINE, PRODUCTION, TUNING, overlay

Values = dict[str, Any]  # of a project file or a config template

LEAST_BATCH_ROWS, BATCH_ROWS, MOST_BATCH_ROWS = 32, 256, 1024  # of a table
TRAIN_SHARE = 0.7  # of the rows, with the splits that `init` writes
STEPS = 1200  # chosen by us: the most for a small table; early stopping ends most trainings before
FEW_ROWS, MOST_STEPS = 5000, 4800  # more can be learned from larger tables: their steps grow with their rows, up to MOST_STEPS
MOST_EPOCHS, LEAST_EPOCHS = 200, 6  # of the baseline
SMALL, LARGE = 1000, 20_000  # rows below and above which steps are finer, and a search is shorter
EVALUATIONS, PATIENCE = 40, 8  # chosen by us: points of the learning curve, and those without improvement that end the run
SMALL_RATE, RATE = 3.0e-3, 6.0e-3  # chosen by us, on seed 0 of tests/benchmarks/tables: below and above `SMALL` rows

MOST_BATCH, LEAST_BATCH = 64, 8  # of texts and pictures
MOST_SAMPLE_EPOCHS, LEAST_SAMPLE_EPOCHS = 60, 3  # over texts and pictures, which cost more than a table's rows
# Beside the planned cosine. Pairs of trials that differ in it alone show no loss; other lengths of warm-up lose a little:
# tests/benchmarks/bench_space.py, docs/BENCHMARKS.md. Not measured on texts.
SCHEDULE: Values = {"schedule.name": {"choice": ["cosine", "constant"]}}
# Where the project's own config augments: which alterations keep a class, only its author knows.
AUGMENT: Values = {
    "augment.mixup": {"choice": [None, 0.2]},
    "augment.affine.rotate": {"uniform": [0.0, 30.0]},
    "augment.randaugment.magnitude": {"integer": [3, 15]},
}
TEXT_SPACE: Values = {
    "optimizer.lr": {"log_uniform": [3.0e-4, 5.0e-3]},
    "model.width": {"choice": [32, 64, 128]},
    "model.dropout": {"uniform": [0.0, 0.5]},
    "optimizer.weight_decay": {"log_uniform": [1.0e-3, 3.0e-1]},
}
PICTURE_SPACE: Values = {
    "optimizer.lr": {"log_uniform": [3.0e-4, 1.0e-2]},
    "model.dropout": {"uniform": [0.0, 0.5]},
    "label_smoothing": {"choice": [0.0, 0.1]},
    "optimizer.weight_decay": {"log_uniform": [1.0e-3, 3.0e-1]},
    **SCHEDULE,
    **AUGMENT,
}
MODEL: Values = {
    "name": "tabular_mlp",
    "hidden": [128, 128],
    "members": 8,
    "numbers": "piecewise",
    "bins": 48,  # Gorishniy et al., 2024, arXiv 2410.24210
    "codes": True,
    "dropout": 0.1,
}
EMBEDDING, WIDEST = 8, 1024  # a column's vector, and all of them together, which each member reads
SMALL_RATES, RATES = [5.0e-4, 1.0e-2], [1.0e-3, 2.0e-2]  # lower ones underfit in so few passes over more than `SMALL` rows
SPACE: Values = {
    "model.hidden": {"choice": [[32], [64, 64], [128, 128], [128, 128, 128]]},
    "model.dropout": {"uniform": [0.0, 0.4]},
    "model.numbers": {"choice": ["piecewise", "periodic", "plain"]},
    "optimizer.weight_decay": {"log_uniform": [1.0e-3, 3.0e-1]},
    **SCHEDULE,
}


@dataclass(frozen=True)
class Size:
    """The training of a table of a given number of rows.

    Attributes:
        rows: All of them.
        batch_size: A power of two near a 32nd of the rows, from 32 to 256; of very many rows near a 128th, up to 1024. No more
            than there are to train on.
        epochs: The epochs that make `STEPS` steps, and in proportion more for many rows, within bounds.
        trial_epochs: The epochs that make `STEPS` steps: enough to compare configs.
    """

    rows: int
    batch_size: int
    epochs: int
    trial_epochs: int

    @classmethod
    def of(cls, rows: int) -> Size:
        """Return the size that suits a number of rows."""
        # In as many steps larger batches cost more and reach hardly more; a million rows would take too many of 256.
        batch_size = max(batch_for(rows, LEAST_BATCH_ROWS, BATCH_ROWS), batch_for(rows // 4, LEAST_BATCH_ROWS, MOST_BATCH_ROWS))
        per_epoch = max(1, math.ceil(TRAIN_SHARE * rows / batch_size))
        steps = min(MOST_STEPS, max(STEPS, STEPS * rows // FEW_ROWS))
        epochs, trial_epochs = (min(MOST_EPOCHS, max(LEAST_EPOCHS, math.ceil(wanted / per_epoch))) for wanted in (steps, STEPS))
        return cls(rows, batch_size, epochs, trial_epochs)

    @property
    def every(self) -> int:
        """Epochs from one evaluation to the next."""
        return max(1, self.epochs // EVALUATIONS)


def batch_for(samples: int, least: int, most: int) -> int:
    """Return a power of two near a 32nd of the samples, within bounds, that a training split fills at least once."""
    wanted = round(math.log2(max(samples, 1) / 32))
    filled = int(math.log2(max(1.0, TRAIN_SHARE * samples)))
    return 1 << min(filled, int(math.log2(most)), max(int(math.log2(least)), wanted))


def model_for(columns: int) -> Values:
    """Return the model of a table with a number of columns: the more there are, the shorter is the vector of each."""
    return {**MODEL, "embedding": max(1, min(EMBEDDING, WIDEST // max(columns, 1)))}


def templates_for(rows: int) -> dict[str, str]:
    """Return the text of the project's own config templates, by path.

    Args:
        rows: The table's number of rows.
    """
    size = Size.of(rows)
    return {
        BASELINE: _text(BASELINE, f"a table of {rows} rows", baseline(size)),
        TUNING: _text(TUNING, f"a table of {rows} rows", tuning(size)),
        PRODUCTION: _text(PRODUCTION, f"a table of {rows} rows", production(size)),
    }


def templates_for_texts(samples: int) -> dict[str, str]:
    """Return the text of the project's own config templates for a task about texts, by path.

    Args:
        samples: Texts, or windows of one.
    """
    return _templates(f"{samples} texts", samples, batch_for(samples, MOST_BATCH, MOST_BATCH), TEXT_SPACE)


def templates_for_pictures(pictures: int) -> dict[str, str]:
    """Return the text of the project's own config templates for a classification of pictures, by path.

    Args:
        pictures: All of them.
    """
    return _templates(f"{pictures} pictures", pictures, batch_for(pictures, LEAST_BATCH, MOST_BATCH), PICTURE_SPACE)


def _templates(what: str, samples: int, batch_size: int, space: Values) -> dict[str, str]:
    per_epoch = max(1, math.ceil(TRAIN_SHARE * samples / batch_size))
    epochs = min(MOST_SAMPLE_EPOCHS, max(LEAST_SAMPLE_EPOCHS, math.ceil(STEPS / per_epoch)))
    few = epochs < LEAST_EPOCHS  # so long ones that a curve with a point for each would show nothing
    curve = {"every_n_steps": per_epoch * epochs // EVALUATIONS} if few else {"every_n_epochs": 1}
    patience = {
        "early_stopping": {"patience": 12 if few else epochs // 3},
        "evaluate": curve,
        "checkpoint": {"every_n_epochs": max(1, epochs // 4)},
    }
    trial = {"epochs": epochs, "early_stopping": {"patience": max(4, epochs // 6)}}
    return {
        BASELINE: _text(BASELINE, what, {"epochs": epochs, "batch_size": batch_size, **patience}),
        TUNING: _text(TUNING, what, {"trials": 10, "pruning": first_rung(epochs), "trial": trial, "space": space}),
        PRODUCTION: _text(PRODUCTION, what, {"epochs": epochs * 3 // 2, **patience}),
    }


def baseline(size: Size) -> Values:
    """Return the overrides of the handbook's baseline template for a size of data."""
    return {
        "epochs": size.epochs,
        "batch_size": size.batch_size,
        "optimizer": {"lr": SMALL_RATE if size.rows < SMALL else RATE},
        # The average of the weights replaces a falling rate, at every step: a run can end where it no longer improves.
        "schedule": {"name": "constant", "warmup_epochs": max(1, size.trial_epochs // 20)},  # which the trials have, too
        "averaging": {"name": "ema"},
        "early_stopping": {"patience": PATIENCE},
        "evaluate": {"every_n_epochs": size.every},
        "checkpoint": {"every_n_epochs": max(5, size.epochs // 4)},
    }


def tuning(size: Size) -> Values:
    """Return the overrides of the handbook's tuning template: trials as long as a small table's, half as long on large data."""
    is_large = size.rows > LARGE
    epochs = max(LEAST_EPOCHS // 2, size.trial_epochs // 2) if is_large else size.trial_epochs
    checkpoint = {"every_n_epochs": epochs, "save_best": True, "save_last": True, "keep": 0}
    trial = {"epochs": epochs, "early_stopping": {"patience": 6}, "checkpoint": checkpoint}
    space = {"optimizer.lr": {"log_uniform": SMALL_RATES if size.rows < SMALL else RATES}, **SPACE}
    return {"trials": 10 if is_large else 20, "pruning": first_rung(epochs), "space": space, "trial": trial}


def first_rung(epochs: int) -> dict[str, int]:
    """Return the epoch at which the first trials may end: a ninth of all, so that the schedule's warm-up is over by then."""
    return {"first": max(1, epochs // 9)}


def production(size: Size) -> Values:
    """Return the overrides of the handbook's production template: 1.5 times the epochs, and more patience."""
    epochs = size.epochs * 3 // 2
    return {
        "epochs": epochs,
        "early_stopping": {"patience": 15},
        "evaluate": {"every_n_epochs": size.every},
        "checkpoint": {"every_n_epochs": max(5, size.epochs // 4)},
    }


def _text(path: str, what: str, changes: Values) -> str:
    return changed_template(path, f"Sized by `mltrainer init` for {what}: {', '.join(changes)}.", changes)


def changed_template(path: str, comment: str, changes: Values) -> str:
    """Return the text of the handbook's template with other values, below a line on their origin."""
    shipped = handbook.locate(path, None)[0].read_text("utf-8")
    # The space as a whole: joined, the shipped dimensions would be searched beside these.
    values = {**overlay(yaml.parse(shipped, path).value, changes), **{key: changes[key] for key in ("space",) if key in changes}}
    text = rewritten(shipped, values)
    assert text is not None, "the handbook's templates have a key to a line"
    return f"# {comment}\n{text}"
