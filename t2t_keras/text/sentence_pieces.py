"""Sub-words of an imported model: a SentencePiece model divides the text, and a list of its own gives the pieces their
ids.

Marian keeps the two apart, because both sides may share one list and each has a SentencePiece model of its own. A line
has the same sub-words as with transformers' `MarianTokenizer(split_special_tokens=True)`: text that spells a special
token is text.

In a multilingual model, such as NLLB-200, a sentence of either side begins with the sub-word of its language: that of
the tag at the beginning of the line, or else `language`.
"""

import re

import tensorflow as tf

from t2t_keras.config import EOS, PAD, UNK
from t2t_keras.text import piece_file
from t2t_keras.text.spelling import BYTES
from t2t_keras.text.subwords import NOT_IN_PIECE, Subwords
from t2t_keras.text.tokenizer_ops import sentence_piece

_TAG = r"(?s)\A(>>.*?<<)(.*)\z"  # The target language, for models with several.
_SPACES = r"[\s\v\x1c-\x1f\x{85}\p{Z}]+"  # As Python's `str.strip`.


class SentencePieces(Subwords):
    """Pieces of a SentencePiece model with ids from a list. A piece that is not in the list is unknown.

    A tag such as `>>de<<` at the beginning of a line is one sub-word. In a multilingual model, only that of a language
    is. Without a SentencePiece model, the sub-words of a text have spaces between them. Raises `ValueError` if `model`
    is no file that `piece_file.pack` made.
    """

    def __init__(self, model: bytes):
        file = piece_file.unpack(model)
        pieces, processor = file.pieces, file.processor
        super().__init__(model, pieces)
        self.languages, self.language, self._tag = file.languages, file.language or "", _TAG
        if file.language is not None:
            self._tag = rf"(?s)\A(>>(?:{'|'.join(map(re.escape, file.languages))})<<)(.*)\z"
        if not file.tagged:
            self._tag = r"\z\A."  # Matches nothing.
        self._processor = sentence_piece(processor, tf.string) if processor else None
        self._spells_bytes = bool(processor) and not any(
            NOT_IN_PIECE in piece for piece in piece_file.divided(processor, NOT_IN_PIECE)
        )
        if processor:
            self._divide = self._processor.tokenize
        else:
            self._divide = tf.strings.split
        keys, ids = list(pieces[EOS + 1 :]), list(range(EOS + 1, len(pieces)))
        table = tf.lookup.KeyValueTensorInitializer(keys, ids, tf.string, tf.int32)
        self._ids = tf.lookup.StaticHashTable(table, UNK)
        tags = dict.fromkeys(map(piece_file.tag_of, file.languages), b"")
        spelled = {name: bytes([byte]) for byte, name in enumerate(BYTES)} | tags
        if not processor:
            spelled = {piece: f" {piece}".encode() for piece in pieces}
            self.spelling = (b"",) * (EOS + 1) + tuple(spelled[piece] for piece in pieces[EOS + 1 :])
        self._surfaces = tf.constant([spelled.get(piece, piece.replace("▁", " ").encode()) for piece in pieces])
        self._is_tag = tf.constant([piece in tags for piece in pieces])

    def _encode(self, text) -> tf.RaggedTensor:
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
        tagged = tf.strings.regex_full_match(text, self._tag)
        tags = tf.strings.regex_replace(tf.boolean_mask(text, tagged), self._tag, r"\1")
        tags = tf.RaggedTensor.from_row_lengths(tags, tf.cast(tagged, tf.int64), validate=False)
        pieces = self._divide(tf.strings.regex_replace(text, self._tag, r"\2"))
        return tf.ragged.map_flat_values(self._ids.lookup, tf.concat([tags, pieces], axis=1))

    def _encode_joined(self, text) -> tf.RaggedTensor:
        """Converts text that follows other text; see `Subwords._encode_joined`. A SentencePiece model that does not
        spell characters in bytes makes one piece of unknown ones: what is before the text is cut from it.
        """
        if self._spells_bytes:
            return super()._encode_joined(text)
        if not self._processor:
            return self._encode(text)
        pieces = self._divide(tf.strings.join([NOT_IN_PIECE, text]))
        rest = tf.strings.regex_replace(pieces.values, f"(?s).*{NOT_IN_PIECE}", "")
        is_cut = tf.cast(rest != pieces.values, tf.int32)
        before = tf.math.cumsum(is_cut, exclusive=True)
        begun = before + is_cut > tf.gather(
            tf.pad(before, [[0, 1]]), tf.gather(pieces.row_starts(), pieces.value_rowids())
        )
        pieces = tf.ragged.boolean_mask(pieces.with_values(rest), pieces.with_values(begun & (rest != "")))
        return tf.ragged.map_flat_values(self._ids.lookup, pieces)

    def _with_language(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        if not self.language:
            return ids
        tagged = tf.gather(self._is_tag, ids[:, :1].to_tensor(PAD, shape=[None, 1])[:, 0])
        tags = tf.fill([tf.reduce_sum(tf.cast(~tagged, tf.int32))], self.pieces.index(piece_file.tag_of(self.language)))
        tags = tf.RaggedTensor.from_row_lengths(tags, tf.cast(~tagged, tf.int64), validate=False)
        return tf.concat([tags, ids], axis=1)

    def _decode(self, ids: tf.RaggedTensor):
        text = tf.strings.reduce_join(tf.gather(self._surfaces, ids), axis=1)
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
        return tf.strings.regex_replace(tf.strings.regex_replace(text, rf"\A{_SPACES}", ""), rf"{_SPACES}\z", "")
