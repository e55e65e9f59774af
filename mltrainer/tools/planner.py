"""`python -m mltrainer.tools.planner JOB.json`."""

from mltrainer.tools.start import start

PROGRAM = "mltrainer.planner.trace"

if __name__ == "__main__":
    start(PROGRAM)
