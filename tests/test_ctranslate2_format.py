"""Another engine, written by others in another language, finds the same scores and the same translations."""

import dataclasses
import re
import sys

import numpy as np
import pytest
import stand_in
import tensorflow as tf
import toy

from t2t_keras.config import BOS, EOS, DecodeConfig, ModelConfig
from t2t_keras.decoding.translator import Translator, translate_lines
from t2t_keras.model.transformer import Transformer
from t2t_keras.serving import ctranslate2_format
from t2t_keras.text.byte_pairs import BytePairs

ctranslate2 = pytest.importorskip(
    "ctranslate2", reason="the extra 'ctranslate2' is not installed: pip install -e '.[ctranslate2]'"
)

VOCAB_SIZE = 330
ONE_WIDTH = ModelConfig(VOCAB_SIZE, encoder_layers=2, decoder_layers=3, d_model=16, d_ff=32, num_heads=2, d_k=8, d_v=8)
# CTranslate2 has one width a head, by itself d_model / h. The last learned table is shorter than the sentences.
MODELS = {
    "h · d_k = d_model": ONE_WIDTH,
    "d_k < d_v": dataclasses.replace(ONE_WIDTH, d_k=6, d_v=10),
    "d_k > d_v": dataclasses.replace(ONE_WIDTH, d_k=9, d_v=3),
    "h · d_k > d_model": dataclasses.replace(ONE_WIDTH, num_heads=3, d_k=7, d_v=7),
    "one head": dataclasses.replace(ONE_WIDTH, num_heads=1, d_k=5, d_v=5),
    "learned positions": dataclasses.replace(ONE_WIDTH, learned_positions=64),
    "few learned positions": dataclasses.replace(ONE_WIDTH, learned_positions=4),
    "biases, gelu, another epsilon": dataclasses.replace(ONE_WIDTH, d_k=6, d_v=10, attention_bias=True,
                                                         logits_bias=True, activation="gelu", norm_epsilon=0.1),
    "pre-norm, other sinusoids": dataclasses.replace(ONE_WIDTH, d_k=6, d_v=10, norm="pre", sinusoids="tensor2tensor",
                                                     first_position=2, norm_epsilon=0.1),
    "swish, three matrices": dataclasses.replace(ONE_WIDTH, activation="swish", source_vocab_size=VOCAB_SIZE,
                                                 tie_logits=False),
}  # fmt: skip
STRANGE = ["", " ", "▁a\ue0f00 \ue0f0", "<s> one </s>", "naïve 😀"]


@pytest.fixture(scope="module")
def tokenizer() -> BytePairs:
    return BytePairs(stand_in.subwords("bpe"))


def make_translator(config: ModelConfig, tokenizer: BytePairs, **decode) -> Translator:
    """No weight is zero or one, and they are large enough that other sources have other translations, some of which
    end.
    """
    model = Transformer(config)
    draw = np.random.default_rng(5)
    for weight in model.trainable_variables:
        if weight.path.endswith("kernel"):
            weight.assign(draw.normal(0, 3 * sum(weight.shape) ** -0.5, weight.shape))
        elif weight.path.endswith("matrix"):
            weight.assign(draw.normal(0, config.d_model**-0.5, weight.shape))
        else:
            weight.assign(draw.normal(float(weight.path.endswith("gamma")), 0.2, weight.shape))
    end = model.embedding.logits_matrix.numpy()[EOS]
    last = model.norm or model.decoder[-1].feed_forward_norm.norm
    last.beta.assign_add(1.5 * end / (end @ end))
    decode = DecodeConfig(**{"beam_size": 1, "extra_length": 10, "max_input": 120, **decode})
    return Translator(model, tokenizer, decode)


@pytest.fixture(scope="module", params=MODELS)
def both(request, tokenizer, tmp_path_factory):
    """A translator of ours, and CTranslate2's of the same weights."""
    ours, folder = make_translator(MODELS[request.param], tokenizer), tmp_path_factory.mktemp("written")
    ctranslate2_format.write(ours, folder)
    return ours, ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)


def english(number: int) -> list[str]:
    return stand_in.sentences(number)


def ids_of(tokenizer: BytePairs, lines: list[str]) -> list[list[int]]:
    """Without the end token, which CTranslate2 adds."""
    return [ids[:-1] for ids in tokenizer.tokenize(tf.constant(lines)).to_list()]


def pieces_of(sentences: list[list[int]], tokenizer: BytePairs) -> list[list[str]]:
    pieces = list(tokenizer.pieces)
    return [[pieces[index] for index in ids] for ids in sentences]


@pytest.mark.medium
def test_scores_of_given_translations_are_equal(both, tokenizer):
    ours, theirs = both
    draw = np.random.default_rng(4)
    sources = ids_of(tokenizer, english(12))
    lengths = draw.integers(1, 20, len(sources))
    targets = [draw.integers(EOS + 1, VOCAB_SIZE, int(length)).tolist() for length in lengths]
    scored = theirs.score_batch(pieces_of(sources, tokenizer), pieces_of(targets, tokenizer))
    for source, target, result in zip(sources, targets, scored, strict=True):
        log_p = tf.nn.log_softmax(ours.model((tf.constant([[*source, EOS]]), tf.constant([[BOS, *target]]))))[0].numpy()
        expected = [log_p[position, token] for position, token in enumerate([*target, EOS])]
        np.testing.assert_allclose(result.log_probs, expected, rtol=0, atol=1e-4)


class Numbers:
    """Reads text as sub-words but writes ids, so that no two translations look alike."""

    def __init__(self, tokenizer: BytePairs):
        self.cut, self.kept = tokenizer.cut, tokenizer.kept

    language, source = "", property(lambda self: self)

    def is_blank(self, ids):
        return ids.row_lengths() == 1

    def detokenize(self, ids, kept):
        return tf.strings.reduce_join(tf.strings.as_string(ids), separator=" ", axis=-1)


@pytest.mark.medium
def test_greedy_translations_are_equal(both, tokenizer):
    ours, theirs = both
    lines, pieces = english(40), list(tokenizer.pieces)
    results = translate_lines(Translator(ours.model, Numbers(tokenizer), ours.config), lines)
    different = set()
    for source, result in zip(ids_of(tokenizer, lines), results, strict=True):
        # One by one: the longest translation is one number there.
        longest = len(source) + 1 + ours.config.extra_length
        options = {"beam_size": 1, "min_decoding_length": 0, "max_decoding_length": longest}
        [translation] = theirs.translate_batch(pieces_of([source], tokenizer), **options)
        expected = [int(token) for token in result["text"].split()][:longest]
        expected = expected[: expected.index(EOS)] if EOS in expected else expected
        assert translation.hypotheses[0] == [pieces[token] for token in expected]
        different.add(tuple(expected))
    assert len(different) > 10


@pytest.fixture(scope="module")
def written(tokenizer, tmp_path_factory):
    """A translator of ours and the folder that was written for it."""
    ours, folder = make_translator(ONE_WIDTH, tokenizer), tmp_path_factory.mktemp("written") / "new"
    ctranslate2_format.write(ours, folder)
    return ours, folder


@pytest.mark.medium
def test_the_python_of_its_readme_translates_as_we_do(written):
    """Greedily, strange characters too. Only of those that end: the longest translation is one number there."""
    ours, folder = written
    [block] = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    names = {"__file__": str(folder / "translate.py")}
    exec(compile(block, "README.md", "exec"), names)
    lines = [*english(40), *STRANGE]
    received = [text.replace("\n", " ") for text in names["translate"](lines)]
    expected = [result["text"] for result in translate_lines(ours, lines)]
    assert len(received) == len(lines)
    longest = ours.config.extra_length
    assert [text for text in received if len(text) < longest] == [text for text in expected if len(text) < longest]


def test_its_readme_has_the_options_of_the_search_and_the_lengths_of_the_position_table(written):
    """Of 20 sub-words: 0.6 · 20 / 25 = 0.48."""
    readme = " ".join((written[1] / "README.md").read_text(encoding="utf-8").split())
    assert '{"beam_size": 1, "patience": 2, "length_penalty": 0.48, ' in readme
    assert 'options["no_repeat_ngram_size"] = 0' in readme and '"max_input_length": 120, ' in readme
    assert "covers sources of 120 and translations of 130 sub-words" in readme


def test_repeated_ngrams_are_forbidden_there_too_and_groups_of_beams_are_reported(tokenizer, tmp_path, messages):
    ours = make_translator(ONE_WIDTH, tokenizer, beam_size=2, no_repeat_ngram=2, diverse_groups=2)
    ctranslate2_format.write(ours, tmp_path)
    assert 'options["no_repeat_ngram_size"] = 2' in (tmp_path / "README.md").read_text(encoding="utf-8")
    assert messages == ["Options of the search without a counterpart are ignored: diverse_groups."]


@pytest.mark.parametrize("exponent", [0.0, 0.6])
def test_its_beam_search_divides_by_a_power_of_the_length_with_the_end(written, tokenizer, exponent):
    """What the module's docstring says of the score."""
    theirs = ctranslate2.Translator(str(written[1]), compute_type="float32", intra_threads=1)
    sources = pieces_of(ids_of(tokenizer, english(30)), tokenizer)
    options = {"beam_size": 8, "num_hypotheses": 8, "length_penalty": exponent}
    options |= {"min_decoding_length": 0, "max_decoding_length": 100}
    lengths = set()
    for source in sources:
        [result] = theirs.translate_batch([source], return_scores=True, return_end_token=True, **options)
        for pieces, score in zip(result.hypotheses, result.scores, strict=True):
            if pieces[-1] == "</s>":
                [scored] = theirs.score_batch([source], [pieces[:-1]])
                assert score == pytest.approx(sum(scored.log_probs) / len(pieces) ** exponent, abs=1e-4)
                lengths.add(len(pieces))
    assert len(lengths) > 1


def test_a_source_that_is_too_long_is_cut_where_we_cut_it(written, tokenizer):
    ours, folder = written
    theirs = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    line = " ".join(english(30))
    [long] = ids_of(tokenizer, [line])
    limit = ours.config.max_input
    assert len(long) > 2 * limit
    options = {"beam_size": 1, "max_decoding_length": limit + ours.config.extra_length, "max_input_length": limit}
    cut, alone = theirs.translate_batch(pieces_of([long, long[: limit - 1]], tokenizer), **options)
    assert cut.hypotheses == alone.hypotheses
    assert len(cut.hypotheses[0]) >= 1


@pytest.mark.parametrize("quantization", ["int8", "int16", "float16"])
def test_quantised_weights_are_smaller_and_score_nearly_the_same(written, tokenizer, tmp_path, quantization):
    ours, folder = written
    ctranslate2_format.write(ours, tmp_path / "small", quantization)
    assert (tmp_path / "small/model.bin").stat().st_size < 0.7 * (folder / "model.bin").stat().st_size
    sources = pieces_of(ids_of(tokenizer, english(8)), tokenizer)
    translators = (ctranslate2.Translator(str(path), intra_threads=1) for path in (folder, tmp_path / "small"))
    scored = (translator.score_batch(sources, sources) for translator in translators)
    scores = [np.concatenate([result.log_probs for result in results]) for results in scored]
    difference = np.abs(scores[0] - scores[1]).mean()
    assert 0 < difference < 0.5  # 0.41 in 8 bits on a processor without AVX-512.


def test_bfloat16_weights_are_written_too(tokenizer, tmp_path):
    model = Transformer(ONE_WIDTH, dtype="bfloat16")
    toy.set_weights(model)
    ctranslate2_format.write(Translator(model, tokenizer, DecodeConfig(max_input=20)), tmp_path)
    theirs = ctranslate2.Translator(str(tmp_path), intra_threads=1)
    source = pieces_of(ids_of(tokenizer, ["one"]), tokenizer)
    copy = Transformer(ONE_WIDTH)
    for weight, rounded in zip(copy.variables, model.variables, strict=True):
        weight.assign(tf.cast(rounded.value, "float32"))
    ids = ids_of(tokenizer, ["one"])[0]
    log_p = tf.nn.log_softmax(copy((tf.constant([[*ids, EOS]]), tf.constant([[BOS, *ids]]))))[0].numpy()
    expected = [log_p[position, token] for position, token in enumerate([*ids, EOS])]
    np.testing.assert_allclose(theirs.score_batch(source, source)[0].log_probs, expected, rtol=0, atol=1e-4)


def test_an_unknown_quantization_is_refused_and_nothing_is_written(written, tmp_path):
    with pytest.raises(ValueError, match="int3 is not a valid quantization"):
        ctranslate2_format.write(written[0], tmp_path / "new", "int3")
    assert not (tmp_path / "new").exists()


def test_a_folder_that_holds_something_is_refused(written):
    ours, folder = written
    with pytest.raises(FileExistsError, match="a new or an empty folder"):
        ctranslate2_format.write(ours, folder)


@pytest.mark.parametrize("function", ["additive", "unscaled"])
def test_another_attention_function_is_refused(tokenizer, tmp_path, function):
    """Of which `unscaled` has the same weights."""
    model = Transformer(dataclasses.replace(ONE_WIDTH, attention=function))
    expected = f"CTranslate2 has no other attention function. Received: attention={function}. Export a Saved"
    with pytest.raises(ValueError, match=expected):
        ctranslate2_format.write(Translator(model, tokenizer, DecodeConfig()), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_sub_words_of_another_model_are_refused(tokenizer):
    model = Transformer(dataclasses.replace(ONE_WIDTH, vocab_size=331))
    with pytest.raises(ValueError, match="each of the 331 ids of the model. Received: 330"):
        ctranslate2_format.specification(model, list(tokenizer.pieces), 10)


def test_without_the_package_the_extra_is_named(written, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ValueError, match=r"pip install 't2t_keras\[ctranslate2\]'"):
        ctranslate2_format.write(written[0], tmp_path)
