"""The calculator page: its facts are those of the network, and a browser computes the paper's hours with them."""

import functools
import importlib.util
import json
import math
import pathlib
import re

import browsers
import pytest

from t2t_keras.config import TrainConfig, paper
from t2t_keras.data import shards
from t2t_keras.model import flops
from t2t_keras.system import machine
from t2t_keras.training import device_memory, devices

DOCS = pathlib.Path(__file__).parent.parent / "docs"
PAGE = DOCS / "calculator.html"


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_calculator", DOCS / "make_calculator.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def facts() -> dict:
    page = PAGE.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script id="facts" type="application/json">(.*?)</script>', page, re.S)[1])


def test_the_page_has_the_facts_of_now(maker):
    page = PAGE.read_text(encoding="utf-8")
    assert maker.with_facts(page) == page, "run docs/make_calculator.py"


@pytest.mark.parametrize("row", ["base", "big", "C2", "A16"])
def test_operations_and_weights_are_those_of_the_model(row):
    found, model, length = facts()["models"][row], paper.model(row, vocab_size=23_456), 57
    counted = 3 * flops.forward(model, 1, length, length) / length
    each = found["operations"]
    operations = each["constant"] + length * each["length"] + 23_456 * each["vocabulary"]
    assert operations == pytest.approx(counted)
    assert found["weights"]["constant"] + 23_456 * found["weights"]["vocabulary"] == model.num_weights


def test_every_model_needs_memory_for_activations():
    assert all(min(model["activations"].values()) > 0 for model in facts()["models"].values())


@pytest.mark.parametrize(("length", "gib"), [(32, 2.90), (256, 3.67), (1024, 6.76)])
def test_memory_is_near_that_of_the_measurements(length, gib):
    """docs/cost.md: base, V = 32,000, one micro-batch of 4,096 tokens."""
    found = facts()
    model = found["models"]["base"]
    weights = model["weights"]["constant"] + 32_000 * model["weights"]["vocabulary"]
    activations = model["activations"]["constant"] + length * model["activations"]["length"]
    memory = found["fixedBytes"] + found["bytesPerWeight"] * weights + 4096 * activations
    assert memory / 2**30 == pytest.approx(gib, rel=0.06)


def bytes_of(config: TrainConfig, replicas: int, longest: int, together: int, vocabulary: int = 37_000) -> float:
    """The page's memory of base."""
    found = facts()
    model = found["models"]["base"]
    micro = min(config.micro_batch_tokens, config.batch_tokens / math.lcm(model["given"]["buckets"], replicas))
    weights = model["weights"]["constant"] + vocabulary * model["weights"]["vocabulary"]
    activations = model["activations"]["constant"] + model["activations"]["length"] * longest
    return found["fixedBytes"] + found["bytesPerWeight"] * weights + together * micro * activations


@pytest.mark.parametrize(("replicas", "micro_batch_tokens"), [(1, 8192), (1, 2048), (2, 8192), (3, 8192), (8, 8192)])
def test_the_micro_batch_is_the_largest_that_the_program_runs_first(replicas, micro_batch_tokens):
    """Story: the page took sentences of the average length, and --dry_run those of the greatest."""
    config = TrainConfig(micro_batch_tokens=micro_batch_tokens)
    info = {"source_longest": 256, "target_longest": 256, "columns": shards.SIDES}
    cost = functools.partial(flops.memory_cost, paper.model("base", vocab_size=37_000))
    rows, source, target = device_memory.largest_shapes(info, config, replicas, cost)[256]
    assert source == target and 240 <= source <= 256
    given = (config, replicas), (TrainConfig(), 1)
    one, other = (bytes_of(*each, 256, 1) - bytes_of(*each, 256, 0) for each in given)
    page = one / other
    assert rows * source / 6250 == pytest.approx(page, abs=256 / 6250)  # At most one row more: rows are whole.


def test_memory_is_near_that_of_the_rehearsal():
    """docs/scale.md: base on 2 cores, which compute two micro-batches at a time; the windows of the data are not in the
    page's number.
    """
    [peak] = re.findall(r"\| train: an update .*? \| ([0-9.]+) GiB \|", (DOCS / "scale.md").read_text(encoding="utf-8"))
    at_once = devices.micro_batches_at_once(TrainConfig(), 1) if machine.cores() == 2 else 2
    found = bytes_of(TrainConfig(), 1, facts()["longest"], at_once) / 2**30
    assert found == pytest.approx(float(peak) - 520 / 1024, rel=0.1)


def test_the_utilization_that_the_hours_of_the_paper_mean(maker):
    """12 hours and 3.5 days on 8 P100 (section 5.2)."""
    assert maker.share("base") == pytest.approx(29.0, abs=0.1) and maker.share("big") == pytest.approx(42.1, abs=0.1)


@pytest.mark.parametrize(("dtype", "hours"), [("bfloat16", 0), ("float32", 1)])
def test_the_hours_of_a_small_model_on_two_cores_are_near_those_that_were_measured(dtype, hours):
    results = (DOCS / "results.md").read_text(encoding="utf-8")
    measured = re.search(r"all 8,000\s+updates take ([\d.]+) and ([\d.]+) hours", results)
    found = facts()
    model, cores = found["models"]["multi30k_en_de"], found["hardware"][f"2 cores of an AMD EPYC, {dtype}"]
    given, operations = model["given"], model["operations"]
    each = operations["constant"] + operations["length"] * given["length"] + operations["vocabulary"] * 10_000
    rate = cores["rate"] * 1e12 * cores["shares"]["multi30k_en_de"] / 100
    seconds = given["updates"] * given["batch"] * each / rate
    assert seconds / 3600 == pytest.approx(float(measured[1 + hours]), rel=0.1)


def test_the_rates_and_shares_of_two_cores_are_those_of_the_results():
    results = (DOCS / "results.md").read_text(encoding="utf-8").partition("## Speed of training")[2]
    found = facts()["hardware"]
    patterns = {"bfloat16": r"(\d+) to (\d+) GFLOP/s in bfloat16", "float32": r"(\d+) to (\d+)\s+in float32"}
    for dtype, pattern in patterns.items():
        low, high = map(float, re.search(pattern, results).groups())
        assert low <= 1000 * found[f"2 cores of an AMD EPYC, {dtype}"]["rate"] <= high
    # The tables have the Multi30k model in both dtypes, base in both, and big.
    printed = [int(each) for each in re.findall(r"^\| t2t_keras \| [\d,]+ \|  \| (\d+)% ", results, re.MULTILINE)]
    bfloat16, float32 = (found[f"2 cores of an AMD EPYC, {dtype}"]["shares"] for dtype in ("bfloat16", "float32"))
    assert printed == [
        bfloat16["multi30k_en_de"], float32["multi30k_en_de"], bfloat16["base"], float32["base"], bfloat16["big"]
    ]  # fmt: skip


def test_every_rate_but_that_of_another_device_has_a_source():
    without = [name for name, device in facts()["hardware"].items() if not (device["source"] and device["url"])]
    assert without == ["another device"]


def test_small_models_have_the_sizes_and_updates_of_their_flagfiles(maker):
    """By hand: 14 epochs of 8,000 pairs of 19 sub-words are 520 updates of 4,096; 8,000 and 4,000 are in the files."""
    found = facts()["models"]
    assert {name: found[name]["given"]["updates"] for name in maker.SMALL_MODELS} == {
        "small": 520, "medium": 2319, "multi30k_en_de": 8000, "multi30k_en_de_best": 4000
    }  # fmt: skip
    # Attention: 4 d² each; feed-forward: 2 d d_ff + d + d_ff; normalization: 2 d each; 4 + 4 layers.
    encoder = 4 * 128**2 + 2 * 128 * 256 + 128 + 256 + 2 * 256
    decoder = encoder + 4 * 128**2 + 256
    assert found["multi30k_en_de"]["weights"] == {"constant": 4 * (encoder + decoder), "vocabulary": 128}


@pytest.fixture(scope="module")
def browser():
    with browsers.chromium(1000, 1200) as found:
        yield found


def enter(browser, **values) -> None:
    for name, value in values.items():
        browser.execute_script(
            "const field = document.getElementById(arguments[0]); field.value = arguments[1];"
            "field.dispatchEvent(new Event('change', {bubbles: true}));",
            name,
            str(value),
        )


def shown_by(browser, name: str) -> str:
    return browser.find_element("id", name).text


def test_the_page_computes_the_hours_of_the_paper(browser):
    browser.get(PAGE.as_uri())
    text = {name: browser.find_element("id", name).text for name in ("time", "cost", "operations", "problem")}
    assert text == {"time": "12.0 h", "cost": "96.1", "operations": "9.53 · 1017", "problem": ""}
    shown = functools.partial(shown_by, browser)
    for number, together in ((8, 1), (8, 2), (3, 1)):
        enter(browser, devices=number, together=together)
        expected = bytes_of(TrainConfig(batch_tokens=25_000), number, 256, together) / 2**30
        assert float(shown("memory").removesuffix(" GiB")) == pytest.approx(expected, rel=0.01)
    enter(browser, devices=8, together=1)
    seconds = 100_000 * 25_000 / float(shown("speed").replace(",", ""))
    assert seconds == pytest.approx(12 * 3600, rel=0.01)
    for updates, unit, number in ((1000, " min", 7.2), (100, " s", 43.2)):
        enter(browser, updates=updates)
        assert float(shown("time").removesuffix(unit)) == pytest.approx(number, rel=0.02)
    browser.get(PAGE.as_uri())
    enter(browser, model="big")
    assert browser.find_element("id", "time").text == "3.50 days"
    rows = [row.text for row in browser.find_elements("css selector", "#check tbody tr")]
    assert rows == ["base 12.0 h 12.0 h (29%) 9.95 h (−17%)", "big 3.50 days 3.50 days (42.1%) 4.21 days (+20%)"]
    assert browser.get_log("browser") == []


def test_passes_and_updates_follow_each_other(browser):
    browser.get(PAGE.as_uri())
    enter(browser, pairs=1_000_000, length=25, epochs=10)
    assert browser.find_element("id", "updates").get_property("value") == "10000"
    enter(browser, updates=5000)
    assert browser.find_element("id", "epochs").get_property("value") == "5"
    assert browser.find_element("id", "time").text.endswith("min")


def value(browser, name: str) -> str:
    return browser.find_element("id", name).get_property("value")


def test_another_model_keeps_what_was_edited(browser):
    browser.get(PAGE.as_uri())
    enter(browser, model="big")
    assert (value(browser, "updates"), value(browser, "share")) == ("300000", "42.1")
    enter(browser, hardware="another device", rate=312, share=50, updates=5000)
    enter(browser, model="base")
    assert [value(browser, name) for name in ("rate", "share", "updates")] == ["312", "50", "5000"]


def test_a_small_model_and_two_cores_bring_their_numbers(browser):
    browser.get(PAGE.as_uri())
    enter(browser, price=3)
    enter(browser, hardware="2 cores of an AMD EPYC, bfloat16")
    enter(browser, model="multi30k_en_de")
    brought = ("vocabulary", "pairs", "length", "batch", "updates", "devices", "rate", "share", "together", "price")
    assert [value(browser, name) for name in brought] == [
        "10000", "29000", "14.5", "8192", "8000", "1", "0.79", "37", "2", "3"
    ]  # fmt: skip
    assert shown_by(browser, "time") == "59 min" and value(browser, "epochs") == "156"
    sources = browser.find_elements("css selector", "#sources tbody tr")
    assert len(sources) == len(facts()["hardware"]) - 1 and sources[0].text.startswith("NVIDIA P100")
    assert browser.get_log("browser") == []


def test_extreme_numbers_are_shown_in_a_unit_that_fits(browser):
    browser.get(PAGE.as_uri())
    enter(browser, length=27.4, updates=1)
    assert browser.find_element("id", "time").text.endswith(" s")
    enter(browser, pairs=1_000_000_000, updates=1_000_000, rate=0.2, devices=1)
    assert "," in browser.find_element("id", "time").text and browser.find_element("id", "problem").text == ""
    enter(browser, batch=100_000_000, micro=1_009_500, longest=783)
    assert browser.find_element("id", "memory").text == "1,000 GiB"
    enter(browser, pairs="")
    assert browser.find_element("id", "problem").text.startswith("Training pairs: expected a whole number")
    assert value(browser, "updates") == "1000000"


def test_a_wrong_number_is_explained(browser):
    browser.get(PAGE.as_uri())
    enter(browser, devices=0)
    assert browser.find_element("id", "problem").text == "Devices: expected a whole number from 1 to 100000."
    assert browser.find_element("id", "time").text == "–"
    enter(browser, devices=1)
    assert browser.find_element("id", "problem").text == "" and browser.find_element("id", "time").text == "4.00 days"
