"""Compares systems by their translations of the same text: corpus scores with confidence intervals and p-values,
scores, wins and losses by length, and the sentences that differ most.
"""

import bisect
import dataclasses
from collections.abc import Mapping, Sequence

from t2t_keras.evaluation import scores, significance
from t2t_keras.evaluation.significance import Estimate

_GROUPS = 5  # Of sentences by length, about equally large.


@dataclasses.dataclass(frozen=True)
class LengthGroup:
    """How a system does against the baseline on sentences of some lengths.

    Attributes:
        shortest, longest: lengths, in tokens of the BLEU tokenizer.
        sentences: number of sentences: that of wins, losses and ties together.
        baseline_bleu, bleu: BLEU of these sentences.
        wins, losses, ties: number of sentences where the system is better, worse and as good, by chrF.
        gain: mean gain of chrF.
    """

    shortest: int
    longest: int
    sentences: int
    baseline_bleu: float
    bleu: float
    wins: int
    losses: int
    ties: int
    gain: float


@dataclasses.dataclass(frozen=True)
class Example:
    """A sentence that the baseline and a system translate differently.

    Attributes:
        line: its number, from 1.
        source: empty if it is not known.
        references: its reference translations.
        baseline, system: the translations.
        baseline_chrf, chrf: their chrF.
    """

    line: int
    source: str
    references: tuple[str, ...]
    baseline: str
    system: str
    baseline_chrf: float
    chrf: float

    @property
    def gain(self) -> float:
        """The chrF of the system minus that of the baseline."""
        return self.chrf - self.baseline_chrf


@dataclasses.dataclass(frozen=True)
class System:
    """A system and how it does against the baseline.

    Attributes:
        name: its name.
        bleu, chrf: its scores.
        lengths: groups of sentences from short to long; none for the baseline.
        better, worse: the sentences with the largest gain and the largest loss of chrF, largest first; none for the
            baseline.
    """

    name: str
    bleu: Estimate
    chrf: Estimate
    lengths: tuple[LengthGroup, ...] = ()
    better: tuple[Example, ...] = ()
    worse: tuple[Example, ...] = ()


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Systems beside a baseline.

    Attributes:
        sentences: number of sentences.
        signature, chrf_signature: sacreBLEU's settings of BLEU and of chrF, with the numbers of samples and trials and
            the seed.
        length_of: "source" or "reference": the text whose lengths make the groups.
        systems: the baseline and the others.
    """

    sentences: int
    signature: str
    chrf_signature: str
    length_of: str
    systems: tuple[System, ...]


def compare(
    systems: Mapping[str, Sequence[str]],
    *references: Sequence[str],
    source: Sequence[str] = (),
    lowercase: bool = False,
    tokenize: str = "13a",
    samples: int = 1000,
    trials: int = 10_000,
    seed: int = significance.SEED,
    examples: int = 10,
) -> Comparison:
    """Compares the translations of two or more systems. Tests that take more memory than is free are left out, with a
    warning.

    Args:
        systems: translations of the same text by the name of their system; the first is the baseline.
        references: one or more lists of references.
        source: the text that was translated, if known.
        lowercase: whether to ignore case.
        tokenize: name of a sacreBLEU tokenizer.
        samples: number of bootstrap samples, for confidence intervals and the paired bootstrap test; 0: none.
        trials: number of trials of approximate randomization; 0: none.
        seed: of samples and trials, at least 1.
        examples: how many sentences to return where a system gains most, and as many where it loses most.

    Raises:
        TypeError: the systems have no names, or a string is in the place of a list of sentences.
        ValueError: there are fewer than two systems, the numbers of sentences differ, or an option is invalid.
    """
    if not isinstance(systems, Mapping):
        raise TypeError(
            "Expected the translations of each system by its name, {name: sentences}, before the references. Received: "
            f"{type(systems).__name__}."
        )
    if any(isinstance(text, str) for text in (*systems.values(), *references, source)):
        raise TypeError("Systems, references and source must be lists of sentences. Received: a string.")
    outputs, references, source = list(map(list, systems.values())), list(map(list, references)), list(source)
    texts = [*outputs, *references, *([source] if source else [])]
    if len(outputs) < 2 or not references:
        raise ValueError(
            f"A comparison needs two systems or more, and one reference or more. Received: {len(outputs)} system(s), "
            f"{len(references)} reference(s)."
        )
    if len({0, *map(len, texts)}) != 2:  # One length, and not 0.
        received = ", ".join(f"{len(text):,}" for text in texts)
        raise ValueError(
            f"Systems, references and source must have equally many sentences, at least one. Received: {received}."
        )
    if examples < 0:
        raise ValueError(f"`examples` must be 0 or more. Received: examples={examples}.")
    bleu, chrf = scores.bleu_metric(lowercase=lowercase, tokenize=tokenize), scores.chrf_metric(lowercase=lowercase)
    samples, trials = significance.affordable(len(outputs[0]), samples, trials, len(outputs))
    options = {"samples": samples, "trials": trials, "seed": seed}
    bleus, signature = significance.estimates(bleu, outputs, references, **options)
    chrfs, chrf_signature = significance.estimates(chrf, outputs, references, **options)
    baseline, *others = map(System, systems, bleus, chrfs)
    rows = list(zip(*references, strict=True))
    first, *of_others = (
        [chrf.sentence_score(*row).score for row in zip(output, rows, strict=True)] for output in outputs
    )
    lengths = [len(bleu.tokenizer(line).split()) for line in source or references[0]]
    groups = _by_length(lengths)

    def of_group(output: list[str], group: list[int]) -> float:
        chosen, *known = ([text[row] for row in group] for text in (output, *references))
        return bleu.corpus_score(chosen, known).score

    of_groups = [[of_group(output, group) for group in groups] for output in outputs]
    compared = []
    for system, output, by_sentence, bleus in zip(others, outputs[1:], of_others, of_groups[1:], strict=True):
        columns = (source or [""] * len(rows), rows, outputs[0], output, first, by_sentence)
        pairs = [Example(line, *column) for line, column in enumerate(zip(*columns, strict=True), 1)]
        better = tuple(pair for pair in sorted(pairs, key=lambda pair: -pair.gain)[:examples] if pair.gain > 0)
        worse = tuple(pair for pair in sorted(pairs, key=lambda pair: pair.gain)[:examples] if pair.gain < 0)
        found = zip(groups, of_groups[0], bleus, strict=True)
        by_length = tuple(
            _length_group([lengths[row] for row in group], [pairs[row].gain for row in group], *scores)
            for group, *scores in found
        )
        compared.append(dataclasses.replace(system, lengths=by_length, better=better, worse=worse))
    return Comparison(len(rows), signature, chrf_signature, "source" if source else "reference", (baseline, *compared))


def _by_length(lengths: list[int]) -> list[list[int]]:
    """Groups the rows of sentences of similar lengths, from short to long; those of one length stay together."""
    ordered = sorted(lengths)
    longest = sorted({ordered[-1 - len(ordered) * part // _GROUPS] for part in range(_GROUPS)})
    groups = [[] for _ in longest]
    for row, length in enumerate(lengths):
        groups[bisect.bisect_left(longest, length)].append(row)
    return groups


def _length_group(lengths: list[int], gains: list[float], baseline_bleu: float, bleu: float) -> LengthGroup:
    wins, losses = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    ties, gain = len(gains) - wins - losses, sum(gains) / len(gains)
    return LengthGroup(min(lengths), max(lengths), len(gains), baseline_bleu, bleu, wins, losses, ties, gain)
