"""Faults that the suite must catch, a module for each room of `mltrainer`."""
