"""The tool that runs a program which trains by itself, and keeps what was observed of it."""
