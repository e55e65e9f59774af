"""A small project of conversations with a tokenizer's folder, as a user who fine-tunes a language model would bring them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
# The same text twice: a template without marks, and one that marks the answers as generated.
PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}<|im_end|>\n{% endgeneration %}{% else %}{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
)
LLAMA = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 256,
}
GPT2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 256, "resid_pdrop": 0.1}


def chats(count: int) -> list[dict[str, Any]]:
    """Return conversations of one to three questions, all different; an answer in four begins with a blank."""
    draws, rows = random.Random(3), []
    for number in range(count):
        said = [{"role": "system", "content": "You count."}] if number % 3 == 0 else []
        for turn in range(draws.randint(1, 3)):
            first = draws.randint(0, 9)
            said.append({"role": "user", "content": f"{100 * number + turn}: what comes after {NUMBERS[first]}?"})
            said.append({"role": "assistant", "content": " " * (number % 4 == 0) + NUMBERS[first + 1]})
        rows.append({"messages": said})
    return rows


def completions(count: int) -> list[dict[str, Any]]:
    """Return prompts with their completions, all different."""
    return [{"prompt": f"{n}: after {NUMBERS[n % 10]} comes ", "completion": NUMBERS[n % 10 + 1]} for n in range(count)]


def write_chats(folder: Path, rows: list[dict[str, Any]] | None = None, template: str | None = PLAIN) -> None:
    """Write `chat.jsonl`, and the folder of a byte-pair tokenizer, which has no token for padding."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    (folder / "tok").mkdir(parents=True, exist_ok=True)
    rows = chats(60) if rows is None else rows
    (folder / "chat.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    special = ["</s>", "<|im_start|>", "<|im_end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    texts = [message["content"] for row in chats(60) for message in row["messages"]]
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(folder / "tok/tokenizer.json"))
    named = {"eos_token": "</s>", **({} if template is None else {"chat_template": template})}
    (folder / "tok/tokenizer_config.json").write_text(json.dumps(named))


def task(model: Any = None, **options: Any) -> dict[str, Any]:
    """Return what stands under `task`."""
    given = {"data": "chat.jsonl", "model": model or LLAMA, "tokenizer": "tok", "length": 256, **options}
    return {"use": "mltrainer.integrations.fine_tuning:FineTuning", "options": given}
