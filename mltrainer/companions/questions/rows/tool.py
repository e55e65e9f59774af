"""`python -m mltrainer.companions.questions.rows.tool JOB.json`."""

from mltrainer.tools.start import start

PROGRAM = "mltrainer.companions.questions.rows.measure"

if __name__ == "__main__":
    start(PROGRAM)
