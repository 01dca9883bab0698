"""Prepares a data folder from a corpus (section 5.1): checks the text, learns sub-words and writes shards of token ids.

The folder contains `subwords.model`, and `subwords.source.model` if the source has sub-words of its own; shards in
`train/` and `valid/`; and the held-out text in `valid.source.txt` and `valid.target.txt` (for the built-in corpus also
`test.source.txt` and `test.target.txt`). `corpus.json` is written last: a folder that has it is complete. The file
`lock` ensures that only one process at a time writes into the folder; it stays there, empty.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import pathlib
import shutil
import time
import types
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from t2t_keras.config import TERM_MARKS, DataConfig, options_with, patterns, vocabulary_size
from t2t_keras.data import corpora, processes, shards, text_files
from t2t_keras.data.text_checks import TextChecks
from t2t_keras.runs import data_folder
from t2t_keras.runs.data_folder import CORPUS
from t2t_keras.runs.run_options import Options
from t2t_keras.runs.task import Task
from t2t_keras.system import files
from t2t_keras.system.files import EXCHANGE, LOCK, SOURCE_SUBWORDS, SUBWORDS, write_whole
from t2t_keras.system.log import logger, number_of
from t2t_keras.system.tensorflow import hide_gpus, writing
from t2t_keras.text import augmentation, piece_file, vocabulary
from t2t_keras.text.placeholders import Placeholders, find_all, replace_all
from t2t_keras.text.spelling import BYTES
from t2t_keras.text.subwords import SizeError, Subwords

# In one call of the tokenizer: about as much text as reaches the first of both limits.
PAIRS_AT_ONCE, BYTES_AT_ONCE = 8192, 2**22
PROGRESS_SECONDS = 30  # Between two messages.
SIZES = ("vocab_size", "source_vocab_size")  # Options of the model that a data folder fixes.
CAPITALS_PAIRS = 500  # Validation pairs whose sub-words are counted in capitals too.


@dataclasses.dataclass
class _Text:
    """What reading the text found."""

    train: text_files.Report = dataclasses.field(default_factory=text_files.Report)
    valid: text_files.Report = dataclasses.field(default_factory=text_files.Report)
    valid_pairs: list[text_files.Pair] = dataclasses.field(default_factory=list)
    train_size: int = 0  # Bytes of the training pairs.
    hashes: text_files.Hashes = dataclasses.field(default_factory=dict)  # Of each text file.


def _encode(subwords: Subwords, max_length: int, task: Task, chunk: list[text_files.Pair]) -> list[tuple | None]:
    """Returns the records of a chunk, with `None` for one that is longer than `max_length`; see `encode`."""
    limits = {"max_length": max_length} if task.documents else {}
    records = list(task.records(subwords, *map(list, zip(*chunk, strict=True)), **limits))
    wrong = [len(record) for record in records if len(record) != len(task.on_disk)]
    if wrong or (len(records) != len(chunk) and not task.documents):
        received = f"a record of {wrong[0]} columns" if wrong else f"{len(records):,} records of {len(chunk):,} lines"
        expected = f"a record of {len(task.on_disk)} columns for each line ({', '.join(task.on_disk)})"
        raise ValueError(f"Expected from the task {task.name} {expected}. Received: {received}.")
    counted = [index for index, counts in enumerate(task.on_disk.values()) if counts]
    return [None if max(len(record[index]) for index in counted) > max_length else record for record in records]


def _encoder(models: tuple[bytes, ...], max_length: int, task: Task) -> Callable:
    """Returns `_encode` with packed results, for a process of its own."""
    hide_gpus()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    encode_chunk = functools.partial(_encode, vocabulary.load_sides(*models), max_length, task)
    return lambda chunk: _packed(encode_chunk(chunk))


def pack(records: Iterable[tuple]) -> list[tuple[np.ndarray, list[int]]]:
    """Returns for each column its numbers, concatenated because many arrays are slow to send, and their counts."""
    columns = zip(*records, strict=True)
    return [(np.concatenate(column), [len(numbers) for numbers in column]) for column in columns]


def unpack(columns: list[tuple[np.ndarray, list[int]]]) -> Iterator[tuple]:
    """Returns the records that `pack` concatenated."""
    return zip(*(np.split(numbers, np.cumsum(lengths)[:-1]) for numbers, lengths in columns), strict=True)


def _packed(records: list[tuple | None]) -> tuple[list[bool], list[tuple]]:
    """Returns whether each record is there, and those that are, packed."""
    is_there = [record is not None for record in records]
    return is_there, pack(itertools.compress(records, is_there))


def _unpacked(packed: tuple[list[bool], list[tuple]]) -> Iterator[tuple | None]:
    is_there, columns = packed
    records = unpack(columns)
    return (next(records) if there else None for there in is_there)


def encode(
    pairs: Iterator[text_files.Pair],
    subwords: Subwords,
    max_length: int,
    report: text_files.Report,
    task: Task,
    number: int = 1,
) -> Iterator[tuple | None]:
    """Tokenizes pairs with a number of processes, see `processes.ordered`, or with 1 in this one and TensorFlow's
    threads. Yields an id array for each column on disk, or `None` for a pair that is longer than `max_length`, which it
    moves in `report` from the pairs to those left out.
    """
    listed = text_files.chunks(pairs, PAIRS_AT_ONCE, BYTES_AT_ONCE, task.documents)
    if number == 1:
        encoded = map(functools.partial(_encode, subwords, max_length, task), listed)
    else:
        encoded = map(_unpacked, processes.ordered(_encoder, (subwords.models, max_length, task), listed, number))
    for record in itertools.chain.from_iterable(encoded):
        if record is None:
            report.too_long += 1
            report.pairs -= 1
        yield record


def _checked(records: Iterator[tuple | None], task: Task, name: str) -> Iterator[tuple | None]:
    """Yields records of documents, and checks these at the end; see `Task.check_documents`."""
    numbers = set()
    for record in records:
        if record:
            numbers.add(int(record[-1][0]))
        yield record
    task.check_documents(numbers, name)


def write(
    folder: pathlib.Path,
    pairs: Iterator[text_files.Pair],
    subwords: Subwords,
    max_length: int,
    report: text_files.Report,
    task: Task,
    *,
    number: int = 1,
    size: int = 0,
    **options,
) -> dict:
    """Tokenizes pairs and writes them as shards, with the arguments of `encode` and `shards.write`, whose result it
    returns.

    The shards are the same for every number of processes that tokenize; 0 is that of `processes.number` for `size`, the
    bytes of text. Raises `OSError` if a process was killed.
    """
    number = processes.number(number, size)
    with contextlib.closing(encode(pairs, subwords, max_length, report, task, number)) as encoded:
        records = _checked(encoded, task, f"the {folder.name} text") if task.documents else encoded
        return shards.write(folder, records, size=size, vocab_size=subwords.largest, columns=task.on_disk, **options)


def _with_progress(items: Iterable, unit: str, total: int = 0) -> Iterator:
    """Yields the items, a `unit` each, and logs their number from time to time, and `total` if known."""
    started = reported = time.monotonic()
    for count, item in enumerate(items):
        if count % 1024 == 0 and (now := time.monotonic()) - reported >= PROGRESS_SECONDS:
            of_total = f" of {total:,}" if total else ""
            logger.info(f"… {count:,}{of_total} {unit}s, {count / (now - started):,.0f} {unit}s/s.")
            reported = now
        yield item


def read_text(folder: pathlib.Path, split: str, sides: tuple[str, ...] = ("source", "target")) -> tuple[list[str], ...]:
    """Returns the lines of each side of a held-out split. Raises `ValueError` if a file is missing, is not UTF-8, or
    has another number of lines than the first.
    """
    texts = []
    for path in (folder / f"{split}.{side}.txt" for side in sides):
        files.check_ends(path)
        try:
            texts.append(path.read_bytes().decode("utf-8").split("\n")[:-1])
        except (OSError, UnicodeDecodeError) as error:
            reason = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else f"cannot be read: {error.strerror}"
            raise ValueError(f"{path} {reason}. Remove {folder} and prepare again.") from error
        if len(texts[-1]) != len(texts[0]):
            raise ValueError(
                f"Expected {path} to have {number_of(len(texts[0]), 'line')}, as that of the {sides[0]}. Received: "
                f"{len(texts[-1]):,}. Remove {folder} and prepare again."
            )
    return tuple(texts)


def _without(pairs: Iterator[text_files.Pair], pattern: str) -> Iterator[text_files.Pair]:
    """Yields pairs with a space in place of each match of a pattern."""
    for chunk in text_files.chunks(pairs, PAIRS_AT_ONCE, BYTES_AT_ONCE):
        yield from zip(*(replace_all(side, pattern, " ") for side in zip(*chunk, strict=True)), strict=True)


def _check_patterns(data: DataConfig) -> None:
    """Raises `ValueError` for patterns that RE2 refuses, and for tags that are text to keep, before text is read."""
    pattern = Placeholders(patterns.parse(data.keep_patterns)).pattern
    for word in data.source_words:
        if any(find_all([word], pattern)):
            name = "a mark of train_terms" if word in TERM_MARKS else "source_tag"
            raise ValueError(
                f"Expected tags that `keep_patterns` does not match. Received: {name}={word}, "
                f"keep_patterns={data.keep_patterns}."
            )


@dataclasses.dataclass(frozen=True)
class Preparation:
    """The preparation of a data folder, which is created if it does not exist. With `noise`, sub-words are learned from
    text with shares of it; see `augmentation.noisy`.
    """

    data: DataConfig
    vocab_size: int  # Includes the special ids; 0: see `vocabulary_size`.
    seed: int  # Of the sample that sub-words are learned from, and of the order of the pairs on disk.
    folder: pathlib.Path
    task: Task
    source_vocab_size: int = 0  # Of the source alone; 0 if both sides share a matrix.
    noise: dict[str, float] = dataclasses.field(default_factory=dict)
    taken: frozenset[str] = frozenset()  # Options whose values are those of the folder, such as names of its files.

    @classmethod
    def of(cls, options: Options, folder: pathlib.Path) -> "Preparation":
        """Returns the preparation of a folder with the options of a run."""
        return cls(
            options.data,
            options.model.vocab_size,
            options.train.seed,
            folder,
            options.task,
            options.source_vocab_size,
            options.train.noise if options.task.augments and options.data.subwords != "word" else {},
            frozenset(name for name, source in options.sources.items() if source.endswith("data folder")),
        )

    def run(self, write_train: Callable = write, resumes: bool = False) -> None:
        """Prepares the folder, unless it was already prepared from the same corpus. If another process is preparing it,
        waits for it. `write_train` writes the training shards, with the arguments and the result of `write`. Unless a
        run resumes, sub-words that do not suit the noise give a warning.

        Raises `FileNotFoundError` if a file of the corpus is missing, `ValueError` if the corpus is not usable or the
        folder was prepared from another one, and `FileExistsError` if it holds other files.
        """
        folder, is_new = self.folder, False
        if not (folder / CORPUS).exists():
            if not (folder / LOCK).exists():  # The folder may be new. Do not create it if options or files are missing.
                if self._learns:
                    vocabulary.check_can_learn(self.data.subwords)
                for split in ("train", "valid"):
                    self._pairs(split)
            data_folder.check(folder)
            with writing(folder), files.exclusive(folder / LOCK, str(folder), wait=True):
                if is_new := not (folder / CORPUS).exists():  # Another process may have written it meanwhile.
                    files.check_no_links(*folder.iterdir())
                    self._write(write_train)
        if not is_new:
            self.check()
            logger.info(f"Using the data in {folder}.")
        if not resumes and {"upper", "title"} & self.noise.keys():
            self._warn_of_capitals()

    def _warn_of_capitals(self) -> None:
        """Warns if the sub-words divide text in capitals into many more."""
        sides = read_text(self.folder, "valid")
        models = (self.folder / SUBWORDS, data_folder.source_subwords_in(self.folder))
        subwords = vocabulary.load_sides(*(path.read_bytes() for path in models if path))
        numbers = [
            sum(
                tf.size(side.words(tf.constant(list(map(change, lines[:CAPITALS_PAIRS])))).values).numpy()
                for side, lines in zip((subwords.source, subwords), sides, strict=True)
            )
            for change in (str, str.upper)
        ]
        if (ratio := numbers[1] / max(numbers[0], 1)) >= 2:
            logger.warning(
                f"In capitals, text has {ratio:.1f} times as many sub-words, so an epoch with `augment` has more "
                "updates. Sub-words that are learned with `augment`, in another data folder, avoid this."
            )

    @property
    def _learns(self) -> bool:
        """Whether sub-words are learned, of either side."""
        learns_source = self.source_vocab_size and not self.data.source_subwords_file
        return bool(learns_source or not self.data.subwords_file)

    def check(self) -> None:
        """Checks that the folder, which is prepared, is what the options ask for. The message names all that differ.
        Whether its sub-words were learned from text with noise is not compared.

        If the options name no corpus, only the task, the sizes of the vocabularies and the options that differ from
        their defaults are compared. Text files are compared by the hash of all their bytes.
        """
        recorded = data_folder.recorded_options(self.folder)
        if recorded.pop("noise", None) and not self.noise:
            logger.info(f"The sub-words in {self.folder} were learned from text with the noise of `augment`.")
        options = self._options(recorded=recorded)
        names = [*options, *sorted(set(recorded) - set(options))]
        if not self.data.names_corpus:
            fields = dataclasses.fields(DataConfig)
            given = [field.name for field in fields if getattr(self.data, field.name) != field.default]
            names = ["task", *SIZES, *given]
            options = vars(self.data) | options
        data_folder.check_options(self.folder, recorded, {name: options.get(name) for name in names})

    def _options(
        self, hashes: text_files.Hashes | None = None, recorded: Mapping[str, str] = types.MappingProxyType({})
    ) -> dict:
        """Returns the options that determine the pairs and sub-words of the folder. Runs with different seeds may share
        a folder of text files.

        A file that is gone, or a name that was taken from the folder, counts as the file of this name in `recorded`:
        the folder has what was made of it.
        """
        size = self.vocab_size or recorded.get("vocab_size")
        data, options = self.data, {"task": self.task.name, "vocab_size": size}
        if self.source_vocab_size:
            options["source_vocab_size"] = self.source_vocab_size
        for name in options_with(DataConfig, "path", "file"):
            if file := getattr(data, name):
                path = pathlib.Path(file).expanduser()
                needs_no_file = name in self.taken or not path.exists()
                is_recorded = needs_no_file and str(recorded.get(name, "")).startswith(f"{path.name} ")
                options[name] = recorded[name] if is_recorded else f"{path.name} {files.describe(path)}"
        if data.subwords == "sentencepiece" and not data.dataset:
            options |= {name: code for name in ("source_language", "target_language") if (code := getattr(data, name))}
        text_options = {name: getattr(data, name) for name in options_with(DataConfig, "any_corpus")}
        return {**corpora.identity(data, self.seed, hashes), **options, **text_options}

    def _pairs(
        self, split: str, report: text_files.Report | None = None, hashes: text_files.Hashes | None = None, **options
    ) -> Iterator[text_files.Pair]:
        """Returns the pairs of a split; see `corpora.pairs`."""
        task, report = self.task, report or text_files.Report()
        return corpora.pairs(self.data, split, self.seed, report, hashes, task.texts, task.documents, **options)

    def _read_text(self) -> _Text:
        """Reads and checks all of the text."""
        data, task, text, with_terms = self.data, self.task, _Text(), 0
        text.train.noun = text.valid.noun = task.line_noun
        # Before any text is read, these calls find missing options and files.
        train_pairs = self._pairs("train", text.train, text.hashes, terms=False)
        insert_terms = corpora.term_inserter(data) if data.train_terms else None
        valid_pairs = self._pairs("valid", text.valid, text.hashes)
        logger.info("Reading and checking the text …")
        text.valid_pairs = list(valid_pairs)
        checks = TextChecks(data, task, text.valid_pairs)
        for number, plain in enumerate(_with_progress(train_pairs, task.line_noun)):
            pair = insert_terms(number, plain) if insert_terms else plain
            with_terms += pair != plain
            text.train_size += text_files.size(pair)
            checks.add(plain, pair)
        of_terms = f", {with_terms:,} with terms in the source" if with_terms else ""
        logger.info(f"Training text: {text.train}{of_terms}.")
        for name, report in (("training", text.train), ("validation", text.valid)):
            if not report.pairs:
                raise ValueError(f"The {name} text has no usable {report.noun}: {report}.")
        if data.train_terms and not with_terms:
            raise ValueError(
                "Expected training pairs with terms of `train_terms` in the source and their translations in the "
                f"target. Received: none in the half of {text.train.pairs:,} pairs that may get terms, so a model "
                "would not learn to use them."
            )
        checks.finish()
        return text

    def _given_subwords(self, option: str, size: int, size_option: str) -> Subwords | None:
        """Reads the sub-words of the file that an option names, and checks them against the options, such as their
        number against `size_option`; without a file, returns `None`.
        """
        data = self.data
        if not getattr(data, option):
            return None
        path = pathlib.Path(getattr(data, option)).expanduser()
        if not path.is_file():
            raise FileNotFoundError(f"No such file of sub-words: '{path}'.")
        model = path.read_bytes()
        try:
            subwords = vocabulary.load(model)
        except ValueError as error:
            raise ValueError(f"Expected a file of sub-words as `{option}`. Received: {path} ({error})") from error
        if subwords.languages and not data.dataset:
            side = "source_language" if option.startswith("source") else "target_language"
            model = piece_file.with_chosen(model, side, getattr(data, side))
            subwords = vocabulary.load(model)
        if data.keep_patterns and subwords.pattern != patterns.parse(data.keep_patterns):
            has = f"has those of {subwords.pattern}" if subwords.pattern else "has none"
            advice = "Leave `keep_patterns` out, or do not use this file: with a `parent`, give `parent_subwords=false`"
            raise ValueError(
                f"Expected placeholders of keep_patterns={data.keep_patterns} in {path}. It {has}. {advice}."
            )
        of_file = {size_option: subwords.vocab_size, "subwords": vocabulary.kind(model)}
        for name, wanted in ((size_option, size), ("subwords", data.subwords)):
            if wanted and of_file[name] != wanted:
                raise ValueError(f"Expected {name}={of_file[name]}, that of {path}. Received: {name}={wanted}.")
        if data.subwords == "bpe" and BYTES[0] not in subwords.pieces:
            logger.warning(
                f"{path} was trained without `byte_fallback`: characters that it lacks become <unk>, which "
                "translations leave out."
            )
        return subwords

    def _learn_subwords(self, vocab_size: int, side: str = "", is_given: bool = True) -> Subwords:
        """Learns sub-words from one side of the training text, or from all. If the text does not give so many, or needs
        more, and the number is not given, takes the nearest one.
        """
        data, task = self.data, self.task
        logger.info(f"Learning {vocab_size:,} sub-words{f' of the {side}' if side else ''} …")
        sides = [number for number, name in enumerate(task.texts) if side in ("", name)]
        pairs = corpora.pairs(data, "train", self.seed, text_files.Report(), sides=task.texts)  # Without blank lines.
        if self.noise:
            if data.keep_patterns:
                pairs = _without(pairs, patterns.parse(data.keep_patterns))
            pairs = augmentation.noisy(pairs, self.noise, data.tags, self.seed)
        pairs = _with_progress(pairs, task.line_noun)
        lines = (sentence for pair in pairs for number in sides for sentence in task.sentences(pair[number]))
        of_pairs = {"pattern": pattern} if (pattern := patterns.parse(data.keep_patterns)) else {}
        if side != "target" and data.subwords == "bpe":
            of_pairs["tags"] = data.source_words
        try:
            model = vocabulary.learn(
                data.subwords,
                lines,
                vocab_size,
                sample=data.vocab_sample,
                seed=self.seed,
                normalization=data.normalization,
                character_coverage=data.character_coverage,
                **of_pairs,
            )
        except ValueError as error:
            if isinstance(error, SizeError) and not is_given:
                bound = "at most" if error.nearest < vocab_size else "at least"
                logger.info(f"The text gives {error.nearest:,} sub-words {bound}.")
                return self._learn_subwords(error.nearest, side)
            option = "source_vocab_size" if side == "source" else "vocab_size"
            raise ValueError(str(error).replace("`vocab_size=", f"`{option}=")) from error
        return vocabulary.load(model)

    def _write_shards(self, text: _Text, subwords: Subwords, write_train: Callable) -> None:
        """Writes the training and validation shards and counts in `text` the pairs that are too long. If all pairs of a
        split are, or a text file changed after it was first read, that is an error.
        """
        logger.info("Writing token ids …")
        max_length, task = self.data.max_length, self.task
        # The lines of documents include blank ones.
        number = 0 if task.documents else text.train.pairs
        train_pairs = _with_progress(self._pairs("train", hashes=text.hashes), task.line_noun, number)
        for split, write_split, pairs, report, size in (
            # Validation first: its text may be found unusable, and takes less time.
            ("valid", write, iter(text.valid_pairs), text.valid, sum(map(text_files.size, text.valid_pairs))),
            ("train", write_train, train_pairs, text.train, text.train_size),
        ):
            started, sizes = time.monotonic(), {"count": report.pairs, "size": size}
            info = write_split(self.folder / split, pairs, subwords, max_length, report, task, **sizes, seed=self.seed)
            if not info["pairs"]:
                raise ValueError(f"Every {split} {report.noun} is longer than `max_length={max_length}`: {report}.")
            speed = info["pairs"] / (time.monotonic() - started)
            lengths = " + ".join(f"{tokens / info['pairs']:.1f}" for tokens in shards.counted(info, "tokens"))
            unit, number = (
                ("record", f"{number_of(info['pairs'], 'record')}; ") if task.documents else (report.noun, "")
            )
            logger.info(f"{split}: {report}; {number}{lengths} sub-words a {unit}; {speed:,.0f} {unit}s/s.")

    def _write_text(self, split: str, pairs: list[text_files.Pair]) -> None:
        """Writes the text of a held-out split, one sentence per line."""
        for side, lines in zip(self.task.texts, zip(*pairs, strict=True), strict=True):
            write_whole(self.folder / f"{split}.{side}.txt", b"".join(line + b"\n" for line in lines))

    def _remove_unfinished(self) -> None:
        """Removes what an unfinished preparation has left and another one would not replace: shards of other numbers,
        the text that Beam's workers were given, and sub-words of the source.
        """
        (self.folder / SOURCE_SUBWORDS).unlink(missing_ok=True)
        for split in ("train", "valid"):
            shutil.rmtree(self.folder / split / EXCHANGE, ignore_errors=True)
            for shard in (self.folder / split).glob("*-of-*.tfrecord"):
                shard.unlink()

    def _write(self, write_train: Callable) -> None:
        """Writes the folder, with `corpus.json` last."""
        data, folder = self.data, self.folder
        source_size = "source_vocab_size" if self.source_vocab_size else "vocab_size"
        given = self._given_subwords("subwords_file", self.vocab_size, "vocab_size")
        given_source = self._given_subwords("source_subwords_file", getattr(self, source_size), source_size)
        if data.keep_patterns:
            _check_patterns(data)
        text = self._read_text()
        separate = bool(self.source_vocab_size or given_source)
        size = self.vocab_size or vocabulary_size(text.train.pairs)
        is_given = self.vocab_size > 0
        subwords = given or self._learn_subwords(size, "target" if separate else "", is_given)
        if separate:
            subwords.own_source = given_source or self._learn_subwords(self.source_vocab_size, "source")
        if subwords.pattern != subwords.source.pattern:
            raise ValueError(
                "Expected source and target sub-words with the same placeholders (`keep_patterns`). Received: "
                "different ones, or none on one side. Give `subwords_file` and `source_subwords_file` of one "
                "preparation."
            )
        if not self.source_vocab_size and subwords.pieces != subwords.source.pieces:
            logger.warning(
                "Source and target have different sub-words and share one embedding matrix, so each row stands for two "
                "sub-words. Give `source_vocab_size`, the number of sub-words of the source, for a matrix of its own."
            )
        for word in data.source_words:
            if (number := int(subwords.source.words(tf.constant([word])).row_lengths()[0])) > 1:
                name = "train_terms" if word in TERM_MARKS else "source_tag"
                logger.warning(
                    f"The tag {word} is divided into {number} sub-words. Only byte-pair encoding that was learned with "
                    f"this `{name}`, and does not normalize it, keeps it as one."
                )
        self._remove_unfinished()
        for name, model in zip((SUBWORDS, SOURCE_SUBWORDS), subwords.models, strict=False):
            write_whole(folder / name, model)
        self._write_shards(text, subwords, write_train)
        self._write_text("valid", text.valid_pairs)
        if data.dataset == "builtin":
            self._write_text("test", list(self._pairs("test")))
        learned_with = {"noise": self.noise} if self.noise and self._learns else {}
        record = {
            "options": self._options(text.hashes, {"vocab_size": subwords.vocab_size}) | learned_with,
            "report": {"train": dataclasses.asdict(text.train), "valid": dataclasses.asdict(text.valid)},
        }
        write_whole(folder / CORPUS, (json.dumps(record, indent=2) + "\n").encode())
