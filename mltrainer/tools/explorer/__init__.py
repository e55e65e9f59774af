"""The tool that explores: learning rates, batch sizes and a step's time, measured on a copy that nobody keeps."""
