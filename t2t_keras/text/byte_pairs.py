"""Byte-pair encoding (section 5.1, English-German), learned and applied with SentencePiece."""

import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

import sentencepiece
import tensorflow as tf

from t2t_keras.config import BOS, EOS, PAD, UNK
from t2t_keras.system.log import logger, number_of
from t2t_keras.text.placeholders import NAMES, replace_all
from t2t_keras.text.sentencepiece_model import ESCAPED, UNDERSCORE, pattern_of, with_pattern
from t2t_keras.text.spelling import BYTES
from t2t_keras.text.subwords import SizeError, Subwords, draw_sample
from t2t_keras.text.tokenizer_ops import sentence_piece

# SentencePiece leaves out, in silence, lines with this character, with which it writes unknown ones.
_RESERVED = "\u2585"
_LONGEST = 1 << 14  # Characters of up to 4 bytes: SentencePiece also leaves out lines that are too long.


class BytePairs(Subwords):
    """Byte-pair encoding. Characters without a sub-word are spelled in bytes. Raises `ValueError` if `model` is no
    SentencePiece model, has other special ids than those that `learn` makes, or spaces at the end of words.
    """

    def __init__(self, model: bytes):
        try:
            processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise ValueError(
                f"Not a SentencePiece model, a file that ends in .model: {len(model):,} other bytes."
            ) from error
        expected = {"pad_id": PAD, "unk_id": UNK, "bos_id": BOS, "eos_id": EOS}
        received = {name: getattr(processor, name)() for name in expected}
        if received != expected:
            expected, received = (
                " ".join(f"--{name}={id}" for name, id in ids.items()) for ids in (expected, received)
            )
            raise ValueError(
                f"The SentencePiece model must have the special ids {expected}. Received: {received}. Train it with "
                "these options of SentencePiece, and with --byte_fallback."
            )
        if processor.normalize("a").endswith(UNDERSCORE):
            raise ValueError(
                f"The SentencePiece model must have {UNDERSCORE} at the beginning of words. Received: one with "
                f"{UNDERSCORE} at their end. Train it without --treat_whitespace_as_suffix."
            )
        pieces = tuple(processor.id_to_piece(index) for index in range(processor.vocab_size()))
        super().__init__(model, pieces, pattern_of(model))
        self._pieces = sentence_piece(model, tf.int32)

    def _encode(self, text) -> tf.RaggedTensor:
        for old, new in ESCAPED:
            text = tf.strings.regex_replace(text, old, new)
        return self._pieces.tokenize(text)

    def _decode(self, ids: tf.RaggedTensor):
        text = self._spaced(self._pieces.detokenize(ids))
        for old, new in reversed(ESCAPED):
            text = tf.strings.regex_replace(text, new, old)
        return text

    def _spaced(self, text):
        """Returns text with spaces in place of a ▁ that SentencePiece has left."""
        return text


def learn(
    lines: Iterable[bytes],
    vocab_size: int,
    *,
    sample: int,
    seed: int,
    normalization: str,
    character_coverage: float,
    pattern: str = "",
    tags: Sequence[str] = (),
    model_type: str = "bpe",
) -> bytes:
    """Learns a byte-pair encoding shared by both languages.

    Args:
        lines: sentences of both sides, UTF-8.
        vocab_size: total number of ids: 4 special ids, 256 bytes, characters and merges.
        sample: maximum number of lines to learn from; they are drawn from all lines.
        seed: seed of the sample.
        normalization: name of a SentencePiece normalization rule; `identity` does not change the text.
        character_coverage: share of the text's characters that get an id of their own.
        pattern: matches text to keep: the sub-words have placeholders for it, and are learned from the rest of the
            text.
        tags: words that are sub-words in any case.
        model_type: SentencePiece's name of the kind of sub-words.

    Returns the bytes of a SentencePiece model. Raises `SizeError` if the vocabulary is too large for the text, or too
    small for its characters.
    """
    written = io.BytesIO()
    # The sample of SentencePiece 0.2.3 is not reproducible: it ignores `set_random_generator_seed`.
    drawn = draw_sample(lines, sample, seed)
    if reserved := sum(_RESERVED in line for line in drawn):
        where = number_of(reserved, "line")
        logger.info(f"U+{ord(_RESERVED):04X}, in {where}, gets no sub-word: it is spelled in bytes.")
    symbols = [*(NAMES if pattern else ()), *(UNDERSCORE + tag for tag in tags)]
    if pattern:
        drawn = (text.decode() for text in replace_all(drawn, pattern, " "))

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=itertools.chain.from_iterable(map(_readable, drawn)),
            model_writer=written,
            model_type=model_type,
            vocab_size=vocab_size,
            normalization_rule_name=normalization,
            character_coverage=character_coverage,
            byte_fallback=True,
            user_defined_symbols=symbols,
            shuffle_input_sentence=False,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            max_sentence_length=4 * _LONGEST,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        reason = str(error).split(") ", 1)[-1].strip() or str(error)
        if fewest := re.search(r"smaller than required_chars. \d+ vs (\d+)", reason):
            parts = {"special ids": EOS + 1, "bytes": len(BYTES)}
            parts |= {"placeholders and tags": len(symbols)} if symbols else {}
            raise SizeError.too_small(
                vocab_size, parts | {"characters": int(fewest[1]) - sum(parts.values())}
            ) from error
        if most := re.search(r"size too high .* <= (\d+)", reason):
            raise SizeError.too_large(vocab_size, int(most[1])) from error
        raise ValueError(
            f"SentencePiece cannot learn {vocab_size} sub-words from this text. Its message: {reason}"
        ) from error
    return with_pattern(written.getvalue(), pattern) if pattern else written.getvalue()


def _readable(line: str) -> Iterator[str]:
    """Yields a line in parts that SentencePiece reads: without reserved characters, and divided between words, or
    anywhere in a word that is too long.
    """
    line = line.replace(_RESERVED, " ")
    for old, new in ESCAPED:
        line = line.replace(old, new)
    start = 0
    while start < len(line):
        end = start + _LONGEST
        if end < len(line) and (space := line.rfind(" ", start + 1, end)) > 0:
            end = space
        yield line[start:end]
        start = end
