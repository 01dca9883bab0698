"""The Transformer of "Attention Is All You Need" on TensorFlow and Keras 3.

    import t2t_keras

    translator = t2t_keras.load("runs/mine")
    translator.translate("Two dogs play.")

Importing the package imports neither TensorFlow nor Keras: each name is loaded when it is first used.
"""

import importlib

__version__ = "0.1.0"

# Public names by the module that defines them.
_MODULES = {
    "t2t_keras.api": ("Run", "TextTranslator", "Translation", "load", "train"),
    "t2t_keras.config": ("DataConfig", "DecodeConfig", "ModelConfig", "SampleConfig", "TrainConfig", "option"),
    "t2t_keras.decoding.minimum_bayes_risk": ("mbr",),
    "t2t_keras.decoding.search_hooks": ("Scorer", "Selector"),
    "t2t_keras.model.beams": ("follow",),
    "t2t_keras.evaluation.comparison": ("compare",),
    "t2t_keras.interop.huggingface": ("import_huggingface", "import_marian"),
    "t2t_keras.interop.marian_export": ("export_marian",),
    "t2t_keras.layers.attention": ("MultiHeadAttention", "scaled_dot_product_attention"),
    "t2t_keras.layers.dense": ("Dense",),
    "t2t_keras.layers.dropout": ("Dropout",),
    "t2t_keras.layers.embedding": ("SharedEmbedding",),
    "t2t_keras.model.encoder": ("TransformerEncoder",),
    "t2t_keras.layers.feed_forward": ("FeedForward",),
    "t2t_keras.layers.layer_norm": ("LayerNorm",),
    "t2t_keras.model.loss": ("LabelSmoothedCrossEntropy",),
    "t2t_keras.layers.masks": ("causal_mask", "padding_mask", "shift_right"),
    "t2t_keras.layers.positions": ("LearnedPositions", "SinusoidalPositions"),
    "t2t_keras.model.protocols": ("EncoderDecoder", "SequenceModel"),
    "t2t_keras.layers.restricted_attention": ("RestrictedSelfAttention", "restricted_attention"),
    "t2t_keras.layers.stacks": ("AddAndNorm", "DecoderLayer", "EncoderLayer"),
    "t2t_keras.model.transformer": ("Transformer",),
    "t2t_keras.config.paper": ("table_3",),
    "t2t_keras.runs.registry": ("register_architecture", "register_task"),
    "t2t_keras.runs.task": ("Column", "Metric", "Renewal", "Task"),
    "t2t_keras.training.optimizer": ("TransformerSchedule",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str):
    if name not in _MODULE_OF:
        raise AttributeError(f"module 't2t_keras' has no attribute '{name}'")
    value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
