"""Processes that are started to do one thing: what they may see and how much they may take."""
