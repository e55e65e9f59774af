"""Every command with its one line of help, and the program's own help; light, so that asking for help is quick."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """Where a command is defined, and what it does in one line.

    Attributes:
        module: The module of `mltrainer.cli` whose `app` has it.
        help: One line.
    """

    module: str
    help: str


SECTIONS: dict[str, dict[str, Entry]] = {
    "Begin": {
        "init": Entry("project", "Make a project from an example or from your data."),
        "doctor": Entry("project", "What this machine can do, what is missing, and how to get it."),
        "guide": Entry("project", "Read a page of the handbook."),
    },
    "Ask one question of any training program, without a project": {
        "wrap": Entry("wrap", "Does it repeat? Runs it twice, unedited; if not, names the line."),
    },
    "Train, phase by phase": {
        "run": Entry("phases", "Walk the phases from wherever the project stands."),
        "phase": Entry("phases", "Run one phase."),
        "status": Entry("gates", "Show each phase, its gate, what is stale and what comes next."),
        "gate": Entry("gates", "Check gates, or waive an item with a reason."),
        "report": Entry("report", "What a pull request brings, as a comment for it."),
    },
    "Look at what was trained": {
        "monitor": Entry("monitor", "Watch runs live, in the terminal or the browser."),
        "runs": Entry("runs", "List, show and compare runs."),
        "diagnose": Entry("runs", "Findings over a recorded run, with suggested changes."),
        "rows": Entry("rows", "The samples of a step, an epoch or a finding, and the hardest ones."),
        "reproduce": Entry("runs", "Train a run again in a fresh process and compare bit for bit."),
        "ablate": Entry("ablation", "Take out the config's components one at a time, over several seeds."),
        "seeds": Entry("surroundings", "Train the config on several seeds: how much of a difference is luck."),
        "fork": Entry("runs", "Train a new run from another run's checkpoint."),
        "checkpoints": Entry("checkpoints", "List, verify and export checkpoints."),
        "predict": Entry("checkpoints", "Predict new rows, texts or pictures with the delivered model."),
    },
    "Explore, without a trace in the project": {
        "lr-find": Entry("exploring", "Find a learning rate, on a copy."),
        "batch-size": Entry("exploring", "Find a batch size by memory and throughput."),
        "profile": Entry("exploring", "Where a step's time goes."),
        "extrapolate": Entry("surroundings", "Whether more data or more epochs would help."),
        "landscape": Entry("surroundings", "The loss around a trained model, and how sharply it curves."),
    },
}
COMMANDS: dict[str, Entry] = {name: entry for section in SECTIONS.values() for name, entry in section.items()}

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
    tables = {**{title: _lines(entries) for title, entries in SECTIONS.items()}, "Options": list(OPTIONS.items())}
    width = max(len(name) for rows in tables.values() for name, _ in rows)
    shown = ["\n".join([f"{title}:", *(f"  {name:{width}}  {text}" for name, text in rows)]) for title, rows in tables.items()]
    return "\n\n".join([f"Usage: {PROGRAM} [OPTIONS] COMMAND [ARGS]...", f"  {ABOUT}", *shown, f"  {EXAMPLE}"])


def _lines(entries: dict[str, Entry]) -> list[tuple[str, str]]:
    return [(name, entry.help) for name, entry in entries.items()]
