"""Several models that translate as one: the mean of their predictions at each step."""

import math
from collections.abc import Sequence

from keras import ops

from t2t_keras.config import check_ensemble
from t2t_keras.model.protocols import EncoderDecoder


def combine(logits: Sequence, weights: Sequence[float], mean: str = "probabilities"):
    """Combines the logits [..., V] float32 of several models, with weights that sum to 1, to such logits.

    With the mean "probabilities", the result is log Σ w P, where one model can make up for another; with "logs", Σ w
    log P, up to a constant, where each model can veto.
    """
    log_probs = ops.log_softmax(ops.stack(logits), axis=-1)
    over_models = (-1, *[1] * (len(log_probs.shape) - 1))
    if mean == "logs":
        return ops.sum(log_probs * ops.reshape(ops.convert_to_tensor(weights, "float32"), over_models), axis=0)
    log_weights = ops.convert_to_tensor([math.log(weight) for weight in weights], "float32")
    return ops.logsumexp(log_probs + ops.reshape(log_weights, over_models), axis=0)


class Ensemble(EncoderDecoder):
    """Translates with several models over one vocabulary, of any sizes and architectures. It costs as much as all of
    them together.

    Args:
        models: the models.
        weights: their weights, positive numbers, which are divided by their sum; empty: all the same.
        mean: how predictions are averaged, by "probabilities" or "logs"; see `combine`.
        sources: for each model, the number of the source that it reads, where models have other sub-words for the same
            text; empty: all read one. With several, `encode` takes a tuple of them, and alignments are those of models
            that read the first.

    Raises:
        ValueError: an argument is invalid, or the models have vocabularies of different sizes.
    """

    def __init__(
        self,
        models: Sequence[EncoderDecoder],
        weights: Sequence[float] = (),
        mean: str = "probabilities",
        sources: Sequence[int] = (),
    ):
        check_ensemble(len(models), weights, mean)
        weights = list(weights) or [1.0] * len(models)
        configs = tuple(model.config for model in models)
        if len({config.vocab_size for config in configs}) > 1:
            received = ", ".join(f"{config.vocab_size:,}" for config in configs)
            raise ValueError(f"Models of an ensemble must have vocabularies of one size. Received: {received}.")
        super().__init__(configs, name="ensemble", dtype=models[0].dtype_policy)
        self.models, self.mean, self.sources = list(models), mean, list(sources) or [0] * len(models)
        self.model_weights = [weight / math.fsum(weights) for weight in weights]
        self.built = True

    def encode(self, source, training=False) -> tuple:
        """Encodes a source, or a tuple of several, with each model; see `EncoderDecoder.encode`."""
        sources = source if isinstance(source, tuple) else (source,)
        return tuple(
            model.encode(sources[number], training=training)
            for model, number in zip(self.models, self.sources, strict=True)
        )

    def initial_state(self, memory: tuple, beams: int) -> tuple:
        """Returns the state of each model; see `EncoderDecoder.initial_state`."""
        return tuple(model.initial_state(read, beams) for model, read in zip(self.models, memory, strict=True))

    def decode(self, target, memory: tuple, state=None, position=0, ancestors=None, training=False) -> tuple:
        """Computes the logits of all models together; see `EncoderDecoder.decode`."""
        states = state or [None] * len(self.models)
        logits, states = zip(
            *(
                model.decode(target, read, state=before, position=position, ancestors=ancestors, training=training)
                for model, read, before in zip(self.models, memory, states, strict=True)
            ),
            strict=True,
        )
        return combine(logits, self.model_weights, self.mean), states

    def search_memory(self, beams: int, length: int) -> int:
        """See `EncoderDecoder.search_memory`."""
        return sum(model.search_memory(beams, length) for model in self.models)

    @property
    def aligns(self) -> bool:
        """Whether a model that reads the first source aligns."""
        return any(model.aligns for model, number in zip(self.models, self.sources, strict=True) if number == 0)

    def align(self, target, memory: tuple):
        """Averages the alignments of the models that align with the first source; see `EncoderDecoder.align`."""
        models = zip(self.models, memory, self.sources, strict=True)
        alignments = [model.align(target, read) for model, read, number in models if model.aligns and number == 0]
        return ops.mean(ops.stack(alignments), axis=0)
