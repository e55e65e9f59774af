"""`mltrainer monitor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mltrainer.cli import completion
from mltrainer.cli.common import AsJson, Folder, group, open_project
from mltrainer.cli.output import say, show_address
from mltrainer.errors import Terminated
from mltrainer.runs.find import find_run

if TYPE_CHECKING:
    from mltrainer.companions.monitor.follower import Follower
    from mltrainer.workspace import Project

app = group()


@app.command(epilog="Example: mltrainer monitor --web")
def monitor(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            autocompletion=completion.runs,
            help="Runs to show side by side, by id, prefix or phase; default: the training ones, else the newest.",
        ),
    ] = None,
    is_web: Annotated[
        bool, typer.Option("--web", help="Show the runs in the browser: print an address that works on this machine.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="With --web: the port; 0 takes a free one.")] = 0,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Watch runs during training or afterwards: curves, findings, gates, a search, reports.

    It reads the files, in a separate process, and changes nothing. Ctrl-C ends it. In the terminal it prints
    a line for each evaluation and finding, and ends by itself when the runs that were named have ended. With --json it prints
    the address of --web; for programs the state is `mltrainer status --json` and `mltrainer runs show --json`.
    """
    if as_json and not is_web:
        raise typer.BadParameter("in the terminal there are lines for people: mltrainer status --json", param_hint="--json")
    project = open_project(folder)
    chosen = [find_run(project, run) for run in runs or ()]
    from mltrainer.companions.monitor.follower import Follower

    with Follower(project) as follower:
        try:
            if is_web:
                _serve(project, follower, chosen, port, as_json)
            else:
                from mltrainer.companions.monitor.lines import Lines

                Lines(follower, chosen).print_to(say)
        # A subclass of KeyboardInterrupt with its own exit code; Ctrl-C is the normal end.
        except Terminated:
            raise
        except KeyboardInterrupt:
            return 0
    return 0


def _serve(project: Project, follower: Follower, chosen: list[str], port: int, as_json: bool) -> None:
    from mltrainer.companions.monitor.server import Server

    with Server(project, follower, chosen, port) as server:
        show_address(server.url, "open this address in a browser on this machine; Ctrl-C ends the monitor", as_json)
        with follower.reading(server.unasked):  # a long run is read while the user opens the browser
            server.serve_forever(poll_interval=0.1)
