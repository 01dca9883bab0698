"""Reads the scalars of a run from its TensorBoard event files. It needs no TensorFlow and so starts in a fraction of a second.

An event file is a sequence of records: the length (uint64), its checksum (uint32), the content and the content's checksum (uint32). The
checksums are not verified: a resumed run has removed damaged records already.
"""

import pathlib
import struct
from collections.abc import Iterator

from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.types_pb2 import DT_FLOAT

PATTERN = "events.out.tfevents.*"


def _records(path: pathlib.Path) -> Iterator[bytes]:
    """The records of a file up to the first incomplete one, which a running training may be writing."""
    content = path.read_bytes()
    start = 0
    while start + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, start)
        end = start + 12 + length
        if end + 4 > len(content):
            return
        yield content[start + 12 : end]
        start = end + 4


def read_scalars(folder: pathlib.Path) -> dict[str, dict[int, float]]:
    """Reads every scalar that `tf.summary.scalar` wrote to a folder.

    Args:
        folder: with event files; other files are ignored, and it need not exist.

    Returns:
        {tag: {step: value}}, tags and steps in ascending order. If a step has several values, the last one written counts.
    """
    found: dict[str, dict[int, float]] = {}
    for path in sorted(folder.glob(PATTERN)):
        for record in _records(path):
            try:
                event = Event.FromString(record)
            except DecodeError:
                break
            for value in event.summary.value:
                tensor = value.tensor
                if tensor.dtype == DT_FLOAT and not tensor.tensor_shape.dim and (tensor.float_val or len(tensor.tensor_content) == 4):
                    number = tensor.float_val[0] if tensor.float_val else struct.unpack("<f", tensor.tensor_content)[0]
                    found.setdefault(value.tag, {})[event.step] = number
    return {tag: dict(sorted(points.items())) for tag, points in sorted(found.items())}
