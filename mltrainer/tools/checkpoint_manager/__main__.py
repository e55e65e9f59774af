"""`python -m mltrainer.tools.checkpoint_manager JOB.json`."""

from mltrainer.tools.start import start

if __name__ == "__main__":
    start("mltrainer.tools.checkpoint_manager.program")
