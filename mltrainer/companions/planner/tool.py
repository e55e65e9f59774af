"""`python -m mltrainer.companions.planner.tool JOB.json`."""

from mltrainer.tools.start import start

PROGRAM = "mltrainer.companions.planner.trace"

if __name__ == "__main__":
    start(PROGRAM)
