"""The server: it answers the requests of the field's front ends with what the model gives, refuses others as promised,
translates requests of many people together, and its page works in a browser.
"""

import contextlib
import dataclasses
import functools
import html
import io
import itertools
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
from collections.abc import Iterator

import browsers
import loopback_server
import numpy as np
import programs
import pytest
import stand_in
from werkzeug.test import Client

import t2t_keras
from t2t_keras.serving import client, served_models, web_api, web_server
from t2t_keras.serving.batching import Batcher, BusyError
from t2t_keras.serving.markup import Document
from t2t_keras.serving.metrics import Metrics
from t2t_keras.serving.protocol import Translation
from t2t_keras.serving.served_models import ServedModel, ServedModels
from t2t_keras.serving.web_api import LOOPBACK, MAX_REQUEST, WebApi
from t2t_keras.text.request import Request
from t2t_keras.text.sentences import lines, sentences, whole
from t2t_keras.text.terminology import Terms

ROOT = pathlib.Path(__file__).parent.parent
SIXTY_WORDS = " ".join(f"word{number}" for number in range(60))
BEAMS = 3
FORM, PARTS = "application/x-www-form-urlencoded", "multipart/form-data"
PART = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\n%b\r\n--x--\r\n'


class Backwards:
    """A model that writes each word backwards, after the prefix; the last word of a worse translation ends in "!".

    Word i of a translation attends to word i of the source. Constraints are appended.

    Attributes:
        batches: the texts of each call.
    """

    def __init__(self, refuse: str = "refuse", slow: float = 0.0):
        self.batches, self.refuse, self.slow = [], refuse, slow

    def translation(self, text: str, prefix: str = "", constraints: str = "") -> str:
        forced = prefix.split()
        words = [*forced, *(word[::-1] for word in text.split(" ")[len(forced) :])]
        return " ".join([*words, *filter(None, constraints.split("\t"))])

    def __call__(self, signature: str, inputs: dict) -> dict:
        texts = inputs.get("text", inputs.get("source"))
        self.batches.append(texts)
        time.sleep(self.slow)
        if signature == "score":
            pieces = [[*(f"▁{word}" for word in each.split()), "</s>"] for each in inputs["target"]]
            return {
                "pieces": pieces, "token_log_probs": [[-0.25 * place for place in range(len(row))] for row in pieces],
                "length": list(map(len, pieces)),
            }  # fmt: skip
        outputs = {name: [] for name in ("text", "score", "pieces", "source_pieces", "alignment", "error", "truncated")}
        for text, prefix, constraints in zip(texts, inputs["prefix"], inputs["constraints"], strict=True):
            best = self.translation(text, prefix, constraints)
            outputs["text"].append([best + "!" * beam for beam in range(BEAMS)])
            outputs["score"].append([-float(beam) for beam in range(BEAMS)])
            outputs["pieces"].append(
                [[f"▁{word}" for word in each.split(" ")] + ["</s>"] for each in outputs["text"][-1]]
            )
            outputs["source_pieces"].append([f"▁{word}" for word in text.split(" ")] + ["</s>"])
            size = len(best.split(" ")) + 1, len(text.split(" ")) + 1
            outputs["alignment"].append([np.eye(*size).tolist()] * BEAMS)
            outputs["error"].append("This sentence is too long. " if text == self.refuse else "")
            outputs["truncated"].append(text == "long")
        met = [[text != "lacks", *[text not in ("lacks", "worse lack")] * (BEAMS - 1)] for text in texts]
        return outputs | {"constraints_met": met}


def served(*names: str, load=None, **options) -> ServedModels:
    """Models named by their pairs, such as en-de."""
    loads = load or (lambda name: Backwards())
    return ServedModels(
        [ServedModel(name, {tuple(name.split("-")): ("", "")}, lambda name=name: loads(name)) for name in names],
        **options,
    )


def application(model=None, **options) -> WebApi:
    return WebApi(served("en-de", load=lambda name: model or Backwards()), **options)


def identify(text: str, among) -> tuple[str, float]:
    """French has an é."""
    return ("fr" if "é" in text else "en"), 0.75


@pytest.fixture
def app():
    return application()


def ask(app, path="/translate", **request) -> tuple[int, dict]:
    if "method" not in request and not {"json", "data", "input_stream"} & request.keys():
        request["json"] = {"q": "one two", "source": "en", "target": "de"}
    response = Client(app).open(path, **{"method": "POST", "base_url": "http://localhost:8000", **request})
    return response.status_code, json.loads(response.text)


def test_what_a_model_copies_has_no_terms_of_the_glossary():
    """Story: "{name}" had to have the translation of "name"."""
    export = served_models.SavedExport(pathlib.Path("none"))
    vars(export)["description"] = {"pattern": r"\{\w+\}", "pair": ["en", "de"]}
    model = served_models.local("x", export)
    models = ServedModels([dataclasses.replace(model, load=Backwards)])
    [[found]] = models.translate(
        ("en", "de"), [Request("a {name} name")], 1, time.monotonic() + 20, glossary=Terms({"name": "nom"})
    )
    assert found.text == "a }eman{ eman nom"


def wait_until(condition) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextlib.contextmanager
def in_threads(function, arguments, started=lambda number: None) -> Iterator[None]:
    """Calls a function with each argument, in a thread of its own. The next one begins when `started` returns, which
    gets the number of the last one; at the end, all are waited for.
    """
    threads = [threading.Thread(target=function, args=[each]) for each in arguments]
    for number, thread in enumerate(threads):
        thread.start()
        started(number)
    yield
    for thread in threads:
        thread.join()


def body(q="one two", **fields) -> dict:
    return {"q": q, "source": "en", "target": "de", **fields}


# The requests of front ends, as their documentation and their users show them.


@pytest.mark.parametrize(("request_", "expected"), [
    # Weblate, Tolgee, Open WebUI: JSON.
    ({"json": body("Hello world", api_key="")}, {"translatedText": "olleH dlrow"}),
    # Subtitle Edit: JSON, with lines.
    ({"json": body("- Hi.\n- Go now!", format="text")}, {"translatedText": "- .iH\n- oG !won"}),
    # Mastodon: a list, HTML.
    ({"json": body(["<p>Hello <b>big</b> world</p>", "a &lt; b"], format="html")},
     {"translatedText": ["<p>olleH <b>gib</b> dlrow</p>", "a &lt; b"]}),
    # A form, by curl and scripts.
    ({"data": body("one two", format="text")}, {"translatedText": "eno owt"}),
    ({"data": b"q=caf%C3%A9+100%+%25E9&source=en&target=de", "content_type": FORM},
     {"translatedText": "éfac %001 9E%"}),
    ({"data": body("100%E9 é"), "content_type": PARTS}, {"translatedText": "9E%001 é"}),
    ({"data": body("one", alternatives="2")}, {"translatedText": "eno", "alternatives": ["eno!", "eno!!"]}),
    ({"json": body(["a", "bc"], alternatives=1)}, {"translatedText": ["a", "cb"], "alternatives": [["a!"], ["cb!"]]}),
    # Regions and case of a platform's codes.
    ({"json": body("one", source="en_US", target="DE")}, {"translatedText": "eno"}),
    ({"json": body("")}, {"translatedText": ""}),
    ({"json": body([])}, {"translatedText": []}),
    ({"json": body(["", "\u200b \n", "x"])}, {"translatedText": ["", "\u200b \n", "x"]}),
    ({"json": body(" Oh no.  Cd.\r\n\r\n e ")}, {"translatedText": " hO .on  .dC\r\n\r\n e "}),
    ({"json": body("one", source="auto")},
     {"translatedText": "eno", "detectedLanguage": {"language": "en", "confidence": 0.0}}),
    ({"json": body("5\xa0km  a")}, {"translatedText": "mk\xa05 a"}),
    ({"json": body("one. Two", constraints=["x y"])}, {"translatedText": ".eno owT x y"}),
    ({"json": body(["one", "two"], constraints=[["x"], []])}, {"translatedText": ["eno x", "owt"]}),
    ({"data": body("one", constraints='["x"]')}, {"translatedText": "eno x"}),
    ({"json": body("a dog", glossary=[["dog", "Hund"]])}, {"translatedText": "a god Hund"}),
    ({"json": body("a dog", prefix="ein")}, {"translatedText": "ein god"}),
    # OmegaT and Okapi: Apertium's API.
    ({"method": "GET", "query_string": {"langpair": "en|de", "q": "one two", "markUnknown": "no"}},
     {"responseData": {"translatedText": "eno owt"}, "responseDetails": None, "responseStatus": 200}),
    # Some clients say of every request that it is JSON.
    ({"method": "GET", "query_string": "langpair=en|de&q=one", "content_type": "application/json"},
     {"responseData": {"translatedText": "eno"}, "responseDetails": None, "responseStatus": 200}),
    ({"method": "GET", "query_string": "langpair=en|de&q=one&q=two"},
     {"responseData": {"translatedText": ["eno", "owt"]}, "responseDetails": None, "responseStatus": 200}),
    ({"json": body("one", langpair=None, api_key=None)}, {"translatedText": "eno"}),
    ({"data": {"langpair": "en|de", "q": "<i>one</i>", "format": "html"}},
     {"responseData": {"translatedText": "<i>eno</i>"}, "responseDetails": None, "responseStatus": 200}),
])  # fmt: skip
def test_requests_of_front_ends_are_answered_with_what_the_model_gives(app, request_, expected):
    assert ask(app, **request_) == (200, expected)


def test_what_a_server_has_is_listed(app):
    models = served("en-de", "de-fr", "en-fr")
    languages = ask(WebApi(models), "/languages", method="GET")[1]
    assert languages == [
        {"code": "en", "name": "en", "targets": ["de", "fr"]},
        {"code": "de", "name": "de", "targets": ["fr"]},
        {"code": "fr", "name": "fr", "targets": []},
    ]
    pairs = [{"sourceLanguage": "en", "targetLanguage": "de"}]
    expected = {"responseData": pairs, "responseDetails": None, "responseStatus": 200}
    assert ask(app, "/listPairs", method="GET")[1] == expected
    assert ask(app, "/health", method="GET") == (200, {"status": "ok"})
    settings = ask(application(api_key="k", title="a title", n_best=2), "/frontend/settings", method="GET")[1]
    assert settings.items() >= {"title": "a title", "n_best": 2, "keyRequired": True, "filesTranslation": False}.items()
    assert settings["language"]["source"] == {"code": "en", "name": "en"}


@pytest.mark.parametrize(("asked", "known", "found"), [
    ("zh-TW", ["zh-CN"], ""), ("zh_Hans", ["zh-hant"], ""), ("zho_Hant", ["zho_Hans"], ""), ("zh-HK", ["zh-Hans"], ""),
    ("zh-TW", ["zh-CN", "zh", "zh-Hant"], "zh-Hant"), ("zh-SG", ["zh-TW", "zh-CN"], "zh-CN"),
    ("sr-Latn", ["sr-Cyrl"], ""), ("cmn-TW", ["cmn-CN"], ""), ("de-tech", ["de-news"], "de-news"),
    ("zh-Hant-HK", ["zh-TW", "zh-HK"], "zh-HK"), ("zh-TW", ["zh-Hant-HK", "zh-Hant"], "zh-Hant"),
    ("en-GB-oed", ["en-US", "en-GB"], "en-GB"),
    ("zh", ["zh-CN", "zh-TW"], "zh-CN"), ("zh-TW", ["zh"], "zh"), ("ZH_tw", ["zh-CN", "zh-TW"], "zh-TW"),
    ("de-AT", ["de"], "de"), ("de-AT", ["de-CH", "de"], "de"), ("de", ["de-news", "de-law"], "de-news"),
    ("de-1901", ["de-1996"], "de-1996"), ("pt-BR", ["pt-PT"], "pt-PT"), ("deu_Latn", ["deu"], "deu"),
    ("en-us", ["en-US", "en-us"], "en-us"), ("EN", ["de-EN"], ""), ("-", ["de"], ""),
])  # fmt: skip
def test_another_region_of_a_language_is_taken_but_not_another_script(asked, known, found):
    """Story: a request for Traditional Chinese was answered in Simplified Chinese."""
    if found:
        assert web_api._code(asked, known, "target") == found
    else:
        with pytest.raises(web_api.BadRequest, match="Expected `target` to be one of"):
            web_api._code(asked, known, "target")


def test_languages_are_identified():
    models = served("en-de", "fr-de")
    app = WebApi(models, identify=identify)
    assert ask(app, "/detect", data={"q": "été"}) == (200, [{"language": "fr", "confidence": 75.0}])
    assert ask(app, "/detect", data={"q": "\u200b "})[1][0]["confidence"] == 0.0
    status, answer = ask(app, json=body(["one", "été"], source="auto"))
    assert status == 200 and answer["translatedText"] == ["eno", "été"]
    wanted = [{"language": "en", "confidence": 75.0}, {"language": "fr", "confidence": 75.0}]
    assert answer["detectedLanguage"] == wanted
    # Story: the markup was identified in place of the text, and a model read what was in the target language already.
    status, answer = ask(app, json=body('<a title="été">one</a>', source="auto", format="html"))
    assert answer["detectedLanguage"]["language"] == "en" and status == 200
    text = "<p>oui &amp; si</p>"
    for confidence, language, expected in ((0.9, "fr", text), (0.89, "de", "<p>iuo &amp; is</p>")):

        def in_target(text: str, among, confidence=confidence) -> tuple[str, float]:
            return "fr" if "fr" in among else "de", confidence

        app = WebApi(served("en-fr", "de-fr"), identify=in_target)
        status, answer = ask(app, json=body(text, source="auto", target="fr", format="html"))
        assert (status, answer["translatedText"], answer["detectedLanguage"]["language"]) == (200, expected, language)
    # Two codes may be of one language, of which the first is found; and a language may be unknown.
    app = WebApi(served("pt_BR-pt_PT"), identify=lambda text, among: (among[0], 0.95))
    answer = ask(app, json=body("ok", source="auto", target="pt_PT"))[1]
    assert (answer["translatedText"], answer["detectedLanguage"]["language"]) == ("ko", "pt_BR")

    def alone(text: str, among) -> tuple[str, float]:
        if len(among) > 1:
            raise ValueError("unknown")
        return among[0], 0.0

    app = WebApi(served("src-tgt"), identify=alone)
    assert ask(app, json=body("ok", source="auto", target="tgt"))[1]["translatedText"] == "ko"
    for path in ("/detect", "/translate"):
        status, answer = ask(WebApi(models), path, json=body(source="auto"))
        assert status == 400 and "pip install 't2t_keras[filter]'" in answer["error"]


@pytest.mark.parametrize(("path", "request_", "status", "expected"), [
    ("/translate", {"json": {"q": "a", "target": "de"}}, 400, "`source`"),
    ("/translate", {"json": {"q": "a", "source": "en"}}, 400, "`target`"),
    ("/translate", {"json": {"source": "en", "target": "de"}}, 400, "`q`"),
    ("/translate", {"json": body(3)}, 400, "`q`"),
    ("/translate", {"json": body(["a", None])}, 400, "`q`"),
    ("/translate", {"json": body(source="xx")}, 400, "one of en. Received: 'xx'"),
    ("/translate", {"json": body(target="auto")}, 400, "one of de"),
    ("/translate", {"json": body(format="rtf")}, 400, "text or html"),
    ("/translate", {"json": body(alternatives=-1)}, 400, "`alternatives`"),
    ("/translate", {"json": body(alternatives=True)}, 400, "`alternatives`"),
    ("/translate", {"json": body(constraints="x")}, 400, "`constraints`"),
    ("/translate", {"json": body(["a"], constraints=["x"])}, 400, "list of phrases"),
    ("/translate", {"json": body(["a"], avoid=[["x"], ["y"]])}, 400, "each of 1 texts"),
    ("/translate", {"json": body(constraints=["a\tb"])}, 400, "without tabs"),
    ("/translate", {"json": body(constraints=["x"] * 33)}, 400, "at most 32 phrases"),
    ("/translate", {"json": body(glossary=[["x"]])}, 400, "`glossary`"),
    ("/translate", {"json": body(glossary=[["x", ""]])}, 400, "text as term and translation"),
    ("/translate", {"json": body("w " * 40, glossary=[["w", "v " * 40]])}, 400, "at most 32"),
    ("/translate", {"json": body("a \ud800")}, 400, "surrogate"),
    ("/detect", {"json": {"q": ["a", "\ud800"]}}, 400, "surrogate"),
    ("/translate", {"json": body("refuse")}, 400, "This sentence is too long."),
    ("/translate", {"json": body("<p>a</p><p>b</p>", format="html", constraints=["x"])}, 400, "one paragraph"),
    ("/translate", {"json": []}, 400, "JSON object"),
    ("/translate", {"data": "{'q'}", "content_type": "application/json"}, 400, "Received: b\"{'q'}\"."),
    ("/translate", {"data": "[" * 100_000, "content_type": "application/json"}, 400, "JSON object"),
    ("/translate", {"data": '{"q": "a"}', "content_type": "text/plain"}, 415, "form. Received: text/plain."),
    ("/translate", {"json": body("a" * 2_000_000)}, 413, "at most 256 KiB"),
    ("/translate", {"json": body([""] * 1025)}, 413, "at most 1,024 texts in a request. Received: 1,025."),
    ("/translate", {"data": body("a" * 2_000_000)}, 413, "at most 256 KiB"),
    ("/detect", {"data": body("a" * MAX_REQUEST)}, 413, "at most 256 KiB"),
    ("/translate", {"json": body(details="yes")}, 400, "`details`"),
    ("/translate", {"json": body(prefix="\ud800")}, 400, "surrogate"),
    ("/translate", {"json": body(glossary=[["a", "\udc00"]])}, 400, "surrogate"),
    ("/translate", {"data": b'{"q": "\xe9"}', "content_type": "application/json"}, 400, "in UTF-8"),
    # Story: "caf%E9", and "caf\ufffd" of a form in parts, were translated.
    ("/translate", {"data": b"q=caf%E9&source=en&target=de", "content_type": FORM}, 400, r"UTF-8. Received: b'\xe9&"),
    ("/translate", {"data": b"q=caf\xe9&source=en&target=de", "content_type": FORM}, 400, r"UTF-8. Received: b'\xe9&"),
    ("/translate", {"data": PART % b"caf\xe9", "content_type": f"{PARTS}; boundary=x"}, 400, "form in UTF-8"),
    ("/translate", {"method": "GET", "query_string": "q=caf%E9&langpair=en|de"}, 400, "address or a form in UTF-8"),
    ("/translate", {"json": body("<p>a</p><p>b</p>", format="html", details=True)}, 400, "`details`. Received"),
    ("/translate", {"json": body("a\n" * 1100)}, 413, "1,024 sentences in a request. Received: 1,100."),
    ("/translate", {"method": "GET", "query_string": {"q": "a"}}, 400, "`langpair`"),
    ("/translate", {"method": "GET", "query_string": {"q": "a", "langpair": "en"}}, 400, "en|de. Received: 'en'."),
    ("/translate", {"method": "GET", "query_string": {"q": "a", "langpair": "en|xx"}}, 400, "Received: 'xx'"),
    ("/nothing", {}, 404, "There is no POST /nothing."),
    ("/languages", {}, 405, "Expected one of GET, HEAD, OPTIONS for /languages. Received: POST."),
    ("/translate", {"method": "PUT", "query_string": "langpair=en|de"}, 405, "of GET, POST, HEAD, OPTIONS"),
])  # fmt: skip
def test_requests_that_cannot_be_answered_say_why(app, path, request_, status, expected):
    received, answer = ask(app, path, **request_)
    assert received == status and expected in answer["error"]


@pytest.mark.parametrize(("path", "method", "status", "allowed"), [
    ("/detect", "GET", 405, "POST, OPTIONS"), ("/detect", "HEAD", 405, "POST, OPTIONS"),
    ("/health", "DELETE", 405, "GET, HEAD, OPTIONS"), ("/health", "HEAD", 200, None),
    ("/translate", "OPTIONS", 204, "GET, POST, HEAD, OPTIONS"), ("/nothing", "OPTIONS", 404, None),
])  # fmt: skip
def test_a_method_that_a_path_does_not_have_is_refused_with_those_it_has(app, path, method, status, allowed):
    """Story: the path was said not to exist. RFC 9110, sections 9.3.7 and 15.5.6."""
    answer = Client(app).open(path, method=method, base_url="http://localhost:8000")
    assert (answer.status_code, answer.headers.get("Allow")) == (status, allowed)


def test_a_refusal_of_apertium_s_api_has_its_shape(app):
    _, answer = ask(app, method="GET", query_string={"q": "a", "langpair": "en|xx"})
    assert answer["status"] == "error" and answer["code"] == 400 and answer["explanation"]
    for key, code in (("k", 400), ("no", 403)):
        _, answer = ask(application(api_key="k"), data={"q": "a", "langpair": "en|xx", "key": key})
        assert answer["status"] == "error" and answer["code"] == code and answer["explanation"]


def test_a_key_is_asked_for():
    app = application(api_key="secrét")
    for key, expected in (("secrét", 200), ("secret", 403), (3, 403), (None, 403), ("\ud800", 403)):
        assert ask(app, json=body(api_key=key))[0] == expected
    assert ask(app, data=body(api_key="secrét"))[0] == 200
    assert ask(app, json=body())[0] == 403 and ask(app, "/detect", data={"q": "a"})[0] == 403
    for key, expected in (("secrét", 200), ("", 403)):
        address = {"langpair": "en|de", "q": "a", "key": key}
        assert ask(app, method="GET", query_string=address, content_type="text/plain")[0] == expected
    assert ask(app, "/languages", method="GET")[0] == 200


def test_there_are_no_more_alternatives_than_beams(app, monkeypatch):
    """Story: a request for a hundred wrote the same HTML a hundred times, which took seconds."""
    written, translated = [], Document.translated
    monkeypatch.setattr(Document, "translated", lambda *given: written.append(given) or translated(*given))
    assert ask(app, json=body("a", alternatives=100))[1]["alternatives"] == ["a!", "a!!"]
    assert len(written) == BEAMS
    assert ask(app, json=body("", alternatives=100))[1] == {"translatedText": "", "alternatives": []}


def test_details_are_those_of_each_translation_as_one_sentence(app):
    status, answer = ask(app, json=body("One. Two", details=True, alternatives=1))
    first, second = answer["translations"]
    assert status == 200 and answer["translatedText"] == first["text"] == ".enO owT"
    assert second["text"] == ".enO owT!" and (first["score"], second["score"]) == (0, -1)
    assert first["pieces"] == ["▁.enO", "▁owT", "</s>"] and first["source_pieces"] == ["▁One.", "▁Two", "</s>"]
    assert first["alignment"] == np.eye(3).tolist()
    assert (first["words"], first["word_scores"]) == ([".enO", "owT"], [0, -0.25])
    assert first["piece_scores"] == [0, -0.25, -0.5]


def test_a_form_asks_for_details_too_and_fields_without_a_value_are_as_not_given(app):
    for value, expected in (("true", True), ("1", True), ("false", False), ("0", False), ("", False)):
        assert ("translations" in ask(app, data=body("One.", details=value))[1]) == expected
    nothing = dict.fromkeys(("format", "alternatives", "prefix", "details", "glossary", "constraints"))
    assert ask(app, json=body("one", **nothing)) == (200, {"translatedText": "eno"})


def test_a_text_that_was_cut_says_so(app):
    assert ask(app, json=body("one\nlong")) == (200, {"translatedText": "eno\ngnol", "truncated": True})


def test_a_translation_that_lacks_a_phrase_says_so(app):
    """Story: only `details` did."""
    for text, fields, expected in (
        ("lacks", {"constraints": ["x"]}, False), (["one", "lacks"], {"glossary": [["lacks", "hat"]]}, False),
        ("one\nlacks", {"glossary": [["lacks", "hat"]]}, False),
        ("one", {"constraints": ["x"]}, True), ("worse lack", {"constraints": ["x"], "alternatives": 2}, True),
    ):  # fmt: skip
        status, answer = ask(app, json=body(text, **fields))
        assert status == 200 and answer.get("constraints_met", True) == expected, answer


def test_text_that_is_not_translated_lacks_a_phrase_too(app):
    """Story: with constraints, blank text was answered as if its translation had them."""
    for text, constraints, expected in (("", ["x"], False), (" ", [], True), (["one", "\n"], [["x"], ["x"]], False)):
        status, answer = ask(app, json=body(text, constraints=constraints))
        assert status == 200 and answer.get("constraints_met", True) == expected, answer
    of_target = WebApi(served("en-fr", "de-fr"), identify=lambda text, among: ("fr", 0.95))
    for phrases, expected in ((["oui"], True), (["ou"], False), (["oui", "ou"], False), (["oui", "le"], True)):
        status, answer = ask(of_target, json=body("le oui", source="auto", target="fr", constraints=phrases))
        assert (status, answer["translatedText"], answer.get("constraints_met", True)) == (200, "le oui", expected)


def test_a_body_without_a_length_is_refused_and_not_cut(app):
    """Story: of a form that was sent in chunks, the beginning was translated."""
    text = b"source=en&target=de&q=" + b"ab+" * 100_000
    for content, status in ((text[:3000], 200), (text, 413)):
        environ = {"wsgi.input_terminated": True, "CONTENT_LENGTH": ""}
        request = {"input_stream": io.BytesIO(content), "content_type": FORM}
        assert ask(app, **request, environ_overrides=environ)[0] == status


def test_hosts_are_those_of_this_machine_unless_it_serves_others():
    for host, expected in (("localhost", LOOPBACK), ("127.0.0.2", (*LOOPBACK, "127.0.0.2")), ("0.0.0.0", ())):
        assert web_api.hosts(host) == expected


def test_paths_are_for_the_page_s_host_and_origin_alone(app):
    """A server for this machine; and one for others, which any name reaches."""
    for path in ("/", "/languages", "/health", "/metrics", "/frontend/settings", "/listPairs"):
        for host, expected in (
            ("localhost:1", 200), ("127.0.0.1:1", 200), ("[::1]:1", 200), ("localhost.evil.example", 403),
        ):  # fmt: skip
            assert Client(app).get(path, base_url=f"http://{host}").status_code == expected
    for origin in ("http://evil.example", "http://localhost:8001", "null", "http://localhost"):
        status, answer = ask(app, headers={"Origin": origin})
        expected = f"Expected a request from the page at localhost:8000. Received: one from {origin}. "
        assert status == 403 and answer["error"].startswith(expected)
        assert answer["error"].endswith(f"start the server with --origins={origin}.")
    assert ask(app, headers={"Origin": "http://["})[0] == 400
    assert ask(app, headers={"Origin": "http://LOCALHOST:8000"})[0] == 200
    assert ask(app, "/health", method="GET", headers={"Sec-Fetch-Site": "cross-site"})[0] == 403
    found = Client(app).get("/", base_url="http://localhost", headers={"Sec-Fetch-Site": "cross-site"}).status_code
    assert found == 200
    public = application(hosts=())
    assert ask(public, base_url="http://192.168.1.5:8000")[0] == 200
    assert ask(public, headers={"Origin": "https://demo.example"}, base_url="http://demo.example")[0] == 200
    assert ask(public, headers={"Origin": "https://other.example"}, base_url="http://demo.example")[0] == 403


def test_other_origins_may_be_allowed():
    """Such as a browser extension, which asks before it sends JSON."""
    for origins, origin, allowed in (
        (["moz-extension://a1"], "moz-extension://a1", True), (["moz-extension://a1"], "moz-extension://b2", False),
        (["*"], "http://any.example", True), (["file://"], "file://", True),  # The last is that of Android's web views.
    ):  # fmt: skip
        app = application(origins=origins)
        asked = Client(app).options("/translate", base_url="http://localhost", headers={"Origin": origin})
        response = Client(app).post("/translate", json=body(), base_url="http://localhost", headers={"Origin": origin})
        assert (asked.status_code, response.status_code) == ((204, 200) if allowed else (403, 403))
        assert response.headers.get("Access-Control-Allow-Origin") == (origin if allowed else None)


@pytest.mark.parametrize("origin", ["https://example.org/", "example.org", "https://example.org/page", "", "https://"])
def test_an_origin_that_no_browser_sends_is_refused(origin):
    """Story: the server started, and refused the requests of the page."""
    with pytest.raises(
        ValueError, match=re.escape(f"such as https://example.org, without a path. Received: {origin}.")
    ):
        application(origins=["null", origin])


def test_a_proxy_may_pass_on_the_name_of_its_page():
    """Story: a server behind the proxy that its documentation advises refused every request."""
    at_proxy = {"base_url": "http://demo.example:8443"}
    status, answer = ask(application(), **at_proxy)
    assert status == 403 and "start the server with --origins=https://demo.example:8443." in answer["error"]
    app = application(origins=["https://demo.example:8443"])
    assert ask(app, **at_proxy)[0] == ask(app)[0] == 200
    assert ask(app, **at_proxy, headers={"Origin": "https://demo.example:8443"})[0] == 200
    assert ask(app, base_url="http://evil.example")[0] == 403


def test_details_are_of_a_limited_size(app, monkeypatch):
    """Story: 64 texts of emoji, in 16 KB, were answered with 436 MB."""
    monkeypatch.setattr(web_api, "MAX_WEIGHTS", 12)
    assert ask(app, json=body("one two", details=True))[0] == 200
    status, answer = ask(app, json=body(["one two"] * 2, details=True))
    assert status == 413 and "`details`" in answer["error"]


def test_the_page_may_load_nothing_from_elsewhere(app):
    response = Client(app).get("/", base_url="http://localhost:1")
    assert response.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "http" not in response.text.replace("http-equiv", "")  # No address of another host.


def test_an_unexpected_failure_of_the_model_is_answered_as_json(messages):
    class Broken(Backwards):
        def __call__(self, signature, inputs):
            if "break" in inputs["text"]:
                raise KeyError("pieces")
            return super().__call__(signature, inputs)

    app = application(Broken())
    assert ask(app, json=body("break"))[0] == 500 and len(messages) == 1
    assert ask(app, json=body("one"))[0] == 200


# Sentences and HTML.


@pytest.mark.parametrize(("text", "expected"), [
    ("Hello there. How are you? Fine!", ["Hello there.", "How are you?", "Fine!"]),
    ("Mr. Smith met the U.S. Army. It was 5 p.m. in 2010. Then",
     ["Mr. Smith met the U.S. Army.", "It was 5 p.m. in 2010.", "Then"]),
    ("a\n\n b. \r\nC", ["a", "b.", "C"]),
    ("你好。再见！", ["你好。", "再见！"]),
    ("Version 1.2 is out. see x.", ["Version 1.2 is out. see x."]),
    ("Wait... “Now!” Go.", ["Wait...", "“Now!”", "Go."]),
    ("मैं घर जाता हूँ। वह स्कूल जाती है।", ["मैं घर जाता हूँ।", "वह स्कूल जाती है।"]),
    ("श्लोक॥ अगला श्लोक॥", ["श्लोक॥", "अगला श्लोक॥"]),
    ("كيف حالك؟ أنا بخير.", ["كيف حالك؟", "أنا بخير."]),
    ("یہ ایک گھر ہے۔ وہ اسکول جاتی ہے۔", ["یہ ایک گھر ہے۔", "وہ اسکول جاتی ہے۔"]),
    ("እኔ ቤት ነኝ። እሱ ይሄዳል።", ["እኔ ቤት ነኝ።", "እሱ ይሄዳል።"]),
    ("Բարեւ։ Ես տանն եմ։", ["Բարեւ։", "Ես տանն եմ։"]),
    ("ကျောင်း။ အိမ်။", ["ကျောင်း။", "အိမ်။"]),
    # Story: a sentence that begins or ends with quotation marks of these languages was not divided from others.
    ("Er ging. „Ja“, sagte sie. ‚Schön.‘ Sie rief: „Komm bald.“ Er kam.",
     ["Er ging.", "„Ja“, sagte sie.", "‚Schön.‘", "Sie rief: „Komm bald.“", "Er kam."]),
    ("Es war spät. »Komm!« Er kam.", ["Es war spät.", "»Komm!«", "Er kam."]),
    ("Han gick. ”Ja”, sa hon.", ["Han gick.", "”Ja”, sa hon."]),
    ("Il partit. «\xa0Oui\xa0», dit-elle. « Viens\xa0! » Puis rien.",
     ["Il partit.", "«\xa0Oui\xa0», dit-elle.", "« Viens\xa0! » Puis rien."]),
    # Story: in scripts without capital letters, a short last word was taken for an abbreviation.
    ("집에 갔다. 밥을 먹었다.", ["집에 갔다.", "밥을 먹었다."]),
    ("هو في بيت. ثم ذهب.", ["هو في بيت.", "ثم ذهب."]),
    ("何です. 次は何.", ["何です.", "次は何."]),
    ("वह है. वह गया.", ["वह है.", "वह गया."]),
    ("ดร. สมชาย มาแล้ว", ["ดร. สมชาย มาแล้ว"]),
    ("Am 19. Mai kam Dr. Ober. Ja.", ["Am 19. Mai kam Dr. Ober.", "Ja."]),
    # Letters with accents of their own are read as one.
    ("C'est E\u0301. Zola. Oui.", ["C'est E\u0301. Zola.", "Oui."]),
    # Marks of the direction of text.
    ("שלום!\u200f מה שלומך?\u200f \u200fטוב.", ["שלום!\u200f", "מה שלומך?\u200f", "\u200fטוב."]),
    ("｢ｺﾝﾆﾁﾊ｡｣ｹﾞﾝｷ｡", ["｢ｺﾝﾆﾁﾊ｡｣", "ｹﾞﾝｷ｡"]),
    (" \n ", []),
])  # fmt: skip
def test_text_is_divided_into_sentences(text, expected):
    assert [part for part, is_sentence in sentences(text) if is_sentence] == expected
    assert "".join(part for part, _ in sentences(text)) == text
    wanted = [part.strip() for part in re.split("[\r\n]+", text) if part.strip()]
    assert [part for part, is_sentence in lines(text) if is_sentence] == wanted
    assert [part for part, is_sentence in whole(text) if is_sentence] == [text.strip()] * bool(text.strip())


def test_a_space_stands_between_sentences_of_a_script_with_spaces():
    """Story: sentences of Chinese follow one another without, and so did their translations."""
    document = Document("今天很冷。我们回家吧。 好", True)
    three = Document("甲在家。乙在家。丙在家。")
    texts = ["A is home.", "", "C is home."]
    assert three.translated([Translation(text, 0.0) for text in texts]) == "A is home. C is home."
    english, chinese = (["It is cold.", "Let us go home.", "Good"], ["今日は寒い。", "帰ろう。", "はい"])
    for texts, expected in ((english, "It is cold. Let us go home. Good"), (chinese, "今日は寒い。帰ろう。 はい")):
        assert document.translated([Translation(text, 0.0) for text in texts]) == expected
    tagged = Document("今天很<b>冷</b>。我们回家吧。", True)
    found = tagged.translated([Translation(text, 0.0) for text in english[:2]]).replace("<b>", "").replace("</b>", "")
    assert found == "It is cold. Let us go home."


def reversed_translation(text: str, aligned: bool = True, piece: str = "▁{}") -> Translation:
    """The words in the opposite order."""
    words = text.split(" ")
    pieces = [(*map(piece.format, order), "</s>") for order in (words, words[::-1])]
    alignment = np.zeros([len(words) + 1] * 2, np.float32)
    alignment[np.arange(len(words)), np.arange(len(words))[::-1]] = alignment[-1, -1] = 1
    return Translation(" ".join(words[::-1]), 0.0, pieces[1], pieces[0], alignment if aligned else None)


@pytest.mark.parametrize(("text", "expected"), [
    ('<p class="green">Hello!</p>', '<p class="green">Hello!</p>'),
    ("a <b>bc</b> de &amp; f", "f &amp; de <b>bc</b> a"),
    ("<p>a <i>b <b>c</b> d</i> e</p><p>f</p>", "<p>e <i>d <b>c</b> b</i> a</p><p>f</p>"),
    ("a <b>b <i>c</b> d</i> e f", "a <b>b <i>c</b> d</i> f e"),  # Not nested: they divide the text.
    ("x y<br>z <img src=a> u", "y x<br><img src=a> u z"),
    ("<!-- c <b> --> hi <script>if (a<b) x</script> there", "<!-- c <b> --> hi <script>if (a<b) x</script> there"),
    ("&lt;script&gt; x", "x &lt;script&gt;"),
    ("1 < 2 > 0", "0 &gt; 2 &lt; 1"),
    ("<p title='a > b'>q</p>", "<p title='a > b'>q</p>"),
    ('c <a href="x" title="a < b">d e</a>', '<a href="x" title="a < b">e d</a> c'),
    ("c <a href=http://x/>d</a> e", "e <a href=http://x/>d</a> c"),
    ("c <a href= x/ >d</a> e", "e <a href= x/ >d</a> c"),
    ("c <i/> d", "<i/> d c"),
    ("c <i class='x'/> d", "<i class='x'/> d c"),
    ("c <i hidden/> d", "<i hidden/> d c"),
    ("<p>\n  one\n  two</p>", "<p> two one</p>"),
    ("<b><i>a</i></b> c", "c <b><i>a</i></b>"),
    ("<pre>aa        bb <b>cc</b> dd  ee</pre>", "<pre>ee dd <b>cc</b> bb aa</pre>"),
    # Text that is not to be translated is placed as an image is.
    ("a <code>f( x )</code> c", "<code>f( x )</code> c a"),
    ("a <b translate='no'>x <b>y</b> z</b> c", "<b translate='no'>x <b>y</b> z</b> c a"),
    ('a <i class="x notranslate">x</i> c', '<i class="x notranslate">x</i> c a'),
    ("a <i class='x-notranslate' translate=nope>x</i> c", "c <i class='x-notranslate' translate=nope>x</i> a"),
    ("<p translate=no>a b</p><p>c d</p>", "<p translate=no>a b</p><p>d c</p>"),
    ("<code>a b", "<code>b a"),
    ("<a href='?translate=no'>a b</a>", "<a href='?translate=no'>b a</a>"),
    ('<p data-translate="no" alt="translate=no">a b</p>', '<p data-translate="no" alt="translate=no">b a</p>'),
    ("<div translate=NO>a <!-- </div> --> b</div>c d", "<div translate=NO>a <!-- </div> --> b</div>d c"),
    ("<div Class='x\nnotranslate'><script>'<div>'</script>a b</div>c d",
     "<div Class='x\nnotranslate'><script>'<div>'</script>a b</div>d c"),
    ("<pre><code>a  b</code></pre>", "<pre><code>a  b</code></pre>"),
    # Story: text after such an element was divided at its line ends.
    ("<pre translate=no>x</pre>a\n b", "<pre translate=no>x</pre>b a"),
    # Story: links lost their images, and SVG its shapes.
    ("<a href=x><img src=y></a> c d", "<a href=x><img src=y></a> d c"),
    ("c <svg><path/><g><path/></g></svg> d", "<svg><path/><g><path/></g></svg> d c"),
    ("<p>\n<a>\n<img>\n</a> c d</p>", "<p> <a>\n<img>\n</a> d c</p>"),
    ("<pre>a<i>\n</i>b<u>  <img> </u></pre>", "<pre>a\n<i></i>b   <u><img></u></pre>"),
    ("<b>c <a><code>x y</code></a></b> d", "d <b>c<a><code>x y</code></a></b>"),
    ("c <a href=x><img> d</a> e", "e <a href=x><img> d</a> c"),
    ("<u>c <b>d</b> <img> e</u> f", "f <u><img> e <b>d</b> c</u>"),
    ("", ""),
])  # fmt: skip
def test_tags_go_with_the_words_that_they_enclose(text, expected):
    """Also with sub-words that do not say where words begin, as those of tensor2tensor and of vocabularies of words."""
    document = Document(text, is_html=True)
    for piece in ("▁{}", "{}▁", "{}"):
        assert document.translated([reversed_translation(each, True, piece) for each in document.sentences]) == expected


@pytest.mark.parametrize(("reference", "expected"), [
    (f"&#{'9' * 5000};", "\ufffd"),
    (f"&#{'0' * 5000}65;", "A"),
    (f"&#{'0' * 5000};", "\ufffd"),
    (f"&#x{'9' * 5000};", "\ufffd"),
    (f"&#x{'0' * 5000}41;", "A"),
    ("&#00000065-", "A-"),
    ("&#0128512;", "😀"),
])  # fmt: skip
def test_references_to_characters_may_have_any_number_of_digits(reference, expected):
    """Story: the answer to more than 4,300 was an error of Python. A browser shows the same."""
    document = Document(f"<p>a {reference} b</p>", is_html=True)
    assert document.sentences == [f"a {expected} b"]
    assert document.translated([Translation(document.sentences[0], 0.0)]) == f"<p>a {expected} b</p>"


@pytest.mark.parametrize("text", [
    "<p><input type=checkbox> Accept</p>", "<pre><input> A</pre>", "<p><img src=x> Dog. <img src=y> Cat.</p>",
    "<img alt='x>y'> dog", "<p>A <img src=x> dog</p>", "<p> <img src=x> Dog</p>", "<p><img src=x>Dog</p>",
    "<img src=x> <img src=y> dog", "<p><label><input type=checkbox> Accept</label></p>", "<b> one</b> two",
])  # fmt: skip
def test_space_beside_a_tag_alone_stays_as_it_is(text):
    """Story: one that began a text got a space before it, too."""
    document = Document(text, is_html=True)
    assert document.translated([Translation(each, 0.0) for each in document.sentences]) == text


@pytest.mark.parametrize("part", ['<a "', "<a '", "<a \"'", "<a '\"'", '<a "x" ', "<a b=\"<c d='"])
def test_html_is_divided_in_linear_time(part):
    """Whatever quotation marks stay open."""
    seconds = []
    for number in (1000, 8000):
        started = time.perf_counter()
        Document(part * number, is_html=True)
        seconds.append(time.perf_counter() - started)
    assert seconds[1] < 40 * seconds[0] + 0.1


@pytest.mark.parametrize("aligned", [True, False])
def test_random_html_keeps_its_tags_each_once_and_well_nested(aligned):
    """Parsed by another parser: the same tags, images in the same elements, and the text of the translations."""
    import html.parser

    draw = np.random.default_rng(3)

    class Parser(html.parser.HTMLParser):
        def __init__(self):
            super().__init__()
            self.tags, self.open, self.words = [], [], []

        def handle_starttag(self, tag, attributes):
            self.tags.append((tag, self.open[-1:] if tag == "img" else []))
            if tag not in ("img", "br"):
                self.open.append(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

        def handle_data(self, data):
            self.words += data.split()

    def node(depth: int) -> str:
        number = draw.integers(4)
        inner = " ".join(node(depth + 1) if depth < 3 and draw.random() < 0.4 else word() for _ in range(number))
        kind = draw.choice(["b", "i", "a", "em", "p", "div"] if depth < 2 else ["b", "span", "u"])
        return f"<{kind}>{inner}</{kind}>" if draw.random() < 0.8 else "<img>"

    def word() -> str:
        return draw.choice(["one", "two", "x&lt;y", "&amp;", "Straße"])

    for _ in range(200):
        text = " ".join(node(0) for _ in range(3))
        document = Document(text, is_html=True)
        before, after = Parser(), Parser()
        before.feed(text)
        after.feed(document.translated([reversed_translation(each, aligned) for each in document.sentences]))
        assert sorted(after.tags) == sorted(before.tags) and not after.open
        assert sorted("".join(after.words)) == sorted("".join(before.words))


@pytest.mark.parametrize(("word", "whole"), [
    ("हिन्दी", ["हि", "न्", "दी"]), ("กินน้อย", ["กิ", "น", "น้", "อ", "ย"]), ("👩\u200d👩🏽", ["👩\u200d👩🏽"]),
    ("می\u200cروم", ["می\u200cروم"]),
])  # fmt: skip
def test_a_tag_is_not_put_between_a_letter_and_its_marks(word, whole):
    """With a sub-word for each character, and without an alignment. What belongs together is by hand."""
    pieces = ("▁", *word, "</s>")
    ends = set(itertools.accumulate(map(len, whole)))
    for place in range(1, len(word)):
        document = Document(f"{word[:place]}<b>{word[place:]}</b>", is_html=True)
        alignment = np.eye(len(pieces), dtype=np.float32)
        for aligned in (alignment, None):
            found = document.translated([Translation(word, 0.0, pieces, pieces, aligned)])
            assert re.sub("</?b>", "", found) == word
            assert {found.index("<b>"), found.index("</b>") - 3} <= {0, *ends}


def test_elements_that_share_the_first_word_after_a_space_are_well_nested():
    """Story: one began before the space, the other after it, and ended after the first."""
    document = Document("<i>&nbsp;</i><b>one two</b>", is_html=True)
    assert document.translated([Translation("eins zwei", 0.0)]) == "<b><i>\xa0eins</i> zwei</b>"


@pytest.mark.parametrize(
    "text",
    ["<b>", "<b>x</b>", "<", "<!--", '<a "', "</b>x", "<script>", "<a b='", "A. B", ' "', "。", ". ", "&#", "&#0", "9"],
)
def test_no_text_takes_much_longer_than_its_length(text):
    text = text * (MAX_REQUEST // 4 // len(text))
    for part in (text[:9], text):  # The first call builds tables of characters.
        started = time.process_time()
        document = Document(part, is_html=True)
        document.translated([Translation(each, 0.0) for each in document.sentences])
    assert time.process_time() - started < 10


# Batches.


def test_requests_of_many_people_are_translated_together_and_each_gets_its_own():
    model = Backwards(slow=0.05)
    app, answers = application(model), {}
    app._models.load_first()
    model.batches.clear()

    def send(number: int) -> None:
        answers[number] = ask(app, json=body(f"person {number}", alternatives=number % 3))[1]

    with in_threads(send, range(64)):
        pass
    expected = {number: f"nosrep {str(number)[::-1]}" for number in range(64)}
    assert {number: answer["translatedText"] for number, answer in answers.items()} == expected
    assert all(len(answer.get("alternatives", [])) == number % 3 for number, answer in answers.items())
    assert sorted(sum(model.batches, [])) == sorted(f"person {number}" for number in range(64))
    assert len(model.batches) <= 16 and max(map(len, model.batches)) <= 32


class Held(Backwards):
    """A model that waits until it is let go, in a batch with the line "hold"."""

    def __init__(self):
        super().__init__()
        self.go, self.running = threading.Event(), threading.Event()

    def __call__(self, signature, inputs):
        if "hold" in inputs["text"]:
            self.running.set()
            self.go.wait(20)
        return super().__call__(signature, inputs)


def ask_while_held(model: Held, batcher: Batcher, ask, requests: list[list[str]]) -> None:
    """Asks for lists of texts, each in a thread of its own. The first holds the model, and the others wait in their
    order; then it is let go.
    """
    waiting = [sum(map(len, requests[1 : number + 1])) for number in range(len(requests))]

    def started(number: int) -> None:
        wait_until(lambda: model.running.is_set() and len(batcher) == waiting[number])

    with in_threads(ask, requests, started):
        model.go.set()


def rows(*texts: str) -> dict:
    return {"text": list(texts), "prefix": [""] * len(texts), "constraints": [""] * len(texts)}


def batched(requests: list[list[str]], **options) -> list[list[str]]:
    """The batches of lists of texts that wait together."""
    model = Held()
    batcher, deadline = Batcher(model, **options), time.monotonic() + 20
    send = functools.partial(batcher, "translate_with_options", deadline=deadline)
    ask_while_held(model, batcher, lambda texts: send(rows(*texts)), requests)
    return model.batches


def test_sentences_of_similar_lengths_are_batched_and_the_oldest_first():
    batches = batched([["hold"], ["a" * 500], ["b"], ["c" * 400], ["d"]], max_batch=2)
    assert batches == [["hold"], ["a" * 500, "c" * 400], ["b", "d"]]


def test_a_long_list_does_not_hold_up_single_sentences():
    batches = batched([["hold"], [f"l{place}" for place in range(40)], ["single"]], max_batch=1)
    assert batches.index(["single"]) < 30 and batches[-1] == ["l39"]


def test_a_full_queue_and_a_late_answer_are_refused_with_the_time_to_try_again():
    model = Held()
    app = WebApi(served("en-de", load=lambda name: model, max_queue=1, max_batch=1), timeout=1.0)
    app._models.load_first()
    statuses = {}

    def send(text: str) -> None:
        response = Client(app).post("/translate", json=body(text), base_url="http://localhost")
        statuses[text] = response.status_code, response.headers.get("Retry-After")

    def started(number: int) -> None:
        wait_until(lambda: model.running.is_set() and app._models.waiting == number)

    with in_threads(send, ("hold", "waits"), started):
        begun = time.monotonic()
        send("refused")
        assert statuses == {"refused": (503, "1")} and time.monotonic() - begun < 0.5
    assert statuses["hold"] == statuses["waits"] == (503, "1") and time.monotonic() - begun < 5
    assert app._models.waiting == 0, "no one waits for what was given up"
    model.go.set()
    wait_until(lambda: ask(app, json=body("next"))[0] == 200)
    assert not any("waits" in batch for batch in model.batches)


def test_a_sentence_that_breaks_its_batch_fails_alone():
    class Fragile(Held):
        def __call__(self, signature, inputs):
            outputs = super().__call__(signature, inputs)
            if "break" in inputs["text"]:
                raise RuntimeError("out of memory")
            return outputs

    model, found = Fragile(), {}
    batcher, deadline = Batcher(model), time.monotonic() + 20

    def send(texts: list[str]) -> None:
        [text] = texts
        try:
            found[text] = batcher("translate_with_options", rows(text), deadline)["text"][0][0]
        except RuntimeError as error:
            found[text] = str(error)

    ask_while_held(model, batcher, send, [["hold"], ["one"], ["break"], ["two"]])
    assert found == {"hold": "dloh", "one": "eno", "break": "out of memory", "two": "owt"}
    assert sorted(model.batches[1]) == ["break", "one", "two"]


def test_a_batcher_gives_what_its_model_gives_whatever_shares_a_batch():
    batcher, model = Batcher(Backwards(), max_batch=3), Backwards()
    inputs = rows(*(f"w{number} x" for number in range(10)))
    assert batcher("translate_with_options", inputs, time.monotonic() + 20) == model("translate_with_options", inputs)
    with pytest.raises(BusyError):
        Batcher(Backwards(slow=0.5))("translate_with_options", inputs, time.monotonic() + 0.1)


def test_metrics_are_those_that_were_counted(app):
    """By hand, in the text format of Prometheus."""
    for text in ("one", "two three"):
        ask(app, json=body(text))
    ask(app, json=body("a", source="xx"))
    ask(app, "/../etc/passwd", method="GET")
    shown = Client(app).get("/metrics", base_url="http://localhost")
    assert shown.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    samples = [line for line in shown.text.splitlines() if not line.startswith("#")]
    assert {
        't2t_requests_total{path="/translate",status="200"} 2', 't2t_requests_total{path="/translate",status="400"} 1',
        't2t_requests_total{path="other",status="404"} 1', "t2t_request_seconds_count 2",
        't2t_request_seconds_bucket{le="+Inf"} 2', "t2t_refused_connections_total 0",
    } <= set(samples)  # fmt: skip
    metrics = Metrics({"t2t_waiting_sentences": lambda: 3})
    for size in (1, 2, 3, 100):
        metrics.observe("t2t_batch_sentences", size)
    text = metrics.text()
    buckets = [f'{{le="{bound}"}} {number}' for bound, number in
               (("1", 1), ("2", 2), ("4", 3), ("8", 3), ("16", 3), ("32", 3), ("64", 3), ("+Inf", 4))]  # fmt: skip
    assert "\n".join(f"t2t_batch_sentences_bucket{bucket}" for bucket in buckets) in text
    assert "t2t_batch_sentences_sum 106\nt2t_batch_sentences_count 4\n" in text and "t2t_waiting_sentences 3\n" in text
    assert text.count("# TYPE t2t_batch_sentences histogram\n") == 1


# Several models.


def test_models_are_loaded_when_asked_and_the_one_not_needed_for_longest_goes():
    loads = []
    models = served("en-de", "en-fr", "de-en", load=lambda name: loads.append(name) or Backwards(), max_loaded=2)
    app = WebApi(models)
    models.load_first()
    for target in ("de", "fr", "de"):
        assert ask(app, json=body(target=target))[0] == 200
    assert loads == ["en-de", "en-fr"] and models.loaded == 2
    ask(app, json=body(source="de", target="en"))  # In place of en-fr.
    ask(app, json=body(target="de"))
    assert loads == ["en-de", "en-fr", "de-en"] and models.loaded == 2
    ask(app, json=body(target="fr"))
    assert loads[3:] == ["en-fr"]
    status, answer = ask(app, json=body(source="de", target="fr"))
    assert status == 400 and "Received: de and fr." in answer["error"]


def test_people_who_need_two_models_in_turn_all_get_answers_though_one_fits():
    used, most = [], []

    class Counted(Backwards):
        def __call__(self, signature, inputs):
            used.append(self)
            most.append(len({id(each) for each in used}))
            found = super().__call__(signature, inputs)
            used.remove(self)
            return found

    models = served("en-de", "en-fr", load=lambda name: Counted(slow=0.01), max_loaded=1)
    app, statuses = WebApi(models, timeout=60), []

    def send(target: str) -> None:
        for number in range(5):
            statuses.append(ask(app, json=body(f"{target} {number}", target=target))[0])

    with in_threads(send, ("de", "fr") * 4):
        pass
    assert statuses == [200] * 40 and max(most) == 1


def test_a_model_that_takes_longer_to_load_than_an_answer_may_take_translates_all_the_same():
    """Story: where two models alternate and one fits, most requests were refused after the model was loaded."""

    def load(name):
        time.sleep(0.4)
        return Backwards()

    app = WebApi(served("en-de", "en-fr", load=load, max_loaded=1), timeout=0.3)
    for target in ("de", "fr", "de"):
        assert ask(app, json=body(target=target)) == (200, {"translatedText": "eno owt"})


def test_a_model_with_many_users_gives_its_place_to_one_that_a_person_waits_for():
    """Story: the users of the first loaded it again and again, and the second had no turn."""
    loads, ended = [], threading.Event()

    def load(name):
        loads.append(name)
        return Backwards(slow=0.005)

    app, statuses = WebApi(served("en-de", "en-fr", load=load, max_loaded=1), timeout=20), []

    def send(_) -> None:
        while not ended.is_set():
            statuses.append(ask(app, json=body())[0])

    with in_threads(send, range(12)):
        wait_until(lambda: len(statuses) > 20)
        assert loads == ["en-de"] and ask(app, json=body(target="fr"))[0] == 200
        before = len(statuses)
        wait_until(lambda: len(statuses) > before + 20)
        ended.set()
    assert loads == ["en-de", "en-fr", "en-de"] and set(statuses) == {200}


def test_a_model_stays_in_use_if_nobody_waits_for_its_place_any_longer():
    """Story: its requests were refused for ever, as if it had to be loaded."""
    models = served("en-de", "en-fr", max_loaded=1)
    first, second = models.models

    def use(model):
        return models._used(model, time.monotonic() + 0.1)

    with use(first):
        with pytest.raises(BusyError, match="because others are in use"), use(second):
            pass
        with use(first):
            assert models.loaded == 1
    with use(second):
        assert models.loaded == 1


def at_once(app, number: int) -> list[int]:
    """The statuses of requests that are sent at the same time."""
    statuses: list[int] = []
    with in_threads(lambda _: statuses.append(ask(app, json=body())[0]), range(number)):
        pass
    return statuses


def test_those_who_wait_for_a_model_that_cannot_be_loaded_get_the_error_at_once(messages):
    """Story: each of them tried to load it again, one after another; and damaged weights were the request's fault."""
    loads = []

    def load(name):
        loads.append(name)
        time.sleep(0.3)
        if len(loads) < 3:
            raise (OSError, ValueError)[len(loads) - 1]("no such file")
        return Backwards()

    app = WebApi(served("en-de", load=load), timeout=0.2)
    assert at_once(app, 5) == [500] * 5 and loads == ["en-de"]
    failed = len(messages)
    assert ask(app, json=body())[0] == 500 and len(loads) == 2 and len(messages) == failed + 1
    assert ask(app, json=body())[0] == 200


def test_an_idle_model_gives_its_place_and_not_the_one_in_use():
    models = served("en-de", "en-fr", "de-en", max_loaded=2)
    first, second, third = models.models
    for model in (second, first):
        with models._used(model, time.monotonic() + 1):
            pass
    with models._used(second, time.monotonic() + 1):
        with models._used(third, time.monotonic() + 1):
            assert models.loaded == 2
        with models._used(first, time.monotonic() + 1):
            assert models.loaded == 2


def test_all_requests_for_a_model_wait_until_it_is_loaded():
    """Story: only the time of the request that loaded it did not count."""

    def load(name):
        time.sleep(0.5)
        return Backwards()

    assert at_once(WebApi(served("en-de", load=load), timeout=0.2), 4) == [200] * 4


def test_the_languages_of_models_are_those_that_they_know_or_that_are_given():
    def model(languages=(), tags=(), pair=None):
        description = {"languages": list(languages)} | ({"pair": pair} if pair else {})
        opened = served_models.SavedExport(pathlib.Path("x"))
        opened.__dict__["description"] = description | {"tags": list(tags)}
        return served_models.local("x", opened, *given).beginnings

    found = served_models.local("x", served_models.SavedExport(pathlib.Path("none")), unknown=("a", "b")).beginnings
    assert found == {("a", "b"): ("", "")}

    given = ("", "")
    assert model(pair=["en", "de"]) == {("en", "de"): ("", "")}
    assert model(["a", "b", "c"])["a", "c"] == (">>a<<", ">>c<<") and len(model(["a", "b", "c"])) == 6
    with pytest.raises(ValueError, match="codes, such as en and de"):
        model()
    given = ("en", "")
    assert model(tags=["<2de>", ">>fra<<"]) == {("en", "de"): ("<2de> ", ""), ("en", "fra"): (">>fra<< ", "")}
    given = ("b", "a")
    assert model(["a", "b", "c"]) == {("b", "a"): (">>b<<", ">>a<<")}
    assert model(pair=["en", "de"]) == {("b", "a"): ("", "")}
    given = ("x", "a")
    with pytest.raises(ValueError, match="x"):
        model(["a", "b"])
    given = ("a", "a")
    with pytest.raises(ValueError, match="must differ. Received for x: a."):
        model(["a", "b"])
    # Tags of domains, and a text without a tag.
    given = ("", "")
    of_domains = {("en", "de-news"): ("<news> ", ""), ("en", "de-talk"): ("<talk> ", "")}
    assert model(tags=["<news>", "<talk>"], pair=["en", "de"]) == of_domains
    assert model(tags=["", "<news>"], pair=["en", "de"]) == {("en", "de"): ("", ""), ("en", "de-news"): ("<news> ", "")}
    assert model(tags=["<2de>"], pair=["en", "de"]) == {("en", "de"): ("<2de> ", "")}
    given = ("en", "de")
    assert model(tags=["", "<2fr>"]) == {("en", "de"): ("", ""), ("en", "fr"): ("<2fr> ", "")}
    assert model(tags=["<2de>", "<2fr>"]) == {("en", "de"): ("<2de> ", "")}
    assert model(tags=["<news>", "<talk>"]) == of_domains
    assert model(tags=["<news>", "<talk>"], pair=["en", "fr"]) == of_domains
    assert model(tags=["<de>", "<fr>"]) == {("en", "de"): ("<de> ", "")}
    given = ("en", "it")
    with pytest.raises(ValueError, match="`target_language` must be one of de, fr for x. Received: it."):
        model(tags=["<2de>", "<2fr>"])
    given = ("", "")
    assert model(tags=["<2pt-BR>"], pair=["en", "pt"]) == {("en", "pt-BR"): ("<2pt-BR> ", "")}


def test_one_model_that_does_not_name_its_languages_is_served_with_all_that_its_tags_and_pieces_name():
    """Story: the name that stands for an unknown target was looked for among the tags, so nothing was left."""

    def model(**description):
        opened = served_models.SavedExport(pathlib.Path("x"))
        opened.__dict__["description"] = description
        return served_models.local("x", opened, unknown=("source", "target")).beginnings

    assert model(tags=["<2de>", "<2fr>"]) == {("source", "de"): ("<2de> ", ""), ("source", "fr"): ("<2fr> ", "")}
    assert model(languages=["a", "b"]) == {("a", "b"): (">>a<<", ">>b<<"), ("b", "a"): (">>b<<", ">>a<<")}
    with pytest.raises(ValueError, match="x has 501 languages, more than 500. Give `source_language` or"):
        model(languages=[f"l{number}" for number in range(501)])


# The whole way.


def test_a_model_server_gives_what_the_model_gives(tmp_path):
    servable = loopback_server.Servable(stand_in.write(tmp_path))
    with loopback_server.served(servable) as addresses:
        for scheme in ("grpc", "http"):
            predict = client.connect(client.Model(addresses[scheme], "translate"))
            app = WebApi(ServedModels([served_models.remote("m", predict, "en", "de")]))
            # It writes capitals, and has two beams.
            expected = {"translatedText": "ONE TWO", "alternatives": ["one two"]}
            assert ask(app, json=body("One two", alternatives=5)) == (200, expected)
            assert ask(app, json=body("One", avoid=["x"])) == (400, {"error": "avoid: expected nothing."})


@pytest.mark.medium
def test_the_program_serves_a_run_as_python_translates_it(tmp_path):
    """`tests/data/run_1`, by `tools/serve.py`, asked over HTTP; with glossary and constraints."""
    import requests

    command = [sys.executable, "tools/serve.py", "--model_dir=tests/data/run_1", "--port=0", "--api_key=k"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    translator = t2t_keras.load("tests/data/run_1")
    with programs.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = next(line.split()[1] for line in process.stderr if line.startswith("Open "))

            def send(**fields):
                sent = {"source": "en", "target": "de", "api_key": "k", **fields}
                return requests.post(f"{address}translate", json=sent, timeout=60).json()

            [[best, *others], [with_term]] = (
                translator.n_best("seven", 2), translator.n_best("one seven", 1, terms={"seven": ["acht", "neun"]})
            )  # fmt: skip
            found = send(q="seven", alternatives=9)
            assert found == {"translatedText": best.text, "alternatives": [each.text for each in others]}
            found = send(q=["one seven", "seven"], glossary=[["seven", "acht", "neun"]])["translatedText"]
            assert found[0] == with_term.text and "acht" in found[1]
            found = send(q="<p>one <b>seven</b></p>", format="html")["translatedText"]
            plain = send(q="one seven")["translatedText"]
            assert re.sub("<.*?>", "", found) == html.escape(plain, quote=False)
            assert sorted(re.findall("<.*?>", found)) == ["</b>", "</p>", "<b>", "<p>"]
            pair = {"langpair": "en|de", "q": "seven", "key": "k"}
            shown = requests.get(f"{address}translate", params=pair, timeout=60).json()["responseData"]
            assert shown["translatedText"] == best.text
            large = requests.post(f"{address}translate", json={"q": "a" * 2_000_000}, timeout=30)
            assert large.status_code == 413
            assert requests.get(address, headers={"Host": "evil.example"}, timeout=30).status_code == 403
            assert "t2t_batch_sentences_count" in requests.get(f"{address}metrics", timeout=30).text
        finally:
            process.terminate()
        assert process.wait(30) == 0


def test_the_program_wants_a_run_or_a_server():
    for arguments, message in (
        ([], "Error: Expected exactly one of --model_dir and --server. Received: neither.\n"),
        (["--server=grpc://h:1"],
         "Error: --server needs --source_language and --target_language. Received: not both.\n"),
    ):  # fmt: skip
        result = programs.tool("serve", *arguments, modules=programs.WITHOUT_TENSORFLOW)
        assert (result.returncode, result.stderr) == (1, message)


@pytest.fixture(scope="module")
def browser():
    with browsers.chromium(1000, 900, level="WARNING") as found:
        yield found


def test_a_model_is_warmed_up_with_a_pair_of_its_languages():
    """A multilingual model refuses a sentence without."""
    asked = []

    class Model(Backwards):
        def __call__(self, signature, inputs):
            asked.append((inputs["text"], inputs["prefix"]))
            return super().__call__(signature, inputs)

    pairs = {("a", "b"): (">>a<<", ">>b<<"), ("b", "a"): (">>b<<", ">>a<<")}
    ServedModels([ServedModel("x", pairs, Model)]).load_first()
    assert asked == [([">>a<<a"], [">>b<<"]), ([f">>a<<{' '.join('a' * 20)}"], [">>b<<"])]


@pytest.fixture
def opened(browser):
    """The page of two models in the browser; the requests that the first was asked for."""

    class Model(Backwards):
        def __call__(self, signature, inputs):
            if signature != "score":
                asked.append(tuple(inputs[name][0] for name in ("text", "prefix", "constraints", "avoid")))
            return super().__call__(signature, inputs)

    asked: list = []
    models = served("en-de", "en-fr", load=lambda name: Model() if name == "en-de" else Backwards(), max_loaded=2)
    models.load_first()
    asked.clear()
    server = web_server.serve(WebApi(models, title="a <b>model</b>", n_best=3))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser.get(f"http://localhost:{server.port}/")
    wait_until(lambda: browser.find_elements("css selector", "#pair option"))
    yield browser, asked
    errors = [entry for entry in browser.get_log("browser") if "400" not in entry["message"]]
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
    assert len(asked) <= 3 and asked[-1] == ("one two three", "", "", "")  # Not for every key.
    assert words(browser, "source") == ["one", "two", "three", "(end)"]
    ActionChains(browser).move_to_element(browser.find_elements("css selector", "#target .word")[1]).perform()
    wait_until(lambda: shades(browser, "source") == [0, 1, 0, 0])
    ActionChains(browser).move_to_element(browser.find_elements("css selector", "#source .word")[2]).perform()
    wait_until(lambda: shades(browser, "target") == [0, 0, 1, 0] and shades(browser, "source") == [0, 0, 0, 0])
    buttons = browser.find_elements("css selector", "#translations button")
    expected = [["0.000", "eno owt eerht"], ["-1.000", "eno owt eerht!"], ["-2.000", "eno owt eerht!!"]]
    assert [button.text.split("\n") for button in buttons] == expected
    buttons[2].click()
    pressed = [
        button.get_attribute("aria-pressed") for button in browser.find_elements("css selector", "#translations button")
    ]
    assert pressed == ["false", "false", "true"] and words(browser, "target") == ["eno", "owt", "eerht!!", "(end)"]


def test_a_translation_that_lacks_a_phrase_and_a_sentence_that_is_cut_are_marked(opened):
    browser, _ = opened
    cut, lacks = " s. Only the beginning of the sentence was translated.", " There was no room for all phrases."
    for text, said in (("lacks", lacks), ("fine", " s"), ("long", cut), ("short", " s")):
        element(browser, "#text").clear()
        element(browser, "#text").send_keys(text)
        wait_until(lambda text=text: words(browser, "target")[:1] == [text[::-1]])
        wait_until(lambda said=said: element(browser, "#status").text.endswith(said))
        assert (element(browser, "#status").get_attribute("class") == "error") == (said != " s")


def test_phrases_of_each_box_are_those_that_must_and_must_not_appear(opened):
    browser, asked = opened
    element(browser, "#text").send_keys("one")
    element(browser, "#constraints").send_keys("x")
    element(browser, "#avoid").send_keys("y")
    wait_until(lambda: asked[-1:] == [("one", "", "x", "y")])


def test_the_translation_can_be_made_to_begin_with_some_words(opened):
    browser, _ = opened
    element(browser, "#text").send_keys("one two")
    element(browser, "#prefix").send_keys("eins")
    wait_until(lambda: words(browser, "target") == ["eins", "owt", "(end)"])


def test_whatever_is_typed_is_shown_as_text(opened):
    browser, _ = opened
    for typed in (
        "<script>alert(1)</script> <img src=x onerror=alert(1)>", "مرحبا بالعالم", "😀 ½ straße", SIXTY_WORDS,
    ):  # fmt: skip
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
    assert words(browser, "source") == ["▁", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>"]
    assert words(browser, "target") == ["▁a", "b", "</s>"]


def test_a_person_chooses_the_languages(opened):
    browser, asked = opened
    options = [option.text for option in browser.find_elements("css selector", "#pair option")]
    assert options == ["English → German", "English → French"]
    browser.find_elements("css selector", "#pair option")[1].click()
    element(browser, "#text").send_keys("one")
    wait_until(lambda: words(browser, "target")[:1] == ["eno"])
    assert asked == []


def test_of_sentences_typed_while_an_answer_is_awaited_the_newest_alone_is_translated(opened):
    """Story: with each pause between two keys the queue grew, and the last sentence waited for all before it."""
    browser, asked = opened
    browser.execute_script(
        "for (const text of ['1', '2', '3', '4']) { document.getElementById('text').value = text; translate(); }"
    )
    wait_until(lambda: words(browser, "target")[:1] == ["4"])
    assert [text for text, *_ in asked][-1] == "4" and len(asked) <= 2


# Whoever reaches the port.


refusals: list = []


@pytest.fixture
def connect(monkeypatch):
    """A server for three connections and half a second, and a function that opens a connection to it."""
    monkeypatch.setattr(web_server, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(web_server, "MAX_SECONDS", 0.5)
    refusals.clear()
    server = web_server.serve(application(n_best=1), refused=lambda: refusals.append(1))
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


REQUEST = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_a_connection_without_a_thread_keeps_no_place(connect, monkeypatch):
    """Story: after as many failures as connections, the server refused all others for ever."""

    def start(thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        for _ in range(4):
            assert answer(connect()) == b""
    connection = connect()
    connection.sendall(REQUEST)
    assert b"200 OK" in answer(connection)


def test_requests_that_do_not_arrive_are_few_and_end_soon(connect):
    """Story: 900 half-sent requests were 900 threads, for ever."""
    before = threading.active_count()
    half = [connect() for _ in range(30)]
    for connection in half:
        connection.send(REQUEST[:20])
    refused = [connection for connection in half[3:] if b"503" in answer(connection)]
    assert len(refused) == len(refusals) == 27 and threading.active_count() <= before + 3
    started = time.monotonic()
    assert [answer(connection) for connection in half[:3]] == [b""] * 3
    assert time.monotonic() - started < 5
    wait_until(lambda: threading.active_count() <= before)
    connection = connect()
    connection.send(REQUEST)
    assert b'{"status": "ok"}' in answer(connection)


@pytest.mark.parametrize("line", [b"GET / HTTP/x", b'"100%s" \\', b"GET /" + 70_000 * b"a" + b" HTTP/1.1"])
def test_the_answer_to_what_is_no_http_is_json(connect, line):
    connection = connect()
    connection.send(line + b"\r\n\r\n")
    found = answer(connection)
    assert json.loads(found.rpartition(b"\r\n\r\n")[2])["error"], found


@pytest.mark.parametrize("head", [
    b"",
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n",
])  # fmt: skip
def test_a_request_that_arrives_byte_by_byte_ends_too(connect, head):
    connection, started = connect(), time.monotonic()
    connection.send(head)
    with contextlib.suppress(ConnectionError):
        while time.monotonic() < started + 5:
            connection.send(b" ")
            time.sleep(0.05)
    assert time.monotonic() < started + 4


def test_the_parts_of_an_answer_have_as_long_as_a_whole_request(monkeypatch):
    """A request must arrive in time as a whole; what is left of the time shrinks with each part."""
    timeouts, now = [], iter([100.0, 103.0, 109.5, 120.0])
    monkeypatch.setattr(web_server.time, "monotonic", lambda: next(now))
    connection = types.SimpleNamespace(settimeout=timeouts.append, recv_into=lambda buffer: 1)
    arriving = web_server._UntilDeadline(connection)
    assert [arriving.readinto(bytearray(1)) for _ in range(3)] == [1, 1, 1]
    assert timeouts == [7.0, 10.0, 0.5, 10.0, 0.001, 10.0]


def test_a_large_body_is_refused_with_an_answer_that_arrives():
    """Over a socket: the client still sends while the server has already answered."""
    import requests

    server = web_server.serve(application())
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    found = requests.post(f"http://localhost:{server.port}/translate", json=body("a" * 2_000_000), timeout=20)
    server.shutdown()
    server.server_close()
    assert found.status_code == 413 and "error" in found.json()


@pytest.mark.parametrize("seconds", [20.0, 0.2], ids=["in time", "late"])
def test_a_server_that_ends_answers_the_requests_that_have_begun_if_they_are_soon_done(seconds, monkeypatch):
    """Story: on SIGTERM, which Docker and Kubernetes send, requests under way were dropped."""
    import requests

    monkeypatch.setattr(web_server, "LAST_SECONDS", seconds)
    begun, go_on, statuses = threading.Event(), threading.Event(), []

    def slow(environ, start_response):
        begun.set()
        go_on.wait(20)
        start_response("200 OK", [])
        return [b"done"]

    server = web_server.serve(slow)
    address = f"http://localhost:{server.port}"
    serving = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    asking = threading.Thread(target=lambda: statuses.append(requests.get(address, timeout=20).status_code))
    serving.start()
    asking.start()
    assert begun.wait(20)
    server.shutdown()
    serving.join(1.0)
    assert serving.is_alive() == (seconds > 1)
    with pytest.raises(requests.ConnectionError):
        requests.get(address, timeout=20)
    go_on.set()
    asking.join(20)
    serving.join(5)
    assert statuses == [200] and not serving.is_alive()


def test_a_taken_port_is_an_error_that_names_it(app):
    server = web_server.serve(app)
    try:
        with pytest.raises(OSError, match=f"localhost:{server.port}. Give another `host` or `port`"):
            web_server.serve(app, port=server.port)
    finally:
        server.server_close()
