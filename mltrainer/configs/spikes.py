"""What happens to a step whose loss or gradient norm is far above those before it."""

from typing import Literal

from pydantic import Field

from mltrainer.configs.loading import Strict


class Spikes(Strict):
    """The rule by which a step is a spike, and what is done about it.

    The rule is that of OLMo's optimizer that skips steps (OLMo et al., 2024, arXiv 2501.00656).
    """

    action: Literal["skip"] = Field(description="skip: the step changes no weight, no optimizer and no average")
    window: int = Field(128, ge=4, le=4096, description="the steps before it that a step is compared with")
    factor: float = Field(
        6.0, gt=0, description="standard deviations above the window's mean from which a loss or a gradient norm is a spike"
    )
    most: int = Field(20, ge=1, le=1000, description="the most spikes of a run; one more ends it as failed")

    @property
    def least(self) -> int:
        """The number of steps from which on the window decides; before, only a number that is not finite is a spike."""
        return self.window // 2
