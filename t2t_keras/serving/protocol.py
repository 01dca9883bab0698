"""What goes to the signatures of an export, and what comes back, without TensorFlow."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from t2t_keras.text import piece_file
from t2t_keras.text.lines import one_line
from t2t_keras.text.phrases import joined
from t2t_keras.text.request import Request
from t2t_keras.text.spelling import by_word


class Int64(int):
    """A whole number that a signature takes in 64 bits; others have 32."""


OWN_ALPHA = -1.0  # Selects the α of the model.
MAX_DRAWS = 1000
# The inputs of two signatures beside `text`, in their order, as they are if no option is given. Their types are those
# of the signature; see `Signatures` for their meaning.
OPTIONS = {
    "alpha": OWN_ALPHA,
    "max_length": 0,
    "n_best": 1,
    "prefix": "",
    "alignment": False,
    "constraints": "",
    "avoid": "",
    "ordered": False,
}
SAMPLES = {"seed": Int64(0), "draws": 1, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_length": 0}

SCORES = ("words", "word_scores", "pieces", "piece_scores")  # Fields of a `Translation`.


def options_for(requests: Sequence[Request], **options) -> dict[str, list]:
    """Returns the inputs of `translate_with_options` for sentences with their own phrases, and with values of `OPTIONS`
    for all. Raises `ValueError` if a phrase is not text on one line, or there are too many.
    """
    inputs = {name: [value] * len(requests) for name, value in (OPTIONS | options).items()}
    inputs["constraints"] = [request.all_required for request in requests]
    inputs["avoid"] = [joined(request.excluded, "avoid") for request in requests]
    inputs["ordered"] = [request.ordered for request in requests]
    return {"text": [request.text for request in requests], **inputs}


@dataclasses.dataclass(frozen=True)
class Translation:
    """A translation of a sentence.

    Attributes:
        text: the translation.
        score: log P(Y | X) / lp(Y), see section 6.1; of a sample log P(Y | X).
        pieces: sub-words of the translation, then the end token, which a translation that was cut at the maximum length
            has only with `word_scores`; none for a blank sentence, or without an alignment or `word_scores`.
        source_pieces: sub-words of the source with the end token; none without an alignment.
        alignment: [pieces, source_pieces] float32, the attention weights of each piece over the source pieces, which
            sum to 1, or are 0 if the architecture does not align; `None` unless requested.
        constraints_met: whether the translation contains all its constraints.
        truncated: whether only the beginning of the source was translated; see `max_input` of `DecodeConfig`.
        words: the words of the translation, which spaces separate; none unless `word_scores` are requested.
        word_scores: log P of each, given the source and the words before it: the sum over its sub-words.
        piece_scores: log P of each sub-word and of the end token, with the sum log P(Y | X); none if the alignment is
            that of other sub-words of the same text.
        doubtful: whether a word outside its terms is much less likely than every word of the translation without terms;
            see `serving.terms`.
    """

    text: str
    score: float
    pieces: tuple[str, ...] = ()
    source_pieces: tuple[str, ...] = ()
    alignment: np.ndarray | None = None
    constraints_met: bool = True
    truncated: bool = False
    doubtful: bool = False
    words: tuple[str, ...] = ()
    word_scores: tuple[float, ...] = ()
    piece_scores: tuple[float, ...] = ()

    def with_scores(self, pieces: Sequence[str], log_probs: Sequence[float]) -> "Translation":
        """Returns the translation with scores of its words, from the T sub-words of its text, end token included, and
        log P of each, [T or more]. A blank translation gets no scores. Neither does one with bytes that are not UTF-8,
        because its text has other sub-words than were found.
        """
        if not self.text or "\ufffd" in self.text:
            return self
        first = int(bool(piece_file.TAG.fullmatch(pieces[0])))  # The language of a multilingual model.
        pieces, scores = tuple(pieces), tuple(map(float, log_probs[: len(pieces)]))
        words, word_scores = by_word(pieces[first:-1], scores[first:-1], self.text)
        of_pieces = {"pieces": pieces, "piece_scores": scores} if self.pieces in ((), pieces) else {}
        return dataclasses.replace(self, words=words, word_scores=word_scores, **of_pieces)

    def as_json(self) -> dict:
        """Returns the fields as values of JSON."""
        alignment = None if self.alignment is None else self.alignment.tolist()
        return {**vars(self), "alignment": alignment}


def translations(outputs: Mapping, n_best: int, alignment: bool) -> list[list[Translation] | str]:
    """Converts outputs of `translate_with_options`, arrays or lists with texts as str or bytes. Returns for each
    sentence its `n_best` translations, with their alignments if these were asked for, or its error.
    """

    def pieces(values) -> tuple[str, ...]:
        return tuple(as_text(piece) for piece in values if piece)

    def translation(row: int, beam: int) -> Translation:
        fields = {}
        if alignment:
            fields["pieces"] = pieces(outputs["pieces"][row][beam])
            fields["source_pieces"] = pieces(outputs["source_pieces"][row])
            weights = np.asarray(outputs["alignment"][row][beam], np.float32)
            fields["alignment"] = weights[: len(fields["pieces"]), : len(fields["source_pieces"])]
        return Translation(
            as_line(outputs["text"][row][beam]),
            float(outputs["score"][row][beam]),
            constraints_met=bool(outputs["constraints_met"][row][beam]),
            # An older export does not have it.
            truncated=bool(outputs["truncated"][row]) if "truncated" in outputs else False,
            **fields,
        )

    return [
        as_text(error) if error else [translation(row, beam) for beam in range(n_best)]
        for row, error in enumerate(outputs["error"])
    ]


def as_text(value: str | bytes) -> str:
    """Returns a text of an output, which may be in bytes."""
    return value if isinstance(value, str) else value.decode(errors="replace")


def as_line(value: str | bytes) -> str:
    """Returns a translation of an output, with a space in place of each line end, which may be among its sub-words."""
    return one_line(as_text(value))


def merged(translations: Sequence[Translation]) -> list[Translation]:
    """Returns an n-best list without translations whose text is that of a better one, in other sub-words."""
    texts = [translation.text for translation in translations]
    return [translation for place, translation in enumerate(translations) if translation.text not in texts[:place]]
