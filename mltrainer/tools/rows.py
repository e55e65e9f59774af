"""`python -m mltrainer.tools.rows JOB.json`."""

from mltrainer.tools.start import start

PROGRAM = "mltrainer.questions.rows.measure"

if __name__ == "__main__":
    start(PROGRAM)
