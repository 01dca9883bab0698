"""Private names of Keras, TensorFlow, TF.Text and sacreBLEU, which a new version may change without notice. No other
module uses one.

They were seen in TensorFlow 2.21, TF.Text 2.21, Keras 3.15.1 and sacreBLEU 2.6; `tests/test_compat.py` shows which have
changed since. Each function imports what it needs: the network needs Keras only, and scores need not even that.
"""

import collections
import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence


def keras_mask(x):
    """Returns the mask [B, S] that Keras attaches to a tensor, or `None`.

    Private: `keras.src.backend.get_keras_mask`. `Layer.__call__` attaches the result of `compute_mask` to its outputs
    as `_keras_mask`, or in a table if the backend's tensors take no attributes.
    """
    from keras.src import backend

    return backend.get_keras_mask(x)


def with_keras_mask(x, mask):
    """Returns x [B, S, …] with a mask [B, S] attached, as `Layer.__call__` attaches one; `None` attaches none.

    Private: `keras.src.backend.set_keras_mask`.
    """
    from keras.src import backend

    if mask is not None:
        backend.set_keras_mask(x, mask)
    return x


def layers_of(model) -> list:
    """Returns the layers inside a model at any depth, each once.

    Private: `Layer._flatten_layers`. `Model.layers` has the upper ones only.
    """
    return model._flatten_layers(include_self=False)


@contextlib.contextmanager
def own_names() -> Iterator[None]:
    """Gives layers made inside a `with` block the automatic names that they would have in a new process.

    Private: `object_name_uids`, a global attribute with the counters of Keras's automatic names.
    """
    from keras.src.backend.common import global_state

    counters = global_state.get_global_attribute("object_name_uids")
    global_state.set_global_attribute("object_name_uids", collections.defaultdict(int))
    try:
        yield
    finally:
        global_state.set_global_attribute("object_name_uids", counters)


@contextlib.contextmanager
def replaced_calls(calls: Iterable[tuple]) -> Iterator[None]:
    """Replaces the function `call` of layers inside a `with` block, given (layer, function) pairs.

    Private: `Layer.__call__` looks `call` up in the layer's `vars` before its class. Written there, a function does not
    pass `Layer.__setattr__`, which tracks what it gets as a part of the layer.
    """
    before = []
    for layer, call in calls:
        before.append((layer, vars(layer).get("call")))
        vars(layer)["call"] = call
    try:
        yield
    finally:
        for layer, call in before:
            del vars(layer)["call"]
            if call:
                vars(layer)["call"] = call


def adam_averages(optimizer, variable) -> tuple:
    """Returns the averages of a weight's gradient and squared gradient, which are Keras variables.

    Private: `Adam._momentums` and `Adam._velocities`, lists in the order of the weights, and
    `Optimizer._get_variable_index`, the place of a weight, or of the copy that a device has of it.
    """
    index = optimizer._get_variable_index(variable)
    return optimizer._momentums[index], optimizer._velocities[index]


def moving_average(optimizer, variable):
    """Returns the moving average of a weight, a Keras variable.

    Private: `Optimizer._model_variables_moving_average`, a list in the order of the weights, and `_get_variable_index`,
    as in `adam_averages`.
    """
    return optimizer._model_variables_moving_average[optimizer._get_variable_index(variable)]


def moving_averages(optimizer) -> dict:
    """Returns the moving averages of all weights by the path of the weight.

    Private: `Optimizer._model_variables_moving_average` and `_trainable_variables`, the weights.
    """
    paths = [weight.path for weight in optimizer._trainable_variables]
    return dict(zip(paths, optimizer._model_variables_moving_average, strict=True))


def number_collective_keys(strategy, number: int) -> None:
    """Keeps the collective operations of `tf.distribute.MirroredStrategy` objects with different numbers apart.

    Private: `_collective_key_base`, the first key of a strategy. It is read when the strategy is initialized, so call
    this before.
    """
    strategy._collective_key_base = 1_000_000 * number


def number_functions_from_a_round_number() -> None:
    """Gives the functions that are traced next the same names in every process that traces the same ones.

    XLA's persistent cache finds a program by the names of its functions, `__inference_program_4711`. A resumed run
    would have other numbers, because restoring a checkpoint also traces functions.

    Private: `ops.uid`, the counter of these numbers. It only grows, so this counts up to the next multiple of a
    million, which takes 0.2 s. A new process starts at 0, and a run uses some thousands before its first update, unless
    it prepares data of TFDS, where each sentence takes one.
    """
    from tensorflow.python.framework import ops

    for _ in range(1_000_000):
        if ops.uid() % 1_000_000 == 0:
            break


def share_sentencepiece_model(tokenizer, model: bytes) -> None:
    """Names the model of a `tensorflow_text.SentencepieceTokenizer`, so that it stays valid after `tf.random.set_seed`.

    TF.Text keeps an unnamed model in a kernel, and setting a seed clears the kernel cache. A model with a shared name
    is kept.

    Private: `SentencepieceTokenizer._model_resource`, of the class `_SentencepieceModelResource`, whose
    `_create_resource` calls the operation `sentencepiece_op` without a name.
    """
    from tensorflow_text.python.ops import sentencepiece_tokenizer

    class Resource(sentencepiece_tokenizer._SentencepieceModelResource):
        def _create_resource(self):
            operations = sentencepiece_tokenizer.gen_sentencepiece_tokenizer
            return operations.sentencepiece_op(model=model, shared_name=hashlib.sha256(model).hexdigest())

    tokenizer._model_resource = Resource(model, None)


def corpus_statistics(metric, system: Sequence[str], references: Sequence[Sequence[str]]) -> list[list[float]]:
    """Returns what a metric of sacreBLEU counts in each sentence of a system: [sentences, counts].

    Private: `sacrebleu.metrics.base.Metric._extract_corpus_statistics`. The metrics return scores only.
    """
    return metric._extract_corpus_statistics(system, references)


def score_of_statistics(metric, sums: Sequence[float]) -> float:
    """Returns the score of a corpus whose `corpus_statistics` have these sums.

    Private: `sacrebleu.metrics.base.Metric._compute_score_from_stats`.
    """
    return metric._compute_score_from_stats(list(sums)).score
