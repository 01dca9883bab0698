"""Loads a model to translate with: `load`. An export can run any code: load only exports that you trust."""

import pathlib
import types

import tensorflow as tf

from t2t_keras.decoding.sub_batches import Limits
from t2t_keras.decoding.trained_model import TrainedModel
from t2t_keras.runs import export_folder
from t2t_keras.serving.requests import checked, option_inputs
from t2t_keras.serving.saved_export import SavedExport
from t2t_keras.serving.signatures import Signatures
from t2t_keras.system.files import check_folder
from t2t_keras.system.tensorflow import share_gpus
from t2t_keras.text.phrases import JOINER, MAX_SUBWORDS, most_subwords


class LoadedExport:
    """A loaded export. It translates as the `Signatures` of a run do. Raises `ValueError` if it is not an export of a
    translator of t2t_keras.

    Attributes:
        config: options of its search.
        limits: of sub-batches, which the export has fixed for a server.
        languages: codes of the languages of a multilingual model.
    """

    def __init__(self, export: SavedExport):
        signatures = read_signatures(export.folder)
        self.translate_with_options = signatures.translate_with_options
        self.sample, self.score = signatures.sample, signatures.score
        self.config, self.limits = export.search, Limits()
        self.languages = export.codes

    def __call__(self, text) -> dict:
        """Translates [B] string → "text" [B] string, "score" [B] float32 and "truncated" [B] boolean."""
        outputs = self._translate(text, 1)
        return outputs | {name: outputs[name][:, 0] for name in ("text", "score")}

    def n_best(self, text) -> dict:
        """Translates [B] string → "text" [B, W] string, "score" [B, W] float32 and "truncated" [B] boolean."""
        return self._translate(text, self.config.beam_size)

    def fits(self, phrase: str, text: str) -> bool:
        """Returns whether a phrase has few enough sub-words for a constraint of a text, as far as `score` tells.

        It also counts the end token and, of a multilingual model, that of the language.
        """
        outputs = self.score(source=tf.constant([text]), target=tf.constant([phrase.removeprefix(JOINER)]))
        [length] = outputs["length"].numpy()
        return length <= MAX_SUBWORDS + 1 + bool(self.languages)

    def reads(self, text: str) -> bool:
        """Returns whether the model reads all of a text, which `score` tells; a short one without asking it."""
        if most_subwords(text) + 2 <= self.config.max_input:  # With the end token and a language.
            return True
        outputs = self.score(source=tf.constant([text]), target=tf.constant([""]))
        return not bool(outputs["truncated"][0])

    def source_subwords(self, texts: list[str]) -> int:
        """Returns 0: an export does not tell how many sub-words texts have."""
        return 0

    def _translate(self, text, n_best: int) -> dict:
        return checked(self.translate_with_options(**option_inputs(text, n_best=n_best)), text)


def load(model: TrainedModel | SavedExport, **hooks) -> Signatures | LoadedExport:
    """Loads a model. Runs raise the errors of `decoding.loading.load`, which `hooks` are of, an export those of
    `LoadedExport`.
    """
    if not isinstance(model, SavedExport):
        return Signatures(model.load(**hooks))
    if any(hooks.values()):
        raise ValueError(f"`scorers` and `selector` need a run. Received: an export, {model.folder}.")
    return LoadedExport(model)


def read_signatures(export: pathlib.Path) -> types.SimpleNamespace:
    """Loads a SavedModel and returns its signatures that take options. Raises `ValueError` if it is damaged, one is
    missing, its path is not UTF-8, or TF.Text is not installed.
    """
    export_folder.require_tf_text()
    check_folder(export, "model_dir")
    import tensorflow_text  # noqa: F401  Registers the operations of the export's tokenizer.

    share_gpus()
    try:
        model = tf.saved_model.load(str(export))
    except (OSError, ValueError, IndexError, tf.errors.OpError) as error:
        # IndexError: the file of the weights was truncated.
        reason = " ".join(str(error).split())[:300]
        raise ValueError(
            f"{export} cannot be loaded ({reason}). If it is damaged, copy it or export the run again."
        ) from error
    names = ("translate_with_options", "sample", "score")
    missing = {"serving_default", *names} - set(model.signatures)
    if missing:
        outputs = getattr(model.signatures.get("serving_default"), "structured_outputs", {})
        received = (
            "a classifier" if "probabilities" in outputs else f"which lacks the signatures {', '.join(sorted(missing))}"
        )
        raise ValueError(f"Expected an export of a translator of t2t_keras. Received: {export}, {received}.")
    return types.SimpleNamespace(**{name: model.signatures[name] for name in names})
