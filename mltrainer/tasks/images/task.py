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
from mltrainer.tasks import data_findings
from mltrainer.tasks.array_files import class_numbers
from mltrainer.tasks.array_operations import row_hashes
from mltrainer.tasks.builtin import Classification, Movable, ReferenceInputs
from mltrainer.tasks.content import Arrays, Source
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.images.augmentation import Levels
from mltrainer.tasks.metric_names import CLASSIFICATION_METRICS
from mltrainer.tasks.models import Pixels, Standardize, build
from mltrainer.tasks.segments import SegmentFeature
from mltrainer.tasks.splits import SplitIds

PLAIN_SIDE = 32
AT_ONCE = 1024  # images that are counted or shrunk together


class ImageClassification(Classification):
    """The classification of images.

    Attributes:
        levels: The levels of black and white: 0 and 255 for pictures, else the least and the largest of the training split.
    """

    levels = Levels(0.0, 255.0)

    def __init__(self, config: TrainingConfig, source: Source) -> None:
        content = source.content
        if not isinstance(content, Arrays) or content.x.ndim != 4:
            found = f"arrays of shape {list(content.x.shape)}" if isinstance(content, Arrays) else "a table"
            raise InputError(
                f"image_classification needs images, found {found}",
                where="task.kind",
                hint="task: {kind: tabular_classification}",
            )
        self._config, self._x, self._notes = config, content.x, source.notes
        self._place, self._names = content.place, content.names
        self._picture = config.data.image if config.data else None
        self.labels = class_numbers(content.y, content.place)
        self.classes = list(content.classes or [])
        data_findings.refuse_one_class(self.classes, content.place)
        data_findings.refuse_unknown_metric(config.metric.name, CLASSIFICATION_METRICS)
        self.size, self.given = len(content), source.given
        self._keys: np.ndarray | None = None

    def fit(self, train: np.ndarray) -> None:
        """Fit mean and deviation of each channel, in float64."""
        if self._x.dtype == np.uint8:
            self._mean, self._std = level_statistics(self._x, train)
            return
        self.levels = Levels(float(self._x[train].min()), float(self._x[train].max()))
        pixels = self._x[train].astype(np.float64)
        self._mean, self._std = pixels.mean(axis=(0, 2, 3)), pixels.std(axis=(0, 2, 3))

    def movable(self) -> Movable:
        """Return the range of levels, and its ends."""
        low, high = self.levels.low, self.levels.high
        return Movable([high - low], (low, high))

    def rows(self, ids: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return images [samples, channels, height, width], uint8 where they are pictures, else float32; and class numbers."""
        return torch.from_numpy(self._x[ids]), torch.from_numpy(self.labels[ids])

    def features(self, ids: np.ndarray) -> list[SegmentFeature]:
        """Return the images' brightness and contrast: mean and deviation of their levels."""
        # In parts, as a deviation in float64 makes copies eight times the size of uint8 pixels.
        parts = [self._x[part].reshape(len(part), -1) for part in np.array_split(ids, max(1, -(-len(ids) // AT_ONCE)))]
        means, spreads = (np.concatenate([getattr(part, name)(1, np.float64) for part in parts]) for name in ("mean", "std"))
        return [SegmentFeature("brightness", means), SegmentFeature("contrast", spreads)]

    def reference_inputs(self, ids: np.ndarray) -> ReferenceInputs:
        """Return flattened pixels; larger images are averaged down to 32 pixels a side, which linear models can still fit."""
        parts = [self._plain_pixels(part) for part in np.array_split(ids, max(1, -(-len(ids) // AT_ONCE)))]
        return ReferenceInputs("pixels", torch.cat(parts).numpy(), self.labels[ids])

    def _plain_pixels(self, ids: np.ndarray) -> Tensor:
        images = self.rows(ids)[0]
        images = images.float() / 255 if images.dtype == torch.uint8 else images
        size = (min(PLAIN_SIDE, images.shape[2]), min(PLAIN_SIDE, images.shape[3]))
        pixels = images if images.shape[2:] == size else functional.adaptive_avg_pool2d(images, size)
        return pixels.flatten(1)

    def place(self, row: int) -> str:
        """Return the file of a picture, or the place of an image in the file that holds them all."""
        return f"{self._place}, image {row}" if self._names is None else self._names[row]

    def keys(self) -> np.ndarray:
        """Return a hash of each image's pixels."""
        if self._keys is None:
            self._keys = row_hashes([self._x])
        return self._keys

    def model(self) -> nn.Module:
        """Return the config's model behind the standardization."""
        assert self._config.model is not None
        entry = Pixels if self._x.dtype == np.uint8 else Standardize
        return build(self._config.model, entry(self._mean, self._std), self._x.shape[1:], len(self.classes))

    def inference(self) -> dict[str, Any]:
        """Return the input's shape, the conversion of pixels to numbers, and the classes."""
        return {
            "kind": "image_classification",
            "input": {"name": "images", "dtype": str(self._x.dtype), "shape": list(self._x.shape[1:]), **self._read_as()},
            "preparation": self._notes,
            "output": "logits",
            "classes": self.classes,
        }

    def _read_as(self) -> dict[str, Any]:
        """Return a picture's size and fit, or the factor of raw pixels where they were scaled on reading; else empty."""
        if self._picture is not None:
            return {"picture": {"size": self._picture.size, "fit": self._picture.fit}}
        return {"scale": 1 / 255} if any("divided by 255" in note for note in self._notes) else {}

    def describe(self, ids: SplitIds) -> dict[str, Any]:
        """Return the images' shape."""
        return {"columns": None, "target": None, "shape": list(self._x.shape[1:])}

    def findings(self, ids: SplitIds, limits: DataLimits) -> list[Finding]:
        """Return imbalance, large inputs, and conversions."""
        notes = [Finding("info", note) for note in self._notes]
        if self._x.dtype == np.uint8:
            return [*self._class_findings(ids, limits), *notes]
        largest = float(np.abs(self._x[ids.train]).max())
        return [*self._class_findings(ids, limits), *data_findings.scale_finding(largest, limits), *notes]


def level_statistics(pixels: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation of each channel of some uint8 images, from exact counts of their levels."""
    counts = np.zeros((pixels.shape[1], 256), dtype=np.int64)
    for part in np.array_split(ids, -(-len(ids) // AT_ONCE)):
        for channel, levels in enumerate(pixels[part].swapaxes(0, 1)):
            counts[channel] += np.bincount(levels.reshape(-1), minlength=256)
    shares = counts / counts.sum(axis=1, keepdims=True)
    mean = shares @ np.arange(256.0)
    return mean, np.sqrt((shares * (np.arange(256.0) - mean[:, None]) ** 2).sum(axis=1))
