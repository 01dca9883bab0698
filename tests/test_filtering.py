"""Every pair is kept, or rejected by the rule that it breaks; nothing is lost, and nobody sees how the work was
divided.
"""

import dataclasses
import gzip
import itertools
import json
import math
import os
import pathlib
import random
import re
import shutil
import sys
import types

import numpy as np
import programs
import pytest
import toy
from test_tools import ROOT, complaint, tool

from t2t_keras.config import FilterConfig
from t2t_keras.data import processes
from t2t_keras.filtering import judging, rules
from t2t_keras.text import language_identification

GOOD = ("A man plays the guitar on a stage.", "Ein Mann spielt auf einer Bühne Gitarre.")
CYRILLIC = "Мужчина играет на гитаре на сцене."
FRENCH = "Un homme joue de la guitare sur une scène devant le public."
# For a pair: the options, and the rule that it breaks or "".
PAIRS = [
    (GOOD, {}, ""),
    (("", "Gut."), {}, "empty"),
    (("Good.", " \t\u3000"), {}, "empty"),
    (("\u200b\xad", "Gut."), {}, "empty"),
    ((GOOD[0], "x" * 1001), {"max_length_ratio": 0.0}, "characters"),
    ((GOOD[0], "x" * 1000), {"max_length_ratio": 0.0}, ""),
    ((GOOD[0], "x" * 1001), {"max_length_ratio": 0.0, "max_characters": 0}, ""),
    (("a" * 10, "b" * 24), {}, ""),  # 34 / 20 = 1.7.
    (("a" * 10, "b" * 25), {}, "length_ratio"),
    (("a" * 25, "b" * 10), {}, "length_ratio"),
    (("a" * 25, "b" * 10), {"max_length_ratio": 2.0}, ""),
    (("a" * 25, "b" * 10), {"max_length_ratio": 0.0}, ""),
    (("a" * 25, "b" * 10), {"length_ratio": 0.4}, ""),
    (("a" * 20, "b" * 20), {"length_ratio": 0.4}, "length_ratio"),  # 60 / 30.
    (("12 345 a", "67 890 b"), {}, "letters"),
    (("ab 12", "ab c3"), {}, ""),  # Two of four are half.
    (("ab 12", "ab c3"), {"min_letters": 0.51}, "letters"),
    (("ßßß 123", "abc def"), {"min_letters": 0.51}, "letters"),  # Story: without case, ß was two letters of six.
    (("12 345", "67 890"), {"min_letters": 0.0}, ""),  # Story: without words, all pairs were copies.
    (("12 345", "12 345"), {"min_letters": 0.0}, "copy"),
    (("12 345", "12 345"), {"min_letters": 0.0, "keep_copies": True}, ""),
    (("हिन्दी में", "in Hindi"), {"min_letters": 1.0}, ""),  # Vowel signs belong to letters.
    ((CYRILLIC, GOOD[1]), {}, ""),
    ((CYRILLIC, GOOD[1]), {"source_script": "Cyrillic", "target_script": "Latin"}, ""),
    ((CYRILLIC, GOOD[1]), {"source_script": "Latin"}, "script"),
    ((CYRILLIC, GOOD[1]), {"target_script": "cyrillic, greek"}, "script"),
    ((CYRILLIC, GOOD[1]), {"source_script": "Latin,Cyrillic"}, ""),
    (
        ("Wir sehen 東京タワー und 人々です", "ＡＢＣ 東京タワー ﾀﾜｰ 人々です, too"),
        {"target_script": "Han,Hiragana,Katakana", "min_script": 0.66},  # 12 of 18.
        "",
    ),
    (
        ("Wir sehen 東京タワー und 人々です", "ＡＢＣ 東京タワー ﾀﾜｰ 人々です, too"),
        {"target_script": "Han,Hiragana,Katakana"},
        "script",
    ),
    (("Hello, hello!", "𞤀𞤣𞤤𞤢𞤥, 𞤀𞤣𞤤𞤢𞤥!"), {"source_script": "Latin, ", "target_script": "Adlam"}, ""),
    (("aaaaaaaaдд", "bbbbbbbbbb"), {"source_script": "Latin"}, ""),  # Exactly 0.8.
    (("aaaaaaaддд", "bbbbbbbbbb"), {"source_script": "Latin"}, "script"),
    (("123 !!!", "abc def"), {"source_script": "Latin", "min_letters": 0.0}, ""),  # No letter of another script.
    (("пʼять, зʼїв", "five, ate it"), {"source_script": "Cyrillic", "min_script": 1.0}, ""),  # U+02BC is a letter.
    (("ʼʼʼ", "abc"), {"source_script": "Cyrillic", "max_length_ratio": 0.0}, ""),
    (("guitar", "ｷﾞﾀｰ ﾊﾞﾝﾄﾞ"), {"target_script": "Katakana", "min_script": 1.0}, ""),  # U+FF9E is no letter.
    (("The Straße, 2 km.", "THE STRASSE 3 KM"), {}, "copy"),
    (("The Straße, 2 km.", "THE STRASSE 3 KM"), {"keep_copies": True}, ""),
    (("A dog plays.", " " * 60 + "Ein Hund spielt."), {}, ""),  # Spaces at the ends do not count.
    (GOOD, {"source_language": "en", "target_language": "de"}, ""),
    ((GOOD[0], FRENCH), {"source_language": "en"}, ""),
    ((GOOD[0], FRENCH), {"target_language": "de"}, "language"),
    ((GOOD[0], FRENCH), {"target_language": "de", "min_language": 0.0}, ""),
    ((FRENCH, GOOD[1]), {"source_language": "en", "target_language": "de"}, "language"),
    ((FRENCH, GOOD[1]), {"source_language": "fr", "target_language": "de", "min_language": 1.0}, "language"),
]


@pytest.mark.parametrize(("pair", "options", "rule"), PAIRS, ids=str)
def test_a_pair_is_rejected_by_the_rule_that_it_breaks(pair, options, rule):
    verdict = rules.Rules(FilterConfig(**options), options.get("length_ratio", 1.0)).verdict(*pair)
    assert (verdict[0] if verdict else "") == rule


@pytest.mark.parametrize(("pair", "options", "expected"), [
    (("a" * 10, "b" * 30), {}, ("length_ratio", 2.0)),
    (("a" * 30, "b" * 10), {}, ("length_ratio", 0.5)),
    (("abcd", "a1 23"), {}, ("letters", 0.25)),
    (("abcd", "abдд"), {"target_script": "Latin"}, ("script", 0.5)),
    ((GOOD[0], "x" * 1002), {"max_length_ratio": 0.0}, ("characters", 1002)),
])  # fmt: skip
def test_what_a_rule_measured_is_reported(pair, options, expected):
    assert rules.Rules(FilterConfig(**options)).verdict(*pair) == expected


def test_codes_of_all_kinds_name_a_language():
    codes = {
        "de": "de", "de-AT": "de", "en_US": "en", "EN": "en", "deu_Latn": "de", "arb_Arab": "ar", "pes_Arab": "fa",
        "zho_Hans": "zh", "kmr_Latn": "ku", "ace_Arab": "ace", "english": "english", "<2de>": "<2de>",
    }  # fmt: skip
    assert {code: language_identification.language_of(code) for code in codes} == codes
    verdict = rules.Rules(FilterConfig(source_language="fra_Latn", target_language="deu_Latn")).verdict
    assert verdict(FRENCH, GOOD[1]) is None and verdict(GOOD[0], GOOD[1])[0] == "language"


def test_each_language_of_py3langid_keeps_its_name():
    """Story: tl became fil, which py3langid does not know."""
    labels = language_identification.identifier().labels
    assert [str(label) for label in labels if language_identification.language_of(label) != label] == []
    assert [language_identification.language_of(code) for code in ("nob_Latn", "fil")] == ["no", "tl"]


def test_a_language_is_identified_among_codes_of_all_kinds():
    """Story: NLLB's codes have three letters, so German was taken for Acehnese, whose code py3langid writes so."""
    identify = language_identification.identify
    code, probability = identify(GOOD[1], ["ace_Arab", "deu_Latn", "eng_Latn"])
    assert code == "deu_Latn" and probability > 0.5
    assert identify(GOOD[1])[0] == "de" and identify(GOOD[1], ["de_AT", "de_CH", "en"])[0] == "de_AT"
    assert identify(GOOD[1], ["source"]) == ("source", 0.0)
    with pytest.raises(ValueError, match="No language of these codes can be identified: first, second."):
        identify(GOOD[1], ["first", "second"])


def test_a_language_is_accepted_from_its_limit_on():
    options = {"source_language": "fr"}
    rule, probability = rules.Rules(FilterConfig(**options, min_language=1.0)).verdict(FRENCH, GOOD[1])
    assert rule == "language" and 0.5 < probability < 1
    assert rules.Rules(FilterConfig(**options, min_language=float(probability))).verdict(FRENCH, GOOD[1]) is None


def test_the_text_without_case_digits_and_punctuation_is_words():
    assert rules.normalized(" The  Straße—2 km, l'été_x! ") == "the strasse km l été x"
    assert rules.normalized("12 + 3 = 15 …") == ""
    assert rules.normalized("Zu\u00adsam\u200cmen \u200fא\u200bב") == "zusammen א ב"  # Only the last divides words.
    assert rules.normalized("E\u0301te\u0301 \u1112\u1161\u11ab") == rules.normalized("\u00e9t\u00e9 \ud55c")


def write(folder: pathlib.Path, pairs: list[tuple[str, str]], name: str = "text") -> list[str]:
    paths = []
    for side, lines in zip(judging.SIDES, zip(*pairs, strict=True), strict=True):
        path = folder / f"{name}.{side}"
        path.write_bytes(b"".join(line if isinstance(line, bytes) else line.encode() + b"\n" for line in lines))
        paths.append(str(path))
    return paths


def lines_of(path: pathlib.Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1]


def rejected(folder: pathlib.Path) -> list[tuple[int, str]]:
    rows = [line.decode().split("\t") for line in lines_of(folder / "rejected.tsv")]
    assert rows[0] == ["line", "rule", "value"]
    return [(int(line), rule) for line, rule, _ in rows[1:]]


def restored(folder: pathlib.Path, side: str) -> list[bytes]:
    """The text that was read."""
    kept, others = (iter(lines_of(folder / f"{name}.{side}.txt")) for name in ("kept", "rejected"))
    places = {line for line, _ in rejected(folder)}
    total = json.loads((folder / judging.SUMMARY).read_text())["pairs"]
    found = [next(others if line in places else kept) for line in range(1, total + 1)]
    assert not [*kept, *others]
    return found


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def noise(count: int) -> list[tuple[str, str]]:
    """Good pairs, some of them again, and some that break each rule."""
    draw, words = random.Random(4), "tree house street river mountain bird summer winter".split()
    bad = [("", "x"), ("same text", "Same text."), ("12 34", "56 78"), ("a" * 60, "b c"), ("x\ty", "\u2028")]
    bad.append(("y" * 1100, "z" * 1100))
    good = [[" ".join(draw.choices(words, k=draw.randint(3, 6))) for _ in range(2)] for _ in range(count // 3)]
    return [
        tuple(draw.choice(bad))
        if draw.random() < 0.3
        else tuple(side + draw.choice(["", "", " 7", "!"]) for side in draw.choice(good))
        for _ in range(count)
    ]


def test_the_kept_and_the_rejected_lines_are_the_text_that_was_read(tmp_path):
    pairs = [*noise(200), ("caf\u00e9 au lait".encode("latin-1") + b"\n", "kaffee"), *noise(57)]
    source, target = write(tmp_path, pairs)
    summary = judging.filter_text(source, target, tmp_path / "out", FilterConfig())
    for side, path in zip(judging.SIDES, (source, target), strict=True):
        assert restored(tmp_path / "out", side) == lines_of(pathlib.Path(path))
    assert (201, "not_utf8") in rejected(tmp_path / "out")
    rules = [rule for _, rule in rejected(tmp_path / "out")]
    assert summary["rejected"] == {rule: rules.count(rule) for rule in judging.RULES}
    assert set(judging.RULES) - set(rules) == {"script", "language", "cross_entropy"}
    assert summary["pairs"] == 258 == summary["kept"] + len(rules)
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary


def test_what_is_kept_is_kept_when_it_is_filtered_again(tmp_path):
    judging.filter_text(*write(tmp_path, noise(200)), tmp_path / "out", FilterConfig(length_ratio=1.0))
    again = [str(tmp_path / "out" / f"kept.{side}.txt") for side in judging.SIDES]
    assert not judging.filter_text(*again, tmp_path / "again", FilterConfig(length_ratio=1.0))["rejected"]["duplicate"]
    assert rejected(tmp_path / "again") == []


def test_the_first_run_scores_the_target_and_the_second_the_source(monkeypatch):
    chosen = []

    def opened(folder: str):
        run = types.SimpleNamespace(model=f"model of {folder}")
        return types.SimpleNamespace(runs=[run], load=lambda: f"run {folder}")

    monkeypatch.setattr(judging.TrainedModel, "open", opened)
    monkeypatch.setattr(judging.process_environment, "choose", lambda models, *others, **options: chosen.extend(models))
    monkeypatch.setattr("t2t_keras.evaluation.cross_entropy.dual_cross_entropy", lambda *models: models)
    assert judging.load_scores(["forth", "back"]) == ("run forth", "run back")
    assert chosen == ["model of forth", "model of back"]


def test_a_rule_that_the_list_of_rules_lacks_is_counted_all_the_same(tmp_path, monkeypatch):
    text = write(tmp_path, noise(60))
    whole = judging.filter_text(*text, tmp_path / "whole", FilterConfig())["rejected"]
    monkeypatch.setattr(judging, "RULES", ("copy",))
    found = judging.filter_text(*text, tmp_path / "lacking", FilterConfig())["rejected"]
    assert {**dict.fromkeys(whole, 0), **found} == whole and next(iter(found)) == "copy"


def test_several_files_plain_and_compressed_without_a_last_line_end_are_one_text(tmp_path):
    pairs = noise(60)
    whole = write(tmp_path, pairs, "whole")
    for side, path in zip(judging.SIDES, whole, strict=True):
        lines = lines_of(pathlib.Path(path))
        # As some editors write it.
        (tmp_path / f"part1.{side}").write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(lines[:20]))
        (tmp_path / f"part2.{side}").write_bytes(gzip.compress(b"\n".join(lines[20:])))
    pairs = judging.filter_text(*whole, tmp_path / "one", FilterConfig())["pairs"]
    parts = (str(tmp_path / f"part*.{side}") for side in judging.SIDES)
    summary = judging.filter_text(*parts, tmp_path / "two", FilterConfig())
    assert [pathlib.Path(path).name for path in summary["source"]] == ["part1.source", "part2.source"]
    assert summary["byte_order_marks"] == 2 and summary["carriage_returns"] == 38
    twice = judging.filter_text(*(f"{path}@2" for path in whole), tmp_path / "twice", FilterConfig())
    assert (twice["pairs"], twice["source"], twice["target"]) == (2 * pairs, *([path] for path in whole))
    one, two = (contents(tmp_path / name) for name in ("one", "two"))
    assert one.pop("summary.json") != two.pop("summary.json") and one == two


def test_the_parts_that_pairs_are_judged_in_leave_no_trace(tmp_path, monkeypatch):
    text = write(tmp_path, noise(300))
    judging.filter_text(*text, tmp_path / "whole", FilterConfig())
    monkeypatch.setattr(judging, "PAIRS_AT_ONCE", 7)
    progress = []
    judging.filter_text(*text, tmp_path / "parts", FilterConfig(), progress=progress.append)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    assert sum(progress) == 300 and max(progress) == 7


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 4])
def test_every_number_of_processes_writes_the_same_bytes(tmp_path, monkeypatch, number):
    text, config = write(tmp_path, noise(300)), FilterConfig(source_language="en", source_script="Latin")
    judging.filter_text(*text, tmp_path / "one", config, number=1)
    monkeypatch.setattr(judging, "PAIRS_AT_ONCE", 7)
    judging.filter_text(*text, tmp_path / "several", config, number=number)
    assert contents(tmp_path / "several") == contents(tmp_path / "one")


@pytest.mark.parametrize("seed", range(5))
def test_a_set_of_hashes_knows_what_was_there(seed):
    """Beside Python's set, and with few arrays."""
    draw, seen, expected = np.random.default_rng(seed), judging.Seen(), set()
    for _ in range(60):
        hashes = draw.integers(0, 2000, draw.integers(0, 90)).astype(np.uint64) * np.uint64(2**53)
        found = seen.add(hashes)
        for value, known in zip(hashes.tolist(), found.tolist(), strict=True):
            assert known == (value in expected)
            expected.add(value)
    lengths = [len(array) for array in seen._arrays]
    assert sum(lengths) == len(expected)
    assert all(longer > 2 * shorter for longer, shorter in itertools.pairwise(lengths))


TEXT = [("a cat", "eine Katze"), ("a cat", "die Katze"), ("the cat", "die Katze"), ("a cat", "eine Katze")]
TEXT += [("A cat 2!", "Eine Katze.")]


@pytest.mark.parametrize(("exact", "near", "expected"), [
    ("pair", "pair", [(4, "duplicate"), (5, "near_duplicate")]),
    ("pair", "none", [(4, "duplicate")]),
    ("none", "pair", [(4, "near_duplicate"), (5, "near_duplicate")]),
    ("none", "none", []),
    ("source", "none", [(2, "duplicate"), (4, "duplicate")]),
    ("target", "none", [(3, "duplicate"), (4, "duplicate")]),
    ("none", "source", [(2, "near_duplicate"), (4, "near_duplicate"), (5, "near_duplicate")]),
    ("none", "target", [(3, "near_duplicate"), (4, "near_duplicate"), (5, "near_duplicate")]),
])  # fmt: skip
def test_repetitions_of_what_was_asked_for_are_rejected_but_not_the_first(tmp_path, exact, near, expected):
    config = FilterConfig(duplicates=exact, near_duplicates=near, max_length_ratio=0.0)
    judging.filter_text(*write(tmp_path, TEXT), tmp_path / "out", config)
    assert rejected(tmp_path / "out") == expected


def test_text_without_a_word_is_near_nothing_but_itself(tmp_path):
    """Unless the other side has words."""
    pairs = [("1 + 1", "2"), ("2 + 2", "4"), ("1 + 1", "2"), ("3 + 3", "six"), ("4 + 2", "Six!"), ("six", "3 + 3")]
    config = FilterConfig(min_letters=0.0, keep_copies=True, duplicates="none", max_length_ratio=0.0)
    judging.filter_text(*write(tmp_path, pairs), tmp_path / "out", config)
    assert rejected(tmp_path / "out") == [(3, "near_duplicate"), (5, "near_duplicate")]


def test_pairs_whose_sides_divide_the_same_text_elsewhere_are_two(tmp_path):
    pairs = [("a cats", "paw"), ("a cat", "spaw")]
    assert judging.filter_text(*write(tmp_path, pairs), tmp_path / "out", FilterConfig())["kept"] == 2


def test_the_expected_ratio_of_lengths_is_the_median_of_the_first_pairs(tmp_path, monkeypatch):
    """In characters, without the spaces around."""
    pairs = [(f"{'ä' * 40}{chr(97 + n)} ", chr(98 + n) * size) for n, size in enumerate((10, 11, 200, 12, 10, 10))]
    monkeypatch.setattr(judging, "OF_RATIO", (6, 2**20))
    summary = judging.filter_text(*write(tmp_path, [("", "x"), ("x", " "), *pairs]), tmp_path / "out", FilterConfig())
    assert summary["length_ratio"] == round(11.5 / 41, 4)  # Of the first four that are not empty: 10, 11, 200, 12.
    assert rejected(tmp_path / "out") == [(1, "empty"), (2, "empty"), (5, "length_ratio")]
    given = judging.filter_text(*write(tmp_path, pairs), tmp_path / "given", FilterConfig(length_ratio=1.0))
    assert given["length_ratio"] == 1.0 and given["rejected"]["length_ratio"] == 6
    without = judging.filter_text(*write(tmp_path, pairs), tmp_path / "without", FilterConfig(max_length_ratio=0.0))
    assert without["length_ratio"] == 1.0 and without["kept"] == 6


def test_the_number_of_characters_of_a_very_long_line_is_not_rounded(tmp_path):
    judging.filter_text(*write(tmp_path, [("x" * 1_000_001, "y")]), tmp_path / "out", FilterConfig())
    assert (tmp_path / "out/rejected.tsv").read_text().splitlines()[1] == "1\tcharacters\t1000001"


def test_the_number_of_processes_is_that_of_the_bytes_of_both_sides(tmp_path, monkeypatch):
    """Files that are read three times count three times."""
    asked = []
    monkeypatch.setattr(processes, "number", lambda *given: asked.append(given) or 1)
    source, target = write(tmp_path, [("one cat", "eine Katze"), ("two dogs", "zwei Hunde")])
    judging.filter_text(f"{source}@3", f"{target}@3", tmp_path / "out", FilterConfig(), number=5)
    assert asked == [(5, 3 * len("one cat\ntwo dogs\neine Katze\nzwei Hunde\n"))]


def test_pairs_that_no_other_rule_rejects_are_scored(tmp_path, monkeypatch):
    monkeypatch.setattr(judging, "PAIRS_AT_ONCE", 2)
    pairs = [("a1", "b"), ("b2", "c"), ("", "d"), ("d4", "e"), ("d4", "e"), ("e5", "f")]
    asked, values = [], {"a1": 1.5, "b2": 5.25, "d4": 5.0, "e5": math.nan}

    def scores(sources, targets):
        asked.extend(zip(sources, targets, strict=True))
        return [values[source] for source in sources]

    text, config = write(tmp_path, pairs), FilterConfig(near_duplicates="none")
    summary = judging.filter_text(*text, tmp_path / "out", config, scores=scores)
    assert asked == [pairs[index] for index in (0, 1, 3, 5)]
    assert rejected(tmp_path / "out") == [(2, "cross_entropy"), (3, "empty"), (5, "duplicate"), (6, "cross_entropy")]
    assert (tmp_path / "out" / "rejected.tsv").read_text().splitlines()[1] == "2\tcross_entropy\t5.25"
    assert (tmp_path / "out" / "kept.cross_entropy.txt").read_text() == "1.5\n5\n"
    assert summary["kept"] == 2
    everything = dataclasses.replace(config, max_cross_entropy=0.0)
    assert judging.filter_text(*text, tmp_path / "all", everything, scores=scores)["kept"] == 4
    judging.filter_text(*text, tmp_path / "none", config)
    assert not (tmp_path / "none" / "kept.cross_entropy.txt").exists()


def test_a_summary_is_a_table_of_the_rules_that_were_broken():
    summary = {"pairs": 12_000, "kept": 11_995, "rejected": {"empty": 0, "copy": 5}}
    assert judging.table(summary).splitlines() == [
        "copy                5    0.04%",
        "kept           11,995   99.96%",
        "pairs          12,000  100.00%",
    ]


def refused(folder: pathlib.Path, *text: str, **options) -> str:
    """The message of an error that leaves nothing behind."""
    before = sorted(folder.iterdir())
    with pytest.raises((ValueError, OSError)) as raised:
        judging.filter_text(*text, folder / "out", FilterConfig(**options))
    assert sorted(folder.iterdir()) == before
    return str(raised.value)


def test_what_cannot_be_filtered_is_reported_and_leaves_nothing(tmp_path, monkeypatch):
    text = write(tmp_path, noise(20))
    (tmp_path / "empty").touch()
    write(tmp_path, noise(19), "shorter")
    assert "No such file: 'absent'" in refused(tmp_path, text[0], "absent")
    assert "is empty. Expected a sentence on each line." in refused(tmp_path, text[0], str(tmp_path / "empty"))
    assert "Received: 20 in" in refused(tmp_path, text[0], str(tmp_path / "shorter.target"))
    assert re.search("as `target_script`. Received: Latn.$", refused(tmp_path, *text, target_script="Latn,Latin"))
    # ① is no letter, and all of Cherokee are.
    assert re.search("Received: Circled.$", refused(tmp_path, *text, source_script="Cherokee,Circled"))
    assert re.search("as `source_language`. Received: english.$", refused(tmp_path, *text, source_language="english"))
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    language_identification.identifier.cache_clear()
    said = refused(tmp_path, *text, target_language="de")
    assert "`target_language` requires py3langid and langcodes: pip install 't2t_keras[filter]'" in said
    (tmp_path / "out").mkdir()
    assert "`output_dir` must be a new folder. " in refused(tmp_path, *text)
    (tmp_path / "out").rmdir()
    (tmp_path / "out").symlink_to("nowhere")
    assert "`output_dir` must be a new folder. " in refused(tmp_path, *text)


def test_text_of_which_nothing_is_kept_is_reported(tmp_path, messages):
    summary = judging.filter_text(*write(tmp_path, [("", "x"), ("y", "")]), tmp_path / "out", FilterConfig())
    assert summary["kept"] == 0 and messages == ["Every pair was rejected."]
    assert (tmp_path / "out" / "kept.source.txt").read_bytes() == b""
    judging.filter_text(*write(tmp_path, [GOOD, ("", "x")]), tmp_path / "some", FilterConfig())
    assert len(messages) == 1


def flags(text: list[str], folder: pathlib.Path) -> list[str]:
    return [f"--source={text[0]}", f"--target={text[1]}", f"--output_dir={folder}"]


def test_the_program_prints_the_summary_as_a_table_or_as_json(tmp_path):
    text = write(tmp_path, noise(100))
    result = tool("filter", *flags(text, tmp_path / "out"), "--min_letters=0")
    assert result.returncode == 0 and result.stderr.decode().splitlines()[-1] == f"Wrote {tmp_path / 'out'}."
    summary = json.loads((tmp_path / "out" / judging.SUMMARY).read_text())
    assert result.stdout.decode() == judging.table(summary) + "\n" and summary["rejected"]["letters"] == 0
    result = tool("filter", *flags(text, tmp_path / "again"), "--min_letters=0", "--json")
    assert json.loads(result.stdout) == summary
    assert "--output_dir must be a new folder. " in complaint(tool("filter", *flags(text, tmp_path / "out")))


@pytest.mark.parametrize(("given", "said"), [
    (["--forward_run=x"], "--forward_run and --backward_run go together. Received: --forward_run=x."),
    (["--max_cross_entropy=2"], "has no effect without --forward_run. Received: --max_cross_entropy=2.0."),
    (["--forward_run=x", "--backward_run=y"], "x"),
    (["--min_script=0.5"], "--min_script has no effect without --source_script or --target_script. Received: "),
    (["--min_language=0.5"], "--min_language has no effect without --source_language or --target_language."),
    (["--length_ratio=2", "--max_length_ratio=0"], "--length_ratio has no effect without --max_length_ratio."),
    (["--source_script=Latn"], "as --source_script. Received: Latn."),
    (["--beam_options=x", "--beam_exchange=y"], "--beam_exchange have no effect without --beam_runner. Received: "),
    (["--beam_runner=A", "--processes=2"], "--processes has no effect with --beam_runner. Received: "),
    (["--duplicates=both"], "flag --duplicates=both: value should be one of <pair|source|target|none>."),
])  # fmt: skip
def test_options_that_do_not_fit_are_reported_before_any_text_is_read(tmp_path, given, said):
    assert said in complaint(tool("filter", *flags(["absent", "absent"], tmp_path / "out"), *given))


@pytest.mark.parametrize(("tags", "names"), [("<a>,<b>,<a>", "<a> or <b>"), ("<a>,,<b>", "")])
def test_runs_that_score_pairs_must_need_no_tags(tmp_path, tags, names):
    """Story: the text of the pairs, which has none, was scored as it is."""
    config = json.loads((ROOT / "tests/data/run_1/config.json").read_text())
    files = {"train_source": "a,b,c", "train_target": "d,e,f", "dataset": ""}
    (tmp_path / "config.json").write_text(json.dumps(config | {"data": config["data"] | files | {"source_tag": tags}}))
    shutil.copy(ROOT / "tests/data/run_1/subwords.model", tmp_path)
    if names:
        with pytest.raises(ValueError, match=f"must not need tags .*{tmp_path}, whose sources begin with {names}.$"):
            judging.check_runs([tmp_path])
    else:
        judging.check_runs([tmp_path])


def test_texts_that_do_not_fit_are_reported_before_a_run_is_loaded(tmp_path):
    run, text = tmp_path / "run", write(tmp_path, noise(20))
    run.mkdir()
    for name in ("config.json", "subwords.model"):  # No weights: loading it would say so.
        shutil.copy(ROOT / "tests" / "data" / "run_1" / name, run)
    with open(text[1], "ab") as file:
        file.write(b"one more\n")
    said = complaint(tool("filter", *flags(text, tmp_path / "out"), f"--forward_run={run}", f"--backward_run={run}"))
    assert f"Received: 20 in {text[0]} and 21 in {text[1]}; the first without a partner is line 21" in said


def test_noise_is_put_in_at_its_rate_and_found(tmp_path):
    """The benchmark: each kind changes as many pairs, and only those."""
    from benchmarks import filter_noise

    draw = random.Random(2)
    words = [["".join(draw.choices("abcdefghij", k=6)) for _ in range(10)] for _ in range(300)]
    pairs = [(" ".join(line), " ".join(word[::-1] for word in line) + ".") for line in words]
    others = [f"other {number}" for number in range(300)]
    found, kinds = filter_noise.noisy(pairs, others, 0.1, seed=3)
    assert len(set(kinds)) == 10 and all(kinds.count(kind) == 30 for kind in kinds)
    for index, (pair, kind) in enumerate(zip(found, kinds, strict=True)):
        source, target = pairs[index]
        expected = {
            "": [pairs[index]],
            "shuffled target": [(source, other) for _, other in pairs if other != target],
            "copied source": [(source, source)],
            "target in another language": [(source, others[index])],
            "source in another language": [(others[index], target)],
            **{f"target truncated to {n}0%": [(source, " ".join(target.split()[:n]))] for n in (2, 4, 6)},
            "repeated pair": (again := pairs[: max(index, 31)]),
            "repeated pair in capitals, without full stops": [(a.upper(), b.upper()[:-1]) for a, b in again],
        }
        assert pair in expected[kind]
    with pytest.raises(ValueError, match="^Expected a --rate of at most"):
        filter_noise.noisy(pairs, others, 0.2, seed=3)
    index = {kind: kinds.index(kind) for kind in set(kinds)}
    rejected = {index["copied source"]: "copy", index["repeated pair"]: "copy", index[""]: "letters"}
    text = filter_noise.report(kinds, rejected)
    assert "| copied source | 30 | 3.3% |" in text and "| none | 30 | 3.33% rejected |" in text
    assert "| `copy` | 2 | 100.0% |" in text and "| `letters` | 1 | 0.0% |" in text and "| all | 3 | 66.7% |" in text


def test_the_noise_benchmark_keeps_its_text_and_counts_what_another_filter_rejected(tmp_path):
    clean = {"source": "the old {} house", "target": "das alte Haus {} hier", "other": "la vieille maison {}"}
    given = [f"--{side}={tmp_path / side}" for side in clean]
    for side, line in clean.items():
        (tmp_path / side).write_text("".join(f"{line.format(number)}\n" for number in map("x".__mul__, range(1, 31))))

    def benchmark(*arguments: str):
        command = [sys.executable, str(ROOT / "benchmarks/filter_noise.py"), *given, "--rate=0.1", *arguments]
        return programs.run(command, modules=programs.WITHOUT_TENSORFLOW, capture_output=True, cwd=ROOT)

    noise = tmp_path / "noise"
    first = benchmark(f"--output_dir={noise}", "--near_duplicates=none")
    assert first.returncode == 0, first.stderr.decode()
    sources, targets = ((noise / side).read_text().splitlines() for side in ("source", "target"))
    copied = [number for number, pair in enumerate(zip(sources, targets, strict=True), 1) if len(set(pair)) == 1]
    assert len(sources) == 30 and len(copied) == 3
    rows = [line.split("\t") for line in (noise / "filtered/rejected.tsv").read_text().splitlines()[1:]]
    assert {int(line) for line, rule, _ in rows if rule == "copy"} == {*copied}
    assert benchmark(f"--rejected={noise / 'filtered/rejected.tsv'}").stdout == first.stdout
    (tmp_path / "rejected.tsv").write_text(f"line\trule\tvalue\n{copied[1]}\tcopy\t1\n")
    shown = benchmark(f"--rejected={tmp_path / 'rejected.tsv'}").stdout.decode()
    assert "| copied source | 3 | 33.3% |" in shown and "| all | 1 | 100.0% |" in shown
    assert "Expected one of --rejected and --output_dir." in complaint(benchmark("--rejected=x", "--output_dir=y"))


@pytest.mark.parametrize("name", ["kept.source.txt", "rejected.tsv", "summary.json*"])
def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path, monkeypatch, name):
    text = write(tmp_path, noise(3000))
    toy.fill_disk(monkeypatch, name)
    expected = rf"^Could not write {tmp_path}/out \(No space left on device\)\. It is incomplete and is not used"
    with pytest.raises(OSError, match=expected):
        judging.filter_text(*text, tmp_path / "out", FilterConfig())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.source", "text.target"]


def test_names_of_files_need_not_be_text(tmp_path):
    """Story: the summary could not be written, and all was lost."""
    text = write(tmp_path, noise(20))
    source = os.fsencode(tmp_path) + b"/caf\xe9"
    os.rename(text[0], source)
    summary = judging.filter_text(os.fsdecode(source), text[1], tmp_path / "out", FilterConfig())
    assert json.loads((tmp_path / "out/summary.json").read_text()) == summary
    assert summary["source"] == [os.fsdecode(source)]
