"""Evaluation (section 6.1): translates a test set and scores the translations."""

import time
from collections.abc import Callable

from t2t_keras.config import DecodeConfig
from t2t_keras.decoding.translator import Translator, translate_lines
from t2t_keras.evaluation import scores
from t2t_keras.evaluation.cross_entropy import perplexity
from t2t_keras.system.log import logger


def evaluate(
    translator: Translator,
    sources: list[str],
    *references: list[str],
    lowercase: bool = False,
    tokenize: str = "13a",
    samples: int = 0,
    translate: Callable[[list[str]], list[str]] | None = None,
) -> tuple[list[str], dict]:
    """Translates a test set and scores the translations (section 6.1).

    Args:
        translator: the model.
        sources: sentences.
        references: one or more lists of translations of the sources.
        lowercase: whether to ignore case.
        tokenize: name of a sacreBLEU tokenizer.
        samples: number of bootstrap samples for confidence intervals; 0: none.
        translate: translates sentences, such as with reranking; `None`: by the search of `translator`.

    Returns:
        The translations, and a dictionary: the results of `scores.scores`, the "perplexity" per sub-word of the
        references, "decode_seconds", "beam_size" and "alpha", and each other option of the search that is not the
        default.
    """
    scores.require(tokenize=tokenize)
    scores.check(sources, references)
    started = time.monotonic()
    if translate:
        hypotheses = translate(sources)
    else:
        results = list(translate_lines(translator, sources, batch_size=translator.limits.batch_size))
        if truncated := sum(result["truncated"] for result in results):
            longest = f"`max_input`={translator.config.max_input:,} sub-words, end token included"
            logger.warning(f"{truncated:,} sources are longer than {longest}. Only their beginnings were translated.")
        hypotheses = [result["text"] for result in results]
    seconds = time.monotonic() - started
    search, defaults = (config.of_translations for config in (translator.config, DecodeConfig()))
    return hypotheses, {
        **scores.scores(hypotheses, *references, lowercase=lowercase, tokenize=tokenize, samples=samples),
        "perplexity": perplexity(translator, sources, *references),
        "decode_seconds": round(seconds, 2),
        **{name: value for name, value in search.items() if name in ("beam_size", "alpha") or value != defaults[name]},
    }
