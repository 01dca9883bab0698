"""Marian's own files: the run is that of transformers' format, scores are CTranslate2's, and what is refused."""

import io
import json
import shutil
import time
import zipfile

import ctranslate2
import marian_models as natives
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
import toy
import transformers_models as models
import yaml
from ctranslate2.converters import OpusMTConverter

import t2t_keras
from t2t_keras.config import BOS, EOS
from t2t_keras.decoding import loading
from t2t_keras.interop import marian_native
from t2t_keras.runs.saved_run import SavedRun

STEP_0 = "checkpoints/step-000000000.npz"
LINES = ["a dog runs", ">>de<< two men play ball near the house", "猫 1 2024", "tree"]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A folder with a model in both formats."""
    return natives.make(tmp_path_factory.mktemp("marian") / "model")


@pytest.fixture
def native(both, tmp_path):
    """Native files that a test may change."""
    return shutil.copytree(both / "native", tmp_path / "native")


@pytest.fixture(scope="module")
def usual(both):
    """The run that the native files give as they are."""
    t2t_keras.import_marian(both / "native", both.parent / "usual")
    return both.parent / "usual"


def check_same(first, second) -> None:
    with np.load(first / STEP_0) as expected, np.load(second / STEP_0) as received:
        assert expected.files == received.files
        for name in expected.files:
            np.testing.assert_array_equal(received[name], expected[name], err_msg=name)


def oracle(native, folder):
    """CTranslate2's translator of native files; its converter needs the position encodings in the file."""
    with np.load(native / "opus.npz") as file:
        arrays = dict(file)
    width = natives.load(native)[0]["dim-emb"]
    angles = np.arange(200)[:, None] * np.exp(np.arange(width // 2) * -np.log(10000) / (width // 2 - 1))
    arrays["Wpos"] = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
    np.savez(native / "positions.npz", **arrays)
    natives.rewrite(native, "decoder.yml", models=["positions.npz"])
    OpusMTConverter(str(native)).convert(str(folder))
    return ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)


@pytest.mark.medium
@pytest.mark.parametrize("shape", natives.SHAPES)
def test_a_run_is_that_of_the_same_weights_and_scores_are_those_of_ctranslate2(shape, tmp_path):
    folder = natives.make(tmp_path / "model", shape)
    t2t_keras.import_marian(folder / "native", tmp_path / "run")
    options = SavedRun.open(tmp_path / "run").options
    assert (options.decode.beam_size, options.decode.alpha, options.decode.max_input) == (6, 1.0, 1000)
    assert (options.model.norm_epsilon, options.model.sinusoids) == (1e-6, "tensor2tensor")
    if shape != "pre-norm":  # Which transformers' Marian lacks.
        t2t_keras.import_marian(folder, tmp_path / "other", native_positions=True)
        check_same(tmp_path / "other", tmp_path / "run")
    if shape in ("gelu", "float16"):  # Its GELU is approximate, its float16 stays so.
        return
    translator, theirs = loading.load(tmp_path / "run"), oracle(folder / "native", tmp_path / "converted")
    draw = np.random.default_rng(1)
    source_pieces, pieces = translator.source_tokenizer.pieces, translator.tokenizer.pieces
    sources = [ids[:-1] for ids in translator.source_tokenizer.tokenize(tf.constant(LINES)).to_list()]
    targets = [draw.integers(EOS + 1, len(pieces), 7).tolist() for _ in LINES]
    tokens = [[source_pieces[index] for index in source] for source in sources]
    scored = theirs.score_batch(tokens, [[pieces[index] for index in target] for target in targets])
    for source, target, result in zip(sources, targets, scored, strict=True):
        memory = translator.model.encode(tf.constant([[*source, EOS]]))
        logits, _ = translator.model.decode(tf.constant([[BOS, *target]]), memory)
        log_p = tf.nn.log_softmax(logits)[0].numpy()
        expected = [log_p[position, token] for position, token in enumerate([*target, EOS])]
        np.testing.assert_allclose(result.log_probs, expected, rtol=0, atol=1e-4)
    rows = loading.load(tmp_path / "run", beam_size=1).search(
        translator.source_tokenizer.tokenize(tf.constant(LINES)), tf.zeros(4), tf.fill([4], 12), tf.ones(4, tf.int32)
    )[0]
    received = [[pieces[index] for index in row if index != EOS] for row in rows.to_list()]
    expected = theirs.translate_batch(tokens, beam_size=1, max_decoding_length=12)
    assert received == [result.hypotheses[0] for result in expected] and len(received[0]) > 1


def other_orders(arrays):
    """As other programs write them: big-endian, in Fortran's order, in float64, biases without a first dimension."""
    for number, name in enumerate(sorted(arrays)):
        array = arrays[name].astype((">f4", "<f8", ">f8")[number % 3])
        arrays[name] = array[0] if len(array) == 1 and "ln" in name else np.asfortranarray(array)
    return arrays


def early_logits(arrays):
    """As Marian before 2018 had them."""
    arrays["decoder_ff_logit_out_W"] = np.ascontiguousarray(arrays.pop("decoder_ff_logit_out_Wt").T)
    return arrays


@pytest.mark.parametrize(("shape", "change"), [("opus", other_orders), ("untied, byte pairs", early_logits)])
def test_arrays_may_be_stored_in_other_ways(tmp_path, shape, change):
    native = natives.make(tmp_path / "model", shape) / "native"
    t2t_keras.import_marian(native, tmp_path / "expected")
    options, arrays = natives.load(native)
    natives.save(native, options, change(arrays))
    t2t_keras.import_marian(native, tmp_path / "run")
    check_same(tmp_path / "expected", tmp_path / "run")


def test_ids_of_a_sentencepiece_vocabulary_are_its_own(native, tmp_path):
    """Also of tags, which Marian then has no rule for."""
    natives.with_sentencepiece(native)
    t2t_keras.import_marian(native, tmp_path / "run")
    translator, lines = loading.load(tmp_path / "run"), models.nasty_lines(200)
    rows = natives.load(native)[0]["dim-vocabs"]
    for name, size, tokenizer in zip(
        natives.SENTENCEPIECE, rows, (translator.source_tokenizer, translator.tokenizer), strict=True
    ):
        model = sentencepiece.SentencePieceProcessor(model_file=str(native / name))
        theirs = [size, 1, size, 0, *range(2, size)]  # Padding, unknown, start and end first.
        received = [[theirs[own] for own in row] for row in tokenizer.tokenize(tf.constant(lines)).to_list()]
        assert received == [[*model.encode(line), 0] for line in lines]
    with np.load(tmp_path / "run" / STEP_0) as arrays:
        assert not arrays["model/transformer/embedding/matrix"][BOS].any()


def test_a_vocabulary_may_have_a_piece_a_line(native, tmp_path, usual):
    """As OPUS-MT's models of two vocabularies have it."""
    ids = yaml.load((native / "opus.vocab.yml").read_text(), Loader=yaml.BaseLoader)
    lines = sorted(ids, key=lambda piece: int(ids[piece]))
    (native / "opus.src.vocab").write_text("\n".join(lines), encoding="utf-8")
    (native / "opus.trg.vocab").write_text("".join(f"{line}\r\n" for line in lines), encoding="utf-8", newline="")
    natives.rewrite(native, "decoder.yml", vocabs=["opus.src.vocab", "opus.trg.vocab"])
    t2t_keras.import_marian(native, tmp_path / "run")
    check_same(usual, tmp_path / "run")
    (native / "opus.trg.vocab").write_text("\n".join([*lines[:9], *lines[3:]]))
    check_refused(native, tmp_path / "other", "Received: a line twice.")


def test_without_decoder_yml_the_only_model_has_the_only_vocabulary(native, tmp_path, usual):
    (native / "decoder.yml").unlink()
    (native / "opus.npz.optimizer.npz").write_bytes(b"")
    t2t_keras.import_huggingface(native, tmp_path / "run")
    check_same(usual, tmp_path / "run")
    assert SavedRun.open(tmp_path / "run").options.decode.beam_size == 12  # Marian's default.
    (native / "opus.vocab.yml").rename(native / "opus.vocab.yaml")
    t2t_keras.import_huggingface(native, tmp_path / "yaml")
    check_same(usual, tmp_path / "yaml")
    (native / "other.vocab.yml").write_text("a: 1")
    with pytest.raises(ValueError, match="Expected the names of one model and of its vocabularies"):
        t2t_keras.import_marian(native, tmp_path / "other")


def test_names_may_begin_with_the_folder_itself(native, tmp_path, usual):
    """Story: ./opus.npz was refused as a path."""
    text = (native / "decoder.yml").read_text()
    (native / "decoder.yml").write_text(text.replace("opus.npz", "./opus.npz"))
    t2t_keras.import_marian(native, tmp_path / "run")
    check_same(usual, tmp_path / "run")


def test_a_decoder_yml_may_have_the_name_of_the_model_before_it(native, tmp_path):
    (native / "decoder.yml").rename(native / "opus.npz.decoder.yml")
    t2t_keras.import_marian(native, tmp_path / "run")
    assert SavedRun.open(tmp_path / "run").options.decode.beam_size == 6
    natives.rewrite(native, "opus.npz.decoder.yml", beam_size=5)
    (native / "opus.npz.decoder.yml").rename(native / "other.decoder.yml")
    shutil.copy(native / "other.decoder.yml", native / "a.decoder.yml")
    with pytest.raises(ValueError, match="Expected one file decoder.yml .* Received: a.decoder.yml, other.decoder.yml"):
        t2t_keras.import_marian(native, tmp_path / "none")
    natives.rewrite(native, "other.decoder.yml", beam_size=3)
    (native / "other.decoder.yml").rename(native / "decoder.yml")
    t2t_keras.import_marian(native, tmp_path / "first")  # The name itself comes first.
    assert SavedRun.open(tmp_path / "first").options.decode.beam_size == 3


@pytest.mark.parametrize(("given", "expected", "ignored"), [
    ({"beam_size": 3, "normalize": 0, "max_length": 200}, (3, 0.0, 200), ""),
    ({"normalize": True, "word_penalty": 0.0, "max_length_factor": 3}, (6, 1.25, 1000), ""),
    ({"beam_size": ..., "normalize": ...}, (12, 0.0, 1000), ""),
    ({"word_penalty": 0.5, "shortlist": ["lex.s2t", 100], "mini_batch": 64}, (6, 1.0, 1000),
     "shortlist, word-penalty"),
])  # fmt: skip
def test_options_of_the_search_are_taken_over_or_reported(native, tmp_path, messages, given, expected, ignored):
    natives.rewrite(native, "decoder.yml", **given)
    t2t_keras.import_marian(native, tmp_path / "run")
    decode = SavedRun.open(tmp_path / "run").options.decode
    assert (decode.beam_size, decode.alpha, decode.max_input) == expected
    warned = [message for message in messages if "without a counterpart" in message]
    assert warned == [f"Options of the search without a counterpart are ignored: {ignored}."] * bool(ignored)


@pytest.mark.parametrize(("name", "value", "message"), [
    ("type", "s2s", "Expected type=transformer"),
    ("type", ..., "Expected type=transformer"),
    ("transformer_decoder_autoreg", "rnn", "Received: transformer-decoder-autoreg='rnn', which cannot be imported"),
    ("transformer_postprocess_emb", "nd", "Expected transformer-postprocess-emb=d or ''"),
    ("transformer_preprocess", "n", "Received: ('n', 'dan', '')"),
    ("transformer_postprocess", "dhn", "(pre-norm)"),
    ("transformer_ffn_depth", 3, "Expected transformer-ffn-depth=2"),
    ("transformer_decoder_dim_ffn", 99, "Expected transformer-decoder-dim-ffn=0 or 24"),
    ("transformer_tied_layers", [1, 1], "Expected transformer-tied-layers=[]"),
    ("transformer_train_position_embeddings", True, "Expected transformer-train-position-embeddings=False"),
    ("transformer_no_projection", True, "transformer-no-projection=True"),
    ("input_types", ["class", "sequence"], "input-types"),
    ("lemma_dim_emb", 8, "Expected lemma-dim-emb=0"),
    ("right_left", True, "right-left=True"),
    ("transformer_ffn_activation", "tanh", "Expected an activation_function of relu, gelu, swish, silu in"),
    ("dim_vocabs", [9, 9, 9], "Expected dim-vocabs of one source and one target"),
    ("dim_vocabs", [107, 108], "the same if they share an embedding"),
    ("dim_vocabs", [2**40, 2**40], "is not valid"),
    ("dim_emb", "wide", "Expected d_model of type int"),
    ("enc_depth", 10**9, "is not valid"),
    ("enc_depth", 3, "Expected the weight encoder_l3_self_Wq. It is missing."),
    ("enc_depth", 1, "Received encoder_l2_ffn_W1 and"),
    ("transformer_dim_ffn", 99, "Expected encoder_l1_ffn_W1 of shape"),
    ("transformer_heads", 3, "Expected attention heads that divide d_model"),
    ("tied_embeddings_all", False, "Expected the weight "),
])  # fmt: skip
def test_another_network_is_refused_in_one_sentence(native, tmp_path, name, value, message):
    natives.rewrite(native, "opus.npz", **{name: value})
    check_refused(native, tmp_path, message)


@pytest.mark.parametrize(("version", "is_exact"), [
    ("v1.10.0 6f6d484 2021-02-06", False), ("v1.12.2", False), ("v1.12.3", True), ("1.12.43 x", True), ("v2.0.0", True),
    (..., True),
])  # fmt: skip
def test_the_gelu_of_earlier_versions_is_another_function(native, tmp_path, version, is_exact):
    """Story: it was computed as x Φ(x), which is off by up to 0.02."""
    natives.rewrite(native, "opus.npz", transformer_ffn_activation="gelu", version=version)
    if is_exact:
        t2t_keras.import_marian(native, tmp_path / "run")
        assert SavedRun.open(tmp_path / "run").options.model.activation == "gelu"
    else:
        check_refused(native, tmp_path, "gelu of Marian 1.12.3 or later")


@pytest.mark.parametrize(("name", "value"), [
    ("transformer_depth_scaling", True), ("transformer_guided_alignment_layer", "1"), ("input_types", ["sequence"] * 2),
    ("transformer_postprocess_emb", ""), ("transformer_postprocess_top", ...), ("transformer_decoder_autoreg", ...),
])  # fmt: skip
def test_what_changes_no_translation_is_no_other_network(native, tmp_path, usual, name, value):
    natives.rewrite(native, "opus.npz", **{name: value})
    t2t_keras.import_marian(native, tmp_path / "run")
    check_same(usual, tmp_path / "run")


def check_refused(native, tmp_path, message: str, error=ValueError) -> None:
    with pytest.raises(error) as raised:
        t2t_keras.import_marian(native, tmp_path / "run")
    assert message in str(raised.value) and "\n" not in str(raised.value) and len(str(raised.value)) < 600
    assert not (tmp_path / "run").exists()


def changed(**arrays):
    """Returns what changes arrays of a model; `...` removes one."""

    def change(native) -> None:
        options, old = natives.load(native)
        new = {name: array(old[name]) if callable(array) else array for name, array in arrays.items()}
        natives.save(native, options, {name: array for name, array in (old | new).items() if array is not ...})

    return change


def written(name: str, content):
    """Returns what writes a file; a function makes its bytes of the present ones."""

    def write(native) -> None:
        path = native / name
        path.write_bytes(content(path.read_bytes()) if callable(content) else content)

    return write


def set_nan(array):
    array[0, 0] = np.nan
    return array


def npz_of(array: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("Wemb.npy", array)
    return file.getvalue()


def header_of(shape) -> bytes:
    """An npz file with an array of few numbers whose header has another shape."""
    array = io.BytesIO()
    np.lib.format.write_array_header_1_0(array, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return npz_of(array.getvalue() + bytes(16))


def header_that_is(text: bytes) -> bytes:
    return npz_of(np.lib.format.magic(1, 0) + len(text).to_bytes(2, "little") + text)


def compressed(content: bytes) -> bytes:
    with np.load(io.BytesIO(content)) as arrays:
        file = io.BytesIO()
        np.savez_compressed(file, **arrays)
    return file.getvalue()


def flipped(content: bytes) -> bytes:
    """With another byte in the numbers of an array."""
    middle = content.index(b"Wemb.npy") + 400
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def link(native) -> None:
    (native / "opus.npz").rename(native.parent / "elsewhere.npz")
    (native / "opus.npz").symlink_to(native.parent / "elsewhere.npz")


BOMB = b"a: &a [x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + n, 98 + n, b", ".join([b"*%c" % (97 + n)] * 9)) for n in range(20)
)
BROKEN = {
    "a pickled array": (changed(encoder_l1_ffn_b1=np.array([[{}]])), "bytes of object"),
    "a missing weight": (changed(encoder_l1_ffn_b1=...), "Expected the weight encoder_l1_ffn_b1. It is missing."),
    "an unknown weight": (changed(encoder_l1_ffn_b3=np.ones((1, 2))), "Received encoder_l1_ffn_b3 besides"),
    "no embedding": (changed(Wemb=...), "Expected the weight Wemb. It is missing."),
    "another shape": (changed(encoder_l1_ffn_b1=np.ones((1, 9))), "Expected encoder_l1_ffn_b1 of shape (24,)"),
    "three dimensions": (changed(encoder_l1_ffn_b1=np.ones((1, 24, 1))), "Expected encoder_l1_ffn_b1 of shape"),
    "no dimension": (changed(Wemb=np.float32(1)), "numbers, as many as its shape () says"),
    "four dimensions": (changed(Wemb=np.ones((1, 1, 1, 16))), "numbers, as many as its shape (1, 1, 1, 16) says"),
    "few rows": (changed(Wemb=lambda array: array[:50]), "Expected Wemb of shape"),
    "not a number": (changed(decoder_l1_context_Wq=set_nan), "Received: decoder_l1_context_Wq with infinity or NaN"),
    "whole numbers": (changed(Wemb=lambda array: array.astype("int8")), "floating-point numbers. Received: int8"),
    "no numbers": (changed(Wemb=np.ones((0, 16))), "to have numbers, as many as its shape (0, 16)"),
    "a header of a large array": (written("opus.npz", header_of((10**12, 16))), "as many as its shape (1000000000000"),
    "a negative shape": (written("opus.npz", header_of((-2, -2))), "numbers, as many as its shape (-2, -2) says"),
    "a header that ends early": (written("opus.npz", header_that_is(b"{'descr': (")), "to be an array of NumPy"),
    "a header of other Python": (written("opus.npz", header_that_is(b"{[]: 1}\n")), "to be an array of NumPy"),
    "no options": (written("opus.npz", header_of((2, 2))), "Expected special:model.yml in"),
    "no header": (written("opus.npz", lambda content: content.replace(b"NUMPY", b"numpy")), "damaged"),
    "a truncated file": (written("opus.npz", lambda content: content[:-3000]), "which is damaged"),
    "another byte": (written("opus.npz", flipped), "Wemb.npy is damaged"),
    "a compressed file": (written("opus.npz", compressed), "which is not compressed"),
    "an empty file": (written("opus.npz", b""), "which is damaged"),
    "no file": (lambda native: (native / "opus.npz").unlink(), "Expected opus.npz in"),
    "a link": (link, "link"),
    "YAML that grows": (written("decoder.yml", BOMB), "names with values or lists"),
    "a vocabulary that grows": (written("opus.vocab.yml", BOMB), "names with values or lists"),
    "deep YAML": (written("decoder.yml", b"[" * 10**5), "to have YAML"),
    "YAML that is code": (written("decoder.yml", b"!!python/object/apply:os.system [ls]"), "names with values"),
    "YAML without names": (written("decoder.yml", b"- models"), "Expected"),
    "names that are lists": (written("decoder.yml", b"[a, b]: c"), "to have YAML"),
    "another folder": (written("decoder.yml", b"models: [../../etc/x.npz]\nvocabs: [a.yml]"), "without their path"),
    "an absolute path": (written("decoder.yml", b"models: [/etc/x.npz]\nvocabs: [a.yml]"), "without their path"),
    "an ensemble": (written("decoder.yml", b"models: [a.npz, b.npz]\nvocabs: [a.yml]"), "the names of one model"),
    "an 8-bit model": (written("decoder.yml", b"models: [a.bin]\nvocabs: [a.yml]"), "8-bit models (.bin)"),
    "factors": (written("decoder.yml", b"models: [opus.npz]\nvocabs: [a.fsv, a.fsv]"), "factors (.fsv)"),
    "a list in a list": (written("decoder.yml", b"models: [[a]]\nvocabs: [a.yml]"), "Expected"),
    "text as the beam size": (lambda native: natives.rewrite(native, "decoder.yml", beam_size="x"), "num_beams"),
    "no length": (lambda native: natives.rewrite(native, "decoder.yml", max_length=0), "is not valid"),
    "byte-pair files": (lambda native: (native / "source.spm").unlink(), "has no source.spm"),
    "another SentencePiece model": (written("target.spm", b"x"), "target.spm does not fit"),
    "an id that no row has": (written("opus.vocab.yml", lambda text: text + b"new: 1000\n"), "Expected different ids"),
    "an id twice": (written("opus.vocab.yml", lambda text: text + b"new: 5\n"), "Received: an id twice"),
    "an id that is text": (written("opus.vocab.yml", lambda text: text + b"new: a\n"), "Expected different ids"),
    "no end token": (written("opus.vocab.yml", b"a: 1\n<unk>: 2"), "Missing: </s>"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_folder_that_does_not_fit_is_refused_in_one_sentence_and_nothing_is_written(native, tmp_path, name):
    change, message = BROKEN[name]
    change(native)
    check_refused(native, tmp_path, message, (ValueError, FileNotFoundError))


def test_sub_words_that_yaml_takes_for_other_values_are_text(native, tmp_path):
    """Story: PyYAML reads them as numbers, booleans and merged mappings, so that two may be one."""
    path = native / "opus.vocab.yml"
    ids = yaml.load(path.read_text(), Loader=yaml.BaseLoader)
    changed_pieces = dict(zip([*ids][-8:], ["1", "0x1", "no", "null", "~", "<<", "1e3", "2020-01-01"], strict=True))
    path.write_text("".join(f"{changed_pieces.get(piece, json.dumps(piece))}: {ids[piece]}\n" for piece in ids))
    t2t_keras.import_marian(native, tmp_path / "run")
    assert set(changed_pieces.values()) <= set(loading.load(tmp_path / "run").tokenizer.pieces)


def test_a_list_or_a_text_under_many_names_is_read_once():
    """Story: a list was read for each of its names: time and memory grew with the square of the file's size."""
    names = "".join(f"b{index}: *a\n" for index in range(2000)) + f"d: [{'*c, ' * 2000}]\n"
    content = f"a: &a [{'1, ' * 2000}]\nc: &c 0.{'1' * 2_000_000}\n{names}".encode()
    started = time.process_time()
    with toy.memory_below(20 * 2**20):
        found = marian_native._yaml(content, "decoder.yml")
    assert found["a"] == found["b1999"] == [1] * 2000 and found["d"] == [pytest.approx(1 / 9)] * 2000
    assert time.process_time() - started < 2


def test_an_archive_is_to_be_unpacked(native, tmp_path):
    archive = shutil.make_archive(str(tmp_path / "opus"), "zip", native)
    check_refused(archive, tmp_path, "Unpack an archive, and give the folder that has its files", FileNotFoundError)
    check_refused(native / "opus.npz", tmp_path, "give the folder that has its files", FileNotFoundError)


def test_of_both_formats_that_of_transformers_is_read(both, tmp_path, messages):
    folder = shutil.copytree(both, tmp_path / "both")
    shutil.copytree(folder / "native", folder, dirs_exist_ok=True)
    t2t_keras.import_marian(folder, tmp_path / "run")
    assert SavedRun.open(tmp_path / "run").options.model.sinusoids != "tensor2tensor"
    assert any("Marian's own files in it are not read" in message for message in messages)
