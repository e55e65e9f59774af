"""Checkpoints, and the files of a delivered model."""

import os

# ONNX Runtime reads it once, when it is loaded; without it, it notes each session and sends that to its maker.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
