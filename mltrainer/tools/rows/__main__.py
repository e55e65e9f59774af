"""`python -m mltrainer.tools.rows JOB.json`."""

from mltrainer.tools.start import start

if __name__ == "__main__":
    start("mltrainer.tools.rows.program")
