"""Causes of a bad training that its config and its record show: one table, each row a pure function of a run.

A diagnostic names a fault of a run; a cause explains it, with figures and a cure. Some are wrong in themselves, and are
reported by planning and by the diagnostic `wrong_setup` even where the run looks healthy. The limits are chosen by us, so that
no healthy run of the labelled sets shows one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from mltrainer.diagnostics.cause import HELD_SKILL, Cause, Found, FoundCause
from mltrainer.diagnostics.config_causes import CONFIG_CAUSES
from mltrainer.diagnostics.loss_causes import LOSS_CAUSES
from mltrainer.diagnostics.model_causes import MODEL_CAUSES
from mltrainer.diagnostics.signals import Run, number, percent, text
from mltrainer.records.diagnostics import Diagnosis

FAR_TARGETS, TINY = 100, 0.01  # sizes relative to the answers of an untrained model, which are about 1
PADDED = 0.5  # share of the places
REPEATED = 0.5  # share of the training rows
ALIKE, LOST = 0.3, 3  # the neighbours' skill, and its ratio to the remaining skill
OUTLYING, MOST_OUTLIERS = 0.8, 0.1  # share of the variance, and of the samples


def _repeated(run: Run) -> Found | None:
    share = number(run.start_data.repeated) if run.start_data else math.nan
    if not share >= REPEATED:
        return None
    return Found(
        f"{percent(share)} of the training samples that were looked at repeat another one: an epoch has few distinct rows."
    )


def _altered(run: Run) -> Found | None:
    given = [number(share) for share in ((run.result.signals and run.result.signals.start.as_given) or [])]
    if len(given) < 2 or not run.history or run.reached_skill >= HELD_SKILL or not 0 <= run.chance < 1:
        return None
    trained, held_out = ((share - run.chance) / (1 - run.chance) for share in given)
    if held_out < ALIKE or trained > held_out / LOST:
        return None
    return Found(
        f"Of validation samples the nearest ones name the class of {percent(given[1])}, of training samples, as the model gets "
        f"them, of {percent(given[0])}: what alters these (a crop, an augmentation), or their labels, takes the classes away."
    )


def _outlying(run: Run) -> Found | None:
    data = run.start_data
    if data is None or not data.outliers or not number(data.outlying) >= OUTLYING:
        return None
    if data.outliers > MOST_OUTLIERS * number(run.result.train_samples):
        return None
    return Found(
        f"{data.outliers} of the training targets that were looked at lie far outside of the others and make up "
        f"{percent(number(data.outlying))} of their variance: a squared loss is about these."
    )


def _far_targets(run: Run) -> Found | None:
    target, output = run.start and run.start.target, run.start and run.start.output
    if not target or not output or target.classes or run.reached_skill >= HELD_SKILL or _outlying(run):
        return None
    reach, given = (max(abs(number(one.lowest)), abs(number(one.largest))) for one in (target, output))
    if not reach >= FAR_TARGETS * max(given, TINY):
        return None
    return Found(
        f"The targets reach {text(reach)}, and the answers of the untrained model {text(given)}: the targets are not scaled, and "
        "steps of a usual length take very long to come near them."
    )


def _padded(run: Run) -> Found | None:
    share = number(run.start_data and run.start_data.constant)
    if not share >= PADDED or run.skill >= HELD_SKILL:
        return None
    return Found(
        f"{percent(share)} of the places of the inputs hold the same number in all training samples, as padding does: an answer "
        "that is read behind it, not at the last real place, hardly knows what is before it."
    )


DATA_CAUSES = (
    Cause("inputs_destroyed", _altered, "Look at some training samples as the model gets them, with their labels", True),
    Cause("mostly_padding", _padded, "Read the answer at each sample's own length, or pack the sequences", False),
    Cause("targets_unscaled", _far_targets, "Standardize the targets by the training split's, and undo it for the metric", False),
    Cause(
        "target_outliers", _outlying, "Look at these targets; clip them, take their logarithm, or a loss such as Huber's", False
    ),
    Cause("rows_repeated", _repeated, "Look at how the data set, or its sampler, comes to its rows", False),
)


ALONE = "wrong_setup"  # the diagnostic of causes that are wrong in themselves

SYMPTOMS = frozenset(  # diagnostics that describe a run without a cause
    (
        *("underfitting", "undertrained", "convergence_stall", "constant_predictions", "learning_rate_low", "learning_rate_high"),
        *("loss_oscillation", "loss_spike", "divergence", "exploding_gradients", "vanishing_gradients", "overfitting"),
        *("label_noise", "bad_initialization", "train_eval_mismatch", ALONE),
    )
)

CAUSES = (*CONFIG_CAUSES, *LOSS_CAUSES, *MODEL_CAUSES, *DATA_CAUSES)


def causes_of(run: Run) -> list[FoundCause]:
    """Return the causes that a run's config and record show, in the order of the table."""
    return list(_found_causes(run))


def _found_causes(run: Run) -> Iterator[FoundCause]:
    for cause in CAUSES:
        if run.config and (found := cause.find(run)) is not None:
            yield FoundCause(cause, found)


def with_causes(row: Diagnosis, causes_found: list[FoundCause]) -> Diagnosis:
    """Return a row that fired with the causes that explain it first, and their cures as its first suggestions."""
    causes_found = [one for one in causes_found if one.cause.is_wrong or row.id != ALONE]
    if row.state != "fired" or row.id not in SYMPTOMS or not causes_found:
        return row
    causes, cures = [one.found.sentence for one in causes_found], [one.suggestion for one in causes_found]
    return row.model_copy(update={"causes": [*causes, *row.causes], "suggestions": [*cures, *row.suggestions]})
