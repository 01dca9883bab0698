"""Requests in JSON lines and files of terms: what they mean, and what is said of those that mean nothing."""

import collections
import dataclasses
import json
import re
import time

import pytest

from t2t_keras.text.kept import Kept
from t2t_keras.text.phrases import MAX_PHRASES, holds, joined, most_subwords
from t2t_keras.text.request import Request, note_others, read_requests, with_phrases
from t2t_keras.text.scripts import in_word
from t2t_keras.text.tags import untagged, with_tags_checked
from t2t_keras.text.terminology import MAX_CHARACTERS, Term, Terms


def test_phrases_are_joined_by_tabs():
    assert most_subwords("two") == 4 and most_subwords("▁ü") == 12 and most_subwords("a b1") == 5
    assert joined([], "avoid") == "" and joined(["a b", "c"], "avoid") == joined(("a b", "c"), "avoid") == "a b\tc"


@pytest.mark.parametrize(("phrases", "message"), [
    ("a b", "avoid: expected a list of phrases. Received: 'a b'."),
    (["a", 3], r"avoid: expected a list of phrases. Received: \['a', 3\]."),
    (None, "avoid: expected a list of phrases. Received: None."),
    (["a", " "], "avoid: expected phrases of one or more words, .* Received: ' '."),
    (["a\tb"], r"avoid: expected phrases of one or more words, .* Received: 'a\\tb'."),
    (["a\nb"], r"avoid: expected phrases of one or more words, .* Received: 'a\\nb'."),
    (["￭"], "avoid: expected phrases of one or more words, .* Received: '￭'."),
    (["a"] * (MAX_PHRASES + 1), "avoid: expected at most 32 phrases for a sentence. Received: 33."),
])  # fmt: skip
def test_what_is_no_phrase_is_refused(phrases, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        joined(phrases, "avoid")


def test_a_line_end_in_the_text_of_a_request_is_a_space():
    assert [request.text for request in read_requests(['{"text": "a\\nb\\r\\nc\\rd\\n"}'])] == ["a b c d "]


def test_a_request_is_what_its_line_says():
    lines = [
        '{"text": "a"}',
        ' {"ordered": true, "avoid": ["c"], "constraints": ["b b", "ü"], "text": "\\ud83d\\ude00"} ',
    ]
    assert list(read_requests(lines)) == [Request("a"), Request("😀", ["b b", "ü"], ["c"], True)]
    request = Request("a", ["b"], ["c"], True, [Term("a", "d", ("e",), 1)])
    assert Request.from_json(json.dumps(dataclasses.asdict(request))) == request


def test_other_keys_of_a_line_are_kept_for_its_output():
    """Near matches of known keys are typing errors; those of outputs, as of an earlier translation, are not."""
    others = {"id": [7, {"ü": None}], "context": "x", "text_id": 1, "constraints_met": True, "score": -0.5, "test": 2.5}
    [request] = read_requests([json.dumps({"avoid": ["c"], **others, "text": "a"})])
    assert request == Request("a", avoid=["c"], others=others)
    noted = collections.deque()
    assert list(note_others([request, Request("b")], noted)) == [Request("a", avoid=["c"]), Request("b")]
    assert list(noted) == [others, {}]


@pytest.mark.parametrize(("line", "message"), [
    ("a",
     "Expected a JSON object with text, constraints, avoid, ordered in each line. Received: line 3, which is "
     "not JSON: 'a'"),
    ("[" * 100_000, "line 3, which is not JSON"),
    ("", "line 3, which is not JSON: ''"),
    ('{"text": "a", "id": -1e999}', "not JSON: .*-1e999 is beyond 1.8e308"),
    ('{"text": "a", "id": [NaN]}', "line 3, which is not JSON: .*NaN is no number of JSON"),
    ('["a"]', r"""Received: line 3, '\["a"\]'."""),
    ('{"constraints": []}', "Received: line 3, "),
    ('{"text": "a", "constrain": []}', "^Line 3: expected the key constraints. Received: 'constrain'.$"),
    ('{"text": "a", "Avoid": []}', "^Line 3: expected the key avoid. Received: 'Avoid'.$"),
    ('{"text": "a", "id": "\\ud800"}', "^Line 3: Expected characters of Unicode"),
    ('{"text": "a", "terms": []}', "^Line 3: expected the key constraints. Received: 'terms'.$"),
    ('{"text": 3}', "^Line 3: text: expected a sentence. Received: 3.$"),
    ('{"text": "a", "ordered": 1}', "^Line 3: ordered: expected true or false. Received: 1.$"),
    ('{"text": "a", "constraints": "b"}', "^Line 3: constraints: expected a list of phrases. Received: 'b'.$"),
    ('{"text": "a", "avoid": [[]]}', "^Line 3: avoid: expected a list of phrases."),
    ('{"text": "a \\ud800"}',
     r"^Line 3: Expected characters of Unicode. Received: half of a surrogate pair in 'a .ud800'.$"),
    ('{"text": "a", "avoid": ["\\udfff"]}', "^Line 3: Expected characters of Unicode"),
    ('{"text": "a", "avoid": [""]}', "^Line 3: avoid: expected phrases of one or more words"),
])  # fmt: skip
def test_a_line_that_is_no_request_is_reported_with_its_number(line, message):
    requests = read_requests(['{"text": "a"}'] * 2 + [line])
    assert [next(requests), next(requests)] == [Request("a")] * 2
    with pytest.raises(ValueError, match=message):
        next(requests)


def test_what_terms_add_to_phrases_in_order_may_be_anywhere():
    """Story: with "ordered", a term had to come after all constraints."""
    request = Request("see {0}", ["jetzt", "dann"], ordered=True)
    for each, expected in (
        (request, "jetzt\tdann\n\n{0}\tsiehe"),
        (dataclasses.replace(request, ordered=False), "jetzt\tdann\t{0}\tsiehe"),
    ):
        [found] = with_phrases([each], Terms({"see": "siehe"}), Kept("braces"), pytest.fail)
        assert found.all_required == expected and found.required == ["jetzt", "dann", "{0}", "siehe"]
    assert request.all_required == "jetzt\tdann"


TERMS = {
    "house": "Haus", "boat": "Boot", "house boat": "Hausboot", "C++": "C++", "e.g.": "z. B.", "café": "Café",
    "猫": "cat", "Bank": "Ufer", "bank holiday": "Feiertag",
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), [
    ("a house, a boat", ["Haus", "Boot"]),
    ("the boat house", ["Boot", "Haus"]),
    ("the house boat", ["Hausboot"]),
    ("a House houses farmhouse house2 boat_", ["Boot"]),
    ("House, House", ["Haus"]),  # A small letter is a capital one at the beginning.
    ("House boat", ["Hausboot"]),
    ("Bank holiday", ["Feiertag"]),  # The longest, also with another first letter.
    (" House  \tboat", ["Hausboot"]),  # The model reads single spaces.
    ("house (house) house", ["Haus"] * 3),
    ("C++, C+++ C", ["C++", "C++"]),
    ("e.g. this", ["z. B."]),
    ("café cafés", ["Café"]),
    ("小猫在", ["cat"]),
    ("bank", []),
    ("The bank", []),
    ("Bank", ["Ufer"]),
    ("", []),
])  # fmt: skip
def test_terms_are_found_as_whole_words_the_longest_first(text, expected):
    assert [term.translation for term in Terms(TERMS).of(text)] == expected
    assert Terms({}).of(text) == []


def extended(requests, terms, kept, warn, fits=lambda phrase, text: True) -> list[Request]:
    return list(with_phrases(requests, terms, kept, warn, fits))


def test_terms_and_what_is_kept_are_added_to_requests_that_do_not_have_them():
    terms, kept = Terms(TERMS), Kept("tags,braces")
    warnings, fitting = [], {"{" + "x" * 40 + "}": True, "{" + "y" * 40 + "}": False}

    def fits(phrase: str, text: str) -> bool:
        assert text == requests[2].text
        return fitting[phrase]

    requests = [
        Request("a boat {0}, a house, a house", ["x", "Boot"], ["y"], True),
        Request("a house {0}, a boat", avoid=["Haus", "{0}"]),
        Request("boat {" + "x" * 40 + "} {" + "y" * 40 + "} 猫"),
        Request("house " * 32 + "<b>", ["x"]),
    ]
    first, second, third, fourth = extended(requests, terms, kept, warnings.append, fits)
    houses = (Term("house", "Haus", after=1), Term("house", "Haus"))
    assert first == Request(requests[0].text, ("x", "Boot"), ["y"], True, houses, ("{0}",))
    assert (first.required, first.excluded) == (["x", "Boot", "{0}", "Haus", "Haus"], ["y"])
    assert second == Request(requests[1].text, (), ["Haus", "{0}"], terms=(Term("boat", "Boot"),))
    assert third.required == ["{" + "x" * 40 + "}", "Boot", "cat"]
    assert fourth.required == ["x"] + ["Haus"] * 31 == fourth.required[:MAX_PHRASES]
    twice = Request("a <b>house</b>", ["</b>"], ["<b>"])
    assert extended([twice], Terms({}), kept, warnings.append, fits) == [twice], "One follows a word without a space."
    expected = "expected at most 32 phrases of at most 32 sub-words. Left out:"
    assert warnings == [f"Line 3: {expected} {{{'y' * 40}}}", f"Line 4: {expected} Haus, <b>"]


MAN = Terms({"man": "monsieur"})


def test_what_is_kept_or_copied_has_no_terms():
    """Story: the placeholder of "Hello {name}" got a translation of "name", and was lost."""
    request, braces = Request("a {man} and a man"), r"\{[^{}]+\}"
    [kept] = with_phrases([request], MAN, Kept("braces"), pytest.fail)
    assert sorted(kept.required) == ["monsieur", "{man}"] and kept.terms == (Term("man", "monsieur", after=0),)
    [copied] = with_phrases([request], MAN, Kept(""), pytest.fail, copied=Kept("", expression=braces))
    assert copied.required == ["monsieur"]
    [inline] = with_phrases([request], MAN, Kept("braces"), pytest.fail, inline=True)
    assert inline.annotated == "a {man} and a ⟦ monsieur ⟧"
    # A longer term in which text is kept does not hide a shorter one. The place of a tag is that of the whole text.
    longer = Terms({"man {0}": "x", "man": "monsieur"})
    [tagged] = with_phrases([Request("<a> man {0}")], longer, Kept("braces"), pytest.fail, tags=["<a>"], inline=True)
    assert tagged.annotated == "<a> ⟦ monsieur ⟧ {0}"


def test_the_place_of_a_term_is_counted_among_its_words_that_the_model_reads():
    """Story: "York" of "New York" was replaced in place of the first. A placeholder, which is read, has no words."""
    terms = Terms({"York": "Yorck", "New York": "NY"})
    [request] = with_phrases([Request("York or New York", avoid=["NY"])], terms, Kept(""), pytest.fail)
    assert request.terms == (Term("York", "Yorck", after=1),)
    text = "man, {man}, man {0}"
    for kept, copied, expected in (("braces", "", [2, 0]), ("", r"\{\w+\}", [1, 0])):
        [request] = with_phrases([Request(text)], MAN, Kept(kept), pytest.fail, copied=Kept("", expression=copied))
        assert [term.after for term in request.terms] == expected


def test_phrases_are_those_of_the_part_that_is_read():
    """Story: {0} and "homme" of a part that the model did not read were forced into its translation."""
    text = "A dog runs in the green grass with a red ball and a man {0}."
    terms, asked = Terms({"man": "homme", "dog": "chien", "ball": "balle"}), []

    def required(text: str, size=lambda line: len(line.split())) -> list[str]:
        reads = lambda line: asked.append(line) or size(line) <= 10  # noqa: E731
        [request] = with_phrases([Request(text)], terms, Kept("braces"), pytest.fail, reads=reads)
        return request.required

    assert required(text) == ["chien"] and len(asked) < 10
    assert required(text.replace("red ", "")) == ["chien", "balle"]
    assert required("a cat", pytest.fail) == [], "A sentence without phrases is not read."
    # A part of a word is no word, and a script without spaces has none.
    terms = Terms({"man": "homme", "猫": "chat"})
    assert required("He's a manual for a man", len) == [] and required("He's a man, or a man", len) == ["homme"]
    assert required("在家里在家里在家小猫猫", len) == ["chat"]


def test_a_line_is_not_cut_within_what_is_kept():
    """Story: its beginning is no match, and has terms."""
    text = 'see <a href="http://a.b/c" title="my best man of all"> the dog and some more words here'
    terms, tag = Terms({"dog": "chien", "man": "homme", "href": "y"}), "<[^<>]+>"

    def reads(line: str) -> bool:  # A whole tag is one word, as a placeholder.
        return len(re.sub(tag, "T", line).split()) <= 5

    copied = {"reads": reads, "copied": Kept("", expression=tag)}
    [request] = with_phrases([Request(text)], terms, Kept(""), lambda warning: None, **copied)
    assert [term.source for term in request.terms] == ["dog"]


def test_a_shorter_term_is_found_where_a_longer_one_is_not_read_whole():
    terms, few = Terms({"old man": "vieux", "old": "ancien"}), lambda line: len(line.split()) <= 3
    [request] = with_phrases([Request("see the old man here")], terms, Kept(""), pytest.fail, reads=few)
    assert request.required == ["ancien"]
    # What is kept is read up to the cut: the man in the title comes after.
    text, few = 'the man <a title="my man of all">x</a> more', lambda line: len(line.split()) <= 5
    [request] = with_phrases([Request(text)], Terms({"man": "homme"}), Kept("/<[^<>]+>/"), pytest.fail, reads=few)
    assert request.required == ["homme"] and [term.after for term in request.terms] == [1]


def test_what_has_a_tab_is_not_kept_and_has_no_terms():
    copied = Kept("", expression=r"\{[^}]*\}")
    [request] = with_phrases([Request("a {my\tname} x")], Terms({"name": "nom"}), Kept(""), pytest.fail, copied=copied)
    assert request.required == [] and copied.of("a {my\tname} {x}") == ["{x}"]


def test_long_lines_with_much_to_keep_take_linear_time():
    seconds, terms = [], Terms({"man": "homme"})
    for number in (1000, 8000):
        text, started = "{a} " * number + "man " * 30, time.perf_counter()
        copied = Kept("", expression=r"\{\w+\}")
        list(with_phrases([Request(text)], terms, Kept(""), lambda warning: None, copied=copied))
        seconds.append(time.perf_counter() - started)
    assert seconds[1] < 30 * seconds[0] + 0.1


FORBIDDEN = Terms(
    {"man": "monsieur", "old man": "vieux", "sir": "jeune homme", "sea": "mer", "lake": "lac", "water": "eau"},
    {
        "man": ["homme", "Mann", "gars"], "old man": ["homme âgé"], "sea": ["océan", "étendue d'eau"],
        "lake": ["x" * 40, "étang"], "water": [f"w{number}" for number in range(17)],
    },
)  # fmt: skip


@pytest.mark.parametrize(("text", "avoid", "expected"), [
    ("a man", [], ["homme", "Homme", "Mann", "gars", "Gars"]),
    ("a man, a man", ["gars", "x"], ["gars", "x", "homme", "Homme", "Mann", "Gars"]),
    ("a woman", [], []),
    ("an old man", [], ["homme âgé", "Homme âgé"]),  # The longest term counts.
    ("a man, sir", [], ["Homme", "Mann", "gars", "Gars"]),  # "homme" is a part of what must appear.
    ("a man, man", ["monsieur"], ["monsieur"]),  # What the sentence says itself counts.
    ("sea", [], ["océan", "Océan", "étendue d'eau", "Étendue d'eau"]),
    ("lake", [], ["étang", "Étang"]),
    ("a man, water", [], ["homme", "Homme", "Mann", "gars", "Gars"]),
])  # fmt: skip
def test_forbidden_forms_are_avoided_where_their_term_is(text, avoid, expected):
    """As they are and with a capital letter, unless the sentence wants them, or there are too many."""
    warnings = []
    fits = lambda phrase, line: False  # noqa: E731
    [request] = extended([Request(text, avoid=avoid)], FORBIDDEN, Kept(""), warnings.append, fits)
    assert request.excluded == expected
    many = ", ".join(FORBIDDEN.forbidden["water"])
    left_out = {"lake": "x" * 40, "a man, water": many}.get(text)
    assert [warning.partition("Left out: ")[2] for warning in warnings] == ([left_out] if left_out else [])


def test_a_term_whose_translation_the_sentence_requires_itself_keeps_its_forbidden_forms():
    """Story: the term was left out, so "homme" could be written, and its second place was not translated."""
    requests = [
        Request("a man and a man", ["monsieur", "x"]),
        Request("a man", ["monsieur", "monsieur"]),
        Request("a man", ["x", "monsieur"], (), True),  # In their order.
        Request("a man", ["monsieur"] + ["x"] * (MAX_PHRASES - 1)),
    ]
    warnings = []
    found = extended(requests, FORBIDDEN, Kept(""), warnings.append, lambda phrase, line: False)
    expected = [["monsieur", "monsieur", "x"], ["monsieur", "monsieur"], ["monsieur", "x"], ["monsieur"] + ["x"] * 31]
    assert [sorted(each.required) for each in found] == expected
    forms = ["homme", "Homme", "Mann", "gars", "Gars"]
    assert [each.excluded for each in found] == [forms, forms, [], forms] and not warnings
    [inline] = with_phrases(requests[:1], FORBIDDEN, Kept(""), warnings.append, inline=True)
    assert inline == requests[0]  # A model that reads terms in the source need not read this one.


@pytest.mark.parametrize(("text", "phrase", "expected"), [
    ("un homme.", "homme", True), ("un homme-grenouille", "homme", True), ("un hommes", "homme", False),
    ("surhomme homme", "homme", True), ("un Homme", "homme", False), ("l'homme âgé", "homme âgé", True),
    ("C++!", "C++", True), ("小猫在", "猫", True), ("", "a", False), ("a", "", False),
])  # fmt: skip
def test_a_phrase_is_in_a_text_as_whole_words(text, phrase, expected):
    assert holds(text, phrase) == expected


@pytest.mark.parametrize(("fitting", "asked"), [(True, MAX_PHRASES), (False, 2 * MAX_PHRASES)])
def test_a_sentence_of_many_long_phrases_is_divided_into_sub_words_a_few_times_only(fitting, asked):
    """Story: it was divided once for each phrase, also for those beyond the limit."""
    calls, warnings = [], []
    many = [f"{number:040}" for number in range(1000)]
    fits = lambda phrase, text: calls.append(phrase) or fitting  # noqa: E731
    [request] = extended([Request(" ".join(many))], Terms({}), Kept("/\\d+/"), warnings.append, fits)
    assert request.required == many[: fitting * MAX_PHRASES] and calls == many[:asked] and len(warnings) == 1


def test_no_form_of_a_term_with_more_than_a_sentence_may_avoid_is_looked_at():
    """Story: 1,000 forms were compared with all phrases for each place of the term, and then left out."""
    forms, warnings = [f"{number:040}" for number in range(MAX_PHRASES + 1)], []
    terms = Terms({"man": "monsieur"}, {"man": forms})
    [request] = extended([Request("a man")], terms, Kept(""), warnings.append, pytest.fail)
    assert request.terms == (Term("man", "monsieur"),) and len(warnings) == 1 and forms[0] in warnings[0]


def test_forms_that_overlap_and_a_term_of_many_lines_are_read_in_time():
    """Story: 21 KB of one glossary took 13 seconds: forms of a term were checked anew at each place and each line."""
    forms, missed = ["a" * number for number in range(1, 100)], in_word.cache_info().misses
    Terms.read([f"x\t{'a' * 500}\t{'|'.join(forms)}"], "terms.tsv")
    assert in_word.cache_info().misses - missed <= 2
    began = time.process_time()
    Terms.read([f"x\ty\tform {number}" for number in range(3000)], "terms.tsv")
    assert time.process_time() - began < 3


def test_a_file_of_terms_has_a_term_and_its_translation_in_each_line():
    lines = ["house\tHaus", "", " house  boat \t Hausboot ", "\t", "house\tHaus"]
    assert Terms.read(lines, "terms.tsv").translations == {"house": "Haus", "house boat": "Hausboot"}


def test_forbidden_forms_are_the_third_column_with_bars_between_them():
    """With blanks, escaped bars, a backslash that escapes nothing, repeated forms and lines, and both cases."""
    lines = [
        "man\tmonsieur\thomme| Homme |un  gars ||homme|", "or\toder\ta\\|b|\\|\\||c\\d", "a|b\tc|d\t \u200b | ",
        "man\tmonsieur\thomme | type", "sea\tmer\t",
    ]  # fmt: skip
    terms = Terms.read(lines, "terms.tsv")
    assert terms.forbidden == {"man": ("homme", "Homme", "un gars", "type"), "or": ("a|b", "||", "c\\d")}
    assert terms.translations == {"man": "monsieur", "or": "oder", "a|b": "c|d", "sea": "mer"}
    assert terms.of("a man or a|b") == [
        Term("man", "monsieur", ("homme", "Homme", "un gars", "type")),
        Term("or", "oder", ("a|b", "||", "c\\d")),
        Term("a|b", "c|d"),
    ]


def test_spaces_of_unicode_in_a_term_and_its_translation_are_kept():
    """Story: NBSP in a term became a space, and the term was in no text."""
    terms = Terms.read(["10\xa0km\t10\u202fkm", "\u200b", "\xa0\t\u3000"], "terms.tsv")
    assert terms.of("a 10\xa0km b") == [Term("10\xa0km", "10\u202fkm")] and terms.of("a 10 km b") == []


@pytest.mark.parametrize(("text", "expected"), [
    ("<news> a <b>", " a <b>"), (">>deu_Latn<< a dog", " a dog"), (">>deu_Latn<<a dog", "a dog"),
    ("<news>a", "<news>a"), ("a <news> b", "a <news> b"), ("a >>de<<", "a >>de<<"), ("<2de> a", " a"),
])  # fmt: skip
def test_a_tag_at_the_beginning_is_no_text(text, expected):
    assert untagged(text, ["<news>", "", "<2de>"]) == expected


@pytest.mark.parametrize(("line", "message"), [
    ("house",
     "Expected a term, a tab and its translation in each line of the terms, and optionally another tab and forbidden "
     "forms with | between them. Received: line 2 of terms.tsv, 'house'."),
    ("house\t", "line 2 of terms.tsv, 'house.t'"),
    ("\tHaus", "line 2 of terms.tsv"),
    ("\u200b\tHaus", "line 2 of terms.tsv"),
    ("house\tHaus\tn.\t", "line 2 of terms.tsv"),
    ("house\taltes Haus\tHeim|Haus",
     "Line 2 of terms.tsv: Expected a translation without the forbidden forms of its term. Received: 'altes Haus' for "
     "'house', and the form 'Haus'."),
    (f"house\t{'H' * (MAX_CHARACTERS + 1)}",
     "Line 2 of terms.tsv: Expected terms, translations and forms of at most 2,048 characters. Received: 'H+, which "
     "has 2,049."),
    ("boat\tKahn",
     "Expected one translation for each term. Received: line 2 of terms.tsv, 'Kahn' for 'boat', which has 'Boot'."),
])  # fmt: skip
def test_a_line_that_is_no_term_is_reported_with_its_number(line, message):
    with pytest.raises(ValueError, match=message.replace("|", r"\|")):
        Terms.read(["boat\tBoot", line], "terms.tsv")


@pytest.mark.parametrize(("tags", "lines", "expected"), [
    (["<a>", "<b>"], ["<b> x", "", " ", "<c> y", "z"], [7]),
    (["<a>"], ["<a> x", "<a>x"], [5]),
    (["<a>", ""], ["x"], []),  # Some text of the training had none.
    ([""], ["x"], []),
    ([], ["x"], []),
])  # fmt: skip
def test_the_first_line_without_a_tag_is_warned_of_if_the_model_knows_no_others(tags, lines, expected):
    """Story: a model of several target languages mixed them, and nothing said that the text had no tags."""
    warnings: list[str] = []
    assert list(with_tags_checked(iter(lines), tags, warnings.append, 4)) == lines
    said = f"expected a tag at the beginning, {' or '.join(tags)}, as in the text that the model was trained on."
    assert warnings == [f"Line {number}: {said}" for number in expected]


def test_a_tag_is_named_once_and_a_tag_alone_is_blank():
    """Story: a run of several training files with the same tag named it five times, and hid another."""
    warnings: list[str] = []
    lines = ["hello", "<a> ", "<a> \u00a0", "<b> \u200b\ufeff", "<a> x", " ", "", "<a>", "<b>\t"]
    found = list(with_tags_checked(lines, ["<a>"] * 5 + ["<b>"], warnings.append))
    assert found == ["hello", "", "", "", "<a> x", " ", "", "", ""]
    assert list(with_tags_checked(["  ", "x"], ["", "<a>"], warnings.append)) == ["  ", "x"]
    wanted = ["Line 1: expected a tag at the beginning, <a> or <b>, as in the text that the model was trained on."]
    assert warnings == wanted
    request = Request("<a> \u00a0", ["x"])
    [blank] = with_tags_checked([request], ["<a>"], warnings.append, text_of=lambda each: each.text)
    assert blank == dataclasses.replace(request, text="")


MARIAN = [f">>{language}<<" for language in ("deu", "fra", "nld", "ita", "spa", "por")]


def test_a_tag_that_the_model_does_not_know_is_named_once_with_those_near_it():
    """Story: >>ger<< and lines without a tag were translated with <unk>, and nothing was said."""
    lines = [">>deu<<One", ">>ger<< two", " ", ">>fra<< x", "three", ">>ger<< four", ">>xx<< 5", "six"]
    requests, warnings = [Request(line) for line in lines], []
    assert list(with_tags_checked(requests, MARIAN, warnings.append, 4, lambda each: each.text, "Sentence")) == requests
    assert [warning.partition(":")[0] for warning in warnings] == ["Sentence 5", "Sentence 8", "Sentence 10"]
    trained = "one of 6, as in the text that the model was trained on."
    assert re.search(rf"beginning, (>>...<< or )*>>deu<<( or >>...<<)*, {trained} Received: >>ger<<.$", warnings[0])
    assert warnings[1].endswith(f">>deu<< or >>fra<< or >>nld<< or >>ita<< or >>spa<<, {trained}")
    assert warnings[2].endswith("Received: >>xx<<.")
    few = []
    list(with_tags_checked([">>ger<< two"], MARIAN[:2], few.append))
    assert few == [
        "Line 1: expected a tag at the beginning, >>deu<< or >>fra<<, as in the text that the model was trained on. "
        "Received: >>ger<<."
    ]
