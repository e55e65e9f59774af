"""The line of a program that made two runs differ: a decision over two traces, the sources, and the experiments' changes.

The first operation with another result from which a gradient or a weight hangs is where the difference shows. With equal inputs
the operation itself, or the memory that it reads, is the cause; with other inputs the cause is before it, among the suspects of
the kind that the experiments left over, as far as they ran by then. What differs and does not reach the training is innocent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from mltrainer.companions.wrap.origins import Origin, Origins
from mltrainer.companions.wrap.paired_values import MAIN
from mltrainer.companions.wrap.reaching import Side, reach
from mltrainer.companions.wrap.suspects import Suspect, draws_when_fitted, imports, only_shown, suspects
from mltrainer.observe.logs import Key
from mltrainer.observe.trace import EMPTIES
from mltrainer.programs.causes import UNCHANGED, FirstDifference, Judged, LikelyCause, Place
from mltrainer.programs.chains import aligned

Trace = list[list[Any]]
DRAWS = (
    *("rand", "randn", "randint", "randperm", "bernoulli", "normal", "uniform", "multinomial", "native_dropout", "dropout"),
    *("exponential", "geometric", "log_normal", "cauchy", "random", "poisson", "rrelu_with_noise", "binomial"),
)
ASKING = ("random draw", "clock", "identity", "hash order", "listing order")
MOST_BESIDE = 8  # innocent operations that are traced back
UNEXPLAINED = "its result for equal values"
NOT_YET = (1 << 63, False)  # time of a line's first run, and whether only forks ran it: after the end of the traces


def first_difference(one: dict[Key, Trace], other: dict[Key, Trace]) -> FirstDifference | None:
    """Return the first difference between the computations of two runs' traces that reaches the training.

    Where no gradient and no weight of a process differs, it is the first one in time; of several processes the earliest; None
    where nothing differs.
    """
    other = aligned(one, other)
    both = [(key, _first(one[key], other[key])) for key in one.keys() & other.keys()]
    differences = [shown._replace(process=key) for key, shown in both if shown is not None]
    return min(differences, key=lambda shown: shown.time, default=None)


def _first(one: Trace, other: Trace) -> FirstDifference | None:
    found = reach(one, other)
    entry = next((row for row in found.entries if row.left[1] == "op"), None)
    if entry is None:
        return _shown(found.first) if found.first is not None else None
    beside = {(row.left[7], row.left[8]): row.left[0] for row in reversed(found.beside) if row.left[7]}
    earliest = _shown(found.first) if found.first is not None and found.first is not entry else None
    return _shown(entry)._replace(beside=tuple(reversed(beside.items())), earliest=earliest)


def _shown(row: Side) -> FirstDifference:
    is_operation = row.left[1] == row.right[1] == "op"
    return _of_operation(row) if is_operation else _of_tensor(row.left, is_parted=row.is_parted)


def _of_operation(row: Side) -> FirstDifference:
    left, right = row.left, row.right
    time, _, step, name, module, _, _, file, line, function, is_unwritten = left
    place = (file, line) if file else None
    if row.is_parted:
        return FirstDifference(
            step,
            f"what is computed: {_plain(name)} in one run, {_plain(right[3])} in the other",
            module,
            place,
            function,
            "",
            time,
        )
    if is_unwritten:
        return FirstDifference(
            step,
            f"the result of {_plain(name)}, which reads unwritten memory",
            module,
            place,
            function,
            "unwritten memory",
            time,
        )
    if row.given():
        return FirstDifference(step, f"what {_plain(name)} is given", module, place, function, "", time)
    kind = "random draw" if _plain(name).rstrip("_") in DRAWS else "operation" if not name.startswith("c10d") else ""
    return FirstDifference(step, f"the result of {_plain(name)} for equal inputs", module, place, function, kind, time)


def _of_tensor(row: list[Any], *, is_parted: bool) -> FirstDifference:
    time, what, step, name, _ = row[:5]
    words = {"module": f"the output of {name}", "gradient": f"the gradient of {name}", "weights": f"the weights of {name}"}
    difference = f"what is computed: {name}" if is_parted else words.get(what, name)
    return FirstDifference(step, difference, "", None, "", "", time)


def _plain(operation: str) -> str:
    """Return an operation's name as its users know it: aten.add.Tensor is add."""
    parts = operation.split(".")
    return parts[1] if len(parts) > 1 else operation


def judged(
    shown: FirstDifference | None,
    kinds: tuple[str, ...],
    one: dict[Key, Trace],
    other: dict[Key, Trace],
    source: Callable[[str], str],
    *,
    is_cut: bool = False,
) -> Judged:
    """Return the lines that are likely the cause, and those that differ and are innocent.

    Args:
        shown: Place at which the difference first shows.
        kinds: Kinds of cause that the experiments did not exclude.
        one: Traces of the first run.
        other: Traces of the second run.
        source: Function that returns the text of a file.
        is_cut: Whether the traces end before the difference: lines that had not run by then count, too.
    """
    other = aligned(one, other)
    ways = functools.cache(lambda key: Origins(one[key], other[key], source))

    def by(difference: FirstDifference | None) -> Judged:
        suspected = _suspected(_ran_before(one, difference), source, is_cut=is_cut)
        return _judged(difference, suspected, kinds, one, other, source, ways)

    found = by(shown)
    if found.is_explained or shown is None or shown.earliest is None:
        return found
    # Values may reach the training on untraced ways: then the first difference in time may say more.
    by_time = by(shown.earliest._replace(process=shown.process))
    return by_time if by_time.is_explained else joined(found, by_time)


def joined(judgement: Judged, by_time: Judged) -> Judged:
    """Return a judgement whose way back ended unexplained, with the line at which that of the first difference in time did.

    It comes first, as the earlier of the two, and is no innocent: the way to it may only not have been seen.
    """
    if [line.call for line in (*judgement.causes[:1], *by_time.causes[:1])] != [UNEXPLAINED] * 2:
        return judgement
    first = by_time.causes[0]
    causes = [first, *(line for line in judgement.causes if line.place != first.place)]
    return judgement._replace(causes=causes, innocent=[line for line in judgement.innocent if line.place != first.place])


def _judged(
    shown: FirstDifference | None,
    suspected: list[tuple[Place, Suspect]],
    kinds: tuple[str, ...],
    one: dict[Key, Trace],
    other: dict[Key, Trace],
    source: Callable[[str], str],
    ways: Callable[[Key], Origins],
) -> Judged:
    if shown is not None and shown.place is not None and shown.kind in ("unwritten memory", "operation"):
        here = [LikelyCause(shown.place, shown.kind, shown.what)]
        return Judged(here, _innocent(shown, here, suspected, ways), shown, is_explained=True)
    own = _unseeded(one, other)
    rows = [(place, found) for place, found in suspected if found.kind in kinds]
    traced = [*_unwritten(shown, kinds, one), *_origins(shown, rows, kinds, one, other, source, ways)]
    rows = [row for row in rows if not (name := row[1].generator) or name in own]
    written = _written(one)
    rows = [row for row in rows if row[1].kind != "unwritten memory" or row[0] not in written]
    # One that may have a seed counts only where it was seen to draw.
    rows = [row for row in rows if row[1].certain or not draws_when_fitted(row[1])]
    innocent = _innocent(shown, traced, suspected, ways) if shown is not None else []
    rows = [row for row in rows if row[0] not in {line.place for line in innocent}]
    ran = _ran_before(one, shown)
    rows.sort(key=lambda row: (not row[1].certain, kinds.index(row[1].kind), ran.get(row[0], NOT_YET)[0]))
    is_explained = bool(traced) and traced[0].call != UNEXPLAINED
    return Judged(_ordered(shown, kinds, traced, rows), innocent, shown, is_explained)


def _ordered(
    shown: FirstDifference | None, kinds: tuple[str, ...], traced: list[LikelyCause], rows: list[tuple[Place, Suspect]]
) -> list[LikelyCause]:
    """Return the likely lines, the likeliest first: those to which the difference was traced, then the other suspects."""
    lines = [LikelyCause(place, found.kind, found.call) for place, found in rows]
    if shown is not None and shown.place is not None and not _is_explained(shown, rows):
        here = LikelyCause(shown.place, shown.kind or kinds[0], shown.what)
        lines.insert(sum(found.certain for _, found in rows), here)
    rest = [line for line in lines if line.place not in {found.place for found in traced}]
    asked = [LikelyCause(place, found.kind, found.call) for place, found in rows if found.certain]
    if kinds == ("hash order",) and asked and not {line.place for line in traced} & {line.place for line in asked}:
        # The source shows a line that uses a set's order or a hash: any other was only the last line that could be traced.
        return [*asked, *traced, *(line for line in rest if line not in asked)]
    return [*traced, *rest]


def _innocent(
    shown: FirstDifference, causes: Sequence[LikelyCause], suspected: list[tuple[Place, Suspect]], ways: Callable[[Key], Origins]
) -> list[LikelyCause]:
    """Return the differing lines that do not lead to the training: of operations, and of suspects whose values differ."""
    if not causes:
        return []
    by_place = dict(reversed(suspected))
    asks = _asking(suspected)
    process = ways(shown.process)
    beside = shown.beside[:MOST_BESIDE]
    found = [begin for place, time in beside for begin in [o.place for o in process.of_computed(place, time, asks)] or [place]]
    if causes[0].call != UNEXPLAINED:  # else the trace may have ended too early, with the cause among these
        found += [place for place, suspect in suspected if suspect.kind in ASKING and place in process.differing]
    named = {line.place for line in causes}
    rows = [(place, by_place.get(place)) for place in dict.fromkeys(found) if place not in named]
    return [LikelyCause(place, row.kind, row.call) if row else LikelyCause(place, "outside", "it differs") for place, row in rows]


def _asking(suspected: list[tuple[Place, Suspect]]) -> set[Place]:
    return {place for place, found in suspected if found.kind in ASKING and not found.generator}


def _written(one: dict[Key, Trace]) -> set[Place]:
    """Return the lines that allocated memory which operations wrote before any traced read."""
    asked: dict[str, Place] = {}
    written, read = set[Place](), set[Place]()
    for row in (row for rows in one.values() for row in rows if row[1] == "op"):
        place, name = (row[7], row[8]), _plain(row[3])
        addresses = [value.partition("@")[2] for value in row[6]]
        if name in EMPTIES:
            asked |= dict.fromkeys(addresses, place)
        elif name.endswith("_") or row[3].endswith("out"):  # in place, or into what it is given, as torch.eye(2, out=x)
            written |= {asked[address] for address in addresses if address in asked}
        if row[10]:
            read.add(place)
    return written - read


def _unwritten(shown: FirstDifference | None, kinds: tuple[str, ...], one: dict[Key, Trace]) -> list[LikelyCause]:
    """Return the lines that allocated memory which was read unwritten, but by chance held the same in both runs."""
    if shown is not None or "unwritten memory" not in kinds:
        return []
    reads = [(row[7], row[8], row[3]) for rows in one.values() for row in rows if row[1] == "op" and row[10]]
    return [LikelyCause((file, line), "unwritten memory", f"what {_plain(name)} reads") for file, line, name in reads]


def _origins(
    shown: FirstDifference | None,
    suspected: list[tuple[Place, Suspect]],
    kinds: tuple[str, ...],
    one: dict[Key, Trace],
    other: dict[Key, Trace],
    source: Callable[[str], str],
    ways: Callable[[Key], Origins],
) -> list[LikelyCause]:
    """Return the lines from which the difference was traced to come: those that ask for what differs first, then the nearest."""
    by_place = dict(reversed(suspected))
    asks = _asking(suspected)
    found = _followed(shown, by_place, asks, one, other, ways)
    beside = {
        (file, line) for file in {origin.place[0] for origin in found} for line in only_shown(source(file))
    } - by_place.keys()
    found = sorted((o for o in found if o.place not in beside), key=lambda origin: _rank(origin, by_place, asks))
    drawn = {_named(origin.generator) for origin in found if origin.place not in by_place}
    made = [(place, row) for place, row in suspected if row.generator in drawn and draws_when_fitted(row)]
    return [
        *(LikelyCause(place, row.kind, row.call) for place, row in made),
        *(line for origin in found for line in _traced_to(origin, by_place.get(origin.place), kinds)),
    ]


def _rank(origin: Origin, suspected: Mapping[Place, Suspect], asks: Collection[Place]) -> int:
    """Return the rank of an origin: the hash of what differs already is no beginning, though it asks."""
    if origin.place not in asks:
        return 2
    return int(suspected[origin.place].kind == "hash order" and not origin.is_given_same)


def _followed(
    shown: FirstDifference | None,
    by_place: Mapping[Place, Suspect],
    asks: Collection[Place],
    one: dict[Key, Trace],
    other: dict[Key, Trace],
    ways: Callable[[Key], Origins],
) -> list[Origin]:
    """Return the origins of the difference at its first place; without one, the origins of written or deciding values."""
    found: list[Origin] = []
    for key in sorted(one.keys() & other.keys()) if shown is None else [shown.process]:
        process = ways(key)
        if shown is not None and shown.place is not None:
            origins = process.of_computed(shown.place, shown.time, asks)
            above = _parent(key)
            if process.inherited and above in one and above in other:
                origins = [*ways(above).of_inherited(process.inherited, shown.time, asks), *origins]
        else:
            opened = [((row[2], row[3]), row[0]) for row in one[key] if row[1] == "write"]
            origins = [*process.of_written(opened, asks), *process.of_decisions(asks)]
        found += [unseen for origin in origins for unseen in _unseen_of(origin, process, by_place)]
    return found


def _parent(process: Key) -> Key:
    """Return the process that forked this one, if any."""
    return process[0].rpartition(".")[0], 0


def _unseen_of(origin: Origin, origins: Origins, suspected: Mapping[Place, Suspect]) -> list[Origin]:
    """Return an origin; if it is no suspect, first the suspects that gave it values without digest, such as a thread's work."""
    if origin.place in suspected:
        return [origin]
    return [*(origin._replace(place=place) for place in origins.unseen(origin) if place in suspected), origin]


def _traced_to(origin: Origin, suspect: Suspect | None, kinds: tuple[str, ...]) -> list[LikelyCause]:
    """Return the line of an origin; before it the one to change, where that is another one."""
    if origin.late_seed is not None and "random draw" in kinds:
        drawn = LikelyCause(origin.place, "random draw", f"a draw from {_named(origin.generator)} before its seed")
        return [LikelyCause(origin.late_seed, "random draw", f"the seed of {_named(origin.generator)}, after a draw"), drawn]
    if suspect is not None:
        line = LikelyCause(origin.place, suspect.kind, suspect.call)
        # A moment or a name that is printed has its use: the line to change is the one that computes with it.
        used = origin.used if suspect.is_kept else None
        return [line._replace(place=used), line] if used is not None else [line]
    if origin.generator and "random draw" in kinds:
        return [LikelyCause(origin.place, "random draw", f"a draw from {_named(origin.generator)}")]
    is_race = origin.thread != MAIN and "threads" in kinds
    kind = "threads" if is_race else "outside" if kinds[: len(UNCHANGED)] == UNCHANGED else kinds[0]
    return [LikelyCause(origin.place, kind, UNEXPLAINED)]


def _named(generator: str) -> str:
    return generator.strip("<>")


def _is_explained(shown: FirstDifference, rows: list[tuple[Place, Suspect]]) -> bool:
    """Return True where a certain suspect explains it; never a draw of torch's own, whose generator is seeded by chance."""
    return any(found.certain for _, found in rows) and shown.kind != "random draw"


def _ran_before(traces: dict[Key, Trace], shown: FirstDifference | None) -> dict[Place, tuple[int, bool]]:
    """Return the user's own lines that ran before a difference shows: when first, and True where only forked processes did."""
    time = shown.time if shown is not None else None
    ran: dict[Place, tuple[int, bool]] = {}
    for (name, _), rows in traces.items():
        for row in rows:
            if row[1] == "line" and (time is None or row[0] <= time):
                at, forked = ran.get((row[2], row[3]), (row[0], True))
                ran[row[2], row[3]] = (min(at, row[0]), forked and "." in name)
    return ran


def _suspected(ran: dict[Place, tuple[int, bool]], source: Callable[[str], str], *, is_cut: bool) -> list[tuple[Place, Suspect]]:
    """Return the suspects among the lines that ran; shared generators are seeded in processes that load samples."""
    found: list[tuple[Place, Suspect]] = []
    sources = {file: source(file) for file in {file for file, _ in ran}}
    imported = {name: full for text in sources.values() for name, full in imports(text).items()}
    for file, text in sources.items():
        for suspect in suspects(text, imported):
            place = (file, suspect.line)
            if place in ran or is_cut:
                is_sure = suspect.certain and not (suspect.generator and ran.get(place, NOT_YET)[1])
                found.append((place, suspect._replace(certain=is_sure)))
    return found


def _unseeded(one: dict[Key, Trace], other: dict[Key, Trace]) -> set[str]:
    """Return the shared generators with different states at the first step: they were not seeded alike."""
    names: set[str] = set()
    other = aligned(one, other)
    for key in one.keys() & other.keys():
        left, right = _first_generators(one[key]), _first_generators(other[key])
        names |= {name for name in left if left[name] != right.get(name)}
    return names


def _first_generators(rows: Trace) -> dict[str, str]:
    """Return the states of the shared generators before the first step, by digest."""
    return next((dict(row[3]) for row in rows if row[1] == "generators"), {})
