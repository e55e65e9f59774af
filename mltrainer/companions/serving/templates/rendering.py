"""The files of each stack: rendered from the model's `inference.json` and identity alone, and written into a project."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

import mltrainer
from mltrainer.checkpointing.deployment import CHECKSUMS_FILE
from mltrainer.companions.serving import contract
from mltrainer.companions.serving.admission import Identity, admitted
from mltrainer.companions.serving.page import fields_of
from mltrainer.companions.serving.templates import Kind, languages
from mltrainer.companions.serving.templates.languages import (
    PYTHON,
    TYPESCRIPT,
    Schema,
    attributes,
    comment,
    identifier,
    python_literal,
    row_schema,
    schemas_of,
    sql_check,
    word,
)
from mltrainer.errors import InputError
from mltrainer.generated_files import DIGEST, folder_within, write_generated
from mltrainer.records.reading import sound_record
from mltrainer.reproducibility.pins import requirements_file
from mltrainer.workspace import Project

_ENV = ("env.example", ".env.example")
# By stack: each template, and the name of its file.
FILES: dict[Kind, tuple[tuple[str, str], ...]] = {
    "fastapi": (("router.py", "{name}_model.py"), _ENV),
    "nextjs": (
        ("package.json", "package.json"),
        ("tsconfig.json", "tsconfig.json"),
        ("gitignore", ".gitignore"),
        _ENV,
        ("app/layout.tsx", "app/layout.tsx"),
        ("app/page.tsx", "app/page.tsx"),
        ("app/api/route.ts", "app/api/{address}/route.ts"),
        ("components/model-form.tsx", "components/model-form.tsx"),
        ("lib/model.ts", "lib/model.ts"),
    ),
    "supabase": (("migration.sql", "migrations/{time}_{name}_{model}.sql"),),
    "docker": (
        ("Dockerfile", "Dockerfile"),
        ("dockerignore", "Dockerfile.dockerignore"),
        ("requirements.txt", "requirements.txt"),
        _ENV,
    ),
}


@dataclass(frozen=True)
class Place:
    """The folder of the files, and values that depend on the time and the machine.

    Attributes:
        folder: Folder of the files, relative to the project's.
        time: A migration's time, year to second, by which Supabase orders migrations.
        python: Version of Python that planning recorded, for a container.
        pins: Text of requirements.txt with the recorded packages, for a container.
    """

    folder: str
    time: str = "00000000000000"
    python: str = ""
    pins: str = ""


def files_of(kind: Kind, spec: Mapping[str, Any], model: Identity, place: Place) -> dict[str, str]:
    """Return the text of each file by its name, with zeros for the digest in its head.

    Args:
        kind: The stack.
        spec: Content of the model's `inference.json`.
        model: Identity of the model.
        place: Folder of the files, and values for them.

    Raises:
        InputError: A name in the model's description cannot be written in the files; or an image would check the files by a list
            that is missing.
    """
    if kind == "docker" and model.files_sha256 is None:
        hint = "copy the delivered folder again"
        raise InputError("the model's folder has no list of its files, which the image checks", where=CHECKSUMS_FILE, hint=hint)
    name, digest = identifier(model.name), model.weights_sha256 or model.files_sha256 or ""
    schemas, form = schemas_of(spec), contract.form_of(spec)
    address = "continue" if form == "prompt" else "predict"
    values = {
        "written": _written(kind, model, digest),
        "name": name,
        "variable": name.upper(),
        "secret": f"{name}_{'prod' if kind == 'docker' else 'dev'}_your_key_here",
        "title": model.name,
        "model": model,
        "place": place,
        "form": form,
        "chats": contract.answers_chats(spec),
        "address": address,
        "schemas": {title: _fields(schema) for title, schema in schemas.items() if "properties" in schema},
        "row": row_schema(schemas),
        "row_type": schemas["Request"]["properties"]["rows"]["items"],
        "controls": _controls(spec),
        "check": functools.partial(sql_check, schemas=schemas),
        "answer": schemas["Answer"],
        "label": schemas["Label"]["properties"]["label"],
    }
    names = {"name": name, "address": address, "time": place.time, "model": word(digest)[:12] or "model"}
    return {target.format(**names): _rendered(f"{kind}/{source}.j2", values) for source, target in FILES[kind]}


def _written(kind: Kind, model: Identity, digest: str) -> list[str]:
    """Return the lines at the head of each file."""
    run = f", run {comment(model.run)}" if model.run else ""
    return [
        f"Written by `mltrainer integrate {kind}` ({mltrainer.__version__}) for the model {comment(model.name)}{run}",
        f"weights_sha256: {comment(digest)}",
        *(f"Unchecked: {comment(fault)}" for fault in model.unchecked),
        f"Yours to change: it is then not overwritten. {DIGEST}",
    ]


def _fields(schema: Schema) -> dict[str, Any]:
    """Return a type for the templates: its fields, and whether it allows no others."""
    names, needed = attributes(schema["properties"]), schema.get("required", [])
    fields = [
        {"name": name, "attribute": names[name], "schema": part, "needed": name in needed}
        | {"options": _options(name, names[name], part, name in needed)}
        for name, part in schema["properties"].items()
    ]
    return {"fields": fields, "closed": schema.get("additionalProperties") is False}


def _options(name: str, attribute: str, schema: Schema, is_needed: bool) -> list[str]:
    """Return the arguments of a field of a pydantic model."""
    arguments = {
        "default": None if is_needed else schema.get("default"),
        "alias": name if attribute != name else None,
        "description": schema.get("description"),
    }
    known = {key: value for key, value in arguments.items() if value is not None or (key == "default" and not is_needed)}
    return [f"{key}={python_literal(value)}" for key, value in known.items()]


# By form of rows: label, hint and control of the field.
_CONTROLS: dict[contract.Form, tuple[str, str, str]] = {
    "texts": ("Text", "a text", "long"),
    "prompt": ("Prompt", "a text to continue", "long"),
    "picture": ("Picture", "a picture file", "picture"),
    "images": ("Numbers", "nested lists of numbers, as JSON", "json"),
    "array": ("Numbers", "a number or nested lists of numbers, as JSON", "json"),
    "raw": ("Row", "a row, as JSON", "json"),
}


def _controls(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of a TypeScript form: key in the row, label, hint, control and choices."""
    form = contract.form_of(spec)
    if contract.answers_chats(spec):
        return [{"key": "messages", "label": "Message", "hint": "a message to answer", "control": "long", "choices": []}]
    if form == "table":
        kinds = {"number": "number", "boolean": "flag"}
        return [
            {"key": field["name"], "label": field["name"], "hint": field["hint"], "control": kinds.get(field["kind"], "text")}
            | {"choices": [str(one) for one in field["choices"]]}
            for field in fields_of(spec)
        ]
    if form == "named":
        label, hint, control = _CONTROLS["array"]
        named = [(str(name), str(name)) for name in spec["model_inputs"]]
    else:
        label, hint, control = _CONTROLS[form]
        named = [("prompt" if form == "prompt" else "", label)]
    return [{"key": key, "label": title, "hint": hint, "control": control, "choices": []} for key, title in named]


def _rendered(path: str, values: Mapping[str, Any]) -> str:
    text = (resources.files("mltrainer.companions.serving.templates") / path).read_text("utf-8")
    return _environment().from_string(text).render(values)


@functools.cache
def _environment() -> Environment:
    # No HTML: each text of the user's is quoted for its language by a filter.
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)  # noqa: S701 - see above
    environment.filters |= {
        "ts": languages.typescript_literal,
        "sql": languages.sql_literal,
        "word": word,
        "python_type": PYTHON.type_of,
        "typescript_type": TYPESCRIPT.type_of,
    }
    return environment


_MIGRATION = re.compile(r"\d{14}(_.+\.sql)")


def integrate(
    project: Project, kind: Kind, folder: str | None = None, force: bool = False, allow_unchecked: bool = False
) -> list[str]:
    """Write the files of a stack for a project's delivered model, and return their paths within the project.

    Args:
        project: The project.
        kind: The stack.
        folder: Path of the files within the project; None: `integrations/KIND`.
        force: Overwrite files that a person made or changed.
        allow_unchecked: Accept a model whose files or gates fail their checks; each file then notes it.

    Raises:
        GateError: A file of the model differs from the delivered one, or a gate fails.
        InputError: There is no delivered model, the folder is outside the project, or a person changed files there.
    """
    model = admitted(project.root, allow_unchecked)
    target = folder_within(project, folder or f"integrations/{kind}")
    place = _place(project, kind, project.relative(target))
    texts = files_of(kind, model.spec, model.identity, place)
    return write_generated(project, {_known(target / name): text for name, text in texts.items()}, force)


def _place(project: Project, kind: Kind, folder: str) -> Place:
    time = datetime.now(UTC).strftime("%Y%m%d%H%M%S")
    if kind != "docker":
        return Place(folder, time)
    record = sound_record(project, "planning")
    if record is None:
        what = "planning has no sound record, from which the packages and their versions are taken"
        raise InputError(what, where=project.relative(project.phase_dir("planning")), hint="mltrainer phase run planning")
    environment = record.evidence.environment
    return Place(folder, time, environment.python.version, requirements_file(environment))


def _known(path: Path) -> Path:
    """Return the path of an earlier migration for the same model, whose time differs; else the given path."""
    match = _MIGRATION.fullmatch(path.name)
    earlier = sorted(path.parent.glob(f"*{match[1]}")) if match else []
    return earlier[0] if earlier else path
