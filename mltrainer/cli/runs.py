"""`mltrainer runs`, `mltrainer reproduce` and `mltrainer diagnose`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mltrainer import plugins
from mltrainer.cli import completion, output
from mltrainer.cli.common import (
    AnyRun,
    AsJson,
    Assignments,
    Folder,
    Processes,
    Run,
    Verbose,
    group,
    open_project,
    path_name,
    share_of_one,
    step_or_first,
    watched_metrics,
)
from mltrainer.cli.output import emit, printable, say
from mltrainer.configs.loading import as_typed
from mltrainer.configs.pages import verification_page
from mltrainer.follow.progress import Progress
from mltrainer.reports.runs import RunRow, difference_text, metrics_text, parting, speed_rows, speeds_apart
from mltrainer.reports.terminal import table
from mltrainer.reports.values import apart, counted, number, plain, size
from mltrainer.reproducibility.fingerprint import float_of
from mltrainer.runs.find import describe_run, find_run, list_runs
from mltrainer.runs.labels import Labels, label_run, read_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mltrainer.records.diagnostics import AdvisedDiagnosis
    from mltrainer.runs.fork import Fork
    from mltrainer.runs.reproduce import Reproduced

OF_LAST_STEP = " (the weights after the last step; the delivered ones have a digest of their own)"

app = group()
runs = group("runs", help="List, show and compare runs.", epilog="Example: mltrainer runs list")
app.add_typer(runs)


@runs.command(name="list", epilog="Example: mltrainer runs list")
def list_(
    tag: Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Only the runs that have this tag.")] = None,
    folder: Folder = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> int:
    """List every run of the project, with its phase and its result, and the names and tags that runs were given.

    Shown are the metric that the project chooses by and the loss; -v shows all.
    """
    project = open_project(folder)
    labels = read_labels(project)
    rows = [(row, labels.get(row.id, Labels())) for row in list_runs(project)]
    rows = [(row, own) for row, own in rows if tag is None or tag in own.tags]
    if as_json:
        emit({"runs": [{**row.written(), **(own.written() if own != Labels() else {})} for row, own in rows]})
        return 0
    watched = watched_metrics(project, verbose)
    are_labelled = any(own != Labels() for _, own in rows)
    shown = [
        [r.id, *(_in_words(own) if are_labelled else ()), r.phase, r.state, _steps(r), metrics_text(r.validation, watched)]
        for r, own in rows
    ]
    heads = ["run", *(("name", "tags") if are_labelled else ()), "phase", "state", "steps", "metrics on validation"]
    nothing = f"no run has the tag {printable(tag)!r}" if tag else "no runs yet; next: mltrainer run"
    say(table(shown, heads) if shown else nothing)
    return 0


def _steps(row: RunRow) -> str:
    return "-" if row.steps is None else str(row.steps)


def _in_words(labels: Labels) -> tuple[str, str]:
    return labels.name or "-", " ".join(labels.tags) or "-"


@runs.command(epilog="Example: mltrainer runs tag baseline --name 'first try' good")
def tag(
    run: Run,
    tags: Annotated[list[str] | None, typer.Argument(metavar="[TAG]...", help="Tags to add.")] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="What the run is called; '' takes its name away.")
    ] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", metavar="TAG", help="A tag to take away.")] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Give a run a name and tags, by which lists and the monitor show and filter it.

    They stand in a file of this machine (.mltrainer/labels.json): no record, digest or gate knows of them.
    """
    project = open_project(folder)
    run_id = find_run(project, run)
    labels = label_run(project, run_id, name, tags or (), remove or ())
    if as_json:
        emit({"run": run_id, **labels.written()})
        return 0
    called, tagged = _in_words(labels)
    say(f"run {run_id}: name {called}, tags {tagged}")
    return 0


@runs.command(epilog="Example: mltrainer runs show baseline --json")
def show(run: Run, folder: Folder = None, as_json: AsJson = False) -> int:
    """Show one run: by id, unique prefix, or its phase's name."""
    project = open_project(folder)
    row = describe_run(project, find_run(project, run))
    if as_json:
        emit(row.written())
        return 0
    stops = ["step {step}: {cause}".format_map(stop) for stop in row.interruptions or []]
    shown = {**row.written(), "metrics": f"{metrics_text(row.validation)} (on validation)", "interruptions": stops}
    of_weights = {key for key in ("weights_sha256", "weights_tree_sha256") if row.steps and shown[key]}
    rows = [[key, _plain(value) + (OF_LAST_STEP if key in of_weights else "")] for key, value in shown.items()]
    say(table(rows, ["", ""]))
    return 0


def _plain(value: Any) -> str:
    """Return a value of a run in words: a mapping by its keys, a list item by item, `-` for an unknown value."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items()) or "-"
    if isinstance(value, list):
        return "; ".join(map(_plain, value)) or "none"
    return "-" if value is None else number(value) if isinstance(value, float) else str(value)


@runs.command(epilog="Example: mltrainer runs compare baseline finalization")
def compare(first: Run, second: Run, folder: Folder = None, as_json: AsJson = False) -> int:
    """Show in what two runs differ, and at which step they part.

    Compared are config, digests and metrics, the speed of both beside what two runs of one config differ by, and step by step
    what each run's chain recorded.
    """
    from mltrainer.project.front import Project

    compared = Project(folder).compare(first, second).compared
    if as_json:
        emit(compared.written())
        return 0
    rows = [[d.what, _beside(d.first, d.second), _beside(d.second, d.first)] for d in compared.differences]
    say(table(rows, ["", compared.first, compared.second]) if rows else "no difference")
    if said := difference_text(compared.metric):
        say(said)
    if compared.speed is not None:
        say(table(speed_rows(compared.speed), ["", compared.first, compared.second]).rstrip("\n"))
        say(speeds_apart(compared.speed))
    say(parting(compared))
    return 0


def _beside(value: Any, other: Any) -> str:
    return apart(value, other) if isinstance(value, float) else plain(value)


@runs.command(epilog="Example: mltrainer runs pack")
def pack(folder: Folder = None, as_json: AsJson = False) -> int:
    """Pack the folders of ended runs that nothing refers to, such as trials, into one file for a thousand.

    A packed run is listed as before, and gets its folder back as soon as a command names it or a study needs it. What a
    record, an export or a fork refers to, and what opened the test split, stays.
    """
    from mltrainer.runs.packing import pack_runs

    packs = pack_runs(open_project(folder))
    if as_json:
        emit({"packs": [row.written() for row in packs]})
        return 0
    row = None
    for row in packs:
        sizes = f"{size(row.folder_bytes)} -> {size(row.pack_bytes)}"
        say(f"{row.pack}: {counted(len(row.runs), 'run')}, {counted(row.files, 'file')}, {sizes}")
    if row is None:
        say("no ended run that nothing refers to")
    return 0


@runs.command(epilog="Example: mltrainer runs delete 4f1c --dry-run")
def delete(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", autocompletion=completion.runs, help="The runs, by id.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing; show what would go.")] = False,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Remove the folders of runs that nothing refers to, with their checkpoints.

    Refuses, and removes none, if one of them is named by a gate, a record, a report, a config, a registered version, an export,
    an audit, an unfinished search, another run's job or a record of another local branch, if it opened the test split, or if it
    was begun under the present records. The message says what names it. The ledger of tried runs counts a run whose folder is
    gone.
    """
    from mltrainer.runs.deleting import delete_runs

    project = open_project(folder)
    found = delete_runs(project, [find_run(project, name) for name in names], only_look=dry_run)
    if as_json:
        emit({"deleted": [] if dry_run else [one.run for one in found], "runs": [one.written() for one in found]})
        return 0
    for one in found:
        say(f"{'would remove' if dry_run else 'removed'} run {one.run}: {counted(one.files, 'file')}, {size(one.bytes)}")
    return 0


Segments = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        parser=share_of_one,
        help="Train only a random share of the run again, such as 5%, in segments from a checkpoint to the next one.",
    ),
]
Nonce = Annotated[
    str | None, typer.Option(metavar="TEXT", help="With --segments: your text that selects them (default: a random one).")
]
Checkpoints = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", parser=path_name, help="With --segments or --dispute: the author's folder of the run, with checkpoints."
    ),
]
Dispute = Annotated[
    str | None,
    typer.Option(
        metavar="STEP",
        parser=step_or_first,
        help="Record each operator of this step or, with first, of the first step that differs.",
    ),
]
Against = Annotated[
    Path | None,
    typer.Option(metavar="FILE", parser=path_name, help="With --dispute: the other party's operators.json of that step."),
]
# Options that a kind of reproduction takes; any other one beside it is wrong usage.
TAKES = {
    "--segments": ("--nonce", "--checkpoints"),
    "--dispute": ("--against", "--checkpoints"),
    "": ("--steps", "--environment", "--processes"),
}


@app.command(epilog="Example: mltrainer reproduce baseline --steps 50")
def reproduce(
    run: AnyRun = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Compare only the first steps (of a fork: after its parent's), for a quick proof."),
    ] = None,
    environment: Annotated[
        bool, typer.Option("--environment", help="Rebuild the recorded environment first, and reproduce in it.")
    ] = False,
    processes: Processes = None,
    segments: Segments = None,
    nonce: Nonce = None,
    checkpoints: Checkpoints = None,
    dispute: Dispute = None,
    against: Against = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Train a run again in a fresh process and compare every step; exit 5 when it, or the environment, differs.

    Without RUN: the run of the last phase that trained. A clone has no files of runs: there it is trained from the committed
    record, and weights, metrics and the last hash of its chain are compared with the record. The data must be here.

    With --segments it audits: it trains segments again that nobody could predict, and compares the whole state at the end of
    each, and the metrics of each checkpoint. The answer has the probability that a forged segment was missed. With --dispute,
    two parties whose steps differ find the first operator that differs; anyone can compute it again with verify-case.
    """
    given: dict[str, object] = {
        "--steps": steps,
        "--environment": environment or None,
        "--processes": processes,
        "--nonce": nonce,
    }
    given |= {"--segments": segments, "--dispute": dispute, "--checkpoints": checkpoints, "--against": against}
    _require_fitting({name for name, value in given.items() if value is not None})
    if segments is not None:
        return int(plugins.part("reproduce", "audit")(folder, run, segments, nonce, checkpoints, as_json))
    if dispute is not None:
        return int(plugins.part("reproduce", "dispute")(folder, run, dispute, against, checkpoints, as_json))
    from mltrainer.runs.launcher import Placement, tools_of
    from mltrainer.runs.reproduce import reproduce_elsewhere, reproduce_run

    project = open_project(folder)
    if environment:
        with Progress() as progress:
            return reproduce_elsewhere(project, find_run(project, run), progress, steps, as_json=as_json)
    with Progress() as progress, tools_of(project, progress, Placement(processes)) as tools:
        reproduced = reproduce_run(tools, find_run(project, run), steps)
    bound = verification_page(project.root).settings.loss_bound
    emit(reproduced.written()) if as_json else say(_verdict(reproduced, bound))
    return 0 if reproduced.holds else 5


def _require_fitting(given: set[str]) -> None:
    """Refuse options of `reproduce` that do not belong together; the message says which belong to which."""
    kind = next((name for name in TAKES if name in given), "")
    if (other := min(given - {kind, *TAKES[kind]}, default=None)) is None:
        return
    if kind:
        raise typer.BadParameter(f"{kind} and {other} exclude each other.", param_hint=f"'{other}'")
    takers = " or ".join(name for name, options in TAKES.items() if other in options)
    raise typer.BadParameter(f"{other} needs {takers}.", param_hint=f"'{other}'")


def _verdict(reproduced: Reproduced, loss_bound: float) -> str:
    if reproduced.identical:
        lines = [f"run {reproduced.run}: bitwise identical in {_compared(reproduced)}"]
    else:
        lines = [f"run {reproduced.run} is {reproduced.grade}", *_numbers(reproduced, loss_bound)]
    if (step := reproduced.first_divergence) is not None and reproduced.is_without_steps:
        lines.append(f"  of what it left, {step.what} differs: expected {step.expected}, found {step.found}")
    elif step is not None:
        where = f", tensor {step.tensor}" if step.tensor else ""  # only our own trainer keeps tensors to name
        expected, found_bits = (_bits(step.what, bits) for bits in (step.expected, step.found))
        lines.append(f"  first different step: {step.step} ({step.what}{where}): expected {expected}, found {found_bits}")
    elif not reproduced.identical and reproduced.steps_compared:
        lines.append(f"  no step of {reproduced.steps_compared} differs")
    lines += [f"  {row.words}" for row in reproduced.differences]
    lines += [f"  cause: {reproduced.cause}"] if reproduced.cause else []
    lines += _of_record(reproduced) if reproduced.record and not reproduced.error else []
    return "\n".join([*lines, *([f"  it could not be trained: {reproduced.error}"] if reproduced.error else [])])


def _compared(reproduced: Reproduced) -> str:
    """Return the compared part: the steps that were trained again; of a fork, those after its parent's."""
    first, steps = reproduced.after_step, reproduced.steps_compared
    if reproduced.is_without_steps:
        return "weights, metrics and outputs; no step was seen"
    return f"{steps} steps" + (f", {first + 1} to {first + steps}" if first else "")


def _of_record(reproduced: Reproduced) -> list[str]:
    """Return the lines on a comparison with the record: a clone does not have the run's own files."""
    lines = [f"  compared with the record of {reproduced.record}: weights, metrics and the head of the chain over all steps"]
    words = {True: "were passed through again, bit for bit", False: "were NOT among those that it passed through"}
    return lines + ([f"  the delivered weights {words[reproduced.delivered]}"] if reproduced.delivered is not None else [])


def _numbers(reproduced: Reproduced, loss_bound: float) -> list[str]:
    """Return lines on the size of the numeric differences, if a run was trained to its end although its bits differ."""
    if reproduced.loss_difference is None:
        return []
    loss, metric = number(reproduced.loss_difference), number(reproduced.metric_difference)
    if reproduced.is_without_steps:
        return [f"  the metric differs by {metric}"]
    sizes = f"losses differ by at most {loss} of their size, the metric by {metric}"
    return [f"  {sizes}; numerically equal means at most {loss_bound:g}", f"  reachable on this machine: {reproduced.reachable}"]


def _bits(what: str, text: str) -> str:
    """Return a number's bits with the number; of a digest, its first digits."""
    return f"{text} ({float_of(text):.9g})" if what in ("loss", "gradient norm") else text[:12]


@app.command(epilog="Example: mltrainer diagnose baseline")
def diagnose(
    run: AnyRun = None,
    is_try: Annotated[
        bool,
        typer.Option("--try", help="Train the suggested fixes beside the unchanged config, and report the effect of each."),
    ] = False,
    epochs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With --try: train each for fewer epochs than the run.")
    ] = None,
    is_apply: Annotated[
        bool,
        typer.Option(
            "--apply", help="Write the best that --try found, or the first suggestion, into the project's config files."
        ),
    ] = False,
    folder: Folder = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> int:
    """Show findings over a recorded run, with pages of the handbook and suggested config changes.

    Without RUN: the newest phase's run; with --try and --apply the baseline's. Neither changes a gate or a record. What fired is
    shown; -v shows every rule with what was measured.
    """
    if epochs is not None and not is_try:
        raise typer.BadParameter("--epochs needs --try.", param_hint="'--epochs'")
    if is_try or is_apply:
        remedy = plugins.part("diagnose", "remedy")
        return int(remedy(folder, run or "baseline", is_try, epochs, is_apply, as_json))
    from mltrainer.records.common import dumped
    from mltrainer.runs.find import diagnose_run

    project = open_project(folder)
    rows = diagnose_run(project, find_run(project, run))
    if as_json:
        emit({"diagnostics": dumped(rows)})
        return 0
    _print_states(rows, verbose)
    for row in rows:
        if row.state == "fired":
            _print_finding(row, run)
    return 0


def _print_states(rows: Sequence[AdvisedDiagnosis], verbose: bool) -> None:
    """Print the rules that fired, and the numbers of clear and not applicable ones; with `verbose`, each with its reason."""
    by_state = {state: [row for row in rows if row.state == state] for state in ("fired", "clear", "not_applicable")}
    for row in by_state["fired"]:
        say(f"fired: {row.id}: {row.reason}")
    if verbose:
        rest = [*by_state["clear"], *by_state["not_applicable"]]
        say(table([[row.state.replace("_", " "), row.id, row.reason] for row in rest], ["state", "diagnostic", "reason"]))
    else:
        clear, absent = len(by_state["clear"]), len(by_state["not_applicable"])
        say(f"{counted(clear, 'rule')} clear, {absent} not applicable (-v shows each with what was measured)")


def _print_finding(row: AdvisedDiagnosis, run: str | None) -> None:
    """Print a rule that fired: its page, its fix, and the commands of its changes and of its samples."""
    say(f"\n{row.title} (mltrainer guide {row.page.removesuffix('.md')})")
    if "mend" in row.evidence:
        say(f"  {row.evidence['mend']}")
    for change in row.changes:
        say(f"  {change.why}: mltrainer phase run planning {as_typed(change.set)}")
    if plugins.part("diagnose", "has_rows")(row):
        say(" ".join(["  its samples: mltrainer rows", *([run] if run else []), "--finding", row.id]))


@app.command(epilog="Example: mltrainer fork baseline --step 120 --set optimizer.lr=3e-4")
def fork(
    run: Run,
    step: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The checkpoint to begin with; default: the newest.")
    ] = None,
    assignments: Assignments = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Train a new run from another run's checkpoint, where that one cannot be resumed or should take another turn.

    The new run has the present contract and a link to its parent. No gate takes a fork for evidence.
    """
    from mltrainer.runs.fork import fork as fork_run
    from mltrainer.runs.launcher import tools_of

    project = open_project(folder)
    with Progress() as progress, tools_of(project, progress) as tools:
        forked = fork_run(tools, find_run(project, run), step, tuple(assignments or ()))
    return output.show(forked, _forked, as_json)


def _forked(fork: Fork) -> str:
    head = f"run {fork.run}: forked from {fork.parent} at step {fork.step}, {fork.state}"
    changes = [f"  {change}" for change in fork.changes]
    return "\n".join([head, *changes, f"next: mltrainer runs compare {fork.parent} {fork.run}"])
