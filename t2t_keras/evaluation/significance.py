"""How sure a corpus score is, by sacreBLEU's own tests: bootstrap resampling (Koehn, 2004) and approximate
randomization (Riezler and Maxwell, 2005).
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Sequence

from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from t2t_keras.system import machine
from t2t_keras.system.log import logger

SEED = 12345  # sacreBLEU's.
_SEED = "SACREBLEU_SEED"  # The environment variable that sacreBLEU reads it from.
# Bytes that sacreBLEU's arrays take for a sentence in a sample, and in a trial.
_BYTES_OF_SAMPLE, _BYTES_OF_TRIAL = 80, 12


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
    """Returns the numbers of samples and trials, or 0 of both, with a warning, if the tests take more memory than is
    free.
    """
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
    """Computes scores of systems, with confidence intervals and p-values against the first system.

    Args:
        metric: of sacreBLEU.
        systems: the translations of each system, the baseline first.
        references: one or more lists of references.
        samples: number of bootstrap samples; 0: no confidence intervals, and no bootstrap test.
        trials: number of trials of approximate randomization; 0: none.
        seed: of both, at least 1: sacreBLEU takes 0 for another seed at each call.

    Returns:
        An estimate for each system, and sacreBLEU's signature. Where a score equals the baseline's, p is 1, the
        probability of a difference of at least 0; sacreBLEU counts larger differences only, and would find such systems
        to differ (jhclark/multeval issue 5).

    Raises:
        ValueError: a number is too small.
    """
    if min(samples, trials) < 0 or seed < 1:
        raise ValueError(
            f"Expected 0 or more samples and trials, and a seed of at least 1. Received: {samples} samples, {trials} "
            f"trials, seed={seed}."
        )
    trials = trials if len(systems) > 1 else 0
    if not (samples or trials):
        scores = [metric.corpus_score(system, references).score for system in systems]
        return [Estimate(score) for score in scores], str(metric.get_signature())
    found, numbers = {}, {test: number for test, number in (("bs", samples), ("ar", trials)) if number}
    with _seeded(seed):
        for test, number in numbers.items():
            found[test], signature = _paired(metric, systems, references, test, number)
    for test, number in numbers.items():
        signature.update(test, number)

    def p_value(test: str, system: int) -> float | None:
        if test not in found or system == 0:
            return None
        return 1.0 if found[test][system].score == found[test][0].score else found[test][system].p_value

    def estimate(system: int, result) -> Estimate:
        # sacreBLEU computes in float32.
        interval = (None, None) if result.ci is None else (float(result.mean), float(result.ci))
        return Estimate(float(result.score), *interval, p_value("bs", system), p_value("ar", system))

    return [estimate(*each) for each in enumerate(next(iter(found.values())))], str(signature)


def _paired(metric: Metric, systems, references, test: str, number: int) -> tuple:
    """Runs one of sacreBLEU's tests: its results in the order of the systems, and its signature."""
    named = [(str(index), system) for index, system in enumerate(systems)]
    signatures, results = PairedTest(named, {"": metric}, references, test, number)()
    [(name, signature)] = signatures.items()
    return results[name], signature


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Sets the seed of sacreBLEU's tests."""
    before = os.environ.get(_SEED)
    os.environ[_SEED] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SEED]
        else:
            os.environ[_SEED] = before
