"""The tool that runs a custom training module."""

from mltrainer.tools.own.result import Data, Evaluation, Trained

__all__ = ["Data", "Evaluation", "Trained"]
