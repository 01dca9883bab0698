"""The right-branching tree of a sentence, to compare a parser with: English phrases tend to branch to the right."""

from t2t_keras.parsing.linearize import UNKNOWN_TAG, tag_of
from t2t_keras.parsing.trees import TOP, Tree


def right_branching(words: list[str]) -> Tree:
    """Returns (TOP (S w (VP w (VP w … w)) .)): a sentence of verb phrases, each within the one before. The last punctuation closes the S."""
    leaves = [Tree(tag_of(word, UNKNOWN_TAG), word=word) for word in words]
    top = Tree(TOP)
    if not leaves:
        return top
    end = [leaves.pop()] if len(leaves) > 1 and leaves[-1].label == "." else []
    node, label = top, "S"
    sentence = None
    for number, leaf in enumerate(leaves):
        if number < len(leaves) - 1 or number == 0:
            child = Tree(label)
            node.children.append(child)
            node, label = child, "VP"
            sentence = sentence or child
        node.children.append(leaf)
    sentence.children += end
    return top
