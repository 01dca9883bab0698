"""The formats of translated lines. Each takes the number of a line and its result, "text" and other outputs by name."""

import json


def best(result: dict) -> str:
    """Returns the best translation of a line, or its first sample."""
    return result["text"] if isinstance(result["text"], str) else result["text"][0]


def is_doubtful(result: dict) -> bool:
    """Returns whether the best translation of a line is doubtful; see `serving.terms`."""
    doubtful = result.get("doubtful", False)
    return doubtful if isinstance(doubtful, bool) else doubtful[0]


def merged(result: dict) -> dict:
    """Returns an n-best list without translations whose text is that of a better one, in other sub-words."""
    texts = result["text"]
    first = [place for place, text in enumerate(texts) if text not in texts[:place]]
    return {
        name: [values[place] for place in first] if isinstance(values, list) else values
        for name, values in result.items()
    }


def text_line(number: int, result: dict) -> str:
    """The best translation, and after a tab its alignment, if it has one."""
    if "alignment" not in result:
        return f"{best(result)}\n"
    return f"{_without_tabs(best(result))}\t{result['alignment']}\n"


def numbered_lines(number: int, result: dict, most: int) -> str:
    """The first translations in a line each: the number of the source line, the score, the text, and its alignment, if
    it has one, with tabs.
    """
    last = [result["alignment"]] if "alignment" in result else []
    rows = list(zip(result["score"], result["text"], *last, strict=True))[:most]
    return "".join(
        "\t".join([f"{number}", f"{score:.4f}", *map(_without_tabs, texts)]) + "\n" for score, *texts in rows
    )


def _without_tabs(text: str) -> str:
    """Returns a text with spaces for tabs, which separate columns."""
    return text.replace("\t", " ")


def json_line(number: int, result: dict) -> str:
    """All outputs as a JSON object."""
    return f"{json.dumps(result, ensure_ascii=False)}\n"
