"""`python -m mltrainer.tools.explorer JOB.json`."""

from mltrainer.tools.start import start

PROGRAM = "mltrainer.questions.measuring"

if __name__ == "__main__":
    start(PROGRAM)
