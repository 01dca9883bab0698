"""The demo page: its server answers and refuses as promised, and in a browser a person can type, point, select and
force a beginning.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time
import types

import loopback_server
import numpy as np
import programs
import pytest
import stand_in
from werkzeug.test import Client

from t2t_keras.serving import client, demo
from t2t_keras.serving.demo import Demo
from t2t_keras.serving.protocol import Translation

ROOT = pathlib.Path(__file__).parent.parent
SIXTY_WORDS = " ".join(f"word{number}" for number in range(60))


def echo(text: str, prefix: str, n: int) -> list[Translation]:
    """Each word backwards, after the prefix; word i of the translation attends to word i of the source."""
    source = [f"▁{word}" for word in text.split(" ")] + ["</s>"]
    forced = prefix.split()
    words = [*forced, *(word[::-1] for word in text.split(" ")[len(forced) :])]
    pieces = [f"▁{word}" for word in words]
    alignment = np.eye(len(pieces) + 1, len(source))
    marks = ["!" * beam for beam in range(n)]
    every = [[*pieces[:-1], *(piece + mark for piece in pieces[-1:]), "</s>"] for mark in marks]
    return [
        Translation(" ".join(words) + mark, -float(beam), every[beam], source, alignment)
        for beam, mark in enumerate(marks)
    ]


def wait_until(condition) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ask(app, text="one two", prefix="", page="p", number=1, phrases=None, **request) -> tuple[int, dict]:
    body = {"text": text, "prefix": prefix, "page": page, "number": number, **(phrases or {})}
    response = Client(app).post("/translate", **{"json": body, "base_url": "http://localhost:8000", **request})
    return response.status_code, json.loads(response.text)


@pytest.fixture
def app():
    return Demo(echo, title="a model", n_best=2)


def test_a_sentence_is_answered_with_its_translations_and_their_alignment(app):
    status, answer = ask(app, " one\n two ")
    assert status == 200 and answer["number"] == 1
    first, second = answer["translations"]
    assert (first["text"], first["score"], second["text"]) == ("eno owt", 0.0, "eno owt!")
    assert first["pieces"] == ["▁eno", "▁owt", "</s>"] and first["source_pieces"] == ["▁one", "▁two", "</s>"]
    assert first["alignment"] == np.eye(3).tolist()
    assert ask(app, "one two", prefix="x")[1]["translations"][0]["text"] == "x owt"
    assert ask(app, "  \n ")[1]["translations"] == ask(app, "\u200b\xa0")[1]["translations"] == []
    assert ask(app, "5\xa0km  a")[1]["translations"][0]["text"] == "mk\xa05 a", "NBSP is no space between words"


def test_phrases_are_passed_on_one_a_line():
    given = []

    def translate(text, prefix, n, **phrases):
        given.append(phrases)
        return [dataclasses.replace(each, constraints_met=False) for each in echo(text, prefix, n)]

    app = Demo(translate, title="", n_best=1)
    status, answer = ask(app, phrases={"constraints": " x \n\n y  z\n5\u202f%\n", "avoid": "\n\u200b\n"})
    assert status == 200 and answer["translations"][0]["constraints_met"] is False
    ask(app, phrases={"constraints": "", "avoid": "v, w\r\nu"}, number=2)
    ask(app, number=3)
    assert given == [{"constraints": ["x", "y z", "5\u202f%"]}, {"avoid": ["v, w", "u"]}, {}]
    assert ask(app, phrases={"avoid": ["x"]}, number=4)[0] == 400


ANSWERS = [
    Translation(
        "eins zwei",
        -0.5,
        ("▁eins", "▁zwei", "</s>"),
        ("▁one", "</s>"),
        np.array([[0.75, 0.25], [0.5, 0.5], [0.0, 1.0]]),
        truncated=True,
    ),
    Translation("drei", -1.5, ("▁drei", "</s>"), ("▁one", "</s>"), np.array([[0.125, 0.875], [1.0, 0.0]]), False, True),
]
PHRASES = {"constraints": ["x", "y z"], "avoid": ["v"]}


def test_a_translator_s_translations_have_each_its_own_score_sub_words_and_alignment():
    class Translator:
        def n_best(self, text, n, *, prefix, alignment, **phrases):
            assert (text, n, prefix, alignment, phrases) == ("one", 2, "e", True, PHRASES)
            return ANSWERS

    assert demo.from_translator(Translator())("one", "e", 2, **PHRASES) == ANSWERS


def test_a_sentence_too_long_for_an_alignment_is_translated_without_one():
    """Story: the page refused sentences of more than 256 sub-words."""
    asked, too_long = [], "alignment: expected a source of at most 256 sub-words. Received: 601. "

    class Translator:
        def n_best(self, text, n, alignment=False, **options):
            asked.append(alignment)
            if alignment or text == "wrong":
                raise ValueError(too_long if alignment else "prefix: expected nothing.")
            return ANSWERS

    def predict(signature, inputs):
        asked.append(*inputs["alignment"])
        return {
            "error": [too_long if inputs["alignment"][0] else ""], "text": [["a", "a"]], "score": [[-1.0, -2.0]],
            "pieces": [[[], []]], "source_pieces": [[]], "alignment": [[[], []]], "constraints_met": [[True, True]],
            "truncated": [False],
        }  # fmt: skip

    assert demo.from_translator(Translator())("one", "", 2) == ANSWERS and asked == [True, False]
    with pytest.raises(ValueError, match="^prefix"):
        demo.from_translator(Translator())("wrong", "", 2)
    [found] = demo.from_server(predict)("one", "", 2)  # Both have the same text.
    assert (found.text, found.score, found.pieces, asked[4:]) == ("a", -1.0, (), [True, False])


def test_a_server_s_translations_have_each_its_own_score_sub_words_and_alignment():
    """A server pads the sub-words of all translations of all sentences to one length, and the alignments likewise."""

    def predict(signature, inputs):
        assert signature == "translate_with_options"
        assert {name: value for name, [value] in inputs.items()} == {
            "text": "one", "alpha": -1.0, "max_length": 0, "n_best": 2, "prefix": "e", "alignment": True,
            "constraints": "x\ty z", "avoid": "v", "ordered": False,
        }  # fmt: skip
        weights = [
            [[*row, 0.0] for row in each.alignment.tolist()] + [[0.0] * 3] * (4 - len(each.pieces)) for each in ANSWERS
        ]
        return {
            "text": [[each.text for each in ANSWERS] + ["", ""]],
            "score": [[each.score for each in ANSWERS] + [0.0, 0.0]],
            "pieces": [[[*each.pieces] + [""] * (4 - len(each.pieces)) for each in ANSWERS]],
            "source_pieces": [[*ANSWERS[0].source_pieces, ""]],
            "alignment": [weights],
            "error": [""],
            "constraints_met": [[each.constraints_met for each in ANSWERS] + [True, True]],
            "truncated": [True],
        }

    found = demo.from_server(predict)("one", "e", 2, **PHRASES)
    assert [each.as_json() for each in found] == [each.as_json() for each in ANSWERS]


@pytest.mark.parametrize(
    ("request_", "status", "expected"),
    [
        ({"base_url": "http://evil.example:8000"}, 403, "Expected one of the hosts"),
        ({"json": None, "data": '{"text": "a"}', "content_type": "text/plain"}, 415, "application/json"),
        ({"json": None, "data": "{", "content_type": "application/json"}, 400, "JSON object"),
        ({"json": []}, 400, "JSON object"),
        ({"json": {"text": "a", "prefix": "", "page": "p"}}, 400, "JSON object"),
        ({"json": {"text": 3, "prefix": "", "page": "p", "number": 1}}, 400, "strings"),
        ({"json": {"text": "a" * 70_000, "prefix": "", "page": "p", "number": 1}}, 413, "exceeds"),
    ],
)
def test_what_the_page_would_not_send_is_refused(app, request_, status, expected):
    received, answer = ask(app, **request_)
    assert received == status and expected in answer["error"]


def test_other_hosts_get_neither_the_page_nor_its_settings(app):
    for path in ("/", "/settings"):
        assert Client(app).get(path, base_url="http://localhost:1").status_code == 200
        assert Client(app).get(path, base_url="http://127.0.0.1:1").status_code == 200
        assert Client(app).get(path, base_url="http://[::1]:1").status_code == 200
        assert Client(app).get(path, base_url="http://localhost.evil.example").status_code == 403
    assert Client(app).get("/etc/passwd", base_url="http://localhost").status_code == 404


def test_the_page_may_load_nothing_from_elsewhere(app):
    response = Client(app).get("/", base_url="http://localhost:1")
    assert response.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "http" not in response.text.replace("http-equiv", "")  # No address of another host.


def test_an_error_of_the_model_is_shown_and_the_next_sentence_is_translated():
    def refuses(text, prefix, n):
        if text == "bad":
            raise ValueError("n_best: expected 1 to 4.")
        return echo(text, prefix, n)

    app = Demo(refuses, title="")
    assert ask(app, "bad") == (422, {"error": "n_best: expected 1 to 4."})
    assert ask(app, "good", number=2)[0] == 200


def test_a_sentence_that_a_newer_one_of_its_page_overtook_is_not_translated():
    """Story: with each pause between two keys the queue grew, and the last sentence waited for all before it."""
    first_is_running, go_on, translated, statuses = threading.Event(), threading.Event(), [], {}

    def slow(text, prefix, n):
        translated.append(text)
        if text == "1":
            first_is_running.set()
            go_on.wait(10)
        return echo(text, prefix, n)

    app = Demo(slow, title="")

    def send(number: int, page: str) -> None:
        statuses[page, number] = ask(app, str(number), page=page, number=number)[0]

    threads = [threading.Thread(target=send, args=(1, "p"))]
    threads[0].start()
    assert first_is_running.wait(10)
    for number, page in ((2, "p"), (3, "p"), (4, "p"), (2, "other")):
        threads.append(threading.Thread(target=send, args=(number, page)))
        threads[-1].start()
    wait_until(lambda: len(app._newest) == 2 and app._newest["p"] == 4)
    go_on.set()
    for thread in threads:
        thread.join()
    assert statuses == {("p", 1): 200, ("p", 2): 409, ("p", 3): 409, ("p", 4): 200, ("other", 2): 200}
    assert sorted(translated) == ["1", "2", "4"]


def test_a_model_server_gives_what_the_model_gives(tmp_path):
    servable = loopback_server.Servable(stand_in.write(tmp_path))
    with loopback_server.served(servable) as addresses:
        found = [
            demo.from_server(client.connect(client.Model(addresses[scheme], "translate")))("one two", "", 2)
            for scheme in ("grpc", "http")
        ]
        answers = [[translation.as_json() for translation in translations] for translations in found]
        with pytest.raises(ValueError, match="n_best"):
            demo.from_server(client.connect(client.Model(addresses["grpc"], "translate")))("one", "", 99)
    assert answers[0] == answers[1] and len(found[0]) == 2
    for translation in found[0]:
        assert np.shape(translation.alignment) == (len(translation.pieces), len(translation.source_pieces))


def test_a_taken_port_is_an_error_that_names_it(app):
    server = demo.serve(app)
    try:
        with pytest.raises(OSError, match=f"localhost:{server.port}. Give another `port`"):
            demo.serve(app, port=server.port)
    finally:
        server.server_close()


@pytest.mark.medium
def test_the_program_serves_a_run(tmp_path):
    """`tests/data/run_1`, by `tools/demo.py`, asked over HTTP."""
    import requests

    # The beam size of the run is 2.
    command = [sys.executable, "tools/demo.py", "--model_dir=tests/data/run_1", "--port=0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with programs.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = next(line.split()[1] for line in process.stderr if line.startswith("Open "))
            assert requests.get(f"{address}settings", timeout=30).json() == {"title": "run_1", "n_best": 2}
            assert requests.get(f"{address}settings", headers={"Host": "evil.example"}, timeout=30).status_code == 403
            body = {"text": "one", "prefix": "zw", "page": "p", "number": 1}
            translations = requests.post(f"{address}translate", json=body, timeout=60).json()["translations"]
            assert len(translations) == 2 and all(each["text"].startswith("zw") for each in translations)
        finally:
            process.terminate()


def test_the_program_wants_a_run_or_a_server():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "tools/demo.py"]
    result = programs.run(
        command, modules=programs.WITHOUT_TENSORFLOW, cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert (
        result.returncode == 1
        and result.stderr == "Error: Expected exactly one of --model_dir and --server. Received: neither.\n"
    )


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver")
    if not os.path.exists("/usr/bin/chromedriver"):
        pytest.skip("chromium-driver is not installed")
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--window-size=1000,900"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser):
    """The page of a model in the browser; the sentences that it was asked for."""
    asked = []

    def translate(text, prefix, n, **phrases):
        asked.append((text, prefix, *phrases.values()))
        if text == "refuse":
            raise ValueError("This sentence is too long.")
        return [
            dataclasses.replace(each, constraints_met=text != "lacks", truncated=text == "long")
            for each in echo(text, prefix, n)
        ]

    server = demo.serve(Demo(translate, title="a <b>model</b>", n_best=3))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser.get(f"http://localhost:{server.port}/")
    yield browser, asked
    errors = [entry for entry in browser.get_log("browser") if "422" not in entry["message"]]
    server.shutdown()
    server.server_close()
    assert errors == []


def element(browser, selector: str):
    return browser.find_element("css selector", selector)


def words(browser, side: str) -> list[str]:
    return browser.execute_script(
        f"return [...document.querySelectorAll('#{side} .word')].map((word) => word.innerText)"
    )


def shades(browser, side: str) -> list[float]:
    """How strongly each word is shaded, 0 to 1."""
    script = f"return [...document.querySelectorAll('#{side} .word')].map((word) => word.style.background)"
    found = (re.search(r"([\d.]+)\)$", shade) for shade in browser.execute_script(script))
    return [float(shade[1]) if shade else 0.0 for shade in found]


def test_typing_translates_after_a_pause_and_pointing_shows_the_alignment(opened):
    from selenium.webdriver.common.action_chains import ActionChains

    browser, asked = opened
    assert element(browser, "#title").text == browser.title == "a <b>model</b>"
    element(browser, "#text").send_keys("one two three")
    wait_until(lambda: words(browser, "target") == ["eno", "owt", "eerht", "(end)"])
    assert len(asked) <= 3 and asked[-1] == ("one two three", "")  # Not for every key.
    assert words(browser, "source") == ["one", "two", "three", "(end)"]
    ActionChains(browser).move_to_element(browser.find_elements("css selector", "#target .word")[1]).perform()
    wait_until(lambda: shades(browser, "source") == [0, 1, 0, 0])
    ActionChains(browser).move_to_element(browser.find_elements("css selector", "#source .word")[2]).perform()
    wait_until(lambda: shades(browser, "target") == [0, 0, 1, 0] and shades(browser, "source") == [0, 0, 0, 0])
    buttons = browser.find_elements("css selector", "#translations button")
    assert [button.text.split("\n") for button in buttons] == [
        ["0.000", "eno owt eerht"],
        ["-1.000", "eno owt eerht!"],
        ["-2.000", "eno owt eerht!!"],
    ]
    buttons[2].click()
    pressed = [
        button.get_attribute("aria-pressed") for button in browser.find_elements("css selector", "#translations button")
    ]
    assert pressed == ["false", "false", "true"] and words(browser, "target") == ["eno", "owt", "eerht!!", "(end)"]


def test_a_translation_that_lacks_a_phrase_is_marked(opened):
    browser, _ = opened
    for text, lacks in (("lacks", True), ("fine", False)):
        element(browser, "#text").clear()
        element(browser, "#text").send_keys(text)
        wait_until(lambda text=text: words(browser, "target")[:1] == [text[::-1]])
        wait_until(lambda: " s" in element(browser, "#status").text)
        assert ("There was no room for all phrases." in element(browser, "#status").text) == lacks
        assert (element(browser, "#status").get_attribute("class") == "error") == lacks


def test_a_sentence_that_is_cut_is_reported(opened):
    browser, _ = opened
    for text in ("long", "short"):
        element(browser, "#text").clear()
        element(browser, "#text").send_keys(text)
        wait_until(lambda text=text: words(browser, "target")[:1] == [text[::-1]])
        cut = text == "long"
        wait_until(
            lambda cut=cut: element(browser, "#status").text.endswith(
                " s. Only the beginning of the sentence was translated." * cut
            )
        )
        assert (element(browser, "#status").get_attribute("class") == "error") == cut


def test_phrases_of_each_box_are_those_that_must_and_must_not_appear(opened):
    browser, asked = opened
    element(browser, "#text").send_keys("one")
    element(browser, "#constraints").send_keys("x")
    element(browser, "#avoid").send_keys("y")
    wait_until(lambda: asked[-1:] == [("one", "", ["x"], ["y"])])


def test_the_translation_can_be_made_to_begin_with_some_words(opened):
    browser, _ = opened
    element(browser, "#text").send_keys("one two")
    element(browser, "#prefix").send_keys("eins")
    wait_until(lambda: words(browser, "target") == ["eins", "owt", "(end)"])


def test_whatever_is_typed_is_shown_as_text(opened):
    browser, _ = opened
    for typed in (
        "<script>alert(1)</script> <img src=x onerror=alert(1)>",
        "مرحبا بالعالم",
        "😀 ½ straße",
        SIXTY_WORDS,
    ):
        browser.execute_script(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))",
            element(browser, "#text"),
            typed,
        )
        wait_until(lambda typed=typed: words(browser, "source") == [*typed.split(), "(end)"])
        assert len(words(browser, "target")) == len(typed.split()) + 1
        assert browser.execute_script("return document.querySelectorAll('#result script, #result img').length") == 0
        assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")


def test_an_error_is_shown_and_clearing_the_text_clears_the_page(opened):
    browser, _ = opened
    text = element(browser, "#text")
    for _ in range(2):  # The translation of another sentence is not shown beside the error.
        text.clear()
        text.send_keys("refuse")
        wait_until(lambda: element(browser, "#status").text == "This sentence is too long.")
        assert not element(browser, "#result").is_displayed()
        text.clear()
        text.send_keys("fine")
        wait_until(
            lambda: words(browser, "target") == ["enif", "(end)"] and element(browser, "#status").text.endswith(" s")
        )
    text.clear()
    browser.execute_script("arguments[0].dispatchEvent(new Event('input'))", text)
    wait_until(lambda: not element(browser, "#result").is_displayed())


def test_sub_words_and_bytes_are_joined_to_words_and_shown_alone_on_request(opened):
    browser, _ = opened
    alignment = [[0.1, 0.2, 0.3, 0.0, 0.0], [0.0, 0.2, 0.0, 0.0, 0.2], [0.0] * 5]
    translation = {
        "text": "ab 😀",
        "score": -1,
        "pieces": ["▁a", "b", "</s>"],
        "source_pieces": ["▁", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>"],
    }
    browser.execute_script("translations = [arguments[0]]; chosen = 0; show()", {**translation, "alignment": alignment})
    assert words(browser, "source") == ["😀"] and words(browser, "target") == ["ab", "(end)"]
    browser.execute_script("document.querySelector('#target .word').focus()")
    assert shades(browser, "source") == pytest.approx([0.5], abs=0.01)  # Of each sub-word: 0.6 and 0.4.
    element(browser, "#subwords").click()
    assert words(browser, "source") == ["▁", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>"] and words(browser, "target") == [
        "▁a",
        "b",
        "</s>",
    ]


def test_a_server_for_other_machines_is_reached_by_any_name():
    app = Demo(echo, title="", n_best=1, hosts=())
    assert ask(app, base_url="http://192.168.1.5:8000")[0] == 200


def test_an_unexpected_failure_of_the_model_is_answered_as_json(messages):
    def fails(text, prefix, n):
        raise KeyError("pieces")

    assert ask(Demo(fails, title=""))[0] == 500
    assert len(messages) == 1


# Whoever reaches the port.


@pytest.fixture
def served(monkeypatch):
    """A server for three connections and half a second, and a function that opens a connection to it."""
    monkeypatch.setattr(demo, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(demo, "MAX_SECONDS", 0.5)
    server = demo.serve(Demo(echo, title="", n_best=1))
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    with contextlib.ExitStack() as connections:
        yield lambda: connections.enter_context(socket.create_connection(("localhost", server.port), timeout=10))
        server.shutdown()
        server.server_close()


def answer(connection) -> bytes:
    """All that arrives until the server closes the connection."""
    with contextlib.suppress(ConnectionResetError):
        return b"".join(iter(lambda: connection.recv(4096), b""))
    return b""


REQUEST = b"GET /settings HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_requests_that_do_not_arrive_are_few_and_end_soon(served):
    """Story: 900 half-sent requests were 900 threads, for ever."""
    before = threading.active_count()
    half = [served() for _ in range(30)]
    for connection in half:
        connection.send(REQUEST[:20])
    refused = [connection for connection in half[3:] if b"503" in answer(connection)]
    assert len(refused) == 27 and threading.active_count() <= before + 3
    started = time.monotonic()
    assert [answer(connection) for connection in half[:3]] == [b""] * 3
    assert time.monotonic() - started < 5
    wait_until(lambda: threading.active_count() <= before)
    connection = served()
    connection.send(REQUEST)
    assert b'{"title": "", "n_best": 1}' in answer(connection)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n",
    ],
)
def test_a_request_that_arrives_byte_by_byte_ends_too(served, head):
    connection, started = served(), time.monotonic()
    connection.send(head)
    with contextlib.suppress(ConnectionError):
        while time.monotonic() < started + 5:
            connection.send(b" ")
            time.sleep(0.05)
    assert time.monotonic() < started + 4


def test_an_origin_that_is_no_address_is_a_wrong_request(app):
    """Story: it was a failure of the model."""
    status, found = ask(app, headers={"Origin": "http://["})
    assert status == 400 and found["error"].startswith("Expected an origin such as http://localhost:8000. Received: ")


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:8001", "null", "http://localhost"])
def test_a_page_of_another_origin_gets_no_translation(app, origin):
    status, found = ask(app, headers={"Origin": origin})
    assert (
        status == 403
        and found["error"] == f"Expected a request of the page at localhost:8000. Received one of {origin}."
    )
    assert ask(app, headers={"Origin": "http://LOCALHOST:8000"})[0] == 200
    assert (
        ask(Demo(echo, title="", hosts=()), headers={"Origin": "https://demo.example"}, base_url="http://demo.example")[
            0
        ]
        == 200
    )


def test_warming_up_translates_short_and_long_sentences():
    asked = []
    demo.warm_up(lambda *asked_for: asked.append(asked_for), 3)
    assert [(len(text.split()), prefix, n) for text, prefix, n in asked] == [
        (words, "", 3) for words in demo.WARM_UP_WORDS
    ]
    assert min(demo.WARM_UP_WORDS) == 1 and max(demo.WARM_UP_WORDS) >= 20


def test_the_parts_of_an_answer_have_as_long_as_a_whole_request(monkeypatch):
    """A request must arrive in time as a whole; what is left of the time shrinks with each part."""
    timeouts, now = [], iter([100.0, 103.0, 109.5, 120.0])
    monkeypatch.setattr(demo.time, "monotonic", lambda: next(now))
    connection = types.SimpleNamespace(settimeout=timeouts.append, recv_into=lambda buffer: 1)
    arriving = demo._UntilDeadline(connection)
    assert [arriving.readinto(bytearray(1)) for _ in range(3)] == [1, 1, 1]
    assert timeouts == [7.0, 10.0, 0.5, 10.0, 0.001, 10.0]
