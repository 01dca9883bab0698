"""A tree becomes tokens and the same tree again; and any tokens become a tree of the sentence."""

import random

import pytest
from test_trees import random_tree

from t2t_keras.parsing.evalb import DELETED
from t2t_keras.parsing.linearize import phrases, right_branching, tag_of, to_tokens, to_tree
from t2t_keras.parsing.trees import TOP, TRACE, Tree, preterminals, read_trees, walk


def repaired(tokens: str, words: str) -> tuple[str, bool]:
    tree, well_formed = to_tree(tokens.split(), words.split())
    return str(tree), well_formed


def test_the_tokens_of_a_tree_are_brackets_with_labels_and_tags():
    """Vinyals et al. (2015), Figure 2, in form; the sentence is ours."""
    (tree,) = read_trees(["(TOP (S (NP (NNP Ada)) (VP (VBZ owns) (NP (DT a) (NN kettle))) (. .)))"], "")
    assert " ".join(to_tokens(tree)) == "(S (NP NNP )NP (VP VBZ (NP DT NN )NP )VP . )S"


def test_tokens_and_words_give_the_tree_back():
    rng = random.Random(2)
    for _ in range(300):
        tree = random_tree(rng)
        leaves = preterminals(tree)
        for leaf in leaves:  # Tags that do not fit their words would be replaced.
            leaf.label = tag_of(leaf.word, leaf.label)
        again, well_formed = to_tree(to_tokens(tree), [leaf.word for leaf in leaves])
        assert (str(again), well_formed) == (str(tree), True)


@pytest.mark.parametrize(
    ("tokens", "words", "expected"),
    [
        # Rule 1: closing brackets.
        ("(S (NP NN (VP VBZ )S", "a b", "(TOP (S (NP (NN a) (VP (VBZ b)))))"),
        ("(S NN )NP )S", "a", "(TOP (S (NN a)))"),
        (")S (S NN )S )S", "a", "(TOP (S (NN a)))"),
        ("(NP (NP NN )NP NN )NP )NP", "a b", "(TOP (NP (NP (NN a)) (NN b)))"),
        ("(NP (NP NN )VP NN )NP", "a b", "(TOP (NP (NP (NN a) (NN b))))"),
        # Rule 2: tags.
        ("(S NN NN NN )S", "a", "(TOP (S (NN a)))"),
        ("(S NN ( ) () (N) N(P (N)P )S", "a b", "(TOP (S (NN a) (XX b)))"),
        # Rule 3: the end.
        ("(S (NP NN )NP (VP VBZ", "a b", "(TOP (S (NP (NN a)) (VP (VBZ b))))"),
        ("(S (NP NN )NP )S", "a b c .", "(TOP (S (NP (NN a)) (XX b) (XX c) (. .)))"),
        ("(S (NP NN )NP (VP", "a b c", "(TOP (S (NP (NN a)) (XX b) (XX c)))"),
        ("(S (VP (NP", "a", "(TOP (S (XX a)))"),
        ("(S NN )S NN", "a b c", "(TOP (S (NN a)) (NN b) (XX c))"),
        ("", "a b", "(TOP (XX a) (XX b))"),
        # Rule 4: constituents without words.
        ("(S (NP )NP NN (VP (NP )NP )VP )S", "a", "(TOP (S (NN a)))"),
        ("(S (NP NN )NP )S", "", "(TOP)"),
    ],
)
def test_each_rule_of_the_repair(tokens, words, expected):
    assert repaired(tokens, words) == (expected, False)


@pytest.mark.parametrize(
    ("tokens", "words"),
    [("(S NN )S", "a"), ("(S NN )S (S NN )S", "a b"), ("NN", "a"), ("(S (S NN )S )S", "a"), ("", "")],
)
def test_well_formed_tokens_are_not_repaired(tokens, words):
    assert repaired(tokens, words)[1]


def test_any_tokens_give_a_tree_with_exactly_the_words():
    """Whatever a model writes: brackets that do not balance, tags too few or too many, and text that is neither."""
    rng = random.Random(3)
    alphabet = [
        "(S", "(NP", ")S", ")NP", "NN", ",", "(", ")", "", "()", "a b", "½", "(\u00a0", "(TOP", ")TOP", ")-NONE-",
        "-NONE-", "\x00", "N)",
    ]  # fmt: skip
    for _ in range(3000):
        words = [rng.choice(["it", ",", "''", "'", "½", "a\u00a0b"]) for _ in range(rng.randint(0, 6))]
        tree, well_formed = to_tree(rng.choices(alphabet, k=rng.randint(0, 20)), words)
        assert [leaf.word for leaf in preterminals(tree)] == words
        assert all(node.word or node.children for node, _ in walk(tree)) or not words
        (again,) = read_trees([str(tree)], "")
        assert str(again) == str(tree)
        if well_formed:
            tags = [leaf.label for leaf in preterminals(tree)]
            assert to_tree(to_tokens(tree), words)[1] and len(tags) == len(words)


def test_a_repair_may_be_deeper_than_python_may_recurse():
    tree, well_formed = to_tree(["(X"] * 100_000 + ["NN"], ["a"])
    assert not well_formed and str(tree).count("(X") == 100_000


@pytest.mark.parametrize(
    ("word", "tag", "expected"),
    [
        (",", "NN", ","), ("--", "NN", ":"), ("?", "JJ", "."), ("``", "''", "``"),
        ("dog", ",", "XX"), ("dog", "-NONE-", "XX"), ("dog", "TOP", "XX"), ("dog", "NN", "NN"),
        ("'", "''", "''"), ("'", "POS", "POS"), ("'", ",", "XX"),
        ('"', "``", "``"),
        ("!!", ".", "."), ("—", ":", ":"), ("!!", "NN", "NN"), ("!!", "-NONE-", "XX"), ("!!", "TOP", "XX"),
        ("%", ".", "XX"),
    ],
)  # fmt: skip
def test_punctuation_has_its_tag_and_no_other_word_has_one_of_these(word, tag, expected):
    """Story: EVALB leaves out words by their tags. A tag of punctuation on another word made it refuse the whole
    sentence, and so did another one on the marks of other treebanks.
    """
    assert tag_of(word, tag) == expected
    assert to_tree([tag], [word])[0].children[0].label == expected


def test_each_mark_of_punctuation_has_the_tag_that_evalb_leaves_out():
    marks = {",": ",", ".": ". ? !", "``": "`` `", "''": "''", ":": ": ; -- - ..."}
    for tag, words in marks.items():
        assert {word: tag_of(word, "NN") for word in words.split()} == dict.fromkeys(words.split(), tag)
    assert set(marks) == DELETED - {TOP, TRACE}


@pytest.mark.parametrize(("words", "expected"), [
    ("", "(TOP)"),
    (".", "(TOP (S (. .)))"),
    ("a", "(TOP (S (XX a)))"),
    ("a b", "(TOP (S (XX a) (XX b)))"),
    ("a , b c !", "(TOP (S (XX a) (VP (, ,) (VP (XX b) (XX c))) (. !)))"),
])  # fmt: skip
def test_the_right_branching_tree(words, expected):
    assert str(right_branching(words.split())) == expected


def test_phrases_are_the_constituents_with_siblings():
    """A constituent alone in another has the words of that one: the same words would have two trees."""
    (tree,) = read_trees(["(TOP (S (NP (NP (NNP Ada))) (VP (VBZ owns) (NP (DT a) (NN kettle))) (. .)))"], "")
    assert [str(phrase) for phrase in phrases(tree, 3)] == [
        "(TOP (NP (NP (NNP Ada))))", "(TOP (VP (VBZ owns) (NP (DT a) (NN kettle))))", "(TOP (NP (DT a) (NN kettle)))"
    ]  # fmt: skip
    assert [len(preterminals(phrase)) for phrase in phrases(tree, 2)] == [1, 2]
    assert list(phrases(tree, 0)) == []


def test_an_empty_tree_has_no_tokens():
    assert to_tokens(Tree(TOP)) == []
