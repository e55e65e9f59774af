"""How processes share a training: one file for each kind, with one interface to the step."""
