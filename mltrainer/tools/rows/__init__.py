"""The tool that shows samples: which ones a step saw, how a model does on each, and which are hardest or mislabelled."""
