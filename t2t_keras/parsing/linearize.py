"""Trees as sequences and back, as in section 2.2 of Vinyals et al. (2015), "Grammar as a Foreign Language".

    (TOP (S (NP (PRP it)) (VP (VBZ works)) (. .)))   ↔   (S (NP PRP )NP (VP VBZ )VP . )S   and the words   it works .

A token is an opening bracket with its label, a closing bracket with its label, or the tag of the next word. TOP and the
words are left out.
"""

import re
from collections.abc import Iterator

from t2t_keras.parsing.evalb import DELETED
from t2t_keras.parsing.trees import TOP, TRACE, Tree, preterminals, walk

UNKNOWN_TAG = "XX"  # Tag of a word that the sequence has no tag for.
# Words whose tag follows from the word, and those tags. EVALB leaves out words by these tags.
_PUNCTUATION = {
    ",": ",", ".": ".", "?": ".", "!": ".", "``": "``", "`": "``", "''": "''", ":": ":", ";": ":", "--": ":", "-": ":",
    "...": ":"
}  # fmt: skip
# Words of punctuation alone that other treebanks have, such as !! and —: they keep the model's tag.
_MARKS = re.compile('[-.,:;?!¿¡…–—‐"`“”„‚‘’‹›«»]+')
_TOKEN = re.compile(r"([()]?)([^()\s]+)", re.ASCII)


def to_tokens(tree: Tree) -> list[str]:
    """Converts a tree, as `clean` returns it, to tokens."""
    return [
        node.label if node.word else f"({node.label}" if entered else f"){node.label}"
        for node, entered in walk(tree)
        if node is not tree
    ]


def phrases(tree: Tree, most: int) -> Iterator[Tree]:
    """Yields the constituents of at most `most` words as trees of their own, except those that are alone in another
    one.

    Short phrases show a model which word a tag belongs to. A small treebank has too few sentences to learn it from them
    alone.
    """
    for node, entered in walk(tree):
        if entered and len(node.children) > 1:
            short = (child for child in node.children if not child.word and len(preterminals(child)) <= most)
            yield from (Tree(TOP, [child]) for child in short)


def tag_of(word: str, tag: str) -> str:
    """Returns the treebank's tag of punctuation; for another word returns `tag`, or XX if EVALB would leave out the
    word by that tag and it does not consist of punctuation marks.
    """
    if word in _PUNCTUATION:
        return _PUNCTUATION[word]
    # An apostrophe may be a quotation mark.
    is_mark = (word, tag) == ("'", "''") or _MARKS.fullmatch(word) and tag not in (TOP, TRACE)
    return UNKNOWN_TAG if tag in DELETED and not is_mark else tag


def to_tree(tokens: list[str], words: list[str]) -> tuple[Tree, bool]:
    """Converts tokens, any text, to the tree of a sentence, and repairs them if they are no tree of it. The words of
    the sentence have no brackets and spaces in them.

    The repair reads the tokens from left to right:

    1. A closing bracket closes the innermost open constituent of its label and all constituents inside. Without one, it
       is dropped.
    2. A tag takes the next word. If no word is left, it is dropped. A token that is neither bracket nor tag is dropped.
    3. At the end, open constituents are closed. Words that are left get the tag XX, at the end of the last constituent
       under TOP.
    4. Constituents without words are dropped.

    Also, each tag becomes that of `tag_of`, in sentences that need no repair too.

    Returns a tree whose words are exactly `words`, in their order; and whether the tokens were well-formed, so that
    nothing was repaired.
    """
    top = Tree(TOP)
    stack, open_labels = [top], {}  # Constituents; how many of them have each label.
    used, well_formed = 0, True

    def close() -> None:
        nonlocal well_formed
        node = stack.pop()
        open_labels[node.label] -= 1
        if not node.children:
            stack[-1].children.pop()
            well_formed = False

    for token in tokens:
        match = _TOKEN.fullmatch(token)
        bracket, label = match.groups() if match else ("", "")
        if bracket == "(":
            node = Tree(label)
            stack[-1].children.append(node)
            stack.append(node)
            open_labels[label] = open_labels.get(label, 0) + 1
        elif bracket == ")" and open_labels.get(label):
            while stack[-1].label != label:
                well_formed = False
                close()
            close()
        elif not bracket and label and used < len(words):
            stack[-1].children.append(Tree(tag_of(words[used], label), word=words[used]))
            used += 1
        else:
            well_formed = False
    well_formed = well_formed and len(stack) == 1 and used == len(words)
    while len(stack) > 2:
        close()
    if used < len(words):
        last = top.children[-1] if top.children and not top.children[-1].word else top
        last.children.extend(Tree(tag_of(word, UNKNOWN_TAG), word=word) for word in words[used:])
    while len(stack) > 1:
        close()
    return top, well_formed


def right_branching(words: list[str]) -> Tree:
    """Returns the right-branching tree of a sentence, to compare a parser with: English tends to branch to the right.

    It is (TOP (S w (VP w (VP w … w)) .)): each verb phrase contains the rest of the sentence. A full stop ends the S.
    """
    leaves = [Tree(tag_of(word, UNKNOWN_TAG), word=word) for word in words]
    if not leaves:
        return Tree(TOP)
    end = [leaves.pop()] if leaves[-1].label == "." else []
    sentence = node = Tree("S", leaves[:1])
    for leaf in leaves[1:-1]:
        phrase = Tree("VP", [leaf])
        node.children.append(phrase)
        node = phrase
    node.children += leaves[1:][-1:]
    sentence.children += end
    return Tree(TOP, [sentence])
