"""`python -m mltrainer.companions.questions.ablation.tool JOB.json`."""

from mltrainer.tools.start import start

PROGRAM = "mltrainer.companions.questions.ablation.measure"

if __name__ == "__main__":
    start(PROGRAM)
