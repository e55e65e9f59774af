"""`python -m mltrainer.tools.ablation JOB.json`."""

from mltrainer.tools.start import start

if __name__ == "__main__":
    start("mltrainer.tools.ablation.program")
