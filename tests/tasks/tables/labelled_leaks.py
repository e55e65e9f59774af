"""Tables of which it is known whether their columns give the target: ordinary ones, ones that nature determines, and leaks.

Each is a function of a generator that returns the columns by name; the target is `t`. Leaks come with the columns to be named.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn import datasets

Columns = dict[str, np.ndarray]
Draw = np.random.Generator
N = 1200


def texts(values: object) -> np.ndarray:
    return np.array([str(one) for one in np.asarray(values).tolist()], dtype=object)


def numbers(draw: Draw, count: int, rows: int = N) -> Columns:
    return {f"x{nr}": draw.normal(size=rows) for nr in range(count)}


def classes(values: np.ndarray, names: str = "abcdefghij") -> np.ndarray:
    return np.array([names[int(value)] for value in values], dtype=object)


def flipped(draw: Draw, labels: np.ndarray, share: float, count: int = 2) -> np.ndarray:
    return np.where(draw.random(len(labels)) < share, draw.integers(0, count, len(labels)), labels)


# --- ordinary tables -------------------------------------------------------------------------------


def shipped(name: str) -> Callable[[Draw], Columns]:
    def load(draw: Draw) -> Columns:
        found = getattr(datasets, f"load_{name}")()
        columns = {f"x{nr}": column for nr, column in enumerate(found.data.T.astype(float))}
        if name == "diabetes":
            return {**columns, "t": found.target}
        return {**columns, "t": texts([f"class {label}" for label in found.target])}

    return load


def strong_line(draw: Draw) -> Columns:
    """One feature alone explains 95 % of the target."""
    x = numbers(draw, 6)
    signal = x["x0"]
    return {**x, "t": signal + draw.normal(size=N) * np.sqrt(0.05 / 0.95)}


def two_strong(draw: Draw) -> Columns:
    """Two features explain 97 % together."""
    x = numbers(draw, 6)
    signal = 2 * x["x0"] - 3 * x["x1"]
    return {**x, "t": signal + draw.normal(size=N) * signal.std() * np.sqrt(0.03 / 0.97)}


def regression(draw: Draw) -> Columns:
    values, target = datasets.make_regression(N, 15, n_informative=8, noise=30, random_state=int(draw.integers(1 << 31)))
    return {**{f"x{nr}": column for nr, column in enumerate(values.T)}, "t": target}


def friedman(draw: Draw) -> Columns:
    values, target = datasets.make_friedman1(N, noise=1.0, random_state=int(draw.integers(1 << 31)))
    return {**{f"x{nr}": column for nr, column in enumerate(values.T)}, "t": target}


def strong_class(draw: Draw) -> Columns:
    """One feature tells two classes apart but for 3 % of the rows."""
    labels = draw.integers(0, 2, N)
    return {**numbers(draw, 5), "score": labels + draw.normal(size=N) * 0.266, "t": classes(labels)}


def blobs(draw: Draw) -> Columns:
    values, labels = datasets.make_blobs(N, 6, centers=8, cluster_std=4.0, random_state=int(draw.integers(1 << 31)))
    return {**{f"x{nr}": column for nr, column in enumerate(values.T)}, "t": classes(labels)}


def moons(draw: Draw) -> Columns:
    values, labels = datasets.make_moons(N, noise=0.2, random_state=int(draw.integers(1 << 31)))
    return {"x0": values[:, 0], "x1": values[:, 1], "t": classes(labels)}


def made_classes(draw: Draw) -> Columns:
    state = int(draw.integers(1 << 31))
    values, labels = datasets.make_classification(N, 20, n_informative=8, n_classes=4, class_sep=2.0, random_state=state)
    return {**{f"x{nr}": column for nr, column in enumerate(values.T)}, "t": classes(labels)}


def noisy_xor(draw: Draw) -> Columns:
    """The classes follow from two columns together but for 5 % of the rows."""
    a, b = draw.integers(0, 2, N), draw.integers(0, 2, N)
    return {**numbers(draw, 3), "a": texts(a), "b": texts(b), "t": classes(flipped(draw, a ^ b, 0.1))}


def fraud(draw: Draw) -> Columns:
    labels = (draw.random(3 * N) < 0.03).astype(int)
    amount = draw.lognormal(3 + 2 * labels, 1.0)
    return {**numbers(draw, 4, 3 * N), "amount": amount.round(2), "t": classes(labels)}


def shops(draw: Draw) -> Columns:
    """Each shop has its own level, and much of its own noise."""
    shop = draw.integers(0, 40, N)
    level = draw.normal(size=40)[shop]
    return {"shop": texts([f"shop {nr}" for nr in shop]), **numbers(draw, 3), "t": level + draw.normal(size=N) * 0.3}


def incomes(draw: Draw) -> Columns:
    years, age = draw.integers(8, 20, N), draw.integers(20, 65, N)
    return {
        "years": years.astype(float),
        "age": age.astype(float),
        "t": np.exp(0.12 * years + 0.01 * age + draw.normal(size=N) * 0.4),
    }


def claims(draw: Draw) -> Columns:
    """Most targets are zero."""
    x = numbers(draw, 5)
    has_claim = draw.random(N) < 1 / (1 + np.exp(2 - x["x0"]))
    return {**x, "t": np.where(has_claim, draw.gamma(2.0, 500.0, N), 0.0).round(2)}


def counts(draw: Draw) -> Columns:
    x = numbers(draw, 4)
    return {**x, "t": draw.poisson(np.exp(3 + 0.5 * x["x0"])).astype(float)}


def lagged(draw: Draw) -> Columns:
    """A day's value follows those of the days before."""
    series = np.zeros(N + 2)
    for day in range(2, N + 2):
        series[day] = 0.9 * series[day - 1] + 0.05 * series[day - 2] + draw.normal()
    days = np.datetime64("2020-01-01") + np.arange(N)
    return {"day": texts(days), "yesterday": series[1:-1], "before": series[:-2], "t": series[2:]}


def titanic(draw: Draw) -> Columns:
    """Categories alone, of a dozen combinations."""
    ticket, sex = draw.integers(1, 4, N), draw.integers(0, 2, N)
    saved = draw.random(N) < 0.8 - 0.2 * ticket + 0.4 * sex - 0.2
    return {"ticket": texts(ticket), "sex": texts(np.where(sex, "female", "male")), "t": texts(np.where(saved, "yes", "no"))}


def customers(draw: Draw) -> Columns:
    """Customers have an id and several rows, and do not always do the same."""
    customer = draw.integers(0, 300, N)
    habit = draw.random(300)[customer]
    return {"customer": texts([f"C{nr:04d}" for nr in customer]), **numbers(draw, 3), "t": classes(draw.random(N) < habit)}


def unique_ids(draw: Draw) -> Columns:
    x = numbers(draw, 4)
    ids = texts([f"{nr:08x}" for nr in draw.choice(1 << 31, N, replace=False)])
    return {"id": ids, "number": draw.permutation(N) + 0.5, **x, "t": x["x0"] + draw.normal(size=N)}


def reviews(draw: Draw) -> Columns:
    """Texts that lean to a class by their words."""
    stars = draw.integers(0, 2, N)
    good, bad = ["fine", "warm", "quick", "clean", "love"], ["slow", "cold", "broken", "dirty", "late"]
    words = [" ".join(draw.choice([*(good if star else bad), *good, *bad], 8)) for star in stars]
    return {"review": texts(words), **numbers(draw, 2), "t": texts(np.where(stars, "good", "bad"))}


def houses(draw: Draw) -> Columns:
    area = draw.lognormal(4.6, 0.35, N)
    rooms = np.clip((area / 30 + draw.normal(size=N) * 0.6).round(), 1, 9)
    price = area * 2500 * np.exp(draw.normal(size=N) * 0.12) + 8000 * rooms
    lot = np.where(draw.random(N) < 0.1, np.nan, area * draw.uniform(1.5, 6, N))
    return {
        "area": area.round(),
        "rooms": rooms,
        "lot": lot,
        "built": draw.integers(1920, 2020, N).astype(float),
        "t": price.round(-2),
    }


SHIPPED = ("iris", "wine", "breast_cancer", "digits", "diabetes")
HONEST: dict[str, Callable[[Draw], Columns]] = {
    **{name: shipped(name) for name in SHIPPED},
    **{
        made.__name__: made
        for made in (
            *(strong_line, two_strong, regression, friedman, strong_class, blobs, moons, made_classes, noisy_xor, fraud, shops),
            *(incomes, claims, counts, lagged, titanic, customers, unique_ids, reviews, houses),
        )
    },
}


# --- what nature determines ------------------------------------------------------------------------


def mushrooms(draw: Draw) -> Columns:
    """The smell tells what is poisonous, but for a few in a hundred."""
    smell = draw.integers(0, 6, N)
    return {
        "smell": classes(smell, "nfaclp"),
        "cap": classes(draw.integers(0, 5, N)),
        "gill": classes(draw.integers(0, 4, N)),
        "t": texts(np.where(flipped(draw, smell > 2, 0.01), "poisonous", "edible")),
    }


def parity(draw: Draw) -> Columns:
    bits = draw.integers(0, 2, (N, 2))
    return {**numbers(draw, 2), "b0": texts(bits[:, 0]), "b1": texts(bits[:, 1]), "t": classes(bits.sum(axis=1) % 2)}


def parity_of_five(draw: Draw) -> Columns:
    bits = draw.integers(0, 2, (N, 5))
    return {**{f"b{nr}": texts(column) for nr, column in enumerate(bits.T)}, "t": classes(bits.sum(axis=1) % 2)}


def piston(draw: Draw) -> Columns:
    """The cycle time of a piston (Kenett and Zacks, 1998), a closed formula of seven quantities."""
    mass, surface, volume = draw.uniform(30, 60, N), draw.uniform(0.005, 0.02, N), draw.uniform(0.002, 0.01, N)
    spring, pressure = draw.uniform(1000, 5000, N), draw.uniform(90_000, 110_000, N)
    ambient, filling = draw.uniform(290, 296, N), draw.uniform(340, 360, N)
    force = pressure * surface + 19.62 * mass - spring * volume / surface
    gas = surface / (2 * spring) * (np.sqrt(force**2 + 4 * spring * pressure * volume / filling * ambient) - force)
    cycle = 2 * np.pi * np.sqrt(mass / (spring + surface**2 * pressure * volume / filling * ambient / gas**2))
    given = {"mass": mass, "surface": surface, "volume": volume, "spring": spring, "pressure": pressure}
    return {**given, "ambient": ambient, "filling": filling, "t": cycle}


def exact_friedman(draw: Draw) -> Columns:
    values, target = datasets.make_friedman1(N, noise=0.0, random_state=int(draw.integers(1 << 31)))
    return {**{f"x{nr}": column for nr, column in enumerate(values.T)}, "t": target}


def ohm(draw: Draw) -> Columns:
    volt, resistance = draw.uniform(1, 24, N), draw.uniform(10, 1000, N)
    return {"volt": volt, "resistance": resistance, **numbers(draw, 2), "t": volt / resistance}


def balance(draw: Draw) -> Columns:
    """Which side of a scale sinks, by four quantities."""
    left, arm, right, other = draw.integers(1, 6, (4, N))
    return {
        "left": texts(left),
        "arm": texts(arm),
        "right": texts(right),
        "other": texts(other),
        "t": texts(np.sign(left * arm - right * other)),
    }


def monks(draw: Draw) -> Columns:
    """The first MONK's problem: two columns are equal, or a third has its first value."""
    a = draw.integers(1, 5, (4, N))
    return {**{f"a{nr}": texts(column) for nr, column in enumerate(a)}, "t": classes((a[0] == a[1]) | (a[2] == 1))}


def falling(draw: Draw) -> Columns:
    time = draw.uniform(0.1, 5, N)
    return {"time": time, **numbers(draw, 3), "t": 4.905 * time**2}


def rings(draw: Draw) -> Columns:
    values, labels = datasets.make_circles(N, noise=0.01, factor=0.5, random_state=int(draw.integers(1 << 31)))
    return {"x0": values[:, 0], "x1": values[:, 1], "t": classes(labels)}


NATURE: dict[str, Callable[[Draw], Columns]] = {
    made.__name__: made
    for made in (mushrooms, parity, parity_of_five, piston, exact_friedman, ohm, balance, monks, falling, rings)
}


# --- leaks -----------------------------------------------------------------------------------------


def quantity(draw: Draw) -> tuple[Columns, np.ndarray]:
    """Return honest features and the target, which they explain by half."""
    x = numbers(draw, 4)
    return x, 100 + 10 * (x["x0"] + x["x1"] ** 2 + draw.normal(size=N) * 1.5)


def labelled(draw: Draw, count: int = 2) -> tuple[Columns, np.ndarray]:
    x = numbers(draw, 4)
    return x, np.clip((x["x0"] + draw.normal(size=N) + count / 2).astype(int), 0, count - 1)


def of_quantity(make: Callable[[np.ndarray, Draw], Columns]) -> Callable[[Draw], Columns]:
    def made(draw: Draw) -> Columns:
        x, target = quantity(draw)
        return {**x, **make(target, draw), "t": target}

    return made


def of_classes(make: Callable[[np.ndarray, Draw], Columns], count: int = 2) -> Callable[[Draw], Columns]:
    def made(draw: Draw) -> Columns:
        x, labels = labelled(draw, count)
        return {**x, **make(labels, draw), "t": texts([f"class{label}" for label in labels])}

    return made


def prices(draw: Draw) -> Columns:
    x, target = quantity(draw)
    spread = draw.uniform(1, 25, N)
    return {**x, "low": (target - spread).round(1), "high": (target + spread).round(1), "t": target.round(1)}


def parts_of_a_product(draw: Draw) -> Columns:
    amount, price = draw.integers(1, 30, N).astype(float), draw.lognormal(2, 0.8, N).round(2)
    return {**numbers(draw, 3), "amount": amount, "price": price, "t": amount * price}


def parts_of_a_difference(draw: Draw) -> Columns:
    start = draw.uniform(0, 1e5, N)
    way = draw.gamma(2, 100, N)
    return {**numbers(draw, 3), "start": start, "end": start + way, "t": way}


def dates_apart(draw: Draw) -> Columns:
    begin = np.datetime64("2019-01-01") + draw.integers(0, 1500, N)
    days = draw.integers(1, 60, N)
    return {**numbers(draw, 3), "begin": texts(begin), "finish": texts(begin + days), "t": days + 0.5}


def body_mass(draw: Draw) -> Columns:
    height, weight = draw.normal(1.7, 0.1, N), draw.normal(75, 14, N).clip(40)
    return {**numbers(draw, 3), "height": height.round(2), "weight": weight.round(1), "t": weight / height**2}


def goals(draw: Draw) -> Columns:
    home, away = draw.poisson(1.6, N), draw.poisson(1.2, N)
    result = np.array(["away", "draw", "home"], dtype=object)[np.sign(home - away) + 1]
    return {**numbers(draw, 3), "home": home.astype(float), "away": away.astype(float), "t": result}


def larger_of_two(draw: Draw) -> Columns:
    bids = draw.lognormal(4, 0.6, (2, N)).round(2)
    return {**numbers(draw, 3), "bid": bids[0], "other": bids[1], "t": bids.max(axis=0)}


def repeated_house(draw: Draw) -> Columns:
    """Each house has a price, and several rows."""
    house = draw.integers(0, 150, N)
    return {"house": texts([f"H{nr}" for nr in house]), **numbers(draw, 4), "t": draw.lognormal(12, 0.5, 150)[house]}


def repeated_patient(draw: Draw) -> Columns:
    patient = draw.integers(1000, 1150, N)
    return {"patient": patient + 0.0, **numbers(draw, 4), "t": classes((draw.random(2000) < 0.4)[patient])}


def sorted_file(draw: Draw) -> Columns:
    x, labels = labelled(draw, 3)
    order = np.argsort(labels, kind="stable")
    return {"row": np.arange(N) + 0.0, **{name: column[order] for name, column in x.items()}, "t": classes(labels[order])}


def marks(values: np.ndarray) -> np.ndarray:
    return np.searchsorted(np.quantile(values, [0.2, 0.4, 0.6, 0.8]), values)


LEAKS: dict[str, tuple[Callable[[Draw], Columns], set[str]]] = {
    "a copy": (of_quantity(lambda t, draw: {"leak": t}), {"leak"}),
    "another unit": (of_quantity(lambda t, draw: {"leak": (1.8 * t + 32).round(6)}), {"leak"}),
    "rounded": (of_quantity(lambda t, draw: {"leak": t.round()}), {"leak"}),
    "its logarithm": (of_quantity(lambda t, draw: {"leak": np.log(t - t.min() + 1)}), {"leak"}),
    "its rank": (of_quantity(lambda t, draw: {"leak": t.argsort().argsort() + 0.5}), {"leak"}),
    "its exponential": (of_quantity(lambda t, draw: {"leak": np.exp(t / 10)}), {"leak"}),
    "a noisy copy": (of_quantity(lambda t, draw: {"leak": t + 0.05 * t.std() * draw.normal(size=N)}), {"leak"}),
    "a copy with gaps": (of_quantity(lambda t, draw: {"leak": np.where(draw.random(N) < 0.3, np.nan, t + 0.1)}), {"leak"}),
    "its number in a text": (of_quantity(lambda t, draw: {"leak": texts([f"sold at {v:.2f} EUR" for v in t])}), {"leak"}),
    "cut into parts": (of_quantity(lambda t, draw: {"leak": texts([f"band {v}" for v in marks(t)])}), {"leak"}),
    "above its median": (of_quantity(lambda t, draw: {"leak": texts(np.where(t > np.median(t), "high", "low"))}), {"leak"}),
    "the mean of two": (prices, {"low", "high"}),
    "a product of two": (parts_of_a_product, {"amount", "price"}),
    "a difference of two": (parts_of_a_difference, {"start", "end"}),
    "days between two dates": (dates_apart, {"begin", "finish"}),
    "a ratio with a power": (body_mass, {"height", "weight"}),
    "the larger of two": (larger_of_two, {"bid", "other"}),
    "a group's target": (repeated_house, {"house"}),
    "a numbered group's class": (repeated_patient, {"patient"}),
    "a code of the class": (of_classes(lambda t, draw: {"leak": classes(t, "xyz")}, 3), {"leak"}),
    "a code, wrong in 1 of 200": (of_classes(lambda t, draw: {"leak": classes(flipped(draw, t, 0.01), "xy")}), {"leak"}),
    "one column for each class": (
        of_classes(lambda t, draw: {f"is{nr}": (t == nr) + 0.0 for nr in range(3)}, 3),
        {"is0", "is1", "is2"},
    ),
    "a mean of each class": (of_classes(lambda t, draw: {"leak": np.array([0.31, 0.62, 0.17])[t]}, 3), {"leak"}),
    "the class in a text": (
        of_classes(lambda t, draw: {"leak": texts([f"case {nr}: seen as class{v}" for nr, v in enumerate(t)])}),
        {"leak"},
    ),
    "gaps of one class": (of_classes(lambda t, draw: {"leak": np.where(t == 1, draw.normal(size=N), np.nan)}), {"leak"}),
    "the larger side wins": (goals, {"home", "away"}),
    "the row of a sorted file": (sorted_file, {"row"}),
}
