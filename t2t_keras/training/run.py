"""A training run and its folder, which describes itself: what comes after training needs no model flags.

model_dir/config.json      every option, where the data is, and what tells the run's data from other
model_dir/subwords.model   the sub-words
model_dir/data/            what `prepare` wrote, unless --data_dir is elsewhere
model_dir/checkpoints/     the newest updates, and the best validation
model_dir/logs/            for TensorBoard
model_dir/not_finite/      updates that could not be made, for study
model_dir/lock             held by the process that trains
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable

import keras
import tensorflow as tf

from t2t_keras import checkpoint, files, run_folder
from t2t_keras.config import DataConfig, DecodeConfig, ModelConfig, TrainConfig
from t2t_keras.data import batching, data_service, prepare, shards
from t2t_keras.decoding.loading import read_tokenizer
from t2t_keras.decoding.translator import Translator, translate_lines
from t2t_keras.evaluation import scores
from t2t_keras.log import logger
from t2t_keras.model.transformer import Transformer
from t2t_keras.training import devices, diagnosis, loop, optimizer, train_step
from t2t_keras.training.state import Progress
from t2t_keras.training.tensorboard import Board

SAMPLES = 5  # Validation sentences shown in TensorBoard.


def _policy(dtype: str) -> str:
    return dtype if dtype == "float32" else f"mixed_{dtype}"


def _say_nothing(text: str) -> None:
    """What workers other than the chief say."""


def _validation(strategy, model, translator: Translator, folder: pathlib.Path, config: TrainConfig) -> Callable[[int], dict]:
    """step → loss, perplexity and BLEU of the validation set, and a few translations."""
    longest = max(shards.read_info(folder / "valid")[f"{side}_longest"] for side in shards.SIDES)
    budget = max(config.device_tokens, longest)
    dataset = batching.batches(folder / "valid", batch_tokens=budget, seed=0, epochs=1, damaged_records=config.damaged_records)
    batches = devices.distribute(strategy, dataset, config.device_tokens)
    negative_log_likelihood = train_step.make_validation(strategy, model, batches)
    sources, references = (lines[: config.valid_sentences] for lines in prepare.read_text(folder, "valid"))

    def validate(step: int) -> dict:
        with shards.plain_errors():
            loss = negative_log_likelihood()
        metrics = {"valid/loss": loss, "valid/perplexity": float(tf.exp(loss))}
        if sources and devices.is_chief(strategy):
            hypotheses = [result["text"] for result in translate_lines(translator, sources)]
            metrics["valid/bleu"] = scores.bleu(hypotheses, references)["bleu"]
            rows = zip(sources[:SAMPLES], hypotheses, references, strict=False)
            table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
            metrics["valid/samples"] = f"| source | translation | reference |\n|---|---|---|\n{table}"
        return metrics

    return validate


def _prepare_folders(model_dir: pathlib.Path, options: run_folder.Options, dry_run: bool, say: Callable) -> None:
    """Writes the data folder and what describes the run, or checks that those there are of this run."""
    model, train, data = options.model, options.train, options.data
    if train.data_service:
        data_service.check(train.data_service)
    before = run_folder.read(model_dir) if run_folder.check(model_dir) else None
    resumed = bool(before and checkpoint.kept(model_dir))
    changes = run_folder.changes(model_dir, before, options) if before else ""
    if resumed:
        checkpoint.check_size(model_dir, checkpoint.AVERAGE, model.num_weights)
        run_folder.read_subwords(model_dir)
    folder = options.data_folder(model_dir)
    if before and not data.names_corpus:
        options = dataclasses.replace(options, data=before.data)
    prepare.prepare(data if (folder / prepare.CORPUS).exists() else options.data, model.vocab_size, train.seed, folder, say)
    if not options.data.names_corpus:
        options = dataclasses.replace(options, data=prepare.prepared_with(folder))
    written = shards.read_info(folder / "train")["vocab_size"]
    if written != model.vocab_size:
        raise ValueError(f"{folder} was prepared with --vocab_size={written}. Received: {model.vocab_size}.")
    subwords, records = folder / prepare.SUBWORDS, folder / "train" / shards.RECORDS
    if resumed:
        run_folder.check_data(model_dir, subwords, records)
    keeps = not (resumed and dry_run)
    if changes:
        say(f"{'Changed' if keeps else 'Changed for this dry run only'}: {changes}.")
    if keeps:
        run_folder.write(model_dir, options, subwords, records)


def train(
    model_dir: pathlib.Path,
    model_config: ModelConfig,
    train_config: TrainConfig,
    decode_config: DecodeConfig,
    data_config: DataConfig,
    *,
    data_dir: pathlib.Path | None = None,
    strategy,
    dry_run: bool = False,
    say: Callable = logger.info,
) -> Progress | None:
    """Prepares the data if need be, then trains or resumes training; everything is in `model_dir`.

    Args:
        model_dir: the run's folder.
        model_config, train_config, decode_config, data_config: all options; see `run_folder.resolve` for those of a run that is
            there. Where `data_config` names no corpus, it is the run's, or what the data folder was prepared from.
        data_dir: prepared data, or where to prepare it; None: `model_dir/data`.
        strategy: usually `devices.make_strategy()`.
        dry_run: prepare, rehearse the largest updates, and leave it at that; returns None. A run that is there keeps its options.
        say: called with each message.

    Raises:
        FileNotFoundError, ValueError: the corpus is not usable; or the folders hold another one, or a run of other options, all
            of which are named, or no run and somebody's files.
        BlockingIOError: another process trains in `model_dir`.
        interruption.StoppedError: the run was stopped early and has saved.
    """
    chief = devices.is_chief(strategy)
    if not chief:
        say = _say_nothing
    options = run_folder.Options(model_config, train_config, decode_config, data_config)
    if data_dir:
        options = dataclasses.replace(options, data_dir=run_folder.stored(model_dir, data_dir))
    run_folder.check(model_dir)
    with files.exclusive(model_dir / "lock", str(model_dir)) if chief else contextlib.nullcontext():
        if chief:
            _prepare_folders(model_dir, options, dry_run, say)
        devices.from_chief(strategy, 0.0)  # The others wait for the folders.
        if not (chief or dry_run):
            options = run_folder.read(model_dir)  # The chief's, whatever this process was given.
            model_config, train_config, decode_config = options.model, options.train, options.decode
        keras.utils.set_random_seed(train_config.seed)
        if train_config.deterministic:
            tf.config.experimental.enable_op_determinism()
        folder = options.data_folder(model_dir)
        tokenizer = read_tokenizer(model_dir, model_config)
        with strategy.scope():
            model = Transformer(model_config, dtype=_policy(train_config.dtype))
            schedule = optimizer.TransformerSchedule(model_config.d_model, train_config.warmup_steps, train_config.rate_factor)
            adam = optimizer.adam(schedule)
            adam.build(model.trainable_variables)
        names = ", ".join(name.rpartition("device:")[2] for name in strategy.extended.worker_devices)
        say(
            f"{model.count_params():,} parameters, {train_config.dtype}, {strategy.num_replicas_in_sync} device(s): {names}; "
            f"{train_config.batch_tokens:,} tokens a side in an update. TensorBoard: tensorboard --logdir {model_dir / 'logs'}"
        )
        if dry_run:
            loop.rehearse(strategy, model, adam, train_config, folder=folder / "train", say=say)
            return None

        def text_of(ids) -> list[str]:
            return [text.decode(errors="replace") for text in tokenizer.detokenize(tf.constant(ids)).numpy()]

        def examine(batch, step: int, scale: float) -> str:
            path = model_dir / "not_finite" / f"update-{step:09d}-worker-{devices.process(strategy)}.npz"
            iterations = int(adam.iterations.numpy())
            return diagnosis.write_report(path, strategy, model, train_config, batch, iterations=iterations, scale=scale, text_of=text_of)

        greedy = Translator(model, tokenizer, dataclasses.replace(decode_config, beam_size=1))
        progress = loop.train(
            strategy,
            model,
            adam,
            train_config,
            folder=folder / "train",
            model_dir=model_dir,
            validate=_validation(strategy, model, greedy, folder, train_config),
            examine=examine,
            board=Board(model_dir / "logs"),
            say=say,
        )
    say(f"{progress.step:,} updates in {progress.seconds / 60:.1f} minutes, over all runs of it.")
    return progress
