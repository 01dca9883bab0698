"""Requests to a loaded model, a `Signatures` or a `LoadedExport`: their inputs, and errors in their outputs."""

import json
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.config import SampleConfig
from t2t_keras.decoding.sampling import seed_of_line
from t2t_keras.serving import terms
from t2t_keras.serving.client import Predict
from t2t_keras.serving.protocol import OPTIONS, SAMPLES, SCORES, Translation
from t2t_keras.system.tensorflow import without_retracing_warnings
from t2t_keras.text.request import Request
from t2t_keras.text.spelling import word_numbers


def option_inputs(text, **options) -> dict:
    """Returns the inputs of `translate_with_options` for sentences [B] string. Each of the `options` has a value for
    all sentences, or a tensor [B] with one for each; others are as if no option were given.
    """
    inputs = {
        name: value if tf.is_tensor(value) else tf.fill(tf.shape(text), value)
        for name, value in (OPTIONS | options).items()
    }
    return {"text": text, **inputs}


def sample_inputs(text, seed, config: SampleConfig) -> dict:
    """Returns the inputs of `sample` for sentences [B] string with seeds [B] int64, and the same options for all."""
    usual = {name: value for name, value in SAMPLES.items() if name != "seed"}
    values = {name: type(value)(getattr(config, name, value)) for name, value in usual.items()}
    return {"text": text, "seed": seed, **{name: tf.fill(tf.shape(text), value) for name, value in values.items()}}


def refused(error: str | bytes, text: str) -> ValueError:
    """Returns the exception for the error of a sentence."""
    error = error.decode() if isinstance(error, bytes) else error
    return ValueError(f"{error.strip()} The sentence is: {text[:80]!r}.")


def check(outputs: dict, texts: Iterable[str]) -> None:
    """Raises `ValueError` with the first error in the outputs for some sentences."""
    for text, error in zip(texts, outputs["error"].numpy(), strict=True):
        if error:
            raise refused(error, text)


def checked(outputs: dict, text) -> dict:
    """Returns `text`, `score` and `truncated` in the outputs for sentences [B] string; raises `ValueError` if there is
    an error.
    """
    check(outputs, (line.decode("utf-8", "replace") for line in text.numpy()))
    return {name: outputs[name] for name in ("text", "score", "truncated")}


def sampler(signatures, config: SampleConfig) -> Callable:
    """Returns a function from lines [B] string and their numbers [B] int64, from 0, to their draws, which depend on the
    number; `signatures` is an object with `sample`.
    """

    def sample(text, number) -> dict:
        seed = tf.constant(seed_of_line(config.seed, number.numpy()))
        return checked(signatures.sample(**sample_inputs(text, seed, config)), text)

    return sample


def predictor(model) -> Predict:
    """Returns a function that calls the signatures of a model in this process as `client.connect` those of a server."""

    @without_retracing_warnings()  # A server loads many models.
    def predict(signature: str, inputs: dict[str, list]) -> dict:
        outputs = getattr(model, signature)(**{name: tf.constant(values) for name, values in inputs.items()})
        return {name: values.numpy() for name, values in outputs.items()}

    return predict


def translate_with_terms(model, requests: Sequence[Request], n_best: int = 1, **options) -> list[list[Translation]]:
    """Translates sentences with phrases and terms of their own, as `terms.predicted` does, by an object with
    `translate_with_options`, `score` and `config`. Raises `ValueError` if a sentence has an error, such as a phrase
    with too many sub-words.
    """
    beam_size = model.config.beam_size if any(request.terms for request in requests) else 1
    found = terms.predicted(predictor(model), requests, n_best, beam_size=beam_size, **options)
    for request, row in zip(requests, found, strict=True):
        if isinstance(row, str):
            raise refused(row, request.text)
    return found


def translate_requests(
    signatures, requests: Sequence[Request], n_best: int = 0, alignment: bool = False, word_scores: bool = False
) -> dict:
    """Translates B sentences as `translate_with_terms` does, by an object that has `languages` too. Without `n_best`,
    the best alone is returned, without an axis for them.

    Returns:
        `text`, `score`, `constraints_met` and `doubtful`, each [B, n_best] or [B], and `truncated`. With `alignment`,
        also that as `pharaoh` writes it; empty where the source is too long for one. With `word_scores`, also
        `SCORES` of a translation as a JSON object.

    Raises:
        ValueError: a sentence has an error, such as a phrase with too many sub-words; or the model cannot align.
    """
    options = {"alignment": alignment, "word_scores": word_scores, "lenient": True}
    rows = translate_with_terms(signatures, requests, n_best or 1, **options)
    names = ("text", "score", "constraints_met", "doubtful")
    outputs = {name: [[getattr(each, name) for each in row] for row in rows] for name in names}
    if alignment:
        found = [each for row in rows for each in row]
        if any(each.source_pieces for each in found) and not any(np.any(each.alignment) for each in found):
            raise ValueError("The architecture of this model does not align. Leave out `alignment`.")
        first = int(bool(signatures.languages))
        outputs["alignment"] = [
            [pharaoh(request.text, each.text, each.source_pieces, each.pieces, each.alignment, first) for each in row]
            for request, row in zip(requests, rows, strict=True)
        ]
    if word_scores:
        outputs["word_scores"] = [
            [json.dumps({name: getattr(each, name) for name in SCORES}) for each in row] for row in rows
        ]
    if not n_best:
        outputs = {name: [row[0] for row in values] for name, values in outputs.items()}
    outputs["truncated"] = [row[0].truncated for row in rows]
    return {name: tf.constant(values) for name, values in outputs.items()}


def pharaoh(
    source: str, target: str, source_pieces: Sequence[str], pieces: Sequence[str], weights: np.ndarray, first: int = 0
) -> str:
    """Aligns the words of a sentence and its translation, which spaces separate, in Pharaoh's format.

    Args:
        source, target: the texts.
        source_pieces, pieces: their sub-words, with end tokens.
        weights: [T, S] float32, the attention of each sub-word of the translation to those of the source, padded.
        first: number of sub-words before those of the text, as that of the language.

    Returns:
        A link such as "3-2" for each word of the translation: 3 is the number, from 0, of the word of the source that
        it attends to most, as the mean over its sub-words of the sum over those of the source's word. Empty if the
        sub-words have other words than the texts, as after a normalization.
    """
    of_source, of_target = (
        word_numbers(side[first : len(side) - (side[-1:] == ["</s>"])], text)
        for side, text in ((list(source_pieces), source), (list(pieces), target))
    )
    if of_source is None or of_target is None:
        return ""
    rows = weights[first : first + len(of_target), first : first + len(of_source)]
    by_source_word = np.stack([rows[:, of_source == word].sum(axis=1) for word in range(of_source.max() + 1)], axis=1)
    # The mean over the sub-words of a word has the same maximum as their sum.
    best = [by_source_word[of_target == word].sum(axis=0).argmax() for word in range(of_target.max() + 1)]
    return " ".join(f"{number}-{word}" for word, number in enumerate(best))
