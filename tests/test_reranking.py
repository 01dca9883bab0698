"""N-best lists are reordered by their scores and those of another model, one sentence at a time recomputed here."""

import numpy as np
import pytest
import stand_in
import tensorflow as tf

from t2t_keras.config import EOS, DecodeConfig
from t2t_keras.decoding import reranking
from t2t_keras.decoding.reranking import reranked
from t2t_keras.decoding.translator import Translator, translate_lines
from t2t_keras.serving.signatures import Signatures

DECODE = DecodeConfig(beam_size=4, max_input=90, extra_length=4)
LINES = [*stand_in.sentences(4), "", "  ", "é 😀"]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return stand_in.translator(DECODE)


@pytest.fixture(scope="module")
def other() -> Translator:
    """Another model, with other sub-words."""
    return stand_in.translator(DecodeConfig(beam_size=1, max_input=90, extra_length=9), kind="wordpiece")


def listed(n_best, lines: list[str]) -> list[list[tuple[str, float]]]:
    return [list(zip(found["text"], found["score"], strict=True)) for found in translate_lines(n_best, lines)]


@pytest.fixture(scope="module")
def score(other):
    """log P / lp of one pair, from the signature of an export."""
    signatures = Signatures(other)

    def of_pair(source: str, target: str, alpha: float) -> float:
        found = signatures.score(tf.constant([source]), tf.constant([target]))
        return float(found["log_prob"][0]) / ((5 + int(found["length"][0])) / 6) ** alpha

    return of_pair


PAIRS = {
    "forward": lambda source, target: (source, target),
    "right_to_left": lambda source, target: (source, " ".join(target.split()[::-1])),
    "backward": lambda source, target: (target, source),
}


@pytest.mark.medium
@pytest.mark.parametrize("direction", PAIRS)
def test_a_list_is_in_the_order_of_its_scores_and_those_of_the_other_model(translator, other, score, direction):
    weight, alpha, moved = 0.7, 0.9, 0
    lists = listed(reranked(translator.n_best, other, weight=weight, alpha=alpha, direction=direction), LINES)
    for line, before, after in zip(LINES, listed(translator.n_best, LINES), lists, strict=True):
        if not line.strip():
            assert after == before == [("", 0.0)] * 4
            continue
        expected = [(text, own + weight * score(*PAIRS[direction](line, text), alpha)) for text, own in before]
        expected.sort(key=lambda pair: -pair[1])
        assert [text for text, _ in after] == [text for text, _ in expected]
        np.testing.assert_allclose([value for _, value in after], [value for _, value in expected], rtol=1e-4)
        moved += after[0][0] != before[0][0]
    assert moved


def test_every_direction_is_tested():
    assert list(PAIRS) == list(reranking.DIRECTIONS)


def test_a_weight_of_0_changes_nothing(translator, other):
    assert listed(reranked(translator.n_best, other, weight=0.0, alpha=0.6), LINES) == listed(translator.n_best, LINES)


def test_a_list_does_not_depend_on_its_neighbours(translator, other):
    function = reranked(translator.n_best, other, weight=1.0, alpha=0.6)
    together = listed(function, LINES)
    for line, found in zip(LINES, together, strict=True):
        [alone] = listed(function, [line])
        assert [text for text, _ in alone] == [text for text, _ in found]
        np.testing.assert_allclose([value for _, value in alone], [value for _, value in found], rtol=1e-4)


def test_empty_places_of_a_list_stay_last(other):
    """Their score of 0 is above all others. An empty translation that has a score is none, nor is one that is
    certain.
    """
    texts, scores = [["", "one", "", "two", "three"]], [[0.0, -1.0, -2.0, -0.5, 0.0]]
    fixed = lambda text: {"text": tf.constant(texts), "score": tf.constant(scores)}  # noqa: E731
    [found] = listed(reranked(fixed, other, weight=0.0, alpha=0.6), ["a source"])
    assert found == [("three", 0.0), ("two", -0.5), ("one", -1.0), ("", -2.0), ("", 0.0)]


def test_long_sentences_are_cut_to_the_lengths_of_the_other_model(other):
    """At `max_input` sub-words, and a translation at as many more as it may have, with the end token."""
    short = Translator(other.model, other.tokenizer, DecodeConfig(max_input=6, extra_length=3))
    source, target = " ".join(LINES[:2]), " ".join(LINES[2:4])
    fixed = lambda text: {"text": tf.constant([[target]]), "score": tf.constant([[-1.0]])}  # noqa: E731
    [[(text, found)]] = listed(reranked(fixed, short, weight=1.0, alpha=0.0), [source])
    ids = [other.tokenizer.tokenize([side])[0, :-1].numpy().tolist() for side in (source, target)]
    assert text == target and min(map(len, ids)) > 9
    cut = [tf.ragged.constant([[*own[:most], EOS]], tf.int32) for own, most in zip(ids, (5, 8), strict=True)]
    assert found == pytest.approx(-1 + float(tf.reduce_sum(other.log_probs(*cut))), rel=1e-4)


def test_other_arguments_and_results_of_a_list_are_passed_on(other):
    def n_best(text, number):
        return {"text": tf.constant([["a", "b"]]), "score": tf.constant([[-1.0, -2.0]]), "number": number}

    assert reranked(n_best, other, weight=0.0, alpha=0.6)(tf.constant(["a source"]), 7)["number"] == 7
