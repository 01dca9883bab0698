"""The Transformer as the paper prints it, in NumPy and float64: the oracle that `test_oracle.py` holds the Keras one
against.

One sentence at a time, so there is no padding and no padding mask; one head at a time, so nothing is reshaped; no
cache. It shares no code with the package. A row of a matrix is a position. Letters: S source words, T target words, D
d_model, H heads, K d_k, E d_v, F d_ff, V vocabulary.

`transformers_models.py`, `opennmt_models.py` and `test_tensor2tensor.py` give their weights these names, and have their
own embeddings.

The weights are a dictionary. In the paper's model, all three matrices are one, and only equation 2 and norms have a
bias:
    source_matrix, target_matrix, logits_matrix: [V, D]; logits_bias: [V]
    encoder, decoder: a list of layers, each a dictionary of
        self_attention, and in the decoder cross_attention: {"query": H × ([D, K], [K]), "key": H × ([D, K], [K]),
            "value": H × ([D, E], [E]), "output": ([H·E, D], [D]), "score": H functions of a query [K] and a key [K]}
        feed_forward: (W₁ [D, F], b₁ [F], W₂ [F, D], b₂ [D], the name of the activation)
        the same names + "_norm": (gain [D], bias [D], epsilon)
    pre: whether sub-layers have their norm before them; then encoder_norm and decoder_norm come after each stack
    positions: the first position, and whether the sinusoids are tensor2tensor's
"""

import math

import numpy as np


def softmax(x):
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def scaled_dot_product(query, key):
    """Section 3.2.1. [K], [K] → a score."""
    return query @ key / math.sqrt(len(key))


def attention_weights(q, k, score, causal: bool = False):
    """What equation 1 multiplies V by. [T, K], [S, K] → [T, S]."""
    scores = np.array([[score(query, key) for key in k] for query in q])
    if causal:  # Section 3.2.3: "masking out (setting to -∞)" what lies to the right.
        scores = np.where(np.tri(*scores.shape, dtype=bool), scores, -np.inf)
    return softmax(scores)


def attention(q, k, v, score, causal: bool = False):
    """Equation 1. [T, K], [S, K], [S, E] → [T, E]."""
    return attention_weights(q, k, score, causal) @ v


def heads_weights(queries, memory, weights, causal: bool = False):
    """What each head multiplies V by. [T, D], [S, D] → [H, T, S]."""
    heads = zip(weights["query"], weights["key"], weights["score"], strict=True)
    return np.stack(
        [
            attention_weights(queries @ w_q + b_q, memory @ w_k + b_k, score, causal)
            for (w_q, b_q), (w_k, b_k), score in heads
        ]
    )


def in_heads(number: int, query, key, value, output, score=scaled_dot_product) -> dict:
    """The weights of an attention with `number` heads, of projections ([D, H·K], [H·K]) of all heads together."""
    projections = {"query": query, "key": key, "value": value}
    cut = {
        name: list(zip(*(np.split(part, number, axis=-1) for part in parts), strict=True))
        for name, parts in projections.items()
    }
    return cut | {"output": output, "score": [score] * number}


def multi_head_attention(queries, memory, weights, causal: bool = False):
    """Section 3.2.2: head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V). [T, D], [S, D] → [T, D]."""
    heads = [
        attention(queries @ w_q + b_q, memory @ w_k + b_k, memory @ w_v + b_v, score, causal)
        for (w_q, b_q), (w_k, b_k), (w_v, b_v), score in zip(
            *(weights[name] for name in ("query", "key", "value", "score")), strict=True
        )
    ]
    w_o, b_o = weights["output"]
    return np.concatenate(heads, axis=-1) @ w_o + b_o


ACTIVATIONS = {
    "relu": lambda x: np.maximum(0, x),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
    "swish": lambda x: x / (1 + np.exp(-x)),
}


def feed_forward(x, weights):
    """Equation 2. [T, D] → [T, D]."""
    w_1, b_1, w_2, b_2, activation = weights
    return ACTIVATIONS[activation](x @ w_1 + b_1) @ w_2 + b_2


def layer_norm(x, weights):
    """Section 3.1; the paper gives no epsilon."""
    gain, bias, epsilon = weights
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * gain + bias


def positional_encoding(length: int, d_model: int, first: int = 0, tensor2tensor: bool = False):
    """Section 3.5. → [length, D]. Tensor2tensor's last frequency is 1 / 10000, whatever D."""
    table = np.zeros((length, d_model))
    for position in range(length):
        for i in range(d_model // 2):
            angle = (first + position) / 10000 ** (i / (d_model / 2 - 1) if tensor2tensor else 2 * i / d_model)
            table[position, 2 * i] = math.sin(angle)
            table[position, 2 * i + 1] = math.cos(angle)
    return table


def sines_before_cosines(length: int, d_model: int, first: int = 0, tensor2tensor: bool = True):
    """The same in the order of other programs. → [length, D]."""
    table = positional_encoding(length, d_model, first, tensor2tensor)
    return np.concatenate([table[:, ::2], table[:, 1::2]], axis=1)


def embed(ids, matrix, weights):
    """Section 3.4, and the sum of section 3.5. T ids → [T, D]."""
    d_model = matrix.shape[1]
    return matrix[ids] * math.sqrt(d_model) + positional_encoding(len(ids), d_model, *weights["positions"])


def stack(x, side: str, weights, sub_layers: dict, watch=None):
    """Section 3.1: the output of each sub-layer is LayerNorm(x + Sublayer(x)); or, pre-norm, x +
    Sublayer(LayerNorm(x)). [T, D] → [T, D].

    `watch` sees the name of each sub-layer, what it reads, and its weights.
    """
    pre = weights["pre"]
    for layer in weights[side]:
        for name, sub_layer in sub_layers.items():
            norm = layer[f"{name}_norm"]
            read = layer_norm(x, norm) if pre else x
            if watch:
                watch(name, read, layer[name])
            x = x + sub_layer(read, layer[name])
            x = x if pre else layer_norm(x, norm)
    return layer_norm(x, weights[f"{side}_norm"]) if pre else x


def encoder(x, weights, watch=None):
    """[S, D] → [S, D]."""
    sub_layers = {"self_attention": lambda x, of: multi_head_attention(x, x, of), "feed_forward": feed_forward}
    return stack(x, "encoder", weights, sub_layers, watch)


def decoder(memory, x, weights, watch=None):
    """[S, D], [T, D] → [T, D]."""
    sub_layers = {
        "self_attention": lambda x, of: multi_head_attention(x, x, of, causal=True),
        "cross_attention": lambda x, of: multi_head_attention(x, memory, of),
        "feed_forward": feed_forward,
    }
    return stack(x, "decoder", weights, sub_layers, watch)


def encode(source, weights, watch=None):
    """S ids → [S, D]."""
    return encoder(embed(source, weights["source_matrix"], weights), weights, watch)


def decode(memory, shifted_target, weights, watch=None):
    """[S, D], T ids → [T, D]."""
    return decoder(memory, embed(shifted_target, weights["target_matrix"], weights), weights, watch)


def logits(source, shifted_target, weights):
    """What stands before the softmax of Figure 1. S ids, T ids → [T, V]."""
    return (
        decode(encode(source, weights), shifted_target, weights) @ weights["logits_matrix"].T + weights["logits_bias"]
    )


def all_attention(source, shifted_target, weights):
    """The weights of every head. S ids, T ids → {"encoder": [L, H, S, S], "decoder": [L, H, T, T], "cross": [L, H, T,
    S]}.
    """
    found = {"encoder": [], "decoder": [], "cross": []}

    def in_encoder(name, x, of):
        if name == "self_attention":
            found["encoder"].append(heads_weights(x, x, of))

    def in_decoder(name, x, of):
        if name == "self_attention":
            found["decoder"].append(heads_weights(x, x, of, causal=True))
        elif name == "cross_attention":
            found["cross"].append(heads_weights(x, memory, of))

    memory = encode(source, weights, in_encoder)
    decode(memory, shifted_target, weights, in_decoder)
    return {kind: np.stack(layers) for kind, layers in found.items()}


def alignment(source, shifted_target, weights, layer: int):
    """How the words of a target attend to those of the source in a layer of the decoder, the mean of its heads. S ids,
    T ids → [T, S].
    """
    return all_attention(source, shifted_target, weights)["cross"][layer].mean(axis=0)


def smoothed_loss(sentence_logits, target, label_smoothing: float):
    """-Σ_w q(w) log p(w) for every word (Szegedy et al. 2016, section 7). [T, V], T ids → [T]."""
    losses = []
    for row, word in zip(sentence_logits, target, strict=True):
        q = np.full(row.shape, label_smoothing / len(row))
        q[word] += 1 - label_smoothing
        losses.append(-np.sum(q * np.log(softmax(row))))
    return np.array(losses)
