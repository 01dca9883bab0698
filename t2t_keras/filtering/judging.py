"""Filters parallel text before training: by rules about a single pair, by repetition, and by the scores of two models.

Every pair that is rejected is put aside with its line number and the first of `RULES` that it breaks: the kept and the
rejected lines, merged by these numbers, are the text that was read.
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import pathlib
import statistics
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from t2t_keras.config import FilterConfig
from t2t_keras.data import processes, text_files
from t2t_keras.decoding import process_environment
from t2t_keras.decoding.trained_model import TrainedModel
from t2t_keras.filtering.rules import SIDES, Rules, Verdict, normalized
from t2t_keras.system import files
from t2t_keras.system.log import logger
from t2t_keras.text.lines import is_blank

RULES = (
    *("not_utf8", "empty", "characters", "length_ratio", "letters", "script", "copy", "language"),
    *("duplicate", "near_duplicate", "cross_entropy"),
)
SUMMARY = "summary.json"

PAIRS_AT_ONCE, BYTES_AT_ONCE = 4096, 2**21  # That a process gets, at the first of both limits.
OF_RATIO = 20_000, 2**26  # The first pairs, of which `length_ratio` is the median, likewise.

# Of a chunk: the pairs, as many verdicts, and scores of those that stay.
Judged = tuple[list[text_files.Pair], list[Verdict], list[float]]


def _hash(lines: list[bytes]) -> int:
    """Returns a hash of 8 bytes."""
    return int.from_bytes(hashlib.blake2b(b"\n".join(lines), digest_size=8).digest())


def _chosen(pair: list, repeated: str) -> list:
    """Returns the sides of a pair whose repetition counts."""
    return pair if repeated == "pair" else [pair[SIDES.index(repeated)]]


def judge(config: FilterConfig, length_ratio: float) -> Callable:
    """Returns a function from pairs of bytes to the verdict of the rules about each, and to hashes of the others:
    [pairs, 2] uint64.
    """
    rules = Rules(config, length_ratio)

    def judged(chunk: list[text_files.Pair]) -> tuple[list[Verdict], np.ndarray]:
        verdicts, hashes = [], np.zeros([len(chunk), 2], np.uint64)
        for index, pair in enumerate(chunk):
            try:
                texts = [side.decode() for side in pair]
            except UnicodeDecodeError:
                verdicts.append(("not_utf8", 0))
                continue
            verdicts.append(rules.verdict(*texts))
            if verdicts[-1] is None:
                if config.duplicates != "none":
                    hashes[index, 0] = _hash(_chosen(pair, config.duplicates))
                if config.near_duplicates != "none":
                    near = [normalized(side).encode() for side in _chosen(texts, config.near_duplicates)]
                    hashes[index, 1] = _hash(near if any(near) else _chosen(pair, config.near_duplicates))
        return verdicts, hashes

    return judged


class Seen:
    """A set of hashes, 8 bytes each: sorted arrays, each more than twice as long as the next."""

    def __init__(self):
        self._arrays = []

    def add(self, hashes: np.ndarray) -> np.ndarray:
        """Adds hashes, [N] uint64. Returns [N] bool, whether each was there before, or repeats one of these."""
        own, first = np.unique(hashes, return_index=True)
        found = np.ones(len(hashes), bool)
        found[first] = False
        for array in self._arrays:
            places = np.minimum(np.searchsorted(array, hashes), len(array) - 1)
            found |= array[places] == hashes
        own = np.sort(hashes[~found])
        while self._arrays and len(self._arrays[-1]) <= 2 * len(own):
            own = np.sort(np.concatenate([self._arrays.pop(), own]), kind="stable")  # Merges.
        if len(own):
            self._arrays.append(own)
        return found


def chunks(pairs: Iterator[text_files.Pair]) -> Iterator[list[text_files.Pair]]:
    """Yields the pairs in the parts that are judged and scored at once."""
    return text_files.chunks(pairs, PAIRS_AT_ONCE, BYTES_AT_ONCE)


def _median_ratio(pairs: list[text_files.Pair]) -> float:
    """Returns the median of the characters of target for each of source; 1 if there is no usable pair."""
    ratios = []
    for pair in pairs:
        with contextlib.suppress(UnicodeDecodeError):
            source, target = (side.decode().strip() for side in pair)
            if not (is_blank(source) or is_blank(target)):
                ratios.append(len(target) / len(source))
    return statistics.median(ratios) if ratios else 1.0


def left(verdicts: list[Verdict]) -> list[int]:
    """Returns the places of the pairs that have broken no rule yet."""
    return [index for index, verdict in enumerate(verdicts) if verdict is None]


def repeated(config: FilterConfig) -> list[tuple[int, str]]:
    """Returns the columns of hashes that count, with the rule about each, in the order in which they apply."""
    sides = {"duplicate": config.duplicates, "near_duplicate": config.near_duplicates}
    return [(column, rule) for column, (rule, side) in enumerate(sides.items()) if side != "none"]


def reject_repeated(verdicts: list[Verdict], hashes: np.ndarray, rule: str, seen: Seen) -> None:
    """Rejects the pairs of a chunk that were there before, by a rule: updates their verdicts, and `seen`, the hashes of
    all pairs before that broke no rule up to this one. `hashes` are [pairs] uint64.
    """
    places = left(verdicts)
    for index in itertools.compress(places, seen.add(hashes[places])):
        verdicts[index] = rule, 1


def score(chunk: list[text_files.Pair], verdicts: list[Verdict], scores: Callable, limit: float) -> list[float]:
    """Scores the pairs of a chunk that have broken no rule, and rejects those above a limit, `max_cross_entropy`:
    updates their verdicts. `scores` is that of `filter_text`. Returns the scores of the pairs that are kept.
    """
    accepted = []
    if places := left(verdicts):
        texts = zip(*(map(bytes.decode, chunk[index]) for index in places), strict=True)
        for index, value in zip(places, scores(*texts), strict=True):
            if limit == 0 or value <= limit:
                accepted.append(value)
            else:  # NaN, too.
                verdicts[index] = "cross_entropy", value
    return accepted


def _judged(
    pairs: Iterator[text_files.Pair], config: FilterConfig, length_ratio: float, scores: Callable | None, number: int
) -> Iterator[Judged]:
    """Yields what is decided about each chunk, with so many processes."""
    waiting, seen = collections.deque(), [Seen(), Seen()]

    def remembered():
        for chunk in chunks(pairs):
            waiting.append(chunk)
            yield chunk

    with contextlib.closing(processes.ordered(judge, (config, length_ratio), remembered(), number)) as judged:
        for verdicts, hashes in judged:
            chunk = waiting.popleft()
            for column, rule in repeated(config):
                reject_repeated(verdicts, hashes[:, column], rule, seen[column])
            yield chunk, verdicts, score(chunk, verdicts, scores, config.max_cross_entropy) if scores else []


def check(config: FilterConfig, output_dir: pathlib.Path) -> None:
    """Checks what can be known before any text is read; see `filter_text` for the errors."""
    if output_dir.exists() or output_dir.is_symlink():
        raise FileExistsError(f"`output_dir` must be a new folder. {output_dir} exists.")
    Rules(config)


def check_runs(folders: Sequence[pathlib.Path]) -> None:
    """Raises `ValueError` for runs that cannot score pairs, because their sources begin with tags, and `OSError` or
    `ValueError` for what is no run.
    """
    for folder in folders:
        model = TrainedModel.open(folder)
        _ = model.runs[0].model
        if model.needed_tags:
            raise ValueError(
                f"Runs that score pairs must not need tags in the source. Received: {folder}, whose sources begin with "
                f"{' or '.join(model.needed_tags[:5])}."
            )


def load_scores(folders: Sequence[pathlib.Path]) -> Callable:
    """Loads two runs, one from the source to the target and one back, and returns what `filter_text` takes as `scores`.
    TensorFlow must not be imported before.
    """
    models = [TrainedModel.open(folder) for folder in folders]
    process_environment.choose([run.model for model in models for run in model.runs], "float32", int8=False)
    from t2t_keras.evaluation.cross_entropy import dual_cross_entropy

    return dual_cross_entropy(*(model.load() for model in models))


def filter_text(
    source: str,
    target: str,
    output_dir: pathlib.Path,
    config: FilterConfig,
    *,
    scores: Callable | None = None,
    number: int = 0,
    progress: Callable[[int], None] = lambda count: None,
) -> dict:
    """Divides parallel text into what is kept and what is rejected. The result is the same for every number of
    processes.

    Args:
        source, target: comma-separated file names or globs; see `text_files.pairs`.
        output_dir: a new folder. It gets `kept.source.txt` and `kept.target.txt`; `rejected.source.txt` and
            `rejected.target.txt`; `rejected.tsv`, with the line number, the rule and what the rule measured of each
            rejected pair; `kept.cross_entropy.txt`, if there are `scores`; and `summary.json`. It appears when all are
            whole.
        config: the rules.
        scores: lists of sources and targets → the dual conditional cross-entropy of each pair, in nats.
        number: of processes; 0: see `processes.number`.
        progress: called with a number of pairs after each part.

    Returns:
        The content of `summary.json`: the number of `pairs`, how many are `kept`, how many each rule `rejected`, and
        more.

    Raises:
        FileNotFoundError: a file is missing.
        FileExistsError: the folder exists.
        ValueError: the text is not usable; see `text_files.pairs`.
        OSError: a file cannot be read or written, or a process was killed.
    """

    def judged(pairs: Iterator[text_files.Pair], length_ratio: float, folder: pathlib.Path) -> Iterator[Judged]:
        size = sum(path.stat().st_size for names in (source, target) for path in text_files.expand(names))
        return _judged(pairs, config, length_ratio, scores, processes.number(number, size))

    return divide(source, target, output_dir, config, judged, scored=scores is not None, progress=progress)


def divide(
    source: str,
    target: str,
    output_dir: pathlib.Path,
    config: FilterConfig,
    judged: Callable[[Iterator[text_files.Pair], float, pathlib.Path], Iterator[Judged]],
    *,
    scored: bool,
    progress: Callable[[int], None] = lambda count: None,
) -> dict:
    """Writes the folder of `filter_text`, whoever judges the pairs.

    Args:
        source, target, output_dir, config, progress: see `filter_text`, also for the result and the errors.
        judged: (pairs, expected ratio of lengths, the unfinished folder) → what is decided about each of the `chunks`,
            in their order.
        scored: whether pairs have scores.
    """
    check(config, output_dir)
    report = text_files.Report()
    languages = config.source_language, config.target_language
    pairs = text_files.all_pairs(source, target, report=report, languages=languages)
    first = []
    if config.max_length_ratio and not config.length_ratio:
        first = next(text_files.chunks(pairs, *OF_RATIO), [])
    length_ratio = config.length_ratio or _median_ratio(first)
    with files.making_folder(output_dir) as folder, files.writing(folder, output_dir):
        with contextlib.closing(judged(itertools.chain(first, pairs), length_ratio, folder)) as parts:
            total, rejected = _write(folder, parts, scored, progress)
        summary = {
            "pairs": total,
            "kept": total - rejected.total(),
            "rejected": {rule: rejected[rule] for rule in dict.fromkeys([*RULES, *rejected])},
            "length_ratio": round(length_ratio, 4),
            "carriage_returns": report.carriage_returns,
            "byte_order_marks": report.byte_order_marks,
            **report.of_two_sides,
            "source": list(dict.fromkeys(map(str, text_files.expand(source)))),  # A file may be read several times.
            "target": list(dict.fromkeys(map(str, text_files.expand(target)))),
            "options": dataclasses.asdict(config),
        }
        files.write_whole(folder / SUMMARY, (json.dumps(summary, indent=2) + "\n").encode())
    if not summary["kept"]:
        logger.warning("Every pair was rejected.")
    return summary


def _write(
    folder: pathlib.Path, judged: Iterator[Judged], scored: bool, progress: Callable[[int], None]
) -> tuple[int, collections.Counter]:
    """Writes the kept and the rejected pairs. Returns how many there are, and how many each rule rejected."""
    rejected, line = collections.Counter(), 0
    with contextlib.ExitStack() as opened:

        def new(name: str):
            return opened.enter_context((folder / name).open("xb"))

        texts = {name: [new(f"{name}.{side}.txt") for side in SIDES] for name in ("kept", "rejected")}
        reasons, entropies = new("rejected.tsv"), new("kept.cross_entropy.txt") if scored else None
        reasons.write(b"line\trule\tvalue\n")
        for chunk, verdicts, scores in judged:
            for pair, verdict in zip(chunk, verdicts, strict=True):
                line += 1
                for file, text in zip(texts["rejected" if verdict else "kept"], pair, strict=True):
                    file.write(text + b"\n")
                if verdict:
                    rejected[verdict[0]] += 1
                    reasons.write(f"{line}\t{verdict[0]}\t{verdict[1]:.7g}\n".encode())
            if entropies:
                entropies.write("".join(f"{value:.6g}\n" for value in scores).encode())
            progress(len(chunk))
    return line, rejected


def table(summary: dict) -> str:
    """Returns the summary of `filter_text` as lines of text."""
    rows = [
        *((rule, count) for rule, count in summary["rejected"].items() if count),
        ("kept", summary["kept"]),
        ("pairs", summary["pairs"]),
    ]
    width, total = max(len(f"{summary['pairs']:,}"), 5), max(summary["pairs"], 1)
    return "\n".join(
        f"{name:<15}{count:>{width},}{math.floor(10_000 * count / total + 0.5) / 100:>8.2f}%" for name, count in rows
    )
