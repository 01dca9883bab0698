"""The folder of prepared data: whether it is one, and the options that it was prepared with. Does not import
TensorFlow.
"""

import dataclasses
import pathlib
import re

from t2t_keras.config import FILES, TEXTS, DataConfig
from t2t_keras.runs import checkpoint
from t2t_keras.system.files import CONFIG, DATA, LOCK, SOURCE_SUBWORDS, check_folder, read_json

CORPUS = "corpus.json"  # What the folder was prepared from. A folder that has it is complete.
MAX_CORPUS = 2**24  # Maximum size of `corpus.json`, which lists every text file, in bytes.
# A file as it is recorded: its name, with the weight of a text; its size, and its hash.
_FILE = re.compile(r"(.+?) (?:\{'bytes': )?([0-9]{1,19})(?: |, 'sha256': ')([0-9a-f]{64})(?:'\})?", re.DOTALL)
_LANGUAGE = re.compile("[a-z]{2,3}")
_OF_FILE = re.compile(r"\.(?!gz\b)([a-z]{2})(\.gz)?(@[^@]*)?$")  # The end of the name of a text, with its weight.


def check(folder: pathlib.Path) -> None:
    """Checks that a folder may hold prepared data: not that of a run, whose sub-words would be replaced. Raises
    `FileExistsError` if it holds files that no preparation wrote.
    """
    check_folder(folder, "data_dir")
    if (folder / CONFIG).exists() or (folder / checkpoint.FOLDER).exists():
        own = folder / DATA
        advice = f"The data of the run are in {own}." if (own / CORPUS).exists() else "Give another one."
        raise ValueError(f"Expected a folder for data as `data_dir`. Received: {folder}, which holds a run. {advice}")
    if folder.is_dir() and any(folder.iterdir()) and not ((folder / LOCK).exists() or (folder / CORPUS).exists()):
        raise FileExistsError(
            f"{folder} holds files and no prepared data. Give a new or an empty folder as `data_dir`."
        )


def recorded_options(folder: pathlib.Path) -> dict:
    """Returns the options that a data folder was prepared with, of text files their names and hashes."""
    path = folder / CORPUS
    try:
        options = read_json(path, MAX_CORPUS).get("options")
    except ValueError as error:
        raise ValueError(f"{error} Remove {folder} and prepare again.") from error
    if not isinstance(options, dict):
        raise ValueError(f"{path} is damaged: it has no options. Remove {folder} and prepare again.")
    if damaged := [name for name in TEXTS if not isinstance(options.get(name, []), list)]:
        raise ValueError(f"{path} is damaged: {damaged[0]} is no list of files. Remove {folder} and prepare again.")
    # Older versions wrote "pairs", had byte-pair encoding and translation only, and neither kept patterns nor set tags.
    return {"subwords": "bpe", "task": "translation", "keep_patterns": "", "source_tag": ""} | {
        "builtin_pairs" if name == "pairs" else name: value for name, value in options.items()
    }


def prepared_with(folder: pathlib.Path) -> DataConfig:
    """Returns the options that a data folder was prepared with, except the text files: only their contents are
    recorded.

    The sub-words of a dataset and the terms have the names of their files, without a folder.
    """
    recorded = recorded_options(folder)
    names = {field.name for field in dataclasses.fields(DataConfig)} - set(FILES)
    options = {name: recorded[name] for name in names & set(recorded)}
    of_files = ["train_terms", "subwords_file"] if options.get("dataset") else ["train_terms"]
    options |= {name: str(recorded[name]).rpartition(" {")[0] for name in of_files if name in recorded}
    try:
        return DataConfig(**options)
    except ValueError as error:
        raise ValueError(f"{folder / CORPUS} is damaged: {error} Remove {folder} and prepare again.") from error


def languages(data: DataConfig) -> tuple[str, ...]:
    """Returns the codes of source and target; none where neither options nor the names of the texts tell them."""
    found = data.source_language, data.target_language
    if data.dataset == "builtin":
        found = "en", "de"
    elif not any(found):
        ends = (
            {end[1] for name in text.split(",") if (end := _OF_FILE.search(name))}
            for text in (data.train_source, data.train_target)
        )
        found = tuple(codes.pop() if len(codes) == 1 else "" for codes in ends)
    return found if len(set(found)) == 2 and all(map(_LANGUAGE.fullmatch, found)) else ()


def check_options(folder: pathlib.Path, recorded: dict, options: dict) -> None:
    """Checks that options are those that a folder was prepared with, which are `recorded`. `None` is one not given. The
    message names each that differs with both values.
    """
    differences = [
        f"`{name}` was {_shown(recorded.get(name))}, and is now {_shown(value)}"
        for name, value in options.items()
        if recorded.get(name) != value
    ]
    if differences:
        raise ValueError(
            f"{folder} was prepared from another corpus or with other options: {'; '.join(differences)}. Give the "
            "options it was prepared with, or leave them out; or give another `data_dir` or `model_dir`."
        )


def _shown(value) -> str:
    """Returns the value of an option as messages show it; files by their names, sizes and the beginnings of hashes."""
    if isinstance(value, list):
        text = ", ".join(map(_shown, value))
    elif file := _FILE.fullmatch(str(value)):
        text = f"{file[1]} ({int(file[2]):,} bytes, SHA-256 {file[3][:8]}…)"
    else:
        text = "not given" if value is None else str(value)
    return text if len(text) <= 2000 else f"{text[:2000]}…"


def source_subwords_in(folder: pathlib.Path) -> pathlib.Path | None:
    """Returns the file of the source's own sub-words in a data folder; `None` if it has none."""
    return path if (path := folder / SOURCE_SUBWORDS).exists() else None
