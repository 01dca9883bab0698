"""A corpus that needs no download: numbers to 999,999, dates and amounts of money, written out in English and German.

There are over 10⁸ possible pairs. Small enough a task for a few minutes on a CPU, hard enough to show a mistake: German swaps
units and tens ("einundzwanzig") and joins a number into one word.
"""

import functools
import random
from collections.abc import Callable

import num2words

HELD_OUT = 500  # Pairs for validation, and as many for the test.

# num2words has no names of months, and reads whole amounts of money as cents.
MONTHS = (
    ("january", "Januar"), ("february", "Februar"), ("march", "März"), ("april", "April"), ("may", "Mai"), ("june", "Juni"),
    ("july", "Juli"), ("august", "August"), ("september", "September"), ("october", "Oktober"), ("november", "November"),
    ("december", "Dezember"),
)  # fmt: skip
DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# One and many in English; German amounts stay in the singular.
CURRENCIES = (("euro", "euros", "Euro"), ("dollar", "dollars", "Dollar"), ("franc", "francs", "Franken"))


def _words(number: int, language: str, to: str = "cardinal") -> str:
    # num2words 0.5.14 writes 101,000 as "einhunderteinstausend".
    return num2words.num2words(number, lang=language, to=to).replace(",", "").replace("einstausend", "eintausend")


def _some_number(draw: random.Random) -> int:
    """Up to 999,999, short ones as often as long ones."""
    return draw.randrange(10 ** draw.randint(1, 6))


def number(draw: random.Random) -> tuple[str, str]:
    """twenty-one → einundzwanzig"""
    value = _some_number(draw)
    return _words(value, "en"), _words(value, "de")


def date(draw: random.Random) -> tuple[str, str]:
    """the twenty-first of may nineteen ninety-nine → der einundzwanzigste Mai neunzehnhundertneunundneunzig"""
    month, year = draw.randrange(12), draw.randrange(1100, 2100)
    day = draw.randint(1, DAYS[month])
    english = f"the {_words(day, 'en', 'ordinal')} of {MONTHS[month][0]} {_words(year, 'en', 'year')}"
    return english, f"der {_words(day, 'de', 'ordinal')} {MONTHS[month][1]} {_words(year, 'de', 'year')}"


def money(draw: random.Random) -> tuple[str, str]:
    """one euro and two cents → ein Euro und zwei Cent"""
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
def splits(train_pairs: int, seed: int) -> dict[str, list[tuple[str, str]]]:
    """The corpus: `train`, `valid` and `test` pairs, English first. All are different, so no test pair is in train.

    The held-out pairs are drawn first: they depend on the seed alone, not on `train_pairs`.
    """
    draw = random.Random(seed)
    pairs: dict[str, str] = {}
    while len(pairs) < train_pairs + 2 * HELD_OUT:
        english, german = draw.choice(KINDS)(draw)
        pairs.setdefault(english, german)
    pairs = list(pairs.items())
    return {"valid": pairs[:HELD_OUT], "test": pairs[HELD_OUT : 2 * HELD_OUT], "train": pairs[2 * HELD_OUT :]}
