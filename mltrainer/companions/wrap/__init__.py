"""Whether a program repeats: the command, its report, and the line where two runs part."""

from mltrainer.plugins import ASK, Command

_HELP = "Does it repeat? Runs it twice, unedited; if not, names the line."
COMMANDS = (Command("wrap", "mltrainer.companions.wrap.command", _HELP, ASK),)
PARTS = {
    "blame": {
        "first_difference": "mltrainer.companions.wrap.blame:first_difference",
        "judged": "mltrainer.companions.wrap.blame:judged",
    }
}
