"""What a trusted key signed is accepted by others' verifiers and by ours; each way to break it is refused, and named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mltrainer.companions.proof.signatures import sign
from mltrainer.companions.proof.signatures.envelopes import BUNDLE_FILE, PAYLOAD_TYPE, bundle
from mltrainer.companions.proof.signatures.keys import PASSWORD, signing_key, trusted_keys
from mltrainer.companions.proof.signatures.model import model_signature
from mltrainer.companions.proof.signatures.statements import list_of, signed_statements, verification_summary
from mltrainer.exporters.job import _remove_earlier
from mltrainer.records.verdict import verdict_of
from mltrainer.workspace import MODEL_SIGNATURE, PHASES, Project, pretty_json, read_json, seal
from tests.conftest import Cli
from tests.gates.evidence import forge
from tests.projects import as_cloned, kept, recorded

NEEDED = "pip install 'mltrainer[sign]'"
pytest.importorskip("model_signing", reason=NEEDED)
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization", reason=NEEDED)
ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec", reason=NEEDED)
dsse = pytest.importorskip("securesystemslib.dsse", reason=NEEDED)
signers = pytest.importorskip("securesystemslib.signer", reason=NEEDED)

FINAL = "phases/05_finalization"
MODEL = f"{FINAL}/final_model"
SCHEMAS = Path(__file__).parents[3] / "docs/predicates"


# --- keys and projects ----------------------------------------------------------------------------


def write_key(path: Path, key: Any = None, password: bytes | None = None) -> Path:
    """Write a private key as PEM, its owner's alone, and its public key beside it as `.pub`; return the private one's path."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pem)
    path.chmod(0o600)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    path.with_suffix(".pub").write_bytes(public)
    return path


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the author's key and a stranger's."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("author", "stranger"):
        write_key(folder / name / "key.pem")
    return folder


@pytest.fixture(scope="module")
def signed_once(digits_once: Path, keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished digits project without its runs, signed by the author; not to be changed."""
    folder = tmp_path_factory.mktemp("signed") / "digits"
    shutil.copytree(digits_once, folder, ignore=shutil.ignore_patterns(".git", ".mltrainer"))
    sign.signed(Project(folder), signing_key(keys / "author/key.pem"))
    return folder


@pytest.fixture
def project(signed_once: Path, tmp_path: Path) -> Project:
    """A copy of the signed project, for a test to break."""
    return Project(Path(shutil.copytree(signed_once, tmp_path / "digits")))


def lines(project: Project) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (project.root / BUNDLE_FILE).read_text().splitlines()]


def write_lines(project: Project, rows: list[Any]) -> None:
    (project.root / BUNDLE_FILE).write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def statements(project: Project) -> list[dict[str, Any]]:
    return [json.loads(dsse.Envelope.from_dict(row).payload) for row in lines(project)]


def model_verifier(project: Project, key: Path) -> subprocess.CompletedProcess[str]:
    """Return what the command line of OpenSSF model signing says of the delivered model."""
    options = ("--signature", project.root / MODEL / MODEL_SIGNATURE, "--public_key", key)
    command = [sys.executable, "-m", "model_signing", "verify", "key", project.root / MODEL, *options]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True)


# --- accepted -------------------------------------------------------------------------------------


def test_a_signed_project_is_trusted_with_the_files_and_in_a_clone_without_weights(project, keys, cli, tmp_path):
    trust = ("--trust", keys / "author/key.pub")
    cli("gate", "check", *trust, "--project", project.root, code=0, out="all gates hold, signed by a trusted key")
    cli("gate", "check", *trust, "--projects", project.root, code=0, out="1 project: 1 holds")
    clone = as_cloned(project.root, tmp_path / "clone")
    cli("gate", "check", *trust, "--project", clone.root, code=0, out="signed by a trusted key")


def test_one_of_a_folder_of_keys_is_enough(project, keys, cli, tmp_path):
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "README").write_text("our keys")
    for name in ("stranger", "author"):
        shutil.copy(keys / name / "key.pub", folder / f"{name}.pub")
    cli("gate", "check", "--trust", folder, "--project", project.root, code=0)


@pytest.mark.slow
def test_model_signing_verifies_the_model_that_we_signed(project, keys):
    assert model_verifier(project, keys / "author/key.pub").returncode == 0
    assert model_verifier(project, keys / "stranger/key.pub").returncode != 0
    weights = project.root / MODEL / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    assert "Hash mismatch for 'model.safetensors'" in model_verifier(project, keys / "author/key.pub").stderr


def test_securesystemslib_verifies_each_envelope(project, keys):
    public = serialization.load_pem_public_key((keys / "author/key.pub").read_bytes())
    key = signers.SSlibKey.from_crypto(public)
    found = [dsse.Envelope.from_dict(row) for row in lines(project)]
    assert [list(envelope.verify([key], 1)) for envelope in found] == [[key.keyid]] * (len(PHASES) + 2)
    assert {envelope.payload_type for envelope in found} == {PAYLOAD_TYPE}


def test_the_gate_of_finalization_is_signed_with_each_file_of_the_model_among_its_subjects(project):
    (final,) = (one for one in statements(project) if one["predicate"].get("phase") == "finalization")
    named = {row["name"]: row["digest"]["sha256"] for row in final["subject"]}
    files = {path.relative_to(project.root).as_posix() for path in (project.root / MODEL).iterdir()}
    assert files - {f"{MODEL}/{MODEL_SIGNATURE}"} == {name for name in named if name.startswith(MODEL)}
    gate = read_json(project.root / FINAL / "gate.json")
    assert final["predicate"] == gate["predicate"]
    assert {row["name"] for row in gate["subject"]} < {*named}


@pytest.mark.slow
def test_predicates_fit_the_published_schemas_and_ours(project):
    jsonschema = pytest.importorskip("jsonschema")
    json_format = pytest.importorskip("google.protobuf.json_format")
    slsa = pytest.importorskip("in_toto_attestation.predicates.provenance.v1.provenance_pb2")
    statement = pytest.importorskip("in_toto_attestation.v1.statement")
    for one in statements(project):
        statement.Statement.copy_from_pb(json_format.ParseDict(one, statement.spb.Statement())).validate()
        if one["predicateType"] == "https://slsa.dev/provenance/v1":
            parsed = json_format.ParseDict(one["predicate"], slsa.Provenance())  # an unknown field is an error
            assert parsed.build_definition.build_type == "urn:mltrainer:training:v1"
            assert parsed.build_definition.external_parameters["config"]["seed"] == 42
            assert parsed.run_details.builder.id
            schema = read_json(SCHEMAS / "training.v1.json")
        else:
            is_list = one["predicateType"] == "urn:mltrainer:signed:v1"
            schema = read_json(SCHEMAS / f"{'signed' if is_list else 'gate'}.v1.json")
        jsonschema.validate(one["predicate"], schema)


def test_signing_again_replaces_what_was_signed(project, keys, cli):
    cli(
        "sign",
        "--key",
        keys / "stranger/key.pem",
        "--project",
        project.root,
        code=0,
        out="signed 5 gates, the model's origin and the model with key",
    )
    cli("gate", "check", "--trust", keys / "stranger/key.pub", "--project", project.root, code=0)
    assert len(lines(project)) == len(PHASES) + 2
    said = cli("sign", "--key", keys / "author/key.pem", "--project", project.root, "--json", code=0).json
    assert said["files"] == [BUNDLE_FILE, f"{MODEL}/{MODEL_SIGNATURE}"]
    assert said["key"] == lines(project)[0]["signatures"][0]["keyid"]


@pytest.mark.parametrize("curve", ["SECP384R1", "SECP521R1"])
def test_larger_curves_sign_too(project, cli, tmp_path, curve):
    key = write_key(tmp_path / "key.pem", ec.generate_private_key(getattr(ec, curve)()))
    cli("sign", "--key", key, "--project", project.root, code=0)
    cli("gate", "check", "--trust", tmp_path / "key.pub", "--project", project.root, code=0)


def test_an_unfinished_project_is_signed_as_far_as_it_is(project, keys, cli):
    for phase in PHASES[2:]:
        shutil.rmtree(project.phase_dir(phase))
    cli("sign", "--key", keys / "author/key.pem", "--project", project.root, code=0, out="signed 2 gates with key")
    assert len(lines(project)) == 3
    cli("gate", "check", "--trust", keys / "author/key.pub", "--project", project.root, code=0)


def test_an_export_over_a_signed_model_removes_the_signature(project):
    _remove_earlier(project.root / MODEL)
    assert not (project.root / MODEL / MODEL_SIGNATURE).exists()


# --- refused --------------------------------------------------------------------------------------

Break = Callable[[Project, Path], object]
CHANGED = "is not what was signed"


def _flip(project: Project, _: Path) -> None:
    path = project.root / MODEL / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))


def _of_another_project(project: Project, keys: Path) -> None:
    other = kept("0.9/digits", project.root.parent / "other")
    found = signed_statements(other)
    payloads = [*found.values(), list_of(found)]
    (project.root / BUNDLE_FILE).write_bytes(bundle(payloads, signing_key(keys / "author/key.pem")))


def _tail_cut(project: Project, and_list: bool) -> None:
    """Remove finalization, and its two lines of the bundle; with them the list of all lines, where asked."""
    shutil.rmtree(project.phase_dir("finalization"))
    assert [row["predicate"].get("phase") for row in statements(project)[-3:]] == [None, "finalization", None]
    *gates, _, _, listed = lines(project)
    write_lines(project, gates if and_list else [*gates, listed])


def _list_of_less(project: Project, keys: Path) -> None:
    """Sign a shorter list, as that of an earlier state of the project."""
    found = signed_statements(project)
    del found["the gate of finalization"]
    (listed,) = bundle([list_of(found)], signing_key(keys / "author/key.pem")).splitlines()
    write_lines(project, [*lines(project)[:-1], json.loads(listed)])


def _deep(path: Path) -> None:
    path.write_text("[" * 200_000)


def _swapped(project: Project, _: Path) -> None:
    first, second, *rest = lines(project)
    first["payload"], second["payload"] = second["payload"], first["payload"]
    write_lines(project, [first, second, *rest])


def _of_another_type(project: Project, keys: Path) -> None:
    first, *rest = lines(project)
    envelope = dsse.Envelope(dsse.Envelope.from_dict(json.loads(json.dumps(first))).payload, "text/plain", {})
    envelope.sign(signing_key(keys / "author/key.pem").signer)
    write_lines(project, [envelope.to_dict(), *rest])


def _model_of_a_gate(project: Project, _: Path) -> None:
    (project.root / MODEL / MODEL_SIGNATURE).write_text(json.dumps({"dsseEnvelope": lines(project)[0]}))


def _model_signed_with_more(project: Project, keys: Path) -> None:
    folder = project.root / MODEL
    (folder / "more.py").write_text("")
    (folder / MODEL_SIGNATURE).write_bytes(model_signature(folder, signing_key(keys / "author/key.pem")))
    (folder / "more.py").unlink()


def _model_by_a_stranger(project: Project, keys: Path) -> None:
    folder = project.root / MODEL
    (folder / MODEL_SIGNATURE).write_bytes(model_signature(folder, signing_key(keys / "stranger/key.pem")))


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        pytest.param(_flip, "model.safetensors (model) changed", id="a byte of the weights changed"),
        pytest.param(lambda p, _: (p.root / MODEL / "more.py").write_text(""), "more.py was not delivered", id="a file added"),
        pytest.param(
            lambda p, _: forge(p, lambda record: record["evidence"]["test"]["metrics"].update(accuracy=0.999)),
            f"the gate of finalization {CHANGED}",
            id="a record changed, sealed and rendered again",
        ),
        pytest.param(_of_another_project, f"the gate of baseline {CHANGED}", id="the signatures of another project"),
        pytest.param(
            lambda p, _: (p.root / FINAL / "gate.json").write_text('{"subject": [3]}'),
            "the gate of finalization was signed and is not here",
            id="a gate of another form",
        ),
        pytest.param(_swapped, f"{BUNDLE_FILE}:1: its content is not what a trusted key signed", id="payloads swapped"),
        pytest.param(_of_another_type, f"{BUNDLE_FILE}:1: its payload's type is 'text/plain'", id="another type of payload"),
        pytest.param(lambda p, _: (p.root / BUNDLE_FILE).unlink(), f"{BUNDLE_FILE}: nothing is signed", id="no bundle"),
        pytest.param(
            lambda p, _: write_lines(p, [{**row, "signatures": []} for row in lines(p)]),
            "no trusted key signed it",
            id="no signatures",
        ),
        pytest.param(
            lambda p, _: _tail_cut(p, and_list=False), "the gate of finalization was signed and is not here", id="the tail cut"
        ),
        pytest.param(
            lambda p, _: _tail_cut(p, and_list=True),
            "the list of what was signed, which is its last line, is missing",
            id="the tail and the list cut",
        ),
        pytest.param(
            _list_of_less, "the gate of finalization is not in the list of what was signed", id="a list of an earlier state"
        ),
        pytest.param(lambda p, _: _deep(p.root / BUNDLE_FILE), f"{BUNDLE_FILE}:1: this is no DSSE envelope", id="a deep bundle"),
        pytest.param(
            lambda p, _: _deep(p.root / MODEL / MODEL_SIGNATURE),
            f"{MODEL_SIGNATURE}: this is no signature of OpenSSF model signing",
            id="a deep model.sig",
        ),
        pytest.param(lambda p, _: write_lines(p, lines(p)[1:]), "the gate of planning is not signed", id="a line cut out"),
        pytest.param(lambda p, _: write_lines(p, [*lines(p), {"payload": 3}, []]), "this is no DSSE envelope", id="no envelopes"),
        pytest.param(
            lambda p, _: shutil.rmtree(p.phase_dir("finalization")),
            "the gate of finalization was signed and is not here",
            id="a phase cut",
        ),
        pytest.param(lambda p, _: (p.root / MODEL / MODEL_SIGNATURE).unlink(), "the model is not signed", id="no model.sig"),
        pytest.param(
            lambda p, _: (p.root / MODEL / MODEL_SIGNATURE).write_text("{}"),
            "no signature of OpenSSF model signing",
            id="no signature",
        ),
        pytest.param(_model_of_a_gate, "expected the predicate", id="a gate's envelope as the model's signature"),
        pytest.param(_model_signed_with_more, "more.py: signed with sha256", id="a model signed with more_files"),
        pytest.param(_model_by_a_stranger, f"{MODEL_SIGNATURE}: no trusted key signed it", id="a model signed by a stranger"),
    ],
)
def test_what_is_not_what_a_trusted_key_signed_is_refused(project, keys, cli, broken: Break, told: str):
    broken(project, keys)
    said = cli("gate", "check", "--trust", keys / "author/key.pub", "--project", project.root, code=4, out=told)
    assert "signed by a trusted key\n" not in said.out


ODD: tuple[Any, ...] = (
    *(None, [], {}, "{", {"payload": "", "payloadType": PAYLOAD_TYPE, "signatures": [{"sig": ""}]}),
    *(
        {"payload": "é", "payloadType": PAYLOAD_TYPE, "signatures": []},
        {"payload": "e30=", "payloadType": PAYLOAD_TYPE, "signatures": 3},
    ),
    *({"payload": "e30=", "payloadType": PAYLOAD_TYPE, "signatures": [{"sig": "e30="}, {"sig": None}]}, {"payload": "e30="}),
    *(
        {"payload": "e30=", "payloadType": {}, "signatures": [[]]},
        {"payload": [], "payloadType": PAYLOAD_TYPE, "signatures": [{"sig": "AA=="}]},
    ),
)


def test_a_strangers_odd_envelopes_are_refused_without_a_fault_of_ours(project, keys, cli):
    for odd in ODD:
        write_lines(project, [odd])
        (project.root / MODEL / MODEL_SIGNATURE).write_text(json.dumps({"dsseEnvelope": odd}))
        cli("gate", "check", "--trust", keys / "author/key.pub", "--project", project.root, code=4, out=f"{BUNDLE_FILE}:1: ")


def test_what_others_signed_is_refused(project, keys, cli):
    trust = ("--trust", keys / "stranger/key.pub", "--project", project.root)
    said = cli("gate", "check", *trust, "--json", code=4).json
    assert len(said["signatures"]) == len(PHASES) + 3
    assert f"{BUNDLE_FILE}:1: no trusted key signed it; next: the author signs: mltrainer sign --key FILE" in said["signatures"]
    assert all(phase["holds"] for phase in said["phases"])


def test_nothing_is_signed_that_does_not_hold(project, keys, cli):
    before = (project.root / BUNDLE_FILE).read_bytes()
    (project.root / MODEL / "more.py").write_text("")
    cli(
        "sign",
        "--key",
        keys / "author/key.pem",
        "--project",
        project.root,
        code=4,
        err="nothing was written: the gate of finalization is stale",
    )
    (project.root / MODEL / "more.py").unlink()
    (project.root / MODEL / "model.onnx").unlink()  # a note alone, as in a clone
    said = cli("sign", "--key", keys / "author/key.pem", "--project", project.root, code=4)
    assert "model.onnx: signed not at all, recorded with sha256" in said.err
    assert (project.root / BUNDLE_FILE).read_bytes() == before


# --- a referee's verdict --------------------------------------------------------------------------


def write_verdict(project: Project, path: Path, outcome: str = "same") -> Path:
    """Write a verdict on the project's record, as a referee does; return its path."""
    record = recorded(project, "finalization")
    checked = [{"what": "the weights", "recorded": "a", "found": "a", "outcome": outcome, "interval": None}]
    content = {
        "schema": 1,
        "project": "digits",
        "commit": "0" * 40,
        "record": record["seal"],
        "run": record["evidence"]["run"]["id"],
        "made": "2026-11-29",
        "version": "0.9",
        "open": None,
        "foreign": None,
        "sample": None,
        "checked": checked,
        "held": None,
        "unchecked": [],
        "differences": [],
        "seconds": 1.0,
        "recorded_seconds": 1.0,
    }
    path.write_bytes(pretty_json(seal(content)))
    return path


def test_a_verdict_that_its_referee_signed_is_trusted_and_any_other_is_refused(project, keys, cli, tmp_path):
    where, trust = ("--project", project.root), tmp_path / "trust"
    trust.mkdir()
    for name in ("author", "stranger"):  # the stranger is our referee
        shutil.copy(keys / name / "key.pub", trust / f"{name}.pub")
    verdict = write_verdict(project, tmp_path / "verdict.json")
    cli("verdict", verdict, "--json", *where, code=0)
    cli("sign", "--key", keys / "author/key.pem", *where, code=0)
    path = f"{FINAL}/verdict.intoto.jsonl"
    cli("gate", "check", "--trust", trust, *where, code=4, out=f"{path}: the referee's verdict is not signed by a trusted key")
    said = cli("sign", "--key", keys / "stranger/key.pem", "--verdict", verdict, "--json", code=0).json
    assert said["files"] == [str(tmp_path / "verdict.intoto.jsonl")]
    shutil.copy(tmp_path / "verdict.intoto.jsonl", project.root / FINAL)
    cli("gate", "check", "--trust", trust, *where, code=0, out="signed by a trusted key")
    cli("gate", "check", "--trust", keys / "author/key.pub", *where, code=4, out=f"{path}:1: no trusted key signed it")
    other = write_verdict(project, tmp_path / "other.json", outcome="no")
    cli("verdict", other, *where, code=0)
    cli("sign", "--key", keys / "author/key.pem", *where, code=0)
    cli("gate", "check", "--trust", trust, *where, code=4, out=f"{path}: the referee's verdict is not signed")


def test_a_verdict_that_the_author_signed_with_their_own_key_is_refused(project, keys, cli, tmp_path):
    where = ("--project", project.root)
    verdict = write_verdict(project, tmp_path / "verdict.json")
    cli("verdict", verdict, *where, code=0)
    cli("sign", "--key", keys / "author/key.pem", *where, code=0)
    cli("sign", "--key", keys / "author/key.pem", "--verdict", verdict, code=0)
    shutil.copy(tmp_path / "verdict.intoto.jsonl", project.root / FINAL)
    told = f"{FINAL}/verdict.intoto.jsonl:1: the key that signed the gates signed it, and a referee is somebody else"
    cli("gate", "check", "--trust", keys / "author/key.pub", *where, code=4, out=told)


@pytest.mark.parametrize(("outcome", "result"), [("same", "PASSED"), ("no", "FAILED")])
def test_the_summary_of_a_verdict_fits_the_published_schema(project, tmp_path, outcome, result):
    json_format = pytest.importorskip("google.protobuf.json_format")
    slsa = pytest.importorskip("in_toto_attestation.predicates.vsa.v1.vsa_pb2")
    statement = pytest.importorskip("in_toto_attestation.v1.statement")
    verdict = verdict_of(read_json(write_verdict(project, tmp_path / "verdict.json", outcome)), "verdict.json")
    found = verification_summary(verdict)
    statement.Statement.copy_from_pb(json_format.ParseDict(found, statement.spb.Statement())).validate()
    (level,) = found["predicate"]["verifiedLevels"]  # a list in the specification, and one text in in-toto's protocol buffer
    parsed = json_format.ParseDict({**found["predicate"], "verifiedLevels": level}, slsa.VerificationSummary())
    assert (parsed.verification_result, parsed.time_verified.ToJsonString()) == (result, "2026-11-29T00:00:00Z")


def test_the_summary_of_a_verdict_names_what_its_referee_did_not_ask_for(project, tmp_path):
    verdict = verdict_of(read_json(write_verdict(project, tmp_path / "verdict.json")), "verdict.json")
    whole = verdict.model_copy(update={"held": SimpleNamespace(metrics={})})
    less = verdict.model_copy(update={"sample": SimpleNamespace(), "open": "it trains on a GPU", "foreign": "read own.py"})
    policies = [verification_summary(one)["predicate"]["policy"]["uri"] for one in (whole, verdict, less)]
    assert policies == [
        "urn:mltrainer:referee:v1",
        "urn:mltrainer:referee:v1:no-held-rows",
        "urn:mltrainer:referee:v1:segments:not-closed-off:no-held-rows:own-code",
    ]


# --- keys -----------------------------------------------------------------------------------------


def test_no_private_key_is_written_or_printed(project, keys, cli):
    private = (keys / "author/key.pem").read_text()
    secret = f"{serialization.load_pem_private_key(private.encode(), None).private_numbers().private_value:x}"
    said = cli("sign", "--key", keys / "author/key.pem", "--project", project.root, code=0)
    body = [line for line in private.splitlines() if line and "-----" not in line]
    written = [path.read_bytes().decode("latin-1") for path in project.root.rglob("*") if path.is_file()]
    for text in (said.out, said.err, repr(signing_key(keys / "author/key.pem")), *written):
        assert not [part for part in (*body, secret) if part in text]


def test_an_encrypted_key_takes_its_password_from_the_environment(project, tmp_path, keys, cli, monkeypatch):
    key = write_key(tmp_path / "key.pem", password=b"open")
    call = ("sign", "--key", key, "--project", project.root)
    cli(*call, code=1, err=f"the key needs a password\n  next: set {PASSWORD}")
    monkeypatch.setenv(PASSWORD, "shut")
    cli(*call, code=1, err="the password does not open the key")
    monkeypatch.setenv(PASSWORD, "open")
    cli(*call, code=0)
    cli("gate", "check", "--trust", tmp_path / "key.pub", "--project", project.root, code=0)


def test_an_encrypted_keys_password_is_asked_for_at_a_terminal(tmp_path, monkeypatch):
    key = write_key(tmp_path / "key.pem", password=b"open")
    asked: dict[str, Any] = {}
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.prompt", lambda text, **options: asked.update(options, text=text) or "open")
    assert signing_key(key).public == trusted_keys(tmp_path / "key.pub", tmp_path / "project")[0]
    assert asked == {"text": "Password of key.pem", "hide_input": True, "err": True}


SOFTHSM = Path("/usr/lib/softhsm/libsofthsm2.so")  # Debian's package softhsm2: a token in files


@pytest.fixture
def token(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of the author's key in a token; its PIN is in the environment."""
    pytest.importorskip("PyKCS11", reason="pip install 'mltrainer[tokens]'")
    if not SOFTHSM.exists() or shutil.which("softhsm2-util") is None:
        pytest.skip("needs SoftHSM: apt-get install softhsm2")
    (tmp_path / "tokens").mkdir()
    (tmp_path / "softhsm.conf").write_text(f"directories.tokendir = {tmp_path / 'tokens'}\n")
    monkeypatch.setenv("SOFTHSM2_CONF", str(tmp_path / "softhsm.conf"))
    monkeypatch.setenv(PASSWORD, "1234")
    pins = ("--token", "lab", "--pin", "1234")
    make = ("--init-token", "--free", "--label", "lab", "--so-pin", "5678", "--pin", "1234")
    put = ("--import", str(keys / "author/key.pem"), "--label", "author", "--id", "A1", *pins)
    for words in (make, put):
        subprocess.run(["softhsm2-util", *words], check=True, capture_output=True)
    return f"pkcs11:token=lab;object=author?module-path={SOFTHSM}"


def in_a_process(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own: a token's library reads its settings once."""
    command = [sys.executable, "-m", "mltrainer", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_key_in_a_token_signs_what_others_verify(project, keys, token):
    (project.root / BUNDLE_FILE).unlink()
    said = in_a_process("sign", "--key", token, "--project", project.root)
    assert (said.returncode, "1234" in said.stdout + said.stderr) == (0, False), said
    checked = in_a_process("gate", "check", "--trust", keys / "author/key.pub", "--project", project.root)
    assert (checked.returncode, "signed by a trusted key" in checked.stdout) == (0, True), checked
    assert model_verifier(project, keys / "author/key.pub").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "pin", "told"),
    [
        (("lab", "lab"), "4321", "CKR_PIN_INCORRECT"),
        (("author", "nobody"), "1234", "Could not find any object with label nobody"),
        (("lab", "shop"), "1234", "Could not find a token with label shop"),
        (("libsofthsm2.so", "none.so"), "1234", "name one: pkcs11:token=NAME;object=LABEL?module-path="),
        (("token=lab", "token"), "1234", "malformed path attribute"),
        (("?", "?pin-value=1234&"), "1234", "a PIN in the URI can be read by others"),
    ],
)
def test_a_token_that_cannot_sign_is_refused(project, token, monkeypatch, changed, pin, told):
    monkeypatch.setenv(PASSWORD, pin)
    said = in_a_process("sign", "--key", token.replace(*changed), "--project", project.root)
    assert (said.returncode, told in said.stderr, pin in said.stderr) == (1, True, False), said
    assert "next: " in said.stderr


def test_a_key_that_others_can_read_is_warned_of(project, tmp_path, cli):
    key = write_key(tmp_path / "key.pem")
    call = ("sign", "--key", key, "--project", project.root)
    assert "warning" not in cli(*call, code=0).err
    key.chmod(0o640)
    cli(*call, code=0, err="key.pem can be read by others; next: chmod 600")


def test_a_key_in_the_project_is_warned_of(project, cli):
    key = write_key(project.root / "key.pem")
    cli("sign", "--key", key, "--project", project.root, code=0, err="key.pem is in the project, and may be committed with it")


@pytest.mark.parametrize("kind", ["ed25519", "secp256k1", "text", "missing"])
def test_another_kind_of_key_is_refused_with_the_way_to_make_one(project, tmp_path, cli, kind):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path = tmp_path / "key.pem"
    if kind == "text":
        path.write_text("key")
    elif kind != "missing":
        write_key(path, Ed25519PrivateKey.generate() if kind == "ed25519" else ec.generate_private_key(ec.SECP256K1()))
    told = "No such file" if kind == "missing" else "next: make one: openssl genpkey"
    cli("sign", "--key", path, "--project", project.root, code=1, err=told)


@pytest.mark.parametrize("kind", ["private", "text", "missing", "missing in the project", "empty folder"])
def test_what_holds_no_public_key_is_not_taken_for_trust(project, keys, tmp_path, cli, kind):
    path = tmp_path / "trust"
    if kind == "private":
        path = keys / "author/key.pem"
    elif kind == "text":
        path.write_text("key")
    elif kind == "missing in the project":
        path = project.root / "trust"
    elif kind == "empty folder":
        path.mkdir()
    told = {"private": "this is a private key", "text": "expected a public key"}
    told |= dict.fromkeys(("missing", "missing in the project"), "No such file")
    cli(
        "gate",
        "check",
        "--trust",
        path,
        "--project",
        project.root,
        code=1,
        err=told.get(kind, "no file in it holds a public key"),
    )


@pytest.mark.parametrize("place", ["the project", "its repository", "a link in it", "a link to it"])
def test_keys_in_the_repository_that_is_checked_are_not_trusted(signed_once, keys, tmp_path, cli, place):
    repository = tmp_path / "repository"
    project = Path(shutil.copytree(signed_once, repository / "digits"))
    (repository / ".git").mkdir()
    inside = (project if place == "the project" else repository) / "keys"
    if place == "a link in it":
        inside.symlink_to(keys / "author")
    else:
        inside.mkdir()
        shutil.copy(keys / "author/key.pub", inside)
    if place == "a link to it":
        (tmp_path / "keys").symlink_to(inside)
        inside = tmp_path / "keys"
    told = "a trusted key in the repository that it judges"
    for trust in (inside, inside / "key.pub"):
        cli("gate", "check", "--trust", trust, "--project", project, code=1, err=told)
    cli("gate", "check", "--trust", inside, "--projects", project, code=1, out=told)
    cli("gate", "check", "--trust", keys / "author/key.pub", "--project", project, code=0)


# --- libraries ------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", ["model_signing", "securesystemslib", "cryptography"])
def test_a_missing_package_is_named_with_the_way_to_install_it(project, keys, cli: Cli, monkeypatch, package):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    cli("sign", "--key", keys / "author/key.pem", "--project", project.root, code=1, err="pip install 'mltrainer[sign]'")
    if package != "model_signing":
        cli("gate", "check", "--trust", keys / "author/key.pub", "--project", project.root, code=1, err="mltrainer[sign]")


@pytest.mark.slow
def test_a_check_without_trust_imports_none_of_them(project):
    code = (
        "import sys; from mltrainer.cli.main import run; run(['gate', 'check'])\n"
        "print({'cryptography', 'securesystemslib', 'model_signing'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=project.root)
    assert done.stdout.splitlines()[-1] == "set()"
