"""`python -m mltrainer.tools.search JOB.json`."""

from mltrainer.tools.start import start

if __name__ == "__main__":
    start("mltrainer.tools.search.program")
