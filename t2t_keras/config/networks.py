"""Options of the networks: the Transformer (section 3), the recurrent translator, and encoders as in BERT."""

import dataclasses
import functools

from t2t_keras.config.options import REGULARISATION, TEXT, TRAINING, check_fields, option, require

# The special ids of every vocabulary. Padding (0) differs from unknown (1).
PAD, UNK, BOS, EOS = 0, 1, 2, 3
ACTIVATIONS = ("relu", "gelu", "swish")
NORMS = POST, PRE = "post", "pre"  # Where a sub-layer has its layer normalization: after the sum, or before it.
SINUSOIDS = PAPER, TENSOR2TENSOR = "paper", "tensor2tensor"  # Forms of their frequencies; see `layers.positions`.
CELLS = ("gru", "lstm")
ATTENTION_FUNCTIONS = ADDITIVE, SCALED, UNSCALED = "additive", "scaled", "unscaled"
MOST_LAYERS = 200  # Of a stack. However narrow it is, the model of more would be built for minutes.
_TIE_LOGITS = (
    "Compute the logits with the embedding matrix of the target (section 3.4); otherwise they have a matrix of their "
    "own."
)
_rate = functools.partial(option, minimum=0, below=1, group=REGULARISATION)  # Of dropout.
# The size of a vocabulary, special ids included; what 0 means, see `vocabulary_size`; and what that of the source is.
_vocabulary = functools.partial(option, minimum=0, maximum=2**24, group=TEXT, prepares=True)
_BY_PAIRS = "0: chosen by the number of training pairs, or the size of --subwords_file."
_OF_SOURCE = (
    "Size of a sub-word vocabulary of the source, with an embedding matrix of its own; --vocab_size is then that of "
    "the target. 0{} shares vocabulary and matrix."
)


def _size(default: int, text: str, maximum: int = 2**16, **facts):
    """Returns an option that is a positive number."""
    return option(default, text, minimum=1, maximum=maximum, **facts)


def vocabulary_size(pairs: int) -> int:
    """Returns the size of a vocabulary for a number of training pairs: 45 times its square root, a multiple of 8, and
    at most the 37,000 of section 5.1.

    Small texts need few sub-words (Sennrich and Zhang 2019, Ding et al. 2019): 4,024 for 8,000 pairs, 14,232 for
    100,000.
    """
    return min(37_000, max(320, 8 * round(45 * pairs**0.5 / 8)))


def _check_vocabularies(model) -> None:
    """Raises `ValueError` for a size of a vocabulary that is neither 0 nor more than the special ids."""
    for name in ("vocab_size", "source_vocab_size"):
        if size := getattr(model, name, 0):
            require(model, size > EOS + 1, f"`{name}` must be 0 or more than the {EOS + 1} special ids.")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Options of the Transformer: the columns of Table 3. The defaults are the base model."""

    # fmt: off
    vocab_size: int = _vocabulary(
        37000, f"Size of the sub-word vocabulary shared by source and target (section 5.1). {_BY_PAIRS}",
        first=True, encoder=True)
    encoder_layers: int = _size(6, "Number of encoder layers, N (section 3.1).", MOST_LAYERS, first=True, encoder=True)
    decoder_layers: int = _size(6, "Number of decoder layers, N (section 3.1).", MOST_LAYERS)
    d_model: int = _size(512, "Width of every layer's output (section 3.1).", first=True, inherited=True, encoder=True)
    d_ff: int = _size(
        2048, "Inner width of the feed-forward networks (section 3.3).", 2**20, inherited=True, encoder=True)
    num_heads: int = _size(8, "Number of attention heads, h (section 3.2.2).", 2**12, inherited=True, encoder=True)
    d_k: int = _size(64, "Width of the queries and keys of one head (section 3.2.2).", inherited=True, encoder=True)
    d_v: int = _size(64, "Width of the values of one head (section 3.2.2).", inherited=True, encoder=True)
    dropout: float = _rate(
        0.1, "Dropout rate, P_drop, on sub-layer outputs and embedding sums (section 5.4).", first=True)
    attention_dropout: float = _rate(0.0, "Dropout rate of the attention weights; the paper has none.")
    activation_dropout: float = _rate(
        0.0, "Dropout rate between the two layers of the feed-forward networks; the paper has none.")
    word_dropout: float = _rate(
        0.0, "Share of the tokens of source and target whose embeddings training replaces by zeros (Sennrich et al. "
        "2016); with --simcut, in its second pass only.")
    r_drop: float = option(
        0.0, "Weight, alpha, of the divergence between two passes with other dropout over each sentence (R-Drop, "
        "Liang et al. 2021); training takes twice the time and memory. 0 makes one pass.",
        minimum=0, group=REGULARISATION)
    simcut: float = option(
        0.0, "Weight, alpha, of the divergence of a second pass without the words of --word_dropout from the first "
        "(SimCut, Gao et al. 2022: 3 with --word_dropout=0.05); training takes twice the time and memory. 0 makes one "
        "pass.", minimum=0, group=REGULARISATION)
    learned_positions: int = option(
        0, "Number of learned position embeddings (Table 3, row E); 0 uses sinusoids (section 3.5).",
        minimum=0, maximum=2**20, encoder=True)
    sinusoids: str = option(
        PAPER, "Frequencies of the sinusoids: paper, 10000^(-2i / d_model) (section 3.5); or tensor2tensor, 10000^(-i "
        "/ (d_model / 2 - 1)), as in Marian and fairseq.", choices=SINUSOIDS, inherited=True, encoder=True)
    first_position: int = option(
        0, "Position of the first token for the sinusoids; the paper's is 0, and that of fairseq 2.",
        minimum=0, maximum=2**16, inherited=True, encoder=True)
    attention_window: int = option(
        0, "Size r of the neighborhood that the encoder's self-attention is restricted to (section 4): position i "
        "attends to the positions j with |i - j| <= r // 2. 0, as in the paper's models, does not restrict it.",
        minimum=0, maximum=2**16, encoder=True)
    attention_bias: bool = option(
        False, "Add biases to the projections of attention, W^Q, W^K, W^V and W^O; the paper has none (section "
        "3.2.2).", encoder=True)
    attention: str = option(
        SCALED, "Attention function (section 3.2.1): scaled, the paper's dot product divided by the square root of "
        "d_k; unscaled; or additive, for small models: it takes d_k times the memory of the others.",
        choices=ATTENTION_FUNCTIONS, inherited=True, encoder=True)
    activation: str = option(
        "relu", "Activation of the feed-forward networks: relu, as in the paper (section 3.3), gelu or swish.",
        choices=ACTIVATIONS, inherited=True, encoder=True)
    norm: str = option(
        POST, "Layer normalization of a sub-layer: post, LayerNorm(x + Sublayer(x)), as in the paper (section 3.1); "
        "or pre, x + Sublayer(LayerNorm(x)), with another one after each stack.",
        choices=NORMS, inherited=True, encoder=True)
    norm_epsilon: float = option(
        1e-6, "What layer normalization adds to the variance; the paper gives no value.",
        above=0, below=1, inherited=True, encoder=True)
    source_end: bool = option(
        True, "Let the encoder read the end token of a source; imports of OpenNMT-tf may not.", inherited=True,
        encoder=True)
    source_vocab_size: int = _vocabulary(0, _OF_SOURCE.format(", as in the paper (section 3.4),"))
    tie_logits: bool = option(True, _TIE_LOGITS)
    logits_bias: bool = option(False, "Add a bias to the logits; the paper has none (section 3.4).")
    # fmt: on

    def __post_init__(self):
        check_fields(self)
        even = "`d_model` must be even, because sinusoids come in pairs (section 3.5)."
        require(self, self.d_model % 2 == 0, even)
        window = "`attention_dropout` does not work with an `attention_window`."
        require(self, not (self.attention_dropout and self.attention_window), window)
        window = f"An `attention_window` needs `attention={SCALED}`."
        require(self, self.attention == SCALED or not self.attention_window, window, "attention attention_window")
        require(self, not (self.r_drop and self.simcut), "`r_drop` and `simcut` exclude each other.")
        rates = "dropout attention_dropout activation_dropout word_dropout"
        dropped = any(getattr(self, name) for name in rates.split())
        passes = "`r_drop` needs a dropout rate above 0, so that its two passes differ."
        require(self, dropped or not self.r_drop, passes, f"r_drop {rates}")
        passes = "`simcut` needs a `word_dropout` for its second pass."
        require(self, self.word_dropout or not self.simcut, passes)
        wide = f"`sinusoids={TENSOR2TENSOR}` needs a `d_model` of at least 4."
        require(self, self.sinusoids == PAPER or self.d_model >= 4, wide)
        learned = "`sinusoids` and `first_position` have no effect with `learned_positions`."
        of_paper = (self.sinusoids, self.first_position) == (PAPER, 0)
        require(self, not self.learned_positions or of_paper, learned, "learned_positions sinusoids first_position")
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

    # fmt: off
    vocab_size: int = _vocabulary(
        37000, f"Size of the sub-word vocabulary shared by source and target (section 5.1). {_BY_PAIRS}", first=True)
    d_model: int = _size(
        512, "Width of the decoder's state, of each direction of the encoder, and of the attention.",
        first=True, inherited=True)
    d_embedding: int = option(
        0, "Width of the embeddings and of the output layer; 0: --d_model.", minimum=0, maximum=2**16)
    encoder_layers: int = _size(1, "Number of bidirectional layers of the encoder.", MOST_LAYERS, first=True)
    cell: str = option(
        "gru", "Recurrent cell: gru (Cho et al. 2014) or lstm (Hochreiter and Schmidhuber 1997).", choices=CELLS)
    attention: str = option(
        ADDITIVE, "Attention function (section 3.2.1): additive, scaled (dot product divided by the square root of "
        "its width) or unscaled.", choices=ATTENTION_FUNCTIONS, inherited=True)
    layer_norm: bool = option(True, "Normalise the inputs of the gates of all cells (Ba et al. 2016).")
    embedding_dropout: float = _rate(0.2, "Dropout rate of the embeddings.")
    context_dropout: float = _rate(0.2, "Dropout rate of the encoder's output, to which the decoder attends.")
    output_dropout: float = _rate(0.2, "Dropout rate of the layer before the logits.")
    source_vocab_size: int = _vocabulary(0, _OF_SOURCE.format(""))
    tie_logits: bool = option(True, _TIE_LOGITS)
    # fmt: on

    def __post_init__(self):
        check_fields(self)
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

    # fmt: off
    vocab_size: int = _vocabulary(30000, f"Number of sub-words. {_BY_PAIRS}", first=True)
    encoder_layers: int = _size(12, "Number of encoder layers, L.", MOST_LAYERS, first=True)
    d_model: int = _size(768, "Width of every layer's output, H.", first=True, inherited=True)
    d_ff: int = _size(3072, "Inner width of the feed-forward networks, 4 H.", 2**20, inherited=True)
    num_heads: int = _size(12, "Number of attention heads, A; each has the width H / A.", 2**12, inherited=True)
    dropout: float = _rate(0.1, "Dropout rate on sub-layer outputs and embedding sums.")
    attention_dropout: float = _rate(0.1, "Dropout rate of the attention weights.")
    learned_positions: int = option(
        512, "Number of learned position embeddings; 0 uses sinusoids (section 3.5).", minimum=0, maximum=2**20)
    attention_bias: bool = option(True, "Add biases to the projections of attention.")
    activation: str = option(
        "gelu", "Activation of the feed-forward networks: relu, gelu or swish.", choices=ACTIVATIONS, inherited=True)
    norm: str = option(
        POST, "Layer normalization of a sub-layer: post, after the sum as in the paper, or pre.",
        choices=NORMS, inherited=True)
    # fmt: on

    def __post_init__(self):
        check_fields(self)
        require(self, self.d_model % self.num_heads == 0, "`num_heads` must divide `d_model`.")
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

    # fmt: off
    mask_rate: float = option(0.15, "Share of the sub-words to predict.", above=0, below=1, group=TRAINING)
    whole_words: bool = option(False, "Mask all sub-words of a word, or none.", group=TRAINING)
    # fmt: on

    @property
    def num_weights(self) -> int:
        """Number of weights in all matrices and vectors."""
        # A layer, its normalization, and the bias of the logits.
        of_words = self.d_model * (self.d_model + 3) + self.vocab_size
        return self._pair_weights + of_words + 2 * (self.d_model + 1)


@dataclasses.dataclass(frozen=True)
class ClassifierConfig(_PairEncoderConfig):
    """Options of a classifier of sentences or pairs of sentences (Devlin et al. 2019, section 4.1)."""

    # fmt: off
    labels: str = option(
        "", "Names of the classes, separated by commas; `t2t-classify` reads them from the training text.",
        inherited=True)
    # fmt: on

    def __post_init__(self):
        super().__post_init__()
        names = self.names
        valid = len(names) > 1 and all(names) and len(set(names)) == len(names)
        require(self, not self.labels or valid, "`labels` must be two different names or more.")

    @property
    def names(self) -> list[str]:
        """The names of the classes."""
        return self.labels.split(",")

    @property
    def num_weights(self) -> int:
        """Number of weights in all matrices and vectors."""
        return self._pair_weights + len(self.names) * (self.d_model + 1)
