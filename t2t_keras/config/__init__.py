"""All options and their defaults: the Transformer (section 3), other networks, training (section 5), decoding (6.1) and
data (5.1).

`cli.flags` turns each field into a flag, and `--help` prints its help text. This module imports neither TensorFlow nor
Keras.
"""

import dataclasses
import numbers
import re
import reprlib
import sys
from collections.abc import Sequence

from t2t_keras.config import patterns

TEXTS = ("train_source", "train_target", "valid_source", "valid_target")  # Options that name text.
# Options of `DataConfig` that name files, whose contents count.
FILES = (*TEXTS, "subwords_file", "source_subwords_file")
STARTS = ("parent", "encoder_from")  # Options of `TrainConfig` that name a run whose weights a new run starts from.
OF_START = (*STARTS, "embeddings")  # Options of `TrainConfig` that name paths.
# Options of `DataConfig` for any corpus.
TEXT_OPTIONS = (
    "source_tag", "max_length", "subwords", "normalization", "character_coverage", "vocab_sample", "skip_bad_lines",
    "keep_patterns"
)  # fmt: skip
# Former names of options, which version 0.1 still accepts.
FORMER_NAMES = {
    "device_tokens": "micro_batch_tokens",
    "rate_factor": "learning_rate_factor",
    "early_stopping": "best_metric",
    "batch_parts": "buckets_per_update",
}
# The special ids of every vocabulary. Padding (0) differs from unknown (1).
PAD, UNK, BOS, EOS = 0, 1, 2, 3
REPEATED = ("pair", "source", "target", "none")  # What filtering compares with earlier text.
ACTIVATIONS = ("relu", "gelu", "swish")
NORMS = POST, PRE = "post", "pre"  # Where a sub-layer has its layer normalization: after the sum, or before it.
SINUSOIDS = PAPER, TENSOR2TENSOR = "paper", "tensor2tensor"  # Forms of their frequencies; see `layers.positions`.
CELLS = ("gru", "lstm")
ATTENTION_FUNCTIONS = ADDITIVE, SCALED, UNSCALED = "additive", "scaled", "unscaled"

# Choices of the weights of a run, beside the number of an update.
CHECKPOINTS = AVERAGE, BEST, LATEST, EMA = "average", "best", "latest", "ema"
MAX_ALPHA = 10  # Exponent of the length penalty: float32 holds the penalty of all lengths.
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.01, 100.0  # Of sampling: float32 holds all logits divided by these.
TEMPERATURES = f"{MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}"
TRANSLATING_DTYPES = ("float32", "bfloat16")  # Of the weights and the arithmetic of a loaded run.
# What the mean of the predictions of several models is of; see `model.ensemble.mean`.
ENSEMBLE_MEANS = ("probabilities", "logs")
# What a run that reranks was trained on; see `decoding.reranking`.
RERANK_DIRECTIONS = ("forward", "right_to_left", "backward")
MAX_INT = 2**31 - 1  # Largest value of an integer option that sets no smaller limit.
_TYPES = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text"}
_TAG = re.compile(r"[^\s▁]{2,64}")  # Of a source line.
_SPECIAL = r"<(pad|unk|s|/s|0x[0-9A-F]{2})>|｟\d+｠"  # Sub-words with a meaning of their own.
_SHORTENED = reprlib.Repr()  # For messages: values may have any size.
_SHORTENED.maxstring = _SHORTENED.maxother = _SHORTENED.maxlong = 200


def check_ensemble(models: int, weights: Sequence[float], mean: str) -> None:
    """Raises `ValueError` if the options of an ensemble are invalid for this number of models."""
    weights = list(weights)
    possible = all(isinstance(weight, numbers.Real) and 1e-6 <= weight <= 1e6 for weight in weights)
    if weights and not (len(weights) == models > 1 and possible):
        expected = (
            f"{models} `ensemble_weights`, numbers of 1e-6 to 1e6"
            if models > 1
            else "several models with `ensemble_weights`"
        )
        raise ValueError(f"Expected {expected}. Received: {', '.join(map(str, weights))}.")
    if mean not in ENSEMBLE_MEANS:
        raise ValueError(f"Expected `ensemble_mean` to be one of {', '.join(ENSEMBLE_MEANS)}. Received: {mean}.")


def is_checkpoint(which: str) -> bool:
    """Returns whether a text chooses weights of a run: one of `CHECKPOINTS`, or the number of an update."""
    return which in CHECKPOINTS or re.fullmatch("[0-9]{1,18}", which) is not None


def with_current_names(options: dict) -> dict:
    """Returns options with former names replaced by current ones."""
    return {FORMER_NAMES.get(name, name): value for name, value in options.items()}


def option(default, text: str, maximum: int = MAX_INT):
    """Returns a dataclass field.

    Args:
        default: the default value.
        text: the help text.
        maximum: largest value of an integer option.
    """
    return dataclasses.field(default=default, metadata={"help": text, "maximum": maximum})


def _require(fields, condition: bool, names: str, expected: str) -> None:
    """Raises `ValueError` unless a condition holds.

    Args:
        fields: the dataclass.
        condition: the condition.
        names: space-separated fields that it is about; the message shows their values.
        expected: what the message expects.
    """
    if not condition:
        received = ", ".join(f"{name}={_SHORTENED.repr(getattr(fields, name))}" for name in names.split())
        raise ValueError(f"Expected {expected}. Received: {received}.")


def check_types(fields) -> None:
    """Checks that each field has a value of its type, and that numbers are finite and within the limit of their
    field.
    """
    for field in dataclasses.fields(fields):
        value = getattr(fields, field.name)
        fits = isinstance(value, (int, float) if field.type is float else field.type) and (
            field.type is bool or not isinstance(value, bool)
        )
        if fits and field.type is float:
            fits = abs(value) <= sys.float_info.max
        _require(fields, fits, field.name, _TYPES[field.type])
        if field.type is int:
            maximum = field.metadata["maximum"]
            _require(fields, value <= maximum, field.name, f"at most {maximum:,}")


def _check_vocabularies(model) -> None:
    """Checks the sizes of a model's vocabularies."""
    _require(model, model.vocab_size > EOS + 1, "vocab_size", f"more than the {EOS + 1} special ids")
    of_source = f"more than the {EOS + 1} special ids, or 0 for the vocabulary of the target"
    _require(model, model.source_vocab_size > EOS + 1 or model.source_vocab_size == 0, "source_vocab_size", of_source)


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Options of the Transformer: the columns of Table 3. The defaults are the base model."""

    vocab_size: int = option(37000, "Size of the sub-word vocabulary shared by source and target (section 5.1).", 2**24)
    encoder_layers: int = option(6, "Number of encoder layers, N (section 3.1).", 1000)
    decoder_layers: int = option(6, "Number of decoder layers, N (section 3.1).", 1000)
    d_model: int = option(512, "Width of every layer's output (section 3.1).", 2**16)
    d_ff: int = option(2048, "Inner width of the feed-forward networks (section 3.3).", 2**20)
    num_heads: int = option(8, "Number of attention heads, h (section 3.2.2).", 2**12)
    d_k: int = option(64, "Width of the queries and keys of one head (section 3.2.2).", 2**16)
    d_v: int = option(64, "Width of the values of one head (section 3.2.2).", 2**16)
    dropout: float = option(0.1, "Dropout rate, P_drop, on sub-layer outputs and embedding sums (section 5.4).")
    attention_dropout: float = option(0.0, "Dropout rate of the attention weights; the paper has none.")
    activation_dropout: float = option(
        0.0, "Dropout rate between the two layers of the feed-forward networks; the paper has none."
    )
    word_dropout: float = option(
        0.0,
        "Share of the tokens of source and target whose embeddings training replaces by zeros (Sennrich et al. 2016); "
        "with --simcut, in its second pass only.",
    )
    r_drop: float = option(
        0.0,
        "Weight, alpha, of the divergence between two passes with other dropout over each sentence (R-Drop, Liang et "
        "al. 2021); training takes twice the time and memory. 0 makes one pass.",
    )
    simcut: float = option(
        0.0,
        "Weight, alpha, of the divergence of a second pass without the words of --word_dropout from the first (SimCut, "
        "Gao et al. 2022: 3 with --word_dropout=0.05); training takes twice the time and memory. 0 makes one pass.",
    )
    learned_positions: int = option(
        0, "Number of learned position embeddings (Table 3, row E); 0 uses sinusoids (section 3.5).", 2**20
    )
    sinusoids: str = option(
        PAPER,
        "Frequencies of the sinusoids: paper, 10000^(-2i / d_model) (section 3.5); or tensor2tensor, 10000^(-i / "
        "(d_model / 2 - 1)), as in Marian and fairseq.",
    )
    first_position: int = option(
        0, "Position of the first token for the sinusoids; the paper's is 0, and that of fairseq 2.", 2**16
    )
    attention_window: int = option(
        0,
        "Size r of the neighborhood that the encoder's self-attention is restricted to (section 4): position i attends "
        "to the positions j with |i - j| <= r // 2. 0, as in the paper's models, does not restrict it.",
        2**16,
    )
    attention_bias: bool = option(
        False, "Add biases to the projections of attention, W^Q, W^K, W^V and W^O; the paper has none (section 3.2.2)."
    )
    attention: str = option(
        SCALED,
        "Attention function (section 3.2.1): scaled, the paper's dot product divided by the square root of d_k; "
        "unscaled; or additive, for small models: it takes d_k times the memory of the others.",
    )
    activation: str = option(
        "relu", "Activation of the feed-forward networks: relu, as in the paper (section 3.3), gelu or swish."
    )
    norm: str = option(
        POST,
        "Layer normalization of a sub-layer: post, LayerNorm(x + Sublayer(x)), as in the paper (section 3.1); or pre, "
        "x + Sublayer(LayerNorm(x)), with another one after each stack.",
    )
    norm_epsilon: float = option(1e-6, "What layer normalization adds to the variance; the paper gives no value.")
    source_vocab_size: int = option(
        0,
        "Size of a sub-word vocabulary of the source, with an embedding matrix of its own; --vocab_size is then that "
        "of the target. 0, as in the paper, shares vocabulary and matrix (section 3.4).",
        2**24,
    )
    tie_logits: bool = option(
        True,
        "Compute the logits with the embedding matrix of the target (section 3.4); otherwise they have a matrix of "
        "their own.",
    )
    logits_bias: bool = option(False, "Add a bias to the logits; the paper has none (section 3.4).")

    def __post_init__(self):
        check_types(self)
        for name in ("encoder_layers", "decoder_layers", "d_model", "d_ff", "num_heads", "d_k", "d_v"):
            _require(self, getattr(self, name) >= 1, name, "a positive number")
        _require(
            self, self.d_model % 2 == 0, "d_model", "an even number, because sinusoids come in pairs (section 3.5)"
        )
        for name in ("dropout", "attention_dropout", "activation_dropout", "word_dropout"):
            _require(self, 0 <= getattr(self, name) < 1, name, "a dropout rate in [0, 1)")
        incompatible = "no attention_dropout with an attention_window"
        _require(
            self,
            not (self.attention_dropout and self.attention_window),
            "attention_dropout attention_window",
            incompatible,
        )
        for name in ("r_drop", "simcut"):
            _require(self, getattr(self, name) >= 0, name, "a weight of at least 0")
        _require(self, not (self.r_drop and self.simcut), "r_drop simcut", "at most one of the two")
        rates = "dropout attention_dropout activation_dropout word_dropout"
        differ = any(getattr(self, name) for name in rates.split())
        _require(
            self,
            differ or not self.r_drop,
            f"r_drop {rates}",
            "a dropout rate above 0, so that the two passes of r_drop differ",
        )
        _require(
            self,
            self.word_dropout or not self.simcut,
            "simcut word_dropout",
            "a word_dropout for the second pass of simcut",
        )
        _require(self, self.learned_positions >= 0, "learned_positions", "a number of positions, or 0 for sinusoids")
        _require(self, self.sinusoids in SINUSOIDS, "sinusoids", f"one of {', '.join(SINUSOIDS)}")
        wide = "at least 4 columns for tensor2tensor's sinusoids"
        _require(self, self.sinusoids == PAPER or self.d_model >= 4, "sinusoids d_model", wide)
        _require(self, self.first_position >= 0, "first_position", "0 or more")
        of_sinusoids = "the defaults of `sinusoids` and `first_position` with `learned_positions`"
        _require(
            self,
            not self.learned_positions or (self.sinusoids, self.first_position) == (PAPER, 0),
            "learned_positions sinusoids first_position",
            of_sinusoids,
        )
        _require(
            self, self.attention_window >= 0, "attention_window", "a number of positions, or 0 for attention to all"
        )
        _require(self, self.attention in ATTENTION_FUNCTIONS, "attention", f"one of {', '.join(ATTENTION_FUNCTIONS)}")
        restricted = f"`attention={SCALED}` with an `attention_window`"
        _require(self, self.attention == SCALED or not self.attention_window, "attention attention_window", restricted)
        _require(self, self.activation in ACTIVATIONS, "activation", f"one of {', '.join(ACTIVATIONS)}")
        _require(self, self.norm in NORMS, "norm", f"one of {', '.join(NORMS)}")
        _require(self, 0 < self.norm_epsilon < 1, "norm_epsilon", "a small positive number")
        _check_vocabularies(self)

    @property
    def _weights_of_parts(self) -> tuple[int, int, int]:
        """Number of weights of an attention, a feed-forward network and a layer normalization."""
        attention = 2 * self.d_model * self.num_heads * (self.d_k + self.d_v)  # W^Q, W^K; W^V, W^O.
        if self.attention_bias:
            attention += self.num_heads * (2 * self.d_k + self.d_v) + self.d_model
        if self.attention == ADDITIVE:
            attention += self.num_heads * self.d_k
        feed_forward = 2 * self.d_model * self.d_ff + self.d_ff + self.d_model  # W_1, W_2; b_1, b_2.
        return attention, feed_forward, 2 * self.d_model

    @property
    def encoder_weights(self) -> int:
        """Number of weights of the encoder alone, with its embeddings."""
        attention, feed_forward, norm = self._weights_of_parts
        layer = attention + feed_forward + 2 * norm
        embeddings = ((self.source_vocab_size or self.vocab_size) + self.learned_positions) * self.d_model
        return embeddings + self.encoder_layers * layer + norm * (self.norm == PRE)

    @property
    def num_weights(self) -> int:
        """Number of weights in all matrices and vectors of section 3: the last column of Table 3."""
        attention, feed_forward, norm = self._weights_of_parts
        layer = 2 * attention + feed_forward + 3 * norm
        logits = self.vocab_size * (self.d_model * (not self.tie_logits) + self.logits_bias)
        target_embedding = self.vocab_size * self.d_model * (self.source_vocab_size > 0)
        return (
            self.encoder_weights + target_embedding + logits + self.decoder_layers * layer + norm * (self.norm == PRE)
        )


@dataclasses.dataclass(frozen=True)
class RnnConfig:
    """Options of the recurrent translator with attention (Bahdanau et al. 2015)."""

    vocab_size: int = option(37000, "Size of the sub-word vocabulary shared by source and target (section 5.1).", 2**24)
    d_model: int = option(
        512, "Width of the decoder's state, of each direction of the encoder, and of the attention.", 2**16
    )
    d_embedding: int = option(0, "Width of the embeddings and of the output layer; 0: --d_model.", 2**16)
    encoder_layers: int = option(1, "Number of bidirectional layers of the encoder.", 1000)
    cell: str = option("gru", "Recurrent cell: gru (Cho et al. 2014) or lstm (Hochreiter and Schmidhuber 1997).")
    attention: str = option(
        "additive",
        "Attention function (section 3.2.1): additive, scaled (dot product divided by the square root of its width) or "
        "unscaled.",
    )
    layer_norm: bool = option(True, "Normalise the inputs of the gates of all cells (Ba et al. 2016).")
    embedding_dropout: float = option(0.2, "Dropout rate of the embeddings.")
    context_dropout: float = option(0.2, "Dropout rate of the encoder's output, to which the decoder attends.")
    output_dropout: float = option(0.2, "Dropout rate of the layer before the logits.")
    source_vocab_size: int = option(
        0,
        "Size of a sub-word vocabulary of the source, with an embedding matrix of its own; --vocab_size is then that "
        "of the target. 0 shares vocabulary and matrix.",
        2**24,
    )
    tie_logits: bool = option(
        True,
        "Compute the logits with the embedding matrix of the target (section 3.4); otherwise they have a matrix of "
        "their own.",
    )

    def __post_init__(self):
        check_types(self)
        for name in ("d_model", "encoder_layers"):
            _require(self, getattr(self, name) >= 1, name, "a positive number")
        _require(self, self.d_embedding >= 0, "d_embedding", "a width, or 0 for that of `d_model`")
        _require(self, self.cell in CELLS, "cell", f"one of {', '.join(CELLS)}")
        _require(self, self.attention in ATTENTION_FUNCTIONS, "attention", f"one of {', '.join(ATTENTION_FUNCTIONS)}")
        for name in ("embedding_dropout", "context_dropout", "output_dropout"):
            _require(self, 0 <= getattr(self, name) < 1, name, "a dropout rate in [0, 1)")
        _check_vocabularies(self)

    @property
    def width(self) -> int:
        """Width of the embeddings."""
        return self.d_embedding or self.d_model

    @property
    def gates(self) -> int:
        """Number of matrices of a cell for its input, and for its state."""
        return {"gru": 3, "lstm": 4}[self.cell]

    @property
    def num_weights(self) -> int:
        """Number of weights in all matrices and vectors."""
        memory, states = 2 * self.d_model, 2 if self.cell == "lstm" else 1
        # Biases; gains and biases of two layer normalisations.
        vectors = (2 if self.cell == "gru" else 1) + 4 * self.layer_norm

        def cell(inputs: int) -> int:
            return self.gates * self.d_model * (inputs + self.d_model + vectors)

        encoder = 2 * (cell(self.width) + (self.encoder_layers - 1) * cell(memory))
        attention = self.d_model * (self.d_model + memory + (self.attention == ADDITIVE))
        start = states * self.d_model * (memory + 1)
        readout = self.width * (self.d_model + memory + self.width + 1)
        embeddings = self.width * (self.source_vocab_size + self.vocab_size * (1 if self.tie_logits else 2))
        return embeddings + encoder + cell(self.width) + attention + cell(memory) + start + readout


@dataclasses.dataclass(frozen=True)
class _PairEncoderConfig:
    """Options of an encoder of one sentence or two, as in BERT (Devlin et al. 2019). The defaults are its base
    model.
    """

    vocab_size: int = option(30000, "Number of sub-words.", 2**24)
    encoder_layers: int = option(12, "Number of encoder layers, L.", 1000)
    d_model: int = option(768, "Width of every layer's output, H.", 2**16)
    d_ff: int = option(3072, "Inner width of the feed-forward networks, 4 H.", 2**20)
    num_heads: int = option(12, "Number of attention heads, A; each has the width H / A.", 2**12)
    dropout: float = option(0.1, "Dropout rate on sub-layer outputs and embedding sums.")
    attention_dropout: float = option(0.1, "Dropout rate of the attention weights.")
    learned_positions: int = option(
        512, "Number of learned position embeddings; 0 uses sinusoids (section 3.5).", 2**20
    )
    attention_bias: bool = option(True, "Add biases to the projections of attention.")
    activation: str = option("gelu", "Activation of the feed-forward networks: relu, gelu or swish.")
    norm: str = option(POST, "Layer normalization of a sub-layer: post, after the sum as in the paper, or pre.")

    def __post_init__(self):
        check_types(self)
        divides = self.num_heads >= 1 and self.d_model % self.num_heads == 0
        _require(self, divides, "num_heads d_model", "a number of heads that divides the width")
        _ = self.encoder  # Checks the others.

    @property
    def encoder(self) -> ModelConfig:
        """The options of the encoder."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(_PairEncoderConfig)}
        width = self.d_model // self.num_heads
        return ModelConfig(**fields, d_k=width, d_v=width)

    @property
    def _pair_weights(self) -> int:
        """Number of weights of the encoder, of the vector of the second sentence, and of the pooler."""
        return self.encoder.encoder_weights + self.d_model + self.d_model * (self.d_model + 1)


@dataclasses.dataclass(frozen=True)
class BertConfig(_PairEncoderConfig):
    """Options of the pretraining of an encoder with masked words and next sentences (Devlin et al. 2019, section
    3.1).
    """

    mask_rate: float = option(0.15, "Share of the sub-words to predict.")
    whole_words: bool = option(False, "Mask all sub-words of a word, or none.")

    def __post_init__(self):
        super().__post_init__()
        _require(self, 0 < self.mask_rate < 1, "mask_rate", "a share in (0, 1)")

    @property
    def num_weights(self) -> int:
        """Number of weights in all matrices and vectors."""
        # A layer, its normalization, and the bias of the logits.
        of_words = self.d_model * (self.d_model + 3) + self.vocab_size
        return self._pair_weights + of_words + 2 * (self.d_model + 1)


@dataclasses.dataclass(frozen=True)
class ClassifierConfig(_PairEncoderConfig):
    """Options of a classifier of sentences or pairs of sentences (Devlin et al. 2019, section 4.1)."""

    labels: str = option(
        "", "Names of the classes, separated by commas; t2t-classify reads them from the training text."
    )

    def __post_init__(self):
        super().__post_init__()
        names = self.names
        different = len(set(names)) == len(names)
        _require(
            self,
            not self.labels or (len(names) > 1 and all(names) and different),
            "labels",
            "two different names or more",
        )

    @property
    def names(self) -> list[str]:
        """The names of the classes."""
        return self.labels.split(",")

    @property
    def num_weights(self) -> int:
        """Number of weights in all matrices and vectors."""
        return self._pair_weights + len(self.names) * (self.d_model + 1)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Options of training (section 5): batches, optimizer, schedule, regularization, validation and checkpoints."""

    train_steps: int = option(100_000, "Total number of updates (section 5.2).")
    warmup_steps: int = option(4000, "Number of updates over which the learning rate increases (section 5.3).")
    learning_rate_factor: float = option(1.0, "Factor on the learning rate of section 5.3.")
    learning_rate: float = option(
        0.0,
        "Constant learning rate after a linear warm-up, as for fine-tuning, in place of that of section 5.3; 0 for the "
        "paper's.",
    )
    cooldown_steps: int = option(
        0,
        "Number of updates up to --train_steps over which the learning rate also falls linearly to 0, as in Zhai et "
        "al. (2022); 0, as in the paper, has none. A run that is resumed with more --train_steps goes back to the rate "
        "of section 5.3 until its new last updates. Skipped updates do not lower the rate.",
    )
    label_smoothing: float = option(0.1, "Label smoothing, epsilon_ls, over the whole vocabulary (section 5.4).")
    clip_norm: float = option(0.0, "Maximum global norm of the gradient; 0, as in the paper, does not clip it.")
    batch_tokens: int = option(
        25_000, "Tokens of one update on each side, padding included (section 5.1), on all devices together."
    )
    buckets_per_update: int = option(
        4, "Number of batches in one update, each with sentences of similar length; the paper has 1 (section 5.1)."
    )
    micro_batch_tokens: int = option(
        8192, "Tokens on each side, padding included, that one device processes at once; larger batches are split."
    )
    micro_batches_at_once: int = option(
        0,
        "Number of micro-batches that a device computes at a time; 0: one on a GPU, and on a CPU as cores and memory "
        "allow.",
        64,
    )
    device_tflops: float = option(
        0.0,
        "Sustained TFLOPS of one device, for the paper's estimate of the training cost (Table 2: 9.5 for a P100); 0 "
        "makes no estimate.",
    )
    dtype: str = option(
        "float32",
        "Type of the layers' arithmetic: float32, bfloat16, or float16 with loss scaling. Weights stay float32.",
    )
    tf32: bool = option(
        True,
        "Round the factors of float32 products to TF32 on GPUs that can, as TensorFlow does by default: faster, and "
        "less exact.",
    )
    parent: str = option("", "Folder of a run whose weights a new run starts from, for fine-tuning; empty for none.")
    parent_checkpoint: str = option(
        CHECKPOINTS[0], f"<{'|'.join(CHECKPOINTS)}|STEP>: Weights of --parent to start from."
    )
    parent_subwords: bool = option(
        True,
        "Keep the sub-words of --parent. If not, the rows of those that both runs have are copied, and the others "
        "start at random.",
    )
    parent_optimizer: bool = option(
        False,
        "Start with the optimizer of --parent too: its moments and its number of updates, where the schedule of this "
        "run's learning rate begins. It requires one checkpoint of the parent (best, latest or the number of an "
        "update) and its sub-words, without --freeze, --cooldown_steps and --ema_decay.",
    )
    encoder_from: str = option(
        "",
        "Folder of a run, such as one of t2t-pretrain, whose encoder a new run of another architecture starts from, "
        "with its sizes; empty for none. --parent_checkpoint and --parent_subwords apply.",
    )
    freeze: str = option(
        "",
        "Parts of the model that keep their weights, separated by commas: names in the paths of the weights, such as "
        "embedding, encoder or decoder_0/self_attention; empty trains all.",
    )
    bpe_dropout: float = option(
        0.0,
        "Probability of skipping a merge of byte-pair encoding, so that each epoch divides the training text into "
        "other sub-words (Provilkov et al. 2020: 0.1); 0 divides it once.",
    )
    ema_decay: float = option(
        0.0,
        "Decay of an exponential moving average of the weights, such as 0.999, which --checkpoint=ema uses; 0 keeps "
        "none. An update leaves this share of the average and adds the rest of the new weights.",
    )
    embeddings: str = option(
        "",
        "File of word vectors of Word2Vec (text or binary) or GloVe, as wide as the embeddings: the rows of sub-words "
        "that are whole words start as these; empty for none.",
    )
    freeze_embeddings: int = option(0, "Number of updates before the rows of --embeddings are trained.")
    seed: int = option(1, "Seed of the initial weights, the order of the data, and dropout.")
    deterministic: bool = option(False, "Make runs with the same seed on the same machine bit-identical; slower.")
    data_service: str = option(
        "",
        "Dispatcher of a tf.data service that reads the training data, as grpc://host:port; empty reads it in this "
        "process.",
    )
    damaged_records: str = option(
        "stop",
        "What to do with a data record that has a wrong checksum: stop training, or skip the record and count it.",
    )
    checkpoint_steps: int = option(1000, "Updates between checkpoints; 0 saves by --checkpoint_minutes only.")
    checkpoint_minutes: float = option(
        10.0, "Minutes between checkpoints, 10 in section 6.1; 0 saves by --checkpoint_steps only."
    )
    keep_checkpoints: int = option(5, "Number of newest checkpoints to keep; their average is the model (section 6.1).")
    valid_steps: int = option(1000, "Updates between validations.")
    valid_sentences: int = option(
        500,
        "Number of validation sentences to translate greedily for BLEU at each validation; 0 computes the loss only.",
    )
    attention_images: int = option(
        1,
        "Number of validation sentences whose attention is drawn for TensorBoard, at most --valid_sentences; 0 draws "
        "none.",
    )
    log_steps: int = option(100, "Updates between points in TensorBoard.")
    histogram_steps: int = option(
        0, "Updates between histograms of weights and gradient norms in TensorBoard; 0 writes none."
    )
    profile_steps: str = option(
        "", "First and last update to profile for TensorBoard, such as 10,20; empty profiles none."
    )
    patience: int = option(0, "Stop after this many validations without improvement; 0 never stops early.")
    max_skipped: int = option(
        20, "Stop after skipping this many updates in a row because their loss or gradient was not finite."
    )
    max_hours: float = option(
        0.0, "Save and stop, as on SIGTERM, this many hours after training was started; 0 sets no limit."
    )
    best_metric: str = option(
        "bleu", "Metric that selects the best checkpoint and that --patience observes; for translation bleu or loss."
    )

    def __post_init__(self):
        check_types(self)
        for name in (
            "train_steps",
            "warmup_steps",
            "batch_tokens",
            "buckets_per_update",
            "micro_batch_tokens",
            "keep_checkpoints",
            "valid_steps",
            "log_steps",
            "max_skipped",
        ):
            _require(self, getattr(self, name) >= 1, name, "a positive number")
        for name in (
            "seed",
            "checkpoint_steps",
            "checkpoint_minutes",
            "valid_sentences",
            "attention_images",
            "patience",
            "clip_norm",
            "learning_rate",
            "max_hours",
            "histogram_steps",
            "device_tflops",
            "micro_batches_at_once",
            "freeze_embeddings",
        ):
            _require(self, getattr(self, name) >= 0, name, "0 or more")
        _require(self, self.learning_rate_factor > 0, "learning_rate_factor", "a positive factor")
        factor = "`learning_rate_factor=1` with a constant learning_rate, which it does not change"
        _require(
            self, self.learning_rate_factor == 1 or not self.learning_rate, "learning_rate_factor learning_rate", factor
        )
        _require(
            self,
            is_checkpoint(self.parent_checkpoint),
            "parent_checkpoint",
            f"{', '.join(CHECKPOINTS)} or the number of an update",
        )
        of_parent = self.parent_checkpoint != AVERAGE or not self.parent_subwords or self.parent_optimizer
        options = "parent parent_checkpoint parent_subwords parent_optimizer"
        _require(
            self,
            bool(self.starts_from) or not of_parent,
            options,
            "`parent` or `encoder_from` with the options of what is taken from it",
        )
        _require(
            self, not (self.parent and self.encoder_from), "parent encoder_from", "`parent` or `encoder_from`, not both"
        )
        options = "encoder_from parent_checkpoint parent_optimizer"
        _require(
            self,
            not (self.encoder_from and self.parent_optimizer),
            options,
            "a parent, whose optimizer fits all weights",
        )
        one_state = self.parent_checkpoint not in (AVERAGE, EMA) and self.parent_subwords
        one_state = one_state and not (self.freeze or self.cooldown_steps or self.ema_decay)
        options = "parent_optimizer parent parent_checkpoint parent_subwords freeze cooldown_steps ema_decay"
        expected = (
            "an optimizer of one checkpoint (best, latest, or a number), for all weights, without a cooldown or a "
            "moving average"
        )
        _require(self, one_state or not self.parent_optimizer, options, expected)
        _require(
            self,
            not self.freeze or re.search(r"[^\s,/]", self.freeze),
            "freeze",
            "names of parts of the model, or nothing",
        )
        one_start = "at most one of the two, because the weights of a parent are trained ones"
        _require(self, not (self.embeddings and self.starts_from), "embeddings parent encoder_from", one_start)
        held = "`embeddings` with `freeze_embeddings`"
        _require(self, bool(self.embeddings) or not self.freeze_embeddings, "freeze_embeddings embeddings", held)
        cooldown = "a cooldown of 0 or more updates, at most all of them"
        _require(self, 0 <= self.cooldown_steps <= self.train_steps, "cooldown_steps train_steps", cooldown)
        _require(self, 0 <= self.bpe_dropout < 1, "bpe_dropout", "a probability in [0, 1)")
        of_service = "no data_service with bpe_dropout, which Python code in this process computes"
        _require(self, not (self.bpe_dropout and self.data_service), "bpe_dropout data_service", of_service)
        _require(self, 0 <= self.ema_decay < 1, "ema_decay", "a share in [0, 1)")
        _require(self, 0 <= self.label_smoothing < 1, "label_smoothing", "a share in [0, 1)")
        _require(self, self.dtype in ("float32", "bfloat16", "float16"), "dtype", "float32, bfloat16 or float16")
        _require(
            self,
            not (self.deterministic and self.data_service),
            "deterministic data_service",
            "at most one of the two, because a data service sends batches in an order that is not reproducible",
        )
        _require(self, self.damaged_records in ("stop", "skip"), "damaged_records", "stop or skip")
        bounds = re.fullmatch(r"(\d{1,9}),(\d{1,9})", self.profile_steps, re.ASCII)
        _require(
            self,
            not self.profile_steps or (bounds is not None and 1 <= int(bounds[1]) <= int(bounds[2])),
            "profile_steps",
            "the first and the last update to profile, such as 10,20",
        )
        _require(
            self,
            self.checkpoint_steps or self.checkpoint_minutes,
            "checkpoint_steps checkpoint_minutes",
            "one of them above 0",
        )
        _require(
            self,
            self.best_metric != "bleu" or self.valid_sentences > 0,
            "best_metric valid_sentences",
            "best_metric=loss if valid_sentences=0",
        )

    @property
    def starts_from(self) -> str:
        """Folder of the run whose weights a new run starts from: all of them, or those of the encoder; empty for
        none.
        """
        return self.parent or self.encoder_from


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
    """Options of beam search (section 6.1)."""

    beam_size: int = option(4, "Beam size; 1 is greedy search (section 6.1).", 2**12)
    alpha: float = option(0.6, "Exponent of the length penalty (section 6.1): score = log P / ((5 + |Y|) / 6)^alpha.")
    extra_length: int = option(
        50, "Maximum length of a translation minus the length of its source, in sub-words (section 6.1).", 2**16
    )
    max_input: int = option(
        1024, "Maximum length of a source in sub-words, end token included; longer sources are truncated.", 2**16
    )
    no_repeat_ngram: int = option(
        0,
        "Size n of the sequences of sub-words, n-grams, that a translation may not repeat (Paulus et al. 2017); 0 "
        "allows all.",
        2**16,
    )
    diverse_groups: int = option(
        1,
        "Number of groups of beams, each of which avoids the sub-words of earlier groups (Vijayakumar et al. 2016).",
        2**12,
    )
    diversity: float = option(
        0.5,
        "Penalty of --diverse_groups on the score of a sub-word, for each beam of earlier groups that chose it at the "
        "same position.",
    )
    search_rows: int = option(
        0,
        "Maximum number of sentences in a step of the search; 0: 256 on a GPU, otherwise 32. In an export 0 is 32.",
        2**12,
    )
    search_cores: int = option(
        0,
        "Number of cores that a batch is divided among; 0: all of this process, or 1 on a GPU. In an export 0 is 1.",
        2**10,
    )

    def __post_init__(self):
        check_types(self)
        _require(self, self.beam_size >= 1, "beam_size", "at least one hypothesis")
        _require(self, self.extra_length >= 0, "extra_length", "0 or more")
        for name in ("search_rows", "search_cores"):
            _require(self, getattr(self, name) >= 0, name, "a positive number, or 0 for that of the machine")
        _require(self, self.max_input >= 2, "max_input", "room for one sub-word and the end token")
        _require(self, 0 <= self.alpha <= MAX_ALPHA, "alpha", f"an exponent in [0, {MAX_ALPHA}], usually at most 1")
        _require(self, self.no_repeat_ngram >= 0, "no_repeat_ngram", "the size of an n-gram, or 0 to allow repetition")
        _require(
            self,
            self.diverse_groups >= 1 and self.beam_size % self.diverse_groups == 0,
            "diverse_groups beam_size",
            "a number of groups that divides `beam_size`",
        )
        _require(self, self.diversity >= 0, "diversity", "0 or more")


@dataclasses.dataclass(frozen=True)
class SampleConfig:
    """Options of sampling, which are given with each translation: a run does not record them."""

    draws: int = option(1, "Number of translations to draw of each sentence.", 1000)
    seed: int = option(1, "Seed of the draws; line n has its own, made of this and n.")
    temperature: float = option(
        1.0,
        "Temperature of sampling: a sub-word is drawn with a probability proportional to P^(1 / temperature); 1: the "
        "model's own P.",
    )
    top_k: int = option(0, "Number of most likely sub-words to draw from; 0: all.")
    top_p: float = option(
        1.0,
        "Draw from the fewest most likely sub-words that have this probability together (Holtzman et al. 2020); 1: "
        "from all.",
    )

    def __post_init__(self):
        check_types(self)
        _require(self, self.draws >= 1, "draws", "at least one translation")
        _require(self, self.seed >= 0, "seed", "0 or more")
        _require(self, MIN_TEMPERATURE <= self.temperature <= MAX_TEMPERATURE, "temperature", TEMPERATURES)
        _require(self, self.top_k >= 0, "top_k", "a number of sub-words, or 0 for all")
        _require(self, 0 < self.top_p <= 1, "top_p", "a probability in (0, 1]")


@dataclasses.dataclass(frozen=True)
class FilterConfig:
    """Options of filtering parallel text. 0 and the empty text turn a rule off."""

    max_characters: int = option(1000, "Reject pairs with more characters than this on either side; 0: none.")
    max_length_ratio: float = option(
        1.7,
        "Reject pairs with one side this many times as long as expected from the other, in characters, after adding 10 "
        "to each; 0: none.",
    )
    length_ratio: float = option(
        0.0, "Expected ratio of the characters of target and source; 0: the median of the first 20,000 pairs."
    )
    min_letters: float = option(
        0.5, "Reject pairs with a smaller share of letters among the characters of a side, spaces aside; 0: none."
    )
    source_script: str = option(
        "", "Scripts of the source, separated by commas, such as Latin or Han,Hiragana,Katakana; empty: any."
    )
    target_script: str = option("", "Scripts of the target, likewise.")
    min_script: float = option(
        0.8, "Reject pairs with a smaller share of the expected scripts among the letters of a side."
    )
    keep_copies: bool = option(
        False, "Keep pairs whose sides have the same words, ignoring case, digits and punctuation."
    )
    source_language: str = option(
        "", "Code of the language of the source, such as en, which py3langid identifies; empty: any."
    )
    target_language: str = option("", "Code of the language of the target, likewise.")
    min_language: float = option(
        0.05, "Reject pairs if py3langid gives the expected language of a side a smaller probability."
    )
    duplicates: str = option(
        "pair", "Reject what occurred before: pair, source (with any target), target (with any source), or none."
    )
    near_duplicates: str = option(
        "pair", "Reject what occurred before, likewise, ignoring case, digits and punctuation."
    )
    max_cross_entropy: float = option(
        5.0,
        "Reject pairs whose dual conditional cross-entropy by two runs (Junczys-Dowmunt 2018) is larger, in nats; 0: "
        "none.",
    )

    def __post_init__(self):
        check_types(self)
        for name in ("max_characters", "length_ratio", "max_cross_entropy"):
            _require(self, getattr(self, name) >= 0, name, "0 or more")
        _require(
            self,
            self.max_length_ratio > 1 or self.max_length_ratio == 0,
            "max_length_ratio",
            "more than 1, or 0 for none",
        )
        for name in ("min_letters", "min_script", "min_language"):
            _require(self, 0 <= getattr(self, name) <= 1, name, "a share from 0 to 1")
        for name in ("duplicates", "near_duplicates"):
            _require(self, getattr(self, name) in REPEATED, name, f"one of {', '.join(REPEATED)}")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Options of the data (section 5.1): the corpus and how sub-words are made of it."""

    train_source: str = option(
        "", "Training text, source side, one sentence per line: comma-separated files or globs, plain or gzip."
    )
    train_target: str = option("", "Training text, target side; line n translates line n of --train_source.")
    valid_source: str = option("", "Validation text, source side.")
    valid_target: str = option("", "Validation text, target side.")
    source_tag: str = option(
        "",
        "Tag to begin each source line with, such as <2de>, which becomes a sub-word: one for all lines, or one for "
        "each file of --train_source and of --valid_source, separated by commas. Text to translate must begin with its "
        "tag too.",
    )
    dataset: str = option(
        "",
        "A TFDS translation dataset such as wmt14_translate/de-en; or 'builtin': numbers, dates and money, English to "
        "German.",
    )
    source_language: str = option(
        "", "Language code of the source in --dataset, or in the sub-words of a multilingual --parent."
    )
    target_language: str = option("", "Language code of the target, likewise.")
    train_split: str = option("train", "Split of --dataset to train on, or a slice such as train[:99%].")
    valid_split: str = option("validation", "Split of --dataset to validate on, or a slice such as train[99%:].")
    builtin_pairs: int = option(40_000, "Number of training pairs to generate for --dataset=builtin.")
    max_length: int = option(256, "Leave out pairs with more sub-words than this on either side, end token included.")
    subwords: str = option(
        "bpe",
        "Kind of sub-words (section 5.1): bpe (byte-pair encoding, as for English-German), wordpiece (as for "
        "English-French), word (whole words) or sentencepiece, of an imported model, with --subwords_file.",
    )
    subwords_file: str = option(
        "", "File of sub-words to use, such as subwords.model of another run; empty learns them from the text."
    )
    source_subwords_file: str = option(
        "",
        "File of sub-words of the source, beside those of the target in --subwords_file; empty: see "
        "--source_vocab_size.",
    )
    normalization: str = option(
        "identity", "SentencePiece normalization: identity (none), nmt_nfkc, nfkc, nmt_nfkc_cf or nfkc_cf."
    )
    character_coverage: float = option(
        0.9995, "Share of the text's characters that become sub-words; rarer characters are spelled in bytes."
    )
    vocab_sample: int = option(2_000_000, "Maximum number of sentences, both sides together, to learn sub-words from.")
    keep_patterns: str = option(
        "",
        f"What to copy by placeholders that are sub-words: names among {', '.join(patterns.NAMED)}, and regular "
        "expressions between slashes, of what Python and RE2 have in common, separated by commas.",
    )
    skip_bad_lines: bool = option(False, "Leave out and count lines that are not UTF-8 instead of stopping.")

    def __post_init__(self):
        check_types(self)
        for source, target in (("train_source", "train_target"), ("valid_source", "valid_target")):
            both = f"both of `{source}` and `{target}`, or neither"
            _require(self, getattr(self, source) or not getattr(self, target), f"{source} {target}", both)
        _require(
            self,
            not (self.dataset and (self.train_source or self.valid_source)),
            "dataset train_source valid_source",
            "text files or `dataset`, not both",
        )
        languages = (self.source_language, self.target_language)
        _require(
            self,
            languages == ("", "") or len(set(languages)) == 2,
            "source_language target_language",
            "two different languages",
        )
        _require(
            self,
            self.dataset != "builtin" or languages in (("", ""), ("en", "de")),
            "dataset source_language target_language",
            "English to German for the built-in corpus",
        )
        _require(
            self,
            not self.dataset or self.dataset == "builtin" or (self.source_language and self.target_language),
            "dataset source_language target_language",
            "`source_language` and `target_language` with a TFDS dataset",
        )
        _require(
            self,
            2 <= self.max_length < 2**15,
            "max_length",
            "room for one sub-word and the end token, and less than 32,768",
        )
        names = ("identity", "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf")
        _require(self, self.normalization in names, "normalization", f"one of {', '.join(names)}")
        _require(
            self,
            self.subwords in ("bpe", "wordpiece", "word", "sentencepiece"),
            "subwords",
            "bpe, wordpiece, word or sentencepiece",
        )
        given = self.subwords != "sentencepiece" or self.subwords_file or not self.names_corpus
        _require(
            self,
            given,
            "subwords subwords_file",
            "`subwords=bpe`, `wordpiece` or `word`, or the file of an imported model's sub-words",
        )
        _require(
            self,
            self.subwords == "bpe" or self.normalization == "identity",
            "subwords normalization",
            "`normalization=identity` with other sub-words than bpe",
        )
        self._check_tags()
        kept = patterns.parse(self.keep_patterns)
        _require(
            self,
            not kept or self.subwords == "bpe",
            "subwords keep_patterns",
            "`subwords=bpe` with patterns of text to keep",
        )
        _require(self, 0 < self.character_coverage <= 1, "character_coverage", "a share in (0, 1]")
        _require(self, self.builtin_pairs >= 1, "builtin_pairs", "a positive number of pairs")
        _require(self, self.vocab_sample > 100, "vocab_sample", "more than 100 sentences")

    def _check_tags(self) -> None:
        """Raises `ValueError` for tags that are invalid, or that are not one for all or one for each name of a file."""
        for tag in self.tags:
            _require(
                self,
                not tag or _TAG.fullmatch(tag),
                "source_tag",
                "tags such as <2de>, 2 to 64 characters without a space",
            )
            _require(
                self, not re.fullmatch(_SPECIAL, tag), "source_tag", "tags that are not the name of a special sub-word"
            )
            kept = self.keep_patterns and re.search(patterns.parse(self.keep_patterns), tag, re.ASCII)
            _require(self, not kept, "source_tag keep_patterns", "tags that are not text to keep")
        _require(self, not self.dataset or len(self.tags) == 1, "dataset source_tag", "one tag for a dataset")
        for name in ("train_source", "valid_source"):
            if files := getattr(self, name):
                one_each = len(self.tags) in (1, files.count(",") + 1)
                _require(self, one_each, f"source_tag {name}", f"one tag for all, or one for each file of `{name}`")

    @property
    def tags(self) -> list[str]:
        """The tag of each file, or the one of all; `[""]` if there is none."""
        return self.source_tag.split(",")

    @property
    def names_corpus(self) -> bool:
        """Whether the options name training text. If not, a run needs prepared data."""
        return bool(self.dataset or self.train_source)
