"""`mltrainer serve`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mltrainer.cli.common import AsJson, Folder, group, path_name
from mltrainer.cli.output import show_address, warn
from mltrainer.configs import storage
from mltrainer.errors import InputError, Terminated
from mltrainer.workspace import SERVED_FILE, raise_machine_fault

if TYPE_CHECKING:
    from mltrainer.companions.serving.admission import Admitted
    from mltrainer.companions.serving.predictor import Generator, Predictor

app = group()
TOKEN = "MLTRAINER_SERVE_TOKEN"  # noqa: S105 - the variable's name
LEAST_TOKEN = 16  # characters; chosen by us: fewer can be guessed by trying
PLACEHOLDER = "_your_key_here"  # the ending of tokens in files that `mltrainer integrate` writes
NOWHERE = "none"
Model = Annotated[
    Path | None,
    typer.Argument(metavar="FOLDER", parser=path_name, help="A project, or a folder final_model; default: here."),
]


@app.command(epilog="Example: mltrainer serve")
def serve(
    model: Model = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help=f"Address to listen on; other machines' requests need a token, in {TOKEN}.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0 takes a free one.")] = 8000,
    allow_unchecked: Annotated[
        bool, typer.Option("--allow-unchecked", help="Serve a model whose checks fail, and note it in every answer.")
    ] = False,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Database of answers, ${NAME} a variable; default: a SQLite file in the project's .mltrainer; none: nowhere.",
        ),
    ] = None,
    store: Annotated[bool, typer.Option("--store", help="Keep the sent rows, too; needs --keep-days.")] = False,
    keep_days: Annotated[
        float | None, typer.Option(min=0.0, metavar="N", help="Age at which kept data is deleted, in days.")
    ] = None,
    max_rows: Annotated[int, typer.Option(min=1, metavar="N", help="Most rows in a request.")] = 1000,
    max_bytes: Annotated[int, typer.Option(min=1, metavar="N", help="Most bytes in a request's body.")] = 8 << 20,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="S", help="Most seconds for a body to arrive, and again for the answer.")
    ] = 30.0,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Answer requests with the delivered model, over HTTP, and show a form for people in the browser.

    Its files and the gates of its training are checked first: exit 4 if one fails. Each answer has the numbers of
    `mltrainer predict`, with the model's run, digests and card. /openapi.json describes the addresses. Ctrl-C ends it.
    """
    if store and (keep_days is None or database == NOWHERE):
        raise typer.BadParameter(
            "needs a database and --keep-days: give --database URL and --keep-days N.", param_hint="'--store'"
        )
    token = token_for(host)
    from mltrainer.companions.serving.admission import admitted

    admitted_model = admitted(served(model, folder), allow_unchecked)
    for fault in admitted_model.identity.unchecked:
        warn(f"unchecked: {fault}")
    url = database_of(database, admitted_model)
    if store and url is None:
        raise InputError(
            "--store needs a database, and a model outside its project has none by default", hint="give --database URL"
        )
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
        return application(Service(admitted_model, loaded(admitted_model), limits, keeping), token)

    answer(build, host, port, as_json)
    return 0


def answer(build: Callable[[], Any], host: str, port: int, as_json: bool = False) -> None:
    """Answer requests until Ctrl-C; the port is bound before the application is built, and its address is printed then."""
    from mltrainer.companions.serving.server import address_of, listening, serve

    with listening(host, port) as listens:
        built = build()
        show_address(address_of(listens), "open this address in a browser; Ctrl-C ends the server", as_json)
        try:
            serve(built, listens)
        # A subclass of KeyboardInterrupt with its own exit code; Ctrl-C is the normal end.
        except Terminated:
            raise
        except KeyboardInterrupt:
            return


def served(model: Path | None, folder: Path | None) -> Path:
    """Return the folder of the requested model, which FOLDER or --project names."""
    if model and folder and model != folder:
        raise typer.BadParameter(f"FOLDER is {str(model)!r} and --project is {str(folder)!r}: name it once.")
    return model or folder or Path()


def token_for(host: str) -> str | None:
    """Return the token of requests, from the environment; None if none is set and only this machine may ask.

    Raises:
        InputError: The token is needed and not set, or short enough to guess by trying.
    """
    from mltrainer.companions.serving.admission import LOOPBACK

    token = os.environ.get(TOKEN)
    make = f"export {TOKEN}=$(python3 -c 'import secrets; print(secrets.token_urlsafe(24))')"
    if token is None and host not in LOOPBACK:
        raise InputError(
            "without a token anybody who reaches this address can ask the model",
            where=f"--host {host}",
            hint=f"set a token: {make}",
        )
    if token is not None and token.endswith(PLACEHOLDER):
        raise InputError(expected="a secret token", found="the placeholder of .env.example", where=TOKEN, hint=make)
    if token is not None and (len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token):
        raise InputError(f"expected {LEAST_TOKEN} or more printable characters without spaces", where=TOKEN, hint=make)
    return token


def database_of(given: str | None, model: Admitted) -> str | None:
    """Return the URL of the database for a model's answers, with variables filled in; None if answers are not kept.

    Raises:
        InputError: The URL is not a database's, or a variable in it is not set.
    """
    if given == NOWHERE:
        return None
    if given is not None:
        return storage.filled(given, os.environ, where="--database")
    return f"sqlite:///{model.project.state_dir / SERVED_FILE}" if model.project else None


def loaded(admitted_model: Admitted) -> Predictor | Generator:
    """Return the admitted model in memory.

    Raises:
        InputError: None of its files can run here.
        MachineError: The disk does not give a file.
    """
    from mltrainer.checkpointing.inference_script import InvalidInputError
    from mltrainer.companions.serving.predictor import Generator, Predictor

    kind = Generator if admitted_model.spec.get("kind") == "text_generation" else Predictor
    try:
        return kind(admitted_model.folder, admitted_model.spec)
    except InvalidInputError as error:
        raise_machine_fault(error.__cause__ or error, admitted_model.folder)
        needed = admitted_model.folder / "requirements.txt"
        hint = f"pip install -r {needed}; a model in another format is asked with mltrainer predict FILE"
        raise InputError(str(error), where=str(admitted_model.folder), hint=hint) from error
