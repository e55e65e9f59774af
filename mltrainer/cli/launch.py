"""`mltrainer launch` and `mltrainer export-config`."""

from __future__ import annotations

from typing import Annotated

import typer

from mltrainer.cli.common import Folder, group, one_of, open_project
from mltrainer.cli.output import printable
from mltrainer.project.cluster_scripts import Cluster, script_for
from mltrainer.workspace import PHASES, PhaseName

CLUSTERS: tuple[Cluster, ...] = ("slurm", "jobset")
app = group()
launch = group("launch", help="What starts a project's phases elsewhere.", epilog="Example: mltrainer launch print --for slurm")
app.add_typer(launch)


@launch.command(name="print", epilog="Example: mltrainer launch print --for slurm")
def print_script(
    cluster: Annotated[
        Cluster, typer.Option("--for", parser=one_of(CLUSTERS), metavar="CLUSTER", help="slurm, or jobset of Kubernetes.")
    ],
    phase: Annotated[
        PhaseName | None,
        typer.Option(parser=one_of(PHASES), metavar="PHASE", help="Run this phase alone; default: walk all."),
    ] = None,
    folder: Folder = None,
) -> int:
    """Print what a cluster is given to run the phases on one machine of it: a batch script for sbatch, or a JobSet.

    What it asks for (cores, GPUs, memory, time) follows from the plan and from what planning measured.
    """
    print(script_for(open_project(folder), cluster, phase), end="")
    return 0


@app.command(name="export-config", epilog="Example: mltrainer export-config --for transformers")
def export_config(
    trainer: Annotated[
        str, typer.Option("--for", parser=one_of(("transformers",)), metavar="TRAINER", help="transformers: its Trainer.")
    ],
    to: Annotated[str, typer.Option(metavar="DIR", help="The folder for the files, within the project.")] = "transformers",
    folder: Folder = None,
) -> int:
    """Write the planned config for another trainer: its arguments with a reason each, and a script that trains with them.

    For transformers: TrainingArguments, accelerate's config, DeepSpeed's where launch.parallel is zero1. What no argument can
    say is named, in the file and here.
    """
    from mltrainer.project.argument_files import write_arguments

    for line in write_arguments(open_project(folder), to):
        print(printable(line))
    return 0
