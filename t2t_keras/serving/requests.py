"""Requests to a loaded model, a `Signatures` or a `LoadedExport`: their inputs, and errors in their outputs."""

from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from t2t_keras.config import SampleConfig
from t2t_keras.decoding.sampling import seed_of_line
from t2t_keras.serving.protocol import OPTIONS, SAMPLES, options_for
from t2t_keras.text.phrases import Request


def option_inputs(text, **options) -> dict:
    """Returns the inputs of `translate_with_options` for sentences [B] string.

    Args:
        text: the sentences.
        options: inputs with a value for all sentences, or a tensor [B] with one for each. Others are as if no option
            were given.
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


def check(outputs: dict, texts: Iterable[str]) -> None:
    """Raises `ValueError` with the first error in the outputs for some sentences."""
    for text, error in zip(texts, outputs["error"].numpy(), strict=True):
        if error:
            raise ValueError(f"{error.decode().strip()} The sentence is: {text[:80]!r}.")


def checked(outputs: dict, text) -> dict:
    """Returns `text`, `score` and `truncated` in the outputs for sentences [B] string; raises `ValueError` if there is
    an error.
    """
    check(outputs, (line.decode("utf-8", "replace") for line in text.numpy()))
    return {name: outputs[name] for name in ("text", "score", "truncated")}


def sampler(signatures, config: SampleConfig) -> Callable:
    """Returns a function from lines [B] string and their numbers [B] int64, from 0, to their draws.

    Args:
        signatures: object with `sample`.
        config: options of the draws. Those of a line depend on its number.
    """

    def sample(text, number) -> dict:
        seed = tf.constant(seed_of_line(config.seed, number.numpy()))
        return checked(signatures.sample(**sample_inputs(text, seed, config)), text)

    return sample


def translate_requests(signatures, requests: Sequence[Request], n_best: int = 0) -> dict:
    """Translates sentences with phrases of their own.

    Args:
        signatures: object with `translate_with_options`.
        requests: the sentences, B.
        n_best: number of translations of each; 0 for the best alone, without an axis for them.

    Returns:
        `text`, `score` and `constraints_met`, each [B, n_best] or [B], and `truncated`, as `translate_with_options`
        returns them.

    Raises:
        ValueError: a sentence has an error, such as a phrase with too many sub-words.
    """
    inputs = options_for(requests, n_best=n_best or 1)
    outputs = signatures.translate_with_options(**{name: tf.constant(values) for name, values in inputs.items()})
    check(outputs, inputs["text"])
    names = ("text", "score", "constraints_met")
    chosen = {name: outputs[name][:, :n_best] if n_best else outputs[name][:, 0] for name in names}
    return chosen | {"truncated": outputs["truncated"]}
