"""`python -m mltrainer.tools.own JOB.json PIPE MODULE`."""

import sys

from mltrainer.tools.start import start

if __name__ == "__main__":
    start("mltrainer.tools.own.program", *sys.argv[3:4])
