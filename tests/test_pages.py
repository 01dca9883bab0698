"""The page of attention weights in a browser. Needs Chromium with its driver."""

import dataclasses
import pathlib

import browsers
import numpy as np
import pytest
import stand_in

from t2t_keras.reporting import pages

selenium = pytest.importorskip("selenium")

from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select  # noqa: E402

pytestmark = pytest.mark.medium

SHORT = stand_in.attention("the black dog plays", "der schwarze Hund spielt")
SIXTY = stand_in.attention(" ".join(f"word{n}" for n in range(60)), " ".join(f"Wort{n}" for n in range(60)), seed=1)
ARABIC = stand_in.attention("السلام عليكم يا صديقي", "שלום לך ידידי", seed=2)
SCRIPT = stand_in.attention(
    "<script>document.title='broken'</script> <img/src=x/onerror=document.title='broken'>",
    f"</script> <b>fett</b> {'lang' * 40} {{{{data}}}}",
    seed=3,
)
SENTENCES = [SHORT, SIXTY, ARABIC, SCRIPT]


@pytest.fixture(scope="module", params=["light", "dark"])
def scheme(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def opened(tmp_path_factory, scheme):
    page = tmp_path_factory.mktemp("page") / "attention.html"
    page.write_text(pages.attention_page(dict(enumerate(SENTENCES, 1))), encoding="utf-8")
    with browsers.chromium(1200, 900, scheme) as browser:
        yield browser, page


@pytest.fixture
def browser(opened):
    """The page as it is when it is opened. After the test the browser has reported no error."""
    browser, page = opened
    browser.get(pathlib.Path(page).as_uri())
    yield browser
    assert browser.get_log("browser") == []
    assert browser.title == "Attention"


def words(browser, side: str) -> list:
    return browser.find_elements(By.CSS_SELECTOR, f"#{side} .word")


def choose(browser, **values) -> None:
    """Chooses options of menus by their ids and positions."""
    for name, index in values.items():
        Select(browser.find_element(By.ID, name)).select_by_index(index)


def radio(browser, name: str, value: str) -> None:
    browser.find_element(By.CSS_SELECTOR, f"[name={name}][value={value}]").click()


def point(browser, element) -> None:
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    ActionChains(browser).move_to_element(element).perform()


def bars(browser, side: str) -> np.ndarray:
    """How opaque the boxes beside the words are: [words, heads]."""
    script = (
        "return [...document.querySelectorAll(arguments[0])].map(w => [...w.querySelectorAll('.bars i')].map(b => "
        "+b.style.opacity))"
    )
    return np.array(browser.execute_script(script, f"#{side} .word"))


def lines(browser) -> int:
    return browser.execute_script("return document.querySelectorAll('#lines line').length")


def test_lines_join_the_words_and_are_as_dark_as_their_weights(browser):
    """Of one head, from the word that is pointed at."""
    for box in browser.find_elements(By.CSS_SELECTOR, "#heads input")[1:]:
        box.click()
    point(browser, words(browser, "from")[1])
    script = """return [...document.querySelectorAll('#lines line')]
        .map(l => [+l.getAttribute('y1'), +l.getAttribute('y2'), +l.style.strokeOpacity])"""
    drawn = np.array(browser.execute_script(script))
    script = """const top = document.querySelector('#lines').getBoundingClientRect().top;
        return [...document.querySelectorAll(arguments[0])].map(w => w.getBoundingClientRect()).map(r => r.top + r.height / 2 - top)"""  # noqa: E501
    start = browser.execute_script(script, "#from .word")[1]
    ends = np.array(browser.execute_script(script, "#to .word"))
    weights = SHORT.by_words().cross[0, 0, 1]
    np.testing.assert_allclose(drawn[:, 0], start, atol=1)
    for _, end, opacity in drawn:
        assert opacity == pytest.approx(weights[np.abs(ends - end).argmin()], abs=0.003)
        assert np.abs(ends - end).min() < 1
    assert len(drawn) > 1 and len(set(drawn[:, 1])) == len(drawn)


def test_pointing_at_a_word_shows_its_weights(browser):
    by_words = SHORT.by_words()
    assert [word.text for word in words(browser, "from")] == list(by_words.target.pieces)
    assert [word.text for word in words(browser, "to")] == list(by_words.source.pieces)
    everything = lines(browser)
    point(browser, words(browser, "from")[1])
    np.testing.assert_allclose(bars(browser, "to"), by_words.cross[0, :, 1].T, atol=0.003)
    assert 0 < lines(browser) < everything
    best = by_words.source.pieces[int(by_words.cross[0, :, 1].mean(axis=0).argmax())]
    assert browser.find_element(By.ID, "details").text.startswith(f"schwarze attends to {best} ")
    point(browser, words(browser, "to")[2])
    np.testing.assert_allclose(bars(browser, "from"), by_words.cross[0, :, :, 2].T, atol=0.003)
    assert browser.find_element(By.ID, "details").text.startswith("dog is attended to from ")
    point(browser, browser.find_element(By.TAG_NAME, "h1"))
    assert lines(browser) == everything and not bars(browser, "from").any()


@pytest.mark.parametrize(("kind", "position"), [("encoder", 0), ("decoder", 1), ("cross", 2)])
@pytest.mark.parametrize("units", ["words", "pieces"])
def test_every_kind_layer_and_unit_has_its_weights(browser, kind, position, units):
    choose(browser, kind=position, layer=1)
    radio(browser, "units", units)
    attention = SHORT.by_words() if units == "words" else SHORT
    queries, keys = attention.sides(kind)
    assert [word.text for word in words(browser, "from")] == list(queries.pieces)
    assert [word.text for word in words(browser, "to")] == list(keys.pieces)
    for row in (0, len(queries.pieces) - 1):
        point(browser, words(browser, "from")[row])
        np.testing.assert_allclose(bars(browser, "to"), attention.weights(kind)[1, :, row].T, atol=0.003)


def test_a_model_without_self_attention_has_attention_to_the_source_alone(opened, tmp_path):
    browser, _ = opened
    alone = dataclasses.replace(
        SHORT, encoder=SHORT.encoder[:0, :0], decoder=SHORT.decoder[:0, :0], cross=SHORT.cross[:1, :1]
    )
    (tmp_path / "alone.html").write_text(pages.attention_page({1: alone}), encoding="utf-8")
    browser.get((tmp_path / "alone.html").as_uri())
    expected = ["cross"]
    assert [option.get_attribute("value") for option in Select(browser.find_element(By.ID, "kind")).options] == expected
    point(browser, words(browser, "from")[1])
    np.testing.assert_allclose(bars(browser, "to"), alone.by_words().cross[0, :, 1].T, atol=0.003)
    assert browser.get_log("browser") == []


def test_heads_are_chosen_and_their_mean(browser):
    weights = SHORT.by_words().cross[0, :, 1]
    boxes = browser.find_elements(By.CSS_SELECTOR, "#heads input")
    assert [box.get_attribute("aria-label") for box in boxes] == ["head 1", "head 2", "head 3"]
    boxes[1].click()
    words(browser, "from")[1].click()
    np.testing.assert_allclose(bars(browser, "to"), weights[[0, 2]].T, atol=0.003)
    browser.find_element(By.ID, "mean").click()
    np.testing.assert_allclose(bars(browser, "to"), weights[[0, 2]].mean(axis=0)[:, None], atol=0.003)
    browser.find_element(By.ID, "none").click()
    assert lines(browser) == 0 and "Choose one head or more." in browser.find_element(By.ID, "details").text
    browser.find_element(By.ID, "all").click()
    np.testing.assert_allclose(bars(browser, "to"), weights.mean(axis=0)[:, None], atol=0.003)


def test_the_keyboard_alone_reaches_every_word(browser):
    browser.find_element(By.CSS_SELECTOR, "[name=view][value=lines]").send_keys(Keys.TAB)
    keys = ActionChains(browser)
    keys.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN).perform()
    details = browser.find_element(By.ID, "details")
    assert details.text.startswith("Hund attends to")
    keys.send_keys(Keys.ARROW_RIGHT).perform()
    assert details.text.startswith("dog is attended to from")
    ActionChains(browser).send_keys(Keys.END, Keys.ENTER).perform()
    assert browser.switch_to.active_element.get_attribute("aria-pressed") == "true"
    assert browser.switch_to.active_element.text == "</s>"
    ActionChains(browser).send_keys(Keys.ESCAPE).perform()
    assert details.text.startswith("Point at a word")
    assert len(browser.find_elements(By.CSS_SELECTOR, ".word[tabindex='0']")) == 1


@pytest.mark.parametrize("view", ["lines", "flow"])
def test_sixty_words_are_shown_without_overlaps_and_within_the_window(browser, view):
    choose(browser, sentence=1)
    radio(browser, "view", view)
    for side in ("from", "to"):
        assert len(words(browser, side)) == 61
    point(browser, words(browser, "from")[40])
    np.testing.assert_allclose(bars(browser, "to"), SIXTY.by_words().cross[0, :, 40].T, atol=0.003)
    assert_tidy(browser)
    details = browser.find_element(By.ID, "details").rect
    assert 0 <= details["y"] - browser.execute_script("return scrollY") < 900  # It is in view far down the page too.


def assert_tidy(browser) -> None:
    """No word overlaps another, no text is cut, and nothing is wider than the window."""
    script = (
        "return [...document.querySelectorAll('.word')].map(w => w.getBoundingClientRect()).map(r => [r.x, r.y, "
        "r.right, r.bottom])"
    )
    left, top, right, bottom = np.array(browser.execute_script(script)).T
    assert left.min() >= 0 and top.min() + browser.execute_script("return scrollY") >= 0
    across = np.minimum(right[:, None], right) - np.maximum(left[:, None], left)
    along = np.minimum(bottom[:, None], bottom) - np.maximum(top[:, None], top)
    assert not ((across > 0.5) & (along > 0.5) & ~np.eye(len(left), dtype=bool)).any()
    cut = (
        "return [...document.querySelectorAll('.word .text')].filter(t => t.scrollWidth > t.clientWidth + 1).map(t => "
        "t.textContent)"
    )
    assert [text for text in browser.execute_script(cut) if len(text) < 25] == []
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")


def test_right_to_left_words_run_from_right_to_left(browser):
    choose(browser, sentence=2)
    direction = "return getComputedStyle(arguments[0].querySelector('.text')).direction"
    assert browser.execute_script(direction, words(browser, "to")[0]) == "rtl"
    assert browser.execute_script(direction, words(browser, "to")[-1]) == "ltr"  # </s>
    radio(browser, "view", "flow")
    for side in ("from", "to"):
        places = [word.rect["x"] for word in words(browser, side)]
        assert places == sorted(places, reverse=True)
    assert_tidy(browser)
    words(browser, "to")[0].click()
    ActionChains(browser).send_keys(Keys.ARROW_LEFT).perform()
    assert browser.switch_to.active_element.text == "عليكم"


@pytest.mark.parametrize("view", ["lines", "flow"])
def test_words_do_not_move_while_the_pointer_is_over_one(browser, view):
    """Story: the line above the words grew by a long word, and the pointer was over another word."""
    choose(browser, sentence=3)
    radio(browser, "view", view)
    before = [word.rect for word in (*words(browser, "from"), *words(browser, "to"))]
    for side in ("from", "to"):
        point(browser, words(browser, side)[1])
        assert [word.rect for word in (*words(browser, "from"), *words(browser, "to"))] == before


def test_text_that_looks_like_markup_is_text(browser):
    choose(browser, sentence=3)
    assert [word.text for word in words(browser, "to")] == list(SCRIPT.source.words)
    assert [word.text for word in words(browser, "from")] == list(SCRIPT.target.words)
    point(browser, words(browser, "to")[1])
    assert "<img/src=x" in browser.find_element(By.ID, "details").text
    assert browser.find_elements(By.CSS_SELECTOR, "img, b") == []
    assert len(browser.find_elements(By.TAG_NAME, "script")) == 2
    assert_tidy(browser)


def luminance(color: str) -> float:
    channels = [int(value) / 255 for value in color[color.index("(") + 1 : -1].split(",")[:3]]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def test_text_has_contrast_in_light_and_dark(browser, scheme):
    """At least 4.5 to 1, as WCAG asks of text."""
    colors = "const s = getComputedStyle(document.querySelector(arguments[0])); return [s.color, s.backgroundColor]"
    back = luminance(browser.execute_script(colors, "body")[1])
    assert (back < 0.1) == (scheme == "dark")
    for selector in ("body", "#about", "h2", "select"):
        text = luminance(browser.execute_script(colors, selector)[0])
        assert (max(text, back) + 0.05) / (min(text, back) + 0.05) >= 4.5, selector


def test_a_narrow_window_has_no_sideways_scrolling(browser):
    browser.set_window_size(500, 800)
    try:
        choose(browser, sentence=3)
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.set_window_size(1200, 900)
