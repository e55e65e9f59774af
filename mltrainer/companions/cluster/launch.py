"""`mltrainer launch`."""

from __future__ import annotations

from typing import Annotated

import typer

from mltrainer.cli.common import Folder, group, one_of, open_project
from mltrainer.companions.cluster.cluster_scripts import Cluster, script_for
from mltrainer.companions.cluster.remote_scripts import Remote, remote_script
from mltrainer.workspace import PHASES, PhaseName

CLUSTERS: tuple[Cluster, ...] = ("slurm", "jobset")
REMOTES: tuple[Remote, ...] = ("ssh", "modal", "skypilot")
app = group()
launch = group(
    "launch", help="Scripts that start a project's phases elsewhere.", epilog="Example: mltrainer launch print --for slurm"
)
app.add_typer(launch)


@launch.command(name="print", epilog="Example: mltrainer launch print --for ssh")
def print_script(
    place: Annotated[
        str,
        typer.Option(
            "--for",
            parser=one_of((*CLUSTERS, *REMOTES)),
            metavar="PLACE",
            help="slurm or jobset, which see the project's folder; ssh, modal or skypilot, which copy it.",
        ),
    ],
    phase: Annotated[
        PhaseName | None,
        typer.Option(parser=one_of(PHASES), metavar="PHASE", help="Run this phase alone; default: walk all."),
    ] = None,
    gpu: Annotated[str | None, typer.Option(metavar="KIND", help="The kind of GPU to rent, for modal and skypilot.")] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="An object store through which data, checkpoints and records go: s3://bucket/prefix."),
    ] = None,
    folder: Folder = None,
) -> int:
    """Print a script that starts the phases elsewhere: for sbatch, JobSet, Modal, SkyPilot or SSH.

    Requested cores, GPUs, memory and time follow from the plan and planning's measurements.
    """
    project = open_project(folder)
    remote = next((one for one in REMOTES if one == place), None)
    cluster = next((one for one in CLUSTERS if one == place), None)
    if gpu is not None and place not in ("modal", "skypilot"):
        raise typer.BadParameter(f"--gpu belongs to modal and skypilot; --for {place} takes the machine as it is.")
    if store is not None and remote is None:
        raise typer.BadParameter(f"--store belongs to ssh, modal and skypilot; --for {place} sees the project's folder.")
    if remote is not None:
        print(remote_script(project, remote, phase, gpu, store), end="")
    elif cluster is not None:
        print(script_for(project, cluster, phase), end="")
    return 0


@launch.command(epilog="Example: mltrainer launch keys")
def keys(
    environment: Annotated[
        str, typer.Option("--env", metavar="NAME", help="Environment that the keys are for, such as dev.")
    ] = "dev",
    folder: Folder = None,
) -> int:
    """Print an .env.example: the keys that rented machines need as placeholders, each with the place to get it."""
    from mltrainer.companions.cluster.platform_keys import env_example
    from mltrainer.configs.project import load_project

    print(env_example(load_project(open_project(folder).file).name, environment), end="")
    return 0
