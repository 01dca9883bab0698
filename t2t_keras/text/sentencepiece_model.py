"""What the file of a byte-pair encoding, a SentencePiece model, holds besides its pieces: how ▁ is escaped, and the
pattern of text to keep.

The file is a message of protocol buffers. Fields that are appended are merged with those before them, so the message
need not be parsed.
"""

import sentencepiece

# SentencePiece writes a space as ▁. A ▁ in the text is therefore escaped with a character of the private use area.
_ESCAPE, UNDERSCORE = "\ue0f0", "▁"
ESCAPED = ((_ESCAPE, _ESCAPE + "0"), (UNDERSCORE, _ESCAPE + "1"))
_NORMALIZER, _DENORMALIZER = 3, 5  # Numbers of fields.
# The field with the pattern of text to keep is one of SentencePiece's extensions (from number 200 on), at the end of
# the model.
_PATTERN, _MARK = 1000, b"t2t_keras.keep_patterns="


def _varint(number: int) -> bytes:
    groups = []
    while number >= 0x80:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def _field(number: int, content: bytes) -> bytes:
    """Returns a field of type bytes."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def with_pattern(model: bytes, pattern: str) -> bytes:
    """Returns a model that holds a pattern of text to keep."""
    return model + _field(_PATTERN, _MARK + pattern.encode())


def pattern_of(model: bytes) -> str:
    """Returns the pattern that a model holds, or an empty text."""
    return model.partition(_MARK)[2].decode()


def escaping(model: bytes) -> bytes:
    """Returns the model with the escaping of ▁ built into its normalization rules, so that plain SentencePiece gives
    the same pieces.
    """
    sentencepiece.set_min_log_level(2)
    try:
        model_rules = sentencepiece.SentencePieceNormalizer(model_proto=model).Decompile()
    except RuntimeError:  # It has no rules: `normalization=identity`.
        model_rules = []
    rules = sentencepiece.SentencePieceNormalizer(norm_map=list((dict(model_rules) | dict(ESCAPED)).items()))
    restoring = sentencepiece.SentencePieceNormalizer(
        norm_map=[(spelled, character) for character, spelled in ESCAPED],
        add_dummy_prefix=False,
        escape_whitespaces=False,
        remove_extra_whitespaces=False,
    )
    return (
        model
        + _field(_NORMALIZER, rules.serialized_normalizer_spec())
        + _field(_DENORMALIZER, restoring.serialized_normalizer_spec())
    )
