"""`python -m mltrainer.tools.export JOB.json`."""

from mltrainer.tools.start import start

if __name__ == "__main__":
    start("mltrainer.tools.export.program")
