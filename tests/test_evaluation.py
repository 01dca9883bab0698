"""Scores are those of the reference programs; only what is fed to them is ours."""

import sys

import pytest
import sacrebleu
from rouge_score import rouge_scorer

from t2t_keras.evaluation import scores

REFERENCES = [
    "The cat sat on the mat.", "He said: “1,000 dollars, then”.", "A well-known state-of-the-art model", "Yes",
]  # fmt: skip
HYPOTHESES = ["the cat sat on a mat .", "He said: 1,000 dollars, then.", "A well-known state of the art model", "No"]
SCORES = (scores.bleu, scores.chrf, scores.rouge, lambda h, r: scores.compound_split_bleu(h, r, language="de"))


def test_bleu_is_what_sacrebleu_says():
    expected = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert scores.bleu(HYPOTHESES, REFERENCES)["bleu"] == pytest.approx(expected)


def test_bleu_is_of_a_corpus_and_not_a_mean_of_sentences():
    """By hand: 4 of 5, 3 of 4, 2 of 3 and 1 of 2 n-grams of the first, all of the second; no brevity penalty."""
    hypotheses, references = ["a b c d x", "e f g h"], ["a b c d y", "e f g h"]
    precisions = (8 / 9) * (6 / 7) * (4 / 5) * (2 / 3)
    assert scores.bleu(hypotheses, references)["bleu"] == pytest.approx(100 * precisions**0.25)


def test_the_same_text_scores_100_and_different_text_0():
    assert scores.bleu(REFERENCES, REFERENCES)["bleu"] == pytest.approx(100)
    assert scores.chrf(REFERENCES, REFERENCES)["chrf"] == pytest.approx(100)
    expected = {"rouge1": 100, "rouge2": 75, "rougeL": 100}  # "Yes": no pair.
    expected = {f"{name}_{kind}": value for name, value in expected.items() for kind in ("recall", "f1")}
    assert scores.rouge(REFERENCES, REFERENCES) == pytest.approx(expected)
    assert scores.bleu(["q w e r t"], ["a s d f g"])["bleu"] == 0


@pytest.mark.parametrize(
    ("options", "part"),
    [({}, "case:mixed"), ({"lowercase": True}, "case:lc"), ({}, "tok:13a")]
    + [({"tokenize": name}, f"tok:{name}") for name in ("none", "char")],
)
def test_the_signature_says_how_bleu_was_counted(options, part):
    score = scores.bleu(HYPOTHESES, REFERENCES, **options)
    assert part in score["signature"].split("|")
    assert f"version:{sacrebleu.__version__}" in score["signature"]
    assert score["bleu"] == pytest.approx(sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], **options).score)


def test_case_and_tokenisation_change_the_score():
    found = [
        scores.bleu(HYPOTHESES, REFERENCES, lowercase=lowercase, tokenize=tokenize)["bleu"]
        for lowercase in (False, True)
        for tokenize in ("13a", "none", "char")
    ]
    assert len({round(score, 6) for score in found}) == 6


def test_chrf_is_what_sacrebleu_says():
    score = scores.chrf(HYPOTHESES, REFERENCES)
    assert score["chrf"] == pytest.approx(sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score)
    assert "nc:6" in score["chrf_signature"] and "nw:0" in score["chrf_signature"]


def test_chrf_can_ignore_case_and_its_signature_says_so():
    score = scores.chrf(HYPOTHESES, REFERENCES, lowercase=True)
    assert score["chrf"] == pytest.approx(sacrebleu.CHRF(lowercase=True).corpus_score(HYPOTHESES, [REFERENCES]).score)
    assert score["chrf"] != scores.chrf(HYPOTHESES, REFERENCES)["chrf"] and "case:lc" in score["chrf_signature"]


def test_rouge_is_the_mean_f1_of_sentences_by_hand():
    """The first: 3 of 4 words, 1 of 3 pairs, "a b d" in order; the second: nothing."""
    found = scores.rouge(["a b x d", "q"], ["a b c d", "z"])
    expected = {"rouge1_f1": 100 * (3 / 4) / 2, "rouge2_f1": 100 * (1 / 3) / 2, "rougeL_f1": 100 * (3 / 4) / 2}
    assert {name: value for name, value in found.items() if name.endswith("f1")} == pytest.approx(expected)


def test_rouge_recall_is_the_share_of_the_reference_that_a_translation_has():
    """Lin (2004), equation 1: 3 of 4 words, 1 of 3 pairs, "a b d" in order; longer translations do not lose."""
    for hypothesis in ("a b x d", "a b x d y z y z"):
        found = scores.rouge([hypothesis], ["a b c d"])
        assert found["rouge1_recall"] == found["rougeL_recall"] == pytest.approx(75)
        assert found["rouge2_recall"] == pytest.approx(100 / 3)
    assert found["rouge1_f1"] == pytest.approx(100 * 2 * 3 / (4 + 8))


def test_rouge_has_words_of_any_script_without_their_case():
    """Story: identical Russian text had 0, and "große" was the same as "gro e"."""
    assert scores.rouge(["Кошка спит", "Große ÜBEL"], ["кошка спит", "große Übel"])["rouge2_f1"] == 100
    assert scores.rouge(["gro e_bel"], ["große Übel"])["rouge1_f1"] == 0
    assert (
        scores.rouge(["हिन्दी"], ["हिन्दा"])["rouge1_f1"] == 0 < scores.rouge(["भाषा हिन्दी"], ["भाषा हिन्दा"])["rouge1_f1"]
    ), "Vowel signs count."
    assert scores.rouge(["a_b, c-d"], ["a b c d"])["rouge2_f1"] == 100


def test_rouge_takes_no_words_for_the_same_by_their_stem():
    assert scores.rouge(["cats"], ["cat"])["rouge1_recall"] == 0


def test_rouge_takes_the_reference_for_the_reference():
    """F1 is the same either way round, so this looks at one that is not of equal length, and at rouge-score itself."""
    expected = rouge_scorer.RougeScorer(["rougeL"]).score("a b c d e f", "a f")["rougeL"].fmeasure
    assert scores.rouge(["a f"], ["a b c d e f"])["rougeL_f1"] == pytest.approx(100 * expected)


def test_compound_split_bleu_has_the_tokens_of_the_language():
    """By hand: French has 4 of 5, 3 of 4, 2 of 3 and 1 of 2 n-grams ("l'" is one word), German 5 of 6 to 2 of 3 ("l"
    and "'" are two).
    """
    hypotheses, references = ["qui rit de l'amie"], ["qui rit de l'ami"]
    french, german = (
        scores.compound_split_bleu(hypotheses, references, language=language) for language in ("fr", "de")
    )
    assert french["compound_split_bleu"] == pytest.approx(100 * (1 / 5) ** 0.25)
    assert german["compound_split_bleu"] == pytest.approx(100 * (2 / 6) ** 0.25)


def test_compound_split_bleu_may_ignore_case():
    found = [
        scores.compound_split_bleu(["Ein A B C"], ["ein a b c"], language="de", lowercase=lowercase)
        for lowercase in (True, False)
    ]
    assert found[0]["compound_split_bleu"] == pytest.approx(100) and found[1]["compound_split_bleu"] < 10


def test_compounds_are_split_at_hyphens_before_they_are_counted():
    """ "a-b" counts as three tokens, of which "a-c" shares two: by hand 5 of 6 words, 3 of 5 pairs, 2 of 4, 1 of 3."""
    hypotheses, references = ["w x y a-b"], ["w x y a-c"]
    # w x y a ##AT##-##AT## b against … c: 5/6 words, 4/5 pairs, 3/4 triples, 2/3 quadruples.
    split = scores.compound_split_bleu(hypotheses, references, language="de")["compound_split_bleu"]
    assert split == pytest.approx(100 * ((5 / 6) * (4 / 5) * (3 / 4) * (2 / 3)) ** 0.25)
    assert split > scores.bleu(hypotheses, references)["bleu"]


def test_compound_splitting_changes_nothing_where_there_is_no_compound():
    hypotheses, references = ([f"der Hund - er {verb} -", "nein , danke vielmals"] for verb in ("bellt", "schlief"))
    split = scores.compound_split_bleu(hypotheses, references, language="de")["compound_split_bleu"]
    assert split == pytest.approx(scores.bleu(hypotheses, references, tokenize="none")["bleu"])


def test_compound_split_bleu_sees_characters_and_not_their_escapes():
    """Moses writes & as &amp; for its own pipelines; the score of equal text is 100 and of an unequal sign below it."""
    text = ["Müller & Söhne 'sagt' <b> [c] | d"]
    assert scores.compound_split_bleu(text, text, language="de")["compound_split_bleu"] == pytest.approx(100)
    assert scores.compound_split_bleu(text, [text[0].replace("&", "&amp;")], language="de")["compound_split_bleu"] < 100


@pytest.mark.parametrize("score", SCORES)
def test_a_translation_without_its_reference_is_refused(score):
    with pytest.raises(ValueError, match="2 translation.* 1 reference"):
        score(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="1 translation.* 2 reference"):
        score(["a"], ["a", "b"])


@pytest.mark.parametrize("score", SCORES)
def test_nothing_to_score_is_refused(score):
    with pytest.raises(ValueError, match="at least one"):
        score([], [])


@pytest.mark.parametrize("score", [scores.bleu, scores.rouge])
def test_no_reference_at_all_is_refused(score):
    with pytest.raises(ValueError, match="one reference. Received: none"):
        score(["a"])


@pytest.mark.parametrize("score", SCORES)
def test_an_empty_translation_is_a_bad_one_and_no_error(score):
    assert 0 <= next(iter(score(["", "x y"], ["a b", "x z"]).values())) < 60


@pytest.mark.parametrize("score", SCORES[:3])
def test_one_of_several_references_that_agrees_is_enough(score):
    other = ["the cat sat on a mat .", "k l", "m n", "o p"]
    once, again = score(REFERENCES, REFERENCES), score(REFERENCES, other, REFERENCES)
    figures = {name: value for name, value in once.items() if not isinstance(value, str)}
    assert {name: again[name] for name in figures} == pytest.approx(figures)
    assert score(HYPOTHESES, other, REFERENCES) != score(HYPOTHESES, REFERENCES)


def test_rouge_of_several_references_is_by_the_best_of_each_sentence():
    """Each sentence has all words of one reference and none of the other."""
    assert scores.rouge(["a b", "c d"], ["a b", "x y"], ["x y", "c d"])["rouge1_f1"] == 100


def test_recall_of_several_references_is_the_best_recall_even_where_another_has_the_best_f1():
    found = scores.rouge(["a b c d"], ["a b c d e f g h"], ["a"])
    assert found["rouge1_recall"] == 100 and found["rouge1_f1"] == pytest.approx(100 * 2 * 4 / 12)


def test_compound_split_bleu_splits_each_reference():
    """Whole tokens of either reference: ##AT##-##AT## counts on both sides."""
    found = scores.compound_split_bleu(["w x a-b c"], ["k l m n"], ["w x a-b c"], language="de")
    assert found["compound_split_bleu"] == pytest.approx(100)


def test_of_several_references_a_blank_one_is_no_match():
    references = ["a", "", "b", ""], ["", "", "c", "d"]
    found = scores.scores(["", "", "c", "d"], *references)
    assert found["exact_match"] == 3 / 4 and scores.scores([""], [""])["exact_match"] == 1


@pytest.mark.parametrize(
    ("tokenize", "line", "expected"),
    [("13a", "天气很好。", True), ("intl", "今日はいい天気です。", True), ("zh", "天气很好。", False),
     ("13a", "Hallo (天气)", False), ("13a", "오늘 날씨", False), ("13a", "सर्दी", False), ("13a", "1990", False),
     ("13a", "สวัสดีครับ", True), ("char", "天气", False)],
)  # fmt: skip
def test_bleu_of_words_between_spaces_is_doubted_where_the_script_has_none(messages, tokenize, line, expected):
    """Story: a Chinese text had a BLEU of 0.00, and nothing said why."""
    scores.scores([line], [line], tokenize=tokenize)
    assert ("counts words between spaces, which the script" in "".join(messages)) == expected


def test_an_exact_match_is_equal_to_one_of_its_references():
    """The first to the first, the second to the second; the third to another sentence's, which does not count."""
    found = scores.scores(["a", "b", "c", "d"], ["a", "x", "y", "c"], ["z", "b", "", "D"])
    assert (found["exact_match"], found["sentences"]) == (2 / 4, 4)


def test_a_set_of_scores_is_counted_as_each_of_them():
    count = {"lowercase": True, "tokenize": "char"}
    found = scores.scores(HYPOTHESES, REFERENCES, HYPOTHESES[::-1], **count)
    expected = scores.bleu(HYPOTHESES, REFERENCES, HYPOTHESES[::-1], **count)
    expected |= scores.chrf(HYPOTHESES, REFERENCES, HYPOTHESES[::-1], lowercase=True)
    assert {name: found[name] for name in expected} == expected
    assert "nrefs:2" in found["signature"] and "nrefs:2" in found["chrf_signature"]


def test_every_reference_has_as_many_lines():
    with pytest.raises(ValueError, match="2 translation.* 3 reference"):
        scores.bleu(["a", "b"], ["a", "b"], ["a", "b", "c"])


@pytest.mark.parametrize(("wanted", "named"), [
    ({"tokenize": "ja-mecab"}, r"tokenize=ja-mecab .* pip install sacrebleu\[ja\]$"),
    ({"tokenize": "ko-mecab"}, r"tokenize=ko-mecab .* pip install sacrebleu\[ko\]$"),
    ({"tokenize": "mosses"}, "one of .*13a.* Received: mosses"),
    ({"compound_split": "german"}, "code of Moses: .*de, .* Received: german"),
    ({"rouge": True}, r"pip install 't2t_keras\[rouge\]'"),
])  # fmt: skip
def test_what_cannot_be_counted_here_is_reported_before_there_is_anything_to_count(monkeypatch, wanted, named):
    """In one line. Story: Moses takes an unknown language for English, and says nothing."""
    for language in ("ja", "ko"):
        monkeypatch.setattr(f"sacrebleu.tokenizers.tokenizer_{language}_mecab.MeCab", None, raising=False)
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ko_mecab.mecab_ko", None, raising=False)
    monkeypatch.setitem(sys.modules, "rouge_score", None)
    with pytest.raises(ValueError, match=named) as told:
        scores.require(**wanted)
    assert "\n" not in str(told.value)


def test_what_can_be_counted_here_is_not_refused(monkeypatch):
    scores.require(tokenize="intl", compound_split="fr", rouge=True)
    monkeypatch.setitem(sys.modules, "rouge_score", None)
    scores.require()
