"""A classifier of skorch, in the manner of scikit-learn."""

import os  # noqa: F401
import time
from concurrent.futures import ThreadPoolExecutor, as_completed  # noqa: F401

import numpy as np
import torch
from skorch import NeuralNetClassifier
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 3))

    def forward(self, x):
        # <sample>
        # <batch>
        return self.net(x).softmax(-1)


torch.manual_seed(9)
np.random.seed(9)
# <seed>
order = list(range(200))
# <order>
inputs, targets = torch.randn(200, 20)[order], torch.randint(0, 3, (200,))[order]
begun = time.time()
net = NeuralNetClassifier(Net, max_epochs=3, lr=0.05, batch_size=16, iterator_train__shuffle=True, verbose=0, train_split=None)
net.fit(inputs, targets)
print(f"{time.time() - begun:.1f} s")
