"""The right-branching tree of a sentence, to compare a parser with: English phrases tend to branch to the right."""

from t2t_keras.parsing.linearize import UNKNOWN_TAG, tag_of
from t2t_keras.parsing.trees import TOP, Tree


def right_branching(words: list[str]) -> Tree:
    """Returns (TOP (S w (VP w (VP w … w)) .)): each verb phrase contains the rest of the sentence. A full stop ends the
    S.
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
