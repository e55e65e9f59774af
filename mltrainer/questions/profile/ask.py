"""`mltrainer profile`: the times of a step's sections and operators."""

from __future__ import annotations

from mltrainer.configs.loading import Changes
from mltrainer.questions.exploration import exploring
from mltrainer.questions.profile.findings import Asked, FoundProfile, Profile
from mltrainer.runs.launcher import Tools

TRACE_FILE = "trace.json"
STEPS = 20  # unless asked otherwise


def profile(tools: Tools, *, set: Changes | None = None, steps: int = STEPS) -> FoundProfile:
    """Return the times of a step's sections, its most expensive operators, and the path of the trace; taken on a copy.

    Args:
        tools: The project's tools.
        set: Changes of the config.
        steps: How many are timed.
    """
    with exploring(tools, "profile", set) as exploration:
        found = Profile.model_validate(exploration.ask(Asked(steps=steps)))
        return exploration.kept(FoundProfile.of(found, trace=tools.project.relative(exploration.folder / TRACE_FILE)))
