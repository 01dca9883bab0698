"""Tags at the beginning of sentences, such as that of the target language."""

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence

from t2t_keras.text.lines import is_blank
from t2t_keras.text.piece_file import TAG

MAX_TAGS = 5  # In a message.


def untagged(text: str, tags: Sequence[str]) -> str:
    """Returns a sentence without the tag that it may begin with: one of `tags`, or one such as >>deu_Latn<<."""
    for tag in tags:
        if tag and text.startswith(f"{tag} "):
            return text.removeprefix(tag)
    return text[tag.end() :] if (tag := TAG.match(text)) else text


def _begins_with(tag: str) -> str:
    """Returns what a sentence with a tag begins with. A space follows a tag of the user's, not a sub-word such as
    >>deu<< of an imported model.
    """
    return tag if TAG.fullmatch(tag) else f"{tag} "


def without_tag(text: str, tags: Sequence[str]) -> str:
    """Returns a sentence without the one of these tags that it may begin with, and the space after it."""
    for begin in map(_begins_with, filter(None, tags)):
        if text.startswith(begin):
            return text.removeprefix(begin).lstrip(" ")
    return text


def with_tags_checked(
    sentences: Iterable,
    tags: Sequence[str],
    warn: Callable[[str], None],
    first: int = 1,
    text_of: Callable = str,
    unit: str = "Line",
) -> Iterator:
    """Yields sentences, and warns of the first one without a tag, and of each tag that the model does not know. If one
    of `tags` is empty, or there are none, every sentence is right. A text of a tag alone is blank.

    A message calls a sentence `unit` and its number, which is `first` for the first one; `text_of` returns its text.
    """
    tags = list(dict.fromkeys(tags))
    begins, told = tuple(map(_begins_with, tags)), set()
    for number, sentence in enumerate(sentences, first):
        text = text_of(sentence)
        rest = "" if text.rstrip() in filter(None, tags) else without_tag(text, tags)
        if rest != text and is_blank(rest):
            yield "" if isinstance(sentence, str) else dataclasses.replace(sentence, text="")
            continue
        if tags and all(tags) and not is_blank(text) and not text.startswith(begins):
            received = match[0] if (match := TAG.match(text)) else ""
            if received not in told:
                told.add(received)
                near = difflib.get_close_matches(received, tags, MAX_TAGS, 0.4) if len(tags) > MAX_TAGS else tags
                among = f", one of {len(tags)}" if len(tags) > MAX_TAGS else ""
                warn(
                    f"{unit} {number}: expected a tag at the beginning, {' or '.join(near or tags[:MAX_TAGS])}{among}, "
                    f"as in the text that the model was trained on.{f' Received: {received}.' if received else ''}"
                )
        yield sentence
