"""The monitor in a terminal; the one module that needs textual."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
import time
from collections.abc import Sequence
from typing import ClassVar, TextIO

from rich.markdown import Markdown
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid, Horizontal, VerticalScroll
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from mltrainer.errors import InputError
from mltrainer.figures.series import Curve, bucket_points, known_points
from mltrainer.follow.live import short, study_words
from mltrainer.monitor.follower import Follower
from mltrainer.monitor.plot import MARGIN, Line, drawn
from mltrainer.monitor.run import WatchedRun
from mltrainer.monitor.shown import Picture, ProjectShown, ReportFile, RunSummary, StudyShown
from mltrainer.reports.values import cut, megabytes, time_left, visible
from mltrainer.workspace import Project, read_whole

MARKS = {"passed": "✓", "skipped": "↷", "running": "●", "failed": "✕", "stale": "!", "ready": "○", "locked": "·"}
MARKS |= {"pass": "✓", "fail": "✕", "waived": "!", "not_applicable": "-"}
STYLES = {"✓": "green", "↷": "green", "●": "bold blue", "✕": "bold red", "!": "yellow"}
BESIDE = {"training": "dim", "validation": "bold white"}  # what stands beside a chart's main line
COLOURS = ("#5b9bff", "#f0944d", "#3fc08f", "#b48af0", "#f0716b", "#3fbccc")
SEVERITY = {"critical": "bold red", "warning": "yellow", "info": "blue"}
LOOK_S = 0.25  # after so long it is seen that the user has ended it
TERMINATED = 128 + signal.SIGTERM
REDRAW_S = 0.01  # at least so long between two drawings, and half of the time is left to others
CHARTS = ("loss", "metric", "norm", "update", "rate")  # of a run's: what a terminal has room for


class Plot(Widget):
    """A chart with its title; it draws what it is given, as wide as it is.

    Args:
        title: What it shows.
        is_log: Whether its values are drawn by their logarithm.
        name: How it is found.
    """

    def __init__(self, title: str, name: str, is_log: bool = False) -> None:
        super().__init__(id=name, classes="plot")
        self.border_title, self.is_log = title, is_log
        self._lines: list[Line] = []
        self._reach: tuple[float, float] | None = None

    def show(self, lines: list[Line], reach: tuple[float, float]) -> None:
        """Draw other curves, from step to step."""
        if (lines, reach) != (self._lines, self._reach):
            self._lines, self._reach = lines, reach
            self.refresh()

    def render(self) -> Text:
        """Return the chart as text."""
        return drawn(self._lines, self.size.width, self.size.height, self.is_log, self._reach)


class Pages(Screen[None]):
    """Reports, one of which is shown.

    Args:
        project: The project.
        reports: Path, phase and title of each.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,r", "app.pop_screen", "back")]

    def __init__(self, project: Project, reports: Sequence[ReportFile]) -> None:
        super().__init__()
        self._project, self._reports = project, reports

    def compose(self) -> ComposeResult:
        """Lay the list beside the report."""
        with Horizontal():
            yield OptionList(*(Option(one.title, id=one.path) for one in self._reports), id="list")
            with VerticalScroll():
                yield Static(id="page")
        yield Footer()

    def on_mount(self) -> None:
        """Let the keys go through the list at once."""
        self.query_one(OptionList).focus()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the report that is gone to."""
        path = self._project.root / str(event.option.id)
        text = read_whole(path).decode(errors="replace") if path.is_file() else ""
        self.query_one("#page", Static).update(Markdown(readable(text)))


class Monitor(App[int]):
    """A project's runs in a terminal.

    Args:
        project: The project.
        follower: What follows it.
        chosen: The runs to begin with; none: those that train, else the newest.
    """

    CSS = """
    Screen { layout: vertical; }
    #phases { height: 1; padding: 0 1; background: $panel; }
    #page { padding: 0 2; height: auto; }
    #list { width: 34; height: 1fr; border: none; padding: 0 1; background: $background; }
    #heads, #findings, #study, #gate { height: auto; padding: 0 1; }
    #findings, #study, #gate { display: none; margin-top: 1; }
    Grid { grid-size: 2; grid-gutter: 0 1; grid-rows: 14; height: auto; margin-top: 1; }
    VerticalScroll { scrollbar-size-vertical: 1; scrollbar-color: $panel-lighten-2; scrollbar-background: $background; }
    .plot { border: round $panel-lighten-2; border-title-color: $text; padding: 0 1; height: 14; }
    #loss { column-span: 2; }
    """
    TITLE = "mltrainer monitor"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "add", "add / remove run"),
        Binding("g", "gates", "gates"),
        Binding("r", "reports", "reports"),
        Binding("l", "flip_log", "logarithmic"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, project: Project, follower: Follower, chosen: Sequence[str]) -> None:
        super().__init__()
        self._project, self._follower = project, follower
        self._selected, self._has_selection = list(chosen), bool(chosen)
        self._watched, self._stack = list[WatchedRun](), contextlib.ExitStack()
        self._shows_gates = self._is_over = False
        self._shown: dict[str, Text] = {}
        self._listed: tuple[list[Text], list[str]] | None = None

    def compose(self) -> ComposeResult:
        """Lay out phases, runs and charts."""
        yield Static(id="phases")
        with Horizontal():
            yield OptionList(id="list")
            with VerticalScroll():
                for name in ("gate", "heads", "study", "findings"):
                    yield Static(id=name)
                with Grid():
                    yield Plot("Loss  [dim]each step; white: validation[/]", "loss")
                    yield Plot("Metric  [dim]validation; grey: training[/]", "metric")
                    yield Plot("Gradient norm  [dim]each step, logarithmic[/]", "norm", is_log=True)
                    yield Plot("Update / weight  [dim]median layer, logarithmic[/]", "update", is_log=True)
                    yield Plot("Samples per second", "rate")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to follow, and end by SIGTERM as by `q`: an exception in its place would leave textual half ended."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit, TERMINATED)
        self._choose(self._selected or [*self._follower.shown.unasked])
        self.run_worker(self._wait, thread=True, exclusive=True)

    def on_unmount(self) -> None:
        """Follow no longer."""
        self._is_over = True
        self._stack.close()

    def _wait(self) -> None:
        """Draw whenever something is new, from a thread that waits for it."""
        version = -1
        while not (self._is_over or self._follower.has_ended):
            version = self._follower.wait(version, LOOK_S)
            begun = time.monotonic()
            with contextlib.suppress(RuntimeError):  # the app ends
                self.call_from_thread(self._draw)
            time.sleep(max(REDRAW_S, time.monotonic() - begun))  # a long run takes longer to draw

    # --- choosing ---

    def _choose(self, runs: list[str]) -> None:
        self._stack.close()
        runs = [run for run in runs if run in {one.id for one in self._follower.shown.runs}]
        self._selected = runs
        self._watched = self._stack.enter_context(self._follower.watching(runs))
        self._draw()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Show one run alone."""
        self._has_selection = True
        self._choose([str(event.option.id)])

    def action_add(self) -> None:
        """Show the run that is gone to beside the others, or no longer."""
        options = self.query_one("#list", OptionList)
        if options.highlighted is None:
            return
        run, self._has_selection = str(options.get_option_at_index(options.highlighted).id), True
        self._choose([one for one in self._selected if one != run] if run in self._selected else [*self._selected, run])

    def action_gates(self) -> None:
        """Show each phase's gate, or no longer."""
        self._shows_gates = not self._shows_gates
        self._draw()

    def action_reports(self) -> None:
        """Show the rendered reports."""
        self.push_screen(Pages(self._project, self._follower.shown.reports))

    def action_flip_log(self) -> None:
        """Draw the loss by its logarithm, or no longer."""
        plot = self.query_one("#loss", Plot)
        plot.is_log = not plot.is_log
        plot.refresh()

    # --- drawing ---

    def _draw(self) -> None:
        if isinstance(self.screen, Pages):
            return
        if not self._has_selection and (wanted := [*self._follower.shown.unasked]) != self._selected:
            self._choose(wanted)
            return
        shown, width = self._follower.shown, max(20, self.query_one("#loss").size.width - MARGIN)
        runs = self._follower.picture(self._watched, 2 * width)
        self._put("phases", phases_text(shown))
        self._put("gate", gates_text(shown) if self._shows_gates else Text())
        self._put("heads", heads_text(runs))
        self._put("study", study_text(shown.study))
        self._put("findings", findings_text(runs))
        self._list(shown.runs)
        first = min((run.first for run in runs), default=1)
        last = max((run.last for run in runs), default=1)
        evaluated = max((run.rows[-1].step for run in runs if run.rows), default=last)
        for name in CHARTS:
            lines = [line for nr, run in enumerate(runs) for line in lines_of(run, name, colour(nr))]
            self.query_one(f"#{name}", Plot).show(lines, (first, last if name in OF_STEPS else evaluated))

    def _put(self, name: str, text: Text) -> None:
        before, self._shown[name] = self._shown.get(name), text
        if before != text:
            place = self.query_one(f"#{name}", Static)
            place.display = bool(text)
            place.update(text, layout=before is None or len(before) != len(text))  # of equal length it takes the same room

    def _list(self, runs: Sequence[RunSummary]) -> None:
        rows = [run_text(run, self._selected) for run in reversed(runs)]
        if self._listed == (rows, self._selected):
            return
        self._listed = rows, [*self._selected]
        options = self.query_one("#list", OptionList)
        place = options.highlighted or 0
        options.clear_options()
        options.add_options([Option(text, id=run.id) for text, run in zip(rows, reversed(runs), strict=True)])
        options.highlighted = min(place, len(rows) - 1) if rows else None


# --- what is written ------------------------------------------------------------------------------


def colour(nr: int) -> str:
    """Return the colour of a chosen run."""
    return COLOURS[nr % len(COLOURS)]


def mark(state: str) -> tuple[str, str]:
    """Return the sign of a state, and its style."""
    sign = MARKS.get(state, "·")
    return sign, STYLES.get(sign, "dim")


def phases_text(shown: ProjectShown) -> Text:
    """Return the project with each phase's state, in a line."""
    text = Text.assemble((visible(shown.project), "bold"), "   ")
    for phase in shown.phases:
        text.append(*mark(phase.state)).append(f" {phase.name}   ", "" if phase.state == "running" else "dim")
    return text


def gates_text(shown: ProjectShown) -> Text:
    """Return each phase's gate, item by item, and what comes next."""
    text = Text()
    for phase in shown.phases:
        text.append(f"{phase.name}: {phase.state}", "bold").append(f" {visible('; '.join(phase.reasons))}\n", "dim")
        for item in phase.items:
            text.append("  ").append(*mark(item.verdict)).append(f" {item.statement}\n", "dim")
    found = shown.next
    return text.append(f"next: {visible(found.command or found.why)}" if found else "all five gates hold")


def heads_text(runs: Sequence[Picture]) -> Text:
    """Return the headings of the chosen runs, a line each."""
    if not runs:
        return Text("Nothing has been trained yet. As soon as a run begins, its curves appear here.", "dim")
    return Text("\n").join([head_text(run, colour(nr)) for nr, run in enumerate(runs)])


def head_text(run: Picture, style: str) -> Text:
    """Return a run's heading: state, progress, best metric, rate and usage."""
    facts, planned = run.facts, run.facts.planned
    parts = [facts.state]
    if run.rows:
        parts.append(f"epoch {run.rows[-1].epoch}/{planned.epochs}")
    parts.append(f"step {run.last:,}" + (f"/{planned.steps:,}" if planned.steps else ""))
    if known := [value for row in run.rows if (value := row.validation.get(facts.metric.name)) is not None]:
        best = min(known) if facts.metric.mode == "min" else max(known)
        parts.append(f"best {facts.metric.name.replace('_', ' ')} {short(best)}")
    if run.rate and planned.steps:
        parts += [f"{run.rate:,.0f} steps/s", time_left(max(0, planned.steps - run.last) / run.rate)]
    if facts.usage:
        parts.append(megabytes(facts.usage.memory_mb))
        parts += [f"GPU {gpu.percent} %" for gpu in facts.usage.gpus]
    return Text.assemble(("● ", style), (run.id, "bold"), "  ", visible("  ".join(parts)))


def study_text(study: StudyShown | None) -> Text:
    """Return the progress of a search and of each of its workers."""
    if study is None:
        return Text()
    text = Text(f"Search: {study.done} of {study.planned} {study.what}", "bold")
    text.append(visible("".join(f"  {word}" for word in study_words(study))), "not bold")
    for one in study.running:
        place = f"epoch {one.epoch}/{one.epochs}" if one.epoch is not None else "starts"
        text.append(f"\n  {study.what.removesuffix('s')} {one.nr}: {place}", "not bold dim")
    return text


def findings_text(runs: Sequence[Picture]) -> Text:
    """Return the findings of diagnostics over the chosen runs, a line each."""
    text = Text()
    for run in runs:
        for one in run.facts.findings:
            where = f", epoch {one.epoch}" if one.epoch else ""
            where += f", {run.id}" if len(runs) > 1 else ""
            text.append("\n" if text else "").append(f"▌ {one.title}", SEVERITY.get(str(one.severity), ""))
            text.append(f" {one.severity}{where}: ", "dim")
            text.append(visible(one.reason)).append(f"  mltrainer guide {one.page.removesuffix('.md')}", "dim")
    return text


def readable(report: str) -> str:
    """Return a report without the HTML that folds its parts away, which a terminal does not."""
    unfolded = re.sub(r"</?details>|<br>", "; ", report).replace("\n; \n", "\n")
    return re.sub(r"<summary>(.*?)</summary>", r"**\1**", unfolded)


def run_text(run: RunSummary, chosen: Sequence[str]) -> Text:
    """Return a run in the list."""
    value = run.metrics.get(run.metric.name)
    sign = ("● ", colour(chosen.index(run.id))) if run.id in chosen else ("○ ", "dim")
    told = "running" if run.state == "running" else short(value) if value is not None else run.state
    called = cut(visible(run.name), 14) if run.name else run.id[:8]
    return Text.assemble(sign, called, (f" {str(run.phase or '')[:12]:12} ", "dim"), told)


# --- what is drawn --------------------------------------------------------------------------------


def lines_of(run: Picture, name: str, style: str) -> list[Line]:
    """Return the lines of one of a run's charts."""
    (curves,) = (chart.curves for chart in run.facts.charts if chart.name == name)
    return [Line(_points(run, curve), BESIDE[curve.name] if curve.is_beside else style) for curve in curves]


def _points(run: Picture, curve: Curve) -> list[tuple[float, float]]:
    if curve.of_steps:
        band = getattr(run.steps, str(curve.path[-1]))
        return bucket_points(run.steps.step, band.low, band.high)
    return known_points([row.step for row in run.rows], [curve.value(row) for row in run.rows])


OF_STEPS = ("loss", "norm")  # the others grow at evaluations alone, and are drawn anew only then


def show(project: Project, chosen: Sequence[str]) -> int:
    """Show a project's runs in the terminal until the user ends it.

    Args:
        project: The project.
        chosen: The runs to begin with.

    Returns:
        0, or 143 after SIGTERM.

    Raises:
        InputError: There is no terminal to draw on or to take keys from.
    """
    if not (_is_terminal(sys.__stdin__) and _is_terminal(sys.__stderr__)):  # those that textual reads and draws on
        hint = "look at it in the browser with `mltrainer monitor --web`, or type it at a terminal"
        raise InputError("the terminal view needs a terminal for its input and its standard error", hint=hint)
    with Follower(project) as follower:
        app = Monitor(project, follower, chosen)
        return app.run() or app.return_code or 0


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()
