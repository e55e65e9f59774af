"""A training's memory by part and time by device, before it starts, and the settings that make it fit.

The data flow, each step pure but for the first and the last:

    config --trace--> Traced              `trace.py`, in the planner's own process: the real step on fake tensors
    Traced --memory--> Parts              `memory.py`: for a variant, a batch, an accumulation, an optimizer, N processes
    Traced, probe --timing--> Interval    `timing.py`: from a step that was measured; on no other device than that was measured on
    pages --devices--> Device             `devices.py`: the handbook's page, a team's own over it
    all of it --recommendation--> keys    `recommendation.py`: what fits, why, and what to set

Only `trace.py` imports torch. An unknown figure is None with its reason, never a guess.
"""

PLANNER = "planner"  # the tool, by its folder of the handbook
PARTS = {"planning": {"memory_advice": "mltrainer.companions.planner.memory_advice:memory_advice"}}
