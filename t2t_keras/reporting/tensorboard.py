"""TensorBoard summaries of a run: one point per step, even if the run was killed and resumed."""

import contextlib
import errno
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf
from tensorboard.plugins.hparams import metadata as hparams_metadata

from t2t_keras.reporting import event_files, scalars
from t2t_keras.reporting.hparams import comparable
from t2t_keras.system.files import replacing

_COPIED_BYTES = 2**20


def _content(value) -> tuple:
    """What a summary's value says, for comparing it with another one."""
    plugin = value.metadata.plugin_data
    of_hparams = plugin.plugin_name == hparams_metadata.PLUGIN_NAME
    content = comparable(plugin.content) if of_hparams else plugin.content
    return value.tag, content, tf.make_ndarray(value.tensor).tolist()


def _parts(path: pathlib.Path, stays: Callable) -> list[list[int]]:
    """Returns the parts of an event file whose events `stays` accepts, as bytes [begin, end]. The file ends at its
    first damaged or incomplete record; only one is in memory at a time.
    """
    parts, end = [], 0
    with contextlib.suppress(tf.errors.DataLossError):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            begin, end = end, end + event_files.FRAME_BEFORE + len(record) + event_files.FRAME_AFTER
            if not stays(tf.compat.v1.Event.FromString(record)):
                continue
            if parts and parts[-1][1] == begin:
                parts[-1][1] = end
            else:
                parts.append([begin, end])
    return parts


def _write_value(name: str, value, description: Callable[[str], str | None]) -> None:
    if isinstance(value, str):
        tf.summary.text(name, value)
    elif isinstance(value, np.ndarray) and value.dtype == np.uint8:
        tf.summary.image(name, value, max_outputs=len(value))
    elif isinstance(value, np.ndarray):
        tf.summary.histogram(name, value)
    else:
        tf.summary.scalar(name, value, description=description(name))


class TensorBoardWriter:
    """Writes summaries to a log folder, which is created with the first one.

    Numbers become scalars, strings text, uint8 arrays [images, height, width, channels] images, and other arrays
    histograms.

    Args:
        config: Markdown, written as the text `config` whenever the run starts or resumes.
        once: serialized `Summary` protos of one value each, written when the run starts; again on resuming only if they
            changed.
        graph: returns a `tf.Graph` for the GRAPHS tab; called after the first metrics, if the folder has no graph yet.
        descriptions: from the name of a number to its description; see `scalars.descriptions`.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        config: str = "",
        once: Sequence[bytes] = (),
        graph: Callable[[], tf.Graph] | None = None,
        descriptions: Callable[[str], str | None] = scalars.DESCRIPTIONS.get,
    ):
        self._folder, self._config, self._graph, self._descriptions = folder, config, graph, descriptions
        self._writer, self._lacks_graph = None, False
        summaries = (tf.compat.v1.Summary.FromString(summary) for summary in once)
        self._once = {summary.value[0].tag: summary for summary in summaries}

    def write(self, step: int, metrics: dict) -> None:
        """Writes metrics by name, and flushes them to the file."""
        self._in_file(step, lambda: [_write_value(*metric, self._descriptions) for metric in metrics.items()])
        if self._lacks_graph:  # Not before the first update, which need not wait for it.
            self._in_file(step, lambda: [tf.summary.graph(self._graph())])
            self._lacks_graph = False

    def _in_file(self, step: int, write: Callable[[], list]) -> None:
        """Calls a function that writes a record for each item of its result."""
        with self._readable_errors():
            if self._writer is None:
                self._others, self._end = self._files(), 0
                self._writer = tf.summary.create_file_writer(str(self._folder))
            with self._writer.as_default(step=step):
                number = len(write())
            self._writer.flush()
            self._check_written(number)

    def _files(self) -> set[pathlib.Path]:
        return set(event_files.paths(self._folder))

    def _check_written(self, number: int) -> None:
        """Checks that so many records have been written. Of one larger than a buffer, TensorFlow ignores that the disk
        is full.
        """
        for path in self._files() - self._others:
            ends = [end for _, end in event_files.records(path, self._end)]
            if len(ends) < number or ends[-1] != path.stat().st_size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._end = ends[-1]

    @contextlib.contextmanager
    def _readable_errors(self) -> Iterator[None]:
        """Turns the errors of the system and of TensorFlow into a readable `OSError`."""
        try:
            yield
        except (OSError, tf.errors.OpError) as error:
            if isinstance(error, OSError):
                reason = error.strerror
            else:  # TensorFlow begins its messages with names of nodes in braces, and adds lines.
                reason = re.sub(r"^\{\{.*?\}\} ", "", error.message.splitlines()[0])
            raise OSError(
                f"Could not write to {self._folder} ({reason}). Free space, or give permission, and run the same "
                "command again."
            ) from error

    def start(self, step: int, validated_step: int) -> None:
        """Starts or resumes after the last update of the run so far: removes later points, which the run will write
        again, those of `valid/…` from after `validated_step`, and incomplete records.
        """
        with self._readable_errors():
            missing, has_graph = self._remove_after(step, validated_step)
        if self._config:
            self._in_file(step, lambda: [tf.summary.text("config", self._config)])
        if missing:
            summaries = [summary.SerializeToString() for summary in missing]
            self._in_file(step, lambda: [tf.summary.experimental.write_raw_pb(summary) for summary in summaries])
        self._lacks_graph = self._graph is not None and not has_graph

    def _remove_after(self, step: int, validated_step: int) -> tuple[list, bool]:
        """Returns the summaries of `once` that the files lack, and whether the files have a graph."""
        missing, has_graph = dict(self._once), False

        def stays(event) -> bool:
            nonlocal has_graph
            if event.HasField("graph_def"):
                first, has_graph = not has_graph, True
                return first
            for value in event.summary.value:
                if value.tag in self._once:
                    # Another one is of former options, or was written again after a kill.
                    same = value.tag in missing and _content(value) == _content(missing[value.tag].value[0])
                    if same:
                        del missing[value.tag]
                    return same
            of_validation = any(value.tag.startswith("valid/") for value in event.summary.value)
            return event.step <= (validated_step if of_validation else step)

        for path in event_files.paths(self._folder):
            kept = _parts(path, stays)
            if kept != [[0, path.stat().st_size]]:
                with path.open("rb") as source, replacing(path) as file:
                    for begin, end in kept:
                        source.seek(begin)
                        for first in range(begin, end, _COPIED_BYTES):
                            file.write(source.read(min(_COPIED_BYTES, end - first)))
        return list(missing.values()), has_graph
