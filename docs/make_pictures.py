"""Draws the pictures of the documentation.

python docs/make_pictures.py runs/quickstart      # a run of the built-in corpus; writes docs/pictures/*.png
"""

import pathlib
import shutil
import sys
import tempfile

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

import t2t_keras
from t2t_keras.decoding.loading import load
from t2t_keras.visualization import attention_page, attention_pictures, figures
from t2t_keras.visualization.attention import attention_of

PICTURES = pathlib.Path(__file__).parent / "pictures"
SENTENCE = "forty-two thousand three hundred and nine"
# From the palette of Okabe and Ito, which colour-blind people can tell apart.
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"

plt.rcParams.update({"font.size": 12, "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left"})


def curve(events: EventAccumulator, tag: str) -> tuple[list[int], list[float]]:
    """The steps and values of one of TensorBoard's curves."""
    points = events.Tensors(tag)
    return [point.step for point in points], [float(make_ndarray(point.tensor_proto)) for point in points]


def curves(run: pathlib.Path) -> plt.Figure:
    """Training and validation loss, and validation BLEU, against the step."""
    events = EventAccumulator(str(run / "logs"), size_guidance={"tensors": 0})
    events.Reload()
    figure, (loss, bleu) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    loss.plot(*curve(events, "train/loss"), color=BLUE, label="training")
    loss.plot(*curve(events, "valid/loss"), color=ORANGE, marker="o", linestyle="--", label="validation")
    loss.set(title="Loss (nats per sub-word, logarithmic scale)", xlabel="step", yscale="log")
    loss.yaxis.set_major_formatter("{x:g}")
    loss.legend(frameon=False)
    bleu.plot(*curve(events, "valid/bleu"), color=GREEN, marker="o")
    bleu.set(title="Validation BLEU", xlabel="step", ylim=(0, 103))
    for axes in (loss, bleu):
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
    return figure


def alignment(run: pathlib.Path) -> plt.Figure:
    """How far each sub-word of a translation attends to each sub-word of its source."""
    (best,) = t2t_keras.load(run).n_best(SENTENCE, n=1, alignment=True)
    figure, axes = plt.subplots(figsize=(10, 5), layout="constrained")
    image = axes.imshow(best.alignment, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(best.source_pieces)), best.source_pieces, rotation=55, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(best.pieces)), best.pieces)
    axes.tick_params(length=0)
    axes.set_title(f"{SENTENCE}\n→ {best.text}", fontsize=13)
    axes.set(xlabel="source sub-words", ylabel="translated sub-words")
    figure.colorbar(image, ax=axes, label="attention", pad=0.015, aspect=40)
    return figure


def attention(run: pathlib.Path) -> None:
    """Lines and heat maps of the last layer, and the page as a browser shows it."""
    found = attention_of(load(run), SENTENCE)
    figures.save(attention_pictures.line_picture(found), PICTURES / "attention_lines.png")
    figures.save(attention_pictures.heat_maps(found), PICTURES / "attention_heatmap.png")
    try:
        from selenium import webdriver
        from selenium.webdriver.common.by import By
    except ImportError:
        print("attention_page.png stays: it needs Chromium with its driver.")
        return
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars", "--window-size=1000,900"):
        options.add_argument(argument)
    driver = webdriver.ChromeService(shutil.which("chromedriver"))
    with tempfile.TemporaryDirectory() as folder, webdriver.Chrome(options=options, service=driver) as browser:
        page = pathlib.Path(folder) / "attention.html"
        page.write_text(attention_page.page([found]), encoding="utf-8")
        browser.get(page.as_uri())
        browser.find_element(By.CSS_SELECTOR, "#layer option:last-child").click()
        browser.find_element(By.CSS_SELECTOR, "[name=units][value=pieces]").click()
        browser.find_elements(By.CSS_SELECTOR, "#from .word")[3].click()
        browser.save_screenshot(str(PICTURES / "attention_page.png"))


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
    "export/": ("SavedModel,\nCTranslate2", 3, 0),
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
    ("decoding/", "export/"),
    ("export/", "model server"),
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
        axes.add_patch(FancyBboxPatch((x - WIDTH / 2, y - HEIGHT / 2), WIDTH, HEIGHT, boxstyle=style, ec=edge, fc=face, lw=1.5))
        axes.text(x, y + 0.18, name, ha="center", va="center", weight="bold", fontsize=14)
        axes.text(x, y - 0.1, text, ha="center", va="center", fontsize=11)
    for start, end in ARROWS:
        (x, y), (to_x, to_y) = BOXES[start][1:], BOXES[end][1:]
        right, up = (to_x > x) - (to_x < x), (to_y > y) - (to_y < y)
        begin = (x + right * WIDTH / 2, y + up * HEIGHT / 2)
        tip = (to_x - right * WIDTH / 2, to_y - up * HEIGHT / 2)
        axes.add_patch(FancyArrowPatch(begin, tip, arrowstyle="-|>", mutation_scale=15, color="#444444", lw=1.5, shrinkA=1, shrinkB=1))
    return figure


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    run = pathlib.Path(sys.argv[1])
    PICTURES.mkdir(exist_ok=True)
    for name, figure in (("curves", curves(run)), ("alignment", alignment(run)), ("architecture", architecture())):
        figure.savefig(PICTURES / f"{name}.png", dpi=110)
        print(PICTURES / f"{name}.png")
    attention(run)


if __name__ == "__main__":
    main()
