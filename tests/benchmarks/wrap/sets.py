"""Programs that go through a small set of names, in several ways, and such that only look so: what comes out is trained on."""

from __future__ import annotations

GIVEN = (
    *(("yes", "no"), ("cat", "dog"), ("male", "female"), ("0", "1"), ("True", "False"), ("pos", "neg"), ("ham", "spam")),
    *(("good", "bad"), ("up", "down"), ("x", "y"), ("red", "green", "blue"), ("low", "mid", "high"), ("train", "val", "test")),
    *(("setosa", "versicolor", "virginica"), ("a", "b", "c")),
)
FAULTY = {  # what ends in `# guilty` is the cause
    "for": "out = []\nfor name in set(names):  # guilty\n    out.append(name)",
    "list": "out = list({name for name in names})  # guilty",
    "enumerate": "out = [name for _, name in enumerate(frozenset(names))]  # guilty",
    "next": "out = [next(iter(set(names)))]  # guilty",
    "join": "out = ','.join(set(names)).split(',')  # guilty",
    "a dict of a union": "out = [*dict.fromkeys(set(names) | set(names[:1]))]  # guilty",
    "pop": "out = [set(names).pop()]  # guilty",
}
CLEAN = {
    "sorted": "out = sorted(set(names))",
    "len": "out = names[: len(set(names))]",
    "membership": "known = set(names)\nout = [name for name in names if name in known]",
    "a dict's own order": "out = list({name: 1 for name in names})",
    "a list's own order": "seen = set()\nout = [name for name in names if not (name in seen or seen.add(name))]",
}
TRAIN = """
import torch

torch.manual_seed(0)
index = {name: place for place, name in enumerate(out)}
x, y = torch.randn(len(names), 2), torch.tensor([[float(index.get(name, 9))] for name in names])
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    (model(x) - y).pow(2).mean().backward()
    optimizer.step()
"""
FROM_DATA = "import csv\nnames = list(dict.fromkeys(row['label'] for row in csv.DictReader(open('rows.csv'))))\n"


def source(names: tuple[str, ...], way: str, *, from_data: bool = False) -> str:
    """Return the part of a program that makes `out`; its names stand in it, or in `rows.csv`."""
    return (FROM_DATA if from_data else f"names = {list(names)!r}\n") + {**FAULTY, **CLEAN}[way] + "\n"


def rows(names: tuple[str, ...]) -> str:
    """Return the table that holds the names as labels, among numbers."""
    return "age,label\n" + "".join(f"{number},{names[number % len(names)]}\n" for number in range(20))
