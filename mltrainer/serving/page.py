"""The form for people: a field for each of the model's columns, or one for a text or a picture."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined

from mltrainer.serving.admission import Admitted
from mltrainer.serving.contract import columns_of, form_of, input_of

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
    text = (resources.files("mltrainer.serving") / "web" / "form.html").read_text("utf-8")
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(text)
    spec = admitted.spec
    return template.render(model=admitted.identity, kind=kind_of(spec), fields=fields_of(spec), shape=_shape(spec))


def kind_of(spec: Mapping[str, Any]) -> str:
    """Return the kind of form: table, texts, picture or array."""
    form = form_of(spec)
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
        }
        for name, column in columns_of(spec).items()
    ]


def _shape(spec: Mapping[str, Any]) -> str:
    return " x ".join(map(str, input_of(spec).get("shape", [])))
