"""Reads pairs of sentences from translation memories: TMX 1.1 to 1.4 (https://www.gala-global.org/tmx-14b).

A file may have any size and come from a stranger. It is read in blocks, and what one unit, one tag and the names in the
file may take of memory is limited. Nothing that its DOCTYPE names is loaded, and one that declares anything, such as
entities, is refused.
"""

import functools
import itertools
import re
from collections.abc import Iterator
from typing import BinaryIO
from xml.parsers import expat

from t2t_keras.system.log import logger
from t2t_keras.text.lines import BROKEN_GZIP, MAX_LINE, broken_gzip, compression

_BLOCK = 2**18  # Bytes.
_MAX_UNIT = MAX_LINE // 4  # Characters of all segments of a unit: then each is a line in UTF-8.
_MAX_DEPTH = 100  # Elements within each other; TMX needs 5, and some more for `sub`.
_MAX_NAMES = 10_000  # Different names of elements and attributes; TMX has 70.
_MAX_CODE = 64  # Characters of the code of a language.
_CODES = "bpt", "ept", "ph", "it", "ut", "sub"  # Inline elements that hold formatting codes and no text, unlike `hi`.
_LISTED = 20  # Languages in a message.


class _RefusedError(ValueError):
    """A file that is well-formed XML and not used."""


@functools.cache
def log_once(message: str) -> None:
    """Logs what each reading of a file finds again."""
    logger.info(message)


@functools.lru_cache(1000)
def _normalized(code: str) -> str:
    return code.strip().lower().replace("_", "-")


@functools.lru_cache(1000)
def _matches(language: str, code: str) -> bool:
    """Returns whether two normalized codes are equal, or one is a variant of the other: en and en-us, but not en-gb
    and en-us.
    """
    return bool(code) and f"{code}-".startswith(f"{language}-") or f"{language}-".startswith(f"{code}-")


class _Units:
    """Collects the pairs of a file from the events of its parser: `pairs` are those of the units that have ended."""

    def __init__(self, parser, name: str, languages: tuple[str, str], report):
        self.pairs: list[tuple[bytes, bytes]] = []
        self._parser, self._name, self._report = parser, name, report
        self._asked = tuple(map(_normalized, languages))
        self._languages = self._asked if all(self._asked) else None
        self._seen = {}  # Codes in the order of the file, as keys.
        self._units, self._found = 0, False
        self._depth, self._codes_depth = 0, 0  # The latter within elements of `_CODES`.
        self._source, self._code, self._size = "", "", 0
        self._in_unit = False
        # The code and the text of each segment, and whether it had tags.
        self._unit: list[tuple[str, str, bool]] = []
        self._segment: list[str] | None = None
        self._has_tags = False
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.StartDoctypeDeclHandler = self._doctype

    def refuse(self, reason: str) -> None:
        """Raises the error of a file that cannot be used at this line."""
        raise _RefusedError(f"{self._name}, line {self._parser.CurrentLineNumber} {reason}")

    def _doctype(self, name: str, system_id: str, public_id: str, declares: int) -> None:
        if declares:
            self.refuse("declares entities or elements in its DOCTYPE. Remove the part in square brackets.")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 1 and tag != "tmx":
            raise _RefusedError(f"{self._name} is not TMX: its root element is <{tag:.40}>. Expected <tmx>.")
        if self._depth > _MAX_DEPTH:
            self.refuse(f"has more than {_MAX_DEPTH} nested elements.")
        if self._segment is not None:
            self._has_tags = True
            if tag in ("tu", "tuv", "seg"):
                self.refuse(f"has <{tag}> within <seg>, which TMX does not allow.")
            self._codes_depth += bool(self._codes_depth) or tag in _CODES
        elif tag == "seg":
            self._segment, self._has_tags = [], False
            self._parser.CharacterDataHandler, self._parser.DefaultHandlerExpand = self._text, self._other
        elif tag == "tuv":
            self._code = _normalized((attributes.get("xml:lang") or attributes.get("lang") or "")[:_MAX_CODE])
        elif tag == "tu":
            if self._in_unit:
                self.refuse("has <tu> within <tu>, which TMX does not allow.")
            self._in_unit, self._unit, self._size = True, [], 0
        elif tag == "header":
            self._source = _normalized(attributes.get("srclang", "")[:_MAX_CODE])

    def _text(self, text: str) -> None:
        if not self._codes_depth:
            self._segment.append(text)
            self._grow(1 + len(text))

    def _grow(self, characters: int) -> None:
        self._size += characters
        if self._size > _MAX_UNIT:
            self.refuse(f"is in a unit of more than {_MAX_UNIT:,} characters. Expected a few sentences.")

    def _other(self, text: str) -> None:
        """Handles what has no other handler: a comment, or a reference to an entity that an external DTD may define."""
        if text.startswith("&"):
            self.refuse(f"has {text:.40}, which XML does not define. Write the character itself.")

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if self._segment is None:
            if tag == "tu":
                self._end_unit()
        elif self._codes_depth:
            self._codes_depth -= 1
        elif tag == "seg":
            text = "".join(self._segment)
            if "\n" in text or "\r" in text:
                text = " ".join(filter(None, (line.strip(" \t") for line in re.split("[\r\n]", text))))
            self._unit.append((self._code, text, self._has_tags))
            self._grow(1 + len(self._code))  # An empty segment takes memory too.
            self._segment = self._parser.CharacterDataHandler = self._parser.DefaultHandlerExpand = None

    def _end_unit(self) -> None:
        self._in_unit = False
        self._units += 1
        if not self._found:
            codes = list(dict.fromkeys(code for code, *_ in self._unit if code))
            self._seen |= dict.fromkeys(codes[:_LISTED]) if len(self._seen) < _LISTED else {}
            if not self._languages and len(codes) > 1:
                self._languages = self._two_languages(codes)
        found = [self._places(language) for language in self._languages or ()]
        # With languages such as en and en-GB, a segment may be of both.
        chosen = next((places for places in itertools.product(*found) if len(set(places)) == 2), ())
        if not chosen:
            self._report.units += 1
        else:
            self._found = True
            self._report.variants += sum(len(places) > 1 for places in found)
            self._report.tagged += sum(self._unit[place][2] for place in chosen)
            self.pairs.append(tuple(self._unit[place][1].encode() for place in chosen))
        self._unit = []

    def _two_languages(self, codes: list[str]) -> tuple[str, str]:
        """Returns the languages of the pairs: those that are asked for, the header's source, and the other of two in
        this unit.
        """
        source, target = self._asked
        if not target:
            source = source or self._source
        known = target if target and not source else source
        others = [code for code in codes if not _matches(known, code)]
        if len(codes) != 2 or len(others) != 1:
            self._refuse_languages(codes)
        source, target = (others[0], target) if target else (source, others[0])
        log_once(f"{self._name}: from {source} to {target}.")
        return source, target

    def _refuse_languages(self, codes: list[str]) -> None:
        reason = "does not say which languages are source and target"
        if all(self._asked):
            reason = f"has no unit in {' and '.join(self._asked)}"
        raise _RefusedError(
            f"{self._name} {reason}. Give two of its languages as `source_language` and `target_language`: "
            f"{', '.join(codes[:_LISTED]) or 'none'}."
        )

    def _places(self, language: str) -> list[int]:
        """Returns the places of the segments of a language in the unit: those with the same code, or with codes that
        match. The first counts.
        """
        return [place for place, (code, *_) in enumerate(self._unit) if code == language] or [
            place for place, (code, *_) in enumerate(self._unit) if _matches(language, code)
        ]

    def end(self) -> None:
        """Raises `ValueError` for a file without a pair."""
        if not self._units:
            raise _RefusedError(f"{self._name} has no units of translation (<tu>).")
        if not self._found:
            self._refuse_languages(list(self._seen))


def pairs(stream: BinaryIO, name: str, languages: tuple[str, str], report) -> Iterator[tuple[bytes, bytes]]:
    """Yields the segments of two languages of each unit of a TMX file that has both, in UTF-8 and on one line, without
    formatting codes. Raises `ValueError` if the file is not TMX in well-formed XML, or has no such unit.

    Args:
        name: that of the file, for messages.
        languages: codes of source and target, which may be empty if the units have two languages and the header names
            the source. As `_matches` says, en is also en-US.
        report: counts as `units` the units without both languages; as `variants` the sides of other units with
            several segments in the language, of which the first counts; and as `tagged` the segments of pairs that
            had inline elements.
    """
    if all(languages) and len({*map(_normalized, languages)}) < 2:
        raise ValueError(
            f"`source_language` and `target_language` must be two different languages. Received: {languages[0]} for "
            f"{name}, twice."
        )
    parser = expat.ParserCreate()
    parser.buffer_text = True
    units, size = _Units(parser, name, languages, report), 0
    try:
        while block := stream.read(_BLOCK):
            if not size and (compressed := compression(block)):
                raise _RefusedError(f"{name} is {compressed[0]}. Expected TMX: unpack it with {compressed[1]}.")
            parser.Parse(block)
            size += len(block)
            if size - parser.CurrentByteIndex > MAX_LINE:
                units.refuse(f"begins a tag or a comment of more than {MAX_LINE:,} bytes.")
            if len(parser.intern) > _MAX_NAMES:
                units.refuse(f"is after more than {_MAX_NAMES:,} different names of elements and attributes.")
            yield from units.pairs
            units.pairs.clear()
        if not size:
            raise _RefusedError(f"{name} is empty. Expected TMX.")
        parser.Parse(b"", True)
    except BROKEN_GZIP as error:
        raise ValueError(broken_gzip(name, parser.CurrentLineNumber, error)) from error
    except expat.ExpatError as error:
        place = f"line {error.lineno}, column {error.offset + 1}"
        raise ValueError(f"{name} is broken XML: {expat.ErrorString(error.code)}, {place}.") from error
    except _RefusedError:
        raise
    except (LookupError, ValueError) as error:  # Of Python's handler of encodings.
        raise ValueError(f"{name} cannot be decoded: {error}. Convert it to UTF-8, also in its first line.") from error
    yield from units.pairs
    units.end()
