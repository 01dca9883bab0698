"""The loss of section 5.4 from the output of the decoder, without a tensor of all logits [tokens, V].

With hidden states h and the shared matrix E, logits are h Eᵀ, or with a bias, h Eᵀ + b. Logits, softmax and all
gradients are computed for a block of tokens at a time. The gradients are ready at the end of the forward pass: the loss
is a sum over tokens, so the gradient from above is one factor. This is known as fused linear cross entropy (Hsu et al.
2024, https://arxiv.org/abs/2410.10989, section 3.2). `loss.py` has the plain equation.

Two passes over the same tokens, with other dropout, are computed in pairs of blocks, with the divergence of their
distributions.

In a program that XLA compiles, all logits are one tensor: XLA fuses what lies between the three matrix products, and a
loop over blocks would make them smaller.
"""

from typing import NamedTuple

import keras
from keras import ops

from t2t_keras.config import PAD
from t2t_keras.layers.dense import linear
from t2t_keras.layers.inference import custom_gradient, mode
from t2t_keras.model.loss import cross_entropy, pick

_SMALLEST = 1e-30  # Smallest probability whose logarithm is exact; float32 has some down to 1.2e-38.


class Consistency(NamedTuple):
    """Weights of what two passes over the same tokens cost, with distributions p and q. The gradient goes through both.

    Attributes:
        first, second: of the cross entropies of the first and the second pass.
        forward: of KL(p ‖ q) = Σ_w p(w) log (p(w) / q(w)).
        backward: of KL(q ‖ p).
    """

    first: float
    second: float
    forward: float
    backward: float


def r_drop(alpha: float) -> Consistency:
    """R-Drop (Liang et al. 2021, https://arxiv.org/abs/2106.14448, equation 4), halved: the loss then compares with
    that of one pass.
    """
    return Consistency(0.5, 0.5, alpha / 4, alpha / 4)


def simcut(alpha: float) -> Consistency:
    """SimCut (Gao et al. 2022, https://aclanthology.org/2022.naacl-main.289, equation 5), whose second pass lacks
    words.
    """
    return Consistency(1.0, 0.0, alpha, 0.0)


def block_tokens(width: int) -> int:
    """Returns the number of tokens whose logits are computed at a time, for hidden states of a width, D.

    Each block adds a gradient [V, D] to a sum. Where D is small, that takes little time, and the logits of fewer tokens
    fit better into the caches of a CPU.
    """
    return 256 if width <= 128 else 512


def linear_cross_entropy(
    hidden, matrix, target, label_smoothing: float, bias=None, consistency: Consistency | None = None
) -> tuple:
    """Sums the smoothed cross entropy and the negative log likelihood of all target tokens.

    Args:
        hidden: output of the decoder, [B, T, D]. With `consistency`, [2 B, T, D]: the first pass, then the second one.
        matrix: E, [V, D] float32.
        target: [B, T] int, not shifted. Padding costs nothing.
        label_smoothing: ε; see `loss.cross_entropy`.
        bias: of the logits, b, [V] float32, or `None`.
        consistency: weights of two passes; `None` for one.

    Returns:
        Both sums, [] float32 in nats. Those of two passes are weighted, and the divergence is in the first. Only the
        first has a gradient.
    """
    if mode().compiled:
        return _of_all_logits(hidden, matrix, target, label_smoothing, bias, consistency)
    vocab_size, width = matrix.shape
    shares = consistency[:2] if consistency else (1.0,)  # Of the cross entropy of each pass.
    passes, pass_ids = len(shares), ops.reshape(target, (-1,))
    ids, positions = ops.tile(pass_ids, (passes,)), ops.shape(pass_ids)[0]
    number, block_size = passes * positions, block_tokens(width)
    real = ops.cast(pass_ids != PAD, "int32")
    tokens = ops.sum(real)
    share = ops.concatenate([ops.full((block_size // passes,), pass_share) for pass_share in shares])
    real_share = ops.concatenate([pass_share * ops.cast(real, "float32") for pass_share in shares])
    # Tokens first. After the last position comes a row that nothing reads, so that each block is whole.
    order = ops.concatenate([ops.argsort(-real), ops.full((block_size,), number, "int32")])

    def divergence(logits, p, log_sum):
        """Returns the weighted divergence of the tokens of a block of both passes, and its gradient by the logits."""
        (p, q), (log_p, log_q) = ops.split(p, 2), ops.split(logits - log_sum[:, None], 2)
        ratio = log_p - log_q
        forward, backward = ops.sum(p * ratio, axis=-1), -ops.sum(q * ratio, axis=-1)
        grad_p = consistency.forward * p * (ratio - forward[:, None]) + consistency.backward * (p - q)
        grad_q = consistency.forward * (q - p) - consistency.backward * q * (ratio + backward[:, None])
        return consistency.forward * forward + consistency.backward * backward, ops.concatenate([grad_p, grad_q])

    @custom_gradient
    def both(hidden, matrix, *bias):
        rows, with_gradient = ops.reshape(hidden, (-1, width)), not mode().inference
        dtype = keras.backend.standardize_dtype(hidden.dtype)
        gradient_dtype = "float32" if dtype == "float16" else dtype  # In float16, p would underflow.
        e, mean_e = ops.cast(matrix, dtype), ops.mean(matrix, axis=0)

        def block(start, sums, grad_rows, grad_matrix, token_weights, *grad_bias):
            place = start + ops.arange(block_size // passes)
            index = ops.take(order, place)
            weight = ops.cast(place < tokens, "float32")
            if consistency:
                index = ops.concatenate([index, ops.minimum(index + positions, number)])
                weight = ops.concatenate([weight, weight])
            h, token = (ops.take(values, ops.minimum(index, number - 1), axis=0) for values in (rows, ids))
            logits = sum(bias, ops.cast(ops.matmul(h, ops.transpose(e)), "float32"))
            p = ops.softmax(logits)
            token_logit, p_token = (pick(values, token) for values in (logits, p))
            # log Σ exp(logits), computed from the target or, where its p may be rounded to 0, from the most likely
            # token, whose p is at least 1 / V: two more passes over the logits.
            log_sum = ops.cond(
                ops.min(p_token) > _SMALLEST,
                lambda: token_logit - ops.log(p_token),
                lambda: ops.max(logits, axis=-1) - ops.log(ops.max(p, axis=-1)),
            )
            mean = sum(map(ops.mean, bias), ops.matmul(ops.cast(h, "float32"), mean_e))
            smoothed = log_sum - (1 - label_smoothing) * token_logit - label_smoothing * mean
            sums = sums + ops.sum(ops.stack([smoothed, log_sum - token_logit]) * (weight * share), axis=1)
            # The gradient of one pass by its logits is p - q, where q is the smoothed distribution of the target.
            grad_logits = p
            if consistency:
                diverged, grad_divergence = divergence(logits, p, log_sum)
                sums = sums + ops.stack([ops.sum(diverged * weight[: block_size // 2]), 0.0])
                grad_logits = share[:, None] * p + grad_divergence
            if with_gradient:
                # Times E and times h. Rounding would lose the small difference at the token, so what it loses there is
                # added.
                rounded = ops.cast(grad_logits, gradient_dtype)
                exact = pick(grad_logits, token) if consistency else p_token
                lost = exact - ops.cast(pick(rounded, token), "float32")
                token_weight = weight * (share * (1 - label_smoothing) - lost)
                grad_h = (
                    ops.cast(ops.matmul(rounded, ops.cast(e, gradient_dtype)), "float32")
                    - label_smoothing * share[:, None] * mean_e
                )
                grad_h = weight[:, None] * grad_h - token_weight[:, None] * ops.take(matrix, token, axis=0)
                grad_rows = ops.scatter_update(grad_rows, index[:, None], ops.cast(grad_h, gradient_dtype))
                token_weights = ops.scatter_update(token_weights, index[:, None], token_weight)
                h = ops.cast(h, gradient_dtype) * ops.cast(weight[:, None], gradient_dtype)
                grad_matrix = grad_matrix + ops.cast(ops.matmul(ops.transpose(rounded), h), "float32")
                grad_bias = [grad_bias[0] + ops.matmul(weight, grad_logits)] if bias else []
            # Always 0. TensorFlow would otherwise compute several blocks at once, and memory would hold the logits of
            # all of them.
            wait = ops.cast(sums[0] + ops.sum(grad_matrix[:1]) < -float("inf"), "int32")
            return start + block_size // passes + wait, sums, grad_rows, grad_matrix, token_weights, *grad_bias

        # The share of label smoothing is the same in all rows of the gradient of E: the sum over blocks starts from it.
        grad_of_smoothing = -label_smoothing / vocab_size * ops.matmul(real_share, ops.cast(rows, "float32"))
        nothing = ops.zeros((1,)), ops.zeros((1,)), ops.zeros((1,))
        initial = (
            ops.zeros((number + 1, width), gradient_dtype),
            ops.broadcast_to(grad_of_smoothing, matrix.shape),
            ops.zeros((number + 1,)),
            *map(ops.zeros_like, bias),
        )
        start = ops.zeros((), "int32"), ops.zeros((2,)), *(initial if with_gradient else nothing)
        _, sums, grad_rows, grad_matrix, token_weights, *grad_bias = ops.while_loop(
            lambda start, *_: start < tokens, block, start
        )

        def gradient(upstream):
            factor = upstream[0]
            grad_hidden = ops.cast(grad_rows[:number] * ops.cast(factor, gradient_dtype), dtype)
            # Minus the share of the target tokens. The rows of padding have the weight 0.
            grad_of_tokens = ops.cast(rows, "float32") * (-factor * token_weights[:number, None])
            grad = ops.scatter_update(factor * grad_matrix, ids[:, None], grad_of_tokens, reduction="add")
            tokens_of_id = ops.segment_sum(real_share, ids, vocab_size)
            smoothed_q = (1 - label_smoothing) * tokens_of_id + label_smoothing / vocab_size * ops.sum(tokens_of_id)
            gradients_of_bias = [factor * (grad_p - smoothed_q) for grad_p in grad_bias]
            return ops.reshape(grad_hidden, ops.shape(hidden)), grad, *gradients_of_bias

        return sums, gradient

    smoothed, negative_log_likelihood = ops.unstack(both(hidden, matrix, *([] if bias is None else [bias])), 2)
    return smoothed, negative_log_likelihood


def _of_all_logits(hidden, matrix, target, label_smoothing: float, bias, consistency: Consistency | None) -> tuple:
    """Computes `linear_cross_entropy` with logits in one piece, [tokens, V]."""
    dtype = keras.backend.standardize_dtype(hidden.dtype)
    dtype = "float32" if dtype == "float16" else dtype  # In float16, the gradient of E would overflow.
    shares = consistency[:2] if consistency else (1.0,)
    ids = ops.reshape(target, (1, -1))
    rows = linear(ops.cast(hidden, dtype), ops.transpose(ops.cast(matrix, dtype)))
    logits = sum([] if bias is None else [bias], ops.cast(rows, "float32"))
    passes = [logits[None]] if len(shares) == 1 else ops.split(logits[None], 2, axis=1)
    costs = [cross_entropy(of_pass, ids, label_smoothing) for of_pass in passes]
    smoothed, negative_log_likelihood = (
        sum(share * ops.sum(cost) for share, cost in zip(shares, each, strict=True))
        for each in zip(*costs, strict=True)
    )
    if consistency:
        log_p, log_q = map(ops.log_softmax, passes)
        divergence = (consistency.forward * ops.exp(log_p) - consistency.backward * ops.exp(log_q)) * (log_p - log_q)
        smoothed = smoothed + ops.sum(ops.sum(divergence, axis=-1) * ops.cast(ids != PAD, "float32"))
    return smoothed, negative_log_likelihood
