"""Identifies the language of a text: py3langid, for codes of languages of any kind, such as en, en-US, eng or eng_Latn.

It needs the extra `filter`.
"""

import functools
from collections.abc import Sequence


@functools.cache
def identifier():
    """Returns py3langid's `LanguageIdentifier`. Raises `ImportError` if py3langid or langcodes is not installed."""
    import langcodes  # noqa: F401
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@functools.cache
def _labels() -> dict[str, str]:
    """Returns py3langid's name of a language by its standard code, such as tl by fil."""
    labels = identifier().labels
    return {"nb": "no"} | {_standard(label): label for label in labels} | {label: label for label in labels}


def _standard(code: str) -> str:
    import langcodes

    return langcodes.standardize_tag(code, macro=True).partition("-")[0]


def language_of(code: str) -> str:
    """Returns the code of a language as py3langid has it, without script and region: "de" for de, de-AT, deu and
    deu_Latn, and that of the macrolanguage, "ar" for arb_Arab. What is no code comes back in lower case.
    """
    import langcodes

    try:
        standard = _standard(code)
    except langcodes.LanguageTagError:
        return code.lower()
    return _labels().get(standard, standard)


def identify(text: str, among: Sequence[str] = ()) -> tuple[str, float]:
    """Identifies the language of a text, of which the first 2,000 characters count; returns its code and its
    probability, 0 to 1.

    `among` are codes of the languages that it may have; of two for the same language, the first is returned. Empty:
    all. Raises `ValueError` if there are several codes, and no language of theirs is known.
    """
    ranked = [(str(code), float(probability)) for code, probability in identifier().rank(text[:2000])]
    if not among:
        return ranked[0]
    codes = {language_of(code): code for code in reversed(among)}
    found = [(codes[code], probability) for code, probability in ranked if code in codes]
    if not found and len(among) > 1:
        raise ValueError(f"No language of these codes can be identified: {', '.join(among):.300}.")
    return found[0] if found else (among[0], 0.0)
