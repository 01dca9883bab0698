"""The vocabulary file of tensor2tensor: a sub-word a line, with or without quotes, `<pad>` and `<EOS>` first."""

HEADS = tuple(f"{quote}<pad>{end}{quote}\n".encode() for quote in ("'", '"', "") for end in ("", "_"))
SPECIAL_LINES = 2
_ESCAPES = "\\_u;0123456789"  # The characters of escapes, see `text.tensor2tensor`.


def texts_of(model: bytes) -> list[str]:
    """Returns the sub-words of a file without quotes. An empty one matches no text. Raises `ValueError` if it is no
    such file, or a character of a sub-word is no sub-word.
    """
    try:
        lines = model.decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"Not a vocabulary of tensor2tensor: the file is not UTF-8 ({error}).") from error
    lines = [line.rstrip() for line in lines]
    quoted = [line[:1] == line[-1:] and line[:1] in ("'", '"') for line in lines]
    texts = [line[1:-1] if has_quotes else line for line, has_quotes in zip(lines, quoted, strict=True)]
    if [text.removesuffix("_") for text in texts[:SPECIAL_LINES]] != ["<pad>", "<EOS>"]:
        raise ValueError("A vocabulary of tensor2tensor must begin with <pad> and <EOS>, a sub-word a line.")
    if lacking := {*_ESCAPES, *"".join(texts[SPECIAL_LINES:])} - set(texts):
        raise ValueError(
            f"Expected each character of a sub-word to be a sub-word itself. {len(lacking)} are not, such as "
            f"{min(lacking)!r}."
        )
    return texts
