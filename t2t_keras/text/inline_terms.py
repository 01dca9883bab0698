"""Terms in the source text: the translation of a term takes its place, between marks (Dinu et al. 2019, "replace").

    a man in a park → a ⟦ monsieur ⟧ in a park

A model that is trained on such text copies the translations and inflects them. Where they stood beside their terms, a
small model did not heed them.
"""

import os
import re
import unicodedata
from collections.abc import Iterable

from t2t_keras.config import TERM_MARKS
from t2t_keras.text.phrases import folded
from t2t_keras.text.scripts import is_unspaced, marks

MIN_PREFIX, MIN_SHARE = 3, 2 / 3  # Of a word that its inflected form begins with: characters, and share of the longer.
_WORD = re.compile(rf"[\w{marks()}]+|[^\w\s]")


def annotated(text: str, translations: Iterable[tuple[int, int, str]]) -> str:
    """Returns a sentence with translations in place of its terms: where each term begins and ends, and its translation,
    in the order of the places.
    """
    parts, end = [], 0
    for start, after, translation in translations:
        before = text[end:start]
        space = " " if start and not before.endswith(" ") else ""  # A mark is a word of its own.
        parts += [before, space, f"{TERM_MARKS[0]} {translation} {TERM_MARKS[1]}"]
        end = after
    return "".join([*parts, text[end:]])


def has_form(text: str, phrase: str) -> bool:
    """Returns whether a text has a phrase or an inflected form of it: words in a row that begin as those of the phrase.

    Case and diacritics do not count, so that Männer is a form of Mann. A phrase in a script without spaces may be
    anywhere, with its diacritics, which make other letters of kana.
    """
    if is_unspaced([phrase]):
        return unicodedata.normalize("NFC", folded(phrase)) in unicodedata.normalize("NFC", folded(text))
    words, wanted = (_WORD.findall(_plain(each)) for each in (text, phrase))
    starts = range(len(words) - len(wanted) + 1) if wanted else ()
    return any(all(map(_is_form, words[start : start + len(wanted)], wanted)) for start in starts)


def _plain(text: str) -> str:
    decomposed = unicodedata.normalize("NFD", folded(text))
    return "".join(character for character in decomposed if not unicodedata.combining(character))


def _is_form(word: str, of: str) -> bool:
    shared = len(os.path.commonprefix([word, of]))
    return word == of or shared >= max(MIN_PREFIX, MIN_SHARE * max(len(word), len(of)))
