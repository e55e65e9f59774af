"""Entry point of a custom tool: `python -m mltrainer.tools.own JOB.json PIPE MODULE`; modules import `Trained` here."""

import sys

from mltrainer.tools.start import start
from mltrainer.trainers.custom.trained import Data, Evaluation, Trained

__all__ = ["Data", "Evaluation", "Trained"]

PROGRAM = "mltrainer.trainers.custom.job"

if __name__ == "__main__":
    start(PROGRAM, *sys.argv[3:4])
