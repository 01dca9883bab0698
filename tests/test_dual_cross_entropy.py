"""The score of a pair is that of the formula, whatever is scored beside it."""

import math

import pytest
import stand_in

from t2t_keras.config import DecodeConfig
from t2t_keras.evaluation import cross_entropy
from t2t_keras.evaluation.cross_entropy import dual_cross_entropy


@pytest.mark.medium
def test_a_pair_has_the_dual_cross_entropy_of_two_models(monkeypatch):
    """By their perplexities, one pair at a time."""
    forward = stand_in.translator(DecodeConfig(beam_size=1))
    backward = stand_in.translator(DecodeConfig(beam_size=1), kind="wordpiece")
    sources, targets = map(list, zip(*stand_in.pairs()[:7], strict=True))
    expected = []
    for source, target in zip(sources, targets, strict=True):
        ahead = math.log(cross_entropy.perplexity(forward, [source], [target]))
        back = math.log(cross_entropy.perplexity(backward, [target], [source]))
        expected.append(abs(ahead - back) + (ahead + back) / 2)
    monkeypatch.setattr(cross_entropy, "PAIRS", 3)
    found = dual_cross_entropy(forward, backward)(sources, targets)
    assert found == pytest.approx(expected, rel=1e-4)
    assert len({round(score, 3) for score in found}) == 7
