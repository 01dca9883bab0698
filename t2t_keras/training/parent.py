"""Starts a run from the weights of another one, its parent."""

import numpy as np

from t2t_keras.config import DataConfig
from t2t_keras.model.protocols import SequenceModel, make
from t2t_keras.runs import checkpoint as checkpoints
from t2t_keras.runs import registry
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.runs.weights import Left, assign
from t2t_keras.system.log import logger
from t2t_keras.text import vocabulary
from t2t_keras.text.subwords import Subwords


def start(parent: SavedRun, checkpoint: str, model: SequenceModel, tokenizer: Subwords, optimizer=None) -> None:
    """Starts a model, whose sub-words are those of `tokenizer`, from the weights of another run, and logs what does not
    match; see `checkpoint.start`.

    Where the sub-words differ, the rows of those that both runs have are copied, and the others keep their values. The
    `optimizer` is given if it starts as the parent's, whose sub-words are then the same; see
    `checkpoint.start_with_optimizer`.
    """
    if optimizer:
        description = checkpoints.start_with_optimizer(parent.folder, checkpoint, model, optimizer)
        logger.info(f"Starting from the {description}.")
        return
    before = vocabulary.load_sides(*parent.subwords())
    if (before.pieces, before.source.pieces) == (tokenizer.pieces, tokenizer.source.pieces):
        description, left = checkpoints.start(parent.folder, checkpoint, model)
    else:
        description, left = _start_with_other_subwords(parent, checkpoint, model, tokenizer, before)
    logger.info(f"Starting from the {description}.")
    if left.unset or left.unused:
        logger.info(f"{len(model.weights) - len(left.unset):,} of {len(model.weights):,} weights come from the parent.")
    unset, unused = "are not in the parent, and start at random", "of the parent are not used"
    for names, what in ((left.unset, unset), (left.unused, unused)):
        if names:
            logger.warning(f"{len(names):,} weight(s) {what}: {', '.join(names[:5])}{', …' * (len(names) > 5)}.")


def warn_of_text(parent: SavedRun, data: DataConfig, learned_positions: int) -> None:
    """Warns if the text differs from that of a parent in what its weights depend on: it has no tags, or a longer
    `max_length` for a model with `learned_positions`.
    """
    before = parent.data
    if learned_positions and data.max_length > before.max_length:
        logger.warning(
            f"Positions beyond {before.max_length} were not trained in {parent.folder}. Received: "
            f"max_length={data.max_length}."
        )
    if before.source_tag and not data.source_tag:
        logger.warning(f"{parent.folder} was trained with source_tag={before.source_tag}. Received text without tags.")


def _start_with_other_subwords(
    parent: SavedRun, checkpoint: str, model: SequenceModel, tokenizer: Subwords, before: Subwords
) -> tuple[str, Left]:
    """Starts a model whose sub-words are not its parent's, `before`. Returns a description, and what does not match."""
    trained = make(registry.architecture(parent.architecture), parent.model)
    description, _ = checkpoints.load(parent.folder, checkpoint, trained)
    variables = checkpoints.model_variables(model)
    stored = {name: np.array(variable) for name, variable in checkpoints.model_variables(trained).items()}
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
        # Of pieces with the same name, such as <s> in NLLB-200, the first is a special token.
        pieces, known = ours.pieces, {piece: row for row, piece in reversed([*enumerate(theirs.pieces)])}
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
    return description, assign(variables, arrays, source=parent.folder, partial=True)
