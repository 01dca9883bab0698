"""Phrases that must not appear: against every hypothesis of toy vocabularies, whose texts are read in a plain loop."""

import itertools
import re
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from test_beam_search import (
    ALPHAS,
    EOS,
    assert_same,
    every_hypothesis,
    random_tables,
    ranked,
    search,
    search_that_never_stops_early,
)
from test_constraints import banks

from t2t_keras.decoding.avoided import Avoided

LETTERS = (" a", " b", " c", "", " e", " f")  # Sub-words that are words. Token 3 is the end.
UNSPACED = re.compile("(CJK|HIRAGANA|KATAKANA|THAI|LAO|KHMER|MYANMAR|TIBETAN) ")


def avoided(rows, max_length, spelling=LETTERS) -> Avoided:
    """The scorer for lists of phrases."""
    width = max(map(len, rows))
    phrases = tf.constant([(row + [""] * width)[:width] for row in rows], tf.string, [len(rows), width])
    contents = [text if isinstance(text, bytes) else text.encode() for text in spelling]
    return Avoided(phrases, tf.fill([len(rows)], max_length), contents)


def text_of(tokens, spelling=LETTERS) -> str:
    contents = [text if isinstance(text, bytes) else text.encode() for text in (spelling[token] for token in tokens)]
    return b"".join(contents).decode("utf-8", "replace").replace("▁", " ")


def in_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN" and not UNSPACED.match(unicodedata.name(character, ""))


def contains(phrases, text: str) -> bool:
    """Whether a phrase is in the text as whole words: every place is tried."""
    for phrase, start in itertools.product(phrases, range(len(text))):
        end = start + len(phrase)
        if text[start:end] == phrase:
            begins = start == 0 or not (in_word(text[start - 1]) and in_word(phrase[0]))
            ends = end == len(text) or not (in_word(phrase[-1]) and in_word(text[end]))
            if begins and ends:
                return True
    return False


def check(rows, spelling, max_length: int, seed: int, beam_size: int, alpha: float = 0.6) -> int:
    """Compares all hypotheses of the search with those that have none of their phrases. Returns how many have some."""
    tables = random_tables(batch=len(rows), seed=seed, vocab_size=len(spelling))
    scorers = [avoided(rows, max_length, spelling)]
    found = search(tables, beam_size=beam_size, max_length=max_length, alpha=alpha, scorers=scorers)
    excluded = 0
    for received, table, phrases in zip(found, tables, rows, strict=True):
        every = every_hypothesis(table, max_length)
        allowed = {tokens: p for tokens, p in every.items() if not contains(phrases, text_of(tokens, spelling))}
        assert dict(received) == pytest.approx(dict(ranked(allowed, alpha)), abs=1e-5)  # Some of so many are as likely.
        excluded += len(every) - len(allowed)
    return excluded


WORDS = [["a"], ["b", "a"], ["c b"], ["a", "b c"], [], ["b a b"], ["c c", "c b", "e e"], ["b c b c"]]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_wide_beam_finds_the_best_of_all_hypotheses_without_their_phrases(alpha):
    assert check(WORDS, LETTERS[:5], 4, seed=111, beam_size=400, alpha=alpha) > 500


# Sub-words that hold several words, end in the middle of one, or are the bytes of a character: of "…" and "é".
SEVERAL = (" 5.", "°", " a", "", "5%", " 5", " a-5")
BYTES = (" a", b"\xe2", b"\x80", "", b"\xa6", b"\xc3", b"\xa9", "a")
UNDERSCORED = ("▁a", b"\xe2", b"\x96", "", b"\x81", "b,", "b")  # As a vocabulary of words spells ▁ in bytes.
SCRIPTS = ("猫", "a猫犬", "猫a", "", " a", "のa ", "\u0301")
NESTED = ("a.b", ".a", " b.a.b", "", ".", "b", " ")


@pytest.mark.parametrize(("spelling", "rows", "length"), [
    (SEVERAL, [["5"], ["5%"], ["5."], ["a"], ["a-5"], ["5 a"], ["5. 5"], ["-5"], ["%"], ["%°"], ["5°"], ["°"]], 4),
    (SEVERAL, [["5", "a"], ["5%", "5."], [], ["5%5", "°5"], ["-", "5 5"], ["a 5. a", "a a a"]], 4),
    (BYTES, [["a"], ["aa"], ["a…"], ["é"], ["aé"], ["…"], ["éa"], ["a a", "aaa"], ["é é"]], 4),
    (UNDERSCORED, [["a"], ["b"], ["a b"], ["b, b"], [","], ["bb", "a a"], ["b a"]], 4),
    (SCRIPTS, [["猫"], ["犬"], ["a"], ["猫a"], ["a猫"], ["の"], ["犬 a", "猫猫"], ["a\u0301"]], 4),
    (NESTED, [["a"], ["b"], ["a.b"], [".a."], ["."], ["b.a"], ["b b"], ["bb"], [".."], ["a.b.a", "b. b"]], 4),
], ids=["several words", "several phrases", "bytes", "spaces in bytes", "scripts", "nested"])  # fmt: skip
def test_a_phrase_is_avoided_however_sub_words_divide_it(spelling, rows, length):
    """Story: "▁2011." was written for ["2011"], since no sub-word ended where the phrase does."""
    assert check(rows, spelling, length, seed=115, beam_size=len(spelling) ** length) > 300


@pytest.mark.medium
def test_phrases_and_sub_words_at_random():
    """Characters of two words, spaces and points, in sub-words of up to four of them."""
    draw = np.random.default_rng(3)
    excluded = 0

    def drawn() -> str:
        return re.sub(" +", " ", "".join(draw.choice(list("ab. "), draw.integers(1, 5))))

    for seed in range(12):
        texts = [drawn() for _ in range(5)]
        spelling = (*texts[:3], "", *texts[3:])
        rows = [[phrase for _ in range(draw.integers(1, 3)) if (phrase := drawn().strip())] for _ in range(12)]
        excluded += check(rows, spelling, 4, seed=200 + seed, beam_size=6**4)
    assert excluded > 5000


@pytest.mark.parametrize("beam_size", [1, 3])
def test_what_is_avoided_is_avoided_by_a_narrow_beam_by_the_same_rule(beam_size):
    """What ends the text is a phrase only if it ends the translation, or if no letter after it would go on with it."""
    draw, spelling = np.random.default_rng(12), (" a", " b", "c", "", " e.", "f")
    words = ["a", "b", "ac", "bf", "e", "e."]
    rows = [[" ".join(draw.choice(words, draw.integers(1, 3))) for _ in range(draw.integers(0, 4))] for _ in range(30)]
    tables = random_tables(batch=30, seed=112, vocab_size=6)
    found = search(tables, beam_size=beam_size, max_length=7, alpha=0.6, scorers=[avoided(rows, 7, spelling)])
    for received, table, phrases in zip(found, tables, rows, strict=True):

        def change(tokens, values, phrases=phrases):
            after = "" if len(tokens) == 6 else "x"
            texts = [text_of((*tokens, token), spelling) + after * (token != EOS) for token in range(6)]
            return np.where([contains(phrases, text) for text in texts], -np.inf, values)

        assert_same(received, search_that_never_stops_early(table, beam_size, 7, 0.6, change=change))


def test_what_must_and_must_not_appear_is_never_written_and_the_others_are():
    tables = random_tables(batch=2, seed=114, vocab_size=6)
    hooks = {"scorers": [avoided([["b c"]] * 2, 6)], "selector": banks([[[1, 2]], [[1], [2]]], max_length=6)}
    never, possible = search(tables, beam_size=4, max_length=6, alpha=0.6, **hooks)
    assert all(len(tokens) == 6 and EOS not in tokens and not contains(["b c"], text_of(tokens)) for tokens, _ in never)
    best = possible[0][0]
    assert best[-1] == EOS and {1, 2} <= set(best) and not contains(["b c"], text_of(best))
