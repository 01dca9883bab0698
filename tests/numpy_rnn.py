"""The recurrent translator in NumPy and float64: the oracle of `test_rnn.py`. One sentence and one position at a time,
unpadded.

It shares no code with the package. The equations are those of the cells of Cho et al. (2014,
https://arxiv.org/abs/1406.1078v1), with the reset gate after the product, and of Hochreiter and Schmidhuber (1997) with
forget gates; the layer normalisation of Ba et al. (2016); the attention of Bahdanau et al. (2015) and Luong et al.
(2015); and the conditional recurrence of Nematus (Sennrich et al. 2017, https://arxiv.org/abs/1703.04357).

Weights are a dictionary by path, as the model names them.
"""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    exponentials = np.exp(x - x.max())
    return exponentials / exponentials.sum()


def normalised(x, weights, path: str):
    """Layer normalisation, where the weights have it."""
    if f"{path}/gamma" not in weights:
        return x
    return (x - x.mean()) / np.sqrt(x.var() + 1e-6) * weights[f"{path}/gamma"] + weights[f"{path}/beta"]


def cell(kind: str, x, states, weights, path: str):
    """One transition: an input [X] and the states, h [D] and of an LSTM c [D] → the next states."""
    h, bias = states[0], weights[f"{path}/bias"]
    of_input, of_state = bias if kind == "gru" else (bias, 0.0)
    x = normalised(x @ weights[f"{path}/kernel"] + of_input, weights, f"{path}/input_norm")
    u = normalised(h @ weights[f"{path}/recurrent_kernel"] + of_state, weights, f"{path}/recurrent_norm")
    if kind == "gru":
        (x_z, x_r, x_h), (u_z, u_r, u_h) = np.split(x, 3), np.split(u, 3)
        update, reset = sigmoid(x_z + u_z), sigmoid(x_r + u_r)
        return [update * h + (1 - update) * np.tanh(x_h + reset * u_h)]
    write, forget, candidate, read = np.split(x + u, 4)
    c = sigmoid(forget) * states[1] + sigmoid(write) * np.tanh(candidate)
    return [sigmoid(read) * np.tanh(c), c]


def zeros(kind: str, weights, path: str):
    return [np.zeros(len(weights[f"{path}/recurrent_kernel"]))] * (2 if kind == "lstm" else 1)


def encode(kind: str, source, weights):
    """Annotations of each word from both sides: S ids → [S, 2 D]."""
    matrix = weights.get("source_embedding/matrix", weights["embedding/matrix"])
    x = matrix[source] * np.sqrt(matrix.shape[1])
    layer = 0
    while any(path.startswith(f"encoder_{layer}/") for path in weights):
        sides = []
        for direction, order in (("forward", range(len(x))), ("backward", reversed(range(len(x))))):
            path, found = f"encoder_{layer}/{direction}_{kind}/{kind}_cell", {}
            states = zeros(kind, weights, path)
            for position in order:
                states = cell(kind, x[position], states, weights, path)
                found[position] = states[0]
            sides.append([found[position] for position in range(len(x))])
        x = np.concatenate(sides, axis=1)
        layer += 1
    return x


def attend(function: str, s, annotations, weights):
    """The weights of each source word: s [D], annotations [S, 2 D] → [S]."""
    q, keys = s @ weights["decoder/attention/query/kernel"], annotations @ weights["decoder/attention/key/kernel"]
    if function == "additive":
        return softmax(np.array([np.tanh(q + k) @ weights["decoder/attention/vector"][:, 0] for k in keys]))
    scale = np.sqrt(len(q)) if function == "scaled" else 1.0
    return softmax(np.array([q @ k / scale for k in keys]))


def decode(config, source, shifted_target, weights):
    """S ids, T ids → logits [T, V] and attention weights [T, S]."""
    annotations, matrix = encode(config.cell, source, weights), weights["embedding/matrix"]
    start = np.tanh(annotations.mean(axis=0) @ weights["start/kernel"] + weights["start/bias"])
    states = np.split(start, 2 if config.cell == "lstm" else 1)
    logits, attention = [], []
    for token in shifted_target:
        y = matrix[token] * np.sqrt(matrix.shape[1])
        states = cell(config.cell, y, states, weights, "decoder/first")
        attention.append(attend(config.attention, states[0], annotations, weights))
        context = attention[-1] @ annotations
        states = cell(config.cell, context, states, weights, "decoder/second")
        combined = np.concatenate([states[0], context, y]) @ weights["readout/kernel"] + weights["readout/bias"]
        logits.append(weights.get("embedding/logits_matrix", matrix) @ np.tanh(combined))
    return np.array(logits), np.array(attention)
