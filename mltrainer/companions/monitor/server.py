"""The monitor in a browser: a server for this machine alone, which reads and never writes.

It listens on the loopback interface. The first part of each address is a token that only its starter sees; a name
under which another site could reach it is refused, and no page may load or send anything elsewhere.
"""

from __future__ import annotations

import contextlib
import hmac
import html
import posixpath
import re
import secrets
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from markdown_it import MarkdownIt

from mltrainer import handbook
from mltrainer.companions.monitor import details
from mltrainer.companions.monitor.follower import Follower
from mltrainer.companions.monitor.run import Seen, WatchedRun
from mltrainer.companions.monitor.shown import ProjectShown, sent
from mltrainer.errors import InputError, MachineError
from mltrainer.follow.steps import StepsView
from mltrainer.page_headers import page_headers
from mltrainer.workspace import Project, machine_faults, read_whole

PICTURES = {".svg": "image/svg+xml", ".png": "image/png"}
# What our own reports write as HTML; everything else that looks like HTML is shown as text.
_OURS = re.compile(r"&lt;(/?(?:details|summary)|br ?/?)&gt;")
_ALIGNED = re.compile(r' style="text-align:(\w+)"')  # an inline style, which the page's policy refuses

_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="{up}icon.svg"><link rel="stylesheet" href="{up}style.css"><script src="{up}theme.js"></script></head>
<body class="page"><header class="bar"><a href="{up}">&larr; {project}</a><span>{title}</span></header>
<main class="paper">{body}</main></body></html>
"""


def report_file(project: Project, path: str) -> Path:
    """Return the file of a report or of one of its figures.

    Raises:
        InputError: The path is no report, or outside the phases' folders.
    """
    folder = (project.root / "phases").resolve()
    # Resolved before the comparison, so that neither `..` nor a link leads out.
    file = (project.root / path).resolve()
    if not file.is_relative_to(folder) or file.suffix not in (".md", *PICTURES) or not file.is_file():
        raise InputError("no report of this project", where=path[:200])
    return file


def rendered(text: str) -> str:
    """Return Markdown as HTML; HTML in it is shown as text, except for folded parts and line breaks."""
    return _ALIGNED.sub(r' class="\1"', _OURS.sub(r"<\1>", _MARKDOWN.render(text)))


def page(text: str, title: str, project: str, depth: int) -> bytes:
    """Return Markdown as a whole page.

    Args:
        text: The Markdown.
        title: Title of the page.
        project: The project's name.
        depth: Number of folders below the monitor's own page.
    """
    shown = {"title": html.escape(title), "project": html.escape(project), "up": "../" * depth or "./"}
    return PAGE.format(**shown, body=rendered(text)).encode()


def guide(path: str, project: Project, depth: int) -> bytes:
    """Return a page of the handbook.

    Raises:
        InputError: There is no such page.
    """
    found = handbook.read_page(posixpath.normpath(path), project.root)
    if not found.path.endswith(".md"):
        raise InputError("no page of the handbook", where=path[:200])
    return page(found.text, found.path, project.root.name, depth)


LOOPBACK, HTTP_PORT = "127.0.0.1", 80
BEAT_S = 5.0  # silence after which a page gets a keep-alive event, whose sending also shows whether the page is still open
MOST_POINTS = 4000
MOST_HEAD = 16 << 10  # bytes; chosen by us, as many as nginx takes
WHOLE_ADDRESS = "Open the whole address that `mltrainer monitor --web` printed."
_SCRIPTS = (
    *("app", "axes", "charts", "classes", "dom", "drawing", "heads", "layers", "lines"),
    *("link", "lists", "runs", "save", "search", "state", "table", "theme"),
)
STATIC = {
    "": ("index.html", "text/html; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
    "style.css": ("style.css", "text/css; charset=utf-8"),
    "uPlot.js": ("uPlot.iife.min.js", "text/javascript; charset=utf-8"),
    "uPlot.css": ("uPlot.min.css", "text/css; charset=utf-8"),
    **{f"{name}.js": (f"{name}.js", "text/javascript; charset=utf-8") for name in _SCRIPTS},
}
HEADERS = page_headers("script", "style", "img", "connect")
Answer = tuple[bytes, str]  # body and its type
Asked = dict[str, list[str]]  # the query of an address


class Server(ThreadingHTTPServer):
    """Serves one project's monitor.

    Args:
        project: The project.
        follower: Follower of the project.
        chosen: Runs that a page shows at first; empty: the training ones, else the newest.
        port: The port; 0 takes a free one.

    Attributes:
        url: Address with the token.

    Raises:
        MachineError: The port is taken.
    """

    # An open page holds a thread for as long as it is open: the end of the monitor must not wait for it.
    daemon_threads = True
    block_on_close = False

    def __init__(self, project: Project, follower: Follower, chosen: list[str], port: int = 0) -> None:
        self.project, self.follower, self.chosen = project, follower, chosen
        self.configs = details.Configs(project)
        self._token = secrets.token_urlsafe(24)
        try:
            with machine_faults(f"port {port}"):
                super().__init__((LOOPBACK, port), Handler)
        except OSError as error:
            raise MachineError(error.strerror or str(error), where=f"port {port}", hint="name another --port") from error
        names = (LOOPBACK, "localhost")
        self.hosts = {f"{name}:{self.server_port}" for name in names}
        self.hosts |= {*names} if self.server_port == HTTP_PORT else set()  # browsers leave it out
        self.url = f"http://{LOOPBACK}:{self.server_port}/{self._token}/"

    @property
    def unasked(self) -> list[str]:
        """The default runs of a page."""
        return self.chosen or list(self.follower.shown.unasked)

    def admits(self, token: str) -> bool:
        """Return True if a token is this server's; the comparison takes constant time, so that its duration reveals nothing."""
        return hmac.compare_digest(token.encode(), self._token.encode())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a closed page; report any other error."""
        import sys

        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Server
    raw_requestline: bytes  # as the standard library reads it, without declaring it
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "mltrainer", ""
    # Events are small: without this each would wait for the acknowledgement of the one before.
    disable_nagle_algorithm = True
    timeout = 60

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: addresses hold the token."""

    def parse_request(self) -> bool:
        """Read a request's head, after its first line has shown the token; a head or a body that nobody needs ends it."""
        words = self.raw_requestline.split()
        if len(words) < 2 or not self.server.admits(_split(words[1].decode("latin-1"))[0]):
            self.requestline, self.request_version, self.command = "", self.protocol_version, "GET"
            self._refuse(HTTPStatus.FORBIDDEN, WHOLE_ADDRESS)
            return False
        if not super().parse_request():
            return False
        # The Host is checked, too: a site whose name points to this machine sends that name.
        if self.headers.get_all("Host") not in [[host] for host in self.server.hosts]:
            self._refuse(HTTPStatus.FORBIDDEN, WHOLE_ADDRESS)
        elif sum(len(name) + len(value) for name, value in self.headers.items()) > MOST_HEAD:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"At most {MOST_HEAD} bytes of a head are read.")
        elif self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "No request here has a body.")
        else:
            return True
        return False

    def do_GET(self) -> None:
        """Answer a request of the token's holder."""
        _, path, query = _split(self.path)
        asked = parse_qs(query)
        try:
            if path == "events":
                self._events(asked)
            else:
                self._send(*self._answer(path, asked))
        except InputError as error:
            self._refuse(HTTPStatus.NOT_FOUND, str(error))
        except (ValueError, OverflowError):  # infinity is a number, but no step's
            self._refuse(HTTPStatus.BAD_REQUEST, "A number was expected.")

    def _answer(self, path: str, asked: Asked) -> Answer:
        """Return the content at a path below the token, and its media type.

        Raises:
            InputError: There is no such page.
            ValueError: A number is malformed.
        """
        if path in STATIC:
            name, kind = STATIC[path]
            return (resources.files("mltrainer.companions.monitor") / "web" / name).read_bytes(), kind
        if path in _DATA:
            return sent(_DATA[path](self.server, asked)), "application/json"
        folder, _, rest = path.partition("/")
        if folder not in _PAGES:
            raise InputError("there is no page at this address", where=path[:200])
        return _PAGES[folder](self.server.project, rest, path.count("/"))

    # --- server-sent events ---

    def _events(self, asked: Asked) -> None:
        """Send the present state of the project and some runs, and then updates, until the page is closed."""
        chosen = self.server.unasked if "unasked" in asked else asked.get("run", [])
        self.server.follower.check(chosen)
        self._head(HTTPStatus.OK, "text/event-stream", {"Connection": "close"})
        # A stream has no length, so that a next request on the same connection could not be separated from it.
        self.close_connection = True
        with contextlib.suppress(ConnectionError, TimeoutError, InputError):  # a run may be removed meanwhile
            # Sent before the runs are read, which takes a while for long ones: the page appears at once.
            shown = self._tell_project(chosen)
            with self.server.follower.watching(chosen) as runs:
                self._stream(runs, shown)

    def _tell_project(self, chosen: list[str]) -> ProjectShown:
        """Send the project, with the default runs of a page."""
        shown = self.server.follower.shown
        self.wfile.write(_event("project", {**vars(shown), "chosen": chosen}))
        return shown

    def _stream(self, runs: list[WatchedRun], shown: ProjectShown) -> None:
        follower, version = self.server.follower, -1
        seen: dict[str, Seen] = {}
        while not follower.has_ended:
            if follower.shown is not shown and follower.shown != shown:
                shown = self._tell_project(self.server.unasked)
            new = b"".join(_event("run", update) for update in follower.news(runs, seen))
            self.wfile.write(new or b": still here\n\n")
            version = follower.wait(version, BEAT_S)

    # --- answers ---

    def _send(self, body: bytes, kind: str) -> None:
        self._head(HTTPStatus.OK, kind, {"Content-Length": str(len(body))})
        self.wfile.write(body)

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        body = f"{text}\n".encode()
        # A body may follow on the connection: no next request is read from it.
        self._head(status, "text/plain; charset=utf-8", {"Content-Length": str(len(body)), "Connection": "close"})
        self.wfile.write(body)

    def _head(self, status: HTTPStatus, kind: str, more: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **HEADERS, **more}.items():
            self.send_header(name, value)
        self.end_headers()


def _split(address: str) -> tuple[str, str, str]:
    """Return the token of an address, the path below it, and the query."""
    try:
        parts = urlsplit(address)
    except ValueError:  # brackets without an IPv6 address
        return "", "", ""
    _, token, path = unquote(parts.path).split("/", 2) if parts.path.count("/") > 1 else ("", "", "")
    return token, path, parts.query


def _steps(server: Server, asked: Asked) -> StepsView:
    first, last = (int(float(asked[key][0])) if key in asked else None for key in ("first", "last"))
    points = min(MOST_POINTS, max(1, int(asked.get("points", ["1000"])[0])))
    return server.follower.steps(_run(server, asked), first, last, points)


def _run(server: Server, asked: Asked) -> str:
    run = asked.get("run", [""])[0]
    server.follower.check([run])
    return run


def _search(server: Server, asked: Asked) -> details.SearchShown | None:
    shown = server.follower.shown
    return details.search_of(server.project, shown.runs, server.configs, is_running=shown.study is not None)


_DATA: dict[str, Callable[[Server, Asked], Any]] = {
    "steps": _steps,
    "layers": lambda server, asked: details.layers_of(server.project, _run(server, asked)),
    "classes": lambda server, asked: details.classes_of(server.project, _run(server, asked)),
    "settings": lambda server, asked: server.configs.differing(),
    "search": _search,
}


def _event(name: str, value: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), sent(value))


def _report(project: Project, path: str, depth: int) -> Answer:
    file = report_file(project, path)
    if file.suffix in PICTURES:
        return read_whole(file), PICTURES[file.suffix]
    text = read_whole(file).decode(errors="replace")
    return page(text, path, project.root.name, depth), "text/html; charset=utf-8"


def _guide(project: Project, path: str, depth: int) -> Answer:
    return guide(path, project, depth), "text/html; charset=utf-8"


_PAGES: dict[str, Callable[[Project, str, int], Answer]] = {"report": _report, "guide": _guide}
