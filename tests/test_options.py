"""Every option has an effect where it should: one row, at least, for each field of the groups of `config.py`.

A row sets its option to another value than usual and looks at something that only the program's behaviour decides:
variables of the model, updates of the loop, files on disk, what a search writes. A field without a row fails.
"""

import dataclasses
import functools
import itertools
import json
import pathlib
import shutil
import types
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
import toy
from stand_in import Copier
from test_corpora import EXAMPLES, wmt14  # noqa: F401
from test_prepare import sentences, texts, write_text
from test_run import MODEL, handed_over, prepared  # noqa: F401
from test_search_hooks import Recurrent
from test_search_hooks import searched as ids_of
from test_training import NO_BLEU, Run, steps_on_disk
from test_translator import Numbers

from t2t_keras.config import (
    BOS,
    EOS,
    BertConfig,
    ClassifierConfig,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    RnnConfig,
    SampleConfig,
    TrainConfig,
)
from t2t_keras.data import batching, corpora, data_service, prepare, shards, text_files
from t2t_keras.decoding import translator
from t2t_keras.decoding.translator import Translator
from t2t_keras.layers.dropout import Dropout, WordDropout
from t2t_keras.layers.layer_norm import LayerNorm
from t2t_keras.model.bert import Bert, Classifier
from t2t_keras.model.rnn import Rnn
from t2t_keras.model.transformer import Transformer
from t2t_keras.runs import checkpoint, data_folder, registry, run_options
from t2t_keras.runs.task import SUMS
from t2t_keras.serving.requests import sampler
from t2t_keras.serving.signatures import Signatures
from t2t_keras.system import files
from t2t_keras.text import byte_pairs, vocabulary, words
from t2t_keras.text.word_pieces import HEAD
from t2t_keras.training import embeddings, interruption, loop, parent, train_step
from t2t_keras.training import run as training_run

TEXTS = {
    "train_source": "train.source", "train_target": "train.target", "valid_source": "valid.source",
    "valid_target": "valid.target",
}  # fmt: skip
TRAIN_PAIRS, VALID_PAIRS = sentences(200, seed=1), sentences(20, seed=2)
TRAIN_PAIRS[0] = ("½ house", "½ Haus")
OTHER_TRAIN, OTHER_VALID = sentences(200, seed=3), sentences(20, seed=4)
LINE = "one hundred and two"

USUAL = {
    ModelConfig: toy.SMALL,
    RnnConfig: RnnConfig(20, d_model=8, d_embedding=6),
    BertConfig: BertConfig(20, 2, 8, 12, 2, learned_positions=5),
    ClassifierConfig: ClassifierConfig(20, 2, 8, 12, 2, learned_positions=5, labels="no,yes"),
    TrainConfig: dataclasses.replace(toy.TRAIN, **NO_BLEU),
    DecodeConfig: DecodeConfig(extra_length=5),
    SampleConfig: SampleConfig(),
    DataConfig: DataConfig(**TEXTS),
}


class Lab:
    """Where options are tried out. What was found for a configuration is kept for the rows that look at it in another
    way.

    Args:
        folder: shards of the toy.
        data_dir: a folder that `prepare` wrote.
        root: a folder for what is tried.
    """

    def __init__(self, folder: pathlib.Path, data_dir: pathlib.Path, root: pathlib.Path):
        self.folder, self.data_dir, self.root, self.number = folder, data_dir, root, 0
        self.kept = functools.cache(lambda tried, config: tried(self, config))

    def fresh(self) -> pathlib.Path:
        self.number += 1
        return self.root / str(self.number)


@pytest.fixture(scope="module")
def lab(folder, prepared, tmp_path_factory):  # noqa: F811
    root = tmp_path_factory.mktemp("lab")
    for split, pairs in (
        ("train", TRAIN_PAIRS), ("valid", VALID_PAIRS), ("other-train", OTHER_TRAIN), ("other-valid", OTHER_VALID),
    ):  # fmt: skip
        write_text(root, split, pairs)
    (root / "bad.source").write_bytes(b"\xff\n" + (root / "train.source").read_bytes().partition(b"\n")[2])
    (root / "terms.tsv").write_text("house\tHaus\n")
    lines = (line.encode() for pair in OTHER_TRAIN for line in pair)
    (root / "given.model").write_bytes(
        vocabulary.learn("bpe", lines, 320, sample=1000, seed=1, normalization="identity", character_coverage=1.0)
    )
    for name, subwords in (("parent", prepared / prepare.SUBWORDS), ("stranger", root / "given.model")):
        (root / name).mkdir()
        (root / name / files.CONFIG).write_text('{"model": {}}')
        shutil.copy(subwords, root / name / files.SUBWORDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        yield Lab(folder, prepared, root)


def damaged(folder: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
    """A copy of a shard's folder with one damaged record."""
    shutil.copytree(folder, to)
    toy.damage(next(to.glob("*.tfrecord")))
    return to


# What a model is.


@functools.cache
def model_of(config):
    return {RnnConfig: Rnn, BertConfig: Bert, ClassifierConfig: Classifier}.get(type(config), Transformer)(config)


def shape_of(ending: str) -> Callable:
    """config → the one shape of all weights whose path ends so."""

    def shape(lab, config) -> tuple:
        return next(
            (tuple(weight.shape) for weight in model_of(config).trainable_variables if weight.path.endswith(ending)), ()
        )

    return shape


def rates_of_dropout(name: str) -> Callable:
    """config → the rates of the dropout inside layers with this in their names."""

    def rates(lab, config) -> list:
        layers = [each for each in model_of(config)._flatten_layers() if name in each.name and "norm" not in each.name]
        return [each.dropout.rate for each in layers if getattr(each, "dropout", None)]

    return rates


def word_dropouts(lab, config) -> list:
    """Rates of the layers that drop words, and whether the first half of a batch keeps them."""
    return [
        (each.rate, each.second_half) for each in model_of(config)._flatten_layers() if isinstance(each, WordDropout)
    ]


def diverged(lab, config) -> float:
    """What training adds to the cross entropy of each token, where the divergence of two passes is 1 both ways."""
    model = model_of(config)
    found = model._consistency() or (0, 0, 0, 0)
    return (found[2] + found[3]) / (found[0] or 1) if model.passes == 2 else 0.0


def rate_of(name: str) -> Callable:
    """config → the rate of one dropout layer."""
    return lambda lab, config: next(layer.rate for layer in model_of(config)._flatten_layers() if layer.name == name)


def scores_grow(lab, config) -> float:
    """How much a score grows with a query and a key twice as large: 4 times, if it is a dot product."""
    attention = model_of(config).decoder.attention
    q, keys = np.random.default_rng(1).normal(size=(2, 1, 2, 8)).astype("float32")
    ratios = [np.diff(np.log(attention.weights_of(factor * q, factor * keys))).item(0) for factor in (1, 2)]
    return ratios[1] / ratios[0]


def scale_of(lab, config) -> float:
    """What a difference of scores is divided by, if they are dot products."""
    attention = model_of(config).decoder.attention
    q, keys = np.random.default_rng(1).normal(size=(2, 1, 2, 8)).astype("float32")
    scores = q @ attention.query_projection.kernel.numpy() @ keys[0].T
    return np.diff(scores[0, 0]).item() / np.diff(np.log(attention.weights_of(q, keys)[0, 0])).item()


def biases_of(part: str) -> Callable:
    """config → how many biases of projections are in layers whose name ends so."""

    def biases(lab, config) -> int:
        paths = [weight.path.split("/") for weight in model_of(config).trainable_variables]
        return sum(path[-1] == "bias" and len(path) > 2 and path[-3].endswith(part) for path in paths)

    return biases


def attention_functions(lab, config) -> list[str]:
    """The names of the functions that agree with the attention weights of a layer."""
    layer = model_of(config).decoder[0].cross_attention
    query, memory = np.random.default_rng(1).normal(size=(2, 1, 3, config.d_model)).astype("float32")
    (q, *_), (k, *_) = (
        np.moveaxis((x @ projection.kernel.numpy()).reshape(1, 3, config.num_heads, config.d_k), 2, 1)
        for x, projection in ((query, layer.query_projection), (memory, layer.key_projection))
    )
    v = np.ones((config.num_heads, config.d_k)) if layer.vector is None else layer.vector.numpy()
    scores = {
        "additive": np.einsum("hk,htsk->hts", v, np.tanh(q[:, :, None] + k[:, None])),
        "scaled": q @ np.swapaxes(k, 1, 2) / config.d_k**0.5,
        "unscaled": q @ np.swapaxes(k, 1, 2),
    }
    weights = np.array(layer.weights_of(query, memory))[0]
    softmax = {name: np.exp(each) / np.exp(each).sum(axis=-1, keepdims=True) for name, each in scores.items()}
    return [name for name, each in softmax.items() if np.allclose(each, weights, atol=1e-6)]


def activations(lab, config) -> list[str]:
    """The names of the functions that agree with the inner map of a feed-forward network."""
    inner = model_of(config).encoder.stack[0].feed_forward.inner
    x = np.linspace(-2, 2, 24, dtype="float32").reshape(3, 8)
    before = x @ inner.kernel.numpy()
    functions = {"relu": keras.activations.relu, "gelu": keras.activations.gelu, "swish": keras.activations.silu}
    return [name for name, function in functions.items() if np.allclose(inner(x), function(before), atol=1e-6)]


def epsilons(lab, config) -> set:
    return {layer.epsilon for layer in model_of(config)._flatten_layers() if isinstance(layer, LayerNorm)}


def embedded_rows(lab, config) -> tuple[int, int]:
    """How many sub-words each side embeds."""
    model = model_of(config)
    return model.encoder.embedding.matrix.shape[0], model.embedding.matrix.shape[0]


def layers_of(side: str) -> Callable:
    """config → how many layers a stack has."""

    def layers(lab, config) -> int:
        parts = {part for weight in model_of(config).trainable_variables for part in weight.path.split("/")}
        return sum(part.startswith(f"{side}_") for part in parts)

    return layers


def heads(lab, config) -> tuple:
    """Heads, and the widths of their keys and values."""
    [(keys, values)] = model_of(config).encode(tf.constant([[5, 6, 7]])).keys_values
    return keys.shape[1], keys.shape[3], values.shape[3]


def logits(lab, config) -> int:
    return model_of(config)((tf.constant([[5]]), tf.constant([[2]]))).shape[-1]


def dropout_rates(lab, config) -> set:
    return {layer.rate for layer in model_of(config)._flatten_layers() if isinstance(layer, Dropout)}


def positions(lab, config) -> list:
    return [tuple(weight.shape) for weight in model_of(config).trainable_variables if "positions" in weight.path]


def heads_of_pairs(lab, config) -> tuple:
    """Heads, and the width of their keys."""
    options = model_of(config).encoder.stack[0].options
    return options["num_heads"], options["d_k"]


def masked_words(lab, config) -> int:
    """How many sub-words are masked, of two words of 10, of which the second is cut, with a separator after each."""
    every = np.arange(20) > EOS
    tokenizer = types.SimpleNamespace(vocab_size=20, word_parts=(every, every))
    renewal = registry.task("pretraining").renewal(
        tokenizer, run_options.Options(config, architecture="bert"), training=True
    )
    rows = {"tokens": [[BOS, *[7] * 20, EOS, EOS]], "lengths": [[10, 10]], "document": [[1]]}
    found = renewal.change(
        {name: tf.ragged.constant(row, tf.int32, row_splits_dtype=tf.int64) for name, row in rows.items()}, [1, 2]
    )
    return len(found["masked"].values)


def angles(config, position: int):
    """Of the sinusoids at a position."""
    added = model_of(config).positions(np.zeros((1, 2, config.d_model), "float32"))[0, position].numpy()
    return np.arctan2(added[::2], added[1::2])


def frequencies(lab, config) -> list[float]:
    return angles(config, 1).tolist()


def first_angle(lab, config) -> float:
    return float(angles(config, 0)[0])


def normalized(lab, config) -> tuple[bool, bool]:
    """Whether rows that a layer returns have mean 0, and those of the whole encoder."""
    model, x = model_of(config), 3 + np.random.default_rng(1).normal(size=(1, 5, config.d_model)).astype("float32")
    both = model.encoder.stack[0](x), model.encoder(np.array([[5, 6, 7, 8]]))
    return tuple(bool(np.allclose(np.mean(rows, axis=-1), 0, atol=1e-5)) for rows in both)


def reached(lab, config) -> list[int]:
    """The source positions that see the last one in the first layer."""
    model = model_of(config)
    one, other = (model.encode(tf.constant([[5, 6, 7, 8, 9, last]])).keys_values[0][0].numpy() for last in (10, 11))
    return np.flatnonzero((one != other).any(axis=(0, 1, 3))).tolist()


def reads_the_end(lab, config) -> bool:
    """Whether the end token of a source changes the logits."""
    model = model_of(config)
    with_end, without = (model((np.array([source]), np.array([[BOS, 7]]))) for source in ([5, 6, EOS], [5, 6]))
    return not np.allclose(with_end, without, atol=1e-6)


# What the loop does; nothing is compiled.


def looped(
    lab, config, *, finite: bool = True, figures: dict | None = None, folder: pathlib.Path | None = None
) -> types.SimpleNamespace:
    """A run: the updates it applied, the steps on disk, and the run itself, or how it ended."""
    made, asked, model_dir = [], [], lab.fresh()

    def read_by_service(folder, *, service, job, **reading):
        asked.append(service)
        return batching.batches(folder, **reading)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "make_train_step", toy.pretended_train_step(made, finite))
        patch.setattr(data_service, "batches", read_by_service)
        try:
            run = Run(folder or lab.folder, model_dir, figures=figures, started=-1e9, **dataclasses.asdict(config))
            ended = "at its end"
        except (ValueError, interruption.StoppedError) as error:
            run, ended = None, str(error)
    return types.SimpleNamespace(
        run=run, ended=ended, applied=[each for each in made if each.applied], asked=asked, model_dir=model_dir
    )


def plainly(lab, config) -> types.SimpleNamespace:
    return looped(lab, config)


def of_run(look: Callable, **options) -> Callable:
    """config → what is to be seen of a run."""
    tried = plainly if not options else functools.partial(looped, **options)
    return lambda lab, config: look(lab.kept(tried, config))


def rows_and_length(ids: np.ndarray) -> tuple[int, int]:
    return int((ids != 0).any(-1).sum()), int((ids != 0).sum(-1).max())


def tokens(ids: np.ndarray) -> int:
    return int(np.prod(rows_and_length(ids)))


def largest_update(found) -> int:
    return max(tokens(each.source) for each in found.applied)


def largest_micro_batch(found) -> int:
    return max(tokens(ids) for each in found.applied for ids in each.source)


def max_micro_batches(found) -> int:
    return max(len(each.source) for each in found.applied)


def profiles(found) -> int:
    return len(list(found.model_dir.glob("logs/plugins/profile/*/*.xplane.pb")))


def worse_and_worse(step: int) -> dict:
    """By loss; by BLEU better and better."""
    return {"valid/loss": step, "valid/bleu": step}


WORSE = {step: worse_and_worse(step) for step in range(1, 9)}


def of_damaged(lab, config) -> str:
    to = lab.root / "damaged"
    if not to.exists():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shards, "PAIRS_PER_RECORD", 10)
            toy.write_shards(lab.root / "records")
        damaged(lab.root / "records", to)
    found = looped(lab, config, folder=to)
    return found.ended if found.run is None else f"skipped {found.run.state.damaged_records > 0}"


# What `training_run.train` hands to the loop.


def hands_over(lab, config) -> types.SimpleNamespace:
    """The model, the optimizer, and what validation reads and translates."""
    found, data_dir = {"translated": [], "called": []}, lab.fresh()
    shutil.copytree(lab.data_dir, data_dir)
    shutil.rmtree(data_dir / "valid")
    damaged(lab.data_dir / "valid", data_dir / "valid")

    def validation(strategy, model, task, batches, at_once):
        found["valid_batches"] = batches
        return lambda: dict.fromkeys((*task.sums, *SUMS), 1.0)

    def start(parent, which, model, tokenizer, optimizer=None):
        found["called"].append(f"{parent.folder} {which} {optimizer and optimizer.name}")

    def translated(translator, lines, **options):
        found["translated"] += lines
        return [{"text": line} for line in lines]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_step, "make_validation", validation)
        patch.setattr(translator, "translate_lines", translated)
        patch.setattr(parent, "start", start)
        patch.setattr(parent, "warn_of_text", lambda path, data, positions: None)
        patch.setattr(checkpoint, "identity", lambda parent, which: {})
        patch.setattr(tf.config.experimental, "enable_op_determinism", lambda: found["called"].append("determinism"))
        patch.setattr(tf.config.optimizer, "set_experimental_options", found["called"].append)
        patch.setattr(
            tf.config.experimental, "enable_tensor_float_32_execution", lambda enabled: found.update(tf32=enabled)
        )
        patch.setattr(data_service, "check", found["called"].append)
        patch.setattr(embeddings, "check", lambda options: None)
        patch.setattr(
            embeddings, "start", lambda path, matrix, pieces: found["called"].append(path.name) or [pieces[300]]
        )
        run = handed_over(patch, lab.fresh(), data_dir, train=config)
        found["metrics"] = run.validate(1)
    return types.SimpleNamespace(
        **found, model=run.model, optimizer=run.optimizer, renewal=run.renewal, frozen_rows=run.frozen_rows
    )


def of_parts(look: Callable) -> Callable:
    return lambda lab, config: look(lab.kept(hands_over, config))


def dtype(found) -> str:
    return found.model.encode(tf.constant([[5, 6, 7]])).keys_values[0][0].dtype.name


def refused(lab, config) -> bool:
    """Whether a parent with other sub-words is refused."""
    try:
        return not lab.kept(hands_over, config).called
    except ValueError as error:
        assert "Expected the sub-words of stranger in" in str(error)
        return True


def frozen(found) -> set[str]:
    """The parts of the model whose weights are not trained, by the optimizer too."""
    parts = {
        variable.path.split("/")[1]
        for variable in found.model.weights
        if not variable.path.endswith("seed_generator_state")
    }
    trained = {variable.path.split("/")[1] for variable in found.model.trainable_variables}
    assert len(found.optimizer.variables) == 1 + 2 * len(found.model.trainable_variables)
    return parts - trained


def last_rate(found) -> float:
    """The learning rate of the eighth update, the last one."""
    return float(found.optimizer._learning_rate(7))


def two_epochs(lab, config) -> bool:
    """Whether a run makes as many updates as there are in two epochs of a prepared folder."""
    folder = lab.data_dir / "train"
    buckets = batching.buckets(shards.read_info(folder), config.batch_tokens, config.buckets_per_update)
    epochs = batching.batches(folder, batch_tokens=config.batch_tokens // buckets, seed=config.seed, epochs=2)
    options = training_run._with_sizes_of(lab.data_dir, run_options.Options(train=config))
    return abs(options.train.train_steps - len(list(epochs)) / buckets) <= 1


def divided_anew(lab, config) -> float:
    """The share of the sentences whose sub-words differ from those on disk, on the side that has fewer of them."""
    subwords = byte_pairs.BytePairs((lab.data_dir / prepare.SUBWORDS).read_bytes())
    ids = subwords.tokenize(tf.constant([LINE] * 500 + [9 * LINE]))
    renewal = lab.kept(hands_over, config).renewal
    changed = (
        renewal.change({"source": ids, "target": ids}, tf.constant([1, 2], tf.int64)) if renewal else {"source": ids}
    )
    return min(
        float(np.mean([one != other for one, other in zip(side.to_list(), ids.to_list(), strict=True)]))
        for side in changed.values()
    )


def initial_weights(found) -> bytes:
    return b"".join(weight.numpy().tobytes() for weight in found.model.trainable_variables)


def validated(found) -> tuple[str, int]:
    """How reading the validation data ends, and the tokens of the largest micro-batch of more than one row."""
    largest = 0
    try:
        with shards.plain_errors():
            for batch in found.valid_batches:
                several = [ids for ids in batch["source"].numpy() if rows_and_length(ids)[0] > 1]
                largest = max([largest, *map(tokens, several)])
    except ValueError as error:
        return str(error), largest
    return "read", largest


# What an update does.


def smoothing(lab, config) -> float:
    """Smoothed loss over loss."""
    model, [pair] = toy.Toy(), toy.random_updates([3])
    toy.set_weights(model)
    _, sums = train_step.micro_batch_gradients(
        model, toy.TASK, config, batching.columns_of(pair), step=0, micro_batch=0, replica=0, scale=1.0
    )
    return float(sums["smoothed_loss"] / sums["loss"])


def rows_that_move(lab, config) -> list[bool]:
    """Whether a row that started from a word vector moves, in each of four updates."""

    def make_train_step(*arguments):
        return train_step.make_train_step(*arguments, np.arange(toy.VOCAB_SIZE) == 7)

    def make_model():
        return Transformer(toy.SMALL)

    found, given = [], {"replicas": 1, "micro_batch_tokens": 10**6, "train": config, "make_model": make_model}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toy, "make_train_step", make_train_step)
        for number in range(5):
            weights, _ = toy.on_devices(toy.random_updates([4] * 4)[:number], **given)
            found.append(next(value[7] for name, value in weights.items() if name.endswith("embedding/matrix")))
    return [bool((one != other).any()) for one, other in itertools.pairwise(found)]


def dropped(lab, config) -> float:
    """The loss with dropout."""
    model, [pair] = toy.Toy(dropout=0.5), toy.random_updates([3])
    toy.set_weights(model)
    _, sums = train_step.micro_batch_gradients(
        model, toy.TASK, config, batching.columns_of(pair), step=0, micro_batch=0, replica=0, scale=1.0
    )
    return float(sums["loss"])


def gradient_norms(lab, config) -> int:
    """How many weights an update measures the gradient of."""
    measured = []

    def make_train_step(*args):
        update = train_step.make_train_step(*args)

        def measuring(*batch):
            metrics, scale = update(*batch)
            measured.append(len(metrics.pop("weight_gradient_norms", ())))
            return metrics, scale

        return measuring

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toy, "make_train_step", make_train_step)
        toy.on_devices(toy.random_updates([3]), replicas=1, micro_batch_tokens=10**6, train=config)
    return measured[0]


def at_once(lab, config) -> list:
    """How many iterations of the loop over micro-batches run at a time."""
    seen = []

    def loop(condition, body, variables, parallel_iterations):
        seen.append(parallel_iterations)
        return variables

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_step.tf, "while_loop", loop)
        toy.on_devices(toy.random_updates([3]), replicas=1, micro_batch_tokens=10**6, train=config)
    return seen


def compiled(lab, config) -> int:
    """How many functions of a step are to be compiled."""
    made = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_step, "make_compiled_gradients", lambda *given: made.append(given))
        train_step._make_gradients(toy.strategy_of(1), toy.Toy(), toy.TASK, config)
    return len(made)


def most_rows(found) -> int:
    """Sentences of up to 9 sub-words are padded to 16."""
    return max(rows_and_length(ids)[0] for each in found.applied for ids in each.source)


def distance(lab, config) -> float:
    """How far the weights move in an update at a rate of 1."""
    model = toy.Toy()
    toy.set_weights(model)
    before = toy.weights_of(model)
    (after, _) = toy.on_devices(toy.random_updates([3]), replicas=1, micro_batch_tokens=10**6, train=config)
    return sum(((after[name] - before[name]) ** 2).sum() for name in before) ** 0.5


# What a search writes.


def searched(lab, config, endless: bool = False) -> tuple[str, int]:
    """The translation of `LINE` by a model that copies it, or does not; and the steps beyond the source's length."""
    subwords = byte_pairs.BytePairs((lab.data_dir / prepare.SUBWORDS).read_bytes())
    model = Copier(MODEL, endless=endless)
    model.skill.assign(1.0)
    tf.config.run_functions_eagerly(True)
    try:
        [text] = Translator(model, subwords, config)(tf.constant([LINE]))["text"].numpy()
    finally:
        tf.config.run_functions_eagerly(False)
    return text.decode(), model.steps - len(subwords.tokenize(tf.constant([LINE]))[0])


def translation(lab, config) -> str:
    return lab.kept(searched, config)[0]


def n_best(lab, config) -> list[tuple]:
    """Of a model of seven sub-words."""
    return [tokens for tokens, _ in ids_of(Translator(Recurrent(seed=3), None, config), [[5, 4, 5]], max_length=9)[0]]


def several(lab, config) -> list[tuple]:
    return lab.kept(n_best, config)


def no_pair_twice(found: list[tuple]) -> bool:
    pairs = [list(itertools.pairwise(tokens)) for tokens in found]
    return all(len(set(each)) == len(each) for each in pairs)


@functools.cache
def signatures() -> Signatures:
    return Signatures(Translator(Recurrent(seed=3), Numbers(), DecodeConfig(extra_length=5)))


def drawn(lab, config) -> list[list[str]]:
    """The draws of one line that comes 20 times."""
    found = sampler(signatures(), config)(tf.constant(["5 4"] * 20), tf.range(20, dtype=tf.int64))["text"]
    return [[text.decode() for text in row] for row in found.numpy()]


def one_alone(found: list[list[str]]) -> bool:
    return len({text for row in found for text in row}) == 1


def limits_of(config):
    return Translator(Copier(MODEL), None, config).limits


def limits(lab, config) -> tuple[int, int]:
    return limits_of(config)[:2]


def steps_beyond_source(lab, config) -> int:
    return searched(lab, config, endless=True)[1]


# What `prepare` writes.


def prepares(lab, config) -> types.SimpleNamespace:
    folder = lab.fresh()
    try:
        prepare.Preparation(config, 320, 1, folder, toy.TASK).run()
    except ValueError as error:
        return types.SimpleNamespace(
            error=str(error), pieces=(), train=[], valid=[], report={}, subwords=b"", source_subwords=b"", longest=0
        )
    model, info = (folder / prepare.SUBWORDS).read_bytes(), shards.read_info(folder / "train")
    return types.SimpleNamespace(
        error="",
        subwords=model,
        source_subwords=path.read_bytes() if (path := data_folder.source_subwords_in(folder)) else b"",
        pieces=vocabulary.load(model).pieces,
        train=texts(folder, "train"),
        valid=list(zip(*prepare.read_text(folder, "valid"), strict=True)),
        report=json.loads((folder / prepare.CORPUS).read_text())["report"]["train"],
        longest=max(info[f"{side}_longest"] for side in shards.SIDES),
    )


def of_data(look: Callable) -> Callable:
    return lambda lab, config: look(lab.kept(prepares, config))


def side(pairs: list, number: int) -> list:
    return [pair[number] for pair in pairs]


def of_tfds(split: str) -> Callable:
    """config → the pairs of a TFDS set, which `lab` has a stand-in for."""
    return lambda lab, config: [
        tuple(text.decode() for text in pair) for pair in corpora.pairs(config, split, 1, text_files.Report())
    ]


def splits_of_tfds(lab, config) -> list:
    lab.splits.clear()
    for split in ("train", "valid"):
        list(corpora.pairs(config, split, 1, text_files.Report()))
    return list(lab.splits)


class Row(NamedTuple):
    """An effect of an option.

    Attributes:
        value: another one than usual.
        observe: (lab, configuration) → what is to be seen of it.
        expected: what is seen with the value, or a function that tells whether it is; `ANOTHER`: something else than
            usual, always the same.
        usual: options of both configurations that are unlike `USUAL`.
        beside: options that have to change together with this one.
    """

    value: object
    observe: Callable
    expected: object
    usual: dict = {}
    beside: dict = {}


ANOTHER = object()
called = of_parts(lambda found: found.called)
rate = of_parts(lambda found: float(found.optimizer.learning_rate))
updates = of_run(lambda found: len(found.applied))
saved_steps = of_run(lambda found: steps_on_disk(found.model_dir))
NO_TEXTS = dict.fromkeys(TEXTS, "")
BUILTIN = {**NO_TEXTS, "dataset": "builtin", "builtin_pairs": 150}
TFDS = {**NO_TEXTS, "dataset": "wmt14_translate/de-en", "source_language": "de", "target_language": "en"}
PAIRS_OF_TFDS = [pair for pair in zip(EXAMPLES["en"], EXAMPLES["de"], strict=True) if " " not in pair]
TURNED = {"source_language": "en", "target_language": "de"}

OF_PAIRS = {
    "vocab_size": [Row(23, shape_of("embedding/matrix"), (23, 8))],
    "encoder_layers": [Row(3, layers_of("encoder"), 3)],
    "d_model": [Row(6, shape_of("embedding/matrix"), (20, 6)), Row(6, shape_of("pooler/kernel"), (6, 6))],
    "d_ff": [Row(7, shape_of("feed_forward/inner/kernel"), (8, 7))],
    "num_heads": [Row(4, heads_of_pairs, (4, 2))],
    "dropout": [Row(0.5, dropout_rates, {0.5, 0.1})],
    "attention_dropout": [Row(0.5, rates_of_dropout("attention"), [0.5] * 2)],
    "learned_positions": [Row(9, positions, [(9, 8)]), Row(0, positions, [])],
    "attention_bias": [Row(False, biases_of("attention"), 0)],
    "activation": [Row(name, activations, [name]) for name in ("relu", "swish")],
    "norm": [Row("pre", lambda lab, config: model_of(config).encoder.norm is None, False)],
}
ROWS = {
    ModelConfig: {
        "vocab_size": [Row(23, shape_of("embedding/matrix"), (23, 8)), Row(23, logits, 23)],
        "encoder_layers": [Row(3, layers_of("encoder"), 3)], "decoder_layers": [Row(3, layers_of("decoder"), 3)],
        "d_model": [Row(6, shape_of("embedding/matrix"), (20, 6)),
                    Row(6, shape_of("feed_forward/inner/kernel"), (6, 12))],
        "d_ff": [Row(7, shape_of("feed_forward/inner/kernel"), (8, 7))], "num_heads": [Row(3, heads, (3, 3, 5))],
        "d_k": [Row(4, heads, (2, 4, 5))], "d_v": [Row(4, heads, (2, 3, 4))],
        "dropout": [Row(0.5, dropout_rates, {0.5})],
        "attention_dropout": [Row(0.5, rates_of_dropout("attention"), [0.5] * 3)],
        "activation_dropout": [Row(0.5, rates_of_dropout("feed_forward"), [0.5] * 2)],
        "word_dropout": [Row(0.5, word_dropouts, [(0.5, False)] * 2),
                         Row(0.5, word_dropouts, [(0.5, True)] * 2, {"word_dropout": 0.1, "simcut": 3.0})],
        "r_drop": [Row(2.0, diverged, 2.0, {"dropout": 0.1})],
        "simcut": [Row(3.0, diverged, 3.0, {"word_dropout": 0.5})], "learned_positions": [Row(9, positions, [(9, 8)])],
        "sinusoids": [Row("tensor2tensor", frequencies,
                          pytest.approx([1, 10000 ** (-1 / 3), 10000 ** (-2 / 3), 1e-4], abs=1e-6))],
        "first_position": [Row(2, first_angle, pytest.approx(2))], "attention_window": [Row(4, reached, [3, 4, 5])],
        "attention_bias": [Row(True, biases_of("attention"), 3 * 4)],
        "attention": [Row(name, attention_functions, [name]) for name in ("additive", "unscaled")],
        "activation": [Row(name, activations, [name]) for name in ("gelu", "swish")],
        "norm": [Row("pre", normalized, (False, True))], "norm_epsilon": [Row(0.5, epsilons, {0.5})],
        "source_end": [Row(False, reads_the_end, False)],
        "source_vocab_size": [Row(31, shape_of("source_embedding/matrix"), (31, 8)), Row(31, embedded_rows, (31, 20))],
        "tie_logits": [Row(False, shape_of("logits_matrix"), (20, 8))],
        "logits_bias": [Row(True, shape_of("logits_bias"), (20,))]},
    RnnConfig: {
        "vocab_size": [Row(23, shape_of("embedding/matrix"), (23, 6))],
        "d_model": [Row(4, shape_of("forward_gru/gru_cell/recurrent_kernel"), (4, 12)),
                    Row(4, shape_of("decoder/first/recurrent_kernel"), (4, 12)),
                    Row(4, shape_of("decoder/attention/key/kernel"), (8, 4))],
        "d_embedding": [Row(5, shape_of("embedding/matrix"), (20, 5)), Row(0, shape_of("readout/bias"), (8,))],
        "encoder_layers": [Row(3, layers_of("encoder"), 3)],
        "cell": [Row("lstm", shape_of("forward_lstm/lstm_cell/bias"), (32,), {"layer_norm": False}),
                 Row("lstm", shape_of("decoder/second/bias"), (32,))],
        "attention": [Row("unscaled", scale_of, pytest.approx(1, rel=1e-3)),
                      Row("scaled", scale_of, pytest.approx(8**0.5, rel=1e-3)),
                      Row("additive", scores_grow, lambda found: not 3.99 < found < 4.01, {"attention": "scaled"})],
        "layer_norm": [Row(False, shape_of("first/input_norm/gamma"), ()),
                       Row(False, shape_of("backward_gru/gru_cell/recurrent_norm/beta"), ())],
        "embedding_dropout": [Row(0.5, rate_of("source_dropout"), 0.5), Row(0.5, rate_of("target_dropout"), 0.5)],
        "context_dropout": [Row(0.5, rate_of("context_dropout"), 0.5)],
        "output_dropout": [Row(0.5, rate_of("output_dropout"), 0.5)],
        "source_vocab_size": [Row(31, shape_of("source_embedding/matrix"), (31, 6))],
        "tie_logits": [Row(False, shape_of("logits_matrix"), (20, 6))]},
    BertConfig: OF_PAIRS
    | {
        "mask_rate": [Row(0.5, masked_words, lambda found: 8 < found <= 12)],
        "whole_words": [Row(True, masked_words, lambda found: 4 < found <= 10)],
    },
    ClassifierConfig: OF_PAIRS | {"labels": [Row("a,b,c", shape_of("classes/bias"), (3,))]},
    TrainConfig: {
        "train_steps": [Row(5, updates, 5)], "epochs": [Row(2.0, two_epochs, True, {"train_steps": 1000})],
        "warmup_steps": [Row(7, rate, pytest.approx(8**-0.5 * 7**-1.5))],
        "learning_rate_factor": [Row(3.0, rate, pytest.approx(3 * 8**-0.5 * 4000**-1.5))],
        "learning_rate": [Row(0.5, rate, pytest.approx(0.5 / 4000))],
        "cooldown_steps": [Row(3, of_parts(last_rate), pytest.approx(8**-0.5 * 8 * 4000**-1.5 / 3))],
        "cooldown_share": [Row(0.375, of_parts(last_rate), pytest.approx(8**-0.5 * 8 * 4000**-1.5 / 3))],
        "label_smoothing": [Row(0.0, smoothing, 1.0)],
        "clip_norm": [Row(0.01, distance, pytest.approx(0.01, rel=1e-3))],
        "batch_tokens": [Row(120, of_run(largest_update), lambda found: 60 < found <= 120)],
        "buckets_per_update": [Row(2, of_run(max_micro_batches), 2)],
        "micro_batch_tokens": [Row(20, of_run(largest_micro_batch), lambda found: 8 < found <= 20),
                               Row(40, of_parts(validated), lambda found: 0 < found[1] <= 40,
                                   usual={"damaged_records": "skip"})],
        "micro_batches_at_once": [Row(1, at_once, [1])], "jit_compile": [Row("true", compiled, 1)],
        "length_buckets": [Row(2.0, of_run(most_rows), 3)],
        "device_tflops": [Row(2.0, of_run(lambda found: list(found.run.curve("train/estimated_flops"))), [8])],
        "dtype": [Row("bfloat16", of_parts(dtype), "bfloat16")],
        "tf32": [Row(False, of_parts(lambda found: found.tf32), False)],
        "parent": [Row("parent", called, ["parent average None"])],
        "parent_checkpoint": [Row("best", called, ["parent best None"], usual={"parent": "parent"})],
        "parent_subwords": [Row(False, refused, False, usual={"parent": "stranger"})],
        "parent_optimizer": [Row(True, called, ["parent latest adam"],
                                 {"parent": "parent", "parent_checkpoint": "latest"})],
        "encoder_from": [Row("parent", called, ["parent average None"])],
        "freeze": [Row("encoder", of_parts(frozen), {"encoder_0"})],
        "bpe_dropout": [Row(0.3, divided_anew, lambda share: share > 0.8),
                        Row(0.02, divided_anew, lambda share: 0.02 < share < 0.4)],
        "augment": [Row("upper:0.3", divided_anew, lambda share: 0.2 < share < 0.4),
                    Row("upper:0.3,title:0.3", divided_anew, lambda share: 0.4 < share < 0.6)],
        "ema_decay": [Row(0.25,
                          of_parts(lambda found: (found.optimizer.ema_momentum, len(found.optimizer.averages) > 9)),
                          (0.25, True))],
        "embeddings": [Row("vectors", called, ["vectors"])],
        "freeze_embeddings": [
            Row(3, of_parts(lambda run: run.frozen_rows is not None and np.flatnonzero(run.frozen_rows).tolist()),
                [300], {"embeddings": "vectors"}),
            Row(3, rows_that_move, [False] * 3 + [True], {"embeddings": "vectors"})],
        "seed": [Row(4, of_parts(initial_weights), ANOTHER),
                 Row(4, of_run(lambda found: found.applied[0].source.tolist()), ANOTHER), Row(4, dropped, ANOTHER)],
        "deterministic": [Row(True, called, ["determinism", {"arithmetic_optimization": False}])],
        "data_service": [Row("grpc://localhost:9", of_run(lambda found: found.asked), ["grpc://localhost:9"]),
                         Row("grpc://localhost:9", called, ["grpc://localhost:9"])],
        "damaged_records": [Row("skip", of_damaged, "skipped True"),
                            Row("skip", of_parts(lambda found: validated(found)[0]), "read")],
        "checkpoint_steps": [Row(4, saved_steps, [4, 8])],
        "checkpoint_minutes": [Row(1e-9, saved_steps, [4, 5, 6, 7, 8])],
        "keep_checkpoints": [Row(2, saved_steps, [6, 8])],
        "valid_steps": [Row(3, of_run(lambda found: list(found.run.validated)), [3, 6, 8])],
        "valid_sentences": [Row(3, of_parts(lambda found: len(found.translated)), 3)],
        "attention_images": [
            Row(2, of_parts(lambda found: sum(name.startswith("valid/attention") for name in found.metrics)), 2,
                usual={"valid_sentences": 5})],
        "log_steps": [Row(3, of_run(lambda found: list(found.run.curve("train/loss"))), [3, 6, 8])],
        "histogram_steps": [Row(3, of_run(lambda found: list(found.run.curve("weights/out/bias"))), [3, 6, 8]),
                            Row(3, gradient_norms, 3)],
        "profile_steps": [Row("2,3", of_run(profiles), 1)],
        "patience": [Row(2, of_run(lambda found: len(found.applied), figures=WORSE), 6)],
        "max_skipped": [Row(3, of_run(lambda found: len(found.applied), finite=False), 3)],
        "max_hours": [Row(5.0, of_run(lambda found: "max_hours=5" in found.ended), True)],
        "best_metric": [Row("bleu", of_run(lambda found: found.run.state.best_step, figures=WORSE), 8,
                            usual={"valid_sentences": 1})]},
    DecodeConfig: {
        "beam_size": [Row(1, translation, LINE)],
        "alpha": [Row(6.0, translation, lambda found: found.startswith(LINE))],
        "extra_length": [Row(2, steps_beyond_source, 2)],
        "max_input": [Row(4, translation, lambda found: len(found) > 2 and LINE.startswith(found) and found != LINE,
                          {"beam_size": 1})],
        "no_repeat_ngram": [Row(2, several, no_pair_twice)],
        "diverse_groups": [Row(2, several, ANOTHER, {"diversity": 5.0})],
        "diversity": [Row(5.0, several, ANOTHER, {"diverse_groups": 2})], "search_rows": [Row(3, limits, (3, 384))],
        "search_cores": [Row(7, lambda lab, config: limits_of(config).cores, 7)]},
    SampleConfig: {"draws": [Row(3, lambda lab, config: len(drawn(lab, config)[0]), 3)],
                   "seed": [Row(2, drawn, ANOTHER)], "temperature": [Row(0.01, drawn, one_alone)],
                   "top_k": [Row(1, drawn, one_alone)], "top_p": [Row(1e-6, drawn, one_alone)]},
    DataConfig: {
        "train_source": [Row("other-train.source", of_data(lambda found: side(found.train, 0)), side(OTHER_TRAIN, 0))],
        "train_target": [Row("other-train.target", of_data(lambda found: side(found.train, 1)), side(OTHER_TRAIN, 1))],
        "valid_source": [Row("other-valid.source", of_data(lambda found: side(found.valid, 0)), side(OTHER_VALID, 0))],
        "valid_target": [Row("other-valid.target", of_data(lambda found: side(found.valid, 1)), side(OTHER_VALID, 1))],
        "valid_pairs": [Row(3, of_data(lambda found: (side(found.valid, 0), len(found.train))),
                            (side(TRAIN_PAIRS, 0)[-3:], len(TRAIN_PAIRS) - 3),
                            {"valid_source": "", "valid_target": "", "valid_pairs": 5})],
        "source_tag": [Row("<2de>", of_data(lambda found: ("▁<2de>" in found.pieces, found.train[1][0][:6])),
                           (True, "<2de> "))],
        "dataset": [Row("builtin", of_data(lambda found: len(found.train)), 150, beside=BUILTIN)],
        "source_language": [Row("en", of_tfds("train"), PAIRS_OF_TFDS, TFDS, TURNED)],
        "target_language": [Row("de", of_tfds("valid"), PAIRS_OF_TFDS, TFDS, TURNED)],
        "train_split": [Row("train[1:]", splits_of_tfds, ["train[1:]", "validation"], TFDS)],
        "valid_split": [Row("test", splits_of_tfds, ["train", "test"], TFDS)],
        "builtin_pairs": [Row(170, of_data(lambda found: len(found.train)), 170, BUILTIN)],
        "max_length": [Row(12, of_data(lambda found: found.longest), 12)],
        "subwords": [
            Row(kind, of_data(lambda found, head=head: found.subwords.startswith(head)), True, BUILTIN)
            for kind, head in (("wordpiece", HEAD), ("word", words.HEAD))
        ],
        "subwords_file": [Row("given.model",
                              of_data(lambda found: found.subwords == pathlib.Path("given.model").read_bytes()), True)],
        "source_subwords_file": [
            Row("given.model", of_data(lambda found: found.source_subwords == pathlib.Path("given.model").read_bytes()),
                True)],
        "normalization": [Row("nfkc", of_data(lambda found: found.train[0][0]), "1\u20442 house")],
        "character_coverage": [Row(1.0, of_data(lambda found: "½" in found.pieces), True)],
        "vocab_sample": [Row(150, of_data(lambda found: found.subwords), ANOTHER)],
        "train_terms": [Row("terms.tsv", of_data(lambda found: any("⟦ Haus ⟧" in source for source, _ in found.train)),
                            True)],
        "keep_patterns": [Row("/½/", of_data(lambda found: "｟1｠" in found.pieces and "½" not in found.pieces), True)],
        "skip_bad_lines": [Row(True, of_data(lambda found: found.report.get("not_utf8")), 1,
                               {"train_source": "bad.source"})]},
}  # fmt: skip


@pytest.mark.parametrize("group", USUAL, ids=lambda group: group.__name__)
def test_every_option_has_a_row(group):
    assert list(ROWS[group]) == [field.name for field in dataclasses.fields(group)]
    assert all(ROWS[group].values())


def shows(expected, found) -> bool:
    return expected(found) if callable(expected) else found == expected


@pytest.mark.parametrize(
    ("group", "name", "row"),
    [
        pytest.param(group, name, row, id=f"{name}-{number}" if number else name)
        for group, rows in ROWS.items()
        for name, several in rows.items()
        for number, row in enumerate(several)
    ],
)
def test_an_option_has_the_effect_that_it_names(lab, request, group, name, row):
    usual = dataclasses.replace(USUAL[group], **row.usual)
    changed = dataclasses.replace(usual, **{**row.beside, name: row.value})
    assert getattr(usual, name) != row.value
    if usual.__dict__.get("dataset") == TFDS["dataset"]:
        lab.splits = request.getfixturevalue("wmt14")
    before, after = row.observe(lab, usual), row.observe(lab, changed)
    if row.expected is ANOTHER:
        assert row.observe(Lab(lab.folder, lab.data_dir, lab.fresh()), changed) == after != before
    else:
        assert shows(row.expected, after), after
        assert not shows(row.expected, before), before
