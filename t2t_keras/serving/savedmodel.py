"""Writes a SavedModel for TensorFlow Serving that maps text to text: sub-words, network and beam search in one graph.

export_dir/1/saved_model.pb                            the graph, which includes the weights for the search
export_dir/1/variables/                                the weights for the other signatures
export_dir/1/assets.extra/t2t_keras.json               a description of the model
export_dir/1/assets.extra/tf_serving_warmup_requests   requests that a server runs before it is ready

The graph consists of core operations and operations of TF.Text: three for byte-pair encoding, one for word pieces. A
program that loads it needs TF.Text, but not this package.
"""

import dataclasses
import hashlib
import json
import math
import pathlib
from collections.abc import Callable

import keras
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

import t2t_keras
from t2t_keras.config import SampleConfig
from t2t_keras.decoding.loading import load_with_states
from t2t_keras.decoding.sub_batches import limits_of_server
from t2t_keras.decoding.trained_model import TrainedModel
from t2t_keras.decoding.translator import Translator
from t2t_keras.model.ensemble import Ensemble
from t2t_keras.model.protocols import EncoderDecoder
from t2t_keras.runs import export_folder, run_options
from t2t_keras.runs.export_folder import DESCRIPTION, EXTRA
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.serving.requests import option_inputs, sample_inputs
from t2t_keras.serving.signatures import Signatures
from t2t_keras.system.files import exclusive, making_folder, write_whole
from t2t_keras.system.log import logger
from t2t_keras.system.tensorflow import writing
from t2t_keras.text.tokenizer_ops import tf_text

WARM_UP = "tf_serving_warmup_requests"
MODEL_NAME = "translate"
MAX_BYTES = 2**31 - 2**27  # Maximum size of the weights in a graph: a protocol buffer holds 2 GiB.
# Sizes of warm-up requests: number of sentences, and words in each.
WARM_UP_SIZES = ((1, 1), (1, 10), (1, 40), (8, 20), (32, 20))


def _warm_up(path: pathlib.Path, service: Signatures) -> None:
    """Writes warm-up requests. A server runs them before it is ready, so that its first client need not wait for
    optimised graphs.
    """
    words = [piece.lstrip("▁") for piece in service.translator.source_tokenizer.pieces[-1000:]]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number, length in WARM_UP_SIZES:
            text = tf.constant(
                [" ".join(words[(row + place) % len(words)] for place in range(length)) for row in range(number)]
            )
            requests = {
                "serving_default": {"text": text},
                "translate_with_options": option_inputs(text, alignment=True),
                "sample": sample_inputs(text, tf.zeros([number], tf.int64), SampleConfig()),
                "score": {"source": text, "target": text},
            }
            for signature, inputs in requests.items():
                request = predict_pb2.PredictRequest()
                request.model_spec.name, request.model_spec.signature_name = MODEL_NAME, signature
                for name, values in inputs.items():
                    request.inputs[name].CopyFrom(tf.make_tensor_proto(values.numpy()))
                log = prediction_log_pb2.PredictLog(request=request)
                writer.write(prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString())


def save(folder: pathlib.Path, signatures: dict, tokenizers: list, weights: list, description: dict) -> None:
    """Writes a SavedModel and its description into a new folder."""
    # Only the objects that the signatures use. For a Keras model, TensorFlow would save functions of every layer.
    held = tf.Module()
    held.tokenizers, held.weights = tokenizers, weights
    tf.saved_model.save(held, str(folder), signatures=signatures)
    (folder / EXTRA).mkdir()
    write_whole(folder / EXTRA / DESCRIPTION, (json.dumps(description, indent=2) + "\n").encode())


def _described(model: EncoderDecoder) -> dict:
    """Returns the options of a model, or those of the models of an ensemble and how they are combined."""
    if not isinstance(model, Ensemble):
        return {"model": dataclasses.asdict(model.config)}
    described = {"models": [dataclasses.asdict(config) for config in model.config]}
    return {**described, "ensemble_weights": model.model_weights, "ensemble_mean": model.mean}


def next_version(export_dir: pathlib.Path) -> int:
    """Returns the next version number of an export folder. A server uses the largest one."""
    versions = [int(path.name) for path in export_dir.glob("*") if path.name.isdecimal()]
    return max(versions, default=0) + 1


def write_version(export_dir: pathlib.Path, write: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """Makes the next version of an export, whole or not at all, with a function that writes its files into a new
    folder. Returns the version's folder. Raises `BlockingIOError` if another process is exporting into the folder of
    all versions, and `OSError` if that cannot be written.
    """
    with exclusive(export_dir / ".lock", str(export_dir)):
        folder = export_dir / str(next_version(export_dir))
        with making_folder(folder) as unfinished, writing(unfinished, folder):
            write(unfinished)
    return folder


def _write(folder: pathlib.Path, translator: Translator, about: dict) -> None:
    """Writes all files of a version into a new folder."""
    translator.limits = limits_of_server(translator.config.search_rows, translator.config.search_cores)
    service = Signatures(translator)
    # Constants would be in the graph once more than for the search alone.
    service.sampling_scope = translator.scope
    signatures = {
        "serving_default": service.translate,
        "translate_with_options": service.translate_with_options,
        "sample": service.sample,
        "score": service.score,
    }
    model, tokenizer = translator.model, translator.tokenizer
    languages = {}
    if tokenizer.languages:
        languages = {"languages": tokenizer.languages, "source_language": tokenizer.source.language}
        languages["target_language"] = tokenizer.language
    hashes = [hashlib.sha256(content).hexdigest() for content in tokenizer.models]
    description = {
        **_described(model),
        "decode": dataclasses.asdict(translator.config),
        "dtype": model.compute_dtype,
        "weights": "int8" if translator.int8 else model.variable_dtype,
        **dict(zip(("subwords_sha256", "source_subwords_sha256"), hashes, strict=False)),
        **languages,
        **about,
        "versions": {
            "t2t_keras": t2t_keras.__version__,
            "tensorflow": tf.__version__,
            "tensorflow_text": tf_text.__version__,
            "keras": keras.__version__,
        },
    }
    weights = translator.int8.matrices if translator.int8 else [weight.value for weight in model.weights]
    save(folder, signatures, [tokenizer, *translator.other_sources], weights, description)
    _warm_up(folder / EXTRA / WARM_UP, service)


def export(translator: Translator, export_dir: pathlib.Path, about: dict) -> pathlib.Path:
    """Writes the next version of a SavedModel. A server that watches the folder never sees an incomplete version.

    Args:
        translator: the model to export, with its beam size, α and lengths.
        export_dir: folder of all versions.
        about: further fields for the description in the export.

    Returns:
        The folder of the new version.

    Raises:
        BlockingIOError: another process is exporting into the folder.
        ValueError: the weights are too large for a graph, or the folder holds a run.
    """
    export_folder.check(export_dir)
    model = translator.model
    # The graph holds a shared matrix twice: for the encoder and for the decoder.
    shared = [
        each.embedding_matrix for each in getattr(model, "models", [model]) if each.source_embedding_matrix is None
    ]
    number = model.count_params() + sum(math.prod(matrix.shape) for matrix in shared if matrix is not None)
    size = number * (1 if translator.int8 else tf.as_dtype(model.variable_dtype).size)
    if size > MAX_BYTES:
        received = f"{size:,} bytes for {number:,} weights, with shared matrices twice"
        raise ValueError(
            f"Expected at most {MAX_BYTES:,} bytes of weights. Received: {received}. Use dtype=bfloat16 or `int8`."
        )
    folder = write_version(export_dir, lambda unfinished: _write(unfinished, translator, about))
    logger.info(f"Exported to {folder}. A SavedModel is a program: serve only your own.")
    return folder


def export_run(export_dir: pathlib.Path, model: TrainedModel) -> pathlib.Path:
    """Exports the model of a run, or of several, as the next version of a SavedModel, and returns its folder; see
    `export`.
    """
    translator, states = load_with_states(model)
    runs = [_described_run(run, model.checkpoint, state) for run, state in zip(model.runs, states, strict=True)]
    about = {"runs": runs} if len(runs) > 1 else runs[0]
    tags = model.tags if any(model.tags) else []
    facts = {"tags": tags, "pair": list(model.pair), "inline_terms": model.inline_terms, "pattern": model.pattern}
    return export(translator, export_dir, about | {name: value for name, value in facts.items() if value})


def _described_run(run: SavedRun, checkpoint: str, state: dict) -> dict:
    """Describes a run and the state of its newest checkpoint that was loaded."""
    best, step = state.get("best"), state.get("best_step")
    validation = {run.train.best_metric: abs(best), "update": step} if step and isinstance(best, int | float) else None
    described = {"checkpoint": checkpoint, "update": state.get("step"), "best_validation": validation}
    return {run_options.ARCHITECTURE: run.architecture} | described
