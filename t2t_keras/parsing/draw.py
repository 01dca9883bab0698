"""Draws a tree as text, with the root on top and a line for each constituent. A sentence of any length fits the width
of a terminal.

TOP
└── S
    ├── NP
    │   └── PRP it
    ├── VP
    │   └── VBZ works
    └── . .
"""

from t2t_keras.parsing.trees import Tree


def draw(tree: Tree) -> str:
    """Returns the picture: lines that end in a line feed. Characters that cannot be printed are drawn as �."""
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
