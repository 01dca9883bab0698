"""The operations of TF.Text that divide text into sub-words, and the same in Python for systems without TF.Text.

Exports need those of TF.Text. Training, scoring and translating use them too where TF.Text is installed; elsewhere, a
function of Python gives the same sub-words inside the graph. TF.Text has no version for Windows, and its versions
follow those of TensorFlow by months.
"""

import collections
import importlib.util
import itertools
import sys
from collections.abc import Callable, Sequence

import numpy as np
import sentencepiece
import tensorflow as tf

from t2t_keras.system.compat import share_sentencepiece_model

# The operation of TF.Text 2.21 cannot match the byte 0, and crashes at the byte 0x11. UTF-8 does not use their
# replacements.
_REPLACED = {0x00: 0xFE, 0x11: 0xFD}
_IN_OPERATION = bytes(_REPLACED.get(byte, byte) for byte in range(256))


def _import_tf_text():
    """Returns the module `tensorflow_text`, or `None` if it is not installed. Raises `ValueError` if it is one for
    another version of TensorFlow, or if Python removes docstrings.
    """
    if not importlib.util.find_spec("tensorflow_text"):
        return None
    if sys.flags.optimize > 1:  # TF.Text 2.21 formats its docstrings when it is imported.
        raise ValueError(
            "TF.Text needs docstrings, which Python removes with -OO or PYTHONOPTIMIZE=2. "
            f"Received: optimization {sys.flags.optimize}. Start Python without them, or with -O."
        )
    try:
        import tensorflow_text
    except (ImportError, tf.errors.OpError) as error:
        reason = " ".join(str(error).split())[:150]
        raise ValueError(
            f"TF.Text cannot be imported with TensorFlow {tf.__version__} ({reason}). "
            "Install the TF.Text of this TensorFlow, or train and translate without it: pip uninstall tensorflow-text"
        ) from error
    return tensorflow_text


tf_text = _import_tf_text()


def sentence_piece(model: bytes, dtype: tf.DType):
    """Returns a tokenizer that applies a SentencePiece model, with the methods of `_SentencePiece`. `dtype` is
    `tf.int32` for ids, or `tf.string` for pieces.
    """
    if tf_text is None:
        return _SentencePiece(model, dtype)
    tokenizer = tf_text.SentencepieceTokenizer(model, out_type=dtype)
    share_sentencepiece_model(tokenizer, model)
    return tokenizer


def longest_match(pieces: Sequence[bytes], unknown: int):
    """Returns a tokenizer that divides text from left to right; each time, it takes the longest piece that fits (Wu et
    al. 2016). Pieces are UTF-8, or bytes that match no text; the id of each is its index. A text in which no piece fits
    somewhere is `unknown` as a whole.
    """
    return _LongestMatch(pieces, unknown) if tf_text is None else _LongestMatchOperation(pieces, unknown)


class _SentencePiece:
    """`tensorflow_text.SentencepieceTokenizer` in Python."""

    def __init__(self, model: bytes, dtype: tf.DType):
        self._processor, self._dtype = sentencepiece.SentencePieceProcessor(model_proto=model), dtype

    def tokenize(self, text) -> tf.RaggedTensor:
        """Divides text: [B] string → [B, (length)] of `dtype`."""
        kind = bytes if self._dtype == tf.string else int
        return _in_python(lambda lines: self._processor.encode(lines, out_type=kind), text, self._dtype)

    def detokenize(self, ids: tf.RaggedTensor):
        """Joins pieces to text: [B, (length)] int32 → [B] string."""

        def join(values: np.ndarray, splits: np.ndarray) -> np.ndarray:
            rows = [row.tolist() for row in np.split(values, splits[1:-1])] if len(splits) > 1 else []
            return np.array([self._processor.decode(row, out_type=bytes) for row in rows], object)

        return tf.ensure_shape(
            tf.numpy_function(join, [ids.values, ids.row_splits], tf.string, stateful=False), ids.shape[:1]
        )


class _LongestMatch:
    """`_LongestMatchOperation` in Python."""

    def __init__(self, pieces: Sequence[bytes], unknown: int):
        self._ids, self._unknown = {piece: index for index, piece in enumerate(pieces)}, [unknown]
        lengths: dict[int, set[int]] = collections.defaultdict(set)
        for piece in pieces:
            lengths[piece[0]].add(len(piece))
        # By the first byte of pieces, the largest first.
        self._lengths = {first: sorted(sizes, reverse=True) for first, sizes in lengths.items()}

    def tokenize(self, text) -> tf.RaggedTensor:
        """Divides text: [B] string → [B, (length)] int32."""
        return _in_python(lambda lines: list(map(self._divide, lines)), text, tf.int32)

    def _divide(self, line: bytes) -> list[int]:
        ids, start = [], 0
        while start < len(line):
            fitting = (line[start : start + length] for length in self._lengths.get(line[start], ()))
            piece = next((piece for piece in fitting if piece in self._ids), None)
            if piece is None:
                return self._unknown
            ids.append(self._ids[piece])
            start += len(piece)
        return ids


class _LongestMatchOperation(tf.Module):
    """Takes the longest pieces by an operation of TF.Text."""

    def __init__(self, pieces: Sequence[bytes], unknown: int):
        super().__init__()
        pieces = [piece.translate(_IN_OPERATION) for piece in pieces]
        self._operation = tf_text.FastWordpieceTokenizer(
            pieces,
            suffix_indicator="",  # The same pieces at the beginning of the line and after it.
            max_bytes_per_word=2**31 - 1,
            token_out_type=tf.int32,
            unknown_token=pieces[unknown],
            no_pretokenization=True,  # The line is one word. The spaces are in the pieces.
        )

    def tokenize(self, text) -> tf.RaggedTensor:
        """Divides text: [B] string → [B, (length)] int32."""
        for byte, replacement in _REPLACED.items():
            text = tf.strings.regex_replace(text, f"\\x{byte:02x}", bytes([replacement]))
        return self._operation.tokenize(text)


def _in_python(divide: Callable[[list[bytes]], list[list]], text, dtype: tf.DType) -> tf.RaggedTensor:
    """Returns what a function of Python makes of lines, inside a graph: [B] string → [B, (length)] of `dtype`."""

    def flat(lines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = divide(lines.tolist())
        values = np.array(list(itertools.chain.from_iterable(rows)), dtype.as_numpy_dtype)
        return values, np.array(list(map(len, rows)), np.int64)

    return ragged(tf.numpy_function(flat, [text], [dtype, tf.int64], stateful=False))


def ragged(values_and_lengths: Sequence) -> tf.RaggedTensor:
    """Returns the rows that a function of Python gives as the values of all, [N], and the length of each, [B] int64."""
    values, lengths = (tf.ensure_shape(each, [None]) for each in values_and_lengths)
    return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)
