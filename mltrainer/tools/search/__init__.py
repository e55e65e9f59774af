"""The tool that searches: trials in worker processes, each a run like any other, and a comparison over fresh seeds."""
