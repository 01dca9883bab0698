"""Floating-point operations of the network's matrix products, counted from shapes (Table 2 estimates them from time).

One multiplication and addition are two operations. Softmax, layer norm, dropout and the other operations that are linear in the
activations are not counted.
"""

from t2t_keras.config import ModelConfig
from t2t_keras.model.restricted_attention import computed_scores


def _attention(config: ModelConfig, scores):
    """The two products of equation 1 for one sentence, in all heads: Q Kᵀ, which has so many scores, and its product with V."""
    return 2 * scores * config.num_heads * (config.d_k + config.d_v)


def forward(config: ModelConfig, rows, source, target):
    """Counts the operations of a forward pass, padding included.

    Training needs three times as many: the gradients of both factors of a product take as many operations as the product itself.

    Args:
        config: the sizes of the network.
        rows: number of sentences, B. It and the lengths may be numbers or scalar tensors.
        source: padded length of the sources, S.
        target: padded length of the targets, T.

    Returns:
        The number of operations, in the type of the arguments.
    """
    projection = 2 * config.d_model * config.num_heads * (config.d_k + config.d_v)  # W^Q and W^O, or W^K and W^V, for one token.
    feed_forward = 4 * config.d_model * config.d_ff
    logits = 2 * config.d_model * config.vocab_size
    encoder_layer = source * (2 * projection + feed_forward) + _attention(config, computed_scores(config.attention_window, source))
    decoder_layer = (
        target * (3 * projection + feed_forward)
        + source * projection  # Keys and values of the memory.
        + _attention(config, target * target)
        + _attention(config, target * source)
    )
    return rows * (config.encoder_layers * encoder_layer + config.decoder_layers * decoder_layer + target * logits)
