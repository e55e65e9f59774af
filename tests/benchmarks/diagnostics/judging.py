"""What the rules said of trained cases, compared with the labels."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from mltrainer.configs.optimizers import Optimizer
from mltrainer.diagnostics.causes import ALONE, CAUSES, causes_of
from mltrainer.diagnostics.rules import diagnose
from mltrainer.diagnostics.signals import Run
from mltrainer.records.diagnostics import Diagnosis
from tests.benchmarks.diagnostics.case import Case
from tests.benchmarks.diagnostics.training import values_of

_OPTIMIZERS: TypeAdapter[Optimizer] = TypeAdapter(Optimizer)
NOT_FINITE = "NAN_LOSS"
LABELS = {  # of each diagnostic; one that is not here counts under its own name, and `wrong_setup` under those of its causes
    "nan_loss": NOT_FINITE,
    "overfitting": "OVERFIT",
    "exploding_gradients": "EXPLODING",
    "vanishing_gradients": "VANISHING",
    "convergence_stall": "STALL",
    "input_starvation": "PIPELINE",
    "resource_inefficiency": "PIPELINE",
    "underfitting": "UNDERFIT",
    "undertrained": "UNDERTRAINED",
    "constant_predictions": "CONST_PRED",
    "learning_rate_high": "LR_HIGH",
    "learning_rate_low": "LR_LOW",
    "loss_oscillation": "OSCILLATING",
    "loss_spike": "LOSS_SPIKE",
    "divergence": "DIVERGE",
    "dead_units": "DYING_RELU",
    "dead_layers": "DEAD_LAYER",
    "gradient_underflow": "FP16_UNDERFLOW",
    "frozen_layers": "FROZEN",
    "saturation": "SATURATION",
    "symmetric_weights": "SYMMETRY",
    "bad_initialization": "BAD_INIT",
    "output_activation": "OUT_ACT",
    "loss_broadcast": "BROADCAST",
    "feature_collapse": "COLLAPSE",
    "gradient_conflict": "CONFLICT",
    "negative_loss": "NEG_LOSS",
    "stale_gradients": "ZERO_GRAD",
    "input_scale": "INPUT_SCALE",
    "nonfinite_data": "DATA_NAN",
    "label_noise": "LABEL_NOISE",
    "leakage": "LEAKAGE",
    "class_imbalance": "IMBALANCE",
    "unshuffled_data": "NO_SHUFFLE",
    "train_eval_mismatch": "EVAL_MISMATCH",
    "evaluation_mode": "EVAL_DROPOUT",
    "memory_growth": "MEMORY",
    "clip_too_small": "CLIP_TOO_SMALL",
    "unused_precision": "PRECISION_UNUSED",
    "class_numbering": "CLASS_NUMBERING",
}
CAUSE_NAMES = frozenset(cause.name for cause in CAUSES)
WRONG_CAUSES = frozenset(cause.name for cause in CAUSES if cause.is_wrong)
BATCH_STATS = "BATCH_STATS"
UNNAMED = {  # labels without a diagnostic, and who ought to tell
    "NOT_SHIFTED": "planning's check of tokens",
    "SHIFTED_TWICE": "planning's check of tokens",
    "PEEKING": "planning's check of tokens",
    "PADDING_COUNTED": "planning's check of tokens",
    "TIE_BROKEN": "planning's check of copied heads",
    BATCH_STATS: "evaluation_mode, where it names batch norm alone",
    "SHIFT": "planning's check of units",
    "GROUP_SPLIT": "planning's check of near copies",
    "ONE_CLASS": "planning's check of samples",
    "CONST_INPUT": "planning's check of samples",
    "CONST_TARGET": "planning's check of samples",
    "VALIDATION_AUGMENTED": "planning's check of samples",
}


@dataclass(frozen=True)
class Verdict:
    """What was said of one run.

    Attributes:
        said: The labels of the diagnostics that fired.
        since: The share of the planned steps after which each was first seen, where the finding tells.
        refused: Why nothing was trained, if so.
        may: Further labels that are no mistake in this run.
        checked: The labels that planning's checks of the data tell; None where they were not asked.
    """

    case: Case
    seed: int
    said: frozenset[str]
    since: Mapping[str, float] = field(default_factory=dict)
    refused: str | None = None
    may: frozenset[str] = frozenset()
    checked: frozenset[str] | None = None

    @property
    def found(self) -> frozenset[str]:
        return self.case.must & (self.said | (self.checked or frozenset()))

    @property
    def missed(self) -> frozenset[str]:
        return self.case.must - self.found

    @property
    def telling(self) -> frozenset[str]:
        """What was said, without that a run waits for its data where this is no fault."""
        return self.said - ({"PIPELINE"} & self.case.may)

    @property
    def wrong(self) -> frozenset[str]:
        return self.said - self.case.must - self.case.may - self.may


def judged(case: Case, seed: int, result: Mapping[str, Any], checked: frozenset[str] | None = None) -> Verdict:
    """Apply every rule to a case's result; that a loss was not finite is never wrong to say where it was not.

    Args:
        case: What was trained.
        seed: With which.
        result: The run's.
        checked: What planning's checks of its data tell; None where they were not asked.
    """
    if "refused" in result:
        return Verdict(case, seed, frozenset(), refused=str(result["refused"]))
    run = Run.of(result, config=_complete(values_of(case)))
    fired = [row for row in diagnose(run, None) if row.state == "fired"]
    since = {_label(row): float(step) / result["planned_steps"] for row in fired if (step := row.evidence.get("since_step"))}
    may = frozenset([NOT_FINITE] if result.get("nonfinite") and case.is_faulty else [])
    # Of other faulty cases nobody has labelled the causes that only explain a diagnostic.
    labelled = CAUSE_NAMES if case.must & CAUSE_NAMES or not case.is_faulty else WRONG_CAUSES
    said = frozenset(_label(row) for row in fired if row.id != ALONE) | _causes(run, fired) & labelled
    return Verdict(case, seed, said, since, may=may, checked=checked)


def _complete(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a case with the defaults of its optimizer, as a run's config has them."""
    return {**values, "optimizer": _OPTIMIZERS.validate_python(values["optimizer"]).model_dump()}


def _causes(run: Run, fired: Sequence[Diagnosis]) -> frozenset[str]:
    """Return the names of the causes that stand at a diagnostic which fired."""
    shown = {sentence for row in fired for sentence in row.causes}
    return frozenset(one.cause.name for one in causes_of(run) if one.found.sentence in shown)


def _label(row: Diagnosis) -> str:
    calls = row.evidence.get("calls", [])  # of the model in evaluation mode
    return BATCH_STATS if calls and all(call.startswith("batch norm") for call in calls) else LABELS.get(row.id, row.id)


# --- the outcome ----------------------------------------------------------------------------------


def totals(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return how many runs and labels were judged, and how."""
    run = [one for one in verdicts if one.refused is None]
    faulty, healthy = ([one for one in run if one.case.is_faulty is kind] for kind in (True, False))
    since = [share for one in run for label, share in one.since.items() if label in one.found]
    checked = [one for one in run if one.checked is not None]
    return {
        "faulty": len(faulty),
        "faulty_flagged": sum(bool(one.telling) for one in faulty),
        "must": sum(len(one.case.must) for one in faulty),
        "must_found": sum(len(one.found) for one in faulty),
        "wrong": sum(len(one.wrong) for one in run),
        "wrong_of_faulty": sum(len(one.wrong) for one in faulty),
        "healthy": len(healthy),
        "healthy_flagged": sum(bool(one.wrong) for one in healthy),
        "refused": len(verdicts) - len(run),
        "since": statistics.median(since) if since else None,
        "faulty_flagged_or_checked": sum(bool(one.telling or one.checked) for one in checked if one.case.is_faulty)
        if checked
        else None,
        "must_found_by_checks_alone": sum(len(one.found - one.said) for one in checked) if checked else None,
        "healthy_warned_by_checks": sum(bool(one.checked) for one in checked if not one.case.is_faulty) if checked else None,
    }


def by_label(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return, for each label that must be found or was said, in how many runs it was found, missed, allowed and wrong."""
    run = [one for one in verdicts if one.refused is None]
    counts = {
        "found": _counted(one.found for one in run),
        "missed": _counted(one.missed for one in run),
        "allowed": _counted(one.said - one.found - one.wrong for one in run),
        "wrong": _counted(one.wrong for one in run),
        "wrong_of_healthy": _counted(one.wrong for one in run if not one.case.is_faulty),
    }
    order = list(dict.fromkeys([*LABELS.values(), *(cause.name for cause in CAUSES), *UNNAMED, *sorted(counts["wrong"])]))
    return [
        {
            "label": label,
            "diagnostics": [name for name, other in LABELS.items() if other == label] or [UNNAMED.get(label, label)],
            **{name: counted[label] for name, counted in counts.items()},
        }
        for label in order
        if any(counted[label] for counted in counts.values())
    ]


def _counted(sets: Iterable[frozenset[str]]) -> Counter[str]:
    return Counter(label for labels in sets for label in labels)


def by_case(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return each case where something was missed or wrong, with the number of runs of each label."""
    rows = []
    for case in dict.fromkeys(one.case.id for one in verdicts):
        runs = [one for one in verdicts if one.case.id == case]
        missed, wrong = (_counted(getattr(one, kind) for one in runs if not one.refused) for kind in ("missed", "wrong"))
        refused = next((one.refused for one in runs if one.refused), None)
        row = {"case": case, "what": runs[0].case.what, "runs": len(runs), "missed": dict(missed), "wrong": dict(wrong)}
        rows += [{**row, "refused": refused}] if missed or wrong or refused else []
    return rows
