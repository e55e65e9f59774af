"""What share of a micro-batch of conversations is padding, and what share is left where samples share rows (`pack: true`).

    python tests/benchmarks/bench_packing.py [BATCHES]

Lengths are drawn from a log-normal distribution with a median of 200 tokens.
"""

from __future__ import annotations

import json
import math
import random
import sys

from mltrainer.integrations.fine_tuning import slots

SAMPLES, MEDIAN, SIGMA = 16, 200, 0.7


def main() -> None:
    draws, used, alone, packed = random.Random(0), 0, 0, 0
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1000):
        lengths = [max(1, round(draws.lognormvariate(math.log(MEDIAN), SIGMA))) for _ in range(SAMPLES)]
        used += sum(lengths)
        alone += SAMPLES * max(lengths)
        packed += slots(lengths, max(lengths)).numel()
    print(json.dumps({"padding": round(1 - used / alone, 3), "padding_packed": round(1 - used / packed, 3)}))


if __name__ == "__main__":
    main()
