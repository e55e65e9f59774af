"""Text generation: each batch holds one token of each text, so that texts of several requests are continued together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mltrainer.checkpointing import inference_script
from mltrainer.companions.serving.contract import Prompt
from mltrainer.companions.serving.predictor import Answers, Ask, Rows

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

    row = Prompt

    def __init__(self, folder: Path, spec: dict[str, Any]) -> None:
        self._tokenizer = inference_script.open_tokenizer(spec, folder)
        self._length = int(spec["input"]["shape"][0])
        self._run = inference_script.open_model(folder)

    async def answer(self, rows: Rows, ask: Ask) -> Answers:
        """Return the continuation of each prompt.

        Raises:
            InvalidInputError: A prompt has no token.
        """
        return list(await asyncio.gather(*(self._continued(row, ask) for row in rows)))

    async def _continued(self, row: Prompt, ask: Ask) -> dict[str, Any]:
        return [answer async for _, answer in self.steps(row, ask)][-1]

    async def steps(self, row: Prompt, ask: Ask) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield for each token the text that it adds, and the answer up to it.

        Added text may change later if bytes turn out to be no letters: the last answer counts.

        Raises:
            InvalidInputError: The prompt has no token.
        """
        ids = inference_script.tokens_of(row.prompt, self._tokenizer)
        start, sent, draws = len(ids), "", inference_script.draws_of(row.seed)
        for _ in range(row.tokens):
            logits = await ask(inference_script.window_of(ids, self._length), 1)
            ids.append(inference_script.next_token(logits, min(len(ids), self._length), row.temperature, draws))
            text = str(self._tokenizer.decode(ids[start:]))
            added = text.removeprefix(sent) if text.startswith(sent) and not text.endswith(PARTIAL) else ""
            sent = text if added else sent
            yield added, {"continuation": text}

    def work(self, windows: Sequence[np.ndarray]) -> Sequence[np.ndarray | Exception]:
        """Return the logits [length, tokens] of each window of tokens."""
        return list(self._run(np.concatenate(windows)))
