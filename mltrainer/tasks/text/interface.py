"""The interface of a delivered text model: its input, made by the tokenizer's file, and its output."""

from __future__ import annotations

from typing import Any

TOKENIZER_FILE = "tokenizer.json"


def inference(kind: str, width: int, notes: list[str], output: str = "logits", **others: Any) -> dict[str, Any]:
    """Return the description of a text model's input and output.

    Args:
        kind: The task's kind; a model for generation reads a prompt, the others texts.
        width: Number of tokens that the model reads.
        notes: Sentences on the reading of the texts.
        output: The meaning of the model's outputs.
        **others: Other entries, such as the column of texts and the classes.
    """
    name = "prompt" if kind == "text_generation" else "texts"
    return {
        "kind": kind,
        "input": {"name": name, "dtype": "int64", "shape": [width]},
        "preparation": notes,
        "tokenizer": TOKENIZER_FILE,
        "output": output,
        **others,
    }
