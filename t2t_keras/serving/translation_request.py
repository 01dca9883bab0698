"""A request to translate, of LibreTranslate's API or of Apertium-APy's."""

import json
import urllib.parse

from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import BadRequest, RequestEntityTooLarge, UnsupportedMediaType
from werkzeug.wrappers import Request

from t2t_keras.text.lines import is_blank, single_spaced
from t2t_keras.text.request import check_unicode
from t2t_keras.text.terminology import Terms

MAX_REQUEST = 256 * 1024  # Bytes.
MAX_SENTENCES = 1024  # Of a request.


def read_fields(request: Request) -> dict:
    """Returns the fields of a request, in its address, in JSON or in a form. Raises `HTTPException` if it is too large
    or has no fields.
    """
    _check_utf8(urllib.parse.unquote_to_bytes(request.query_string))
    fields = _single(request.args)
    try:
        too_large = len(body := request.get_data()) > MAX_REQUEST
    except RequestEntityTooLarge:
        too_large = True
    if too_large:
        raise RequestEntityTooLarge(f"Expected a request of at most {MAX_REQUEST // 1024} KiB. Send several.")
    if request.mimetype == "application/json" and request.method == "POST":
        try:
            values = json.loads(body)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise BadRequest(f"Expected a JSON object in UTF-8. Received: {body[:60]!r}.")
        fields |= values
    elif request.method == "POST" and request.mimetype not in (
        "application/x-www-form-urlencoded", "multipart/form-data", ""
    ):  # fmt: skip
        raise UnsupportedMediaType(f"Expected application/json, or a form. Received: {request.mimetype:.80}.")
    else:
        _check_utf8(body if request.mimetype == "multipart/form-data" else urllib.parse.unquote_to_bytes(body))
        fields |= _single(request.form)
    return {name: value for name, value in fields.items() if value is not None}


def _check_utf8(encoded: bytes) -> None:
    """Raises `BadRequest` if an address or a form is not UTF-8: werkzeug keeps other bytes as text such as %E9."""
    try:
        encoded.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(
            f"Expected an address or a form in UTF-8. Received: {error.object[error.start :][:20]!r}."
        ) from error


def texts_of(fields: dict) -> str | list[str]:
    """Returns what is to be translated. Raises `ValueError` if it is neither a text nor a list of texts of Unicode."""
    texts = fields.get("q")
    if not isinstance(texts, str) and not (isinstance(texts, list) and all(isinstance(text, str) for text in texts)):
        raise ValueError(
            f"Expected `q` to be a text or a list of texts, in JSON or in a form with its Content-Type. Received: "
            f"{texts!r:.80}."
        )
    check_unicode(texts if isinstance(texts, str) else " ".join(texts))
    return texts


class TranslationRequest:
    """What a request asks for. The fields of a form are text, lists in JSON.

    Args:
        fields: from `read_fields`.
        is_posted: whether the request is a POST, which LibreTranslate's must be.

    Attributes:
        texts: what to translate; if `q` is a list, each has phrases of its own.
        source: the code of their language, or "auto".
        target: the code of the other language.
        is_apertium: whether the request is of Apertium-APy's API.
        is_html: whether the texts are HTML.
        alternatives: number of further translations of each text.
        details: whether scores and attention are asked for.
        prefix: how the translations begin.
        glossary: terms with their translations.
        constraints: the phrases that the translation of each text must contain.
        avoid: those that it must not contain.
        is_whole: whether each text is to be translated as one sentence: what must be in a translation is in one.

    Raises:
        ValueError: a field is invalid.
        RequestEntityTooLarge: there are too many texts.
    """

    def __init__(self, fields: dict, is_posted: bool):
        self.is_apertium = "langpair" in fields
        if self.is_apertium:
            fields = fields | _pair(fields["langpair"])
        elif not is_posted:
            raise ValueError("Expected `langpair`, as in the API of Apertium, or a POST request.")
        texts = texts_of(fields)
        self._is_list = isinstance(texts, list)
        self.texts = texts if self._is_list else [texts]
        for name in ("source", "target"):
            if not isinstance(code := fields.get(name, ""), str) or not code:
                raise ValueError(f"Expected `{name}` to be the code of a language. Received: {code!r:.80}.")
        self.source, self.target = fields["source"], fields["target"]
        if len(self.texts) > MAX_SENTENCES:
            received = f"{len(self.texts):,}. Send several requests."
            raise RequestEntityTooLarge(f"Expected at most {MAX_SENTENCES:,} texts in a request. Received: {received}")
        form = _given(fields, "format", "text")
        if form not in ("text", "html", "txt"):
            raise ValueError(f"Expected `format` to be text or html. Received: {form!r:.80}.")
        self.is_html = form == "html"
        self.alternatives = _alternatives(fields)
        details = _given(fields, "details", False)
        if details not in (True, False, "true", "1", "false", "0"):
            raise ValueError(f"Expected `details` to be true or false. Received: {details!r:.80}.")
        self.details = details in (True, "true", "1")
        self.prefix = _given(fields, "prefix", "")
        if not isinstance(self.prefix, str):
            raise ValueError(f"Expected `prefix` to be text. Received: {self.prefix!r:.80}.")
        check_unicode(self.prefix)
        self.prefix = single_spaced(self.prefix)
        self.glossary = _glossary(_listed(fields, "glossary"))
        self.constraints, self.avoid = (
            _listed(fields, name) or [()] * len(self.texts) if self._is_list else [_listed(fields, name)]
            for name in ("constraints", "avoid")
        )
        for name in ("constraints", "avoid"):
            if len(getattr(self, name)) != len(self.texts):
                raise ValueError(f"Expected `{name}` to have a list of phrases for each of {len(self.texts)} texts.")
        self.is_whole = [bool(required or self.prefix or self.details) for required in self.constraints]

    def unlisted(self, values: list):
        """Returns the values of the texts, or that of the only one if `q` is no list."""
        return values if self._is_list else values[0]


def _single(fields: MultiDict) -> dict:
    """Returns the values of fields: those of one that is there several times as a list."""
    return {name: values if len(values) > 1 else values[0] for name, values in fields.lists()}


def _pair(langpair) -> dict[str, str]:
    """Returns the `source` and the `target` of a `langpair`, such as en|de."""
    source, bar, target = str(langpair).partition("|")
    if not (source and bar and target):
        received = f"{langpair!r:.80}"
        raise ValueError(f"Expected `langpair` to be two codes of languages, such as en|de. Received: {received}.")
    return {"source": source, "target": target}


def _alternatives(fields: dict) -> int:
    """Returns how many further translations are wanted, at most 100."""
    number = _given(fields, "alternatives", 0)
    if isinstance(number, str) and number.isascii() and number.isdecimal():
        number = int(number[:4])
    if type(number) is not int or number < 0:
        raise ValueError(f"Expected `alternatives` to be a whole number. Received: {number!r:.80}.")
    return min(number, 100)


def _given(fields: dict, name: str, default):
    """Returns a field, or the default if it is not there or empty."""
    return default if (value := fields.get(name, "")) == "" else value


def _listed(fields: dict, name: str) -> list:
    value = fields.get(name) or []
    if isinstance(value, str):  # Of a form.
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, list):
        raise ValueError(f"Expected `{name}` to be a list, in a form as JSON. Received: {fields[name]!r:.80}.")
    return value


def _glossary(rows: list) -> Terms | None:
    for row in rows:
        if not isinstance(row, list) or not 2 <= len(row) <= 3 or not all(isinstance(each, str) for each in row):
            raise ValueError(
                "Expected `glossary` to be a list of [term, translation] or [term, translation, forbidden forms with | "
                f"between them]. Received: {row!r:.80}."
            )
        check_unicode(" ".join(row))
        if any(map(is_blank, row[:2])):
            raise ValueError(f"Expected text as term and translation of `glossary`. Received: {row!r:.80}.")
    return Terms.read(["\t".join(map(single_spaced, row)) for row in rows], "the glossary") if rows else None
