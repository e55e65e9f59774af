"""`mltrainer serve`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mltrainer.cli.common import Folder, group, path_name
from mltrainer.cli.output import warn
from mltrainer.configs import storage
from mltrainer.errors import InputError, Terminated
from mltrainer.workspace import SERVED_FILE

if TYPE_CHECKING:
    from mltrainer.companions.serving.admission import Admitted
    from mltrainer.companions.serving.generation import Generator
    from mltrainer.companions.serving.predictor import Predictor

app = group()
TOKEN = "MLTRAINER_SERVE_TOKEN"  # noqa: S105 - the variable's name
LEAST_TOKEN = 16  # characters; chosen by us: fewer can be tried out
PLACEHOLDER = "_your_key_here"  # how those end that `mltrainer integrate` writes
NOWHERE = "none"
Model = Annotated[
    Path | None,
    typer.Argument(metavar="FOLDER", parser=path_name, help="A project, or a folder final_model; default: here."),
]


@app.command(epilog="Example: mltrainer serve")
def serve(
    model: Model = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help=f"Where to listen; beyond this machine a token is needed, in {TOKEN}.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0 for one that is free.")] = 8000,
    allow_unchecked: Annotated[
        bool, typer.Option("--allow-unchecked", help="Serve a model whose checks do not hold, and say so in every answer.")
    ] = False,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Keeps answers, ${NAME} for a variable; default: a SQLite file in the project's .mltrainer; none: nowhere.",
        ),
    ] = None,
    store: Annotated[bool, typer.Option("--store", help="Keep the rows that were sent, too; it needs --keep-days.")] = False,
    keep_days: Annotated[
        float | None, typer.Option(min=0.0, metavar="N", help="Delete what was kept after so many days.")
    ] = None,
    max_rows: Annotated[int, typer.Option(min=1, metavar="N", help="Rows that one request may bring.")] = 1000,
    max_bytes: Annotated[int, typer.Option(min=1, metavar="N", help="Bytes that a request's body may have.")] = 8 << 20,
    timeout: Annotated[float, typer.Option(min=0.1, metavar="S", help="Seconds for a body to come, and for an answer.")] = 30.0,
    folder: Folder = None,
) -> int:
    """Answer requests with the delivered model, over HTTP, and show a form for people in the browser.

    Its files and the gates of its training are checked first: exit 4 where one does not hold. Each answer has the same numbers as
    `mltrainer predict` gives, with the model's run, digests and card. /openapi.json describes the addresses. Ctrl-C ends it.
    """
    if store and (keep_days is None or database == NOWHERE):
        raise typer.BadParameter("it goes with --keep-days and a database.", param_hint="'--store'")
    token = token_for(host)
    from mltrainer.companions.serving.admission import admitted

    found = admitted(served(model, folder), allow_unchecked)
    for fault in found.identity.unchecked:
        warn(f"unchecked: {fault}")
    url = database_of(database, found)
    if store and url is None:
        raise InputError("a copy of a model away from its project keeps nothing by itself", hint="name a --database")
    try:
        from mltrainer.companions.serving.application import Service, application
        from mltrainer.companions.serving.guard import Limits
        from mltrainer.companions.serving.keeping import Keeping
        from mltrainer.companions.serving.store import Store
    except ModuleNotFoundError as error:
        raise InputError(f"serving needs the package {error.name}", hint="pip install 'mltrainer[serve]'") from error

    limits = Limits(rows=max_rows, bytes=max_bytes, seconds=timeout)

    def build() -> Any:
        keeping = Keeping(Store(url), store, keep_days) if url else None
        return application(Service(found, loaded(found), limits, keeping), token)

    answer(build, host, port)
    return 0


def answer(build: Callable[[], Any], host: str, port: int) -> None:
    """Answer requests until Ctrl-C; the application is built once the port is ours."""
    from mltrainer.companions.serving.server import address_of, listening, serve

    with listening(host, port) as listens:
        built = build()
        print(address_of(listens), flush=True)
        warn("open this address in a browser; Ctrl-C ends the server")
        try:
            serve(built, listens)
        # It is a KeyboardInterrupt, too, and has an exit code of its own; Ctrl-C is how the server is ended.
        except Terminated:
            raise
        except KeyboardInterrupt:
            return


def served(model: Path | None, folder: Path | None) -> Path:
    """Return the folder of the model that is asked for, which may be named in two ways."""
    if model and folder and model != folder:
        raise typer.BadParameter(f"FOLDER is {str(model)!r} and --project is {str(folder)!r}: name it once.")
    return model or folder or Path()


def token_for(host: str) -> str | None:
    """Return the token that requests must bring, of the environment; None where none is set and only this machine may ask.

    Raises:
        InputError: It is needed and not set, or short enough to be found by trying.
    """
    from mltrainer.companions.serving.admission import LOOPBACK

    token = os.environ.get(TOKEN)
    make = f"export {TOKEN}=$(python3 -c 'import secrets; print(secrets.token_urlsafe(24))')"
    if token is None and host not in LOOPBACK:
        raise InputError(
            "whoever can reach this address could ask the model", where=f"--host {host}", hint=f"set a token: {make}"
        )
    if token is not None and token.endswith(PLACEHOLDER):
        raise InputError("expected a token of your own, found the placeholder of .env.example", where=TOKEN, hint=make)
    if token is not None and (len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token):
        raise InputError(f"expected {LEAST_TOKEN} or more printable characters without spaces", where=TOKEN, hint=make)
    return token


def database_of(given: str | None, found: Admitted) -> str | None:
    """Return the URL of the database that keeps a model's answers, with the environment's values in it; None where none does.

    Raises:
        InputError: It is no URL of a database, or a variable in it is not set.
    """
    if given == NOWHERE:
        return None
    if given is not None:
        return storage.filled(given, os.environ, where="--database")
    return f"sqlite:///{found.project.state_dir / SERVED_FILE}" if found.project else None


def loaded(found: Admitted) -> Predictor | Generator:
    """Return the admitted model in memory.

    Raises:
        InputError: No file of it can be run here.
    """
    from mltrainer.checkpointing.inference_script import InvalidInputError
    from mltrainer.companions.serving.generation import Generator
    from mltrainer.companions.serving.predictor import Predictor

    kind = Generator if found.spec.get("kind") == "text_generation" else Predictor
    try:
        return kind(found.folder, found.spec)
    except InvalidInputError as error:
        raise InputError(str(error), where=str(found.folder)) from error
