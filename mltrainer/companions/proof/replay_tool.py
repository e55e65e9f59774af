"""`python -m mltrainer.companions.proof.replay_tool JOB.json`."""

from mltrainer.tools.start import start

PROGRAM = "mltrainer.companions.proof.replay.work"

if __name__ == "__main__":
    start(PROGRAM)
