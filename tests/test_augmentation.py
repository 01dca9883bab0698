"""Noise in the training text: what each kind does, how often, and that the rest of the data stays as it is."""

import collections
import dataclasses
import io
import pathlib
import re
import time

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
import transformers_models as models
from logged import logged
from test_bpe_dropout import LEARN, renewal_of, seed_of, two_epochs

from t2t_keras.config import AUGMENTATIONS, DataConfig, TrainConfig
from t2t_keras.data import prepare
from t2t_keras.runs.run_options import Options
from t2t_keras.runs.run_start import Start
from t2t_keras.text import augmentation, piece_file
from t2t_keras.text.augmentation import Augmentation, Noise
from t2t_keras.text.byte_pairs import BytePairs, learn
from t2t_keras.text.sentence_pieces import SentencePieces

LINES = [b"two dogs play in the snow .", b"zwei hunde spielen im schnee .", b"TWO DOGS Play"]
LINES.append("Größe ist, was É".encode())


@pytest.fixture(scope="module")
def subwords() -> BytePairs:
    return BytePairs(learn(LINES * 20, 320, **LEARN))


def changed(source: str, target: str, *kinds: str, tags=(), seed: int = 1) -> tuple[str, str]:
    return Noise(tags).changed(source, target, kinds, np.random.default_rng(seed))


@pytest.mark.parametrize(("kinds", "pair", "expected"), [
    (("upper",), ("Two dogs.", "Zwei Hunde, groß."), ("TWO DOGS.", "ZWEI HUNDE, GROSS.")),
    (("upper",), ("NASA 2011", "Die Nasa 2011"), None),
    (("upper",), ("两只狗。", "Two dogs."), None),
    (("upper",), ("Two dogs.", "两只狗。"), ("TWO DOGS.", "两只狗。")),
    (("title",), ("it's a well-known dog", "l'été «à la» côte"), ("It's A Well-Known Dog", "L'été «À La» Côte")),
    (("title",), ("cafe\u0301s of e\u0301tat", "x"), ("Cafe\u0301s Of E\u0301tat", "X")),
    (("title",), ("zu\u00adsammen auf\u200clage", "х\ua66fл"), ("Zu\u00adsammen Auf\u200clage", "Х\ua66fл")),
    (("title",), ("2nd dog ǆ", "3d"), ("2nd Dog ǅ", "3d")),
    (("title", "upper"), ("two dogs", "zwei"), ("TWO DOGS", "ZWEI")),
    (("endpunct",), ("Two dogs.", "Zwei Hunde."), ("Two dogs", "Zwei Hunde")),
    (("endpunct",), ("Really?!", "Wirklich ?!"), ("Really", "Wirklich")),
    (("endpunct",), ('He said "Go."', "Han sa ”Gå!”"), ('He said "Go"', "Han sa ”Gå”")),
    (("endpunct",), ("Two dogs.", "两只狗。"), ("Two dogs", "两只狗")),
    (("endpunct",), ("दो कुत्ते।", "Two dogs."), ("दो कुत्ते", "Two dogs")),
    (("endpunct",), ("Two dogs.", "Zwei Hunde"), None),
    (("endpunct",), ("Two dogs", "Zwei Hunde."), None),
    (("endpunct",), ("...", "..."), None),
    (("endpunct", "upper"), ("a dog.", "ein Hund."), ("A DOG", "EIN HUND")),
    ((), ("a dog.", "ein Hund."), None),
])  # fmt: skip
def test_both_sides_change_alike(kinds, pair, expected):
    assert changed(*pair, *kinds) == (expected or pair)


def test_the_end_of_a_long_line_is_found_in_linear_time():
    started = time.monotonic()
    for line in ("." * 20_000 + "a", " " * 20_000 + "a"):
        assert changed(line, line, "endpunct") == (line, line)
        assert changed(f"{line}.)", f"{line} ?!", "endpunct") == (f"{line})", line)
    assert time.monotonic() - started < 2


def test_tags_placeholders_and_terms_stay():
    tags = ["<2de>", "<2d>"]
    assert changed("<2de> a dog.", "ein hund.", "upper", tags=tags) == ("<2de> A DOG.", "EIN HUND.")
    found = changed("<2de> see ｟1｠ at ｟12｠", "｟1｠ ｟12｠", "title", tags=tags)
    assert found == ("<2de> See ｟1｠ At ｟12｠", "｟1｠ ｟12｠")
    assert changed("<2de> <2d> a", "b", "upper", tags=tags) == ("<2de> <2d> A", "B")
    assert changed("<2dex a", "b", "upper", tags=tags) == ("<2DEX A", "B")
    source, target = changed("<2de> a dog", "ein hund", "noise", tags=tags)
    assert source == f"<2de> {target}" and target != "ein hund"
    line = "<2de> a ⟦ monsieur grand ⟧ walks ｟1｠"
    for seed in range(60):
        mistyped, target = changed(line, "ein hund", "typos", tags=tags, seed=seed)
        assert re.fullmatch(r"<2de> a ⟦ monsieur grand ⟧ \w+ ｟1｠", mistyped) and target == "ein hund"


@pytest.mark.parametrize("language", [None, "deu"], ids=["Marian", "NLLB"])
@pytest.mark.parametrize("kind", ["upper", "title", "typos", "endpunct"])
def test_sentences_stay_in_the_languages_of_their_lines(kind, language):
    """Sources of Marian and both sides of NLLB-200 begin with tags, whether or not the run has them as `source_tag`."""
    processor = models.spm(["abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "."], "char", 60)
    characters = [piece for piece in models.pieces_of(processor) if piece not in piece_file.SPECIAL]
    tags = [">>deu<<", ">>fra<<", ">>FRA<<", ">>Fra<<", ">>far<<", ">>rfa<<", ">>fr<<", ">>fa<<", ">>ra<<"]
    subwords = SentencePieces(piece_file.pack([*characters, *tags], processor, language))
    spoken, lines = ["", ">>fra<< ", ">>deu<< "] * 9, ["two men.", "a dog runs.", "two dogs."] * 9
    tagged = [tag + line for tag, line in zip(spoken, lines, strict=True)]
    sides = both(subwords, tagged, tagged if language else lines)
    found = Augmentation({kind: 1.0}, subwords, subwords, [], 99)(sides, seed_of(1, 2))
    assert found[0].to_list() != sides[0].to_list()
    for name, before, after in zip(("source", "target"), sides, found, strict=True):
        ids = [[row[0] for row in side.to_list()] for side in (before, after)]
        first_tag = len(subwords.pieces) - len(tags)
        first = [[subwords.pieces[index] if index >= first_tag else "" for index in row] for row in ids]
        assert first[0] == first[1] and (">>fra<<" in first[0]) == (bool(language) or name == "source")
    if kind == "upper":
        without = [line.removeprefix(tag) for tag, line in zip(spoken, texts(subwords, found)[0], strict=True)]
        assert without == [line.upper() for line in lines]


def distance(one: str, other: str) -> int:
    """The optimal string alignment distance, in which two swapped neighbours count once."""
    table = np.add.outer(np.arange(len(one) + 1), np.arange(len(other) + 1))
    for row in range(1, len(one) + 1):
        for column in range(1, len(other) + 1):
            same = one[row - 1] == other[column - 1]
            ways = [table[row - 1, column] + 1, table[row, column - 1] + 1, table[row - 1, column - 1] + (not same)]
            if row > 1 and column > 1 and one[row - 2 : row] == other[column - 2 : column][::-1]:
                ways.append(table[row - 2, column - 2] + 1)
            table[row, column] = min(ways)
    return table[-1, -1]


def test_typos_are_those_of_damerau_and_as_frequent_as_said():
    words = "seven brothers laughing quietly beneath ancient trees 2011 a".split()
    typos, lengths, ends, swapped, number = 0, collections.Counter(), collections.Counter(), 0, 2000
    draw = np.random.default_rng(1)
    for _ in range(number):
        source, target = Noise(()).changed(" ".join(words), "Ziel.", ("typos",), draw)
        assert target == "Ziel." and source.split()[-2:] == words[-2:]
        distances = [distance(one, other) for one, other in zip(words, source.split(), strict=True)]
        assert max(distances) <= 1
        typos += sum(distances)
        for one, other in zip(words, source.split(), strict=True):
            if one != other:
                lengths[len(other) - len(one)] += 1
                swapped += sorted(one) == sorted(other)
                ends.update({"first": one[0] != other[0], "last": one[-1] != other[-1]})
    # One of seven words has one in any case, the six others at the rate; some swap or replace equal letters.
    expected = number * (1 + 6 * augmentation.TYPO_RATE)
    assert 0.93 * expected < typos < expected * 1.02
    assert lengths.keys() == {-1, 0, 1}
    for count in (lengths[-1], lengths[1], swapped, lengths[0] - swapped):
        assert count / typos == pytest.approx(0.25, abs=0.04)
    # Any letter may be the one: three of the four kinds change it, and a swap the last two letters for either.
    assert 0.08 < ends["first"] / typos < 0.16 and 0.1 < ends["last"] / typos < 0.21


def test_typos_are_others_for_another_seed(subwords):
    sides = both(subwords, ["two dogs play in the snow ."] * 20, ["zwei hunde spielen im schnee ."] * 20)
    typos = Augmentation({"typos": 1.0}, subwords, subwords, [], 99)
    first, same, other = (texts(subwords, typos(sides, seed_of(1, number)))[0] for number in (2, 2, 3))
    assert first == same and len(set(first)) > 10 and sum(map(str.__ne__, first, other)) > 10


def test_sources_without_case_get_no_typos():
    for line in ("两只狗。", "2011", "", "a b", "हिन्दी में", "สุนัข"):
        assert changed(line, "x", "typos") == (line, "x")


def test_noise_has_no_typos():
    """Story: of a pair with both, the source alone had typos in its random characters."""
    for seed in range(300):
        source, target = Noise(()).changed("A dog.", "Ein Hund.", ("noise", "typos"), np.random.default_rng(seed))
        assert source == target


def test_noise_is_short_lines_of_many_scripts_on_both_sides():
    draw, seen = np.random.default_rng(1), ""
    for _ in range(500):
        source, target = Noise(()).changed("Two dogs.", "Zwei Hunde.", ("noise",), draw)
        assert source == target and re.fullmatch(r"\S{1,5}( \S{1,5}){0,4}", target)
        seen += target.replace(" ", "")
    blocks = [range(ord(first), ord(last) + 1) for first, last in augmentation._RANGES]
    counts = [sum(ord(character) in block for character in seen) for block in blocks]
    assert sum(counts) == len(seen) and min(counts) > sum(counts) / len(counts) / 2
    # None of them means something to the sub-words, or is blank.
    assert not any(ord(mark) in block for mark in "▁｟｠⦅⟦⟧\u00a0\u00ad\u200b" for block in blocks)


def both(subwords, sources, targets) -> list:
    return [subwords.tokenize(tf.constant([line.encode() for line in lines])) for lines in (sources, targets)]


def texts(subwords, sides) -> list[list[str]]:
    return [[line.decode() for line in subwords.detokenize(ids).numpy()] for ids in sides]


def test_each_kind_has_its_share_of_the_pairs_and_the_others_keep_their_sub_words(subwords):
    number, shares = 4000, {"upper": 0.2, "endpunct": 0.3}
    sides = both(subwords, ["two dogs ."] * number, ["zwei hunde ."] * number)
    found = Augmentation(shares, subwords, subwords, [], 99)(sides, seed_of(1, 2))
    counts = collections.Counter(zip(*texts(subwords, found), strict=True))
    expected = {
        ("two dogs .", "zwei hunde ."): 0.8 * 0.7,
        ("TWO DOGS .", "ZWEI HUNDE ."): 0.2 * 0.7,
        ("two dogs", "zwei hunde"): 0.8 * 0.3,
        ("TWO DOGS", "ZWEI HUNDE"): 0.2 * 0.3,
    }
    assert counts.keys() == expected.keys()
    for pair, share in expected.items():
        assert counts[pair] / number == pytest.approx(share, abs=5 * (share * (1 - share) / number) ** 0.5)
    same = [one == other for one, other in zip(sides[0].to_list(), found[0].to_list(), strict=True)]
    assert np.mean(same) == pytest.approx(0.56, abs=0.04) and found[0].dtype == tf.int32
    assert Augmentation(shares, subwords, subwords, [], 99)(sides, seed_of(1, 2))[1].to_list() == found[1].to_list()
    assert Augmentation(shares, subwords, subwords, [], 99)(sides, seed_of(1, 3))[1].to_list() != found[1].to_list()


def test_pairs_are_changed_whole_or_not_at_all(subwords):
    sides = both(subwords, ["two dogs ."] * 9, ["zwei hunde spielen im schnee ."] * 9)
    longest = int(subwords.tokenize(tf.constant(["ZWEI HUNDE SPIELEN IM SCHNEE ."])).row_lengths()[0])
    upper = {"upper": 1.0}
    found = Augmentation(upper, subwords, subwords, [], longest)(sides, seed_of(1, 2))
    assert texts(subwords, found) == [["TWO DOGS ."] * 9, ["ZWEI HUNDE SPIELEN IM SCHNEE ."] * 9]
    found = Augmentation(upper, subwords, subwords, [], longest - 1)(sides, seed_of(1, 2))
    assert [ids.to_list() for ids in found] == [ids.to_list() for ids in sides]
    none = Augmentation(upper, subwords, subwords, [], 99)([ids[:0] for ids in sides], seed_of(1, 2))
    assert [ids.to_list() for ids in none] == [[], []]
    none = Augmentation({"noise": 1e-9}, subwords, subwords, [], 99)(sides, seed_of(1, 2))
    assert [ids.to_list() for ids in none] == [ids.to_list() for ids in sides]


def test_characters_that_the_sub_words_lack_are_not_put_in():
    """A model of somebody's own may have no bytes to spell them in."""
    written, lines = io.BytesIO(), ["two dogs bark", "zwei hunde bellen", "TWO"] * 40
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=written, model_type="bpe", vocab_size=40, pad_id=0, unk_id=1,
        bos_id=2, eos_id=3, normalization_rule_name="identity", minloglevel=2,
    )  # fmt: skip
    subwords = BytePairs(written.getvalue())
    sides = both(subwords, ["two", "two", "two dogs", "two 犬"], ["two", "dogs", "two", "two 犬"])
    found = Augmentation({"upper": 1.0}, subwords, subwords, [], 99)(sides, seed_of(1, 2))
    expected = both(subwords, ["TWO", "two", "two dogs", "two 犬"], ["TWO", "dogs", "two", "two 犬"])
    assert [ids.to_list() for ids in found] == [ids.to_list() for ids in expected]


def test_sub_words_are_learned_from_pairs_with_the_noise_but_from_no_random_characters():
    pairs, shares = [(b"<2de> two dogs .", b"zwei hunde .")] * 4000, {"upper": 0.2, "endpunct": 0.3, "noise": 0.5}
    found = list(augmentation.noisy(iter(pairs), shares, ["<2de>"], 1))
    expected = {
        pairs[0]: 0.8 * 0.7,
        (b"<2de> TWO DOGS .", b"ZWEI HUNDE ."): 0.2 * 0.7,
        (b"<2de> two dogs", b"zwei hunde"): 0.8 * 0.3,
        (b"<2de> TWO DOGS", b"ZWEI HUNDE"): 0.2 * 0.3,
    }
    counts = collections.Counter(found)
    assert counts.keys() == expected.keys() and len(found) == len(pairs)
    for pair, share in expected.items():
        assert counts[pair] / 4000 == pytest.approx(share, abs=5 * (share * (1 - share) / 4000) ** 0.5)
    assert list(augmentation.noisy(pairs, shares, ["<2de>"], 1)) == found
    assert list(augmentation.noisy(pairs, shares, ["<2de>"], 2)) != found


def prepared(folder: pathlib.Path, resumes: bool = False, **options) -> list[str]:
    """Prepares forty pairs, and returns what is logged."""
    text = {"source": b"two dogs play in the snow\n" * 40, "target": b"zwei hunde spielen im schnee\n" * 40}
    files = {f"{split}_{side}": folder.parent / f"{split}.{side}" for split in ("train", "valid") for side in text}
    for name, path in files.items():
        path.write_bytes(text[name.partition("_")[2]])
    given = {name: str(path) for name, path in files.items()} | {"vocab_size": 322} | options
    chosen = Start.open(folder.parent / "run", given).options
    with logged() as said:
        prepare.Preparation.of(chosen, folder).run(resumes=resumes)
    return said


def test_the_sub_words_of_a_run_with_noise_divide_noisy_text_into_fewer(tmp_path):
    prepared(tmp_path / "clean")
    warned = prepared(tmp_path / "noisy", augment="upper:0.5")
    number = {}
    for name in ("clean", "noisy"):
        subwords = BytePairs((tmp_path / name / "subwords.model").read_bytes())
        lines = tf.constant(["two dogs play", "TWO DOGS PLAY", "ZWEI HUNDE SPIELEN"])
        number[name] = subwords.tokenize(lines).row_lengths().numpy()
    assert (number["noisy"][1:] < number["clean"][1:]).all() and number["noisy"][0] > number["clean"][0]
    warned += prepared(tmp_path / "clean", augment="endpunct:0.5")  # Needs no other sub-words.
    warned += prepared(tmp_path / "clean", augment="upper:0.1", resumes=True)
    warned += prepared(tmp_path / "noisy", augment="title:0.1")
    assert not any("In capitals" in line for line in warned)
    given = {"subwords_file": str(tmp_path / "clean" / "subwords.model")}
    for name, options in (("clean", {}), ("given", given)):
        said = prepared(tmp_path / name, augment="upper:0.1", **options)
        assert re.match(r"In capitals, text has [2-9]\.\d times as many sub-words", said[-1])
    assert (tmp_path / "given" / "subwords.model").read_bytes() == (tmp_path / "clean" / "subwords.model").read_bytes()
    expected = f"The sub-words in {tmp_path / 'noisy'} were learned from text with the noise of `augment`."
    assert expected in prepared(tmp_path / "noisy")


def test_no_sub_words_are_learned_from_noise_in_text_to_keep_nor_words(tmp_path, monkeypatch):
    learned = []
    monkeypatch.setattr(prepare.vocabulary, "learn", lambda kind, lines, *_, **__: learned.extend(lines) or None)
    monkeypatch.setattr(prepare.vocabulary, "load", lambda model: None)
    (tmp_path / "text").write_bytes(b"see {abc} here\n" * 40)
    options = DataConfig(train_source=str(tmp_path / "text"), train_target=str(tmp_path / "text"))
    for subwords, pattern, expected in (
        ("bpe", "braces", {b"SEE   HERE"}),
        ("bpe", "", {b"SEE {ABC} HERE"}),
        ("word", "", {b"see {abc} here"}),
    ):
        learned.clear()
        data = dataclasses.replace(options, subwords=subwords, keep_patterns=pattern)
        chosen = Options(data=data, train=TrainConfig(augment="upper:1"))
        prepare.Preparation.of(chosen, tmp_path / "data")._learn_subwords(300)
        assert set(learned) == expected


def test_each_side_has_its_own_sub_words_and_validation_none_of_the_noise(subwords):
    tokenizer = BytePairs(learn([b"zwei hunde .", b"ZWEI HUNDE"] * 50, 290, **LEARN))
    tokenizer.own_source = BytePairs(learn([b"two dogs .", b"TWO DOGS"] * 50, 290, tags=["<2de>"], **LEARN))
    assert renewal_of(tokenizer, training=False, augment="upper:1") is None
    records = {
        "source": tokenizer.source.tokenize(tf.constant([b"<2de> two dogs ."] * 9)),
        "target": tokenizer.tokenize(tf.constant([b"zwei hunde ."] * 9)),
    }
    renewal = renewal_of(tokenizer, augment="upper:1")
    assert renewal.columns == ("source", "target") and renewal.most == 99
    found = renewal.change(records, seed_of(1, 2))
    assert set(tokenizer.source.detokenize(found["source"]).numpy()) == {b"<2de> TWO DOGS ."}
    assert set(tokenizer.detokenize(found["target"]).numpy()) == {b"ZWEI HUNDE ."}
    divided = renewal_of(tokenizer, augment="upper:1", bpe_dropout=0.5).change(records, seed_of(1, 2))
    for name, side in (("source", tokenizer.source), ("target", tokenizer)):
        assert side.detokenize(divided[name]).numpy().tolist() == side.detokenize(found[name]).numpy().tolist()
        assert divided[name].to_list() != found[name].to_list()


@pytest.mark.medium
def test_every_epoch_has_other_noise_and_a_later_start_the_same(subwords, tmp_path):
    lines = [b"two dogs play", b"dogs in the snow .", b"two"] * 8 + [b"two dogs " * 12]
    renewal = renewal_of(subwords, augment="typos:0.5,upper:0.3,noise:0.1")
    epochs = two_epochs(tmp_path, subwords, lines, 200, renewal)
    first, second = (sorted(texts(subwords, [tf.ragged.constant(rows, tf.int32)])[0]) for rows in epochs)
    assert first != second and {"TWO", "two"} <= {*first, *second}


@pytest.mark.parametrize(
    "augment",
    ["upper", "upper:2", "upper:0", "upper:nan", "upper:1e1", "upper:1e-400", "upper:0.1\n", "upper:0.1,upper:0.2",
     "shout:0.1", "upper:0.1,", ",", "upper:0.1;title:0.2", "upper:-0.1", "upper:0.1 title:0.1"],
)  # fmt: skip
def test_other_values_are_refused(augment):
    expected = r"shares above 0 and at most 1.* kinds noise, endpunct, title, upper, typos.*Received: augment="
    with pytest.raises(ValueError, match=expected):
        TrainConfig(augment=augment)


def test_the_recipe_of_the_help_text_is_read():
    help_text = TrainConfig.__dataclass_fields__["augment"].metadata["help"]
    shares = TrainConfig(augment=re.search(r"such as (\S+)", help_text)[1]).noise
    assert TrainConfig(augment=",".join(f"{kind}:{share:.0e}" for kind, share in shares.items())).noise == shares
    assert shares == {"upper": 0.07, "title": 0.05, "typos": 0.05, "endpunct": 0.2, "noise": 0.0005}
    assert shares.keys() == set(AUGMENTATIONS)


def test_options_that_do_not_fit_are_refused_early(tmp_path):
    expected = "`augment` does not work with a `data_service`"
    with pytest.raises(ValueError, match=expected):
        TrainConfig(augment="upper:0.1", data_service="grpc://host:1")
    expected = "`augment` has no effect in the task pretraining. Received: augment='upper:0.1'."
    with pytest.raises(ValueError, match=expected):
        Start.open(tmp_path / "run", {"architecture": "bert", "augment": "upper:0.1"})
