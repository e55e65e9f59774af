"""`python -m mltrainer.tools.hyperparameter_tuner JOB.json`."""

from mltrainer.tools.start import start

if __name__ == "__main__":
    start("mltrainer.tools.hyperparameter_tuner.program")
