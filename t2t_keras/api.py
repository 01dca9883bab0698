"""The library for Python users: `load` a trained model and translate, or `train` one."""

import dataclasses
import os
import pathlib
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  The operations of an export's tokenizer.

from t2t_keras import run_folder
from t2t_keras.config import FORMER_NAMES, with_current_names
from t2t_keras.decoding import loading
from t2t_keras.decoding.translator import translate_lines
from t2t_keras.export.service import OWN_ALPHA, Service

Text = str | Sequence[str]


@dataclasses.dataclass(frozen=True)
class Translation:
    """One translation of a sentence."""

    text: str
    score: float  # log P / lp, see section 6.1
    pieces: tuple[str, ...]  # The sub-words with the end token; none for a blank sentence.
    source_pieces: tuple[str, ...] = ()
    # [pieces, source_pieces] float32: how far each piece attends to each source piece, 1 in sum. None unless asked for.
    alignment: np.ndarray | None = None


class TextTranslator:
    """Translates text with a trained run or an exported SavedModel; see `load`.

    Args:
        translate: [B] string → {"text", "score"} [B].
        signatures: has `translate_with_options` and `score`; see `export.service.Service`.
    """

    def __init__(self, translate: Callable, signatures):
        self._translate, self._signatures = translate, signatures

    def translate(self, text: Text, batch_size: int = 64) -> str | list[str]:
        """The best translation of a sentence, or of each of a list.

        Args:
            text: a sentence or a list of them. A line end within a sentence counts as a space.
            batch_size: sentences translated at once.
        """
        found = [result["text"] for result in translate_lines(self._translate, _listed(text), batch_size=batch_size)]
        return found[0] if isinstance(text, str) else found

    def n_best(
        self, text: Text, n: int = 4, *, alpha: float | None = None, prefix: str = "", alignment: bool = False, batch_size: int = 32
    ) -> list[Translation] | list[list[Translation]]:
        """The n best translations of a sentence, or of each of a list, best first.

        Args:
            text: a sentence or a list of them, each of at most 256 sub-words.
            n: at most the beam size that the model was trained, loaded or exported with.
            alpha: of the length penalty, 0 to 10; None: the model's own.
            prefix: what every translation begins with.
            alignment: whether to return alignments.
            batch_size: sentences translated at once.

        Raises:
            ValueError: an option is not possible, or a sentence is too long.
        """
        texts, found = _listed(text), []
        for first in range(0, len(texts), batch_size):
            found += self._n_best(texts[first : first + batch_size], n, OWN_ALPHA if alpha is None else alpha, prefix, alignment)
        return found[0] if isinstance(text, str) else found

    def _n_best(self, texts: list[str], n: int, alpha: float, prefix: str, alignment: bool) -> list[list[Translation]]:
        rows = len(texts)
        outputs = self._signatures.translate_with_options(
            text=tf.constant(texts),
            alpha=tf.fill([rows], float(alpha)),
            max_length=tf.zeros([rows], tf.int32),
            n_best=tf.fill([rows], n),
            prefix=tf.fill([rows], prefix),
            alignment=tf.fill([rows], True),  # The sub-words come with it.
        )
        outputs = {name: value.numpy() for name, value in outputs.items()}
        for text, error in zip(texts, outputs["error"], strict=True):
            if error:
                raise ValueError(f"{error.decode().strip()} The sentence is: {text[:80]!r}.")

        def translation(row: int, beam: int) -> Translation:
            pieces, source_pieces = _decoded(outputs["pieces"][row, beam]), _decoded(outputs["source_pieces"][row])
            weights = outputs["alignment"][row, beam, : len(pieces), : len(source_pieces)] if alignment else None
            text, score = outputs["text"][row, beam].decode(errors="replace"), float(outputs["score"][row, beam])
            return Translation(text, score, pieces, source_pieces, weights)

        return [[translation(row, beam) for beam in range(n)] for row in range(rows)]

    def score(self, source: Text, target: Text, batch_size: int = 32) -> float | list[float]:
        """log P(target | source), in nats, the end token counted; of two sentences, or of each pair of two lists.

        Raises:
            ValueError: the lists are not of the same length.
        """
        sources, targets = _listed(source), _listed(target)
        if isinstance(source, str) != isinstance(target, str) or len(sources) != len(targets):
            raise ValueError(f"Expected a target for each source. Received: {len(sources)} and {len(targets)}.")
        found = []
        for first in range(0, len(sources), batch_size):
            chosen = slice(first, first + batch_size)
            outputs = self._signatures.score(source=tf.constant(sources[chosen]), target=tf.constant(targets[chosen]))
            found += outputs["log_prob"].numpy().tolist()
        return found[0] if isinstance(source, str) else found


def _listed(text: Text) -> list[str]:
    """One sentence or several as a list of lines.

    Raises:
        TypeError: it is neither.
    """
    texts = [text] if isinstance(text, str) else list(text)
    if wrong := [each for each in texts if not isinstance(each, str)]:
        raise TypeError(f"Expected a sentence or a list of sentences. Received: {type(wrong[0]).__name__}.")
    return [" ".join(each.split("\n")) for each in texts]


def _decoded(pieces) -> tuple[str, ...]:
    """[T] bytes, empty after the last → text."""
    return tuple(piece.decode(errors="replace") for piece in pieces if piece)


def load(path: str | os.PathLike, checkpoint: str | int = "average", **options) -> TextTranslator:
    """A trained model, ready to translate.

    Args:
        path: the folder of a run, or of an export: `export_dir`, whose newest version is loaded, or one version in it. An export is a
            program: load only your own.
        checkpoint: of a run, `average`, `best` or `latest` weights, or those after a step, by its number.
        options: of a run, `dtype` (float32 or bfloat16), `int8`, and fields of `DecodeConfig`, such as `beam_size`.

    Raises:
        FileNotFoundError: there is no trained model.
        ValueError: it is damaged, or an option is not possible.
    """
    folder = pathlib.Path(path).expanduser()
    export = _export_in(folder)
    if export is None:
        translator = loading.load(folder, str(checkpoint), **options)
        return TextTranslator(translator, Service(translator))
    if options or checkpoint != "average":
        raise ValueError(f"The options of an export are fixed. Received: {', '.join(options) or f'checkpoint={checkpoint}'} for {export}.")
    return TextTranslator(*_signatures(export))


def _export_in(folder: pathlib.Path) -> pathlib.Path | None:
    """The folder if it is an export, else the newest version of an export in it, else None."""
    if (folder / "saved_model.pb").exists():
        return folder
    versions = [path.parent for path in folder.glob("*/saved_model.pb") if path.parent.name.isdecimal()]
    return max(versions, key=lambda path: int(path.name), default=None)


def _signatures(export: pathlib.Path) -> tuple[Callable, object]:
    """The functions of a SavedModel as `TextTranslator` takes them."""
    model = tf.saved_model.load(str(export))
    missing = {"serving_default", "translate_with_options", "score"} - set(model.signatures)
    if missing:
        raise ValueError(f"{export} is not an export of t2t_keras: it has no signature {', '.join(sorted(missing))}.")

    class Signatures:
        saved_model = model  # TensorFlow frees it otherwise.
        translate_with_options = staticmethod(model.signatures["translate_with_options"])
        score = staticmethod(model.signatures["score"])

    return lambda text: model.signatures["serving_default"](text=text), Signatures


@dataclasses.dataclass(frozen=True)
class Run:
    """A training run in its folder."""

    model_dir: pathlib.Path

    def __post_init__(self):
        object.__setattr__(self, "model_dir", pathlib.Path(self.model_dir).expanduser())

    def load(self, checkpoint: str | int = "average", **options) -> TextTranslator:
        """The trained model; see `t2t_keras.load`."""
        return load(self.model_dir, checkpoint, **options)

    def evaluate(
        self,
        source: Sequence[str],
        *references: Sequence[str],
        checkpoint: str | int = "average",
        lowercase: bool = False,
        tokenize: str = "13a",
    ) -> dict:
        """Translates sentences and scores the translations; see `evaluation.evaluate.evaluate` for what is returned.

        Args:
            source: sentences.
            references: their translations by people; several lists for several references.
            checkpoint: which weights.
            lowercase, tokenize: of sacreBLEU.
        """
        from t2t_keras.evaluation.evaluate import evaluate

        translator = loading.load(self.model_dir, str(checkpoint))
        return evaluate(translator, list(source), *map(list, references), lowercase=lowercase, tokenize=tokenize)[1]

    def export(self, export_dir: str | os.PathLike, checkpoint: str | int = "average", **options) -> pathlib.Path:
        """Writes the next version of a SavedModel for TensorFlow Serving and returns its folder; options as of `t2t_keras.load`."""
        from t2t_keras.export.savedmodel import export_run

        return export_run(pathlib.Path(export_dir).expanduser(), self.model_dir, str(checkpoint), **options)


def train(model_dir: str | os.PathLike, *, data_dir: str | os.PathLike = "", cpu_devices: int = 1, **options) -> Run:
    """Trains a model, or resumes the run in a folder, on all GPUs of this machine or on its CPU.

    Args:
        model_dir: the run's folder. A run that is there is resumed with its own options; those given here win, as on the command line.
        data_dir: prepared data, or where to prepare it; empty: in `model_dir`.
        cpu_devices: without a GPU, virtual devices to train on. More than one has to be asked for before TensorFlow is used.
        options: fields of `ModelConfig`, `TrainConfig`, `DecodeConfig` and `DataConfig`: the flags of `tools/train.py`.

    Raises:
        TypeError: there is no such option.
        FileNotFoundError, ValueError: the corpus or an option cannot be used.
        BlockingIOError: another process trains in `model_dir`.
        training.interruption.StoppedError: the run was stopped early, and has saved.
    """
    from t2t_keras.training import devices, run

    if former := sorted(FORMER_NAMES.keys() & options.keys()):
        renamed = ", ".join(f"{name} is now {FORMER_NAMES[name]}" for name in former)
        warnings.warn(f"Options were renamed: {renamed}. The former names go away in version 0.2.", FutureWarning, stacklevel=2)
        options = with_current_names(options)
    known = {field.name for group in run_folder.GROUPS.values() for field in dataclasses.fields(group)}
    if unknown := sorted(set(options) - known):
        raise TypeError(f"Expected options of ModelConfig, TrainConfig, DecodeConfig or DataConfig. Received: {', '.join(unknown)}.")
    folder = pathlib.Path(model_dir).expanduser()
    options = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in options.items()}
    chosen = run_folder.resolve(folder, options, os.path.expanduser(data_dir))
    if cpu_devices > 1:
        devices.virtual_cpu_devices(cpu_devices)
    run.train(folder, chosen, strategy=devices.make_strategy(cpu_devices))
    return Run(folder)
