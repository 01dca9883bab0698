"""Web pages in one file: a template, and its data as JSON in a script element."""

import json
import pathlib

_PLACE = "{{data}}"


def fill(template: pathlib.Path, data) -> str:
    """Returns a page that needs no network and no other file: a template with its data."""
    before, after = template.read_text(encoding="utf-8").split(_PLACE)
    return before + _as_script_data(data) + after


def _as_script_data(value) -> str:
    """JSON in ASCII that no text can end or turn into markup: < > and & are escaped."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
