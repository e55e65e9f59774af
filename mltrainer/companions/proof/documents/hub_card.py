"""The model card for Hugging Face's hub: the delivered card, with license, data sets and base model in its front matter."""

from __future__ import annotations

from mltrainer.companions.proof.documents.answers import Answers
from mltrainer.configs import yaml
from mltrainer.errors import InputError

LICENSES = ("apache-2.0", "mit", "openrail", "bsd-3-clause", "gpl-3.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "cc0-1.0")
FENCE = "---\n"


def hub_card(card: str, answers: Answers) -> str:
    """Return a delivered card with a person's answers; a question without one is a comment there, which the hub passes over.

    Args:
        card: The text of `final_model/README.md`.
        answers: What a person said.

    Raises:
        InputError: The card has no front matter.
    """
    empty, fence, rest = card.partition(FENCE)
    if empty or not fence or FENCE not in rest:
        raise InputError(
            "the model card has no front matter", where="final_model/README.md", hint="mltrainer gate check finalization"
        )
    own = _metadata(answers)
    given = {key: value for key, value in own.items() if value}
    blank = [f"# {key}: yours to say\n" for key in ("license", "datasets") if not own[key]]
    return f"{FENCE}{yaml.dump(given) if given else ''}{''.join(blank)}{rest}"


def _metadata(answers: Answers) -> dict[str, object]:
    """Return the entries; the hub knows licenses by lower-case ids, and any other one by a name."""
    known = (answers.license or "").lower()
    license_id = known if known in LICENSES else "other" if known else None
    other = answers.license if license_id == "other" else None
    return {"license": license_id, "license_name": other, "datasets": answers.datasets, "base_model": answers.base_model}
