"""Templates of documents with sections: each filled in as far as the record goes, the rest marked as a person's to write."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import NamedTuple

from mltrainer.companions.proof.documents import facts
from mltrainer.companions.proof.documents.answers import Answers
from mltrainer.companions.proof.documents.facts import Known, Record, Said
from mltrainer.errors import InputError

NOBODY_CLAIMS = "It claims no conformity: a person has to read it, complete it and answer for it."


class Section(NamedTuple):
    """A section of a document.

    Attributes:
        key: Its name in a person's answers, below the document's.
        title: Its title.
        asked: What it asks for.
        known: The text that the record gives, or None.
        said: The text that a person's other answers give, or None.
    """

    key: str
    title: str
    asked: str
    known: Known = facts.nothing
    said: Said = facts.unsaid


class Template(NamedTuple):
    """A document: its name in answers and title, the source of its sections, and the sections."""

    name: str
    title: str
    source: str
    sections: tuple[Section, ...]


NEURIPS = Template(
    "neurips",
    "Paper checklist",
    "the titles of the NeurIPS paper checklist of 2025, in our words; answer in the form of your venue and year",
    (
        Section("claims", "Claims", "Do abstract and introduction claim what the paper shows?", facts.accepted),
        Section(
            "limitations", "Limitations", "Does the paper discuss what the work cannot do?", said=facts.answer("limitations")
        ),
        Section("theory", "Theory", "Does each theoretical result have its assumptions and a proof?"),
        Section("reproducibility", "Experimental result reproducibility", "Can the main results be reproduced?", facts.again),
        Section("open_access", "Open access to data and code", "Are data and code there, with commands?", facts.inputs),
        Section("setting", "Experimental setting", "Are splits, hyperparameters and how they were chosen given?", facts.data),
        Section("significance", "Statistical significance", "Are there error bars, and is said what they cover?", facts.results),
        Section("compute", "Compute resources", "What hardware, memory and time did it take?", facts.machine),
        Section("ethics", "Code of ethics", "Does the work conform with the venue's code of ethics?"),
        Section("impact", "Broader impacts", "Are good and bad effects on society discussed?", said=facts.answer("risks")),
        Section("safeguards", "Safeguards", "How is misuse of what is released prevented?"),
        Section("licenses", "Licenses", "Are creators credited, and licenses named and respected?", said=facts.licenses),
        Section("assets", "New assets", "Is what is released documented?", facts.model),
        Section("crowdsourcing", "Crowdsourcing", "Are instructions to participants and their pay given?"),
        Section("review_board", "Review board", "Were risks to participants reviewed and approved?"),
        Section("language_models", "Use of language models", "Is it said, where they are part of the method?"),
    ),
)
ANNEX_IV = Template(
    "annex_iv",
    "Technical documentation: a template after Annex IV of the EU's AI Act",
    "the nine points of Annex IV of Regulation (EU) 2024/1689, shortened; the law's text decides",
    (
        Section(
            "general",
            "1. General description",
            "Purpose, provider, version, how it is used, on what.",
            said=facts.answer("intended_use"),
        ),
        Section("development", "2a. Development", "Methods and steps, third-party models and tools.", facts.inputs),
        Section("design", "2b, c. Design and architecture", "Logic, choices, what is optimized, computing power.", facts.model),
        Section("data", "2d. Data", "Origin, scope, selection, labelling, cleaning.", facts.data),
        Section("oversight", "2e. Human oversight", "The measures by which people can oversee it."),
        Section("changes", "2f. Changes determined beforehand", "What may change, and how it stays compliant."),
        Section("testing", "2g. Validation and testing", "Data, metrics, results, logs, signed and dated reports.", facts.tested),
        Section("security", "2h. Cybersecurity", "The measures taken."),
        Section(
            "control",
            "3. Monitoring and control",
            "Capabilities, limits, accuracy for groups, risks.",
            said=facts.answer("limitations"),
        ),
        Section("metrics", "4. Fitness of the metrics", "Why these metrics fit this system.", facts.accepted),
        Section("risks", "5. Risk management", "The system of Article 9.", said=facts.answer("risks")),
        Section("lifecycle", "6. Changes through its life", "What the provider changed."),
        Section("standards", "7. Standards", "Harmonised standards applied, or what was done instead."),
        Section("declaration", "8. Declaration of conformity", "A copy of the EU declaration, which the provider makes."),
        Section("after_market", "9. After it is on the market", "The plan of Article 72, paragraph 3."),
    ),
)
TEMPLATES = (NEURIPS, ANNEX_IV)


def filled_in(template: Template, record: Record, answers: Answers) -> str:
    """Return a document as Markdown; a section that neither record nor person fills in is marked."""
    head = [f"# {template.title}", "", f"{record.project.name}, run `{record.evidence.run.id}`. Sections: {template.source}."]
    lines = [*head, f"Made by `mltrainer package` from the records. {NOBODY_CLAIMS}", ""]
    for section in template.sections:
        lines += [f"## {section.title}", "", f"> {section.asked}", "", *_content(template, section, record, answers)]
    return "\n".join(lines)


def _content(template: Template, section: Section, record: Record, answers: Answers) -> list[str]:
    place = f"{template.name}.{section.key}"
    known, said = section.known(record), answers.written.get(place) or section.said(answers)
    blank = f"**For a person to fill in** (`written` in answers.yaml: `{place}`)"
    return [*([f"From the records: {known}", ""] if known else []), f"From a person: {said.rstrip()}" if said else blank, ""]


def require_known(written: Mapping[str, str], where: str) -> None:
    """Require that a person's texts are for sections that there are.

    Raises:
        InputError: One is for none.
    """
    known = [f"{template.name}.{section.key}" for template in TEMPLATES for section in template.sections]
    for place in written:
        if place not in known:
            close = difflib.get_close_matches(place, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"the first one is {known[0]}"
            raise InputError(f"written has {place!r}, which no document asks for", where=where, hint=hint)
