"""TensorBoard's curves of a run, which has one point a step however often the run was killed and went on."""

import pathlib

import tensorflow as tf


class Board:
    """Writes points to a folder that TensorBoard reads: numbers as curves, strings as text."""

    def __init__(self, folder: pathlib.Path):
        self._folder, self._writer = folder, None

    def write(self, step: int, metrics: dict) -> None:
        """Draws a point on each curve, and sees that it is in the file."""
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(str(self._folder))
        with self._writer.as_default(step=step):
            for name, value in metrics.items():
                (tf.summary.text if isinstance(value, str) else tf.summary.scalar)(name, value)
        self._writer.flush()

    def forget_after(self, step: int) -> None:
        """Removes the points after a step, which a run that goes on from there will draw once more, and what a kill left half written."""
        for path in sorted(self._folder.glob("events.out.tfevents.*")):
            kept, whole = [], True
            try:
                for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
                    earlier = tf.compat.v1.Event.FromString(record).step <= step
                    whole &= earlier
                    kept += [record] * earlier
            except tf.errors.DataLossError:
                whole = False
            if not whole:
                unfinished = path.with_name("unfinished")
                with tf.io.TFRecordWriter(str(unfinished)) as writer:
                    for record in kept:
                        writer.write(record)
                unfinished.replace(path)
