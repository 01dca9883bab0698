"""The rules of filtering that are functions of a single pair: lengths, letters, scripts, copies and languages."""

import unicodedata
from collections.abc import Callable

from t2t_keras.config import FilterConfig
from t2t_keras.text import language_identification
from t2t_keras.text.language_identification import language_of
from t2t_keras.text.lines import is_blank

SIDES = ("source", "target")
ADDED_CHARACTERS = 10  # To both sides before their ratio is taken: short text varies more.
_SCRIPTS = {"CJK": "HAN", "IDEOGRAPHIC": "HAN"}  # By the first word of a character's name, where it is another.

Verdict = tuple[str, float] | None  # The rule that a pair breaks, and what it measured.


class _Characters(dict):
    """A table for `str.translate` that keeps characters with a property and replaces others; filled as they come."""

    def __init__(self, has: Callable[[str], bool], others: str = ""):
        self._has, self._others = has, others

    def __missing__(self, code: int) -> str:
        character = chr(code)
        self[code] = character if self._has(character) else self._others
        return self[code]


_WORDS = _Characters(lambda character: unicodedata.category(character)[0] in "LM", " ")
# Invisible within words: soft hyphens, what joins letters or keeps them apart, and marks of the direction.
_WORDS.update(dict.fromkeys(map(ord, "\u00ad\u061c\u200c\u200d\u200e\u200f\u2060\ufeff"), ""))


def normalized(text: str) -> str:
    """Returns the words of a text without case, with a space between two, and without digits and punctuation. Accents
    may be characters of their own, or parts of letters.
    """
    return " ".join(unicodedata.normalize("NFC", text.casefold()).translate(_WORDS).split())


def _without_spaces(text: str) -> int:
    """Returns the number of characters that are no spaces."""
    return sum(map(len, text.split()))


def script(character: str) -> str:
    """Returns the script of a letter by the first word of its name in Unicode, such as LATIN or HAN."""
    name = unicodedata.name(unicodedata.normalize("NFKC", character)[0], "").replace("-", " ").partition(" ")[0]
    return _SCRIPTS.get(name, name)


def _is_of_script(character: str) -> bool:
    """Returns whether a character is a letter that belongs to one script. The apostrophe of Ukrainian (U+02BC) is used
    with several, and the sound marks of half-width kana (U+FF9E) are no letters.
    """
    letters = (character, unicodedata.normalize("NFKC", character)[0])
    return all(unicodedata.category(letter)[0] == "L" for letter in letters) and script(character) != "MODIFIER"


_OF_SCRIPTS = _Characters(_is_of_script)


def _scripts(option: str, names: str) -> set[str]:
    """Returns the scripts of an option. Raises `ValueError` for one that Unicode does not have."""
    wanted = {name.strip().upper() for name in names.split(",") if name.strip()}
    letters = (character for character in map(chr, range(2**17)) if unicodedata.category(character)[0] == "L")
    if wanted and (unknown := wanted - set(map(script, letters))):
        shown = ", ".join(name.title() for name in sorted(unknown))
        raise ValueError(
            f"Expected scripts such as Latin, Cyrillic, Greek, Arabic, Devanagari, Han or Hangul as `{option}`. "
            f"Received: {shown}."
        )
    return wanted


def _identifier(languages: dict[str, str]):
    """Returns what identifies languages; raises `ValueError` if it does not know one of these options' languages, or is
    not installed.
    """
    try:
        identifier = language_identification.identifier()
    except ImportError as error:
        raise ValueError(
            f"`{next(iter(languages))}` requires py3langid and langcodes: pip install 't2t_keras[filter]', or "
            "-e '.[filter]' in a checkout."
        ) from error
    for option, language in languages.items():
        if language_of(language) not in identifier.labels:
            raise ValueError(
                f"Expected a language of py3langid ({', '.join(sorted(identifier.labels))}) as `{option}`. Received: "
                f"{language}."
            )
    return identifier


class Rules:
    """The rules that are functions of a pair, where a target is expected to have `length_ratio` characters for each of
    its source. Raises `ValueError` if a script or a language is not known.
    """

    def __init__(self, config: FilterConfig, length_ratio: float = 1.0):
        self._config, self._length_ratio = config, length_ratio
        scripts = [_scripts(f"{side}_script", getattr(config, f"{side}_script")) for side in SIDES]
        self._scripts = [
            _Characters(lambda character, wanted=wanted: script(character) in wanted) if wanted else None
            for wanted in scripts
        ]
        codes = [getattr(config, f"{side}_language") if config.min_language else "" for side in SIDES]
        languages = {f"{side}_language": code for side, code in zip(SIDES, codes, strict=True) if code}
        self._identifier = _identifier(languages) if languages else None
        self._languages = [code and language_of(code) for code in codes]

    def verdict(self, source: str, target: str) -> Verdict:
        """Returns the first rule that a pair breaks and what it measured, or `None`."""
        config, pair = self._config, (source, target)
        if any(map(is_blank, pair)):
            return "empty", 0
        source, target = pair = source.strip(), target.strip()
        longest = max(map(len, pair))
        if config.max_characters and longest > config.max_characters:
            return "characters", longest
        if config.max_length_ratio:
            ratio = (len(target) / self._length_ratio + ADDED_CHARACTERS) / (len(source) + ADDED_CHARACTERS)
            if max(ratio, 1 / ratio) > config.max_length_ratio:
                return "length_ratio", ratio
        share = min(_without_spaces(text.translate(_WORDS)) / _without_spaces(text) for text in pair)
        if share < config.min_letters:
            return "letters", share
        for side, table in zip(pair, self._scripts, strict=True):
            letters = side.translate(_OF_SCRIPTS) if table is not None else ""
            if letters and (share := len(letters.translate(table)) / len(letters)) < config.min_script:
                return "script", share
        if not config.keep_copies and (normalized(source) or source) == (normalized(target) or target):
            return "copy", 1
        for side, language in zip(pair, self._languages, strict=True):
            if language and (probability := dict(self._identifier.rank(side))[language]) < config.min_language:
                return "language", probability
        return None
