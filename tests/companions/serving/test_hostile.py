"""Malformed and hostile requests: each is refused with where and what, none is a fault of the server or keeps memory."""

from __future__ import annotations

import base64
import io
import json
import zlib
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from PIL import Image
from starlette.testclient import TestClient

from mltrainer.companions.serving.guard import Limits
from tests.companions.serving.conftest import HERE, IMAGES, PICTURES, ROW, asking, deliver

LIMITS = Limits(rows=50, bytes=200_000, seconds=20)
VALUES: dict[str, Any] = {
    "a text": "old",
    "a number as text": "41",
    "nothing": "",
    "true": True,
    "a list": [1],
    "an empty list": [],
    "an object": {},
    "an object with a number": {"value": 1},
    "a huge number": 1e39,
    "a huge whole number": 10**40,
    "a number of 5,000 digits": 10**4999,
    "a long text": "9" * 10_000,
    "half of a surrogate pair": "\ud800",
    "NUL": "\0",
    "markup": "<script>alert(1)</script>",
    "SQL": "1'; DROP TABLE predictions; --",
    "a template": "{{ 7 * 7 }}",
    "a path": "../../../etc/passwd",
    "deep lists": json.loads("[" * 90 + "]" * 90),
}
FINE = {  # values that a column takes, though odd: any text is a category, and an unknown one is a missing value
    "town": {"a text", "a number as text", "nothing", "true", "a long text", "NUL", "markup", "SQL", "a template", "a path"},
    "member": {"nothing", "true"},
    "price (EUR)": {"a number as text", "nothing"},
    "joined": {"nothing"},
}
NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "01", "+1", ".5", "1.", "0x10", "1_000", "--1", "1e", "nan", "1,5")
BODIES: dict[str, bytes] = {
    "nothing": b"",
    "spaces": b"   ",
    "half an object": b'{"rows": [',
    "a list": b"[]",
    "null": b"null",
    "a text": b'"rows"',
    "a number": b"12",
    "two values": b"{} {}",
    "single quotes": b"{'rows': []}",
    "a comma too many": b'{"rows": [],}',
    "a comment": b'{"rows": [] /* all */}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"rows": []}'.encode("utf-16"),
    "Latin-1": '{"rows": ["\xe9"]}'.encode("latin-1"),
    "bytes": bytes(range(256)),
    "a pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
    "gzip": b"\x1f\x8b\x08" + zlib.compress(b"{}"),
    "deep lists": b'{"rows": ' + b"[" * 90_000 + b"]" * 90_000 + b"}",
    "deep objects": b'{"a":' * 30_000 + b"1" + b"}" * 30_000,
    "a name twice": b'{"rows": [], "rows": []}',
    "many names": json.dumps({f"name {number}": 1 for number in range(5_000)}).encode(),
    "a prototype": b'{"__proto__": {"rows": []}, "constructor": {}}',
    "XML": b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
    "a form": b"rows=1&rows=2",
    "NUL": b'{"rows": [\0]}',
    "an open text": b'{"rows": ["a',
    "a control character": b'{"rows": ["\n"]}',
    "a wrong escape": b'{"rows": ["\\x41"]}',
    "more than may be": b'{"rows": ["' + b"a" * 300_000 + b'"]}',
}
ROWS: dict[str, Any] = {
    "no row": [],
    "a text": "rows",
    "an object": {},
    "null": None,
    "a number": 1,
    "too many": [ROW] * 51,
    "a row that is none": [None],
    "a row that is a text": ["row"],
    "a row that is a list": [list(ROW.values())],
    "an empty row": [{}],
    "another column": [{**ROW, "mystery": 1}],
    "many other columns": [{**ROW, **{f"x{number}": 1 for number in range(2_000)}}],
    "the field's own name": [{**{key: ROW[key] for key in list(ROW)[1:]}, "column_0": 1}],
    "a good one and a bad one": [ROW, {**ROW, "age": "old"}],
    "another case": [{name.upper(): value for name, value in ROW.items()}],
    "nested by dots": [{"age": {"": 1}, **{key: ROW[key] for key in list(ROW)[1:]}}],
}
HEADS: dict[str, dict[str, str]] = {
    "no type": {"Content-Type": ""},
    "text": {"Content-Type": "text/plain"},
    "a form": {"Content-Type": "application/x-www-form-urlencoded"},
    "parts": {"Content-Type": "multipart/form-data; boundary=x"},
    "XML": {"Content-Type": "application/xml"},
    "nearly JSON": {"Content-Type": "application/jsonp"},
    "bytes": {"Content-Type": "application/octet-stream"},
    "a long type": {"Content-Type": "a" * 5_000},
    "another site's name": {"Host": "example.org"},
    "another site's name, looking like ours": {"Host": "127.0.0.1.example.org"},
    "no name": {"Host": ""},
    "a longer body than is allowed": {"Content-Length": "99999999999"},
}
PATHS = [
    *(
        "/nope",
        "/predict/",
        "//predict",
        "/predict/../card/x",
        "/..%2f..%2fetc/passwd",
        "/%00",
        "/card/1",
        "/docs",
        "/redoc",
        "/admin",
    ),
    *(
        "/.env",
        "/.git/config",
        "/static/../application.py",
        "/PREDICT",
        "/predict%20",
        "/a" * 1_000,
        "/%ff%fe",
        "/\u2603",
    ),
    *("/openapi.yaml", "/metrics", "/inference.json", "/model.onnx", "/web/form.html", "/continue"),
]
METHODS = [
    *((method, "/predict") for method in ("GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "FOO")),
    *((method, path) for method in ("POST", "PUT", "DELETE") for path in ("/card", "/health", "/", "/openapi.json")),
]
PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(100)).decode()


def bomb() -> str:
    """Return a picture of 40,000 times 40,000 pixels that is a few kilobytes large, as base64."""
    head = io.BytesIO()
    Image.new("1", (1, 1)).save(head, "PNG")
    data = bytearray(head.getvalue())
    data[16:24] = (40_000).to_bytes(4, "big") * 2
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    return base64.b64encode(bytes(data)).decode()


def of_table() -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Yield name, method, path and what else of requests for the table's model."""
    for column in ROW:
        for name, value in VALUES.items():
            if name not in FINE.get(column, set()):
                body = (
                    json.dumps({"rows": [ROW, {**ROW, column: value}]}).encode()
                    if name != "a number of 5,000 digits"
                    else (json.dumps({"rows": [{**ROW, column: 12345678}]}).replace("12345678", "9" * 5_000).encode())
                )
                yield f"{column} is {name}", "POST", "/predict", {"content": body}
        without = {key: value for key, value in ROW.items() if key != column}
        yield f"no {column}", "POST", "/predict", {"json": {"rows": [without]}}
    for number in NUMBERS:
        body = json.dumps({"rows": [{**ROW, "age": 41.5}]}).replace("41.5", number)
        yield f"the number {number}", "POST", "/predict", {"content": body.encode()}
    for name, content in BODIES.items():
        yield f"a body of {name}", "POST", "/predict", {"content": content}
    whole = json.dumps({"rows": [ROW]}).encode()
    for cut in range(1, len(whole), 2):
        yield f"the first {cut} bytes", "POST", "/predict", {"content": whole[:cut]}
    for place in [nr for nr, byte in enumerate(whole) if byte in b'{}[]":,']:
        yield f"without byte {place}", "POST", "/predict", {"content": whole[:place] + whole[place + 1 :]}
    for name, rows in ROWS.items():
        yield f"rows: {name}", "POST", "/predict", {"json": {"rows": rows}}
    for name, more in {"another name": {"row": [ROW]}, "one more name": {"rows": [ROW], "model": "another"}}.items():
        yield name, "POST", "/predict", {"json": more}
    for name, headers in HEADS.items():
        yield f"a head with {name}", "POST", "/predict", {"content": json.dumps({"rows": [ROW]}).encode(), "headers": headers}
    for path in PATHS:
        yield f"the address {path[:40]}", "GET", path, {}
    for method, path in METHODS:
        yield f"{method} {path}", method, path, {}


def of_others() -> dict[str, list[tuple[str, Any]]]:
    """Return rows that the model of pictures, or that of arrays, cannot read."""
    pictures = [
        "",
        "no base64!",
        "aGVsbG8=",
        PICTURE,
        PICTURE[:-5],
        bomb(),
        1,
        None,
        [],
        {},
        "=" * 99,
        "data:image/png;base64,AAAA",
    ]
    arrays = [
        0,
        None,
        "x",
        [],
        [[]],
        [[[1, 2], [3]]],
        [[[1, 2], [3, 4]], [[1, 2], [3, 4]]],
        [[[1, 2, 3], [3, 4, 5]]],
        [[[True, 2], [3, 4]]],
    ]
    arrays += [
        [[["a", 2], [3, 4]]],
        [[[None, 2], [3, 4]]],
        [[[1e39, 2], [3, 4]]],
        [[{"0": 1}, [3, 4]]],
        [[["1", "2"], ["3", "4"]]],
    ]
    return {
        "pictures": [(f"picture {number}", row) for number, row in enumerate(pictures)],
        "arrays": [(f"array {number}", row) for number, row in enumerate(arrays)],
    }


CASES = list(of_table())


def refused(client: TestClient, name: str, method: str, path: str, more: dict[str, Any]) -> str | None:
    """Send a request and return its fault: None for a refusal that says where and what."""
    headers = {"Content-Type": "application/json"} if method == "POST" else {}
    more = {**more, "headers": {**headers, **more.get("headers", {})}}
    said = client.request(method, f"{HERE}{path}" if path.startswith("/") else path, **more)
    if not 400 <= said.status_code < 500:
        return f"{name}: {said.status_code}: {said.text[:200]}"
    if method == "HEAD":
        return None
    told = said.json()
    is_told = set(told) == {"where", "what"} and all(isinstance(part, str) and part for part in told.values())
    is_plain = "Traceback" not in said.text and 'File "' not in said.text and len(said.text) < 700
    return None if is_told and is_plain else f"{name}: {said.text[:300]}"


def test_there_are_enough_hostile_requests():
    assert len(CASES) + sum(map(len, of_others().values())) >= 300
    assert len({name for name, *_ in CASES}) == len(CASES)


def test_what_is_malformed_or_hostile_is_refused_with_where_and_what(table):
    with asking(table, LIMITS) as client:
        assert not [fault for case in CASES if (fault := refused(client, *case))]
        assert client.post("/predict", json={"rows": [ROW]}).status_code == 200  # it still answers


@pytest.mark.parametrize(("kind", "spec"), [("pictures", PICTURES), ("arrays", IMAGES)])
def test_pictures_and_arrays_that_are_none_are_refused(tmp_path, kind, spec):
    with asking(deliver(tmp_path / "model", spec), LIMITS) as client:
        found = [refused(client, name, "POST", "/predict", {"json": {"rows": [row]}}) for name, row in of_others()[kind]]
    assert not [fault for fault in found if fault]


def test_where_names_the_row_and_the_column(client):
    said = client.post("/predict", json={"rows": [ROW, {**ROW, "joined": "yesterday"}]}).json()
    assert said == {"where": "rows[1].joined", "what": "expected a date, found 'yesterday'"}
    said = client.post("/predict", json={"rows": [{**ROW, "age": "old"}]}).json()
    assert said == {"where": "rows[0].age", "what": "expected a finite number, found 'old'"}


def test_a_bad_request_fails_alone(client):
    """In one batch with good ones."""
    from concurrent.futures import ThreadPoolExecutor

    def ask(number: int) -> int:
        row = {**ROW, "joined": "yesterday"} if number % 3 == 0 else ROW
        return client.post("/predict", json={"rows": [row]}).status_code

    with ThreadPoolExecutor(8) as many:
        found = list(many.map(ask, range(60)))
    assert found == [422 if number % 3 == 0 else 200 for number in range(60)]


def test_only_who_has_the_token_may_ask(table):
    token = "a-token-of-this-test"
    with asking(table, token=token) as client:
        for given in (
            None,
            "",
            token,
            f"Basic {token}",
            "Bearer",
            "Bearer ",
            f"Bearer {token}x",
            f"Bearer {token[:-1]}",
            "Bearer \xe9",
        ):
            headers = {} if given is None else {"Authorization": given.encode("latin-1")}
            said = client.post("/predict", json={"rows": [ROW]}, headers=headers)
            if given == token:  # without the word
                continue
            assert said.status_code == 401, given
            assert said.headers["www-authenticate"] == "Bearer"
            assert token not in said.text
        assert client.get("/card").status_code == client.get("/openapi.json").status_code == 401
        assert client.get("/health").status_code == client.get("/").status_code == 200
        page, form = client.get("/").text, client.get("/form", headers={"Authorization": f"Bearer {token}"}).text
        assert client.get("/form").status_code == 401
        assert all(name in form for name in ("age", "town", "north", "paid"))
        assert not any(name in page for name in ("town", "north", "paid"))
        said = client.post(
            "/predict", json={"rows": [ROW]}, headers={"Authorization": f"Bearer {token}", "Host": "models.example"}
        )
        assert said.status_code == 200


@pytest.mark.slow
@pytest.mark.long
def test_hostile_requests_keep_no_memory(table):
    process = psutil.Process()
    with asking(table, LIMITS) as client:

        def all_of_them() -> int:
            for _ in range(3):
                for case in CASES:
                    refused(client, *case)
            return int(process.memory_info().rss)

        all_of_them()
        before = all_of_them()
        after = all_of_them()
    assert after - before < 8 << 20
