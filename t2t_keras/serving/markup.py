"""Text and HTML to translate: what a model is given of them, and how translations take its place.

Tags stay in place. Of text between them, sentences are translated; a tag within a sentence goes to the words that are
aligned with those that it was at. All text comes back with its &, < and > escaped.
"""

import bisect
import dataclasses
import html
import itertools
import re
from collections.abc import Callable, Iterator, Sequence

from t2t_keras.serving.protocol import Translation
from t2t_keras.text.lines import single_spaced
from t2t_keras.text.scripts import JOINERS, SKIN_TONES, is_unspaced, marks
from t2t_keras.text.sentences import sentences
from t2t_keras.text.spelling import text_and_ends, words_of

# A tag with its attributes, or a comment or declaration. A character is looked at three times at most: a search ends at
# the next < outside of quotation marks, and two searches cannot be inside the same ones.
_TAG = re.compile(r"""<(/?)([a-zA-Z][^\s/<>"']*)((?:[^<>"']|"[^"]*"|'[^']*')*+)>|<[!?][^<>]*+>""")
_LONG_NUMBER = re.compile("&#([0-9]{8,});?")  # `html.unescape` fails at one of thousands of digits.
_LAST_WORD = re.compile(r"""(.*[\s"'])?([^\s"']*)""", re.DOTALL)
_RAW = ("script", "style", "textarea")  # Elements without text to translate.
_CODE = ("code", "kbd", "samp", "var")  # Elements whose text stays, as of those that `_is_untranslated` finds.
_ATTRIBUTE = re.compile(r"""([^\s"'=/]++)(?:\s*+=\s*+("[^"]*"|'[^']*'|[^\s"']++))?""")
# Elements that sentences do not go beyond. All others, such as those of a translator's tool, are within sentences.
_BLOCK = re.compile(
    "address|article|aside|blockquote|body|br|button|caption|center|col|colgroup|dd|details|dialog|div|dl|dt|fieldset|"
    "figcaption|figure|footer|form|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|meta|nav|ol|optgroup|"
    "option|p|pre|section|select|summary|table|tbody|td|tfoot|th|thead|title|tr|ul|video"
)
_VOID = re.compile("area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr")  # Elements without an end tag.
# A word, or a sign; with marks, such as the vowel signs of Hindi, and parts of an emoji.
_WORD = re.compile(rf"[\w{marks()}{JOINERS}]+|[^\w\s](?:[{marks()}{SKIN_TONES}]|[{JOINERS}].)*")
Divide = Callable[[str], Iterator[tuple[str, bool]]]
_MAX_ELEMENTS = 500  # In a segment; a longer one is divided.
_MAX_DEPTH = 50


@dataclasses.dataclass(frozen=True)
class _Token:
    """A piece of HTML, as it is: text, or a tag."""

    raw: str
    name: str = ""  # Of the element.
    is_tag: bool = False
    is_end: bool = False  # Whether it is an end tag.
    is_alone: bool = False  # Whether no end tag belongs to it.


@dataclasses.dataclass
class _Element:
    """Tags in a sentence, and the characters of the text that they enclose: `end` is `start` for a tag alone."""

    opening: str
    start: int
    end: int
    closing: str = ""
    before_space: bool = False  # What is after its last tag.
    is_after_word: bool = False  # What is before that.
    parent: "_Element | None" = None
    words: range = range(0)  # Of the translation.


@dataclasses.dataclass
class _Segment:
    """Text without block elements. `parts` are its sentences and the space between them."""

    text: str
    elements: list[_Element]
    parts: list[tuple[str, bool]]


class Document:
    """A text with sentences to translate.

    Args:
        text: the text.
        is_html: whether it is HTML.
        divide: divides text without block elements, as `sentences` does.

    Attributes:
        sentences: what to translate.
        has_tags: whether translations need alignments, because a sentence has tags.
    """

    def __init__(self, text: str, is_html: bool = False, divide: Divide = sentences):
        self._is_html, self._divide = is_html, divide
        # Segments, and what stays as it is between them.
        self._parts = list(self._parsed(text)) if is_html else [_Segment(text, [], list(divide(text)))]
        segments = [part for part in self._parts if isinstance(part, _Segment)]
        parts = [part for segment in segments for part in segment.parts]
        self.sentences = [single_spaced(text) for text, is_sentence in parts if is_sentence]
        self.has_tags = any(segment.elements for segment in segments)

    def _parsed(self, text: str) -> Iterator[_Segment | str]:
        """Yields segments of HTML, and what is between them."""
        tokens = [_Token(""), *_tokens(text), _Token("", is_tag=True)]
        ends, within = _within_sentences(tokens)
        end_places = set(ends.values())
        first, pieces, length, elements, opened, is_preformatted = 0, [], 0, [], [], False
        filled = 0  # The length up to the last piece that is more than space.
        for place, token in enumerate(tokens):
            if not token.is_tag:
                plain = html.unescape(_LONG_NUMBER.sub(_shorter, token.raw))
                if not is_preformatted:
                    plain = re.sub(r"\s+", " ", plain, flags=re.ASCII)
                    plain = plain[1:] if plain[:1] == " " and pieces and pieces[-1][-1:] == " " else plain
                pieces += [plain] if plain else []
                length += len(plain)
                filled = length if single_spaced(plain) else filled
            elif place in within:
                if place in end_places:
                    start, element = opened.pop()
                    element.end, element.closing = length, token.raw
                    if filled <= element.start:  # A link of an image, for example, is placed as one tag is.
                        while elements[-1] is not element:
                            elements.pop()
                        inside = tokens[start : place + 1]  # Its space is in the text too, where `pre` shows it.
                        element.opening = "".join(each.raw for each in inside if each.is_tag or not is_preformatted)
                        element.end, element.closing = element.start, ""
                else:
                    element = _Element(token.raw, length, length, parent=opened[-1][1] if opened else None)
                    element.is_after_word = not tokens[place - 1].raw[-1:].isspace()
                    elements.append(element)
                    opened += [(place, element)] if place in ends else []
                element.before_space = tokens[place + 1].raw[:1].isspace()
            else:
                joined = "".join(pieces)
                if joined.strip():
                    yield _Segment(joined, elements, list(self._divide(joined)))
                else:
                    yield "".join(each.raw for each in tokens[first:place])
                yield token.raw
                first, pieces, length, filled, elements = place + 1, [], 0, 0, []
                if token.name == "pre":  # One that is not translated is alone.
                    is_preformatted = not (token.is_end or token.is_alone)

    def translated(self, translations: Sequence[Translation]) -> str:
        """Returns the document with the translations of its `sentences` in their place."""
        following, shown = iter(translations), []
        for part in self._parts:
            if isinstance(part, str):
                shown.append(part)
                continue
            place, text, spots = 0, "", []  # Of the source; of the translation; its words.
            before = None  # The translation of the sentence before, if no space is after it.
            for piece, is_sentence in part.parts:
                if is_sentence:
                    translation = next(following)
                    # Sentences of Chinese follow one another without a space.
                    if before and translation.text and not is_unspaced([before, translation.text]):
                        text += " "
                    at_place = _places_of_words(piece)
                    for start, end, at in _aligned(single_spaced(piece), translation):
                        spots.append((len(text) + start, len(text) + end, place + at_place(at)))
                    text += translation.text
                else:
                    text += piece
                place, before = place + len(piece), (translation.text or before) if is_sentence else None
            if part.elements:
                shown.append(_with_tags(text, spots, part.elements))
            else:
                shown.append(html.escape(text, quote=False) if self._is_html else text)
        return "".join(shown)


def _tokens(text: str) -> Iterator[_Token]:
    """Yields the text and the tags of HTML. A comment is a tag, and so is an element whose text is not translated."""
    tokens, opened, ends = list(_texts_and_tags(text)), {}, {}
    for place, token in enumerate(tokens):
        if token.is_end and opened.get(token.name):
            ends[opened[token.name].pop()] = place
        elif token.is_tag and not (token.is_end or token.is_alone or token.name in _RAW):
            opened.setdefault(token.name, []).append(place)
    place = 0
    while place < len(tokens):
        token, end = tokens[place], ends.get(place, place)
        if end > place and _is_untranslated(token):
            raw = "".join(each.raw for each in tokens[place : end + 1])
            token, place = _Token(raw, token.name, True, is_alone=True), end
        yield token
        place += 1


def _is_untranslated(tag: _Token) -> bool:
    """Returns whether the text of an element stays, by its start tag: code, `translate=no`, and class `notranslate`."""
    if tag.name in _CODE:
        return True
    if "translate" not in tag.raw.lower():  # As most tags.
        return False
    found = _ATTRIBUTE.findall(_TAG.match(tag.raw)[3])
    attributes = {name.lower(): value.strip("\"'").lower() for name, value in found}
    return attributes.get("translate") == "no" or "notranslate" in attributes.get("class", "").split()


def _texts_and_tags(text: str) -> Iterator[_Token]:
    """Yields what `_tokens` does, with the tags and the text of each element but the raw ones."""
    begin, start, last_comment = 0, 0, text.rfind("-->")
    for_end = {name: re.compile(f"</{name}[^<>]*+>", re.IGNORECASE) for name in _RAW}
    while (place := text.find("<", start)) >= 0:
        is_comment, tag = text.startswith("<!--", place) and place < last_comment, _TAG.match(text, place)
        if not is_comment and not tag:
            start = place + 1
            continue
        if begin < place:
            yield _Token(text[begin:place])
        start, name = (text.index("-->", place) + 3, "") if is_comment else (tag.end(), (tag[2] or "").lower())
        is_end = bool(name and tag[1])
        if name in _RAW and not is_end:
            end = for_end[name].search(text, start)
            start = end.end() if end else len(text)
        is_alone = not name or bool(_VOID.fullmatch(name)) or _closes_itself(tag[3])
        yield _Token(text[place:start], name, True, is_end, is_alone)
        begin = start
    if begin < len(text):
        yield _Token(text[begin:])


def _shorter(reference: re.Match) -> str:
    """Returns a reference to a character by its number without leading zeros, or U+FFFD if there is no such one."""
    digits = reference[1].lstrip("0") or "0"
    return f"&#{digits};" if len(digits) < 8 else "\ufffd"


def _closes_itself(attributes: str) -> bool:
    """Returns whether a tag ends with a slash that is not the end of a value without quotation marks."""
    before, last = _LAST_WORD.fullmatch(attributes).groups("")
    return last.endswith("/") and "=" not in last and not before.rstrip().endswith("=")


def _within_sentences(tokens: Sequence[_Token]) -> tuple[dict[int, int], set[int]]:
    """Returns the places of start tags with those of their end tags, and the places of all tags within sentences.

    Pairs with something between them that ends sentences, or that do not nest, end sentences themselves.
    """
    opened: list[int] = []
    ends: dict[int, int] = {}
    alone: list[int] = []
    number = 0  # Of elements since the last end of a sentence.
    for place, token in enumerate(tokens):
        if not token.is_tag:
            continue
        is_within = bool(token.raw) and token.name not in _RAW and not _BLOCK.fullmatch(token.name)
        if is_within and token.is_end and opened and tokens[opened[-1]].name == token.name:
            ends[opened.pop()] = place
        elif is_within and token.is_alone and number < _MAX_ELEMENTS:
            alone.append(place)
            number += 1
        elif is_within and not token.is_end and number < _MAX_ELEMENTS and len(opened) < _MAX_DEPTH:
            opened.append(place)
            number += 1
        else:
            opened, number = [], 0
    return ends, {*ends, *ends.values(), *alone}


def _aligned(source: str, translation: Translation) -> list[tuple[int, int, int]]:
    """Returns where each word of a translation begins and ends, and where in the source the word is that it attends to
    most. Without an alignment, words are taken to be in the order of the source.
    """
    target, found = translation.text, []
    if translation.alignment is not None and translation.alignment.any():
        # Without end tokens. A tag of the language may be before the text.
        (from_text, from_ends), (to_text, to_ends) = (
            text_and_ends(pieces[:-1], side)
            for pieces, side in ((translation.source_pieces, source), (translation.pieces, target))
        )
        before, skipped = (len(text.rstrip()) - len(side) for text, side in ((from_text, source), (to_text, target)))
        if from_text.rstrip().endswith(source) and to_text.rstrip().endswith(target):
            of_source = words_of(from_text, from_ends)
            for first, last in words_of(to_text, to_ends):
                weights = translation.alignment[first:last].sum(axis=0)
                best, _ = max(of_source, key=lambda word: weights[word[0] : word[1]].sum())
                start, end = _without_space(to_text, to_ends[first][0], to_ends[last - 1][1])
                at, _ = _without_space(from_text, from_ends[best][0], len(from_text))
                if skipped <= start < end:
                    found.append((start - skipped, end - skipped, max(at - before, 0)))
    if found:
        return found
    return [
        (match.start(), match.end(), match.start() * len(source) // max(len(target), 1))
        for match in _WORD.finditer(target)
    ]


def _places_of_words(text: str) -> Callable[[int], int]:
    """Returns what maps a place in a text with single spaces to that in the text itself."""
    own = [match.start() for match in re.finditer(r"\S+", text, re.ASCII)] or [0]
    single = [match.start() for match in re.finditer(r"\S+", single_spaced(text), re.ASCII)] or [0]

    def place_of(place: int) -> int:
        word = max(bisect.bisect(single, place) - 1, 0)
        return own[word] + place - single[word]

    return place_of


def _without_space(text: str, start: int, end: int) -> tuple[int, int]:
    """Returns where a part of a text begins and ends without the space at its ends."""
    inside = text[start:end]
    return end - len(inside.lstrip()), start + len(inside.rstrip())


def _with_tags(text: str, spots: list[tuple[int, int, int]], elements: list[_Element]) -> str:
    """Returns a translation with the tags of its source, each once, and well nested. `spots` are its words, from
    `_aligned`, and `elements` those of the source, in their order.
    """
    for element in elements:
        parent = element.parent
        inside = parent.words if parent else range(len(spots))
        if element.end > element.start and inside:
            near = [word for word in inside if element.start <= spots[word][2] < element.end]
            numbered = itertools.groupby(enumerate(near), lambda item: item[1] - item[0])
            runs = [[word for _, word in run] for _, run in numbered]
            # A word that is near, for an element whose words are not translated.
            run = max(runs, key=len, default=[min(inside, key=lambda word: abs(spots[word][2] - element.start))])
            element.words = range(run[0], run[-1] + 1)
        else:
            word = next((word for word in inside if spots[word][2] >= element.start), inside.stop)
            element.words = range(word, word)
    # From the outside to the inside.
    ranks = {id(element): rank for rank, element in enumerate(sorted(elements, key=lambda each: -len(each.words)), 1)}
    # Those that have the space at the beginning of the text after their tag.
    first_of_all = [each for each in elements if each.start == each.words.start == 0 and text[:1].isspace()]
    innermost = max((ranks[id(each)] for each in first_of_all if each.words), default=0)
    inserted: list[tuple[int, float, str]] = []
    for element in elements:
        rank, words, parent = ranks[id(element)], element.words, element.parent
        if words:
            at_beginning = words.start == 0 and rank <= innermost  # It has that space, or encloses one that has it.
            inserted.append((0 if at_beginning else spots[words.start][0], rank, element.opening))
            inserted.append((spots[words.stop - 1][1], -rank, element.closing))
            continue
        tags = element.opening + element.closing
        first, outer = (parent.words.start, ranks[id(parent)]) if parent else (0, 0)
        is_last = parent and words.start == parent.words.stop > first
        if element.start == words.start == 0 and text[:1].isspace():
            inserted.append((0, outer + 0.5, tags))
        elif is_last or words.start > first and element.is_after_word and element.before_space:
            inserted.append((spots[words.start - 1][1], -outer - 0.5, tags))  # Inside its parent, and after the rest.
        else:  # Inside its parent, and before what comes later.
            place = spots[words.start][0] if words.start < len(spots) else len(text)
            inserted.append((place, outer + 0.5, tags + " " * element.before_space))
    shown, before = [], 0
    for place, _, tag in sorted(inserted, key=lambda each: each[:2]):
        shown += [html.escape(text[before:place], quote=False), tag]
        before = place
    return "".join([*shown, html.escape(text[before:], quote=False)])
