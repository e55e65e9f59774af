"""The engines that train the runs of a study: workers of this machine, or an engine's jobs on others."""

from __future__ import annotations

from pathlib import Path

from mltrainer import plugins
from mltrainer.configs.launching import EngineName, Launching
from mltrainer.executors.engine import Engine
from mltrainer.records.job import PooledJob
from mltrainer.search.pool import Pool, places
from mltrainer.search.remote_pool import RemotePool
from mltrainer.search.repeating import Repeating, Workers
from mltrainer.tools.program import Events

REMOTE_WORKERS = 4  # at a time, by default: other machines' cores cannot be counted here


def workers_of(job: PooledJob, root: Path, events: Events) -> Repeating:
    """Return the workers of a study, whose lost runs are begun again.

    Args:
        job: The study's job.
        root: The project's folder.
        events: The sender to which losses are reported.

    Raises:
        InputError: There is no GPU, or the engine is not available here.
    """

    def tell(text: str) -> None:
        events.send("note", text=text)

    name, silent_s = job.engine or job.config.launch.engine, 60 * job.silent_minutes
    workers: Workers
    if name == "local":
        workers = Pool(root, job, places(job.workers, job.config.device, job.threads), silent_s)
    else:
        workers = RemotePool(root, job, engine_of(name, job.config.launch), job.workers or REMOTE_WORKERS, silent_s)
    return Repeating(workers, tell)


def engine_of(name: EngineName, launch: Launching) -> Engine:
    """Return the engine of other machines with that name.

    Raises:
        InputError: The engine is not installed, or its cluster is not there.
    """
    engine: Engine = plugins.part("engines", name)(launch)
    return engine
