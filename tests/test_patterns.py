"""Patterns of text to keep: what they find, and what is said of those that are none."""

import pytest

from t2t_keras.text.phrases import Kept

KEPT = "braces,printf,tags,urls,emails"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{0} files, {name:.2f} ${x} {{ a b }} {} {a b} { 0 }", ["{0}", "{name:.2f}", "${x}", "{{ a b }}", "{}"]),
        ("100% sure %s %1$d %(n)s %% %@ %5.2f %ld 50%", ["%s", "%1$d", "%(n)s", "%%", "%@", "%5.2f", "%ld"]),
        ("100%ige Sicherheit, 5%, 100%discount", []),
        ("a < b <b>x</b> <br/> 1<2>0", ["<b>", "￭</b>", "<br/>"]),
        ('<a href="http://x.de/{0}">', ['<a href="http://x.de/{0}">']),
        ("https://x.org/a_b?c=1#d, www.x.de. http://a/{0}!", ["https://x.org/a_b?c=1#d", "www.x.de", "http://a/{0}"]),
        ("(https://x.org) http://", ["￭https://x.org"]),
        ("a.b+c@x-y.co.uk, @x, a@b", ["a.b+c@x-y.co.uk"]),
        ("<a\thref> {{ a\nb }} <b\u00a0c>", ["<b\u00a0c>"]),
        ("{0}{0} {0}", ["{0}", "￭{0}", "{0}"]),
        ("", []),
    ],
)
def test_what_is_kept_is_found_where_it_is_and_follows_text_as_there(text, expected):
    assert Kept(KEPT).of(text) == expected
    assert Kept("").of(text) == Kept("/ +/").of(text) == []


@pytest.mark.parametrize(
    ("own", "text", "expected"),
    [
        (r"\(?\d{3}\)?-\d+", "(030)-12", "(030)-12"),
        (r"[(?!]+x", "?!x", "?!x"),
        (r"\\1x", r"\1x", r"\1x"),
        (r"[]:a:]+", ":a]", ":a]"),
    ],
)
def test_escaped_characters_and_classes_are_not_taken_for_assertions_and_references(own, text, expected):
    assert Kept(f"/{own}/").of(text) == [expected]


def test_the_first_pattern_counts_and_own_expressions_may_hold_commas_and_slashes():
    assert Kept(r"braces, /\$\w{1,3}/ ,/a\/b/").of("{0} $abcd $ü a/b <b>") == ["{0}", "$abc", "a/b"]
    assert Kept(r"/\{0\}-x/,braces").of("{0}-x") == ["{0}-x"] and Kept(r"braces,/\{0\}-x/").of("{0}-x") == ["{0}"]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            "url",
            "expected names among braces, printf, tags, urls, emails, and regular expressions between slashes.* "
            "Received: 'url'.$",
        ),
        ("braces,,tags", "Received: 'braces,,tags'.$"),
        ("/a", "Received: '/a'.$"),
        ("/a/b/", "Received: '/a/b/'.$"),
        (",", "Received: ','.$"),
        (
            "braces,/a*/",
            "expected regular expressions of both Python and RE2 that match text. Received: /a.*/. It matches empty "
            "text.$",
        ),
        ("/a|(/", r"Received: /a\|\(/. It is invalid: missing "),
        ("/(?<=a)b/", r"Assertions, references and flags are not supported: \(\?<\.$"),
        (r"/\\\((?>b)/", r"Assertions, references and flags are not supported: \(\?>\.$"),
        (r"/(a)[(?!]\1/", r"Assertions, references and flags are not supported: \\1\.$"),
        (r"/\$\w{,8}x{,}/", r"RE2 has no \{,8\}: write \{0,8\}\.$"),
        ("/[[:upper:]]{2,}x/", r"Python has no \[:upper:\]: list the characters, as in \[A-Z\]\.$"),
        (r"/a[^\].[:^digit:]]/", r"Python has no \[:\^digit:\]"),
        (r"/\p{Lu}+/", "expected regular expressions of both Python and RE2 .* It is invalid: bad escape"),
    ],
)
def test_what_is_no_pattern_is_refused(option, message):
    with pytest.raises(ValueError, match=f"^`keep_patterns`: .*{message}"):
        Kept(option)
