"""KerasHub's layers under `fit`, on Keras with TensorFlow.

Its attention has biases, which stay zero. The loss is Keras's categorical cross entropy with label smoothing. Gradients
are accumulated by the optimizer, over equally many micro-batches in each update.
"""

from benchmarks.train_peers.worker import read_updates, read_weights
from t2t_keras.config import BOS, PAD, ModelConfig, TrainConfig

# (ours, theirs).
PROJECTIONS = {"query": "_query_dense", "key": "_key_dense", "value": "_value_dense", "output": "_output_dense"}
NAMES = {"self_attention": "_self_attention", "cross_attention": "_cross_attention", "feed_forward": "_feedforward"}


def _kinds(layer) -> list[str]:
    """Returns the sub-layers that a layer has, by our names."""
    return [kind for kind, name in NAMES.items() if getattr(layer, f"{name}_layer_norm", None) is not None]


def _attention(layer, kind: str):
    return getattr(layer, f"{NAMES[kind]}_layer")


def make_model(config: ModelConfig, dtype: str):
    """Returns a Keras model (source [B, S], shifted target [B, T]) → logits [B, T, V] float32, its layers, and its
    embedding.
    """
    import keras
    import keras_hub

    keras.config.set_dtype_policy("mixed_bfloat16" if dtype == "bfloat16" else dtype)
    options = {"num_heads": config.num_heads, "dropout": config.dropout, "layer_norm_epsilon": 1e-6}
    normal = keras.initializers.RandomNormal(stddev=config.d_model**-0.5)
    embedding = keras_hub.layers.ReversibleEmbedding(config.vocab_size, config.d_model, embeddings_initializer=normal)
    source, target = (keras.Input([None], dtype="int32", name=name) for name in ("source", "target"))

    def embed(ids):
        x = embedding(ids) * config.d_model**0.5
        return keras.layers.Dropout(config.dropout)(x + keras_hub.layers.SinePositionEncoding()(x))

    mask = keras.ops.not_equal(source, PAD)
    memory, x, layers = embed(source), embed(target), {"encoder": [], "decoder": []}
    for _ in range(config.encoder_layers):
        layers["encoder"].append(keras_hub.layers.TransformerEncoder(config.d_ff, **options))
        memory = layers["encoder"][-1](memory, padding_mask=mask)
    for _ in range(config.decoder_layers):
        layers["decoder"].append(keras_hub.layers.TransformerDecoder(config.d_ff, **options))
        x = layers["decoder"][-1](x, memory, encoder_padding_mask=mask)
    logits = keras.layers.Activation("linear", dtype="float32")(embedding(x, reverse=True))
    for layer in (*layers["encoder"], *layers["decoder"]):
        for kind in _kinds(layer):
            if kind != "feed_forward":
                attention = _attention(layer, kind)
                attention._dropout = 0.0  # Of the attention weights.
                for name in PROJECTIONS.values():
                    getattr(attention, name).bias.trainable = False
    return keras.Model([source, target], logits), layers, embedding


def load(layers: dict, embedding, weights: dict) -> None:
    """Copies the weights of `ours.named_variables`."""
    embedding.embeddings.assign(weights["embedding"])
    for side, stack in layers.items():
        for index, layer in enumerate(stack):
            for kind in _kinds(layer):
                at, norm = f"{side}/{index}/{kind}", getattr(layer, f"{NAMES[kind]}_layer_norm")
                norm.gamma.assign(weights[f"{at}/gamma"])
                norm.beta.assign(weights[f"{at}/beta"])
                if kind == "feed_forward":
                    for ours, theirs in (("inner", "intermediate"), ("outer", "output")):
                        dense = getattr(layer, f"_feedforward_{theirs}_dense")
                        dense.kernel.assign(weights[f"{at}/{ours}"])
                        dense.bias.assign(weights[f"{at}/{ours}_bias"])
                else:
                    for ours, theirs in PROJECTIONS.items():
                        kernel = getattr(_attention(layer, kind), theirs).kernel
                        kernel.assign(weights[f"{at}/{ours}"].reshape(kernel.shape))


def start(task: dict):
    """Returns a function (indices of updates) → {"losses": …}; without initial weights the losses are not computed.
    Raises `ValueError` if the updates have different numbers of micro-batches.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    from t2t_keras.training.optimizer import TransformerSchedule

    config, train, updates = ModelConfig(**task["model"]), TrainConfig(**task["train"]), read_updates(task)
    parts = len(updates[0])
    if {len(micro_batches) for micro_batches in updates} != {parts}:
        raise ValueError(
            "Expected equally many micro-batches in each update, as Keras accumulates. Received: "
            f"{task['micro_batches']}."
        )

    class Schedule(TransformerSchedule):
        """Keras's Adam counts micro-batches in the schedule."""

        def __call__(self, step):
            return super().__call__(step // parts)

    keras.utils.set_random_seed(1)
    model, layers, embedding = make_model(config, train.dtype)
    if (weights := read_weights(task)) is not None:
        load(layers, embedding, weights)

    class Loss(keras.losses.Loss):
        """Keras's categorical cross entropy with label smoothing, summed."""

        def call(self, target, logits):
            one_hot = keras.ops.one_hot(keras.ops.cast(target, "int32"), config.vocab_size)
            return keras.losses.categorical_crossentropy(
                one_hot, logits, from_logits=True, label_smoothing=train.label_smoothing
            )

    adam = keras.optimizers.Adam(
        Schedule(config.d_model, train.warmup_steps, train.learning_rate_factor),
        beta_1=0.9,
        beta_2=0.98,
        epsilon=1e-9,
        gradient_accumulation_steps=parts if parts > 1 else None,
    )
    # XLA would compile each shape anew.
    model.compile(adam, Loss(reduction="sum"), jit_compile=False)

    def batch(update: list, source, target) -> tuple:
        real = (target != PAD).astype(np.float32)
        tokens = sum((other != PAD).sum() for _, other in update)
        shifted = np.concatenate([np.full_like(target[:, :1], BOS), target[:, :-1]], axis=1)
        # Keras takes the mean over the micro-batches of an update.
        return (source, shifted), target, real * parts / tokens

    prepared = [[batch(update, *sides) for sides in update] for update in updates]
    ids = tf.TensorSpec([None, None], tf.int32)
    signature = ((ids, ids), ids, tf.TensorSpec([None, None], tf.float32))

    class Losses(keras.callbacks.Callback):
        """Records the loss of each micro-batch; Keras logs the mean of all so far."""

        def __init__(self):
            super().__init__()
            self.found = []

        def on_train_batch_begin(self, batch, logs=None):
            self.model.reset_metrics()

        def on_train_batch_end(self, batch, logs=None):
            self.found.append(float(logs["loss"]) / parts)

    def make_updates(indices: list[int]) -> dict:
        dataset = tf.data.Dataset.from_generator(
            lambda: (part for index in indices for part in prepared[index]), output_signature=signature
        )
        losses, options = Losses(), tf.data.Options()
        # Its thread sleeps for up to ten seconds, and the end of an iterator waits for it.
        options.autotune.enabled = False
        callbacks = [losses] if weights is not None else []
        model.fit(dataset.prefetch(2).with_options(options), epochs=1, verbose=0, callbacks=callbacks)
        return {"losses": [sum(losses.found[first : first + parts]) for first in range(0, len(losses.found), parts)]}

    return make_updates
