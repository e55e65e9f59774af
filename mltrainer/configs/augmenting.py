"""How training alters images: each key is one alteration, off where it is not given."""

from typing import Literal

from pydantic import Field

from mltrainer.configs.loading import Strict


class Affine(Strict):
    """An image turned, moved, scaled and sheared, each by a draw of its own."""

    rotate: float = Field(0.0, ge=0, le=180, description="largest angle in degrees, either way")
    translate: float = Field(0.0, ge=0, le=1, description="largest move, as a share of the side, either way")
    scale: float = Field(0.0, ge=0, lt=1, description="largest change of size: 0.1 for 0.9 to 1.1 times")
    shear: float = Field(0.0, ge=0, lt=90, description="largest angle in degrees, either way")


class Colour(Strict):
    """An image's colours, each changed by a factor between 1 - strength and 1 + strength."""

    brightness: float = Field(0.0, ge=0, le=1, description="strength of a change of brightness")
    contrast: float = Field(0.0, ge=0, le=1, description="strength of a change of contrast")
    saturation: float = Field(0.0, ge=0, le=1, description="strength of a change of saturation; nothing for one channel")


class RandAugment(Strict):
    """Some operations, drawn for each image, of one magnitude (Cubuk et al., 2020, arXiv 1909.13719)."""

    operations: int = Field(2, ge=1, le=10, description="operations on an image, one after another")
    magnitude: float = Field(9, ge=0, le=30, description="their strength, from 0 to 30")


class Augment(Strict):
    """What training does to images; measuring and predicting see them as they are."""

    crop: int | None = Field(None, ge=1, description="black pixels added at each edge, before the size is cut at a drawn place")
    flip: Literal["horizontal", "vertical", "both"] | None = Field(None, description="every second image mirrored, drawn")
    affine: Affine | None = Field(None, description="turned, moved, scaled, sheared")
    colour: Colour | None = Field(None, description="brightness, contrast, saturation")
    randaugment: RandAugment | None = Field(None, description="drawn operations of one magnitude")
    erase: float | None = Field(
        None, gt=0, le=1, description="share of images of which a rectangle is erased (Zhong et al., 2020, arXiv 1708.04896)"
    )
    mixup: float | None = Field(
        None, gt=0, description="alpha: images and targets of a batch are mixed (Zhang et al., 2018, arXiv 1710.09412)"
    )
    cutmix: float | None = Field(
        None, gt=0, description="alpha: rectangles of a batch's images are exchanged (Yun et al., 2019, arXiv 1905.04899)"
    )

    @property
    def mixes(self) -> bool:
        """Whether images and targets of several samples are mixed."""
        return self.mixup is not None or self.cutmix is not None
