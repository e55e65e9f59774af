"""The tool that searches: seeded random trials, each a run like any other, and a comparison over fresh seeds."""
