"""`python -m mltrainer.tools.trainer JOB.json`."""

from mltrainer.tools.start import start

if __name__ == "__main__":
    start("mltrainer.tools.trainer.program")
