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
from t2t_keras.data.few_shapes import Shapes

BATCH_TOKENS = 6250  # A bucket of the paper's updates.


def main(pairs: int = 1_200_000, longest: int = 255) -> None:
    """Writes made-up pairs with lengths in proportion to newstest's and reads an epoch of batches of 6,250 tokens a
    side, with lengths as they are and rounded.
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
        started, words, positions, found = time.monotonic(), 0, 0, set()
        for batch in batching.batches(folder, batch_tokens=BATCH_TOKENS, seed=1, epochs=1):
            for side in shards.SIDES:
                words += int(tf.math.count_nonzero(batch[side]))
                positions += int(tf.size(batch[side]))
            found.add((*batch["source"].shape, batch["target"].shape[1]))
        speed = pairs / (time.monotonic() - started)
        print(f"batching: {speed:,.0f} pairs/s, {words / positions:.1%} real tokens, {len(found):,} shapes")
        shapes, padded, found = Shapes(1.15, BATCH_TOKENS), 0, set()
        for batch in batching.batches(folder, batch_tokens=BATCH_TOKENS, seed=1, epochs=1, shapes=shapes):
            lengths = {side: tf.constant([batch[side].shape[1]]) for side in shards.SIDES}
            [[rows, *widths]] = shapes.of_micro_batches(lengths, 1).numpy().tolist()
            padded += rows * sum(widths)
            found.add((rows, *widths))
        print(f"length_buckets=1.15: {len(found)} shapes, {padded / positions - 1:.1%} more positions")
        print(f"peak memory grew by {(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024:,.0f} MiB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
