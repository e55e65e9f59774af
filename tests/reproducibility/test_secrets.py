import base64
import hashlib
import json
import random
import string
import subprocess
import sys

import pytest

from mltrainer.reproducibility.secrets import redact, scan_files, scan_text


def random_text(length: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(random.Random(length).choices(alphabet, k=length))


UPPER = string.ascii_uppercase + string.digits
BODY = base64.b64encode(random.Random(0).randbytes(300)).decode()
# every canary is put together here, so that this file holds none
CANARIES = {
    "aws": "AKIA" + random_text(16, UPPER),
    "aws, temporary": "ASIA" + random_text(16, UPPER),
    "github": "ghp_" + random_text(36),
    "github, fine-grained": "github_pat_" + random_text(82),
    "gitlab": "glpat-" + random_text(20),
    "hugging face": "hf_" + random_text(34),
    "openai": "sk-" + random_text(48),
    "openai, project": "sk-proj-" + random_text(90),
    "anthropic": "sk-ant-api03-" + random_text(95),
    "slack": "xoxb-" + random_text(12, string.digits) + "-" + random_text(24),
    "stripe": "sk_live_" + random_text(24),
    "google": "AIza" + random_text(35),
    "npm": "npm_" + random_text(36),
    "pypi": "pypi-AgE" + random_text(80),
    "pem": f"-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: AES-128-CBC,00\n\n{BODY}\n-----END RSA PRIVATE KEY-----",
    "openssh, cut off": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{BODY}",
    "jwt": ".".join(("eyJ" + random_text(30), "eyJ" + random_text(60), random_text(43))),
}
IN_CONTEXT = {
    "URL with a password": ("postgres://ada:{}@db.example.org/x", "n0t-a-secret"),
    "remote with a token": ("url = https://{}@git.example.org/x.git", random_text(40, "0123456789abcdef")),
    "slack webhook": (
        "https://hooks.slack.com/services/{}",
        f"T{random_text(8, UPPER)}/B{random_text(8, UPPER)}/{random_text(24)}",
    ),
    "header": ("Authorization: Bearer {}", random_text(32)),
    "python": ('db_password = "{}"', "tr0ub4dor&3"),
    "json": ('{{"api_key": "{}"}}', random_text(40, "0123456789abcdef")),
    "json in json": ('"{{\\"client_secret\\": \\"{}\\"}}"', random_text(24)),
    "yaml": ("wandb:\n  api-key: {}\n", random_text(40, "0123456789abcdef")),
    "dotenv": ("export AWS_SECRET_ACCESS_KEY={}\n", random_text(40)),
    "annotated": ('token: str = "{}"', random_text(24)),
    "dictionary item": ("os.environ['HF_TOKEN'] = '{}'", random_text(24)),
    "argument": ("train.py --api-key {} --epochs 3", random_text(24)),
    "argument with =": ("train.py --token={}", random_text(24)),
    "query": ("https://example.org/x?access_token={}&page=2", random_text(24)),
}


@pytest.mark.parametrize("name", CANARIES)
def test_every_kind_of_key_is_found_and_taken_out(name):
    text = f"one\nbefore {CANARIES[name]}\nafter"
    assert [row["line"] for row in scan_text(text, "a.txt")] == [2]
    assert CANARIES[name] not in redact(text)
    assert BODY not in redact(text)


@pytest.mark.parametrize("name", IN_CONTEXT)
def test_values_of_secret_names_are_found_and_taken_out(name):
    frame, secret = IN_CONTEXT[name]
    text = frame.format(secret)
    assert scan_text(text, "a.txt")
    assert secret not in redact(text)


def test_a_finding_names_the_place_and_never_the_secret():
    rows = scan_text(f"a\nb\nkey {CANARIES['github']}", "notes.md")
    assert rows == [{"path": "notes.md", "line": 3, "kind": "GitHub token"}]


def test_what_is_taken_out_leaves_the_rest_readable():
    text = redact(f"clone https://ada:{random_text(12)}@example.org/x.git failed")
    assert text == "clone https://ada:[removed: URL with a password]@example.org/x.git failed"


@pytest.mark.parametrize("name", CANARIES)
def test_taking_out_twice_changes_nothing_more(name):
    once = redact(f'password = "{CANARIES[name]}" at https://u:{CANARIES[name]}@h')
    assert redact(once) == once


def test_the_value_of_a_secret_variable_is_found_wherever_it_stands(monkeypatch):
    monkeypatch.setenv("DEPLOY_PASSWORD", 'correct "horse"')
    for text in ('x correct "horse" y', json.dumps({"a": 'correct "horse"'}), "?q=correct%20%22horse%22"):
        assert [row["kind"] for row in scan_text(text, "log")] == ["value of an environment variable"]
        assert "horse" not in redact(text)


@pytest.mark.parametrize(
    ("name", "value"), [("API_KEY", "short"), ("TOKENIZERS_PARALLELISM", "disabled"), ("TOKEN_FILE", "/run/token")]
)
def test_variables_that_hold_no_secret_are_ignored(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert scan_text(f"it says {value} here", "log") == []


DIGEST = hashlib.sha256(b"x").hexdigest()
HARMLESS = [
    f'{{"sha256": "{DIGEST}", "commit": "{DIGEST[:40]}", "head": "{DIGEST[:32]}"}}',
    f"{DIGEST}  model.safetensors",
    f"token_sha256: {DIGEST}",
    f"refs/mltrainer/{DIGEST[:40]}",
    "tokenizer: bert-base-uncased-finetuned-sst-2",
    "max_tokens: 4096\npad_token: '[PAD]'\ntoken_type_ids: [0, 1]",
    'password = os.environ["DB_PASSWORD_2"]',
    "password: ${DB_PASSWORD_2}\napi_key: <your key 123>\ntoken: your-token-123456",
    "api_key = settings.API_KEY_V2\ntoken = get_token(user1)",
    'token_pattern = r"[0-9]{1,3}\\w+"',
    "git@github.com:ada/models.git ssh://git@example.org/x.git https://example.org:8080/a@b",
    "mail ada@example.org, see https://user:password@host/ in the manual",
    "key 1: lr, key 2: momentum; secret = 42; password=''",
    "ghp_" + "x" * 36,
    "disk-" + DIGEST[:32],
    "if text.startswith('-----BEGIN PRIVATE KEY-----'): ...",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_digests_names_and_placeholders_are_no_secrets(text):
    assert scan_text(text, "record.json") == []
    assert redact(text) == text


def test_a_large_base64_image_is_no_secret():
    image = base64.b64encode(random.Random(1).randbytes(300_000)).decode()
    assert scan_text(f'<svg><image href="data:image/png;base64,{image}"/></svg>', "a.svg") == []


def test_files_are_read_whatever_their_bytes(tmp_path):
    token = CANARIES["hugging face"]
    contents = {"binary": b"\x00\xff\x80 " + token.encode(), "utf16": f"x {token}".encode("utf-16"), "clean": b"nothing"}
    for name, raw in contents.items():
        (tmp_path / name).write_bytes(raw)
    rows = scan_files([*(tmp_path / name for name in contents), tmp_path / "missing"])
    assert [row["path"] for row in rows] == [str(tmp_path / "binary"), str(tmp_path / "utf16")]


@pytest.mark.parametrize("piece", ['token="', "://a", "password ", "-----BEGIN PRIVATE KEY-----", "eyJ", "api_key: str", "sk-"])
def test_no_text_makes_the_search_slow(piece):
    # about 0.1 s each; an expression that backtracks would run into the timeout of the tests
    scan_text(piece * (200_000 // len(piece)), "hostile")


def test_importing_it_stays_light():
    code = "import sys, mltrainer.reproducibility.secrets; print(*({'torch', 'numpy', 'pydantic', 'yaml'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""
