"""`python -m mltrainer.companions.questions.tool JOB.json`."""

from mltrainer.tools.start import start

PROGRAM = "mltrainer.companions.questions.measurements.explorer"

if __name__ == "__main__":
    start(PROGRAM)
