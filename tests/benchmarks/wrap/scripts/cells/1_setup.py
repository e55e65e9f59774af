import os  # noqa: F401
import time  # noqa: F401
from concurrent.futures import ThreadPoolExecutor, as_completed  # noqa: F401

import numpy as np
import torch

torch.manual_seed(6)
np.random.seed(6)
# <seed>
