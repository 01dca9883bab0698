"""Sentence pairs (section 5.1) of the options: from text files, from a TFDS translation dataset or from the built-in
corpus. A pair is (source, target), or (source,) for a task that needs no target.
"""

import collections
import itertools
import pathlib
import zlib
from collections.abc import Callable, Iterator

from t2t_keras.config import TEXTS, DataConfig, text_format
from t2t_keras.data import builtin_corpus, text_files
from t2t_keras.data.text_files import Hashes, Pair, Report
from t2t_keras.system.files import describe
from t2t_keras.system.log import number_of
from t2t_keras.text import inline_terms
from t2t_keras.text.kept import Kept
from t2t_keras.text.lines import is_blank
from t2t_keras.text.terminology import read_terms


def check_files(data: DataConfig, sides: tuple[str, ...] = ("source", "target")) -> None:
    """Checks what `text_files.check_texts` finds out, about a corpus of text files, not a dataset, with these sides."""
    if not data.dataset:
        splits = ("train",) if data.holds_out else ("valid", "train")
        texts = [_names(data, split, sides) for split in splits]
        if (
            any(data.languages)
            and not data.subwords_file
            and all(
                text_format(path.name) != "tmx" for names in texts for side in names for path in text_files.expand(side)
            )
        ):
            raise ValueError(
                "`source_language` and `target_language` have no effect on text files other than TMX. Leave them out."
            )
        text_files.check_texts(texts, not data.skip_bad_lines, data.languages)
        if data.holds_out:
            _check_held_out(data, texts[0])


def _check_held_out(data: DataConfig, names: tuple[str, ...]) -> None:
    """Raises `ValueError` if the last pairs of a text, which validate, are of a file with a weight, which repeats them.
    `names` are the files of each side.
    """
    sides, found = [text_files.weighted(side) for side in names], 0
    if all(weight == 1 for _, weight in sides[0]):
        return
    reading = {"skip_bad_lines": data.skip_bad_lines, "languages": data.languages}
    for (path, weight), *others in reversed(list(zip(*sides, strict=True))):
        if weight > 1 and found < data.valid_pairs:
            raise ValueError(
                "`valid_pairs` are the last pairs of the training text, so their files must have no weight. Received: "
                f"{path.name}@{weight} and `valid_pairs={data.valid_pairs}`. Put other files last, or give "
                "`valid_source` and `valid_target`."
            )
        pairs = text_files.pairs(str(path), *(str(other) for other, _ in others), report=Report(), **reading)
        found += sum(1 for _ in itertools.islice(pairs, data.valid_pairs - found))


def _on_one_line(error: Exception) -> str:
    """Returns the message of an error of TFDS without line ends and a final period."""
    return " ".join(str(error).split()).removesuffix(".") or type(error).__name__


def _tfds_builder(data: DataConfig):
    """Returns the builder of a TFDS translation dataset. Its name may have the languages in either order."""
    import tensorflow_datasets as tfds

    name, _, languages = data.dataset.partition("/")
    try:
        builder = tfds.builder(data.dataset)
    except (ValueError, AssertionError) as error:  # The latter for an unknown version.
        try:
            builder = tfds.builder(f"{name}/{'-'.join(reversed(languages.split('-')))}")
        except Exception:
            raise ValueError(
                f"Expected a set of TFDS as `dataset`. Received: {data.dataset} ({_on_one_line(error)})."
            ) from error
    known = sorted(getattr(builder.info.features, "keys", list)())
    for option in ("source_language", "target_language"):
        if (language := getattr(data, option)) not in known:
            raise ValueError(
                f"Expected `{option}` to be one of {', '.join(known)}, as in {builder.info.full_name}. Received: "
                f"{language}."
            )
    return builder


def tfds_pairs(data: DataConfig, split: str, report: Report) -> Iterator[Pair]:
    """Yields the pairs of a split of a TFDS translation dataset, in either direction. Raises `OSError` if the dataset
    could not be downloaded or written.
    """
    import tensorflow_datasets as tfds

    builder = _tfds_builder(data)
    try:
        builder.download_and_prepare()
    except Exception as error:
        # Of TFDS's own classes; an OSError may name no file, and would be taken for one of the data folder.
        raise OSError(f"TFDS could not prepare {data.dataset} in {builder.data_dir}: {_on_one_line(error)}.") from error
    if builder.info.splits:
        try:
            builder.info.splits[split]
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"{builder.info.full_name} has no split '{split}'; it has {', '.join(builder.info.splits)}."
            ) from error
    for example in tfds.as_numpy(builder.as_dataset(split=split)):
        pair = tuple(
            b" ".join(example[language].split(b"\n")) for language in (data.source_language, data.target_language)
        )
        if any(map(is_blank, pair)):
            report.empty += 1
        else:
            report.pairs += 1
            yield pair


def _names(data: DataConfig, split: str, sides: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the text files of a split, for each side as the option has them. Without any, raises `ValueError`."""
    names = tuple(data.text(split, side) for side in sides)
    if not all(names):
        options = " and ".join(f"`{split}_{side}`" for side in sides)
        text, other = "training", "`dataset`, or a prepared `data_dir`"
        if split == "valid":
            last = "the last 500 pairs of the training text"
            text, other = "validation", f"or `valid_pairs=500` to validate on {last}, and not train on these"
        raise ValueError(f"There is no {text} text. Give {options}, {other}.")
    return names


def _divided(pairs: Iterator[Pair], number: int, split: str, report: Report) -> Iterator[Pair]:
    """Yields all pairs of a text but the last ones, or these; see the option `valid_pairs`."""
    last = collections.deque()
    for pair in pairs:
        last.append(pair)
        if len(last) > number:
            first = last.popleft()
            if split == "train":
                yield first
    train = report.pairs - len(last)
    if not train:
        raise ValueError(
            "Expected more pairs of training text than `valid_pairs`. Received: "
            f"{number_of(report.pairs, report.noun)}, valid_pairs={number:,}."
        )
    if split == "train":
        report.pairs = train
    else:
        vars(report).update(vars(Report(pairs=len(last))))  # That of the training text counts what was left out.
        yield from last


def term_inserter(data: DataConfig) -> Callable[[int, Pair], Pair]:
    """Returns a function (number, pair) → training pair that puts the translations of `train_terms` in place of their
    terms in the source: of half of the pairs, and not in tags and text to keep.
    """
    from t2t_keras.text.placeholders import find_all

    terms, kept = read_terms(data.train_terms), Kept(data.keep_patterns, find_all)

    def insert(number: int, pair: Pair) -> Pair:
        if zlib.crc32(b"%d %b" % (number, pair[0])) % 2 == 0:
            return pair
        source, target = (side.decode(errors="surrogateescape") for side in pair)
        places = ((start, end, term.translation) for start, end, term in terms.with_places(source, data.tags, (kept,)))
        found = [place for place in places if inline_terms.has_form(target, place[-1])]
        return (inline_terms.annotated(source, found).encode(errors="surrogateescape"), *pair[1:])

    return insert


def pairs(
    data: DataConfig,
    split: str,
    seed: int,
    report: Report,
    hashes: Hashes | None = None,
    sides: tuple[str, ...] = ("source", "target"),
    documents: bool = False,
    terms: bool = True,
) -> Iterator[Pair]:
    """Returns an iterator over the pairs of a split: `train`, `valid` or, for the built-in corpus, `test`. `seed` is
    for the built-in corpus. `sides` are those of a pair, "source" first; with `terms`, training pairs have those of
    `train_terms`. For the other arguments see `text_files.pairs`.
    """
    if data.dataset:
        if data.dataset == "builtin":
            chosen = builtin_corpus.splits(data.builtin_pairs, seed)[split]
            report.pairs += len(chosen)
            plain = (tuple(line.encode() for line in pair) for pair in chosen)
        else:
            plain = tfds_pairs(data, getattr(data, f"{split}_split"), report)
        beginning = text_files.tag_prefix(data.source_tag)
        found = ((beginning + pair[0], *pair[1 : len(sides)]) for pair in plain)
    else:
        names = _names(data, "train" if data.holds_out else split, sides)
        if data.holds_out and documents:
            raise ValueError(
                f"`valid_pairs` cannot split documents. Give `valid_source`. Received: valid_pairs={data.valid_pairs}."
            )
        reading = {"skip_bad_lines": data.skip_bad_lines, "documents": documents, "languages": data.languages}
        found = text_files.pairs(*names, report=report, hashes=hashes, tags=data.tags, **reading)
        if data.holds_out:
            found = _divided(found, data.valid_pairs, split, report)
    if data.train_terms and split == "train" and terms:
        return itertools.starmap(term_inserter(data), enumerate(found))
    return found


def identity(data: DataConfig, seed: int, hashes: Hashes | None = None) -> dict:
    """Returns what identifies a corpus: the name, size and SHA-256 of each file, which is read unless `hashes` has it,
    or the options that determine a dataset.
    """
    if data.dataset == "builtin":
        return {
            "dataset": "builtin",
            "edition": builtin_corpus.EDITION,
            "builtin_pairs": data.builtin_pairs,
            "seed": seed,
        }
    if data.dataset:
        return {
            key: getattr(data, key)
            for key in ("dataset", "source_language", "target_language", "train_split", "valid_split")
        }
    hashes = hashes or {}

    def described(path: pathlib.Path, weight: str) -> str:
        return f"{path.name}{weight} {path.stat().st_size} {hashes.get(path) or describe(path)['sha256']}"

    chosen = {"valid_pairs": data.valid_pairs} if data.holds_out else {}
    texts = {name: data.text(*name.split("_")) for name in TEXTS}
    paths = {name: text_files.weighted(names) for name, names in texts.items() if names}
    if any(text_format(path.name) == "tmx" for of_side in paths.values() for path, _ in of_side):
        chosen |= {name: code for name in ("source_language", "target_language") if (code := getattr(data, name))}
    return chosen | {  # Target files have the weights of their source files, whether these are repeated or not.
        name: [
            described(path, f"@{weight}" if weight > 1 and name.endswith("source") else "") for path, weight in of_side
        ]
        for name, of_side in paths.items()
    }
