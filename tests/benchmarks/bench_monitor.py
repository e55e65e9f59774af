"""What the monitor takes: to open a long run, and to bring an event to who looks on.

One JSON object a line. Without Chromium what is measured on its screen is left out.

    PYTHONPATH=. python tests/benchmarks/bench_monitor.py [--steps 1000000] [--openings 7] [--redrawn 100] [--events 500]
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from mltrainer.workspace import Project
from tests.browser import CHROMIUM, Page, browser
from tests.companions.monitor.invented import Training, empty_project

EVERY = 1000  # steps from one evaluation to the next
SPIKE = 0.654321  # where in the long run
BETWEEN_S = 0.037  # no multiple of what the monitor waits between two looks


def long_chain(path: Path, steps: int) -> None:
    """Write a chain of a run of so many steps; its digests are made up, which the monitor does not check."""
    draws = np.random.default_rng(0)
    losses = (2 * np.exp(-np.arange(steps) / 2e5) + 0.1 * draws.random(steps)).astype(">f4")
    losses[int(SPIKE * steps)] = 40.0
    bits = losses.tobytes().hex()
    rest = f"{'0123456789abcdef' * 2}"
    with open(path, "w", encoding="ascii") as file:
        for nr in range(steps):
            loss = bits[8 * nr : 8 * nr + 8]
            file.write(f"{nr + 1} 0123456789abcdef {loss} {loss} {rest}\n")
            if nr % 1000 == 999:
                file.write(f"w {nr + 1} {'ab' * 32} {rest}\n")


@contextlib.contextmanager
def monitor(project: Project, *runs: str) -> Iterator[str]:
    """Yield the address of a monitor in a process of its own."""
    command = [sys.executable, "-m", "mltrainer", "monitor", *runs, "--web", "--project", str(project.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def heard(url: str, run: str) -> Iterator[dict[str, Any]]:
    """Yield what a page hears of a run."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    connection.request("GET", f"{parts.path}events?run={run}")
    answer = connection.getresponse()
    while line := answer.fp.readline():
        if line == b"event: run\n":
            yield json.loads(answer.fp.readline()[6:])


def opened(url: str, run: str, steps: int) -> float:
    """Return the seconds from asking for a run until its whole history was read."""
    begun = time.perf_counter()
    found = next(heard(url, run))
    seconds = time.perf_counter() - begun
    assert found["last"] == steps
    assert max(found["steps"]["loss"]["high"]) == 40.0, "the spike is lost"
    return seconds


def fresh(training: Training, measure: Callable[[str], float], openings: int, *runs: str) -> list[float]:
    """Return what is measured at so many monitors that have read nothing of a run yet."""
    found = []
    for _ in range(openings):
        with monitor(Project(training.folder.parents[2]), *runs) as url:
            found.append(measure(url))
    return found


def heard_after(url: str, training: Training, events: int) -> list[float]:
    """Return for each of so many steps the seconds from just before it was written until a page heard of it."""
    arrived: dict[int, float] = {}
    first = training.step + 1

    def listen() -> None:
        for news in heard(url, training.run):
            arrived.update({step: time.perf_counter() for step in news["steps"]["step"] if step >= first})
            if len(arrived) == events:
                return

    thread = threading.Thread(target=listen)
    thread.start()
    time.sleep(1.0)
    written = written_steps(training, events)
    thread.join(30)
    return [arrived[step] - at for step, at in written.items()]


def written_steps(training: Training, events: int, clock: Any = time.perf_counter) -> dict[int, float]:
    """Write so many steps, one at a time, and return when each was."""
    written = {}
    for _ in range(events):
        written[training.step + 1] = clock()
        training.steps(0.5)
        time.sleep(BETWEEN_S)
    return written


# --- on the screen ----------------------------------------------------------------------------------

WATCH = """(() => { window.drawn = {}; new MutationObserver(() => {
  const step = document.querySelector('#heads').textContent.match(/step([\\d,]+)/);
  if (step) { const nr = +step[1].replaceAll(',', ''); window.drawn[nr] ??= Date.now(); }
}).observe(document.querySelector('#heads'), {childList: true, subtree: true, characterData: true}); return 1; })()"""


def on_screen(url: str) -> float:
    """Return the seconds from going to the address until the curves of a run are drawn."""
    with browser() as page:
        page.open(f"{url}style.css")  # the browser has begun
        page.until("document.readyState === 'complete'")
        begun = time.perf_counter()
        page.open(url)
        page.until("document.querySelector('[data-name=loss] canvas') && 1")
        return time.perf_counter() - begun


def drawn_after(url: str, training: Training, events: int) -> list[float]:
    """Return for so many steps the seconds from just before one was written until the page had drawn it."""
    with browser() as page:
        page.open(url)
        page.until("document.querySelector('[data-name=loss] canvas') && 1")
        page.js(WATCH)
        written = written_steps(training, events, time.time)
        time.sleep(1.0)
        drawn = {int(step): at / 1000 for step, at in page.js("window.drawn").items()}
    # a step whose frame showed a later one already was drawn with that
    return [min(at for step, at in drawn.items() if step >= nr) - begun for nr, begun in written.items()]


SIDE_BY_SIDE = 10  # runs, each as long as the one above
REDRAW = """(async (nr) => {
  const [{ state, changed }, { zoom }] = await Promise.all([import('./state.js'), import('./link.js')]);
  const begun = performance.now();
  (CHANGE)(nr);
  changed();
  await new Promise((done) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = done; // handled behind what the frame has drawn
    channel.port2.postMessage(null);
  }));
  return performance.now() - begun;
})"""
CHANGES = {  # each in all charts that are seen, of all runs; STEPS stands for the steps of each
    "another smoothing": "(nr) => { state.smoothing = 0.5 + nr / 250; }",
    "another axis": "(nr) => { state.smoothing = 0; state.axis = ['step', 'epoch'][nr % 2]; }",
    "a part of the steps, or all": (
        "(nr) => { state.axis = 'step'; nr % 2 ? zoom(null) : zoom(0.1 * STEPS, (0.2 + nr / 1e3) * STEPS); }"
    ),
}


def redrawn(url: str, steps: int, times: int) -> Iterator[tuple[str, list[float]]]:
    """Yield by change of the page the seconds until everything was drawn anew, and those of its main thread's work.

    Each change is made so many times. The work counts processor time alone: what other programs do on the machine is not in it.
    """
    drawn = f"import('./charts.js').then(({{ charts }}) => charts.get('loss')?.plot?.series.length > {3 * SIDE_BY_SIDE})"
    with browser() as page:
        page.call("Performance.enable", timeDomain="threadTicks")
        page.open(url)
        page.until(drawn, 120)
        for what, change in CHANGES.items():
            script = REDRAW.replace("CHANGE", change.replace("STEPS", str(steps)))
            waited, worked = [], []
            for nr in range(times):
                before = _work(page)
                waited.append(page.js(f"{script}({nr})") / 1000)
                worked.append(_work(page) - before)
            yield what, waited
            yield f"{what}, work of the main thread", worked
        assert page.complaints == []


def _work(page: Page) -> float:
    found = {row["name"]: row["value"] for row in page.call("Performance.getMetrics")["metrics"]}
    return float(found["TaskDuration"])


def many(project: Project, chain: Path, steps: int) -> list[str]:
    """Write runs of as many steps and evaluations as the long one, and return their ids."""
    made = [Training(project, f"{nr:012x}") for nr in range(SIDE_BY_SIDE)]
    for training in made:
        (training.folder / "chain.txt").hardlink_to(chain)
        for training.step in range(EVERY, steps + 1, EVERY):
            training.evaluate(1 - 1 / training.step, beside={"f1_macro": 1 - 2 / training.step})
    return [training.run for training in made]


def told(what: str, seconds: list[float]) -> None:
    """Print one measurement."""
    ordered = sorted(seconds)
    place = {
        "p50": statistics.median(ordered),
        **{f"p{share}": ordered[round(share / 100 * (len(ordered) - 1))] for share in (95, 99)},
    }
    place["max"] = ordered[-1]
    shown = {f"{name}_ms": round(1e3 * value, 1) for name, value in place.items()}
    print(json.dumps({"what": what, "n": len(ordered), **shown}), flush=True)


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000, help="of a long run")
    parser.add_argument("--openings", type=int, default=7, help="of a long run, each by a fresh monitor")
    parser.add_argument("--redrawn", type=int, default=100, help="how many times each change of the page is made")
    parser.add_argument("--events", type=int, default=500, help="steps that are followed to who looks on")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        long_run(Path(folder), given.steps, given.openings, given.redrawn)
    with tempfile.TemporaryDirectory() as folder:
        running(Path(folder), given.events)


def long_run(root: Path, steps: int, openings: int, times: int) -> None:
    """Measure what opening a long run takes, and drawing several side by side anew."""
    project, title = empty_project(root), f"of {steps:,} steps"
    long = Training(project, "0123456789ab")
    chain = long.folder / "chain.txt"
    long_chain(chain, steps)
    for long.step in range(EVERY, steps + 1, EVERY):
        long.evaluate(1 - 1 / long.step)
    Training(project, "fedcba987654").epoch(0.5)  # newer: a monitor begins with this one
    told(f"a run {title}, asked for until heard whole", fresh(long, lambda url: opened(url, long.run, steps), openings))
    if not CHROMIUM:
        return
    told("the same, the page's first, until drawn in Chromium", fresh(long, on_screen, openings, long.run))
    with monitor(project, *many(project, chain, steps)) as url:
        for what, seconds in redrawn(url, steps, times):
            told(f"{SIDE_BY_SIDE} runs {title}, drawn anew: {what}", seconds)


def running(root: Path, events: int) -> None:
    """Measure what a step of a run takes to who looks on."""
    project = empty_project(root)
    training = Training(project, "ba9876543210")
    training.epoch(0.5)
    with training.living(), monitor(project) as url:
        told("a step, written until heard", heard_after(url, training, events))
        if CHROMIUM:
            told("a step, written until drawn in Chromium", drawn_after(url, training, events))


if __name__ == "__main__":
    main()
