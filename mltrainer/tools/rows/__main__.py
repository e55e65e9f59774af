"""`python -m mltrainer.tools.rows JOB.json`."""

from mltrainer.tools.start import start

PROGRAM = "mltrainer.tools.rows.program"

if __name__ == "__main__":
    start(PROGRAM)
