"""Phases on other machines: scripts for SLURM, JobSet, SSH and clouds; SLURM and Ray as engines of a search's trials."""

from mltrainer.plugins import TRAIN, Command

_HELP = "What starts the phases elsewhere: a script for SLURM, a JobSet."
COMMANDS = (Command("launch", "mltrainer.companions.cluster.launch", _HELP, TRAIN, "phase"),)
PARTS = {"engines": {"slurm": "mltrainer.companions.cluster.slurm:engine", "ray": "mltrainer.companions.cluster.ray:engine"}}
