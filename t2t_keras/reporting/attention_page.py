"""A web page in one file that shows attention weights: choose a sentence, a layer and heads, and point at a word."""

import math
import pathlib
from collections.abc import Sequence

import numpy as np

from t2t_keras.reporting import pages
from t2t_keras.reporting.attention import KINDS, SentenceAttention, Tokens

TEMPLATE = pathlib.Path(__file__).with_name("attention_page.html")
SCALE = 1000  # Weights are whole thousandths, which keeps the page small.


def page(attentions: Sequence[SentenceAttention]) -> str:
    """Returns a page that needs no network and no other file.

    Args:
        attentions: weights of one or more sentences, by sub-words: the page merges them to words itself.

    Raises:
        ValueError: there is no sentence.
    """
    if not attentions:
        raise ValueError("Expected the attention of one sentence or more. Received none.")
    return pages.fill(TEMPLATE, {"scale": SCALE, "sentences": [_sentence(attention) for attention in attentions]})


def _sentence(attention: SentenceAttention) -> dict:
    sides = {"source": attention.source, "target": attention.target, "input": attention.target_input}
    return {
        **{name: _side(tokens) for name, tokens in sides.items()},
        "weights": {kind: _thousandths(attention.weights(kind), causal=kind == "decoder") for kind in KINDS},
    }


def _side(tokens: Tokens) -> dict:
    return {"pieces": tokens.pieces, "words": tokens.words, "sizes": tokens.sizes}


def _thousandths(weights: np.ndarray, causal: bool) -> list:
    """[L, H, T, S] → for each layer and head one list of whole numbers, row after row; of `causal` weights without the
    zeros.
    """
    rounded = np.rint(weights * SCALE).astype(int)
    if causal:
        rows, columns = np.tril_indices(rounded.shape[-1])
        return rounded[:, :, rows, columns].tolist()
    return rounded.reshape(*rounded.shape[:2], math.prod(rounded.shape[2:])).tolist()
