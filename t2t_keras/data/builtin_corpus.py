"""A generated corpus: numbers, dates and amounts of money in words, in English and German. It needs no download.

There are numbers up to 999,999 and whole millions up to 99 million. More than 10⁸ pairs are possible. A model learns
the task in a few minutes on a CPU, but the task is hard enough to reveal errors: German swaps units and tens
("einundzwanzig") and writes a number as one word.
"""

import functools
import hashlib
import itertools
import random
from collections.abc import Callable, Iterator

import num2words

EDITION = 2  # Version of the generator; changes if a seed gives other pairs.
HELD_OUT = 500  # Pairs in each of the validation and test splits.
TEST_SHARE, VALID_SHARE = 0.1, 0.05  # Share of all possible pairs that each held-out split is drawn from.

# num2words has no names of months, and takes whole amounts of money for cents.
MONTHS = (
    ("january", "Januar"), ("february", "Februar"), ("march", "März"), ("april", "April"), ("may", "Mai"),
    ("june", "Juni"), ("july", "Juli"), ("august", "August"), ("september", "September"), ("october", "Oktober"),
    ("november", "November"), ("december", "Dezember"),
)  # fmt: skip
DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# Singular and plural in English; German has one form.
CURRENCIES = (("euro", "euros", "Euro"), ("dollar", "dollars", "Dollar"), ("franc", "francs", "Franken"))


@functools.lru_cache(maxsize=2**14)
def _words(number: int, language: str, to: str = "cardinal") -> str:
    # num2words 0.5.14 writes 101,000 as "einhunderteinstausend".
    return num2words.num2words(number, lang=language, to=to).replace(",", "").replace("einstausend", "eintausend")


def _some_number(draw: random.Random) -> int:
    """Draws a number of one to six digits, up to a third of them with zeros at the end, or whole millions."""
    digits = draw.randint(1, 7)
    if digits == 7:
        return draw.randrange(1, 10 ** draw.randint(1, 2)) * 10**6
    zeros = draw.choice((0, 0, draw.randrange(digits)))
    return draw.randrange(10 ** (digits - zeros)) * 10**zeros


def _number(value: int) -> tuple[str, str]:
    return _words(value, "en"), _words(value, "de")


def number(draw: random.Random) -> tuple[str, str]:
    """Draws a number, such as twenty-one → einundzwanzig."""
    return _number(_some_number(draw))


def date(draw: random.Random) -> tuple[str, str]:
    """Draws a date: the twenty-first of may nineteen ninety-nine → der einundzwanzigste Mai
    neunzehnhundertneunundneunzig.
    """
    month, year = draw.randrange(12), draw.randrange(1100, 2100)
    day = draw.randint(1, DAYS[month])
    english = f"the {_words(day, 'en', 'ordinal')} of {MONTHS[month][0]} {_words(year, 'en', 'year')}"
    return english, f"der {_words(day, 'de', 'ordinal')} {MONTHS[month][1]} {_words(year, 'de', 'year')}"


def money(draw: random.Random) -> tuple[str, str]:
    """Draws an amount of money, such as one euro and two cents → ein Euro und zwei Cent."""
    one, many, german_name = draw.choice(CURRENCIES)
    amount, cents = _some_number(draw), draw.choice((0, draw.randrange(100)))

    def english(value: int, singular: str, plural: str) -> str:
        return f"{_words(value, 'en')} {singular if value == 1 else plural}"

    def german(value: int, name: str) -> str:
        return f"{'ein' if value == 1 else _words(value, 'de')} {name}"

    if not cents:
        return english(amount, one, many), german(amount, german_name)
    return (
        f"{english(amount, one, many)} and {english(cents, 'cent', 'cents')}",
        f"{german(amount, german_name)} und {german(cents, 'Cent')}",
    )


KINDS: tuple[Callable, ...] = (number, date, money)


@functools.lru_cache(maxsize=1)
def _below_1000() -> dict[str, str]:
    return dict(map(_number, range(1000)))


def _split_of(english: str, seed: int) -> str:
    """Returns the split of a sentence, by the sentence and the seed. Numbers below 1,000 are not for validation."""
    digest = hashlib.sha256(f"{seed} {english}".encode()).digest()
    place = int.from_bytes(digest[:8]) / 2**64
    if place < TEST_SHARE:
        return "test"
    return "valid" if place < TEST_SHARE + VALID_SHARE and english not in _below_1000() else "train"


def _draws(seed: int, split: str, distinct: bool) -> Iterator[tuple[str, str]]:
    """Yields pairs of a split indefinitely, with alternating kinds."""
    draw, seen = random.Random(f"{seed} {split}"), set()
    for kind in itertools.cycle(KINDS):
        pair = kind(draw)
        while pair in seen or _split_of(pair[0], seed) != split:
            pair = kind(draw)
        if distinct:
            seen.add(pair)
        yield pair


@functools.lru_cache(maxsize=1)
def splits(train_pairs: int, seed: int) -> dict[str, list[tuple[str, str]]]:
    """Generates the (English, German) pairs of the splits `train`, `valid` and `test`. No pair is in two splits.

    Held-out pairs are distinct and depend only on the seed, not on `train_pairs`. Training pairs may repeat, as short
    sentences do in any text. At the beginning, every fourth training pair is a number below 1,000, until all such
    numbers outside `test` have occurred.
    """
    made = {split: list(itertools.islice(_draws(seed, split, distinct=True), HELD_OUT)) for split in ("valid", "test")}
    small = sorted(set(_below_1000().items()) - set(made["test"]))
    random.Random(seed).shuffle(small)
    others = itertools.islice(_draws(seed, "train", distinct=False), train_pairs)
    made["train"] = [small.pop() if small and index % 4 == 0 else pair for index, pair in enumerate(others)]
    return made
