"""The embedding matrix with its sub-words as labels, for TensorBoard's PROJECTOR tab."""

import pathlib

import numpy as np
from google.protobuf import text_format
from tensorboard.plugins.projector import ProjectorConfig

from t2t_keras.files import write_whole

FOLDER, VECTORS, LABELS = "projector", "vectors.tsv", "subwords.tsv"
CONFIG = "projector_config.pbtxt"  # TensorBoard looks for this name beside the event files.
MAX_SUBWORDS = 5000  # Writing them takes a second or two. The most frequent ones come first.


def write(logs: pathlib.Path, pieces: tuple[str, ...], matrix: np.ndarray) -> None:
    """Writes the vectors as text, which https://projector.tensorflow.org reads too.

    Args:
        logs: the folder of the event files.
        pieces: [V], the sub-words.
        matrix: [V, D], their embeddings.

    Raises:
        OSError: a file could not be written.
    """
    folder = logs / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    labels = [
        f"{piece.replace(chr(9), '<tab>').replace(chr(10), '<newline>')}\t{index}" for index, piece in enumerate(pieces[:MAX_SUBWORDS])
    ]
    vectors = ["\t".join(f"{value:.4g}" for value in row) for row in matrix[:MAX_SUBWORDS].tolist()]
    write_whole(folder / LABELS, "\n".join(["sub-word\tid", *labels, ""]).encode())
    write_whole(folder / VECTORS, "\n".join([*vectors, ""]).encode())
    config = ProjectorConfig()
    config.embeddings.add(tensor_name="embedding", tensor_path=f"{FOLDER}/{VECTORS}", metadata_path=f"{FOLDER}/{LABELS}")
    write_whole(logs / CONFIG, text_format.MessageToString(config).encode())
