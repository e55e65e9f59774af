"""The keys of rented machines' platforms and of object stores, as placeholders: the text of an `.env.example`."""

from __future__ import annotations

from typing import NamedTuple

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
