"""Entry point of the search tool: `python -m mltrainer.tools.search JOB.json`."""

from mltrainer.tools.start import start

PROGRAM = "mltrainer.search.job"

if __name__ == "__main__":
    start(PROGRAM)
