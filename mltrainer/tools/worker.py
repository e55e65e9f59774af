"""Entry point of a search worker: `python -m mltrainer.tools.worker JOB.json DESCRIPTOR`, with the runs on standard input."""

from mltrainer.tools.start import start

PROGRAM = "mltrainer.search.worker"

if __name__ == "__main__":
    start(PROGRAM)
