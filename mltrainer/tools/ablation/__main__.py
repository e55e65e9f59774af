"""`python -m mltrainer.tools.ablation JOB.json`."""

from mltrainer.tools.start import start

PROGRAM = "mltrainer.tools.ablation.program"

if __name__ == "__main__":
    start(PROGRAM)
