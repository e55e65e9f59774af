"""The types of requests and answers, made from the model's `inference.json`, which describes its inputs and outputs."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema, create_model, model_validator
from pydantic_core import PydanticCustomError

from mltrainer.checkpointing.inference_script import DATES, LARGEST, WANTED
from mltrainer.companions.serving.admission import Identity

STRICT = ConfigDict(extra="forbid", strict=True, protected_namespaces=())
MOST_TOKENS = 4096  # of one continuation; chosen by us
_SHOWN = 60  # characters of a value in a message


class Fault(BaseModel):
    """A fault of a request.

    Attributes:
        where: The faulty part of the request, such as `rows[3].age`.
        what: The expected and the found value, in words.
    """

    where: str
    what: str


# --- cells of a table -----------------------------------------------------------------------------


def is_number(value: Any) -> bool:
    """Return True for a finite number within float32's range; a truth value is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and _is_encodable(value)


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _is_any(value: Any) -> bool:
    return isinstance(value, bool) or is_number(value) or _is_text(value)


_NUMBER, _TEXT, _BOOLEAN = {"type": "number"}, {"type": "string"}, {"type": "boolean"}
# By kind of column: its values in JSON, in words, as a test and as schemas.
_CELLS: dict[str, tuple[str, Callable[[Any], bool], list[dict[str, Any]]]] = {
    "number": ("a finite number", is_number, [_NUMBER]),
    "formatted": ("a number, or a text that is one", lambda value: is_number(value) or _is_text(value), [_NUMBER, _TEXT]),
    # No number: training read the text 1.234, whose comma is the decimal sign, as 1234.
    "decimal_comma": ("a text with a decimal comma", _is_text, [_TEXT]),
    "boolean": ("true or false, or a word for it", _is_any, [_BOOLEAN, _TEXT, _NUMBER]),
    **dict.fromkeys(DATES, ("a date as text", _is_text, [_TEXT])),
    "text": ("a text", _is_text, [_TEXT]),
}
_ANY = ("a text, a number, true or false", _is_any, [_TEXT, _NUMBER, _BOOLEAN])


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _cell(column: Mapping[str, Any]) -> Any:
    """Return the type of a column's cells; null is a missing value."""
    words, fits, schemas = _ANY if column.get("wrong") == "missing" else _CELLS.get(column["kind"], _ANY)

    def checked(value: Any) -> Any:
        if value is None or fits(value):
            return value
        raise PydanticCustomError("cell", "expected {words}, found {found}", {"words": words, "found": _shown(value)})

    description = (
        f"{column['kind']}: {WANTED[column['kind']]}; null is a missing value" if column["kind"] in WANTED else column["kind"]
    )
    known = {"examples": column["categories"][:20]} if column.get("categories") else {}
    schema = {"anyOf": [*schemas, {"type": "null"}], "description": description, **known}
    return Annotated[Any, PlainValidator(checked), WithJsonSchema(schema)]


def input_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a model's input in its `inference.json`; empty if a custom task does not describe it."""
    given = spec.get("input")
    return given if isinstance(given, dict) else {}


Form = Literal["raw", "named", "table", "texts", "prompt", "picture", "images", "array"]


def form_of(spec: Mapping[str, Any]) -> Form:
    """Return the form of a model's rows: rows for its preprocessing module, named arrays, cells, texts, a prompt and so on."""
    given = input_of(spec)
    if "preprocess" in spec:
        return "raw"
    if "model_inputs" in spec:
        return "named"
    if "picture" in given:
        return "picture"
    name = given.get("name")
    return name if name in ("table", "texts", "prompt", "images") else "array"


def columns_of(spec: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the columns that a row must have, by name: those of the matrix, and the dates of which it holds differences."""
    columns: dict[str, dict[str, Any]] = {}
    for column in spec["columns"]:
        if column["kind"] == "difference":
            for name, kind in zip(column["of"], column["dates"], strict=True):
                columns.setdefault(name, {**column, "name": name, "kind": kind})
        else:
            columns[column["name"]] = column
    return columns


def table_row(spec: Mapping[str, Any]) -> Any:
    """Return the type of a table's row: an object with each of the model's columns and no other."""
    fields: dict[str, Any] = {
        f"column_{number}": (_cell(column), Field(alias=name, title=name))
        for number, (name, column) in enumerate(columns_of(spec).items())
    }
    return create_model("Row", __config__=STRICT, **fields)


# --- other rows -----------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if isinstance(value, str) and _is_encodable(value):
        return value
    raise PydanticCustomError("text", "expected a text, found {found}", {"found": _shown(value)})


Text = Annotated[str, PlainValidator(_text), WithJsonSchema({"type": "string"})]


def _picture(value: Any) -> bytes:
    try:
        if not isinstance(value, str):
            raise TypeError(f"expected the base64 text of a picture file, found {_shown(value)}")
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise PydanticCustomError("picture", "{message}", {"message": f"expected a picture file in base64: {error}"}) from error


_PICTURE = {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/*"}
Picture = Annotated[bytes, PlainValidator(_picture), WithJsonSchema(_PICTURE)]

Number = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-LARGEST, le=LARGEST)]


def array(shape: Sequence[int]) -> Any:
    """Return the type of nested lists of numbers of a shape."""
    shape_type: Any = Number
    for size in reversed(shape):
        shape_type = Annotated[list[shape_type], Field(min_length=size, max_length=size)]
    return shape_type


def _array(value: Any) -> np.ndarray:
    """Return nested lists of numbers as an array, whatever their shape."""
    try:
        result = np.array(value)
    except ValueError:  # lists of unequal lengths
        result = np.array(None)
    if result.dtype.kind not in "fiu" or not np.isfinite(result).all():
        raise PydanticCustomError("array", "expected a number, or nested lists of numbers of equal lengths")
    return result


Array = Annotated[Any, PlainValidator(_array), WithJsonSchema({"type": ["array", "number"], "description": "nested lists"})]


def named_arrays(names: Sequence[str]) -> Any:
    """Return the type of an object with an array for each of a model's inputs."""
    fields: dict[str, Any] = {f"input_{number}": (Array, Field(alias=name)) for number, name in enumerate(names)}
    return create_model("Row", __config__=STRICT, **fields)


class Continuation(BaseModel):
    """How a text is continued.

    Attributes:
        tokens: Number of tokens to add.
        seed: Seed of the draws: the same seed gives the same text.
        temperature: Divisor of the logits; below 1 likelier tokens are drawn more often.
    """

    model_config = STRICT

    tokens: int = Field(default=200, ge=1, le=MOST_TOKENS)
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    temperature: float = Field(default=1.0, gt=0.0, le=100.0, allow_inf_nan=False)


class Prompt(Continuation):
    """A text to continue.

    Attributes:
        prompt: The text.
    """

    prompt: Text


class Message(BaseModel):
    """A message of a conversation.

    Attributes:
        role: Who says it: user, assistant, or another role of the model's chat template.
        content: The text.
    """

    model_config = STRICT

    role: Text
    content: Text


class Chat(Continuation):
    """A conversation to answer, or a text to continue as it is; one of the two.

    Attributes:
        messages: The conversation, from which the model's chat template makes the text to continue.
        prompt: The text.
    """

    model_config = ConfigDict(**STRICT, json_schema_extra={"oneOf": [{"required": ["messages"]}, {"required": ["prompt"]}]})

    messages: list[Message] = Field(default_factory=list, min_length=1)
    prompt: Text = ""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        given = self.model_fields_set & {"messages", "prompt"}
        if len(given) != 1:
            found = "both" if given else "neither"
            raise PydanticCustomError("chat", "expected messages or prompt, found {found}", {"found": found})
        return self


def answers_chats(spec: Mapping[str, Any]) -> bool:
    """Return True for a model that learned conversations by a chat template, which is delivered with it."""
    return bool((spec.get("conversations") or {}).get("template"))


def row_of(spec: Mapping[str, Any]) -> Any:
    """Return the type of a row in a request."""
    match form_of(spec):
        case "table":
            return table_row(spec)
        case "named":
            return named_arrays(spec["model_inputs"])
        case "images":
            return array(input_of(spec)["shape"])
        case form:
            prompt = Chat if answers_chats(spec) else Prompt
            return {"raw": Any, "texts": Text, "prompt": prompt, "picture": Picture, "array": Array}[form]


def request_of(row: Any, most_rows: int) -> type[BaseModel]:
    """Return the type of a request: some rows.

    Args:
        row: Type of a row.
        most_rows: Largest number of rows.
    """
    rows: Any = Annotated[list[row], Field(min_length=1, max_length=most_rows)]
    return create_model("Request", __config__=STRICT, rows=(rows, ...))


def as_sent(row: Any) -> Any:
    """Return a row as it was in the request's JSON."""
    if isinstance(row, BaseModel):
        known = row.model_dump(by_alias=True, exclude={"messages", "prompt"} - row.model_fields_set)  # of which a chat has one
        return {name: as_sent(value) for name, value in known.items()}
    if isinstance(row, np.ndarray):
        return row.tolist()
    return base64.b64encode(row).decode() if isinstance(row, bytes) else row


# --- answers --------------------------------------------------------------------------------------

_Finite = float | None  # JSON has no number that is not finite


def answer_of(spec: Mapping[str, Any]) -> type[BaseModel]:
    """Return the type of the answer to a row; `inference_script.answers` makes such answers."""
    if spec.get("kind") == "text_generation":
        return create_model("Answer", continuation=(str, ...))
    label: Any = _label(spec, _Finite)
    doubt = bool(spec.get("conformal"))
    fields: dict[str, Any] = {"output": (list[_Finite], ...)} if label is Any else {"prediction": (label, ...)}
    if spec.get("output") == "targets":
        fields |= {"probabilities": (dict[str, dict[str, _Finite]] | None, None)}
    elif spec.get("output") == "value":
        fields |= {"interval": (list[_Finite], ...)} if doubt else {}
    elif label is not Any:
        fields |= {"probabilities": (dict[str, _Finite], ...)} | ({"set": (list[label], ...)} if doubt else {})
    return create_model("Answer", **fields)


def _label(spec: Mapping[str, Any], number: Any) -> Any:
    """Return the type of an answer to a row: texts by target, a class, or a number; any value where the output is raw."""
    output = spec.get("output")
    if output == "logits" and spec.get("classes"):
        return Literal[tuple(spec["classes"])]
    return {"targets": dict[str, Any], "value": number}.get(str(output), Any)


def response_of(spec: Mapping[str, Any]) -> type[BaseModel]:
    """Return the type of the answer to a request."""
    answer: Any = answer_of(spec)
    return create_model("Response", id=(str, ...), answers=(list[answer], ...), model=(Identity, ...))


def labels_of(spec: Mapping[str, Any], most: int) -> type[BaseModel]:
    """Return the type of a request that brings true labels of earlier answers.

    Args:
        spec: Content of the model's `inference.json`.
        most: Largest number of labels.
    """
    name: Any = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    row: Any = Annotated[int, Field(ge=0, lt=1 << 31)]
    truth = _truths(spec["targets"]) if spec.get("targets") else _label(spec, Number)
    label: Any = create_model("Label", __config__=STRICT, id=(name, ...), row=(row, 0), label=(truth, ...))
    labels: Any = Annotated[list[label], Field(min_length=1, max_length=most)]
    return create_model("Labels", __config__=STRICT, labels=(labels, ...))


def _truths(targets: Sequence[Mapping[str, Any]]) -> Any:
    """Return the type of the labels of a model with several targets: one or more of them, by name."""
    fields: dict[str, Any] = {
        f"target_{number}": (_label(target, Number), Field(None, alias=target["name"])) for number, target in enumerate(targets)
    }
    return create_model("Truths", __config__=STRICT, **fields)


def truth_of(label: Any) -> Any:
    """Return a label as it was in the request's JSON, with the targets that it names."""
    return label.model_dump(by_alias=True, exclude_unset=True) if isinstance(label, BaseModel) else label


def where_of(place: Sequence[int | str]) -> str:
    """Return the path of a faulty value in the request, such as `rows[3].age`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in place if part != "body"]
    return "".join(parts).removeprefix(".") or "body"


def what_of(error: Mapping[str, Any]) -> str:
    """Return an error of pydantic as a message in mltrainer's words."""
    limits = error.get("ctx") or {}
    if error["type"] == "missing":
        return "expected a value, found none (send null for a missing value)"
    if error["type"] == "extra_forbidden":
        return "unknown name: /openapi.json lists the known ones"
    if error["type"] == "too_long":
        return f"expected a list of at most {limits['max_length']}, found one of {limits.get('actual_length') or 'more'}"
    if error["type"] == "too_short":
        return f"expected a list of at least {limits['min_length']}, found one of {limits['actual_length']}"
    found = "" if error["type"] in ("array", "cell", "chat", "text", "picture") else f", found {_shown(error.get('input'))}"
    return f"{error['msg'][0].lower()}{error['msg'][1:]}{found}"
