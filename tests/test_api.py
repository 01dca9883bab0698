"""The front door for Python users: names that load lazily, training by keywords, and translating with a run or an
export.
"""

import copy
import gc
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
import types

import keras
import numpy as np
import pytest
import stand_in
import tensorflow as tf
import toy
from logged import logged

import t2t_keras
from t2t_keras import api
from t2t_keras.decoding import loading
from t2t_keras.decoding.search_hooks import BEST
from t2t_keras.decoding.trained_model import TrainedModel
from t2t_keras.runs import registry
from t2t_keras.serving import loaded
from t2t_keras.serving.line_translation import LineTranslation, LineTranslator
from t2t_keras.serving.protocol import Translation
from t2t_keras.serving.requests import predictor
from t2t_keras.serving.saved_export import SavedExport
from t2t_keras.text.spelling import spelled
from t2t_keras.text.terminology import Terms
from t2t_keras.training import loop
from t2t_keras.training import run as training_run

ROOT = pathlib.Path(__file__).parent.parent
OPTIONS = {
    **{"dataset": "builtin", "builtin_pairs": 600, "vocab_size": 340, "encoder_layers": 1, "decoder_layers": 2,
       "d_model": 8, "d_ff": 16},
    **{"num_heads": 2, "d_k": 4, "d_v": 4, "warmup_steps": 10, "batch_tokens": 400, "train_steps": 4, "valid_steps": 4,
       "beam_size": 3},
    **{"valid_sentences": 0, "best_metric": "loss", "checkpoint_steps": 2, "extra_length": 3},
}  # fmt: skip
TEXTS = ["twenty-one", "", "one hundred and two", "😀 ▁ <s>"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> t2t_keras.Run:
    return t2t_keras.train(tmp_path_factory.mktemp("runs") / "small", **OPTIONS)


@pytest.fixture(scope="module")
def translator(run) -> t2t_keras.TextTranslator:
    return t2t_keras.load(run.model_dir)


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory) -> pathlib.Path:
    return run.export(tmp_path_factory.mktemp("exports"))


def test_importing_the_package_is_fast_and_imports_neither_tensorflow_nor_keras():
    program = """
import sys, time
started = time.perf_counter()
import t2t_keras
seconds = time.perf_counter() - started
t2t_keras.ModelConfig
print(seconds, sorted({"tensorflow", "keras", "numpy", "absl"} & set(sys.modules)))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, check=True)
    seconds, _, found = result.stdout.decode().partition(" ")
    assert found.strip() == "[]" and float(seconds) < 0.3


def said_in_python(code: str, **environment) -> list[str]:
    """Lines on stderr of a process of its own, as TensorFlow writes to it before Python can intervene."""
    kept = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    environment = {**kept, "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stderr.splitlines()


@pytest.mark.medium
def test_loading_and_translating_in_python_prints_nothing_and_imports_nothing_that_trains_or_serves():
    """Story: twelve lines of CUDA and oneDNN came first."""
    code = f"""
import os, sys, t2t_keras
assert t2t_keras.load({str(ROOT / "tests/data/run_1")!r}).translate(["one"])
wings = ("t2t_keras.training.", "t2t_keras.data.", "tensorflow_serving.", "tensorflow_datasets.")
os.write(2, b"own %r\\n" % [name for name in sys.modules if f"{{name}}.".startswith(wings)])
"""
    assert said_in_python(code) == ["own []"]
    asked = said_in_python("import t2t_keras\nt2t_keras.EncoderLayer", TF_CPP_MIN_LOG_LEVEL="0")
    assert any("All log messages before absl::InitializeLog" in line for line in asked)


def test_what_hides_messages_may_be_nested_and_run_in_threads_and_without_stderr():
    code = """
import concurrent.futures, os, time
from t2t_keras.system.native_messages import without_noise
noise = b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\\n"
def write(number):
    with without_noise():
        with without_noise():
            os.write(2, noise)
        time.sleep(0.01 * number)
        os.write(2, noise + b"line\\n")
with without_noise(), concurrent.futures.ThreadPoolExecutor(4) as pool:
    list(pool.map(write, range(8)))
os.write(2, b"end\\n")
os.close(2)
with without_noise():
    print("still running")
"""
    assert said_in_python(code) == ["line"] * 8 + ["end"]


@pytest.mark.parametrize("level", ["3", "0"])
def test_an_interactive_session_hears_tensorflow_s_warnings_and_no_remarks_unless_it_asks(monkeypatch, level):
    """Story: in a notebook, TensorFlow wrote the folder of an unfinished export and tracebacks of threads to stdout."""
    from t2t_keras.serving import savedmodel
    from t2t_keras.training import run as training_run

    run, messages, tensorflow = t2t_keras.Run(ROOT / "tests/data/run_1"), [], tf.get_logger()

    def work(*args, **options):
        tensorflow.info("remark")
        tensorflow.warning("warning")
        raise LookupError

    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
    monkeypatch.setattr(tensorflow, "isEnabledFor", lambda level: True)  # As TensorFlow sets it in such a session.
    monkeypatch.setattr(
        tensorflow, "handlers", [types.SimpleNamespace(level=0, handle=lambda record: messages.append(record.msg))]
    )
    monkeypatch.setattr(training_run, "train", work)
    monkeypatch.setattr(savedmodel, "export_run", work)
    monkeypatch.setattr(api.loaded_models, "load", work)
    for each in (run.load, lambda: run.export("exports"), lambda: t2t_keras.train(run.model_dir)):
        with pytest.raises(LookupError):
            each()
    own = [message for message in messages if not message.startswith("Using MirroredStrategy")]
    assert own == ["remark", "warning"] * 3 if level == "0" else messages == ["warning"] * 3


def test_exporting_in_python_hides_what_native_code_says_of_every_model(monkeypatch, capfd):
    """Story: TF.Text's line about its normalizer, in notebooks twice."""
    from t2t_keras.serving import savedmodel

    noise = b"normalizer.cc(51) LOG(INFO) precompiled_charsmap is empty. use identity normalization.\n"
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setattr(savedmodel, "export_run", lambda *args: os.write(2, noise + b"line\n"))
    t2t_keras.Run(ROOT / "tests/data/run_1").export("exports")
    assert capfd.readouterr().err == "line\n"


def test_every_public_name_is_there_and_listed():
    assert {"load", "train", "Transformer", "ModelConfig", "MultiHeadAttention", "LabelSmoothedCrossEntropy"} <= set(
        t2t_keras.__all__
    )
    assert set(t2t_keras.__all__) <= set(dir(t2t_keras))
    assert all(getattr(t2t_keras, name).__name__ == name for name in t2t_keras.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Transfomer'"):
        t2t_keras.Transfomer  # noqa: B018


@pytest.mark.medium
def test_a_sentence_gives_a_sentence_and_a_list_a_list(translator, run):
    graph = loading.load(run.model_dir)
    expected = [text.decode(errors="replace").replace("\n", " ") for text in graph(TEXTS)["text"].numpy()]
    assert translator.translate(TEXTS) == expected
    assert translator.translate(tuple(TEXTS), batch_size=1) == expected
    assert translator.translate(TEXTS[0]) == expected[0]
    assert translator.translate([]) == []


def test_a_line_end_within_a_sentence_counts_as_a_space(translator):
    assert translator.translate("one\ntwo") == translator.translate("one two")


@pytest.mark.parametrize("wrong", [7, None, b"one", ["one", None]])
def test_what_is_no_text_is_refused(translator, wrong):
    with pytest.raises(TypeError, match="^Expected a sentence or a list of sentences. Received: "):
        translator.translate(wrong)


def test_half_of_a_surrogate_pair_is_refused(translator):
    message = r"^Expected characters of Unicode. Received: half of a surrogate pair in 'two .ud83d'.$"
    methods = translator.translate, translator.n_best, translator.sample
    for use in (*methods, lambda texts: translator.score(["one", "two"], texts)):
        with pytest.raises(ValueError, match=message):
            use(["one", "two \ud83d"])
    with pytest.raises(ValueError, match="half of a surrogate pair in '.udc00'"):
        translator.n_best("one", prefix="\udc00")


@pytest.mark.medium
def test_the_n_best_are_best_first_and_have_their_sub_words(translator, run):
    found = translator.n_best(TEXTS, n=3)
    translator_of_tensors = loading.load(run.model_dir)
    graph = translator_of_tensors.n_best(TEXTS)
    for row, translations in enumerate(found):
        expected = {}  # Of the same text in other sub-words, the first is the best.
        for text, score in zip(graph["text"][row].numpy(), graph["score"][row].numpy(), strict=True):
            expected.setdefault(text.decode(errors="replace"), score)
        received = {translation.text: translation.score for translation in translations}
        assert received == pytest.approx(expected, abs=1e-5) and len(received) == len(translations)
        assert list(received) == list(expected)
    assert [each.text for each in found[0]] == [each.text for each in translator.n_best(TEXTS[0], n=3)]
    best = found[0][0]
    assert found[1][0].text == "" and best.pieces == best.source_pieces == () and best.alignment is None


def test_the_scores_of_words_add_up_to_that_of_the_sentence(run, translator):
    texts = ["one hundred and two", "", "twenty-one"]
    rows = translator.n_best(texts, n=2, word_scores=True)
    plain = translator.n_best(texts, n=2)
    assert [[each.text for each in row] for row in rows] == [[each.text for each in row] for row in plain]
    assert any(each.text and "\ufffd" not in each.text for row in rows for each in row)
    for text, row in zip(texts, rows, strict=True):
        for each in row:
            if "\ufffd" in each.text:  # Of bytes that are no UTF-8.
                assert (each.words, each.word_scores, each.piece_scores) == ((), (), ())
                continue
            assert " ".join(each.words) == each.text and len(each.words) == len(each.word_scores)
            if text:
                assert sum(each.piece_scores) == pytest.approx(translator.score(text, each.text), abs=1e-3)
                assert sum(each.word_scores) + each.piece_scores[-1] == pytest.approx(sum(each.piece_scores), abs=1e-4)
                assert b"".join(spelled(each.pieces)).decode().strip() == each.text
                assert len(each.pieces) == len(each.piece_scores)
    [blank] = {(each.words, each.pieces, each.piece_scores) for each in rows[1]}
    assert blank == ((), (), ())
    # As JSON lines, of the best alone and of a list.
    lines = [json.dumps({"text": text, "id": number}) for number, text in enumerate(texts)]
    for n_best in (0, 2):
        asked = LineTranslation(TrainedModel.open([run.model_dir]), jsonl=True, n_best=n_best, word_scores=True)
        results = list(LineTranslator(asked, Terms({}), translator._model).results(lines, pytest.fail))
        for row, result in zip(rows, results, strict=True):
            for name in ("words", "word_scores", "pieces", "piece_scores"):
                expected = [list(getattr(each, name)) for each in row]
                for found, values in zip(result[name] if n_best else [result[name]], expected, strict=False):
                    assert found == (pytest.approx(values, abs=1e-4) if name.endswith("scores") else values)


def test_an_alignment_has_a_row_for_each_sub_word_that_sums_to_one(translator):
    best, *_ = translator.n_best("one hundred", n=2, alignment=True)
    assert best.pieces  # Those of an untrained model need not end in </s>.
    assert "".join(best.source_pieces).replace("▁", " ").strip() == "one hundred</s>"
    assert best.alignment.shape == (len(best.pieces), len(best.source_pieces))
    np.testing.assert_allclose(best.alignment.sum(axis=1), 1, atol=1e-5)


class Signatures:
    """Two sentences and two translations of each, of unequal lengths: no two of their figures are the same. Four words
    are read.
    """

    config = types.SimpleNamespace(beam_size=4)

    @staticmethod
    def reads(text):
        return len(text.split(" ")) <= 4

    @staticmethod
    def translate_with_options(**inputs):
        Signatures.inputs = {name: value.numpy().tolist() for name, value in inputs.items()}
        return {
            "text": tf.constant([[b"a\xff", "b"], ["c", "d\ne"]]),  # The first sub-word of it is a byte.
            "score": tf.constant([[-1.0, -2.0], [-3.0, -4.0]]),
            "pieces": tf.constant(
                [[["▁a", b"\xff", "</s>"], ["▁b", "</s>", ""]], [["▁c", "", ""], ["▁d", "</s>", ""]]]
            ),
            "source_pieces": tf.constant([["▁1", ""], ["▁2", "</s>"]]),
            "alignment": tf.reshape(tf.range(24.0), [2, 2, 3, 2]),
            "error": tf.constant(["", ""]),
            "constraints_met": tf.constant([[True, False], [False, True]]),
            "truncated": tf.constant([False, True]),
        }


def test_terms_are_those_of_text_that_the_model_reads_and_does_not_copy(monkeypatch):
    translator, seen = api.TextTranslator(Signatures, languages=["en"], pattern=r"\{\w+\}"), []

    def translate_with_terms(model, requests, n, **options):
        seen.extend(request.required for request in requests)
        return [[Translation("", 0.0)] for _ in requests]

    monkeypatch.setattr(api, "translate_with_terms", translate_with_terms)
    translator.n_best(["a {name} <b> name", "a b c d <b> name"], keep_patterns="tags", terms={"name": "nom"})
    assert seen == [["<b>", "nom"], []]
    translator.n_best(["a b c name"], source_language="en", terms={"name": "nom"})
    assert seen[2:] == [["nom"]]


def test_each_of_the_n_best_of_each_sentence_has_its_own_text_score_sub_words_and_alignment():
    stand_in = api.TextTranslator(Signatures)
    phrases = {"constraints": [["x", "y z"], []], "avoid": [[], ["v"]], "ordered": True}
    with logged() as messages:
        found = stand_in.n_best(
            ["1", "{2}{3}"], n=2, alpha=0.25, prefix="p", alignment=True, keep_patterns="braces,/1/", **phrases
        )
    assert Signatures.inputs == {
        "text": [b"1", b"{2}{3}"], "alpha": [0.25] * 2, "max_length": [0] * 2, "n_best": [2] * 2, "prefix": [b"p"] * 2,
        "alignment": [True] * 2, "constraints": [b"x\ty z\n\n1", "\n\n{2}\t￭{3}".encode()], "avoid": [b"", b"v"],
        "ordered": [True] * 2,
    }  # fmt: skip
    assert [[each.constraints_met for each in row] for row in found] == [[True, False], [False, True]]
    assert [[each.truncated for each in row] for row in found] == [[False, False], [True, True]]
    assert messages == ["Sentence 2: truncated to the limits of the model (`max_input`, `extra_length`)."]
    expected = [("a\ufffd", -1, "▁a \ufffd </s>", "▁1", [[0], [2], [4]]), ("b", -2, "▁b </s>", "▁1", [[6], [8]])]
    expected += [("c", -3, "▁c", "▁2 </s>", [[12, 13]]), ("d e", -4, "▁d </s>", "▁2 </s>", [[18, 19], [20, 21]])]
    assert [
        (each.text, each.score, " ".join(each.pieces), " ".join(each.source_pieces), each.alignment.tolist())
        for each in sum(found, [])
    ] == expected


def test_the_number_of_translations_may_be_one_of_numpy():
    """Story: the signature was given an int64, which it does not take."""
    seen = []

    def translate_with_options(text, n_best, ordered, **options):
        seen.append((n_best.dtype, ordered.dtype))
        return Signatures.translate_with_options(text=text, n_best=n_best, ordered=ordered, **options)

    run = types.SimpleNamespace(translate_with_options=translate_with_options)
    found = api.TextTranslator(run).n_best(["a", "b"], n=np.int64(2), ordered=np.True_)
    assert seen == [(tf.int32, tf.bool)] and list(map(len, found)) == [2, 2]


def test_a_tag_is_no_text_to_keep_and_a_prefix_is_one_line():
    """Story: the tag of the source was demanded in the translation."""
    stand_in = api.TextTranslator(Signatures, tags=["<de>", ""])
    stand_in.n_best(["<de> a <b>", "<fr> c"], n=2, keep_patterns="tags", prefix="p\nq")
    assert Signatures.inputs["constraints"] == [b"<b>", b"<fr>"] and Signatures.inputs["prefix"] == [b"p q"] * 2
    with pytest.raises(ValueError, match="Expected `alpha` of 0 to 10, or None for the model's. Received: -1."):
        stand_in.n_best("a", n=1, alpha=-1)
    for wrong, expected in (
        ({"n": 2.0}, "`n` must be an int. Received: n=2.0."),
        ({"n": True}, "`n` must be an int. Received: n=True."),
        ({"prefix": ["p", "q"]}, "`prefix` must be one text for all sentences. Received: prefix="),
        ({"ordered": 1}, "`ordered` must be true or false. Received: ordered=1."),
    ):
        with pytest.raises(TypeError, match=expected):
            stand_in.n_best(["a", "b"], **{"n": 2, **wrong})


def test_terms_of_a_mapping_and_of_a_file_replace_what_is_aligned_with_them(tmp_path):
    """The best translation of "a man" is "un homme", which is aligned with it; the second search forbids the word."""
    calls = []

    def translate_with_options(text, alignment, constraints, avoid, **options):
        calls.append([values.numpy().tolist() for values in (text, alignment, constraints, avoid)])
        written = tf.where(constraints == "", "un homme", "un monsieur")[:, None]
        weights = tf.constant([[[[0.6, 0.1, 0.3], [0.1, 0.8, 0.1], [0.0, 0.0, 1.0]]]])
        return {
            "text": written, "score": tf.zeros(written.shape), "error": tf.fill(tf.shape(text), ""),
            "truncated": tf.fill(tf.shape(text), False), "constraints_met": tf.fill(written.shape, True),
            "source_pieces": tf.tile([["▁a", "▁man", "</s>"]], [len(text), 1]),
            "pieces": tf.tile([[["▁un", "▁homme", "</s>"]]], [len(text), 1, 1]),
            "alignment": tf.tile(weights, [len(text), 1, 1, 1]),
        }  # fmt: skip

    def score(source, target):
        return {"pieces": tf.fill([len(target), 1], "</s>"), "token_log_probs": tf.fill([len(target), 1], -1.0)}

    config, limits = types.SimpleNamespace(beam_size=1), {"fits": None, "reads": Signatures.reads}
    model = types.SimpleNamespace(translate_with_options=translate_with_options, score=score, config=config, **limits)
    translator = api.TextTranslator(model)
    (tmp_path / "terms.tsv").write_text("man\tmonsieur\tgars\n")
    for terms in ({"man": ["monsieur", "gars"]}, str(tmp_path / "terms.tsv"), tmp_path / "terms.tsv"):
        calls.clear()
        found = translator.n_best(["a man", "two"], n=1, terms=terms)
        assert [[each.text for each in row] for row in found] == [["un monsieur"], ["un homme"]]
        forms = b"gars\tGars\thomme\tHomme"
        assert calls == [
            [[b"a man"], [True], [b""], [b""]],
            [[b"a man", b"two"], [False] * 2, [b"monsieur", b""], [forms, b""]],
        ]
    [best] = translator.n_best("a man", n=1, terms={"man": "monsieur"}, alignment=True)
    assert best.pieces == ("▁un", "▁homme", "</s>") and best.alignment.shape == (3, 3)
    for terms in ({"man": []}, {"man": " "}):
        with pytest.raises(ValueError, match="terms: expected "):
            translator.n_best("a", n=1, terms=terms)


def test_sentences_of_each_batch_have_their_own_phrases():
    seen = []

    class Phrases:
        @staticmethod
        def translate_with_options(text, constraints, avoid, **options):
            seen.extend(zip(text.numpy().tolist(), constraints.numpy().tolist(), avoid.numpy().tolist(), strict=True))
            found = {
                name: tf.fill([len(text), 1], value)
                for name, value in (("text", ""), ("score", 0.0), ("constraints_met", True))
            }
            pieces = {"pieces": tf.fill([len(text), 1, 1], ""), "source_pieces": tf.fill([len(text), 1], "")}
            return found | pieces | {"error": tf.fill([len(text)], ""), "truncated": text == "3"}

    texts = ["1", "2", "3"]
    phrases = {"constraints": [["a"], [], ["b", "c"]], "avoid": [[], ["d"], ["e"]]}
    with logged() as messages:
        assert len(api.TextTranslator(Phrases).n_best(texts, n=1, batch_size=2, **phrases)) == 3
    assert [message.partition(":")[0] for message in messages] == ["Sentence 3"]
    assert seen == [(b"1", b"a", b""), (b"2", b"", b"d"), (b"3", b"b\tc", b"e")]
    own = {name: iter(rows) for name, rows in phrases.items()}
    assert len(api.TextTranslator(Phrases).n_best(iter(texts), n=1, **own)) == 3
    assert seen[3:] == seen[:3]


def test_text_to_keep_that_is_too_long_is_left_out_and_named():
    run = types.SimpleNamespace(
        translate_with_options=Signatures.translate_with_options,
        fits=lambda phrase, line: phrase.endswith("y") and line[0] == "x",
        reads=Signatures.reads,
    )
    with logged() as messages:
        api.TextTranslator(run).n_best(
            ["1", 40 * "x" + " " + 40 * "y"], n=2, keep_patterns="/x{40}/,/y{40}/", constraints=[["a"], []]
        )
    assert Signatures.inputs["constraints"] == [b"a", 40 * b"y"]
    left_out, truncated = messages  # The stand-in's second sentence is always truncated.
    assert left_out == f"Line 2: expected at most 32 phrases of at most 32 sub-words. Left out: {40 * 'x'}"
    assert truncated.startswith("Sentence 2: ")


def test_a_line_that_begins_with_a_language_keeps_it():
    codes = ["eng_Latn", "fra_Latn"]
    translator = api.TextTranslator(Signatures, 64, codes)
    translator.n_best(
        ["a", ">>fra_Latn<<b"], n=2, source_language="eng_Latn", target_language="fra_Latn", prefix=">>eng_Latn<< c"
    )
    assert Signatures.inputs["text"] == [b">>eng_Latn<<a", b">>fra_Latn<<b"]
    assert Signatures.inputs["prefix"] == [b">>eng_Latn<< c"] * 2
    assert Signatures.inputs["ordered"] == [False] * 2
    # Of another language, and of none.
    translator.n_best([">>xyz_Latn<<a", "fra_Latn"], n=2, source_language="eng_Latn")
    assert Signatures.inputs["text"] == [b">>eng_Latn<<>>xyz_Latn<<a", b">>eng_Latn<<fra_Latn"]
    assert Signatures.inputs["prefix"] == [b""] * 2


def test_what_a_model_refuses_in_a_language_is_raised_with_its_sentence():
    class Refusing:
        @staticmethod
        def translate_with_options(text, **options):
            return {"text": tf.fill([2, 1], ""), "error": tf.constant(["", "prefix: expected fewer sub-words. "])}

    with pytest.raises(ValueError, match="prefix: expected fewer sub-words. The sentence is: 'b'"):
        api.TextTranslator(Refusing, 64, ["fra_Latn"]).translate(["a", "b"], target_language="fra_Latn")
    with pytest.raises(ValueError, match="Expected a multilingual model for the language 'fra_Latn'. Received: a"):
        api.TextTranslator(Refusing).translate(["a", "b"], target_language="fra_Latn")


@pytest.mark.parametrize("phrases", ["xy", [["x"]], [["x"], ["y"], ["z"]]])
@pytest.mark.parametrize("name", ["constraints", "avoid"])
def test_each_sentence_of_a_list_needs_a_list_of_phrases(name, phrases):
    with pytest.raises(ValueError, match=f"{name}: expected a list of phrases for each of 2 sentences"):
        api.TextTranslator(Signatures).n_best(["1", "2"], n=2, **{name: phrases})


def test_so_many_sentences_are_translated_at_once_as_were_asked_for_or_as_the_model_has_room_for():
    sizes = []

    def translate(text):
        sizes.append(len(text))
        return {"text": tf.strings.upper(text), "truncated": text == "e"}

    def sample(text, **options):
        sizes.append(len(text))
        return {
            "text": tf.strings.upper(text)[:, None],
            "score": tf.zeros([len(text), 1]),
            "error": tf.fill(len(text), ""),
            "truncated": text == "e",
        }

    class Model:
        def __init__(self):
            self.sample = sample

        def __call__(self, text):
            return translate(text)

    translator = api.TextTranslator(Model(), 3)
    with logged() as messages:
        for options in ({}, {"batch_size": 4}):
            assert translator.translate(list("abcdefg"), **options) == list("ABCDEFG")
        for options in ({}, {"batch_size": 4}):
            assert [each.text for [each] in translator.sample(list("abcdefg"), **options)] == list("ABCDEFG")
    assert messages == ["Sentence 5: truncated to the limits of the model (`max_input`, `extra_length`)."] * 4
    assert sizes == [3, 3, 1, 4, 3] * 2


def test_pairs_are_scored_in_their_order_so_many_at_once():
    sizes = []

    class Scores:
        @staticmethod
        def score(source, target):
            sizes.append(len(source))
            numbers = tf.strings.to_number(source)
            return {"log_prob": -10.0 * numbers - tf.strings.to_number(target), "truncated": numbers > 2}

    scored = api.TextTranslator(Scores)
    with logged() as messages:
        assert scored.score(list("12345"), list("67890"), batch_size=2) == [-16, -27, -38, -49, -50]
    assert sizes == [2, 2, 1]
    assert messages == [
        f"Sentence {numbers}: truncated to the limits of the model (`max_input`, `extra_length`)."
        for numbers in ("3, 4", "5")
    ]
    assert scored.score("3", "4") == -34
    sizes.clear()
    scored.score(["1"] * 33, ["2"] * 33)
    assert sizes == [32, 1]


@pytest.mark.parametrize(
    ("pair", "received"),
    [
        ((["one", "two"], ["eins"]), "a list of 2 as source, a list of 1 as target."),
        (("one", ["eins"]), "a sentence as source, a list of 1 as target."),
        ((["one"], "eins"), "a list of 1 as source, a sentence as target."),
    ],
)
def test_what_is_no_pair_of_sentences_or_of_lists_has_no_score(pair, received):
    """Story: a sentence and a list of one were "1 sources and 1 targets", of which one was expected for each."""
    with pytest.raises(ValueError, match=f"^Expected a sentence as source and one as target.* Received: {received}$"):
        api.TextTranslator(None).score(*pair)


@pytest.mark.parametrize("wrong", [-1, 2.5, "4", None])
def test_a_batch_size_that_is_none_is_refused(wrong):
    """Story: -1 was an IndexError, and "4" a TypeError of range."""
    translator = api.TextTranslator(Signatures, 16)
    calls = {
        16: [translator.translate, translator.sample],
        32: [translator.n_best, lambda text, batch_size: translator.score(text, text, batch_size)],
    }
    for chosen, methods in calls.items():
        message = f"Expected `batch_size` to be a whole number, 0 or more; 0 means {chosen}. Received: {wrong!r}."
        for method in methods:
            with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
                method("one", batch_size=wrong)


def test_a_run_passes_on_what_was_asked_for(tmp_path, monkeypatch, messages):
    given = []
    monkeypatch.setattr(
        loading, "load", lambda *arguments, **options: given.append((*arguments, options)) or "a translator"
    )
    monkeypatch.setattr(
        "t2t_keras.evaluation.evaluate.evaluate", lambda *arguments, **options: ([], (*arguments, options))
    )
    monkeypatch.setattr("t2t_keras.serving.savedmodel.export_run", lambda folder, model: (folder, model.arguments))
    monkeypatch.setattr(
        api.TrainedModel,
        "open",
        lambda *arguments, **options: types.SimpleNamespace(tags=["<a>"], arguments=(*arguments, options)),
    )
    monkeypatch.setattr(api, "of_model", lambda model, **hooks: model.arguments)
    monkeypatch.setenv("HOME", str(tmp_path))
    run = t2t_keras.Run(tmp_path)
    counted = {"lowercase": True, "tokenize": "char"}
    found = run.evaluate(("a",), ("b",), ("c",), checkpoint=7, **counted)
    assert found == ("a translator", ["a"], ["b"], ["c"], counted)
    plain = {"lowercase": False, "tokenize": "13a"}
    assert run.evaluate("a a", "b b") == ("a translator", ["a a"], ["b b"], plain)
    # Story: the tag alone was translated, and sentences without a tag were scored without a word.
    assert run.evaluate(["<a> a", "<a>"], ["b", ""]) == ("a translator", ["<a> a", ""], ["b", ""], plain)
    assert [message.split(":")[0] for message in messages] == ["Sentence 1"] * 2
    assert given == [(tmp_path, "7", {}), (tmp_path, "average", {})]
    assert run.export("~/out", "best", int8=True) == (tmp_path / "out", (tmp_path, "best", {"int8": True}))
    assert run.load("best", int8=True) == (tmp_path, "best", {"int8": True})
    assert t2t_keras.load(tmp_path, "best", int8=True) == ([tmp_path], {"checkpoint": "best", "int8": True})
    found = t2t_keras.load(["~/a", tmp_path / "b"], 7, beam_size=2)
    assert found == ([tmp_path / "a", tmp_path / "b"], {"checkpoint": "7", "beam_size": 2})


def test_options_of_the_n_best_have_their_effects(translator):
    forced = translator.n_best("one", n=2, prefix="zwei")
    assert all(each.text.startswith("zwei") for each in forced)
    plain, other = translator.n_best("one", n=1), translator.n_best("one", n=1, alpha=0.0)
    assert plain[0].score != other[0].score
    for option, named in (
        ({"n": 4}, "expected 1 to 3, the beam size. Received: 4"),
        ({"n": 1, "alpha": -3.0}, "alpha"),
        ({"n": 0}, "n_best"),
    ):
        with pytest.raises(ValueError, match=named):
            translator.n_best("one", **option)


@pytest.mark.medium
def test_samples_of_a_sentence_and_of_a_list(translator):
    options = {"draws": 3, "seed": 5, "temperature": 0.7, "top_k": 9, "top_p": 0.95}
    several = translator.sample(TEXTS, **options)
    assert [len(row) for row in several] == [3] * len(TEXTS)
    given = translator.sample(TEXTS[::-1], seeds=[5 * 2**32 + place for place in range(len(TEXTS))][::-1], **options)
    first = [translator.sample(TEXTS[0], **options), *several[1:]]
    for again in (translator.sample(tuple(TEXTS), batch_size=1, **options), given[::-1], first):
        assert [[each.text for each in row] for row in again] == [[each.text for each in row] for row in several]
        np.testing.assert_allclose(
            [each.score for row in again for each in row], [each.score for row in several for each in row], atol=1e-3
        )
    assert [each.text for each in several[1]] == [""] * 3 and all(each.score < 0 for each in several[0])
    assert translator.sample([]) == [] and len(translator.sample("one")) == 1
    for wrong, named in (
        ({"top_p": 0.0}, "top_p=0.0"),
        ({"seeds": [1, 2]}, "Received: 2 seeds and 1 sentences"),
        ({"draws": 0}, "draws=0"),
    ):
        with pytest.raises(ValueError, match=named):
            translator.sample("one", **wrong)
    with pytest.raises(TypeError, match="^Unknown option beam_size. Expected one of draws, seed, "):
        translator.sample("one", beam_size=2)


def test_an_unknown_option_is_named_with_those_that_it_may_stand_for(run):
    """Story: "DecodeConfig.__init__() got an unexpected keyword argument"."""
    with pytest.raises(TypeError, match="^Unknown option beamsize. Did you mean beam_size"):
        t2t_keras.load(run.model_dir, beamsize=2)
    with pytest.raises(TypeError, match="^Unknown option xyz. Expected one of alpha, .*beam_size.*dtype"):
        t2t_keras.load(run.model_dir, xyz=2)


def test_many_models_in_a_process_cause_no_warnings_of_retracing_as_functions_of_the_user_do(monkeypatch):
    """Story: the fifth model that was loaded brought TensorFlow's advice to define functions outside of loops."""
    messages = []
    monkeypatch.setattr(tf.get_logger(), "handlers", [types.SimpleNamespace(level=0, handle=messages.append)])

    class Model:
        @tf.function
        def __call__(self, text):
            return {"text": text, "truncated": text == ""}

        @tf.function
        def score(self, source, target):
            return {"log_prob": tf.strings.length(source), "truncated": source == ""}

    served = [predictor(Model()) for _ in range(7)]
    assert [predict("score", {"source": ["a"], "target": ["b"]})["log_prob"] for predict in served] == [1] * 7
    models = [api.TextTranslator(Model()) for _ in range(7)]
    assert [model.translate("a") for model in models] == ["a"] * 7
    assert [model.score("a", "b") for model in models] == [1] * 7
    assert not messages
    for _ in range(7):
        tf.function(lambda: 1)()
    assert messages


def test_each_option_of_a_sample_reaches_its_input():
    class Samples:
        @staticmethod
        def sample(**inputs):
            Samples.inputs = {name: value.numpy().tolist() for name, value in inputs.items()}
            return {
                "text": tf.constant([["a", b"\xff"], ["c", "d\r\ne"]]),
                "score": tf.constant([[-1.0, -2.0], [-3.0, -4.0]]),
                "error": tf.fill([2], ""),
                "truncated": tf.constant([False, True]),
            }

    with logged() as messages:
        found = api.TextTranslator(Samples).sample(["1", "2"], draws=2, seed=3, temperature=0.5, top_k=7, top_p=0.25)
    assert messages == ["Sentence 2: truncated to the limits of the model (`max_input`, `extra_length`)."]
    assert Samples.inputs == {
        "text": [b"1", b"2"], "seed": [3 * 2**32, 3 * 2**32 + 1], "draws": [2] * 2, "temperature": [0.5] * 2,
        "top_k": [7] * 2, "top_p": [0.25] * 2, "max_length": [0] * 2
    }  # fmt: skip
    assert [[(each.text, each.score) for each in row] for row in found] == [
        [("a", -1), ("\ufffd", -2)],
        [("c", -3), ("d e", -4)],
    ]
    assert all(each.constraints_met for row in found for each in row)  # It has none.
    assert [[each.truncated for each in row] for row in found] == [[False] * 2, [True] * 2]


def test_a_score_is_the_log_probability_of_the_target(translator):
    """The score of a translation with alpha 0 is its log probability, if it ended."""
    scores = translator.score(["one", "one"], ["eins", "zwei"])
    assert scores[0] == pytest.approx(translator.score("one", "eins"), abs=1e-5) and scores[0] != scores[1]
    assert max(scores) < 0


class _OfThirds(t2t_keras.Scorer):
    """Takes 0, 1 or 2 from log P of a sub-word, by its id. The state is the number of each beam."""

    def __init__(self, inputs: dict):
        self.state = tf.tile(tf.range(inputs["beam_size"])[None], [tf.shape(inputs["alpha"])[0], 1])

    def __call__(self, log_probs, hypotheses, beams):
        beams = t2t_keras.follow(beams, hypotheses.ancestors)
        return log_probs - tf.cast(tf.range(log_probs.shape[-1]) % 3, tf.float32), beams


class _AllAlike(t2t_keras.Selector):
    def __call__(self, log_probs, hypotheses, state):
        return BEST(0.0 * log_probs, hypotheses, state)


@pytest.mark.medium
def test_a_run_is_loaded_with_scorers_whose_state_has_a_row_for_each_beam_however_many_there_are(run, translator):
    widths = set()

    def make(inputs: dict) -> _OfThirds:
        widths.add(inputs["beam_size"])
        return _OfThirds(inputs)

    loaded = t2t_keras.load(run.model_dir, scorers=[make])
    assert loaded.n_best("twenty-one", n=3) != translator.n_best("twenty-one", n=3)
    assert "six" in loaded.n_best("twenty-one", n=1, constraints=["six"])[0].text
    assert len(loaded.sample("twenty-one", draws=2)) == 2
    assert widths == {1, 3, 8}


@pytest.mark.medium
def test_a_run_is_loaded_with_a_selector(run, translator):
    loaded = run.load(selector=lambda inputs: _AllAlike())
    assert loaded.n_best("twenty-one", n=3) != translator.n_best("twenty-one", n=3)


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        ({"scorers": [BEST]}, r"must be functions .* such as `lambda inputs: MyScorer\(\)`. Received: <"),
        ({"scorers": ["x"]}, "must be functions that make them .* Received: 'x'"),
        ({"selector": BEST}, "must be functions that make them .* Received: <"),
        ({"scorers": _OfThirds}, "`scorers` must be a list of functions. Received: <class"),
    ],
)
def test_what_makes_no_scorer_or_selector_is_refused(run, hooks, message):
    with pytest.raises(ValueError, match=message):
        t2t_keras.load(run.model_dir, **hooks)


def test_scorers_may_be_an_iterator_and_a_function_that_makes_none_is_named(run):
    with pytest.raises(ValueError, match="Expected a scorer or a selector from <function .* Received: None."):
        run.load(scorers=iter([lambda inputs: None])).translate("one")


@pytest.mark.medium
def test_an_export_takes_no_scorers(exported):
    with pytest.raises(ValueError, match="`scorers` and `selector` need a run. Received: an export, "):
        t2t_keras.load(exported, scorers=[_OfThirds])


@pytest.mark.medium
def test_by_default_there_are_four_translations_or_those_of_a_smaller_beam(translator, run):
    """Story: of a model with a beam of 3 there was an error."""
    assert translator.n_best("one") == translator.n_best("one", n=3)
    wide = run.load(beam_size=5)
    assert wide.n_best("one") == wide.n_best("one", n=4)


@pytest.mark.parametrize("copy_of", [copy.deepcopy, pickle.dumps])
def test_a_loaded_model_cannot_be_copied(translator, copy_of):
    with pytest.raises(TypeError, match="^A loaded model cannot be copied or pickled. Load it again"):
        copy_of(translator)


def test_a_loaded_model_is_refused_in_a_fork_of_its_process(translator, monkeypatch):
    """Story: it waited for ever."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    for call in (translator.translate, translator.n_best, translator.sample):
        with pytest.raises(RuntimeError, match="^The model was loaded in another process, .* Load it here.$"):
            call("one")


@pytest.mark.medium
def test_options_may_be_numbers_of_numpy(tmp_path):
    loaded = t2t_keras.train(tmp_path, **OPTIONS | {"train_steps": np.int64(2), "dropout": np.float32(0.25)}).load(
        beam_size=np.int32(2), int8=np.bool_(False)
    )
    assert loaded._model.config.beam_size == 2
    both = t2t_keras.load(iter([tmp_path, tmp_path]), ensemble_weights=np.array([1, 2]))
    assert both.translate("one") == loaded.translate("one")
    assert json.loads((tmp_path / "config.json").read_text())["model"]["dropout"] == 0.25


@pytest.mark.parametrize("int8", ["false", 1, None])
def test_whether_a_model_is_in_8_bits_is_true_or_false(run, int8):
    """Story: "false" was true."""
    with pytest.raises(ValueError, match=f"^Expected `int8` to be true or false. Received: int8={int8!r}.$"):
        run.load(int8=int8)


def test_an_empty_path_is_not_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="Expected the folder of a run as `model_dir`. Received: an empty path."):
        t2t_keras.train("", **OPTIONS)
    for path in ("", ["", "x"]):
        with pytest.raises(ValueError, match="Expected the folder of a run or of an export. Received: an empty path."):
            t2t_keras.load(path)
    assert not list(tmp_path.iterdir())


@pytest.mark.medium
def test_an_export_translates_as_the_run_does(translator, exported):
    served = t2t_keras.load(exported)
    gc.collect()  # Its signatures alone must keep its weights.
    assert served.translate(TEXTS) == translator.translate(TEXTS)
    ours, theirs = (each.n_best(TEXTS[0], n=2, alignment=True) for each in (translator, served))
    assert [each.text for each in ours] == [each.text for each in theirs]
    np.testing.assert_allclose(ours[0].alignment, theirs[0].alignment, atol=1e-5)
    ours, theirs = (each.sample(TEXTS[0], draws=5, seed=2) for each in (translator, served))
    assert [each.text for each in ours] == [each.text for each in theirs] and len({each.text for each in ours}) > 1
    assert served.score("one", "eins") == pytest.approx(translator.score("one", "eins"), abs=1e-5)
    assert [each.text for each in served.n_best(TEXTS, n=2)[0]] == [
        each.text for each in translator.n_best(TEXTS[0], n=2)
    ]
    for options, named in (({"beam_size": 1}, "beam_size=1"), ({"checkpoint": "best"}, "checkpoint=best")):
        with pytest.raises(ValueError, match=f"are fixed. Received: `{named}`. Leave them out.$"):
            t2t_keras.load(exported, **options)


@pytest.mark.medium
def test_an_export_is_loaded_by_the_folder_of_its_versions_too(exported, monkeypatch):
    read = []
    monkeypatch.setattr(loaded, "read_signatures", lambda export: read.append(export) or stand_in.StandIn())
    for path in (exported, exported.parent, str(exported), str(exported.parent)):
        t2t_keras.load(path)
    assert read == [exported] * 4


@pytest.mark.parametrize("languages", [[], ["eng_Latn", "deu_Latn"]])
def test_a_phrase_for_an_export_may_have_as_many_sub_words_as_for_a_run(tmp_path, monkeypatch, languages):
    """A target's length has its end and its language; a joined phrase is measured without its mark, of three bytes."""

    def score(source, target):
        """What the source has, too, is one sub-word."""
        [source], [text] = source.numpy(), target.numpy()
        return {
            "length": tf.constant(
                [len(text.replace(source, b"a").split()) + 1 + bool(languages) + 3 * text.startswith("￭".encode())]
            )
        }

    signatures = types.SimpleNamespace(translate=None, translate_with_options=None, sample=None, score=score)
    monkeypatch.setattr(loaded, "read_signatures", lambda export: signatures)
    monkeypatch.setattr(SavedExport, "description", {"languages": languages})
    export = loaded.LoadedExport(SavedExport(tmp_path))
    for mark in ("", "￭"):
        assert [export.fits(mark + "a " * number, "b") for number in (1, 32, 33)] == [True, True, False]
        assert [export.fits(mark + "a " * number + "b" * 99, "b" * 99) for number in (31, 32)] == [True, False]
        assert export.fits(mark + "b c " * 33, "b c " * 33), "A placeholder is one sub-word."


def test_an_export_is_asked_whether_it_reads_all_of_a_long_text(tmp_path, monkeypatch):
    asked = []

    def score(source, target):
        [text] = source.numpy()
        asked.append(text)
        return {"truncated": tf.constant([len(text) > 9])}

    signatures = types.SimpleNamespace(translate=None, translate_with_options=None, sample=None, score=score)
    monkeypatch.setattr(loaded, "read_signatures", lambda export: signatures)
    monkeypatch.setattr(SavedExport, "description", {"decode": {"max_input": 8}})
    export = loaded.LoadedExport(SavedExport(tmp_path))
    # The longest that has room for a mark of a word, a language and the end in any case.
    assert export.reads("12345") and not asked
    assert [export.reads("1" * number) for number in (6, 9, 10)] == [True, True, False] and len(asked) == 3


def test_a_model_knows_the_tags_with_which_its_sources_begin(tmp_path, monkeypatch):
    """Those of an export, of a run, and of the first run of an ensemble."""
    (tmp_path / "1/assets.extra").mkdir(parents=True)
    (tmp_path / "1/saved_model.pb").touch()
    (tmp_path / "1/assets.extra/t2t_keras.json").write_text('{"tags": ["<de>"], "pattern": "x"}')
    monkeypatch.setattr(loaded, "read_signatures", lambda export: stand_in.StandIn())
    assert t2t_keras.load(tmp_path)._tags == ["<de>"] and t2t_keras.load(tmp_path)._copied.of("ax") == ["￭x"]
    translator = types.SimpleNamespace(limits=types.SimpleNamespace(batch_size=1), languages=[])
    monkeypatch.setattr(loaded, "load", lambda model, **hooks: translator)
    for name in ("run", "one", "two"):
        data = {"train_source": "a,b", "train_target": "a,b", "source_tag": f"<{name}>,<b>"}
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"model": {}, "data": data}))
        (tmp_path / name / "subwords.model").touch()
    assert t2t_keras.load(tmp_path / "run")._tags == ["<run>", "<b>"]
    assert t2t_keras.load(tmp_path / "run")._batch_size == 1
    assert t2t_keras.load([tmp_path / "one", tmp_path / "two"])._tags == ["<one>", "<b>"]


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["float16", "bf16"])
def test_loading_a_run_in_an_unknown_dtype_is_refused(run, dtype):
    """Story: float64 was taken, and translated in float32."""
    with pytest.raises(ValueError, match=f"^Expected `dtype` to be one of float32, bfloat16. Received: {dtype}.$"):
        run.load(dtype=dtype)


@pytest.mark.medium
def test_loading_a_run_takes_the_weights_and_the_options_asked_for(run, translator):
    greedy = run.load(2, beam_size=1)
    with pytest.raises(ValueError, match="expected 1 to 1"):
        greedy.n_best("one", n=2)
    assert greedy.score("one", "eins") != translator.score("one", "eins")  # Of updates 2 and 4.
    with pytest.raises(FileNotFoundError):
        t2t_keras.load(run.model_dir, 3)
    with pytest.raises(FileNotFoundError, match="config.json"):
        t2t_keras.load(run.model_dir.parent)


@pytest.mark.medium
def test_training_by_keywords_is_the_run_of_the_flags_and_resumes(run, capsys, monkeypatch):
    written = json.loads((run.model_dir / "config.json").read_text())
    assert {
        name: value
        for name_of_group, group in written.items()
        if isinstance(group, dict) and name_of_group != "sources"
        for name, value in group.items()
    }.items() >= OPTIONS.items()
    monkeypatch.setattr(loop, "make_train_step", toy.pretended_train_step([]))
    again = t2t_keras.train(run.model_dir, train_steps=5)
    assert sorted(path.stem for path in (run.model_dir / "checkpoints").glob("step-*.npz"))[-1] == "step-000000005"
    assert again == run and capsys.readouterr().out == ""
    with pytest.raises(TypeError, match="^Unknown option d_modell. Did you mean d_model"):
        t2t_keras.train(run.model_dir, d_modell=8)


def test_training_a_transformer_imports_no_plugin(monkeypatch, tmp_path):
    """Story: one that could not be imported ended it."""
    monkeypatch.setattr(registry, "_import_plugins", lambda: pytest.fail("plugins are imported"))
    with pytest.raises(FileNotFoundError, match="There is no run in"):
        t2t_keras.train(tmp_path / "typo", vocab_size=340, train_steps=4)


@pytest.mark.medium
def test_a_run_is_evaluated_on_lists_of_sentences(run):
    scores = run.evaluate(["one", "two"], ["eins", "zwei"], ["eins!", "zwei!"], lowercase=True, tokenize="char")
    assert {"bleu", "chrf", "perplexity", "exact_match"} <= set(scores)
    assert "nrefs:2" in scores["signature"] and "tok:char" in scores["signature"] and "case:lc" in scores["signature"]


def test_a_new_checkpoint_of_either_kind_is_loaded_by_the_next_evaluation(monkeypatch, tmp_path):
    loads = []
    monkeypatch.setattr(loading, "load", lambda folder, checkpoint: loads.append(checkpoint))
    monkeypatch.setattr("t2t_keras.evaluation.evaluate.evaluate", lambda *arguments, **options: ([], {}))
    monkeypatch.setattr(api.TrainedModel, "open", lambda *arguments: types.SimpleNamespace(tags=[]))
    run = t2t_keras.Run(tmp_path)
    for checkpoint in ("average", "latest", "average", "latest"):
        run.evaluate(["one"], ["eins"], checkpoint=checkpoint)
    assert loads == ["average", "latest"] and run == t2t_keras.Run(tmp_path)
    loads.clear()
    (tmp_path / "checkpoints").mkdir()
    for number, name in enumerate(("step-000000002", "best-000000002", "best-000000003", "step-000000004"), 1):
        for ending in ("npz", "json"):
            (tmp_path / "checkpoints" / f"{name}.{ending}").touch()
        for _ in range(2):
            run.evaluate(["one"], ["eins"], checkpoint="best")
        assert len(loads) == number
    for name in ("checkpoints/step-000000002.npz", "config.json"):  # As of a run that was copied over it.
        (tmp_path / name).touch()
        os.utime(tmp_path / name, ns=(1, 1))
        run.evaluate(["one"], ["eins"], checkpoint="best")
    assert len(loads) == number + 2


@pytest.mark.medium
def test_the_smoothed_loss_makes_fit_the_papers(tiny):
    """The mean over tokens, padding left out, with and without weights; it comes back from its configuration."""
    from t2t_keras.model.loss import cross_entropy

    draw = np.random.default_rng(0)
    logits, target = draw.normal(size=(2, 3, 7)).astype("float32"), np.array([[4, 5, 0], [6, 0, 0]])
    loss = t2t_keras.LabelSmoothedCrossEntropy(0.2)
    losses = np.array(cross_entropy(logits, target, 0.2)[0])
    assert float(loss(target, logits)) == pytest.approx(losses.sum() / 3, rel=1e-6)
    assert float(loss(target, logits, np.array([2.0, 0.5]))) == pytest.approx(
        (2 * losses[0].sum() + 0.5 * losses[1].sum()) / 4.5, rel=1e-6
    )
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert again.label_smoothing == 0.2
    with pytest.raises(ValueError, match="label_smoothing"):
        t2t_keras.LabelSmoothedCrossEntropy(1.0)
    model = t2t_keras.Transformer(tiny)
    words = draw.integers(4, 40, (16, 5)).astype("int32")
    model.compile(keras.optimizers.Adam(0.01), loss)
    history = model.fit((words, np.array(t2t_keras.shift_right(words))), words, epochs=4, verbose=0).history["loss"]
    assert history[-1] < history[0]


def test_paths_may_be_objects_and_begin_with_the_home_folder(monkeypatch, tmp_path):
    started = []
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(
        training_run, "train", lambda start, strategy, quiet: started.append((start.folder, start.options))
    )
    run = t2t_keras.train(
        "~/run", data_dir="~/data", train_source=pathlib.Path("a.en"), train_target=pathlib.Path("a.de")
    )
    [(folder, options)] = started
    assert (run, folder, options.data_dir) == (t2t_keras.Run(folder), tmp_path / "run", str(tmp_path / "data"))
    assert (options.data.train_source, options.data.train_target) == ("a.en", "a.de")
    assert repr(run) == f"Run(model_dir={folder!r})"
