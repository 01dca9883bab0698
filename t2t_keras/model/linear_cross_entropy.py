"""The loss of section 5.4 from the output of the decoder, without a tensor of all logits [tokens, V].

With hidden states h and the shared matrix E, logits are h Eᵀ, or with a bias, h Eᵀ + b. Logits, softmax and all gradients are computed for
a block of tokens at a time. The gradients are ready at the end of the forward pass: the loss is a sum over tokens, so the gradient from
above is one factor. This is known as fused linear cross entropy (Hsu et al. 2024, https://arxiv.org/abs/2410.10989, section 3.2).
`loss.py` has the plain equation.
"""

import keras
from keras import ops

from t2t_keras.config import PAD
from t2t_keras.layers.gradient import custom_gradient
from t2t_keras.layers.inference import mode

BLOCK = 512  # Tokens.


def linear_cross_entropy(hidden, matrix, target, label_smoothing: float, bias=None) -> tuple:
    """Sums the smoothed cross entropy and the negative log likelihood of all target tokens.

    Args:
        hidden: output of the decoder, [B, T, D].
        matrix: E, [V, D] float32.
        target: [B, T] int, not shifted. Padding costs nothing.
        label_smoothing: ε; see `loss.cross_entropy`.
        bias: of the logits, b, [V] float32, or `None`.

    Returns:
        Both sums, [] float32 in nats. Only the first has a gradient.
    """
    vocab_size, width = matrix.shape
    ids = ops.reshape(target, (-1,))
    number = ops.shape(ids)[0]
    real = ops.cast(ids != PAD, "int32")
    tokens = ops.sum(real)
    # Tokens first. After the last position comes a row that nothing reads, so that each block is whole.
    order = ops.concatenate([ops.argsort(1 - real), ops.full((BLOCK,), number, "int32")])

    @custom_gradient
    def both(hidden, matrix, *bias):
        rows, with_gradient = ops.reshape(hidden, (-1, width)), not mode().inference
        dtype = keras.backend.standardize_dtype(hidden.dtype)
        gradient_dtype = "float32" if dtype == "float16" else dtype  # In float16, p would underflow.
        e, mean_e = ops.cast(matrix, dtype), ops.mean(matrix, axis=0)

        def block(start, sums, of_rows, of_matrix, token_weights, *of_bias):
            place = start + ops.arange(BLOCK)
            index = ops.take(order, place)
            weight = ops.cast(place < tokens, "float32")
            h, token = (ops.take(values, ops.minimum(index, number - 1), axis=0) for values in (rows, ids))
            logits = sum(bias, ops.cast(ops.matmul(h, ops.transpose(e)), "float32"))
            p = ops.softmax(logits)
            # log Σ exp(logits), computed from the most likely token: its p is at least 1 / V, so the logarithm is finite.
            log_sum = ops.max(logits, axis=-1) - ops.log(ops.max(p, axis=-1))
            of_token = ops.take_along_axis(logits, token[:, None], axis=-1)[:, 0]
            mean = sum(map(ops.mean, bias), ops.matmul(ops.cast(h, "float32"), mean_e))
            smoothed = log_sum - (1 - label_smoothing) * of_token - label_smoothing * mean
            sums = sums + ops.sum(ops.stack([smoothed, log_sum - of_token]) * weight, axis=1)
            if with_gradient:
                # p - q, times E and times h. Rounding p would lose the small difference at the token, so what it loses there is added.
                rounded = ops.cast(p, gradient_dtype)
                lost = ops.exp(of_token - log_sum) - ops.cast(ops.take_along_axis(rounded, token[:, None], axis=-1)[:, 0], "float32")
                token_weight = weight * (1 - label_smoothing - lost)
                of_h = weight[:, None] * (ops.cast(ops.matmul(rounded, ops.cast(e, gradient_dtype)), "float32") - label_smoothing * mean_e)
                of_h = of_h - token_weight[:, None] * ops.take(matrix, token, axis=0)
                of_rows = ops.scatter_update(of_rows, index[:, None], ops.cast(of_h, gradient_dtype))
                token_weights = ops.scatter_update(token_weights, index[:, None], token_weight)
                h = ops.cast(h, gradient_dtype) * ops.cast(weight[:, None], gradient_dtype)
                of_matrix = of_matrix + ops.cast(ops.matmul(ops.transpose(rounded), h), "float32")
                of_bias = [of_bias[0] + ops.matmul(weight, p)] if bias else []
            # Always 0. TensorFlow would otherwise compute several blocks at once, and memory would hold the logits of all of them.
            wait = ops.cast(sums[0] + ops.sum(of_matrix[:1]) < -float("inf"), "int32")
            return start + BLOCK + wait, sums, of_rows, of_matrix, token_weights, *of_bias

        nothing = ops.zeros((1,)), ops.zeros((1,)), ops.zeros((1,))
        zeros = ops.zeros((number + 1, width), gradient_dtype), ops.zeros_like(matrix), ops.zeros((number + 1,)), *map(ops.zeros_like, bias)
        start = ops.zeros((), "int32"), ops.zeros((2,)), *(zeros if with_gradient else nothing)
        _, sums, of_rows, of_matrix, token_weights, *of_bias = ops.while_loop(lambda start, *_: start < tokens, block, start)

        def gradient(upstream):
            factor = upstream[0]
            of_hidden = ops.cast(of_rows[:number] * ops.cast(factor, gradient_dtype), dtype)
            weighted = ops.cast(rows, "float32") * ops.cast(real, "float32")[:, None]
            of_q = ops.segment_sum(weighted * token_weights[:number, None], ids, vocab_size)
            of_q = of_q + label_smoothing / vocab_size * ops.sum(weighted, axis=0)
            tokens_of_id = ops.segment_sum(ops.cast(real, "float32"), ids, vocab_size)
            smoothed_q = (1 - label_smoothing) * tokens_of_id + label_smoothing / vocab_size * ops.sum(tokens_of_id)
            gradients_of_bias = [factor * (of_p - smoothed_q) for of_p in of_bias]
            return ops.reshape(of_hidden, ops.shape(hidden)), factor * (of_matrix - of_q), *gradients_of_bias

        return sums, gradient

    smoothed, negative_log_likelihood = ops.unstack(both(hidden, matrix, *([] if bias is None else [bias])), 2)
    return smoothed, negative_log_likelihood
