"""`python -m mltrainer.tools.explorer JOB.json`."""

from mltrainer.tools.start import start

if __name__ == "__main__":
    start("mltrainer.tools.explorer.program")
