"""`python -m mltrainer.tools.ablation JOB.json`."""

from mltrainer.tools.start import start

PROGRAM = "mltrainer.questions.ablation.measure"

if __name__ == "__main__":
    start(PROGRAM)
