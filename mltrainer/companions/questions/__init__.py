"""Questions about a training, a folder each: its command, its request and answer, its measurement, its page and its figures."""

from mltrainer.companions.questions.registry import CALLS, QUESTIONS, SCRATCH
from mltrainer.plugins import Command

ABLATION = "mltrainer.companions.questions.ablation"  # whose tool forks workers, which have what it imported
COMMANDS = tuple(Command(one.command, one.module, one.help, one.section, one.after) for one in QUESTIONS if one.help is not None)
PARTS = {
    "calls": {call: f"mltrainer.companions.questions.{folder}.ask:{call}" for call, folder in CALLS.items()},
    "pooled": {
        "mltrainer.companions.questions.ablation.tool": "mltrainer.companions.questions.ablation.measure"
    },  # forks workers
    "scratch": dict.fromkeys(SCRATCH, ""),
    "diagnose": {
        "remedy": "mltrainer.companions.questions.remediation.command:remedy",
        "has_rows": "mltrainer.companions.questions.rows.ask:has_rows",
    },
}
