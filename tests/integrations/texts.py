"""A small project of texts with a tokenizer, as a user of Hugging Face's models would bring them."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

GOOD, BAD = ["good", "fine", "great", "lovely", "warm"], ["bad", "poor", "awful", "dull", "cold"]
FILLING = ["the", "film", "was", "a", "very", "and", "it", "plot", "actor", "with", "some", "long", "scenes"]
BERT = {
    "model_type": "bert",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}
GPT2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
ROOM = "mltrainer.integrations.transformers"


def write_texts(folder: Path, count: int = 240) -> None:
    """Write `reviews.csv`, `story.txt` and `tokenizer.json`."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder.mkdir(parents=True, exist_ok=True)
    draws = random.Random(7)
    rows = []
    for number in range(count):
        words = draws.choices(FILLING, k=draws.randint(3, 9)) + draws.choices((BAD, GOOD)[number % 2], k=3)
        draws.shuffle(words)
        rows.append([" ".join(words), ("bad", "good")[number % 2]])
    with (folder / "reviews.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["review", "label"], *rows])
    (folder / "story.txt").write_text("\n".join(text for text, _ in rows) + "\n")
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = {word: number for number, word in enumerate([*names, *GOOD, *BAD, *FILLING])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(names)
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.save(str(folder / "tokenizer.json"))


def task(name: str, model: Any = None, **options: Any) -> dict[str, Any]:
    """Return what stands under `task` for one of the classes."""
    own = {"target": "label"} if name == "SequenceClassification" else {}
    data = {} if "data" in options else {"data": "reviews.csv", **({} if own else {"text": "review"})}
    chosen = model or (GPT2 if name == "CausalLM" else BERT)
    return {
        "use": f"{ROOM}:{name}",
        "options": {"model": chosen, "tokenizer": "tokenizer.json", "length": 16, **data, **own, **options},
    }
