"""Cells of a notebook, run one after the other in one name space."""

import os
import sys

CELLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cells")
names = {"__name__": "__main__", "resume": "--resume" in sys.argv}
for cell in sorted(os.listdir(CELLS)):
    with open(os.path.join(CELLS, cell)) as file:
        exec(compile(file.read(), os.path.join(CELLS, cell), "exec"), names)
