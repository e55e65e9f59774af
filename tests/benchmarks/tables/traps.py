"""Tables as people have them, each with a trap, and each with a target that can be learned."""

from __future__ import annotations

import csv
import gzip
import io
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

Cells = dict[str, list[Any]]
FIRST_DAY = datetime(2019, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Trap:
    """A table with a trap.

    Attributes:
        title: What the docs call it.
        file: Its file's name.
        target: The column to predict.
        make: Returns its bytes from draws.
        metric: The metric and the least that a model must reach.
        answer: Keys of `mltrainer.yaml` that answer its one question; empty where it must ask none.
    """

    title: str
    file: str
    target: str
    make: Callable[[np.random.Generator], bytes]
    metric: tuple[str, float]
    answer: dict[str, Any] = field(default_factory=dict)


# --- forms --------------------------------------------------------------------------------------


def as_csv(cells: Cells, delimiter: str = ",", encoding: str = "utf-8", end: str = "\n", header: bool = True) -> bytes:
    """Return columns as the bytes of a CSV file."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end)
    if header:
        writer.writerow(cells)
    writer.writerows(zip(*cells.values(), strict=True))
    return out.getvalue().encode(encoding)


def comma(value: float, places: int = 2) -> str:
    """Return a number as it is written in German."""
    return f"{value:,.{places}f}".translate(str.maketrans(",.", ".,"))


def words(flags: np.ndarray, yes: list[str], no: list[str]) -> list[str]:
    """Return truth values as words, each in one of several spellings."""
    return [(yes if flag else no)[nr % len(yes if flag else no)] for nr, flag in enumerate(flags)]


def named(score: np.ndarray, names: list[str]) -> list[str]:
    """Return a class per row, of equal sizes, by a score."""
    cuts = np.quantile(score, np.linspace(0, 1, len(names) + 1)[1:-1])
    return [names[place] for place in np.searchsorted(cuts, score)]


# --- tables -------------------------------------------------------------------------------------


def repeated(draw: np.random.Generator) -> bytes:
    """Return 900 rows, two thirds of them copies, a tenth of those with another target."""
    x, kind = draw.normal(size=300).round(3), draw.choice(list("abc"), 300)
    bought = x + (kind == "a") > 0.3
    rows = np.concatenate([np.arange(300), draw.integers(0, 300, 600)])
    flipped = np.arange(900) > 300 + 540
    return as_csv({"score": list(x[rows]), "kind": list(kind[rows]), "bought": words(bought[rows] ^ flipped, ["yes"], ["no"])})


def repeated_values(draw: np.random.Generator) -> bytes:
    """Return 800 rows of few distinct features, whose values to predict differ."""
    age, children, smoker = draw.integers(18, 28, 800), draw.integers(0, 4, 800), draw.random(800) < 0.3
    cost = 200 * age + 900 * children + 8000 * smoker + draw.normal(0, 400, 800)
    return as_csv(
        {"age": list(age), "children": list(children), "smoker": words(smoker, ["yes"], ["no"]), "cost": list(cost.round(2))}
    )


def dates(draw: np.random.Generator) -> bytes:
    """Return 1000 rows with dates in two forms in one column, with zones and times; weekday and hour predict the target."""
    moments = [FIRST_DAY + timedelta(minutes=int(m)) for m in draw.integers(0, 3 * 525_600, 1000)]
    due = [m + timedelta(days=int(d)) for m, d in zip(moments, draw.integers(1, 60, 1000), strict=True)]
    day, hour = np.array([m.weekday() for m in moments]), np.array([m.hour for m in moments])
    late = np.array([(d - m).days for d, m in zip(due, moments, strict=True)])
    sold = 20 + 15 * (day >= 5) + 8 * np.sin(hour / 24 * 2 * np.pi) + 0.3 * late + draw.normal(0, 1, 1000)
    two = [f"{m:%Y-%m-%d}" if nr % 2 else f"{m:%d.%m.%Y}" for nr, m in enumerate(moments)]
    zones = [
        f"{m:%Y-%m-%dT%H:%M:%S}Z" if nr % 3 else f"{m + timedelta(hours=2):%Y-%m-%dT%H:%M:%S}+02:00"
        for nr, m in enumerate(moments)
    ]
    return as_csv(
        {
            "ordered": two,
            "at": zones,
            "due": [f"{d:%d/%m/%Y}" for d in due],
            "clock": [f"{m:%H:%M}" for m in moments],
            "month": [f"{m:%Y-%m}" for m in moments],
            "sold": list(sold.round(2)),
        }
    )


def ordered(draw: np.random.Generator) -> bytes:
    """Return 700 rows in the order of a date that nearly gives the target."""
    days = np.sort(draw.choice(1500, 700, replace=False))
    size = draw.normal(size=700)
    price = 100 + 0.2 * days + 10 * size + draw.normal(0, 2, 700)
    when = [f"{FIRST_DAY + timedelta(days=int(d)):%Y-%m-%d}" for d in days]
    return as_csv({"row": list(range(1, 701)), "date": when, "size": list(size.round(3)), "price": list(price.round(2))})


def booleans(draw: np.random.Generator) -> bytes:
    """Return 600 rows of truth values in many spellings, the target's among them."""
    flags = draw.random((6, 600)) < 0.5
    left = (flags * np.array([[2], [1], [1], [1], [1], [1]])).sum(axis=0) + draw.normal(0, 0.3, 600) > 3.5
    spelled = [
        words(flags[0], ["yes"], ["no"]),
        words(flags[1], ["Y"], ["N"]),
        words(flags[2], ["TRUE", "true", "True"], ["FALSE", "false"]),
        words(flags[3], ["ja"], ["nein"]),
        words(flags[4], ["x"], [""]),
        words(flags[5], ["1"], ["0"]),
    ]
    return as_csv(
        {**{f"flag {nr}": one for nr, one in enumerate(spelled)}, "left": words(left, ["Yes", "yes", "Y"], ["No", "no"])}
    )


def money(draw: np.random.Generator) -> bytes:
    """Return 600 rows of amounts with currencies, separators and percent signs; the target is one too."""
    income, share, debt, paid = (
        draw.lognormal(10, 0.6, 600),
        draw.random(600),
        draw.normal(0, 5000, 600),
        draw.lognormal(7, 0.5, 600),
    )
    rent = 0.2 * income + 3000 * share + 0.1 * debt + draw.normal(0, 300, 600)
    return as_csv(
        {
            "income": [f"${v:,.2f}" for v in income],
            "share": [f"{v:.1%}" for v in share],
            "debt": [f"({abs(v):,.0f})" if v < 0 else f"{v:,.0f}" for v in debt],
            "paid": [f"{comma(v)} EUR" for v in paid],
            "weight": [f"{v:.1f} kg" for v in draw.normal(80, 10, 600)],
            "rent": [f"${v:,.2f}" for v in rent],
        }
    )


def german(draw: np.random.Generator) -> bytes:
    """Return 500 rows as a German spreadsheet exports them: Windows-1252, semicolons, decimal commas, CRLF, quoted newlines."""
    size, rooms = draw.uniform(20, 3000, 500), draw.integers(1, 9, 500)
    town = draw.choice(["Köln", "Münster", "Düsseldorf"], 500)
    rent = 3.5 * size + 90 * rooms + 500 * (town == "Köln") + draw.normal(0, 100, 500)
    note = [f"Haus {nr}\nhinten" if nr % 4 == 0 else "keine" for nr in draw.integers(0, 20, 500)]
    cells: Cells = {"Größe, m²": [comma(v) for v in size], "Räume": list(rooms), "Ort": list(town), "Notiz": note}
    return as_csv({**cells, "Miete": [f"{comma(v)} €" for v in rent]}, ";", "cp1252", "\r\n")


def ids(draw: np.random.Generator) -> bytes:
    """Return 600 rows in the order of their class, with a running number, UUIDs, hashes and a number that orders the class."""
    x = draw.normal(size=600)
    order = np.argsort(x + draw.normal(0, 0.4, 600), kind="stable")
    kind = np.array(["low"] * 300 + ["high"] * 300)
    place = np.sort(draw.choice(10**6, 600, replace=False))
    return as_csv(
        {
            "": list(range(600)),
            "customer_id": [10_000 + 3 * nr for nr in range(600)],
            "account": [f"K{nr:07d}" for nr in place],
            "uuid": [str(uuid.UUID(bytes=draw.bytes(16))) for _ in range(600)],
            "hash": [draw.bytes(8).hex() for _ in range(600)],
            "score": list(x[order].round(3)),
            "kind": list(kind),
        }
    )


def texts(draw: np.random.Generator) -> bytes:
    """Return 800 rows of short free text with commas, quotes and newlines beside two columns."""
    good, bad = ["lovely", "quiet", "friendly", "clean"], ["loud", "dirty", "rude", "broken"]
    liked = draw.random(800) < 0.5
    filler = ["the room", "a bed", "our stay", "this place", "the staff", 'the "suite"', "breakfast, too"]
    stars = np.clip(3 + liked + draw.normal(0, 1.5, 800), 1, 5).round(1)
    said = [
        f"{draw.choice(filler)} was {draw.choice(good if flag else bad)}{draw.choice([', ', chr(10)])}{draw.choice(filler)}"
        f" {draw.integers(99)}"
        for flag in liked
    ]
    return as_csv(
        {
            "review": said,
            "stars": list(stars),
            "city": list(draw.choice(["Rome", "Oslo"], 800)),
            "liked": words(liked, ["yes"], ["no"]),
        }
    )


def many(draw: np.random.Generator) -> bytes:
    """Return 1500 rows with a category of about 2000 possible values, of which a group predicts the target, and one of 200."""
    shop = np.minimum(draw.zipf(1.3, 1500), 2000)
    street = draw.integers(0, 2000, 1500)
    effect = draw.normal(0, 1, 2001)
    x = draw.normal(size=1500)
    good = effect[shop] + x + 0.3 * draw.normal(size=1500) > 0
    return as_csv(
        {
            "shop": [f"shop {nr}" for nr in shop],
            "street": [f"street {nr}" for nr in street],
            "zip": [f"{nr:05d}" for nr in draw.integers(1000, 1200, 1500)],
            "x": list(x.round(3)),
            "good": words(good, ["good"], ["bad"]),
        }
    )


def missing(draw: np.random.Generator) -> bytes:
    """Return 800 rows with gaps in many spellings, and where a value lies decides whether it is told."""
    income, age = draw.lognormal(10, 0.5, 800), draw.normal(45, 12, 800)
    job = draw.choice(["clerk", "cook", "smith"], 800)
    hidden = income > np.quantile(income, 0.6)
    safe = (income > np.median(income)) ^ (draw.random(800) < 0.05)
    gaps = ["NA", "-", "?", "", "nan", "null", "N/A", "n/a", "#N/A", "--", "none", "NULL", "missing", "<NA>", "."]
    told = [gaps[nr % len(gaps)] if gone else round(float(v), 2) for nr, (v, gone) in enumerate(zip(income, hidden, strict=True))]
    years = [gaps[nr % 6] if nr % 5 == 0 else int(v) for nr, v in enumerate(age)]
    jobs = [gaps[nr % 7] if nr % 6 == 0 else v for nr, v in enumerate(job)]
    return as_csv({"income": told, "age": years, "job": jobs, "safe": words(safe, ["safe"], ["unsafe"])})


def constants(draw: np.random.Generator) -> bytes:
    """Return 600 rows with columns of one value, of nearly one, of none, of two cells, and with infinities."""
    x = draw.normal(size=600)
    ratio = [
        ("inf", "-inf", "1e400", "Infinity")[nr % 4] if nr % 50 == 0 else round(float(v), 3)
        for nr, v in enumerate(draw.normal(size=600))
    ]
    return as_csv(
        {
            "x": list(x.round(3)),
            "country": ["DE"] * 600,
            "zero": [0] * 600,
            "nearly": ["yes"] + ["no"] * 599,
            "once": [7.5] + [0] * 599,
            "empty": [""] * 600,
            "two": ["", "3"] + [""] * 300 + ["5"] + [""] * 297,
            "ratio": ratio,
            "y": list((3 * x + draw.normal(0, 0.3, 600)).round(3)),
        }
    )


def rare(draw: np.random.Generator) -> bytes:
    """Return 1500 rows, 2 % of them of the class that is looked for."""
    x = draw.normal(size=(1500, 3))
    risk = x[:, 0] + 0.5 * x[:, 1] + 0.3 * draw.normal(size=1500)
    return as_csv(
        {**{f"x{nr}": list(x[:, nr].round(3)) for nr in range(3)}, "fraud": list((risk > np.quantile(risk, 0.98)).astype(int))}
    )


def single(draw: np.random.Generator) -> bytes:
    """Return 500 rows of three classes, and one row each of two more."""
    x = draw.normal(size=500)
    kind = named(x + 0.2 * draw.normal(size=500), ["small", "medium", "large"])
    return as_csv({"x": list(x.round(3)), "z": list(draw.normal(size=500).round(3)), "kind": [*kind[:-2], "giant", "unknown"]})


def scaled(draw: np.random.Generator) -> bytes:
    """Return 400 rows with the target in another currency beside it."""
    size = draw.uniform(20, 200, 400)
    price = 1000 * size + draw.normal(0, 5000, 400)
    return as_csv({"size": list(size.round(1)), "price_usd": list((1.1 * price).round(2)), "price": list(price.round(2))})


def summed(draw: np.random.Generator) -> bytes:
    """Return 500 rows with two parts of the target, one of them with a gap."""
    heat = draw.normal(15, 8, 500)
    casual, members = draw.poisson(np.exp(heat / 12)), draw.poisson(np.exp(heat / 10 + 1))
    told = ["" if nr == 17 else v for nr, v in enumerate(casual)]
    return as_csv({"heat": list(heat.round(1)), "casual": told, "members": list(members), "count": list(casual + members)})


def telling(draw: np.random.Generator) -> bytes:
    """Return 600 rows with a code that is given after the class is known."""
    x = draw.normal(size=600)
    ill = x + 0.5 * draw.normal(size=600) > 0
    code = [f"{'T' if flag else 'C'}{nr % 3}" for nr, flag in enumerate(ill)]
    return as_csv(
        {"x": list(x.round(3)), "ward": code, "z": list(draw.normal(size=600).round(3)), "ill": words(ill, ["ill"], ["well"])}
    )


def untold(draw: np.random.Generator) -> bytes:
    """Return 600 rows, a tenth of them without a target."""
    x = draw.normal(size=600)
    y = 5 * x + draw.normal(0, 0.5, 600)
    told = [("", "NA", "-", "n/a")[nr // 10 % 4] if nr % 10 == 0 else round(float(v), 2) for nr, v in enumerate(y)]
    return as_csv({"x": list(x.round(3)), "z": list(draw.normal(size=600).round(3)), "y": told})


def wrong(draw: np.random.Generator) -> bytes:
    """Return 500 rows with one cell that is no number, and one date that there is not."""
    x = draw.normal(size=500)
    cells: list[Any] = [round(float(v), 3) for v in x]
    cells[123] = "about 3"
    days = [f"2020-{1 + nr % 12:02d}-{1 + nr % 28:02d}" for nr in range(500)]
    days[321] = "2020-02-31"
    return as_csv({"x": cells, "day": days, "y": words(x + 0.3 * draw.normal(size=500) > 0, ["up"], ["down"])})


def names(draw: np.random.Generator) -> bytes:
    """Return 400 rows whose columns have names that a file format could trip over."""
    odd = [
        "Größe in m²",
        "",
        "a: b",
        'say "hi"',
        "it's",
        "#no",
        "null",
        "yes",
        "1",
        "- x",
        "{y}",
        "two\nlines",
        "x",
        "x",
        "train",
        "[0]",
        "*a",
        "ü" * 80,
    ]
    x = draw.normal(size=(400, len(odd)))
    body = [*(list(x[:, nr].round(3)) for nr in range(len(odd))), words(x[:, 0] + x[:, 12] + x[:, 13] > 0, ["a: 1"], ["no"])]
    out = io.StringIO()
    csv.writer(out).writerows([[*odd, "target: class"], *zip(*body, strict=True)])
    return out.getvalue().encode()


def heavy(draw: np.random.Generator) -> bytes:
    """Return 800 rows whose target has heavy tails."""
    x = draw.normal(size=(800, 3))
    size = np.exp(1.2 * x[:, 0] + 0.6 * x[:, 1] + 8) + 200 * draw.standard_t(1.5, 800)
    return as_csv({**{f"x{nr}": list(x[:, nr].round(3)) for nr in range(3)}, "claims": list(size.round(2))})


def headless(draw: np.random.Generator) -> bytes:
    """Return 400 rows without a header."""
    x = draw.normal(size=(400, 4)).round(3)
    kind = named(x[:, 0] - x[:, 2] + 0.2 * draw.normal(size=400), ["setosa", "virginica"])
    return as_csv({**{str(nr): list(x[:, nr]) for nr in range(4)}, "kind": kind}, header=False)


def nulls(draw: np.random.Generator) -> bytes:
    """Return 600 rows as Parquet: nulls, dates, moments, times, decimals, truth values, whole numbers with gaps, categories."""
    import polars

    x, flag = draw.normal(size=600), draw.random(600) < 0.5
    day = [
        None if nr % 9 == 0 else (FIRST_DAY + timedelta(days=int(d))).date() for nr, d in enumerate(draw.integers(0, 900, 600))
    ]
    count = [None if nr % 7 == 0 else int(v) for nr, v in enumerate(draw.integers(0, 50, 600))]
    y = x + flag + np.array([0 if c is None else c / 25 for c in count]) + 0.2 * draw.normal(size=600)
    frame = polars.DataFrame(
        {
            "x": [None if nr % 11 == 0 else float(v) for nr, v in enumerate(x)],
            "flag": [None if nr % 13 == 0 else bool(f) for nr, f in enumerate(flag)],
            "day": day,
            "at": [FIRST_DAY + timedelta(minutes=int(m)) for m in draw.integers(0, 10**6, 600)],
            "count": count,
            "kind": polars.Series([("a", "b", None)[nr] for nr in draw.integers(0, 3, 600)], dtype=polars.Categorical),
            "amount": polars.Series(draw.integers(0, 10**6, 600)).cast(polars.Decimal(12, 2)) / 100,
            "clock": [(FIRST_DAY + timedelta(minutes=int(m))).time() for m in draw.integers(0, 1440, 600)],
            "nothing": polars.Series([None] * 600, dtype=polars.Null),
            "y": y > np.median(y),
        }
    )
    out = io.BytesIO()
    frame.write_parquet(out)
    return out.getvalue()


def lines(draw: np.random.Generator) -> bytes:
    """Return 500 JSON objects, a line each: keys that lack, null, truth values, numbers as text."""
    x, kind = draw.normal(size=500), draw.choice(["a", "b"], 500)
    y = 2 * x + (kind == "a") + draw.normal(0, 0.2, 500)
    rows = []
    for nr in range(500):
        row = {
            "x": str(round(x[nr], 3)) if nr % 2 else round(x[nr], 3),
            "kind": str(kind[nr]),
            "new": nr % 3 == 0,
            "y": round(y[nr], 3),
        }
        row = {key: None if nr % 10 == 3 and key == "kind" else value for key, value in row.items() if nr % 7 or key != "x"}
        rows.append(json.dumps({**row, "place": {"lat": round(float(x[nr]), 2), "tags": ["a", "b"]}} if nr % 2 else row))
    return "\n".join(rows).encode()


def zipped(draw: np.random.Generator) -> bytes:
    """Return 400 rows, tabs between them, UTF-16 as spreadsheets say "Unicode text", compressed."""
    x = draw.normal(size=400)
    return gzip.compress(
        as_csv(
            {
                "x": list(x.round(3)),
                "Straße": ["lang"] * 200 + ["kurz"] * 200,
                "y": named(x + 0.2 * draw.normal(size=400), ["a", "b", "c"]),
            },
            "\t",
            "utf-16",
        ),
        mtime=0,
    )


TRAPS: dict[str, Trap] = {
    "repeats": Trap("rows that repeat, some with another class", "visits.csv", "bought", repeated, ("accuracy", 0.75)),
    "repeats_r2": Trap("rows that repeat with other values", "insurance.csv", "cost", repeated_values, ("r2", 0.8)),
    "dates": Trap("dates in several forms, zones, times of day", "sales.csv", "sold", dates, ("r2", 0.8)),
    "ordered": Trap("a date that orders the target", "prices.csv", "price", ordered, ("r2", 0.8)),
    "booleans": Trap("yes and no in many spellings, of the target too", "flags.csv", "left", booleans, ("accuracy", 0.8)),
    "money": Trap("currencies, separators, percent, units", "rents.csv", "rent", money, ("r2", 0.7)),
    "german": Trap("Windows-1252, semicolons, decimal commas, CRLF", "mieten.csv", "Miete", german, ("r2", 0.9)),
    "ids": Trap("ids; rows sorted by class", "accounts.csv", "kind", ids, ("accuracy", 0.75)),
    "texts": Trap("short free text with newlines", "reviews.csv", "liked", texts, ("accuracy", 0.85)),
    "many": Trap("categories of 2000 values", "shops.csv", "good", many, ("accuracy", 0.65)),
    "missing": Trap("gaps in fifteen spellings, not at random", "incomes.csv", "safe", missing, ("accuracy", 0.8)),
    "constants": Trap(
        "constant and empty columns, infinities",
        "constants.csv",
        "y",
        constants,
        ("r2", 0.8),
        {"data": {"wrong_cells": "missing"}},
    ),
    "rare": Trap("2 % of one class", "frauds.csv", "fraud", rare, ("average_precision", 0.4)),
    "single": Trap("classes of a single row", "sizes.csv", "kind", single, ("f1_macro", 0.4)),
    "scaled": Trap(
        "the target under another scale", "houses.csv", "price", scaled, ("r2", 0.8), {"data": {"ignore": ["price_usd"]}}
    ),
    "summed": Trap(
        "two columns whose sum is the target",
        "bikes.csv",
        "count",
        summed,
        ("r2", 0.4),
        {"data": {"ignore": ["casual"]}},
    ),
    "telling": Trap(
        "a column that tells the class by itself", "wards.csv", "ill", telling, ("accuracy", 0.7), {"data": {"ignore": ["ward"]}}
    ),
    "untold": Trap("rows without a target", "yields.csv", "y", untold, ("r2", 0.8)),
    "wrong": Trap("two wrong cells", "moves.csv", "y", wrong, ("accuracy", 0.75), {"data": {"wrong_cells": "missing"}}),
    "names": Trap("odd names of columns", "odd names.csv", "target: class", names, ("accuracy", 0.6)),
    "heavy": Trap("a target with heavy tails", "claims.csv", "claims", heavy, ("mae", 20_000)),
    "headless": Trap("no header", "irises.csv", "column_5", headless, ("accuracy", 0.8)),
    "nulls": Trap("Parquet with nulls", "events.parquet", "y", nulls, ("accuracy", 0.75)),
    "lines": Trap("JSON lines with gaps and nested values", "events.jsonl", "y", lines, ("r2", 0.6)),
    "zipped": Trap("compressed, UTF-16, tabs", "unicode.tsv.gz", "y", zipped, ("accuracy", 0.75)),
}


def write(name: str, folder: Path) -> Path:
    """Write a table into a folder and return its path."""
    path = folder / TRAPS[name].file
    path.write_bytes(TRAPS[name].make(np.random.default_rng(sum(name.encode()))))
    return path
