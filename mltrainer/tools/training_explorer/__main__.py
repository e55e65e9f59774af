"""`python -m mltrainer.tools.training_explorer JOB.json`."""

from mltrainer.tools.start import start

if __name__ == "__main__":
    start("mltrainer.tools.training_explorer.program")
