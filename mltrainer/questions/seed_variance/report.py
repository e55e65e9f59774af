"""What several seeds gave, as a page and as text for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mltrainer.questions.seed_variance.findings import SeedVariance
from mltrainer.reports import markdown as md
from mltrainer.reports.terminal import table
from mltrainer.reports.values import counted, number

if TYPE_CHECKING:
    from mltrainer.figures.figure import Figure

OURS = "Weights, order of samples and every other draw differ with the seed; the split stays.", "`mltrainer ablate`"
A_PROGRAM_S = "What differs with the seed, only the program knows.", "a search (`mltrainer phase run optimization`)"


def rows(found: SeedVariance) -> list[tuple[str, str]]:
    """Return the statistics over seeds as pairs of label and value, in words."""
    ends, share = found.interval, f"{number(100 * found.confidence, 2)} % interval of the mean"
    return [
        ("mean", "none: a run failed" if found.mean is None else number(found.mean)),
        (share, _without(found) if ends is None else f"{number(ends[0])} to {number(ends[1])}"),
        ("deviation of a single run", number(found.deviation)),
        ("two runs differ by luck alone by up to", f"{number(found.luck)} (19 of 20 times)"),
        ("the baseline, on the config's own seed", "not measured" if found.baseline is None else number(found.baseline)),
        *((f"failed on seed {row.seed}", row.reason) for row in found.failed),
    ]


def _without(found: SeedVariance) -> str:
    """Return the reason for a missing interval."""
    return "none: a run failed" if found.mean is None else f"none: it takes {counted(found.fewest_seeds, 'seed')} at least"


def text(found: SeedVariance) -> str:
    """Return the values as a person reads them at the keyboard, and where the page is."""
    head = f"{found.config.file} on {counted(len(found.seeds), 'fresh seed')}: {found.metric.name} on validation"
    values = table([list(row) for row in rows(found)], ["what", "measured"]).rstrip("\n")
    return "\n".join([head, "", values, "", f"page: {found.page}, with its figure"])


def markdown(found: SeedVariance, figure: Figure) -> str:
    """Return the page; identical numbers give identical bytes."""
    count, config = counted(len(found.seeds), "fresh seed"), found.config
    differs, compares = A_PROGRAM_S if config.program else OURS
    told = (
        f"{md.code(config.file)} ({md.text(config.why)}), trained on {count}; "
        f"{md.code(found.metric.name)} on validation data. {differs} A change of the config that gains less than two runs "
        f"differ by luck has shown nothing: train both on the same seeds with {compares}. The interval of the mean is exact for "
        "few seeds (Hartigan, 1969); the spread that other samples would bring is no part of it."
    )
    values = md.table(["what", "measured"], [[md.text(name), md.text(value)] for name, value in rows(found)])
    each = md.table(
        ["seed", found.metric.name, "run"],
        [
            [md.text(seed), md.text(number(value, 6)), md.code(run)]
            for seed, value, run in zip(found.seeds, found.values, found.runs, strict=True)
        ],
        "lrl",
    )
    return md.document(
        ["# Several seeds", told, values, f"![{figure.title}]({figure.file})", f"*{md.text(figure.caption)}*", each]
    )
