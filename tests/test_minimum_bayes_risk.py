"""Minimum Bayes risk decoding: a double loop over sacreBLEU's chrF; aggregation as of Vamvas and Sennrich (2024)."""

import collections
import random

import numpy as np
import pytest
import sacrebleu

from t2t_keras.decoding import minimum_bayes_risk
from t2t_keras.decoding.minimum_bayes_risk import by_mbr, mbr

SENTENCES = [
    "The cat sat on the mat.", "The cat sat on a mat.", "A cat is sitting on mats!", "cat", "", "  ", "猫",
    "The cat sat on the mat.",
]  # fmt: skip


def variants(number: int) -> list[str]:
    """Sentences of which each has some words of its own."""
    draw = random.Random(number)
    words = "the small black dog and two old friends walk home along a narrow road at night".split()
    return [
        " ".join("".join(draw.sample(word, len(word))) if draw.random() < 0.3 else word for word in words)
        for _ in range(number)
    ]


def double_loop(candidates: list[str], weights: list[float]) -> list[float]:
    metric = sacrebleu.CHRF()
    rows = ([metric.sentence_score(candidate, [other]).score for other in candidates] for candidate in candidates)
    return [sum(weight * score for weight, score in zip(weights, row, strict=True)) / sum(weights) for row in rows]


@pytest.mark.parametrize("weights", [[1] * 8, [3, 0, 1, 1e-9, 5, 2, 0.5, 1]], ids=["equal", "weighted"])
def test_the_expected_chrf_is_that_of_a_double_loop(weights):
    """Repeated, empty and short candidates too."""
    assert mbr(SENTENCES, weights) == pytest.approx(double_loop(SENTENCES, weights), abs=1e-9)


def test_without_weights_all_candidates_weigh_the_same():
    candidates = variants(9)
    assert mbr(candidates) == pytest.approx(double_loop(candidates, [1] * 9), abs=1e-9)


def test_weights_have_any_unit_and_a_repeated_candidate_weighs_what_its_copies_weigh():
    assert mbr(["a b c", "a b", "x"], [2, 1, 1]) == pytest.approx(mbr(["a b c", "a b", "x"], [500, 250, 250]))
    assert mbr(["a b c", "a b c", "a b", "x"])[1:] == pytest.approx(mbr(["a b c", "a b", "x"], [2, 1, 1]))


def by_aggregation(candidates: list[str]) -> list[float]:
    """Each order's mean counts are the reference: precision and recall against them, the means over orders, and F2."""

    def counts(text: str, order: int) -> collections.Counter:
        text = "".join(text.split())
        return collections.Counter(text[start : start + order] for start in range(len(text) - order + 1))

    found = []
    for candidate in candidates:
        precisions, recalls = [], []
        for order in range(1, 7):
            own, mean = counts(candidate, order), collections.Counter()
            for other in candidates:
                for gram, count in counts(other, order).items():
                    mean[gram] += count / len(candidates)
            match = sum(min(count, mean[gram]) for gram, count in own.items())
            precisions.append(match / own.total())
            recalls.append(match / mean.total())
        precision, recall = np.mean(precisions), np.mean(recalls)
        found.append(100 * 5 * precision * recall / (4 * precision + recall))
    return found


def test_many_candidates_are_compared_with_their_mean_counts(monkeypatch):
    """And that is near the exact value: the same decision here, and the same order but for near ties."""
    candidates = variants(40)
    monkeypatch.setattr(minimum_bayes_risk, "MANY", 40)
    exact = mbr(candidates)
    assert exact == pytest.approx(double_loop(candidates, [1] * 40), abs=1e-9)
    monkeypatch.setattr(minimum_bayes_risk, "MANY", 39)
    aggregated = mbr(candidates)
    assert aggregated == pytest.approx(by_aggregation(candidates), abs=1e-9)
    assert np.argmax(aggregated) == np.argmax(exact)
    assert np.corrcoef(exact, aggregated)[0, 1] > 0.99
    assert not np.allclose(exact, aggregated, atol=0.01)


def test_aggregation_weighs_the_counts(monkeypatch):
    monkeypatch.setattr(minimum_bayes_risk, "MANY", 0)
    candidates = variants(3)
    assert mbr(candidates, [2, 1, 1]) == pytest.approx(mbr([candidates[0], *candidates])[1:])


def test_repeated_candidates_do_not_make_many(monkeypatch):
    monkeypatch.setattr(minimum_bayes_risk, "MANY", 2)
    assert mbr(["a b c", "a b d"] * 3) == pytest.approx(double_loop(["a b c", "a b d"] * 3, [1] * 6))


@pytest.mark.parametrize("weights", [[1.0], [1, 1, 1], [1, -1], [0, 0], [float("nan"), 1], [float("inf"), 1]], ids=str)
def test_weights_that_cannot_be_are_refused(weights):
    with pytest.raises(ValueError, match="^Each of 2 candidates needs a weight of 0 or more, not all 0"):
        mbr(["a", "b"], weights)


def test_no_candidate_has_no_score():
    assert mbr([]) == []


def test_candidates_may_be_of_any_iterable_but_not_one_string():
    """Story: the letters of a string were the candidates."""
    assert mbr(iter(SENTENCES), iter([1] * 8)) == mbr(SENTENCES)
    with pytest.raises(TypeError, match="^`candidates` must be a list of strings. Received: a string.$"):
        mbr("abc")


def test_an_n_best_list_is_reordered_by_its_probabilities():
    """The first is the most likely of all, but the two others agree; with scores far apart the first stays."""
    texts = ["quite another thing", "the dog sleeps now", "the dog sleeps here"]
    for scores, agree in (([-1.0, -1.2, -1.3], True), ([-1.0, -9.0, -9.0], False)):
        result = by_mbr({"text": texts, "score": scores, "truncated": True})
        expected = double_loop(texts, list(np.exp(scores)))
        assert (result["text"][0] != texts[0]) == agree and result["truncated"]
        wanted = pytest.approx(dict(zip(texts, expected, strict=True)))
        assert dict(zip(result["text"], result["score"], strict=True)) == wanted
        assert result["score"] == sorted(result["score"], reverse=True)


def test_draws_weigh_the_same_whatever_their_scores_and_as_often_as_they_are_drawn():
    texts, scores = ["a b c d", "x y", "x y", ""], [-1.0, -50.0, -50.0, 0.0]
    found = by_mbr({"text": texts, "score": scores}, weighted=False)
    assert found["text"] == ["x y", "x y", "a b c d", ""]
    assert found["score"] == pytest.approx([200 / 3, 200 / 3, 100 / 3, 0])


def test_scores_that_are_far_below_zero_still_weigh():
    found = by_mbr({"text": ["a b c d", "e f g h", "a b c e"], "score": [-2000.2, -2000.0, -2000.2]})
    assert found["text"][0] in ("a b c d", "a b c e")


def test_empty_places_of_a_list_stay_last_and_a_blank_line_stays_blank():
    """An empty translation that the model has scored is a candidate."""
    found = by_mbr({"text": ["", "a b", "", "a c"], "score": [0.0, -1.0, -5.0, -1.5]})
    assert found["text"] == ["a b", "a c", "", ""]
    expected = double_loop(["a b", "a c", ""], list(np.exp([-1.0, -1.5, -5.0])))
    assert found["score"] == pytest.approx([*expected[:2], 0.0, 0.0])
    blank = {"text": ["", ""], "score": [0.0, 0.0]}
    assert by_mbr(blank) == blank


def test_equal_candidates_keep_the_order_of_the_search():
    assert by_mbr({"text": ["x", "y", "z"], "score": [-1.0, -1.0, -1.0]})["text"] == ["x", "y", "z"]
