"""Scores are those of EVALB with COLLINS.prm. Every row of the table was also scored by EVALB itself (the version of
2006).
"""

import itertools
import random

import pytest
from test_trees import random_tree

from t2t_keras.parsing.evalb import Scores, score, score_sentence, summary
from t2t_keras.parsing.trees import TOP, Tree, preterminals, read_trees, walk

GOLD = "(S (A (P this)) (B (Q is) (A (R a) (T test))))"
TRACES = "(TOP (S (NP-SBJ-1 (D the) (N cat)) (VP (V sat) (NP (-NONE- *-1)) (SBAR (-NONE- 0) (S (-NONE- *T*-2))))))"
# Gold and parsed tree; brackets matched, gold and parsed; crossing brackets; words and correct tags.
CASES = {
    "the same tree": (GOLD, GOLD, (4, 4, 4, 0, 4, 4)),
    "another label": (GOLD, "(S (A (P this)) (B (Q is) (C (R a) (T test))))", (3, 4, 4, 0, 4, 4)),
    "another tag": (GOLD, "(S (A (P this)) (B (Q is) (A (R a) (U test))))", (4, 4, 4, 0, 4, 3)),
    "another span": (GOLD, "(S (A (P this)) (B (Q is) (R a) (A (T test))))", (3, 4, 4, 0, 4, 4)),
    "a crossing bracket": (GOLD, "(S (A (P this) (Q is)) (A (R a) (T test)))", (2, 4, 3, 1, 4, 4)),
    "a flat tree": (GOLD, "(S (P this) (Q is) (R a) (T test))", (1, 4, 1, 0, 4, 4)),
    "tags alone": (GOLD, "(P this) (Q is) (R a) (T test)", (0, 4, 0, 0, 4, 4)),
    "a label twice in the parsed tree": (
        GOLD, "(S (A (P this)) (B (Q is) (A (A (R a) (T test)))))", (4, 4, 5, 0, 4, 4)
    ),
    "a label twice in the gold tree": ("(S (A (P this)) (B (Q is) (A (A (R a) (T test)))))", GOLD, (4, 5, 4, 0, 4, 4)),
    "a label five times and twice": ("(A (A (A (A (A (P a))))))", "(A (A (P a)))", (2, 5, 2, 0, 1, 1)),
    "TOP is not counted": (GOLD, f"(TOP {GOLD})", (4, 4, 4, 0, 4, 4)),
    "TOP twice is not counted": (f"(TOP (TOP {GOLD}))", GOLD, (4, 4, 4, 0, 4, 4)),
    "ROOT is counted": (GOLD, f"(ROOT {GOLD})", (4, 4, 5, 0, 4, 4)),
    "function tags are removed": ("(S (A-SBJ-1 (P this)) (B=2 (Q is) (A (R a) (T test))))", GOLD, (4, 4, 4, 0, 4, 4)),
    "function tags of the parsed tree, too": (
        GOLD, "(S-X (A=3-SBJ (P this)) (B (Q is) (A (R a) (T test))))", (4, 4, 4, 0, 4, 4)
    ),
    "tags keep their function": ("(S (P-X a))", "(S (P a))", (1, 1, 1, 0, 1, 0)),
    "PRT is ADVP": ("(S (PRT (P up)) (ADVP (P on)))", "(S (ADVP (P up)) (PRT (P on)))", (3, 3, 3, 0, 2, 2)),
    "PRT is ADVP one to one": ("(S (PRT (ADVP (P up))))", "(S (ADVP (P up)))", (2, 3, 2, 0, 1, 1)),
    "PRT with a function tag": ("(S (PRT-CLR (P up)) (X a))", "(S (ADVP (P up)) (X a))", (2, 2, 2, 0, 2, 2)),
    "PRT as a tag": ("(S (PRT up))", "(S (ADVP up))", (1, 1, 1, 0, 1, 1)),
    "traces and what contains only them": (TRACES, "(TOP (S (NP (D the) (N cat)) (VP (V sat))))", (3, 3, 3, 0, 3, 3)),
    "punctuation is left out": (
        "(S (NP (D a) (`` ``) (N b) ('' '')) (, ,) (VP (V c)) (: --) (. .))",
        "(S (`` ``) (NP (D a) (N b)) ('' '') (X (, ,)) (VP (V c) (: --)) (. .))",
        (3, 3, 3, 0, 3, 3),
    ),
    "other punctuation is not": (
        "(S (-LRB- -LRB-) ($ $) (N a))", "(S (X (-LRB- -LRB-) ($ $)) (N a))", (1, 1, 2, 0, 3, 3)
    ),
    "crossing counts parsed brackets": (
        "(S (A (P a) (P b)) (B (P c) (P d)))", "(S (P a) (X (Y (P b) (P c))) (P d))", (1, 3, 3, 2, 4, 4)
    ),
    "crossing brackets end within the other": (
        "(S (P a) (A (P b) (P c)))", "(S (B (P a) (P b)) (P c))", (1, 2, 2, 1, 3, 3)
    ),
    "brackets within others do not cross": (
        "(S (A (P a) (P b)) (P c))", "(S (B (P a)) (C (P b)) (P c))", (1, 2, 3, 0, 3, 3)
    ),
    "a constituent without words": ("(S (A) (P a))", "(S (P a) (B (, ,)))", (1, 1, 1, 0, 1, 1)),
}  # fmt: skip
# Gold and parsed tree; whether it is an error or skipped.
NOT_SCORED = {
    "another word": (GOLD, "(S (A (P this)) (B (Q was) (A (R a) (T test))))", "errors"),
    "another case": (GOLD, "(S (A (P This)) (B (Q is) (A (R a) (T test))))", "errors"),
    "a word more": (GOLD, "(S (A (P this)) (B (Q is) (U not) (A (R a) (T test))))", "errors"),
    "a word less": (GOLD, "(S (A (P this)) (B (Q is) (A (R a))))", "errors"),
    "punctuation with another tag": ("(S (P a) (. .))", "(S (P a) (N .))", "errors"),
    "a word with a tag of punctuation": ("(S (P a) (P b))", "(S (P a) (, b))", "errors"),
    "no tree": (GOLD, "", "skipped"),
    "no words": (GOLD, "(TOP)", "skipped"),
    "punctuation alone": (GOLD, "(S (. .))", "skipped"),
}  # fmt: skip


def line(text: str) -> Tree:
    """All brackets of a line, under TOP."""
    return Tree(TOP, list(read_trees([text], "")))


def pairs(cases) -> list[tuple[Tree, Tree]]:
    return [(line(gold), line(parsed)) for gold, parsed, _ in cases]


@pytest.mark.parametrize("case", CASES)
def test_a_sentence_is_scored_as_by_evalb(case):
    gold, parsed, expected = CASES[case]
    found = score_sentence(line(gold), line(parsed))
    assert (found.matched, found.gold, found.parsed, found.crossing, found.words, found.correct_tags) == expected
    assert (found.sentences, found.valid, found.complete) == (1, 1, int(expected[0] == expected[1] == expected[2]))
    assert summary(found)["average_crossing"] == expected[3]


@pytest.mark.parametrize("case", NOT_SCORED)
def test_a_sentence_with_other_words_is_an_error_and_one_without_words_is_skipped(case):
    gold, parsed, expected = NOT_SCORED[case]
    assert score_sentence(line(gold), line(parsed)) == Scores(sentences=1, **{expected: 1})


def test_a_line_that_is_no_tree_is_an_error():
    assert score_sentence(line(GOLD), None) == Scores(sentences=1, errors=1)


def test_the_unlabelled_outermost_bracket_of_a_treebank_is_not_counted():
    assert score_sentence(line(f"( {GOLD})"), line(GOLD)) == score_sentence(line(GOLD), line(GOLD))


def test_a_corpus_has_the_sums_of_its_sentences():
    """The figures that EVALB prints for this table: micro-averages over the sentences that are scored."""
    every, _ = score(pairs([*CASES.values(), *NOT_SCORED.values()]))
    sums = [sum(expected[index] for *_, expected in CASES.values()) for index in range(6)]
    assert [every.matched, every.gold, every.parsed, every.crossing, every.words, every.correct_tags] == sums
    assert (every.sentences, every.errors, every.skipped, every.valid) == (36, 6, 3, 27)
    found = {name: round(value, 2) for name, value in summary(every).items()}
    assert found == {
        "sentences": 36, "errors": 6, "skipped": 3, "recall": 77.01, "precision": 85.9, "f1": 81.21,
        "complete_match": 48.15, "average_crossing": 0.15, "no_crossing": 88.89, "few_crossing": 100.0,
        "tagging_accuracy": 97.62,
    }  # fmt: skip


def test_sentences_with_two_crossing_brackets_or_less_are_counted():
    gold = line("(S (A (P a) (P b)) (A (P c) (P d)) (A (P e) (P f)) (A (P g) (P h)))")
    parsed = ("(P a)", "(B (P b) (P c))", "(B (P d) (P e))", "(B (P f) (P g))", "(P h)")
    found = []
    for number in range(4):
        flat = (
            part if index <= number else part.replace("(B (P", "(P").replace("))", ")")
            for index, part in enumerate(parsed)
        )
        scores = score_sentence(gold, line(f"(S {' '.join(flat)})"))
        found.append((scores.crossing, scores.no_crossing, scores.few_crossing))
    assert found == [(0, 1, 1), (1, 0, 1), (2, 0, 1), (3, 0, 0)]


def test_long_sentences_are_not_among_the_short_ones():
    """Punctuation counts for the length, and traces do not."""
    words = [
        " ".join(f"(P w{number})" for number in range(39)) + end for end in ("(. .)", "(. .) (-NONE- *)", "(. .) (, ,)")
    ]
    every, short = score((line(f"(S {text})"), line(f"(S {text})")) for text in words)
    assert (every.sentences, short.sentences) == (3, 2)


def test_nothing_is_no_division_by_zero():
    for scores in score([]) + score([(line(""), line(""))]) + score([(line("(S (P a))"), line("(P a)"))]):
        assert (scores.recall, scores.precision, scores.f1) == (0, 0, 0)
        assert all(value >= 0 for value in summary(scores).values())


def matched_by_hand(gold: Tree, parsed: Tree) -> int:
    """Each gold bracket takes the first parsed bracket with its label and span that is not taken yet."""

    def brackets(tree: Tree) -> list[tuple]:
        found, number, starts = [], 0, []
        for node, entered in walk(tree):
            if node.word:
                number += 1
            elif entered:
                starts.append(number)
            else:
                found.append((node.label, starts.pop(), number))
        return [bracket for bracket in found if bracket[0] != TOP]

    left, matched = brackets(parsed), 0
    for bracket in brackets(gold):
        if bracket in left:
            left.remove(bracket)
            matched += 1
    return matched


def test_brackets_match_one_to_one():
    rng = random.Random(4)
    for _ in range(200):
        gold = random_tree(rng)
        leaves = preterminals(gold)
        for number, leaf in enumerate(leaves):
            leaf.label, leaf.word = "NN", f"w{number}"
        parsed = line(str(gold))
        for node in [node for node, entered in walk(parsed) if entered and not node.word and node.label != TOP]:
            node.label = rng.choice(["S", "NP", node.label])
        found = score_sentence(gold, parsed)
        assert found.matched == matched_by_hand(gold, parsed)
        assert found.crossing == 0 and found.gold == found.parsed


def test_crossing_is_symmetric_for_distinct_spans():
    """A bracket crosses another exactly if the other crosses it: a count over all pairs of two-word brackets."""
    words = [f"(P w{number})" for number in range(5)]

    def tree(start: int, end: int) -> Tree:
        return line(f"(S {' '.join(words[:start])} (A {' '.join(words[start:end])}) {' '.join(words[end:])})")

    spans = [(start, end) for start in range(5) for end in range(start + 1, 6)]
    for one, other in itertools.product(spans, spans):
        crosses = len({*range(*one)} & {*range(*other)}) not in (0, one[1] - one[0], other[1] - other[0])
        assert score_sentence(tree(*one), tree(*other)).crossing == crosses
