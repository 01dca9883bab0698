"""Minimum Bayes risk decoding against the package mbrs (Deguchi et al. 2024), which `tests/peers.sh` installs."""

import sys
import unittest.mock

import numpy as np
import pytest
from test_minimum_bayes_risk import SENTENCES, variants

from t2t_keras.decoding import minimum_bayes_risk
from t2t_keras.decoding.minimum_bayes_risk import mbr

torch = pytest.importorskip("torch")
pytest.importorskip("mbrs")

# Of other metrics, which the package imports with models that they need.
OTHERS = ("bertscore", "bleurt", "comet", "cometkiwi", "metricx", "xcomet")
sys.modules |= {f"mbrs.metrics.{name}": unittest.mock.MagicMock() for name in OTHERS}

from mbrs.metrics.chrf import MetricChrF  # noqa: E402

LISTS = [[text for text in SENTENCES if text.strip()], variants(12)]


@pytest.fixture(scope="module")
def metric():
    return MetricChrF(MetricChrF.Config(num_workers=1))


@pytest.mark.parametrize("candidates", LISTS, ids=["short", "long"])
@pytest.mark.parametrize("weighted", [False, True], ids=["draws", "list"])
def test_expected_chrf_is_that_of_mbrs(metric, candidates, weighted):
    """Of all pairs; mbrs weighs them by the softmax of log probabilities."""
    log_probs = torch.linspace(-3, 0, len(candidates)) if weighted else torch.zeros(len(candidates))
    expected = metric.expected_scores(candidates, candidates, None, reference_lprobs=log_probs)
    assert mbr(candidates, log_probs.exp().tolist()) == pytest.approx(expected.tolist(), abs=1e-3)


@pytest.mark.parametrize("weighted", [False, True], ids=["draws", "list"])
def test_reference_aggregation_is_that_of_mbrs(metric, weighted, monkeypatch):
    monkeypatch.setattr(minimum_bayes_risk, "MANY", 0)
    candidates = variants(40)
    log_probs = torch.linspace(-3, 0, len(candidates)) if weighted else torch.zeros(len(candidates))
    expected = metric.expected_scores_reference_aggregation(candidates, candidates, None, log_probs).tolist()
    found = mbr(candidates, log_probs.exp().tolist())
    assert found == pytest.approx(expected, abs=1e-3) and int(np.argmax(found)) == int(np.argmax(expected))
