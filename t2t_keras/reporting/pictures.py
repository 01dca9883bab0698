"""Pictures that a run keeps up to date in its folder and in TensorBoard. A picture that fails never stops the
training.
"""

import itertools
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from t2t_keras.reporting import attention_pictures, curves, embedding_projector, figures
from t2t_keras.reporting.attention import attention_of
from t2t_keras.reporting.event_files import ScalarReader
from t2t_keras.runs.saved_run import LOGS
from t2t_keras.system.log import logger

MAX_PIECES = 40  # Sub-words of a sentence in TensorBoard, with the end token: a larger picture is hard to read there.


class _Attempts:
    """Calls functions that may fail: the first failure under a name is logged as a warning, later ones are not."""

    def __init__(self):
        self._failed = set()

    def __call__(self, name: str, draw: Callable, *args):
        """Returns `draw(*args)`, or None if it fails."""
        try:
            return draw(*args)
        except Exception as error:  # Whatever it is, training continues.
            if name not in self._failed:
                self._failed.add(name)
                logger.warning(f"Could not write {name} ({error}). Training continues without it.")
            return None


def updates(model_dir: pathlib.Path, model, tokenizer) -> Callable[[bool], None]:
    """Returns a function that updates the curves of a run and, if its argument, whether the last validation is the best
    so far, is true, the embedding projector. It never raises.
    """
    attempt, logs = _Attempts(), ScalarReader(model_dir / LOGS)

    def write_projector() -> None:
        own = model.source_embedding_matrix
        source = None if own is None else (tokenizer.source.pieces, own.numpy())
        embedding_projector.write(model_dir / LOGS, tokenizer.pieces, model.embedding_matrix.numpy(), source)

    def update(is_best: bool) -> None:
        attempt(f"the curves of {model_dir}", lambda: curves.update(model_dir, logs.read()))
        if is_best and model.embedding_matrix is not None:
            attempt(f"the embedding projector of {model_dir}", write_projector)

    return update


def _as_image(figure) -> np.ndarray:
    """A figure of matplotlib as pixels, [1, height, width, 3] uint8."""
    figure.set_dpi(80)
    with figures.drawing():
        figure.canvas.draw()
    return np.array(figure.canvas.buffer_rgba())[None, ..., :3]


def attention_images(translator, pairs: Sequence[tuple[str, str]], number: int) -> Callable[[], dict[str, np.ndarray]]:
    """Returns a function that draws how the current weights of a `Translator`, which are not frozen, attend from fixed
    translations to their sources: the first `number` pairs of at most `MAX_PIECES` sub-words.

    It returns a heat map of each head of the last layer, for each pair: {"attention_1": [1, height, width, 3] uint8,
    …}. It never raises. It draws nothing of a model that does not align.
    """
    if not translator.model.aligns:
        return lambda: {}
    attempt = _Attempts()

    def fits(pair: tuple[str, str]) -> bool:
        sides = zip((translator.source_tokenizer, translator.tokenizer), pair, strict=True)
        lengths = [int(side.tokenize([line]).row_lengths()[0]) for side, line in sides]
        return 1 < min(lengths) and max(lengths) <= MAX_PIECES  # A blank sentence has an end token only.

    chosen = list(itertools.islice(filter(fits, pairs), number))

    def draw() -> dict[str, np.ndarray]:
        found = {}
        for index, (source, target) in enumerate(chosen, 1):
            image = attempt(
                "attention to TensorBoard",
                lambda pair: _as_image(attention_pictures.heat_maps(attention_of(translator, *pair))),
                (source, target),
            )
            if image is not None:
                found[f"attention_{index}"] = image
        return found

    return draw
