"""Reads the scalars of a run from its TensorBoard event files. It needs no TensorFlow and so starts in a fraction of a
second.

An event file is a sequence of records: the length (uint64), its checksum (uint32), the content and the content's
checksum (uint32). The checksums are not verified: a resumed run has removed damaged records already.
"""

import os
import pathlib
import re
import struct
from collections.abc import Iterator

from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.types_pb2 import DT_FLOAT

PATTERN = "events.out.tfevents.*"
FRAME_BEFORE, FRAME_AFTER = 12, 4  # Bytes of a record before and after its content.
MAX_RECORD = 2**26  # Bytes. The content of a longer one is not read: it has no scalars of a run.


def paths(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the event files of a folder, in the order in which they were begun, without pipes: opening one would wait
    for somebody to write into it.
    """
    return sorted((path for path in folder.glob(PATTERN) if path.is_file()), key=_order)


def _order(path: pathlib.Path) -> list:
    """Sorts files as they were begun: their names have the time, the process and its number of files so far, of any
    number of digits.
    """
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path.name)]


def records(path: pathlib.Path, start: int) -> Iterator[tuple[bytes, int]]:
    """The records from a byte on, and where each ends, up to the first incomplete one, which a running training may be
    writing. Very long ones come as empty ones.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(start)
        while start + FRAME_BEFORE <= size:
            (length,) = struct.unpack_from("<Q", file.read(FRAME_BEFORE))
            start += FRAME_BEFORE + length + FRAME_AFTER
            if start > size:
                return
            if length > MAX_RECORD:
                file.seek(start)
                yield b"", start
                continue
            yield file.read(length + FRAME_AFTER)[:length], start


class ScalarReader:
    """Reads every scalar that `tf.summary.scalar` wrote to a folder, which need not exist; other files are ignored. It
    reads no record twice, and holds one at a time.
    """

    def __init__(self, folder: pathlib.Path):
        self._folder, self._found, self._ends = folder, {}, {}

    def read(self) -> dict[str, dict[int, float]]:
        """Reads what has been written since the last call. Returns all scalars so far: {tag: {step: value}}, tags and
        steps in ascending order. If a step has several values, the last one written counts.
        """
        for path in paths(self._folder):
            for record, end in records(path, self._ends.get(path, 0)):
                try:
                    event = Event.FromString(record)
                except DecodeError:
                    break
                self._ends[path] = end
                for value in event.summary.value:
                    tensor = value.tensor
                    if tensor.dtype != DT_FLOAT or tensor.tensor_shape.dim:
                        continue
                    packed = struct.unpack("<f", tensor.tensor_content) if len(tensor.tensor_content) == 4 else ()
                    if numbers := tensor.float_val or packed:
                        self._found.setdefault(value.tag, {})[event.step] = numbers[0]
        return {tag: dict(sorted(points.items())) for tag, points in sorted(self._found.items())}


def read_scalars(folder: pathlib.Path) -> dict[str, dict[int, float]]:
    """Reads every scalar of a folder; see `ScalarReader`."""
    return ScalarReader(folder).read()
