"""Conversations of a JSONL file as token ids, and which of them are answers, by the chat template of the tokenizer's folder.

A template is a program in Jinja. transformers renders it in jinja2's `ImmutableSandboxedEnvironment`: it can read what it is
given, and neither change it nor reach files, modules or attributes of Python's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mltrainer.errors import InputError
from mltrainer.integrations.transformers import IGNORED, faults_at, library
from mltrainer.tasks.sources import near
from mltrainer.tasks.tables.files import HALF_CHARACTER, json_lines
from mltrainer.tasks.text import tokenizing
from mltrainer.tasks.text.config_inference import FORMS, found_in, is_conversation
from mltrainer.validation import faults_of
from mltrainer.workspace import machine_faults

ANSWERS = "assistant"  # the role whose messages are learned
TEMPLATE_FILE = "chat_template.jinja"
# The files that decide how a tokenizer's folder renders a conversation.
BESIDE = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.json", TEMPLATE_FILE)
CLOCK = "strftime_now"  # the function by which a template writes the date
GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")  # what a template puts around its answers, as transformers looks for it
UNSUITED = "bring messages as the template expects them, or mend it"
NO_DATE = 'the template asks for the date, and samples must be the same each day: template: {date_string: "26 Jul 2024"}'
Spans = Sequence[tuple[int, int]]


class Message(BaseModel):
    """A message of a conversation; its other keys are a template's."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow")
    role: str
    content: str


class Conversation(BaseModel):
    """A conversation, in which the messages of the assistant are learned."""

    model_config = ConfigDict(strict=True, frozen=True)
    messages: list[Message] = Field(min_length=1)


class Completion(BaseModel):
    """A text, of which the second part is learned."""

    model_config = ConfigDict(strict=True, frozen=True)
    prompt: str
    completion: str = Field(min_length=1)


Row = Conversation | Completion


@dataclass(frozen=True)
class Tokens:
    """A row as tokens.

    Attributes:
        ids: The token ids.
        labels: The same, `IGNORED` for tokens that are no part of an answer.
        place: The row's file and line.
    """

    ids: list[int]
    labels: list[int]
    place: str


def read_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield each row of a JSONL file with its `file:line`; keys beside those of its form are not read.

    Raises:
        InputError: The file or a line has none of the two forms.
        MachineError: The file may not be read.
    """
    if not path.is_file():
        raise InputError(f"no such file{near(path)}", where=path.as_posix(), hint="the path of `data` is relative to the project")
    with machine_faults(path.as_posix()):
        data = path.read_bytes()
    rows = json_lines(data, path.as_posix())
    if not rows:
        raise InputError("the file is empty", where=path.as_posix(), hint=f"a line for each conversation: {FORMS}")
    for number, row in rows.items():
        place = f"{path.as_posix()}:{number}"
        yield place, _row(row, place)


def _row(given: Any, place: str) -> Row:
    if not is_conversation(given):
        raise InputError(expected=FORMS, found=found_in(given), where=place, hint="name these keys so in every row")
    form = Conversation if "messages" in given else Completion
    try:
        return form.model_validate(given)
    except ValidationError as error:
        fault = faults_of(error)[0]
        raise InputError(f"{fault.place}: {fault.msg}", where=place, hint=f"expected {FORMS}") from error


class Encoder:
    """Makes tokens of conversations.

    Args:
        tokenizer: The `tokenizer.json`; the files beside it have the chat template and the names of special tokens.
        known: The same tokenizer, loaded.
        variables: Values for names in the template.

    Attributes:
        files: The files beside `tokenizer.json` that decide the tokens.
    """

    def __init__(self, tokenizer: Path, known: Any, variables: Mapping[str, Any]) -> None:
        self._folder, self._tokenizer = tokenizer.parent, tokenizing.without_processor(known)
        self.files = [str(path) for name in BESIDE if (path := tokenizer.parent / name).is_file()]
        with faults_at(self._folder.as_posix()):
            kind = library("transformers").PreTrainedTokenizerFast
            self._renderer = kind.from_pretrained(self._folder, local_files_only=True, trust_remote_code=False)
        # No clock: samples would differ from day to day. A template that calls it fails, as this is no function.
        self._variables = {**self._renderer.special_tokens_map, CLOCK: "", **variables}

    @property
    def template(self) -> str | None:
        """The chat template; None where the folder has none."""
        return self._template() if self._renderer.chat_template else None

    def described(self) -> dict[str, Any]:
        """Return the delivered entries for prompts: the template, its variables, and the tokens that end an answer."""
        ends = [end for end in (self._renderer.eos_token, self._turn_end()) if end is not None]
        template = None if self.template is None else TEMPLATE_FILE
        return {"template": template, "variables": [*self._variables.items()], "ends": ends}

    def _turn_end(self) -> str | None:
        """Return the special token that the template writes behind an answer; None where there is none."""
        asked = [{"role": "user", "content": "?"}, {"role": ANSWERS, "content": "!"}]
        with suppress(InputError):  # no template, or one that does not render this
            behind = self._rendered(asked, "an answer").rpartition("!")[2]
            first = self._tokenizer.encode(behind, add_special_tokens=False).ids[:1]
            known = self._tokenizer.get_added_tokens_decoder()
            return next((known[token].content for token in first if token in known), None)
        return None

    def tokens(self, row: Row, place: str) -> Tokens:
        """Return the tokens of a row, and which of them are learned.

        Raises:
            InputError: There is no template, or it does not suit the row.
        """
        ids, labels = self._completed(row, place) if isinstance(row, Completion) else self._chatted(row, place)
        # The first token is predicted from nothing, and where samples share a row, another one's end is before it.
        return Tokens(ids, [IGNORED, *labels[1:]], place)

    def _completed(self, row: Completion, place: str) -> tuple[list[int], list[int]]:
        """Return prompt and completion, encoded separately, as the delivered model gets its prompt alone."""
        end = self._renderer.eos_token
        if end is None:
            what = "no eos_token in the tokenizer's folder: without one a model does not learn where an answer ends"
            raise InputError(what, where=place, hint=f"name it in {self._folder.as_posix()}/tokenizer_config.json")
        prompt, answer = (self._encoded(text, (), place)[0] for text in (row.prompt, row.completion + end))
        return [*prompt, *answer], [*[IGNORED] * len(prompt), *answer]

    def _chatted(self, row: Conversation, place: str) -> tuple[list[int], list[int]]:
        messages = [message.model_dump() for message in row.messages]
        if all(message.role != ANSWERS for message in row.messages):
            hint = "add the answer to the conversation, or leave it out"
            raise InputError(f"no message has the role {ANSWERS!r}, whose messages are learned", where=place, hint=hint)
        template = self._template()
        text, spans = self._marked(template, messages, place) if GENERATION.search(template) else self._cut(messages, place)
        return self._encoded(text, spans, place)

    def _encoded(self, text: str, spans: Spans, place: str) -> tuple[list[int], list[int]]:
        """Return a text's ids, and labels of the tokens with a character of a span.

        transformers' own mask loses an answer that begins with a blank where a tokenizer's offsets leave blanks out.
        """
        if HALF_CHARACTER.search(text):
            raise InputError(
                "half of a character, of two that make one (a surrogate)", where=place, hint="write the whole character"
            )
        found = self._tokenizer.encode(text, add_special_tokens=False)
        learned = [any(start < high and low < end for low, high in spans) for start, end in found.offsets]
        return found.ids, [token if is_learned else IGNORED for token, is_learned in zip(found.ids, learned, strict=True)]

    def _marked(self, template: str, messages: list[dict[str, Any]], place: str) -> tuple[str, Spans]:
        """Return a rendered conversation, and the places that the template marks as generated."""
        from transformers.utils.chat_template_utils import render_jinja_template

        with self._rendering(place):
            texts, spans = render_jinja_template(
                [messages], chat_template=template, return_assistant_tokens_mask=True, **self._variables
            )
        return texts[0], spans[0]

    def _cut(self, messages: list[dict[str, Any]], place: str) -> tuple[str, Spans]:
        """Return a rendered conversation, and what each answer adds to the messages before it.

        Raises:
            InputError: The conversation does not begin with what the messages before an answer are rendered to.
        """
        whole, spans = self._rendered(messages, place), []
        for number, message in enumerate(messages):
            if message["role"] != ANSWERS:
                continue
            if number == 0:
                self._refuse("messages.0 is an answer, and no message before it shows where its text begins", place)
            before = self._rendered(messages[:number], place, add_generation_prompt=True)
            after = self._rendered(messages[: number + 1], place)
            if not (after.startswith(before) and whole.startswith(after)):
                what = f"the chat template renders the messages before messages.{number} differently once it is there"
                self._refuse(f"{what}, so that its tokens are not known", place)
            spans.append((len(before), len(after)))
        return whole, spans

    def _refuse(self, what: str, place: str) -> NoReturn:
        hint = f"put {{% generation %}} and {{% endgeneration %}} around the answers in {self._folder.as_posix()}/{TEMPLATE_FILE}"
        raise InputError(what, where=place, hint=hint)

    def _rendered(self, messages: list[dict[str, Any]], place: str, *, add_generation_prompt: bool = False) -> str:
        with self._rendering(place):
            text: str = self._renderer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=add_generation_prompt, **self._variables
            )
        return text

    def _template(self) -> str:
        with faults_at(self._folder.as_posix()):
            template: str = self._renderer.get_chat_template()
        return template

    @contextmanager
    def _rendering(self, place: str) -> Iterator[None]:
        """Turn what the template raises about a conversation into an `InputError`."""
        try:
            yield
        except Exception as error:  # a template may raise anything, and what the sandbox forbids
            what = f"the chat template in {self._folder.as_posix()} did not render it: {type(error).__name__}: {error}"
            is_dated = isinstance(error, TypeError) and CLOCK in self._template()
            raise InputError(what, where=place, hint=NO_DATE if is_dated else UNSUITED) from error
