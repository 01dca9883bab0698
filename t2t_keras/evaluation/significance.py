"""How sure a corpus score is: bootstrap resampling (Koehn, 2004) and approximate randomization (Riezler and Maxwell,
2005), on the statistics that sacreBLEU counts for each sentence.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import estimate_ci

from t2t_keras.system import compat, machine
from t2t_keras.system.log import logger

SEED = 12345  # sacreBLEU's.
_BYTES_OF_SAMPLE, _BYTES_OF_TRIAL = 8, 1  # What a test keeps of a sentence in a sample, and in a trial.
_TIE = 1e-9  # Differences of scores, 0 to 100, that round-off alone tells apart.


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A score of a system.

    Attributes:
        score: the score of the corpus.
        mean: mean score of the bootstrap samples; `None` without samples.
        margin: half of the width of the 95% confidence interval around the mean; `None` without samples.
        p_value: of the paired bootstrap test against the baseline; `None` for the baseline and without samples.
        randomization_p_value: of approximate randomization; `None` for the baseline and without trials.
    """

    score: float
    mean: float | None = None
    margin: float | None = None
    p_value: float | None = None
    randomization_p_value: float | None = None


def check_memory(sentences: int, samples: int, trials: int = 0) -> None:
    """Raises `ValueError` if the tests of a corpus take more memory than is free."""
    needed, free = sentences * max(samples * _BYTES_OF_SAMPLE, trials * _BYTES_OF_TRIAL), machine.free_memory()
    if needed > free:
        trials_too = f" and {trials:,} trials" if trials else ""
        raise ValueError(
            f"Expected a test that fits into the free memory, {free / 1e9:.1f} GB. Received: {sentences:,} sentences, "
            f"{samples:,} bootstrap samples{trials_too}, which take {needed / 1e9:,.1f} GB. Give fewer."
        )


def affordable(sentences: int, samples: int, trials: int = 0, systems: int = 1) -> tuple[int, int]:
    """Returns the numbers of samples and trials. With a warning, both are 0 if the tests take more memory than is
    free, and samples are 0 for a single sentence, whose samples would all be alike.
    """
    if sentences == 1 and samples:
        samples = 0
        logger.warning("Leaving out confidence intervals and the bootstrap test, which need two sentences or more.")
    try:
        check_memory(sentences, samples, trials)
    except ValueError as error:
        logger.warning(f"Leaving out confidence intervals{' and p-values' if systems > 1 else ''}. {error}")
        return 0, 0
    return samples, trials


def estimates(
    metric: Metric,
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    *,
    samples: int,
    trials: int = 0,
    seed: int = SEED,
) -> tuple[list[Estimate], str]:
    """Computes scores of systems, with confidence intervals and p-values against the first system. Returns an estimate
    for each system, and sacreBLEU's signature.

    Both p-values are two-sided, and count differences that are as large as the observed one with those that are larger:
    systems of the same score have p = 1. sacreBLEU counts larger ones only (jhclark/multeval issue 5), so that its p of
    few differing sentences is too small, and its paired bootstrap centres the absolute differences, which finds 12% of
    equally good systems to differ at 5%.

    Args:
        metric: of sacreBLEU.
        samples: number of bootstrap samples; 0, and for one sentence: no confidence intervals, and no bootstrap test.
            The samples are sacreBLEU's, and so are mean and margin.
        trials: number of trials of approximate randomization; 0: none.
        seed: of both, at least 1: sacreBLEU takes 0 for another seed at each call.
    """
    if min(samples, trials) < 0 or seed < 1:
        raise ValueError(
            f"Expected 0 or more samples and trials, and a seed of at least 1. Received: {samples} samples, {trials} "
            f"trials, seed={seed}."
        )
    sentences = len(systems[0])
    samples, trials = samples if sentences > 1 else 0, trials if len(systems) > 1 else 0
    # [sentences, statistics]: whole numbers, whose sums are exact.
    statistics = [np.array(compat.corpus_statistics(metric, system, references), float) for system in systems]

    def score(sums: np.ndarray) -> float:
        return compat.score_of_statistics(metric, sums.tolist())

    totals = [counted.sum(0) for counted in statistics]
    results = [Estimate(score(total)) for total in totals]
    differences = [estimate.score - results[0].score for estimate in results]
    if samples:
        drawn = np.random.default_rng(seed).choice(sentences, size=(samples, sentences))
        sampled = [
            np.array([score(np.bincount(rows, minlength=sentences) @ counted) for rows in drawn])
            for counted in statistics
        ]
        for system, scores in enumerate(sampled):
            mean, margin = map(float, estimate_ci(scores))
            # Under the null hypothesis, differences vary around 0 as the drawn ones do around the observed one.
            p_value = _p_value(scores - sampled[0] - differences[system], differences[system]) if system else None
            results[system] = dataclasses.replace(results[system], mean=mean, margin=margin, p_value=p_value)
    if trials:
        swaps = np.random.default_rng(seed).integers(2, size=(trials, sentences), dtype=bool)
        for system in range(1, len(systems)):
            gains = statistics[0] - statistics[system]
            moved = [swap @ gains for swap in swaps]
            swapped = np.array([score(totals[system] + move) - score(totals[0] - move) for move in moved])
            p_value = _p_value(swapped, differences[system])
            results[system] = dataclasses.replace(results[system], randomization_p_value=p_value)
    signature = metric.get_signature()
    for name, number in (("bs", samples), ("ar", trials), ("seed", seed if samples or trials else 0)):
        signature.update(name, number or None)
    return results, str(signature)


def _p_value(differences: np.ndarray, observed: float) -> float:
    """Returns the share of differences that are at least as large as the observed one, which counts as one of them: so
    the test is no surer than it may be (Phipson and Smyth, 2010).
    """
    return (int(np.sum(np.abs(differences) >= abs(observed) - _TIE)) + 1) / (len(differences) + 1)
