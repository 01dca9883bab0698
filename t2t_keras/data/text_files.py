"""Lines and pairs of lines of text files: plain, compressed, TMX and TSV.

Invalid input raises an error that names its place, or is left out and counted. Only a line feed ends a line; U+2028,
form feeds and similar characters are part of a sentence. This keeps two files aligned.
"""

import codecs
import dataclasses
import functools
import glob
import hashlib
import io
import itertools
import os
import pathlib
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence

from t2t_keras.config import text_format
from t2t_keras.system.log import logger, number_of
from t2t_keras.text import tmx
from t2t_keras.text.lines import bounded, check_is_text, is_blank, not_utf8, uncompressed

Pair = tuple[bytes, ...]  # A line of each side, UTF-8 without the end of the line; most often two.
Hashes = dict[pathlib.Path, str]  # SHA-256 by file.

_BOTH = 2  # Sides of files in TMX and TSV.
_BUFFER = 2**20  # Bytes.
_QUICKLY_COUNTED = 2**28  # Bytes of text whose lines are counted within a second or two.
_RENAME = "If the file has one side only, give it another ending, such as .txt."


def _count_of(note: str, noun: str = "", of_two_sides: bool = False) -> dataclasses.Field:
    """Returns a field of `Report`: what was counted (`noun`; "" for pairs), what happened to it (`note`), and whether
    it is about TMX and TSV files.
    """
    return dataclasses.field(default=0, metadata={"note": note, "noun": noun, "of_two_sides": of_two_sides})


@dataclasses.dataclass
class Report:
    """Counts what was read, and what was left out or repaired, by reason. For `units`, `variants` and `tagged` see
    `tmx.pairs`.
    """

    noun = "pair"  # Of what `pairs` counts, in messages; no field.
    pairs: int = 0  # Usable ones.
    empty: int = _count_of("left out (empty side)")
    not_utf8: int = _count_of("left out (not UTF-8)")
    too_long: int = _count_of("left out (longer than `max_length`)")
    carriage_returns: int = _count_of("removed", "carriage return")
    byte_order_marks: int = _count_of("removed", "byte order mark")
    columns: int = _count_of("with columns after the second, which are ignored", "line", of_two_sides=True)
    units: int = _count_of("left out (no segment in one of the languages)", "unit", of_two_sides=True)
    variants: int = _count_of("of units with several segments, of which the first is used", "side", of_two_sides=True)
    tagged: int = _count_of("with formatting tags removed", "segment", of_two_sides=True)

    @property
    def notes(self) -> list[str]:
        """What was left out or repaired, as text."""
        notes = ((field.metadata, getattr(self, field.name)) for field in dataclasses.fields(self))
        return [
            f"{number_of(count, metadata['noun']) if metadata['noun'] else f'{count:,}'} {metadata['note']}"
            for metadata, count in notes
            if metadata and count
        ]

    @property
    def of_two_sides(self) -> dict[str, int]:
        """The counts about TMX and TSV files that are not 0, by name."""
        counts = {field.name: field.metadata.get("of_two_sides") for field in dataclasses.fields(self)}
        return {name: count for name in counts if counts[name] and (count := getattr(self, name))}

    def __str__(self) -> str:
        return ", ".join([number_of(self.pairs, self.noun), *self.notes])


def size(pair: Pair) -> int:
    """Returns the bytes of a pair."""
    return sum(map(len, pair))


def ends_document(pair: Pair) -> bool:
    """Returns whether a pair is a blank line, which ends a document."""
    return not any(pair)


def chunks(pairs: Iterator[Pair], number: int, most: int, documents: bool = False) -> Iterator[list[Pair]]:
    """Yields lists of `number` pairs, or fewer once they have `most` bytes of text. With `documents`, each list goes on
    to the end of a document.
    """
    chunk, held = [], 0
    for pair in pairs:
        chunk.append(pair)
        held += size(pair)
        if (len(chunk) >= number or held >= most) and (ends_document(pair) or not documents):
            yield chunk
            chunk, held = [], 0
    if chunk:
        yield chunk


def weighted(names: str) -> list[tuple[pathlib.Path, int]]:
    """Returns the files of `expand`, each once, and how many times each is read."""
    found = []
    for name in names.split(","):
        if not name.strip():
            raise FileNotFoundError(f"Expected names of files with commas between them. Received: '{names}'.")
        if not pathlib.Path(name).exists():
            name = os.path.expanduser(name.strip())  # As in "a.en, ~/b.en".
        pattern, weight = name, 1
        if not pathlib.Path(name).is_file() and (given := re.fullmatch(r"(.+)@([1-9][0-9]{0,3})", name)):
            pattern, weight = given[1], int(given[2])
        paths = [pattern] if pathlib.Path(pattern).is_file() else sorted(glob.glob(pattern))
        if others := [path for path in paths if not pathlib.Path(path).is_file()]:
            other = pathlib.Path(others[0])
            is_stream = other.exists() and not other.is_dir()  # A link to a file that is gone is neither.
            advice = " Text is read more than once: write what comes from a pipe to a file first." * is_stream
            raise FileNotFoundError(f"Expected files of text. Received: '{others[0]}', which is not a file.{advice}")
        if not paths:
            given, _, weight = name.rpartition("@")
            advice = (
                f" A weight is a number of times, @1 to @9999, not @{weight}." if given and glob.glob(given) else ""
            )
            if "," in names and os.path.lexists(os.path.expanduser(names)):
                advice = f" Commas separate names, and '{names}' is one file: rename it, or give a link to it."
            raise FileNotFoundError(f"No such file: '{name}' (working directory: {pathlib.Path.cwd()}).{advice}")
        found += [(pathlib.Path(path), weight) for path in paths]
    return found


def expand(names: str) -> list[pathlib.Path]:
    """Returns the files of a comma-separated list of names and globs, in order. Those of a name that ends in @3 come
    three times. Raises `FileNotFoundError` if a name matches no file.
    """
    return [path for path, weight in weighted(names) for _ in range(weight)]


def _check_languages(paths: Iterable[pathlib.Path], languages: tuple[str, str]) -> None:
    """Raises `ValueError` if several TMX files may have different languages."""
    of_tmx = sorted({path for path in paths if text_format(path.name) == "tmx"})
    if len(of_tmx) > 1 and not all(languages):
        raise ValueError(
            "Several TMX files need `source_language` and `target_language`, so that all give the same languages. "
            f"Received: {', '.join(map(str, of_tmx[:3]))}{' …' * (len(of_tmx) > 3)}."
        )


def _aligned_files(names: tuple[str, ...]) -> list[list[pathlib.Path]]:
    """Returns the files of each side. Those of the target come as often as those of the source."""
    sides = [weighted(side) for side in names]
    for paths in itertools.zip_longest(*([path for path, _ in side] for side in sides)):
        if len(set(paths)) > 1 and any(text_format(path.name) for path in paths if path):
            received = " and ".join(str(path or "none") for path in paths)
            raise ValueError(
                f"A TMX or TSV file has both sides, and must stand at the same place of both. Received: {received}. "
                f"{_RENAME}"
            )
    if all(weight == 1 for side in sides for _, weight in side):
        return [[path for path, _ in side] for side in sides]
    weights = [weight for _, weight in sides[0]]
    for side in sides:
        if len(side) != len(weights) or any(
            own not in (1, weight) for (_, own), weight in zip(side, weights, strict=True)
        ):
            received = " and ".join(
                ", ".join(f"{path.name}@{weight}" for path, weight in each) for each in (sides[0], side)
            )
            raise ValueError(
                f"Expected weights (@N) of the source files, and a target file for each of them. Received: {received}."
            )
    return [[path for (path, _), weight in zip(side, weights, strict=True) for _ in range(weight)] for side in sides]


class _Hashed(io.RawIOBase):
    """A file that computes the SHA-256 of the bytes read from it."""

    def __init__(self, path: pathlib.Path):
        self._file, self.hash = path.open("rb", buffering=0), hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        count = self._file.readinto(buffer)
        self.hash.update(memoryview(buffer)[:count])
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _check_unchanged(path: pathlib.Path, hashes: Hashes, file: _Hashed) -> None:
    """Raises `ValueError` if a file, which was read to its end, is another than when it was read before."""
    if hashes.setdefault(path, file.hash.hexdigest()) != file.hash.hexdigest():
        raise ValueError(f"{path} was changed while it was being read. Run the same command again.")


def _columns(path: pathlib.Path, number: int, line: bytes, report: Report, strict: bool) -> tuple[bytes, bytes]:
    """Returns source and target of a line of a TSV file; see `_lines`."""
    source, *columns = line.split(b"\t", 2)
    if strict and not columns and not is_blank(line):
        raise ValueError(
            f"{path}, line {number} has no tab. Expected source, tab and target in each line of a file named .tsv. "
            f"{_RENAME}"
        )
    report.columns += len(columns) > 1
    return source, columns[0] if columns else b""


def _lines(
    paths: list[pathlib.Path],
    report: Report,
    hashes: Hashes,
    side: int | None = None,
    languages: tuple[str, str] = ("", ""),
    strict: bool = False,
) -> Iterator[tuple[pathlib.Path, int, bytes]]:
    """Yields (file, line number, line) for all lines of several plain or gzip files. Counts repaired lines in `report`;
    `hashes` gets the SHA-256 of each file after its last line.

    Args:
        side: 0 or 1 for the source or the target of files in TMX and TSV; the source is read too, so that repairs are
            not counted for the target. `_BOTH` for a pair in place of such a line. `None` for text that has no other
            side, where TSV is lines and TMX an error.
        languages: codes of source and target in TMX.
        strict: whether a line without a target in TSV is an error, or has an empty target.
    """
    for path in paths:
        number, form, has_tab = 0, text_format(path.name) if side is not None else "", False
        counted = Report() if form and side == 1 else report
        try:
            with _Hashed(path) as raw, io.BufferedReader(raw, _BUFFER) as plain:
                if form == "tmx":
                    for number, pair in enumerate(tmx.pairs(uncompressed(plain), str(path), languages, counted), 1):
                        yield path, number, pair if side == _BOTH else pair[side]
                    _check_unchanged(path, hashes, raw)
                    continue
                for line in bounded(uncompressed(plain), str(path)):
                    number += 1
                    if number == 1 and line.startswith(codecs.BOM_UTF8):
                        line, counted.byte_order_marks = line[len(codecs.BOM_UTF8) :], counted.byte_order_marks + 1
                    line = line.removesuffix(b"\n")
                    if line.endswith(b"\r"):
                        line, counted.carriage_returns = line[:-1], counted.carriage_returns + 1
                    if form:
                        has_tab = has_tab or b"\t" in line
                        pair = _columns(path, number, line, counted, strict)
                        line = pair if side == _BOTH else pair[side]
                    yield path, number, line
                if form and number and not has_tab:
                    raise ValueError(f"{path} has no tab. Expected source, tab and target in each line.")
                _check_unchanged(path, hashes, raw)
        except OSError as error:
            raise OSError(f"Could not read line {number + 1} of {path} ({error.strerror or error}).") from error
        if not number:
            raise ValueError(f"{path} is empty. Expected a sentence on each line.")


def _unequal(names: tuple[str, ...], counts: list[int], path: pathlib.Path, number: int) -> str:
    """Returns the message for sides of so many lines, of which that line is the first without a partner."""
    return (
        f"Expected as many lines of source as of target. Received: {counts[0]:,} in {names[0]} and {counts[1]:,} in "
        f"{names[1]}; the first without a partner is line {number} of {path}."
    )


def _check_utf8(path: pathlib.Path, number: int, line: bytes) -> None:
    """Raises `ValueError` if a line is not UTF-8, of text whose bad lines may be left out."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{not_utf8(str(path), number, error)}, or leave such lines out with `skip_bad_lines`."
        ) from error


def _count(path: pathlib.Path, utf8: bool, two_sided: bool, languages: tuple[str, str]) -> int:
    """Counts the lines of a plain or gzip file, several times as fast as `_lines` reads them unless the file has two
    sides. Raises its errors, and with `utf8` also `ValueError` if a line is not UTF-8, or has no target.
    """
    number, last, decode = 0, b"", codecs.getincrementaldecoder("utf-8")().decode
    try:
        with path.open("rb") as plain:
            file = uncompressed(plain)
            while not two_sided and (block := file.read(_BUFFER)):
                if not last:
                    check_is_text(str(path), block)
                number, last = number + block.count(b"\n"), block[-1:]
                if utf8:
                    decode(block)
        if utf8:
            decode(b"", final=True)
    except (EOFError, zlib.error, OSError, UnicodeDecodeError):
        last = b""
    if not last:  # Of two sides; or empty, or broken somewhere: reading lines reports where.
        for _, number, line in _lines([path], Report(), {}, _BOTH if two_sided else None, languages, utf8):
            if utf8:
                _check_utf8(path, number, b"\t".join(line) if two_sided else line)
        return number
    return number + (last != b"\n")


def check_texts(texts: list[tuple[str, ...]], utf8: bool = False, languages: tuple[str, str] = ("", "")) -> None:
    """Checks texts quickly: their files exist, and the sides of each have the same number of lines, with `utf8` in
    UTF-8. A text is the names of the files of each side, as for `expand`; for `languages` see `pairs`.

    It takes about a second for a million pairs, and 3 to 5 if they are compressed. It warns if the sides have the same
    number of lines in all, but not in each file, as when the files are not in the same order.
    """
    files = [_aligned_files(text) for text in texts]
    _check_languages((path for sides in files for paths in sides[1:] for path in paths), languages)
    all_files = {path for sides in files for paths in sides for path in paths}
    if sum(path.stat().st_size for path in all_files) > _QUICKLY_COUNTED:
        logger.info("Counting the lines of the text …")
    count = functools.cache(_count)  # A file with a weight occurs several times.
    for names, paths_of_sides in zip(texts, files, strict=True):
        numbers = [
            [count(path, utf8, len(names) > 1 and bool(text_format(path.name)), languages) for path in paths]
            for paths in paths_of_sides
        ]
        counts = [sum(side) for side in numbers]
        if len(set(counts)) > 1:
            longer = counts.index(max(counts))
            place, left = 0, min(counts)
            while left >= numbers[longer][place]:
                place, left = place + 1, left - numbers[longer][place]
            raise ValueError(_unequal(names, counts, paths_of_sides[longer][place], left + 1))
        if len(set(map(len, numbers))) > 1:
            continue  # Each side is divided into files in its own way.
        unequal = [place for place, own in enumerate(zip(*numbers, strict=True)) if len(set(own)) > 1]
        if unequal:
            place = unequal[0]
            received = " and ".join(
                f"{paths[place]} with {own[place]:,}" for paths, own in zip(paths_of_sides, numbers, strict=True)
            )
            # Lines of repeated files would meet those of others.
            if len(set(paths_of_sides[0])) < len(paths_of_sides[0]):
                raise ValueError(
                    "Expected as many lines in each source file with a weight as in its target file. Received: "
                    f"{received}."
                )
            logger.warning(
                f"Expected the files of both sides in the same order, with as many lines each. Received: {received}."
            )


def _paths(names: str) -> list[pathlib.Path]:
    """Returns the files of `expand`, or one pipe."""
    is_pipe = os.path.exists(names) and pathlib.Path(names).is_fifo()  # `exists` takes names of any length.
    return [pathlib.Path(names)] if is_pipe else expand(names)


def text(
    names: str, skip_bad_lines: bool = False, side: int | None = None, languages: tuple[str, str] = ("", "")
) -> list[str]:
    """Returns all lines of text files, including blank ones; with `skip_bad_lines`, lines that are not UTF-8 become
    blank instead of raising an error. `names` are comma-separated file names or globs, or one pipe; gzip is detected.
    With `side` 0 or 1, the lines of TMX and TSV files are those of their source or target; see `pairs`.
    """
    lines, report = [], Report()
    of_sides = _lines(_paths(names), report, {}, None if side is None else _BOTH, languages, not skip_bad_lines)
    for path, number, line in of_sides:
        line = line[side] if isinstance(line, tuple) else line
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            if not skip_bad_lines:
                raise ValueError(f"{not_utf8(str(path), number, error)}.") from error
            lines.append("")
    if report.of_two_sides:
        tmx.log_once(f"{names}: {', '.join(report.notes)}.")
    return lines


def texts(
    files: list[tuple[str, str]], sides: Sequence[int | None] = (), languages: tuple[str, str] = ("", "")
) -> list[list[str]]:
    """Returns the lines of several texts, line for line, as `text`. Each text is given by what a message calls it, and
    its file names. They must have the same number of lines. `sides` has the side of each text, if they have any: files
    in TMX and TSV are then errors where it is `None`.
    """
    sides = sides or [None] * len(files)
    of_sides = [names for (_, names), side in zip(files, sides, strict=True) if side is not None]
    one_sided = [names for (_, names), side in zip(files, sides, strict=True) if side is None]
    for path in itertools.chain.from_iterable(map(_paths, one_sided if of_sides else ())):
        if text_format(path.name) == "tsv":
            raise ValueError(f"{path} is TSV, of two sides. Expected a text with a sentence on each line. {_RENAME}")
    if any(text_format(name) == "tmx" for names in of_sides for name in names.split(",")):
        _check_languages([path for names in of_sides for path in expand(names)], languages)
    found = [text(names, side=side, languages=languages) for (_, names), side in zip(files, sides, strict=True)]
    if len(set(map(len, found))) > 1:
        received = ", ".join(f"{len(lines):,} in {name}" for (name, _), lines in zip(files, found, strict=True))
        raise ValueError(f"Expected the same number of lines in each file. Received: {received}.")
    return found


def tag_prefix(tag: str) -> bytes:
    """Returns what a source line with this tag begins with."""
    return f"{tag} ".encode() if tag else b""


def _tags_of_files(names: str, tags: Sequence[str]) -> Iterator[str]:
    """Returns the tag of each file of `expand`: that of all, or that of the name."""
    if len(tags) == 1:
        return itertools.repeat(tags[0])
    return (tag for name, tag in zip(names.split(","), tags, strict=True) for _ in expand(name))


def pairs(
    *sides: str,
    report: Report,
    skip_bad_lines: bool = False,
    hashes: Hashes | None = None,
    tags: Sequence[str] = ("",),
    documents: bool = False,
    languages: tuple[str, str] = ("", ""),
) -> Iterator[Pair]:
    """Returns an iterator over the pairs of aligned text files.

    Args:
        sides: comma-separated file names or globs of the source and, if there is one, the target; gzip is detected.
            Line n of the target, counted over all files, translates line n of the source. A source file "name@3" and
            its target file are read three times. A file named .tmx or .tsv may stand in both: its lines are the
            segments of `languages`, or the first two columns.
        report: counts what was read; updated.
        skip_bad_lines: whether to leave out pairs that are not UTF-8, and lines of TSV files without a target, instead
            of raising an error.
        hashes: gets the SHA-256 of each file after its last line. A file that has another one there already was
            changed, which is an error.
        tags: what each source line begins with, before a space: one tag for all, or one for each name of the source; ""
            is none.
        documents: whether blank lines and the ends of files end documents, and become pairs of empty lines. Otherwise
            pairs with a blank line are left out.
        languages: codes of source and target; see `tmx.pairs`.
    """
    of_sides = _lines_of_sides(sides, report, {} if hashes is None else hashes, languages, not skip_bad_lines)
    tags = _tags_of_files(sides[0], tags)

    def aligned() -> Iterator[Pair]:
        for number, lines in enumerate(_together(sides, of_sides), 1):
            if lines[0][1] == 1:
                beginning = tag_prefix(next(tags))
                if documents and number > 1:
                    yield (b"",) * len(lines)
            good = True
            for path, line_number, line in lines:
                try:
                    _check_utf8(path, line_number, line)
                except ValueError:
                    if not skip_bad_lines:
                        raise
                    good = False
            if not good:
                report.not_utf8 += 1
            elif documents and all(is_blank(line) for _, _, line in lines):
                yield (b"",) * len(lines)
            elif any(is_blank(line) for _, _, line in lines):
                report.empty += 1
            else:
                report.pairs += 1
                (_, _, source), *others = lines
                yield beginning + source, *(line for _, _, line in others)

    return aligned()


def _lines_of_sides(sides: Sequence[str], report: Report, hashes: Hashes, *reading) -> list[Iterator]:
    """Returns the iterator of `_lines` for each side of aligned files, with its last arguments."""
    files = _aligned_files(sides)
    if len(files) < 2:
        return [_lines(files[0], report, hashes)]
    _check_languages(files[0], reading[0])
    if files[0] == files[1] and all(text_format(path.name) for path in files[0]):  # Read once.
        both = itertools.tee(_lines(files[0], report, hashes, _BOTH, *reading))
        return [map(lambda line, side=side: (*line[:2], line[2][side]), lines) for side, lines in enumerate(both)]
    return [_lines(paths, report, hashes, side, *reading) for side, paths in enumerate(files)]


def _together(names: tuple[str, ...], sides: list[Iterator]) -> Iterator[tuple]:
    """Yields an item of each of the iterators of `_lines`. Raises `ValueError` if one ends before another."""
    both = itertools.zip_longest(*sides)
    for number, lines in enumerate(both, 1):
        if None in lines:
            shorter = lines.index(None)
            rest = 1 + sum(1 for _ in both)
            counts = [number - 1, number - 1]
            counts[1 - shorter] += rest
            raise ValueError(_unequal(names, counts, *lines[1 - shorter][:2]))
        yield lines


def all_pairs(*sides: str, report: Report, languages: tuple[str, str] = ("", "")) -> Iterator[Pair]:
    """Returns an iterator over all pairs of lines of aligned text files, also those that are blank or not UTF-8; see
    `pairs`.
    """
    lines = _lines_of_sides(sides, report, {}, languages)
    return (tuple(line for _, _, line in both) for both in _together(sides, lines))
