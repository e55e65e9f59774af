"""Small models as they are delivered, made without a training, and clients of their servers."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool
from starlette.testclient import TestClient
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from mltrainer.checkpointing.deployment import SCRIPT, write_checksums
from mltrainer.companions.serving.admission import admitted
from mltrainer.companions.serving.application import Service, application
from mltrainer.companions.serving.guard import Limits
from mltrainer.companions.serving.keeping import Keeping
from mltrainer.companions.serving.predictor import Generator
from mltrainer.companions.serving.serve import loaded
from mltrainer.companions.serving.server import address_of, listening, server_of
from mltrainer.companions.serving.store import Store

HERE = "http://127.0.0.1"
TABLE: dict[str, Any] = {
    "kind": "tabular_classification",
    "input": {"name": "table", "dtype": "float32", "shape": [5]},
    "columns": [
        {"name": "age", "kind": "number"},
        {"name": "price (EUR)", "kind": "decimal_comma"},
        {"name": "town", "kind": "category", "categories": ["north", "south"]},
        {"name": "joined", "kind": "date", "parts": ["days"]},
        {"name": "member", "kind": "boolean"},
    ],
    "missing": ["", "NA"],
    "target": "paid",
    "output": "logits",
    "classes": ["no", "yes"],
}
ROW: dict[str, Any] = {"age": 41.5, "price (EUR)": "1.200,50", "town": "north", "joined": "2024-02-03", "member": True}
IMAGES: dict[str, Any] = {
    "kind": "image_classification",
    "input": {"name": "images", "dtype": "float32", "shape": [1, 2, 2]},
    "output": "logits",
    "classes": ["dark", "bright"],
}
PICTURES: dict[str, Any] = {
    "kind": "image_classification",
    "input": {"name": "images", "dtype": "uint8", "shape": [1, 4, 4], "picture": {"size": [4, 4], "fit": "resize"}},
    "output": "logits",
    "classes": ["dark", "bright"],
}
VALUE: dict[str, Any] = {**TABLE, "output": "value", "classes": None, "conformal": {"threshold": 2.0, "score": "absolute"}}


def linear(path: Path, shape: tuple[int, ...], outputs: int, dtype: int = TensorProto.FLOAT) -> None:
    """Write a model of one layer, whose weights are drawn; missing values count as 0."""
    width, random = int(np.prod(shape)), np.random.default_rng(3)
    weights = numpy_helper.from_array((random.normal(size=(width, outputs)) / 20_000).astype(np.float32), "w")
    zero = numpy_helper.from_array(np.zeros((), np.float32), "zero")
    size = numpy_helper.from_array(np.array([-1, width], np.int64), "size")
    nodes = [
        helper.make_node("Cast", ["input"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("IsNaN", ["real"], ["gone"]),
        helper.make_node("Where", ["gone", "zero", "real"], ["filled"]),
        helper.make_node("Reshape", ["filled", "size"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["output"]),
    ]
    given = helper.make_tensor_value_info("input", dtype, ["batch", *shape])
    found = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", outputs])
    graph = helper.make_graph(nodes, "linear", [given], [found], [weights, zero, size])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), str(path))


def deliver(folder: Path, spec: dict[str, Any]) -> Path:
    """Make a folder as finalization delivers it, for what its `inference.json` says."""
    folder.mkdir()
    shape = tuple(spec["input"]["shape"])
    dtype = TensorProto.UINT8 if spec["input"].get("dtype") == "uint8" else TensorProto.FLOAT
    linear(folder / "model.onnx", shape, len(spec.get("classes") or [0]), dtype)
    (folder / "inference.json").write_text(json.dumps(spec))
    (folder / "inference.py").write_bytes(SCRIPT.read_bytes())
    (folder / "manifest.json").write_text(json.dumps({"mltrainer": "0.9.0", "run": "abc", "weights_sha256": "1" * 64}))
    write_checksums(folder)
    (folder / "README.md").write_text("# A model\n")
    return folder


GENERATOR: dict[str, Any] = {
    "kind": "text_generation",
    "input": {"name": "prompt", "dtype": "int64", "shape": [8]},
    "tokenizer": "tokenizer.json",
}


CHAT: dict[str, Any] = {
    **GENERATOR,
    "conversations": {"template": "chat_template.jinja", "variables": [["bar", "b"]], "ends": ["b"]},
}
CHAT_TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'nobody' %}{{ raise_exception('nobody speaks') }}{% endif %}"
    "{{ m.content }}{{ bar }}{% endfor %}{% if add_generation_prompt %}c{% endif %}"
)


def deliver_chat(folder: Path, template: str = CHAT_TEMPLATE, spec: dict[str, Any] = CHAT) -> Path:
    """Make a folder of a model whose template ends the beginning of an answer with c, and whose answers end at b."""
    deliver_generator(folder)
    (folder / "chat_template.jinja").write_text(template)
    (folder / "inference.json").write_text(json.dumps(spec))
    write_checksums(folder)
    return folder


def deliver_generator(folder: Path) -> Path:
    """Make a folder of a model that continues texts of the letters a to d: each is followed by the next one."""
    folder.mkdir()
    letters = {letter: number for number, letter in enumerate("abcd")}
    tokenizer = Tokenizer(models.WordLevel(letters, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))
    scores = numpy_helper.from_array(np.roll(np.eye(4, dtype=np.float32), 1, axis=1) * 100, "scores")
    nodes = [helper.make_node("Gather", ["scores", "input"], ["output"])]
    given = helper.make_tensor_value_info("input", TensorProto.INT64, ["batch", 8])
    found = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 8, 4])
    graph = helper.make_graph(nodes, "next", [given], [found], [scores])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), str(folder / "model.onnx"))
    (folder / "inference.json").write_text(json.dumps(GENERATOR))
    (folder / "manifest.json").write_text(json.dumps({"mltrainer": "0.9.0", "run": "abc", "weights_sha256": "1" * 64}))
    write_checksums(folder)
    return folder


def one_by_one(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Have generators make one token for each time that what is returned is released, and one at first."""
    wanted, work = threading.Semaphore(1), Generator.work

    def waits(model: Generator, windows: Any) -> Any:
        assert wanted.acquire(timeout=20)
        return work(model, windows)

    monkeypatch.setattr(Generator, "work", waits)
    return wanted


def events_of(said: httpx.Response) -> Iterator[Any]:
    """Yield the values of server-sent events."""
    return (json.loads(line.removeprefix("data: ")) for line in said.iter_lines() if line)


def read_one_by_one(url: str, wanted: threading.Semaphore) -> str:
    """Return a continuation by three tokens, each of which is made once the one before it was received."""
    with httpx.stream("POST", url, json={"prompt": "ab", "tokens": 3}, timeout=60) as said:
        assert said.headers["content-type"].startswith("text/event-stream")
        text = ""
        for event in events_of(said):
            if "part" not in event:
                assert event["answers"] == [{"continuation": text}]
                return text
            text += event["part"]
            wanted.release()
    raise AssertionError(f"the answer broke off after {text!r}")


@contextlib.contextmanager
def asking(
    folder: Path,
    limits: Limits | None = None,
    token: str | None = None,
    unchecked: bool = True,
    store: Store | None = None,
    with_inputs: bool = False,
) -> Iterator[TestClient]:
    """Yield a client of a model's server, in this process."""
    found = admitted(folder, allow_unchecked=unchecked)
    keeping = Keeping(store, with_inputs) if store else None
    app = application(Service(found, loaded(found), limits or Limits(), keeping), token)
    with TestClient(app, base_url=HERE, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a table's rows; not to be changed."""
    return deliver(tmp_path_factory.mktemp("models") / "table", TABLE)


@pytest.fixture
def client(table: Path) -> Iterator[TestClient]:
    """A client of the table's model."""
    with asking(table) as found:
        yield found


@contextlib.contextmanager
def listening_at(
    folder: Path, token: str | None = None, store: Store | None = None, limits: Limits | None = None
) -> Iterator[str]:
    """Yield the address of a model's server that others reach over HTTP."""
    found = admitted(folder, allow_unchecked=True)
    keeping = Keeping(store, with_inputs=False) if store else None
    with answering(application(Service(found, loaded(found), limits or Limits(), keeping), token)) as url:
        yield url


@contextlib.contextmanager
def answering(app: Callable[..., Any]) -> Iterator[str]:
    """Yield the address of an application that others reach over HTTP."""
    server = server_of(app)
    with listening("127.0.0.1", 0) as listens:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listens]})
        thread.start()
        try:
            yield address_of(listens)
        finally:
            server.should_exit = True
            thread.join(20)


@pytest.fixture
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a PostgreSQL server that ends with the test."""
    pytest.importorskip("psycopg")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found or os.geteuid() != 0:
        pytest.skip("PostgreSQL is not installed here, or this user is not root: make test-services")
    folder, programs = Path(f"/tmp/served-{os.getpid()}"), found[-1].parent
    folder.mkdir()
    os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
    as_postgres: dict[str, Any] = {"user": "postgres", "group": "postgres", "cwd": folder, "stdout": subprocess.DEVNULL}
    subprocess.run([programs / "initdb", "-D", folder / "data", "-A", "trust"], check=True, **as_postgres)
    start = [programs / "postgres", "-D", folder / "data", "-k", folder, "-c", "listen_addresses="]
    process = subprocess.Popen(start, stderr=subprocess.DEVNULL, **as_postgres)
    url = f"postgresql+psycopg://postgres@/postgres?host={folder}"
    try:
        for _ in range(100):
            try:
                create_engine(url, poolclass=NullPool).connect().close()
                break
            except OperationalError:
                time.sleep(0.1)
        yield url
    finally:
        process.send_signal(signal.SIGINT)  # the fast end: the other one waits for open connections
        process.wait(20)
        subprocess.run(["rm", "-r", folder], check=True)
