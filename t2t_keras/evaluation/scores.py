"""Scores (section 6.1): sacreBLEU with its signature, chrF, ROUGE, and BLEU as the paper's authors counted it.

Every score takes one or more lists of references, each with one reference for each translation. Blank lines count as in
sacreBLEU.
"""

import collections
import math
import re
import unicodedata
from collections.abc import Callable, Sequence

import sacrebleu
import sacremoses

from t2t_keras.evaluation import significance
from t2t_keras.system.log import logger
from t2t_keras.text.kept import Kept
from t2t_keras.text.lines import is_blank
from t2t_keras.text.phrases import apart, folded
from t2t_keras.text.scripts import is_unspaced
from t2t_keras.text.terminology import Terms

_ROUGE = ("rouge1", "rouge2", "rougeL")


def require(*, tokenize: str = "13a", compound_split: str = "", rouge: bool = False) -> None:
    """Raises `ValueError` if scores cannot be computed, before the work of translating: the tokenizer is unknown, or
    the language of `compound_split_bleu`, or a package is missing.
    """
    bleu_metric(tokenize=tokenize)
    if compound_split:
        _moses(compound_split)
    if rouge:
        _rouge_scorer()


def scores(
    hypotheses: list[str], *references: list[str], lowercase: bool = False, tokenize: str = "13a", samples: int = 0
) -> dict:
    """Computes all scores of a corpus: the results of `bleu` and `chrf`, "exact_match" and "sentences".

    "exact_match" is the share of translations that equal one of their references; blank references do not count,
    unless all are blank. Confidence intervals that take more memory than is free are left out, with a warning.
    """
    samples, _ = significance.affordable(len(hypotheses), samples)
    if tokenize in ("13a", "intl") and is_unspaced(line for lines in references for line in lines):
        logger.warning(
            f"BLEU with `tokenize={tokenize}` counts words between spaces, which the script of the references does not "
            "have: choose `tokenize=zh`, ja-mecab or char."
        )
    exact = sum(
        hypothesis in ([line for line in known if not is_blank(line)] or known)
        for hypothesis, *known in zip(hypotheses, *references, strict=True)
    )
    return {
        **bleu(hypotheses, *references, lowercase=lowercase, tokenize=tokenize, samples=samples),
        **chrf(hypotheses, *references, lowercase=lowercase, samples=samples),
        "exact_match": exact / len(hypotheses),
        "sentences": len(hypotheses),
    }


def term_accuracy(hypotheses: list[str], sources: list[str], terms: Terms, kept: Kept) -> dict:
    """Returns the number of "terms" in the sources, without those in what is kept, and "term_accuracy": the share that
    the hypotheses translate as the terms have it, ignoring case.
    """
    number = right = 0
    for hypothesis, source in zip(hypotheses, sources, strict=True):
        wanted = collections.Counter(folded(term.translation) for term in terms.of(source, (kept,)))
        written = collections.Counter(phrase for _, phrase in apart(folded(hypothesis), wanted))
        number, right = number + wanted.total(), right + (wanted & written).total()
    return {"terms": number, "term_accuracy": right / number if number else math.nan}


def exactly_right(rows: list[tuple[str, str, str]], max_words: float = math.inf) -> list[bool]:
    """Returns whether each translation equals its reference, of rows (source, translation, reference) with at most
    `max_words` words in the source.
    """
    return [hypothesis == reference for source, hypothesis, reference in rows if len(source.split()) <= max_words]


def bleu(
    hypotheses: list[str], *references: list[str], lowercase: bool = False, tokenize: str = "13a", samples: int = 0
) -> dict:
    """Computes sacreBLEU of a corpus, given one or more lists of references, the name of a sacreBLEU tokenizer, and a
    number of bootstrap samples for a confidence interval; 0: none.

    Returns:
        {"bleu": 0 to 100, "signature": the settings that a comparison needs}. With samples also "bleu_mean", their mean
        score, and "bleu_margin": the 95% confidence interval is "bleu_mean" ± "bleu_margin".
    """
    metric = bleu_metric(lowercase=lowercase, tokenize=tokenize)
    score, signature = _estimate("bleu", metric, hypotheses, references, samples)
    return {**score, "signature": signature}


def chrf(hypotheses: list[str], *references: list[str], lowercase: bool = False, samples: int = 0) -> dict:
    """Computes chrF2 of a corpus with sacreBLEU: {"chrf": 0 to 100, "chrf_signature"}; with samples as `bleu`."""
    score, signature = _estimate("chrf", chrf_metric(lowercase=lowercase), hypotheses, references, samples)
    return {**score, "chrf_signature": signature}


def rouge(hypotheses: list[str], *references: list[str]) -> dict:
    """Computes ROUGE-1, ROUGE-2 and ROUGE-L with rouge-score, without stemming: {"rouge1_recall", "rouge1_f1", …}, 0 to
    100.

    Words are letters and digits, whose case does not count. Each score is the mean over sentences. Recall is the
    definition of ROUGE-N (Lin, 2004, equation 1); F1 also penalises long translations. If a sentence has several
    references, its best recall and its best F1 count.
    """
    check(hypotheses, references)
    scorer = _rouge_scorer()
    found = [
        [scorer.score(reference, hypothesis) for reference in known]
        for hypothesis, *known in zip(hypotheses, *references, strict=True)
    ]
    return {
        f"{name}_{measure}": 100
        * sum(max(getattr(score[name], field) for score in sentence) for sentence in found)
        / len(found)
        for name in _ROUGE
        for measure, field in (("recall", "recall"), ("f1", "fmeasure"))
    }


def compound_split_bleu(
    hypotheses: list[str], *references: list[str], language: str, lowercase: bool = False, samples: int = 0
) -> dict:
    """Computes BLEU of Moses tokens with compounds split at hyphens, as in the paper's 27.3 and 28.4.

    It is up to 1.5 points above sacreBLEU of the same text (tensor2tensor issue 317), so the two are not comparable.
    The paper's authors did not ignore case. `language` is a code of Moses; for the others see `bleu`.
    """
    tokenize = _moses(language)

    def split(lines: list[str]) -> list[str]:
        tokenized = (tokenize(line, return_str=True, escape=False) for line in lines)
        return [re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line) for line in tokenized]

    hypotheses, *references = map(split, (hypotheses, *references))
    metric = bleu_metric(lowercase=lowercase, tokenize="none")
    return _estimate("compound_split_bleu", metric, hypotheses, references, samples)[0]


def _estimate(
    name: str, metric, hypotheses: list[str], references: Sequence[list[str]], samples: int
) -> tuple[dict, str]:
    """Computes {NAME, NAME_mean, NAME_margin}, the latter two with samples only, and the signature."""
    check(hypotheses, references)
    [found], signature = significance.estimates(metric, [hypotheses], references, samples=samples)
    of_samples = {} if found.mean is None else {f"{name}_mean": found.mean, f"{name}_margin": found.margin}
    return {name: found.score, **of_samples}, signature


def chrf_metric(lowercase: bool = False) -> sacrebleu.CHRF:
    """Returns sacreBLEU's chrF2."""
    return sacrebleu.CHRF(lowercase=lowercase)


def bleu_metric(**options) -> sacrebleu.BLEU:
    """Returns sacreBLEU's BLEU with its options. Raises `ValueError` for an unknown or not installed tokenizer."""
    if options["tokenize"] not in sacrebleu.BLEU.TOKENIZERS:
        raise ValueError(
            f"`tokenize` must be one of {', '.join(sacrebleu.BLEU.TOKENIZERS)}. Received: {options['tokenize']}."
        )
    try:
        return sacrebleu.BLEU(**options)
    except (ImportError, RuntimeError) as error:
        # The package of the tokenizer is missing. The message has several lines.
        raise ValueError(
            f"tokenize={options['tokenize']} does not work here. sacreBLEU reports: {' '.join(str(error).split())}"
        ) from error


def _moses(language: str) -> Callable:
    known = sacremoses.corpus.NonbreakingPrefixes().available_langs.values()
    if language not in known:  # Moses would silently use English.
        raise ValueError(
            f"`compound_split` must be a language code of Moses: {', '.join(sorted(set(known)))}. Received: {language}."
        )
    return sacremoses.MosesTokenizer(lang=language).tokenize


def _rouge_scorer():
    try:
        from rouge_score import rouge_scorer
    except ImportError as error:
        raise ValueError(
            "ROUGE needs rouge-score: pip install 't2t_keras[rouge]', or -e '.[rouge]' in a checkout."
        ) from error
    return rouge_scorer.RougeScorer(list(_ROUGE), tokenizer=_Words())


class _Words:
    """The words of ROUGE: letters with their marks, and digits, of any script. The tokenizer of rouge-score knows those
    of ASCII only.
    """

    def tokenize(self, text: str) -> list[str]:
        return "".join(each if unicodedata.category(each)[0] in "LMN" else " " for each in text.lower()).split()


def check(hypotheses: list[str], references: Sequence[list[str]]) -> None:
    """Raises `ValueError` unless there are translations, or sources that are to be translated, and a reference for each
    in every list.
    """
    if not hypotheses or not references:
        raise ValueError("Expected at least one sentence to score and one reference. Received: none.")
    for reference in references:
        if len(hypotheses) != len(reference):
            raise ValueError(
                f"Expected one reference for each translation. Received: {len(hypotheses)} translation(s), "
                f"{len(reference)} reference(s)."
            )
