"""The form for people: a field for each of the model's columns, or one for a text or a picture."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined

from mltrainer.companions.serving.admission import Admitted
from mltrainer.companions.serving.contract import answers_chats, columns_of, form_of, input_of
from mltrainer.errors import first_names

MOST_NAMED = 10  # classes that the sentence on the prediction names
_DATES = {"date": "%Y-%m-%d", "date_day_first": "%d.%m.%Y"}
MOST_CHOICES = 200  # categories in a list to choose from; of more the field takes any text
_HINTS = {
    "number": "a number",
    "formatted": "a number, such as 1,200.50",
    "decimal_comma": "a number with a decimal comma, such as 1200,50",
    "boolean": "yes or no",
    "date": "a date, such as 2026-11-27",
    "date_day_first": "a date with the day first, such as 27.11.2026",
    "text": "a text",
}


def form_page(admitted: Admitted) -> str:
    """Return the page with the form."""
    text = (resources.files("mltrainer.companions.serving") / "web" / "form.html").read_text("utf-8")
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(text)
    spec = admitted.spec
    shown = {"kind": kind_of(spec), "fields": fields_of(spec), "shape": _shape(spec), "predicts": predicted(spec)}
    return template.render(model=admitted.identity, **shown)


def kind_of(spec: Mapping[str, Any]) -> str:
    """Return the kind of form: table, texts, chat, prompt, picture or array."""
    form = form_of(spec)
    if form == "prompt" and answers_chats(spec):
        return "chat"
    return form if form in ("table", "texts", "prompt", "picture") else "array"


def fields_of(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of a table's form: name, kind, hint and the categories to choose from."""
    if kind_of(spec) != "table":
        return []
    return [
        {
            "name": name,
            "kind": column["kind"],
            "hint": _HINTS.get(column["kind"], "one of the known values, or another one"),
            "choices": column.get("categories", [])[:MOST_CHOICES],
            "typical": typical(column),
        }
        for name, column in columns_of(spec).items()
    ]


def typical(column: Mapping[str, Any]) -> str:
    """Return the median or the most frequent category of a column's training rows, as people type it; empty if it is unknown."""
    training, kind = column.get("training"), column["kind"]
    if (
        not training or "of" in column or "unit" in column
    ):  # of a difference the rows held no dates, and units are typed in many ways
        return ""
    if shares := training.get("shares"):
        return str(column["categories"][shares.index(max(shares))])
    if not training.get("edges"):
        return ""
    middle = training["edges"][len(training["edges"]) // 2]
    if kind in _DATES:
        return datetime.fromtimestamp(middle, UTC).strftime(_DATES[kind])
    if kind == "boolean":
        return "yes" if middle > 0.5 else "no"
    shown = f"{middle:.6g}"
    return shown.replace(".", ",") if kind == "decimal_comma" else shown


def predicted(spec: Mapping[str, Any]) -> str:
    """Return a sentence on the model's answers: the target, and the classes where it has some."""
    if kind_of(spec) == "prompt":
        return "Continues a text."
    if kind_of(spec) == "chat":
        return "Answers a message."
    targets = [one["name"] for one in spec.get("targets", [])] or [name for name in (spec.get("target"),) if name]
    classes = [str(name) for name in spec.get("classes") or []]
    among = f"one of {first_names(classes, MOST_NAMED)}" if classes else ""
    return f"Predicts {', '.join(targets) or among or 'an output'}{f': {among}' if targets and among else ''}."


def _shape(spec: Mapping[str, Any]) -> str:
    return " x ".join(map(str, input_of(spec).get("shape", [])))
