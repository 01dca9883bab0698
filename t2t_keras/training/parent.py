"""Starts a run from the weights of another one, its parent."""

import pathlib

import numpy as np

from t2t_keras.config import DataConfig
from t2t_keras.model.protocols import SequenceModel, make
from t2t_keras.runs import checkpoint, registry, run_folder
from t2t_keras.runs.weights import Left, assign
from t2t_keras.system.log import logger
from t2t_keras.text import vocabulary
from t2t_keras.text.subwords import Subwords


def start(parent: pathlib.Path, which: str, model: SequenceModel, tokenizer: Subwords, optimizer=None) -> None:
    """Starts a model from the weights of another run, and logs what does not match.

    Where the sub-words differ, the rows of those that both runs have are copied, and the others keep their values.

    Args:
        parent: folder of the other run.
        which: its weights, see `checkpoint.load`.
        model: the model.
        tokenizer: its sub-words.
        optimizer: its optimizer, if that starts as the parent's, whose sub-words are then the same; see
            `checkpoint.start_with_optimizer`.

    Raises:
        FileNotFoundError, ValueError: see `checkpoint.start`.
    """
    if optimizer:
        logger.info(f"Starting from the {checkpoint.start_with_optimizer(parent, which, model, optimizer)}.")
        return
    before = vocabulary.load_sides(*run_folder.read_subwords(parent))
    if (before.pieces, before.source.pieces) == (tokenizer.pieces, tokenizer.source.pieces):
        description, left = checkpoint.start(parent, which, model)
    else:
        description, left = _start_with_other_subwords(parent, which, model, tokenizer, before)
    logger.info(f"Starting from the {description}.")
    if left.unset or left.unused:
        logger.info(f"{len(model.weights) - len(left.unset):,} of {len(model.weights):,} weights are those of the run.")
    for names, what in (
        (left.unset, "are not in the parent, and start at random"),
        (left.unused, "of the parent are not used"),
    ):
        if names:
            logger.warning(f"{len(names):,} weight(s) {what}: {', '.join(names[:5])}{', …' * (len(names) > 5)}.")


def warn_of_text(parent: pathlib.Path, data: DataConfig, learned_positions: int) -> None:
    """Warns if the text differs from that of a parent in what its weights depend on.

    Args:
        parent: folder of the parent.
        data: names the text.
        learned_positions: number of learned position embeddings.
    """
    (before,) = run_folder.groups(parent, "data")
    if learned_positions and data.max_length > before.max_length:
        logger.warning(
            f"Positions beyond {before.max_length} were not trained in {parent}. Received: "
            f"max_length={data.max_length}."
        )
    if before.source_tag and not data.source_tag:
        logger.warning(f"{parent} was trained with source_tag={before.source_tag}. Received text without tags.")


def _start_with_other_subwords(
    parent: pathlib.Path, which: str, model: SequenceModel, tokenizer: Subwords, before: Subwords
) -> tuple[str, Left]:
    """Starts a model whose sub-words are not those of its parent, `before`. Returns a description, and what does not
    match.
    """
    (options,) = run_folder.groups(parent, "model")
    trained = make(registry.architecture(run_folder.architecture_of(parent)), options)
    description, _ = checkpoint.load(parent, which, trained)
    variables = checkpoint.model_variables(model)
    stored = {name: np.array(variable) for name, variable in checkpoint.model_variables(trained).items()}
    arrays = dict(stored)
    theirs_of_source = (
        trained.embedding_matrix if trained.source_embedding_matrix is None else trained.source_embedding_matrix
    )
    sides = (
        (model.embedding_matrix, tokenizer, trained.embedding_matrix, before),
        (model.source_embedding_matrix, tokenizer.source, theirs_of_source, before.source),
    )
    for matrix, ours, their_matrix, theirs in sides:
        if matrix is None or their_matrix is None:
            continue
        pieces, known = ours.pieces, {piece: row for row, piece in enumerate(theirs.pieces)}
        rows = [row for row, piece in enumerate(pieces) if piece in known]
        layer, their_layer = (f"model/{each.path.rpartition('/')[0]}/" for each in (matrix, their_matrix))
        for name in [name for name in variables if name.startswith(layer)]:
            if (their_name := name.replace(layer, their_layer)) in stored:
                values = np.array(variables[name])
                values[rows] = stored[their_name][[known[pieces[row]] for row in rows]]
                arrays[name] = values
        logger.info(
            f"{len(rows):,} of {len(pieces):,} sub-words in {layer.split('/')[-2]} are the parent's; the others start "
            "at random."
        )
    return description, assign(variables, arrays, source=parent, partial=True)
