"""Checks of the text of a data folder as a whole: files that look swapped, validation pairs that are training pairs
too, pairs with the same text on both sides, text to keep, and the ends of documents.
"""

import collections
import math
import random
from collections.abc import Iterable

from t2t_keras.config import DataConfig
from t2t_keras.data.text_files import Pair, ends_document
from t2t_keras.runs.task import Task
from t2t_keras.system.log import logger, number_of
from t2t_keras.text.kept import Kept
from t2t_keras.text.placeholders import find_all

COMPARED_PAIRS = 20_000  # Training pairs that the validation pairs are compared with, to find swapped files.
PAIRS_AT_ONCE = 8192  # Whose text to keep is looked for in one call.


class TextChecks:
    """Counts of the training pairs that show what is wrong with the text.

    Args:
        data: options of the data.
        task: what is trained.
        valid_pairs: the validation pairs.
    """

    def __init__(self, data: DataConfig, task: Task, valid_pairs: list[Pair]):
        self._data, self._task = data, task
        self._valid_pairs = [pair for pair in valid_pairs if not ends_document(pair)]
        self._ends = {"training": 0, "validation": len(valid_pairs) - len(self._valid_pairs)}  # Of documents.
        self._tags = {b"", *(f"{tag} ".encode() for tag in data.tags if tag)}
        self._pairs = self._identical = 0
        self._held_out, self._repeated = set(self._valid_pairs), set()
        self._compared: list[Pair] = []
        self._draw = random.Random(0).random
        self._kept = Kept(data.keep_patterns, find_all)
        self._unseen: list[tuple[str, str]] = []  # Not yet searched for text to keep.
        self._sharing = 0  # Pairs with text to keep on both sides.

    def add(self, plain: Pair, pair: Pair) -> None:
        """Counts a training pair: `plain` as it is in the text, and `pair` as it is trained on, with its terms."""
        self._ends["training"] += ends_document(plain)
        self._identical += len(plain) > 1 and plain[0].removesuffix(plain[1]) in self._tags
        if plain in self._held_out:
            self._repeated.add(plain)
        if len(self._compared) < COMPARED_PAIRS:
            self._compared.append(pair)
        elif (place := int(self._draw() * (self._pairs + 1))) < COMPARED_PAIRS:  # All pairs are equally likely.
            self._compared[place] = pair
        if self._data.keep_patterns:
            self._unseen.append((pair[0].decode(), pair[-1].decode()))
            if len(self._unseen) == PAIRS_AT_ONCE:
                self._search()
        self._pairs += 1

    def _search(self) -> None:
        if self._unseen:
            self._sharing += self._kept.shared(*zip(*self._unseen, strict=True))
            self._unseen.clear()

    def finish(self) -> None:
        """Warns of what may be wrong. Raises `ValueError` if the validation files look swapped, or documents lack
        ends.
        """
        self._search()
        if self._sharing:
            logger.info(f"Text to keep is on both sides of {number_of(self._sharing, 'training pair')}.")
        elif self._data.keep_patterns:
            logger.warning(
                f"No training pair has text to keep on both sides (keep_patterns={self._data.keep_patterns}): a model "
                "cannot learn to copy it."
            )
        if len(self._task.texts) == 2:
            check_sides(self._compared, self._valid_pairs)
        if self._task.documents:
            if without := [name for name, number in self._ends.items() if not number]:
                raise ValueError(
                    f"Documents need a blank line between them. Received: {' and '.join(without)} text without one."
                )
        if self._repeated:
            count = sum(pair in self._repeated for pair in self._valid_pairs)
            of_all = number_of(len(self._valid_pairs), f"validation {self._task.line_noun}")
            logger.warning(f"Also in the training text: {count:,} of {of_all}.")
        if 2 * self._identical > self._pairs:
            logger.warning(
                f"In {self._identical:,} of {number_of(self._pairs, 'training pair')}, source and target are the same "
                "text. If that is not the task, check `train_source` and `train_target`."
            )


def _words(sentences: Iterable[bytes]) -> collections.Counter:
    return collections.Counter(word for sentence in sentences for word in sentence.lower().split())


def check_sides(train: list[Pair], valid: list[Pair]) -> None:
    """Raises `ValueError` if the validation files look swapped: each validation side is scored with unigram models of
    both training sides, and both fit the opposite training side better, by more than half a nat per word.
    """
    known = [_words(side) for side in zip(*train, strict=True)]
    words = len(known[0] | known[1])

    def fit(text: collections.Counter, side: int) -> float:  # Mean log-probability of a word.
        total = known[side].total() + words
        return sum(count * math.log((known[side][word] + 1) / total) for word, count in text.items()) / max(
            text.total(), 1
        )

    texts = [_words(side) for side in zip(*valid, strict=True)]
    if all(fit(texts[side], 1 - side) > fit(texts[side], side) + 0.5 for side in (0, 1)):
        raise ValueError(
            "The validation files look swapped: their source reads like the training target, and their target like the "
            "training source."
        )
