"""`python -m mltrainer.tools.references JOB.json`."""

from mltrainer.tools.start import start

if __name__ == "__main__":
    start("mltrainer.tools.references.program")
