"""Phrases that translations must or must not contain: as one string, as JSON lines, and from a file of terms."""

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from t2t_keras.config import patterns
from t2t_keras.text.lines import is_blank, single_spaced
from t2t_keras.text.scripts import word_characters

SEPARATOR = "\t"
JOINER = "￭"  # Begins a phrase that must follow the text before it without a space, as in OpenNMT's Tokenizer.
MAX_PHRASES = 32  # Of a sentence.
MAX_SUBWORDS = 32  # Of a phrase.


def joined(phrases: Sequence[str], name: str) -> str:
    """Joins phrases to one string, as the signatures of an export take them.

    Args:
        phrases: the phrases of a sentence.
        name: name of the phrases, for messages.

    Raises:
        ValueError: a phrase is not text on one line, or there are too many.
    """
    if not isinstance(phrases, list | tuple) or not all(isinstance(phrase, str) for phrase in phrases):
        raise ValueError(f"{name}: expected a list of phrases. Received: {phrases!r:.80}.")
    for phrase in phrases:
        if is_blank(phrase.removeprefix(JOINER)) or re.search(r"[\t\n]", phrase):
            raise ValueError(
                f"{name}: expected phrases of one or more words, without tabs and line ends. Received: {phrase!r:.80}."
            )
    if len(phrases) > MAX_PHRASES:
        raise ValueError(f"{name}: expected at most {MAX_PHRASES} phrases for a sentence. Received: {len(phrases)}.")
    return SEPARATOR.join(phrases)


def check_unicode(text: str) -> None:
    """Raises `ValueError` if UTF-8 cannot encode a text."""
    if re.search("[\ud800-\udfff]", text):
        raise ValueError(f"Expected characters of Unicode. Received: half of a surrogate pair in {text!r:.80}.")


@dataclasses.dataclass(frozen=True)
class Request:
    """A sentence to translate, with its phrases.

    Args:
        text: the sentence.
        constraints: phrases that the translation must contain.
        avoid: phrases that it must not contain.
        ordered: whether the constraints must appear in their order.

    Raises:
        ValueError: a field has another type, or a phrase is invalid.
    """

    text: str
    constraints: Sequence[str] = ()
    avoid: Sequence[str] = ()
    ordered: bool = False

    def __post_init__(self):
        for name, kind, expected in (("text", str, "a sentence"), ("ordered", bool, "true or false")):
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name}: expected {expected}. Received: {getattr(self, name)!r:.80}.")
        for name in ("constraints", "avoid"):
            joined(getattr(self, name), name)
        for text in (self.text, *self.constraints, *self.avoid):
            check_unicode(text)


def read_requests(texts: Iterable[str], first: int = 1) -> Iterator[Request]:
    """Yields the request of each JSON line: {"text": …, "constraints": […], "avoid": […], "ordered": …}. Only "text" is
    required.

    Args:
        texts: the lines.
        first: the number of the first.

    Raises:
        ValueError: a line is invalid; the message has its number.
    """
    names = [field.name for field in dataclasses.fields(Request)]
    expected = f"Expected a JSON object with {', '.join(names)} in each line."
    for number, line in enumerate(texts, first):
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{expected} Received: line {number:,}, which is not JSON: {line[:80]!r} ({error})."
            ) from error
        if not isinstance(fields, dict) or "text" not in fields or set(fields) - set(names):
            raise ValueError(f"{expected} Received: line {number:,}, {line[:80]!r}.")
        if isinstance(fields["text"], str):  # A line end is a space, as between lines.
            fields["text"] = " ".join(fields["text"].split("\n"))
        try:
            yield Request(**fields)
        except ValueError as error:
            raise ValueError(f"Line {number:,}: {error}") from error


class Terms:
    """A terminology: where a term is in the source as whole words, its translation is a phrase that must appear.

    Of terms that overlap, the one that begins first counts, and of those the longest.

    Args:
        translations: by term.
    """

    def __init__(self, translations: dict[str, str]):
        self.translations = translations
        longest_first = "|".join(re.escape(term) for term in sorted(translations, key=len, reverse=True))
        # At least one of the two characters beside a boundary is in no word.
        boundary = f"(?:(?<![{word_characters()}])|(?![{word_characters()}]))"
        self._pattern = re.compile(f"{boundary}(?:{longest_first}){boundary}") if translations else None

    @classmethod
    def read(cls, lines: Iterable[str], name: str) -> "Terms":
        """Reads the lines of a file, each of which has a term, a tab and its translation. Blank lines are left out.

        Raises:
            ValueError: a line is invalid, or a term has two translations.
        """
        translations: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            if is_blank(line):
                continue
            fields = [single_spaced(field) for field in line.split("\t")]
            if len(fields) != 2 or any(map(is_blank, fields)):
                received = f"line {number:,} of {name}, {line[:80]!r}"
                raise ValueError(
                    f"Expected a term, a tab and its translation in each line of the terms. Received: {received}."
                )
            term, translation = fields
            if translations.setdefault(term, translation) != translation:
                received = f"line {number:,} of {name}, {translation!r} for {term!r}, which has {translations[term]!r}"
                raise ValueError(f"Expected one translation for each term. Received: {received}.")
        return cls(translations)

    def of(self, text: str) -> list[str]:
        """Returns the translations of the terms in a sentence, one for each place."""
        return [self.translations[match[0]] for match in self._pattern.finditer(text)] if self._pattern else []


def untagged(text: str, tags: Sequence[str]) -> str:
    """Returns a sentence without the tag that it may begin with: one of `tags`, or one such as >>deu_Latn<<."""
    for tag in tags:
        if tag and text.startswith(f"{tag} "):
            return text.removeprefix(tag)
    return re.sub(r"\A>>[^<>]+<<", "", text)


def with_constraints(
    requests: Iterable[Request],
    find: Callable[[str], Iterable[str]],
    warn: Callable[[str], None],
    fits: Callable[[str, str], bool] = lambda phrase, text: True,
    first: int = 1,
) -> Iterator[Request]:
    """Adds constraints to sentences, except for phrases that a sentence has itself.

    Args:
        requests: the sentences.
        find: finds the phrases of the text of a sentence.
        warn: takes a message for each sentence with phrases that are left out, because it has `MAX_PHRASES` or they are
            too long.
        fits: returns whether a phrase has at most `MAX_SUBWORDS` in the translation of the text of a sentence, which it
            divides into sub-words each time: it is asked of at most twice as many phrases as a sentence may have.
        first: the number of the first sentence.
    """
    for number, request in enumerate(requests, first):
        known = {phrase.removeprefix(JOINER) for phrase in (*request.constraints, *request.avoid)}
        constraints, left_out, asked = list(request.constraints), [], 0
        for phrase in find(request.text):
            if phrase.removeprefix(JOINER) not in known:
                taken = len(constraints) < MAX_PHRASES
                # Each sub-word has at least one byte, and the mark of a word may be one more.
                if taken and len(phrase.encode()) >= MAX_SUBWORDS:
                    asked += 1
                    taken = asked <= 2 * MAX_PHRASES and fits(phrase, request.text)
                (constraints if taken else left_out).append(phrase)
        if left_out:
            shown = ", ".join(phrase.removeprefix(JOINER) for phrase in left_out)
            warn(
                f"Line {number}: expected at most {MAX_PHRASES} phrases of at most {MAX_SUBWORDS} sub-words. Left out: "
                f"{shown:.200}"
            )
        yield dataclasses.replace(request, constraints=constraints)


class Kept:
    """Text that a translation must contain because it is in the source, such as {0} and <b>.

    Args:
        option: its patterns, see `patterns.parse`.
        find_all: finds the matches of an expression in texts, such as `placeholders.find_all`, which takes linear time
            for any expression and needs TensorFlow; the default is Python's engine.

    Raises:
        ValueError: the option is invalid.
    """

    def __init__(self, option: str, find_all: Callable[[Sequence[str], str], Iterable] | None = None):
        self._expression, self._find_all = patterns.parse(option), find_all or _find_all

    def shared(self, sources: Sequence[str], targets: Sequence[str]) -> int:
        """Returns how many pairs have text to keep on both sides."""
        in_sources, in_targets = (self._find_all(side, self._expression) for side in (sources, targets))
        return sum(
            not {match for _, match in in_source}.isdisjoint(match for _, match in in_target)
            for in_source, in_target in zip(in_sources, in_targets, strict=True)
        )

    def of(self, text: str) -> list[str]:
        """Returns what a sentence has to keep, one phrase for each place; with the `JOINER` if no space is before it.

        Spaces alone are not kept, and neither is what has a tab or a line end.
        """
        if not self._expression:
            return []
        [matches] = self._find_all([text], self._expression)
        return [
            JOINER * (start > 0 and not text[start - 1].isspace()) + match
            for start, match in matches
            if not is_blank(match) and not re.search(r"[\t\n]", match)
        ]


def _find_all(texts: Sequence[str], expression: str) -> Iterator[list[tuple[int, str]]]:
    for text in texts:
        yield [(match.start(), match[0]) for match in re.finditer(expression, text, re.ASCII)]
