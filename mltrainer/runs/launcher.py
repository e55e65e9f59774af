"""Starts a tool as a separate process, with exactly the environment that determinism needs before an interpreter exists.

Torch-free: the workflow calls this. A tool reads one job file, writes one folder, and sends events as JSON
lines through a pipe; it may die at any moment without harming the workflow.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from mltrainer import plugins
from mltrainer.configs.launching import EngineName
from mltrainer.configs.less_memory import less_memory
from mltrainer.configs.pages import ToolPage, tool_page
from mltrainer.configs.project import ORCHESTRATOR, TrainingConfig, require_power_of_two
from mltrainer.errors import (
    InputError,
    KilledError,
    MachineError,
    MltrainerError,
    StoppedError,
    ended_with,
    killed,
)
from mltrainer.executors import gang, local, machines
from mltrainer.executors.executor import EVENTS, WORLD_SIZE, Command, Executor, Process
from mltrainer.executors.fork_server import ForkServers
from mltrainer.follow.splits import read_splits
from mltrainer.records.event import Error, read
from mltrainer.records.job import JobBase, PooledJob, TrainingJob
from mltrainer.reproducibility.evidence import RESULT_FILE
from mltrainer.runs.tried import note_tried
from mltrainer.tools.mark import VARIABLE, new_mark
from mltrainer.workspace import Project, machine_faults, read_json, redact_file, write_json

Event = dict[str, Any]
Tell = Callable[[Event], None]
LOG_FILE = "log.txt"
EXECUTOR: Executor = local
EXECUTOR_VARIABLE = "MLTRAINER_EXECUTOR"  # names an installed executor: where processes run is the machine's matter, no project's
TORCHRUN = "TORCHELASTIC_RUN_ID"  # which torchrun sets for each process that it starts
# What a tool imports that proves nothing, so it need not start in a fresh interpreter: forked ones share addresses, and so
# the order of a set of objects, which hides what probes, reproductions and wrapped runs must find.
FORKED = {
    "mltrainer.tools.export": ("mltrainer.exporters.job",),
    "mltrainer.tools.references": ("mltrainer.references.job",),
    "mltrainer.tools.search": ("mltrainer.search.job",),
    **{tool: (module,) for tool, module in plugins.parts("pooled").items()},
}
EXPORTED = {  # what formats of an export import beside that; not their runtime, whose threads a fork would not survive
    "torch_export": ("torch.export._trace",),
    "onnx": ("torch.export._trace", "onnxscript.function_libs.torch_lib.ops"),
}
POOLED = ("mltrainer.tools.search", *plugins.parts("pooled"))  # which fork workers
POLL_S = 0.2  # a tool that ends closes the pipe, which is seen at once; only where another process holds it is this waited
# Kernels that every x86-64 CPU has, whatever else it could do: torch's own, oneDNN's and MKL's dispatch held down.
PORTABLE = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}


class Launch(Protocol):
    """The start of a tool on a job: in a separate process, as `launch` does it, or in this one, as tests do."""

    def __call__(
        self, project: Project, tool: str, job: JobBase, on_event: Tell, variables: Mapping[str, str] | None = None
    ) -> None:
        """Run a tool on a job and return when it has ended well."""


@dataclass(frozen=True)
class Tools:
    """A project's tools, handed down to each user, so that one place decides how they are started.

    Attributes:
        project: The project.
        tell: The function that shows an event (progress, a note) to the person at the keyboard.
        launch: Starts a tool.
        forks: The executor of the tools in `FORKED`; None: as `launch` starts them.
    """

    project: Project
    tell: Tell
    launch: Launch
    forks: ForkServers | None = None

    def prepare(self, config: TrainingConfig, tools: Sequence[str], formats: Sequence[str] = ()) -> None:
        """Begin to import the modules that tools of `FORKED` need, in parallel with the current work.

        Args:
            config: The config of the jobs to come.
            tools: The tools' ids in the handbook.
            formats: The formats of an export to come.
        """
        # Another executor's processes begin elsewhere, where nothing that is imported here helps.
        if self.forks is None or os.environ.get(EXECUTOR_VARIABLE):
            return
        root = self.project.root
        for page in (tool_page(tool, root) for tool in tools):
            if imports := FORKED.get(page.entry_point):
                further = [module for name in formats for module in EXPORTED.get(name, ())]
                self.forks.prepare(root, {**os.environ, **_variables(page, config, config.threads)}, [*imports, *further])

    def run(
        self, tool: str, job: JobBase, variables: Mapping[str, str] | None = None, on_event: Tell | None = None
    ) -> dict[str, Any]:
        """Return the result that a tool wrote for a job.

        Args:
            tool: The tool's id in the handbook.
            job: The job; `folder`, relative to the project, receives the result.
            variables: Set beside those that the tool's page declares, before its interpreter starts.
            on_event: The function that receives the events in place of `tell`.

        Raises:
            MltrainerError: The tool's own error, with its exit code.
        """
        self.launch(self.project, tool, job, on_event or self.tell, variables)
        return dict(read_json(self.project.root / job.folder / RESULT_FILE))

    def note(self, text: str) -> None:
        """Show a note to the person at the keyboard."""
        self.tell({"event": "note", "text": text})


@dataclass(frozen=True)
class Placement:
    """The place of trainings and their number of processes: a command's options, in place of the config and the template.

    Attributes:
        processes: The number of processes that train one model together.
        engine: The engine that trains the runs of a search.
        workers: The number of those at a time.
    """

    processes: int | None = None
    engine: EngineName | None = None
    workers: int | None = None

    def applied(self, job: JobBase) -> JobBase:
        """Return a job that trains many runs with its engine and its workers; another one as it is."""
        said = {"engine": self.engine, "workers": self.workers}
        given = {key: value for key, value in said.items() if value is not None}
        return job.model_copy(update=given) if isinstance(job, PooledJob) and given else job


AS_CONFIGURED = Placement()


@contextlib.contextmanager
def tools_of(
    project: Project, tell: Tell, placement: Placement = AS_CONFIGURED, executor: Executor | None = None
) -> Iterator[Tools]:
    """Return a project's tools, each started as a separate process, for the command line and notebooks.

    Args:
        project: The project.
        tell: The function that shows an event.
        placement: The options that replace the config's values.
        executor: Starts every tool; None: as the machine's user or the command says.

    Raises:
        InputError: This process is one of several of torchrun, or that number cannot train together.
    """
    _refuse_torchrun(os.environ)
    require_power_of_two(placement.processes or 1)
    # The mark is another one for each job: it is set in the forked process, so that one server serves them all.
    with ForkServers(late=(VARIABLE,)) as forks:
        yield Tools(project, tell, functools.partial(launch, forks=forks, placement=placement, executor=executor), forks)


def _refuse_torchrun(environment: Mapping[str, str]) -> None:
    """Refuse to be one of several workflows on one project.

    Raises:
        InputError: torchrun started this process; the message has the command that trains in as many processes.
    """
    size = environment.get(WORLD_SIZE, "1")
    if TORCHRUN not in environment or size == "1":
        return
    message = f"torchrun started {size} processes, and each would run the project; mltrainer starts a training's processes itself"
    raise InputError(message, where=TORCHRUN, hint=f"without torchrun: mltrainer phase run baseline --processes {size}")


def launch(
    project: Project,
    tool: str,
    job: JobBase,
    on_event: Tell,
    variables: Mapping[str, str] | None = None,
    forks: Executor | None = None,
    placement: Placement = AS_CONFIGURED,
    executor: Executor | None = None,
) -> None:
    """Run a tool on a job and return when it has ended well; a killed training goes on as often as `launch.restarts` says.

    Args:
        project: The project, in whose folder the tool runs.
        tool: The tool's id in the handbook.
        job: Written to `job.json` in the folder `job["folder"]`, relative to the project.
        on_event: Called with each event that the tool sends.
        variables: Set beside those that the tool's page declares, before its interpreter starts.
        forks: Starts the tools of `FORKED`; None: as all others.
        placement: The options that replace the config's values.
        executor: Starts every tool, once and with no secret to remove from its log, as its processes may put links in the
            job's folder; None: as the machine's user or the command says.

    Raises:
        MltrainerError: The tool's own error, with its exit code.
        KilledError: It was killed, once more than it may go on by itself.
        StoppedError: It was interrupted or terminated; its state is saved.
    """
    job = placement.applied(job)
    start = functools.partial(_launch_once, project, tool, job, on_event, variables, forks, placement.processes, executor)
    is_once = executor is not None or not isinstance(job, TrainingJob) or job.purpose in ("probe", "explore")
    restarts = 0 if is_once else job.config.launch.restarts
    for restart in range(1, restarts + 1):
        try:
            return _split_as_needed(start, project.root / job.folder, on_event)
        except KilledError as error:
            on_event({"event": "note", "text": f"{error.message}; going on, restart {restart} of {restarts}"})
    return _split_as_needed(start, project.root / job.folder, on_event)


def _split_as_needed(start: Callable[[], None], folder: Path, on_event: Tell) -> None:
    """Start a tool again after each out-of-memory error for which it noted a split."""
    while True:
        known = read_splits(folder)
        try:
            return start()
        except MachineError as error:
            if (found := read_splits(folder)) == known:
                raise
            last = found[-1]
            text = f"{error.message}; going on, with {last.accumulate} micro-batches a step from step {last.step} on"
            on_event({"event": "note", "text": text})


def _launch_once(
    project: Project,
    tool: str,
    job: JobBase,
    on_event: Tell,
    variables: Mapping[str, str] | None,
    forks: Executor | None,
    processes: int | None,
    executor: Executor | None,
) -> None:
    folder = project.root / job.folder
    command = prepared(project, tool, job, variables, processes)
    note_tried(project)  # before it trains: a run that is killed was tried, too
    with _Signals() as signals:  # before the process exists: a signal that comes while it starts is kept and passed on
        with machine_faults(str(folder / LOG_FILE)):
            process = (executor or _executor(command, forks)).start(command)
        signals.pass_on_to(process)
        try:
            code, end = _follow(process, on_event, signals)
        finally:
            if executor is None:  # after its last write; a killed command's log is redacted by the run's next command
                redact_file(folder / LOG_FILE)
    try:
        _raise_for(code, end, signals.asked, project.relative(folder / LOG_FILE))
    except KilledError as error:
        if isinstance(job, TrainingJob) and -code == signal.SIGKILL:
            error.hint = f"{error.hint}; where memory ran out: {less_memory(job.config, job.phase, job.purpose)}"
        raise


def prepared(
    project: Project, tool: str, job: JobBase, variables: Mapping[str, str] | None = None, processes: int | None = None
) -> Command:
    """Write a tool's job, and return the command that does it, for `launch`'s arguments."""
    launch, mark = new_mark()
    write_json(project.root / job.folder / "job.json", job.model_copy(update={"launch": launch}).written())
    return _command(project, tool_page(tool, project.root), job, {**(variables or {}), **mark}, processes)


def _executor(command: Command, forks: Executor | None) -> Executor:
    """Return the executor that the machine's user names; else the one of several processes, the forking one, or the local one.

    Raises:
        InputError: It is not installed, or several processes are to train together, which only this machine's executor starts.
    """
    name = os.environ.get(EXECUTOR_VARIABLE)
    if not name:
        several: Executor = gang
        return several if command.processes > 1 else (command.imports and forks) or EXECUTOR
    if command.processes > 1:
        message = f"the executor {name} starts one process, and {command.processes} are to train together"
        raise InputError(message, where=EXECUTOR_VARIABLE, hint="unset it, or take --processes 1")
    executor: Executor = plugins.load("executors", name, EXECUTOR_VARIABLE)
    return executor


def _command(project: Project, page: ToolPage, job: JobBase, variables: Mapping[str, str], processes: int | None) -> Command:
    """Return the command of a tool on the job in its folder, with what it needs set before its interpreter starts."""
    # -P: a file of the project named like a library must not take its place before the project's own code is imported
    module, *entry_point = program_of(page)
    folder = project.root / job.folder
    arguments = [sys.executable, "-P", "-m", module, str(folder / "job.json"), EVENTS, *entry_point]
    # The page's over the shell's: a number of threads that is set there would change the bits.
    own = {**_variables(page, job.config, job.threads), **variables}
    return Command(
        arguments=arguments,
        folder=project.root,
        environment={**os.environ, **own},
        own_variables=own,
        output=folder / LOG_FILE,
        imports=FORKED.get(page.entry_point, ()),
        forks=page.entry_point in POOLED,
        processes=(count := _processes(page, job, processes)),
        machines=_machines(job, count),
        life_sign_s=job.config.launch.life_sign_s,
    )


def _processes(page: ToolPage, job: JobBase, chosen: int | None) -> int:
    """Return the number of processes that do a job together: one, except for a probe, a run and its reproduction.

    A probe has the config's number: which process begins alone is part of what it shows.

    Raises:
        InputError: The trainer, or the config's number of shards, does not allow this number.
    """
    if isinstance(job, PooledJob):
        _refuse_team(job.config)
    if not isinstance(job, TrainingJob) or job.purpose == "explore":
        return 1
    processes = job.config.processes if chosen is None or job.purpose == "probe" else chosen
    if processes > 1 and page.tool != ORCHESTRATOR:
        message = f"{page.tool} trains in one process, not in {processes}"
        raise InputError(message, where="processes", hint="leave out --processes and launch.processes")
    job.config.require_processes(processes)
    return processes


def _machines(job: JobBase, processes: int) -> int:
    """Return the number of machines that share the processes; a probe has one if this machine is not in a job."""
    if processes == 1 or (isinstance(job, TrainingJob) and job.purpose == "probe" and not machines.is_in_a_job()):
        return 1
    return job.config.launch.machines


def _refuse_team(config: TrainingConfig) -> None:
    """Refuse to train many runs of a model that several processes compute together.

    Raises:
        InputError: The config computes the model in several processes; the hint says what to do in place of a search.
    """
    if config.tensor_parallel > 1:
        message = f"{config.tensor_parallel} processes compute the model together, and the runs of a search have one process each"
        hint = "change the config by hand, by mltrainer phase run planning --set KEY=VALUE, until the baseline meets acceptance"
        raise InputError(message, where="tensor_parallel", hint=hint)


def _variables(page: ToolPage, config: TrainingConfig, threads: int) -> dict[str, str]:
    """Return the variables that determinism needs before a tool's interpreter starts."""
    own = {name: value.format(threads=threads) for name, value in page.environment.items()}
    return {**own, **(PORTABLE if config.numerics == "portable" else {})}


def program_of(page: ToolPage) -> list[str]:
    """Return the module that a tool's process runs, and for a project's own tool the project's module as its argument."""
    return [page.entry_point] if page.entry_point.startswith("mltrainer.") else ["mltrainer.tools.own", page.entry_point]


class _Signals:
    """Passes SIGINT and SIGTERM on to the tool: the first one, so that it can save; a second one kills it."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self._process: Process | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._previous = {number: signal.signal(number, self._catch) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def pass_on_to(self, process: Process) -> None:
        """Begin to pass on, with what came while the process was being made."""
        self._process = process
        for number in self.asked[:1]:
            process.signal(number)

    def _catch(self, number: int, _frame: Any) -> None:
        self.asked.append(number)
        if self._process is None:
            return
        if len(self.asked) == 1:
            self._process.signal(number)
        elif len(self.asked) == 2:  # a third one interrupts the killing itself, and must not begin it again
            self._process.kill()


def _follow(process: Process, on_event: Tell, signals: _Signals) -> tuple[int, Event | None]:
    """Show a tool's events until it ends; return its exit code and its last event, "done" or "error", if it had one."""
    end: Event | None = None
    is_announced = False
    try:
        for line in _lines(process):
            if not line and signals.asked and not is_announced:
                on_event({"event": "note", "text": "stopping, which may take as long as a step; Ctrl-C again ends it at once"})
                is_announced = True
            event = read(line)
            if event is not None and event["event"] in ("done", "error"):
                end = event
            elif event is not None:
                on_event(event)
        code = process.wait()
    finally:
        process.close()
        # An exception of whoever listens ends the listening, not the tool: it would train on with nobody to follow it.
        if process.poll() is None:
            process.signal(signal.SIGTERM)
            process.wait()
    assert code is not None
    return code, end


def _lines(process: Process) -> Iterator[bytes]:
    """Yield a tool's lines until it ends, and an empty one whenever nothing came for a while.

    Processes that the user's code started may outlive the tool, and hold the pipe open.
    """
    ended = False
    while (lines := process.listen(0 if ended else POLL_S)) or (lines is not None and not ended):
        yield from lines or [b""]
        ended = process.poll() is not None


def _raise_for(code: int, end: Event | None, asked: list[int], log: str) -> None:
    """Raise the error that a tool's end means; a stop by the user is reported as one, however far the tool came."""
    # First: the tool's own word says more than its exit code, also where it was asked to stop.
    if end is not None and end["event"] == "error":
        error = Error.model_validate(end)
        # A lost process of several, named by the executor: no crash of the tool itself, which would come again, and no stop.
        lost = killed(code) is not None and not asked and error.exit_code == KilledError.exit_code
        raise KilledError(error.message, where=error.where, hint=error.mend, faults=error.faults) if lost else error.raised()
    # Somebody else may have sent the signal to the tool alone, as a scheduler does: that is a stop, too.
    stopped = asked[0] if asked else -code
    if stopped in (signal.SIGINT, signal.SIGTERM):
        raise StoppedError("interrupted", exit_code=128 + stopped, hint="type the same command again to go on")
    if (why := killed(code) if code < 0 else None) is not None:
        raise KilledError(
            f"the tool was killed by {ended_with(code)}: {why}",
            where=log,
            hint="type the same command again to go on from the last checkpoint",
        )
    if code != 0:
        name = ended_with(code) if code < 0 else f"exit code {code}"
        kind = (
            MachineError if code == MachineError.exit_code else MltrainerError
        )  # before it could send one, its job was unreadable
        raise kind(f"the tool ended with {name} and no message", where=log, hint="read the end of that file")
    if end is None:
        raise InputError(
            "the tool ended before its work was done: your code, or a library that it uses, ended the process (os._exit)",
            where=log,
            hint="raise an exception instead",
        )
