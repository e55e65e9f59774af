"""Keys, tokens and passwords: found in texts, and removed from every file, log, error and traceback before it is written.

`workspace.write_text`, `write_json`, `append_json_line` and `redact_file` pass their contents through here.

It uses its own short list of anchored patterns. The package detect-secrets was tried: it costs 0.1 s to import and its
entropy plug-ins flag SHA-256 digests and git commits, of which every record here is full. A finding names file, line
and kind; no function of this module returns or prints the secret itself.
"""

from __future__ import annotations

import base64
import bisect
import functools
import json
import os
import re
import stat
import string
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import log2
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

MIN_VALUE = 8  # shorter values of environment variables occur in ordinary text by chance


@dataclass(frozen=True)
class Pattern:
    """The pattern of one kind of secret.

    Attributes:
        kind: The kind, as it is reported.
        hints: Lower-case texts of which one must occur before the expression is tried; a plain search is 50 times faster.
        expression: The regular expression, whose group `secret`, or else the whole match, is removed. It is a text that is
            compiled when it is first needed: compiling all takes longer than the rest of this module's import.
    """

    kind: str
    hints: tuple[str, ...]
    expression: str


_PRIVATE_KEY = (
    r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:(?!-----)[\s\S]){40,20000}-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----|[A-Za-z0-9+/=\s\\]{40,20000})"
)
_END_OF_KEY = r"-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
_BODY_OF_KEY = string.ascii_letters + string.digits + "+/=\\\r\n"
_BETWEEN = r"""(?:\\?["'\]]){0,2}(?:\s{0,4}:\s{0,4}[\w.\[\]| ]{1,20})?\s{0,4}(?:=>|:=|[:=])\s{0,4}"""  # quote, annotation, = or :
_NAME = (
    r"(?P<name>(?:passwords?|passwd|passphrase|pwd|secret|token|credentials?|(?:api|access|private|auth|account)[_-]?key"
    r"|(?<![A-Za-z0-9])(?:pw|pass|auth|creds?))"  # pw, DB_PW, SMTP_PASS: as whole words only, as many words begin so
    r"(?:[_-]\w{1,24})?)(?![A-Za-z0-9])"
)

PATTERNS = (
    Pattern("AWS access key", ("akia", "asia"), r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    Pattern(
        "GitHub token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        r"\b(?:gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_\w{40,255})",
    ),
    Pattern(
        "GitLab token",
        ("glpat-", "gldt-", "glrt-", "gloas-", "glptt-", "glft-", "glsoat-", "glcbt-", "glagent-"),
        r"\bgl(?:pat|dt|rt|oas|ptt|ft|soat|cbt|agent)-[\w-]{20,255}",
    ),
    Pattern("Hugging Face token", ("hf_",), r"\b(?:hf|api_org)_[A-Za-z0-9]{30,64}\b"),
    Pattern("Anthropic key", ("sk-ant-",), r"\bsk-ant-[\w-]{20,255}"),
    Pattern(
        "OpenAI key",
        ("sk-",),
        r"\bsk-(?:(?:proj|svcacct|admin|or-v1)-[\w-]{20,255}|[A-Za-z0-9]{32,255})(?![A-Za-z0-9])",
    ),
    Pattern("Slack token", ("xox", "xapp-"), r"\b(?:xox[abceoprs]|xapp)-[A-Za-z0-9-]{10,255}"),
    Pattern("Slack webhook", ("hooks.slack.com",), r"hooks\.slack\.com/(?:services|workflows)/(?P<secret>[\w/]{20,255})"),
    Pattern("Stripe key", ("k_live_", "k_test_", "whsec_"), r"\b(?:[rs]k_(?:live|test)|whsec)_[A-Za-z0-9]{16,255}"),
    Pattern("Google key", ("aiza", "gocspx-"), r"\b(?:AIza[\w-]{35}|GOCSPX-[\w-]{20,64})(?![\w-])"),
    Pattern("package index token", ("npm_", "pypi-age"), r"\b(?:npm_[A-Za-z0-9]{36}|pypi-AgE[\w-]{40,255})"),
    Pattern("Docker token", ("dckr_",), r"\bdckr_[a-z]{3}_[\w-]{20,64}"),
    Pattern("private key", ("private key",), _PRIVATE_KEY),
    Pattern("JSON web token", ("eyj",), r"\beyJ[\w-]{8,4096}\.eyJ[\w-]{8,8192}\.[\w-]{8,2048}"),
    Pattern("URL with a password", ("://",), r"://[^\s/:@'\"<>?#]{0,128}:(?P<secret>[^\s/'\"<>]{1,256})@(?=[\w\[])"),
    Pattern("URL with a token", ("://",), r"://(?P<secret>(?=[^\s/:@]{0,250}\d)[A-Za-z0-9_~.-]{16,255})@(?=[\w\[])"),
    Pattern(
        "signature of a URL",
        ("signature=", "sig="),
        r"[?&](?i:(?:[\w-]{0,24}[-_])?sig(?:nature)?)=(?P<secret>[^\s&'\"<>]{8,1024})",
    ),
    Pattern(
        "netrc password",
        ("machine",),
        r"\bmachine\s{1,4}\S{1,255}\s{1,4}login\s{1,4}\S{1,255}\s{1,4}password\s{1,4}(?P<secret>\S{4,255})",
    ),
    Pattern(
        "authorization header",
        ("authorization",),
        r"(?i:authorization[\"']?\s{0,4}[:=,]\s{0,4}[\"']?(?:bearer|basic|token)\s{1,4})(?P<secret>[\w.~+/=-]{12,4096})",
    ),
    Pattern("bearer token", ("bearer",), r"(?i:\bbearer[ :=]{1,4})(?P<secret>(?=[\w.~+/-]{0,250}\d)[\w.~+/=-]{20,4096})"),
)
_KEYS = tuple(f"{of}{sign}key" for of in ("api", "access", "private", "auth", "account") for sign in ("", "_", "-"))
_BEGINNINGS = (
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "credential",
    "pw",
    "pass",
    "auth",
    "cred",
    *_KEYS,
)
ASSIGNMENTS = (  # from the beginning of a name on: quoted values, bare values, arguments of a command
    rf"(?i:{_NAME}){_BETWEEN}[rbuf]{{0,2}}(?P<quote>\\?[\"'])(?P<secret>(?:(?!(?P=quote))[^\n]){{8,512}})(?P=quote)",
    rf"(?i:{_NAME}){_BETWEEN}(?P<secret>[A-Za-z0-9+/=_.~$!@#%^&*-]{{8,512}})(?=[\s,;&)\]}}\"'\\]|$)",
    rf"(?i:{_NAME})[ \t]{{1,4}}[\"']?(?P<secret>[^\s\"']{{8,512}})",
)
_OPTION_BEFORE = r"--(?:[\w-]{0,40}[_-])?\Z"

# endings, after the secret's word, of names that hold no secrets: token_id, secret_name, password_file, api_key_env
_HARMLESS_NAME = re.compile(
    r"(?i)[_-](?:ids?|types?|names?|files?|path|dir|url|uri|count|limit|env|var|sha\d*|digest|hash|len\w*|size|class|pattern|sock|method|scheme|mode)$"
)
_OPTION = re.compile(
    r"(?i)(?<!\S)(?P<option>--?(?:[\w-]*[_-])?(?:password|passwd|passphrase|pwd|secret|(?:api|access|private|auth|secret)[_-]?key"
    r"|(?<!pad[_-])(?<!eos[_-])(?<!bos[_-])(?<!unk[_-])(?<!sep[_-])(?<!cls[_-])(?<!mask[_-])(?<!stop[_-])token))"
    r"(?:=|\s+)[\"']?(?P<value>(?!-)[^\s\"']{4,})"
)
_USER = re.compile(  # tools that take a password as an argument: curl -u user:word, mysql -pword, sshpass -p word
    r"(?<![\w-])(?:curl\s(?:[^|;&]*\s)?(?P<option>-u|--user)[\s=]*[^\s:$]+:(?!\$)\S+|(?:mysql\w*|mariadb)\s(?:[^|;&]*\s)?-p(?!\$)\S+"
    r"|sshpass\s(?:[^|;&]*\s)?-p\s*(?!\$)\S+)"
)
_PLACEHOLDER = re.compile(
    r"(?i)(?:x+|\*+|\.+|<.*>|\[.*\]|\$.*|%[({].*|\{.*\}|your[ _-].*|(?:change|replace)[ _-]?me.*|.*placeholder.*|redacted.*|"
    r"pass(?:word)?|none|null|true|false|env[:.(].*|os\.(?:environ|getenv).*|secrets?\..*|vault:.*|not set)"
)
_DOTTED_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_SECRET_VARIABLE = re.compile(r"(?i)SECRET|TOKEN(?!IZER)|PASSWORD|PASSWD|PASSPHRASE|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY")
_WEAK_VARIABLE = re.compile(r"(?i)(?:^|_)(?:PW|PASS|AUTH|CREDS?|CREDENTIALS?)(?:_|$)")  # also in names of sockets and files
_KEY_VARIABLE = re.compile(r"(?i)(?:^|_)KEYS?(?:_|$)")  # only for values that look random: such variables also hold names of keys
_PRIVATE_FILES = (".env", ".env.local")  # where programs find their keys, by a convention of many libraries
_ASSIGNED_LINE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*$", re.MULTILINE)
_VARIABLE = "value of an environment variable"
_ASSIGNED = "value of a secret's name"
_DIGEST = re.compile("[0-9a-f]{16}|[0-9a-f]{64}")  # SHA-256, whole, or its beginning as in `initial.json`
_NO_VALUE = re.compile(r"(?i)_(?:FILE|PATH|DIR|TYPE|NAME|SOCK)$")
_NO_SECRET = re.compile(r"(?i)[/~]|(?:true|false|none|basic|bearer|enabled|disabled|required|optional)$")
_NETRC_PASSWORD = re.compile(r"(?:^|\s)password\s+(\S+)")
MOST_PRIVATE_BYTES = 100_000


@dataclass(frozen=True, order=True)
class _Span:
    start: int
    end: int
    kind: str


# --- the front door -----------------------------------------------------------------------------


def scan_text(text: str, name: str) -> list[dict[str, Any]]:
    """Return the places in a text that look like a secret.

    Args:
        text: The text that is, or will be, written.
        name: The text's name in the rows.

    Returns:
        Rows of `path`, `line` (from 1) and `kind`, in order of the lines; never the secret.
    """
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    rows = {(bisect.bisect_right(starts, span.start), span.kind) for span in _spans(text)}
    return [{"path": name, "line": line, "kind": kind} for line, kind in sorted(rows)]


def scan_files(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the places in files that look like a secret; a missing file has none.

    Raises:
        OSError: A file cannot be read.
    """
    return [row for path in paths if path.is_file() for row in scan_text(_decoded(path.read_bytes()), str(path))]


def redact(text: str) -> str:
    """Return a text with every secret replaced by its kind, for everything that is logged, raised or printed."""
    parts, at = [], 0
    for span in _merged(_spans(text)):
        parts += [text[at : span.start], f"[removed: {span.kind}]"]
        at = span.end
    return "".join([*parts, text[at:]])


def redacted(value: Any) -> Any:
    """Return a value of JSON with every secret in its texts, found by text or by key, replaced by its kind.

    The whole value is first searched as one text, in which nearly always nothing is found: searching a record value by value
    takes 20 times as long.
    """
    text = json.dumps(value, ensure_ascii=False, default=str)
    # Unescaped: the patterns look for newlines and quotes as files hold them.
    for escaped, sign in (("\\n", "\n"), ("\\r", "\r"), ("\\t", "\t"), ('\\"', '"')):
        text = text.replace(escaped, sign)
    return _redacted(value, "") if _spans(text) else value


def _redacted(value: Any, key: Any) -> Any:
    if isinstance(value, dict):
        digests = _digests(value)
        return {_redacted_key(name): item if name in digests else _redacted(item, name) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_redacted(item, key) for item in value)
    if not isinstance(value, str):
        return value
    clean = redact(value)
    return f"[removed: {_ASSIGNED}]" if clean == value and _is_named_secret(key, value) else clean


def _is_named_secret(key: Any, value: str) -> bool:
    return any(_assigned(json.dumps({key: value})))


def _digests(table: dict[Any, Any]) -> set[Any]:
    """Return the keys of digests: beside other digests of its length, that of a parameter called cls_token is no secret."""
    found = {key: len(value) for key, value in table.items() if isinstance(value, str) and _DIGEST.fullmatch(value)}
    lengths = {length for key, length in found.items() if not _is_named_secret(key, table[key])}
    return {key for key, length in found.items() if length in lengths}


def _redacted_key(key: Any) -> Any:
    """Return a key without secrets; a key that could be one of our names stays, also where a user's password is that word."""
    is_word = not isinstance(key, str) or (key.isidentifier() and not any(map(str.isdigit, key)))
    return key if is_word else redact(key)


def shortened(text: str, most: int) -> str:
    """Return the beginning of a text without secrets, redacted before it is cut: half a secret would not be recognized.

    Args:
        text: The text, such as an error of a library or of a user's code.
        most: The largest number of characters.
    """
    return redact(text)[:most]


def tail(path: Path, most: int) -> str:
    """Return the end of a program's output, without secrets.

    A secret whose beginning is cut off cannot be recognized: where text is left out, so is the first word after the cut.

    Args:
        path: The log's path.
        most: The largest number of bytes.

    Raises:
        OSError: The log cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most))
        text = file.read().decode("utf-8", "replace")
    return redact(text if size <= most else re.sub(r"\A\S+", "", text))


def option_with_secret(command: str) -> str | None:
    """Return the option of a command line that has a secret in plain text; None where none has.

    An environment variable (`$NAME`), a placeholder and a file are no secrets; a word after `--password` is one even if it
    looks like any other.
    """
    given = (found["option"] for found in _OPTION.finditer(command) if not _PLACEHOLDER.fullmatch(found["value"]))
    if (option := next(given, None)) is not None:
        return option
    found = _USER.search(command)
    return None if found is None else found["option"] or "-p"


# --- finding ------------------------------------------------------------------------------------


def _decoded(raw: bytes) -> str:
    """Return a file's text; bytes that are not UTF-8 do not hide the text beside them."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", errors="replace")
    return raw.decode("utf-8", errors="replace")


def _spans(text: str) -> list[_Span]:
    found = {*_patterned(text), *_assigned(text), *_variable_spans(text)}
    # A complete key is also found by its end: it counts once.
    return sorted({*found, *(span for span in _beheaded(text) if not any(span.end == whole.end for whole in found))})


def _patterned(text: str) -> Iterator[_Span]:
    lower = text.lower()
    for pattern in PATTERNS:
        if any(hint in lower for hint in pattern.hints):
            yield from (span for match in re.finditer(pattern.expression, text) if (span := _span(match, pattern.kind)))


def _span(match: re.Match[str], kind: str) -> _Span | None:
    group = "secret" if "secret" in match.re.groupindex else 0
    value = match[group]
    if _PLACEHOLDER.fullmatch(value) or (len(value) > 20 and len(set(value)) < 8):
        return None
    return _Span(*match.span(group), kind)


def _beheaded(text: str) -> Iterator[_Span]:
    """Yield private keys of which only the end is there, as in the last lines of a log."""
    if "PRIVATE KEY" not in text:
        return
    for match in re.finditer(_END_OF_KEY, text):
        before = text[max(0, match.start() - 20_000) : match.start()]
        body = before[len(before.rstrip(_BODY_OF_KEY)) :]
        if body.strip():
            yield _Span(match.start() - len(body), match.end(), "private key")


def _assigned(text: str) -> Iterator[_Span]:
    """Yield the spans of the values of names such as `db_password` where they look random: `password = ""` is no finding.

    Names are searched as plain texts, and the expressions tried only there: along the whole text they take ten times as long.
    """
    for at in _names(text):
        for number, expression in enumerate(ASSIGNMENTS):
            if (match := _compiled(expression).match(text, at)) is None or _HARMLESS_NAME.search(match["name"]):
                continue
            is_option = number < 2 or _compiled(_OPTION_BEFORE).search(text, max(0, at - 43), at) is not None
            if is_option and looks_random(match["secret"], bare=number > 0):
                yield _Span(*match.span("secret"), _ASSIGNED)


def _names(text: str) -> set[int]:
    """Return the positions in a text of the beginnings of secrets' names."""
    lower = text.lower()
    if len(lower) != len(text):  # a letter whose lower case has two
        lower = "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)
    return {place for name in _BEGINNINGS for place in _places(lower, name)}


def _places(text: str, word: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


_compiled = functools.cache(re.compile)


def looks_random(value: str, bare: bool = False) -> bool:
    """Return True if a value looks like a key or a strong password, not like a word, a name or a placeholder.

    Args:
        value: The assigned value.
        bare: Whether it is without quotes, so that it may be code or prose.
    """
    if _PLACEHOLDER.fullmatch(value) or (bare and _DOTTED_NAME.fullmatch(value)):
        return False
    has_digit, has_letter = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    # chosen by us: 8 random characters have about 2.7 bits each in their own histogram, words with a digit about as much
    return has_digit and has_letter and " " not in value and _entropy_bits(value) >= (3.0 if bare else 2.5)


def _entropy_bits(value: str) -> float:
    return -sum(count / len(value) * log2(count / len(value)) for count in Counter(value).values())


def _variable_spans(text: str) -> Iterator[_Span]:
    """Yield the spans of this process's own secrets, also in the forms of JSON, Python, URLs, hexadecimal and base64."""
    for value in _secret_values():
        for form in _forms(value):
            if form in text:
                yield from (_Span(*match.span(), _VARIABLE) for match in re.finditer(re.escape(form), text))


def is_private(path: str) -> bool:
    """Return True for a file of secrets: not even its digest is recorded, by which a short secret can be guessed."""
    return os.path.basename(path) in _PRIVATE_FILES or path == str(_netrc())


def keep_private(folder: str) -> None:
    """Treat the values in a folder's `.env` files as secrets, like those of the current folder."""
    _private_folders.add(folder)


_private_folders: set[str] = {"."}


def _secret_values() -> frozenset[str]:
    marks = tuple((path, mark) for folder in sorted(_private_folders) for path in _private(folder) if (mark := _mark(path)))
    return _values_of(tuple(os.environb.items()), marks)


def _private(folder: str) -> list[str]:
    return [os.path.join(folder, name) for name in _PRIVATE_FILES]


def _mark(path: str) -> tuple[int, int, int] | None:
    """Return inode, size and time of a small plain file; None for anything else: no link is followed, no pipe opened."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    is_small = stat.S_ISREG(found.st_mode) and found.st_size <= MOST_PRIVATE_BYTES
    return (found.st_ino, found.st_size, found.st_mtime_ns) if is_small else None


@functools.lru_cache(maxsize=4)
def _values_of(
    environment: tuple[tuple[bytes, bytes], ...], files: tuple[tuple[str, tuple[int, int, int]], ...] = ()
) -> frozenset[str]:
    """Return the secrets in the values of the environment and of private files, and in the user's netrc file."""
    named = [(os.fsdecode(name), os.fsdecode(value).strip()) for name, value in environment]
    named += [pair for path, _ in files for pair in _assignments_of(path)]
    whole = {value for name, value in named if _is_secret(name, value) and not _NO_VALUE.search(name)}
    parts = {value[span.start : span.end] for _, value in named for span in _patterned(value)}
    return frozenset(value for value in {*whole, *parts, *_netrc_passwords()} if len(value) >= MIN_VALUE)


def _assignments_of(path: str) -> list[tuple[str, str]]:
    """Return the names and values of a private file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(MOST_PRIVATE_BYTES)
    except OSError:
        return []
    return [(name, value.strip("\"'")) for name, value in _ASSIGNED_LINE.findall(text)]


def _is_secret(name: str, value: str) -> bool:
    """Return True if an environment variable holds a secret, by its name, or for an ambiguous name by name and value."""
    if _SECRET_VARIABLE.search(name):
        return True
    if _NO_SECRET.match(value):
        return False
    return bool(_WEAK_VARIABLE.search(name) or (_KEY_VARIABLE.search(name) and looks_random(value)))


@functools.lru_cache(maxsize=256)
def _forms(value: str) -> frozenset[str]:
    """Return the written forms of a secret: unchanged, escaped, for a URL, in hexadecimal, and in base64 at any offset."""
    raw = value.encode(errors="replace")
    in_json = {json.dumps(value, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)}
    plain = {value, *in_json, repr(value)[1:-1], quote(value, safe=""), quote_plus(value)}
    encoded = {part for before in range(3) for part in _in_base64(raw, before)}
    return frozenset({*plain, raw.hex(), raw.hex().upper(), *encoded})


def _in_base64(raw: bytes, before: int) -> Iterator[str]:
    """Yield the base64 characters that some bytes alone decide, after `before` other bytes, in both alphabets."""
    first, last = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(b"\0" * before + raw)[first:last].decode()


def _netrc_passwords() -> frozenset[str]:
    """Return the passwords of the user's netrc file, which downloads use without being asked."""
    try:
        with open(_netrc(), encoding="utf-8", errors="replace") as file:
            text = file.read(MOST_PRIVATE_BYTES)
    except OSError:
        return frozenset()
    return frozenset(_NETRC_PASSWORD.findall(text))


def _netrc() -> Path:
    return Path(os.environ.get("NETRC") or os.path.expanduser("~/.netrc"))


def _merged(spans: Iterable[_Span]) -> Iterator[_Span]:
    """Yield spans in order, overlapping ones as one."""
    last: _Span | None = None
    for span in spans:
        if last and span.start < last.end:
            # One secret may match several patterns; removed one after the other, the positions of later matches would be wrong.
            last = _Span(last.start, max(last.end, span.end), last.kind)
            continue
        if last:
            yield last
        last = span
    if last:
        yield last
