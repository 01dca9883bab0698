"""The built-in corpus: right English and German, no pair twice, and held-out pairs that stay what they are."""

import calendar
import random

import pytest

from t2t_keras import builtin_corpus

# Written by hand.
NUMBERS = {
    0: ("zero", "null"),
    1: ("one", "eins"),
    2: ("two", "zwei"),
    10: ("ten", "zehn"),
    11: ("eleven", "elf"),
    12: ("twelve", "zwölf"),
    13: ("thirteen", "dreizehn"),
    16: ("sixteen", "sechzehn"),
    17: ("seventeen", "siebzehn"),
    19: ("nineteen", "neunzehn"),
    20: ("twenty", "zwanzig"),
    21: ("twenty-one", "einundzwanzig"),
    30: ("thirty", "dreißig"),
    66: ("sixty-six", "sechsundsechzig"),
    77: ("seventy-seven", "siebenundsiebzig"),
    100: ("one hundred", "einhundert"),
    101: ("one hundred and one", "einhunderteins"),
    345: ("three hundred and forty-five", "dreihundertfünfundvierzig"),
    1_000: ("one thousand", "eintausend"),
    1_001: ("one thousand and one", "eintausendeins"),
    2_012: ("two thousand and twelve", "zweitausendzwölf"),
    21_000: ("twenty-one thousand", "einundzwanzigtausend"),
    100_001: ("one hundred thousand and one", "einhunderttausendeins"),
    716_117: ("seven hundred and sixteen thousand one hundred and seventeen", "siebenhundertsechzehntausendeinhundertsiebzehn"),
    999_999: (
        "nine hundred and ninety-nine thousand nine hundred and ninety-nine",
        "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
    ),
}
DATES = {
    (1, 1, 1100): ("the first of january eleven hundred", "der erste Januar elfhundert"),
    (3, 3, 1905): ("the third of march nineteen oh-five", "der dritte März neunzehnhundertfünf"),
    (7, 5, 2000): ("the seventh of may two thousand", "der siebte Mai zweitausend"),
    (21, 5, 1999): ("the twenty-first of may nineteen ninety-nine", "der einundzwanzigste Mai neunzehnhundertneunundneunzig"),
    (29, 2, 1600): ("the twenty-ninth of february sixteen hundred", "der neunundzwanzigste Februar sechzehnhundert"),
    (31, 12, 2099): ("the thirty-first of december twenty ninety-nine", "der einunddreißigste Dezember zweitausendneunundneunzig"),
}
MONEY = {
    ("euro", 1, 0): ("one euro", "ein Euro"),
    ("euro", 2, 0): ("two euros", "zwei Euro"),
    ("euro", 0, 0): ("zero euros", "null Euro"),
    ("euro", 1, 1): ("one euro and one cent", "ein Euro und ein Cent"),
    ("euro", 1, 2): ("one euro and two cents", "ein Euro und zwei Cent"),
    ("dollar", 21, 1): ("twenty-one dollars and one cent", "einundzwanzig Dollar und ein Cent"),
    ("franc", 1, 0): ("one franc", "ein Franken"),
    ("franc", 100_000, 50): ("one hundred thousand francs and fifty cents", "einhunderttausend Franken und fünfzig Cent"),
}


class Draw(random.Random):
    """Draws what it was told to, in order; every one must have been possible."""

    def __init__(self, *told):
        super().__init__(0)
        self.told = list(told)

    def randrange(self, start, stop=None):
        low, high = (0, start) if stop is None else (start, stop)
        assert low <= self.told[0] < high
        return self.told.pop(0)

    def randint(self, low, high):
        return self.randrange(low, high + 1)

    def choice(self, among):
        assert self.told[0] in among
        return self.told.pop(0)


@pytest.mark.parametrize("value", NUMBERS)
def test_a_number_is_called(value):
    assert builtin_corpus.number(Draw(6, value)) == NUMBERS[value]


@pytest.mark.parametrize("value", [101_000, 101_101, 201_000])
def test_before_tausend_it_is_ein_and_not_eins(value):
    """num2words 0.5.14 gives "einhunderteinstausend"."""
    _, german = builtin_corpus.number(Draw(6, value))
    assert german.startswith(("einhunderteintausend", "zweihunderteintausend"))


@pytest.mark.parametrize(("day", "month", "year"), DATES)
def test_a_date_is_called(day, month, year):
    assert builtin_corpus.date(Draw(month - 1, year, day)) == DATES[day, month, year]


@pytest.mark.parametrize(("currency", "amount", "cents"), MONEY)
def test_an_amount_of_money_is_called(currency, amount, cents):
    [names] = [names for names in builtin_corpus.CURRENCIES if names[0] == currency]
    assert builtin_corpus.money(Draw(names, 6, amount, cents, cents)) == MONEY[currency, amount, cents]


def test_every_month_has_its_days():
    """The longest that each can have, by the calendar of a leap year."""
    assert [calendar.monthrange(2000, month)[1] for month in range(1, 13)] == list(builtin_corpus.DAYS)
    assert [calendar.month_name[month].lower() for month in range(1, 13)] == [english for english, _ in builtin_corpus.MONTHS]


def test_over_a_hundred_million_pairs_are_possible():
    """Money alone gives so many: three currencies, a million amounts, a hundred cents, all with names of their own.

    The amounts' names differ because a number's name is that of its thousands, "thousand", and that of its rest: where the
    thousand names below a thousand all differ and none holds "thousand", the name tells both parts. Likewise in German.
    """
    for language, thousand in (("en", "thousand"), ("de", "tausend")):
        below = [builtin_corpus._words(value, language) for value in range(1000)]
        assert len(set(below)) == 1000
        assert not [name for name in below if thousand in name]
        draw = random.Random(1)
        for value in (draw.randrange(2000, 10**6) for _ in range(300)):
            thousands, rest = (part.strip() for part in builtin_corpus._words(value, language).split(thousand))
            expected = below[value // 1000]
            assert thousands in (expected, expected.removesuffix("s"))  # eins, but (ein)tausend
            assert rest.removeprefix("and ") == (below[value % 1000] if value % 1000 else "")
    assert 10**8 < len(builtin_corpus.CURRENCIES) * 10**6 * 100


def test_no_pair_comes_twice_and_none_that_is_held_out_is_in_train():
    made = builtin_corpus.splits(2000, 1)
    assert [len(made[split]) for split in ("train", "valid", "test")] == [2000, builtin_corpus.HELD_OUT, builtin_corpus.HELD_OUT]
    pairs = [pair for split in made.values() for pair in split]
    assert len({english for english, _ in pairs}) == len({german for _, german in pairs}) == len(pairs)


def test_the_corpus_is_a_function_of_the_seed():
    made = builtin_corpus.splits(200, 1)
    builtin_corpus.splits.cache_clear()
    assert builtin_corpus.splits(200, 1) == made
    other = builtin_corpus.splits(200, 2)
    for split in made:
        assert len(set(made[split]) & set(other[split])) < len(made[split]) / 2


def test_the_held_out_pairs_do_not_depend_on_how_many_are_for_training():
    few, more = builtin_corpus.splits(50, 1), builtin_corpus.splits(500, 1)
    assert (few["valid"], few["test"]) == (more["valid"], more["test"])
    assert few["train"] == more["train"][:50]


def test_all_kinds_come_about_equally_often():
    english = [source for source, _ in builtin_corpus.splits(2000, 1)["train"]]
    dates = sum(" of " in line for line in english)
    money = sum(any(name in line for name in ("euro", "dollar", "franc")) for line in english)
    for count in (dates, money, len(english) - dates - money):
        assert 0.25 < count / len(english) < 0.42


def test_every_line_is_single_spaced_words_without_commas():
    for split in builtin_corpus.splits(500, 1).values():
        for line in (line for pair in split for line in pair):
            assert line == " ".join(line.split())
            assert line.replace(" ", "").replace("-", "").isalpha()
