"""The page that compares systems in a browser. Needs Chromium with its driver."""

import dataclasses
import pathlib

import browsers
import numpy as np
import pytest
from test_pages import luminance, scheme  # noqa: F401

from t2t_keras.evaluation.comparison import compare
from t2t_keras.reporting import pages

selenium = pytest.importorskip("selenium")

from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select  # noqa: E402

REFERENCE = [
    "السلام عليكم يا صديقي", "שני כלבים משחקים", "<script>document.title='broken'</script>", "ein Hund läuft",
    "die Katze schläft",
]  # fmt: skip
BASELINE = [
    "السلام عليكم صديقي", "שני כלבים רצים", "<script>document.title='x'</script>", "ein Hund läuft",
    "die Katze schläft",
]  # fmt: skip
SYSTEM = [
    "السلام عليكم يا صديقي", "שני כלבים משחקים", "<img/src=x/onerror=document.title='broken'>", "ein Hund rennt",
    "die Katze schläft",
]  # fmt: skip
OTHER = ["lang" * 60, *BASELINE[1:]]
LONG = "runs/" + "long" * 60
FOUND = compare(
    {"base": BASELINE, "<b>mine": SYSTEM, LONG: OTHER}, REFERENCE, source=["a b"] * 5, samples=100, trials=100
)


def align(system: str, source: str, text: str) -> list | None:
    """Of one system alone: word t attends to "a" by 1 / (t + 1), and to "b" by the rest."""
    assert source == "a b"
    return [[1 / (row + 1), row / (row + 1)] for row in range(len(text.split()))] if system == "<b>mine" else None


@pytest.fixture(scope="module")
def opened(tmp_path_factory, scheme):  # noqa: F811
    page = tmp_path_factory.mktemp("page") / "comparison.html"
    page.write_text(pages.comparison_page(dataclasses.asdict(FOUND), align), encoding="utf-8")
    with browsers.chromium(1200, 900, scheme) as browser:
        yield browser, page


@pytest.fixture
def browser(opened):
    """The page as it is when it is opened. After the test the browser has reported no error."""
    browser, page = opened
    browser.get(pathlib.Path(page).as_uri())
    yield browser
    assert browser.get_log("browser") == []
    assert browser.title == "Comparison of systems"


def texts(browser, selector: str) -> list[str]:
    return [element.text for element in browser.find_elements(By.CSS_SELECTOR, selector)]


def test_the_tables_have_the_figures_of_each_system(browser):
    for table, name in ((1, "bleu"), (3, "chrf")):
        rows = browser.find_elements(By.CSS_SELECTOR, f"#scores > :nth-child({table}) tbody tr")
        for row, system in zip(rows, FOUND.systems, strict=True):
            cells, estimate = [cell.text for cell in row.find_elements(By.TAG_NAME, "td")], getattr(system, name)
            assert cells[:2] == [system.name, f"{estimate.score:.2f}"]
            assert cells[3] == f"{estimate.mean:.2f} ± {estimate.margin:.2f}"
            for cell, p in zip(cells[4:], (estimate.p_value, estimate.randomization_p_value), strict=True):
                assert cell == ("" if p is None else f"{p:.4f}{' *' if p < 0.05 else ''}")
    assert texts(browser, ".signature") == [FOUND.signature, FOUND.chrf_signature]
    [group] = FOUND.systems[1].lengths
    cells = texts(browser, "#sentences tbody td")
    bleus = [f"{group.baseline_bleu:.2f}", f"{group.bleu:.2f}"]
    assert cells[:7] == ["2", "5", *bleus, str(group.wins), str(group.ties), str(group.losses)]
    assert cells[8] == f"{group.gain:+.2f}"


def test_intervals_are_drawn_on_one_scale(browser):
    """The line of each system runs from the mean minus the margin to the mean plus it, and the dot is at the score."""
    script = """return [...document.querySelectorAll('#scores > :nth-child(3) .interval')].map(box => {
      const place = e => e.getBoundingClientRect(), line = place(box.querySelector('i')), dot = place(box.querySelector('b'));
      return [line.left, line.right, (dot.left + dot.right) / 2].map(x => (x - place(box).left) / place(box).width); })"""  # noqa: E501
    found = [system.chrf for system in FOUND.systems]
    ends = [(each.mean - each.margin, each.mean + each.margin, each.score) for each in found]
    low, high = min(map(min, ends)), max(map(max, ends))
    for drawn, expected in zip(browser.execute_script(script), ends, strict=True):
        assert drawn == pytest.approx([(end - low) / (high - low) for end in expected], abs=0.01)


def test_pairs_are_side_by_side_with_their_differences_marked(browser):
    [first, *_], [worse, *_] = FOUND.systems[1].better, FOUND.systems[1].worse
    articles = browser.find_elements(By.CSS_SELECTOR, ".example")
    assert len(articles) == len(FOUND.systems[1].better) + len(FOUND.systems[1].worse)
    for article, example in ((articles[0], first), (articles[len(FOUND.systems[1].better)], worse)):
        change = f"{example.baseline_chrf:.1f} → {example.chrf:.1f} ({example.gain:+.1f})".replace("-", "−")
        assert article.find_element(By.TAG_NAME, "header").text == f"line {example.line} · chrF2 {change}"
        shown = [element.get_attribute("textContent") for element in article.find_elements(By.CSS_SELECTOR, ".text")]
        assert shown == [example.source, *example.references, example.baseline, example.system]
        before, after = (article.find_element(By.CSS_SELECTOR, f".{name}").rect for name in ("before", "after"))
        assert before["y"] == after["y"] and before["x"] + before["width"] <= after["x"]
    article = next(each for each in articles if "line 2 " in each.text)
    marks = [element.get_attribute("textContent") for element in article.find_elements(By.TAG_NAME, "mark")]
    assert marks == ["רצים", "משחקים"]


def test_pointing_at_a_word_colours_the_words_of_its_source(browser):
    """Of right-to-left text: with the mouse, and with the arrow that goes on in its direction. The baseline has no
    alignment.
    """
    article = next(each for each in browser.find_elements(By.CSS_SELECTOR, ".example") if "line 2 " in each.text)
    source, words = (article.find_elements(By.CSS_SELECTOR, f"{each} .word") for each in (".wide", ".after"))
    assert [each.text for each in source] == ["a", "b"] and [each.text for each in words] == SYSTEM[1].split()
    assert not article.find_elements(By.CSS_SELECTOR, ".before .word") and len(texts(browser, ".hint")) == 1

    def shown() -> list:
        pointed = article.find_elements(By.CSS_SELECTOR, ".pointed")
        return [each.get_attribute("title") for each in source] + [each.text for each in pointed]

    plain = source[0].value_of_css_property("background-color")
    assert shown() == ["", ""]
    ActionChains(browser).move_to_element(words[1]).perform()
    assert shown() == ["0.50", "0.50", words[1].text]
    assert source[0].value_of_css_property("background-color") != plain
    ActionChains(browser).move_to_element(article.find_element(By.TAG_NAME, "header")).perform()
    assert shown() == ["", ""] and source[0].value_of_css_property("background-color") == plain
    text = article.find_element(By.CSS_SELECTOR, ".after .text")
    left = Keys.ARROW_LEFT
    for key, expected in ((left, "1.00"), (left, "0.50"), (left, "0.33"), (Keys.ARROW_RIGHT, "0.50")):
        text.send_keys(key)
        assert shown()[0] == expected
        if expected == "1.00":
            ground = [255 * float(part) for part in source[0].value_of_css_property("background-color")[11:-1].split()]
            behind = f"({','.join(str(round(part)) for part in ground)})"
            lights = [luminance(each) for each in (behind, source[0].value_of_css_property("color"))]
            assert (max(lights) + 0.05) / (min(lights) + 0.05) >= 4.5
    Select(browser.find_element(By.ID, "system")).select_by_index(1)
    assert not texts(browser, ".hint") and not texts(browser, ".word")


def test_the_bar_of_a_group_of_lengths_has_its_wins_ties_and_losses(browser):
    script = (
        "return [...document.querySelectorAll('.share')].map(s => [...s.children].map(c => "
        "c.getBoundingClientRect().width))"
    )
    widths = browser.execute_script(script)
    assert len(widths) == len(FOUND.systems[1].lengths)
    for found, group in zip(widths, FOUND.systems[1].lengths, strict=True):
        numbers = np.array([group.wins, group.ties, group.losses])
        np.testing.assert_allclose(np.array(found) / sum(found), numbers / numbers.sum(), atol=0.03)


def test_another_system_is_chosen(browser):
    Select(browser.find_element(By.ID, "system")).select_by_index(1)
    assert texts(browser, ".example header")[0].startswith(f"line {FOUND.systems[2].worse[0].line} ")
    assert texts(browser, "#sentences h3 + p") == ["None."]  # No gain.
    assert texts(browser, "#sentences h3") == ["Largest gains", "Largest losses"]
    assert LONG in texts(browser, "#sentences > p")[0]


def test_right_to_left_text_runs_from_right_to_left(browser):
    direction = (
        "return [...document.querySelectorAll('.example .text')].map(t => [t.textContent, "
        "getComputedStyle(t).direction])"
    )
    found = dict(browser.execute_script(direction))
    assert all(found[text] == "rtl" for text in (REFERENCE[0], BASELINE[1], SYSTEM[1]))
    assert all(found[text] == "ltr" for text in ("a b", BASELINE[3], SYSTEM[3]))


def test_text_that_looks_like_markup_is_text(browser):
    assert browser.find_elements(By.CSS_SELECTOR, "img, #scores b:not(.interval b)") == []
    assert len(browser.find_elements(By.TAG_NAME, "script")) == 2
    shown = browser.find_elements(By.CSS_SELECTOR, ".after .text")
    assert SYSTEM[2] in [element.get_attribute("textContent") for element in shown]


def test_text_and_marks_have_contrast_in_light_and_dark(browser, scheme):  # noqa: F811
    """At least 4.5 to 1, as WCAG asks of text."""
    colors = "const s = getComputedStyle(document.querySelector(arguments[0])); return [s.color, s.backgroundColor]"
    assert (luminance(browser.execute_script(colors, "body")[1]) < 0.1) == (scheme == "dark")
    grounds = {"body": ("body", "#about", ".signature", "th", "select")}
    grounds[".example"] = (".example header", ".name", ".text")
    pairs = [(text, ground) for ground, selectors in grounds.items() for text in selectors]
    pairs += [(".before mark", ".before mark"), (".after mark", ".after mark")]
    for text, ground in pairs:
        shown = (browser.execute_script(colors, selector)[place] for place, selector in enumerate((text, ground)))
        light = [luminance(each) for each in shown]
        assert (max(light) + 0.05) / (min(light) + 0.05) >= 4.5, text


@pytest.mark.parametrize("width", [500, 1200])
def test_nothing_is_wider_than_the_window(browser, width):
    """Long words break, and wide tables scroll by themselves."""
    browser.set_window_size(width, 800)
    try:
        Select(browser.find_element(By.ID, "system")).select_by_index(1)
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.set_window_size(1200, 900)
