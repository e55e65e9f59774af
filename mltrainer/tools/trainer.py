"""Entry point of the native trainer: `python -m mltrainer.tools.trainer JOB.json`."""

from mltrainer.tools.start import start

PROGRAM = "mltrainer.trainers.native.job"

if __name__ == "__main__":
    start(PROGRAM)
