"""The sentences that the product shows are in plain words."""

import re

from tests.messages import messages

# The word, and what to write in its place.
WORDS = {
    "anew": "again",
    "told": "reported, known",
    "tells?": "predicts, shows, distinguishes, reports",
    "likewise": "the same",
    "by heart": "memorized",
    "one's own": "custom",
    "so many": "this number of, at most N",
    "stands? (?:in|there|above|apart)": "is",
    "lies": "is",
    "affair": "the subject itself",
    "none of (?:none|this|it)": "not one of",
}
EXAMPLES = "mltrainer/project/text_corpora.py"  # sentences of an example's data set, not the product's
VALUE = re.compile(r"\{[^}]*\}")  # a name in the code
IDIOM = re.compile(r"\b(?:" + "|".join(WORDS) + r")\b")


def test_a_message_uses_plain_words():
    odd = [
        f"{place}: {text}" for place, text in messages() if not place.startswith(EXAMPLES) and IDIOM.search(VALUE.sub("", text))
    ]
    assert not odd, "\n".join([*odd, *(f"{word} -> {plain}" for word, plain in WORDS.items())])
