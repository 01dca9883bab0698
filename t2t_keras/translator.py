"""Text in, text and scores out (section 6.1): the one object that scores BLEU, translates on the command line and is served."""

from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf

from t2t_keras.beam_search import beam_search
from t2t_keras.config import BOS, EOS, DecodeConfig
from t2t_keras.tokenizer import Tokenizer


class Translator(tf.Module):
    """A model, its sub-words and beam search.

    Args:
        model: a `Transformer`: anything with `encode`, `decode` and `empty_cache`.
        tokenizer: the sub-words it was trained with.
        config: how to search.
    """

    def __init__(self, model, tokenizer: Tokenizer, config: DecodeConfig):
        super().__init__(name="translator")
        self.model, self.tokenizer, self.config = model, tokenizer, config

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def n_best(self, text):
        """[B] string → {"text": [B, W] string, "score": [B, W] float32}, best first. A blank line gives empty lines of score 0."""
        ids = self.tokenizer.tokenize(text, max_length=self.config.max_input)
        source, length = ids.to_tensor(), tf.cast(ids.row_lengths(), tf.int32)
        sequences, scores = self._search(source, length)
        batch, beams, _ = tf.unstack(tf.shape(sequences))
        written = tf.RaggedTensor.from_tensor(tf.reshape(sequences, [batch * beams, -1]))
        texts = tf.reshape(self.tokenizer.detokenize(written), [batch, beams])
        blank = length == 1
        return {"text": tf.where(blank[:, None], "", texts), "score": tf.where(blank[:, None], 0.0, scores)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, text):
        """[B] string → {"text": [B] string, "score": [B] float32}."""
        return {name: values[:, 0] for name, values in self.n_best(text).items()}

    def _search(self, source, length):
        """Source ids [B, S], their lengths [B] → `beam_search`'s result."""
        config, model = self.config, self.model
        rows = tf.shape(source)[0] * config.beam_size
        memory = tf.nest.map_structure(lambda x: tf.repeat(x, config.beam_size, axis=0), model.encode(source))

        def step(tokens, position, cache):
            logits, cache = model.decode(tokens[:, None], memory, cache=cache, position=position)
            return logits[:, 0], cache

        return beam_search(
            step,
            model.empty_cache(rows),
            tf.fill([tf.shape(source)[0]], BOS),
            eos_id=EOS,
            beam_size=config.beam_size,
            max_length=length + config.extra_length,
            alpha=config.alpha,
        )


def _line(text: bytes) -> str:
    """A model may write any byte. A line end would put all that follows beside the wrong source."""
    return text.decode("utf-8", "replace").replace("\n", " ")


def translate_lines(translate: Callable, lines: Iterable[str], *, batch_size: int = 64, read_ahead: int = 4096) -> Iterator[dict]:
    """Translates line by line, in order, however many there are.

    Lines are read ahead, sorted by length so that a batch has little padding, and given back in their own order.

    Args:
        translate: a `Translator` or its `n_best`.
        lines: sentences.
        batch_size: sentences at once.
        read_ahead: lines held at once.

    Yields:
        What `translate` returns for each line: {"text": str or list of str, "score": float or list of float}.
    """
    lines = iter(lines)
    while ahead := [line for _, line in zip(range(read_ahead), lines, strict=False)]:
        order = sorted(range(len(ahead)), key=lambda i: len(ahead[i]))
        results: list = [None] * len(ahead)
        for first in range(0, len(order), batch_size):
            chosen = order[first : first + batch_size]
            output = translate(tf.constant([ahead[i] for i in chosen]))
            texts, scores = output["text"].numpy(), output["score"].numpy().tolist()
            for row, index in enumerate(chosen):
                text = [_line(t) for t in texts[row]] if texts.ndim == 2 else _line(texts[row])
                results[index] = {"text": text, "score": scores[row]}
        yield from results
