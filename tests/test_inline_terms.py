"""Terms in the source text: in training pairs, and in sentences for a model that was trained with them."""

import json
import re
import time

import pytest
from test_source_tags import names, prepared, read  # noqa: F401

from t2t_keras.config import TERM_MARKS, DataConfig
from t2t_keras.evaluation import scores
from t2t_keras.runs import data_folder
from t2t_keras.serving import terms as serving_terms
from t2t_keras.serving.protocol import Translation
from t2t_keras.text import inline_terms
from t2t_keras.text.kept import Kept
from t2t_keras.text.request import Request, with_phrases
from t2t_keras.text.terminology import Terms


@pytest.mark.parametrize(
    ("text", "phrase", "expected"),
    [
        ("deux hommes", "homme", True),
        ("die Männer", "Mann", True),  # As manner, which shares 4 of 6 letters.
        ("eine Mantelfrau", "Mann", False),  # 3 of 10.
        ("ein Mantel", "Mann", False),  # 3 of 6.
        ("des chevaux", "cheval", True),  # 5 of 7.
        ("les yeux", "œil", False),
        ("l'immeuble", "immeuble", True),
        ("ab", "a", False),  # Fewer than 3 letters are as they are.
        ("A b", "a", True),
        ("grosses chemises bleues", "chemise bleue", True),
        ("chemise et bleue", "chemise bleue", False),  # Not in a row.
        ("bleue", "chemise bleue", False),
        ("", "a", False),
        ("a", "", False),
        ("一只猫", "猫", True),  # A script without spaces has no words to compare.
        ("私はリンゴが好き", "リンゴ", True),
        ("一只狗", "猫", False),
        ("バス", "ハス", False),
        # Vowel signs are parts of words.
        ("लड़के आए", "लड़का", True),
        ("सम्मान दो", "मान", False),
        ("பூனைகள்", "பூனை", True),
        ("Işıkta", "ışık", True),  # The capital letters of Turkish.
        ("İnsana", "insan", True),
    ],
)
def test_an_inflected_form_begins_as_the_phrase(text, phrase, expected):
    assert inline_terms.has_form(text, phrase) is expected


def test_a_phrase_is_looked_for_in_linear_time():
    """Story: all words after a word were copied for each word of the text."""
    started = time.process_time()
    assert not inline_terms.has_form("xyz " * 60_000, "chat")
    assert time.process_time() - started < 2


def test_translations_take_the_place_of_their_terms():
    places = [(2, 5, "x y"), (9, 10, "z")]
    assert inline_terms.annotated("a man, (“m”)", places) == "a ⟦ x y ⟧, (“ ⟦ z ⟧”)"
    assert inline_terms.annotated("man", [(0, 3, "x")]) == "⟦ x ⟧"
    # Story: in scripts without spaces, the second of two terms in a row had no mark that the model knows.
    assert inline_terms.annotated("合同法院很好", [(0, 2, "x"), (2, 4, "y")]) == "⟦ x ⟧ ⟦ y ⟧很好"
    assert inline_terms.annotated("nothing", []) == "nothing"


def test_half_of_the_pairs_with_a_term_and_its_translation_have_it_in_the_source(names, tmp_path):  # noqa: F811
    plain = read("train", **names)
    word, translation = plain[0][0].split()[1], plain[0][1].split()[1]
    (tmp_path / "terms.tsv").write_text(f"{word}\t{translation}\nnowhere\tnirgends\n")
    options = names | {"train_terms": str(tmp_path / "terms.tsv")}
    found = read("train", **options)
    assert found == read("train", **options)
    changed = [number for number, pair in enumerate(found) if pair != plain[number]]
    with_term = [number for number, (source, _) in enumerate(plain) if re.search(rf"\b{word}\b", source)]
    able = [number for number in with_term if inline_terms.has_form(plain[number][1], translation)]
    assert set(changed) <= set(able) and 0.3 * len(able) < len(changed) < 0.7 * len(able)
    for number in changed:
        source, target = plain[number]
        assert found[number] == (re.sub(rf"\b{word}\b", f"⟦ {translation} ⟧", source), target)
    assert read("valid", **options) == read("valid", **names)


def test_terms_in_a_tag_are_no_terms(names, tmp_path):  # noqa: F811
    """Story: the tag <news> was destroyed in half of the pairs with the translation of "news"."""
    word, translation = read("train", **names)[0][0].split()[1], read("train", **names)[0][1].split()[1]
    (tmp_path / "terms.tsv").write_text(f"{word}\t{translation}\n")
    found = read("train", **names, source_tag=f"<{word}>", train_terms=str(tmp_path / "terms.tsv"))
    assert all(source.startswith(f"<{word}> ") for source, _ in found)
    assert any(f"⟦ {translation} ⟧" in source for source, _ in found)


def test_text_to_keep_has_no_terms_in_training(tmp_path):
    """Story: such a pair lost the placeholder that both sides shared."""
    (tmp_path / "terms.tsv").write_text("man\tmonsieur\n")
    for side, text in (("en", "a {man} and a man"), ("fr", "un {man} et un monsieur")):
        (tmp_path / side).write_text("".join(f"{text} {number}\n" for number in range(16)))
    files = {"train_source": str(tmp_path / "en"), "train_target": str(tmp_path / "fr")}
    found = read("train", **files, train_terms=str(tmp_path / "terms.tsv"), keep_patterns="braces")
    starts = {source.rpartition(" ")[0] for source, _ in found}
    assert starts == {"a {man} and a man", "a {man} and a ⟦ monsieur ⟧"}


def test_text_to_keep_is_found_in_training_text_in_linear_time(tmp_path):
    """Story: this pattern took 1.2 s for a word of 24 letters, and twice as much for each further one."""
    (tmp_path / "terms.tsv").write_text("man\tmonsieur\n")
    for side, text in (("en", b"a man and " + 18 * b"x"), ("fr", "un monsieur à".encode())):
        lines = [b"%b %d\n" % (text, number) for number in range(16)]
        (tmp_path / side).write_bytes(b"".join([b"\xff man\n", *lines]))
    files = {"train_source": str(tmp_path / "en"), "train_target": str(tmp_path / "fr"), "skip_bad_lines": True}
    started = time.process_time()
    found = read("train", **files, train_terms=str(tmp_path / "terms.tsv"), keep_patterns=r"/(?:\w+\s?)+;/")
    assert time.process_time() - started < 2
    starts = {source.partition(" and ")[0] for source, _ in found}
    assert len(found) == 16 and starts == {"a man", "a ⟦ monsieur ⟧"}


def test_terms_that_no_pair_has_are_refused(names, tmp_path):  # noqa: F811
    """Story: such a model got its terms as input that it had never learned to use."""
    (tmp_path / "terms.tsv").write_text("nowhere\tnirgends\n")
    with pytest.raises(ValueError, match="half of [0-9,]+ pairs that may get terms, so a model would not learn"):
        prepared(tmp_path / "data", **names, train_terms=str(tmp_path / "terms.tsv"))


def test_the_marks_are_subwords_and_the_folder_records_the_terms(names, tmp_path, monkeypatch):  # noqa: F811
    file = tmp_path / "terms.tsv"
    file.write_text("a\ta\n")
    options = names | {"train_terms": str(file), "source_tag": "<2de>"}
    subwords = prepared(tmp_path / "data", **options)
    assert all(f"▁{mark}" in subwords.source.pieces for mark in (*TERM_MARKS, "<2de>"))
    recorded = data_folder.recorded_options(tmp_path / "data")
    assert recorded["train_terms"].startswith("terms.tsv ")
    assert data_folder.prepared_with(tmp_path / "data").train_terms == "terms.tsv"
    prepared(tmp_path / "data", **options)
    file.write_text("b\tb\n")
    with pytest.raises(ValueError, match="`train_terms` was terms.tsv"):
        prepared(tmp_path / "data", **options)
    with pytest.raises(ValueError, match=r"Received: a mark of train_terms=⟦, keep_patterns=/⟦/\."):
        prepared(tmp_path / "other", **options, keep_patterns="/⟦/")
    with pytest.raises(OSError, match=r"missing\.tsv cannot be read"):
        prepared(tmp_path / "other", **names, train_terms=str(tmp_path / "missing.tsv"))


def requests_for(*lines: str, inline: bool, **fields) -> list[Request]:
    terms = Terms({"man": "monsieur", "old man": "vieux"}, {"man": ["homme"]})
    requests = (Request(line, **fields) for line in lines)
    return list(with_phrases(requests, terms, Kept(""), print, tags=["<2fr>"], inline=inline))


def test_a_sentence_for_a_model_that_was_trained_with_terms_has_them():
    [request] = requests_for("<2fr> an old man and a man", inline=True)
    assert request.annotated == "<2fr> an ⟦ vieux ⟧ and a ⟦ monsieur ⟧"
    assert requests_for("a man", inline=False)[0].annotated == requests_for("men", inline=True)[0].annotated == ""
    # What must appear anyway is not there twice.
    assert requests_for("a man", inline=True, constraints=["monsieur"])[0].annotated == ""
    assert Request.from_json(json.dumps(vars(request))).annotated == request.annotated


def test_a_model_that_was_trained_with_terms_is_searched_once_without_requirements():
    asked = []

    def search(requests, n_best, alignment):
        asked.append((requests, n_best, alignment))
        return ["too long"] + [[Translation("des messieurs et un vieux", -1.0)], [Translation("un homme", -1.0)]]

    requests = requests_for("a man", "the man and an old man", "a man", inline=True, avoid=["x"])
    rows = serving_terms.translate(search, None, requests, 1)
    [(searched, n_best, alignment)] = asked
    assert (n_best, alignment) == (1, False)
    assert [each.text for each in searched] == [each.annotated for each in requests]
    assert all((each.required, each.excluded) == ([], ["x", "homme", "Homme"]) for each in searched)
    # "messieurs" is a form of "monsieur" by no rule of prefixes.
    assert rows[0] == "too long" and [row[0].constraints_met for row in rows[1:]] == [False, False]
    rows = serving_terms.translate(lambda *_: [[Translation("Deux Monsieurs", -1.0)]], None, requests[:1], 1)
    assert rows[0][0].constraints_met and not rows[0][0].doubtful


def test_the_accuracy_of_terms_counts_each_place():
    terms = Terms({"man": "monsieur", "old man": "vieux monsieur"})
    sources = ["a man and a man", "Old man", "an old man", "a man", "no term"]
    hypotheses = ["un Monsieur et un homme", "monsieur", "un vieux monsieur", "un monsieurs", "monsieur"]
    nothing = Kept("")
    assert scores.term_accuracy(hypotheses, sources, terms, nothing) == {"terms": 5, "term_accuracy": 2 / 5}
    turkish = Terms({"light": "ışık", "man": "insan"})
    found = scores.term_accuracy(["Işık", "İnsan", "isik"], ["light", "man", "man"], turkish, nothing)
    assert found == {"terms": 3, "term_accuracy": 2 / 3}
    found = scores.term_accuracy(["un monsieur {man}"], ["a man {man}"], terms, Kept("braces"))
    assert found == {"terms": 1, "term_accuracy": 1.0}


def test_options_without_terms_have_no_marks():
    assert DataConfig(source_tag="<2b>,<2a>,<2b>").source_words == ["<2a>", "<2b>"]
    assert DataConfig(train_terms="x").source_words == ["⟦", "⟧"]
