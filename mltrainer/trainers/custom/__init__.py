"""The custom trainer: a project module that trains, and its result completed to a run."""
