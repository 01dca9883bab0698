"""Few shapes of micro-batches, for a train step that is compiled once for each shape.

Lengths are rounded up to boundaries that grow by a factor, and a shape has a fixed number of rows. With a factor of
1.15, 200,000 pairs with lengths in proportion to newstest's have 38 shapes instead of 646.
"""

import functools
from typing import NamedTuple

import tensorflow as tf

SHORTEST, MULTIPLE = 16, 4  # The first boundary, and what all but the last are multiples of.
# Up to the first length, and above the second one, all sides are padded alike: few tokens are there.
ALIKE_UP_TO, ALIKE_ABOVE = 16, 100


class Shapes(NamedTuple):
    """The shapes of a bucket's rows and columns."""

    growth: float  # Factor from one boundary to the next, above 1.
    tokens: int  # Budget of a bucket on each side, rows × padded length.
    counted: tuple[str, ...] = ("source", "target")  # The columns whose lengths count against it.

    @property
    def boundaries(self) -> tuple[int, ...]:
        """The padded lengths, ascending; the last one is the budget.

        Example: with a growth of 1.5 and a budget of 100 tokens they are 16, 24, 36, 56, 84 and 100.
        """
        found = [min(SHORTEST, self.tokens)]
        while found[-1] < self.tokens:
            grown = MULTIPLE * -int(-found[-1] * self.growth // MULTIPLE)
            found.append(min(max(grown, found[-1] + MULTIPLE), self.tokens))
        return tuple(found)

    def _places(self, lengths: list) -> list:
        """Returns the index of the boundary of each side, from the lengths of the sides, [N] int32 each. Sides differ
        by at most one boundary, so that there are few pairs of them.
        """
        boundaries = tf.constant(self.boundaries)
        places = [self._place(length) for length in lengths]
        longest = functools.reduce(tf.maximum, places)
        longer = tf.gather(boundaries, longest)
        alike = (longer <= ALIKE_UP_TO) | (longer > ALIKE_ABOVE)
        return [tf.where(alike, longest, tf.maximum(place, longest - 1)) for place in places]

    def _place(self, length):
        """Returns the index of the first boundary that is no shorter, or of the last one."""
        return tf.minimum(tf.searchsorted(tf.constant(self.boundaries), length), len(self.boundaries) - 1)

    def rounded(self, *lengths) -> list:
        """Returns the padded lengths of both sides, from the lengths of their longest sentences; each [N] int32."""
        boundaries, places = tf.constant(self.boundaries), self._places(lengths)
        # With a data service, BPE-dropout may make a sentence longer than the budget of one process.
        return [tf.maximum(tf.gather(boundaries, place), length) for place, length in zip(places, lengths, strict=True)]

    def sort_key(self, *lengths):
        """Returns a key, [pairs] int64, that sorts pairs by shape, as `batching.sort_key` does by length."""
        places = self._places(lengths)
        longest = functools.reduce(tf.maximum, places)
        # Shapes whose sides are alike come last among those of a length: leftovers of the others fit into them.
        kind = functools.reduce(lambda kind, place: 2 * kind + tf.cast(place == longest, tf.int32), places, 0)
        return tf.cast(longest * 2 ** len(places) + kind, tf.int64)

    def of_micro_batches(self, lengths: dict, number: int):
        """Returns the shapes of the micro-batches, `number` of each bucket: [N, 1 + columns] int32, the rows of each
        and the padded length of each column. `lengths` has the length of the longest sentence of each column, [N]
        int32. What is not counted may exceed the budget.
        """
        widths = dict(zip(self.counted, self.rounded(*(lengths[name] for name in self.counted)), strict=True))
        rows = tf.maximum(self.tokens // functools.reduce(tf.maximum, widths.values()), 1)
        boundaries, first = tf.constant(self.boundaries), self.counted[0]
        for name, length in lengths.items():
            if name not in widths:  # As long as the first, or often a single number, such as a label.
                wider = tf.maximum(tf.gather(boundaries, self._place(length)), length)
                widths[name] = tf.where(length == lengths[first], widths[first], tf.where(length <= 1, 1, wider))
        return tf.stack([-(-rows // number), *(widths[name] for name in lengths)], axis=1)
