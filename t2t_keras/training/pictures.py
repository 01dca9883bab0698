"""The pictures that a run keeps up to date in its folder. None of them can stop the training."""

import pathlib
from collections.abc import Callable

from t2t_keras import run_folder
from t2t_keras.log import logger
from t2t_keras.training import embedding_projector
from t2t_keras.visualization import curves


def updates(model_dir: pathlib.Path, model, pieces: tuple[str, ...]) -> Callable[[bool], None]:
    """A function that updates the curves and, after the best validation so far, the embedding projector.

    It never raises: the first time that a picture fails, it warns, and afterwards it is silent about that picture.

    Args:
        model_dir: the run's folder.
        model: a `Transformer`.
        pieces: the sub-words.

    Returns:
        A function of whether the last validation is the best so far.
    """
    failed = set()

    def attempt(name: str, draw: Callable, *args) -> None:
        try:
            draw(*args)
        except Exception as error:  # Whatever it is: a picture is not worth a run.
            if name not in failed:
                failed.add(name)
                logger.warning(f"Could not write {name} of {model_dir} ({error}). Training continues without.")

    def update(better: bool) -> None:
        attempt("the curves", curves.update, model_dir)
        if better:
            attempt(
                "the embedding projector",
                lambda: embedding_projector.write(model_dir / run_folder.LOGS, pieces, model.embedding.matrix.numpy()),
            )

    return update
