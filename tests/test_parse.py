"""The program parse.py as a person runs it, and the parser on a model that stands in."""

import functools
import json
import pathlib
import subprocess
import sys

import programs
import pytest
import tensorflow as tf
from test_tools import CONFIG, ENVIRONMENT, ROOT, STAND_IN, complaint, run_stand_in

from t2t_keras.parsing.parser import parse_lines

TREES = """
( (S
    (NP-SBJ-1 (NNP Ada) )
    (VP (VBZ owns)
      (NP (DT a) (NN kettle) )
      (NP (-NONE- *-1) ))
    (. .) ))
( (NP (-NONE- *) ))
( (NP (NN tea) ))
"""
BRACKETS = "(S (NP NNP )NP (VP VBZ (NP DT NN )NP )VP . )S\n(NP NN )NP\n"
# In place of a model: a noun phrase of nouns, as the second of two hypotheses if the first word is "second". It drops
# the closing bracket of a sentence with the word "broken", and reads three words.
NOUNS = STAND_IN.format("""
class Translator:
    config, limits = types.SimpleNamespace(max_input=3), types.SimpleNamespace(batch_size=64)
    def n_best(self, line):
        if line == "stop":
            raise ValueError("Told to stop.")
        tokens = "(NP " + " ".join("NN" for _ in line.split()) + " )NP" * ("broken" not in line)
        texts = ["(NP )NP", tokens] if line.startswith("second") else [tokens, "(NP )NP"]
        return {"text": texts, "truncated": len(line.split()) > 3}

def translate_lines(translate, lines, *, batch_size, read_ahead):
    lines = iter(lines)
    while ahead := [line for _, line in zip(range(read_ahead), lines)]:
        yield from ({"text": ["", ""], "truncated": False} if not line else translate(line) for line in ahead)

loaded.load, translator.translate_lines = lambda model: Translator(), translate_lines
""")


def parse(*arguments: str, stdin: bytes = b"", cwd=ROOT) -> subprocess.CompletedProcess:
    """Runs parse.py, which must not import TensorFlow to linearize and to score."""
    return run_stand_in(STAND_IN.format(""), "parse", *arguments, input=stdin, cwd=cwd)


@pytest.fixture
def nouns(tmp_path):
    """Runs parse.py with what finds nouns in place of a model."""
    (tmp_path / "config.json").write_text(CONFIG)
    (tmp_path / "subwords.model").touch()
    return functools.partial(run_stand_in, NOUNS, "parse", f"--model_dir={tmp_path}")


def test_a_sentence_that_is_typed_is_parsed_before_the_next(nouns):
    programs.answers_what_is_typed(nouns, "one", b"(")


def test_treebank_files_become_text_to_train_with(tmp_path):
    for name in ("wsj_1.mrg", "wsj_2.mrg"):
        (tmp_path / name).write_text(TREES)
    result = parse(
        f"--trees={tmp_path}/wsj_*.mrg", f"--source={tmp_path}/words", f"--target={tmp_path}/brackets", "--linearize"
    )
    assert (result.returncode, result.stdout) == (0, b""), result.stderr.decode()
    assert (tmp_path / "words").read_text() == "Ada owns a kettle .\ntea\n" * 2
    assert (tmp_path / "brackets").read_text() == BRACKETS * 2
    assert "4 sentences" in result.stderr.decode() and "2 trees without words" in result.stderr.decode()


def test_phrases_are_written_once_and_only_if_they_are_asked_for(tmp_path):
    """ "a kettle" is in both files, and a verb phrase of three words is too long."""
    for name in ("1.mrg", "2.mrg"):
        (tmp_path / name).write_text(TREES)
    names = (f"--trees={tmp_path}/?.mrg", f"--source={tmp_path}/words", f"--target={tmp_path}/brackets")
    result = parse("--linearize", *names, "--phrases=2")
    assert b"4 sentences and 2 phrases" in result.stderr
    assert (tmp_path / "words").read_text() == "Ada owns a kettle .\nAda\na kettle\ntea\nAda owns a kettle .\ntea\n"
    assert (tmp_path / "brackets").read_text().splitlines()[1:3] == ["(NP NNP )NP", "(NP DT NN )NP"]


def test_a_broken_treebank_file_is_named_with_its_line_and_nothing_is_written(tmp_path):
    (tmp_path / "a.mrg").write_text(TREES)
    (tmp_path / "b.mrg").write_text(TREES + "( (S (NN x))\n")
    result = parse(
        "--linearize", f"--trees={tmp_path}/a.mrg,{tmp_path}/b.mrg", f"--source={tmp_path}/words",
        f"--target={tmp_path}/brackets",
    )  # fmt: skip
    assert result.returncode == 1 and b"Traceback" not in result.stderr
    assert f"{tmp_path}/b.mrg, line 10: " in result.stderr.decode()
    assert not (tmp_path / "words").exists() and not (tmp_path / "brackets").exists()


@pytest.mark.parametrize(("source", "target", "message"), [
    ("words", "./words", "--source and --target must be two files. Received: ./words twice."),
    ("1.mrg", "brackets", "--source and --target must not replace a file of --trees. Received: 1.mrg."),
    ("words", "link.mrg", "--source and --target must not replace a file of --trees. Received: 1.mrg."),
])  # fmt: skip
def test_a_file_is_not_written_over_a_treebank_or_twice(tmp_path, source, target, message):
    """Story: the treebank was replaced by its words."""
    (tmp_path / "1.mrg").write_text(TREES)
    (tmp_path / "link.mrg").symlink_to("1.mrg")
    result = parse("--linearize", "--trees=1.mrg", f"--source={source}", f"--target={target}", cwd=tmp_path)
    assert (result.returncode, complaint(result)) == (1, f"Error: {message}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.mrg", "link.mrg"]
    assert (tmp_path / "1.mrg").read_text() == TREES


def test_a_line_gives_a_tree_and_a_blank_line_a_blank_line(nouns):
    result = nouns(input="a cat\n\n   \n( broken )\nsecond one\nlast\u2028 word".encode())
    assert result.returncode == 0, result.stderr.decode()
    assert result.stdout.decode().split("\n") == [
        "(TOP (NP (NN a) (NN cat)))", "", "", "(TOP (NP (NN -LRB-) (NN broken) (NN -RRB-)))",
        "(TOP (NP (NN second) (NN one)))", "(TOP (NP (NN last\u2028) (NN word)))", ""
    ]  # fmt: skip
    assert result.stderr.decode().splitlines() == [
        "4 sentences parsed. Well-formed: the best hypothesis of 50.00%, any hypothesis of 75.00%. Repaired: 1."
    ]


def test_a_truncated_sentence_is_named_and_its_words_are_in_the_tree(nouns):
    result = nouns(input=b"one\none two three four\n")
    assert result.stdout.decode().splitlines()[1] == "(TOP (NP (NN one) (NN two) (NN three) (NN four)))"
    said = result.stderr.decode().splitlines()[0]
    assert said.startswith("Line 2: longer than --max_input=3 sub-words, end token included.")


def test_a_picture_has_several_lines_and_a_blank_line_after_it(nouns):
    result = nouns("--draw", input=b"a\n\nb\n")
    assert result.stdout.decode() == "TOP\n└── NP\n    └── NN a\n\n\nTOP\n└── NP\n    └── NN b\n\n"


def test_flushing_answers_a_line_before_the_next_comes(nouns):
    programs.answers_each_line(nouns, {b"one": b"(TOP (NP (NN one)))", b"two": b"(TOP (NP (NN two)))"})


def test_an_output_file_is_replaced_when_all_lines_are_parsed(nouns, tmp_path):
    (tmp_path / "in").write_text("one\nstop\n")
    (tmp_path / "out").write_text("before")
    result = nouns(f"--input={tmp_path}/in", f"--output={tmp_path}/out")
    assert (result.returncode, result.stdout) == (1, b"")
    expected = ("before", "(TOP (NP (NN one)))\n")
    assert ((tmp_path / "out").read_text(), (tmp_path / "out.partial").read_text()) == expected
    (tmp_path / "in").write_text("one\n")
    assert nouns(f"--input={tmp_path}/in", f"--output={tmp_path}/out").returncode == 0
    assert (tmp_path / "out").read_text() == "(TOP (NP (NN one)))\n"


def test_right_branching_trees_need_no_model():
    result = parse("--right_branching", stdin=b"a b c\n\n")
    assert (result.returncode, result.stdout, result.stderr) == (0, b"(TOP (S (XX a) (VP (XX b) (XX c))))\n\n", b"")


GOLD = "(TOP (S (NP (NN a)) (VP (VB b) (NP (NN c)))))"
PARSED = "(TOP (S (NP (NN a)) (VP (VB b) (NN c))))"


def scored(tmp_path, gold: str, parsed: str, *flags: str) -> subprocess.CompletedProcess:
    (tmp_path / "gold").write_text(gold)
    (tmp_path / "parsed").write_text(parsed)
    return parse("--score", f"--gold={tmp_path}/gold", f"--parsed={tmp_path}/parsed", *flags)


def test_scores_are_printed_to_two_decimals(tmp_path):
    result = scored(tmp_path, f"{GOLD}\n", f"{PARSED}\n")
    assert (result.returncode, result.stderr) == (0, b"")
    rows = {line[:20].strip(): line[20:].split() for line in result.stdout.decode().splitlines()}
    assert rows["recall"] == ["75.00", "75.00"] and rows["precision"] == ["100.00", "100.00"]
    assert rows["F1"] == ["85.71", "85.71"]
    assert rows["sentences"] == ["1", "1"] and rows["tagging accuracy"] == ["100.00", "100.00"]


def test_scores_of_all_sentences_come_before_those_of_short_ones(tmp_path):
    long = f"(TOP (S {' '.join(f'(NN w{number})' for number in range(41))}))"
    for flags in (["--json"], []):
        result = scored(tmp_path, f"{GOLD}\n{long}\n", f"{PARSED}\n{long}\n", *flags)
        if flags:
            every, short = (json.loads(result.stdout)[name] for name in ("all", "short"))
            assert (every["sentences"], every["recall"], short["sentences"], short["recall"]) == (2, 80, 1, 75)
        else:
            assert b"recall                  80.00          75.00\n" in result.stdout


def test_a_treebank_file_scores_100_against_itself_and_its_cleaned_trees(tmp_path):
    clean = "(TOP (S (NP (NNP Ada)) (VP (VBZ owns) (NP (DT a) (NN kettle))) (. .)))\n\n(TOP (NP (NN tea)))\n"
    for parsed in (TREES, clean):
        scores = json.loads(scored(tmp_path, TREES, parsed, "--json").stdout)["all"]
        assert (scores["f1"], scores["sentences"], scores["errors"], scores["skipped"]) == (100, 3, 0, 1)


@pytest.mark.parametrize(("gold", "parsed", "expected"), [
    ("{0}\n{0}\n", "{1}\n\n", (2, 1)), ("{0}\n\n{0}\n", "{1}\n\n{1}\n", (2, 0)),
    ("\n{0}\n\n{0}\n\n", "{1}\n{1}\n", (2, 0)), ("{0}\n\n{0}\n", "{1}\n\n", (2, 1)),
    ("{0}\n{0}\n", "\n{1}\n\n{1}\n", (2, 0)),
])  # fmt: skip
def test_a_blank_line_is_a_missing_tree_where_the_lines_correspond(tmp_path, gold, parsed, expected):
    """Elsewhere, and where it is blank in both files, it separates trees."""
    scores = json.loads(scored(tmp_path, gold.format(GOLD, PARSED), parsed.format(GOLD, PARSED), "--json").stdout)[
        "all"
    ]
    assert (scores["sentences"], scores["skipped"]) == expected
    assert (scores["recall"], scores["errors"]) == (75, 0)


def test_all_files_of_a_treebank_are_scored_in_the_order_of_their_names(tmp_path):
    (tmp_path / "2.mrg").write_text(f"{GOLD}\n")
    (tmp_path / "1.mrg").write_text(TREES)
    (tmp_path / "parsed").write_text(f"{TREES}{GOLD}\n")
    scores = json.loads(parse("--score", f"--gold={tmp_path}/*.mrg", f"--parsed={tmp_path}/parsed", "--json").stdout)[
        "all"
    ]
    assert (scores["f1"], scores["sentences"], scores["errors"], scores["skipped"]) == (100, 4, 0, 1)


def test_trees_without_words_that_linearizing_leaves_out_are_not_scored(tmp_path):
    """Story: the documented sequence ended with 2 trees in one file and 3 in the other."""
    result = scored(tmp_path, f"{GOLD}\n( (S (NP-SBJ (-NONE- *)) ))\n{GOLD}\n", f"{GOLD}\n{GOLD}\n", "--json")
    scores = json.loads(result.stdout)["all"]
    assert (scores["f1"], scores["sentences"], scores["errors"], scores["skipped"]) == (100, 2, 0, 0)


def test_sentences_that_are_not_scored_are_counted_and_named(tmp_path):
    result = scored(tmp_path, f"{GOLD}\n" * 4, f"{PARSED}\n(TOP (NN a)\n\n{PARSED.replace('c', 'd')}\n", "--json")
    scores = json.loads(result.stdout)["all"]
    assert (scores["sentences"], scores["errors"], scores["skipped"], round(scores["recall"])) == (4, 2, 1, 75)
    said = result.stderr.decode().splitlines()
    assert said[0].startswith(f"Not scored: {tmp_path}/parsed, line 2: ")
    assert said[1].startswith("3 of 4 sentences are not scored")
    assert ": 2 with other words" in said[1] and "; 1 without words" in said[1]


@pytest.mark.parametrize(("gold", "parsed", "message"), [
    (f"{GOLD}\n", f"{PARSED}\n{PARSED}\n", "2 in"),
    (f"{GOLD}\n(TOP (S\n{GOLD}\n", f"{PARSED}\n" * 3, "gold, line 2: Expected"),
    ("", f"{PARSED}\n", "gold is empty"),
])  # fmt: skip
def test_files_that_cannot_be_compared_are_an_error(tmp_path, gold, parsed, message):
    assert message in complaint(scored(tmp_path, gold, parsed))


@pytest.mark.parametrize(("arguments", "message"), [
    ((), "Give one of --linearize, --score, --right_branching, --model_dir. Received: none."),
    (("--score", "--linearize"), "Received: --linearize, --score."),
    (("--score", "--model_dir=x"), "Received: --score, --model_dir."),
    (("--score", "--gold=x"), "Missing: --parsed."),
    (("--linearize", "--trees=x"), "Missing: --source, --target."),
    (("--linearize", "--trees=x", "--source=x", "--target=x"), "Received: x twice."),
    (("--score", "--gold=x", "--parsed=x", "--draw", "--beam_size=2"),
     "--draw has no effect without --right_branching or --model_dir."),
    (("--score", "--gold=x", "--parsed=x", "--beam_size=2"), "--beam_size has no effect without --model_dir."),
    (("--model_dir=x", "--json"), "--json has no effect without --score."),
    (("--right_branching", "--flush"), "--flush has no effect without --model_dir."),
    (("--score", "--gold=/nowhere/gold", "--parsed=x"), "No such file: '/nowhere/gold'"),
    (("--linearize", "--trees=/nowhere/*", "--source=/tmp/never_a", "--target=/tmp/never_b"),
     "No such file: '/nowhere/*'"),
    (("--model_dir=/nowhere",), "/nowhere"),
])  # fmt: skip
def test_flags_that_do_not_fit_together_are_reported_before_anything_is_written(arguments, message):
    assert message in complaint(parse(*arguments))
    assert not list(pathlib.Path("/tmp").glob("never_*"))


def test_help_shows_the_commands():
    result = parse("--help")
    assert b"--linearize --trees=" in result.stdout and b"--score --gold=" in result.stdout


class Nouns:
    """Stands in for a `Translator`: every word is a noun, in the second of its hypotheses."""

    def n_best(self, text):
        hypotheses = [tf.strings.join([text, " x"])]
        hypotheses += [tf.strings.regex_replace(text, "[^ ]+", tag) for tag in ("NN", "VB")]
        scores = tf.zeros([tf.shape(text)[0], 3])
        return {"text": tf.stack(hypotheses, 1), "score": scores, "truncated": tf.strings.length(text) > 5}


def test_sentences_of_any_length_keep_their_order_and_their_words():
    """They are sorted by length in between, and as many are parsed at once as is asked for."""

    class OfTwo(Nouns):
        def n_best(self, text):
            tf.debugging.assert_less_equal(tf.shape(text)[0], 2)
            return super().n_best(text)

    lines = ["one two three", "", "(", "four five", " six "] * 3
    parses = list(parse_lines(OfTwo(), lines, batch_size=2, read_ahead=4))
    expected = [
        "(TOP (NN one) (NN two) (NN three))", "(TOP)", "(TOP (NN -LRB-))", "(TOP (NN four) (NN five))",
        "(TOP (NN six))",
    ] * 3  # fmt: skip
    assert [str(parse.tree) for parse in parses] == expected
    assert [parse.truncated for parse in parses] == [True, False, False, True, False] * 3
    assert [parse.hypothesis for parse in parses] == [1] * 15 and not any(parse.repaired for parse in parses)


def test_the_best_hypothesis_is_repaired_if_none_is_well_formed():
    class Broken(Nouns):
        def n_best(self, text):
            hypotheses = tf.stack([tf.strings.join([text, " )S"]), tf.strings.join([text, " )NP"])], 1)
            return super().n_best(text) | {"text": hypotheses}

    (parse,) = parse_lines(Broken(), ["NN VB"])
    assert (str(parse.tree), parse.hypothesis, parse.repaired) == ("(TOP (NN NN) (VB VB))", 0, True)


@pytest.mark.slow
def test_a_trained_model_parses_what_it_has_learned(tmp_path):
    """All of it together: treebank files, training, search, scores. A small grammar is learned by heart."""
    subjects, objects = ("Ada", "He", "The cat", "A dog"), ("tea", "the kettle", "a cat", "it")
    tags = {"Ada": "NNP", "He": "PRP", "it": "PRP", "The": "DT", "A": "DT", "the": "DT", "a": "DT"}

    def phrase(text: str) -> str:
        return "(NP " + " ".join(f"({tags.get(word, 'NN')} {word})" for word in text.split()) + ")"

    trees = [f"(S {phrase(one)} (VP (VBZ sees) {phrase(other)}) (. .))\n" for one in subjects for other in objects]
    (tmp_path / "trees").write_text("".join(trees) * 20)
    (tmp_path / "gold").write_text("".join(trees))
    program = [sys.executable, str(ROOT / "tools/parse.py")]

    def run(*command: str, **options) -> subprocess.CompletedProcess:
        result = programs.run(command, capture_output=True, env=ENVIRONMENT, **options)
        assert result.returncode == 0, result.stderr.decode()
        return result

    for name in ("trees", "gold"):
        run(
            *program, "--linearize", f"--trees={tmp_path}/{name}", f"--source={tmp_path}/{name}.words",
            f"--target={tmp_path}/{name}.brackets",
        )  # fmt: skip
    run(
        sys.executable, str(ROOT / "tools/train.py"), f"--train_source={tmp_path}/trees.words",
        f"--train_target={tmp_path}/trees.brackets", f"--valid_source={tmp_path}/gold.words",
        f"--valid_target={tmp_path}/gold.brackets", f"--model_dir={tmp_path}/run", "--vocab_size=340",
        "--encoder_layers=1", "--decoder_layers=1", "--d_model=64", "--d_ff=128", "--num_heads=4", "--d_k=16",
        "--d_v=16", "--dropout=0", "--label_smoothing=0", "--batch_tokens=1024", "--warmup_steps=50",
        "--train_steps=200", "--valid_steps=200", "--checkpoint_steps=50", "--keep_checkpoints=1", "--beam_size=4",
        "--extra_length=60", "--learning_rate_factor=0.5",
    )  # fmt: skip
    words = (tmp_path / "gold.words").read_bytes()
    result = run(*program, f"--model_dir={tmp_path}/run", f"--output={tmp_path}/parsed", input=words)
    assert b"the best hypothesis of 100.00%" in result.stderr
    scores = json.loads(
        run(*program, "--score", f"--gold={tmp_path}/gold", f"--parsed={tmp_path}/parsed", "--json").stdout
    )
    assert scores["all"]["f1"] > 99
