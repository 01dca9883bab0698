"""Perplexity of many pairs, and an evaluation, with models that are functions."""

import math
import re
import types
from collections.abc import Iterator

import pytest
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.evaluation import cross_entropy, evaluate, scores


@pytest.fixture
def calls(monkeypatch) -> Iterator[list[tuple[list, list]]]:
    """The texts of each call. A translator is a number x: log P of a letter is x · the letters of its source."""
    calls = []

    def log_probs(translator, source, target) -> tf.RaggedTensor:
        calls.append(tuple(side.numpy().astype(str).tolist() for side in (source, target)))
        rows = [[translator * len(read)] * len(written) for read, written in zip(*calls[-1], strict=True)]
        return tf.ragged.constant(rows, tf.float32)

    monkeypatch.setattr(cross_entropy, "log_probs", log_probs)
    monkeypatch.setattr(cross_entropy, "PAIRS", 2)
    tf.config.run_functions_eagerly(True)
    yield calls
    tf.config.run_functions_eagerly(False)


def test_perplexity_is_of_all_sub_words_and_pairs_of_similar_length_are_scored_together(calls):
    """(1 · 5 + 2 · 4 + 3 · 1 + 4 · 2 + 5 · 3) / 15."""
    found = cross_entropy.perplexity(-0.5, ["a", "aa", "aaa", "aaaa", "aaaaa"], ["bbbbb", "bbbb", "b", "bb", "bbb"])
    assert found == pytest.approx(math.exp(0.5 * (5 + 8 + 3 + 8 + 15) / 15))
    assert calls == [(["aaa", "aaaa"], ["b", "bb"]), (["aaaaa", "aa"], ["bbb", "bbbb"]), (["a"], ["bbbbb"])]


def test_perplexity_is_a_finite_number(calls):
    assert cross_entropy.perplexity(-710.0, ["a"], ["b"]) == math.inf
    assert cross_entropy.perplexity(-708.5, ["a"], ["b"]) == math.exp(708.5)


def test_the_dual_cross_entropy_is_of_each_pair_and_pairs_of_similar_length_are_scored_together(calls):
    """H_f = 0.5 · letters of the source and H_b = 0.25 · letters of the target."""
    found = cross_entropy.dual_cross_entropy(-0.5, -0.25)(["a", "aa", "aaa"], ["bbb", "bb", "b"])
    assert found == pytest.approx([abs(f - b) + (f + b) / 2 for f, b in ((0.5, 0.75), (1, 0.5), (1.5, 0.25))])
    assert calls == [(["aaa", "aa"], ["b", "bb"]), (["b", "bb"], ["aaa", "aa"]), (["a"], ["bbb"]), (["bbb"], ["a"])]


def test_pairs_of_one_length_are_scored_in_their_order(calls):
    """On every processor, so that a pair always has the same neighbours and the same score."""
    sources = [chr(ord("a") + number) for number in range(20)]
    cross_entropy.dual_cross_entropy(-0.5, -0.25)(sources, ["bb", "b"] * 10)
    assert [letter for read, _ in calls[::2] for letter in read] == sources[1::2] + sources[::2]


def test_long_sentences_are_cut_before_they_are_scored(monkeypatch):
    monkeypatch.setattr(cross_entropy, "_LONGEST", 7)
    given, config = [], DecodeConfig(max_input=6, extra_length=3)
    tokenizer = types.SimpleNamespace(
        kept=lambda source: "kept", tokenize=lambda text, **options: given.append((text, options))
    )
    translator = types.SimpleNamespace(
        config=config, tokenizer=tokenizer, source_tokenizer=tokenizer, log_probs=lambda *sides: sides
    )
    cross_entropy.log_probs(translator, "source", "target")
    expected = {"source": 7, "target": 9}
    assert given == [(side, {"max_length": longest, "kept": "kept"}) for side, longest in expected.items()]


def test_the_attention_to_a_sentence_of_the_most_that_is_scored_takes_less_than_a_gibibyte():
    assert 8 * 4 * cross_entropy._LONGEST**2 < 2**30


def test_an_evaluation_has_the_seconds_of_translating_and_passes_on_its_options(monkeypatch):
    limits = types.SimpleNamespace(batch_size=7)
    translator, given = types.SimpleNamespace(config=DecodeConfig(beam_size=3, alpha=0.5), limits=limits), []

    def translate_lines(translator, sources, batch_size: int) -> list[dict]:
        given.append(batch_size)
        return [{"text": source.upper(), "truncated": False} for source in sources]

    monkeypatch.setattr(evaluate, "translate_lines", translate_lines)
    monkeypatch.setattr(evaluate, "perplexity", lambda *given: given)
    sources, references, others = ["a b", "c d"], ["A B", "C E"], ["A", "C D"]
    for options in ({}, {"samples": 30, "lowercase": True, "tokenize": "char"}):
        monkeypatch.setattr(evaluate, "time", types.SimpleNamespace(monotonic=iter([10.5, 12.0678]).__next__))
        hypotheses, found = evaluate.evaluate(translator, sources, references, others, **options)
        assert found == scores.scores(["A B", "C D"], references, others, **options) | {
            "perplexity": (translator, sources, references, others), "decode_seconds": 1.57, "beam_size": 3,
            "alpha": 0.5
        }  # fmt: skip
    assert given == [7, 7] and hypotheses == ["A B", "C D"]


def test_what_cannot_be_scored_is_refused_before_it_is_translated():
    """Story: a misspelled tokenizer was reported after the whole test set had been translated."""
    for references, options, message in (
        (["A", "B"], {"tokenize": "13b"}, "`tokenize` must be one of"),
        (["A"], {}, "Expected one reference for each translation. Received: 2 translation(s), 1 reference(s)."),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            evaluate.evaluate(
                None, ["a", "b"], references, translate=lambda sources: pytest.fail("It translates."), **options
            )
