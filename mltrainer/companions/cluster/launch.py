"""`mltrainer launch`: scripts for other places, and the keys that these need as placeholders of an `.env.example`."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from mltrainer.cli.common import AsJson, Folder, group, one_of, open_project
from mltrainer.cli.output import emit
from mltrainer.companions.cluster.cluster_scripts import CLUSTERS, script_for
from mltrainer.companions.cluster.remote_scripts import REMOTES, remote_script
from mltrainer.workspace import PHASES, PhaseName

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
    as_json: AsJson = False,
) -> int:
    """Print a script that starts the phases elsewhere: for sbatch, JobSet, Modal, SkyPilot or SSH.

    Requested cores, GPUs, memory and time follow from the plan and planning's measurements.
    """
    project = open_project(folder)
    if gpu is not None and place not in ("modal", "skypilot"):
        raise typer.BadParameter(f"--gpu belongs to modal and skypilot; --for {place} takes the machine as it is.")
    if store is not None and place in CLUSTERS:
        raise typer.BadParameter(f"--store belongs to ssh, modal and skypilot; --for {place} sees the project's folder.")
    script = script_for(project, place, phase) if place in CLUSTERS else remote_script(project, place, phase, gpu, store)
    emit({"place": place, "script": script}) if as_json else print(script, end="")
    return 0


@launch.command(epilog="Example: mltrainer launch keys")
def keys(
    environment: Annotated[
        str, typer.Option("--env", metavar="NAME", help="Environment that the keys are for, such as dev.")
    ] = "dev",
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Print an .env.example: the keys that rented machines need as placeholders, each with the place to get it."""
    from mltrainer.configs.project import load_project

    text = env_example(load_project(open_project(folder).file).name, environment)
    emit({"keys": [key.variable for key in KEYS], "text": text}) if as_json else print(text, end="")
    return 0


# --- keys -----------------------------------------------------------------------------------------

HEAD = """# Copy this file to .env, which git does not keep, put your keys in, then read it into the environment:
#   set -a; . ./.env; set +a
"""


class Key(NamedTuple):
    """A key that a platform needs.

    Attributes:
        variable: Name of the environment variable that holds it.
        obtained: Address of the page that creates one.
        read: Program that reads it, and the way if that is not the variable.
    """

    variable: str
    obtained: str
    read: str


KEYS = (
    Key("MODAL_TOKEN_ID", "https://modal.com/settings/tokens", "Modal reads it"),
    Key("MODAL_TOKEN_SECRET", "https://modal.com/settings/tokens, shown once", "Modal reads it"),
    Key("AWS_ACCESS_KEY_ID", "https://console.aws.amazon.com/iam, Users, Security credentials", "s3fs reads it"),
    Key("AWS_SECRET_ACCESS_KEY", "the same, shown once", "s3fs reads it"),
    Key(
        "LAMBDA_API_KEY",
        "https://cloud.lambda.ai/api-keys",
        'SkyPilot reads a file: echo "api_key = $LAMBDA_API_KEY" > ~/.lambda_cloud/lambda_keys',
    ),
    Key(
        "RUNPOD_API_KEY",
        "the console of RunPod, Credentials, API Keys",
        "SkyPilot reads what `runpod config` keeps, which asks for it",
    ),
)


def env_example(project: str, environment: str) -> str:
    """Return the text of an `.env.example`, each key a placeholder that names the project and the environment.

    Args:
        project: The project's name.
        environment: Name of the environment, such as dev or production.
    """
    lines = (f"\n# {key.obtained}\n# {key.read}\n{key.variable}={project}_{environment}_your_key_here\n" for key in KEYS)
    return HEAD + "".join(lines)
