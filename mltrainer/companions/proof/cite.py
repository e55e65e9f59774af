"""`mltrainer cite FILE`: the marked numbers of a user's text, filled from the records and checked by `gate check`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any

import typer

from mltrainer.cli.common import AsJson, Folder, group, open_project, path_name
from mltrainer.cli.output import emit, say
from mltrainer.companions.proof.citations import Citation, citations, filled, numbers
from mltrainer.errors import InputError
from mltrainer.records.reading import read_record
from mltrainer.reports.terminal import table
from mltrainer.reports.values import counted
from mltrainer.workspace import PHASES, Project, machine_faults, read_json, read_whole, write_atomic, write_json

CITED_FILE = "phases/cited.json"
MARK = "<!-- mltrainer finalization.test.metrics.accuracy -->0.957<!-- /mltrainer -->"

app = group()


@app.command(epilog="Example: mltrainer cite README.md")
def cite(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", parser=path_name, help="Texts (default: those cited before).")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 4 if a number differs from the record.")] = False,
    numbers_of: Annotated[
        str | None, typer.Option("--list", metavar="WORD", help="List the numbers whose name contains WORD.")
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    r"""Fill the marked numbers of your own texts from the records; then gate check reports each that differs.

    In Markdown, mark a number by HTML comments, which are not rendered; in LaTeX, by a command that shows its second argument:

    <!-- mltrainer finalization.test.metrics.accuracy -->0.957<!-- /mltrainer -->

    \mltrainer{finalization.test.metrics.accuracy}{95.7\%}   (\newcommand{\mltrainer}[2]{#2})

    It keeps your format: decimals, percent sign, thousands separators.
    """
    project = open_project(folder)
    evidence = evidence_of(project)
    if numbers_of is not None:
        return _list(evidence, numbers_of, as_json)
    paths = [_inside(project, path.absolute()) for path in files or ()] or cited(project)
    if not paths:
        raise InputError("no text has a marked number yet", hint=f"mark one, such as {MARK}, then: mltrainer cite README.md")
    found = {path: _cited(project, path, evidence, writes=not check) for path in paths}
    if not check:
        write_json(project.root / CITED_FILE, {"files": sorted({*cited(project), *paths})})
    if as_json:
        emit({"files": {path: [_row(one) for one in rows] for path, rows in found.items()}})
    else:
        say("\n".join(_report(path, rows, evidence, is_check=check) for path, rows in found.items()))
    return 4 if any(_wrong(one, is_check=check) for rows in found.values() for one in rows) else 0


def evidence_of(project: Project) -> dict[str, Any]:
    """Return the evidence of each phase whose record can be trusted, by the phase's name."""
    records = {phase: read_record(project, phase) for phase in PHASES}
    return {phase: record.evidence for phase, record in records.items() if record is not None and record.typed is not None}


def cited(project: Project) -> list[str]:
    """Return the texts whose numbers are bound, relative to the project.

    Raises:
        InputError: The file that lists them is not readable.
    """
    path = project.root / CITED_FILE
    if not path.exists():
        return []
    content = read_json(path)
    files = content.get("files") if isinstance(content, dict) else None
    if not isinstance(files, list) or not all(isinstance(name, str) for name in files):
        raise InputError("expected a list of files", where=CITED_FILE, hint="remove it, then: mltrainer cite FILE...")
    return [_inside(project, project.root / name) for name in files]


def faults(project: Project) -> list[str]:
    """Return a line for each number in the cited texts that is not the record's; for `gate check`."""
    try:
        paths = cited(project)
    except InputError as error:
        return [str(error)]
    evidence = evidence_of(project) if paths else {}
    return [fault for path in paths for fault in _faults(project, path, evidence)]


def _faults(project: Project, path: str, evidence: dict[str, Any]) -> list[str]:
    try:
        rows = citations(_text(project, path), evidence)
    except InputError as error:
        return [f"{path}: {error.message}; next: {error.hint}"]
    if not rows:
        return [f"{path}: no number in it is marked any more; next: mark one, or remove it from {CITED_FILE}"]
    return [f"{path}:{one.line}: {one.fault}; next: {_next(one, path, evidence)}" for one in rows if one.fault]


def _next(one: Citation, path: str, evidence: dict[str, Any]) -> str:
    """Return the next step for a number that is wrong; one that no record has cannot be filled."""
    phase = one.reference.partition(".")[0]
    if one.expected is not None:
        return f"mltrainer cite {path}"
    if phase in PHASES and phase not in evidence:  # there is no record, or it was edited
        return f"mltrainer gate check {phase}"
    return f"mltrainer cite --list {phase if phase in evidence else '.'}"


def _inside(project: Project, path: Path) -> str:
    """Return a text's path relative to the project.

    Raises:
        InputError: It is outside of the project.
    """
    with contextlib.suppress(ValueError):
        return path.resolve().relative_to(project.root.resolve()).as_posix()
    hint = f"copy it into {project.root.name}, then: mltrainer cite {path.name}"
    raise InputError("a cited text must be in the project, where gate check finds it", where=str(path), hint=hint)


def _text(project: Project, path: str) -> str:
    try:
        return read_whole(project.root / path).decode()
    except FileNotFoundError as error:
        hint = f"name a file of the project; one that is gone: restore it, or remove it from {CITED_FILE}"
        raise InputError("no such file", where=path, hint=hint) from error
    except UnicodeDecodeError as error:
        raise InputError(expected="UTF-8 text", found="other bytes", where=path, hint="save it as UTF-8") from error


def _cited(project: Project, path: str, evidence: dict[str, Any], *, writes: bool) -> list[Citation]:
    text = _text(project, path)
    found = citations(text, evidence)
    if not found:
        raise InputError("no number in it is marked", where=path, hint=f"mark one, such as {MARK}")
    if writes and (now := filled(text, found)) != text:
        with machine_faults(path):
            write_atomic(project.root / path, now.encode())
    return found


def _wrong(one: Citation, *, is_check: bool) -> bool:
    """Return True if a number is wrong still: one that was filled is right now."""
    return one.expected is None or (is_check and one.fault is not None)


def _report(path: str, rows: list[Citation], evidence: dict[str, Any], *, is_check: bool) -> str:
    changed = sum(one.expected is not None and one.fault is not None for one in rows)
    word = "wrong" if is_check else "filled"
    lines = [f"{path}: {counted(len(rows), 'number')}, {changed} {word}"]
    wrong = [one for one in rows if _wrong(one, is_check=is_check)]
    return "\n".join([*lines, *(f"  line {one.line}: {one.fault}; next: {_next(one, path, evidence)}" for one in wrong)])


def _row(one: Citation) -> dict[str, Any]:
    return {"line": one.line, "reference": one.reference, "text": one.text, "expected": one.expected}


def _list(evidence: dict[str, Any], word: str, as_json: bool) -> int:
    rows = [(name, value) for name, value in numbers(evidence) if word in name]
    if not rows:
        hint = "mltrainer cite --list accuracy" if evidence else "mltrainer status"
        raise InputError(f"no number of the records has a name that contains {word!r}", hint=hint)
    emit({"numbers": dict(rows)}) if as_json else say(table([[name, repr(value)] for name, value in rows], ["number", "value"]))
    return 0
