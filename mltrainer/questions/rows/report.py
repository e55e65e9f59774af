"""Samples as `mltrainer rows` shows them: a table on the terminal, a page of pictures, cells or text in Markdown or HTML.

What a sample holds is somebody else's: in a page it is escaped, and no page has a script or asks for anything elsewhere.
"""

from __future__ import annotations

import base64
import html

from mltrainer.questions.rows.findings import FoundRows, Label, Row
from mltrainer.reports import markdown as md
from mltrainer.reports.terminal import table
from mltrainer.reports.values import counted, cut, number, visible

LONGEST = 60  # letters of a cell on the terminal
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
STYLE = (
    "body{font:15px system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}"
    "article{border-top:1px solid #ccc;padding:.8rem 0;overflow-wrap:anywhere}"
    "img{image-rendering:pixelated;width:96px;float:right}"
    "td{padding:0 1rem 0 0;vertical-align:top}p{margin:.3rem 0}"
)


def text(found: FoundRows) -> str:
    """Return the samples as a table under what is to be said of all."""
    heads = ["sample", "split", "loss", "label", "answer", "of label", "where", ""]
    rows = [[*_cells(row), row.reason or _then(row) or _content(row)] for row in found.rows]
    return "\n".join([*facts(found), table(rows, heads).rstrip("\n")])


def facts(found: FoundRows) -> list[str]:
    """Return the facts common to all samples, a sentence each."""
    lines = [_title(found)]
    lines += [found.because] if found.because else []
    if found.recorded_loss is not None:
        lines.append(f"The step's loss was {number(found.recorded_loss)}, in training mode.")
    if found.as_recorded is not None:
        agrees = "are those" if found.as_recorded else "are NOT those: data, split or seed changed since"
        lines.append(f"The digest of the samples that the run recorded: these {agrees}.")
    lines += [f"Loss and answer of each are those of {found.checkpoint}, in evaluation mode.", *_apart(found)]
    return [*lines, *(found.notes or [])]


def _apart(found: FoundRows) -> list[str]:
    """Return a sentence on the distance between the requested step and the checkpoint that answers; empty where there is none."""
    words = found.checkpoint.split()
    if found.step is None or words[0] != "step" or not (apart := int(words[1]) - found.step):
        return []
    where = f"{counted(abs(apart), 'step')} {'later' if apart > 0 else 'earlier'} than that"
    return [f"No checkpoint of step {found.step:,} is kept: this one is {where}, and answers otherwise."]


def _title(found: FoundRows) -> str:
    shown, run, total = len(found.rows), found.run, found.total
    if found.chosen == "step":
        which = f"its {total} samples, the hardest first" if shown == total else f"the {shown} hardest of its {total} samples"
        return f"Run {run}, step {found.step} (epoch {found.epoch}): {which}."
    what = {
        "epoch": f"of the {total} samples of epoch {found.number}, the {shown} hardest",
        "hardest": f"the {shown} hardest of {total} training and validation samples",
        "mislabelled": f"{shown} samples whose label is probably wrong, of {total} that look so",
        "nonfinite": f"{shown} of the {total} samples that hold NaN or infinity",
    }
    return f"Run {run}: {what[found.chosen]}."


def _cells(row: Row) -> list[str]:
    share = "" if row.share is None else f"{100 * row.share:.3g} %"
    return [
        str(row.sample),
        row.split,
        number(row.loss),
        _value(row.label),
        _value(row.answer),
        share,
        row.place,
    ]


def _then(row: Row) -> str:
    return "" if row.then is None else f"loss {number(row.then)} in that step"


def _value(value: Label) -> str:
    return "" if value is None else value if isinstance(value, str) else number(value)


def _content(row: Row) -> str:
    """Return a sample's content in one line."""
    cells = ", ".join(f"{name}={value}" for name, value in row.cells.items())
    return cut(cells or " ".join(map(number, row.values)), LONGEST)


# --- pages ----------------------------------------------------------------------------------------


def markdown(found: FoundRows, folder: str) -> tuple[str, dict[str, bytes]]:
    """Return a page in Markdown, and its pictures by file name.

    Args:
        found: What `mltrainer rows --json` prints.
        folder: Where the pictures will lie, relative to the page.
    """
    pictures = {f"{row.sample}.png": base64.b64decode(row.picture) for row in found.rows if row.picture}
    blocks = [f"# {md.text(_title(found))}", *(md.text(line) for line in facts(found)[1:])]
    for row in found.rows:
        blocks += [f"## Sample {row.sample}", md.text(_sentence(row))]
        blocks += [f"![sample {row.sample}]({folder}/{row.sample}.png)"] if row.picture else []
        blocks += [md.facts((md.text(name), md.text(value)) for name, value in _held(row).items())] if _held(row) else []
    return md.document(blocks), pictures


def page(found: FoundRows) -> str:
    """Return a page in HTML with its pictures in it; it has no script, and its policy allows none."""
    articles = "\n".join(_article(row) for row in found.rows)
    lines = "\n".join(f"<p>{_escaped(line)}</p>" for line in facts(found)[1:])
    title = _escaped(_title(found))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n{lines}\n{articles}\n</body></html>\n"
    )


def _article(row: Row) -> str:
    source = f"data:image/png;base64,{row.picture}"
    picture = f'<img src="{source}" alt="sample {row.sample}">' if row.picture else ""
    cells = "".join(f"<tr><td>{_escaped(name)}</td><td>{_escaped(value)}</td></tr>" for name, value in _held(row).items())
    held = f"<table>{cells}</table>" if cells else ""
    return f"<article>{picture}<h2>Sample {row.sample}</h2><p>{_escaped(_sentence(row))}</p>{held}</article>"


def _sentence(row: Row) -> str:
    _, split, loss, label, answer, share, place = _cells(row)
    told = f"{place} ({split}): loss {loss}"
    told += f", label {label}" if label else ""
    told += f", answer {answer}" if answer else ""
    told += f", {share} for its label" if share else ""
    return told + "".join(f"; {more}" for more in (row.reason, _then(row)) if more)


def _held(row: Row) -> dict[str, str]:
    """Return a sample's cells, or its first numbers."""
    values = {"values": ", ".join(map(number, row.values))} if row.values else {}
    return {name: visible(cell) for name, cell in row.cells.items()} or values


def _escaped(value: object) -> str:
    return html.escape(visible(value))
