"""N-best lists are reordered by their scores and those of another model, one sentence at a time recomputed here."""

import numpy as np
import pytest
import stand_in
import tensorflow as tf

from t2t_keras.config import DecodeConfig
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
    return stand_in.translator(DecodeConfig(beam_size=1, max_input=300, extra_length=9), kind="wordpiece")


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


@pytest.mark.medium
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_other_model_reads_no_tags_that_it_does_not_know(translator, other, score, direction):
    tags = ["<2de>", ">>deu<<"]  # It knows others, which stay.
    options = {"weight": 0.7, "alpha": 0.9, "direction": direction, "unknown_tags": tags}
    line = stand_in.sentences(1)[0]
    other_tag = f">>fra<< {line}"
    for tagged, read in ((f"<2de> {line}", line), (f">>deu<< {line}", line), (line, line), (other_tag, other_tag)):
        [before], [after] = (
            listed(n_best, [tagged]) for n_best in (translator.n_best, reranked(translator.n_best, other, **options))
        )
        totals = [each + 0.7 * score(*PAIRS[direction](read, text), 0.9) for text, each in before]
        assert [each for _, each in after] == pytest.approx(sorted(totals, reverse=True), rel=1e-4)


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
    """Their score of 0 is above all others. An empty translation that has a score is none, nor is a certain one."""
    texts, scores = [["", "one", "", "two", "three"]], [[0.0, -1.0, -2.0, -0.5, 0.0]]
    fixed = lambda text: {"text": tf.constant(texts), "score": tf.constant(scores)}  # noqa: E731
    [found] = listed(reranked(fixed, other, weight=0.0, alpha=0.6), ["a source"])
    assert found == [("three", 0.0), ("two", -0.5), ("one", -1.0), ("", -2.0), ("", 0.0)]


@pytest.mark.medium
def test_a_list_that_the_other_model_cannot_read_whole_stays_as_it_is(translator):
    """Story: the score was that of the beginning, so that the longest translations came first."""
    short = stand_in.translator(DecodeConfig(beam_size=1, max_input=12, extra_length=20), kind="wordpiece")
    lines = [*LINES, "1", "12"]
    before = translator.n_best(tf.constant(lines))
    found = reranked(translator.n_best, short, weight=0.7, alpha=0.9)(tf.constant(lines))
    lengths = lambda texts, side: side.tokenize(texts).row_lengths().numpy()  # noqa: E731  With end tokens.
    sources = lengths(tf.constant(lines), short.source_tokenizer)
    targets = lengths(tf.reshape(before["text"], [-1]), short.tokenizer).reshape(-1, 4)
    expected = np.array([bool(line.strip()) for line in lines]) & ((sources > 12) | (targets > 32).any(axis=1))
    assert found["unranked"].numpy().tolist() == expected.tolist() and 0 < expected.sum() < len(lines) - 2
    for row in np.flatnonzero(expected):
        assert all(
            found[name][row].numpy().tolist() == before[name][row].numpy().tolist() for name in ("text", "score")
        )
    # One too long translation is enough, and the order is the first one, whatever the scores are.
    texts = [["one", "two", "three " * 30, "six"], ["one", "two", "three", ""]]
    scores = [[-1.0, -0.5, -2.0, -0.25], [-1.0, -0.5, -2.0, 0.0]]
    fixed = lambda text: {"text": tf.constant(texts), "score": tf.constant(scores)}  # noqa: E731
    first, second = listed(reranked(fixed, short, weight=0.0, alpha=0.9), ["1", "2"])
    assert first == list(zip(texts[0], scores[0], strict=True))
    assert second == [("two", -0.5), ("one", -1.0), ("three", -2.0), ("", 0.0)]
    for limit, cut in ((len(short.tokenizer.tokenize(["six seven"])[0]), False), (3, True)):
        exact = Translator(short.model, short.tokenizer, DecodeConfig(max_input=limit, extra_length=0))
        assert reranked(fixed, exact, weight=1.0, alpha=0.9)(tf.constant(["six seven"] * 2))["unranked"][1] == cut


def test_other_arguments_and_results_of_a_list_are_passed_on(other):
    def n_best(text, number):
        return {"text": tf.constant([["a", "b"]]), "score": tf.constant([[-1.0, -2.0]]), "number": number}

    assert reranked(n_best, other, weight=0.0, alpha=0.6)(tf.constant(["a source"]), 7)["number"] == 7
