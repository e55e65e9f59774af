"""Faults planted in `mltrainer/redaction`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "base64 of a secret is looked for one character too early",
        "mltrainer/redaction.py",
        "first, last = -(-before * 8 // 6), (",
        "first, last = before * 8 // 6, (",
        "tests/test_redaction.py",
    ),
    Fault(
        "base64 of a secret is looked for at two of three places",
        "mltrainer/redaction.py",
        "for before in range(3)",
        "for before in range(2)",
        "tests/test_redaction.py",
    ),
    Fault(
        "a secret in capital hexadecimal stays",
        "mltrainer/redaction.py",
        "raw.hex(), raw.hex().upper(), *encoded",
        "raw.hex(), *encoded",
        "tests/test_redaction.py",
    ),
    Fault(
        "a model's end token is taken for a secret",
        "mltrainer/redaction.py",
        "(?<!eos[_-])",
        "",
        "tests/test_redaction.py::test_a_command_without_a_secret_is_left_alone",
    ),
    Fault(
        "a netrc password of an ordinary length stays",
        "mltrainer/redaction.py",
        "password\\s{1,4}(?P<secret>\\S{4,255})",
        "password\\s{1,4}(?P<secret>\\S{40,255})",
        "tests/test_redaction.py",
    ),
    Fault(
        "an ordinary word in a variable is taken for a secret",
        "mltrainer/redaction.py",
        "disabled|required|optional",
        "disabled|optional",
        "tests/test_redaction.py",
    ),
    Fault(
        "half of a secret stays at the beginning of a log's end",
        "mltrainer/redaction.py",
        're.sub(r"\\A\\S+", "", text)',
        "text",
        "tests/test_redaction.py",
    ),
    Fault(
        "of a private key without its beginning the body stays",
        "mltrainer/redaction.py",
        "        if body.strip():\n",
        "        if not body.strip():\n",
        "tests/test_redaction.py",
    ),
    Fault(
        "a digest under a name like a secret's is taken out",
        "mltrainer/redaction.py",
        "item if name in digests else _redacted(item, name)",
        "_redacted(item, name)",
        "tests/test_redaction.py",
    ),
    Fault(
        "a secret in an escaped line of JSON is not seen",
        "mltrainer/redaction.py",
        '(("\\\\n", "\\n"), ("\\\\r", "\\r")',
        '(("\\\\r", "\\r")',
        "tests/test_redaction.py",
    ),
    Fault(
        "the password in a variable's URL is not known",
        "mltrainer/redaction.py",
        "{*whole, *parts, *_netrc_passwords()}",
        "{*whole, *_netrc_passwords()}",
        "tests/test_redaction.py",
    ),
    Fault(
        "of a command's options the first alone is looked at",
        "mltrainer/redaction.py",
        "for found in _OPTION.finditer(command) if",
        "for found in [*_OPTION.finditer(command)][:1] if",
        "tests/test_redaction.py::test_a_command_with_a_secret_is_found",
    ),
)
