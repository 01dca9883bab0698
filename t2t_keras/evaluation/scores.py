"""Scores (section 6.1): sacreBLEU with its signature, chrF, ROUGE, and BLEU as the paper's authors counted it.

Every score takes one reference for each translation, or several: as many lists of them. A blank line counts as sacreBLEU counts it.
"""

import math
import re
from collections.abc import Callable

import sacrebleu
import sacremoses

_ROUGE = ("rouge1", "rouge2", "rougeL")


def require(*, tokenize: str = "13a", compound_split: str = "", rouge: bool = False) -> None:
    """Finds out whether scores can be counted here, before there is anything to score.

    Args:
        tokenize: of `bleu`.
        compound_split: the language for `compound_split_bleu`; empty: none is wanted.
        rouge: whether `rouge` is wanted.

    Raises:
        ValueError: no such tokenisation or language, or a package is missing.
    """
    _bleu(tokenize=tokenize)
    if compound_split:
        _moses(compound_split)
    if rouge:
        _rouge_scorer()


def scores(hypotheses: list[str], *references: list[str], lowercase: bool = False, tokenize: str = "13a") -> dict:
    """{"bleu", "signature", "chrf", "chrf_signature", "exact_match": share equal to one of their references, "sentences"}."""
    exact = sum(hypothesis in known for hypothesis, *known in zip(hypotheses, *references, strict=True))
    return {
        **bleu(hypotheses, *references, lowercase=lowercase, tokenize=tokenize),
        **chrf(hypotheses, *references, lowercase=lowercase),
        "exact_match": exact / len(hypotheses),
        "sentences": len(hypotheses),
    }


def exactly_right(rows: list[tuple[str, str, str]], most_words: float = math.inf) -> list[bool]:
    """Whether each translation equals its reference, for (source, translation, reference) rows of at most so many source words."""
    return [hypothesis == reference for source, hypothesis, reference in rows if len(source.split()) <= most_words]


def bleu(hypotheses: list[str], *references: list[str], lowercase: bool = False, tokenize: str = "13a") -> dict:
    """sacreBLEU of a corpus: {"bleu": 0 to 100, "signature": what makes the figure comparable}."""
    _check(hypotheses, references)
    metric = _bleu(lowercase=lowercase, tokenize=tokenize)
    return {"bleu": metric.corpus_score(hypotheses, references).score, "signature": str(metric.get_signature())}


def chrf(hypotheses: list[str], *references: list[str], lowercase: bool = False) -> dict:
    """chrF2 of a corpus, from sacreBLEU."""
    _check(hypotheses, references)
    metric = sacrebleu.CHRF(lowercase=lowercase)
    return {"chrf": metric.corpus_score(hypotheses, references).score, "chrf_signature": str(metric.get_signature())}


def rouge(hypotheses: list[str], *references: list[str]) -> dict:
    """Mean ROUGE-1, -2 and -L F1 of sentences, by the best of their references, 0 to 100, from rouge-score without stemming."""
    _check(hypotheses, references)
    scorer = _rouge_scorer()
    found = [scorer.score_multi(known, hypothesis) for hypothesis, *known in zip(hypotheses, *references, strict=True)]
    return {name: 100 * sum(score[name].fmeasure for score in found) / len(found) for name in _ROUGE}


def compound_split_bleu(hypotheses: list[str], *references: list[str], language: str) -> dict:
    """BLEU of Moses tokens with compounds split at hyphens, as behind the paper's 27.3 and 28.4.

    It is up to 1.5 points above sacreBLEU of the same text (tensor2tensor issue 317): never compare one with the other.
    """
    tokenize = _moses(language)

    def split(lines: list[str]) -> list[str]:
        return [re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokenize(line, return_str=True, escape=False)) for line in lines]

    return {"compound_split_bleu": bleu(*map(split, (hypotheses, *references)), tokenize="none")["bleu"]}


def _bleu(**options) -> sacrebleu.BLEU:
    if options["tokenize"] not in sacrebleu.BLEU.TOKENIZERS:
        raise ValueError(f"tokenize must be one of {', '.join(sacrebleu.BLEU.TOKENIZERS)}. Received: {options['tokenize']}.")
    try:
        return sacrebleu.BLEU(**options)
    except (ImportError, RuntimeError) as error:  # Of a tokenizer whose package is missing; its words have several lines.
        raise ValueError(f"tokenize={options['tokenize']} cannot be used here. sacreBLEU says: {' '.join(str(error).split())}") from error


def _moses(language: str) -> Callable:
    known = set(sacremoses.corpus.NonbreakingPrefixes().available_langs.values())
    if language not in known:  # Moses would take it for English.
        raise ValueError(f"compound_split must be a language code of Moses: {', '.join(sorted(known))}. Received: {language}.")
    return sacremoses.MosesTokenizer(lang=language).tokenize


def _rouge_scorer():
    try:
        from rouge_score import rouge_scorer
    except ImportError as error:
        raise ValueError("ROUGE needs the package rouge-score: pip install rouge-score") from error
    return rouge_scorer.RougeScorer(list(_ROUGE), use_stemmer=False)


def _check(hypotheses: list[str], references: tuple[list[str], ...]) -> None:
    if not hypotheses or not references:
        raise ValueError("Expected at least one sentence to score, and one reference. Received: none.")
    for reference in references:
        if len(hypotheses) != len(reference):
            raise ValueError(f"Expected a reference for each translation. Received: {len(hypotheses)} and {len(reference)}.")
