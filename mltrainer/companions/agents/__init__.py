"""The handbook for agents: files that say how to work in a project, and the tools of the program over MCP.

`skill` writes `AGENTS.md` and a skill folder from the handbook's pages.
"""

_FOLDER = "mltrainer.companions.agents"
PARTS = {"integrate": {"agents": f"{_FOLDER}.skill:integrate"}}
