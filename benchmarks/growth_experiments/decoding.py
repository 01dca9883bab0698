"""How decoding grows: base with V = 32,000 in bfloat16. Random weights that never end a sentence; sources as long as
translations.
"""

import statistics
import time

from benchmarks.growth_experiments.experiment import Experiment, Panel
from benchmarks.growth_experiments.training import BASE

BATCH, BEAM, LENGTH = 16, 4, 30  # Unless they grow.
ALPHA, SEED, REPEATS = 0.6, 1, 3


def translate(batch: int = BATCH, beam_size: int = BEAM, length: int = LENGTH) -> dict:
    """Translates a batch some times. Returns `seconds`, the median."""
    import numpy as np

    from benchmarks.our_decoder import never_ending, translate_function
    from t2t_keras.config import EOS
    from t2t_keras.decoding import process_environment

    process_environment.choose_threads()  # As programs do, before TensorFlow is used.
    function = translate_function(never_ending(BASE, SEED, "bfloat16"), ALPHA)
    draw = np.random.default_rng(SEED).integers(EOS + 1, BASE.vocab_size, [batch, length - 1])
    sources, seconds = [[*row, EOS] for row in draw.tolist()], []
    for _ in range(1 + REPEATS):
        started = time.perf_counter()
        function(sources, [length] * batch, beam_size)
        seconds.append(time.perf_counter() - started)
    return {"seconds": statistics.median(seconds[1:])}


def _panel(title: str, terms, theory: str, unit: str = "sentences per second") -> Panel:
    return Panel("seconds", title, unit, terms, theory, per_second=True)


_OF_LENGTH = "time = ∝ length + attention and copies of the cache ∝ length²"
EXPERIMENTS = {
    "batch": Experiment(
        "sentences in a batch",
        (1, 2, 4, 8, 16, 32, 64, 128, 256),
        lambda batch: translate(batch=batch),
        (_panel("Speed against the batch", lambda b: (1, b), "time = that of reading the weights + ∝ sentences"),),
        lambda b: b,
    ),
    "beam": Experiment(
        "beam size",
        (1, 2, 4, 8, 16),
        lambda beam_size: translate(beam_size=beam_size),
        (_panel("Speed against the beam", lambda k: (1, k), "time = constant + ∝ beam size"),),
        lambda k: BATCH,
    ),
    "translation_length": Experiment(
        "sub-words of source and translation",
        (8, 16, 32, 64, 128, 256),
        lambda length: translate(length=length),
        (_panel("Speed against the length", lambda n: (n, n * n), _OF_LENGTH, "translated sub-words per second"),),
        lambda n: BATCH * n,
    ),
}
