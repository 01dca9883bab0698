"""A training run in its folder. The folder is all that translating, evaluating and exporting need.

model_dir/config.json      all options, the data folder, and hashes of the run's data
model_dir/subwords.model   the sub-words: a SentencePiece model or a list of word pieces
model_dir/subwords.source.model  those of the source, if it has its own
model_dir/data/            prepared data, unless `data_dir` names another folder
model_dir/checkpoints/     the newest checkpoints, and the best one
model_dir/logs/            TensorBoard logs
model_dir/curves.png       the curves of the logs as a picture; curves.csv has them as a table
model_dir/not_finite/      updates that were not finite, with a diagnosis
model_dir/lock             locked by the process that trains
"""

import contextlib
import dataclasses
import math
import operator
import pathlib
import shlex
import time
import zlib
from collections.abc import Callable, Collection

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.config import AUTO, AVERAGE, EOS, FILES, STARTS, DataConfig, TrainConfig
from t2t_keras.data import batching, data_service, prepare, shards
from t2t_keras.decoding.loading import read_tokenizer
from t2t_keras.model.protocols import make
from t2t_keras.reporting import hparams, pictures, scalars
from t2t_keras.reporting.tensorboard import TensorBoardWriter
from t2t_keras.runs import checkpoint, data_folder, registry, run_options, saved_run
from t2t_keras.runs.run_options import COMPUTED
from t2t_keras.runs.run_start import Start
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.runs.task import Task
from t2t_keras.system import files
from t2t_keras.system.log import logger, number_of, warnings_only
from t2t_keras.system.tensorflow import choose_float32
from t2t_keras.text import piece_file, vocabulary
from t2t_keras.text.bpe_dropout import BpeDropout
from t2t_keras.training import cost, devices, diagnosis, embeddings, freezing, loop, optimizer, parent, train_step
from t2t_keras.training.state import TrainState

# A model with more weights than both is too large for its text. The paper's base model has 14 for each pair, that of
# docs/multi30k.md 310.
MANY_WEIGHTS, MANY_WEIGHTS_PER_PAIR = 10_000_000, 400


def _policy(dtype: str) -> str:
    return dtype if dtype == "float32" else f"mixed_{dtype}"


def _validation(
    strategy, model, tokenizer, folder: pathlib.Path, options: run_options.Options, texts: tuple[list[str], ...]
) -> Callable[[int], dict]:
    """Returns a function step → the task's metrics on the validation set; on the chief also what else it shows.
    `texts` are the lines of the set, for each side.
    """
    config, task = options.train, options.task
    budget = max(config.micro_batch_tokens, *shards.counted(shards.read_info(folder / "valid")))
    reading = {"batch_tokens": budget, "seed": 0, "epochs": 1, "damaged_records": config.damaged_records}
    dataset = batching.batches(folder / "valid", **reading, renewal=task.renewal(tokenizer, options, training=False))
    batches = devices.distribute(strategy, dataset, config.micro_batch_tokens)
    sums = train_step.make_validation(strategy, model, task, batches, devices.at_once(strategy, config))
    uniform = math.log(options.model.vocab_size)
    of_chief = task.validation(model, tokenizer, options, texts) if devices.is_chief(strategy) else lambda: {}

    def validate(step: int) -> dict:
        with shards.plain_errors():
            metrics = task.measure(sums(), training=False)
        if "loss" not in metrics:
            raise ValueError(f"Expected 'loss' from `measure` of the task {task.name}. Received: {', '.join(metrics)}.")
        if task.generates and metrics["loss"] > uniform and step > config.warmup_steps:
            logger.warning(
                f"The validation loss is above {uniform:.2f}, that of equally likely sub-words: training diverges or "
                f"overfits. If the training loss rises too, try a lower `{config.rate_option}`."
            )
        return {f"valid/{name}": value for name, value in (metrics | of_chief()).items()}

    return validate


def _prepare_folders(start: Start, strategy, dry_run: bool) -> Start:
    """Prepares the data and writes the files that describe the run, or checks that they match if they exist. Returns
    the start with the run that is in the folder now, and with the options of its corpus if none is named.
    """
    options, folder, before, resumed = start.options, start.data_folder, start.before, start.is_resumed
    changes = start.changes()
    _check_start(start)
    if before and not options.data.names_corpus:
        options = dataclasses.replace(options, data=before.data)
    if not resumed:
        options = _with_length_buckets(strategy, options)
    data = start.options.data
    if not (folder / data_folder.CORPUS).exists():
        data = options.data
        outside = ["data_dir", *(["dataset"] if data.dataset != "builtin" else []), *FILES]
        purpose = (
            f"prepare the data again: {folder} holds none. If they were moved, give only their new path, as `data_dir`"
        )
        dataclasses.replace(start, options=options).check_given(outside, purpose)
    if options.train.bpe_dropout:
        _check_merges(data, options.train.bpe_dropout)
    prepare.Preparation.of(dataclasses.replace(options, data=data), folder).run(resumes=resumed)
    if not options.data.names_corpus:
        data = data_folder.prepared_with(folder)
        sources = dict.fromkeys(dataclasses.asdict(data), "data folder") | options.sources
        options = dataclasses.replace(options, data=data, sources=sources)
    options = _with_sizes_of(folder, options, before if resumed else None)
    subwords, _, source_subwords = data_files = _data_files(folder)
    if resumed:
        before.check_data(*data_files)
    elif options.train.starts_from and options.train.parent_subwords:
        _check_subwords_of_parent(start.parent, folder, subwords, source_subwords)
    keeps = not (resumed and dry_run)
    if changes:
        logger.info(f"{'Changed' if keeps else 'Changed for this dry run only'}: {changes}.")
    if before and not resumed and (retained := start.retained()):
        logger.info(f"Options of an earlier start that were not given again: {retained}.")
    if keeps:
        before = SavedRun.write(start.folder, options, *data_files, before)
    return dataclasses.replace(start, options=options, before=before)


def _check_start(start: Start) -> None:
    """Raises the errors of what a start needs from outside, before anything is prepared: the service that reads the
    data, and the run or the word vectors that it starts from; or, to resume, its checkpoint and its sub-words.
    """
    options, train = start.options, start.options.train
    if train.data_service:
        start.check_given(["data_service"], "read the data from a service")
        data_service.check(train.data_service)
    if start.is_resumed:
        checkpoint.check_size(start.folder, AVERAGE, options.model.num_weights)
        start.before.subwords()
        return
    if train.starts_from:
        start.check_given(STARTS, "start from the weights of another run")
    if train.embeddings:
        start.check_given(["embeddings"], "start from word vectors")
        embeddings.check(options)


def _data_files(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path, pathlib.Path | None]:
    """Returns the files of a data folder that a run must not change: the sub-words, the list of the training shards,
    and the sub-words of the source, if it has some of its own.
    """
    subwords, records = folder / saved_run.SUBWORDS, folder / "train" / shards.RECORDS
    return subwords, records, data_folder.source_subwords_in(folder)


def _check_folder_of_chief(strategy, model_dir: pathlib.Path) -> None:
    """Raises `ValueError` in another worker whose `model_dir` is not the chief's: its options may be others, with which
    it would make other updates. Waits for all workers.
    """
    if not devices.several_workers(strategy):
        return
    path = model_dir / files.CONFIG
    options = float(zlib.crc32(path.read_bytes())) if path.exists() else -1.0
    if devices.broadcast_from_chief(strategy, options) != options:
        raise ValueError(
            f"Expected all workers to see the chief's folder. Received: {'another' if path.exists() else 'no'} "
            f"{files.CONFIG} in {model_dir} on this worker. Give a `model_dir` that all workers share."
        )


def _check_data_of_chief(start: Start) -> None:
    """Raises `ValueError` in another worker that sees other data than the chief's, whose hashes are in `model_dir`."""
    folder = start.data_folder
    try:
        start.before.check_data(*_data_files(folder))
    except (FileNotFoundError, ValueError) as error:
        raise ValueError(
            f"Expected all workers to see the chief's data. Received: other data, or none, in {folder} on this worker. "
            "Give a `data_dir` that all workers share."
        ) from error


def _check_merges(data: DataConfig, bpe_dropout: float) -> None:
    """Raises `ValueError`, before text is read, if a file of sub-words has no merges, which BPE-dropout skips."""
    for name in (data.subwords_file, data.source_subwords_file):
        if name and (path := pathlib.Path(name).expanduser()).is_file():
            try:
                subwords = vocabulary.load(path.read_bytes())
            except ValueError:
                continue  # `Preparation` names the file.
            BpeDropout(subwords, bpe_dropout, data.max_length)


def _with_length_buckets(strategy, options: run_options.Options) -> run_options.Options:
    """Returns the options of a new run, with the default of `length_buckets` if XLA compiles its step."""
    train = options.train
    chosen = dataclasses.replace(train, length_buckets=train.length_buckets or devices.LENGTH_BUCKETS)
    model_class = registry.architecture(options.architecture).model_class()
    can_compile = devices.compiles(strategy, chosen) and getattr(model_class, "compiles", True)
    if train.length_buckets or not can_compile:
        return options
    return dataclasses.replace(options, train=chosen, sources=options.sources | {"length_buckets": "default"})


def _with_sizes_of(
    folder: pathlib.Path, options: run_options.Options, resumed: SavedRun | None = None
) -> run_options.Options:
    """Returns options with what depends on the prepared data: `vocab_size`, if it is 0, and the updates of `epochs`.

    Counting the batches reads all lengths: a resumed run keeps its updates if what decides them is the same. Warns if
    the model is much too large for the text.
    """
    model, train, info = options.model, options.train, shards.read_info(folder / "train")
    sources = dict(options.sources)
    if not model.vocab_size:
        sources["vocab_size"] = COMPUTED
        model = dataclasses.replace(model, vocab_size=data_folder.recorded_options(folder)["vocab_size"])
    if train.epochs:
        sources["train_steps"] = COMPUTED
    deciding = operator.attrgetter("epochs", "batch_tokens", "buckets_per_update", "seed", "length_buckets")
    if train.epochs and resumed and deciding(train) == deciding(resumed.train):
        train = dataclasses.replace(train, train_steps=resumed.train.train_steps)
    elif train.epochs:
        buckets = batching.buckets(info, train.batch_tokens, train.buckets_per_update)
        tokens = train.batch_tokens // buckets
        subwords = [folder / saved_run.SUBWORDS, data_folder.source_subwords_in(folder)]
        tokenizer = vocabulary.load_sides(*(path.read_bytes() for path in subwords if path))
        renewal = options.task.renewal(tokenizer, dataclasses.replace(options, model=model), training=True)
        grows = renewal if renewal and renewal.most else None  # Others make no record longer.
        shapes = devices.shapes(train, info, tokens)
        batches = batching.batches_per_epoch(folder / "train", tokens, train.seed, shapes, grows)
        updates = max(1, round(train.epochs * batches / buckets))
        logger.info(f"`epochs={train.epochs:g}`: {number_of(updates, 'update')}, {batches / buckets:,.1f} per epoch.")
        train = dataclasses.replace(train, train_steps=updates)
    if train.cooldown_steps > train.train_steps:
        raise ValueError(
            f"`cooldown_steps` must be at most the updates of `epochs`. Received: cooldown_steps="
            f"{train.cooldown_steps:,} for {train.train_steps:,} updates. `cooldown_share` is a share of them."
        )
    if train.profile_steps and not train.profiled:
        logger.warning(f"`profile_steps={train.profile_steps}` is after the last of {train.train_steps:,} updates.")
    weights = model.num_weights
    if "target" in options.task.texts and weights > max(MANY_WEIGHTS, MANY_WEIGHTS_PER_PAIR * info["pairs"]):
        logger.warning(
            f"{info['pairs']:,} pairs are few for {weights / 1e6:,.0f} million weights: the paper has 65 million for "
            "4.5 million pairs. With little text, a smaller model translates better: see `flagfile=small`, for about "
            "ten thousand pairs, and `flagfile=medium`, for some hundred thousand."
        )
    return dataclasses.replace(options, model=model, train=train, sources=sources)


def _check_subwords_of_parent(parent: SavedRun, folder: pathlib.Path, *paths: pathlib.Path | None) -> None:
    """Raises `ValueError` unless the files of sub-words in a data folder are those of the parent."""
    subwords = [piece_file.without_language(path.read_bytes()) for path in paths if path]
    if list(map(piece_file.without_language, parent.subwords())) != subwords:
        raise ValueError(
            f"Expected the sub-words of {parent.folder} in {folder}. Prepare the data with `subwords_file="
            f"{parent.folder / saved_run.SUBWORDS}`, in another `data_dir`, or give `parent_subwords=false`."
        )


def _make_model(strategy, options: run_options.Options) -> tuple:
    """Makes the model and its optimizer in the strategy's scope."""
    with strategy.scope():
        model = make(registry.architecture(options.architecture), options.model, _policy(options.train.dtype))
        freezing.freeze(model, options.train.freeze)
        adam = optimizer.adam(optimizer.schedule_of(options.model.d_model, options.train), options.train.ema_decay)
        adam.build(model.trainable_variables)
    return model, adam


def _start_embeddings(strategy, model_dir: pathlib.Path, model, tokenizer, config: TrainConfig):
    """Starts a new run's embeddings from word vectors. Returns the rows to hold, also of a resumed run, or `None`."""
    if checkpoint.kept(model_dir):
        started = embeddings.read(model_dir, tokenizer.pieces) if config.freeze_embeddings else []
    else:
        started = embeddings.start(pathlib.Path(config.embeddings), model.embedding_matrix, tokenizer.pieces)
        if devices.is_chief(strategy):
            embeddings.write(model_dir, started)
    return np.isin(tokenizer.pieces, started) if config.freeze_embeddings else None


def _graph(model, task: Task) -> tf.Graph:
    """Returns the network as a graph, from the counted columns, such as source and shifted target, to logits."""
    ids = [tf.TensorSpec([None, None], tf.int32, column.name) for column in task.columns if column.counted]
    network = tf.function(lambda *columns: model(columns if len(ids) > 1 else columns[0]), autograph=False)
    return network.get_concrete_function(*ids).graph


def _log_model(strategy, model, config: TrainConfig, model_dir: pathlib.Path) -> None:
    sizes = {name: getattr(model.config, name, 0) for name in ("d_model", "d_ff", "d_k", "d_v", "vocab_size")}
    uneven = ", ".join(f"{name}={size}" for name, size in sizes.items() if size % 8)
    if uneven and devices.on_gpus(strategy):
        logger.warning(f"GPUs multiply matrices fastest when sizes are multiples of 8. Received: {uneven}.")
    names = ", ".join(name.rpartition("device:")[2] for name in strategy.extended.worker_devices)
    if devices.several_workers(strategy):
        names = f"{names} of each of {devices.process_count(strategy)} workers"
    trained = sum(math.prod(variable.shape) for variable in model.trainable_variables)
    only = f", of which {trained:,} are trained" if config.freeze else ""
    logger.info(
        f"{model.count_params():,} parameters{only}, {config.dtype}, {strategy.num_replicas_in_sync} device(s): "
        f"{names}; {config.batch_tokens:,} tokens per side and update. TensorBoard: "
        f"{shlex.join(['tensorboard', '--logdir', str(model_dir / saved_run.LOGS)])}"
    )


def _make_diagnose(strategy, model, adam, tokenizer, task: Task, config: TrainConfig, model_dir: pathlib.Path):
    """Returns a function (batch, step, loss scale) → a summary of what is not finite; see `diagnosis.write_report`."""

    def text_of(column: str, ids) -> list[str]:
        subwords = tokenizer.source if column == "source" else tokenizer
        return [text.decode(errors="replace") for text in subwords.detokenize(tf.constant(ids)).numpy()]

    def diagnose(batch, step: int, scale: float) -> str:
        path = model_dir / saved_run.NOT_FINITE / f"update-{step:09d}-worker-{devices.process_index(strategy)}.npz"
        update = {"iterations": int(adam.iterations.numpy()), "scale": scale, "text_of": text_of}
        return diagnosis.write_report(path, strategy, model, task, config, batch, **update)

    return diagnose


def _prepare_first(start: Start, strategy, dry_run: bool, locks: contextlib.ExitStack) -> Start:
    """Prepares the folders on the chief, which locks that of the run in `locks`, before the other workers read them.
    Returns what `_prepare_folders` does; for other workers, with the options that the chief has written.
    """
    model_dir = start.folder

    def prepare_folders() -> Start:
        start.check()
        options = start.options
        if options.train.freeze and not (start.data_folder / data_folder.CORPUS).exists():
            # Refuses a wrong name before the data is prepared, which may take hours.
            size = options.model.vocab_size or EOS + 2
            model = dataclasses.replace(options.model, vocab_size=size)
            freezing.freeze(make(registry.architecture(options.architecture), model), options.train.freeze)
        locks.enter_context(files.exclusive(model_dir / files.LOCK, str(model_dir)))
        saved_run.check_before_writing(model_dir)
        return _prepare_folders(start.current(), strategy, dry_run)

    prepared = devices.chief_first(strategy, prepare_folders)
    _check_folder_of_chief(strategy, model_dir)
    if not prepared:
        keeps = dry_run and start.is_resumed  # Then the chief writes no options.
        prepared = Start.of(model_dir, start.options if keeps else SavedRun.open(model_dir).options)
        _check_data_of_chief(prepared)
    return prepared


def _set_up_tensorflow(config: TrainConfig) -> None:
    """Sets the options of training that hold for the whole process: the seed, and how operations compute."""
    keras.utils.set_random_seed(config.seed)
    choose_float32(config.tf32)
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()
        # Otherwise the three gradients of the embedding matrix are added in the order in which they are ready.
        tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})


def train(
    start: Start,
    *,
    strategy,
    dry_run: bool = False,
    show_options: bool = False,
    compared: Collection[str] | None = None,
    quiet: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
    started: float | None = None,
) -> TrainState | None:
    """Prepares the data if necessary, then trains or resumes a run, and returns its state at the end.

    Args:
        start: the run's folder and options. If these name no corpus, it is the run's, or the one that the data folder
            was prepared from.
        strategy: from `devices.make_strategy`.
        dry_run: prepare the data, run the largest micro-batches, and return `None`. An existing run keeps its options.
        show_options: whether to show all options, in place of those that differ from their defaults.
        compared: names of the options that differ between runs which are trained together, for TensorBoard.
        quiet: makes a context to prepare the data in and to load the sub-words, in which programs hide what native code
            says.
        started: when the program started to train, of `time.monotonic`, from which `max_hours` counts; by default now.

    Raises:
        FileNotFoundError, ValueError: the corpus cannot be used; or the data folder holds another corpus; or
            the folder holds a run whose weights need other options, which the message names, or files that are not a
            run's.
        BlockingIOError: another process trains in the folder.
        interruption.StoppedError: the run was stopped early and has saved its state.
        interruption.OtherWorkerError: another worker has ended.
    """
    started = time.monotonic() if started is None else started
    model_dir = start.folder
    with warnings_only(not devices.is_chief(strategy)), devices.plain_errors(strategy), contextlib.ExitStack() as locks:
        with quiet():
            prepared = _prepare_first(start, strategy, dry_run, locks)
            tokenizer = read_tokenizer(prepared.before)
        options = prepared.options
        config, task, folder = options.train, options.task, options.data_folder(model_dir)
        if config.dtype == AUTO:
            config = dataclasses.replace(config, dtype=devices.fastest_dtype(strategy))
            options = dataclasses.replace(options, train=config, sources=options.sources | {"dtype": COMPUTED})
        _set_up_tensorflow(config)
        model, adam = _make_model(strategy, options)
        frozen_rows = _start_embeddings(strategy, model_dir, model, tokenizer, config) if config.embeddings else None
        if config.starts_from and not checkpoint.kept(model_dir):
            parent.warn_of_text(prepared.parent, options.data, getattr(options.model, "learned_positions", 0))
            parents_optimizer = adam if config.parent_optimizer else None
            parent.start(prepared.parent, config.parent_checkpoint, model, tokenizer, parents_optimizer)
        if show_options:
            logger.info(f"Options:\n{options.table()}")
        else:
            rest = "all others have their defaults; TensorBoard's TEXT tab and `t2t-train --show_options` show them"
            logger.info(f"Options ({rest}):\n{options.summary()}")
        _log_model(strategy, model, config, model_dir)
        renewal = task.renewal(tokenizer, options, training=True)
        if dry_run:
            loop.dry_run(strategy, model, adam, task, config, folder=folder / "train", renewal=renewal)
            if not checkpoint.kept(model_dir):
                logger.info(f"{model_dir} has these options now. Give other ones to change them.")
            return None
        texts = prepare.read_text(folder, "valid", task.texts)
        trainer = loop.Trainer(
            strategy,
            model,
            adam,
            task,
            config,
            folder=folder / "train",
            model_dir=model_dir,
            validate=_validation(strategy, model, tokenizer, folder, options, texts),
            valid_lines=len(texts[0]),
            diagnose=_make_diagnose(strategy, model, adam, tokenizer, task, config, model_dir),
            tensorboard=TensorBoardWriter(
                model_dir / saved_run.LOGS,
                config=options.table(),
                once=[*hparams.summaries(options, compared), scalars.layout(task.metrics)],
                graph=lambda: _graph(model, task),
                descriptions=scalars.descriptions(task.metrics),
            ),
            update_pictures=pictures.updates(model_dir, model, tokenizer),
            started=started,
            renewal=renewal,
            frozen_rows=frozen_rows,
        )
        state = trainer.train()
        logger.info(f"{number_of(state.step, 'update')} in {state.seconds / 60:.1f} minutes, all resumes included.")
        of_devices = strategy.num_replicas_in_sync, config.device_tflops
        logger.info(cost.summary(state, *of_devices, task.unit, frozen=bool(config.freeze)))
    return state
