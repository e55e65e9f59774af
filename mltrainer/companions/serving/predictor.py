"""The model in memory: it turns rows of requests into answers with the functions of the delivered script.

Of a text generator each batch holds one token of each text, so that texts of several requests are continued together.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mltrainer.checkpointing import inference_script
from mltrainer.checkpointing.inference_script import BATCH, Inputs, InvalidInputError
from mltrainer.companions.serving import contract
from mltrainer.companions.serving.contract import Chat, Prompt

Rows = Sequence[Any]
Answers = list[dict[str, Any]]
Ask = Callable[[Any, int], Awaitable[Any]]  # hands an item and its size to the batches, and returns its result


def reader_of(spec: Mapping[str, Any], folder: Path) -> Callable[[Rows], Inputs]:
    """Return the function that turns a request's rows, of the contract's type, into the model's input.

    Raises:
        InvalidInputError: A package is missing.
    """
    said = dict(spec)
    match contract.form_of(said):
        case "raw":
            function = inference_script.open_preprocess(said, folder)
            return lambda rows: _raw(function, list(rows), said)
        case "named":
            return lambda rows: _named(rows, said["model_inputs"])
        case "table":
            return lambda rows: inference_script.to_matrix(_cells(rows), said)
        case "texts":
            tokenizer = inference_script.open_tokenizer(said, folder)
            return lambda rows: inference_script.to_tokens(list(rows), said, tokenizer)
        case "picture":
            return lambda rows: _pictures(rows, said)
        case "images":
            return lambda rows: _images(rows, said)
    return _stacked


def _raw(function: Callable[[list[Any], dict[str, Any]], Any], rows: list[Any], spec: dict[str, Any]) -> Inputs:
    try:
        return inference_script.prepared(function, rows, spec)
    except Exception as error:  # the model's own code may raise anything
        raise InvalidInputError(f"rows: the model's {spec['preprocess']} cannot read them: {error}") from error


def _stacked(rows: Rows) -> np.ndarray:
    try:
        return np.stack(rows)
    except ValueError as error:
        raise InvalidInputError(f"rows: {error}") from error


def _named(rows: Rows, names: Sequence[str]) -> dict[str, np.ndarray]:
    return {name: _stacked([getattr(row, f"input_{number}") for row in rows]) for number, name in enumerate(names)}


def _cells(rows: Rows) -> list[dict[str, str]]:
    """Return rows as the text of their cells, as in a file."""
    return [{name: inference_script.as_text(value) for name, value in row.model_dump(by_alias=True).items()} for row in rows]


def _pictures(rows: Rows, spec: dict[str, Any]) -> np.ndarray:
    return np.stack([inference_script.read_picture(data, f"rows[{number}]", spec) for number, data in enumerate(rows)])


def _images(rows: Rows, spec: dict[str, Any]) -> np.ndarray:
    array = np.array(rows, dtype=np.float64)
    if spec["input"].get("dtype") == "uint8":
        if ((array < 0) | (array > 255) | (array != np.floor(array))).any():
            raise InvalidInputError("rows: expected whole numbers from 0 to 255")
        array = array.astype(np.uint8)
    return inference_script.to_images(array, "rows", spec)


class Predictor:
    """A model that answers the rows of several requests at once.

    Args:
        folder: Folder of the delivered model.
        spec: Content of its `inference.json`.

    Attributes:
        row: The type of a row in a request.

    Raises:
        InvalidInputError: None of its files can run here, or a package is missing.
    """

    def __init__(self, folder: Path, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._read = reader_of(spec, folder)
        self.row = contract.row_of(spec)
        self._run = inference_script.open_model(folder)

    async def answer(self, rows: Rows, ask: Ask) -> Answers:
        """Return the answer to each row.

        Raises:
            InvalidInputError: The model cannot read a row.
        """
        answers: Answers = await ask(rows, len(rows))
        return answers

    def work(self, requests: Sequence[Rows]) -> list[Answers | Exception]:
        """Return each request's answers, or its error if the model cannot read its rows."""
        inputs = [self._inputs(rows) for rows in requests]
        good = [read for read in inputs if not isinstance(read, Exception)]
        said = iter(inference_script.answers(self._outputs(_joined(good)), self._spec) if good else ())
        return [
            read if isinstance(read, Exception) else [next(said) for _ in rows]
            for read, rows in zip(inputs, requests, strict=True)
        ]

    def _inputs(self, rows: Rows) -> Inputs | InvalidInputError:
        try:
            return _typed(self._read(rows), getattr(self._run, "types", {}))
        except InvalidInputError as error:
            return error

    def _outputs(self, inputs: Inputs) -> np.ndarray:
        count = len(inference_script.parts_of(inputs)[0])
        return np.concatenate([self._run(inference_script.batch_of(inputs, low)) for low in range(0, count, BATCH)])


def _typed(inputs: Inputs, types: Mapping[str, str | None]) -> Inputs:
    """Return inputs in the model's types, which JSON's numbers lack; by default float32, and int64 for whole numbers."""
    parts = inputs if isinstance(inputs, dict) else {next(iter(types), "input"): inputs}
    defaults: dict[str, np.dtype[Any]] = {"f": np.dtype("float32"), "i": np.dtype("int64")}

    def typed(name: str, part: np.ndarray) -> np.ndarray:
        given = types.get(name)
        wanted: np.dtype[Any] = np.dtype(given) if given else defaults.get(part.dtype.kind, part.dtype)
        return part.astype(wanted, copy=False)

    typed_parts = {name: typed(name, part) for name, part in parts.items()}
    return typed_parts if isinstance(inputs, dict) else next(iter(typed_parts.values()))


def _joined(inputs: Sequence[Inputs]) -> Inputs:
    """Return the concatenated inputs of several requests."""
    first = inputs[0]
    if isinstance(first, dict):
        return {name: np.concatenate([one[name] for one in inputs if isinstance(one, dict)]) for name in first}
    return np.concatenate([np.asarray(one) for one in inputs])


NOTHING: dict[str, Any] = {"continuation": ""}  # the answer that ends where it begins
PARTIAL = "\ufffd"  # replaces the first bytes of a letter whose other bytes are in the next token


class Generator:
    """A model that continues the texts of several requests at once, each as `mltrainer predict` does.

    Args:
        folder: Folder of the delivered model.
        spec: Content of its `inference.json`.

    Attributes:
        row: The type of a row in a request.

    Raises:
        InvalidInputError: None of its files can run here, or a package is missing.
    """

    def __init__(self, folder: Path, spec: dict[str, Any]) -> None:
        self._folder, self._chats = folder, spec.get("conversations")
        self.row: type[Chat | Prompt] = contract.row_of(spec)
        if self.row is Chat:
            inference_script.open_renderer()  # takes seconds where nothing has imported it
        self._tokenizer = inference_script.open_tokenizer(spec, folder)
        self._length = int(spec["input"]["shape"][0])
        self._run = inference_script.open_model(folder)
        self._ends = inference_script.ends_of(spec, self._tokenizer)

    async def answer(self, rows: Rows, ask: Ask) -> Answers:
        """Return the continuation of each prompt, or the answer to each conversation.

        Raises:
            InvalidInputError: A prompt has no token, or the chat template does not render a conversation.
        """
        return list(await asyncio.gather(*(self._continued(row, ask, number) for number, row in enumerate(rows, 1))))

    async def _continued(self, row: Chat | Prompt, ask: Ask, number: int) -> dict[str, Any]:
        return [NOTHING, *[answer async for _, answer in self.steps(row, ask, number)]][-1]

    def prompt_of(self, row: Chat | Prompt, number: int) -> str:
        """Return the text that is continued: of a conversation, as in training, what its chat template makes of it."""
        if isinstance(row, Prompt) or "prompt" in row.model_fields_set:
            return row.prompt
        given = {"messages": [message.model_dump() for message in row.messages]}
        return inference_script.prompt_of(given, dict(self._chats or {}), number, self._folder)

    async def steps(self, row: Chat | Prompt, ask: Ask, number: int = 1) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield for each token the text that it adds, and the answer up to it; nothing where the answer is empty.

        Added text may change later if bytes turn out to be no letters: the last answer counts.

        Raises:
            InvalidInputError: The prompt has no token, or the chat template does not render the conversation.
        """
        ids = inference_script.tokens_of(self.prompt_of(row, number), self._tokenizer)
        start, sent, draws = len(ids), "", inference_script.draws_of(row.seed)
        for _ in range(row.tokens):
            logits = await ask(inference_script.window_of(ids, self._length), 1)
            found = inference_script.next_token(logits, min(len(ids), self._length), row.temperature, draws)
            if found in self._ends:
                break
            ids.append(found)
            text = str(self._tokenizer.decode(ids[start:]))
            added = text.removeprefix(sent) if text.startswith(sent) and not text.endswith(PARTIAL) else ""
            sent = text if added else sent
            yield added, {"continuation": text}

    def work(self, windows: Sequence[np.ndarray]) -> Sequence[np.ndarray | Exception]:
        """Return the logits [length, tokens] of each window of tokens."""
        return list(self._run(np.concatenate(windows)))
