"""The native trainer: the training loop, whose bits are a function of its contract alone."""
