"""The filters of reports' templates: each one that gives Markdown has escaped the values from the record."""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

from markupsafe import Markup

from mltrainer.configs.loading import at
from mltrainer.configs.optimizers import BuiltIn
from mltrainer.configs.project import ACCEPTED
from mltrainer.configs.schedules import Schedule
from mltrainer.records.common import Cause
from mltrainer.records.planning import Distribution
from mltrainer.reports import markdown as md
from mltrainer.reports import values, views
from mltrainer.reports.criteria import JUDGED_BY
from mltrainer.reports.gate_items import gate_line
from mltrainer.reports.model_card import front_matter as card_lines
from mltrainer.reproducibility.causes import sentence as cause_sentence
from mltrainer.reproducibility.levels import MEANING, level_of

VERDICTS = {"pass": "✅ pass", "fail": "❌ **FAIL**", "not_applicable": "⚪ not applicable", "waived": "⚠️ **WAIVED**"}
STATES = {"fired": "🔴 **fired**", "clear": "🟢 clear", "not_applicable": "⚪ not applicable"}
EXPORT_STATES = {"written": "written", "not_available": "not available", "failed": "❌ **failed**"}
SEVERITIES = {"error": "❌ error", "warning": "⚠️ warning", "info": "note"}
STOPS = {
    "epochs": "all planned epochs were trained",
    "early_stopping": "early stopping: the metric no longer improved",
    "nonfinite": "a value was not finite",
    "spikes": "there were more spikes than spikes.most",
    "diverged": "it differed from the run it was compared with",
    "signal": "it was asked to stop",
    "budget": "its time was over (budget.minutes)",
    "max_steps": "the step limit was reached",
    "pruned": "its metric was too far behind other trials",
}
ADVICE = {
    "deploy": "The model is good enough: optimization is skipped, on the record, and finalization follows.",
    "optimize": "The model does not meet its criterion yet: look at the findings, then search for a better config.",
    "debug": "Something is wrong with the training: change the config, or fix the data or the code, and plan again.",
}
COMBINED = {"uniform": "The mean of the weights", "greedy": "The greedy mean of the weights", "ensemble": "The ensemble"}
ALWAYS = ("lr", "weight_decay")  # shown also where they are the defaults
_NOT_FINITE = ("nan", "inf", "-inf")


def final(value: Any) -> Markup:
    """Return the value of a template's expression as Markdown: markup unchanged, anything else escaped."""
    return Markup(value) if hasattr(value, "__html__") else Markup(md.text(value))


def _measure(shown: Callable[..., str]) -> Callable[..., Markup]:
    """Return a filter for numbers; a text in place of a number is shown as text."""

    def apply(value: Any, *arguments: Any) -> Markup:
        is_text = isinstance(value, str) and value not in _NOT_FINITE
        return Markup(md.text(value)) if is_text else Markup(shown(value, *arguments))

    return apply


def _markdown(shown: Callable[..., str]) -> Callable[..., Markup]:
    return lambda *arguments: Markup(shown(*arguments))


def _word_filter(names: Mapping[str, str]) -> Callable[[Any], Markup]:
    """Return a filter for one of a few words; another word is shown as text."""
    return lambda word: Markup(names[word]) if word in names else Markup(md.text(word))


def _digest(length: int) -> Callable[[Any], Markup]:
    return lambda value: Markup(md.code(None if value is None else values.short(value, length)))


def command(given: str | Sequence[Any]) -> Markup:
    """Return a command in a block to copy: a text, a list of lines, or a list of arguments that begins with `mltrainer`."""
    if isinstance(given, str):
        return Markup(md.block([given], "sh"))
    if given[:1] == ["mltrainer"]:
        return Markup(md.block([shlex.join(values.visible(part) for part in given)], "sh"))
    return Markup(md.block(given, "sh"))


def quoted(body: str) -> Markup:
    """Return Markdown as lines of a block quote."""
    return Markup("\n".join(f"> {line}".rstrip() for line in str(body).split("\n")))


def guide(page: str) -> Markup:
    """Return the command that shows a page of the handbook."""
    return Markup(md.code(f"mltrainer guide {shlex.quote(values.visible(page).removesuffix('.md'))}"))


def change(value: Any) -> Markup:
    """Return a suggested change of a key in words: a factor, or a new value."""
    if isinstance(value, str) and value[:1] == "x":
        return Markup(f"times {md.text(value[1:])}")
    return Markup(f"= {md.setting(value)}")


def tried(value: Any) -> Markup:
    """Return the value that a trial was trained with."""
    return Markup(values.number(value) if isinstance(value, float) else md.plain_value(value))


def claim(record: Mapping[str, Any], part: str) -> Markup:
    """Return a part of the claim of reproducibility: `level`, the level's `meaning`, `tested`, or `intended` with its meaning."""
    found = level_of(record)
    parts = {
        "level": found.level,
        "meaning": f": {MEANING[found.level]}" if found.level in MEANING else "",
        "tested": md.text(found.tested),
        "intended": f"{found.intended}: {MEANING[found.intended]}",
    }
    return Markup(parts[part])


def named(choice: Mapping[str, Any] | None) -> Markup:
    """Return a choice of the config: its name, rate and decay, and the options that are on and differ from the defaults."""
    usual = _defaults().get((choice or {}).get("name", ""), {})
    options = {key: value for key, value in chosen(choice or {}).items() if key in ALWAYS or value != usual.get(key)}
    options.pop("name", None)
    words = [md.text((choice or {}).get("name", "")), *([md.setting(options, values.measured)] if options else [])]
    return Markup(", ".join(words))


@functools.cache
def _defaults() -> dict[str, dict[str, Any]]:
    """Return the defaults of the built-in optimizers and schedules by name; `own` is the name of one of each."""
    found: dict[str, dict[str, Any]] = {}
    for kind in (*get_args(get_args(BuiltIn)[0]), *get_args(get_args(Schedule)[0])):
        options = {key: one.get_default(call_default_factory=True) for key, one in kind.model_fields.items()}
        found.setdefault(options["name"], {}).update(options)
    return found


def chosen(options: Any) -> Any:
    """Return the options that are on, neither empty, 0 nor off; a value that is no mapping is returned unchanged."""
    return {key: value for key, value in options.items() if value} if isinstance(options, Mapping) else options


def words(found: Mapping[str, Any], *keys: str) -> str:
    """Return the values under some keys that are not empty, with a space between them."""
    return " ".join(str(found[key]) for key in keys if found.get(key))


def _is_template(path: str) -> bool:
    """Return True for a config template: its values only start a config, and no gate judges by them."""
    return path.startswith("configs/")


def _codes(items: Iterable[Any]) -> str:
    return ", ".join(map(md.code, items))


def _texts(items: Iterable[Any]) -> str:
    return ", ".join(map(md.text, items))


def loaders(workers: Any) -> str:
    """Return a sentence on the number of loader processes."""
    if not workers:
        return "no other process will load them"
    return "1 process will load them" if workers == 1 else f"{values.number(workers)} processes will load them"


def interval(ends: Any) -> Markup:
    """Return an interval's two ends in words, or "none"."""
    found = isinstance(ends, list) and len(ends) == 2
    return Markup(f"{values.number(ends[0])} to {values.number(ends[1])}" if found else "none")


def _limit(criterion: str) -> float | None:
    """Return the number of an acceptance criterion such as `>= 0.95`."""
    found = re.search(r"[-+.\w]+$", criterion)
    return float(found[0]) if found else None


def agrees(value: Any) -> str:
    """Return the verdict on an export's outputs against the trained model's."""
    return "not compared" if value is None else "✅ yes" if value is True else "❌ no"


def front_matter(content: Mapping[str, Any]) -> Markup:
    """Return the model card's YAML; values from the record are JSON strings in it, whose markup is escaped."""
    record = views.record_of(content)
    return Markup("\n".join(["---", *card_lines(record.project.name, record.evidence, yaml_string), "---"]))


def yaml_string(value: object) -> str:
    """Return text as a YAML scalar: a JSON string of visible characters is one; tags and templates are escaped."""
    shown = json.dumps(values.visible(value), ensure_ascii=False)
    return shown.replace("<", "\\u003c").replace("{", "\\u007b").replace("[", "\\u005b")


# Only these: Jinja's own `safe`, `join`, `format`, `replace`, `escape` and others return Markdown that was never escaped.
FILTERS: dict[str, Callable[..., Any]] = {
    # numbers
    **{
        name: _measure(getattr(values, name))
        for name in (
            *("number", "given", "measured", "duration", "share", "size", "megabytes", "microseconds", "minutes", "signed"),
            *("counted", "times"),
        )
    },
    "beside": _measure(values.apart),
    "limit": _limit,
    # text
    "code": _markdown(md.code),
    "codes": _markdown(_codes),
    "texts": _markdown(_texts),
    "setting": _markdown(md.setting),
    "plain": _markdown(md.plain_value),
    "evidence": _markdown(lambda value: md.evidence(value) or "none"),
    "embedded": _markdown(md.embedded),
    "digest": _digest(16),
    "short": _digest(12),
    "command": command,
    "verbatim": _markdown(lambda text: md.block(str(text).split("\n"), "text")),
    "python": _markdown(lambda lines: md.block(lines, "python")),
    "yaml": _markdown(lambda lines: md.block(lines, "yaml")),
    "quoted": quoted,
    "guide": guide,
    "words": words,
    # words that stand for states
    "gate_line": _markdown(gate_line),
    "verdict": _word_filter(VERDICTS),
    "state": _word_filter(STATES),
    "export_state": _word_filter(EXPORT_STATES),
    "severity": _word_filter(SEVERITIES),
    "stop": _word_filter(STOPS),
    "advice": lambda word: ADVICE.get(word, "The recommendation is not one that the workflow knows."),
    "agrees": agrees,
    "interval": interval,
    "loaders": loaders,
    "change": change,
    "tried": tried,
    "cause": views.of_model(Cause, cause_sentence),
    "claim": claim,
    "named": named,
    "chosen": chosen,
    "front_matter": front_matter,
    # looking into a record
    "at": at,
    "of": views.of,
    "items": lambda found: sorted(found.items()),
    "keys": sorted,
    "finite": values.finite,
    "first": lambda found: next(iter(found), None),
    "length": len,
    "start_values": lambda paths: [path for path in paths if _is_template(path)],
    "criteria": lambda rows: [row for row in rows if row["key"].partition(".")[0] in JUDGED_BY],
    "accepted": lambda rows: [row for row in rows if ACCEPTED in row["what"]],
    "against": lambda of: f"mltrainer report --against {of.removeprefix('commit ')}" if of.startswith("commit ") else None,
    "own_pages": lambda paths: [path for path in paths if not _is_template(path)],
    "editable": views.of_models(Distribution, lambda rows: [row.name for row in rows if row.editable]),
    "combined_how": _word_filter(COMBINED),
    **views.FILTERS,
}
