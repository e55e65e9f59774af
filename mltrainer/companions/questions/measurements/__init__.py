"""Measurements of the questions, which run in tools' processes and alone import torch."""
