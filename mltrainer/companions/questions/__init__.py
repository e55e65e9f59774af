"""Questions about a training, a module each: its command, its request and answer, its page and its figures."""

from mltrainer.companions.planner import PLANNER
from mltrainer.companions.questions.catalogue import CALLS, EXPLORER, QUESTIONS
from mltrainer.plugins import Command

_FOLDER = "mltrainer.companions.questions"
COMMANDS = tuple(Command(one.command, one.module, one.help, one.section, one.after) for one in QUESTIONS if one.help is not None)
PARTS = {
    "calls": {call: f"{_FOLDER}.{name}:{call}" for call, name in CALLS.items()},
    "pooled": {f"{_FOLDER}.ablation_tool": f"{_FOLDER}.measurements.ablation"},  # a tool that forks workers, with what it imports
    "diagnose": {"remedy": f"{_FOLDER}.remediation:remedy", "has_rows": f"{_FOLDER}.rows:has_rows"},
}
SCRATCH = frozenset(call for one in QUESTIONS if one.tool in (EXPLORER, PLANNER) for call in one.calls)
