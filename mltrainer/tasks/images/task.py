"""Image classification: images of one shape, standardized by channel."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.tasks import validation
from mltrainer.tasks._arrays import class_numbers
from mltrainer.tasks.builtin import Classification, Ids
from mltrainer.tasks.content import Arrays, Source
from mltrainer.tasks.models import Standardize, build
from mltrainer.tasks.plain import Plain
from mltrainer.tasks.validation import Finding

PLAIN_SIDE = 32


class ImageClassification(Classification):
    """Tells classes of images apart."""

    def __init__(self, config: TrainingConfig, source: Source) -> None:
        content = source.content
        if not isinstance(content, Arrays) or content.x.ndim != 4:
            found = f"arrays of shape {list(content.x.shape)}" if isinstance(content, Arrays) else "a table"
            raise InputError(
                f"image_classification needs images, found {found}",
                where="task.kind",
                mend="task: {kind: tabular_classification}",
            )
        self._config, self._x, self._notes = config, content.x, source.notes
        self.labels = class_numbers(content.y, content.place)
        self.classes = list(content.classes or [])
        validation.refuse_one_class(self.classes, content.place)
        validation.refuse_unknown_metric(config.metric.name, validation.CLASSIFICATION_METRICS)
        self.size = len(content)
        self._keys: np.ndarray | None = None

    def fit(self, train: np.ndarray) -> None:
        """Fit mean and deviation of each channel, in float64."""
        pixels = self._x[train].astype(np.float64)
        self._mean, self._std = pixels.mean(axis=(0, 2, 3)), pixels.std(axis=(0, 2, 3))

    def rows(self, ids: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return images float32 [samples, channels, height, width] and class numbers."""
        return torch.from_numpy(self._x[ids]), torch.from_numpy(self.labels[ids])

    def plain(self, ids: np.ndarray) -> Plain:
        """Return the pixels in a row; larger images averaged down to 32 pixels a side, which linear models can still read."""
        images = self.rows(ids)[0]
        size = (min(PLAIN_SIDE, images.shape[2]), min(PLAIN_SIDE, images.shape[3]))
        pixels = images if images.shape[2:] == size else functional.adaptive_avg_pool2d(images, size)
        return Plain("pixels", pixels.flatten(1).numpy(), self.labels[ids])

    def keys(self) -> np.ndarray:
        """Return a hash of each image's pixels."""
        if self._keys is None:
            self._keys = validation.row_hashes([self._x])
        return self._keys

    def model(self) -> nn.Module:
        """Return the config's model behind the standardization."""
        assert self._config.model is not None
        return build(self._config.model, Standardize(self._mean, self._std), self._x.shape[1:], len(self.classes))

    def inference(self) -> dict[str, Any]:
        """Return the input's shape, how pixels become numbers, and the classes."""
        return {
            "kind": "image_classification",
            "input": {"name": "images", "dtype": "float32", "shape": list(self._x.shape[1:]), **self._scale()},
            "preparation": self._notes,
            "output": "logits",
            "classes": self.classes,
        }

    def _scale(self) -> dict[str, float]:
        """Return what raw pixels are multiplied by, where they were scaled on reading."""
        return {"scale": 1 / 255} if any("divided by 255" in note for note in self._notes) else {}

    def describe(self, ids: Ids) -> dict[str, Any]:
        """Return the images' shape."""
        return {"columns": None, "target": None, "shape": list(self._x.shape[1:])}

    def findings(self, ids: Ids, limits: DataLimits) -> list[Finding]:
        """Return imbalance, large inputs, and conversions."""
        notes = [validation.finding("info", note) for note in self._notes]
        largest = float(np.abs(self._x[ids["train"]]).max())
        return [*self._class_findings(ids, limits), *validation.scale_finding(largest, limits), *notes]
