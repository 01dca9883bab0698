"""Floating-point operations of the network's matrix products, counted from shapes (Table 2 estimates them from time).

One multiplication and addition are two operations. Softmax, layer norm, dropout and the other operations that are
linear in the activations are not counted. Nor are the sums and tanh of additive attention, whose product with v has the
operations of Q Kᵀ.
"""

from t2t_keras.config import ADDITIVE, ModelConfig
from t2t_keras.layers.restricted_attention import computed_scores


def _attention(config: ModelConfig, scores):
    """Counts the two products of equation 1 for one sentence, in all heads: Q Kᵀ, with so many scores, and with V."""
    return 2 * scores * config.num_heads * (config.d_k + config.d_v)


def encoder(config: ModelConfig, source):
    """Counts the operations of the encoder for one sentence of S source tokens; see `forward`."""
    projection, feed_forward = _per_token(config)
    scores = computed_scores(config.attention_window, source)
    return config.encoder_layers * (source * (2 * projection + feed_forward) + _attention(config, scores))


def _per_token(config: ModelConfig) -> tuple[int, int]:
    """Counts the products for one token: with W^Q and W^O, or W^K and W^V; and those of a feed-forward network."""
    return 2 * config.d_model * config.num_heads * (config.d_k + config.d_v), 4 * config.d_model * config.d_ff


def memory_cost(config: ModelConfig, rows: int, source: int, target: int = 0) -> float:
    """Estimates the memory that a micro-batch takes, in arbitrary units, to compare shapes.

    The attention weights [H, T, S] grow with the square of the length. With heads of width 64 they are as large as a
    layer's other activations, about 12 of width d_model, at a length of about 770 tokens. Restricted self-attention has
    fewer weights in the encoder. Additive attention has three tensors [H, T, S, K] in the gradient of one layer, while
    the activations of all layers are kept.
    """
    scores = computed_scores(config.attention_window, source) + source * target + target * target
    cost = source + target + scores / 770
    if config.attention == ADDITIVE:
        layers = max(config.encoder_layers, config.decoder_layers)
        cost += 3 * config.num_heads * config.d_k * max(source, target) ** 2 / (12 * config.d_model * layers)
    return rows * cost


def search_memory(config: ModelConfig, beams: int, length: int) -> int:
    """Estimates the bytes that a beam search in float32 with W `beams` takes for one sentence, at its last token, T.

    Every beam attends to the keys of all beams, so the attention weights of a layer grow with the square of their
    number. Additive attention compares the query of each beam with each key, [H, W, W T, K].
    """
    scores, copies = beams * beams * length, 4
    # Of this step and the next one.
    states = 2 * config.decoder_layers * beams * length * config.num_heads * (config.d_k + config.d_v)
    compared = 2 * config.num_heads * scores * config.d_k if config.attention == ADDITIVE else 0
    return 4 * (copies * (config.num_heads * scores + beams * config.vocab_size) + states + compared) + 8 * scores


def forward(config: ModelConfig, rows, source, target):
    """Counts the operations of a forward pass, padding included. The number of rows, B, and the padded lengths, S and
    T, may be numbers or scalar tensors, and so is the result.

    Training needs three times as many: the gradients of both factors of a product take as many operations as the
    product itself.
    """
    projection, feed_forward = _per_token(config)
    logits = 2 * config.d_model * config.vocab_size
    decoder_layer = (
        target * (3 * projection + feed_forward)
        + source * projection  # Keys and values of the memory.
        + _attention(config, target * target)
        + _attention(config, target * source)
    )
    return rows * (encoder(config, source) + config.decoder_layers * decoder_layer + target * logits)
