"""The checkpoint manager's torch part: tests a trained model once, exports it, and writes what its deployment needs."""
