"""Sentences to translate with their phrases: as JSON lines, and with phrases that are found in them."""

import bisect
import collections
import dataclasses
import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from t2t_keras.text.inline_terms import annotated
from t2t_keras.text.kept import Kept, without
from t2t_keras.text.lines import one_line
from t2t_keras.text.phrases import (
    JOINER,
    MAX_PHRASES,
    MAX_SUBWORDS,
    holds,
    is_inside_word,
    joined,
    most_subwords,
    places,
    with_capital,
)
from t2t_keras.text.tags import untagged
from t2t_keras.text.terminology import Term, Terms

KEYS = ["text", "constraints", "avoid", "ordered"]  # Of a JSON line.


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


def with_phrases(
    requests: Iterable[Request],
    terms: Terms,
    kept: Kept,
    warn: Callable[[str], None],
    fits: Callable[[str, str], bool] = lambda phrase, text: True,
    tags: Sequence[str] = (),
    first: int = 1,
    inline: bool = False,
    reads: Callable[[str], bool] = lambda text: True,
    copied: Kept | None = None,
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
        extended = _Extended(request, without(text, (copied,)) if found_terms else text, fits, inline)
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


def _end_of_reading(text: str, reads: Callable[[str], bool], matches: Iterable[tuple[int, str]]) -> int:
    """Returns where the longest beginning of a text ends that is read, with neither a part of a word nor of a match,
    which is read whole.
    """
    inside = {place for start, match in matches for place in range(start + 1, start + len(match))}
    ends = [place for place in range(len(text) + 1) if place not in inside and not is_inside_word(text, place)]
    number = bisect.bisect_left(ends, True, key=lambda end: not reads(text[:end]))
    return ends[max(number - 1, 0)]


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
