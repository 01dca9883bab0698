"""Labelled bracketing recall, precision and F1, as EVALB (Sekine and Collins, 1997) counts them with its parameters
COLLINS.prm.

A bracket is a constituent's label and its span of words, after these steps in the gold tree and in the parsed tree
separately:

- Words with a tag in `DELETED` (punctuation and traces) are removed, then constituents without words.
- Function tags and indices are removed from labels. PRT counts as ADVP. Brackets labelled TOP, and the unlabelled
  outermost bracket of treebank files, are not counted.

A bracket of the parsed tree matches a bracket of the gold tree with the same label and span; equal brackets match one
to one. With the sums over all sentences:

    recall = matched / gold     precision = matched / parsed     F1 = 2 · recall · precision / (recall + precision)
"""

import collections
import dataclasses
import operator
from collections.abc import Iterable

from t2t_keras.parsing.trees import TOP, TRACE, Tree, walk

DELETED = frozenset((TOP, TRACE, ",", ":", "``", "''", "."))
SHORT = 40  # Maximum number of words of a short sentence, with punctuation and without traces.

_Bracket = tuple[str, int, int]  # Label, start and end.


@dataclasses.dataclass
class Scores:
    """Sums over sentences. An error or skipped sentence adds to nothing but its count and `sentences`.

    Attributes:
        sentences: number of all sentences.
        errors: sentences whose parsed tree is no tree, or has other words than the gold tree.
        skipped: sentences whose parsed tree has no words.
        gold, parsed, matched: brackets.
        complete: sentences whose brackets all match.
        crossing: brackets of parsed trees that cross a bracket of the gold tree.
        no_crossing, few_crossing: sentences with no such bracket, and with at most two.
        words, correct_tags: words that are not removed, and those with the gold tag.
    """

    sentences: int = 0
    errors: int = 0
    skipped: int = 0
    gold: int = 0
    parsed: int = 0
    matched: int = 0
    complete: int = 0
    crossing: int = 0
    no_crossing: int = 0
    few_crossing: int = 0
    words: int = 0
    correct_tags: int = 0

    def __add__(self, other: "Scores") -> "Scores":
        return Scores(*map(operator.add, dataclasses.astuple(self), dataclasses.astuple(other)))

    @property
    def valid(self) -> int:
        """Number of sentences that are scored."""
        return self.sentences - self.errors - self.skipped

    @property
    def recall(self) -> float:
        """0 to 100, as all shares."""
        return _percent(self.matched, self.gold)

    @property
    def precision(self) -> float:
        return _percent(self.matched, self.parsed)

    @property
    def f1(self) -> float:
        return 2 * self.recall * self.precision / (self.recall + self.precision) if self.matched else 0.0

    @property
    def complete_match(self) -> float:
        return _percent(self.complete, self.valid)

    @property
    def tagging_accuracy(self) -> float:
        return _percent(self.correct_tags, self.words)


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _read(tree: Tree) -> tuple[list[_Bracket], list[Tree]]:
    """Returns the brackets that count, and the preterminals that are not removed."""
    brackets, words, starts = [], [], []
    for node, entered in walk(tree):
        if node.word:
            if node.label not in DELETED:
                words.append(node)
        elif entered:
            starts.append(len(words))
        else:
            start, label = starts.pop(), _label(node.label)
            if start < len(words) and node.label and label not in DELETED:
                brackets.append((label, start, len(words)))
    return brackets, words


def _label(label: str) -> str:
    """Removes what follows the first "-" or "=", and replaces PRT by its equal."""
    label = label.split("-")[0].split("=")[0]
    return "ADVP" if label == "PRT" else label


def _same_tag(one: Tree, other: Tree) -> bool:
    return one.label == other.label or {one.label, other.label} == {"ADVP", "PRT"}


def _crossing(gold: list[_Bracket], parsed: list[_Bracket]) -> int:
    """Number of parsed brackets that cross one or more gold brackets."""
    spans = {(start, end) for _, start, end in gold}
    crosses = {
        (start, end): any(left < start < right < end or start < left < end < right for left, right in spans)
        for start, end in {(start, end) for _, start, end in parsed}
    }
    return sum(crosses[start, end] for _, start, end in parsed)


def score_sentence(gold: Tree, parsed: Tree | None) -> Scores:
    """Scores a parser's tree, or `None` if its text is no tree, against that of the treebank, with or without traces
    and function tags.
    """
    if parsed is None:
        return Scores(sentences=1, errors=1)
    (gold_brackets, gold_words), (parsed_brackets, parsed_words) = _read(gold), _read(parsed)
    if not parsed_words:
        return Scores(sentences=1, skipped=1)
    if [node.word for node in gold_words] != [node.word for node in parsed_words]:
        return Scores(sentences=1, errors=1)
    matched = (collections.Counter(gold_brackets) & collections.Counter(parsed_brackets)).total()
    crossing = _crossing(gold_brackets, parsed_brackets)
    return Scores(
        sentences=1,
        gold=len(gold_brackets),
        parsed=len(parsed_brackets),
        matched=matched,
        complete=int(matched == len(gold_brackets) == len(parsed_brackets)),
        crossing=crossing,
        no_crossing=int(crossing == 0),
        few_crossing=int(crossing <= 2),
        words=len(gold_words),
        correct_tags=sum(map(_same_tag, gold_words, parsed_words)),
    )


def score(pairs: Iterable[tuple[Tree, Tree | None]]) -> tuple[Scores, Scores]:
    """Scores pairs of gold and parsed trees; see `score_sentence`. Returns the scores of all sentences, and of those
    with at most `SHORT` words.
    """
    every, short = Scores(), Scores()
    for gold, parsed in pairs:
        sentence = score_sentence(gold, parsed)
        every += sentence
        if sum(bool(node.word) and node.label != TRACE for node, _ in walk(gold)) <= SHORT:
            short += sentence
    return every, short


def summary(scores: Scores) -> dict[str, int | float]:
    """Returns the figures of EVALB's summary by name, shares in percent."""
    return {
        "sentences": scores.sentences,
        "errors": scores.errors,
        "skipped": scores.skipped,
        "recall": scores.recall,
        "precision": scores.precision,
        "f1": scores.f1,
        "complete_match": scores.complete_match,
        "average_crossing": scores.crossing / max(scores.valid, 1),
        "no_crossing": _percent(scores.no_crossing, scores.valid),
        "few_crossing": _percent(scores.few_crossing, scores.valid),
        "tagging_accuracy": scores.tagging_accuracy,
    }
