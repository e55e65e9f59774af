"""The tool that runs a team's own module as a tool that trains."""

from mltrainer.tools.own.result import Data, Evaluation, Trained

__all__ = ["Data", "Evaluation", "Trained"]
