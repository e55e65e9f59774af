"""The handbook and the commands for agents.

`skill` writes `AGENTS.md` and a skill folder from the handbook's pages. `server` offers commands as tools over MCP: `calls` runs
each in a separate process. A tool that looks runs nothing of the project; the one that trains asks a person first.
"""

from mltrainer.plugins import TRAIN, Command

_FOLDER = "mltrainer.companions.agents"
COMMANDS = (Command("mcp", f"{_FOLDER}.command", "Serve the project to an agent: look, and train when a person agrees.", TRAIN),)
PARTS = {"integrate": {"agents": f"{_FOLDER}.skill:integrate"}}
