"""Parses sentences with a trained model (section 6.3): translation of words into brackets, and trees from them."""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator

from t2t_keras.decoding.translator import translate_lines
from t2t_keras.parsing.linearize import to_tree
from t2t_keras.parsing.trees import Tree, split_words


@dataclasses.dataclass(frozen=True)
class Parse:
    """The parse of a sentence.

    Attributes:
        tree: its words are those of the sentence; TOP without children for a blank line.
        hypothesis: number of the hypothesis that it is made of, in the order of their scores: 0 for the best.
        repaired: whether the tokens of every hypothesis had to be repaired. The tree is then made of the best one.
        truncated: whether the model read only the beginning of the sentence.
    """

    tree: Tree
    hypothesis: int
    repaired: bool
    truncated: bool


def _choose(hypotheses: list[str], words: list[str], truncated: bool) -> Parse:
    """Returns the tree of the first hypothesis that needs no repair, or else the repaired tree of the first."""
    for number, text in enumerate(hypotheses):
        tree, well_formed = to_tree(text.split(), words)
        if well_formed:
            return Parse(tree, number, False, truncated)
    return Parse(to_tree(hypotheses[0].split(), words)[0], 0, True, truncated)


def parse_lines(
    translator: Callable, lines: Iterable[str], *, batch_size: int = 64, read_ahead: int = 4096
) -> Iterator[Parse]:
    """Yields a `Parse` for each of any number of lines, in their order and in bounded memory. A line has words
    separated by spaces, and the model of `translator` was trained from words to brackets; for the other arguments see
    `translate_lines`.
    """
    waiting = collections.deque()

    def sentences() -> Iterator[str]:
        for line in lines:
            words = split_words(line)
            waiting.append(words)
            yield " ".join(words)

    for result in translate_lines(translator.n_best, sentences(), batch_size=batch_size, read_ahead=read_ahead):
        yield _choose(result["text"], waiting.popleft(), result["truncated"])
