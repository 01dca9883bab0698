"""Trees are read from treebank files, whatever their layout, and cleaned as parsers use them."""

import random

import pytest

from t2t_keras.parsing.trees import (
    TOP,
    Tree,
    clean,
    draw,
    preterminals,
    read_file,
    read_trees,
    split_words,
    walk,
    without_function,
)

# In the layout and with the annotation of the Penn Treebank, on a sentence of our own.
TREEBANK = """
( (S
    (NP-SBJ-1 (DT The) (NN kettle) )
    (VP (VBD was)
      (VP (VBN mended)
        (NP (-NONE- *-1) )
        (PP-LGS (IN by)
          (NP=2 (NNP Ada) ))
        (SBAR-TMP (-NONE- 0)
          (S (-NONE- *T*-3) ))))
    (-LRB- -LRB-)
    (PRN (ADVP|PRT (RB up) ))
    (-RRB- -RRB-) (. .) ))
"""
CLEAN = (
    "(TOP (S (NP (DT The) (NN kettle)) (VP (VBD was) (VP (VBN mended) (PP (IN by) (NP (NNP Ada))))) "
    "(-LRB- -LRB-) (PRN (ADVP|PRT (RB up))) (-RRB- -RRB-) (. .)))"
)
DEPTH = 200_000


def read(text: str) -> list[Tree]:
    return list(read_trees(text.split("\n"), "file.mrg"))


def random_tree(rng: random.Random, depth: int = 5) -> Tree:
    """A clean tree: TOP above constituents, each with a word or more."""

    def grow(depth: int) -> Tree:
        if depth == 0 or rng.random() < 0.3:
            return Tree(
                rng.choice(["NN", "VBZ", ",", "-LRB-", "PRP$", "``"]),
                word=rng.choice(["it", "a-b=c", "''", "-LRB-", "½", "1\\/2"]),
            )
        return Tree(rng.choice(["S", "NP", "VP", "ADVP|PRT"]), [grow(depth - 1) for _ in range(rng.randint(1, 4))])

    return Tree(TOP, [Tree("S", [grow(depth) for _ in range(rng.randint(1, 3))]) for _ in range(rng.randint(1, 2))])


def test_a_treebank_file_is_read_and_cleaned():
    (tree,) = read(TREEBANK)
    assert str(clean(tree)) == CLEAN
    expected = ["The", "kettle", "was", "mended", "by", "Ada", "-LRB-", "up", "-RRB-", "."]
    assert [leaf.word for leaf in preterminals(clean(tree))] == expected


def test_cleaning_leaves_the_tree_that_it_is_given_unchanged():
    (tree,) = read(TREEBANK)
    before = str(tree)
    clean(tree)
    assert str(tree) == before


@pytest.mark.parametrize("root", ["({})", "( {})", "(TOP {})", "(ROOT {})", "(S1 {})", "( (TOP {}))", "{}"])
def test_the_outermost_bracket_may_have_any_of_its_names_or_be_missing(root):
    (tree,) = read(root.format("(S (NN x))"))
    assert str(clean(tree)) == "(TOP (S (NN x)))"


def test_a_word_is_not_lost_whatever_its_tag_and_a_bracket_may_be_empty():
    (tree,) = read("( (TOP x))")
    assert str(clean(tree)) == "(TOP (TOP x))"
    (empty,) = read("()")
    assert (empty.label, empty.children, empty.word) == ("", [], "")


def test_a_cleaned_tree_is_cleaned_already():
    (tree,) = read(CLEAN)
    assert str(clean(tree)) == CLEAN


def test_several_constituents_may_be_under_the_root():
    (tree,) = read("( (S (NN x)) (. .))")
    assert str(clean(tree)) == "(TOP (S (NN x)) (. .))"


def test_a_tree_of_traces_alone_becomes_empty():
    (tree,) = read("( (S (NP (-NONE- *)) (VP (-NONE- *?*))))")
    assert clean(tree).children == []


def test_a_constituent_of_the_same_label_stays():
    """(NP (NP …) (SBAR trace)) becomes (NP (NP …)); EVALB counts both."""
    (tree,) = read("(S (NP (NP (NN x)) (SBAR (-NONE- 0))))")
    assert str(clean(tree)) == "(TOP (S (NP (NP (NN x)))))"


@pytest.mark.parametrize(("label", "expected"), [
    ("NP-SBJ-1", "NP"), ("NP=2", "NP"), ("S-TPC=3-1", "S"), ("NP", "NP"), ("-LRB-", "-LRB-"), ("=", "="),
    ("-NONE-", "-NONE-"), ("PRT|ADVP", "PRT|ADVP"),
])  # fmt: skip
def test_function_tags_and_indices_are_removed_from_a_label(label, expected):
    assert without_function(label) == expected


def test_a_line_may_have_several_trees_and_a_tree_several_lines():
    expected = ["(A (X a))", "(B (X b))", "(C (X c))"]
    assert [str(tree) for tree in read("(A (X a))(B (X b))\n\n(C\n(X\nc\n)\n)")] == expected


def test_no_tree_is_read_from_blank_lines():
    assert read("\n \t\r\n") == []


@pytest.mark.parametrize(("text", "line", "message"), [
    ("(S (X a))\n(S\n(X a)\n", 2, "begins here and lacks 1 ')'"),
    ("(S (X a)))", 1, "')' without '('"),
    ("(S (X a))\nword", 2, "'word' outside of brackets"),
    ("(S\n(X a b))", 2, "'b'"),
    ("(S\n(X (Y a) b))", 2, "'b'"),
    ("(S\n(X a (Y b)))", 2, "'(' after 'X a'"),
    ("(S\n\n(((X a))))", 3, "a label after '('. Received: '('"),
    ("(S () (X a))", 1, "a label after '('. Received: ')'"),
    ("(S (" + "x" * 1000 + " a b))", 1, "'b'"),
    ("x" * 1000, 1, "xxx"),
])  # fmt: skip
def test_an_error_names_the_file_and_the_line(text, line, message):
    with pytest.raises(ValueError) as raised:
        read(text)
    assert str(raised.value).startswith(f"file.mrg, line {line}: Expected ") and message in str(raised.value)
    assert len(str(raised.value)) < 250


def test_a_word_may_have_any_character_but_brackets_and_ascii_spaces():
    words = ["a\u00a0b", "\u2028", "½", "\x00", "\x1f", "😀"]
    (tree,) = read("(S" + "".join(f" (X {word})" for word in words) + ")")
    assert [leaf.word for leaf in preterminals(tree)] == words
    assert split_words(" ".join(words)) == words


def test_words_are_separated_by_ascii_spaces_and_brackets_get_the_treebank_s_names():
    assert split_words("  one\ttwo \r three  ") == ["one", "two", "three"]
    assert split_words("( a (b) ) -LRB-") == ["-LRB-", "a", "-LRB-b-RRB-", "-RRB-", "-LRB-"]
    assert split_words(" ") == split_words("\u00a0") == split_words(" \u200b\u3000") == []
    assert split_words("a\u00a0b c") == ["a\u00a0b", "c"]


def test_writing_and_reading_give_the_same_tree():
    rng = random.Random(1)
    for _ in range(200):
        tree = random_tree(rng)
        (again,) = read(str(tree))
        assert str(again) == str(tree) == str(clean(tree))


def test_a_tree_may_be_deeper_than_python_may_recurse():
    (tree,) = read("(X" * DEPTH + " a" + ")" * DEPTH)
    assert sum(entered for _, entered in walk(clean(tree))) == DEPTH + 1
    assert str(tree).count("(") == DEPTH
    del tree


def test_each_line_of_a_parser_s_output_gives_a_tree():
    """A blank line is a sentence without a tree; a line may have several constituents, and a broken line is none."""
    found, errors = read_file(["(TOP (S (X a)))", "", "(A (X a)) (B (X b))", "(S (X a)", "(S (X c))"], "out", 5)
    expected = ["(TOP (TOP (S (X a))))", "(TOP)", "(TOP (A (X a)) (B (X b)))", None, "(TOP (S (X c)))"]
    assert [tree and str(tree) for tree in found] == expected
    assert [str(error).partition(":")[0] for error in errors] == ["out, line 4"]


def test_trees_over_several_lines_are_read_as_a_treebank():
    """Even if most of the lines are balanced."""
    lines = (TREEBANK + TREEBANK).split("\n")
    for number in (None, 2):
        found, errors = read_file(lines, "file.mrg", number)
        assert (len(found), errors) == (2, [])
    found, errors = read_file(["(S", "(X a)", "(X a)", "(X a)", ")"], "file.mrg")
    assert [str(tree) for tree in found] == ["(S (X a) (X a) (X a))"] and errors == []


def test_a_line_of_a_treebank_may_have_several_trees():
    """Story: --linearize made two sentences of it, and --score expected one tree."""
    lines = ["(S (X a))", "(S (X b)) (S (X c))"]
    trees, errors = read_file(lines, "file.mrg")
    assert list(map(str, trees)) == list(map(str, read_trees(lines, "file.mrg"))) and (len(trees), errors) == (3, [])
    assert [str(tree) for tree in read_file(lines, "out", 2)[0]] == ["(TOP (S (X a)))", "(TOP (S (X b)) (S (X c)))"]
    assert [str(tree) for tree in read_file([lines[1], ""], "out", 2)[0]] == ["(TOP (S (X b)) (S (X c)))", "(TOP)"]


def test_a_broken_treebank_file_is_an_error():
    lines = (TREEBANK + TREEBANK).split("\n")
    with pytest.raises(ValueError, match="file.mrg, line 15: .* begins here and lacks 2"):
        read_file(lines[:-3], "file.mrg")


def test_brackets_that_balance_over_two_broken_lines_are_two_broken_lines():
    lines = ["(S (X a))", "(S (X b)", "(X c))", "(S (X d))", "(S (X e))"]
    found, errors = read_file(lines, "out", 5)
    assert [tree is None for tree in found] == [False, True, True, False, False] and len(errors) == 2


PICTURE = """\
TOP
└── S
    ├── NP
    │   ├── DT The
    │   └── NN kettle
    ├── VP
    │   └── VBZ sings
    └── . .
"""


def test_a_tree_is_drawn_with_a_line_for_each_constituent():
    (tree,) = read("(TOP (S (NP (DT The) (NN kettle)) (VP (VBZ sings)) (. .)))")
    assert draw(tree) == PICTURE


def test_a_picture_has_no_control_characters():
    """An escape sequence in a sentence must not reach the terminal."""
    (tree,) = read("(TOP (NN \x1b[2J\u2028½))")
    assert draw(tree) == "TOP\n└── NN \ufffd[2J\ufffd½\n"
