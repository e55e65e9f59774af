"""Companions of the core, a folder each: they add commands and parts, which `mltrainer.plugins` finds; the core imports none."""
