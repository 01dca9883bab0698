"""BERT's pretraining (Devlin et al. 2019): pairs and masks, counted and by hand; a run on small documents."""

import collections
import dataclasses
import itertools
import json
import pathlib
import random
import re
import types
import zlib

import keras
import numpy as np
import numpy_transformer as paper
import pytest
import tensorflow as tf
from test_architecture import arrays
from test_flops import products
from test_oracle import as_in_the_paper, randomized

from t2t_keras.config import BOS, EOS, UNK, BertConfig, DataConfig, ModelConfig
from t2t_keras.data import batching, prepare, shards, text_files
from t2t_keras.layers.dropout import Dropout
from t2t_keras.model import flops
from t2t_keras.model.bert import Bert
from t2t_keras.model.encoder import TransformerEncoder
from t2t_keras.reporting import curves
from t2t_keras.runs import checkpoint, registry
from t2t_keras.runs.run_start import Start
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.tasks import masking, pretraining
from t2t_keras.text import vocabulary
from t2t_keras.text.byte_pairs import BytePairs, learn
from t2t_keras.training import devices, run

SEED = tf.constant([5, 7], tf.int64)
TASK = pretraining.Pretraining()


class Letters:
    """Sub-words that are letters: "ab c" is the ids of a, b and c."""

    def sentences(self, lines: list[bytes]) -> list[np.ndarray]:
        return [np.array([*(ord(letter) for letter in line.decode().replace(" ", "")), EOS]) for line in lines]


def records(text: str, max_length: int) -> list[tuple[str, list[int], int]]:
    """The sentences of each record as text, their lengths, and the number of the document."""
    found = []
    for ids, lengths, [document] in TASK.records(Letters(), text.encode().split(b"\n"), max_length=max_length):
        assert ids[0] == BOS and ids[-2:].tolist() == [EOS, EOS] and len(ids) <= max_length
        found.append(("".join(map(chr, ids[1:-2])), lengths.tolist(), document))
    return found


# Records.


def test_a_record_has_as_many_sentences_of_a_document_as_fit():
    """By hand, for 8 sub-words: sentences of 5 become 4 and 1; a last one alone comes with the one before it."""
    one, two = (1 + zlib.crc32(text) % 65535 for text in (b"abc\nde\nfgh\nij", b"rst\nuvwxy\nz"))
    expected = [("abcdefgh", [3, 2, 3], one), ("fghij", [3, 2], one), ("rstuvwxy", [3, 4, 1], two), ("yz", [1, 1], two)]
    assert records("abc\nde\nfgh\nij\n\nrst\nuvwxy\nz\n", 11) == expected


def test_each_record_of_a_document_has_the_same_room():
    """For 8 sub-words."""
    expected = [[4, 4], [4, 4], [1, 3, 4]]
    assert [lengths for _, lengths, _ in records("abcd\nefgh\nijkl\nmnop\nq\nrst\nuvwx", 11)] == expected
    assert [lengths for _, lengths, _ in records("abcd\nefgh\nijkl\nmnop\nq", 11)] == [[4, 4], [4, 4], [4, 1]]


def test_defaults_of_training_are_those_of_bert():
    """Appendix A.2; the norm of clipping is that of its optimization.py."""
    assert TASK.defaults == {"label_smoothing": 0.0, "learning_rate": 1e-4, "warmup_steps": 10_000, "clip_norm": 1.0}


def test_lines_that_are_all_blank_are_no_documents():
    """Story: the last chunk of a corpus may have no other lines."""
    subwords = BytePairs(
        learn([b"the cats see the dogs"] * 9, 280, sample=9, seed=1, normalization="identity", character_coverage=1.0)
    )
    assert (
        list(TASK.records(subwords, [b"", b""], max_length=16)) == list(TASK.records(subwords, [], max_length=16)) == []
    )
    assert len(list(TASK.records(subwords, [b"the cats", b"the dogs", b""], max_length=16))) == 1


def test_documents_that_begin_alike_are_two():
    """Story: a document was known by its first line, so papers that begin with "abstract" were one."""
    [one], [two] = (records(f"abstract\n{line}\n", 40) for line in ("ab", "cd"))
    assert one[2] != two[2] and records("abstract\nab\n\n\nabstract\ncd\n", 40) == [one, two]


def test_a_document_has_one_number_though_text_is_tokenized_in_parts(monkeypatch):
    monkeypatch.setattr(prepare, "PAIRS_AT_ONCE", 2)
    lines = [(line.encode(),) for line in "ab cd ef gh ij".split()] + [(b"",), (b"kl",), (b"mn",)]
    report = text_files.Report()
    found = [document for *_, [document] in prepare.encode(iter(lines), Letters(), 7, report, TASK)]
    assert len(found) == 4 and len(set(found[:3])) == 1 and found[3] != found[0]


def test_a_document_of_one_sentence_has_no_record_and_blank_lines_in_a_row_are_one():
    assert [text for text, *_ in records("\n\nab\n\n\ncd\nef\n\n\n", 20)] == ["cdef"]


def test_too_little_room_is_refused():
    """Two sub-words have room with BERT's three special ones."""
    assert [text for text, *_ in records("ab\ncd", 5)] == ["ab", "cd"]
    with pytest.raises(ValueError, match=re.escape("Received: max_length=4.")):
        records("ab\ncd", 4)


# Pairs.


def ragged(rows: list) -> tf.RaggedTensor:
    return tf.ragged.constant(rows, tf.int32, row_splits_dtype=tf.int64)


def some_records(number: int, seed: int = 0) -> tuple[list[list[list[int]]], list[int]]:
    """Sentences of records, each id once: 100,000 × record + 1,000 × sentence + place + 10; three records each."""
    draw = random.Random(seed)
    sentences = [
        [
            [100_000 * row + 1000 * n + place + 10 for place in range(draw.randint(1, 9))]
            for n in range(draw.randint(2, 6))
        ]
        for row in range(number)
    ]
    return sentences, [1 + row // 3 for row in range(number)]


def drawn(sentences, documents, seed=SEED) -> list[tuple[list[int], list[int], int]]:
    """The first and the second part of each text, and 2 where the second follows."""
    tokens = ragged([[BOS, *itertools.chain(*row), EOS, EOS] for row in sentences])
    lengths = ragged([[len(each) for each in row] for row in sentences])
    text, following = masking.pairs(tokens, lengths, ragged([[each] for each in documents]), seed)
    found = []
    for ids, [answer], whole in zip(text.to_list(), following.to_list(), tokens.to_list(), strict=True):
        assert ids[0] == BOS and ids[-1] == EOS and ids.count(EOS) == 2 and len(ids) <= len(whole)
        end = ids.index(EOS)
        found.append((ids[1:end], ids[end + 1 : -1], answer))
    return found


def test_half_of_the_second_sentences_follow_and_the_others_are_of_another_document():
    sentences, documents = some_records(1200)
    follows = cuts = 0
    splits = collections.Counter()
    for row, (first, second, answer) in enumerate(drawn(sentences, documents)):
        whole = list(itertools.chain(*sentences[row]))
        ends = list(itertools.accumulate(map(len, sentences[row])))
        assert first == whole[: len(first)] and len(first) in ends[:-1]
        if len(ends) == 5:
            splits[ends.index(len(first))] += 1
        other, start = second[0] // 100_000, second[0] // 1000 % 100
        follows += answer == 2
        assert (
            (other, start) == (row, ends.index(len(first)) + 1)
            if answer == 2
            else documents[other] != documents[row] and start > 0
        )
        theirs = sentences[other][start:]
        assert second == list(itertools.chain(*theirs))[: len(second)]
        assert len(second) <= len(whole) - len(first)
        is_cut = len(second) not in itertools.accumulate(map(len, theirs))
        assert not is_cut or len(second) < len(theirs[0])
        cuts += is_cut
    assert 500 < follows < 700 and 0 < cuts < 900
    assert len(splits) == 4 and min(splits.values()) > sum(splits.values()) / 8, "any sentence may end the first part"


def test_lengths_do_not_reveal_which_second_sentences_follow():
    """Story: those that followed filled the record, and others did not, which told a network 71%."""
    sentences, documents = some_records(6000, seed=3)
    found = {1: [], 2: []}
    for row, (first, second, answer) in enumerate(drawn(sentences, documents)):
        ends = set(itertools.accumulate(map(len, sentences[second[0] // 100_000][second[0] // 1000 % 100 :])))
        whole = sum(map(len, sentences[row]))
        found[answer].append((len(first), len(second), len(first) + len(second) == whole, len(second) in ends))
    one, two = (np.array(found[answer], float) for answer in (1, 2))
    error = np.sqrt(one.var(axis=0) / len(one) + two.var(axis=0) / len(two)) + 0.005
    np.testing.assert_array_less(np.abs(one.mean(axis=0) - two.mean(axis=0)), 4 * error)
    lengths = range(1, 20)
    shares = [np.array([(each[:, 1] <= length).mean() for length in lengths]) for each in (one, two)]
    assert np.abs(shares[0] - shares[1]).max() < 0.05


def test_second_sentences_have_half_of_what_is_left_or_more_but_not_all_of_it():
    """By hand, of nine sentences of one sub-word, beside records with more: all below a drawn limit are taken."""
    nine, long = [[10 + place] for place in range(9)], [[30], [*range(40, 90)]]
    found = {answer: collections.defaultdict(set) for answer in (1, 2)}
    for first, second, answer in drawn([nine] * 600 + [long] * 2400, [3] * 600 + [4] * 2400)[:600]:
        begin = 40 if answer == 1 else 10 + len(first)
        assert second == list(range(begin, begin + len(second)))
        found[answer][len(first)].add(len(second))
    expected = {1: {4, 5, 6, 7}, 2: {4, 5, 6}, 3: {3, 4, 5}, 4: {3, 4}, 5: {2, 3}, 6: {2}, 7: {1}, 8: {1}}
    assert found == {1: expected, 2: expected}


def test_where_all_records_are_of_one_document_each_second_sentence_follows():
    sentences, _ = some_records(20)
    assert {answer for *_, answer in drawn(sentences, [3] * 20)} == {2}


# Masks.


def masked(texts: list[list[int]], rate: float = 0.15, parts=None, vocab_size: int = 1000, seed=SEED) -> list[tuple]:
    tokens, positions, targets = masking.mask(ragged(texts), seed, vocab_size, rate, parts)
    found = []
    for before, after, places, words in zip(
        texts, *(each.to_list() for each in (tokens, positions, targets)), strict=True
    ):
        assert len(after) == len(before) and places == sorted(places)
        assert words == [before[place - 1] for place in places] and not {BOS, EOS} & set(words)
        assert all(
            one == two for place, (one, two) in enumerate(zip(before, after, strict=True), 1) if place not in places
        )
        found.append((after, places, words))
    return found


def test_of_the_sub_words_a_share_is_predicted_of_which_80_percent_are_masked_and_10_are_replaced():
    draw = np.random.default_rng(1)
    texts = [
        [BOS, *draw.integers(500, 900, length), EOS, *draw.integers(500, 900, length), EOS]
        for length in draw.integers(2, 60, 800)
    ]
    kinds, where = collections.Counter(), []
    for text, (after, places, words) in zip(texts, masked(texts), strict=True):
        assert len(places) == max(1, round(0.15 * len(text)))
        for place, word in zip(places, words, strict=True):
            found = after[place - 1]
            kinds["mask" if found == UNK else "same" if found == word else "other"] += 1
            where.append(place / len(text))
            assert found > EOS or found == UNK
    total = kinds.total()
    assert total > 5000
    for kind, share in (("mask", 0.8), ("other", 0.1), ("same", 0.1)):
        assert kinds[kind] / total == pytest.approx(share, abs=4 * (share * (1 - share) / total) ** 0.5), kind
    assert np.mean(where) == pytest.approx(0.5, abs=0.02), "any place"


def test_replaced_words_are_any_that_are_not_special():
    found = collections.Counter()
    for after, places, _ in masked([[BOS, *[5] * 40, EOS, 5, EOS]] * 300, rate=0.8, vocab_size=9):
        found.update(after[place - 1] for place in places)
    assert found.keys() == {UNK, 4, 5, 6, 7, 8} and min(found[word] for word in (4, 6, 7, 8)) > found[4] * 0.8


def test_masks_differ_by_seed_and_are_the_same_for_one():
    texts = [[BOS, *range(10, 60), EOS, 9, EOS]] * 50
    one, again, other = (masked(texts, seed=tf.constant(seed, tf.int64)) for seed in ([1, 2], [1, 2], [1, 3]))
    assert one == again and sum(a == b for a, b in zip(one, other, strict=True)) < 3


def test_memory_is_planned_for_the_masked_words_alone():
    tokenizer = types.SimpleNamespace(word_parts=None, vocab_size=9)
    for whole_words, expected in ((False, {10: 2, 3: 1, 100: 15}), (True, {10: 10, 3: 3, 100: 31})):
        longest = masking.renewal(tokenizer, 0.15, whole_words).longest
        wanted = {length: {"masked": number, "target": number, "following": 1} for length, number in expected.items()}
        assert {length: longest(length) for length in expected} == wanted


def test_whole_words_are_masked_or_none_of_a_word():
    """Ids 10 to 19 begin words and 20 to 29 go on with them; 30 is a comma, which does neither."""
    goes_on = np.array([20 <= word < 30 for word in range(40)])
    inside = np.array([10 <= word < 30 for word in range(40)])
    words = [[10, 20], [11], [30], [12, 21, 22], [30], [13], [14, 23], [25], [30]]
    words[7:8] = []  # 25 would be a part of the word before it.
    text = [BOS, *itertools.chain(*words[:5]), EOS, *itertools.chain(*words[5:]), EOS]
    places, at = [], 2
    for number, word in enumerate(words):
        at += number == 5  # [SEP].
        places.append(set(range(at, at + len(word))))
        at += len(word)
    sizes = collections.Counter()
    for _, chosen, _ in masked([text] * 400, rate=0.25, parts=(goes_on, inside)):
        whole = [word for word in places if word <= set(chosen)]
        assert set(chosen) == set().union(*whole), "whole words alone"
        number = round(0.25 * len(text))
        assert len(chosen) >= number and min(len(chosen) - len(word) for word in whole) < number
        sizes[len(chosen)] += 1
    assert len(sizes) > 1 and set().union(*places) == {place for place in range(2, len(text)) if text[place - 1] != EOS}


# A run.

GIVEN = {
    "architecture": "bert", "train_source": "train.txt", "valid_source": "valid.txt", "vocab_size": 300,
    "encoder_layers": 1, "d_model": 32, "d_ff": 64, "num_heads": 2, "dropout": 0.0, "warmup_steps": 20,
    "batch_tokens": 2000, "micro_batch_tokens": 600, "buckets_per_update": 2, "valid_steps": 30, "checkpoint_steps": 30,
    "log_steps": 10, "max_length": 24, "label_smoothing": 0.0, "learning_rate": 0.01, "mask_rate": 0.2,
}  # fmt: skip
SUBJECTS = {
    "sea": "ship wave sail fish".split(),
    "farm": "barn corn horse field".split(),
    "town": "street shop tower clock".split(),
}


def documents(number: int, seed: int) -> str:
    """Each document has one subject, and says "the A is by the B": it tells what follows, and neighbours tell words."""
    draw = random.Random(seed)
    found = []
    for _ in range(number):
        words = draw.choice(list(SUBJECTS.values()))
        found.append(
            "\n".join(f"the {draw.choice(words)} is by the {draw.choice(words)}" for _ in range(draw.randint(3, 8)))
        )
    return "\n\n".join(found) + "\n"


def trained(model_dir: pathlib.Path, number: int, **given):
    start = Start.open(model_dir, GIVEN | given, str(model_dir.parent / "data"))
    return run.train(start, strategy=devices.make_strategy(number))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """A run of 60 updates on two devices."""
    folder = tmp_path_factory.mktemp("pretraining")
    for split, number in (("train", 200), ("valid", 60)):
        (folder / f"{split}.txt").write_text(documents(number, seed=number))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        trained(folder / "whole", 2, train_steps=60)
    return folder


@pytest.mark.medium
def test_a_checkpoint_has_all_weights(folder):
    sizes = [array.size for name, array in arrays(folder / "whole").items() if name.startswith("model/")]
    assert sum(sizes) == SavedRun.open(folder / "whole").options.model.num_weights


@pytest.mark.medium
def test_the_text_is_learned_and_the_curves_show_it(folder):
    scalars = curves.read(folder / "whole")
    for name in ("loss", "masked_accuracy", "next_loss", "next_accuracy"):
        assert {*scalars[f"valid/{name}"]} == {30, 60} and 60 in scalars[f"train/{name}"]
    assert scalars["valid/loss"][60] < scalars["valid/loss"][30] < 3.5 and scalars["valid/masked_accuracy"][60] > 0.2
    state = json.loads(str(np.load(checkpoint.kept(folder / "whole")[-1])["state"]))
    assert state["best"] == pytest.approx(-min(scalars["valid/loss"].values()))


@pytest.mark.medium
def test_figures_are_those_of_the_model_on_the_validation_set(folder):
    """Computed from the logits, row by row."""
    options = SavedRun.open(folder / "whole").options
    model = registry.architecture("bert").model_class()(options.model)
    checkpoint.load(folder / "whole", "latest", model)
    tokenizer = vocabulary.load((folder / "whole/subwords.model").read_bytes())
    renewal = options.task.renewal(tokenizer, options, training=False)
    loss, right, next_loss, answers = [], [], [], []
    for batch in batching.batches(
        folder / "data/valid", batch_tokens=600, seed=0, epochs=1, renewal=renewal
    ).as_numpy_iterator():
        hidden = model(batch["tokens"])
        words = tf.nn.log_softmax(model.word_logits(hidden, batch["masked"])).numpy()
        following = tf.nn.log_softmax(model.following_logits(hidden)).numpy()
        for row, (target, answer) in enumerate(zip(batch["target"], batch["following"][:, 0], strict=True)):
            number = (target > 0).sum()
            loss += [-words[row, place, target[place]] for place in range(number)]
            right += [words[row, place].argmax() == target[place] for place in range(number)]
            next_loss += [-following[row, answer - 1]] * number
            answers.append(following[row].argmax() == answer - 1)
    scalars = curves.read(folder / "whole")
    expected = {"loss": loss, "masked_accuracy": right, "next_loss": next_loss, "next_accuracy": answers}
    for name, values in expected.items():
        assert scalars[f"valid/{name}"][60] == pytest.approx(np.mean(values), rel=1e-4), name


@pytest.mark.medium
def test_the_text_of_the_validation_set_keeps_its_documents(folder):
    assert (folder / "data/valid.source.txt").read_bytes() == (folder / "valid.txt").read_bytes()
    info = shards.read_info(folder / "data/train")
    assert info["columns"] == {"tokens": True, "lengths": False, "document": False} and info["tokens_longest"] <= 24


@pytest.mark.parametrize("split", ["train", "valid"])
def test_text_without_documents_is_refused(tmp_path, split):
    for name in ("train", "valid"):
        (tmp_path / name).write_text("one line\nanother line\n" + "\nnext document\n" * (name != split))
    data = DataConfig(train_source=str(tmp_path / "train"), valid_source=str(tmp_path / "valid"))
    names = {"train": "training", "valid": "validation"}
    expected = f"Documents need a blank line between them. Received: {names[split]} text without one."
    with pytest.raises(ValueError, match=re.escape(expected)):
        prepare.Preparation(data, 300, 1, tmp_path / "data", TASK).run()


@pytest.mark.parametrize(("text", "received"), [
    ("a b\nc d\ne f\n\n", "one such document"),
    ("a b\nc d\n\na b\nc d\n\n", "one such document"),
    ("a b\n\nc d\n\ne f\n", "no document has two sentences"),
])  # fmt: skip
@pytest.mark.parametrize("split", ["train", "valid"])
def test_text_without_two_documents_is_refused(tmp_path, split, text, received):
    """Story: of one document, and a blank line at its end, every second sentence followed."""
    for name in ("train", "valid"):
        (tmp_path / name).write_text(text if name == split else documents(20, seed=1))
    data = DataConfig(train_source=str(tmp_path / "train"), valid_source=str(tmp_path / "valid"))
    (tmp_path / "subwords.model").write_bytes(
        pathlib.Path(__file__).parent.joinpath("data/run_1/subwords.model").read_bytes()
    )
    size = vocabulary.load((tmp_path / "subwords.model").read_bytes()).vocab_size
    expected = (
        f"Expected two different documents of two sentences or more, with a blank line between them, in the {split} "
        "text. "
    )
    with pytest.raises(ValueError, match=re.escape(f"{expected}Received: {received}.")):
        changed = dataclasses.replace(data, subwords_file=str(tmp_path / "subwords.model"))
        prepare.Preparation(changed, size, 1, tmp_path / "data", TASK).run()


def test_messages_count_sentences_and_records_but_no_blank_lines(tmp_path, messages, monkeypatch):
    monkeypatch.setattr(prepare, "PROGRESS_SECONDS", 0)
    lines = {}
    for name, seed in (("train", 1), ("valid", 2)):
        (tmp_path / name).write_text(documents(20, seed))
        lines[name] = documents(20, seed).splitlines()
    file = pathlib.Path(__file__).parent / "data/run_1/subwords.model"
    data = DataConfig(
        train_source=str(tmp_path / "train"), valid_source=str(tmp_path / "valid"), subwords_file=str(file)
    )
    prepare.Preparation(data, vocabulary.load(file.read_bytes()).vocab_size, 1, tmp_path / "data", TASK).run()
    sentences = len(list(filter(None, lines["train"])))
    info = shards.read_info(tmp_path / "data/train")
    each = f"{info['tokens_tokens'] / info['pairs']:.1f}"
    [said] = [message for message in messages if message.startswith("train: ")]
    assert info["pairs"] < sentences
    assert re.fullmatch(
        rf"train: {sentences} lines.*; {info['pairs']} records; {each} sub-words a record; [\d,]+ records/s\.", said
    )
    assert not any(re.search(r"… [\d,]+ of ", message) for message in messages), (
        "blank lines count, and are not in the total"
    )
    number = sum(line in lines["train"] for line in lines["valid"] if line)
    total = len(list(filter(None, lines["valid"])))
    assert number and f"Also in the training text: {number} of {total} validation lines." in messages


# The network.


def test_the_second_sentence_has_a_vector_of_its_own():
    config = BertConfig(20, encoder_layers=1, d_model=8, d_ff=12, num_heads=2)
    encoder = registry.architecture("bert").model_class()(config).encoder
    ids = np.array([[BOS, 5, 6, EOS, 7, 8, EOS, 0, 0], [BOS, 5, 6, 7, 8, EOS, 0, 0, 0]])
    plain = encoder.positions(encoder.embedding(ids)).numpy()
    second = (encoder.embed(ids) - plain).numpy()
    expected = np.zeros((2, 9, 1)) + 0.0
    expected[0, 4:7] = 1
    np.testing.assert_allclose(second, expected * encoder.second.kernel.numpy(), atol=1e-6)
    assert np.abs(encoder.second.kernel.numpy()).min() > 0


def test_the_vector_of_the_second_sentence_starts_small_as_in_bert():
    tf.keras.utils.set_random_seed(1)
    model = registry.architecture("bert").model_class()(
        BertConfig(20, encoder_layers=1, d_model=256, d_ff=4, num_heads=2)
    )
    # 256 draws: more than four standard errors.
    assert model.encoder.second.kernel.numpy().std() == pytest.approx(0.02, rel=0.2)


def test_a_forward_pass_has_the_counted_products():
    """But for two small ones: of the vector of the second sentence, and of the head that says whether it follows."""
    config = BertConfig(20, encoder_layers=1, d_model=8, d_ff=12, num_heads=2)
    model, rows, size, masked = registry.architecture("bert").model_class()(config), 2, 20, 3
    tokens = tf.ones([rows, size], tf.int32)
    words = tf.ones([rows, masked], tf.int32)
    ones = tf.ones([rows, 1], tf.int32)
    counted = products(tf.function(lambda: model.losses(tokens, words, words, ones, 0.1)["objective"], autograph=False))
    assert config.mask_rate == masked / size
    assert counted - 2 * rows * size * 8 - 2 * rows * 8 * 2 == pytest.approx(model.flops(rows, size))


def test_logits_are_those_of_the_equations():
    """Each text alone and unpadded in NumPy, and both in a batch here."""
    config = BertConfig(40, encoder_layers=2, d_model=16, d_ff=24, num_heads=2, learned_positions=9)
    model = randomized(Bert(config))
    values = {weight.path.removeprefix("bert/"): np.array(weight, "float64") for weight in model.trainable_variables}
    of_encoder = {path.removeprefix("transformer/"): value for path, value in values.items()}
    encoder = as_in_the_paper(of_encoder, types.SimpleNamespace(**vars(config.encoder) | {"decoder_layers": 0}))
    texts = [[BOS, 7, UNK, 9, EOS, 30, UNK, EOS], [BOS, UNK, 8, EOS]]
    masked = [[3, 7], [2]]
    tokens, places = (
        np.array([row + [0] * (max(map(len, rows)) - len(row)) for row in rows]) for rows in (texts, masked)
    )
    hidden = model(tokens)
    words, following = model.word_logits(hidden, places).numpy(), model.following_logits(hidden).numpy()
    matrix = of_encoder["embedding/matrix"]
    for row, (ids, positions) in enumerate(zip(texts, masked, strict=True)):
        second = np.arange(len(ids)) > ids.index(EOS)
        x = matrix[ids] * 4 + of_encoder["positions/table"][: len(ids)] + second[:, None] * of_encoder["second/kernel"]
        x = paper.encoder(x, encoder)
        np.testing.assert_allclose(hidden[row, : len(ids)], x, atol=1e-4)
        pooled = np.tanh(x[0] @ values["pooler/kernel"] + values["pooler/bias"])
        wanted = pooled @ values["following/kernel"] + values["following/bias"]
        np.testing.assert_allclose(following[row], wanted, atol=1e-4)
        chosen = paper.ACTIVATIONS["gelu"](x[np.array(positions) - 1] @ values["words/kernel"] + values["words/bias"])
        chosen = paper.layer_norm(chosen, (values["words_norm/gamma"], values["words_norm/beta"], 1e-6))
        expected = chosen @ matrix.T + of_encoder["embedding/logits_bias"]
        np.testing.assert_allclose(words[row, : len(positions)], expected, atol=1e-3)


def dropouts_drawn(model, loss) -> list[str]:
    """The names of the model's dropouts, each of which draws in a loss of training, and none in another."""
    dropouts = [layer for layer in model._flatten_layers() if isinstance(layer, Dropout)]
    names = [layer.name for layer in dropouts]

    def drawn(training: bool) -> list[str]:
        before = [layer.seed_generator.state.numpy() for layer in dropouts]
        loss(training=training)
        return [
            layer.name
            for layer, state in zip(dropouts, before, strict=True)
            if np.any(layer.seed_generator.state.numpy() != state)
        ]

    assert drawn(training=False) == [] and drawn(training=True) == names
    return names


def test_every_dropout_acts_in_training_and_none_in_validation():
    model = Bert(BertConfig(12, encoder_layers=1, d_model=8, d_ff=12, num_heads=2, dropout=0.5))
    batch = {
        "tokens": np.array([[BOS, UNK, EOS]]), "masked": np.array([[2]]), "target": np.array([[7]]),
        "following": np.array([[1]]),
    }  # fmt: skip
    found = len(dropouts_drawn(model, lambda training: TASK.loss(model, batch, label_smoothing=0.0, training=training)))
    assert found == 4


def test_the_memory_of_a_batch_is_that_of_the_encoder():
    config = BertConfig(12, encoder_layers=1, d_model=8, d_ff=12, num_heads=2)
    assert Bert(config).memory_cost(3, 50) == flops.memory_cost(config.encoder, 3, 50) > 3 * 50


def test_in_bfloat16_logits_and_losses_are_computed_in_float32():
    config = BertConfig(12, encoder_layers=1, d_model=8, d_ff=12, num_heads=2, dropout=0.0)
    model, short = randomized(Bert(config)), Bert(config, dtype="mixed_bfloat16")
    for weight, of in zip(short.trainable_variables, model.trainable_variables, strict=True):
        weight.assign(of)
    tokens, masked = np.array([[BOS, UNK, 6, EOS, UNK, EOS]]), np.array([[2, 5]])
    batch = {"tokens": tokens, "masked": masked, "target": np.array([[7, 8]]), "following": np.array([[2]])}
    hidden = short(tokens)
    assert hidden.dtype == "bfloat16"
    assert short.word_logits(hidden, masked).dtype == short.following_logits(hidden).dtype == "float32"
    found, expected = (TASK.loss(each, batch, label_smoothing=0.1, training=False) for each in (short, model))
    for name in ("loss", "next_loss", "objective"):
        assert float(found[name]) == pytest.approx(float(expected[name]), rel=0.05)


@pytest.mark.parametrize("make", [Bert, TransformerEncoder], ids=["bert", "encoder"])
def test_it_survives_the_ways_of_a_keras_model(make, tmp_path):
    if make is Bert:
        config = BertConfig(12, encoder_layers=1, d_model=8, d_ff=12, num_heads=2)
    else:
        config = ModelConfig(12, encoder_layers=1, decoder_layers=1, d_model=8, d_ff=12, num_heads=2, d_k=4, d_v=4)
    model, ids = randomized(make(config)), np.array([[BOS, 5, 6, EOS]])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.config == config
    np.testing.assert_allclose(loaded(ids), model(ids), atol=1e-6)


def test_the_objective_is_the_sum_of_both_losses_weighted_by_masked_words():
    """By hand from the logits: texts with 2 and 1 masked words, and an empty row. Smoothing is of the words alone."""
    model = Bert(BertConfig(12, encoder_layers=1, d_model=8, d_ff=12, num_heads=2, dropout=0.0))
    tokens = np.array([[BOS, UNK, 6, EOS, UNK, EOS], [BOS, 5, EOS, UNK, EOS, 0], [0] * 6])
    masked = np.array([[2, 5], [4, 0], [0, 0]])
    target = np.array([[7, 8], [9, 0], [0, 0]])
    following = np.array([[2], [1], [0]])
    hidden = model(tokens)
    words = tf.nn.log_softmax(model.word_logits(hidden, masked)).numpy()
    answers = tf.nn.log_softmax(model.following_logits(hidden)).numpy()
    chosen = [words[0, 0], words[0, 1], words[1, 0]]
    loss = -sum(row[word] for row, word in zip(chosen, (7, 8, 9), strict=True))
    smoothed = 0.8 * loss - 0.2 * sum(row.mean() for row in chosen)
    next_loss = -2 * answers[0, 1] - answers[1, 0]
    batch = {"tokens": tokens, "masked": masked, "target": target, "following": following}
    sums = {name: float(value) for name, value in TASK.loss(model, batch, label_smoothing=0.2, training=False).items()}
    assert sums["loss"] == pytest.approx(loss, rel=1e-5) and sums["next_loss"] == pytest.approx(next_loss, rel=1e-5)
    assert sums["objective"] == pytest.approx(smoothed + next_loss, rel=1e-5)
    assert sums["texts"] == 2 and sums["next_right"] == (answers[0].argmax() == 1) + (answers[1].argmax() == 0)
    assert sums["right"] == sum(row.argmax() == word for row, word in zip(chosen, (7, 8, 9), strict=True))
    # All texts are said to have another second sentence; the empty row counts for none.
    model.following.bias.assign([9.0, 0.0])
    assert float(TASK.loss(model, batch, label_smoothing=0.2, training=False)["next_right"]) == 1
