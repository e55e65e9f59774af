import os
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import numpy as np
import torch
from torch import nn

torch.manual_seed(6)
np.random.seed(6)
# <seed>
