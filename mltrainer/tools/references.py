"""Entry point of the reference models' tool: `python -m mltrainer.tools.references JOB.json`."""

from mltrainer.tools.start import start

PROGRAM = "mltrainer.references.job"

if __name__ == "__main__":
    start(PROGRAM)
