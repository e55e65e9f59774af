"""`python -m mltrainer.companions.questions.ablation_tool JOB.json`."""

from mltrainer.tools.start import start

PROGRAM = "mltrainer.companions.questions.measurements.ablation"

if __name__ == "__main__":
    start(PROGRAM)
