"""The monitor in a browser: for who has the token alone, on this machine alone, and reading alone."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from mltrainer.companions.monitor.follower import Follower
from mltrainer.companions.monitor.server import STATIC, Server
from mltrainer.errors import MachineError
from mltrainer.workspace import Project
from tests.companions.monitor.invented import Training, empty_project


@contextmanager
def serving(project: Project, *chosen: str) -> Iterator[Server]:
    """Yield a server of a project's monitor that answers."""
    with Follower(project) as follower, Server(project, follower, list(chosen)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def get(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of what lies at a path, from the server's root."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


def below(server: Server, path: str) -> tuple[int, dict[str, str], bytes]:
    """Return what lies at a path below the token."""
    return get(server, f"/{server.url.split('/')[3]}/{path}")


@contextmanager
def stream(server: Server, *runs: str) -> Iterator[Iterator[tuple[str, Any]]]:
    """Yield the events that a page hears: name and value."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)) as connection:
        connection.request("GET", f"/{server.url.split('/')[3]}/events?{'&'.join(f'run={run}' for run in runs)}")
        answer = connection.getresponse()
        assert answer.status == 200

        def heard() -> Iterator[tuple[str, Any]]:
            while True:
                line = answer.fp.readline().decode()
                if line.startswith("event: "):
                    yield line[7:].strip(), json.loads(answer.fp.readline()[6:])

        yield heard()


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """A run of two epochs."""
    made = Training(empty_project(tmp_path_factory.mktemp("invented")))
    made.epoch(0.5)
    made.epoch(0.75)
    return made


@pytest.fixture(scope="module")
def server(training: Training) -> Iterator[Server]:
    """A server that nothing changes."""
    with serving(Project(training.folder.parents[2])) as found:
        yield found


@pytest.mark.wheel
def test_the_whole_page_comes_from_this_server(server):
    for path, (name, kind) in STATIC.items():
        status, headers, body = below(server, path)
        assert (status, headers["Content-Type"]) == (200, kind), name
        assert b"http://" not in body.replace(b"http://www.w3.org/", b""), name
        assert b"//cdn" not in body, name


@pytest.mark.parametrize("path", ["/", "/app.js", "/events", "/wrong/", "/wrong/app.js", "//app.js", "/%C3%A4/", "/favicon.ico"])
def test_without_the_token_nothing_is_told(server, path):
    status, _, body = get(server, path)
    assert status == 403
    assert body == b"Open the whole address that `mltrainer monitor --web` printed.\n"


def test_a_token_is_compared_whole(server):
    token = server.url.split("/")[3]
    assert len(token) >= 32
    assert server.admits(token)
    assert not server.admits(token[:-1])
    assert not server.admits("")
    with Server(server.project, server.follower, []) as other:
        assert not server.admits(other.url.split("/")[3])


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1.evil.example:1", ""])
def test_a_name_that_another_site_points_here_is_refused(server, host):
    path = f"/{server.url.split('/')[3]}/"
    assert get(server, path, Host=host)[0] == 403
    assert get(server, path, Host=f"localhost:{server.server_port}")[0] == 200


def said(server: Server, head: bytes) -> bytes:
    """Return what is answered to bytes after which the client waits."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(head)
        return connection.makefile("rb").read()


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
@pytest.mark.parametrize("path", ["/", "/wrong/", "/wrong/events", "http://[", "*"])
def test_without_the_token_no_more_than_the_first_line_is_read(server, method, path):
    """The answer comes while the head has not ended, and whatever the method is."""
    answer = said(server, f"{method} {path} HTTP/1.1\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"Connection: close" in answer


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("Content-Length: 9000000000", b"413"),
        ("Content-Length: -1", b"413"),
        ("Transfer-Encoding: chunked", b"413"),
        (f"X: {'x' * 20_000}", b"431"),
        ("Host: evil.example", b"403"),
        ("X: y", b"200"),
    ],
)
def test_who_has_the_token_sends_a_short_head_and_no_body(server, line, status):
    token = server.url.split("/")[3]
    head = f"GET /{token}/style.css HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\nConnection: close\r\n{line}\r\n\r\n"
    assert said(server, head.encode()).split()[1] == status


def test_it_listens_on_the_loopback_interface_alone(server):
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("path", ["", "app.js", "steps?run=0123456789ab", "report/nothing.md", "guide/diagnostics/leakage.md"])
def test_no_page_may_load_or_send_anything_elsewhere(server, path):
    _, headers, _ = below(server, path)
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    kept = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
    assert {name: headers[name] for name in kept} == kept


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_sent_to_it(server, method):
    assert get(server, f"/{server.url.split('/')[3]}/", method)[0] == 501


@pytest.mark.parametrize(
    "path",
    [
        "report/../mltrainer.yaml",
        "report/phases/../mltrainer.yaml",
        "report/phases/../../../../../../etc/passwd",
        "report/phases/%2e%2e/%2e%2e/mltrainer.yaml",
        "report//etc/passwd",
        "report/phases/link.md",
        "report/phases/record.json",
        "report/.mltrainer/runs/0123456789ab/job.json",
        "guide/../../../etc/passwd",
        "guide/configs/baseline_template.yaml",
        "guide/phases/frame.md.j2",
        "app.js/../../server.py",
        "nothing",
    ],
)
def test_only_reports_and_the_handbook_can_be_read(training, server, path):
    phases = server.project.root / "phases"
    phases.mkdir(exist_ok=True)
    (phases / "record.json").write_text("{}")
    (server.project.root / "secret.md").write_text("secret")
    if not (phases / "link.md").is_symlink():
        (phases / "link.md").symlink_to(server.project.root / "secret.md")
    status, _, body = below(server, path)
    assert status == 404
    assert b"secret" not in body
    assert b"root:" not in body


def test_a_report_is_rendered_with_its_figures_and_no_code_of_others(server):
    folder = server.project.root / "phases/02_baseline"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "curve.svg").write_text("<svg/>")
    folded = "<details>\n<summary>More</summary>\n\n| a |\n| --: |\n| <b>1</b> |\n\n</details>\n"
    text = f"# It <script>alert(1)</script>\n\n![c](curve.svg)\n\n{folded}"
    (folder / "found.md").write_text(text + "[x](javascript:alert(1))")
    status, headers, body = below(server, "report/phases/02_baseline/found.md")
    page = body.decode()
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "<h1>It &lt;script&gt;" in page
    assert '<img src="curve.svg"' in page
    assert "<summary>More</summary>" in page
    assert '<td class="right">&lt;b&gt;1&lt;/b&gt;</td>' in page
    assert 'href="javascript:' not in page
    assert "style=" not in page
    assert below(server, "report/phases/02_baseline/curve.svg")[1]["Content-Type"] == "image/svg+xml"


def test_a_page_of_the_handbook_is_rendered(server):
    status, _, body = below(server, "guide/diagnostics/loss_spike.md")
    assert status == 200
    assert b"<h1>" in body


def test_a_range_of_steps_is_answered_in_as_many_points_as_asked_for(training, server):
    found = json.loads(below(server, f"steps?run={training.run}&first=12&last=31&points=5")[2])
    assert (len(found["step"]), found["width"]) == (5, 4)
    assert found["loss"]["high"][0] == 0.5
    for number in ("x", "inf", "-inf", "nan", "1e999"):
        assert below(server, f"steps?run={training.run}&first={number}")[0] == 400
        assert below(server, f"steps?run={training.run}&last={number}")[0] == 400
    assert below(server, "steps?run=nothing")[0] == 404


def test_a_page_hears_the_whole_and_then_what_is_new(tmp_path):
    project = empty_project(tmp_path)
    training = Training(project)
    training.epoch(0.5)
    with training.living(), serving(project, training.run) as server, stream(server, training.run) as heard:
        name, shown = next(heard)
        assert (name, shown["project"], shown["chosen"]) == ("project", "invented", [training.run])
        assert [run["state"] for run in shown["runs"]] == ["running"]
        name, run = next(heard)
        assert (name, run["whole"], run["last"]) == ("run", True, 20)
        begun = time.monotonic()
        training.steps(40.0)
        news = next(value for name, value in heard if name == "run" and value["steps"]["step"])
        assert (news["steps"]["step"], news["steps"]["loss"]["high"]) == ([21], [40.0])
        assert time.monotonic() - begun < 1.0
        training.warn()
        news = next(value for name, value in heard if name == "run" and value.get("facts", {}).get("findings"))
        assert news["facts"]["findings"][0]["title"] == "Loss spike"


def test_a_page_that_chose_nothing_hears_at_once_what_it_is_to_show(training, server):
    with closing(http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)) as connection:
        connection.request("GET", f"/{server.url.split('/')[3]}/events?unasked=1")
        answer = connection.getresponse()
        lines = [answer.fp.readline().decode() for _ in range(5)]
    assert json.loads(lines[1][6:])["chosen"] == [training.run]
    assert (lines[3], json.loads(lines[4][6:])["run"]) == ("event: run\n", training.run)


def test_a_page_has_the_project_before_a_run_is_read(training, monkeypatch):
    may_read, waited = threading.Event(), list[bool]()
    monkeypatch.setattr("mltrainer.companions.monitor.run.WatchedRun.look", lambda run: waited.append(may_read.wait(3)))
    with serving(Project(training.folder.parents[2])) as server, stream(server, training.run) as heard:
        assert next(heard)[1]["chosen"] == [training.run]
        may_read.set()
        assert next(heard)[0] == "run"
    assert all(waited)


def test_a_run_that_begins_while_a_page_is_open_is_told(tmp_path):
    project = empty_project(tmp_path)
    with serving(project) as server, stream(server) as heard:
        assert next(heard)[1]["runs"] == []
        Training(project).epoch(0.5)
        assert next(value for name, value in heard if value["runs"])["runs"][0]["step"] == 20


def test_several_pages_look_on_at_once(training, server):
    with stream(server, training.run) as one, stream(server, training.run) as other:
        assert [next(one)[0], next(other)[0]] == ["project", "project"]
        assert next(one)[1] == next(other)[1]


def test_a_port_that_is_taken_is_told(server):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(MachineError, match="--port"):
            Server(server.project, server.follower, [], taken.getsockname()[1])
