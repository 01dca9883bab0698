"""What the rest of the package asks of a model: the interfaces of an architecture.

Letters: B sentences, R sentences in a search, W beams, S source tokens, T target tokens, D d_model, V vocabulary.
"""

import keras
from keras import ops

from t2t_keras.layers.masks import shift_right
from t2t_keras.model.loss import cross_entropy
from t2t_keras.system.compat import own_names


def make(architecture, options, dtype: str = "float32") -> "SequenceModel":
    """Makes a model of a `registry.Architecture`, with its options, and the name of a Keras dtype policy. Its weights
    have the same names in every process, also those that Keras names by itself. The size of the vocabulary, which
    preparing the data replaces, must not be 0.

    Raises:
        ValueError: the size of the vocabulary is 0, `num_weights` is wrong, or the model lacks `flops`.
    """
    if not options.vocab_size:
        raise ValueError("Expected `vocab_size` above 0 for a model. Received: 0.")
    with own_names():
        model = architecture.model_class()(options, dtype=dtype)
    name, number = type(options).__name__, model.count_params()
    if number != options.num_weights:
        raise ValueError(
            f"Expected `num_weights` of {name} to be the number of weights of {type(model).__name__}, {number:,}. "
            f"Received: {options.num_weights:,}."
        )
    if type(model).flops is SequenceModel.flops:
        raise ValueError(f"Expected a method `flops` of {type(model).__name__}, which counts its operations.")
    return model


class SequenceModel(keras.Model):
    """A model that a run can train for any task.

    A subclass takes the options of its architecture and builds all weights when it is made, with initializers that
    support bfloat16. All randomness comes from `keras.random.SeedGenerator`s, as in `layers.dropout.Dropout`, so that
    runs can be resumed. A call takes the counted columns of a batch, [B, T] int, 0-padded: one array, or a tuple of
    several. A row may be all padding; its logits must be finite.

    Args:
        config: the options, an object of the class that the architecture is registered with.

    Attributes:
        config: the options.
        compiles: whether XLA can compile its training.
    """

    compiles: bool = True

    def __init__(self, config, name: str, **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config

    @property
    def input_dtype(self) -> str:
        """The dtype of the inputs, which Keras's `export` asks for."""
        return "int32"

    def flops(self, rows, *lengths):
        """Counts the floating-point operations of the matrix products in a forward pass, padding included.

        Args:
            rows: number of rows, B. It and the lengths may be numbers or scalar tensors.
            lengths: padded length of each counted column.
        """
        raise NotImplementedError

    @property
    def passes(self) -> int:
        """Number of forward passes over each row in training."""
        return 1

    def memory_cost(self, rows: int, *lengths: int) -> float:
        """Estimates the memory of a forward and backward pass, in arbitrary units, to compare shapes of micro-batches.

        Args:
            rows: number of rows, B.
            lengths: padded length of each counted column.
        """
        return rows * sum(lengths)

    @property
    def embedding_matrix(self):
        """The embeddings of the sub-words, [V, D], for TensorBoard's PROJECTOR tab; `None` shows none."""
        return None

    @property
    def source_embedding_matrix(self):
        """The embeddings of the source's sub-words, if it has a vocabulary of its own."""
        return None


class EncoderDecoder(SequenceModel):
    """A model that translates: training, the search, scoring, alignments and exports use these methods and no others.

    The memory and the state are nests of tensors [B, …]. The search drops rows of both when sentences are finished, and
    never reorders beams: a state that must follow its beam is gathered with `model.beams.follow`, from the `ancestors`
    that `decode` receives.

    `decode` with `state=None` computes whole sentences, for training and scoring; with a state it computes one more
    token, for the search. Both compute the same logits, and the logits of a sentence do not depend on the others.
    """

    def encode(self, source, training=False):
        """Encodes a source [B, S] int, 0-padded, for `decode`. Returns the memory, a nest of tensors [B, …]."""
        raise NotImplementedError

    def initial_state(self, memory, beams: int):
        """Returns the state before the first token.

        Args:
            memory: the result of `encode`.
            beams: number of hypotheses per sentence, W.

        Returns:
            A nest of tensors [B, …], or [B, W, …] for what follows beams. An axis of static size 0 may grow.
        """
        raise NotImplementedError

    def decode(self, target, memory, state=None, position=0, ancestors=None, training=False):
        """Computes the logits of the token after each target token.

        Args:
            target: [B, T] int, 0-padded, starting with BOS. In the search: [R, W] int, the last token of each beam.
            memory: the result of `encode`.
            state: `None`, or the state from the previous `decode` or `initial_state`.
            position: number of tokens before; int or int32 scalar.
            ancestors: in the search, [R, W, position + 1] int. ancestors[w, p] is the beam that read the token at
                position p of the hypothesis of beam w; its last entry is w.
            training: whether to apply dropout.

        Returns:
            The logits, [B, T, V] or [R, W, V] float32, and the next state; anything if `state` is `None`.
        """
        raise NotImplementedError

    def search_memory(self, beams: int, length: int) -> int:
        """Estimates the bytes that a search takes for one sentence: by default those of logits, to which a large state
        adds.

        Args:
            beams: number of hypotheses, W.
            length: maximum length of a translation, T.
        """
        return 12 * beams * self.config.vocab_size

    def align(self, target, memory):
        """Aligns a target with its source. Optional: a model without alignments does not define it.

        Args:
            target: [B, T] int, starting with BOS.
            memory: the result of `encode`.

        Returns:
            [B, T, S] float32; rows sum to 1. Row t belongs to the token after target t.
        """
        raise NotImplementedError

    @property
    def aligns(self) -> bool:
        """Whether the model defines `align`."""
        return type(self).align is not EncoderDecoder.align

    def cross_entropy(self, source, target, label_smoothing: float, training=False) -> tuple:
        """Sums the loss of section 5.4 over all target tokens.

        Args:
            source: [B, S] int.
            target: [B, T] int, not shifted.
            label_smoothing: ε.
            training: whether to apply dropout.

        Returns:
            The smoothed cross entropy and the negative log likelihood, [] float32 in nats. Only the first needs a
            gradient.
        """
        logits = self((source, shift_right(target)), training=training)
        return tuple(ops.sum(losses) for losses in cross_entropy(logits, target, label_smoothing))

    def call(self, inputs, training=False):
        """Computes logits [B, T, V] float32 from a source [B, S] and a shifted target [B, T]."""
        source, target = inputs
        return self.decode(target, self.encode(source, training=training), training=training)[0]
