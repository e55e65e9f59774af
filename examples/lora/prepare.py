"""Write the reviews and a tokenizer of their words: 4,000 for the base, 1,000 others of a shop for the adapter."""

from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from mltrainer.project.text_corpora import reviews

header, *rows = reviews(5000).splitlines()
answers = {"positive": "yes", "negative": "no"}
shop = [f"{text},{answers[label]}" for text, _, label in (row.rpartition(",") for row in rows[4000:])]
Path("base/reviews.csv").write_text("\n".join([header, *rows[:4000], ""]), encoding="utf-8")
Path("adapted/reviews.csv").write_text("\n".join(["review,again", *shop, ""]), encoding="utf-8")
tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))  # noqa: S106 - a word's place, and no secret
tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
special = trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
tokenizer.train_from_iterator([row.rpartition(",")[0] for row in rows[:4000]], special)
for project in ("base", "adapted"):
    tokenizer.save(f"{project}/tokenizer.json")
