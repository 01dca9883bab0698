"""BPE-dropout: other sub-words of the same text in each epoch, at the rate, and the same ones for the same seed."""

import collections
import io
import itertools
import math
import random
import sys
import threading
import types

import numpy as np
import programs
import pytest
import sentencepiece
import tensorflow as tf

from t2t_keras.config import EOS, DataConfig, TrainConfig
from t2t_keras.data import batching, shards
from t2t_keras.runs.registry import task
from t2t_keras.runs.run_start import Start
from t2t_keras.text import vocabulary
from t2t_keras.text.bpe_dropout import BpeDropout
from t2t_keras.text.byte_pairs import BytePairs, learn
from t2t_keras.training import device_memory, devices, loop, run

LINES = [b"the cats see the dogs", b"dogs", "the dogs, the cats & the 😀 of 12_3".encode()]
LINES += ["▁ a <b> of </s>".encode(), b"", *[b"the cats see dogs"] * 20]
LEARN = {"sample": 10**6, "seed": 1, "normalization": "identity", "character_coverage": 1.0}


@pytest.fixture(scope="module")
def subwords() -> BytePairs:
    return BytePairs(learn(LINES * 9, 300, **LEARN))


def merged_anew(subwords: BytePairs, ids) -> list[list[int]]:
    """The sub-words that merges make of the characters of whole sentences, if none is skipped."""
    merges, values, rows = BpeDropout(subwords, 0.5, 99)._merges, ids.values.numpy(), ids.value_rowids().numpy()
    never = np.full(len(rows), 10**6)
    found, rows = merges._merged_anew(values, rows, never, np.random.default_rng(1))
    return [found[rows == row].tolist() for row in range(ids.nrows())]


def seed_of(*numbers):
    return tf.constant(numbers, tf.int64)


def test_the_text_and_the_end_stay_and_the_sub_words_differ(subwords):
    ids = subwords.tokenize(tf.constant(LINES))
    found = BpeDropout(subwords, 0.3, 99)(ids, seed_of(1, 2))
    assert found.dtype == tf.int32 and (found[:, -1:].values.numpy() == EOS).all()
    assert subwords.detokenize(found).numpy().tolist() == subwords.detokenize(ids).numpy().tolist()
    same = [one == other for one, other in zip(found.to_list(), ids.to_list(), strict=True)]
    assert 0 < sum(same) < len(LINES) / 2


@pytest.mark.parametrize(("most", "expected"), [(3, [2, 3]), (4, [4, 3]), (6, [4, 3]), (7, [4, 7]), (99, [4, 7])])
def test_a_sentence_that_would_become_longer_than_allowed_keeps_its_sub_words(most, expected):
    """By hand: where every merge is skipped, "ab" has three characters and its end."""
    subwords = BytePairs(learn([b"ab"] * 99, 4 + 256 + 3 + 2, **LEARN))
    found = BpeDropout(subwords, 1.0, most)(subwords.tokenize(tf.constant([b"ab", b"ab ab"])), seed_of(1, 2))
    assert found.row_lengths().numpy().tolist() == expected


def test_pieces_may_have_several_words():
    """SentencePiece learns such ones if it is asked to."""
    written = io.BytesIO()
    lines = ["in the house of the king", "the king of the house is in the house", "the house is of the king"]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 50), model_writer=written, model_type="bpe", vocab_size=310,
        split_by_whitespace=False, byte_fallback=True, normalization_rule_name="identity", pad_id=0, unk_id=1, bos_id=2,
        eos_id=3, minloglevel=2,
    )  # fmt: skip
    subwords = BytePairs(written.getvalue())
    ids = subwords.tokenize(tf.constant([*lines, "the is king"]))
    assert any("▁" in subwords.pieces[index][1:] for index in ids.values.numpy())
    assert BpeDropout(subwords, 0.0, 99)(ids, seed_of(1, 2)).to_list() == merged_anew(subwords, ids) == ids.to_list()


def test_a_merge_is_skipped_at_the_rate():
    """The word ▁ab has two merges."""
    subwords = BytePairs(learn([b"ab"] * 99, 4 + 256 + 3 + 2, **LEARN))
    number, rate = 20_000, 0.25
    ids = subwords.tokenize(tf.constant([b"ab"] * number))
    assert ids[0].shape[0] == 2
    found = BpeDropout(subwords, rate, 99)(ids, seed_of(3, 4)).row_lengths().numpy()
    # Whole; with the second merge skipped; and with the first one, without which there is no second.
    shares = [(found == length).mean() for length in (2, 3, 4)]
    expected = [(1 - rate) ** 2, (1 - rate) * rate, rate]
    for share, wanted in zip(shares, expected, strict=True):
        assert share == pytest.approx(wanted, abs=5 * (wanted * (1 - wanted) / number) ** 0.5)


def ranks_of(subwords: BytePairs) -> dict[str, float]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=subwords.model)
    first = EOS + 1 + 256
    pieces = enumerate(subwords.pieces[first:], first)
    return {piece: -processor.get_score(index) for index, piece in pieces if len(piece) > 1}


def outcomes(word: tuple, ranks: dict, rate: float) -> dict[tuple, float]:
    """The probability of each division of a word by algorithm 1 of the paper."""
    merges = sorted(
        (ranks[pair], place) for place, pair in enumerate(map("".join, itertools.pairwise(word))) if pair in ranks
    )
    found = collections.Counter({word: rate ** len(merges)})
    for better, (_, place) in enumerate(merges):
        merged = (*word[:place], "".join(word[place : place + 2]), *word[place + 2 :])
        for division, probability in outcomes(merged, ranks, rate).items():
            found[division] += rate**better * (1 - rate) * probability
    return found


def test_divisions_are_as_frequent_as_the_algorithm_of_the_paper_says():
    subwords = BytePairs(learn([b"abab bab abba", b"ab ba abab"] * 50, 4 + 256 + 3 + 6, **LEARN))
    ranks, number, rate = ranks_of(subwords), 20_000, 0.4
    ids = subwords.tokenize(tf.constant([b"abab"] * number))
    found = BpeDropout(subwords, rate, 99)(ids, seed_of(8, 9)).to_list()
    counts = collections.Counter(tuple(subwords.pieces[index] for index in row[:-1]) for row in found)
    expected = outcomes(tuple("▁abab"), ranks, rate)
    assert len(ranks) == 6 and len(expected) == 8 and sum(expected.values()) == pytest.approx(1)
    assert counts.keys() <= expected.keys()
    for division, share in expected.items():
        assert counts[division] / number == pytest.approx(share, abs=5 * (share * (1 - share) / number) ** 0.5)


def test_sentences_of_equal_length_are_divided_too(subwords):
    """Story: none could become longer than the longest of the part, so 2,000 of the same length kept their
    sub-words.
    """
    number, rate = 2000, 0.1
    ids = subwords.tokenize(tf.constant([b"the cats see the dogs"] * number))
    found = BpeDropout(subwords, rate, 99)(ids, seed_of(1, 2)).to_list()
    same = np.mean([one == other for one, other in zip(found, ids.to_list(), strict=True)])
    words: list[list[str]] = []
    for piece in (subwords.pieces[index] for index in ids[0, :-1].numpy()):
        words += [[]] if piece.startswith("▁") else []
        words[-1].append(piece)
    ranks = ranks_of(subwords)
    expected = math.prod(outcomes(tuple("".join(word)), ranks, rate)[tuple(word)] for word in words)
    assert len(words) == 5 and same == pytest.approx(expected, abs=5 * (expected * (1 - expected) / number) ** 0.5)


def test_without_skipped_merges_sub_words_are_those_of_sentencepiece():
    """Also of words that are long, and where words have no spaces between them."""
    draw = random.Random(4)
    words = ["".join(draw.choices("abcd", weights=(9, 5, 3, 1), k=draw.randint(1, 9))) for _ in range(60)]
    lines = [" ".join(draw.choices(words, k=draw.randint(0, 12))) for _ in range(300)]
    lines += ["".join(words), "é ▁ \U0001f600"]
    for separator in (" ", ""):
        text = [line.replace(" ", separator).encode() for line in lines]
        subwords = BytePairs(learn(text, 330, **LEARN))
        ids = subwords.tokenize(tf.constant(text))
        found = BpeDropout(subwords, 0.0, 99)(ids, seed_of(1, 2)).to_list()
        assert found == merged_anew(subwords, ids) == ids.to_list()
        longest = BpeDropout(subwords, 1.0, 99)(ids[:-2], seed_of(1, 2)).row_lengths().numpy().max()
        assert longest > ids.row_lengths().numpy()[:-2].min()


def test_every_process_draws_the_same(subwords):
    """Story: the seed of SentencePiece gave other sub-words in each process, so that no run could be repeated or
    resumed exactly.
    """
    code = (
        "import sys, tensorflow as tf\n"
        "from t2t_keras.text import bpe_dropout, byte_pairs\n"
        "subwords = byte_pairs.BytePairs(sys.stdin.buffer.read())\n"
        "ids = subwords.tokenize(tf.constant([b'the cats see the dogs'] * 40 + [b'a ' * 30]))\n"
        "print(bpe_dropout.BpeDropout(subwords, 0.3, 99)(ids, tf.constant([3, 4], tf.int64)).to_list())"
    )
    command, given = [sys.executable, "-c", code], {"input": subwords.model, "capture_output": True, "check": True}
    found = [programs.run(command, **given).stdout for _ in range(2)]
    ids = subwords.tokenize(tf.constant([b"the cats see the dogs"] * 40 + [b"a " * 30]))
    assert found == [f"{BpeDropout(subwords, 0.3, 99)(ids, seed_of(3, 4)).to_list()}\n".encode()] * 2
    assert len(set(found[0].split(b"], "))) > 5


def test_the_seed_decides_whatever_else_draws(subwords):
    ids, dropout = subwords.tokenize(tf.constant(LINES * 20)), BpeDropout(subwords, 0.3, 99)
    expected = dropout(ids, seed_of(5, 6)).to_list()
    assert dropout(ids, seed_of(5, 6)).to_list() == expected
    for other in (seed_of(5, 7), seed_of(6, 6), seed_of(6, 5)):
        assert dropout(ids, other).to_list() != expected
    found, stop = [], threading.Event()

    def draw(number: int) -> None:
        while not stop.is_set():
            found.append(BpeDropout(subwords, 0.3, 99)(ids, seed_of(5, 6 + number % 2)).to_list() == expected)
            if number == 0 and len(found) > 20:
                stop.set()

    threads = [threading.Thread(target=draw, args=(number,)) for number in range(3)]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
    assert set(found) == {True, False}


def test_a_rate_of_nearly_0_changes_nothing(subwords):
    ids = subwords.tokenize(tf.constant(LINES))
    assert BpeDropout(subwords, 1e-9, 99)(ids, seed_of(1, 2)).to_list() == ids.to_list()


def test_no_sentences_become_none(subwords):
    assert BpeDropout(subwords, 0.3, 99)(subwords.tokenize(tf.constant(LINES))[:0], seed_of(1, 2)).to_list() == []


def test_placeholders_and_tags_stay_whole():
    pattern = r"\{\w+\}"
    text = [b"the {name} saw {it} and <2de> the dogs"] * 50
    model = BytePairs(learn(text, 310, pattern=pattern, tags=["<2de>"], **LEARN))
    lines = [b"<2de> the {name} saw {it}", b"the {it} and {name}", b"<2de> dogs and dogs and dogs and dogs and dogs"]
    lines *= 9
    kept = model.kept(tf.constant(lines))
    ids = model.tokenize(tf.constant(lines), kept=kept)
    found = BpeDropout(model, 0.5, 99)(ids, seed_of(1, 2))
    assert found.to_list() != ids.to_list()
    assert model.detokenize(found, kept).numpy().tolist() == lines
    special = [index for index, piece in enumerate(model.pieces) if piece.startswith("｟") or piece == "▁<2de>"]
    assert len(special) > 2
    for one, other in zip(found.to_list(), ids.to_list(), strict=True):
        assert [id for id in one if id in special] == [id for id in other if id in special]


def test_word_pieces_have_no_merges(subwords):
    pieces = vocabulary.learn("wordpiece", LINES * 20, 290, **LEARN)
    with pytest.raises(ValueError, match="`bpe_dropout` needs byte-pair encoding.*Received: WordPieces"):
        BpeDropout(vocabulary.load(pieces), 0.1, 99)
    with pytest.raises(ValueError, match="Received: Words"):
        BpeDropout(vocabulary.load(vocabulary.learn("word", LINES * 20, 265, **LEARN)), 0.1, 99)


def test_a_unigram_model_has_no_merges(tmp_path):
    """Story: people may give a SentencePiece model of their own, whose default is unigram, and `bpe_dropout` then had
    no effect.
    """
    words = "small walking talking something nothing house mouse".split()
    lines = (" ".join(each).encode() for each in itertools.permutations(words, 4))
    model = learn(lines, 280, **LEARN, model_type="unigram")
    expected = "`bpe_dropout` needs byte-pair encoding.*Received: a SentencePiece model without merges"
    with pytest.raises(ValueError, match=expected):
        BpeDropout(vocabulary.load(model), 0.1, 99)
    # Story: the text was read and divided first, which takes hours.
    (tmp_path / "unigram.model").write_bytes(model)
    given = {"dataset": "builtin", "subwords_file": str(tmp_path / "unigram.model")}
    start = Start.open(tmp_path / "run", given | {"vocab_size": 0, "bpe_dropout": 0.1})
    with pytest.raises(ValueError, match="`bpe_dropout` needs byte-pair encoding.*merges"):
        run.train(start, strategy=devices.make_strategy(1))
    assert not (tmp_path / "run" / "data" / "train").exists()


def renewal_of(tokenizer, training: bool = True, buckets: int = 4, **train):
    options = types.SimpleNamespace(
        train=TrainConfig(batch_tokens=400, buckets_per_update=buckets, **train),
        data=DataConfig(max_length=99, source_tag="<2de>"),
    )
    return task("translation").renewal(tokenizer, options, training)


def two_epochs(folder, subwords, lines: list[bytes], batch_tokens: int, renewal) -> list[list]:
    """The targets of both epochs of 25 lines. Checks that a later start reads what comes there."""
    columns = {"source": True, "target": True}
    pairs = [(row, row) for row in subwords.sentences(lines)]
    shards.write(folder, pairs, count=25, vocab_size=subwords.vocab_size, seed=1, columns=columns)
    reading = {"batch_tokens": batch_tokens, "seed": 3, "renewal": renewal}
    batches = list(batching.batches(folder, epochs=2, **reading).as_numpy_iterator())
    start = batching.Position(*map(int, batches[2]["position"]))
    again = next(batching.batches(folder, start=start, **reading).as_numpy_iterator())
    for name in columns:
        np.testing.assert_array_equal(again[name], batches[3][name])
    rows = [row for batch in batches for row in tf.RaggedTensor.from_tensor(batch["target"], padding=0).to_list()]
    assert len(rows) == 50
    return [rows[:25], rows[25:]]


def test_each_side_of_the_training_data_has_its_own_sub_words_and_numbers(subwords):
    other = BytePairs(learn([b"das haus der hunde"] * 50, 290, **LEARN))
    tokenizer = BytePairs(subwords.model)
    tokenizer.own_source = other
    assert renewal_of(tokenizer) is None and renewal_of(tokenizer, training=False, bpe_dropout=0.3) is None
    renewal = renewal_of(tokenizer, bpe_dropout=0.3)
    texts = {"source": b"das haus der hunde", "target": b"the cats see the dogs of 12_3"}
    texts = {side: tf.constant([text] * 30) for side, text in texts.items()}
    records = {"source": other.tokenize(texts["source"]), "target": tokenizer.tokenize(texts["target"])}
    found = renewal.change(records, seed_of(1, 2))
    assert tuple(found) == renewal.columns == ("source", "target")
    for name, side in (("source", other), ("target", tokenizer)):
        assert side.detokenize(found[name]).numpy().tolist() == texts[name].numpy().tolist()
    ids = tokenizer.tokenize(tf.constant([b"the cats see the dogs"] * 30 + [b"the cats " * 12]))
    same = renewal_of(subwords, bpe_dropout=0.3).change({"source": ids, "target": ids}, seed_of(1, 2))
    assert same["source"].to_list() != same["target"].to_list()


@pytest.mark.medium
def test_every_epoch_has_other_sub_words_and_a_later_start_the_same(subwords, tmp_path):
    lines = [b"the cats see the dogs", b"dogs see the cats", b"cats"] * 8 + [b"the cats " * 12]
    first, second = two_epochs(tmp_path, subwords, lines, 100, renewal_of(subwords, bpe_dropout=0.3))

    def texts(rows) -> list:
        return sorted(subwords.detokenize(tf.ragged.constant(rows, tf.int32)).numpy())

    assert texts(first) == texts(second) == texts([row.tolist() for row in subwords.sentences(lines)])
    assert sorted(first) != sorted(second)


@pytest.mark.parametrize(("rate", "expected"), [(0.0, [7, 6]), (0.3, [99, 99])])
def test_memory_is_planned_for_the_length_that_sentences_may_grow_to(subwords, tmp_path, monkeypatch, rate, expected):
    seen, row = [], np.full(7, 5, np.int32)
    shards.write(tmp_path, [(row, row[:6])], count=1, vocab_size=300, seed=1, columns={"source": True, "target": True})
    noted = lambda strategy, step, info, *given, **options: seen.append(info)  # noqa: E731
    monkeypatch.setattr(device_memory, "run_largest_micro_batches", noted)
    renewal = renewal_of(subwords, bpe_dropout=rate)
    loop._run_largest(tf.distribute.get_strategy(), None, task("translation"), TrainConfig(), tmp_path, renewal)
    assert shards.counted(seen[0]) == expected


def test_the_most_that_sentences_grow_to_fits_into_the_batches_of_an_update(subwords):
    assert [renewal_of(subwords, bpe_dropout=0.3, buckets=number).most for number in (8, 4)] == [50, 99]


def test_options_that_do_not_fit_are_refused_early(tmp_path):
    given = {"bpe_dropout": 0.1, "dataset": "builtin"}
    expected = "Expected `subwords=bpe` with `bpe_dropout`. Received: subwords=wordpiece, bpe_dropout=0.1"
    with pytest.raises(ValueError, match=expected):
        Start.open(tmp_path / "run", given | {"subwords": "wordpiece"})
    assert Start.open(tmp_path / "run", given).options.train.bpe_dropout == 0.1
