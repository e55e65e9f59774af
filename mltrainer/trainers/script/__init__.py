"""The script trainer: a program that trains by itself, run and observed."""
