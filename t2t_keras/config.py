"""Every option and its default, once: the model (section 6.2, Table 3), training (5), decoding (6.1) and data (5.1).

A field's help text is what `--help` prints; `cli.flags` turns the fields into flags. Nothing here needs TensorFlow or Keras.
"""

import dataclasses
import json
import pathlib
import re
import reprlib
import sys

from t2t_keras.files import read_json

TEXTS = ("train_source", "train_target", "valid_source", "valid_target")  # Options that name files.
# Options by their former names, which 0.1 still accepts.
FORMER_NAMES = {
    "device_tokens": "micro_batch_tokens",
    "rate_factor": "learning_rate_factor",
    "early_stopping": "best_metric",
    "batch_parts": "buckets_per_update",
}
# The ids that sub-words are learned with. Padding is 0 and is never an unknown word.
PAD, UNK, BOS, EOS = 0, 1, 2, 3


MOST = 2**31 - 1  # Of a whole number, where an option has no smaller limit.
_TYPES = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text"}
_SHORT = reprlib.Repr()  # Of values that may be of any size.
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 200


def with_current_names(options: dict) -> dict:
    """Options by their current names, where some have a former one."""
    return {FORMER_NAMES.get(name, name): value for name, value in options.items()}


def option(default, text: str, most: int = MOST):
    """A dataclass field with a default, its help text, and the largest value of a whole number."""
    return dataclasses.field(default=default, metadata={"help": text, "most": most})


def _require(fields, condition: bool, names: str, expected: str) -> None:
    if not condition:
        received = ", ".join(f"{name}={_SHORT.repr(getattr(fields, name))}" for name in names.split())
        raise ValueError(f"Expected {expected}. Received: {received}.")


def _require_types(fields) -> None:
    """Every field has a value of its type; numbers are finite, and whole ones at most what the field allows."""
    for field in dataclasses.fields(fields):
        value = getattr(fields, field.name)
        fits = isinstance(value, (int, float) if field.type is float else field.type) and (
            field.type is bool or not isinstance(value, bool)
        )
        if fits and field.type is float:
            fits = abs(value) <= sys.float_info.max
        _require(fields, fits, field.name, _TYPES[field.type])
        if field.type is int:
            most = field.metadata["most"]
            _require(fields, value <= most, field.name, f"at most {most:,}")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The columns of Table 3. The defaults are the base model."""

    vocab_size: int = option(37000, "Sub-words shared by source and target (section 5.1).", 2**24)
    encoder_layers: int = option(6, "N of the encoder (section 3.1).", 1000)
    decoder_layers: int = option(6, "N of the decoder (section 3.1).", 1000)
    d_model: int = option(512, "Width of every layer's output (section 3.1).", 2**16)
    d_ff: int = option(2048, "Inner width of the feed-forward networks (section 3.3).", 2**20)
    num_heads: int = option(8, "h, parallel attention heads (section 3.2.2).", 2**12)
    d_k: int = option(64, "Width of one head's queries and keys (section 3.2.2).", 2**16)
    d_v: int = option(64, "Width of one head's values (section 3.2.2).", 2**16)
    dropout: float = option(0.1, "P_drop, on sub-layer outputs and embedding sums (section 5.4).")
    learned_positions: int = option(0, "Rows of a learned position table (Table 3, row E); 0 means sinusoids (section 3.5).", 2**20)

    def __post_init__(self):
        _require_types(self)
        for name in ("encoder_layers", "decoder_layers", "d_model", "d_ff", "num_heads", "d_k", "d_v"):
            _require(self, getattr(self, name) >= 1, name, "a positive number")
        _require(self, self.vocab_size > EOS + 1, "vocab_size", f"more than the {EOS + 1} special ids")
        _require(self, self.d_model % 2 == 0, "d_model", "an even d_model: sinusoids come in pairs (section 3.5)")
        _require(self, 0 <= self.dropout < 1, "dropout", "a dropout rate in [0, 1)")
        _require(self, self.learned_positions >= 0, "learned_positions", "a number of rows, or 0 for sinusoids")

    @property
    def num_weights(self) -> int:
        """Every matrix and vector of section 3, counted: Table 3's last column."""
        attention = 2 * self.d_model * self.num_heads * (self.d_k + self.d_v)  # W^Q, W^K; W^V, W^O; no bias.
        feed_forward = 2 * self.d_model * self.d_ff + self.d_ff + self.d_model  # W_1, W_2; b_1, b_2.
        norm = 2 * self.d_model
        encoder_layer = attention + feed_forward + 2 * norm
        decoder_layer = 2 * attention + feed_forward + 3 * norm
        embeddings = (self.vocab_size + self.learned_positions) * self.d_model
        return embeddings + self.encoder_layers * encoder_layer + self.decoder_layers * decoder_layer


BASE = ModelConfig()
BIG = ModelConfig(d_model=1024, d_ff=4096, num_heads=16, dropout=0.3)


def _heads(num_heads: int, d: int) -> ModelConfig:
    return dataclasses.replace(BASE, num_heads=num_heads, d_k=d, d_v=d)


def _layers(n: int) -> ModelConfig:
    return dataclasses.replace(BASE, encoder_layers=n, decoder_layers=n)


# The rows of Table 3 that change the model, under the paper's letters. Row (D)'s label smoothing is a training option.
TABLE_3 = {
    "base": BASE,
    "A1": _heads(1, 512),
    "A4": _heads(4, 128),
    "A16": _heads(16, 32),
    "A32": _heads(32, 16),
    "B16": dataclasses.replace(BASE, d_k=16),
    "B32": dataclasses.replace(BASE, d_k=32),
    "C2": _layers(2),
    "C4": _layers(4),
    "C8": _layers(8),
    "C256": dataclasses.replace(BASE, d_model=256, d_k=32, d_v=32),
    "C1024": dataclasses.replace(BASE, d_model=1024, d_k=128, d_v=128),
    "C_ff1024": dataclasses.replace(BASE, d_ff=1024),
    "C_ff4096": dataclasses.replace(BASE, d_ff=4096),
    "D0.0": dataclasses.replace(BASE, dropout=0.0),
    "D0.2": dataclasses.replace(BASE, dropout=0.2),
    "E": dataclasses.replace(BASE, learned_positions=1024),
    "big": BIG,
}


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Section 5: batches, optimizer, schedule, regularisation, and what is kept of a run."""

    train_steps: int = option(100_000, "Updates in all (section 5.2).")
    warmup_steps: int = option(4000, "Updates over which the rate grows (section 5.3).")
    learning_rate_factor: float = option(1.0, "Factor on the learning rate of section 5.3.")
    label_smoothing: float = option(0.1, "epsilon_ls, over the whole vocabulary (section 5.4).")
    clip_norm: float = option(0.0, "Largest global norm of an update's gradient; 0 does not clip, as the paper.")
    batch_tokens: int = option(25_000, "Tokens of one update, padding counted, on each side (section 5.1); the same whatever the hardware.")
    buckets_per_update: int = option(4, "Batches of one update, each of sentences of similar length; 1 as in the paper (5.1).")
    micro_batch_tokens: int = option(8192, "Tokens per device and side, padding counted, in memory at once; updates are split to fit.")
    dtype: str = option("float32", "Of the layers' arithmetic (weights stay float32): float32, bfloat16, or float16 with loss scaling.")
    seed: int = option(1, "Of initial weights, the order of the data, and dropout.")
    deterministic: bool = option(False, "Same seed, same machine, same weights to the last bit; slower.")
    data_service: str = option(
        "", "Dispatcher of a tf.data service that reads the training data, as grpc://host:port; empty: read it here."
    )
    damaged_records: str = option("stop", "At a record of the data whose checksum is wrong: stop, or skip it and count it.")
    checkpoint_steps: int = option(1000, "Updates between checkpoints; 0 means by minutes only.")
    checkpoint_minutes: float = option(10.0, "Minutes between checkpoints (section 6.1 averages ones 10 minutes apart); 0: by steps only.")
    keep_checkpoints: int = option(5, "Newest checkpoints kept; their average is the model (section 6.1).")
    valid_steps: int = option(1000, "Updates between validations.")
    valid_sentences: int = option(500, "First validation sentences translated, greedily, for BLEU at each validation; 0: loss only.")
    log_steps: int = option(100, "Updates between points in TensorBoard.")
    histogram_steps: int = option(0, "Updates between histograms of weights and gradient norms in TensorBoard; 0: none.")
    profile_steps: str = option("", "Updates to profile for TensorBoard, as FIRST,LAST, such as 10,20; empty: none.")
    patience: int = option(0, "Validations without a better one before training stops; 0 never stops early.")
    max_skipped: int = option(20, "Updates in a row whose loss or gradient is not finite, and which are skipped, before training stops.")
    max_hours: float = option(0.0, "Hours from the start of this process after which it saves and stops, as on SIGTERM; 0: no limit.")
    best_metric: str = option("bleu", "What 'better' is, for patience and --checkpoint=best: bleu or loss.")

    def __post_init__(self):
        _require_types(self)
        for name in (
            "train_steps",
            "warmup_steps",
            "batch_tokens",
            "buckets_per_update",
            "micro_batch_tokens",
            "keep_checkpoints",
            "valid_steps",
            "log_steps",
            "max_skipped",
        ):
            _require(self, getattr(self, name) >= 1, name, "a positive number")
        for name in (
            "seed",
            "checkpoint_steps",
            "checkpoint_minutes",
            "valid_sentences",
            "patience",
            "clip_norm",
            "max_hours",
            "histogram_steps",
        ):
            _require(self, getattr(self, name) >= 0, name, "0 or more")
        _require(self, self.learning_rate_factor > 0, "learning_rate_factor", "a positive factor")
        _require(self, 0 <= self.label_smoothing < 1, "label_smoothing", "a share in [0, 1)")
        _require(self, self.dtype in ("float32", "bfloat16", "float16"), "dtype", "float32, bfloat16 or float16")
        _require(
            self,
            not (self.deterministic and self.data_service),
            "deterministic data_service",
            "one of the two at most: the order of what a data service sends is not reproducible",
        )
        _require(self, self.damaged_records in ("stop", "skip"), "damaged_records", "stop or skip")
        bounds = re.fullmatch(r"(\d{1,9}),(\d{1,9})", self.profile_steps, re.ASCII)
        _require(
            self,
            not self.profile_steps or (bounds is not None and 1 <= int(bounds[1]) <= int(bounds[2])),
            "profile_steps",
            "the first and the last update to profile, such as 10,20",
        )
        _require(self, self.best_metric in ("bleu", "loss"), "best_metric", "bleu or loss")
        _require(self, self.checkpoint_steps or self.checkpoint_minutes, "checkpoint_steps checkpoint_minutes", "one of them above 0")
        _require(
            self,
            self.best_metric == "loss" or self.valid_sentences > 0,
            "best_metric valid_sentences",
            "--best_metric=loss where no sentence is translated for BLEU",
        )


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
    """Section 6.1: beam search."""

    beam_size: int = option(4, "Hypotheses kept at each step; 1 is greedy search (section 6.1).", 2**12)
    alpha: float = option(0.6, "Length penalty (section 6.1): score = log P / ((5 + |Y|) / 6)^alpha.")
    extra_length: int = option(50, "A translation is at most its source's length plus this, in sub-words (section 6.1).", 2**16)
    max_input: int = option(1024, "Sources are cut at this many sub-words, the end token counted.", 2**16)

    def __post_init__(self):
        _require_types(self)
        _require(self, self.beam_size >= 1, "beam_size", "at least one hypothesis")
        _require(self, self.extra_length >= 0, "extra_length", "0 or more")
        _require(self, self.max_input >= 2, "max_input", "room for one sub-word and the end token")
        _require(self, 0 <= self.alpha < 100, "alpha", "an exponent of at least 0, usually at most 1")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Section 5.1: where sentence pairs come from and how they become sub-words."""

    train_source: str = option("", "Training text, source side, a sentence a line: file, comma-separated files or globs; .gz is read.")
    train_target: str = option("", "Training text, target side; line n translates line n of --train_source.")
    valid_source: str = option("", "Validation text, source side.")
    valid_target: str = option("", "Validation text, target side.")
    dataset: str = option(
        "", "A TFDS translation set, such as wmt14_translate/de-en; or 'builtin': numbers, dates and money, English to German."
    )
    source_language: str = option("", "Language code of the source in --dataset.")
    target_language: str = option("", "Language code of the target in --dataset.")
    train_split: str = option("train", "Split of --dataset to train on; slices such as train[:99%] are splits.")
    valid_split: str = option("validation", "Split of --dataset to validate on, such as train[99%:].")
    builtin_pairs: int = option(40_000, "Training pairs made for --dataset=builtin.")
    max_length: int = option(256, "Pairs with a side longer than this, in sub-words with the end token, are left out and counted.")
    normalization: str = option(
        "identity", "SentencePiece normalisation: identity changes nothing; or nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf."
    )
    character_coverage: float = option(0.9995, "Share of characters that become sub-words; rarer ones are spelled in bytes.")
    vocab_sample: int = option(2_000_000, "Sentences, both sides together, that sub-words are learned from at most.")
    skip_bad_lines: bool = option(False, "Leave out, and count, lines that are not UTF-8 instead of stopping.")

    def __post_init__(self):
        _require_types(self)
        pairs = (("train_source", "train_target"), ("valid_source", "valid_target"))
        for names in pairs:
            given = [bool(getattr(self, name)) for name in names]
            _require(self, all(given) or not any(given), " ".join(names), f"both of --{names[0]} and --{names[1]}, or neither")
        _require(
            self,
            not (self.dataset and (self.train_source or self.valid_source)),
            "dataset train_source valid_source",
            "text files or --dataset, not both",
        )
        languages = (self.source_language, self.target_language)
        _require(self, languages == ("", "") or len(set(languages)) == 2, "source_language target_language", "two languages")
        _require(
            self,
            self.dataset != "builtin" or languages in (("", ""), ("en", "de")),
            "dataset source_language target_language",
            "English to German for the built-in corpus",
        )
        _require(
            self,
            not self.dataset or self.dataset == "builtin" or (self.source_language and self.target_language),
            "dataset source_language target_language",
            "--source_language and --target_language with a TFDS set",
        )
        _require(self, 2 <= self.max_length < 2**15, "max_length", "room for one sub-word and the end token, and less than 32,768")
        names = ("identity", "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf")
        _require(self, self.normalization in names, "normalization", f"one of {', '.join(names)}")
        _require(self, 0 < self.character_coverage <= 1, "character_coverage", "a share in (0, 1]")
        _require(self, self.builtin_pairs >= 1, "builtin_pairs", "a positive number of pairs")
        _require(self, self.vocab_sample > 100, "vocab_sample", "more than 100 sentences")

    @property
    def names_corpus(self) -> bool:
        """Whether there is training text, or else data that is prepared already."""
        return bool(self.dataset or self.train_source)


def to_json(**groups) -> str:
    """Groups of options by name, and whatever else JSON can hold, as readable JSON."""
    values = {name: dataclasses.asdict(group) if dataclasses.is_dataclass(group) else group for name, group in groups.items()}
    return json.dumps(values, indent=2) + "\n"


def from_json(path: str | pathlib.Path, **classes) -> tuple:
    """The groups of options in a file that `to_json` wrote, in the order of `classes`. What the file lacks has its default.

    Raises:
        ValueError: the file is damaged, or an option is unknown (another version's) or invalid.
    """
    written, groups = read_json(pathlib.Path(path)), []
    for name, group in classes.items():
        options = written.get(name, {})
        if not isinstance(options, dict):
            raise ValueError(f"Expected '{name}' in {path} to be options. Received: {_SHORT.repr(options)}.")
        options = with_current_names(options)
        if unknown := sorted(set(options) - {field.name for field in dataclasses.fields(group)}):
            raise ValueError(
                f"Expected the '{name}' options of this version in {path}. Unknown: {_SHORT.repr(unknown)}. "
                "Use the version that wrote the file."
            )
        try:
            groups.append(group(**options))
        except ValueError as error:
            raise ValueError(f"{path} is not valid: {error}") from error
    return tuple(groups)
