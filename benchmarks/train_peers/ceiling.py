"""The machine's matrix products: the rate of the best of some large ones, in the dtype of the contestants."""

import time

# m × k by k × n. The second and third are a base and a big feed-forward network on 4,096 tokens.
SHAPES = ((4096, 1024, 4096), (4096, 512, 2048), (4096, 2048, 2048), (2048, 2048, 2048))
SECONDS = 0.5  # Duration of the measurement of a shape.


def best_rate(products: list, seconds: float = SECONDS) -> float:
    """Returns the largest rate of some products in FLOP/s, each (operations, function that computes the product and
    waits for it) and measured for so many seconds.
    """
    rates = []
    for operations, multiply in products:
        multiply()
        started, calls = time.perf_counter(), 0
        while not calls or time.perf_counter() - started < seconds:
            multiply()
            calls += 1
        rates.append(calls * operations / (time.perf_counter() - started))
    return max(rates)


def _tensorflow(task: dict, m: int, k: int, n: int):
    import tensorflow as tf

    a, b = (tf.cast(tf.random.stateless_normal(shape, [1, 2]), task["train"]["dtype"]) for shape in ([m, k], [k, n]))
    multiply = tf.function(lambda: tf.matmul(a, b)[:1, :1], autograph=False)
    return lambda: multiply().numpy()


def _pytorch(task: dict, m: int, k: int, n: int):
    import torch

    torch.set_num_threads(task["threads"])
    a, b = (torch.randn(shape).to(getattr(torch, task["train"]["dtype"])) for shape in ([m, k], [k, n]))
    return lambda: torch.mm(a, b)


def start(task: dict):
    """Returns a function (ignored) → {"rate": FLOP/s}. The `options` of the task, see `worker.serve`, name the
    `library`, tensorflow or pytorch.
    """
    make = {"tensorflow": _tensorflow, "pytorch": _pytorch}[task["options"]["library"]]
    products = [(2 * m * k * n, make(task, m, k, n)) for m, k, n in SHAPES]
    return lambda indices: {"rate": best_rate(products)}
