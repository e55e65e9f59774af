"""Questions about a training, a folder each: its command, its request and answer, its measurement, its page and its figures."""

from mltrainer.companions.planner import PLANNER
from mltrainer.companions.questions.registry import CALLS, EXPLORER, QUESTIONS
from mltrainer.plugins import Command

_FOLDER = "mltrainer.companions.questions"
COMMANDS = tuple(Command(one.command, one.module, one.help, one.section, one.after) for one in QUESTIONS if one.help is not None)
PARTS = {
    "calls": {call: f"{_FOLDER}.{folder}.ask:{call}" for call, folder in CALLS.items()},
    "pooled": {f"{_FOLDER}.ablation.tool": f"{_FOLDER}.ablation.measure"},  # a tool that forks workers, with what it imports
    "diagnose": {"remedy": f"{_FOLDER}.remediation.command:remedy", "has_rows": f"{_FOLDER}.rows.ask:has_rows"},
}
SCRATCH = frozenset(call for one in QUESTIONS if one.tool in (EXPLORER, PLANNER) for call in one.calls)
