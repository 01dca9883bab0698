"""Scores are those of the reference programs; only what is fed to them is ours."""

import pytest
import sacrebleu
from rouge_score import rouge_scorer

from t2t_keras import evaluation

REFERENCES = ["The cat sat on the mat.", "He said: “1,000 dollars, then”.", "A well-known state-of-the-art model", "Yes"]
HYPOTHESES = ["the cat sat on a mat .", "He said: 1,000 dollars, then.", "A well-known state of the art model", "No"]
SCORES = (evaluation.bleu, evaluation.chrf, evaluation.rouge, lambda h, r: evaluation.compound_split_bleu(h, r, language="de"))


def test_bleu_is_what_sacrebleu_says():
    assert evaluation.bleu(HYPOTHESES, REFERENCES)["bleu"] == pytest.approx(sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score)


def test_bleu_is_of_a_corpus_and_not_a_mean_of_sentences():
    """By hand: 4 of 5, 3 of 4, 2 of 3 and 1 of 2 n-grams of the first, all of the second; no brevity penalty."""
    hypotheses, references = ["a b c d x", "e f g h"], ["a b c d y", "e f g h"]
    precisions = (8 / 9) * (6 / 7) * (4 / 5) * (2 / 3)
    assert evaluation.bleu(hypotheses, references)["bleu"] == pytest.approx(100 * precisions**0.25)


def test_the_same_text_scores_100_and_different_text_0():
    assert evaluation.bleu(REFERENCES, REFERENCES)["bleu"] == pytest.approx(100)
    assert evaluation.chrf(REFERENCES, REFERENCES)["chrf"] == pytest.approx(100)
    assert evaluation.rouge(REFERENCES, REFERENCES) == pytest.approx({"rouge1": 100, "rouge2": 75, "rougeL": 100})  # "Yes": no pair.
    assert evaluation.bleu(["q w e r t"], ["a s d f g"])["bleu"] == 0


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({}, "case:mixed"),
        ({"lowercase": True}, "case:lc"),
        ({}, "tok:13a"),
        ({"tokenize": "none"}, "tok:none"),
        ({"tokenize": "char"}, "tok:char"),
    ],
)
def test_the_signature_tells_how_bleu_was_counted(options, part):
    score = evaluation.bleu(HYPOTHESES, REFERENCES, **options)
    assert part in score["signature"].split("|")
    assert f"version:{sacrebleu.__version__}" in score["signature"]
    assert score["bleu"] == pytest.approx(sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], **options).score)


def test_case_and_tokenisation_change_the_score():
    scores = [
        evaluation.bleu(HYPOTHESES, REFERENCES, lowercase=lowercase, tokenize=tokenize)["bleu"]
        for lowercase in (False, True)
        for tokenize in ("13a", "none", "char")
    ]
    assert len({round(score, 6) for score in scores}) == 6


def test_an_unknown_tokenisation_is_a_value_error_that_names_those_there_are():
    with pytest.raises(ValueError, match="13a"):
        evaluation.bleu(HYPOTHESES, REFERENCES, tokenize="mosses")


def test_chrf_is_what_sacrebleu_says():
    score = evaluation.chrf(HYPOTHESES, REFERENCES)
    assert score["chrf"] == pytest.approx(sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score)
    assert "nc:6" in score["chrf_signature"] and "nw:0" in score["chrf_signature"]


def test_rouge_is_the_mean_f1_of_sentences_by_hand():
    """The first: 3 of 4 words, 1 of 3 pairs, "a b d" in order; the second: nothing."""
    scores = evaluation.rouge(["a b x d", "q"], ["a b c d", "z"])
    assert scores == pytest.approx({"rouge1": 100 * (3 / 4) / 2, "rouge2": 100 * (1 / 3) / 2, "rougeL": 100 * (3 / 4) / 2})


def test_rouge_takes_the_reference_for_the_reference():
    """F1 is the same either way round, so this looks at one that is not of equal length, and at rouge-score itself."""
    expected = rouge_scorer.RougeScorer(["rougeL"]).score("a b c d e f", "a f")["rougeL"].fmeasure
    assert evaluation.rouge(["a f"], ["a b c d e f"])["rougeL"] == pytest.approx(100 * expected)


def test_compounds_are_split_at_hyphens_before_they_are_counted():
    """ "a-b" counts as three tokens, of which "a-c" shares two: by hand 5 of 6 words, 3 of 5 pairs, 2 of 4, 1 of 3."""
    hypotheses, references = ["w x y a-b"], ["w x y a-c"]
    # w x y a ##AT##-##AT## b against … c: 5/6 words, 4/5 pairs, 3/4 triples, 2/3 quadruples.
    split = evaluation.compound_split_bleu(hypotheses, references, language="de")["compound_split_bleu"]
    assert split == pytest.approx(100 * ((5 / 6) * (4 / 5) * (3 / 4) * (2 / 3)) ** 0.25)
    assert split > evaluation.bleu(hypotheses, references)["bleu"]


def test_compound_splitting_changes_nothing_where_there_is_no_compound():
    hypotheses, references = ["der Hund - er bellt -", "nein , danke vielmals"], ["der Hund - er schlief -", "nein , danke vielmals"]
    split = evaluation.compound_split_bleu(hypotheses, references, language="de")["compound_split_bleu"]
    assert split == pytest.approx(evaluation.bleu(hypotheses, references, tokenize="none")["bleu"])


def test_compound_split_bleu_sees_characters_and_not_their_escapes():
    """Moses writes & as &amp; for its own pipelines; the score of equal text is 100 and of an unequal sign below it."""
    text = ["Müller & Söhne 'sagt' <b> [c] | d"]
    assert evaluation.compound_split_bleu(text, text, language="de")["compound_split_bleu"] == pytest.approx(100)
    assert evaluation.compound_split_bleu(text, [text[0].replace("&", "&amp;")], language="de")["compound_split_bleu"] < 100


@pytest.mark.parametrize("score", SCORES)
def test_a_translation_without_its_reference_is_refused(score):
    with pytest.raises(ValueError, match="2 and 1"):
        score(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="1 and 2"):
        score(["a"], ["a", "b"])


@pytest.mark.parametrize("score", SCORES)
def test_nothing_to_score_is_refused(score):
    with pytest.raises(ValueError, match="at least one"):
        score([], [])


@pytest.mark.parametrize("score", SCORES)
def test_an_empty_translation_is_a_bad_one_and_no_error(score):
    assert 0 <= next(iter(score(["", "x y"], ["a b", "x z"]).values())) < 60
