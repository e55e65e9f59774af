"""Files for a team's own stack: they ask the model as it is asked, take any name, and never replace what a person wrote."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from mltrainer.checkpointing.deployment import write_checksums
from mltrainer.checkpointing.inference_script import as_text, to_matrix
from mltrainer.companions.serving.admission import Admitted, Identity, admitted
from mltrainer.companions.serving.contract import Form, form_of
from mltrainer.companions.serving.predictor import Generator
from mltrainer.companions.serving.serve import token_for
from mltrainer.companions.serving.store import Store
from mltrainer.companions.serving.templates import KINDS, Kind
from mltrainer.companions.serving.templates import rendering as writing
from mltrainer.companions.serving.templates.languages import attributes, identifier, schemas_of, sql_literal
from mltrainer.companions.serving.templates.rendering import Place, files_of, integrate
from mltrainer.errors import InputError
from mltrainer.generated_files import is_as_written, with_digest
from mltrainer.redaction import redact
from mltrainer.workspace import Project
from tests.companions.serving.conftest import (
    CHAT,
    GENERATOR,
    IMAGES,
    PICTURES,
    ROW,
    TABLE,
    VALUE,
    answering,
    asking,
    deliver,
    deliver_chat,
    deliver_generator,
    events_of,
    listening_at,
    one_by_one,
    read_one_by_one,
)
from tests.companions.serving.test_hostile import CASES, HEADS, LIMITS, of_others
from tests.refusals import refused

MODEL = Identity(
    name="Häuser",
    mltrainer="0.9.0",
    run="abc",
    weights_sha256="1" * 64,
    config_sha256=None,
    data_sha256=None,
    code_sha256=None,
    files_sha256="2" * 64,
    card_sha256=None,
    checks="held",
)
TOKEN = "a-token-of-the-test-only"
# Requests whose head is hostile, or which are larger than the smaller server of the other tests takes.
OF_THE_SERVER = ("a body of more than may be", *(f"a head with {name}" for name in HEADS))
ODD_NAMES = {
    "a b": "number",
    "a_b": "number",
    '"; drop table haeuser_predictions; --': "boolean",
    "'); drop table haeuser_predictions; --": "text",
    "größe (m²)": "decimal_comma",
    "__proto__": "number",
    "constructor": "number",
    "class": "category",
    "int": "number",
    "model_config": "number",
    "{{ 7 * 7 }}{% raw %}": "number",
    "*/ x\n// y\u2028z": "number",
    "$$ \\' ${1} `": "formatted",
    "😀": "number",
    "": "number",
}
ODD: dict[str, Any] = {
    **TABLE,
    "input": {"name": "table", "dtype": "float32", "shape": [0]},
    "columns": [
        {"name": name, "kind": kind, **({"categories": ["a'b", "</script>"]} if kind == "category" else {})}
        for name, kind in ODD_NAMES.items()
    ],
    "classes": ["no", "'); drop table x; --", 'Ünsicher "\\ 😀'],
}
SPECS: dict[Form, dict[str, Any]] = {
    "table": TABLE,
    "images": IMAGES,
    "picture": PICTURES,
    "texts": {**IMAGES, "input": {"name": "texts"}},
    "prompt": GENERATOR,
    "array": {"input": {"name": "signal"}},
    "named": {"model_inputs": ["left ear", "right"], "output": "value"},
    "raw": {"preprocess": "pre.py", "output": "targets"},
}


def files(kind: Kind, spec: dict[str, Any] = TABLE, model: Identity = MODEL) -> dict[str, str]:
    return files_of(kind, spec, model, Place(f"integrations/{kind}", "20261127000000", "3.11.7", "numpy==2.4.6\n"))


def test_an_image_of_a_model_without_a_list_of_its_files_is_refused():
    with pytest.raises(InputError, match="the model's folder has no list of its files"):
        files("docker", model=MODEL.model_copy(update={"files_sha256": None}))


# --- FastAPI ------------------------------------------------------------------------------------------


def router_of(folder: Path, spec: dict[str, Any] = TABLE) -> ModuleType:
    """Import the router as a team's app does."""
    path = folder / "haeuser_model.py"
    path.write_text(files("fastapi", spec)["haeuser_model.py"])
    found = importlib.util.spec_from_file_location(f"haeuser_model_{abs(hash(folder))}", path)
    assert found.loader is not None
    module = sys.modules[found.name] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TestClient]:
    """Make a client of a team's own app with the router in it."""

    def make(url: str | None, token: str = TOKEN, spec: dict[str, Any] = TABLE) -> TestClient:
        team = FastAPI()
        team.include_router(router_of(tmp_path, spec).router)
        monkeypatch.setenv("HAEUSER_MODEL_TOKEN", token)
        monkeypatch.delenv("HAEUSER_MODEL_URL", raising=False)
        if url is not None:
            monkeypatch.setenv("HAEUSER_MODEL_URL", url)
        return TestClient(team, raise_server_exceptions=False)

    return make


@pytest.mark.slow
def test_an_app_with_the_router_answers_as_the_models_server_does(table, tmp_path, app):
    rows = [ROW, {**ROW, "age": None, "member": "yes"}, {**ROW, "age": 3, "town": 3}]
    with asking(table) as direct:
        expected = direct.post("/predict", json={"rows": rows}).json()["answers"]
    with listening_at(table, TOKEN, Store(f"sqlite:///{tmp_path / 'kept.sqlite'}")) as url:
        client = app(url)
        said = client.post("/haeuser/predict", json={"rows": rows})
        truth = {"labels": [{"id": said.json()["id"], "row": 1, "label": "yes"}]}
        assert client.post("/haeuser/labels", json=truth).json() == {"kept": 1}
    assert said.json()["answers"] == expected
    assert said.json()["model"]["weights_sha256"] == "1" * 64


def test_what_the_model_cannot_read_is_told_with_its_place(table, app):
    with listening_at(table, TOKEN) as url:
        client = app(url)
        for row in ({**ROW, "age": "old"}, {**ROW, "age": True}, {**ROW, "mystery": 1}, {"age": 1}):
            assert client.post("/haeuser/predict", json={"rows": [row]}).status_code == 422
        said = client.post("/haeuser/predict", json={"rows": [ROW, {**ROW, "joined": "x"}]})
    assert (said.status_code, said.json()["detail"]["where"]) == (422, "rows[1].joined")


def faults_of(said: httpx.Response, direct: httpx.Response) -> str | None:
    """Return what an app's refusal lacks beside the one of the model's server: None where both have the same status and place."""
    if 400 <= said.status_code < 500 and len(said.text) < 900:
        told, expected = said.json()["detail"], direct.json()
        if set(told) == {"where", "what"} and told["what"] and told["where"] == expected["where"]:
            return None if said.status_code == direct.status_code else "another status"
    return f"{said.status_code} {said.text[:200]}, and the model's server: {direct.status_code} {direct.text[:200]}"


@pytest.mark.slow
def test_what_is_malformed_or_hostile_is_refused_with_the_status_and_place_of_the_models_server(table, app):
    as_json = {"headers": {"Content-Type": "application/json"}}
    cases = [(name, more | as_json) for name, method, path, more in CASES if (method, path) == ("POST", "/predict")]
    cases = [(name, more) for name, more in cases if name not in OF_THE_SERVER]
    assert len(cases) > 200
    with asking(table, LIMITS) as direct, listening_at(table, TOKEN, limits=LIMITS) as url:
        client = app(url)
        found = {
            name: faults_of(client.post("/haeuser/predict", **more), direct.post("/predict", **more)) for name, more in cases
        }
        assert client.post("/haeuser/predict", json={"rows": [ROW]}).status_code == 200  # it still answers
    assert not {name: fault for name, fault in found.items() if fault}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "spec"), [("pictures", PICTURES), ("arrays", IMAGES)])
def test_pictures_and_lists_of_another_length_are_refused_as_by_the_models_server(tmp_path, app, kind, spec):
    folder = deliver(tmp_path / "model", spec)
    with asking(folder, LIMITS) as direct, listening_at(folder, TOKEN, limits=LIMITS) as url:
        client = app(url, spec=spec)
        for name, row in of_others()[kind]:
            body = {"json": {"rows": [row]}}
            said = client.post("/haeuser/predict", **body)
            assert 400 <= said.status_code < 500, name
            assert set(said.json()["detail"]) == {"where", "what"}, name
            assert said.status_code == direct.post("/predict", **body).status_code, name


@pytest.mark.parametrize("comes_in_parts", [False, True])
def test_a_huge_body_is_refused_before_the_model_is_asked(app, comes_in_parts):
    parts = (b"a" * (1 << 20) for _ in range(9))
    said = app("http://127.0.0.1:9").post(
        "/haeuser/predict",
        content=parts if comes_in_parts else b"".join(parts),
        headers={"Content-Type": "application/json"},
    )
    assert said.status_code == 413
    assert said.json()["detail"] == {"where": "body", "what": "expected at most 8388608 bytes, found more"}


def test_a_request_of_another_type_is_refused(app):
    for headers in ({"Content-Type": "text/plain"}, {}):
        said = app("http://127.0.0.1:9").post("/haeuser/predict", content=json.dumps({"rows": [ROW]}), headers=headers)
        assert (said.status_code, said.json()["detail"]["where"]) == (422, "body")


def of_server(what: str) -> dict[str, str]:
    return {"where": "server", "what": what}


async def another_program(scope: Any, receive: Any, send: Any) -> None:
    """Say in HTML that nothing is here, as a proxy does."""
    if scope["type"] == "lifespan":
        for word in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{word}.complete"})
        return
    await send({"type": "http.response.start", "status": 503, "headers": []})
    await send({"type": "http.response.body", "body": b"<html>"})


@pytest.mark.slow
def test_a_fault_of_the_models_server_is_told_without_its_token(table, app):
    with listening_at(table, TOKEN) as url:
        said = app(url, token="another-token-than-that").post("/haeuser/predict", json={"rows": [ROW]})
    assert (said.status_code, said.json()["detail"]) == (502, of_server("the model's server does not take HAEUSER_MODEL_TOKEN"))
    for gone, told in ((url, "the model's server does not answer"), (None, "HAEUSER_MODEL_URL is not set")):
        said = app(gone).post("/haeuser/predict", json={"rows": [ROW]})
        assert (said.status_code, said.json()["detail"]) == (503, of_server(told))
    with answering(another_program) as url:
        said = app(url).post("/haeuser/predict", json={"rows": [ROW]})
    assert (said.status_code, said.json()["detail"]) == (502, of_server("the model's server answered with 503"))


def test_columns_of_any_name_reach_the_model_under_it(tmp_path, app):
    row = {name: {"boolean": True, "number": 1.5, "formatted": "1.5"}.get(kind, "1,5") for name, kind in ODD_NAMES.items()}
    width = to_matrix([{name: as_text(value) for name, value in row.items()}], ODD).shape[1]
    given = {**ODD, "input": {**ODD["input"], "shape": [width]}}
    with listening_at(deliver(tmp_path / "odd", given), TOKEN) as url:
        client = app(url, spec=ODD)
        said = client.post("/haeuser/predict", json={"rows": [row]})
    assert said.status_code == 200, said.text
    assert set(said.json()["answers"][0]["probabilities"]) == set(ODD["classes"])
    described = client.get("/openapi.json").json()["components"]["schemas"]["Row"]
    assert set(described["properties"]) == set(ODD_NAMES)


# --- FastAPI: continuations, part by part ---


@pytest.mark.slow
def test_a_continuation_is_passed_on_while_it_is_made(tmp_path, app, monkeypatch):
    wanted = one_by_one(monkeypatch)
    with listening_at(deliver_generator(tmp_path / "model"), TOKEN) as url, answering(app(url, spec=GENERATOR).app) as team:
        assert read_one_by_one(f"{team}haeuser/continue", wanted) == "cda"


def test_a_prompt_that_cannot_be_continued_is_refused_with_its_place(tmp_path, app):
    with listening_at(deliver_generator(tmp_path / "model"), TOKEN) as url:
        client = app(url, spec=GENERATOR)
        for prompt, where in (
            ({"prompt": "ab", "tokens": 0}, "tokens"),
            ({"prompt": "ab", "tokens": "3"}, "tokens"),
            ({"prompt": 1}, "prompt"),
            ({"tokens": 3}, "prompt"),
            ({"prompt": ""}, "rows"),
        ):
            said = client.post("/haeuser/continue", json=prompt)
            assert (said.status_code, said.json()["detail"]["where"]) == (422, where)
        said = app(url, "another-token-than-that", GENERATOR).post("/haeuser/continue", json={"prompt": "ab"})
    assert said.status_code == 502


async def breaks_off(scope: Any, receive: Any, send: Any) -> None:
    """Send an event and a half."""
    if scope["type"] == "lifespan":
        await another_program(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    await send({"type": "http.response.body", "body": b'data: {"part": "c"}\n\ndata: {"pa', "more_body": True})
    raise ConnectionAbortedError


def test_a_continuation_that_breaks_off_ends_with_the_fault(app):
    with answering(breaks_off) as url:
        said = app(url, spec=GENERATOR).post("/haeuser/continue", json={"prompt": "ab"})
    assert list(events_of(said)) == [{"part": "c"}, of_server("the model's server does not answer")]


@pytest.mark.slow
def test_no_token_is_made_for_a_client_that_left(tmp_path, app, monkeypatch):
    made: list[Any] = []
    work = Generator.work

    def counted(model: Generator, windows: Any) -> Any:
        made.append(time.sleep(0.01))
        return work(model, windows)

    monkeypatch.setattr(Generator, "work", counted)
    with listening_at(deliver_generator(tmp_path / "model"), TOKEN) as url, answering(app(url, spec=GENERATOR).app) as team:
        with httpx.stream("POST", f"{team}haeuser/continue", json={"prompt": "ab", "tokens": 4096}, timeout=30) as said:
            next(events_of(said))
        before = -1
        while len(made) != before:
            before = len(made)
            time.sleep(0.3)
    assert len(made) < 2000


def test_a_conversation_reaches_the_model_and_its_answer_comes_back(tmp_path, app):
    pytest.importorskip("transformers")
    with listening_at(deliver_chat(tmp_path / "model"), TOKEN) as url:
        client = app(url, spec=CHAT)
        asked = {"messages": [{"role": "user", "content": "a"}]}
        assert [*events_of(client.post("/haeuser/continue", json=asked))][-1]["answers"] == [{"continuation": "da"}]
        assert client.post("/haeuser/predict", json={"rows": [asked]}).json()["answers"] == [{"continuation": "da"}]
        refused = client.post("/haeuser/continue", json={**asked, "prompt": "a"})
        assert (refused.status_code, refused.json()["detail"]["where"]) == (422, "body")
        refused = client.post("/haeuser/continue", json={"messages": [{"role": "user"}]})
        assert (refused.status_code, refused.json()["detail"]["where"]) == (422, "messages[0].content")


@pytest.mark.parametrize("form", SPECS)
def test_a_router_of_each_form_of_rows_is_imported(form, tmp_path):
    assert form_of(SPECS[form]) == form
    paths = {route.path for route in router_of(tmp_path, SPECS[form]).router.routes}
    assert paths == {"/haeuser/predict", "/haeuser/labels", *(["/haeuser/continue"] if form == "prompt" else [])}


def test_numbers_of_targets_have_their_types():
    text = files("fastapi", VALUE)["haeuser_model.py"]
    assert "    prediction: int | float | None\n    interval: list[int | float | None]\n" in text
    assert "    label: int | float\n" in text


# --- names --------------------------------------------------------------------------------------------


def test_attributes_are_names_that_nothing_else_has():
    found = attributes([*ODD_NAMES, "str", "copy", "x", "x_2", "123", "Any"])
    assert len(set(found.values())) == len(found)
    assert all(re.fullmatch("[a-z][a-z0-9_]*", name) for name in found.values())
    assert not set(found.values()) & {"int", "str", "class", "copy", "model_config"}


@pytest.mark.parametrize(
    ("text", "name"),
    [("Häuser Süd", "haeuser_sued"), ("2nd model", "x_2nd_model"), ("日本", "x"), ("a" * 99, "a" * 40), ("../x", "x")],
)
def test_a_projects_name_becomes_one_that_is_safe_everywhere(text, name):
    assert identifier(text) == name


def test_nul_is_refused_where_postgresql_cannot_hold_it():
    with pytest.raises(InputError, match="NUL"):
        sql_literal("a\0b")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", [ODD, *SPECS.values()], ids=["odd", *SPECS])
def test_the_head_of_each_file_says_the_command_and_the_model_on_lines_of_its_own(kind, spec):
    model = MODEL.model_copy(update={"name": 'x"\nplanted\u2028; drop table y; --', "unchecked": ["a\nb"]})
    for name, text in files(kind, spec, model).items():
        head = next(line for line in text.splitlines() if "mltrainer integrate" in line)
        assert f"`mltrainer integrate {kind}`" in head, name
        assert f"weights_sha256: {'1' * 64}" in text
        assert "Unchecked: a?b" in text
        assert not re.search(r"^(planted|; drop)", text, re.MULTILINE)
        assert redact(text) == text, "nothing in it looks like a secret"
        assert is_as_written(with_digest(text).encode())


def test_text_of_the_models_stands_in_typescript_in_one_file_as_values():
    found = files("nextjs", ODD, MODEL.model_copy(update={"name": "</script>${x}`"}))
    with_names = [name for name, text in found.items() if "drop table" in text]
    assert with_names == ["lib/model.ts"]
    assert found["lib/model.ts"].isascii()
    rows = re.findall(r"^  (\{.*\}),$", found["lib/model.ts"], re.MULTILINE)
    assert [json.loads(row)["key"] for row in rows] == list(ODD_NAMES)


def test_the_placeholder_of_a_token_is_told_and_not_taken(monkeypatch):
    for kind, env in (("fastapi", "dev"), ("nextjs", "dev"), ("docker", "prod")):
        assert f"TOKEN=haeuser_{env}_your_key_here\n" in files(kind)[".env.example"]
    monkeypatch.setenv("MLTRAINER_SERVE_TOKEN", "haeuser_prod_your_key_here")
    with pytest.raises(InputError, match="placeholder"):
        token_for("0.0.0.0")


def test_the_schemas_are_those_of_the_server(table):
    with asking(table) as client:
        served = client.get("/openapi.json").json()["components"]["schemas"]
    ours = schemas_of(TABLE)
    for name in ("Row", "Request", "Answer", "Response", "Identity", "Fault"):
        assert served[name]["properties"].keys() == ours[name]["properties"].keys()
    assert served["Row"]["properties"] == ours["Row"]["properties"]


# --- Docker -------------------------------------------------------------------------------------------


def test_the_image_runs_without_root_and_installs_mltrainer_from_a_file():
    lines = [line for line in files("docker")["Dockerfile"].splitlines() if line and not line.startswith("#")]
    (user,) = [number for number, line in enumerate(lines) if line.startswith("USER ")]
    assert lines[user] == "USER 10001:10001"
    assert not [line for line in lines[user:] if line.startswith(("RUN", "COPY", "ADD"))]
    assert lines[-1].startswith('ENTRYPOINT ["mltrainer", "serve"')
    assert any(line.startswith("HEALTHCHECK") for line in lines)
    assert re.findall(r"pip install.*mltrainer.*", "\n".join(lines)) == [
        'pip install --no-cache-dir --constraint requirements.txt "mltrainer[onnx,serve] @ file://$wheel"'
    ]


def test_an_image_is_built_of_the_delivered_model_alone(tmp_path):
    folder = deliver(tmp_path / "final_model", TABLE)
    text = files("docker", model=admitted(folder, allow_unchecked=True).identity)["Dockerfile"]
    (check,) = re.findall(r"^RUN (test .*)$", text, re.MULTILINE)

    def code() -> int:
        return subprocess.run(["sh", "-c", check], cwd=folder, capture_output=True, check=False).returncode

    assert code() == 0
    (folder / "model.onnx").write_bytes(b"another")
    assert code() != 0
    write_checksums(folder)
    assert code() != 0


def test_all_that_is_copied_and_nothing_else_reaches_the_builder():
    found = files("docker")
    copied = re.findall(r"^COPY (?:--\S+ )?(\S+?)/? ", found["Dockerfile"], re.MULTILINE)
    ignored = [line for line in found["Dockerfile.dockerignore"].splitlines() if not line.startswith("#")]
    assert ignored[0] == "*"
    assert sorted(ignored[1:]) == sorted(f"!{path}" for path in copied)


# --- writing ------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose model may be taken."""
    found = Project(tmp_path / "houses")
    found.root.mkdir()
    monkeypatch.setattr(writing, "admitted", lambda root, _: Admitted(root, TABLE, MODEL, found, ""))
    return found


def test_a_file_that_a_person_changed_is_not_overwritten_and_no_other_is_written(project):
    first, second = integrate(project, "fastapi")
    assert integrate(project, "fastapi") == [first, second], "as they were written, they are written anew"
    router, env = project.root / first, project.root / second
    router.write_text(router.read_text().replace("SECONDS = 40.0", "SECONDS = 20.0"))
    env.unlink()
    with refused("made or changed by a person", where=first):
        integrate(project, "fastapi")
    assert not env.exists()
    assert "SECONDS = 20.0" in router.read_text()
    integrate(project, "fastapi", force=True)
    assert "SECONDS = 40.0" in router.read_text()


def test_a_file_without_our_head_is_a_persons(project):
    path = project.root / "integrations/fastapi/.env.example"
    path.parent.mkdir(parents=True)
    path.write_text("SECRET=mine\n")
    with pytest.raises(InputError, match="not overwritten"):
        integrate(project, "fastapi")
    assert path.read_text() == "SECRET=mine\n"


@pytest.mark.parametrize("folder", ["..", "../elsewhere", "/tmp/x", ".", "a/../..", "a b", "a\nRUN x", "$(x)"])
def test_files_go_into_the_project_alone(project, folder):
    with pytest.raises(InputError, match="expected"):
        integrate(project, "docker", folder)
    assert list(project.root.iterdir()) == []


def test_no_file_is_written_through_a_link(project, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (project.root / "integrations").symlink_to(outside)
    with pytest.raises(InputError, match="within the project"):
        integrate(project, "fastapi")
    (project.root / "mine").mkdir()
    (project.root / "mine/.env.example").symlink_to(outside / "env")
    with pytest.raises(InputError, match="is a link"):
        integrate(project, "fastapi", "mine", force=True)
    assert list(outside.iterdir()) == []


def test_a_migration_is_written_once_for_a_model(project):
    (path,) = integrate(project, "supabase")
    assert re.fullmatch(r"integrations/supabase/migrations/\d{14}_haeuser_1{12}\.sql", path)
    earlier = (project.root / path).rename(project.root / path.replace(path[33:47], "20200101000000"))
    assert integrate(project, "supabase") == [project.relative(earlier)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_finished_project_is_integrated_and_its_gates_still_hold(digits, cli, kind):
    said = cli("integrate", kind, "--project", digits.root, code=0)
    written = said.out.splitlines()
    assert all(path.startswith(f"integrations/{kind}/") and (digits.root / path).is_file() for path in written)
    cli("gate", "check", "finalization", "--project", digits.root, code=0)
    if kind == "docker":
        pins = (digits.root / "integrations/docker/requirements.txt").read_text()
        assert re.search(r"^numpy==", pins, re.MULTILINE)
        assert not re.search(r"^mltrainer", pins, re.MULTILINE)


@pytest.mark.slow
def test_a_model_whose_gates_do_not_hold_is_not_integrated(digits, cli):
    config = digits.root / "phases/01_planning/training_config.yaml"
    config.write_text(config.read_text().replace("epochs: 12", "epochs: 13"))
    said = cli("integrate", "fastapi", "--project", digits.root)
    assert (said.code, (digits.root / "integrations").exists()) == (4, False)
    assert "--allow-unchecked" in said.err
    cli("integrate", "fastapi", "--allow-unchecked", "--project", digits.root, code=0)
    assert "# Unchecked: the gate of planning is stale" in (digits.root / "integrations/fastapi/digits_model.py").read_text()


@pytest.mark.slow
def test_integrating_loads_no_torch():
    serving = "mltrainer.companions.serving"
    code = f"import sys, {serving}.integrate, {serving}.templates.rendering; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
