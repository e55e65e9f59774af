"""A model cut into stages, one for each process, through which the micro-batches of a step flow (pipeline parallelism).

Source: Huang et al., 2019, arXiv 1811.06965; forward and backward passes alternate as in Narayanan et al., 2019 (1F1B). A stage
is a run of entries of one numbered container. Each process runs the user's own forward code: it skips entries before its stage,
the inputs of its first entry come from the process before, and its part ends at the next stage's first entry. No sum
crosses processes within a micro-batch, so that gradients have the bits of one process, whatever the number of stages.

torch's own `torch.distributed.pipelining` (2.13) does not give these bits: 4 micro-batches in 2 stages gave other gradients than
one process did, and with dropout even after a hook had taken each micro-batch's gradients for the tree's sum. It runs a graph of
`torch.export`, one for each shape and with Python's and NumPy's draws as constants, and not the user's `forward`.
"""
