"""`python -m mltrainer.tools.checkpoint_manager JOB.json`."""

from mltrainer.tools.checkpoint_manager.program import work
from mltrainer.tools.program import run_program

if __name__ == "__main__":
    run_program(work)
