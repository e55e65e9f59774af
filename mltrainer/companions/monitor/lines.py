"""The monitor in a terminal or a log: a line for each evaluation, finding and change of state, printed as it comes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from mltrainer.companions.monitor.follower import Follower
from mltrainer.companions.monitor.run import Seen, WatchedRun
from mltrainer.companions.monitor.shown import Facts, FindingShown, News, ProjectShown
from mltrainer.follow.log import ShownEvaluation
from mltrainer.follow.progress import Training, progress_text
from mltrainer.reports.values import megabytes
from mltrainer.reports.views import evenly

WAIT_S = 1.0
BETWEEN_S = 10.0  # time without an evaluation after which a run's steps get a line
MOST_ROWS = 20  # shown evaluations from before the monitor's start


class Lines:
    """The lines of a project and its runs, each once.

    Args:
        follower: Follower of the project.
        chosen: The runs; empty: the training ones, else the newest.
    """

    def __init__(self, follower: Follower, chosen: Sequence[str]) -> None:
        self._follower, self._chosen = follower, chosen
        self._seen: dict[str, Seen] = {}
        self._facts: dict[str, Facts] = {}
        self._reported: dict[str, set[str]] = {}
        self._at: dict[str, float] = {}
        self._project, self._trials = "", -1

    def print_to(self, say: Callable[[str], None]) -> None:
        """Print updates until each chosen run has ended; without chosen runs, until it is stopped."""
        watched: dict[str, WatchedRun] = {}
        version = -1
        with contextlib.ExitStack() as stack:
            while not self._follower.has_ended:
                wanted = [run for run in self._chosen or self._follower.shown.unasked if run not in watched]
                if wanted:
                    watched |= {run.id: run for run in stack.enter_context(self._follower.watching(wanted))}
                for line in self._new(list(watched.values())):
                    say(line)
                if self._chosen and not any(facts.state == "running" for facts in self._facts.values()):
                    return
                version = self._follower.wait(version, WAIT_S)

    def _new(self, watched: Sequence[WatchedRun]) -> Iterator[str]:
        yield from self._of_project(self._follower.shown)
        for news in self._follower.news(watched, self._seen):
            yield from (f"  {news.run[:8]}  {line}" for line in self._of_run(news))

    def _of_project(self, shown: ProjectShown) -> Iterator[str]:
        line = f"{shown.project}: " + ", ".join(f"{phase.name} {phase.state}" for phase in shown.phases)
        if line != self._project:
            self._project = line
            yield line
            yield from [f"  next: {shown.next.command or shown.next.why}"] if shown.next else []
        if shown.study and shown.study.done != self._trials:
            self._trials = shown.study.done
            yield f"  search: {shown.study.text}"

    def _of_run(self, news: News) -> Iterator[str]:
        before, facts = self._facts.get(news.run), news.facts or self._facts[news.run]
        self._facts[news.run] = facts
        rows = [news.rows[nr] for nr in evenly(len(news.rows), MOST_ROWS)] if before is None else news.rows
        yield from (progress_text(_training(row, news, facts)) for row in rows)
        now = time.monotonic()
        if not rows and facts.state == "running" and now - self._at.setdefault(news.run, now) > BETWEEN_S:
            rows = [ShownEvaluation(step=news.last)]
            yield progress_text(_training(rows[0], news, facts))
        self._at |= {news.run: now} if rows else {}
        reported = self._reported.setdefault(news.run, set())
        yield from (_finding_text(one) for one in facts.findings if one.id not in reported)
        reported.update(one.id for one in facts.findings)
        if before is None or before.state != facts.state:
            yield _state_text(facts)


def _state_text(facts: Facts) -> str:
    used = facts.usage
    parts = [facts.state, *([facts.stop_reason] if facts.stop_reason else []), *([facts.speed] if facts.speed else [])]
    parts += [megabytes(used.memory_mb), *(f"GPU {gpu.percent} %" for gpu in used.gpus)] if used else []
    return ", ".join(parts)


def _training(row: ShownEvaluation, news: News, facts: Facts) -> Training:
    """Return an evaluation as a progress line of the training command."""
    metric = facts.metric.name if facts.metric.name in row.validation else None
    rate = news.rate if news.rate and row.step == news.last else 0.0
    planned = facts.planned
    samples, tokens = row.samples_per_s, facts.tokens_per_sample
    return Training(
        epoch=row.epoch,
        epochs=planned.epochs,
        step=row.step,
        steps=planned.steps,
        loss=row.train_loss,
        steps_per_s=rate,
        samples_per_s=samples,
        tokens_per_s=samples * tokens if samples and tokens else None,
        metric=metric,
        validation=row.validation,
    )


def _finding_text(finding: FindingShown) -> str:
    epoch = f", epoch {finding.epoch:g}" if finding.epoch else ""
    return f"{finding.severity}: {finding.title}{epoch}: {finding.reason} (mltrainer guide {finding.page.removesuffix('.md')})"
