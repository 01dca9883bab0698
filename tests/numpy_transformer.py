"""The Transformer as the paper prints it, in NumPy and float64: the oracle that `test_oracle.py` holds the Keras one against.

One sentence at a time, so there is no padding and no padding mask; one head at a time, so nothing is reshaped; no cache. It
shares no code with the package. A row of a matrix is a position. Letters: S source words, T target words, D d_model, H heads,
K d_k, E d_v, F d_ff, V vocabulary.

The weights are a dictionary. In the paper's model, all three matrices are one, and only equation 2 and norms have a bias:
    source_matrix, target_matrix, logits_matrix: [V, D]; logits_bias: [V]
    encoder, decoder: a list of layers, each a dictionary of
        self_attention, and in the decoder cross_attention: {"query": H × ([D, K], [K]), "key": H × ([D, K], [K]),
            "value": H × ([D, E], [E]), "output": ([H·E, D], [D])}
        feed_forward: (W₁ [D, F], b₁ [F], W₂ [F, D], b₂ [D], the name of the activation)
        the same names + "_norm": (gain [D], bias [D], epsilon)
"""

import math

import numpy as np


def softmax(x):
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def attention_weights(q, k, causal: bool = False):
    """What equation 1 multiplies V by. [T, K], [S, K] → [T, S]."""
    scores = q @ k.T / math.sqrt(k.shape[1])
    if causal:  # Section 3.2.3: "masking out (setting to -∞)" what lies to the right.
        scores = np.where(np.tri(*scores.shape, dtype=bool), scores, -np.inf)
    return softmax(scores)


def attention(q, k, v, causal: bool = False):
    """Equation 1. [T, K], [S, K], [S, E] → [T, E]."""
    return attention_weights(q, k, causal) @ v


def heads_weights(queries, memory, weights, causal: bool = False):
    """What each head multiplies V by. [T, D], [S, D] → [H, T, S]."""
    heads = zip(weights["query"], weights["key"], strict=True)
    return np.stack([attention_weights(queries @ w_q + b_q, memory @ w_k + b_k, causal) for (w_q, b_q), (w_k, b_k) in heads])


def multi_head_attention(queries, memory, weights, causal: bool = False):
    """Section 3.2.2: head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V). [T, D], [S, D] → [T, D]."""
    heads = [
        attention(queries @ w_q + b_q, memory @ w_k + b_k, memory @ w_v + b_v, causal)
        for (w_q, b_q), (w_k, b_k), (w_v, b_v) in zip(weights["query"], weights["key"], weights["value"], strict=True)
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


def add_and_norm(x, y, weights):
    """LayerNorm(x + Sublayer(x)), section 3.1; the paper gives no epsilon."""
    gain, bias, epsilon = weights
    total = x + y
    mean = total.mean(axis=-1, keepdims=True)
    variance = ((total - mean) ** 2).mean(axis=-1, keepdims=True)
    return (total - mean) / np.sqrt(variance + epsilon) * gain + bias


def positional_encoding(length: int, d_model: int):
    """Section 3.5. → [length, D]."""
    table = np.zeros((length, d_model))
    for position in range(length):
        for i in range(d_model // 2):
            angle = position / 10000 ** (2 * i / d_model)
            table[position, 2 * i] = math.sin(angle)
            table[position, 2 * i + 1] = math.cos(angle)
    return table


def embed(ids, matrix):
    """Section 3.4, and the sum of section 3.5. T ids → [T, D]."""
    d_model = matrix.shape[1]
    return matrix[ids] * math.sqrt(d_model) + positional_encoding(len(ids), d_model)


def encode(source, weights):
    """The encoder's stack, section 3.1. S ids → [S, D]."""
    x = embed(source, weights["source_matrix"])
    for layer in weights["encoder"]:
        x = add_and_norm(x, multi_head_attention(x, x, layer["self_attention"]), layer["self_attention_norm"])
        x = add_and_norm(x, feed_forward(x, layer["feed_forward"]), layer["feed_forward_norm"])
    return x


def logits(source, shifted_target, weights):
    """What stands before the softmax of Figure 1. S ids, T ids → [T, V]."""
    memory = encode(source, weights)
    x = embed(shifted_target, weights["target_matrix"])
    for layer in weights["decoder"]:
        x = add_and_norm(x, multi_head_attention(x, x, layer["self_attention"], causal=True), layer["self_attention_norm"])
        x = add_and_norm(x, multi_head_attention(x, memory, layer["cross_attention"]), layer["cross_attention_norm"])
        x = add_and_norm(x, feed_forward(x, layer["feed_forward"]), layer["feed_forward_norm"])
    return x @ weights["logits_matrix"].T + weights["logits_bias"]


def alignment(source, shifted_target, weights, layer: int):
    """How the words of a target attend to those of the source in a layer of the decoder, the mean of its heads. S ids, T ids → [T, S]."""
    memory = encode(source, weights)
    x = embed(shifted_target, weights["target_matrix"])
    for number, each in enumerate(weights["decoder"]):
        x = add_and_norm(x, multi_head_attention(x, x, each["self_attention"], causal=True), each["self_attention_norm"])
        if number == layer:
            return np.mean(heads_weights(x, memory, each["cross_attention"]), axis=0)
        x = add_and_norm(x, multi_head_attention(x, memory, each["cross_attention"]), each["cross_attention_norm"])
        x = add_and_norm(x, feed_forward(x, each["feed_forward"]), each["feed_forward_norm"])


def all_attention(source, shifted_target, weights):
    """The weights of every head. S ids, T ids → {"encoder": [L, H, S, S], "decoder": [L, H, T, T], "cross": [L, H, T, S]}."""
    found = {"encoder": [], "decoder": [], "cross": []}
    memory = embed(source, weights["source_matrix"])
    for each in weights["encoder"]:
        found["encoder"].append(heads_weights(memory, memory, each["self_attention"]))
        memory = add_and_norm(memory, multi_head_attention(memory, memory, each["self_attention"]), each["self_attention_norm"])
        memory = add_and_norm(memory, feed_forward(memory, each["feed_forward"]), each["feed_forward_norm"])
    x = embed(shifted_target, weights["target_matrix"])
    for each in weights["decoder"]:
        found["decoder"].append(heads_weights(x, x, each["self_attention"], causal=True))
        x = add_and_norm(x, multi_head_attention(x, x, each["self_attention"], causal=True), each["self_attention_norm"])
        found["cross"].append(heads_weights(x, memory, each["cross_attention"]))
        x = add_and_norm(x, multi_head_attention(x, memory, each["cross_attention"]), each["cross_attention_norm"])
        x = add_and_norm(x, feed_forward(x, each["feed_forward"]), each["feed_forward_norm"])
    return {kind: np.stack(layers) for kind, layers in found.items()}


def smoothed_loss(sentence_logits, target, label_smoothing: float):
    """-Σ_w q(w) log p(w) for every word (Szegedy et al. 2016, section 7). [T, V], T ids → [T]."""
    losses = []
    for row, word in zip(sentence_logits, target, strict=True):
        q = np.full(row.shape, label_smoothing / len(row))
        q[word] += 1 - label_smoothing
        losses.append(-np.sum(q * np.log(softmax(row))))
    return np.array(losses)
