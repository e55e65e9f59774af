"""Every question, listed once: its module, its calls, its command, and the tool that measures it; light, for a quick help.

A question's module holds the models of request and answer, the tool's job, the answer's text and figure, and the command. The
module of the same name in `measurements` measures in the tool's process, which alone imports it.
"""

from __future__ import annotations

from typing import NamedTuple

from mltrainer.companions.planner import PLANNER
from mltrainer.plugins import EXPLORE, LOOK

EXPLORER, ABLATION_STUDY, ROW_INSPECTOR = "training_explorer", "ablation_study", "row_inspector"


class Question(NamedTuple):
    """A question about a training.

    Attributes:
        name: The question's module in `mltrainer.companions.questions`.
        calls: The functions of its module that take tools and return findings: the methods of `mltrainer.Project`.
        tool: The tool that measures, or whose record is read; `tools/<tool>/README.md` is its page of the handbook.
        command: Command that asks it.
        help: The command's line in the program's help; None: options of another command ask it.
        section: Section of the help.
        after: The command above it in the help; None: the question before it.
    """

    name: str
    calls: tuple[str, ...]
    tool: str
    command: str
    help: str | None
    section: str = EXPLORE
    after: str | None = None

    @property
    def module(self) -> str:
        """The module whose `app` has the command."""
        return f"mltrainer.companions.questions.{self.name}"


QUESTIONS = (
    Question(
        "rows",
        ("rows",),
        ROW_INSPECTOR,
        "rows",
        "The samples of a step, an epoch or a finding, and the hardest ones.",
        LOOK,
        "diagnose",
    ),
    Question(
        "ablation",
        ("ablate", "components"),
        ABLATION_STUDY,
        "ablate",
        "Take out the config's components one at a time, over several seeds.",
        LOOK,
        "reproduce",
    ),
    Question(
        "seed_variance",
        ("seeds",),
        ABLATION_STUDY,
        "seeds",
        "Train the config on several seeds: how much of a difference is luck.",
        LOOK,
        "ablate",
    ),
    Question("remediation", ("try_fixes", "apply_fix"), ABLATION_STUDY, "diagnose", None, LOOK),
    Question("learning_rate", ("lr_find",), EXPLORER, "lr-find", "Find a learning rate, on a copy."),
    Question("batch_size", ("batch_size",), EXPLORER, "batch-size", "Find a batch size by memory and throughput."),
    Question("planner", ("plan",), PLANNER, "plan", "Memory and time of a training, and the settings that make it fit."),
    Question("cost", ("cost",), PLANNER, "cost", "Cost of phases and answers by offer, and the cheapest in time."),
    Question("profile", ("profile",), EXPLORER, "profile", "Time of a step by section and operator."),
    Question("data_scaling", ("extrapolate",), EXPLORER, "extrapolate", "Whether more data or more epochs would help."),
    Question(
        "loss_landscape", ("landscape",), EXPLORER, "landscape", "The loss around a trained model, and how sharply it curves."
    ),
)
CALLS = {call: question.name for question in QUESTIONS for call in question.calls}
EXPLORED = {call: question.name for question in QUESTIONS if question.tool == EXPLORER for call in question.calls}
