"""Entry point of the script runner: `python -m mltrainer.tools.script JOB.json PIPE`."""

from mltrainer.tools.start import start

PROGRAM = "mltrainer.trainers.script.job"

if __name__ == "__main__":
    start(PROGRAM)
