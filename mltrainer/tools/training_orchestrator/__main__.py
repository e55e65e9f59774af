"""`python -m mltrainer.tools.training_orchestrator JOB.json`."""

from mltrainer.tools.program import run_program
from mltrainer.tools.training_orchestrator.program import work

if __name__ == "__main__":
    run_program(work)
