"""Data of examples, made by grammars and formulas by mltrainer: the same bytes on every machine, under every version of Python.

`reviews` is hard in the ways in which judging a text is hard: words are turned round by a negation, weigh more behind a `but`,
stand beside others that say the opposite, and some reviewers rate by mistake. A model that counts words misses the first two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import date

REVIEWS = 4000
MISTAKES = 25  # one review of this number has the other label

GOOD = (
    *("good", "great", "lovely", "superb", "pleasant", "brilliant", "warm", "charming", "clever", "delightful", "generous"),
    *("gripping", "honest", "inspired", "joyful", "memorable", "moving", "perfect", "polished", "rich", "splendid", "wonderful"),
)
BAD = (
    *("bad", "awful", "boring", "dreadful", "dull", "broken", "clumsy", "cold", "confusing", "dirty", "empty", "feeble"),
    *("forgettable", "grim", "hollow", "lazy", "messy", "noisy", "poor", "shallow", "stale", "weak"),
)
ASPECTS = (
    *("the acting", "the food", "the room", "the plot", "the music", "the service", "the ending", "the view", "the staff"),
    *("the writing", "the light", "the pace", "the breakfast", "the camera work", "the garden", "the humour", "the desk"),
    *("the dialogue", "the bed", "the soup", "the second half", "the terrace", "the main course", "the first chapter"),
)
STRONGLY = ("very", "really", "truly", "extremely", "so")
WEAKLY = ("a little", "somewhat", "slightly", "rather")
NEVER = ("not", "never", "hardly", "anything but", "far from", "not at all")
FILLERS = (
    *("we came on a {day}", "my {person} chose it", "it took {number} minutes to get there", "the hall was half full"),
    *("we sat in row {number}", "it rained all {day}", "my {person} had been there before", "I paid {number} crowns"),
    *("a friend of my {person} told me about it", "we stayed until {day}", "there were {number} of us"),
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
PERSONS = ("sister", "brother", "mother", "uncle", "neighbour", "colleague", "grandfather", "cousin")


class Draws:
    """Choices at an address: each is a digest of its address, so no library's generator decides it."""

    def __init__(self, *address: str | int) -> None:
        self._address = "/".join(map(str, address))
        self._count = 0

    def below(self, bound: int) -> int:
        """Return the next whole number from 0 to bound - 1."""
        self._count += 1
        raw = hashlib.blake2b(f"{self._address}/{self._count}".encode(), digest_size=8).digest()
        return int.from_bytes(raw, "little") % bound

    def one(self, options: Sequence[str]) -> str:
        """Return one of some texts."""
        return options[self.below(len(options))]


# --- reviews ------------------------------------------------------------------------------------


def reviews(count: int = REVIEWS) -> str:
    """Return a CSV table of reviews, each with its sentiment."""
    rows: dict[str, str] = {}
    number = 0
    while len(rows) < count:
        text, label = _review(Draws("review", number))
        number += 1
        if label is not None:
            rows.setdefault(text, label)
    return "review,sentiment\n" + "".join(f'"{text}",{label}\n' for text, label in rows.items())


def _review(draws: Draws) -> tuple[str, str | None]:
    """Return a text with its label: the sign of all its opinions, None if that is undecided."""
    said = [_sentence(draws) for _ in range(1 + draws.below(2))]
    total = sum(score for _, score in said)
    texts = [text for text, _ in said]
    for _ in range(draws.below(3)):
        texts.insert(draws.below(len(texts) + 1), _filler(draws))
    is_mistake = draws.below(MISTAKES) == 0
    label = "positive" if (total > 0) != is_mistake else "negative"
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in texts), label if total else None


def _sentence(draws: Draws) -> tuple[str, int]:
    """Return one opinion or two, and their total weight: the one after a `but` counts twice."""
    first, score = _opinion(draws)
    form = draws.below(4)
    if form == 0:
        return first, score
    second, other = _opinion(draws)
    if form == 1:
        return f"{first} and {second}", score + other
    return (f"{first}, but {second}" if form == 2 else f"although {first}, {second}"), score + 2 * other


def _opinion(draws: Draws) -> tuple[str, int]:
    """Return a sentence on one aspect and its weight, negative for criticism; a negation reverses the word's sign."""
    side = 1 if draws.below(2) else -1
    aspect, word = draws.one(ASPECTS), draws.one(GOOD if side > 0 else BAD)
    form = draws.below(10)
    if form < 4:
        return f"{aspect} was {word}", 2 * side
    if form < 6:
        return f"{aspect} was {draws.one(STRONGLY)} {word}", 3 * side
    if form < 8:
        return f"{aspect} was {draws.one(WEAKLY)} {word}", side
    return f"{aspect} was {draws.one(NEVER)} {word}", -2 * side


def _filler(draws: Draws) -> str:
    """Return a sentence without an opinion."""
    return draws.one(FILLERS).format(day=draws.one(DAYS), person=draws.one(PERSONS), number=2 + draws.below(60))


# --- a ship's log -------------------------------------------------------------------------------

ENTRIES = 600
SHIPS = ("Aurora", "Black Swan", "Cormorant", "Dolphin", "Evening Star", "Fortune", "Gannet", "Hopewell")
CREW = ("Abel", "Brandt", "Celia", "Doran", "Edda", "Falk", "Greta", "Hollis", "Ines", "Jorn", "Kestrel", "Lowell")
TASKS = ("mended the sails", "scrubbed the deck", "kept the watch", "cooked for all of us", "wrote letters", "checked the ropes")
CARGO = ("barley", "copper", "glass", "oranges", "salt", "silk", "tea", "timber", "wool")
PORTS = ("Amberhaven", "Breakwater", "Cold Harbour", "Dunmouth", "Eastquay", "Fairpoint", "Greyrock", "Highcliff")
WINDS = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")
WEATHER = ("fair", "hazy", "clear", "wet", "stormy", "foggy", "mild", "bitterly cold")
MONTHS = (("March", 31), ("April", 30), ("May", 31), ("June", 30), ("July", 31), ("August", 31), ("September", 30))


def ships_log(count: int = ENTRIES) -> str:
    """Return the log of a ship: dates go on, names come back, cargo is counted; a model of five characters forgets them all."""
    draws = Draws("log")
    ship, hold, lines = draws.one(SHIPS), 40, []
    for number in range(count):
        if number % 200 == 0:
            ship = draws.one(SHIPS)
        text, hold = _entry(draws, _date(number), ship, hold)
        lines.append(text)
    return "\n".join(lines) + "\n"


def _date(number: int) -> str:
    """Return a day of a season, and the year where a new season begins."""
    season = sum(days for _, days in MONTHS)
    year, day = 1801 + number // season, number % season
    for month, days in MONTHS:
        if day < days:
            return f"{day + 1} {month} {year}"
        day -= days
    raise AssertionError(number)


def _entry(draws: Draws, date: str, ship: str, hold: int) -> tuple[str, int]:
    """Return the log entry of one day, and the number of crates in the hold after it."""
    master, mate = draws.one(CREW), draws.one(CREW)
    wind, weather = draws.one(WINDS), draws.one(WEATHER)
    lines = [f"{date}, aboard the {ship}. Wind from the {wind}, {weather}."]
    if draws.below(3):
        lines.append(f"{master} {draws.one(TASKS)}, and {mate} {draws.one(TASKS)}.")
    if not draws.below(4):
        given, taken = 1 + draws.below(max(1, hold - 1)), 1 + draws.below(30)
        port, left, brought = draws.one(PORTS), draws.one(CARGO), draws.one(CARGO)
        after = hold - given + taken
        lines.append(f"In {port} we left {given} crates of {left} and took {taken} of {brought}: the hold has {after}.")
        hold = after
    if draws.below(2):
        lines.append(f'"{draws.one(_SAYINGS).format(wind=wind, mate=mate)}," said {master}.')
    return " ".join(lines), hold


_SAYINGS = (
    *("This {wind} wind will not last", "Wake {mate} at four", "The {wind} wind is a friend", "We are late again"),
    *("Keep an eye on the ropes, {mate}", "I have seen worse", "Tell {mate} to close the hatch", "Land before night"),
)


# --- prices -------------------------------------------------------------------------------------

TRADES = 3000
BEFORE = 20  # days that the longest feature looks back on
HELD = 0.9  # of a day's drift that is left the next day
DRIFT, NOISE = 0.004, 0.008  # standard deviations of a day's change of the drift, and of the return about it


def trades(count: int = TRADES) -> str:
    """Return a CSV table of trading days of a price with a slowly changing drift, each with the next day's outcome.

    The drift is an autoregressive process of first order, and hidden; only the returns reveal it.
    Only sums and products are taken, which are the same on every machine.
    """
    draws = Draws("trades")
    drift, returns, volumes = 0.0, [], []
    for _ in range(count + BEFORE + 1):
        drift = HELD * drift + DRIFT * _normal(draws)
        returns.append(drift + NOISE * _normal(draws))
        volumes.append(1000 * (1 + 40 * abs(returns[-1]) + 0.2 * abs(_normal(draws))))
    days = _trading_days(count)
    rows = [_trading_day(days[place], returns, volumes, place + BEFORE) for place in range(count)]
    return "date,return_1,return_2,return_5,return_10,return_20,range_10,volume,next_day\n" + "".join(rows)


def _normal(draws: Draws) -> float:
    """Return a draw of mean 0 and deviation 1 that is nearly normal: a sum of twelve uniform ones."""
    return sum(draws.below(1_000_000) for _ in range(12)) / 1_000_000 - 6


def _trading_days(count: int) -> list[date]:
    """Return the first days from 2010 on that are no Saturday or Sunday."""
    first = date(2010, 1, 4).toordinal()
    return [date.fromordinal(first + 7 * (number // 5) + number % 5) for number in range(count)]


def _trading_day(day: date, returns: list[float], volumes: list[float], place: int) -> str:
    """Return a day's line: its known values at its end, and whether the next day ended higher."""
    back = [sum(returns[place + 1 - days : place + 1]) for days in (1, 2, 5, 10, 20)]
    spread = max(returns[place - 9 : place + 1]) - min(returns[place - 9 : place + 1])
    cells = [day.isoformat(), *(f"{value:.5f}" for value in (*back, spread)), f"{volumes[place]:.0f}"]
    return ",".join([*cells, "up" if returns[place + 1] > 0 else "down"]) + "\n"
