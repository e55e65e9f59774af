"""Signum for mltrainer: the sign of a momentum (Bernstein et al., 2018, arXiv 1802.04434)."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Signum(BaseModel):
    """The options of Signum."""

    model_config = ConfigDict(strict=True)

    momentum: float = Field(0.9, ge=0, lt=1, description="decay of the momentum")

    def build(self, groups: list[dict[str, Any]], lr: float) -> Any:
        """Return the optimizer."""
        from mltrainer_signum.update import SignumOptimizer  # here, because it imports torch, which planning does without

        return SignumOptimizer(groups, lr=lr, momentum=self.momentum)
