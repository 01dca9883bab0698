"""Attention weights are those of the paper's equations, pictures show them, and no text is taken for markup or a
formula.
"""

import html.parser
import json
import pathlib
import types
import xml.etree.ElementTree

import matplotlib.font_manager
import matplotlib.image
import numpy as np
import numpy_transformer as paper
import pytest
import stand_in
from matplotlib.collections import LineCollection
from matplotlib.patches import Rectangle
from test_oracle import as_in_the_paper, values_of
from test_tools import STAND_IN, complaint, run_stand_in, tool

from t2t_keras.config import BOS, EOS, DecodeConfig
from t2t_keras.decoding.loading import load
from t2t_keras.reporting import attention as attention_module
from t2t_keras.reporting import attention_pictures, figures, pages
from t2t_keras.reporting.attention import KINDS, SentenceAttention, Tokens, attention_of, observing

RUN_1 = pathlib.Path(__file__).parent / "data/run_1"
SOURCE, TARGET = "two hundred and seven", "zweihundertsieben"
# Markup, formulas, control characters, right-to-left words, an emoji, a script that few fonts have, and a long word.
AWKWARD = (
    "</script> <b>x</b> <!-- &amp; $x_1$ \\frac{1}{2} _a_ ^2 \x07 \tz \x85 שלום السلام 😀 日本語 \U00012000 {{data}} "
    + "long" * 30
)


@pytest.fixture(scope="module")
def translator():
    return stand_in.translator(DecodeConfig(beam_size=2, extra_length=4))


@pytest.fixture(scope="module")
def attention(translator) -> SentenceAttention:
    return attention_of(translator, SOURCE, TARGET)


def ids_of(translator, pieces) -> list[int]:
    return [translator.tokenizer.pieces.index(piece) for piece in pieces]


# Weights.


@pytest.mark.parametrize(
    ("target", "options"), [(TARGET, {}), (None, {}), (TARGET, {"norm": "pre", "first_position": 2})]
)
def test_all_weights_are_those_of_the_papers_equations(translator, target, options):
    translator = stand_in.translator(DecodeConfig(beam_size=2, extra_length=4), **options) if options else translator
    found = attention_of(translator, SOURCE, target)
    source, predicted = (ids_of(translator, side.pieces) for side in (found.source, found.target))
    weights = as_in_the_paper(values_of(translator.model), translator.model.config)
    expected = paper.all_attention(source, [BOS, *predicted[:-1]], weights)
    for kind in KINDS:
        assert found.weights(kind).dtype == np.float32
        np.testing.assert_allclose(found.weights(kind), expected[kind], atol=1e-5)
        np.testing.assert_allclose(found.weights(kind).sum(axis=-1), 1, atol=1e-6)
    assert not np.triu(found.decoder, 1).any()


def test_the_pieces_are_those_of_the_sentences(translator, attention):
    for side, text in ((attention.source, SOURCE), (attention.target, TARGET)):
        assert ids_of(translator, side.pieces) == translator.tokenizer.tokenize([text])[0].numpy().tolist()
        assert side.pieces[-1] == translator.tokenizer.pieces[EOS] == "</s>"
    assert attention.target_input.pieces == ("<s>", *attention.target.pieces[:-1])


@pytest.mark.medium
def test_without_a_target_it_is_the_translation_of_beam_search(translator):
    found = attention_of(translator, SOURCE)
    text = " ".join(word for word in found.target.words if word != "</s>")
    assert text == translator([SOURCE])["text"][0].numpy().decode()
    assert found.cross.shape == (2, 2, len(found.target.pieces), len(found.source.pieces))


def test_a_row_of_the_decoder_predicts_its_piece_and_has_read_the_ones_before(translator):
    """Another piece at a position changes nothing in its row or above, and the rows below."""
    first, second = (attention_of(translator, "one", target) for target in ("ein und zwei", "ein und drei"))
    same = [left == right for left, right in zip(first.target.pieces, second.target.pieces, strict=False)]
    place = same.index(False)
    assert place > 1
    for kind in ("decoder", "cross"):
        left, right = first.weights(kind), second.weights(kind)
        before = np.s_[:, :, : place + 1, : place + 1]
        np.testing.assert_allclose(left[before], right[before], atol=1e-6)
        width = min(left.shape[-1], right.shape[-1])
        assert np.abs(left[:, :, place + 1, :width] - right[:, :, place + 1, :width]).max() > 1e-3


@pytest.mark.parametrize("options", [{"dtype": "bfloat16"}, {"int8": True}], ids=str)
def test_weights_of_other_arithmetic_are_near_those_of_float32(options):
    exact, found = (attention_of(load(RUN_1, **kind), "twenty-one", "einundzwanzig") for kind in ({}, options))
    for kind in KINDS:
        np.testing.assert_allclose(found.weights(kind), exact.weights(kind), atol=0.06)


def test_only_the_given_layers_are_observed_and_only_inside_the_context(translator):
    model = translator.model
    layers = [layer.cross_attention for layer in model.decoder]
    source, target = np.array([[5, 6, EOS]], "int32"), np.array([[BOS, 7]], "int32")
    weights = []

    def record(layer, query, memory, mask):
        weights.append(np.array(layer.weights_of(query, memory, mask)))

    with observing(layers, record):
        model.decode(target, model.encode(source))
        assert [array.shape for array in weights] == [(1, 2, 2, 3)] * 2
    with pytest.raises(KeyError), observing(layers, record):
        raise KeyError
    assert not any("call" in vars(layer) for layer in layers)
    model.decode(target, model.encode(source + 1))
    assert len(weights) == 2, "none after the block"


def test_observing_changes_no_result(translator):
    model = translator.model
    inputs = (np.array([[5, 6, EOS]], "int32"), np.array([[BOS, 7, 9]], "int32"))
    expected = model(inputs)
    layers = [layer.self_attention for layer in (*model.encoder.stack, *model.decoder)]
    with observing(layers, lambda layer, *inputs: None):
        np.testing.assert_array_equal(model(inputs), expected)


@pytest.mark.parametrize(("source", "target", "named"), [
    ("  ", None, "The source sentence is blank"),
    ("\u200b", None, "The source sentence is blank"),
    ("one", " ", "The target sentence is blank"),
    ("one " * 300, None, "more than 256 sub-words"),
    ("one", "ein " * 300, "more than 256 sub-words"),
])  # fmt: skip
def test_a_blank_or_long_sentence_is_refused(translator, source, target, named):
    with pytest.raises(ValueError, match=named):
        attention_of(translator, source, target)


@pytest.mark.parametrize(("source", "target", "side"), [("one " * 9, "eins", "source"), ("one", "eins " * 9, "target")])
def test_the_most_sub_words_may_be_chosen_for_both_sides(translator, source, target, side):
    with pytest.raises(ValueError, match=f"The {side} has more than 8 sub-words"):
        attention_of(translator, source, target, max_pieces=8)


def test_a_source_that_would_be_cut_is_refused():
    with pytest.raises(ValueError, match="source has more than 5 sub-words"):
        attention_of(load(RUN_1, max_input=5), "two hundred and seven")


def test_an_unknown_kind_of_attention_is_refused(attention):
    with pytest.raises(ValueError, match="Expected encoder, decoder, cross attention. Received: both"):
        attention.weights("both")


# Words.


def test_attention_to_a_word_is_a_sum_and_from_a_word_a_mean():
    source = Tokens(("▁a", "b", "▁c", "</s>"), ("ab", "c", "</s>"), (2, 1, 1))
    target = Tokens(("▁x", "▁y", "z", "</s>"), ("x", "yz", "</s>"), (1, 2, 1))
    read = Tokens(("<s>", "▁x", "▁y", "z"), ("<s>", "x", "yz"), (1, 1, 2))
    cross = [[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.4, 0], [0.3, 0.1, 0.2, 0.4], [0, 0, 0, 1]]
    encoder, cross = (np.array(each, "float32")[None, None] for each in (np.eye(4), cross))
    words = SentenceAttention(source, target, read, encoder, cross, cross).by_words()
    np.testing.assert_allclose(words.cross[0, 0], [[0.3, 0.3, 0.4], [0.5, 0.3, 0.2], [0, 0, 1]], atol=1e-6)
    np.testing.assert_allclose(words.encoder[0, 0], [[1, 0, 0], [0, 1, 0], [0, 0, 1]], atol=1e-6)
    np.testing.assert_allclose(words.decoder[0, 0], [[0.1, 0.2, 0.7], [0.4, 0.1, 0.5], [0, 0, 1]], atol=1e-6)
    assert [side.pieces for side in words.sides("decoder")] == [("x", "yz", "</s>"), ("<s>", "x", "yz")]


def test_the_words_are_those_between_the_spaces_and_rows_still_sum_to_1(translator):
    text = "one ▁two <0x41> 😀 שלום </s> twenty-one"
    found = attention_of(translator, text, text)
    words = found.by_words()
    assert words.source.pieces == words.target.pieces == (*text.split(" "), "</s>")
    assert words.target_input.pieces == ("<s>", *text.split(" "))
    for side in (found.source, found.target, found.target_input):
        assert sum(side.sizes) == len(side.pieces) and len(side.sizes) == len(side.words)
    for kind in KINDS:
        assert words.weights(kind).dtype == np.float32
        np.testing.assert_allclose(words.weights(kind).sum(axis=-1), 1, atol=1e-5)
    again = words.by_words()
    np.testing.assert_allclose(again.cross, words.cross, atol=1e-6)


def test_special_tokens_are_words_of_their_own_beside_a_piece_that_begins_no_word_too(translator):
    pieces = translator.tokenizer.pieces
    inside = next(index for index in range(EOS + 257, len(pieces)) if not pieces[index].startswith("▁"))
    found = attention_module._tokens(translator.tokenizer, [BOS, inside, inside, EOS, inside])
    assert found.sizes == (1, 2, 1, 1)
    assert found.words == ("<s>", 2 * pieces[inside], "</s>", pieces[inside])


# Pictures.

SHORT = stand_in.attention("the dog plays", "der Hund spielt jetzt")
SIXTY = stand_in.attention(
    " ".join(f"word{number}" * (1 + number % 3) for number in range(60)),
    " ".join(f"Wort{number}" for number in range(55)),
    heads=4,
)
STRANGE = stand_in.attention(AWKWARD, AWKWARD[::-1])
PICTURES = {
    "lines": attention_pictures.line_picture,
    "one query": lambda *arguments: attention_pictures.line_picture(*arguments, query=1),
    "heat maps": attention_pictures.heat_maps,
}


def svg_texts(path: pathlib.Path) -> set[str]:
    elements = xml.etree.ElementTree.parse(path).iter()
    return {element.text for element in elements if element.tag.endswith("}text")}


@pytest.mark.parametrize(("draw", "kind"), zip(PICTURES.values(), KINDS, strict=True), ids=PICTURES)
def test_a_picture_is_written_as_png_and_svg_and_is_not_blank(tmp_path, draw, kind):
    for name in ("picture.png", "picture.svg"):
        figures.save(draw(SHORT, kind, 0), tmp_path / name)
    pixels = matplotlib.image.imread(tmp_path / "picture.png")[:, :, :3]
    assert 0.01 < (pixels.min(axis=-1) < 0.9).mean() < 0.9
    # Nothing is cut at the edges.
    assert pixels[:, 0].min() == pixels[:, -1].min() == pixels[0].min() == pixels[-1].min() == 1.0
    assert {label for side in SHORT.sides(kind) for label in side.pieces} <= svg_texts(tmp_path / "picture.svg")


def drawn_texts(figure) -> dict:
    """Where each text of a figure is."""
    with figures.drawing():
        renderer = figure.canvas.get_renderer()
        figure.draw(renderer)
        texts = figure.findobj(lambda part: hasattr(part, "get_fontsize"))
        shown = (text for text in texts if text.get_visible() and text.get_text())
        return {text: text.get_window_extent(renderer) for text in shown}


@pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)
@pytest.mark.parametrize(
    "attention",
    [SHORT, pytest.param(SIXTY, marks=pytest.mark.medium), STRANGE],
    ids=["short", "sixty words", "strange"],
)
def test_no_text_of_a_picture_overlaps_another_or_is_cut(draw, attention):
    figure = draw(attention, "cross", 1)
    boxes = list(drawn_texts(figure).values())
    assert len(boxes) > len(attention.source.pieces) + len(attention.target.pieces)
    left, bottom, right, top = np.array([box.extents for box in boxes]).T
    width, height = figure.get_size_inches() * figure.dpi
    assert min(left) >= 0 and min(bottom) >= 0 and max(right) <= width and max(top) <= height
    across = np.minimum(right[:, None], right) - np.maximum(left[:, None], left)
    along = np.minimum(top[:, None], top) - np.maximum(bottom[:, None], bottom)
    overlaps = (across > 1) & (along > 1) & ~np.eye(len(boxes), dtype=bool)
    assert not overlaps.any()


def lines_of(figure) -> list[tuple]:
    """Of each line: the colour's head, its opacity, and the y of its ends."""
    found = []
    for head, lines in enumerate(part for part in figure.axes[0].collections if isinstance(part, LineCollection)):
        for color, ((_, start), (_, end)) in zip(lines.get_colors(), lines.get_segments(), strict=True):
            found.append((head, round(float(color[3]), 5), start, end))
    return found


@pytest.mark.parametrize("heads", [None, [2], [2, 0]])
def test_the_opacity_of_a_line_is_its_weight(heads):
    figure = attention_pictures.line_picture(SHORT, "cross", 1, heads)
    # The texts of words: on the left those that attend, on the right the others, each as high as its lines.
    words = [text for text in figure.axes[0].texts if text.get_text() in (*SHORT.source.pieces, *SHORT.target.pieces)]
    rows, columns = ([text.get_position()[1] for text in words if text.get_ha() == side] for side in ("right", "left"))
    weights = SHORT.cross[1, heads] if heads else SHORT.cross[1]
    assert (len(rows), len(columns)) == weights.shape[1:]
    found = lines_of(figure)
    assert len(found) == np.sum(weights >= 0.02)
    for head, opacity, start, end in found:
        row, column = (int(np.argmin(np.abs(np.array(places) - y))) for places, y in ((rows, start), (columns, end)))
        assert opacity == pytest.approx(float(weights[head, row, column]), abs=1e-4)


@pytest.mark.parametrize("query", [0, 2, len(SHORT.target.pieces) - 1])
def test_one_query_has_its_lines_alone_and_a_box_for_each_head_beside_each_key(query):
    figure = attention_pictures.line_picture(SHORT, "cross", 0, query=query)
    weights = SHORT.cross[0, :, query]
    opacities = sorted(opacity for _, opacity, *_ in lines_of(figure))
    assert opacities == pytest.approx(sorted(weights[weights >= 0.02]), abs=1e-4)
    boxes = [part for part in figure.axes[0].patches if isinstance(part, Rectangle)]
    assert len(boxes) == 3 + weights.size  # With those of the legend.
    assert sorted(box.get_facecolor()[3] for box in boxes[3:]) == pytest.approx(sorted(weights.ravel()), abs=1e-3)


def test_the_first_eight_heads_have_unlike_colours_and_the_next_are_dashed():
    attention = stand_in.attention("one", "eins", heads=10)
    figure = attention_pictures.line_picture(attention, "cross", 0)
    colors, dashed = attention_pictures._looks(range(10))
    assert len(set(colors[:8])) == 8 and colors[8:] == colors[:2]
    assert dashed == [False] * 8 + [True] * 2
    assert [lines.get_linestyle()[0][1] is not None for lines in figure.axes[0].collections] == dashed
    assert {f"head {number}" for number in range(1, 11)} <= {text.get_text() for text in figure.axes[0].texts}


@pytest.mark.parametrize("draw", [attention_pictures.line_picture, attention_pictures.heat_maps])
def test_without_a_layer_a_picture_is_of_the_cross_attention_of_the_last(draw):
    titles = [text.get_text() for text in drawn_texts(draw(SHORT)) if ", layer " in text.get_text()]
    assert titles == [f"{attention_pictures.TITLES['cross']}, layer {len(SHORT.cross)}"]


def test_heat_maps_show_the_weights_of_the_chosen_heads():
    figure = attention_pictures.heat_maps(SHORT, "decoder", 1, [2, 0])
    maps = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title(loc="left") for axes in maps] == ["head 3", "head 1"]
    for axes, head in zip(maps, (2, 0), strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), SHORT.decoder[1, head])
        assert [label.get_text() for label in axes.get_yticklabels()] == list(SHORT.target.pieces)
        assert [label.get_text() for label in axes.get_xticklabels()] == list(SHORT.target_input.pieces)


@pytest.mark.parametrize(("number", "expected"), [(1, (1, 1)), (4, (2, 2)), (6, (2, 3)), (8, (2, 4)), (16, (4, 4))])
def test_the_grid_of_heat_maps_has_no_gap(number, expected):
    assert attention_pictures._grid(number, 1.2) == expected


def test_characters_that_the_first_font_lacks_have_another_that_has_them(monkeypatch):
    fonts = {"Noto Sans A": "α", "Noto Sans C": "漢字", "Serif": "漢語"}
    installed = [types.SimpleNamespace(name=name, fname=name, style="normal", weight=400) for name in fonts]
    monkeypatch.setattr(matplotlib.font_manager, "fontManager", types.SimpleNamespace(ttflist=installed))
    monkeypatch.setattr(matplotlib.font_manager, "findfont", lambda name: name)
    monkeypatch.setattr(figures, "_characters_of", lambda path: frozenset(map(ord, fonts.get(path, "abc"))))
    chosen = figures._fonts.__wrapped__
    assert chosen(frozenset("ab")) == (figures._FONT,)
    assert chosen(frozenset("a漢字")) == (figures._FONT, "Noto Sans C")
    assert chosen(frozenset("漢語α")) == (figures._FONT, "Noto Sans A", "Noto Sans C", "Serif")


def test_a_label_has_no_character_that_xml_cannot_hold():
    assert figures.label("a\x07\ud800\u2028\ufffe\uffff\ufffcb") == "a" + 5 * "\ufffd" + "\ufffcb"


@pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)
def test_text_is_drawn_as_it_is(tmp_path, draw):
    """Not as a formula or as markup; what XML cannot hold is U+FFFD, and a long word is cut."""
    words = STRANGE.by_words()
    figure = draw(words, "encoder", 0)
    labels = [text for text in drawn_texts(figure) if text.get_text() in words.source.pieces]
    assert labels and not any(text.get_parse_math() or text.get_usetex() for text in labels)
    figures.save(figure, tmp_path / "picture.svg")
    figures.save(figure, tmp_path / "picture.png")
    written = (tmp_path / "picture.svg").read_text(encoding="utf-8")
    texts = svg_texts(tmp_path / "picture.svg")
    assert {"</script>", "<b>x</b>", "&amp;", "$x_1$", "\\frac{1}{2}", "_a_", "^2"} <= texts
    assert {"\ufffd", "שלום", "😀", "日本語"} <= texts
    assert "long" * 7 + "l…" in texts and "<script" not in written and "<b>" not in written


def test_a_character_that_no_font_has_is_reported_once_and_drawn_as_a_box(tmp_path, messages, monkeypatch):
    """Story: pictures of a text without a font for its script gave a warning each."""
    character = "\U0010fffd"
    figures._fonts.cache_clear()
    monkeypatch.setattr(figures, "_told", set())
    picture = attention_pictures.heat_maps(stand_in.attention(f"a{character}", "b"), "cross", 0)
    figures.save(picture, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size
    attention_pictures.heat_maps(stand_in.attention(f"c{character}", "d"), "cross", 0)
    assert sum("No installed font has" in message for message in messages) == 1


def test_a_picture_of_256_pieces_has_a_bounded_number_of_pixels(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "_MAX_PIXELS", 50_000)
    figures.save(attention_pictures.line_picture(SIXTY.by_words(), "cross", 0, [0]), tmp_path / "picture.png")
    height, width, _ = matplotlib.image.imread(tmp_path / "picture.png").shape
    assert 45_000 < height * width <= 51_000


@pytest.mark.parametrize(("arguments", "named"), [
    (("cross", 2), "layer of cross attention below 2"),
    (("cross", 0, [3]), "heads below 3"),
    (("cross", 0, []), "heads below 3"),
    (("cross", 0, [0, 3]), "heads below 3"),
    (("cross", 0, [-1, 0]), "heads below 3"),
    (("both",), "Received: both"),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("draw", [attention_pictures.line_picture, attention_pictures.heat_maps])
def test_an_unknown_layer_or_head_is_refused(draw, arguments, named):
    with pytest.raises(ValueError, match=named):
        draw(SHORT, *arguments)


def test_an_unknown_row_or_format_is_refused(tmp_path):
    rows = len(SHORT.target.pieces)
    for query in (-1, rows):
        with pytest.raises(ValueError, match=f"Expected a row below {rows}, counted from 0. Received: query={query}.$"):
            attention_pictures.line_picture(SHORT, query=query)
    with pytest.raises(ValueError, match="png or svg"):
        figures.save(attention_pictures.heat_maps(SHORT), tmp_path / "picture.gif")
    assert list(tmp_path.iterdir()) == []


# The page.


class Elements(html.parser.HTMLParser):
    """The elements of a page: [(tag, attributes)], and the text of each script."""

    def __init__(self, page: str):
        super().__init__()
        self.tags, self.scripts = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script":
            self.scripts[-1] += data


def data_of(page: str) -> dict:
    return json.loads(Elements(page).scripts[0])


def test_the_data_of_a_page_are_the_weights_to_three_decimals():
    data = data_of(pages.attention_page({3: SHORT, 5: STRANGE}))
    assert [sentence["number"] for sentence in data["sentences"]] == [3, 5]
    for sentence, attention in zip(data["sentences"], (SHORT, STRANGE), strict=True):
        sides = {"source": attention.source, "target": attention.target, "input": attention.target_input}
        for name, tokens in sides.items():
            assert Tokens(*(tuple(sentence[name][field]) for field in ("pieces", "words", "sizes"))) == tokens
        for kind in KINDS:
            expected = attention.weights(kind)
            found = np.zeros(expected.shape)
            if kind == "decoder":
                found[..., *np.tril_indices(expected.shape[-1])] = sentence["weights"][kind]
            else:
                found = np.reshape(sentence["weights"][kind], expected.shape)
            np.testing.assert_allclose(found / data["scale"], expected, atol=0.0005001)


def test_no_text_gets_out_of_the_data_of_a_page():
    page, plain = (Elements(pages.attention_page({1: attention})) for attention in (STRANGE, SHORT))
    assert page.tags == plain.tags
    assert page.scripts[1:] == plain.scripts[1:] and len(page.scripts) == 2
    assert not set("<>&") & set(page.scripts[0])


@pytest.mark.parametrize("page", [pages.ATTENTION, pages.COMPARISON], ids=lambda page: page.stem)
def test_a_page_needs_no_network_and_sets_no_markup_from_data(page):
    template = page.read_text(encoding="utf-8")
    assert not [attributes for _, attributes in Elements(template).tags if {"src", "href"} & set(attributes)]
    assert "default-src 'none'" in template
    dangerous = "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "@import", "url("
    assert not any(word in template for word in dangerous)


def test_a_page_of_ten_sentences_stays_small():
    texts = "a " * 29 + "a", "b " * 29 + "b"
    attentions = [stand_in.attention(*texts, layers=4, heads=4, seed=seed) for seed in range(10)]
    assert len(pages.attention_page(dict(enumerate(attentions, 1)))) < 2_500_000


def test_a_page_needs_a_sentence():
    with pytest.raises(ValueError, match="one sentence or more"):
        pages.attention_page({})


# The program.


@pytest.mark.medium
def test_the_program_writes_the_pictures_and_the_page(tmp_path):
    (tmp_path / "target").write_text("eins\n\n<b>zwei</b>\n", encoding="utf-8")
    flags = [f"--output={tmp_path}/new/out", "--words", "--format=png,svg", "--heads=2", "--attention=cross,encoder"]
    result = tool(
        "attention", f"--model_dir={RUN_1}", f"--target={tmp_path}/target", *flags, stdin=b"one\n\n</script> $x$\n"
    )  # fmt: skip
    assert result.returncode == 0, result.stderr.decode()
    expected = {
        f"{line}_{kind}_layer_1_{picture}.{ending}"
        for line in ("001", "003") for kind in ("cross", "encoder") for picture in ("lines", "heat_maps")
        for ending in ("png", "svg")
    }  # fmt: skip
    folder = tmp_path / "new/out"
    assert {path.name for path in folder.iterdir()} == expected | {"attention.html"}
    assert "attention.html and 16 picture(s) of 2 sentence(s)" in result.stdout.decode()
    sentences = data_of((folder / "attention.html").read_text(encoding="utf-8"))["sentences"]
    assert [sentence["source"]["words"] for sentence in sentences] == [["one", "</s>"], ["</script>", "$x$", "</s>"]]
    assert [sentence["target"]["words"] for sentence in sentences] == [["eins", "</s>"], ["<b>zwei</b>", "</s>"]]
    svg = (folder / "003_cross_layer_1_lines.svg").read_text(encoding="utf-8")
    assert "&lt;b&gt;zwei&lt;/b&gt;" in svg and "$x$" in svg and "head 2" in svg and "head 1" not in svg


@pytest.mark.parametrize(("flags", "stdin", "named"), [
    (["--layer=2"], b"one\n", "--layer must be numbers from 1 to 1. Received: 2."),
    (["--layer=0"], b"one\n", "Received: 0."),
    (["--heads=1,3"], b"one\n", "--heads must be numbers from 1 to 2. Received: 3."),
    (["--heads=first"], b"one\n", "Received: first."),
    (["--attention=both"], b"one\n", "Expected encoder, decoder, cross as --attention. Received: both."),
    (["--format=gif"], b"one\n", "as --format. Received: gif."),
    ([], b"", "There is no sentence to show"),
    ([], b"\n \n", "There is no sentence to show"),
    (["--target={}/two"], b"one\n", "--target must have a line for each sentence. Received: 2 for 1 sentences."),
    (["--target={}/missing"], b"one\n", "missing"),
    (["--target={}/two", "--beam_size=2"], b"one\n", "--beam_size has no effect with --target"),
], ids=str)  # fmt: skip
def test_the_program_refuses_what_cannot_be_before_it_loads_a_model(tmp_path, flags, stdin, named):
    (tmp_path / "two").write_text("eins\nzwei\n")
    asked = [f"--model_dir={RUN_1}", f"--output={tmp_path}/out", *(flag.format(tmp_path) for flag in flags)]
    assert named in complaint(run_stand_in(STAND_IN.format(""), "attention", *asked, input=stdin))
    assert not (tmp_path / "out").exists()


def test_a_line_that_is_too_long_is_skipped_with_its_number_and_the_others_are_drawn(tmp_path):
    """Story: the pictures before it were drawn, and the page was lost."""
    stdin = b"one\n" + b"one " * 300 + b"\ntwo\n"
    result = tool("attention", f"--model_dir={RUN_1}", f"--output={tmp_path}", "--format=none", stdin=stdin)
    assert result.returncode == 0 and b"Skipping line 2: The source has more than 256 sub-words" in result.stderr
    assert b"0 picture(s) of 2 sentence(s)" in result.stdout and (tmp_path / "attention.html").exists()


def test_the_program_ends_with_an_error_if_no_line_can_be_drawn(tmp_path):
    result = tool("attention", f"--model_dir={RUN_1}", f"--output={tmp_path}", stdin=b"one " * 300 + b"\n")
    assert result.returncode == 1 and b"Traceback" not in result.stderr and not (tmp_path / "attention.html").exists()
    assert "Error: No sentence is left to show" in result.stderr.decode().splitlines()[-1]
