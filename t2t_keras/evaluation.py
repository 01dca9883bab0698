"""Scores (section 6.1): sacreBLEU with its signature, chrF, ROUGE, and BLEU as the paper's authors counted it."""

import re

import sacrebleu
import sacremoses


def bleu(hypotheses: list[str], references: list[str], *, lowercase: bool = False, tokenize: str = "13a") -> dict:
    """sacreBLEU of a corpus: {"bleu": 0 to 100, "signature": what makes the figure comparable}."""
    _check(hypotheses, references)
    if tokenize not in sacrebleu.BLEU.TOKENIZERS:
        raise ValueError(f"tokenize must be one of {', '.join(sacrebleu.BLEU.TOKENIZERS)}. Received: {tokenize}.")
    metric = sacrebleu.BLEU(lowercase=lowercase, tokenize=tokenize)
    return {"bleu": metric.corpus_score(hypotheses, [references]).score, "signature": str(metric.get_signature())}


def chrf(hypotheses: list[str], references: list[str], *, lowercase: bool = False) -> dict:
    """chrF2 of a corpus, from sacreBLEU."""
    _check(hypotheses, references)
    metric = sacrebleu.CHRF(lowercase=lowercase)
    return {"chrf": metric.corpus_score(hypotheses, [references]).score, "chrf_signature": str(metric.get_signature())}


def rouge(hypotheses: list[str], references: list[str]) -> dict:
    """Mean ROUGE-1, -2 and -L F1 of sentences, 0 to 100, from rouge-score without stemming."""
    try:
        from rouge_score import rouge_scorer
    except ImportError as error:
        raise ValueError("ROUGE needs the package rouge-score: pip install rouge-score") from error
    _check(hypotheses, references)
    names = ["rouge1", "rouge2", "rougeL"]
    scorer = rouge_scorer.RougeScorer(names, use_stemmer=False)
    scores = [scorer.score(reference, hypothesis) for hypothesis, reference in zip(hypotheses, references, strict=True)]
    return {name: 100 * sum(score[name].fmeasure for score in scores) / len(scores) for name in names}


def compound_split_bleu(hypotheses: list[str], references: list[str], language: str) -> dict:
    """BLEU of Moses tokens with compounds split at hyphens, as behind the paper's 27.3 and 28.4.

    It is up to 1.5 points above sacreBLEU of the same text (tensor2tensor issue 317): never compare one with the other.
    """
    tokenizer = sacremoses.MosesTokenizer(lang=language)

    def split(line: str) -> str:
        tokens = tokenizer.tokenize(line, return_str=True, escape=False)
        return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokens)

    score = bleu([split(line) for line in hypotheses], [split(line) for line in references], tokenize="none")
    return {"compound_split_bleu": score["bleu"]}


def _check(hypotheses: list[str], references: list[str]) -> None:
    if not references:
        raise ValueError("Expected at least one sentence to score. Received: none.")
    if len(hypotheses) != len(references):
        raise ValueError(f"Expected a reference for each translation. Received: {len(hypotheses)} and {len(references)}.")
