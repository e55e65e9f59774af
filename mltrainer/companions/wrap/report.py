"""The verdict of `mltrainer wrap` as text for the terminal and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mltrainer.observe.disturbances import NOT_CHANGED
from mltrainer.programs.causes import KINDS
from mltrainer.programs.chains import ChainDifference
from mltrainer.programs.checking import NO_STEP, Cause, Repeated, ResumeVerdict, SuspectLine, Verdict, hint
from mltrainer.programs.subject import Subject
from mltrainer.reports.markdown import code, table
from mltrainer.reports.markdown import text as text_of
from mltrainer.reports.values import counted, duration, short

COMPARED = (
    "Fresh processes were to make the same optimizer steps. At every step the sums of the bits of all gradients and of some"
    " of the weights were compared, and all weights whole at every fiftieth and at the last."
)
RESUMED = "The resumed program was compared in the same way, from the step at which it resumed, with an undisturbed run."
LEFT = (
    "No step of a PyTorch optimizer was seen: fresh processes ran the whole program, and the files that each wrote in its folder"
    " were compared byte for byte; of JSON all values but for times."
)
MOST_LEFT = 8  # named files
MOST_FILES = 50  # listed files of code, and of data; --json lists all
LEFT_OUT = "compiled models, gradients that processes exchange, hooks on a gradient"  # from backward passes computed twice
REPEATS, DIFFERS = "it repeats", "IT DOES NOT REPEAT"


def text(verdict: Verdict, resumed: ResumeVerdict | None, *, is_begun: bool = False) -> str:
    """Return a verdict as plain lines; `is_begun`: without its first ones, which `head` gives."""
    return "\n".join([*_of_verdict(verdict, is_begun=is_begun), *(_of_resuming(resumed) if resumed is not None else ())])


def head(verdict: Verdict) -> str:
    """Return the first lines of a verdict, which are known before the line is searched for."""
    return "\n".join(_head(verdict))


def one_more_run(verdict: Verdict) -> str:
    """Return the line by which one more run of the same adds to a verdict whose head is known."""
    *_, seed = verdict.hash_seeds
    return f"  hash seed {seed}: the same, in {len(verdict.seconds)} runs; it took {duration(verdict.seconds[-1])}"


def _of_verdict(verdict: Verdict, *, is_begun: bool = False) -> Iterator[str]:
    if not is_begun:
        yield from _head(verdict)
    if verdict.cause is not None:
        yield from cause_lines(verdict.cause, of_left=verdict.left is not None)
    if verdict.search is not None:
        yield f"  the search for the line took {counted(verdict.search.runs, 'run')} in {duration(verdict.search.seconds)}"
    if verdict.stopped and verdict.same:
        yield f"  no other hash seed was tried, under which a set may come in another order: {verdict.stopped}"
    elif verdict.stopped:
        yield f"  it was cut short ({verdict.stopped}): the same command searches for the line again"


def _head(verdict: Verdict) -> Iterator[str]:
    processes = f" in each of {verdict.processes} processes" if verdict.processes > 1 else ""
    took = _joined([duration(seconds) for seconds in verdict.seconds])
    if verdict.same:
        runs = f"{len(verdict.seconds)} runs"
        if verdict.left is not None:
            yield f"{REPEATS}: {NO_STEP}; in {runs} it left the same, byte for byte but for times in JSON: {_left(verdict.left)}"
        else:
            yield f"{REPEATS}: {verdict.steps} optimizer steps{processes}, in {runs}, all gradients and weights the same"
        yield f"  changed between them: {_changed(verdict)}; they took {took}"
        if verdict.repeated is not None:
            yield f"  {_repeated(verdict.repeated)}"
        yield f"  not changed: {_joined(NOT_CHANGED)}"
        yield f"  {_about(verdict.judged)}"
        return
    assert verdict.difference is not None
    if verdict.left is not None:
        yield f"{DIFFERS}: {NO_STEP}, and what it leaves differs: {_unlike(verdict.difference)}"
    else:
        yield f"{DIFFERS}: {_step_of(verdict.difference, verdict.steps)}"
    yield f"  seen in {len(verdict.seconds)} runs; they took {took}"
    if verdict.failed:
        yield "  the second run failed; it printed last:"
        yield from (f"    {line}" for line in verdict.failed)


def _repeated(found: Repeated) -> str:
    left_out = f"; {found.left_out} left out, which cannot be: {LEFT_OUT}" if found.left_out else ""
    return (
        f"computed twice within the first run: {found.same} backward passes (no forward pass), each with the same bits{left_out}"
    )


def _step_of(difference: ChainDifference, steps: int | None) -> str:
    s = "s" if difference.what.startswith(("which", "how")) else ""
    return f"{difference.what} differ{s}" + (f" at optimizer step {difference.step} of {steps}" if difference.step else "")


def _unlike(difference: ChainDifference) -> str:
    values = f" (first: {difference.expected} in one run, {difference.found} in another)" if difference.expected else ""
    return f"{difference.what}{values}"


def _left(left: Mapping[str, str]) -> str:
    """Return the names of the files that were left, the first ones of many."""
    names = list(dict.fromkeys(name.partition(": ")[0] for name in left))
    more = [f"and {len(names) - MOST_LEFT} more"] if len(names) > MOST_LEFT else []
    return ", ".join([*names[:MOST_LEFT], *more])


def _changed(verdict: Verdict) -> str:
    """Return the list of changes between the runs, with the hash seeds used."""
    seeds = f"hash seed ({_joined(verdict.hash_seeds)})"
    return ", ".join(seeds if what == "hash seed" else what for what in verdict.changed)


def _joined(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _about(subject: Subject) -> str:
    """Return a line on the judged files: code, data, and their digests."""
    sources = f"{counted(len(subject.code), 'file')} of code ({short(subject.code_sha256)})"
    read = f"{counted(len(subject.data), 'file')} of data ({short(subject.data_sha256)})" if subject.data else "no files of data"
    on = ", ".join(f"{name} {value}" for name, value in subject.about.items())
    return f"judged: {sources}, {read}; {on}"


def cause_lines(cause: Cause, *, of_left: bool = False) -> Iterator[str]:
    """Yield the lines about a cause; `of_left`: of a difference in the files that a program left."""
    yield f"  cause: {KINDS[cause.kind].words}"
    for number, line in enumerate(cause.lines):
        yield f"  {'line: ' if number == 0 else 'or:   '} {_line(line)}"
    for number, line in enumerate(cause.innocent):
        yield f"  {'differs, but does not reach the training:' if number == 0 else 'nor:'} {_line(line)}"
    if cause.shown is not None:
        yield f"  first shows: {shown(cause)}"
    if cause.traced_s is not None:
        short = "ended" if of_left else "made the steps"
        yield f"  judged by the trace of {duration(cause.traced_s)}: the program had not {short} by then"
    yield f"  next: {hint(cause, of_left=of_left)}"


def _line(line: SuspectLine) -> str:
    return f"{line.where}: {line.text or line.call}"


def shown(cause: Cause) -> str:
    """Return the first visible difference in words, with its module, line and step."""
    place = f" at {cause.where}" if cause.where else ""
    module = f" in {cause.module}" if cause.module else ""
    return f"{cause.shown}{module}{place}, before the end of step {cause.step}"


def _of_resuming(verdict: ResumeVerdict) -> Iterator[str]:
    how = f"killed after step {verdict.killed_after}, resumed after step {verdict.went_on_after} of {verdict.steps}"
    if verdict.same:
        yield f"resuming holds: {how}, it ends in the bits of the undisturbed run"
        return
    at = f" at step {verdict.step}" if verdict.step is not None else ""
    yield f"RESUMING DOES NOT HOLD: {how}, it differs{at}: {verdict.what}"
    if verdict.shown is not None:
        yield f"  first shows: {verdict.shown}"
    yield f"  next: {KINDS['state'].hint}"


def page(verdict: Verdict, resumed: ResumeVerdict | None) -> str:
    """Return a verdict as a page in Markdown."""
    parts = [f"# Does it repeat?\n\n{code(verdict.command)}", f"**{_summary(verdict, resumed)}.**", _quoted(_of_verdict(verdict))]
    parts += ["## Judged files", *_files(verdict.judged)]
    if resumed is not None:
        parts += ["## Does resuming hold?", f"{code(resumed.command)}", _quoted(_of_resuming(resumed))]
    changed = f"Changed between them: {_changed(verdict)}. Not changed: {_joined(NOT_CHANGED)}."
    compared = f"{COMPARED if verdict.left is None else LEFT} {changed}"
    parts.append(compared if resumed is None else f"{compared} {RESUMED}")
    return "\n\n".join(parts) + "\n"


def _files(subject: Subject) -> Iterator[str]:
    on = ", ".join(f"{name} {value}" for name, value in subject.about.items())
    yield f"The files that the first run read with Python's own means, and what it ran on: {on}."
    rows = [
        (code(row.path), what, text_of(f"{row.bytes:,}"), code(short(row.sha256)) if row.sha256 else "too large")
        for what, rows in (("code", subject.code), ("data", subject.data))
        for row in rows[:MOST_FILES]
    ]
    yield table(["file", "what", "bytes", "sha256"], rows, "llrl")
    if more := len(subject.code) + len(subject.data) - len(rows):
        yield f"and {counted(more, 'file')} more, which `--json` lists"


def _summary(verdict: Verdict, resumed: ResumeVerdict | None) -> str:
    """Return the whole verdict in one sentence."""
    repeats = "It repeats" if verdict.same else "It does not repeat"
    if resumed is None:
        return repeats
    return (
        f"{repeats}, {'and' if verdict.same == resumed.same else 'but'} resuming {'holds' if resumed.same else 'does not hold'}"
    )


def _quoted(lines: Iterator[str]) -> str:
    from mltrainer.reports.markdown import block

    return block(lines, "text")


def as_json(verdict: Verdict, resumed: ResumeVerdict | None) -> dict[str, object]:
    """Return a verdict as one JSON object."""
    import dataclasses

    values = dataclasses.asdict(verdict)
    of = verdict.judged
    values["judged"] |= {"code": [row._asdict() for row in of.code], "data": [row._asdict() for row in of.data]}
    values |= {name: part._asdict() for name in ("difference", "repeated") if (part := getattr(verdict, name)) is not None}
    return {**values, "resumed": dataclasses.asdict(resumed) if resumed is not None else None}
