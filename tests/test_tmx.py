"""Text of two sides: TMX is what XML says it is, whatever program wrote it, and nothing that a stranger wrote takes the
machine; TSV is its first two columns.
"""

import codecs
import dataclasses
import gzip
import io
import itertools
import json
import lzma
import pathlib
import random
import xml.etree.ElementTree as ElementTree

import pytest
import toy
from logged import logged
from test_text_files import zipped

from t2t_keras.config import DataConfig, FilterConfig, names_of_target, text_format
from t2t_keras.data import corpora, prepare, text_files
from t2t_keras.filtering import judging
from t2t_keras.runs import registry
from t2t_keras.text import lines, tmx

NO_LANGUAGES = ("", "")
CODES = ("bpt", "ept", "ph", "it", "ut", "sub")


def read(content: str | bytes, languages=NO_LANGUAGES, name="x.tmx") -> tuple[list[tuple[str, str]], dict[str, int]]:
    """Returns the pairs, and what was counted."""
    report = text_files.Report()
    stream = io.BytesIO(content if isinstance(content, bytes) else content.encode())
    pairs = [tuple(side.decode() for side in pair) for pair in tmx.pairs(stream, name, languages, report)]
    return pairs, {name: count for name, count in vars(report).items() if count}


def refusal(content: str | bytes, languages=NO_LANGUAGES) -> str:
    with pytest.raises(ValueError) as refused:
        read(content, languages)
    return str(refused.value)


def document(*units: str, header: str = 'srclang="en"', before: str = "") -> str:
    return f'{before}<tmx version="1.4"><header {header}/><body>{"".join(units)}</body></tmx>'


def variant(code: str, xml: str) -> str:
    return f'<tuv xml:lang="{code}"><seg>{xml}</seg></tuv>'


def unit(**segments: str) -> str:
    """Returns a unit with a segment for each language, in XML."""
    return f"<tu>{''.join(variant(code.replace('_', '-'), xml) for code, xml in segments.items())}</tu>"


OPUS = """<?xml version="1.0" encoding="UTF-8" ?>
<tmx version="1.4">
<header creationdate="Mon Nov 27 2026" srclang="de" adminlang="de" o-tmf="unknown" segtype="sentence"
        creationtool="Uplug" creationtoolversion="unknown" datatype="PlainText" />
  <body>
    <tu>
      <tuv xml:lang="de"><seg>Zwei Hunde &amp; eine Katze</seg></tuv>
      <tuv xml:lang="en"><seg>Two dogs &amp; a cat</seg></tuv>
    </tu>
    <tu>
      <tuv xml:lang="de"><seg>ja</seg></tuv>
      <tuv xml:lang="en"><seg>yes</seg></tuv>
    </tu>
  </body>
</tmx>
"""
OMEGAT = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx11.dtd">
<tmx version="1.1">
  <header creationtool="OmegaT" o-tmf="OmegaT TMX" adminlang="EN-US" datatype="plaintext" creationtoolversion="6.0"
          segtype="sentence" srclang="EN-US"/>
  <body>
<!-- Default translations -->
    <tu>
      <tuv lang="EN-US">
        <seg>A dog.</seg>
      </tuv>
      <tuv lang="FR-FR" changeid="me" changedate="20261127T120000Z">
        <seg>Un chien.</seg>
      </tuv>
    </tu>
<!-- Alternative translations -->
    <tu>
      <note>not sure</note>
      <prop type="file">a.txt</prop>
      <tuv lang="EN-US">
        <seg>A line
          and another.</seg>
      </tuv>
      <tuv lang="FR-FR">
        <seg>Une ligne&#13;&#10;et une autre.</seg>
      </tuv>
    </tu>
    <tu><tuv lang="EN-US"><seg>alone</seg></tuv></tu>
  </body>
</tmx>
"""
TRADOS = """<?xml version="1.0" encoding="utf-16"?>
<!DOCTYPE tmx PUBLIC "-//LISA OSCAR:1998//DTD for Translation Memory eXchange//EN" "tmx14.dtd">
<tmx version="1.4b"><header creationtool="TRADOS Translator's Workbench" segtype="sentence" o-tmf="TW4Win 2.0 Format"
 adminlang="EN-US" srclang="*all*" datatype="rtf"><prop type="RTFFontTable">{\\rtf1 \\ansi}</prop></header><body>
<tu creationdate="20261127T120000Z" usagecount="1"><prop type="Txt::x">y</prop>
<tuv xml:lang="EN-GB"><seg><bpt i="1">{\\b </bpt>Bold<ept i="1">}</ept> and
  <ut>{\\f1</ut><hi type="t">café</hi> <ph x="1">{<sub>a note</sub>}</ph>&#8364;5</seg></tuv>
<tuv xml:lang="DE-DE"><seg><it pos="begin">{\\i</it>Fett und Café 5 €</seg></tuv>
<tuv xml:lang="DE-AT"><seg>andere</seg></tuv></tu>
</body></tmx>
""".encode("utf-16")


@pytest.mark.parametrize(("content", "languages", "expected", "counts"), [
    (OPUS, NO_LANGUAGES, [("Zwei Hunde & eine Katze", "Two dogs & a cat"), ("ja", "yes")], {}),
    (OPUS, ("en", "de"), [("Two dogs & a cat", "Zwei Hunde & eine Katze"), ("yes", "ja")], {}),
    (OPUS, ("", "de"), [("Two dogs & a cat", "Zwei Hunde & eine Katze"), ("yes", "ja")], {}),
    (OMEGAT, NO_LANGUAGES, [("A dog.", "Un chien."), ("A line and another.", "Une ligne et une autre.")], {"units": 1}),
    (OMEGAT, ("fr", "en_us"), [("Un chien.", "A dog."), ("Une ligne et une autre.", "A line and another.")],
     {"units": 1}),
    (TRADOS, ("en", "de"), [("Bold and café €5", "Fett und Café 5 €")], {"tagged": 2, "variants": 1}),
    (TRADOS, ("de-AT", "EN"), [("andere", "Bold and café €5")], {"tagged": 1}),
    # A unit that is left out has no sides of which the first counts.
    (document(unit(en="a", en_GB="b"), unit(en="c", fr="d")).encode(), ("en", "fr"), [("c", "d")], {"units": 1}),
    # Story: it lacked a language if that which is both came first.
    (document(unit(en_GB="a", en_US="b"), unit(en_US="c", en_GB="d")).encode(), ("en", "en-gb"),
     [("b", "a"), ("c", "d")], {"variants": 2}),
    # Story: tags of other languages, and of units that are left out, were counted.
    (document(unit(en="a", de="b", fr="<it pos='begin'/>c"), unit(fr="<it pos='begin'/>d")).encode(), ("en", "de"),
     [("a", "b")], {"units": 1}),
], ids=range(10))  # fmt: skip
def test_the_files_of_other_programs_are_read(content, languages, expected, counts):
    assert read(content, languages) == (expected, counts)


def oracle(content: str, languages: tuple[str, str]) -> list[tuple[str, str]]:
    """The pairs of a whole document, by another parser, for languages that have one spelling in it."""

    def text(element) -> str:
        inside = "".join(("" if child.tag in CODES else text(child)) + (child.tail or "") for child in element)
        return (element.text or "") + inside

    pairs = []
    for each in ElementTree.fromstring(content).iter("tu"):
        found = {}
        for variant in each.iter("tuv"):
            code = variant.get("{http://www.w3.org/XML/1998/namespace}lang")
            line = text(variant.find("seg"))
            if "\n" in line:
                line = " ".join(filter(None, (part.strip(" \t") for part in line.split("\n"))))
            found.setdefault(code, line)
        if all(language in found for language in languages):
            pairs.append(tuple(found[language] for language in languages))
    return pairs


@pytest.mark.parametrize("seed", range(4))
def test_pairs_are_those_of_another_parser(monkeypatch, seed):
    """Of files with everything that segments may hold, read in blocks of every size."""
    draw = random.Random(seed)
    words = "a dog é 日本 🐕 &amp; &lt;b&gt; &#233; &#x1F415; ]] <!--c-->".split()
    words += ["<![CDATA[<i> & ]]>", "\u2028", "\t"]
    words += ["<?p i?>", "x\ny"]

    def segment(depth: int = 0) -> str:
        parts = draw.choices(words, k=draw.randint(0, 6))
        if depth < 3 and draw.random() < 0.5:
            tag = draw.choice([*CODES, "hi", "g"])
            parts.insert(draw.randint(0, len(parts)), f'<{tag} i="1">{segment(depth + 1)}</{tag}>')
        return draw.choice(["", " "]).join(parts)

    def some_unit() -> str:
        codes = draw.choices(["en", "fr", "de"], weights=[5, 5, 1], k=draw.randint(0, 4))
        variants = [f'<tuv xml:lang="{code}"><prop>p</prop><seg>{segment()}</seg></tuv>' for code in codes]
        return f'<tu tuid="{draw.random()}">{"".join(variants)}</tu>'

    content = document(*(some_unit() for _ in range(300)))
    expected = oracle(content, ("en", "fr"))
    assert len(expected) > 100
    for size in (1, 7, 1000, 2**18):
        monkeypatch.setattr(tmx, "_BLOCK", size)
        assert read(content, ("en", "fr"))[0] == expected


@pytest.mark.parametrize(("asked", "codes", "chosen"), [
    (("en", "fr"), ["en", "fr"], (0, 1)),
    (("en", "fr"), ["fr", "en"], (1, 0)),
    (("EN", "Fr"), ["en-US", "fr_CA"], (0, 1)),
    (("en_us", "fr"), ["EN-US", "fr"], (0, 1)),
    (("en", "fr"), ["en-GB", "en", "fr"], (1, 2)),  # The same code first.
    (("en", "fr"), ["en-GB", "en-US", "fr"], (0, 2)),
    (("en-US", "fr"), ["en", "fr"], (0, 1)),
    (("en-US", "fr"), ["en-GB", "fr"], None),
    (("en-US", "en-GB"), ["en-GB", "en-US"], (1, 0)),
    (("en", "fr"), ["eng", "fr"], None),
    (("eng", "fr"), ["en", "fr"], None),
    (("zh-Hant", "fr"), ["zh", "zh-Hant-TW", "fr"], (0, 2)),
    (("en", "en-GB"), ["en-GB"], None),  # One segment is not both sides.
    (("en", "fr"), ["", "fr"], None),
    (NO_LANGUAGES, ["fr", "en-US"], (1, 0)),  # The header says en.
    (NO_LANGUAGES, ["en", "fr", "de"], None),
    (NO_LANGUAGES, ["de", "fr"], None),
    (NO_LANGUAGES, ["en-US", "en-GB"], None),
    (("fr", ""), ["fr", "en"], (0, 1)),
    (("", "en"), ["fr", "en"], (0, 1)),
    (("fr", ""), ["fr", "en", "de"], None),
    (("de", ""), ["fr", "en"], None),
], ids=str)  # fmt: skip
def test_languages_are_chosen_by_their_codes(asked, codes, chosen):
    content = document(f"<tu>{''.join(variant(code, str(place)) for place, code in enumerate(codes))}</tu>")
    if chosen:
        assert read(content, asked)[0] == [tuple(map(str, chosen))]
    else:
        named = ", ".join(code.lower() for code in codes if code)
        assert refusal(content, asked).endswith(f"as `source_language` and `target_language`: {named}.")


def test_without_languages_the_header_and_the_first_unit_that_has_several_decide_and_it_is_said_once(messages):
    content = document(
        unit(fr="seul"), unit(fr="un", en_US="one"), unit(de="zwei", en_US="two"), unit(en_US="3", fr="trois")
    )
    for _ in range(2):
        assert read(content, name="said.tmx") == ([("one", "un"), ("3", "trois")], {"units": 2})
    assert messages == ["said.tmx: from en to fr."]
    assert "has no unit in en and it." in refusal(content, ("en", "it"))
    any_language = document(unit(en="a", fr="b"), header='srclang="*all*"')
    assert "x.tmx does not say which languages are source and target." in refusal(any_language)


@pytest.mark.parametrize(("encoding", "declared"), [
    ("utf-8", ""), ("utf-8", "UTF-8"), ("utf-8-sig", ""), ("utf-8-sig", "utf-8"), ("utf-16", "UTF-16"), ("utf-16", ""),
    ("utf-16-le", "UTF-16"), ("iso-8859-1", "ISO-8859-1"), ("cp1252", "windows-1252"),
])  # fmt: skip
def test_the_encoding_is_that_of_the_declaration_or_the_byte_order_mark(encoding, declared):
    declaration = f'<?xml version="1.0" encoding="{declared}"?>' if declared else ""
    content = document(unit(en="caf\xe9", fr="d\xe9j\xe0"), before=declaration)
    assert read(content.encode(encoding))[0] == [("caf\xe9", "d\xe9j\xe0")]


A_UNIT = unit(en="a", fr="b")
BOMB = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'


@pytest.mark.parametrize(("content", "said"), [
    ("", "x.tmx is empty. Expected TMX."),
    ("A dog.\n", "x.tmx is broken XML: syntax error, line 1, column 1."),
    (document(A_UNIT)[:-30], "x.tmx is broken XML: no element found, line 1, column"),
    (document(A_UNIT) + "<tmx/>", "x.tmx is broken XML: junk after document element, line 1, column"),
    (document(A_UNIT, "\n<tu></tmx>"), "x.tmx is broken XML: mismatched tag, line 2, column 7."),
    (document(unit(en="&nbsp;", fr="b")), "x.tmx is broken XML: undefined entity, line 1, column"),
    (document("\n" + unit(en="&nbsp;", fr="b"), before='<!DOCTYPE tmx SYSTEM "tmx14.dtd">'),
     "x.tmx, line 2 has &nbsp;, which XML does not define."),
    (document(A_UNIT).encode() + b"\xff", "x.tmx is broken XML: not well-formed (invalid token), line 1, column"),
    ("<html><body>TMX</body></html>", "x.tmx is not TMX: its root element is <html>."),
    (document(), "x.tmx has no units of translation (<tu>)."),
    (document("<tu></tu>"), "x.tmx does not say which languages"),
    (document("<tu></tu>"), "`target_language`: none."),
    (document(A_UNIT, before='<?xml version="1.0" encoding="shift_jis"?>'), "x.tmx cannot be decoded: multi-byte enc"),
    (document(A_UNIT, before='<?xml version="1.0" encoding="xyz"?>'), "cannot be decoded: unknown encoding: xyz."),
    (document(A_UNIT, before=BOMB), "x.tmx, line 1 declares entities or elements in its DOCTYPE"),
    (document(A_UNIT, before='<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/passwd">]>'), "declares entities"),
    (document(A_UNIT, before='<!DOCTYPE tmx [<!ENTITY % a SYSTEM "http://127.0.0.1:1/a">%a;]>'), "declares entities"),
    (document(A_UNIT, before='<!DOCTYPE tmx SYSTEM "tmx14.dtd" [<!ATTLIST tuv x CDATA "y">]>'), "declares entities"),
    (document(unit(en="a" * 2**18, fr="b")), "line 1 is in a unit of more than 262,144 characters."),
    (document(f"<tu>{variant('x', '') * 132_000}"), "in a unit of more than 262,144 characters."),
    (document(f"<!-- {'a' * 2**21}"), "line 1 begins a tag or a comment of more than 1,048,576 bytes."),
    (document(f"<tu a='{'a' * 2**21}"), "line 1 begins a tag or a comment of more than 1,048,576 bytes."),
    (document("<a>" * 200), "line 1 has more than 100 nested elements."),
    (document("".join(f"<a{number}/>" for number in range(20_000))), "more than 10,000 different names"),
    (document("".join(f"<a b{number}=''/>" for number in range(20_000))), "more than 10,000 different names"),
], ids=range(25))  # fmt: skip
def test_what_is_broken_or_an_attack_is_refused_in_a_sentence(content, said):
    message = refusal(content)
    assert said in message and "\n" not in message


@pytest.mark.parametrize(("content", "said"), [
    (zipped(document(A_UNIT).encode()), "x.tmx is a zip archive. Expected TMX: unpack it with unzip."),
    (lzma.compress(document(A_UNIT).encode()), "x.tmx is compressed with xz. Expected TMX: unpack it with xz -d."),
])  # fmt: skip
def test_a_compressed_file_is_called_what_it_is(content, said):
    assert refusal(content) == said


def test_lines_of_a_segment_become_one_in_linear_time():
    spaces = " " * 200_000
    content = document(unit(en=f"\n{spaces}a{spaces[:9]}\n", fr=f"b\r\n\n \tc{spaces[:9]}d"))
    assert read(content)[0] == [("a", f"b c{spaces[:9]}d")]


def test_external_files_are_not_loaded_and_other_markup_is_no_text(tmp_path):
    (tmp_path / "tmx14.dtd").write_text('<!ENTITY x "loaded">')
    before = f'<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "{tmp_path}/tmx14.dtd">\n<?xml-stylesheet href="x"?>\n'
    assert read(document(A_UNIT, before=before))[0] == [("a", "b")]
    expected = "x.tmx, line 1 has <seg> within <seg>, which TMX does not allow."
    assert refusal(document(unit(en="a<seg>b</seg>c", fr="d"))) == expected
    assert refusal(document(f"<tu>{A_UNIT}</tu>")) == "x.tmx, line 1 has <tu> within <tu>, which TMX does not allow."


class Generated(io.RawIOBase):
    """A file of so many units, which is nowhere whole."""

    def __init__(self, number: int):
        begin, end = document("|").split("|")
        units = (unit(en=f"a dog {index} {'runs ' * 40}", fr="un chien") for index in range(number))
        self._parts, self.size = itertools.chain([begin], units, [end]), 0

    def read(self, size: int) -> bytes:
        block = "".join(itertools.islice(self._parts, size // 400)).encode()
        self.size += len(block)
        return block


def test_memory_does_not_grow_with_the_file():
    stream, report = Generated(8000), text_files.Report()
    with toy.memory_below(2_000_000):
        number = sum(1 for _ in tmx.pairs(stream, "x.tmx", NO_LANGUAGES, report))
    assert number == 8000 and stream.size > 2_000_000


# In the place of two text files.


@pytest.mark.parametrize(("name", "expected"), [
    ("a.tmx", "tmx"), ("a.tsv", "tsv"), ("x/a.b.TMX.gz", "tmx"), ("*.tsv", "tsv"), ("a.tmx@3", "tmx"),
    ("a.tmx.txt", ""),    ("tmx", ""), ("a.en", ""), ("", ""), ("a.tmx.gz@12 ", "tmx"), ("a.xml", ""), ("a.tmx/b", ""),
])  # fmt: skip
def test_the_end_of_a_name_says_whether_a_file_has_two_sides(name, expected):
    assert text_format(name) == expected


@pytest.mark.parametrize(("source", "target", "expected"), [
    ("a.tmx", "", "a.tmx"), ("a.tmx,b.tsv@2", "", "a.tmx,b.tsv@2"), ("a.tmx,b.en", "", ""), ("a.tmx", "b.fr", "b.fr"),
    ("a.en", "", ""), ("", "", ""), ("a.en,b.tmx", "a.fr,b.tmx", "a.fr,b.tmx"),
])  # fmt: skip
def test_a_target_that_is_left_out_is_that_of_files_with_two_sides(source, target, expected):
    assert names_of_target(source, target) == expected
    given = {"valid_source": source, "valid_target": target} if source else {}
    data = DataConfig("x", "y", **given)
    assert data.text("valid", "target") == expected and data.text("valid", "source") == source


PAIRS = [("A dog runs.", "Un chien court."), ('two "dogs"', "deux « chiens »"), ("é\u2028x", "y"), ("four", "quatre")]


@pytest.fixture
def texts(tmp_path) -> dict[str, str]:
    """Writes the same pairs as files of each form; gives their names by the end of their names."""
    contents = {
        "en": "".join(f"{source}\n" for source, _ in PAIRS).encode(),
        "fr": "".join(f"{target}\n" for _, target in PAIRS).encode(),
        "tsv": codecs.BOM_UTF8 + "".join(f"{source}\t{target}\r\n" for source, target in PAIRS).encode(),
        "tmx": document(*(unit(fr=target, en=source) for source, target in PAIRS)).encode(),
    }
    contents |= {f"{form}.gz": gzip.compress(contents[form]) for form in ("tsv", "tmx")}
    for form, content in contents.items():
        (tmp_path / f"text.{form}").write_bytes(content)
    return {form: str(tmp_path / f"text.{form}") for form in contents}


def pairs_of(source: str, target: str, **options) -> tuple[list, text_files.Report]:
    report = text_files.Report()
    return list(text_files.pairs(source, target, report=report, **options)), report


@pytest.mark.parametrize("form", ["tmx", "tsv", "tmx.gz", "tsv.gz"])
def test_a_file_of_two_sides_is_what_two_files_are(texts, form):
    """Alone, beside text files, with weights and tags, and counted."""
    en, fr, both = texts["en"], texts["fr"], texts[form]
    expected = pairs_of(en, fr)[0]
    assert pairs_of(both, both)[0] == expected
    assert pairs_of(f"{en},{both}@2", f"{fr},{both}")[0] == 3 * expected
    tagged = pairs_of(f"{en},{both},{both}", f"{fr},{both},{both}", tags=["", "<a>", "<b>"])[0]
    assert tagged == expected + [(tag + source, target) for tag in (b"<a> ", b"<b> ") for source, target in expected]
    hashes = {}
    pairs_of(f"{en},{both}", f"{fr},{both}", hashes=hashes)
    assert {str(path): value for path, value in hashes.items()} == {
        name: corpora.describe(path)["sha256"] for name in (en, fr, both) if (path := text_files.expand(name)[0])
    }
    text_files.check_texts([(both, both), (f"{en},{both}@2", f"{fr},{both}")], True)
    for source, target, received in (
        (both, fr, f"{both} and {fr}"), (en, both, f"{en} and {both}"), (f"{en},{both}", fr, f"{both} and none"),
        (f"{en},{both}", f"{both},{fr}", f"{en} and {both}"),
    ):  # fmt: skip
        for read in (pairs_of, lambda *sides: text_files.check_texts([sides])):
            with pytest.raises(ValueError, match=rf"must stand at the same place of both. Received: {received}\. If"):
                read(source, target)
    assert text_files.text(both, side=0) == [source for source, _ in PAIRS]
    wanted = [[source for source, _ in PAIRS], *[[target for _, target in PAIRS]] * 2]
    assert text_files.texts([("a", both), ("b", both), ("c", fr)], (0, 1, None)) == wanted


@pytest.mark.parametrize(("form", "content", "counts", "said"), [
    ("tsv", "a\tA\tx\ty\r\nb\tB\n\tC\nd\tD\t\n", {"columns": 2, "carriage_returns": 1, "empty": 1},
     "2 lines with columns after the second, which are ignored"),
    ("tmx", document(unit(en="a", fr="A"), unit(en="b"), unit(en="<hi>c</hi>", fr_FR="C", fr_CA="K"),
                     unit(en="d", fr="D"), unit(en="", fr="E")),
     {"units": 1, "variants": 1, "tagged": 1, "empty": 1},
     "1 unit left out (no segment in one of the languages), 1 side of units with several segments, of which the "
     "first is used, 1 segment with formatting tags removed"),
])  # fmt: skip
def test_what_a_file_of_two_sides_has_beside_pairs_is_counted_once(tmp_path, messages, form, content, counts, said):
    """Whether all files have two sides or not."""
    both, text = f"{tmp_path}/a.{form}", f"{tmp_path}/text"
    pathlib.Path(both).write_text(content)
    pathlib.Path(text).write_text("x\n" * 4)
    for names, pairs in ((both, 3), (f"{both},{text}", 7)):
        report = pairs_of(names, names, languages=("en", "fr"))[1]
        assert report == text_files.Report(pairs=pairs, **counts) and said in str(report)
        of_text = ("carriage_returns", "empty")
        assert report.of_two_sides == {name: count for name, count in counts.items() if name not in of_text}
    text_files.text(both, side=1, languages=("en", "fr"))
    text_files.texts([("source", both), ("target", both)], (0, 1), ("en", "fr"))
    assert sum(said in message for message in messages) == 1


def test_all_tmx_files_give_the_same_languages(tmp_path):
    """Story: without languages, each file had its own, and texts of both directions were one."""
    paths = [tmp_path / f"{name}.tmx" for name in "ab"]
    for path, source in zip(paths, ("en", "fr"), strict=True):
        path.write_text(document(unit(en="a", fr="b"), header=f'srclang="{source}"'))
    first, second = map(str, paths)
    both = f"{first},{second}"
    message = f"Several TMX files need `source_language` and `target_language`.* Received: {both.replace(',', ', ')}"
    readers = (
        lambda *chosen: pairs_of(both, both, languages=chosen),
        lambda *chosen: text_files.check_texts([(first, first), (second, second)], languages=chosen),
        lambda *chosen: text_files.texts([("a", first), ("b", second)], (0, 1), chosen),
    )
    for read in readers:
        for chosen in (("", ""), ("en", "")):
            with pytest.raises(ValueError, match=message):
                read(*chosen)
        read("en", "fr")
    assert pairs_of(both, both, languages=("en", "fr"))[0] == [(b"a", b"b")] * 2
    with pytest.raises(ValueError, match="must be two different languages. Received: en for .*a.tmx, twice."):
        pairs_of(first, first, languages=("en", "EN"))


def test_languages_need_a_file_in_tmx_also_one_that_a_glob_finds(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/a.tmx").write_text(document(unit(en="a", fr="b", de="c")))
    (tmp_path / "text").write_text("x\n")
    names = {"source_language": "en", "target_language": "de"}
    of_glob = DataConfig(f"{tmp_path}/folder/*", f"{tmp_path}/folder/*", valid_pairs=1, **names)
    corpora.check_files(of_glob)
    assert corpora.identity(of_glob, 1) != corpora.identity(dataclasses.replace(of_glob, target_language="fr"), 1)
    text = DataConfig(f"{tmp_path}/text", f"{tmp_path}/text", valid_pairs=1, **names)
    with pytest.raises(ValueError, match="have no effect on text files other than TMX. Leave them out."):
        corpora.check_files(text)


def test_a_target_that_is_left_out_is_the_same_corpus(tmp_path):
    (tmp_path / "a.tmx").write_text(document(A_UNIT))
    given, left_out = (DataConfig(f"{tmp_path}/a.tmx", target, valid_pairs=1) for target in (f"{tmp_path}/a.tmx", ""))
    assert corpora.identity(given, 1) == corpora.identity(left_out, 1)


def test_a_tsv_file_without_any_tab_is_no_tsv(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("a\nb\n")
    with pytest.raises(ValueError, match="a.tsv has no tab. Expected source, tab and target in each line."):
        list(text_files.all_pairs(str(path), str(path), report=text_files.Report()))
    path.write_text("")
    with pytest.raises(ValueError, match="a.tsv is empty. Expected a sentence on each line."):
        list(text_files.all_pairs(str(path), str(path), report=text_files.Report()))


def test_a_line_of_tsv_without_a_tab_is_named_or_left_out(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("a\tA\n\n  \nno tab\nc\tC\n")
    said = rf"^{path}, line 4 has no tab. Expected source, tab and target in each line of a file named .tsv."
    for strict in (
        lambda: pairs_of(str(path), str(path)),
        lambda: text_files.check_texts([(str(path), str(path))], True),
        lambda: text_files.text(str(path), side=1),
    ):
        with pytest.raises(ValueError, match=said):
            strict()
    pairs, report = pairs_of(str(path), str(path), skip_bad_lines=True)
    assert pairs == [(b"a", b"A"), (b"c", b"C")] and report == text_files.Report(pairs=2, empty=3)
    text_files.check_texts([(str(path), str(path))], False)
    path.write_bytes(b"a\tA\nb\t\xe9\n")
    with pytest.raises(ValueError, match=rf"{path}, line 2 is not UTF-8: byte 0xe9 at column 3"):
        text_files.check_texts([(str(path), str(path))], True)


def test_where_one_text_is_expected_tsv_is_lines_and_tmx_is_refused(texts, tmp_path):
    assert text_files.text(texts["tsv"])[0] == "\t".join(PAIRS[0])
    assert next(text_files.pairs(texts["tsv"], report=text_files.Report())) == ("\t".join(PAIRS[0]).encode(),)
    renamed = tmp_path / "text.xml"
    renamed.write_bytes(open(texts["tmx"], "rb").read())
    assert text_files.text(str(renamed))[0].startswith("<tmx")

    def translated(name: str) -> None:
        with lines.opened(name) as file:
            list(lines.read_lines(file))

    one_sided = (
        text_files.text,
        translated,
        lambda name: list(text_files.pairs(name, report=text_files.Report())),
    )
    for form in ("tmx", "tmx.gz"):
        for take in (*one_sided, lambda name: text_files.check_texts([(name,)])):
            with pytest.raises(ValueError, match=f"text.{form} is TMX, of two languages. Expected a text"):
                take(texts[form])


def test_where_others_have_two_sides_a_text_of_one_is_no_tsv(texts):
    """Its lines would be both columns with the tab, as translations that are scored."""
    (folder := pathlib.Path(texts["tsv"]).parent / "glob").mkdir()
    (folder / "a.tsv").write_bytes(open(texts["tsv"], "rb").read())
    for one_sided, path in ((texts["tsv"], texts["tsv"]), (f"{folder}/*", folder / "a.tsv")):
        with pytest.raises(ValueError) as refused:
            text_files.texts([("a", texts["tmx"]), ("b", one_sided)], (1, None))
        assert str(refused.value) == (
            f"{path} is TSV, of two sides. Expected a text with a sentence on each line. If the file has one side "
            "only, give it another ending, such as .txt."
        )
    assert text_files.texts([("a", texts["tsv"])]) == [["\t".join(pair) for pair in PAIRS]]


def test_errors_of_tmx_files_come_where_those_of_text_files_do(tmp_path, texts):
    broken = tmp_path / "b.tmx.gz"
    broken.write_bytes(open(texts["tmx.gz"], "rb").read()[:-12])
    for take in (lambda name: text_files.check_texts([(name, name)]), lambda name: pairs_of(name, name)):
        with pytest.raises(ValueError, match=f"{broken} is a broken gzip file: it could be read up to line 1 "):
            take(str(broken))
    several = tmp_path / "c.tmx"
    several.write_text(document(unit(en="a", fr="b", de="c")))
    data = DataConfig(train_source=str(several), valid_source=str(several))
    with pytest.raises(ValueError, match="`source_language` and `target_language`: en, fr, de."):
        corpora.check_files(data)
    data = dataclasses.replace(data, source_language="fr", target_language="de")
    corpora.check_files(data)
    assert list(corpora.pairs(data, "train", 1, text_files.Report())) == [(b"b", b"c")]
    assert list(corpora.pairs(data, "valid", 1, text_files.Report())) == [(b"b", b"c")]
    other = dataclasses.replace(data, target_language="en")
    assert corpora.identity(data, 1) != corpora.identity(other, 1), "Other pairs are another corpus."
    registry.task("translation").check_text(data)
    with pytest.raises(ValueError, match="Give `train_target` too: the task translation needs both sides"):
        registry.task("translation").check_text(DataConfig(train_source=f"{several},x.en"))


def long_texts(folder: pathlib.Path) -> dict[str, str]:
    """Writes a training and a validation text in each form; gives their names."""
    draw, names = random.Random(1), {}
    words = ["red rot", "house Haus", "dog Hund", "runs läuft", "& &", "two zwei"]
    for split, number in (("train", 200), ("valid", 20)):
        chosen = [[word.split() for word in draw.choices(words, k=draw.randint(2, 9))] for _ in range(number)]
        pairs = [tuple(map(" ".join, zip(*both, strict=True))) for both in chosen]
        units = (unit(en=source.replace("&", "&amp;"), de=target.replace("&", "&#38;")) for source, target in pairs)
        for form, content in (
            ("en", "".join(f"{source}\n" for source, _ in pairs)),
            ("de", "".join(f"{target}\n" for _, target in pairs)),
            ("tsv", "".join(f"{source}\t{target}\t0.5\n" for source, target in pairs)),
            ("tmx", document(*units)),
        ):
            path = folder / f"{split}.{form}"
            path.write_text(content)
            names[f"{split}.{form}"] = str(path)
    return names


def test_prepared_data_are_those_of_two_text_files(tmp_path):
    names, prepared = long_texts(tmp_path), {}
    for form in ("text", "tsv", "tmx"):
        texts = {
            f"{split}_source": names[f"{split}.{'en' if form == 'text' else form}"] for split in ("train", "valid")
        }
        if form == "text":
            texts |= {f"{split}_target": names[f"{split}.de"] for split in ("train", "valid")}
        languages = {"source_language": "EN", "target_language": "de-DE"} if form == "tmx" else {}
        preparation = prepare.Preparation(
            DataConfig(**texts, **languages), 320, 1, tmp_path / form, registry.task("translation")
        )
        with logged() as said:
            preparation.run()
        assert ("200 lines with columns after the second" in " ".join(said)) == (form == "tsv")
        preparation.check()
        prepared[form] = {
            str(path.relative_to(tmp_path / form)): path.read_bytes()
            for path in sorted((tmp_path / form).rglob("*"))
            if path.is_file() and path.name != "corpus.json"
        }
    assert len(prepared["text"]) > 5 and prepared["text"] == prepared["tsv"] == prepared["tmx"]
    other = dataclasses.replace(preparation, data=dataclasses.replace(preparation.data, target_language="en-x"))
    with pytest.raises(ValueError, match="`target_language` was de-DE, and is now en-x"):
        other.check()


def test_filtering_divides_the_pairs_of_two_text_files(tmp_path):
    names = long_texts(tmp_path)
    (tmp_path / "more.tmx").write_text(
        document(unit(en="a house", de="ein Haus"), unit(en="alone"), unit(en="", de="x"))
    )
    found = {}
    for form in ("text", "tsv", "tmx"):
        sides = (names["train.en"], names["train.de"]) if form == "text" else (names[f"train.{form}"],) * 2
        judging.filter_text(*sides, tmp_path / form, FilterConfig(), number=1)
        found[form] = {path.name: path.read_bytes() for path in (tmp_path / form).iterdir()}
        summary = json.loads(found[form].pop(judging.SUMMARY))
        assert summary.get("columns", 0) == (200 if form == "tsv" else 0) and summary["pairs"] == 200
    assert found["text"] == found["tsv"] == found["tmx"]
    summary = judging.filter_text(*[str(tmp_path / "more.tmx")] * 2, tmp_path / "more", FilterConfig(), number=1)
    assert (summary["pairs"], summary["units"], summary["rejected"]["empty"]) == (2, 1, 1)
