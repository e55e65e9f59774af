"""`python -m mltrainer.tools.hyperparameter_tuner JOB.json`."""

from mltrainer.tools.hyperparameter_tuner.program import work
from mltrainer.tools.program import run_program

if __name__ == "__main__":
    run_program(work)
