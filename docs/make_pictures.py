"""Draws the pictures of the documentation, docs/pictures/*.png. See make_pictures.sh.

python docs/make_pictures.py CURVES_RUN TRANSLATION_RUN SENTENCE
"""

import contextlib
import pathlib
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

from t2t_keras.decoding.loading import load
from t2t_keras.reporting import attention_pictures, curves, figures, pages
from t2t_keras.reporting.attention import attention_of
from t2t_keras.serving import served_models, web_api, web_server
from t2t_keras.serving.saved_export import open_for_requests

PICTURES = pathlib.Path(__file__).parent / "pictures"
# From the palette of Okabe and Ito, which colour-blind people can tell apart.
BLUE, ORANGE = "#0072B2", "#D55E00"


@contextlib.contextmanager
def chromium(height: int) -> Iterator[webdriver.Chrome]:
    """Chromium without a window, 1000 pixels wide."""
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars", f"--window-size=1000,{height}"):
        options.add_argument(argument)
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver"))) as browser:
        yield browser


def attention(run: pathlib.Path, sentence: str) -> None:
    """Lines and heat maps of the last layer but one, and the page as a browser shows it."""
    found = attention_of(load(run), sentence)
    layer = len(found.cross) - 2
    figures.save(attention_pictures.line_picture(found, layer=layer), PICTURES / "attention_lines.png")
    figures.save(attention_pictures.heat_maps(found, layer=layer), PICTURES / "attention_heatmap.png")
    with tempfile.TemporaryDirectory() as folder, chromium(900) as browser:
        page = pathlib.Path(folder) / "attention.html"
        page.write_text(pages.attention_page({1: found}), encoding="utf-8")
        browser.get(page.as_uri())
        browser.find_elements(By.CSS_SELECTOR, "#layer option")[layer].click()
        browser.find_element(By.CSS_SELECTOR, "[name=units][value=pieces]").click()
        browser.find_elements(By.CSS_SELECTOR, "#from .word")[3].click()
        browser.save_screenshot(str(PICTURES / "attention_page.png"))


def server_page(run: pathlib.Path, sentence: str) -> None:
    """The server's page with a sentence typed and a word pointed at."""
    models = served_models.ServedModels([served_models.local("run", open_for_requests([run]))])
    models.load_first()
    server = web_server.serve(web_api.WebApi(models))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with chromium(940) as browser:
        browser.get(f"http://localhost:{server.port}/")
        text = browser.find_element(By.ID, "text")
        for _ in range(2):  # The first time, the browser itself is still starting, on the same cores.
            text.clear()
            time.sleep(2)
            text.send_keys(sentence)
            while not browser.find_elements(By.CSS_SELECTOR, "#target .word"):
                time.sleep(0.1)
            time.sleep(2)
        ActionChains(browser).move_to_element(browser.find_elements(By.CSS_SELECTOR, "#target .word")[2]).perform()
        time.sleep(0.5)
        browser.save_screenshot(str(PICTURES / "server.png"))
    server.shutdown()


# Name, what it does, and the centre of its box.
BOXES = {
    "text files": ("two aligned files,\nor a TFDS set", 0, 2),
    "data/": ("corpora, shards,\nbatches", 1, 2),
    "training/": ("steps, validation,\ncheckpoints", 2, 2),
    "run folder": ("options, weights,\ncurves", 3, 2),
    "text/": ("tokenizer, lines", 1, 3),
    "model/": ("the network,\nas Keras layers", 2, 3),
    "decoding/": ("beam search,\nfrom text to text", 3, 1),
    "translations": ("one, or n-best\nwith alignments", 2, 1),
    "evaluation/": ("BLEU, chrF,\nperplexity", 2, 0),
    "serving/": ("SavedModel,\nCTranslate2", 3, 0),
    "scores": ("with sacreBLEU's\nsignature", 1, 0),
    "model server": ("TensorFlow Serving,\nasked by client.py", 4, 0),
}
FILES = {"text files", "run folder", "translations", "scores", "model server"}
ARROWS = (
    ("text files", "data/"),
    ("data/", "training/"),
    ("training/", "run folder"),
    ("text/", "data/"),
    ("model/", "training/"),
    ("run folder", "decoding/"),
    ("decoding/", "translations"),
    ("translations", "evaluation/"),
    ("evaluation/", "scores"),
    ("decoding/", "serving/"),
    ("serving/", "model server"),
)
WIDTH, HEIGHT = 0.82, 0.66


def architecture() -> plt.Figure:
    """From text files to translations, scores and a model server, through the folders of the package."""
    figure, axes = plt.subplots(figsize=(10, 5.4), layout="constrained")
    axes.set(xlim=(-0.45, 4.45), ylim=(-0.4, 3.4))
    axes.axis("off")
    for name, (text, x, y) in BOXES.items():
        edge, face = (ORANGE, "#FDF1E7") if name in FILES else (BLUE, "#E8F2F9")
        style = "round,pad=0,rounding_size=0.05"
        axes.add_patch(
            FancyBboxPatch((x - WIDTH / 2, y - HEIGHT / 2), WIDTH, HEIGHT, boxstyle=style, ec=edge, fc=face, lw=1.5)
        )
        axes.text(x, y + 0.18, name, ha="center", va="center", weight="bold", fontsize=14)
        axes.text(x, y - 0.1, text, ha="center", va="center", fontsize=11)
    for start, end in ARROWS:
        (x, y), (to_x, to_y) = BOXES[start][1:], BOXES[end][1:]
        right, up = (to_x > x) - (to_x < x), (to_y > y) - (to_y < y)
        begin = (x + right * WIDTH / 2, y + up * HEIGHT / 2)
        tip = (to_x - right * WIDTH / 2, to_y - up * HEIGHT / 2)
        axes.add_patch(
            FancyArrowPatch(
                begin, tip, arrowstyle="-|>", mutation_scale=15, color="#444444", lw=1.5, shrinkA=1, shrinkB=1
            )
        )
    return figure


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    curves_run, translation_run, sentence = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    PICTURES.mkdir(exist_ok=True)
    curves.compare([curves_run], PICTURES / "curves.png")
    architecture().savefig(PICTURES / "architecture.png", dpi=110)
    attention(translation_run, sentence)
    server_page(translation_run, sentence)


if __name__ == "__main__":
    main()
