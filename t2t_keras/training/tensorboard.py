"""TensorBoard's curves of a run: one point for each step, however often the run was killed and resumed."""

import pathlib

import tensorflow as tf


class TensorBoardWriter:
    """Writes points to a folder that TensorBoard reads: numbers as curves, strings as text.

    Args:
        folder: made when the first point is written.
        config: Markdown, written as the text `config` wherever the run starts or resumes.
    """

    def __init__(self, folder: pathlib.Path, config: str = ""):
        self._folder, self._config, self._writer = folder, config, None

    def write(self, step: int, metrics: dict) -> None:
        """Draws a point on each curve, and sees that it is in the file."""
        try:
            if self._writer is None:
                self._writer = tf.summary.create_file_writer(str(self._folder))
            with self._writer.as_default(step=step):
                for name, value in metrics.items():
                    (tf.summary.text if isinstance(value, str) else tf.summary.scalar)(name, value)
            self._writer.flush()
        except tf.errors.OpError as error:
            raise OSError(f"Could not write to {self._folder} ({error.message}). Make room, and run the same command again.") from error

    def start(self, step: int, validated_step: int) -> None:
        """Starts or resumes at a step: removes the points that the run will write again, and what a kill left half written.

        Args:
            step: the last update of the run so far.
            validated_step: the last validated update: `valid/…` is kept up to there.
        """
        self._remove_after(step, validated_step)
        if self._config:
            self.write(step, {"config": self._config})

    def _remove_after(self, step: int, validated_step: int) -> None:

        def stays(event) -> bool:
            of_validation = any(value.tag.startswith("valid/") for value in event.summary.value)
            return event.step <= (validated_step if of_validation else step)

        for path in sorted(self._folder.glob("events.out.tfevents.*")):
            kept, whole = [], True
            try:
                for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
                    stayed = stays(tf.compat.v1.Event.FromString(record))
                    whole &= stayed
                    kept += [record] * stayed
            except tf.errors.DataLossError:
                whole = False
            if not whole:
                unfinished = path.with_name("unfinished")
                with tf.io.TFRecordWriter(str(unfinished)) as writer:
                    for record in kept:
                        writer.write(record)
                unfinished.replace(path)
