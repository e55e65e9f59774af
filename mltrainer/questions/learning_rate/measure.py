"""The range test: real steps at a learning rate that grows, until the loss diverges (Smith, 2017, arXiv 1506.01186)."""

from __future__ import annotations

import time

from mltrainer.questions.findings import ExplorerSettings
from mltrainer.questions.learning_rate.decisions import Smoothing, diverged, log_spaced, suggest_rate
from mltrainer.questions.learning_rate.findings import Asked, RangeTest
from mltrainer.questions.measuring import first_steps
from mltrainer.records.job import ExplorationJob
from mltrainer.records.partial import partial
from mltrainer.trainers.native.session import Session


def measure(session: Session, job: ExplorationJob) -> RangeTest:
    """Return rate, loss and smoothed loss of each step, and the rate that they suggest.

    Each step goes through the config's own optimizer, clipping and precision; a group keeps its share of the rate.
    """
    asked, settings = Asked.model_validate(job.asked), partial(ExplorerSettings, job.settings)
    rates = log_spaced(asked.low, asked.high, asked.steps)
    losses, smoothed = _losses(session, rates, settings.smoothing, settings.divergence)
    found = suggest_rate(rates, losses, smoothed, settings.margin, settings.clear_fall)
    return RangeTest(
        rates=rates[: len(losses)],
        losses=losses,
        smoothed=smoothed,
        stopped=len(losses) < len(rates) or diverged(smoothed, settings.divergence),
        suggestion=found.value,
        reason=found.reason,
    )


def _losses(session: Session, rates: list[float], beta: float, factor: float) -> tuple[list[float], list[float]]:
    """Return the losses up to the first that diverged, and the same smoothed."""
    smoothing, begun = Smoothing(beta), time.perf_counter()
    losses: list[float] = []
    smoothed: list[float] = []
    for number, step in enumerate(first_steps(session, len(rates)), 1):
        losses.append(float(session.trainer.stepper.take(number, rates[number - 1], step).loss))
        smoothed.append(smoothing.add(losses[-1]))
        session.stop_signal()
        rate = number / (time.perf_counter() - begun)
        session.events.send("progress", step=number, steps=len(rates), loss=losses[-1], steps_per_s=rate)
        if diverged(smoothed, factor):
            break
    return losses, smoothed
