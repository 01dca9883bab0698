"""Constituency trees: reading Penn Treebank files, cleaning, writing, drawing.

No function recurses, so a tree may have any depth.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator

from t2t_keras.text.lines import is_blank

TOP = "TOP"  # Label of the outermost bracket, which EVALB does not count.
TRACE = "-NONE-"  # Tag of an element that is not a word of the sentence.
_ROOTS = ("", TOP, "ROOT", "S1")  # Labels that treebanks and parsers give to the outermost bracket.
_TOKEN = re.compile(r"[()]|[^()\s]+", re.ASCII)  # Words may contain U+00A0 and other spaces.
_SPACE = re.compile(r"\s+", re.ASCII)
# A word cannot contain a bracket. These are the names that the treebank has for them.
_BRACKETS = (("(", "-LRB-"), (")", "-RRB-"))


@dataclasses.dataclass(eq=False, slots=True)
class Tree:
    """A constituent with children, or a preterminal: the tag of a word.

    Attributes:
        label: such as NP; of a preterminal the tag, such as NN.
        children: of a constituent.
        word: of a preterminal; empty for a constituent.
    """

    label: str = ""
    children: list["Tree"] = dataclasses.field(default_factory=list, repr=False)
    word: str = ""

    def __str__(self) -> str:
        """The tree in brackets, on one line: (TOP (S (NP (PRP it)) (VP (VBZ works)) (. .)))."""
        parts = []
        for node, entered in walk(self):
            if node.word:
                parts.append(f" ({node.label} {node.word})")
            else:
                parts.append(f" ({node.label}" if entered else ")")
        return "".join(parts)[1:]


def walk(tree: Tree) -> Iterator[tuple[Tree, bool]]:
    """Yields each constituent twice, with True before its children and with False after them; and each preterminal
    once, with True.
    """
    waiting = [(tree, True)]
    while waiting:
        node, entered = waiting.pop()
        yield node, entered
        if entered and not node.word:
            waiting.append((node, False))
            waiting.extend((child, True) for child in reversed(node.children))


def preterminals(tree: Tree) -> list[Tree]:
    """Returns the preterminals from left to right: the words of the sentence and their tags."""
    return [node for node, _ in walk(tree) if node.word]


def split_words(sentence: str) -> list[str]:
    """Splits a sentence at its spaces; a blank one has no words. Round brackets become -LRB- and -RRB-, as in the
    treebank.
    """
    if is_blank(sentence):
        return []
    for bracket, name in _BRACKETS:
        sentence = sentence.replace(bracket, name)
    return [word for word in _SPACE.split(sentence) if word]


def read_trees(lines: Iterable[str], name: str, first: int = 1) -> Iterator[Tree]:
    """Reads trees in brackets from the lines of a file; messages call it `name`, and its first line `first`. A tree may
    take several lines, and a line may have several trees.

    Yields each outermost bracket, which may lack a label: ( (S …)). Unbalanced brackets, a missing label, or a word
    that is not alone in its bracket are a ValueError.
    """
    brackets = _Brackets(name)
    for number, line in enumerate(lines, first):
        for token in _TOKEN.findall(line):
            if token == "(":
                brackets.open(number)
            elif token != ")":
                brackets.add(token, number)
            elif tree := brackets.close(number):
                yield tree
    brackets.check_closed()


class _Brackets:
    """The brackets of a file that are open, outermost first. Methods take the number of the line that they read."""

    def __init__(self, name: str):
        self._name, self._open, self._started = name, [], 0
        self._labelled = True  # Whether the innermost bracket has its label, or needs none any more.

    def _wrong(self, number: int, expected: str, received: str) -> ValueError:
        return ValueError(f"{self._name}, line {number}: Expected {expected}. Received: {received[:100]}.")

    def _check_label(self, number: int, token: str) -> None:
        if not self._labelled and len(self._open) > 1:
            raise self._wrong(number, "a label after '('", f"'{token}'")

    def open(self, number: int) -> None:
        """Reads a '('."""
        if self._open and self._open[-1].word:
            before = f"{self._open[-1].label} {self._open[-1].word}"
            raise self._wrong(number, "')' after a tag and its word", f"'(' after '{before}'")
        self._check_label(number, "(")
        node = Tree()
        if self._open:
            self._open[-1].children.append(node)
        else:
            self._started = number
        self._open.append(node)
        self._labelled = False

    def close(self, number: int) -> Tree | None:
        """Reads a ')'. Returns the tree that it ends, if it is that of an outermost bracket."""
        if not self._open:
            raise self._wrong(number, "balanced brackets", "')' without '('")
        self._check_label(number, ")")
        self._labelled = True
        node = self._open.pop()
        return None if self._open else node

    def add(self, token: str, number: int) -> None:
        """Reads the label of the innermost bracket, or its word."""
        if not self._open:
            raise self._wrong(number, "a tree in brackets", f"'{token}' outside of brackets")
        node = self._open[-1]
        if not self._labelled:
            node.label, self._labelled = token, True
        elif node.word or node.children:
            expected = "one word in the bracket of its tag, and no word beside constituents"
            raise self._wrong(number, expected, f"'{token}'")
        else:
            node.word = token

    def check_closed(self) -> None:
        """Raises `ValueError` if a bracket is still open at the end of the file."""
        if self._open:
            received = f"a tree that begins here and lacks {len(self._open)} ')'"
            raise self._wrong(self._started, "balanced brackets", received)


def read_file(lines: list[str], name: str, number: int | None = None) -> tuple[list[Tree | None], list[ValueError]]:
    """Reads the lines of a file that has one tree on each line, as parsers write it, or trees over several lines, as
    treebanks have them; messages call it `name`. With the expected `number` of trees, broken lines are allowed.

    Returns the trees, and the errors. If every line is a tree, each line gives one; a blank line gives a tree without
    children. Otherwise each outermost bracket gives a tree. If that is not possible or does not give `number` trees,
    each line gives a tree, of all its brackets, or `None` and an error. Without `number`, a line of several brackets is
    one of a treebank, and has as many trees.
    """
    by_line, errors = [], []
    for line_number, line in enumerate(lines, 1):
        try:
            by_line.append(Tree(TOP, list(read_trees([line], name, line_number))))
        except ValueError as error:
            by_line.append(None)
            errors.append(error)
    of_a_treebank = number is None and any(len(tree.children) > 1 for tree in by_line if tree)
    if not errors and not of_a_treebank:
        return by_line, []
    try:
        trees = list(read_trees(lines, name))
    except ValueError:
        if number is None:
            raise
        return by_line, errors
    return (trees, []) if number in (None, len(trees)) else (by_line, errors)


def without_function(label: str) -> str:
    """Removes function tags and indices: NP-SBJ-1 → NP, NP=2 → NP. A label that begins with "-" or "=" stays: -LRB-."""
    return re.split("[-=]", label)[0] or label


def clean(tree: Tree) -> Tree:
    """Returns a copy as parsers use it: traces, constituents without words, function tags and indices are removed; the
    root is TOP.

    A tag keeps its whole name. A constituent that contains only one of the same label stays, since EVALB counts both.
    """
    stack = [Tree(TOP)]
    for node, entered in walk(tree):
        if node.word:
            if node.label != TRACE:
                stack[-1].children.append(Tree(node.label, word=node.word))
        elif entered:
            stack.append(Tree(without_function(node.label)))
        else:
            done = stack.pop()
            if done.children:
                stack[-1].children.append(done)
    (top,) = stack
    while len(top.children) == 1 and not top.children[0].word and top.children[0].label in _ROOTS:
        top.children = top.children[0].children
    return top


def draw(tree: Tree) -> str:
    """Draws a tree as text, with the root on top and a line for each constituent, so that any sentence fits a terminal.
    Lines end in a line feed; characters that cannot be printed are drawn as �.

        TOP
        └── S
            ├── NP
            │   └── PRP it
            ├── VP
            │   └── VBZ works
            └── . .
    """
    drawn = []
    waiting = [(tree, "", "")]  # A node, what stands before it, and what stands before its children.
    while waiting:
        node, before, below = waiting.pop()
        text = f"{node.label} {node.word}" if node.word else node.label
        drawn.append(before + "".join(character if character.isprintable() else "\ufffd" for character in text) + "\n")
        last = len(node.children) - 1
        waiting += reversed([
            (child, below + ("├── " if number < last else "└── "), below + ("│   " if number < last else "    "))
            for number, child in enumerate(node.children)
        ])  # fmt: skip
    return "".join(drawn)
