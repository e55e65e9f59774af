"""Every command with its one line of help, and the program's own help; light, so that help is quick."""

from __future__ import annotations

from typing import NamedTuple

from mltrainer import plugins
from mltrainer.plugins import ASK, EXPLORE, LOOK, TRAIN


class Entry(NamedTuple):
    """The module of a command, and its one line of help.

    Attributes:
        module: The module whose `app` has it.
        help: One line.
    """

    module: str
    help: str


_SECTIONS: dict[str, dict[str, Entry]] = {
    "Begin": {
        "init": Entry("mltrainer.cli.project", "Make a project from an example or from your data."),
        "doctor": Entry("mltrainer.cli.project", "What this machine can do, what is missing, and how to get it."),
        "guide": Entry("mltrainer.cli.project", "Read a page of the handbook."),
    },
    ASK: {},
    TRAIN: {
        "claim": Entry("mltrainer.cli.claim", "Say beforehand what the search is to reach over the baseline."),
        "run": Entry("mltrainer.cli.phases", "Walk the phases from the first that is not done."),
        "phase": Entry("mltrainer.cli.phases", "Run one phase."),
        "store": Entry("mltrainer.cli.store", "Copy data, checkpoints and records to an object store, and back."),
        "export-config": Entry("mltrainer.cli.export_config", "The plan as TrainingArguments of transformers, with a script."),
        "status": Entry("mltrainer.cli.gates", "Show each phase, its gate, what is stale and what comes next."),
        "gate": Entry("mltrainer.cli.gates", "Check gates, or waive an item with a reason."),
        "report": Entry("mltrainer.cli.report", "What a pull request changes, as a comment for it."),
    },
    LOOK: {
        "runs": Entry("mltrainer.cli.runs", "List, show and compare runs."),
        "diagnose": Entry("mltrainer.cli.runs", "Findings over a recorded run, with suggested changes."),
        "reproduce": Entry("mltrainer.cli.runs", "Train a run again in a fresh process and compare bit for bit."),
        "fork": Entry("mltrainer.cli.runs", "Train a new run from another run's checkpoint."),
        "checkpoints": Entry("mltrainer.cli.checkpoints", "List, verify, select, average, export and import checkpoints."),
        "predict": Entry("mltrainer.cli.checkpoints", "Predict new rows, texts or pictures with the delivered model."),
    },
    EXPLORE: {},
}


def _with_companions(title: str, entries: dict[str, Entry]) -> dict[str, Entry]:
    """Return a section's commands, each one of a companion below the command that it names."""
    rows = list(entries.items())
    for command in (one for one in plugins.commands() if one.section == title):
        last = 0 if command.after == "" else len(rows)
        place = next((nr for nr, (name, _) in enumerate(rows, 1) if name == command.after), last)
        rows.insert(place, (command.name, Entry(command.module, command.help)))
    return dict(rows)


SECTIONS = {title: _with_companions(title, entries) for title, entries in _SECTIONS.items()}
COMMANDS: dict[str, Entry] = {name: entry for section in SECTIONS.values() for name, entry in section.items()}

# Words of other programs, and the command that has their meaning here.
MEANT = {
    **dict.fromkeys(("train", "fit", "start", "resume"), "run"),
    **dict.fromkeys(("tune", "optimize", "search", "sweep", "hpo"), "phase run optimization"),
    **dict.fromkeys(("eval", "evaluate", "metrics", "results"), "runs show RUN"),
    **dict.fromkeys(("test", "finalize"), "phase run finalization"),
    "export": "checkpoints export",
    **dict.fromkeys(("check", "validate", "verify"), "gate check"),
    **dict.fromkeys(("new", "create"), "init"),
    **dict.fromkeys(("infer", "inference"), "predict FILE"),
    **dict.fromkeys(("deploy", "api"), "serve"),
    **dict.fromkeys(("baseline", "planning", "diagnostics", "optimization", "finalization"), "phase run PHASE"),
}

PROGRAM = "mltrainer"
ABOUT = "Training runs that can be trusted: five gated phases, each with measured evidence."
EXAMPLE = "Example: mltrainer init demo --example digits && cd demo && mltrainer run"
OPTIONS = {
    "--version": "Show the version.",
    "--install-completion": "Let the shell complete commands, runs, phases and config keys.",
    "--show-completion": "Show what would be installed for that.",
    "-h, --help": "Show this help; every command has its own, with an example.",
}


def program_help() -> str:
    """Return the program's help."""
    tables = {
        **{title: _lines(entries) for title, entries in SECTIONS.items() if entries},
        **_installed(),
        "Options": list(OPTIONS.items()),
    }
    width = max(len(name) for rows in tables.values() for name, _ in rows)
    shown = ["\n".join([f"{title}:", *(f"  {name:{width}}  {text}" for name, text in rows)]) for title, rows in tables.items()]
    return "\n\n".join([f"Usage: {PROGRAM} [OPTIONS] COMMAND [ARGS]...", f"  {ABOUT}", *shown, f"  {EXAMPLE}"])


def _installed() -> dict[str, list[tuple[str, str]]]:
    """Return the section of the commands that installed distributions add, with their summaries."""
    installed = {name: rows[0].summary for name, rows in plugins.installed("questions").items() if name not in COMMANDS}
    return {"Of installed packages": list(installed.items())} if installed else {}


def _lines(entries: dict[str, Entry]) -> list[tuple[str, str]]:
    return [(name, entry.help) for name, entry in entries.items()]
