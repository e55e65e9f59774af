"""Every question, registered once: its folder, its command, and the tool that measures it; light, so that help is quick.

A folder holds `findings.py` (what is asked, measured and found, as models), `ask.py` (the tool's job, and what comes of it),
`measure.py` (in the tool's process, which alone imports it), `report.py`, `figure.py` and `command.py` (parse, ask, print).
`remediation` has no row: it is asked by two options of `diagnose`.
"""

from __future__ import annotations

from typing import NamedTuple


class Question(NamedTuple):
    """A question about a training.

    Attributes:
        folder: Its folder in `mltrainer/questions`.
        command: The command that asks it.
        help: The command's one line in the program's help.
        section: The section of that help.
        after: The command below which it stands there; None: below the questions before it.
        tool: The tool that measures; `tools/<tool>/README.md` is its page of the handbook.
    """

    folder: str
    command: str
    help: str
    section: str
    after: str | None
    tool: str

    @property
    def module(self) -> str:
        """The module whose `app` has the command."""
        return f"mltrainer.questions.{self.folder}.command"


EXPLORER, ABLATION_STUDY, ROW_INSPECTOR = "training_explorer", "ablation_study", "row_inspector"
LOOK, EXPLORE = "Look at what was trained", "Explore, without a trace in the project"

QUESTIONS = (
    Question(
        "rows", "rows", "The samples of a step, an epoch or a finding, and the hardest ones.", LOOK, "diagnose", ROW_INSPECTOR
    ),
    Question(
        "ablation",
        "ablate",
        "Take out the config's components one at a time, over several seeds.",
        LOOK,
        "reproduce",
        ABLATION_STUDY,
    ),
    Question(
        "seed_variance",
        "seeds",
        "Train the config on several seeds: how much of a difference is luck.",
        LOOK,
        "ablate",
        ABLATION_STUDY,
    ),
    Question("learning_rate", "lr-find", "Find a learning rate, on a copy.", EXPLORE, None, EXPLORER),
    Question("batch_size", "batch-size", "Find a batch size by memory and throughput.", EXPLORE, None, EXPLORER),
    Question("profile", "profile", "Where a step's time goes.", EXPLORE, None, EXPLORER),
    Question("data_scaling", "extrapolate", "Whether more data or more epochs would help.", EXPLORE, None, EXPLORER),
    Question(
        "loss_landscape", "landscape", "The loss around a trained model, and how sharply it curves.", EXPLORE, None, EXPLORER
    ),
)
EXPLORED = {question.command.replace("-", "_"): question.folder for question in QUESTIONS if question.tool == EXPLORER}
