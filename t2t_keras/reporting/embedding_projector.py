"""The embedding matrix of each vocabulary with its sub-words as labels, for TensorBoard's PROJECTOR tab."""

import pathlib

import numpy as np
from google.protobuf import text_format
from tensorboard.plugins.projector import ProjectorConfig

from t2t_keras.system.files import write_whole

FOLDER, VECTORS, LABELS = "projector", "vectors.tsv", "subwords.tsv"
CONFIG = "projector_config.pbtxt"  # TensorBoard looks for this name beside the event files.
MAX_SUBWORDS = 5000  # Writing them takes a second or two. The most frequent ones come first.


def write(
    logs: pathlib.Path,
    pieces: tuple[str, ...],
    matrix: np.ndarray,
    source: tuple[tuple[str, ...], np.ndarray] | None = None,
) -> None:
    """Writes the embeddings, [V, D], of the first `MAX_SUBWORDS` sub-words as text to the folder of the event files;
    https://projector.tensorflow.org reads it too. `source` has those of the source, if it has a vocabulary of its own.
    """
    folder, config = logs / FOLDER, ProjectorConfig()
    folder.mkdir(parents=True, exist_ok=True)
    for prefix, words, vectors in [("", pieces, matrix), *([("source_", *source)] if source else [])]:
        labels = [
            f"{word.replace(chr(9), '<tab>').replace(chr(10), '<newline>')}\t{index}"
            for index, word in enumerate(words[:MAX_SUBWORDS])
        ]
        rows = ["\t".join(f"{value:.4g}" for value in row) for row in vectors[:MAX_SUBWORDS].tolist()]
        write_whole(folder / f"{prefix}{LABELS}", "\n".join(["sub-word\tid", *labels, ""]).encode())
        write_whole(folder / f"{prefix}{VECTORS}", "\n".join([*rows, ""]).encode())
        paths = {"tensor_path": f"{FOLDER}/{prefix}{VECTORS}", "metadata_path": f"{FOLDER}/{prefix}{LABELS}"}
        config.embeddings.add(tensor_name=f"{prefix}embedding", **paths)
    write_whole(logs / CONFIG, text_format.MessageToString(config).encode())
