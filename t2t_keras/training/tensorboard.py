"""TensorBoard summaries of a run: one point per step, even if the run was killed and resumed."""

import pathlib

import tensorflow as tf


class TensorBoardWriter:
    """Writes summaries to a log folder: numbers as scalars, strings as text.

    Args:
        folder: the log folder; created with the first summary.
        config: Markdown, written as the text `config` whenever the run starts or resumes.
    """

    def __init__(self, folder: pathlib.Path, config: str = ""):
        self._folder, self._config, self._writer = folder, config, None

    def write(self, step: int, metrics: dict) -> None:
        """Writes metrics by name, and flushes them to the file.

        Raises:
            OSError: the file could not be written.
        """
        try:
            if self._writer is None:
                self._writer = tf.summary.create_file_writer(str(self._folder))
            with self._writer.as_default(step=step):
                for name, value in metrics.items():
                    (tf.summary.text if isinstance(value, str) else tf.summary.scalar)(name, value)
            self._writer.flush()
        except tf.errors.OpError as error:
            raise OSError(
                f"Could not write to {self._folder} ({error.message}). Free space there, and run the same command again."
            ) from error

    def start(self, step: int, validated_step: int) -> None:
        """Starts or resumes at a step: removes later points, which the run will write again, and incomplete records.

        Args:
            step: last update of the run so far.
            validated_step: last validated update; later points of `valid/…` are removed.
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
