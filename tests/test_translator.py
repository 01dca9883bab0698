"""The object that is scored is the object that is served: the same translation whatever the batch."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import BOS, EOS, DecodeConfig, ModelConfig
from t2t_keras.data import builtin_corpus
from t2t_keras.decoding import sub_batches
from t2t_keras.decoding import translator as translator_module
from t2t_keras.decoding.translator import Translator, translate_lines
from t2t_keras.evaluation.cross_entropy import perplexity
from t2t_keras.layers.inference import inference
from t2t_keras.model.transformer import Transformer
from t2t_keras.serving.signatures import Signatures
from t2t_keras.text.byte_pairs import BytePairs, learn

VOCAB_SIZE = 330
BLANKS = ["", "   ", "\t", "\xa0\u200b"]


def english(number: int) -> list[str]:
    return [source for source, _ in builtin_corpus.splits(number, seed=3)["train"]]


@pytest.fixture(scope="module")
def tokenizer() -> BytePairs:
    lines = (side.encode() for pair in builtin_corpus.splits(300, seed=3)["train"] for side in pair)
    return BytePairs(learn(lines, VOCAB_SIZE, sample=10_000, seed=1, normalization="identity", character_coverage=1.0))


@pytest.fixture(scope="module")
def model() -> Transformer:
    """Weights three times as large as usual, so that translations differ, and that lean to the end token."""
    model = Transformer(
        ModelConfig(VOCAB_SIZE, encoder_layers=1, decoder_layers=1, d_model=16, d_ff=32, num_heads=2, d_k=6, d_v=10)
    )
    draw = np.random.default_rng(5)
    for weight in model.trainable_variables:
        if weight.path.endswith(("kernel", "matrix")):
            scale = 3 * sum(weight.shape) ** -0.5 if weight.path.endswith("kernel") else 16**-0.5
            weight.assign(draw.normal(0, scale, weight.shape))
    end = model.embedding.matrix.numpy()[EOS]
    model.decoder[-1].feed_forward_norm.norm.beta.assign(1.5 * end / (end @ end))
    return model


@pytest.fixture(scope="module")
def translator(model, tokenizer) -> Translator:
    return Translator(model, tokenizer, DecodeConfig(extra_length=3))


@pytest.mark.medium
def test_functions_become_graphs_without_autograph(model, tokenizer, monkeypatch):
    """Story: AutoGraph converted functions without control flow: 3 of the 4 s to translate a first line."""
    encode, statuses = tokenizer._encode, []

    def recorded(text):
        statuses.append(tf.__internal__.autograph.control_status_ctx().status.name)
        return encode(text)

    monkeypatch.setattr(tokenizer, "_encode", recorded)
    translator = Translator(model, tokenizer, DecodeConfig(beam_size=1, extra_length=3))
    service = Signatures(translator)
    of_service = (service.translate, service.translate_with_options, service.sample, service.score)
    for function in (translator.__call__, translator.n_best, *of_service):
        function.get_concrete_function()
    perplexity(translator, ["one"], ["eins"])
    assert len(statuses) >= 8 and "ENABLED" not in statuses


class Numbers:
    """Stands in for sub-words: a text is its ids, special ones too, so that the text shows what was written."""

    def kept(self, text):
        return None

    def cut(self, text, longest, kept=None):
        ids = tf.strings.to_number(tf.strings.split(text), tf.int32)
        return tf.concat([ids, tf.fill([ids.nrows(), 1], EOS)], axis=1), tf.fill(tf.shape(text), False)

    language, source = "", property(lambda self: self)

    def is_blank(self, ids):
        return ids.row_lengths() == 1

    def detokenize(self, ids, kept):
        return tf.strings.reduce_join(tf.strings.as_string(ids), separator=" ", axis=-1)

    @staticmethod
    def written(source: str, text: bytes, extra_length: int) -> list[int]:
        """The ids of a translation, without what fills up the batch after its end."""
        ids = [int(token) for token in text.split()][: len(source.split()) + 1 + extra_length]
        return ids[: ids.index(EOS) + 1] if EOS in ids else ids


def results(output) -> list[tuple]:
    return list(zip([text.decode() for text in output["text"].numpy()], output["score"].numpy().tolist(), strict=True))


def test_a_sentence_alone_and_in_a_batch_of_64_has_the_same_score_and_text(translator):
    lines = english(300)[:64]
    together = results(translator(tf.constant(lines)))
    assert len({text for text, _ in together}) > 20
    ties = 0
    for line, (text, score) in list(zip(lines, together, strict=True))[::8]:
        [(text_alone, score_alone)] = results(translator(tf.constant([line])))
        assert score_alone == pytest.approx(score, abs=1e-4)
        if text_alone != text:
            # Only where the second is as good as the first may their order turn with the last bit.
            first, second = translator.n_best(tf.constant([line]))["score"][0, :2].numpy()
            assert first == pytest.approx(second, abs=1e-4)
            ties += 1
    assert ties <= 1


def test_padding_beside_a_longer_sentence_changes_nothing(translator):
    long = " ".join(english(300)[:6])
    [(text, score), _] = results(translator(tf.constant(["one euro", long])))
    [(text_alone, score_alone)] = results(translator(tf.constant(["one euro"])))
    assert (text, score) == (text_alone, pytest.approx(score_alone, abs=1e-4))


@pytest.mark.parametrize("blank", BLANKS)
def test_a_blank_line_gives_an_empty_line_of_score_0(translator, blank):
    alone, beside = results(translator(tf.constant([blank]))), results(translator(tf.constant(["two", blank, "three"])))
    assert alone == [("", 0.0)]
    assert beside[1] == ("", 0.0)
    assert beside[0][1] != 0 and beside[2][1] != 0
    many = translator.n_best(tf.constant([blank]))
    assert set(many["text"].numpy().ravel()) == {b""} and not many["score"].numpy().any()


def test_no_lines_give_no_translations(translator):
    assert results(translator(tf.constant([], tf.string))) == []


@pytest.mark.medium
def test_all_shapes_share_one_trace(model, tokenizer):
    translator = Translator(model, tokenizer, DecodeConfig(beam_size=2, extra_length=1))
    for lines in (
        ["one"], ["one", "two hundred and three"], ["the twenty-first of may nineteen ninety-nine"] * 3, [""],
    ):  # fmt: skip
        translator(tf.constant(lines))
        translator.n_best(tf.constant(lines))
    assert translator.n_best.experimental_get_tracing_count() == 1
    assert translator.__call__.experimental_get_tracing_count() == 1


def test_a_source_that_is_too_long_is_cut(model, tokenizer, translator):
    """At `max_input` sub-words with the end token; here that is where a word ends."""
    kept, rest = "one million and two", " hundred thousand euros"
    size = len(tokenizer.tokenize(tf.constant([kept]))[0])
    cut = Translator(model, tokenizer, DecodeConfig(max_input=size, extra_length=3))
    assert results(cut(tf.constant([kept + rest]))) == results(translator(tf.constant([kept])))
    assert results(cut(tf.constant([kept + rest]))) != results(translator(tf.constant([kept + rest])))


@pytest.mark.medium
def test_a_source_with_more_sub_words_than_max_input_is_truncated(tokenizer, translator):
    lines = ["two", "", "one million and two", "one million and two hundred", "x" * 100_000, "½ " * 50]
    sizes = [len(ids) for ids in tokenizer.tokenize(tf.constant(lines))]
    cut = Translator(translator.model, tokenizer, DecodeConfig(max_input=sizes[2]))
    found = [translate(tf.constant(lines))["truncated"].numpy().tolist() for translate in (cut, cut.n_best)]
    assert found == [[size > sizes[2] for size in sizes]] * 2 == [[False] * 3 + [True] * 3] * 2


def test_a_translation_is_at_most_extra_length_longer_than_its_source(model):
    """In sub-words, the end token counted on both sides (section 6.1: input length + 50)."""
    translator = Translator(model, Numbers(), DecodeConfig(beam_size=8, extra_length=2))
    lines = ["7", "8 9 10 11", "12 13"]
    for line, texts in zip(lines, translator.n_best(tf.constant(lines))["text"].numpy(), strict=True):
        most = len(line.split()) + 1 + 2
        assert not any(text.split()[most:] != [b"0"] * (len(text.split()) - most) for text in texts)
        assert max(len(Numbers.written(line, text, 2)) for text in texts) == most


def test_n_best_is_sorted_and_its_first_is_the_translation(translator):
    lines = tf.constant(english(300)[:16])
    many, one = translator.n_best(lines), translator(lines)
    assert many["text"].shape == (16, 4)
    np.testing.assert_array_equal(many["text"][:, 0], one["text"])
    # Other sentences leave the batch at other times.
    np.testing.assert_allclose(many["score"][:, 0], one["score"], rtol=1e-5)


@pytest.mark.medium
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_scores_are_teacher_forced_log_probabilities_over_the_length_penalty(model, alpha):
    """The step-by-step decoder with its cache agrees with one call of the model over the whole translation."""
    translator = Translator(model, Numbers(), DecodeConfig(beam_size=6, alpha=alpha, extra_length=3))
    sources = ["5 6 7 8", "9", "200 100 300 17 21 22"]
    output = translator.n_best(tf.constant(sources))
    ended = 0
    for source, texts, scores in zip(sources, output["text"].numpy(), output["score"].numpy(), strict=True):
        source_ids = tf.constant([[*map(int, source.split()), EOS]])
        finished = []
        for text, score in zip(texts, scores, strict=True):
            target = Numbers.written(source, text, 3)
            log_p = tf.nn.log_softmax(model((source_ids, tf.constant([[BOS, *target[:-1]]]))))[0]
            total = sum(float(log_p[position, token]) for position, token in enumerate(target))
            assert score == pytest.approx(total / ((5 + len(target)) / 6) ** alpha, abs=1e-4)
            finished.append(target[-1] == EOS)
            assert EOS not in target[:-1]
        ended += sum(finished)
        assert finished == sorted(finished, reverse=True)
        first_unfinished = sum(finished)
        assert list(scores[:first_unfinished]) == sorted(scores[:first_unfinished], reverse=True)
    assert ended > 6


@pytest.mark.parametrize("line", [
    "\u2028", "a\u0085b", "\x00", "😀 \U0001f468\u200d\U0001f469", "▁ <unk> </s> <0x41>", "\t", "\r", "e\u0301",
    "x" * 500,
])  # fmt: skip
def test_strange_characters_are_translated_like_others(translator, line):
    [(text, score)] = results(translator(tf.constant([line])))
    assert isinstance(text, str) and np.isfinite(score)


def test_bytes_that_are_not_utf8_do_not_stop_it(translator):
    [result] = translate_lines(translator, [b"\xff\xfe one \x80"])
    assert np.isfinite(result["score"])


class Upper:
    """A translator that shouts, and remembers the batches it was given."""

    def __init__(self):
        self.batches = []

    def __call__(self, text):
        self.batches.append([line.decode() for line in text.numpy()])
        return {"text": tf.strings.upper(text), "score": tf.cast(tf.strings.length(text), tf.float32)}


def test_lines_come_back_in_their_own_order_with_their_own_scores():
    lines = ["a" * length for length in np.random.default_rng(0).permutation(101)]
    translated = list(translate_lines(Upper(), lines, batch_size=7, read_ahead=30))
    assert translated == [{"text": line.upper(), "score": float(len(line))} for line in lines]


def test_batches_hold_lines_of_about_one_length():
    translate = Upper()
    lines = ["a" * length for length in np.random.default_rng(0).permutation(40)]
    list(translate_lines(translate, lines, batch_size=8, read_ahead=40))
    expected = [list(range(first, first + 8)) for first in range(0, 40, 8)]
    assert [sorted(map(len, batch)) for batch in translate.batches] == expected


def test_other_messages_of_a_line_stay_with_it():
    def translate(text):
        return {**Upper()(text), "truncated": tf.strings.length(text) > 3}

    lines = ["a" * length for length in np.random.default_rng(0).permutation(9)]
    expected = [len(line) > 3 for line in lines]
    assert [result["truncated"] for result in translate_lines(translate, lines, batch_size=2)] == expected


def test_lines_without_end_are_translated_as_they_come():
    read = []

    def endless():
        for number in itertools.count():
            read.append(number)
            yield str(number)

    first = list(itertools.islice(translate_lines(Upper(), endless(), batch_size=2, read_ahead=5), 12))
    assert [result["text"] for result in first] == [str(number) for number in range(12)]
    assert len(read) == 15  # Three times five, and not one more.


@pytest.mark.parametrize("number", [0, 1, 5, 6, 10])
def test_as_many_lines_come_back_as_were_given(number):
    assert len(list(translate_lines(Upper(), map(str, range(number)), batch_size=2, read_ahead=5))) == number


def test_n_best_lines_are_lists(translator):
    lines = ["two", "", "seven hundred"]
    for line, result in zip(lines, translate_lines(translator.n_best, lines, batch_size=2), strict=True):
        assert len(result["text"]) == len(result["score"]) == 4
        assert all(isinstance(text, str) for text in result["text"])
        [(text, score)] = results(translator(tf.constant([line])))
        assert result["text"][0] == text and result["score"][0] == pytest.approx(score, abs=1e-4)


def test_a_learned_position_table_that_is_shorter_than_a_sentence_still_translates(tokenizer):
    config = ModelConfig(VOCAB_SIZE, 1, 1, d_model=8, d_ff=8, num_heads=1, d_k=4, d_v=4, learned_positions=3)
    translator = Translator(Transformer(config), tokenizer, DecodeConfig(beam_size=1, extra_length=2))
    [(_, score)] = results(translator(tf.constant(["nine hundred and ninety-nine thousand"])))
    assert np.isfinite(score)


@pytest.mark.medium
def test_a_translator_outlives_a_new_random_seed(model, tokenizer):
    """Story: TF.Text keeps a SentencePiece model in its op's kernel, and setting TensorFlow's seed drops all kernels.

    Whoever loaded a translator and then trained another model, which sets the seed, had a translator that raised
    "Resource … does not exist". This test stands last, for the fixtures above would be hit too.
    """
    translator = Translator(model, BytePairs(tokenizer.model), DecodeConfig(beam_size=1, extra_length=1))
    before = results(translator(tf.constant(["one"])))
    keras.utils.set_random_seed(1)
    assert results(translator(tf.constant(["one"]))) == before


class _StoppedError(Exception):
    """Ends a search before its first step."""


def asked_for(monkeypatch, search) -> tuple:
    """The lengths of a search's rows and the limits of its sub-batches."""
    seen = []

    def in_sub_batches(function, rows, lengths, *, max_rows, max_tokens, outputs, cores):
        seen.append((lengths.numpy().tolist(), max_rows, max_tokens, cores))
        raise _StoppedError

    monkeypatch.setattr(translator_module, "in_sub_batches", in_sub_batches)
    with pytest.raises(_StoppedError):
        search()
    return seen[0]


def test_long_translations_of_short_sources_are_searched_a_few_at_a_time(model, monkeypatch):
    """Story: 32 rows of one word that asked for 1,074 sub-words had caches of 3.4 GB together."""
    translator = Translator(model, None, DecodeConfig(beam_size=2, search_rows=5, search_cores=6))
    source = tf.ragged.constant([[5, EOS], [4, 5, 6, EOS]], tf.int32, row_splits_dtype=tf.int64)
    options = tf.zeros([2]), tf.constant([9, 3]), tf.ones([2], tf.int32)
    assert asked_for(monkeypatch, lambda: translator.search(source, *options)) == ([9, 4], 5, 640, 6)


@pytest.mark.parametrize(
    ("beam_size", "rows", "tokens"),
    [(1, 32, 4096), (4, 32, 4096), (63, 32, 4096), (64, 8, 1024), (100, 3, 455), (512, 1, 16), (4096, 1, 0)],
)
def test_with_many_beams_fewer_sentences_are_searched_at_a_time(model, monkeypatch, beam_size, rows, tokens):
    """Of 32 beams each, for which there is memory: of twice as many a quarter, of three times as many a ninth."""
    translator = Translator(model, None, DecodeConfig(beam_size=beam_size))
    translator.limits = sub_batches.Limits(32, 4096, 2)
    source = tf.ragged.constant([[5, EOS]], tf.int32, row_splits_dtype=tf.int64)
    options = tf.zeros([1]), tf.constant([9]), tf.ones([1], tf.int32)
    assert asked_for(monkeypatch, lambda: translator.search(source, *options)) == ([9], rows, tokens, 2)


def test_samples_are_drawn_a_few_at_a_time_by_the_longer_side_on_all_cores(model, monkeypatch):
    translator = Translator(model, None, DecodeConfig(search_rows=5, search_cores=6))
    source = tf.ragged.constant([[5, EOS], [4, 5, 6, EOS]], tf.int32, row_splits_dtype=tf.int64)
    options = tf.constant([9, 3]), tf.constant([1, 5]), inference
    assert asked_for(monkeypatch, lambda: translator.draw(source, *options)) == ([9, 4, 4], 5, 640, 6)


def test_pairs_are_scored_a_few_at_a_time_by_their_longer_side(model, monkeypatch):
    """Each token of the target has logits, and each of both sides has activations."""
    seen = []

    def in_sub_batches(function, rows, lengths, *, max_rows, max_tokens, outputs):
        seen.append((lengths.numpy().tolist(), max_rows, max_tokens))
        return sub_batches.in_sub_batches(
            function, rows, lengths, max_rows=max_rows, max_tokens=max_tokens, outputs=outputs
        )

    monkeypatch.setattr(translator_module, "in_sub_batches", in_sub_batches)
    source, target = (
        tf.ragged.constant([[5] * (length - 1) + [EOS] for length in lengths], tf.int32, row_splits_dtype=tf.int64)
        for lengths in ((7, 2, 3), (2, 5, 3))
    )
    log_probs = Translator(model, None, DecodeConfig()).log_probs(source, target)
    assert seen == [([7, 5, 3], 32, 1024)]
    assert log_probs.row_lengths().numpy().tolist() == [2, 5, 3]


@pytest.mark.medium
def test_perplexity_is_of_all_pairs_however_many_are_read_at_once(translator, monkeypatch):
    lines = english(300)[:14]
    whole = perplexity(translator, lines[:7], lines[7:])
    monkeypatch.setattr("t2t_keras.evaluation.cross_entropy.PAIRS", 3)
    assert perplexity(translator, lines[:7], lines[7:]) == pytest.approx(whole, rel=1e-5)


def test_the_search_has_few_lengths_of_sources(model, monkeypatch):
    """Story: for a thousand lines oneDNN compiled so many kernels that the search took a fifth more time."""
    encode, lengths = Transformer.encode, []

    def recorded(self, source, *arguments):
        lengths.append(source.shape[1])
        return encode(self, source, *arguments)

    monkeypatch.setattr(Transformer, "encode", recorded)
    translator = Translator(model, None, DecodeConfig(beam_size=2))
    for length in range(1, 10):
        source = tf.ragged.constant([[5] * (length - 1) + [EOS]], tf.int32, row_splits_dtype=tf.int64)
        translator.search(source, tf.zeros([1]), tf.constant([2]), tf.ones([1], tf.int32))
    assert lengths == [4] * 4 + [8] * 4 + [12]
