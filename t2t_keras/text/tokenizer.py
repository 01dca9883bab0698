"""Sub-words (section 5.1), learned with SentencePiece. TF.Text applies them, so training and exported models use the same ops.

The paper uses byte-pair encoding for English-German and word pieces for English-French. This module implements byte-pair encoding.
"""

import hashlib
import io
import random
import re
from collections.abc import Iterable

import sentencepiece
import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.python.ops import sentencepiece_tokenizer

from t2t_keras.config import BOS, EOS, PAD, UNK

BYTES_PER_PIECE = 64  # Maximum: SentencePiece learns pieces of up to 16 characters.
_SPECIAL_AND_BYTES = EOS + 1 + 256  # Number of ids that every vocabulary has.

# SentencePiece writes a space as ▁. A ▁ in the text is therefore escaped with a character of the private use area.
_ESCAPE, _UNDERSCORE = "\ue0f0", "▁"
_ESCAPED = ((_ESCAPE, _ESCAPE + "0"), (_UNDERSCORE, _ESCAPE + "1"))


def _replace(text, old: str, new: str):
    return tf.strings.regex_replace(text, old, new)


class _Resource(sentencepiece_tokenizer._SentencepieceModelResource):
    """A SentencePiece model that stays valid after `tf.random.set_seed`.

    TF.Text 2.21 keeps an unnamed model in a kernel, and setting a seed clears the kernel cache. A model with a shared name is kept.
    """

    def _create_resource(self):
        name = hashlib.sha256(self._model).hexdigest()
        return sentencepiece_tokenizer.gen_sentencepiece_tokenizer.sentencepiece_op(model=self._model, shared_name=name)


class Tokenizer(tf.Module):
    """Converts text to ids and back, in the graph.

    With identity normalization, `detokenize(tokenize(x)) == x` for every line of valid UTF-8 without leading, trailing or repeated
    spaces: characters without a sub-word are spelled in bytes.

    Args:
        model: bytes of a SentencePiece model that `learn` returned.

    Raises:
        ValueError: the bytes are not a SentencePiece model, or it has other special ids.
    """

    def __init__(self, model: bytes):
        super().__init__(name="tokenizer")
        try:
            processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise ValueError(f"Expected a SentencePiece model. Received: {len(model):,} bytes that are not one.") from error
        received = {
            "pad": processor.pad_id(), "unk": processor.unk_id(), "bos": processor.bos_id(), "eos": processor.eos_id()
        }  # fmt: skip
        expected = {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS}
        if received != expected:
            raise ValueError(f"Expected a SentencePiece model with the special ids {expected}. Received: {received}.")
        self.model = model
        self.vocab_size = processor.vocab_size()
        self.pieces = tuple(processor.id_to_piece(index) for index in range(self.vocab_size))
        self._pieces = tf_text.SentencepieceTokenizer(model, out_type=tf.int32)
        self._pieces._model_resource = _Resource(model, None)

    def tokenize(self, text, max_length: int = 0) -> tf.RaggedTensor:
        """Converts text to ids. Bytes that are not UTF-8 become U+FFFD.

        Args:
            text: [B] string.
            max_length: maximum number of ids, EOS included; 0 sets no limit.

        Returns:
            [B, (length)] int32, ragged. Every sentence ends in EOS.
        """
        if max_length:
            text = tf.strings.substr(text, 0, max_length * BYTES_PER_PIECE)  # Limits the work for very long lines.
        for old, new in _ESCAPED:
            text = _replace(text, old, new)
        ids = self._pieces.tokenize(text)
        if max_length:
            ids = ids[:, : max_length - 1]
        return tf.concat([ids, tf.fill([ids.nrows(), 1], EOS)], axis=1)

    def cut(self, text, longest: int):
        """Converts text to ids and truncates long sentences.

        Args:
            text: [B] string.
            longest: maximum number of ids, EOS included.

        Returns:
            [B, (length)] int32, ragged; and [B] boolean, whether a sentence was truncated.
        """
        ids = self.tokenize(text, max_length=longest + 1)
        cut = tf.concat([ids[:, :-1][:, : longest - 1], tf.fill([ids.nrows(), 1], EOS)], axis=1)
        unread = tf.strings.length(text) > (longest + 1) * BYTES_PER_PIECE
        return cut, (ids.row_lengths() > longest) | unread

    def detokenize(self, ids: tf.RaggedTensor):
        """Converts ids to text: [B, (length)] int32, ragged → [B] string. Special ids are left out."""
        text = self._pieces.detokenize(tf.ragged.boolean_mask(ids, ids > EOS))
        for old, new in reversed(_ESCAPED):
            text = _replace(text, new, old)
        return text


def learn(lines: Iterable[bytes], vocab_size: int, *, sample: int, seed: int, normalization: str, character_coverage: float) -> bytes:
    """Learns a byte-pair encoding shared by both languages.

    Args:
        lines: sentences of both sides, UTF-8.
        vocab_size: total number of ids: 4 special ids, 256 bytes, characters and merges.
        sample: maximum number of lines to learn from; they are drawn from all lines.
        seed: seed of the sample.
        normalization: name of a SentencePiece normalization rule; `identity` does not change the text.
        character_coverage: share of the text's characters that get an id of their own.

    Returns:
        The bytes of a SentencePiece model.

    Raises:
        ValueError: the vocabulary is too large for the text, or too small for its characters.
    """
    written = io.BytesIO()
    # Reservoir sampling. The sample of SentencePiece 0.2.3 is not reproducible: it ignores `set_random_generator_seed`.
    draw, drawn = random.Random(seed), []
    for number, line in enumerate(lines):
        text = line.decode("utf-8")
        if number < sample:
            place = number
            drawn.append("")
        else:
            place = draw.randrange(number + 1)
        if place < sample:
            for old, new in _ESCAPED:
                text = text.replace(old, new)
            drawn[place] = text

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(drawn),
            model_writer=written,
            model_type="bpe",
            vocab_size=vocab_size,
            normalization_rule_name=normalization,
            character_coverage=character_coverage,
            byte_fallback=True,
            shuffle_input_sentence=False,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            max_sentence_length=1 << 16,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        reason = str(error).split(") ", 1)[-1].strip() or str(error)
        if fewest := re.search(r"smaller than required_chars. \d+ vs (\d+)", reason):
            characters = int(fewest[1]) - _SPECIAL_AND_BYTES
            reason = (
                f"`vocab_size={vocab_size}` is too small for this text, which needs {fewest[1]} or more: {EOS + 1} special ids, 256 bytes "
                f"and {characters} characters. Raise it, or lower `character_coverage`."
            )
        elif most := re.search(r"size too high .* <= (\d+)", reason):
            reason = f"`vocab_size={vocab_size}` is too large for this text, which gives {most[1]} at most. Lower it, or give more text."
        else:
            reason = f"SentencePiece cannot learn {vocab_size} sub-words from this text. Its message: {reason}"
        raise ValueError(reason) from error
    return written.getvalue()
