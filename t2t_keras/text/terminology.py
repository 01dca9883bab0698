"""Terms with their translations, as a file has them, and where they are in text."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from t2t_keras.text.kept import Kept, without
from t2t_keras.text.lines import is_blank, opened, read_lines, single_spaced
from t2t_keras.text.phrases import MAX_SUBWORDS, holds, joined, small_letters
from t2t_keras.text.scripts import word_characters
from t2t_keras.text.tags import untagged

MAX_CHARACTERS = 64 * MAX_SUBWORDS  # Of a phrase in a terminology: a sub-word has at most 64 bytes.


class Term(NamedTuple):
    """A term in a sentence."""

    source: str
    translation: str  # Must appear.
    forbidden: tuple[str, ...] = ()  # Forms that must not appear, as they are and with a capital letter.
    after: int = 0  # How often the text that is read has the term as whole words after this place.
    is_own: bool = False  # Whether the sentence itself requires the translation, as it is.


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

    def of(self, text: str, kept: Iterable[Kept] = ()) -> list[Term]:
        """Returns the terms in a sentence, one for each place, without those in what is kept."""
        return [term for *_, term in self.with_places(text, kept=kept)]

    def with_places(
        self, text: str, tags: Sequence[str] = (), kept: Iterable[Kept] = (), end: int | None = None
    ) -> Iterator[tuple[int, int, Term]]:
        """Yields where each term begins and ends in a sentence, up to `end`, and the term; those in a tag, or in what
        is kept, are left out.
        """
        if not self._pattern:
            return
        rest = untagged(text, tags)
        begin = len(text) - len(rest)
        searched = without(rest, kept)[: None if end is None else max(end - begin, 0)]
        first = len(searched) - len(searched.lstrip(" \t"))
        letters = [searched[first : first + 1], *small_letters(searched[first : first + 1])]
        begun = [searched[:first] + letter + searched[first + 1 :] for letter in letters]
        searched = max(begun, key=lambda each: match.end() if (match := self._pattern.match(each, first)) else 0)
        for each in self._pattern.finditer(searched):
            term, (start, after) = single_spaced(each[0]), each.span()
            source, forms = single_spaced(rest[start:after]), self.forbidden.get(term, ())
            yield begin + start, begin + after, Term(source, self.translations[term], tuple(forms))


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


def read_terms(path: str) -> Terms:
    """Reads a file of terms; "" has none. Raises `OSError` or `ValueError` if it cannot be used."""
    if not path:
        return Terms({})
    with opened(path) as file:
        return Terms.read(read_lines(file), path)
