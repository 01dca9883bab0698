"""The Transformer of "Attention Is All You Need" on TensorFlow and Keras 3.

    import t2t_keras

    translator = t2t_keras.load("runs/mine")
    translator.translate("Two dogs play.")

Importing the package imports neither TensorFlow nor Keras: each name is loaded when it is first used, without the
lines that TensorFlow writes on every machine, unless TF_CPP_MIN_LOG_LEVEL is 0. Keras knows the layers and models all
the same: `keras.models.load_model` finds them in a process that has imported the package.
"""

import importlib
import importlib.machinery
import sys

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
    "t2t_keras.interop.tensor2tensor": ("import_tensor2tensor",),
    "t2t_keras.interop.marian_export": ("export_marian",),
    "t2t_keras.interop.opennmt": ("import_opennmt",),
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
    from t2t_keras.system.native_messages import without_noise

    with without_noise():  # The module may import TensorFlow.
        value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _LazyClass:
    """Stands for a class in Keras's registry until Keras reads an attribute, such as `from_config`.

    The module that defines the class replaces it there when it is imported.
    """

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, attribute: str):
        return getattr(__getattr__(self._name), attribute)


class _AfterKeras:
    """A finder of modules that registers the public classes with Keras as soon as it is imported."""

    @staticmethod
    def find_spec(name: str, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if name == "keras" else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_register(module) -> None:
            execute(module)
            _register(module)

        spec.loader.exec_module = execute_and_register
        return spec


def _register(keras) -> None:
    """Registers the classes that a saved Keras model may name, as "t2t_keras>Transformer"."""
    registry = keras.saving.get_custom_objects()
    for module, names in _MODULES.items():
        if module.startswith(("t2t_keras.layers.", "t2t_keras.model.", "t2t_keras.training.")):
            for name in names:
                if name[0].isupper():  # No function.
                    registry.setdefault(f"t2t_keras>{name}", _LazyClass(name))


if _keras := sys.modules.get("keras"):
    _register(_keras)
else:
    sys.meta_path.insert(0, _AfterKeras)
