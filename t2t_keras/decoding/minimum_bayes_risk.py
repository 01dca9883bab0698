"""Minimum Bayes risk decoding (Kumar and Byrne, 2004): of several candidates, the one with the largest expected chrF,
Σ P(Y') chrF(Y, Y').

The candidates themselves estimate the sum over all Y': an n-best list, weighted by its probabilities, or draws from the
model, which weigh the same (Eikema and Aziz, 2020). The cost grows with the square of their number.

Of many candidates, chrF against the mean of all n-gram counts takes the place of the mean of chrF: reference
aggregation (Vamvas and Sennrich, 2024), whose cost grows with their number. It is an approximation, because chrF is not
linear in the counts.
"""

from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics.helpers import extract_all_char_ngrams

MANY = 100  # More candidates than this, without repeated ones, are compared with their aggregate.
_ORDER, _BETA = 6, 2  # Of chrF2, as in sacreBLEU.


def mbr(candidates: Sequence[str], weights: Sequence[float] = ()) -> list[float]:
    """Computes the expected chrF2 of each candidate, if a weighted draw from the candidates is the reference.

    Args:
        candidates: translations of a sentence; repeated ones count as often.
        weights: of the candidates, in any unit; none: all are equal.

    Returns:
        Values from 0 to 100: the candidate with the largest is the decision.

    Raises:
        TypeError: `candidates` is a string.
        ValueError: there is not a weight for each candidate, or a weight is negative, not finite or no weight is
            positive.

    Example:

    ```python
    [round(value) for value in t2t_keras.mbr(["A dog barks.", "A dog barks", "Cats sleep."])]  # [67, 64, 36]
    ```
    """
    if isinstance(candidates, str):
        raise TypeError("`candidates` must be a list of strings. Received: a string.")
    candidates, weights = list(candidates), list(weights)
    shares = np.asarray(weights or np.ones(len(candidates)), dtype=float)
    if len(shares) != len(candidates) or not (
        np.isfinite(shares).all() and (shares >= 0).all() and (shares.any() or not len(shares))
    ):
        raise ValueError(
            f"Each of {len(candidates)} candidates needs a weight of 0 or more, not all 0. Received: {weights}."
        )
    places = {text: place for place, text in enumerate(dict.fromkeys(candidates))}
    place_of = [places[text] for text in candidates]
    expected = _expected_chrf(list(places), np.bincount(place_of, shares, len(places)) / (shares.sum() or 1))
    return [float(expected[place]) for place in place_of]


def by_mbr(result: dict, weighted: bool = True) -> dict:
    """Reorders a list of translations by minimum Bayes risk.

    Args:
        result: "text", translations, and "score", their scores. Empty places, whose text is empty and whose score is 0,
            come last.
        weighted: whether a translation weighs exp(score), which is P(Y | X) if α is 0. Draws all weigh the same.

    Returns:
        The same list with the largest expected chrF first, and these as scores.
    """
    texts, scores = result["text"], result["score"]
    filled = [place for place, pair in enumerate(zip(texts, scores, strict=True)) if pair != ("", 0.0)]
    best = max((scores[place] for place in filled), default=0.0)
    weights = [float(np.exp(scores[place] - best)) for place in filled] if weighted else ()
    expected = mbr([texts[place] for place in filled], weights)
    # Stable: of equal ones the more likely comes first.
    order = sorted(zip(expected, filled, strict=True), key=lambda pair: -pair[0])
    rest = len(texts) - len(filled)
    return {
        **result,
        "text": [*(texts[place] for _, place in order), *[""] * rest],
        "score": [*(value for value, _ in order), *[0.0] * rest],
    }


def _expected_chrf(texts: list[str], weights: np.ndarray) -> np.ndarray:
    """Computes the expected chrF2 of N different texts, [N], whose weights sum to 1."""
    number, aggregated = len(texts), len(texts) > MANY
    references = 1 if aggregated else number
    precision, recall, orders = np.zeros((3, references, number))
    for rows, grams, counts in _ngrams(texts):
        totals = np.bincount(rows, counts, number)  # N-grams of each text.
        for reference in range(references):
            mask = slice(None) if aggregated else rows == reference
            expected = np.bincount(
                grams[mask], counts[mask] * (weights[rows] if aggregated else 1), grams.max(initial=-1) + 1
            )
            matches, total = np.bincount(rows, np.minimum(counts, expected[grams]), number), expected.sum()
            counted = (totals > 0) & (total > 0)  # A text that is too short for the order leaves it out.
            precision[reference] += np.divide(matches, totals, where=counted, out=np.zeros(number))
            recall[reference] += np.divide(matches, total, where=counted, out=np.zeros(number))
            orders[reference] += counted
    orders = np.maximum(orders, 1)
    precision, recall = precision / orders, recall / orders
    denominator = _BETA**2 * precision + recall
    chrf = 100 * np.divide(
        (1 + _BETA**2) * precision * recall, denominator, where=denominator > 0, out=np.zeros_like(precision)
    )
    return chrf[0] if aggregated else weights @ chrf


def _ngrams(texts: list[str]) -> list[tuple[np.ndarray, ...]]:
    """Counts the n-grams of each order: arrays of texts, n-grams and counts, for each n-gram of each text."""
    text_ngrams = [extract_all_char_ngrams(text, _ORDER) for text in texts]
    tables = []
    for order in range(_ORDER):
        numbers: dict[str, int] = {}
        counters = [ngrams[order] for ngrams in text_ngrams]
        rows = np.repeat(np.arange(len(texts)), [len(counter) for counter in counters])
        grams = np.array(
            [numbers.setdefault(gram, len(numbers)) for counter in counters for gram in counter], dtype=int
        )
        counts = np.array([count for counter in counters for count in counter.values()], dtype=float)
        tables.append((rows, grams, counts))
    return tables
