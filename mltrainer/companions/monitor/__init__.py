"""Runs, gates and reports while they change, in the terminal and in the browser."""

from mltrainer.plugins import LOOK, Command

_HELP = "Watch runs live, in the terminal or the browser."
COMMANDS = (Command("monitor", "mltrainer.companions.monitor.command", _HELP, LOOK, ""),)
