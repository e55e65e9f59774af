"""The tool that trains: one job in, one run folder out."""
