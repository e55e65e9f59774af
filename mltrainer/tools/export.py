"""Entry point of the export tool: `python -m mltrainer.tools.export JOB.json`."""

from mltrainer.tools.start import start

PROGRAM = "mltrainer.exporters.job"

if __name__ == "__main__":
    start(PROGRAM)
