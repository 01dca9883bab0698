"""The built-in corpus: right English and German, short sentences among long ones, and held-out pairs that no other
split has.
"""

import calendar
import hashlib
import random

import pytest

from t2t_keras.data import builtin_corpus

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
    716_117: ("seven hundred and sixteen thousand one hundred and seventeen",
              "siebenhundertsechzehntausendeinhundertsiebzehn"),
    999_999: ("nine hundred and ninety-nine thousand nine hundred and ninety-nine",
              "neunhundertneunundneunzigtausendneunhundertneunundneunzig"),
}  # fmt: skip
DATES = {
    (1, 1, 1100): ("the first of january eleven hundred", "der erste Januar elfhundert"),
    (3, 3, 1905): ("the third of march nineteen oh-five", "der dritte März neunzehnhundertfünf"),
    (7, 5, 2000): ("the seventh of may two thousand", "der siebte Mai zweitausend"),
    (21, 5, 1999): ("the twenty-first of may nineteen ninety-nine",
                    "der einundzwanzigste Mai neunzehnhundertneunundneunzig"),
    (29, 2, 1600): ("the twenty-ninth of february sixteen hundred", "der neunundzwanzigste Februar sechzehnhundert"),
    (31, 12, 2099): ("the thirty-first of december twenty ninety-nine",
                     "der einunddreißigste Dezember zweitausendneunundneunzig"),
}  # fmt: skip
MONEY = {
    ("euro", 1, 0): ("one euro", "ein Euro"),
    ("euro", 2, 0): ("two euros", "zwei Euro"),
    ("euro", 0, 0): ("zero euros", "null Euro"),
    ("euro", 1, 1): ("one euro and one cent", "ein Euro und ein Cent"),
    ("euro", 1, 2): ("one euro and two cents", "ein Euro und zwei Cent"),
    ("dollar", 21, 1): ("twenty-one dollars and one cent", "einundzwanzig Dollar und ein Cent"),
    ("franc", 1, 0): ("one franc", "ein Franken"),
    ("franc", 100_000, 50): (
        "one hundred thousand francs and fifty cents", "einhunderttausend Franken und fünfzig Cent"),
}  # fmt: skip


class Draw(random.Random):
    """Draws the values given, in order; every one must have been possible."""

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
    assert builtin_corpus.number(Draw(6, 0, 0, value)) == NUMBERS[value]


@pytest.mark.parametrize(
    ("zeros", "drawn", "expected"), [(0, 5, ("five", "fünf")), (2, 7, ("seven hundred", "siebenhundert"))]
)
def test_a_number_may_end_in_zeros(zeros, drawn, expected):
    assert builtin_corpus.number(Draw(3, zeros, zeros, drawn)) == expected


@pytest.mark.parametrize(("millions", "expected"), [
    (1, ("one million", "eine Million")),
    (2, ("two million", "zwei Millionen")),
    (21, ("twenty-one million", "einundzwanzig Millionen")),
    (99, ("ninety-nine million", "neunundneunzig Millionen")),
])  # fmt: skip
def test_whole_millions_are_called(millions, expected):
    assert builtin_corpus.number(Draw(7, 2, millions)) == expected
    euro = builtin_corpus.CURRENCIES[0]
    assert builtin_corpus.money(Draw(euro, 7, 2, millions, 0, 0)) == (f"{expected[0]} euros", f"{expected[1]} Euro")


@pytest.mark.parametrize("value", [101_000, 101_101, 201_000])
def test_before_tausend_it_is_ein_and_not_eins(value):
    """num2words 0.5.14 gives "einhunderteinstausend"."""
    _, german = builtin_corpus.number(Draw(6, 0, 0, value))
    assert german.startswith(("einhunderteintausend", "zweihunderteintausend"))


@pytest.mark.parametrize(("day", "month", "year"), DATES)
def test_a_date_is_called(day, month, year):
    assert builtin_corpus.date(Draw(month - 1, year, day)) == DATES[day, month, year]


@pytest.mark.parametrize(("currency", "amount", "cents"), MONEY)
def test_an_amount_of_money_is_called(currency, amount, cents):
    [names] = [names for names in builtin_corpus.CURRENCIES if names[0] == currency]
    assert builtin_corpus.money(Draw(names, 6, 0, 0, amount, cents, cents)) == MONEY[currency, amount, cents]


def test_every_month_has_its_days():
    """The longest that each can have, by the calendar of a leap year."""
    assert [calendar.monthrange(2000, month)[1] for month in range(1, 13)] == list(builtin_corpus.DAYS)
    names = [calendar.month_name[month].lower() for month in range(1, 13)]
    assert names == [english for english, _ in builtin_corpus.MONTHS]


def test_over_a_hundred_million_pairs_are_possible():
    """Money alone gives so many: three currencies, a million amounts, a hundred cents, all with names of their own.

    The amounts' names differ because a number's name is that of its thousands, "thousand", and that of its rest: where
    the thousand names below a thousand all differ and none holds "thousand", the name tells both parts. Likewise in
    German.
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


@pytest.fixture(scope="module")
def made() -> dict:
    """As large as the one of the quick start."""
    return builtin_corpus.splits(40_000, 1)


@pytest.mark.medium
def test_no_pair_is_in_two_splits_and_no_held_out_pair_comes_twice(made):
    sizes = [len(made[split]) for split in ("train", "valid", "test")]
    assert sizes == [40_000, builtin_corpus.HELD_OUT, builtin_corpus.HELD_OUT]
    held_out = made["valid"] + made["test"]
    assert not set(held_out) & set(made["train"])
    assert len({english for english, _ in held_out}) == len({german for _, german in held_out}) == len(held_out)


def test_each_sentence_has_one_translation(made):
    pairs = {pair for split in made.values() for pair in split}
    assert len({english for english, _ in pairs}) == len({german for _, german in pairs}) == len(pairs)


def test_every_number_below_1000_is_in_train_or_in_test(made):
    """Story: "four" was in no training pair, and the quick start's model wrote "vierhundertvier"."""
    names = [builtin_corpus._words(value, "en") for value in range(1000)]
    train, test = ({english for english, _ in made[split]} for split in ("train", "test"))
    assert all((name in train) != (name in test) for name in names)
    assert sum(name in test for name in names) < 100


def test_short_sentences_are_common_in_every_split(made):
    """Before, three in a hundred training pairs had at most two words."""
    for split in made:
        words = [len(english.split()) for english, _ in made[split]]
        assert sum(count <= 3 for count in words) > 0.05 * len(words)
        assert sum(count >= 7 for count in words) > 0.1 * len(words)
    digits = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    english = [english for english, _ in made["train"]]
    test = {english for english, _ in made["test"]}
    assert all(english.count(digit) > 100 for digit in digits if digit not in test)


@pytest.mark.medium
def test_the_corpus_is_a_function_of_the_seed():
    made = builtin_corpus.splits(200, 1)
    builtin_corpus.splits.cache_clear()
    assert builtin_corpus.splits(200, 1) == made
    other = builtin_corpus.splits(200, 2)
    for split in made:
        assert len(set(made[split]) & set(other[split])) < len(made[split]) / 2


def test_a_seed_gives_the_pairs_that_it_gave_before(made):
    """If it has to give others, `EDITION` becomes 3, so that a prepared folder is not taken for what it is not."""
    digests = {split: hashlib.sha256(repr(pairs).encode()).hexdigest()[:16] for split, pairs in made.items()}
    expected = {"valid": "744edc9ddd155ddf", "test": "454e4366e0157a51", "train": "5a33669ec3d23cf0"}
    assert (builtin_corpus.EDITION, digests) == (2, expected)


def test_the_held_out_pairs_do_not_depend_on_how_many_are_for_training(made):
    few, more = builtin_corpus.splits(50, 1), made
    assert (few["valid"], few["test"]) == (more["valid"], more["test"])
    assert few["train"] == more["train"][:50]


def test_all_kinds_come_equally_often(made):
    for split in made:
        english = [source for source, _ in made[split]]
        dates = sum(" of " in line for line in english)
        money = sum(any(name in line for name in ("euro", "dollar", "franc")) for line in english)
        for count in (dates, money, len(english) - dates - money):
            assert 0.32 < count / len(english) < 0.35


def test_every_line_is_single_spaced_words_without_commas():
    for split in builtin_corpus.splits(500, 1).values():
        for line in (line for pair in split for line in pair):
            assert line == " ".join(line.split())
            assert line.replace(" ", "").replace("-", "").isalpha()
