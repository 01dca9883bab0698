"""Measures writing shards and batching them: speed, share of real tokens, memory. Not a test:

python tests/measure_batching.py                # sentences
python tests/measure_batching.py 100000 8192     # documents of up to 8,192 sub-words
"""

import pathlib
import resource
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf

from t2t_keras.data import batching, shards


def main(pairs: int = 1_200_000, longest: int = 255) -> None:
    """Writes made-up pairs with lengths in proportion to newstest's and reads an epoch of batches of 25,000 tokens a
    side.
    """
    draw = np.random.default_rng(0)
    source_lengths = np.clip((draw.lognormal(3.3, 0.5, pairs) * longest / 255).astype(int), 2, longest)
    target_lengths = np.clip((source_lengths * draw.normal(1.1, 0.15, pairs)).astype(int), 2, longest)
    ids = draw.integers(4, 37_000, longest)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        started = time.monotonic()
        sentences = (
            (ids[:source], ids[:target]) for source, target in zip(source_lengths, target_lengths, strict=True)
        )
        size = 4 * int(source_lengths.sum() + target_lengths.sum())  # Bytes of text, roughly.
        shards.write(folder, sentences, count=pairs, size=size, vocab_size=37_000, seed=1)
        print(f"writing: {pairs / (time.monotonic() - started):,.0f} pairs/s")
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started, words, positions = time.monotonic(), 0, 0
        for batch in batching.batches(folder, batch_tokens=25_000, seed=1, epochs=1):
            for side in shards.SIDES:
                words += int(tf.math.count_nonzero(batch[side]))
                positions += int(tf.size(batch[side]))
        print(f"batching: {pairs / (time.monotonic() - started):,.0f} pairs/s, {words / positions:.1%} real tokens")
        print(f"peak memory grew by {(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024:,.0f} MiB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
