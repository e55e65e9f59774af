"""Exporters: a checkpoint written in the formats of other programs, each compared with the model on real inputs."""
