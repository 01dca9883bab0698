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
        repaired: whether the model's brackets were no tree of the sentence.
        truncated: whether the model read only the beginning of the sentence.
    """

    tree: Tree
    repaired: bool
    truncated: bool


def parse_lines(translator: Callable, lines: Iterable[str], *, batch_size: int = 64, read_ahead: int = 4096) -> Iterator[Parse]:
    """Parses any number of lines, in bounded memory.

    Args:
        translator: a `Translator` whose model was trained from words to brackets.
        lines: sentences, their words separated by spaces.
        batch_size, read_ahead: see `translate_lines`.

    Yields:
        A `Parse` for each line, in the order of the lines.
    """
    waiting = collections.deque()

    def sentences() -> Iterator[str]:
        for line in lines:
            words = split_words(line)
            waiting.append(words)
            yield " ".join(words)

    def translate(text) -> dict:
        return {**translator(text), "truncated": translator.truncated(text)}

    for result in translate_lines(translate, sentences(), batch_size=batch_size, read_ahead=read_ahead):
        tree, well_formed = to_tree(result["text"].split(), waiting.popleft())
        yield Parse(tree, not well_formed, result["truncated"])
