"""`python -m mltrainer.tools.script JOB.json PIPE`."""

from mltrainer.tools.start import start

if __name__ == "__main__":
    start("mltrainer.tools.script.program")
