"""Each sentence is answered by its own options, whatever stands beside it and whatever is in it."""

import collections
import dataclasses
import functools
import re
import types

import numpy as np
import pytest
import stand_in
import tensorflow as tf

from t2t_keras.config import BOS, EOS, DecodeConfig
from t2t_keras.decoding import constraints as lexical
from t2t_keras.decoding.translator import CONSTRAINED_BEAMS, Translator
from t2t_keras.serving import protocol, signatures
from t2t_keras.serving.requests import translate_requests
from t2t_keras.serving.signatures import Signatures
from t2t_keras.text.phrases import MAX_PHRASES
from t2t_keras.text.request import Request

DECODE = DecodeConfig(beam_size=3, max_input=24, extra_length=4)
DEFAULTS = {"alpha": -1.0, "max_length": 0, "n_best": 1, "prefix": "", "alignment": False}
DEFAULTS |= {"constraints": "", "avoid": "", "ordered": False}
DTYPES = {"alpha": tf.float32, "max_length": tf.int32, "n_best": tf.int32, "prefix": tf.string, "alignment": tf.bool}
DTYPES |= {"constraints": tf.string, "avoid": tf.string, "ordered": tf.bool}
PREFIXES = ["zwei", "Euro und", "der 5. Mai", "½ 😀", "x"]
# Other scripts, combining and right-to-left, emoji of several code points, what SentencePiece and this package treat
# apart, and no UTF-8.
STRANGE = [
    "", " ", "  \t ", "\u3000", "\u00a0", "\x00", "a\x00b", "\x7f\x1b[0m", "\r\n", "\u2028", "\ufeff", "z", "é",
    "e\u0301\u0323", "漢字", "नमस्ते", "สวัสดี", "Привет", "مرحبا بالعالم", "שלום", "\u202eabc\u202c", "😀",
    "👩\u200d👩\u200d👧", "🏳️\u200d🌈", "\U0010ffff", "▁", "▁▁a▁", "\ue0f0", "\ue0f01", "<s>", "</s>", "<pad>", "<unk>",
    "<0x41>", "%s{}\\'\"$(x)",
    b"\xff\xfe", b"\x80", b"\xe2\x82", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80",
]  # fmt: skip
NUMBERS = [-1, 0, 1, 2, 3, 4, 10, 100, -(2**31), 2**31 - 1]
ALPHAS = [-1.0, 0.0, 0.6, 10.0, -0.5, 10.5, 1e30, -1e30, 1e-40, float("nan"), float("inf"), float("-inf")]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return stand_in.translator(DECODE)


@pytest.fixture(scope="module")
def service(translator) -> Signatures:
    return Signatures(translator)


def strings(values) -> tf.Tensor:
    """[B] string; of a list of bytes NumPy would drop zeros at the end."""
    return tf.constant(
        np.array([value if isinstance(value, bytes) else value.encode() for value in values], object), tf.string
    )


def numpy(outputs) -> dict:
    return {name: value.numpy() for name, value in outputs.items()}


def translated(service, rows: list[dict]) -> dict:
    """What `translate_with_options` gives for rows of a text and options other than the default ones."""
    inputs = {name: [{**DEFAULTS, **row}[name] for row in rows] for name in ("text", *DEFAULTS)}
    texts = {"text", *(name for name, dtype in DTYPES.items() if dtype == tf.string)}
    columns = {
        name: strings(values) if name in texts else tf.constant(values, DTYPES[name]) for name, values in inputs.items()
    }
    return numpy(service.translate_with_options(**columns))


def assert_refused(errors, named: str) -> None:
    """Checks that the second of three rows is refused, and for which options."""
    assert set(re.findall(r"(\w+): expected", errors[1].decode())) == set(named.split())
    assert "Received: " in errors[1].decode() and errors[0] == errors[2] == b""


def row_of(found: dict, row: int) -> dict:
    """One row, without what fills it up to the longest beside it."""
    targets, sources = (found[name][row] != b"" for name in ("pieces", "source_pieces"))
    number, max_targets, max_sources = len(targets), targets.sum(axis=-1).max(initial=0), sources.sum()
    return {
        "text": found["text"][row].tolist(),
        **{name: found[name][row] for name in ("truncated", "error")},
        "constraints_met": found["constraints_met"][row].tolist(),
        "score": found["score"][row],
        "source_pieces": found["source_pieces"][row][:max_sources].tolist(),
        "pieces": found["pieces"][row][:, :max_targets].tolist(),
        "alignment": found["alignment"][row][:number, :max_targets, :max_sources],
    }


def assert_same(received: dict, expected: dict, tolerance: float = 1e-5) -> None:
    assert received.keys() == expected.keys()
    for name, value in expected.items():
        if name in ("score", "alignment"):
            np.testing.assert_allclose(received[name], value, rtol=5e-7, atol=tolerance, err_msg=name)
        else:
            assert received[name] == value, name


def ids_of(service, pieces) -> list[int]:
    return [service.translator.tokenizer.pieces.index(piece.decode()) for piece in pieces if piece]


def spelled(pieces) -> str:
    """The text of sub-words: ▁ is a space, <0xE4> a byte."""
    written = [piece.decode() for piece in pieces if piece not in (b"", b"</s>")]
    parts = [
        bytes.fromhex(piece[3:5]) if re.fullmatch("<0x..>", piece) else piece.replace("▁", " ").encode()
        for piece in written
    ]
    return b"".join(parts).decode("utf-8", "replace").removeprefix(" ")


@functools.partial(tf.function, reduce_retracing=True)
def called(model, source, target):
    return model((source, target))


def log_probs_by_hand(model, source: list[int], target: list[int]) -> np.ndarray:
    """log P of each sub-word, by one call of the model."""
    logits = called(model, tf.constant([source]), tf.constant([[BOS, *target[:-1]]]))
    return tf.nn.log_softmax(logits)[0].numpy()[np.arange(len(target)), target]


@pytest.mark.medium
def test_translate_gives_what_a_translator_gives(service, translator):
    lines = [*stand_in.sentences(30), "", "😀 ½", " ".join(stand_in.sentences(9))]
    served, expected = numpy(service.translate(strings(lines))), numpy(translator(strings(lines)))
    assert served["text"].tolist() == expected["text"].tolist() and len(set(expected["text"])) > 20
    np.testing.assert_allclose(served["score"], expected["score"], atol=1e-5)


@pytest.mark.medium
def test_options_of_rows_in_one_batch_are_those_of_requests_of_their_own(service):
    one, two, long = stand_in.sentences(2) + [" ".join(stand_in.sentences(9))]
    rows = [
        {"text": one},
        {"text": one, "alpha": 0.0, "n_best": 3},
        {"text": one, "alpha": 3.0, "n_best": 2, "alignment": True},
        {"text": two, "max_length": 3, "n_best": 3, "alignment": True},
        {"text": long, "alignment": True},
        {"text": one, "prefix": "zwei Euro", "alpha": 1.0, "n_best": 3, "alignment": True},
        {"text": "", "prefix": "zwei", "n_best": 3, "alignment": True},
        {"text": two, "prefix": "x", "max_length": 3},
        {"text": two, "alpha": 10.0, "max_length": 2**31 - 1},
    ]
    together = translated(service, rows)
    for number, row in enumerate(rows):
        alone = translated(service, [row])
        assert not alone["error"][0]
        assert_same(row_of(together, number), row_of(alone, 0))
        expected = [row["text"] != "" and place < row.get("n_best", 1) for place in range(3)]
        assert [text != b"" for text in alone["text"][0]] == expected
    assert together["score"][1, 0] != together["score"][0, 0] != together["score"][2, 0]  # α is heard.


def test_the_models_own_alpha_is_asked_for_by_minus_one(service):
    lines = stand_in.sentences(8)
    own, same = (
        translated(service, [{"text": line, "alpha": alpha, "n_best": 3} for line in lines])
        for alpha in (-1, DECODE.alpha)
    )
    for row in range(8):
        assert_same(row_of(own, row), row_of(same, row), 0)


@pytest.mark.medium
def test_a_score_is_log_p_over_the_length_penalty_also_of_what_a_prefix_forces(service):
    """log P of the pieces by one call of the model; and by `score`, where the text is cut into the same pieces."""
    rows = [
        {"text": line, "prefix": prefix, "alpha": [0.0, 0.6, 2.0][(first + second) % 3], "n_best": 3, "alignment": True}
        for first, line in enumerate(stand_in.sentences(6))
        for second, prefix in enumerate(["", *PREFIXES])
    ]
    found = translated(service, rows)
    tokenizer, same = service.translator.tokenizer, 0
    for number, row in enumerate(rows):
        assert not found["error"][number]
        source = ids_of(service, found["source_pieces"][number])
        forced = tokenizer.tokenize(strings([row["prefix"]]))[0].numpy()[:-1].tolist()
        for place in range(3):
            target, text = ids_of(service, found["pieces"][number, place]), found["text"][number, place]
            assert target[: len(forced)] == forced and text.decode().startswith(row["prefix"])
            log_p = log_probs_by_hand(service.translator.model, source, target).sum()
            penalty = ((5 + len(target)) / 6) ** row["alpha"]
            assert found["score"][number, place] == pytest.approx(log_p / penalty, abs=1e-4)
            if tokenizer.tokenize(strings([text]))[0].numpy().tolist() == target:
                log_prob = float(service.score(strings([row["text"]]), strings([text]))["log_prob"][0])
                assert found["score"][number, place] == pytest.approx(log_prob / penalty, abs=1e-4)
                same += 1
    assert same > 3


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_translation_is_no_longer_than_its_row_allows(service, most):
    """And of two sentences beside each other, one may be longer than the other."""
    line = stand_in.sentences(1)[0]
    found = translated(
        service,
        [{"text": line, "max_length": length, "n_best": 3, "alignment": True} for length in (most, 0, 2**31 - 1)],
    )
    lengths = (found["pieces"] != b"").sum(axis=-1)
    ended = (found["pieces"] == b"</s>").sum(axis=-1)
    assert not ended[0].all()  # The beams of so few sub-words were cut.
    assert (lengths[0][ended[0] == 0] == most).all() and (ended[lengths == 0] == 0).all()
    free = len(ids_of(service, found["source_pieces"][0])) + DECODE.extra_length
    assert lengths[0].max() == most and most < lengths[1].max() <= free
    assert lengths[2].max() <= DECODE.max_input + DECODE.extra_length


def test_a_source_that_is_too_long_is_cut_and_that_is_reported(service):
    """At `max_input` sub-words with the end token: what is left translates like a line of that alone."""
    words = " ".join(stand_in.sentences(9)).split()
    lengths = [
        len(ids)
        for ids in service.translator.tokenizer.tokenize(strings([" ".join(words[:n]) for n in range(len(words))]))
    ]
    number = lengths.index(DECODE.max_input)  # Of words.
    kept, longer = " ".join(words[:number]), " ".join(words[: number + 5])
    found = translated(service, [{"text": text, "alignment": True} for text in (kept, longer, longer + " x" * 2000)])
    assert found["truncated"].tolist() == [False, True, True]
    wanted = [False, True, True]
    assert numpy(service.translate(strings([kept, longer, longer + " x" * 2000])))["truncated"].tolist() == wanted
    expected = {**row_of(found, 0), "truncated": True}
    for row in (1, 2):
        assert_same(row_of(found, row), expected)
    scores = numpy(service.score(strings([kept, longer, "one"]), strings(["zwei", "zwei", "x" * 999])))
    assert scores["truncated"].tolist() == [False, True, True]
    assert scores["log_prob"][0] == pytest.approx(scores["log_prob"][1], abs=1e-5)
    assert scores["length"][2] == DECODE.max_input + DECODE.extra_length


@pytest.mark.parametrize(("options", "named"), [
    *(({"alpha": alpha}, "alpha") for alpha in (float("nan"), float("inf"), float("-inf"), -0.5, -1.5, 10.5, 1e30)),
    *(({"n_best": number}, "n_best") for number in (0, -1, DECODE.beam_size + 1, 2**31 - 1, -(2**31))),
    *(({"max_length": number}, "max_length") for number in (-1, -(2**31))),
    *(({"prefix": "zwei Euro und ein Mai", "max_length": most}, "prefix") for most in (1, 3)),
    ({"prefix": "x" * 1000}, "prefix"),
    ({"prefix": "x" * 1000, "max_length": 2**31 - 1}, "prefix"),
    ({"alpha": float("nan"), "n_best": 0, "max_length": -7, "prefix": "x"}, "alpha n_best max_length"),
])  # fmt: skip
def test_an_option_that_cannot_be_is_named_in_its_row_and_harms_no_other(service, options, named):
    one, two, three = stand_in.sentences(3)
    beside = [{"text": one, "n_best": 3, "alignment": True}, {"text": three, "prefix": "zwei", "alpha": 2.0}]
    found = translated(service, [beside[0], {"text": two, "alignment": True, **options}, beside[1]])
    assert_refused(found["error"], named)
    refused = row_of(found, 1)
    assert set(refused["text"]) == {b""} and not refused["score"].any() and refused["source_pieces"] == []
    assert refused["alignment"].size == 0
    expected = translated(service, beside)
    assert_same(row_of(found, 0), row_of(expected, 0))
    assert_same(row_of(found, 2), row_of(expected, 1))


@pytest.mark.parametrize("name", [*DEFAULTS, "text"])
def test_a_request_with_an_input_of_another_number_of_values_is_refused_by_name(service, name):
    inputs = {
        "text": strings(["one", "two"]),
        **{name: tf.constant([value] * 2, DTYPES[name]) for name, value in DEFAULTS.items()},
    }
    named = "alpha" if name == "text" else name
    message = f"{named}: expected one value for each sentence, as many as in .*text"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        service.translate_with_options(**{**inputs, name: inputs[name][:1]})


def test_a_score_of_other_numbers_of_sources_and_targets_is_refused_by_name(service):
    message = "target: expected one value for each sentence, as many as in .*source"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        service.score(strings(["one", "two"]), strings(["eins"]))


def test_pieces_are_those_of_the_texts_and_look_at_all_of_the_source(service):
    lines = [*(line for line in stand_in.sentences(20) if len(line) < 25), "straße 😀", "漢 ½"]
    found = translated(
        service, [{"text": line, "n_best": 3, "alignment": row % 2 == 0} for row, line in enumerate(lines)]
    )
    texts = 0
    for row, line in enumerate(lines):
        if row % 2:
            assert not found["alignment"][row].any() and not any(found["pieces"][row].ravel())
            assert not any(found["source_pieces"][row])
            continue
        assert spelled(found["source_pieces"][row]) == line and b"</s>" in found["source_pieces"][row]
        for place in range(3):
            text = found["text"][row, place].decode()
            if "\ufffd" not in text:  # Of bytes that are no UTF-8.
                assert spelled(found["pieces"][row, place]) == text
                texts += 1
        pieces, sources = found["pieces"][row] != b"", found["source_pieces"][row] != b""
        np.testing.assert_allclose(found["alignment"][row].sum(axis=-1), pieces, atol=1e-5)
        there = pieces[:, :, None] & sources
        assert (found["alignment"][row][there] > 0).all() and not found["alignment"][row][~there].any()
    assert texts > 3


def test_alignments_are_those_of_the_model(service):
    found = translated(service, [{"text": line, "alignment": True} for line in stand_in.sentences(3)])
    model = service.translator.model
    for row in range(3):
        source, target = ids_of(service, found["source_pieces"][row]), ids_of(service, found["pieces"][row, 0])
        weights = model.align(tf.constant([[BOS, *target[:-1]]]), model.encode(tf.constant([source])))[0]
        np.testing.assert_allclose(found["alignment"][row, 0, : len(target), : len(source)], weights, atol=1e-5)


@pytest.mark.medium
def test_alignments_of_long_sentences_are_refused_in_their_row_and_too_large_ones_together(translator, monkeypatch):
    """They have as many numbers as source times translation: 1,074 by 1,024 for each of W, if nothing were refused."""
    assert (signatures.MAX_ALIGNED, signatures.MAX_ALIGNMENTS, protocol.MAX_DRAWS) == (256, 2**27, 1000)
    monkeypatch.setattr(signatures, "MAX_ALIGNED", 8)
    monkeypatch.setattr(signatures, "MAX_ALIGNMENTS", 1000)
    service = Signatures(translator)
    short, longer, long = "one", 8 * "{", stand_in.sentences(1)[0]
    rows = [
        {"text": short, "alignment": True},
        {"text": long, "alignment": True},
        {"text": short, "max_length": 17, "alignment": True},
    ]
    found = translated(service, [*rows, {"text": long}, {"text": longer, "alignment": True}])
    assert [error.split(b":")[0] for error in found["error"]] == [b"", b"alignment", b"alignment", b"", b"alignment"]
    received = [error.decode().partition("Received: ")[2] for error in found["error"]]
    assert received == ["", "24. ", "17. ", "", "10. "], (
        "The length of the source is told, and not that of its translation."
    )
    assert found["alignment"].shape[2] <= 16 and found["alignment"].shape[3] <= 8
    assert found["alignment"][0].any() and not found["alignment"][1:].any()
    assert found["text"][3, 0] == service.translate(strings([long]))["text"][0]
    assert translated(service, [{"text": "one", "alignment": True}])["alignment"].size <= 1000
    with pytest.raises(tf.errors.InvalidArgumentError, match="alignment: expected at most 1000 numbers"):
        translated(service, [{"text": "one", "alignment": True}] * 50)
    assert len(translated(service, [{"text": "one"}] * 50)["text"]) == 50


@pytest.mark.medium
def test_score_is_the_log_softmax_of_the_model(service):
    tokenizer, lines = service.translator.tokenizer, stand_in.sentences(40)
    targets = [*lines[1:], "½ straße"]
    found = numpy(service.score(strings(lines), strings(targets)))
    most = 0
    for row, (line, target) in enumerate(zip(lines, targets, strict=True)):
        source, target = (tokenizer.tokenize(strings([text]))[0].numpy().tolist() for text in (line, target))
        source = [*source[:-1][: DECODE.max_input - 1], EOS]
        target = [*target[:-1][: DECODE.max_input + DECODE.extra_length - 1], EOS]
        expected = log_probs_by_hand(service.translator.model, source, target)
        assert found["length"][row] == len(target)
        np.testing.assert_allclose(found["token_log_probs"][row, : len(target)], expected, atol=1e-4)
        assert not found["token_log_probs"][row, len(target) :].any()
        pieces = [tokenizer.pieces[token].encode() for token in target]
        assert found["pieces"][row].tolist() == pieces + [b""] * (found["pieces"].shape[1] - len(target))
        assert found["log_prob"][row] == pytest.approx(expected.sum(), abs=1e-4)
        most = max(most, len(target))
    assert found["token_log_probs"].shape == (40, most)


def test_no_sentences_give_nothing(service):
    none = strings([])
    expected = {"text": (0,), "score": (0,), "truncated": (0,)}
    assert {name: value.shape for name, value in service.translate(none).items()} == expected
    scores = {name: value.shape for name, value in service.score(none, none).items()}
    wanted = {"log_prob": (0,), "token_log_probs": (0, 0), "length": (0,), "pieces": (0, 0), "truncated": (0,)}
    assert scores == wanted
    assert {name: value.shape for name, value in translated(service, []).items()} == {
        "text": (0, 3), "score": (0, 3), "constraints_met": (0, 3), "truncated": (0,), "error": (0,),
        "source_pieces": (0, 0), "pieces": (0, 3, 0), "alignment": (0, 3, 0, 0),
    }  # fmt: skip


@pytest.mark.parametrize("blank", ["", "    ", "\t\xa0", "\u200b\u3000"], ids=ascii)
def test_a_blank_line_gives_an_empty_line_of_score_0(service, blank):
    found = translated(
        service, [{"text": "one", "alignment": True}, {"text": blank, "n_best": 3, "prefix": "zwei", "alignment": True}]
    )
    row = row_of(found, 1)
    assert set(row["text"]) == {b""} and not row["score"].any() and not row["error"] and row["source_pieces"] == []
    assert found["text"][0, 0] != b""
    simple = numpy(service.translate(strings([blank, "one"])))
    assert simple["text"].tolist() == [b"", found["text"][0, 0]] and simple["score"][0] == 0
    # What is empty has a probability all the same: that of its end.
    scores = numpy(service.score(strings([blank, "one"]), strings(["eins", blank])))
    assert scores["length"][1] == 1 and np.isfinite(scores["log_prob"]).all() and (scores["log_prob"] < 0).all()


@pytest.mark.medium
def test_batches_of_1_7_and_64_give_the_same(service):
    lines = stand_in.sentences(192)

    def by(size: int) -> tuple[list, np.ndarray]:
        parts = [numpy(service.translate(strings(lines[first : first + size]))) for first in range(0, len(lines), size)]
        return [text for part in parts for text in part["text"]], np.concatenate([part["score"] for part in parts])

    texts, scores = by(64)
    assert len(set(texts)) > 100
    for size in (7, 1):
        other_texts, other_scores = by(size)
        np.testing.assert_allclose(other_scores, scores, atol=1e-4)
        # Of 1,000 fewer than one: where two translations are as good to the last bit, either may come first.
        assert sum(map(bytes.__ne__, other_texts, texts)) == 0


def strange_text(draw) -> bytes:
    """Strange ones, words, any bytes or characters; or several of these after another; rarely very long."""
    chance = draw.random()
    if chance < 0.003:
        unit = strange_text(draw) or b" "
        return (unit * (100_000 // len(unit) + 1))[:100_000]
    if chance < 0.25:
        return b"".join(strange_text(draw) + draw.choice([b"", b" "]) for _ in range(draw.integers(2, 5)))
    if chance < 0.35:
        return draw.bytes(draw.integers(1, 40))
    if chance < 0.45:
        return "".join(map(chr, draw.integers(1, 0xD7FF, draw.integers(1, 8)))).encode()
    if chance < 0.65:
        return " ".join(draw.choice(stand_in.sentences(50)[draw.integers(50)].split(), 2)).encode()
    text = STRANGE[draw.integers(len(STRANGE))]
    return text if isinstance(text, bytes) else text.encode()


def strange_row(draw) -> dict:
    """A text, and for about half of the options something other than the default."""
    options = {
        "alpha": ALPHAS[draw.integers(len(ALPHAS))], "max_length": NUMBERS[draw.integers(len(NUMBERS))],
        "n_best": NUMBERS[draw.integers(len(NUMBERS))], "prefix": strange_text(draw),
        "alignment": bool(draw.integers(2)),
    }  # fmt: skip
    given = {name: value for name, value in options.items() if draw.random() < 0.4}
    return {**DEFAULTS, "text": strange_text(draw), **given}


def wrong(service, rows: list[dict]) -> list[set]:
    """The options of each row that cannot be."""
    tokenizer, longest = service.translator.tokenizer, DECODE.max_input + DECODE.extra_length
    sources, prefixes = (
        tokenizer.tokenize(strings([row[name] for row in rows]), 99).row_lengths() for name in ("text", "prefix")
    )
    found = []
    for row, source, prefix in zip(rows, sources.numpy(), prefixes.numpy() - 1, strict=True):
        most = min(row["max_length"] or min(source, DECODE.max_input) + DECODE.extra_length, longest)
        alpha = np.float32(row["alpha"])
        cannot_be = {
            "alpha": not (alpha == -1 or 0 <= alpha <= 10),
            "max_length": row["max_length"] < 0,
            "n_best": not 1 <= row["n_best"] <= DECODE.beam_size,
            "prefix": row["max_length"] >= 0 and 0 < prefix and prefix >= most,
        }
        found.append({name for name, cannot in cannot_be.items() if cannot})
    return found


def check_translations(service, rows: list[dict]) -> dict:
    """Asks, and looks at every row; returns what it got."""
    found = translated(service, rows)
    assert found["text"].shape == found["score"].shape == (len(rows), DECODE.beam_size)
    assert np.isfinite(found["score"]).all() and np.isfinite(found["alignment"]).all()
    assert found["alignment"].shape == (*found["pieces"].shape, found["source_pieces"].shape[1])
    np.testing.assert_allclose(found["alignment"].sum(axis=-1), found["pieces"] != b"", atol=1e-4)
    for number, (row, names) in enumerate(zip(rows, wrong(service, rows), strict=True)):
        assert set(re.findall(r"(\w+): expected", found["error"][number].decode())) == names
        texts = [text.decode() for text in found["text"][number]]
        unwanted = 0 if names else row["n_best"]
        assert not any(texts[unwanted:]) and not found["score"][number, unwanted:].any()
        assert names or (found["score"][number, :unwanted] < 0).all() or not any(texts)
        aligned = row["alignment"] and not names and bool(found["score"][number, 0])
        assert any(found["source_pieces"][number]) == aligned
    return found


def fuzz(service, requests: int, seed: int) -> collections.Counter:
    """So many requests of up to 9 rows, of which one is always the same; returns what was met, and how often."""
    draw, met = np.random.default_rng(seed), collections.Counter()
    known, target = stand_in.sentences(2)
    expected = numpy(service.translate(strings([known])))
    expected_log_prob = float(service.score(strings([known]), strings([target]))["log_prob"][0])
    for _ in range(requests):
        rows = [strange_row(draw) for _ in range(draw.integers(0, 9))]
        place = int(draw.integers(len(rows) + 1))
        rows.insert(place, {**DEFAULTS, "text": known})
        rows = [] if draw.random() < 0.01 else rows
        texts = strings([row["text"] for row in rows])
        signature = draw.choice(["translate", "options", "score"], p=[0.25, 0.55, 0.2])
        met.update([signature, f"rows: {len(rows)}"])
        if signature == "score":
            targets = strings([target if number == place else row["prefix"] for number, row in enumerate(rows)])
            found = numpy(service.score(texts, targets))
            assert np.isfinite(found["log_prob"]).all() and (found["log_prob"] < 0).all()
            assert (found["length"] >= 1).all()
            there = np.arange(found["token_log_probs"].shape[1]) < found["length"][:, None]
            assert (there == (found["token_log_probs"] < 0)).all()
            np.testing.assert_allclose(found["token_log_probs"].sum(axis=1), found["log_prob"], rtol=1e-5)
            assert not rows or found["log_prob"][place] == pytest.approx(expected_log_prob, abs=1e-4)
            continue
        if signature == "options":
            found = check_translations(service, rows)
            met.update(name for text in found["error"] for name in re.findall(r"(\w+): expected", text.decode()))
            first = {name: found[name][:, 0] for name in ("text", "score")}
        else:
            first = numpy(service.translate(texts))
            assert first["text"].shape == first["score"].shape == (len(rows),) and np.isfinite(first["score"]).all()
            assert all(
                score < 0 or not text.decode() for text, score in zip(first["text"], first["score"], strict=True)
            )
        if rows:
            assert first["text"][place] == expected["text"][0]
            assert first["score"][place] == pytest.approx(expected["score"][0], abs=1e-4)
        met["very long"] += any(len(row["text"]) == 100_000 for row in rows)
    return met


@pytest.mark.medium
def test_300_requests_of_anything_are_answered_or_refused_row_by_row(service):
    met = fuzz(service, 300, seed=0)
    assert all(
        met[what] for what in ("alpha", "max_length", "n_best", "prefix", "very long", "rows: 0", "rows: 9", "score")
    ), met


@pytest.mark.slow
def test_2000_more_requests_of_anything_are_answered_or_refused_row_by_row(service):
    fuzz(service, 2000, seed=1)


# Samples

SAMPLE_DTYPES = {
    "seed": tf.int64, "draws": tf.int32, "temperature": tf.float32, "top_k": tf.int32, "top_p": tf.float32,
    "max_length": tf.int32
}  # fmt: skip
SAMPLE_DEFAULTS = {"seed": 0, "draws": 1, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_length": 0}


def sampled(service, rows: list[dict]) -> dict:
    """What `sample` gives for rows of a text and options other than the default ones."""
    inputs = {
        name: tf.constant([{**SAMPLE_DEFAULTS, **row}[name] for row in rows], dtype)
        for name, dtype in SAMPLE_DTYPES.items()
    }
    return numpy(service.sample(text=strings([row["text"] for row in rows]), **inputs))


@pytest.mark.medium
def test_samples_of_rows_in_one_batch_are_those_of_requests_of_their_own(service):
    one, two, long = stand_in.sentences(2) + [" ".join(stand_in.sentences(9))]
    rows = [
        {"text": one, "draws": 3},
        {"text": one, "draws": 9, "seed": -(2**63)},
        {"text": two, "temperature": 0.3, "top_k": 5, "draws": 2},
        {"text": long, "top_p": 0.5},
        {"text": "", "draws": 4},
        {"text": one, "max_length": 3, "draws": 5, "seed": 2**63 - 1},
        {"text": two, "max_length": 2**31 - 1, "top_k": 2**31 - 1},
        {"text": one, "top_k": 1, "draws": 2},
    ]
    together = sampled(service, rows)
    assert together["text"].shape == together["score"].shape == (len(rows), 9) and not any(together["error"])
    for number, row in enumerate(rows):
        alone, draws = sampled(service, [row]), row.get("draws", 1)
        assert alone["text"].shape == (1, draws)
        assert together["text"][number, :draws].tolist() == alone["text"][0].tolist()
        np.testing.assert_allclose(together["score"][number, :draws], alone["score"][0], atol=1e-3)
        assert not any(together["text"][number, draws:]) and not together["score"][number, draws:].any()
        assert alone["truncated"][0] == service.translator(strings([row["text"]]))["truncated"][0]
    assert set(together["text"][4]) == {b""} and not together["score"][4].any()
    only = dataclasses.replace(DECODE, beam_size=1)
    greedy = numpy(Translator(service.translator.model, service.translator.tokenizer, only)(strings([one])))
    assert set(together["text"][7, :2]) == {greedy["text"][0]}
    assert len(set(together["text"][1])) > 1 and (together["score"][:4, 0] < 0).all()


@pytest.mark.medium
def test_the_score_of_a_sample_is_the_log_softmax_of_the_model(service):
    """Of sub-words, whatever text they make, whatever they were drawn from."""
    line, number, translator = stand_in.sentences(1)[0], 30, service.translator
    options = {"text": line, "seed": 8, "draws": number, "temperature": 0.5, "top_p": 0.8, "max_length": 9}
    found = sampled(service, [options])
    source, _ = translator.tokenizer.cut(strings([line]), DECODE.max_input)
    inputs = {
        name: tf.constant([options.get(name, SAMPLE_DEFAULTS[name])], dtype) for name, dtype in SAMPLE_DTYPES.items()
    }
    sequences, _ = translator.draw(source, scope=translator.scope, **inputs)
    for text, score, target in zip(found["text"][0], found["score"][0], sequences[0].to_list(), strict=True):
        assert text == translator.tokenizer.detokenize(tf.ragged.constant([target], tf.int32)).numpy()[0]
        assert score == pytest.approx(
            log_probs_by_hand(translator.model, source[0].numpy().tolist(), target).sum(), abs=1e-3
        )
    assert len(set(found["text"][0])) > 5


@pytest.mark.parametrize(("options", "named"), [
    *(({"temperature": value}, "temperature") for value in (0.0, -1.0, 0.001, 1e30, float("nan"), float("inf"))),
    *(({"top_k": value}, "top_k") for value in (-1, -(2**31))),
    *(({"top_p": value}, "top_p") for value in (0.0, -0.1, 1.01, float("nan"))),
    *(({"draws": value}, "draws") for value in (0, -1, 1001, 2**31 - 1)),
    ({"max_length": -1}, "max_length"),
    ({"temperature": float("nan"), "top_p": 2.0, "draws": 0}, "draws temperature top_p"),
])  # fmt: skip
def test_an_option_of_a_sample_that_cannot_be_is_named_in_its_row_and_harms_no_other(service, options, named):
    one, two, three = stand_in.sentences(3)
    beside = [{"text": one, "draws": 3, "seed": 4}, {"text": three, "top_k": 4}]
    found = sampled(service, [beside[0], {"text": two, **options}, beside[1]])
    assert_refused(found["error"], named)
    assert not any(found["text"][1]) and not found["score"][1].any()
    expected = sampled(service, beside)
    assert found["text"][[0, 2]].tolist() == expected["text"].tolist()
    np.testing.assert_allclose(found["score"][[0, 2]], expected["score"], atol=1e-3)


def test_a_sample_has_no_more_sub_words_than_a_translation_may_have(service):
    """At a high temperature nearly all draws go on to the last of them."""
    row = {"text": stand_in.sentences(1)[0], "draws": 3, "temperature": 100.0}
    most = DECODE.max_input + DECODE.extra_length
    long, same, shorter = sampled(service, [{**row, "max_length": number} for number in (2**31 - 1, most, most - 1)])[
        "text"
    ].tolist()
    assert long == same != shorter


def test_no_sentences_have_no_samples_and_inputs_of_other_numbers_are_refused_by_name(service):
    wanted = {"text": (0, 0), "score": (0, 0), "truncated": (0,), "error": (0,)}
    assert {name: value.shape for name, value in sampled(service, []).items()} == wanted
    inputs = {name: tf.constant([value] * 2, SAMPLE_DTYPES[name]) for name, value in SAMPLE_DEFAULTS.items()}
    for name in inputs:
        message = f"{name}: expected one value for each sentence, as many as in .*text"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            service.sample(text=strings(["one", "two"]), **{**inputs, name: inputs[name][:1]})


@pytest.mark.parametrize("name", ["translate_with_options", "sample", "score"])
def test_no_operation_reads_an_input_before_the_numbers_of_values_are_compared(service, name):
    """Otherwise it may fail first, with a message of TensorFlow's own."""
    graph = getattr(service, name).get_concrete_function().graph
    inputs = [operation.outputs[0] for operation in graph.get_operations() if operation.type == "Placeholder"]
    readers = {reader for tensor in inputs if tensor.dtype != tf.resource for reader in tensor.consumers()}
    assert {reader.type for reader in readers} == {"Size", "Identity"}
    for reader in readers:
        expected = (len(graph.structured_input_signature[0]) - 1) * (reader.type == "Identity")
        assert len(reader.control_inputs) == expected


# Phrases


def test_each_request_has_its_own_phrases_and_its_own_order_of_them():
    requests, seen = [Request("a", ["x", "y z"], [], True), Request("b", [], ["v"]), Request("c", ["u"])], {}

    def translate_with_options(**inputs):
        seen.update({name: value.numpy().tolist() for name, value in inputs.items()})
        numbers = tf.constant([[-1.0, -2.0], [-3.0, -4.0], [-5.0, -6.0]])
        found = {"text": tf.strings.as_string(numbers), "score": numbers, "constraints_met": numbers < -3}
        return found | {"error": tf.fill([3], ""), "truncated": tf.constant([False, True, False])}

    own = types.SimpleNamespace(translate_with_options=translate_with_options)
    several, best = (numpy(translate_requests(own, requests, n_best)) for n_best in (2, 0))
    assert seen == {
        "text": [b"a", b"b", b"c"], "alpha": [-1.0] * 3, "max_length": [0] * 3, "n_best": [1] * 3, "prefix": [b""] * 3,
        "alignment": [False] * 3, "constraints": [b"x\ty z", b"", b"u"], "avoid": [b"", b"v", b""],
        "ordered": [True, False, False],
    }  # fmt: skip
    assert several["score"].tolist() == [[-1, -2], [-3, -4], [-5, -6]] and best["score"].tolist() == [-1, -3, -5]
    assert best["constraints_met"].tolist() == [False, False, True]
    assert best["truncated"].tolist() == [False, True, False]


@pytest.mark.medium
def test_sentences_with_constraints_are_searched_with_more_beams_and_others_with_those_of_the_options(service):
    """They give what a search of so many beams gives, and what a search without any constraints."""
    lines = stand_in.sentences(9)
    phrases = ["Euro", "", "zwei\tEuro", "", "", "der 5. Mai", "", "zwei", ""]
    rows = [{"text": line, "n_best": 3, "constraints": own} for line, own in zip(lines, phrases, strict=True)]
    wide = Signatures(stand_in.translator(dataclasses.replace(DECODE, beam_size=CONSTRAINED_BEAMS)))
    together, all_wide = translated(service, rows), translated(wide, rows)
    plain = numpy(service.translator.n_best(strings(lines)))
    differ = 0
    for number, own in enumerate(phrases):
        expected = all_wide if own else plain
        assert together["text"][number].tolist() == expected["text"][number, :3].tolist()
        np.testing.assert_allclose(together["score"][number], expected["score"][number, :3], atol=1e-4)
        differ += own == "" and all_wide["text"][number, :3].tolist() != plain["text"][number].tolist()
    assert differ and together["constraints_met"][np.array(phrases) != ""].all()


def test_phrases_are_in_the_text_or_it_is_said_that_they_could_not_be(service):
    """Of rows side by side: several phrases, one of several words, one twice, in order, too long for the row, none."""
    line, other = stand_in.sentences(2)
    rows = [
        {"constraints": "Euro"}, {"constraints": "Euro\t der 5. Mai \n\n  "}, {"constraints": "zwei\tzwei"},
        {"constraints": "zwei\tEuro", "ordered": True}, {"constraints": "Euro\tzwei", "ordered": True},
        {"constraints": "Euro\n\nzwei", "ordered": True}, {"constraints": "der 5. Mai", "max_length": 2},
        {"constraints": ""}, {"constraints": "½ 😀", "prefix": "x"},
    ]  # fmt: skip
    rows = [{"text": text, "n_best": 3, "alignment": True, **row} for row in rows for text in (line, other)]
    found = translated(service, rows)
    for number, row in enumerate(rows):
        assert found["error"][number] == b""
        best = found["text"][number, 0].decode()
        phrases = list(filter(None, map(str.strip, re.split("[\t\n]", row["constraints"]))))
        there = all(best.count(phrase) >= phrases.count(phrase) for phrase in phrases)
        assert found["constraints_met"][number, 0] == there == (row.get("max_length") != 2)
        if row.get("ordered") and "\n\n" not in row["constraints"]:
            assert best.index(phrases[0]) < best.index(phrases[1])
        alone = translated(service, [row])
        assert_same(row_of(found, number), row_of(alone, 0), 1e-4)
        source, target = (
            ids_of(service, pieces) for pieces in (found["source_pieces"][number], found["pieces"][number, 0])
        )
        log_p = log_probs_by_hand(service.translator.model, source, target).sum()
        assert found["score"][number, 0] == pytest.approx(log_p / ((5 + len(target)) / 6) ** DECODE.alpha, abs=1e-4)
    free = [
        {name: value for name, value in row.items() if name not in ("constraints", "ordered")} for row in rows[14:16]
    ]
    for number, row in enumerate(free):
        assert_same(row_of(found, 14 + number), row_of(translated(service, [row]), 0))
    unordered = translated(service, [{**row, "ordered": False} for row in rows[10:12]])
    for number in range(2):
        assert_same(row_of(found, 10 + number), row_of(unordered, number), 1e-4)


def test_phrases_beyond_the_limit_are_counted_and_not_read(service, monkeypatch):
    """Story: 200 KB of phrases of one sentence took a gigabyte before the request was refused."""
    tokenizer, read = service.translator.tokenizer, []
    words = tokenizer.words
    monkeypatch.setattr(tokenizer, "words", lambda text, *options: read.append(len(text)) or words(text, *options))
    tokens, spelled, number, _ = lexical.read(tokenizer, tf.constant(["a\t" * 1000, "", "b"]))
    assert read == [MAX_PHRASES + 1] and number.numpy().tolist() == [1000, 0, 1]
    assert tokens.shape[:2] == spelled.shape == (3, MAX_PHRASES)


def test_a_joined_phrase_follows_text_without_a_space_and_others_do_not(service):
    tokenizer, [line] = service.translator.tokenizer, stand_in.sentences(1)
    phrases = lexical.read(tokenizer, tf.constant(["<b>\t￭</b>\t￭ü", ""]))[0].numpy().tolist()
    expected = [[each for each in phrase if each] for phrase in phrases[0]]
    assert expected == [
        tokenizer.tokenize([text]).to_list()[0][skip:-1] for text, skip in (("<b>", 0), ("x</b>", 2), ("xü", 2))
    ]
    found = translated(service, [{"text": line, "constraints": "Euro\t￭</b>", "ordered": True, "alignment": True}])
    ids, wanted = ids_of(service, found["pieces"][0, 0]), expected[1]
    assert any(ids[place : place + len(wanted)] == wanted for place in range(len(ids)))
    assert "</b>" in found["text"][0, 0].decode()
    assert found["constraints_met"][0, 0]
    received = [service.fits(phrase, line) for phrase in ("{" * 31, "￭" + "{" * 32, "￭" + "{" * 33, "{" * 33)]
    assert received == [True, True, False, False]


def test_a_blank_sentence_has_no_phrases_and_says_so(service):
    found = translated(service, [{"text": " ", "constraints": "Euro", "n_best": 2}, {"text": "", "n_best": 2}])
    assert not any(found["text"].ravel()) and found["constraints_met"].tolist() == [[False] * 3, [True] * 3]


def test_a_word_that_is_to_be_avoided_is_not_in_the_text(service):
    tokenizer, lines = service.translator.tokenizer, stand_in.sentences(40)
    inside, _ = tokenizer.word_parts

    def contains(target: list[int], word: list[int]) -> bool:
        ends = [at + len(word) for at in range(len(target)) if target[at : at + len(word)] == word]
        return any(not inside[target[end]] for end in ends if end < len(target))

    def targets(rows) -> list[list[int]]:
        return [ids_of(service, pieces) for pieces in translated(service, rows)["pieces"][:, 0]]

    free, rows = targets([{"text": line, "alignment": True} for line in lines]), []
    for line, target in zip(lines, free, strict=True):
        for word in spelled([tokenizer.pieces[index].encode() for index in target]).split():
            ids = tokenizer.tokenize(strings([word]))[0].numpy()[:-1].tolist()
            if contains(target, ids):
                rows.append(({"text": line, "avoid": f"nothing\t{word}", "alignment": True}, target, ids))
    found = targets([row for row, *_ in rows])
    assert len(rows) > 10
    for (row, before, word), after in zip(rows, found, strict=True):
        assert before != after and not contains(after, word)
        text = (
            spelled([tokenizer.pieces[index].encode() for index in after[: after.index(EOS)]]) if EOS in after else ""
        )
        assert not re.search(rf"(?<!\w){re.escape(row['avoid'].split()[1])}(?!\w)", text)


def test_a_word_goes_on_after_one_that_is_avoided(service):
    """Forced to begin with the first sub-words of a long word, which as a word are to be avoided, it goes on."""
    line, tokenizer = stand_in.sentences(1)[0], service.translator.tokenizer
    inside, joined = tokenizer.word_parts
    whole = tokenizer.tokenize(strings(["zweihundertsiebzig"]))[0].numpy()[:-1].tolist()
    part = spelled([tokenizer.pieces[index].encode() for index in whole[:2]])
    assert tokenizer.tokenize(strings([part]))[0].numpy()[:-1].tolist() == whole[:2] and inside[whole[2]]
    assert joined[whole[1]]
    found = translated(service, [{"text": line, "avoid": part, "prefix": "zweihundertsiebzig"}])
    assert found["text"][0, 0].decode().startswith("zweihundertsiebzig")
    # Story: a prefix with what is to be avoided had an empty translation, and no error.
    rows = [{"text": line, "avoid": "zwei", "prefix": "zwei und"}, {"text": line, "avoid": "zwei", "prefix": ""}]
    errors = translated(service, rows)["error"].tolist()
    assert errors == [b"avoid: expected phrases that are not in the prefix.", b""]


@pytest.mark.parametrize("name", ["constraints", "avoid"], ids=str)
@pytest.mark.parametrize(("phrases", "expected"), [
    ("\t".join(["x"] * 33), "{}: expected at most 32 phrases. Received: 33. "),
    ("x" + 40 * " x", "{}: expected phrases of at most 32 sub-words. Received: 33. "),
    ("\t".join(["x"] * 32), ""),
])  # fmt: skip
def test_too_many_or_too_long_phrases_are_refused_in_their_row(service, name, phrases, expected):
    line = stand_in.sentences(1)[0]
    found = translated(service, [{"text": line, name: phrases}, {"text": line}])
    assert [error.decode() for error in found["error"]] == [expected.format(name), ""]
    assert (found["text"][0, 0] == b"") == bool(expected)
    assert_same(row_of(found, 1), row_of(translated(service, [{"text": line}]), 0))


@pytest.mark.medium
def test_phrases_are_refused_in_their_row_where_the_model_has_groups_of_beams(translator):
    grouped = dataclasses.replace(DECODE, beam_size=4, diverse_groups=2)
    service, line = Signatures(Translator(translator.model, translator.tokenizer, grouped)), stand_in.sentences(1)[0]
    found = translated(
        service,
        [{"text": line, "constraints": "Euro"}, {"text": line, "avoid": "Euro"}, {"text": line, "constraints": "￭"}],
    )
    refused = b"constraints: expected none with several groups of beams. Received: 1. "
    assert found["error"].tolist() == [refused, b"", b""], "a joiner alone is a blank phrase"
    assert [text != b"" for text in found["text"][:, 0]] == [False, True, True]


def test_alignments_are_computed_within_the_budget_of_both_sides(service, monkeypatch):
    """Of a translation of 2 sub-words of a source of 3, and the second one of a source of 5, with 4."""
    found = []

    def in_sub_batches(align, rows, lengths, *, max_rows, max_tokens, outputs):
        found.extend([lengths.numpy().tolist(), max_rows, max_tokens])
        raise InterruptedError

    monkeypatch.setattr(signatures, "in_sub_batches", in_sub_batches)
    beam_size, limits = service.translator.config.beam_size, service.translator.limits
    source, sequences = tf.ragged.constant([[7, 8, EOS], [7, 8, 9, 5, EOS]]), [[] for _ in range(2 * beam_size)]
    sequences[0], sequences[beam_size + 1] = [7, EOS], [8, 9, 7, EOS]
    absent = np.ones((2, beam_size), bool)
    absent[0, 0] = absent[1, 1] = False
    with pytest.raises(InterruptedError):
        service._aligned(
            source, tf.ragged.constant(sequences, tf.int32), tf.constant([True, True]), tf.constant(absent)
        )
    assert found == [[3 + 2, 5 + 4], limits.rows, limits.scored_tokens]


def test_searches_of_sub_batches_do_not_wait_for_each_other(service):
    """Story: words to avoid were looked for by an operation with a state, and requests took 1.6 times as long."""
    graph = service.translate_with_options.get_concrete_function().graph.as_graph_def()
    loops = [node.op for function in graph.library.function for node in function.node_def if node.op.endswith("While")]
    loops += [node.op for node in graph.node if node.op.endswith("While")]
    assert "StatelessWhile" in loops
    bodies = {node.attr["body"].func.name for node in graph.node if node.op == "While"}
    functions = {function.signature.name: function for function in graph.library.function}
    assert not [node.name for body in bodies for node in functions[body].node_def if node.op == "While"]


def test_sub_words_that_go_on_with_a_word(translator):
    """▁ begins a word, and no word goes on after a full stop or in a script without spaces."""
    pieces = ("<pad>", "<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)))
    pieces += ("▁", "▁a", "b", "ß", "5", ".", "▁a.", ".b", "猫", "́")
    pieces += tuple("のカกກកကཀ")  # Of Hiragana, Katakana, Thai, Lao, Khmer, Myanmar and Tibetan.
    stand_in_for = type("Pieces", (), {"pieces": pieces})()
    inside, joined = type(translator.tokenizer).word_parts.func(stand_in_for)
    expected = {
        "▁": "", "▁a": "joined", "b": "inside joined", "ß": "inside joined", "5": "inside joined", ".": "", "▁a.": "",
        ".b": "joined", "猫": "", "\u0301": "inside joined", "</s>": "", "<0x2E>": "", "<0x41>": "inside joined",
        "<0xE4>": "inside joined", **dict.fromkeys("のカกກកကཀ", ""),
    }  # fmt: skip
    for piece, words in expected.items():
        index = pieces.index(piece)
        assert (inside[index], joined[index]) == ("inside" in words, "joined" in words), piece
