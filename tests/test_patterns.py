"""Patterns of text to keep: what they find, how long that takes, and what is said of those that are none."""

import inspect
import sys
import time

import pytest

from t2t_keras.config import DataConfig
from t2t_keras.text.kept import Kept
from t2t_keras.text.placeholders import find_all

KEPT = "braces,printf,tags,urls,emails"
both_engines = pytest.mark.parametrize("engine", [None, find_all], ids=["python", "re2"])


@both_engines
@pytest.mark.parametrize(("text", "expected"), [
    ("{0} files, {name:.2f} ${x} {{ a b }} {} {a b} { 0 }", ["{0}", "{name:.2f}", "${x}", "{{ a b }}", "{}"]),
    ("100% sure %s %1$d %(n)s %% %@ %5.2f %ld 50%", ["%s", "%1$d", "%(n)s", "%%", "%@", "%5.2f", "%ld"]),
    ("100%ige Sicherheit, 5%, 100%discount", []),
    ("a < b <b>x</b> <br/> 1<2>0", ["<b>", "￭</b>", "<br/>"]),
    ('<a href="http://x.de/{0}">', ['<a href="http://x.de/{0}">']),
    ("https://x.org/a_b?c=1#d, www.x.de. http://a/{0}!", ["https://x.org/a_b?c=1#d", "www.x.de", "http://a/{0}"]),
    ("(https://x.org) http://", ["￭https://x.org"]),
    ("请访问https://x.org/a，谢谢。（www.x.cn）", ["￭https://x.org/a", "￭www.x.cn"]),
    ("https://x.jp/\u3000です www.x.fr\u00a0! http://x.org/é", ["https://x.jp/", "www.x.fr", "http://x.org/é"]),
    ("a.b+c@x-y.co.uk, @x, a@b", ["a.b+c@x-y.co.uk"]),
    ("<a\thref> {{ a\nb }} <b\u00a0c>", ["<b\u00a0c>"]),
    ("{0}{0} {0}", ["{0}", "￭{0}", "{0}"]),
    ("", []),
])  # fmt: skip
def test_what_is_kept_is_found_where_it_is_and_follows_text_as_there(text, expected, engine):
    assert Kept(KEPT, engine).of(text) == expected
    assert Kept("", engine).of(text) == Kept("/ +/", engine).of(text) == []


@both_engines
@pytest.mark.parametrize(("own", "text", "expected"), [
    (r"\(?\d{3}\)?-\d+", "(030)-12", "(030)-12"), (r"[(?!]+x", "?!x", "?!x"), (r"\\1x", r"\1x", r"\1x"),
    (r"[]:a:]+", ":a]", ":a]"),
])  # fmt: skip
def test_escaped_characters_and_classes_are_not_taken_for_assertions_and_references(own, text, expected, engine):
    assert Kept(f"/{own}/", engine).of(text) == [expected]


def test_the_first_pattern_counts_and_own_expressions_may_hold_commas_and_slashes():
    assert Kept(r"braces, /\$\w{1,3}/ ,/a\/b/").of("{0} $abcd $ü a/b <b>") == ["{0}", "$abc", "a/b"]
    assert Kept(r"/\{0\}-x/,braces").of("{0}-x") == ["{0}-x"] and Kept(r"braces,/\{0\}-x/").of("{0}-x") == ["{0}"]


@pytest.mark.parametrize(("option", "message"), [
    ("url",
     "expected names among braces, printf, tags, urls, emails, and regular expressions between slashes.* "
     "Received: 'url'.$"),
    ("braces,,tags", "Received: 'braces,,tags'.$"),
    ("/a", "Received: '/a'.$"),
    ("/a/b/", "Received: '/a/b/'.$"),
    (",", "Received: ','.$"),
    ("braces,/a*/",
     "expected regular expressions of both Python and RE2 that match text. Received: /a.*/. It matches empty text.$"),
    ("/a|(/", r"Received: /a\|\(/. It is invalid: missing "),
    ("/(?<=a)b/", r"Assertions, references and flags are not supported: \(\?<\.$"),
    (r"/\\\((?>b)/", r"Assertions, references and flags are not supported: \(\?>\.$"),
    (r"/(a)[(?!]\1/", r"Assertions, references and flags are not supported: \\1\.$"),
    (r"/\$\w{,8}x{,}/", r"RE2 has no \{,8\}: write \{0,8\}\.$"),
    ("/[[:upper:]]{2,}x/", r"Python has no \[:upper:\]: list the characters, as in \[A-Z\]\.$"),
    (r"/a[^\].[:^digit:]]/", r"Python has no \[:\^digit:\]"),
    (r"/\b/", "It matches empty text.$"),
    ("/(?:(?:|){25})x*/", "It matches empty text.$"),
    ("/a{99999999999999}/", r"/a\{9+\}/. It is invalid: the repetition number is too large.$"),
    (f"/{'(' * 20_000}a{')' * 20_000}/", r"expected at most 1,000 characters. Received: '/\(*, which has 40,003.$"),
    (f"/{'[' * 20_000}/", r"expected at most 1,000 characters. Received: '/\[*, which has 20,002.$"),
    (r"/\p{Lu}+/", "expected regular expressions of both Python and RE2 .* It is invalid: bad escape"),
])  # fmt: skip
def test_what_is_no_pattern_is_refused(option, message):
    begin = time.perf_counter()
    with pytest.raises(ValueError, match=f"^`keep_patterns`: .*{message}") as error:
        Kept(option)
    assert time.perf_counter() - begin < 0.5 and len(f"{error.value}".splitlines()) == 1


def test_groups_that_are_nested_deeper_than_the_stack_allows_are_refused():
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 200)
    try:
        with pytest.raises(ValueError, match="Its groups are nested too deeply.$"):
            Kept(f"/{'(' * 400}a{')' * 400}/")
    finally:
        sys.setrecursionlimit(limit)


def test_options_from_a_folder_are_checked_without_matching_their_patterns():
    """Story: `/(a+)+b/` with a long tag, in the folder of a stranger, took exponential time wherever it was read."""
    begin = time.perf_counter()
    DataConfig(keep_patterns="/(a+)+b/", source_tag="a" * 28)
    assert time.perf_counter() - begin < 0.5


@pytest.mark.parametrize(
    ("option", "text"),
    [("/(a+)+b/", "a" * 28), ("emails", "a" * 100_000), ("printf", "%" + "0" * 100_000), ("tags", "<b>" * 20_000)],
)
def test_what_is_kept_is_found_in_linear_time(option, text):
    """Story: each match looked through the text before it, 4.9 s for 64 KB of tags."""
    begin = time.process_time()
    kept = Kept(option, find_all).of(text)
    assert kept == (["<b>", *["￭<b>"] * 19_999] if option == "tags" else [])
    assert Kept(option, find_all).shared([text, "x"], [text, text]) == bool(kept)
    if not option.startswith("/"):
        assert Kept(option).of(text) == kept
    assert time.process_time() - begin < 2


def test_an_expression_that_re2_refuses_is_told_where_it_is_used():
    with pytest.raises(ValueError, match=r"^`keep_patterns`: expected regular expressions of RE2. Received: '.*a.1001"):
        Kept("/a{1001}/", find_all).of("a")
