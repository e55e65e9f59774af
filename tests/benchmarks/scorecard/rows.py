"""The rows of the scorecard, and their verdicts: pure functions of what came of the runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np

from tests.benchmarks.scorecard.case import EPOCHS, LR, MID_EPOCH, PER_EPOCH, Case, Outcome, Weights

Mark = Literal["pass", "fail", "unknown", "unasked"]  # the last one: the row makes no sense for a trainer
Damage = Literal["none", "bit", "data", "optimizer"]
R = TypeVar("R", contravariant=True)  # where a row's runs come from
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt|Exit|Stop\w*))(?:: .*)?$")


@dataclass(frozen=True)
class Cell:
    """What stands in the table."""

    text: str
    mark: Mark


class Runs(Protocol):
    """Where a row's runs come from; the same run is not trained twice unless `number` differs."""

    def fresh(self, case: Case, number: int = 1) -> Outcome:
        """Return the outcome of a run from its start."""

    def resumed(self, case: Case, stop: int, damage: Damage = "none", lr: float = LR) -> Outcome:
        """Return the outcome of a run that was stopped after a step, damaged or changed, and resumed."""

    def killed_while_saving(self, case: Case, stop: int) -> list[Outcome]:
        """Return the outcomes of resuming runs that were killed at several moments of one save."""


@dataclass(frozen=True)
class Row(Generic[R]):
    """One line of the table."""

    title: str
    judge: Callable[[R], Cell]


# --- verdicts -----------------------------------------------------------------------------------


def identical(one: Weights, other: Weights) -> bool:
    """Return whether two models are the same, bit for bit."""
    return one.keys() == other.keys() and all(
        one[name].shape == other[name].shape and one[name].tobytes() == other[name].tobytes() for name in one
    )


def relative_error(reference: Weights, found: Weights) -> float:
    """Return the norm of the difference of all weights against the norm of the reference."""
    if any(name not in found or found[name].shape != value.shape for name, value in reference.items()):
        return float("inf")
    difference = np.concatenate([(found[name].astype(np.float64) - value).ravel() for name, value in reference.items()])
    norm = np.linalg.norm(np.concatenate([value.astype(np.float64).ravel() for value in reference.values()]))
    return float(np.linalg.norm(difference) / norm)


def percent(error: float) -> str:
    """Return a relative error for people."""
    return f"{100 * error:.2g} %" if error < 0.995 else f"{100 * error:.0f} %"


def raised(said: str) -> str | None:
    """Return the name of the last exception that a process told of."""
    names = [match[1] for line in said.splitlines() if (match := _RAISED.match(line.strip()))]
    return names[-1] if names else None


def crash(outcome: Outcome) -> Cell:
    """Return the cell of a run that ended without weights."""
    reason = raised(outcome.said) or (outcome.said.strip().splitlines() or [f"exit code {outcome.code}"])[-1]
    return Cell(f"crashes: {reason[:60]}", "fail")


def compare(reference: Outcome, *others: Outcome) -> Cell:
    """Judge runs that must end in the reference's bits; the largest difference is told."""
    for outcome in (reference, *others):
        if outcome.weights is None:
            return crash(outcome)
    assert reference.weights is not None
    known = reference.weights
    errors = [relative_error(known, o.weights) for o in others if o.weights is not None and not identical(known, o.weights)]
    return Cell(f"differs ({percent(max(errors))})", "fail") if errors else Cell("same bits", "pass")


def _plain_lines(said: str) -> list[str]:
    return [re.sub(r"[0-9a-f]*\d[0-9a-f]*", "0", line.strip()) for line in said.splitlines() if line.strip()]


def new_lines(said: str, usual: str) -> str:
    """Return what was said that is not said usually; numbers do not count."""
    known = set(_plain_lines(usual))
    return "\n".join(
        line for line, plain in zip(filter(str.strip, said.splitlines()), _plain_lines(said), strict=True) if plain not in known
    )


def complaint(said: str, usual: str) -> str:
    """Return the message of a refusal: what follows the last traceback's frames, or all that is new."""
    lines = said.splitlines()
    places = [number for number, line in enumerate(lines) if _RAISED.match(line)]
    return "\n".join(lines[places[-1] :]) if places else new_lines(said, usual)


def noticed(outcome: Outcome, usual: Outcome, reference: Outcome, words: Sequence[str]) -> Cell:
    """Judge a resumed run under which something was changed: it must refuse by name, or end in the reference's bits.

    Args:
        outcome: What came of it.
        usual: What came of resuming with nothing changed.
        reference: The uninterrupted run.
        words: One of these must stand in a message that names what changed.
    """
    if outcome.weights is None:
        message = complaint(outcome.said, usual.said).lower()
        return Cell("refused, by name", "pass") if any(word in message for word in words) else crash(outcome)
    told = new_lines(outcome.said, usual.said).lower()
    warned = any(word in told for word in words)
    same = reference.weights is not None and identical(reference.weights, outcome.weights)
    if same:
        return Cell("passed over by name, same bits", "pass") if warned else Cell("without a word, same bits", "fail")
    return Cell("loaded with a warning" if warned else "loaded without a word", "fail")


def changed_rate(outcome: Outcome, usual: Outcome, old: Outcome, words: Sequence[str]) -> Cell:
    """Judge a run resumed under another learning rate: refused, or told of; ignored without a word is the worst."""
    cell = noticed(outcome, usual, old, words)
    ignored = outcome.weights is not None and old.weights is not None and identical(old.weights, outcome.weights)
    return Cell("the change is ignored without a word", "fail") if ignored and cell.mark == "fail" else cell


def survived(reference: Outcome, outcomes: Sequence[Outcome]) -> Cell:
    """Judge the runs that were killed while saving."""
    if not outcomes:
        return Cell("not measured: no write was seen", "unknown")
    cells = [compare(reference, outcome) for outcome in outcomes]
    failed = [cell for cell in cells if cell.mark != "pass"]
    if not failed:
        return Cell(f"same bits ({len(cells)} of {len(cells)} moments)", "pass")
    texts = "; ".join(dict.fromkeys(f"resumes, {c.text}" if c.text.startswith("differs") else c.text for c in failed))
    return Cell(f"{texts} ({len(failed)} of {len(cells)} moments)", "fail")


def honest(outcome: Outcome) -> Cell:
    """Judge a run whose loss became NaN: it must stop and say so."""
    told = any(word in outcome.said.lower() for word in ("nan", "not finite", "non-finite", "nonfinite"))
    if outcome.weights is None and outcome.code != 0:
        return Cell("stopped and reported", "pass") if told else crash(outcome)
    lost = outcome.weights is not None and any(np.isnan(value).any() for value in outcome.weights.values())
    end = "weights NaN" if lost else "weights finite"
    return Cell(f"goes on, exit {outcome.code}, {end}" + (", `nan` in its log" if told else ", not reported"), "fail")


# --- the rows -----------------------------------------------------------------------------------

PLAIN, NOISY = Case(), Case(noise=True)
EACH_EPOCH = Case(validate_every=PER_EPOCH)
BY_EPOCH, BY_STEPS = Case(save_every=PER_EPOCH), Case(save_every=MID_EPOCH // 2)
NOISY_BY_STEPS = Case(noise=True, save_every=MID_EPOCH // 2)
TWO_EPOCHS = PER_EPOCH * (EPOCHS // 2)


def _workers(runs: Runs) -> Cell:
    return compare(*(runs.fresh(Case(noise=True, workers=count)) for count in (0, 1, 2)))


def _damaged(damage: Damage, *words: str) -> Callable[[Runs], Cell]:
    def judge(runs: Runs) -> Cell:
        usual = runs.resumed(BY_EPOCH, TWO_EPOCHS)
        if usual.weights is None:
            return crash(usual)
        # the measure is the resumed run itself: a trainer that does not resume exactly fails another row, not this one
        return noticed(runs.resumed(BY_EPOCH, TWO_EPOCHS, damage), usual, usual, words)

    return judge


def _rate(runs: Runs) -> Cell:
    usual = runs.resumed(BY_EPOCH, TWO_EPOCHS)
    if usual.weights is None:
        return crash(usual)
    other = runs.resumed(BY_EPOCH, TWO_EPOCHS, lr=LR / 100)
    return changed_rate(other, usual, usual, ("lr", "learning rate", "learning_rate", "config"))


ROWS: list[Row[Runs]] = [
    Row("repeated in a fresh process", lambda runs: compare(runs.fresh(PLAIN), runs.fresh(PLAIN, number=2))),
    Row("0, 1 and 2 loader workers, random augmentation", _workers),
    Row("a validation set added", lambda runs: compare(runs.fresh(PLAIN), runs.fresh(EACH_EPOCH))),
    Row(
        "validated every 3 steps, not every epoch",
        lambda runs: compare(runs.fresh(EACH_EPOCH), runs.fresh(Case(validate_every=3))),
    ),
    Row("loss and gradient norms logged", lambda runs: compare(runs.fresh(PLAIN), runs.fresh(Case(log=True, watch=True)))),
    Row("a monitor draws a random number each epoch", lambda runs: compare(runs.fresh(PLAIN), runs.fresh(Case(draw=True)))),
    Row("resumed at an epoch's end", lambda runs: compare(runs.fresh(PLAIN), runs.resumed(BY_EPOCH, TWO_EPOCHS))),
    Row("resumed in mid-epoch", lambda runs: compare(runs.fresh(PLAIN), runs.resumed(BY_STEPS, MID_EPOCH))),
    Row(
        "resumed in mid-epoch, random augmentation",
        lambda runs: compare(runs.fresh(NOISY), runs.resumed(NOISY_BY_STEPS, MID_EPOCH)),
    ),
    Row(
        "killed (`kill -9`) while saving, then resumed",
        lambda runs: survived(runs.fresh(PLAIN), runs.killed_while_saving(BY_EPOCH, TWO_EPOCHS)),
    ),
    Row("a bit flipped in the checkpoint", _damaged("bit", "damaged", "corrupt", "sha256", "checksum", "crc", "digest")),
    Row("other data on resume", _damaged("data", "data is not", "data changed", "(data) changed", "dataset", "data differs")),
    Row("other learning rate on resume", _rate),
    Row("optimizer state deleted", _damaged("optimizer", "optimizer", "damaged", "missing")),
    Row("the loss becomes NaN", lambda runs: honest(runs.fresh(Case(log=True, nan_at=10)))),
]
