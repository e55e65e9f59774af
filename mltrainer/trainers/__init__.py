"""Trainers: native, a program that trains by itself, and custom training code; one job in, one run folder out."""
