"""Phrases that translations must or must not contain: as one string, as JSON lines, and from a file of terms."""

import bisect
import collections
import dataclasses
import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from t2t_keras.config import patterns
from t2t_keras.text.inline_terms import annotated
from t2t_keras.text.lines import is_blank, one_line, opened, read_lines, single_spaced
from t2t_keras.text.scripts import in_word, word_characters
from t2t_keras.text.tags import untagged

SEPARATOR = "\t"
JOINER = "￭"  # Begins a phrase that must follow the text before it without a space, as in OpenNMT's Tokenizer.
MAX_PHRASES = 32  # Of a sentence.
MAX_SUBWORDS = 32  # Of a phrase.
MAX_CHARACTERS = 64 * MAX_SUBWORDS  # Of a phrase in a terminology: a sub-word has at most 64 bytes.


def joined(phrases: Sequence[str], name: str) -> str:
    """Joins phrases of a sentence to one string, as the signatures of an export take them; `name` is for messages.
    Raises `ValueError` if a phrase is not text on one line, or there are too many.
    """
    if not isinstance(phrases, list | tuple) or not all(isinstance(phrase, str) for phrase in phrases):
        raise ValueError(f"{name}: expected a list of phrases. Received: {phrases!r:.80}.")
    for phrase in phrases:
        if is_blank(phrase.removeprefix(JOINER)) or re.search(r"[\t\r\n]", phrase):
            raise ValueError(
                f"{name}: expected phrases of one or more words, without tabs and line ends. Received: {phrase!r:.80}."
            )
    if len(phrases) > MAX_PHRASES:
        raise ValueError(f"{name}: expected at most {MAX_PHRASES} phrases for a sentence. Received: {len(phrases)}.")
    return SEPARATOR.join(phrases)


def places(text: str, phrase: str) -> Iterator[int]:
    """Yields where a phrase begins in a text as whole words, as `decoding.avoided` understands them."""
    start = text.find(phrase)
    while phrase and start >= 0:
        if not any(_is_inside_word(text, edge) for edge in (start, start + len(phrase))):
            yield start
        start = text.find(phrase, start + 1)


def _is_inside_word(text: str, place: int) -> bool:
    return in_word(text[max(place - 1, 0) : place]) and in_word(text[place : place + 1])


def holds(text: str, phrase: str) -> bool:
    """Returns whether a text has a phrase as whole words."""
    return any(True for _ in places(text, phrase))


def apart(text: str, phrases: Iterable[str]) -> list[tuple[int, str]]:
    """Returns where phrases are in a text as whole words, and which: of those that overlap the first and longest."""
    found, end = [], 0
    starts = [(start, -len(phrase), phrase) for phrase in phrases for start in places(text, phrase)]
    for start, _, phrase in sorted(starts):
        if start >= end:
            found.append((start, phrase))
            end = start + len(phrase)
    return found


def check_unicode(text: str) -> None:
    """Raises `ValueError` if UTF-8 cannot encode a text."""
    if re.search("[\ud800-\udfff]", text):
        raise ValueError(f"Expected characters of Unicode. Received: half of a surrogate pair in {text!r:.80}.")


class Term(NamedTuple):
    """A term in a sentence."""

    source: str
    translation: str  # Must appear.
    forbidden: tuple[str, ...] = ()  # Forms that must not appear, as they are and with a capital letter.
    after: int = 0  # How often the text that is read has the term as whole words after this place.
    is_own: bool = False  # Whether the sentence itself requires the translation, as it is.


@dataclasses.dataclass(frozen=True)
class Request:
    """A sentence to translate, with its phrases.

    Args:
        text: the sentence.
        constraints: phrases that the translation must contain.
        avoid: phrases that it must not contain.
        ordered: whether the constraints must appear in their order.
        terms: those of a terminology that are in the sentence, one for each place.
        free: other phrases that it must contain, anywhere also if `ordered`.
        annotated: the sentence with their translations in their places, for a model that was trained on such text; see
            `inline_terms`.
        others: other keys of a JSON line, which its output keeps.

    Raises:
        ValueError: a field has another type, or a phrase is invalid.
    """

    text: str
    constraints: Sequence[str] = ()
    avoid: Sequence[str] = ()
    ordered: bool = False
    terms: Sequence[Term] = ()
    free: Sequence[str] = ()
    annotated: str = ""
    others: Mapping = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for name, kind, expected in (("text", str, "a sentence"), ("ordered", bool, "true or false")):
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name}: expected {expected}. Received: {getattr(self, name)!r:.80}.")
        for name in ("constraints", "avoid"):
            joined(getattr(self, name), name)
        for text in (self.text, *self.constraints, *self.avoid):
            check_unicode(text)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Request":
        """Returns the request of all fields in a JSON object."""
        fields = json.loads(text)
        terms = [Term(*term) for term in fields["terms"]]
        terms = [term._replace(forbidden=tuple(term.forbidden)) for term in terms]
        return cls(**fields | {"terms": terms, "free": tuple(fields["free"])})

    @property
    def required(self) -> list[str]:
        """All phrases that must appear: the constraints, further ones, and the translations of the terms."""
        return [*self.constraints, *self.free, *(term.translation for term in self.terms)]

    @property
    def all_required(self) -> str:
        """All of these as one string, as the signatures of an export take them: after an empty line, phrases may appear
        anywhere also if `ordered`.
        """
        text, number = joined(self.required, "constraints"), len(self.constraints)
        if not self.ordered or len(self.required) == number:
            return text
        return "\n\n".join(joined(each, "constraints") for each in (self.constraints, self.required[number:]))

    @property
    def excluded(self) -> list[str]:
        """All phrases that must not appear: those to avoid, and the forbidden forms of the terms, except for parts of
        phrases that must.
        """
        forms = dict.fromkeys(form for term in self.terms for each in term.forbidden for form in with_capital(each))
        forms = [form for form in forms if not any(holds(phrase, form) for phrase in self.required)]
        return [*self.avoid, *(form for form in forms if form not in self.avoid)]


def with_capital(phrase: str) -> list[str]:
    """Returns a phrase, and as it is at the beginning of a sentence if that differs."""
    return list(dict.fromkeys([phrase, phrase[:1].title() + phrase[1:]]))


KEYS = ["text", "constraints", "avoid", "ordered"]  # Of a JSON line.


def read_requests(texts: Iterable[str], first: int = 1) -> Iterator[Request]:
    """Yields the request of each JSON line: {"text": …, "constraints": […], "avoid": […], "ordered": …}. Only "text" is
    required. Other keys are for the output, except for near matches of these, which are typing errors. Raises
    `ValueError` for an invalid line, with its number, which is `first` for the first one.
    """
    expected = f"Expected a JSON object with {', '.join(KEYS)} in each line."
    for number, line in enumerate(texts, first):
        try:
            fields = json.loads(line, parse_float=_number, parse_constant=_number)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{expected} Received: line {number:,}, which is not JSON: {line[:80]!r} ({error})."
            ) from error
        if not isinstance(fields, dict) or "text" not in fields:
            raise ValueError(f"{expected} Received: line {number:,}, {line[:80]!r}.")
        others = {name: fields.pop(name) for name in list(fields) if name not in KEYS}
        for name in others.keys() - {"constraints_met"}:  # The output of another translation has it.
            near = KEYS[1:2] if name == "terms" else difflib.get_close_matches(name.lower(), KEYS, 1, 0.8)
            if near:
                raise ValueError(f"Line {number:,}: expected the key {near[0]}. Received: {name!r:.80}.")
        if isinstance(fields["text"], str):  # A line end is a space, as between lines.
            fields["text"] = one_line(fields["text"])
        try:
            check_unicode(json.dumps(others, ensure_ascii=False))
            yield Request(**fields, others=others)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"Line {number:,}: {error}") from error


def _number(text: str) -> float:
    """Returns a number of a JSON line. Raises `ValueError` for one that the output could not have: 1e999, NaN."""
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text:.80} is {'no number of JSON' if text[-1].isalpha() else 'beyond 1.8e308'}")
    return number


def note_others(requests: Iterable[Request], others: collections.deque) -> Iterator[Request]:
    """Yields requests without their `others`, which it appends to a queue for the outputs that come later."""
    for request in requests:
        others.append(request.others)
        yield dataclasses.replace(request, others={})


def _check_term(term: str, translation: str, forms: Iterable[str]) -> None:
    """Raises `ValueError` for what is no phrase or a very long one, and for a translation that contains a forbidden
    form.
    """
    for phrase in (term, translation, *forms):
        joined([phrase], "terms")
        if len(phrase) > MAX_CHARACTERS:
            raise ValueError(
                f"Expected terms, translations and forms of at most {MAX_CHARACTERS:,} characters. Received: "
                f"{phrase!r:.80}, which has {len(phrase):,}."
            )
    if wrong := [form for form in forms if holds(translation, form)]:
        raise ValueError(
            "Expected a translation without the forbidden forms of its term. Received: "
            f"{translation!r:.80} for {term!r:.80}, and the form {wrong[0]!r:.80}."
        )


class Terms:
    """A terminology: where a term is in the source as whole words, its translation must appear, and its forbidden forms
    must not. The first word of a sentence may have a capital letter instead of the term's small one.

    Of terms that overlap, the one that begins first counts, and of those the longest. Raises `ValueError` if a
    translation contains a forbidden form of its term, or a phrase is invalid.
    """

    def __init__(self, translations: Mapping[str, str], forbidden: Mapping[str, Sequence[str]] | None = None):
        # Among single spaces, as the model reads the text.
        self.translations = {single_spaced(term): translation for term, translation in translations.items()}
        self.forbidden = {single_spaced(term): forms for term, forms in (forbidden or {}).items()}
        if len(self.translations) < len(translations):
            raise ValueError("Expected terms that differ in more than their spaces. Received: two that do not.")
        for term, translation in self.translations.items():
            _check_term(term, translation, self.forbidden.get(term, ()))
        terms = (map(re.escape, term.split(" ")) for term in sorted(self.translations, key=len, reverse=True))
        longest_first = "|".join("[ \\t]+".join(words) for words in terms)
        # At least one of the two characters beside a boundary is in no word.
        boundary = f"(?:(?<![{word_characters()}])|(?![{word_characters()}]))"
        self._pattern = re.compile(f"{boundary}(?:{longest_first}){boundary}") if translations else None

    @classmethod
    def read(cls, lines: Iterable[str], name: str) -> "Terms":
        """Reads the lines of a file: a term, a tab and its translation, and optionally a tab and forbidden forms with |
        between them, in which \\| is a |. Blank lines and blank forms are left out. Raises `ValueError` if a line is
        invalid, or a term has two translations.
        """
        translations: dict[str, str] = {}
        forbidden: dict[str, dict[str, None]] = {}  # Each form once, in the order of the lines.
        for number, line in enumerate(lines, 1):
            if is_blank(line):
                continue
            received = f"Received: line {number:,} of {name}, "
            columns = line.split("\t")
            fields = [single_spaced(field) for field in columns[:2]]
            if not 2 <= len(columns) <= 3 or any(map(is_blank, fields)):
                raise ValueError(
                    "Expected a term, a tab and its translation in each line of the terms, and optionally another tab "
                    f"and forbidden forms with | between them. {received}{line[:80]!r}."
                )
            term, translation = fields
            if translations.setdefault(term, translation) != translation:
                raise ValueError(
                    f"Expected one translation for each term. {received}{translation!r} for {term!r}, which has "
                    f"{translations[term]!r}."
                )
            forms = (single_spaced(form.replace("\\|", "|")) for form in re.split(r"(?<!\\)\|", "".join(columns[2:])))
            forms = dict.fromkeys(form for form in forms if not is_blank(form))
            forbidden.setdefault(term, {}).update(forms)
            try:
                _check_term(term, translation, forms)
            except ValueError as error:
                raise ValueError(f"Line {number:,} of {name}: {error}") from error
        return cls(translations, {term: tuple(forms) for term, forms in forbidden.items() if forms})

    def of(self, text: str, kept: Iterable["Kept"] = ()) -> list[Term]:
        """Returns the terms in a sentence, one for each place, without those in what is kept."""
        return [term for *_, term in self.with_places(text, kept=kept)]

    def with_places(
        self, text: str, tags: Sequence[str] = (), kept: Iterable["Kept"] = (), end: int | None = None
    ) -> Iterator[tuple[int, int, Term]]:
        """Yields where each term begins and ends in a sentence, up to `end`, and the term; those in a tag, or in what
        is kept, are left out.
        """
        if not self._pattern:
            return
        rest = untagged(text, tags)
        begin = len(text) - len(rest)
        searched = _without(rest, kept)[: None if end is None else max(end - begin, 0)]
        first = len(searched) - len(searched.lstrip(" \t"))
        small = searched[:first] + searched[first : first + 1].lower() + searched[first + 1 :]
        if len(small) == len(searched):
            ends = [match.end() if (match := self._pattern.match(each, first)) else 0 for each in (searched, small)]
            searched = small if ends[1] > ends[0] else searched
        for each in self._pattern.finditer(searched):
            term, (start, after) = single_spaced(each[0]), each.span()
            source, forms = single_spaced(rest[start:after]), self.forbidden.get(term, ())
            yield begin + start, begin + after, Term(source, self.translations[term], tuple(forms))


def read_terms(path: str) -> Terms:
    """Reads a file of terms; "" has none. Raises `OSError` or `ValueError` if it cannot be used."""
    if not path:
        return Terms({})
    with opened(path) as file:
        return Terms.read(read_lines(file), path)


def most_subwords(phrase: str) -> int:
    """Returns how many sub-words a phrase may have, if its letters are in the alphabet of the vocabulary: one for the
    mark of a word, for each letter, digit and space as many as its bytes, and for another sign as many as an escape
    such as \\9731; has.
    """
    return 1 + sum(len(each.encode()) if each.isalnum() or each == " " else 9 for each in phrase)


def _without(text: str, kept: Iterable["Kept"]) -> str:
    """Returns a text with line ends, which no phrase has, in place of what is kept."""
    characters = [*text]
    for start, match in [found for each in kept for found in each.matches(text)]:
        characters[start : start + len(match)] = "\n" * len(match)
    return "".join(characters)


def _end_of_reading(text: str, reads: Callable[[str], bool], matches: Iterable[tuple[int, str]]) -> int:
    """Returns where the longest beginning of a text ends that is read, with neither a part of a word nor of a match,
    which is read whole.
    """
    inside = {place for start, match in matches for place in range(start + 1, start + len(match))}
    ends = [place for place in range(len(text) + 1) if place not in inside and not _is_inside_word(text, place)]
    number = bisect.bisect_left(ends, True, key=lambda end: not reads(text[:end]))
    return ends[max(number - 1, 0)]


def with_phrases(
    requests: Iterable[Request],
    terms: Terms,
    kept: "Kept",
    warn: Callable[[str], None],
    fits: Callable[[str, str], bool] = lambda phrase, text: True,
    tags: Sequence[str] = (),
    first: int = 1,
    inline: bool = False,
    reads: Callable[[str], bool] = lambda text: True,
    copied: "Kept | None" = None,
) -> Iterator[Request]:
    """Adds terms and what is to be kept to sentences, except for phrases that a sentence has itself. What is kept or
    copied has no terms.

    Args:
        warn: takes a message for each sentence with phrases that are left out, because it has `MAX_PHRASES` or they are
            too long.
        fits: returns whether a phrase has at most `MAX_SUBWORDS` in the translation of the text of a sentence, which it
            divides into sub-words each time: it is asked of at most twice as many phrases as a sentence may have.
        tags: those that a sentence may begin with; no phrases are looked for in them.
        first: the number of the first sentence.
        inline: whether the model was trained on text with terms, and gets the sentences so.
        reads: returns whether the model reads all of a text. Phrases are looked for in the part that it reads.
        copied: what the model copies without phrases.
    """
    copied = copied or Kept("")
    for number, request in enumerate(requests, first):
        text = request.text
        begin = len(text) - len(untagged(text, tags))
        found_terms = list(terms.with_places(text, tags, (kept, copied)))
        found_kept = [(begin + start, phrase) for start, phrase in kept.with_places(text[begin:])]
        if (found_terms or found_kept) and not reads(text):
            end_of_text = _end_of_reading(text, reads, copied.matches(text))
            # A longer term that ends after it may have hidden a shorter one.
            found_terms = list(terms.with_places(text, tags, (kept, copied), end_of_text))
            found_kept = [
                (start, phrase)
                for start, phrase in found_kept
                if start + len(phrase.removeprefix(JOINER)) <= end_of_text
            ]
            text = text[:end_of_text]
        extended = _Extended(request, _without(text, (copied,)) if found_terms else text, fits, inline)
        for start, end, term in found_terms:
            extended.add_term(start, end, term)
        extended.annotate()
        for _, phrase in found_kept:
            extended.add_kept(phrase)
        if extended.left_out:
            shown = ", ".join(phrase.removeprefix(JOINER) for phrase in extended.left_out)
            warn(
                f"Line {number}: expected at most {MAX_PHRASES} phrases of at most {MAX_SUBWORDS} sub-words. Left out: "
                f"{shown:.200}"
            )
        yield extended.request


class _Extended:
    """A request to which phrases are added, as many as it may have; `left_out` are the others. `searched` is the part
    of the text that has the terms; for `fits` and `inline` see `with_phrases`.
    """

    def __init__(self, request: Request, searched: str, fits: Callable[[str, str], bool], inline: bool):
        self.request, self.left_out = request, []
        self._searched, self._fits, self._inline, self._asked = searched, fits, inline, 0
        self._known = {phrase.removeprefix(JOINER) for phrase in (*request.constraints, *request.avoid)}
        self._translated: list[tuple[int, int, str]] = []

    def _is_short(self, phrase: str) -> bool:
        if most_subwords(phrase) <= MAX_SUBWORDS:
            return True
        self._asked += 1
        return self._asked <= 2 * MAX_PHRASES and self._fits(phrase, self.request.text)

    def add_term(self, start: int, end: int, term: Term) -> None:
        """Adds a term that is at a place of the text."""
        request, constraints = self.request, [*self.request.constraints]
        # A phrase that the sentence requires itself is required once, as that of the term.
        if is_own := term.translation in constraints and not self._inline and not request.ordered:
            constraints.remove(term.translation)
        elif term.translation in self._known:
            return
        if len(request.required) >= MAX_PHRASES + is_own or not self._is_short(term.translation):
            self.left_out += [] if is_own else [term.translation]
            return
        forms = tuple(filter(self._is_short, term.forbidden if len(term.forbidden) <= MAX_PHRASES else ()))
        # Among single spaces, as the model reads it.
        after = sum(place > 0 for place in places(re.sub("[ \t]+", " ", self._searched[start:]), term.source))
        for forbidden in (forms, ()):  # None of them if they are too many.
            terms = (*request.terms, term._replace(forbidden=forbidden, after=after, is_own=is_own))
            self.request = dataclasses.replace(request, constraints=tuple(constraints), terms=terms)
            if len(self.request.excluded) <= MAX_PHRASES:
                break
        self.left_out += [form for form in term.forbidden if form not in forbidden]
        self._known.discard(term.translation)
        self._translated.append((start, end, term.translation))

    def annotate(self) -> None:
        """Gives the sentence the translations of its terms in their places, if the model was trained on such text."""
        if self._inline and self._translated:
            self.request = dataclasses.replace(self.request, annotated=annotated(self.request.text, self._translated))

    def add_kept(self, phrase: str) -> None:
        """Adds a phrase that is to be kept."""
        request = self.request
        if phrase.removeprefix(JOINER) in self._known:
            return
        if len(request.required) < MAX_PHRASES and self._is_short(phrase):
            name = "free" if request.ordered else "constraints"
            self.request = dataclasses.replace(request, **{name: (*getattr(request, name), phrase)})
        else:
            self.left_out.append(phrase)


class Kept:
    """Text that a translation must contain because it is in the source, such as {0} and <b>.

    Args:
        option: its patterns, see `patterns.parse`, whose error it raises.
        expression: their regular expression, in place of an option.
        find_all: finds the matches of an expression in texts, such as `placeholders.find_all`, which takes linear time
            for any expression and needs TensorFlow; the default is Python's engine.
    """

    def __init__(
        self, option: str, find_all: Callable[[Sequence[str], str], Iterable] | None = None, expression: str = ""
    ):
        self._expression, self._find_all = expression or patterns.parse(option), find_all or _find_all

    def shared(self, sources: Sequence[str], targets: Sequence[str]) -> int:
        """Returns how many pairs have text to keep on both sides."""
        in_sources, in_targets = (self._find_all(side, self._expression) for side in (sources, targets))
        return sum(
            not {match for _, match in in_source}.isdisjoint(match for _, match in in_target)
            for in_source, in_target in zip(in_sources, in_targets, strict=True)
        )

    def of(self, text: str) -> list[str]:
        """Returns what a sentence has to keep, one phrase for each place, with `JOINER` where no space is before it."""
        return [phrase for _, phrase in self.with_places(text)]

    def with_places(self, text: str) -> list[tuple[int, str]]:
        """Returns where each phrase of `of` begins in a sentence, and the phrase. Matches with tabs, line ends or
        several spaces in a row, which the model does not read, are left out.
        """
        return [
            (start, JOINER * (start > 0 and not text[start - 1].isspace()) + match)
            for start, match in self.matches(text)
            if not re.search(r"[\t\n]|  ", match)
        ]

    def matches(self, text: str) -> list[tuple[int, str]]:
        """Returns where each match of the patterns begins in a sentence, and the match. Matches of spaces alone are
        left out.
        """
        if not self._expression:
            return []
        [matches] = self._find_all([text], self._expression)
        return [each for each in matches if not is_blank(each[1])]


def _find_all(texts: Sequence[str], expression: str) -> Iterator[list[tuple[int, str]]]:
    for text in texts:
        yield [(match.start(), match[0]) for match in re.finditer(expression, text, re.ASCII)]
