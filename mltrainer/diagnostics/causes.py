"""Causes of a bad training that its config and its record already hold: one table, each row a pure function of a run.

A diagnostic says what is wrong with a run; a cause says why, with its figures and a cure. Some are wrong in themselves, and are
reported by planning and by the diagnostic `wrong_setup` even where the run looks healthy. The limits are chosen by us, so that
no healthy run of the labelled sets is told one.
"""

from __future__ import annotations

from collections.abc import Iterator

from mltrainer.diagnostics.cause import Told
from mltrainer.diagnostics.config_causes import CONFIG_CAUSES
from mltrainer.diagnostics.data_causes import DATA_CAUSES
from mltrainer.diagnostics.loss_causes import LOSS_CAUSES
from mltrainer.diagnostics.model_causes import MODEL_CAUSES
from mltrainer.diagnostics.signals import Run
from mltrainer.records.diagnostics import Diagnosis

ALONE = "wrong_setup"  # the diagnostic of causes that are wrong in themselves

SYMPTOMS = frozenset(  # diagnostics that say how a run looks, and leave open why
    (
        *("underfitting", "undertrained", "convergence_stall", "constant_predictions", "learning_rate_low", "learning_rate_high"),
        *("loss_oscillation", "loss_spike", "divergence", "exploding_gradients", "vanishing_gradients", "overfitting"),
        *("label_noise", "bad_initialization", "train_eval_mismatch", ALONE),
    )
)

CAUSES = (*CONFIG_CAUSES, *LOSS_CAUSES, *MODEL_CAUSES, *DATA_CAUSES)


def causes_of(run: Run) -> list[Told]:
    """Return the causes that a run's config and record show, in the order of the table."""
    return list(_told(run))


def _told(run: Run) -> Iterator[Told]:
    for cause in CAUSES:
        if run.config and (found := cause.find(run)) is not None:
            yield Told(cause, found)


def with_causes(row: Diagnosis, told: list[Told]) -> Diagnosis:
    """Return a row that fired with the causes that explain it first, and their cures as its first suggestions."""
    told = [one for one in told if one.cause.is_wrong or row.id != ALONE]
    if row.state != "fired" or row.id not in SYMPTOMS or not told:
        return row
    causes, cures = [one.found.sentence for one in told], [one.suggestion for one in told]
    return row.model_copy(update={"causes": [*causes, *row.causes], "suggestions": [*cures, *row.suggestions]})
