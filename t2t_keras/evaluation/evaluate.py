"""Evaluation (section 6.1): translates a test set and scores it."""

import time

from t2t_keras.decoding.translator import Translator, translate_lines
from t2t_keras.evaluation import scores
from t2t_keras.evaluation.perplexity import perplexity


def evaluate(
    translator: Translator,
    sources: list[str],
    *references: list[str],
    lowercase: bool = False,
    tokenize: str = "13a",
    batch_size: int = 64,
) -> tuple[list[str], dict]:
    """Translates and scores (section 6.1), by one reference for each source or several.

    Returns:
        The translations, and what `scores.scores` gives with {"perplexity": per sub-word of the references, "decode_seconds",
        "beam_size", "alpha"}.
    """
    started = time.monotonic()
    hypotheses = [result["text"] for result in translate_lines(translator, sources, batch_size=batch_size)]
    seconds = time.monotonic() - started
    return hypotheses, {
        **scores.scores(hypotheses, *references, lowercase=lowercase, tokenize=tokenize),
        "perplexity": perplexity(translator, sources, *references),
        "decode_seconds": round(seconds, 2),
        "beam_size": translator.config.beam_size,
        "alpha": translator.config.alpha,
    }
