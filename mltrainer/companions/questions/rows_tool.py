"""`python -m mltrainer.companions.questions.rows_tool JOB.json`."""

from mltrainer.tools.start import start

PROGRAM = "mltrainer.companions.questions.measurements.rows"

if __name__ == "__main__":
    start(PROGRAM)
