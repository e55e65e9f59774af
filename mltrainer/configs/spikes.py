"""What happens to a step whose loss or gradient norm is far above those before it."""

from typing import Literal

from pydantic import Field

from mltrainer.configs.loading import Strict


class Spikes(Strict):
    """The rule by which a step is a spike, and what is done about it.

    The rule is that of OLMo's optimizer that skips steps (OLMo et al., 2024, arXiv 2501.00656). `rollback` is what was done
    in the training of PaLM (Chowdhery et al., 2022, arXiv 2204.02311, section 5.1); the numbers of steps are chosen by us.
    """

    action: Literal["skip", "rollback"] = Field(
        description="skip: the step changes no weight, no optimizer and no average; rollback: the run goes back to a checkpoint "
        "and leaves the steps around the spike out"
    )
    window: int = Field(128, ge=4, le=4096, description="the steps before it that a step is compared with")
    factor: float = Field(
        6.0, gt=0, description="standard deviations above the window's mean from which a loss or a gradient norm is a spike"
    )
    most: int = Field(20, ge=1, le=1000, description="the most spikes of a run; one more ends it as failed")
    before: int = Field(10, ge=0, le=4096, description="rollback: the steps before a spike that are left out with it")
    after: int = Field(10, ge=0, le=4096, description="rollback: the steps after a spike that are left out with it")

    @property
    def least(self) -> int:
        """The number of steps from which on the window decides; before, only a number that is not finite is a spike."""
        return self.window // 2

    @property
    def goes_back(self) -> bool:
        """Whether a run goes back to a checkpoint at a spike."""
        return self.action == "rollback"

    def left_out(self, spike: int) -> range:
        """Return the steps that a run leaves out because of a spike, from 1."""
        return range(max(1, spike - self.before), spike + self.after + 1)
