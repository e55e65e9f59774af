"""`launch` of a training config: how its trainings are started, and where those of a search are."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator

from mltrainer.configs.loading import Strict

EngineName = Literal["local", "slurm", "ray"]
OF_THE_SEARCH = frozenset(  # options of sbatch by which a job is followed
    ("job-name", "output", "error", "chdir", "open-mode", "export", "parsable", "wait", "wrap", "array", "requeue", "no-requeue")
)
# Such a job's state is not known to the `squeue` that is asked: it would be taken for lost, again and again.
ELSEWHERE = frozenset(("clusters", "cluster"))


class RayCluster(Strict):
    """The Ray cluster that trains the runs of a search."""

    address: str = Field("auto", min_length=1, description="its address, host:port; auto: the one that this machine is part of")


class Launching(Strict):
    """How a training is started; nothing here changes the bits."""

    processes: int = Field(
        1, ge=1, le=4096, description="processes that train together, a power of two and no more than `accumulate` fills"
    )
    machines: int = Field(1, ge=1, le=1024, description="machines of a job of SLURM that share these processes, each as many")
    restarts: int = Field(
        0, ge=0, le=1000, description="how often a training that was killed, or lost one of its processes, goes on by itself"
    )
    life_sign_s: float = Field(
        60.0,
        ge=5,
        le=86_400,
        description="seconds after which one of several processes that neither shows life nor uses CPU time is taken for hung, "
        "and the training ended",
    )
    parallel: Literal["ddp", "zero1", "fsdp", "pipeline"] = Field(
        "ddp",
        description="what several processes share: the samples of a step (ddp), also the optimizer's state (zero1), also "
        "gradients and parameters (fsdp); or the model, of which each computes a stage (pipeline)",
    )
    offload: Literal["optimizer"] | None = Field(
        None,
        description="optimizer: the state of adamw or sgd is in the CPU's memory while the model is on a GPU, and the update is "
        "computed there; on a CPU it changes nothing; null: nothing is offloaded",
    )
    engine: EngineName = Field(
        "local", description="where the runs of a search or an ablation are trained: on this machine, or as jobs of SLURM or Ray"
    )
    slurm: dict[str, str | int] = Field(
        {}, description='options of sbatch for each job, by their long names: {partition: gpu, time: "2:00:00"}'
    )
    ray: RayCluster = Field(default_factory=lambda: RayCluster(), description="the Ray cluster")

    @field_validator("slurm", mode="before")
    @classmethod
    def _is_plain(cls, given: Any) -> Any:
        for name, value in given.items() if isinstance(given, dict) else ():
            if not isinstance(value, str | int) or isinstance(value, bool):
                raise ValueError(f"{name}: text or a whole number was expected")
        return given

    @field_validator("slurm")
    @classmethod
    def _is_an_option(cls, given: dict[str, str | int]) -> dict[str, str | int]:
        for name in given:
            if name in ELSEWHERE:
                raise ValueError(f"{name!r} names another cluster, whose jobs are not seen here; type the command there")
            if not re.fullmatch(r"[a-z][a-z-]*", name) or name in OF_THE_SEARCH:
                taken = "is set by the search" if name in OF_THE_SEARCH else "is no long name of an option of sbatch"
                raise ValueError(f"{name!r} {taken}")
        return given
