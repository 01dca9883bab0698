"""Terms that replace: what is forbidden in place of a term, by hand-worked tables, and which searches are made."""

import dataclasses
import json

import numpy as np
import pytest

from t2t_keras.serving import terms
from t2t_keras.serving.protocol import Translation
from t2t_keras.text.kept import Kept
from t2t_keras.text.phrases import MAX_PHRASES
from t2t_keras.text.request import Request, with_phrases
from t2t_keras.text.spelling import text_and_ends
from t2t_keras.text.terminology import Term, Terms


def aligned(source: str, target: str, weights: dict[int, dict[int, float]], **fields) -> Translation:
    """A translation with the sub-words of two texts, with spaces between them.

    Each sub-word of the target attends to the source sub-words of `weights`, and with the rest to the end token.
    """
    source_pieces, pieces = (*source.split(), "</s>"), (*target.split(), "</s>")
    alignment = np.zeros([len(pieces), len(source_pieces)], np.float32)
    for row, of_row in weights.items():
        for column, weight in of_row.items():
            alignment[row, column] = weight
    alignment[:, -1] = 1 - alignment[:, :-1].sum(axis=1)
    text = text_and_ends(pieces[:-1])[0].strip()
    return Translation(text, -1.0, pieces, source_pieces, alignment, **fields)


MAN = Term("man", "monsieur")
ONE_MAN = "▁a ▁man"


@pytest.mark.parametrize(("source", "of_terms", "target", "weights", "expected"), [
    # The article attends to the man too, but less than to something else.
    (ONE_MAN, [MAN], "▁un ▁hom me", {0: {1: 0.45}, 1: {1: 0.7}, 2: {1: 0.6}}, ["homme", "Homme"]),
    # The word's mean attention is 0.35.
    (ONE_MAN, [MAN], "▁un ▁hom me", {1: {1: 0.6, 0: 0.1}, 2: {1: 0.1, 0: 0.1}}, []),
    # Elsewhere is another man.
    (ONE_MAN, [MAN], "▁homme ▁et ▁homme", {0: {1: 0.9}}, []),
    # Both are of the term, which is there twice.
    ("▁man ▁man", [MAN._replace(after=1), MAN], "▁un ▁homme ▁et ▁homme", {1: {0: 0.9}, 3: {1: 0.9}},
     ["homme", "Homme"]),
    # At the beginning of a sentence, the word has a capital letter.
    (ONE_MAN, [MAN], "▁Homme ▁seul", {0: {1: 0.9}}, ["homme", "Homme"]),
    (ONE_MAN, [MAN], ">>fra_Latn<< ▁Homme ▁seul", {1: {1: 0.9}}, ["homme", "Homme"]),
    # What is in a tag before the sentence is no term.
    ("▁<man> ▁a ▁man", [MAN], "▁un ▁homme", {0: {0: 0.9}, 1: {2: 0.9}}, ["homme", "Homme"]),
    # What is written already, in whatever case, and a part of it.
    (ONE_MAN, [MAN], "▁Monsieur", {0: {1: 0.9}}, []),
    ("▁old ▁man", [Term("old man", "homme âgé")], "▁homme", {0: {1: 0.9}}, []),
    # Words beside each other and over a hyphen are one phrase; those apart are two.
    ("▁shirt", [Term("shirt", "chemise")], "▁un ▁T - shirt ▁est ▁haut", {1: {0: 0.9}, 3: {0: 0.8}, 5: {0: 0.5}},
     ["T-shirt", "haut", "Haut"]),
    # No mark at the ends, a term of several words, and one inside of another.
    ("▁to ▁sit ▁down", [Term("sit down", "siéger")], "▁( s'asseoir )", {0: {1: 1}, 1: {2: 0.9}, 2: {1: 1}},
     ["s'asseoir", "S'asseoir"]),
    ("▁house ▁boat", [Term("house boat", "péniche"), Term("boat", "barque")], "▁bateau", {0: {1: 0.9}},
     ["bateau", "Bateau"]),
    # Bytes of characters, and a script without spaces.
    ("▁caf <0xC3> <0xA9>", [Term("café", "bistro")], "▁ <0xC3> <0x89> cole",
     {1: {0: 0.5, 2: 0.4}, 2: {2: 1}, 3: {1: 0.6}}, ["école", "École"]),
    ("▁cat", [Term("cat", "咪")], "▁ 小 猫 在", {1: {0: 0.1}, 2: {0: 0.9}}, ["猫"]),
    # The term is in no sub-word, such as after normalization.
    ("▁a ▁men", [MAN], "▁un ▁homme", {1: {1: 0.9}}, []),
])  # fmt: skip
def test_words_in_place_of_a_term_are_forbidden(source, of_terms, target, weights, expected):
    request = Request("", terms=of_terms)
    assert terms.with_replaced_words(request, aligned(source, target, weights)).excluded == expected


def test_the_word_for_the_place_of_a_term_is_forbidden():
    """Story: of "York or New York", the second York was taken for the first, whose term alone was wanted."""
    plain = aligned("▁York ▁or ▁New ▁York", "▁Eboracum ▁ou ▁Nova", {0: {0: 0.9}, 2: {3: 0.9}})
    request = Request("York or New York", avoid=["NY"], terms=[Term("York", "Yorck", after=1)])
    assert terms.with_replaced_words(request, plain).excluded == ["NY", "eboracum", "Eboracum"]
    cut = dataclasses.replace(request, terms=[Term("York", "Yorck", after=2)])  # It is in no sub-word.
    assert terms.with_replaced_words(cut, plain) == cut


@pytest.mark.parametrize(("target", "translation", "weights", "expected"), [
    # What the translation begins with by itself, after a tag too.
    ("▁Un ▁homme ▁dort", "un homme", {}, "Un homme"),
    (">>fra_Latn<< ▁Un ▁homme ▁dort", "un homme", {}, "Un homme"),
    ("▁Un ▁hommes", "un homme", {}, "un homme"),
    ("▁dans ▁Un ▁homme", "un homme", {}, "un homme"),
    # What stands for the term at the beginning.
    ("▁Des ▁personnes ▁dorment", "des gens", {0: {1: 0.9}, 1: {1: 0.9}}, "Des gens"),
    ("▁Des ▁personnes ▁dorment", "des gens", {1: {1: 0.9}}, "des gens"),
    ("▁des ▁personnes ▁dorment", "des gens", {0: {1: 0.9}}, "des gens"),  # Text of lower-case letters.
    ("▁L' Europe", "l'Amérique", {0: {1: 0.9}, 1: {1: 0.9}}, "L'Amérique"),
    ("▁Portable ▁noir", "iPhone", {0: {1: 0.9}}, "iPhone"),
    # After opening punctuation; with the capital letter of the model.
    ("▁«  Un ▁homme ▁dort", "un homme", {}, "Un homme"),
    ("▁- ▁Des ▁personnes", "des gens", {1: {1: 0.9}, 2: {1: 0.9}}, "Des gens"),
    ("▁İnsan ▁uyuyor", "insan", {}, "İnsan"),
    ("▁Menschen ▁schlafen", "ǆep", {0: {1: 0.9}}, "ǅep"),
])  # fmt: skip
def test_a_term_at_the_beginning_is_required_with_a_capital_letter(target, translation, weights, expected):
    """Story: "Un homme est assis sur un fauteuil." became "Dans un homme est assis sur une chaise."."""
    request = Request("a man", terms=[Term("man", translation), Term("chair", "chaise")])
    found = terms.with_replaced_words(request, aligned(ONE_MAN, target, weights))
    assert [term.translation for term in found.terms] == [expected, "chaise"]


def test_what_the_sentence_itself_requires_keeps_its_letters():
    """Story: "Un homme dort" was taken for a translation with the constraint "un homme"."""
    [request] = with_phrases([Request("a man", ["un homme"])], Terms({"a man": "un homme"}), Kept(""), pytest.fail)
    assert [(term.translation, term.is_own) for term in request.terms] == [("un homme", True)]
    plain = aligned(ONE_MAN, "▁Un ▁homme ▁dort", {0: {1: 0.9}, 1: {1: 0.9}})
    assert not terms.is_as_asked(dataclasses.replace(plain, text="Un homme dort"), request)
    assert terms.is_as_asked(Translation("un homme dort", 0.0), request)
    assert terms.with_replaced_words(request, plain).required == ["un homme"]
    assert Request.from_json(json.dumps(dataclasses.asdict(request))).terms == list(request.terms)


@pytest.mark.parametrize(("text", "read", "expected"), [
    # Story: the second of "old man", whose space is doubled, was no term.
    ("old man and old  man", "▁old ▁man ▁and ▁old ▁man", "papi"),
    ("Old man and old\tman", "▁Old ▁man ▁and ▁old ▁man", "papi"),
    # The model reads a part of "Yorkshire" alone, which is not the term.
    ("old man and old mankind", "▁old ▁man ▁and ▁old ▁man", "vieux"),
    ("old man and old man kind", "▁old ▁man ▁and ▁old ▁man", "papi"),
])  # fmt: skip
def test_the_place_of_a_term_is_that_in_the_text_that_is_read(text, read, expected):
    known = Terms({"old man": "x"})
    [request] = with_phrases([Request(text)], known, Kept(""), pytest.fail, reads=lambda line: len(line.split()) <= 5)
    request = dataclasses.replace(request, terms=request.terms[-1:])
    plain = aligned(read, "▁vieux ▁et ▁papi", {0: {0: 0.5, 1: 0.5}, 2: {3: 0.5, 4: 0.5}})
    assert terms.with_replaced_words(request, plain).excluded[0] == expected


def test_a_term_with_a_capital_letter_at_the_beginning_replaces_words_too():
    [request] = with_phrases([Request("Man sleeps")], Terms({"man": "monsieur"}), Kept(""), pytest.fail)
    plain = aligned("▁Man ▁sleeps", "▁Homme ▁dort", {0: {0: 0.9}})
    found = terms.with_replaced_words(request, plain)
    assert (found.required, found.excluded) == (["Monsieur"], ["homme", "Homme"])


def test_a_term_with_the_capital_letter_of_the_text_is_before_one_without():
    known = Terms({"Bank": "Ufer", "bank": "Geld"})
    assert [term.translation for term in known.of("Bank bank Bank")] == ["Ufer", "Geld", "Ufer"]


@pytest.mark.parametrize(("term", "text"), [
    ("ışık", "Işık var"), ("insan", "İnsan var"), ("insan", "Insan var"), ("ǆep", "ǅep"), ("ßa", "ẞa"),
])  # fmt: skip
def test_a_term_at_the_beginning_may_have_the_capital_letter_of_any_language(term, text):
    assert [each.source for each in Terms({term: "x"}).of(text)] == [text.split()[0]]
    assert Terms({term: "x"}).of(f"a {text}") == []


def test_terms_that_differ_in_spaces_alone_are_refused():
    with pytest.raises(ValueError, match="differ in more than their spaces"):
        Terms({"a  b": "x", "a b": "y"})


def test_a_capital_letter_of_another_language_is_forbidden_as_it_is():
    plain = aligned(ONE_MAN, "▁İnsan ▁uyuyor", {0: {1: 0.9}})
    found = terms.with_replaced_words(Request("a man", terms=[Term("man", "kişi")]), plain)
    assert "İnsan" in found.excluded and found.required == ["Kişi"]


def test_words_are_forbidden_beside_forms_of_the_file_as_long_as_there_is_room():
    translation = aligned(ONE_MAN, "▁un ▁homme", {1: {1: 0.9}})
    request = Request("", avoid=["x"], terms=[MAN._replace(forbidden=("gars",))])
    assert terms.with_replaced_words(request, translation).excluded == ["x", "gars", "Gars", "homme", "Homme"]
    full = dataclasses.replace(request, avoid=[f"x{number}" for number in range(MAX_PHRASES - 3)])
    assert terms.with_replaced_words(full, translation) == full
    without = dataclasses.replace(translation, pieces=(), source_pieces=(), alignment=np.zeros([0, 0]))
    assert terms.with_replaced_words(request, without) == request


@pytest.mark.parametrize(("text", "of_terms", "fields", "expected"), [
    ("un monsieur", [MAN], {}, True),
    ("un monsieur", [MAN, MAN], {}, False),
    ("un monsieur, un monsieur", [MAN, MAN], {}, True),
    ("un Monsieur", [MAN], {}, False),
    ("Monsieur dort", [MAN], {}, True),
    (">>fra_Latn<< Monsieur dort", [MAN], {}, True),
    ("Monsieur dort", [MAN, MAN], {}, False),
    ("Monsieur et monsieur", [MAN, MAN], {}, True),
    ("Un homme est assis.", [Term("a man", "un homme")], {}, True),
    ("Ici, un Monsieur dort.", [Term("a man", "un monsieur")], {}, False),
    ("Un homme et un chat", [Term("a", "un"), Term("a man", "un homme")], {}, True),
    ("un monsieur ou gars", [MAN._replace(forbidden=("gars",))], {}, False),
    ("un monsieur ou gars", [MAN], {"avoid": ["gars"]}, False),
    ("un monsieur", [MAN], {"ordered": True}, False),
    ("ein altes Boot", [Term("old boat", "altes Boot"), Term("boat", "Boot")], {}, False),
    ("ein altes Boot und Boot", [Term("old boat", "altes Boot"), Term("boat", "Boot")], {}, True),
])  # fmt: skip
def test_a_translation_that_has_all_terms_is_as_asked(text, of_terms, fields, expected):
    request = Request("", terms=of_terms, **fields)
    assert terms.is_as_asked(Translation(text, -1.0), request) == expected
    assert not terms.is_as_asked(Translation(text, -1.0, constraints_met=False), request)


def test_no_more_translations_are_scored_at_once_than_a_server_takes():
    """Story: TensorFlow Serving refused the 40 translations of 10 sentences as one batch."""
    sizes = []

    def predict(signature, inputs):
        if signature == "score":
            sizes.append(len(inputs["source"]))
            assert len(inputs["target"]) == sizes[-1]
            return {"pieces": [["▁" + text, "</s>"] for text in inputs["target"]],
                    "token_log_probs": [[-float(text[1:]), 0.0] for text in inputs["target"]]}  # fmt: skip
        number = len(inputs["text"])
        return {
            "text": [[f"a{4 * row + place}" for place in range(4)] for row in range(number)],
            "score": [[-1.0] * 4] * number, "constraints_met": [[True] * 4] * number, "error": [""] * number,
        }  # fmt: skip

    rows = terms.predicted(predict, [Request(str(number)) for number in range(10)], 4, word_scores=True)
    assert sizes == [terms.MIN_SCORED, 8]
    assert [each.word_scores for row in rows for each in row] == [(-float(number),) for number in range(40)]


def test_sentences_with_terms_are_searched_without_them_first_and_again_where_it_lacks_some():
    asked = []
    plain = {
        "a man": aligned(ONE_MAN, "▁un ▁homme", {1: {1: 0.9}}),
        "the man": aligned("▁the ▁man", "▁le ▁monsieur", {1: {1: 0.9}}),
        "long man": "alignment: too long.",
    }

    def search(requests, n_best, alignment):
        asked.append((list(requests), n_best, alignment))
        if alignment and not any(request.terms for request in requests):
            found = [plain[request.text] for request in requests]
            return [each if isinstance(each, str) else [each] for each in found]
        return [[Translation(f"{request.text} {number}", -2.0) for number in range(n_best)] for request in requests]

    def score(sources, targets):
        assert sources[0] in ("a man", "the man")
        return [(["</s>"], [-1.0])] * len(targets)

    requests = [Request("one", ["x"]), Request("a man", ["y"], terms=[MAN]), Request("the man", terms=[MAN])]
    requests.append(Request("long man", terms=[MAN]))
    found = terms.translate(search, score, requests, 1, beam_size=600)
    assert [row[0].text for row in found] == ["one 0", "a man 0", "le monsieur", "long man 0"]
    assert found[2] == [Translation("le monsieur", -1.0)]
    first = [dataclasses.replace(request, terms=()) for request in requests[1:]]
    again = dataclasses.replace(requests[1], terms=[MAN._replace(forbidden=("homme",))])
    assert asked == [*(([request], 1, True) for request in first), ([requests[0], again, requests[3]], 1, False)]
    asked.clear()
    found = terms.translate(search, score, requests[:3], 2)
    expected = [[f"{request.text} {n}" for n in range(2)] for request in requests[:3]]
    assert [[each.text for each in row] for row in found] == expected
    assert [(len(of_call), n_best) for of_call, n_best, _ in asked] == [(2, 1), (3, 2)], (
        "An n-best list is searched for."
    )
    asked.clear()
    assert terms.translate(search, score, requests[2:3], 1, alignment=True) == [[plain["the man"]]]
    assert terms.translate(search, score, requests[:1], 1) == [[Translation("one 0", -2.0)]] and len(asked) == 2


@pytest.mark.parametrize(("pieces", "log_probs", "phrases", "expected"), [
    ("▁un ▁mon sieur ▁dort </s>", [-1, -20, -30, -4, -1], ["monsieur"], -4),
    ("▁un ▁mon sieur ▁dort </s>", [-1, -20, -30, -4, -1], [], -30),
    (">>fra_Latn<< ▁un ▁mon sieur </s>", [-40, -1, -20, -30, -0.5], ["monsieur"], -1),
    ("▁un ▁mon sieur ▁mon sieur </s>", [-1, -2, -3, -4, -5, -0.5], ["monsieur"], -1),
    ("▁mon sieur </s>", [-1, -2, -0.3], ["monsieur"], -0.3),
    ("▁mon sieurs </s>", [-1, -2, -0.3], ["monsieur"], -2),
    ("▁ 小 猫 。 </s>", [-1, -2, -30, -4, -3], ["猫"], -4),
    ("</s>", [-3], ["x"], -3),
    ("▁a </s>", [-1, -3, -9, -9], [], -3),
])  # fmt: skip
def test_the_least_likely_sub_word_outside_of_terms_by_hand(pieces, log_probs, phrases, expected):
    text = "".join(pieces.split()[:-1]).removeprefix(">>fra_Latn<<").replace("▁", " ").strip()
    assert terms.least_outside((pieces.split(), log_probs), text, phrases) == expected


@pytest.mark.parametrize("pieces", ["un mon sieur dort </s>", "un▁ mon sieur▁ dort▁ </s>", "▁un ▁mon sieur ▁dort </s>"])
def test_a_term_is_found_in_sub_words_that_do_not_say_where_spaces_are(pieces):
    """As in imported vocabularies of tensor2tensor, or of words."""
    log_probs = [-1, -20, -30, -4, -1]
    assert terms.least_outside((pieces.split(), log_probs), "un monsieur dort", ["monsieur"]) == -4
    assert terms.least_outside((pieces.split(), log_probs), "un monsieur dort", ["un"]) == -30


@pytest.mark.parametrize(("lost", "doubtful"), [(terms.DOUBTFUL - 0.01, False), (terms.DOUBTFUL + 0.01, True)])
def test_a_translation_with_a_word_much_less_likely_than_all_without_the_term_is_doubtful(lost, doubtful):
    """The term itself may be as unlikely as it is; of an n-best list, each translation is compared."""
    plain = aligned(ONE_MAN, "▁un ▁homme", {1: {1: 0.9}})
    log_probs = {
        "un homme": (["▁un", "▁homme", "</s>"], [-0.5, -1.0, -0.3]),
        "un monsieur": (["▁un", "▁monsieur", "</s>"], [-1.0 - lost, -90.0, -0.1]),
        "monsieur": (["▁monsieur", "</s>"], [-90.0, -0.6]),
    }

    def search(requests, n_best, alignment):
        return [[plain]] if alignment else [[Translation("un monsieur", -9.0), Translation("monsieur", -9.0)]]

    def score(sources, targets):
        assert set(sources) == {"a man"}
        return [log_probs[target] for target in targets]

    [found] = terms.translate(search, score, [Request("a man", terms=[MAN])], 2)
    assert [(each.text, each.doubtful) for each in found] == [("un monsieur", doubtful), ("monsieur", False)]


def test_what_must_appear_anyway_makes_no_translation_doubtful_or_certain():
    """Story: {0}, at -12 in both translations, hid the unlikely word beside the term."""
    plain = aligned(ONE_MAN, "▁un ▁homme ▁{0} ▁x", {1: {1: 0.9}})
    log_probs = {
        "un homme {0} x": (["▁un", "▁homme", "▁{0}", "▁x", "</s>"], [-1, -1, -12, -12, -1]),
        "un monsieur {0} x": (["▁un", "▁monsieur", "▁{0}", "▁x", "</s>"], [-6, -9, -12, -12, -1]),
    }

    def search(requests, n_best, alignment):
        return [[plain if alignment else Translation("un monsieur {0} x", -9.0)]]

    request = Request("a man", ["￭{0}"], free=["x"], terms=[MAN])
    [[found]] = terms.translate(search, lambda _, targets: [log_probs[target] for target in targets], [request], 1)
    assert found.doubtful
