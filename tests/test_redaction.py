import base64
import hashlib
import json
import os
import random
import re
import string
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltrainer.redaction import (
    ASSIGNMENTS,
    looks_random,
    option_with_secret,
    redact,
    redacted,
    scan_files,
    scan_text,
    shortened,
    tail,
)
from mltrainer.workspace import find_project


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
    "signed URL": ("https://example.org/a.parquet?X-Amz-Date=20260101&X-Amz-Signature={}", random_text(64, "0123456789abcdef")),
    "shared URL": ("https://example.org/a.parquet?se=2027&sig={}", "abcd%2Fefghij%3D"),
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
    code = "import sys, mltrainer.redaction; print(*({'torch', 'numpy', 'pydantic', 'yaml'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


SECRET = "Zq" + random_text(18) + "/+"


@pytest.mark.parametrize("name", ["DB_PW", "SMTP_PASS", "REGISTRY_AUTH", "CLOUD_CRED", "CLOUD_CREDENTIALS", "WANDB_API_KEY"])
def test_the_value_of_a_variable_named_like_a_secret_is_taken_out(name, monkeypatch):
    monkeypatch.setenv(name, SECRET)
    assert SECRET not in redact(f"could not log in with {SECRET}.")


@pytest.mark.parametrize("before", ["", "a", "ab", "user:", "ada:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_known_secret_in_base64_is_taken_out_wherever_it_stands(before, encode, monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", SECRET)
    told = redact(f"Proxy said {encode(f'{before}{SECRET}{before}'.encode()).decode()} twice")
    hidden = base64.b64encode(SECRET.encode()).decode()
    assert "[removed: value of an environment variable]" in told
    assert hidden[4:16] not in told


@pytest.mark.parametrize("encode", [bytes.hex, lambda raw: raw.hex().upper(), quote_plus])
def test_a_known_secret_in_hexadecimal_or_in_a_url_is_taken_out(encode, monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", SECRET)
    assert encode(SECRET.encode()) not in redact(f"GET /x?key={encode(SECRET.encode())}")


@pytest.mark.parametrize("name", ["SMTP_PASS", "db_pw", "proxy_auth", "s3_cred"])
def test_an_assignment_to_a_name_that_ends_like_a_secret_is_taken_out(name):
    value = random_text(20)
    assert value not in redact(f"{name} = '{value}'")


def test_a_netrc_line_loses_its_password():
    assert "hunter2four" not in redact("machine example.org login ada password hunter2four")


@pytest.mark.parametrize(
    "text",
    [
        "authors: ada12lovelace3, bob45builder67",
        "tokenizer: bpe32k-v2cased7",
        "max_tokens: 4096x32768y2",
        "one_pass: true, author_auth0rs",
        "SSH_AUTH_SOCK=/tmp/ssh-a1b2c3d4/agent.7",
        "pad_token: <pad>",
        "hash_seed: 12345678",
        "bypass = 'layer4block12conv3'",
    ],
)
def test_ordinary_words_of_a_config_stay(text, monkeypatch):
    monkeypatch.setenv("SSH_AUTH_SOCK", "/tmp/ssh-a1b2c3d4/agent.7")
    monkeypatch.setenv("PROXY_AUTH", "required")
    assert redact(text) == text
    assert redact("the field is required") == "the field is required"


WORD = "correct" + "horse"  # looks like any other word


@pytest.mark.parametrize(
    "command",
    [
        f"python t.py --password {WORD}",
        f"python t.py --token $TOKEN --password {WORD}",
        f"python t.py --db-password={WORD}",
        f"python t.py --api-key {WORD}",
        f"python t.py --token '{WORD}'",
        f"python t.py --hf_token {WORD}",
        f"python t.py --url postgres://ada:{WORD}@db/x",
        f"sh -c 'curl -u ada:{WORD} https://x.org && python t.py'",
        f"mysql -uada -p{WORD} db",
        f"sshpass -p {WORD} ssh x",
        f"DB_PASSWORD={random_text(20)} python t.py",
    ],
)
def test_a_command_with_a_secret_is_found(command):
    assert option_with_secret(command) is not None or scan_text(command, "")


@pytest.mark.parametrize(
    "command",
    [
        "python t.py --max-tokens 4096 --tokenizer bpe --authors ada",
        "python t.py --password $DB_PASSWORD",
        "python t.py --token ${TOKEN} --pad-token [PAD] --eos_token endoftext",
        *(f"python t.py --{kind}_token endoftext" for kind in ("pad", "eos", "bos", "unk", "sep", "cls", "mask", "stop")),
        "python t.py --password-file secret.txt --token-type bearer",
        "python t.py -p 4 --lr 0.1",
        "python t.py --pass 3 --first-pass",
    ],
)
def test_a_command_without_a_secret_is_left_alone(command):
    assert option_with_secret(command) is None
    assert not scan_text(command, "")


# --- values of JSON, and the ends of logs ---------------------------------------------------------


def test_a_value_of_json_without_a_secret_is_handed_back_as_it_is():
    value = {"weights_sha256": DIGEST, "loss": 0.5, "rows": [{"token": 1.23456789e-05}], "path": "data/password_rules_v2.csv"}
    assert redacted(value) == value


@pytest.mark.parametrize("name", CANARIES)
def test_a_secret_in_a_value_of_json_is_taken_out_beside_what_stays(name):
    told = redacted({"deep": [{"why": f"no: {CANARIES[name]}"}], CANARIES[name]: 1, "step": 7, "sha256": DIGEST})
    assert BODY not in json.dumps(told)
    assert CANARIES[name] not in json.dumps(told)
    assert (told["step"], told["sha256"], told["deep"][0]["why"][:4]) == (7, DIGEST, "no: ")


def test_the_text_under_a_secret_s_name_is_taken_out():
    assert redacted({"options": {"password": "tr0ub4dor&3"}})["options"]["password"] == "[removed: value of a secret's name]"
    assert redacted({"secret_key": DIGEST, "sha256": DIGEST[:16]})["secret_key"] != DIGEST


@pytest.mark.parametrize("length", [16, 64])
def test_the_digest_of_a_parameter_that_is_named_like_a_secret_stays(length):
    digests = {"cls_token": DIGEST[:length], "head.weight": DIGEST[::-1][:length]}
    assert redacted({"tensors": digests, "why": CANARIES["github"]})["tensors"] == digests


def test_a_key_of_a_record_stays_whatever_word_is_a_password(monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", "evidence")
    assert redacted({"evidence": "the evidence"}) == {"evidence": "the [removed: value of an environment variable]"}


def test_the_password_in_a_variable_that_holds_a_url_is_known(monkeypatch):
    password = random_text(20)
    monkeypatch.setenv("DATABASE", f"postgres://ada:{password}@db.example.org/x")
    for form in (password, base64.b64encode(password.encode()).decode()):
        assert form not in redact(f"ada and {form} were refused")


def test_a_variable_that_is_set_later_is_known_then(monkeypatch):
    assert SECRET in redact(SECRET)
    monkeypatch.setenv("LATER_TOKEN", SECRET)
    assert SECRET not in redact(SECRET)


def test_the_password_of_a_netrc_file_is_known(tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text(f"machine example.org\nlogin ada\npassword {SECRET}\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert SECRET not in redact(f"401 for {SECRET}")


@pytest.mark.parametrize("kept", range(20, 400, 37))
def test_of_a_key_that_a_log_s_end_cuts_in_two_nothing_is_shown(kept, tmp_path):
    lines = "\n".join(BODY[at : at + 64] for at in range(0, len(BODY), 64))
    (tmp_path / "log").write_text(f"before\n-----BEGIN RSA PRIVATE KEY-----\n{lines}\n-----END RSA PRIVATE KEY-----\nafter")
    told = tail(tmp_path / "log", kept)
    assert told.endswith("after"[-kept:])
    assert not any(BODY[at : at + 8] in told for at in range(len(BODY) - 8))


def test_of_a_secret_that_a_log_s_end_cuts_in_two_nothing_is_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", SECRET)
    (tmp_path / "log").write_text(f"login {SECRET} failed at last")
    assert tail(tmp_path / "log", 30) == " failed at last"
    assert tail(tmp_path / "log", 300) == "login [removed: value of an environment variable] failed at last"


PIECES = ["api_key", "Token", "db_pass", " = ", ": ", '"', "'", "--", "-", "_", " ", "\n", "a1B2c3D4e5", "İ", "x", "--db-token "]


@given(st.lists(st.sampled_from(PIECES), max_size=14))
def test_names_are_found_wherever_the_expressions_alone_find_them(pieces):
    text = "".join(pieces)
    whole = [*ASSIGNMENTS[:2], r"--(?:[\w-]{0,40}[_-])?" + ASSIGNMENTS[2]]
    found = [m for bare, of in enumerate(whole) for m in re.finditer(of, text) if looks_random(m["secret"], bare=bare > 0)]
    assert bool(found) <= ("[removed" in redact(text))


def test_a_secret_at_the_beginning_of_a_line_in_a_value_of_json_is_taken_out():
    token = CANARIES["github"]
    assert token not in redacted({"log": f"one\n{token}\ntwo"})["log"]


@pytest.mark.parametrize("most", range(5, 45, 4))
def test_of_a_secret_that_a_limit_cuts_in_two_nothing_is_shown(most, monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", SECRET)
    assert SECRET[:4] not in shortened(f"login {SECRET} failed at last", most)


@pytest.mark.parametrize("line", ["pw={}", "the pw: {}", "PASS = '{}'", "auth={}", "Bearer {}", "cred: {}", "pwd={}", "db_pw={}"])
def test_a_short_name_of_a_password_is_one_as_a_word(line):
    secret = random_text(77)
    assert secret not in redact(f"step 3, {line.format(secret)}, loss 0.5")
    assert redact("pass: 12 of 15, compass=N12E3456 bearer of news") == "pass: 12 of 15, compass=N12E3456 bearer of news"


def test_what_a_private_file_of_the_folder_or_the_project_holds_is_a_secret(tmp_path, monkeypatch):
    here, project = tmp_path / "here", tmp_path / "project"
    values = [random_text(90 + number) for number in range(4)]
    for folder in (here, project):
        folder.mkdir()
    monkeypatch.chdir(here)
    (here / ".env").write_text(f"KEY_X={values[0]}\nexport OTHER_KEY='{values[1]}'\nLEVEL=verbose-logging\n")
    (project / ".env.local").write_text(f'DB_PW = "{values[2]}"\n')
    (project / "mltrainer.yaml").touch()
    find_project(project)
    monkeypatch.setenv("KEY_OF_THE_DOOR", values[3])
    said = redact(" ".join([*values, "verbose-logging"]))
    assert not any(value in said for value in values)
    assert "verbose-logging" in said


def test_a_private_file_that_is_a_pipe_or_endless_is_not_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo(".env")
    Path(".env.local").symlink_to("/dev/zero")
    assert redact("text") == "text"
