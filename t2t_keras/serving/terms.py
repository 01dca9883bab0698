"""Terms that replace: what a model would write for a term by itself is forbidden where its translation must appear.

A search without the terms finds these words by the alignment. If it has all terms by itself, its translation stands.
Otherwise the words outside of the terms are compared with it: where one is much less likely, a translation is doubtful.

A model that was trained with terms reads them in the source instead, and nothing is required of the search.

Letters: T sub-words of a translation.
"""

import collections
import dataclasses
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence

from t2t_keras.serving.protocol import Translation, as_text, options_for, translations
from t2t_keras.text import piece_file
from t2t_keras.text.inline_terms import has_form
from t2t_keras.text.lines import single_spaced
from t2t_keras.text.phrases import (
    JOINER,
    MAX_PHRASES,
    MAX_SUBWORDS,
    apart,
    folded,
    holds,
    most_subwords,
    places,
    with_capital,
)
from t2t_keras.text.request import Request
from t2t_keras.text.scripts import in_word
from t2t_keras.text.spelling import text_and_ends, words_of
from t2t_keras.text.tags import untagged
from t2t_keras.text.terminology import Term

# The least share of its attention that a word has on a term that it is a translation of. In translations of Multi30k it
# is 0.4 to 1 for nouns, and 0.3 for the articles beside them.
ALIGNED = 0.4
# Sentences to align at once: `translate_with_options` has a limit of sentences times beams.
MAX_ALIGNED_BEAMS = 1024
# As many translations may be scored at once, or as there are requests: a server may refuse larger batches.
MIN_SCORED = 32

# How much log P the least likely sub-word outside of the terms may lose. Of 96 translations of Multi30k, 8 lost more,
# up to 8.5, and all of these were wrong. The mean of the sub-words tells less: one wrong word is among good ones.
DOUBTFUL = 3.0

# How an error begins about a sentence that is too long for an alignment, but not for a translation.
NOT_ALIGNED = "alignment: "
# Sources and targets → the sub-words of each target with its end token, [T], and log P of each, [T].
Score = Callable[[Sequence[str], Sequence[str]], list[tuple[Sequence[str], Sequence[float]]]]
# (requests, number of translations, whether to align) → the translations of each, or an error.
Search = Callable[[Sequence[Request], int, bool], list[list[Translation] | str]]


def translate(
    search: Search,
    score: Score,
    requests: Sequence[Request],
    n_best: int,
    *,
    alignment: bool = False,
    beam_size: int = 32,
) -> list[list[Translation] | str]:
    """Returns the translations of each sentence with terms, or its error; see `predicted`. Sentences without terms are
    searched once.
    """
    inline = {place: request for place, request in enumerate(requests) if request.annotated}
    requests = [
        dataclasses.replace(each, text=each.annotated, avoid=each.excluded, terms=()) if each.annotated else each
        for each in requests
    ]
    found, at_once = [], max(MAX_ALIGNED_BEAMS // beam_size, 1)
    with_terms = [place for place, request in enumerate(requests) if request.terms]
    for first in range(0, len(with_terms), at_once):
        plain = [dataclasses.replace(requests[place], terms=()) for place in with_terms[first : first + at_once]]
        found += search(plain, 1, True)
    standing: dict[int, list[Translation]] = {}
    compared: dict[int, str] = {}  # Translations without the terms.
    for place, row in zip(with_terms, found, strict=True):
        if isinstance(row, str):  # Such as a sentence that is too long for an alignment.
            continue
        request, [best] = requests[place], row
        if n_best == 1 and is_as_asked(best, request):
            nothing = {"pieces": (), "source_pieces": (), "alignment": None}
            standing[place] = [best if alignment else dataclasses.replace(best, **nothing)]
        else:
            requests[place] = with_replaced_words(request, best)
            compared[place] = best.text
    others = iter(())
    if searched := [request for place, request in enumerate(requests) if place not in standing]:
        others = iter(search(searched, n_best, alignment))
    rows = [standing[place] if place in standing else next(others) for place in range(len(requests))]
    for place, request in inline.items():
        if not isinstance(rows[place], str):
            rows[place] = [_checked(translation, request.terms) for translation in rows[place]]
    compared = {place: text for place, text in compared.items() if not isinstance(rows[place], str)}
    return _with_doubts(score, rows, requests, compared) if compared else rows


def _checked(translation: Translation, of_sentence: Sequence[Term]) -> Translation:
    """Returns a translation that tells whether it has a form of the translation of each term."""
    met = all(has_form(translation.text, term.translation) for term in of_sentence)
    return dataclasses.replace(translation, constraints_met=translation.constraints_met and met)


def predicted(
    predict: Callable[[str, dict[str, list]], Mapping],
    requests: Sequence[Request],
    n_best: int = 1,
    *,
    alignment: bool = False,
    word_scores: bool = False,
    lenient: bool = False,
    beam_size: int = 32,
    **options,
) -> list[list[Translation] | str]:
    """Translates sentences by the signatures of a model.

    Args:
        predict: takes the name of a signature and its inputs; returns its outputs, as arrays or lists.
        requests: the sentences.
        n_best: number of translations of each.
        alignment: whether to return alignments.
        word_scores: whether to return scores of words.
        lenient: whether a sentence that is too long for an alignment has none, in place of an error.
        beam_size: W of the search.
        options: values of `protocol.OPTIONS` for all sentences.

    Returns:
        The translations of each sentence, best first, or its error.
    """
    # The language of the translations, where it is not the model's.
    tag = piece_file.TAG.match(options.get("prefix", ""))

    def search(requests: Sequence[Request], n_best: int, alignment: bool) -> list[list[Translation] | str]:
        inputs = options_for(requests, **options, n_best=n_best, alignment=alignment)
        found = translations(predict("translate_with_options", inputs), n_best, alignment)
        too_long = [isinstance(row, str) and row.startswith(NOT_ALIGNED) for row in found]
        if lenient and any(too_long):
            again = iter(search([requests[place] for place, cut in enumerate(too_long) if cut], n_best, False))
            found = [next(again) if cut else row for row, cut in zip(found, too_long, strict=True)]
        return found

    def score(sources: Sequence[str], targets: Sequence[str]) -> list[tuple[Sequence[str], Sequence[float]]]:
        targets = [f"{tag[0] if tag else ''}{target}" for target in targets]
        found, at_once = [], max(len(requests), MIN_SCORED)
        for first in range(0, len(targets), at_once):
            rows = slice(first, first + at_once)
            outputs = predict("score", {"source": list(sources[rows]), "target": targets[rows]})
            scored = zip(outputs["pieces"], outputs["token_log_probs"], strict=True)
            found += [([as_text(piece) for piece in pieces if piece], values) for pieces, values in scored]
        return found

    rows = translate(search, score, requests, n_best, alignment=alignment, beam_size=beam_size)
    return _with_word_scores(score, rows, requests) if word_scores else rows


def _with_word_scores(score: Score, rows: list, requests: Sequence[Request]) -> list:
    """Adds the scores of words to the translations of each sentence."""
    texts = [
        (request.annotated or request.text, each.text)
        for request, row in zip(requests, rows, strict=True)
        for each in ([] if isinstance(row, str) else row)
    ]
    scored = iter(score(*zip(*texts, strict=True)) if texts else [])
    return [row if isinstance(row, str) else [each.with_scores(*next(scored)) for each in row] for row in rows]


def _with_doubts(score: Score, rows: list, requests: Sequence[Request], plain: dict[int, str]) -> list:
    """Marks what is doubtful in the translations of each sentence; `plain` has, by place, the translation without terms
    of those that are compared with it.
    """
    bare = {place: dataclasses.replace(requests[place], terms=()) for place in plain}
    texts = [(bare[place], text) for place, text in plain.items()]
    texts += [(requests[place], each.text) for place in plain for each in rows[place]]
    texts = [
        (request.text, [phrase.removeprefix(JOINER) for phrase in request.required], text) for request, text in texts
    ]
    sources, phrases, targets = zip(*texts, strict=True)
    least = map(least_outside, score(sources, targets), targets, phrases)
    expected = {place: next(least) for place in plain}
    doubts = {
        place: [dataclasses.replace(each, doubtful=expected[place] - next(least) > DOUBTFUL) for each in rows[place]]
        for place in plain
    }
    return [doubts.get(place, row) for place, row in enumerate(rows)]


def least_outside(scored: tuple[Sequence[str], Sequence[float]], target: str, phrases: Sequence[str]) -> float:
    """Returns the least log P of the sub-words of a translation that are not in phrases, and of the end token."""
    pieces, log_probs = scored
    if piece_file.TAG.fullmatch(pieces[0]):  # No source tells the language of the target.
        pieces, log_probs = pieces[1:], log_probs[1:]
    text, ends = text_and_ends(pieces[:-1], target)
    inside = [(start, start + len(phrase)) for start, phrase in apart(text, phrases)]
    outside = [
        log_prob
        for (start, end), log_prob in zip(ends, log_probs, strict=False)
        if not any(start < last and end > first for first, last in inside)
    ]
    return float(min([*outside, log_probs[len(pieces) - 1]]))


def is_as_asked(translation: Translation, request: Request) -> bool:
    """Returns whether a translation that was found without the terms has all of them, and nothing forbidden. The one
    that it begins with may have a capital letter.
    """
    text, request = translation.text, _as_begun(request, translation.text)
    wanted = collections.Counter(term.translation for term in request.terms)
    written = collections.Counter(phrase for _, phrase in apart(text, wanted))
    return (
        translation.constraints_met
        and not request.ordered
        and wanted <= written
        and not any(holds(text, form) for form in request.excluded)
    )


def _at_start(phrase: str, text: str) -> str:
    """Returns a phrase as it is at the beginning of a translation: with the capital letter that this begins
    with, if it is one of the phrase's first letter, such as a Turkish İ. One such as iPhone is the same.
    """
    if not re.match(r"\w*", phrase)[0].islower():
        return phrase
    first = text[_begin(text) :][:1]
    return first + phrase[1:] if first.lower()[:1] == phrase[:1] else with_capital(phrase)[-1]


def _begin(text: str) -> int:
    """Returns where the first word of a translation begins, after a tag and opening punctuation."""
    return len(text) - len(re.sub(r"""\A[\s"'“‘„«‹(\[¿¡–—-]*""", "", untagged(text, ())))


def _begins(text: str, term: Term) -> bool:
    return not term.is_own and _begin(text) in places(text, _at_start(term.translation, text))


def _as_begun(request: Request, text: str) -> Request:
    """Returns a request with a capital letter in the term, the longest, that a translation without the terms begins
    with so.
    """
    first = [number for number, term in enumerate(request.terms) if _begins(text, term)]
    longest = max(first, key=lambda number: len(request.terms[number].translation), default=None)
    return request if longest is None else _with_term_at_start(request, longest, text)


def _with_term_at_start(request: Request, number: int, text: str) -> Request:
    term = request.terms[number]
    return _with_term(request, number, term._replace(translation=_at_start(term.translation, text)))


def _with_term(request: Request, number: int, term: Term) -> Request:
    return dataclasses.replace(request, terms=[*request.terms[:number], term, *request.terms[number + 1 :]])


def with_replaced_words(request: Request, plain: Translation) -> Request:
    """Adds to the forbidden forms of a sentence's terms what its translation without them, with an alignment, has in
    their place. Words that it also has elsewhere are not forbidden. The term at its beginning gets a capital letter.
    """
    request = _as_begun(request, plain.text)
    if plain.alignment is None or not plain.pieces:
        return request
    source, source_ends = text_and_ends(plain.source_pieces[:-1], single_spaced(request.text))
    target, ends = text_and_ends(plain.pieces[:-1], plain.text)
    words, read = words_of(target, ends), _in_whole_words(source, single_spaced(request.text))
    begin = _begin(target)
    has_capital = target[begin:][:1].isupper() and not any(_begins(plain.text, each) for each in request.terms)
    replaced: dict[str, list[str]] = {term.source: [] for term in request.terms}
    for number, term in enumerate(request.terms):
        starts = list(places(read, term.source))
        start = starts[-1 - term.after] if term.after < len(starts) else len(source)
        of_term = [
            place
            for place, (first, last) in enumerate(source_ends)
            if first < start + len(term.source) and last > start and source[first:last].strip()
        ]
        for first, last in _aligned(plain.alignment, of_term, words, ends, target) if of_term else ():
            text = _stripped(target[first:last])
            replaced[term.source].append(text)
            if has_capital and text and target.find(text, first) == begin and not term.is_own:
                request = _with_term_at_start(request, number, target)
    return _with_forbidden(request, replaced, target)


def _aligned(
    alignment, of_term: list[int], words: list[tuple[int, int]], ends: list[tuple[int, int]], target: str
) -> Iterator[tuple[int, int]]:
    """Yields where words of a translation that stand for a term begin and end: those that are next to each other,
    hyphens between them included, as one.

    Args:
        alignment: the share of each source piece in each piece of the translation, [pieces + 1, source pieces + 1].
        of_term: the places of the source pieces of the term.
        words: the first piece of each word of the translation, and the one after its last.
        ends: where each piece of the translation begins and ends in `target`, its text.
    """
    shares = alignment[:, of_term].sum(axis=1)
    run: list[int] = []
    for first, last in words:
        begin, end = ends[first][0], ends[last - 1][1]
        is_aligned = alignment[first:last].sum(axis=0).argmax() in of_term and shares[first:last].mean() >= ALIGNED
        if is_aligned:
            run = [run[0] if run else begin, end]
        elif run and _stripped(target[begin:end]):  # Hyphens, for example, are passed.
            yield run[0], run[1]
            run = []
    if run:
        yield run[0], run[1]


def _with_forbidden(request: Request, replaced: dict[str, list[str]], target: str) -> Request:
    """Adds to the forbidden forms of each term what stands for it in a translation without the terms, `target`, unless
    that has it elsewhere too, or another phrase needs it. `replaced` has these words by the source of the term.
    """
    found = collections.Counter(text for texts in replaced.values() for text in texts)
    required = [folded(phrase) for phrase in request.required]
    for place, term in enumerate(request.terms):
        forms = list(term.forbidden)
        for text in dict.fromkeys(replaced[term.source]):
            if not text or most_subwords(text) > MAX_SUBWORDS:
                continue
            if any(holds(phrase, folded(text)) for phrase in required):
                continue
            if sum(1 for _ in places(target, text)) <= found[text]:
                at_start = target.startswith(text, _begin(target))
                lowered = text[:1].lower() + text[1:]
                forms.append(lowered if at_start and text in with_capital(lowered) else text)
        longer = _with_term(request, place, term._replace(forbidden=tuple(forms)))
        if len(longer.excluded) <= MAX_PHRASES:
            request = longer
    return request


def _in_whole_words(read: str, text: str) -> str:
    """Returns what is read of a text without a part of a word at its end, which may look like a term."""
    end = len(read.strip())
    if not text.startswith(read.strip()) or not in_word(text[end : end + 1]):
        return read
    end = len(read.rstrip())
    while in_word(read[max(end - 1, 0) : end]):
        end -= 1
    return read[:end]


def _stripped(text: str) -> str:
    """Returns a text without what is no letter, mark or digit at its ends."""
    inside = [place for place, character in enumerate(text) if unicodedata.category(character)[0] in "LMN"]
    return text[inside[0] : inside[-1] + 1] if inside else ""
