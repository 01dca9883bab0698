"""The programs as a person runs them: from text files to translations of text, in processes of their own."""

import dataclasses
import functools
import json
import os
import pathlib
import pty
import random
import re
import shutil
import subprocess
import sys
import termios
from importlib.util import find_spec

import numpy as np
import programs
import pytest
import stand_in

from t2t_keras import __version__, config
from t2t_keras.data import builtin_corpus
from t2t_keras.decoding.minimum_bayes_risk import mbr
from t2t_keras.evaluation import comparison, comparison_report
from t2t_keras.reporting import comparison_pictures, figures, pages
from t2t_keras.runs import checkpoint
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.text import piece_file

ROOT = pathlib.Path(__file__).parent.parent
PROGRAMS = (
    "train", "translate", "evaluate", "compare", "export", "prepare", "filter", "data_service", "attention", "parse",
)  # fmt: skip
ALONE = {"ensemble_weights": [], "ensemble_mean": "probabilities"}  # Options of a model that is no ensemble.
NEEDED = {"prepare": "data_dir", "filter": "output_dir", "data_service": "port"}  # Of the others: model_dir.
NEEDED |= dict.fromkeys(("evaluate", "compare"), "reference")
LINES_THAT_TRY_IT = [
    b"two hundred and seven", b"", b"   ", b"one\xe2\x80\xa8line of U+2028 and \xc2\x85 U+0085",
    b"\xff\xfe is not UTF-8", b"a\ttab and a \r carriage return \x0b \x0c \x00", "😀 ½ … ▁ <unk>".encode(),
    b"windows line\r", b"the last line has no end",
]  # fmt: skip


CONFIG = '{"version": 1, "model": {"decoder_layers": 4}}'  # Of a run, for programs that do not load it.
# Of a person, who has not set how much TensorFlow says, as the tests do.
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"},
    "PYTHONPATH": str(ROOT),
}
# Runs a program with modules that stand in for those that load and translate, and without TensorFlow. {}: what is to be
# in them.
STAND_IN = """
import runpy, sys, types
names = ("decoding.loading", "decoding.translator", "evaluation.evaluate", "evaluation.cross_entropy", "serving.loaded")
loading, translator, evaluation, cross_entropy, loaded = (types.ModuleType(f"t2t_keras.{{name}}") for name in names)
sys.modules |= {{module.__name__: module for module in (loading, translator, evaluation, cross_entropy, loaded)}}
cross_entropy.perplexity = evaluation.evaluate = None
loading.load_with_states = lambda model: (loaded.load(model), [])

def described(model):
    import dataclasses
    from t2t_keras.config import DecodeConfig
    fields, usual = vars(model).items(), vars(DecodeConfig())
    options = {{name: value for name, value in fields if name not in ("runs", "search") and value != ""}}
    search = {{name: value for name, value in vars(model.search).items() if value != usual[name]}}
    return {{"model_dir": [str(run.folder) for run in model.runs], **options, **search}}
{}
program = sys.argv.pop(1)
sys.argv[0] = program
try:
    runpy.run_path(program, run_name="__main__")
finally:
    assert "tensorflow" not in sys.modules
"""
SHOUTING = STAND_IN.format("""
class Translator:
    config, limits = types.SimpleNamespace(beam_size=2, max_input=6), types.SimpleNamespace(batch_size=64)
    fits = reads = None
    def __call__(self, line):
        if line == "stop":
            raise ValueError("Told to stop.")
        return {"text": line.upper(), **self.cut(line)}
    def n_best(self, line):
        return {"text": [line.upper(), line], "score": [-0.5, -1.5], **self.cut(line)}
    def cut(self, line):
        return {"truncated": len(line) > self.config.max_input}

def sampler(model, config):
    texts = lambda line, number: [f"{line} {number} {draw} {config}" for draw in range(config.draws)]
    scores = [-0.5 - draw for draw in range(config.draws)]
    return lambda line, number: {"text": texts(line, number), "score": scores, **model.cut(line)}

module = types.ModuleType("t2t_keras.serving.requests")
module.sampler = sampler
sys.modules[module.__name__] = module

def translate_lines(translate, lines, *, batch_size, read_ahead, first):
    lines = iter(lines)
    number = first or 0
    while ahead := [line for _, line in zip(range(read_ahead), lines)]:
        for line in ahead:
            yield translate(line, *([] if first is None else [number]))
            number += 1

loaded.load, translator.translate_lines = lambda model: Translator(), translate_lines
""")


def tool(name: str, *arguments: str, stdin: bytes = b"", cwd: pathlib.Path = ROOT) -> subprocess.CompletedProcess:
    """Runs tools/NAME.py; output as bytes, as a file would get it."""
    command = [sys.executable, str(ROOT / "tools" / f"{name}.py"), *arguments]
    return programs.run(command, input=stdin, capture_output=True, cwd=cwd, env=ENVIRONMENT)


def run_stand_in(code: str, name: str, *arguments: str, start=programs.run, **options):
    """Runs tools/NAME.py after some code, where TensorFlow is not imported."""
    command = [sys.executable, "-c", code, str(ROOT / "tools" / f"{name}.py"), *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return start(command, modules=programs.WITHOUT_TENSORFLOW, **{**pipes, "env": ENVIRONMENT, **options})


def complaint(result: subprocess.CompletedProcess) -> str:
    """What a program that failed for a person's mistake said: one line, no traceback, and nothing of TensorFlow's."""
    assert result.returncode == 1, result.stderr.decode()
    [said] = result.stderr.decode().splitlines()
    assert said.startswith("Error: ")
    return said


def make_run(folder: pathlib.Path, options: str = CONFIG) -> pathlib.Path:
    """The folder of a run, for programs that do not load it."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(options)
    (folder / "subwords.model").touch()
    return folder


def with_checkpoint(folder: pathlib.Path) -> pathlib.Path:
    """A run's folder, with a file that passes for a checkpoint."""
    path = checkpoint.path_of(folder, 1)
    path.parent.mkdir()
    path.with_suffix(".json").touch()
    with path.open("wb") as file:  # It takes no space on the disk.
        file.truncate(4 * SavedRun.open(folder).model.num_weights)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> pathlib.Path:
    """English numbers and a language that says the words backwards: aligned files, in two parts for training."""
    folder = tmp_path_factory.mktemp("text")
    sentences = [english for english, _ in builtin_corpus.splits(300, seed=1)["train"]]
    random.Random(0).shuffle(sentences)
    for name, part in (("train1", sentences[:150]), ("train2", sentences[150:260]), ("valid", sentences[260:])):
        (folder / f"{name}.en").write_text("".join(f"{line}\n" for line in part))
        (folder / f"{name}.back").write_text("".join(f"{' '.join(reversed(line.split()))}\n" for line in part))
    return folder


def train_flags(text: pathlib.Path, model_dir: pathlib.Path) -> list[str]:
    return [
        f"--train_source={text}/train1.en,{text}/train2.en", f"--train_target={text}/train?.back",
        f"--valid_source={text}/valid.en", f"--valid_target={text}/valid.back", f"--model_dir={model_dir}",
        "--vocab_size=320", "--encoder_layers=1", "--decoder_layers=1", "--d_model=8", "--d_ff=16", "--num_heads=2",
        "--d_k=4", "--d_v=4", "--batch_tokens=500", "--train_steps=3", "--valid_steps=3", "--valid_sentences=2",
        "--checkpoint_steps=1", "--log_steps=1", "--warmup_steps=10", "--beam_size=2", "--extra_length=3",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory) -> tuple[pathlib.Path, str]:
    """A model folder, and what `train.py` wrote: its messages on standard error, then its standard output."""
    model_dir = tmp_path_factory.mktemp("runs") / "backwards"
    result = tool("train", *train_flags(text, model_dir))
    assert result.returncode == 0, result.stderr.decode()
    return model_dir, result.stderr.decode() + result.stdout.decode()


@pytest.mark.medium
def test_training_reports_what_it_read_what_it_trains_and_what_to_do_next(trained):
    model_dir, said = trained
    assert "260 pairs" in said and "40 pairs" in said
    assert "parameters" in said and "tensorboard --logdir" in said
    assert f"tools/translate.py --model_dir={model_dir}" in said.splitlines()[-1]
    options = json.loads((model_dir / "config.json").read_text())
    assert (options["model"]["d_ff"], options["train"]["warmup_steps"], options["decode"]["beam_size"]) == (16, 10, 2)
    assert len(list((model_dir / "checkpoints").glob("step-*.npz"))) == 3


@pytest.fixture(scope="module")
def translated(trained) -> subprocess.CompletedProcess:
    """In a process that imports TensorFlow itself, which then says what it says on every machine."""
    command = [sys.executable, str(ROOT / "tools/translate.py"), f"--model_dir={trained[0]}"]
    return subprocess.run(command, input=b"\n".join(LINES_THAT_TRY_IT), capture_output=True, env=ENVIRONMENT)


@pytest.mark.medium
def test_every_line_is_answered_by_one_line_whatever_is_in_it(translated):
    """Only \\n ends a line: the 207th translation stands beside the 207th sentence."""
    assert translated.returncode == 0, translated.stderr.decode()
    translations = translated.stdout.decode("utf-8").split("\n")
    assert translations.pop() == ""
    assert len(translations) == len(LINES_THAT_TRY_IT)
    assert [bool(line) for line in translations][1:3] == [False, False]


def test_a_program_says_what_it_does_and_nothing_of_tensorflows(translated):
    said, warning = translated.stderr.decode().splitlines()
    assert said.startswith("Using the average of")
    assert warning.startswith("<stdin>, line 5 is not UTF-8: byte 0xff at column 1. Convert the file (iconv")


def test_n_best_lines_are_numbered_scored_and_best_first(trained, translated, tmp_path):
    """And the best is what is written without --n_best, from one file to another as from stream to stream."""
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(b"\n".join(LINES_THAT_TRY_IT) + b"\n")
    result = tool("translate", f"--model_dir={trained[0]}", "--n_best=2", f"--input={source}", f"--output={target}")
    assert (result.returncode, result.stdout) == (0, b""), result.stderr.decode()
    rows = [line.split("\t", 2) for line in target.read_text("utf-8").split("\n")[:-1]]
    assert {len(row) for row in rows} == {3}
    best = translated.stdout.decode().split("\n")[:-1]  # A blank line has one translation.
    expected = [number for number, text in enumerate(best, 1) for _ in range(2 if text else 1)]
    assert [int(row[0]) for row in rows] == expected
    # A score of an unfinished translation may be above that of a finished one; those of an untrained model are far
    # apart.
    assert [row[2] for row in {row[0]: row for row in reversed(rows)}.values()][::-1] == best
    assert rows[0][2] != rows[1][2]
    assert rows[2][1:] == rows[3][1:] == ["0.0000", ""] and rows[2][0] != rows[3][0]
    assert all(float(row[1]) < 0 for row in rows if row[2])


@pytest.mark.medium
def test_json_lines_and_terms_are_answered_line_by_line(trained, translated, tmp_path):
    """Its beam of 2 holds what must appear, what must not, the terms of a file, and text to keep."""
    terms = tmp_path / "terms.tsv"
    terms.write_text("two\tdeux\nseven\tsept\nhund\tchien\n")
    lines = [
        {"text": "two hundred and seven"},
        {"text": "one"},
        {"text": "two hundred and seven", "constraints": ["x y", "a"], "ordered": True},
        {"text": "", "constraints": ["a"]},
        {"text": "one", "constraints": ["a b " * 8]},
        {"text": "one", "avoid": ["ü"]},
        {"text": "<b>one</b> two {0}"},
        {"text": f"one {{{'x' * 40}}}"},
    ]
    source = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    flags = [f"--model_dir={trained[0]}", f"--terms={terms}", "--extra_length=24"]
    result = tool("translate", *flags, "--jsonl", "--keep_patterns=braces,tags", stdin=source)
    assert result.returncode == 0, result.stderr.decode()
    answers = [json.loads(line) for line in result.stdout.decode().splitlines()]
    first, one, third, blank, long, _, kept, _ = answers
    assert all(list(answer) == ["text", "score", "constraints_met", "doubtful"] for answer in answers)
    assert "deux" in first["text"] and "sept" in first["text"] and "chien" not in first["text"]
    assert first["constraints_met"] is True
    assert third["text"].index("x y") < third["text"].rindex("a") and "deux" in third["text"]
    assert "sept" in third["text"]
    assert blank == {"text": "", "score": 0.0, "constraints_met": False, "doubtful": False}
    assert one["constraints_met"] and one["score"] < 0
    assert long["constraints_met"] is False  # 32 sub-words have no room in 24 more than the source has.
    assert all(tag in kept["text"] for tag in ("<b>", "</b>", "{0}"))
    left_out = f"Line 8: expected at most 32 phrases of at most 32 sub-words. Left out: {{{'x' * 40}}}"
    assert left_out in result.stderr.decode()
    many = tool("translate", *flags, "--n_best=2", "--alignment", stdin=b"two hundred and seven\none\n\n")
    rows = [line.split("\t") for line in many.stdout.decode().splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "2", "3"]
    assert rows[0][1:3] == [f"{first['score']:.4f}", first["text"]] and rows[2][2] == one["text"]
    assert rows[4][1:] == ["0.0000", "", ""]
    links = [[tuple(map(int, link.split("-"))) for link in rows[place][3].split()] for place in (0, 2)]
    assert [[target for _, target in row] for row in links] == [
        [*range(len(each["text"].split()))] for each in (first, one)
    ]
    assert all(source < 4 for source, _ in links[0]) and all(source == 0 for source, _ in links[1])


@pytest.mark.parametrize(("flags", "input", "said"), [
    (["--jsonl"], b'{"text": "a"}\n{"text": 3}\n', "Line 2: text: expected a sentence. Received: 3."),
    (["--terms={0}/terms.tsv"], b"one\n",
     "Expected a term, a tab and its translation in each line of the terms, and optionally another tab and"),
    (["--terms={0}/absent.tsv"], b"one\n", "absent.tsv cannot be read: "),
])  # fmt: skip
def test_what_is_wrong_with_phrases_is_reported_without_tensorflow(tmp_path, flags, input, said):
    make_run(tmp_path)
    (tmp_path / "terms.tsv").write_text("no tab\n")
    flags = [flag.format(tmp_path) for flag in flags]
    assert said in complaint(run_stand_in(SHOUTING, "translate", f"--model_dir={tmp_path}", *flags, input=input))


@pytest.fixture
def shouting(tmp_path):
    """Runs `translate` with what shouts in place of a model, takes 6 letters of a line and stops at "stop"."""
    make_run(tmp_path)

    return functools.partial(run_stand_in, SHOUTING, "translate", f"--model_dir={tmp_path}")


OF_THREE = STAND_IN.format("""
class Translator:
    config, limits = types.SimpleNamespace(beam_size=3, max_input=99, alpha=0.25), types.SimpleNamespace(batch_size=64)
    def __init__(self, **model):
        import os
        os.write(2, b"normalizer.cc(51) LOG(INFO) precompiled_charsmap is empty. use identity normalization.\\n")
        self.model, self.translator = model, self
    def __call__(self, line):
        return {"text": f"{line} by the search", "score": -1.0, "truncated": False}
    def n_best(self, line):
        texts = [f"{line} another", f"{line} dog sleeps now", f"{line} dog sleeps here"]
        scores = [-1.0, -1.2, -1.3] if line else [0.0] * 3
        return {"text": texts if line else [""] * 3, "score": scores, "truncated": False}

def reranked(n_best, other, **options):
    print(other.model, options, flush=True)
    def function(line):
        found = n_best(line)
        return {**found, **{name: found[name][::-1] for name in ("text", "score")}}
    return function

reranking = types.ModuleType("t2t_keras.decoding.reranking")
reranking.reranked = reranked
sys.modules[reranking.__name__] = reranking
loaded.load = lambda model: Translator(folder=model.runs[0].folder.name, dtype=model.dtype)
translator.translate_lines = lambda translate, lines, **sizes: map(translate, lines)
""")


@pytest.fixture
def of_three(tmp_path):
    """Runs `translate` with three translations of a line, the last two alike; reranking turns the list around."""
    for name in ("first", "second"):
        make_run(tmp_path / name)
    return functools.partial(run_stand_in, OF_THREE, "translate", f"--model_dir={tmp_path}/first", input=b"a\n\nb\n")


def test_the_translation_of_least_risk_is_chosen(of_three):
    """A blank line stays blank. The scores are the expected chrF, largest first."""
    assert of_three("--mbr=chrf").stdout == b"a dog sleeps here\n\nb dog sleeps here\n"
    rows = [line.split("\t") for line in of_three("--mbr=chrf", "--n_best=2").stdout.decode().splitlines()]
    texts = ["a another", "a dog sleeps now", "a dog sleeps here"]
    expected = sorted(zip(mbr(texts, np.exp([-1.0, -1.2, -1.3])), texts, strict=True), reverse=True)
    assert rows[:2] == [["1", f"{value:.4f}", text] for value, text in expected[:2]]
    assert rows[2] == ["2", "0.0000", ""] and rows[3][0] == "3"


def test_translations_are_reranked_by_another_run(of_three, tmp_path):
    """And then chosen by the risk under the new scores, if both are asked for."""
    flags = [
        f"--rerank_with={tmp_path}/second", "--rerank_weight=0.5", "--rerank_direction=backward", "--dtype=bfloat16",
    ]  # fmt: skip
    first, *lines = of_three(*flags).stdout.decode().splitlines()
    expected = (
        {"folder": "second", "dtype": "bfloat16"},
        {"weight": 0.5, "alpha": 0.25, "direction": "backward", "unknown_tags": []},
    )
    assert first == "{} {}".format(*expected) and lines == ["a dog sleeps here", "", "b dog sleeps here"]
    _, best, second, *_ = of_three(*flags, "--n_best=2").stdout.decode().splitlines()
    assert [best, second] == ["1\t-1.3000\ta dog sleeps here", "1\t-1.2000\ta dog sleeps now"]
    _, line, *_ = of_three(*flags, "--mbr=chrf", "--n_best=1").stdout.decode().splitlines()
    texts = ["a dog sleeps here", "a dog sleeps now", "a another"]
    assert line == f"1\t{max(mbr(texts, np.exp([-1.3, -1.2, -1.0]))):.4f}\ta dog sleeps here"


EVALUATING = OF_THREE.replace(
    "program = ",
    """
evaluation.evaluate = lambda translator, sources, *references, translate, **options: (
    translate(sources), {"perplexity_is_of": translator.model["folder"]}
)
program = """,
)


@pytest.fixture
def evaluating(of_three, tmp_path):
    """Runs `evaluate` with the translations of `of_three`, on text that is the reference too."""
    (tmp_path / "source").write_text("a\n")
    files = [f"--{name}={tmp_path}/source" for name in ("source", "reference")]

    def evaluated(*flags, code=EVALUATING, **options):
        return run_stand_in(code, "evaluate", f"--model_dir={tmp_path}/first", *files, *flags, **options)

    return evaluated


def test_the_text_of_an_evaluation_says_how_an_ensemble_is_combined(evaluating, tmp_path):
    given = [f"--model_dir={tmp_path}/first,{tmp_path}/second", "--ensemble_mean=logs", "--ensemble_weights=1,2"]
    lines = evaluating(*given, check=True).stdout.decode().splitlines()
    found = dict(line.split() for line in lines)
    assert (found["ensemble_mean"], found["ensemble_weights"]) == ("logs", "1.0,2.0")


@pytest.mark.medium
def test_files_of_two_sides_are_evaluated_as_two_text_files_are(of_three, tmp_path):
    """The languages of TMX are not for the model, unless it has several."""
    variants = "".join(f"<tuv xml:lang='{code}'><seg>{code} text</seg></tuv>" for code in ("en", "fr", "de"))
    (tmp_path / "x.tmx").write_text(f"<tmx><header srclang='en'/><body><tu>{variants}</tu></body></tmx>")
    (tmp_path / "x.tsv").write_text("en text\tde text\tmore\n")
    for code in ("en", "de"):
        (tmp_path / code).write_text(f"{code} text\n")
    code = EVALUATING.replace('"perplexity_is_of": translator.model["folder"]', '"read": [sources, references]')
    asked, languages = [f"--model_dir={tmp_path}/first", "--json"], ["--source_language=en", "--target_language=de"]

    def evaluated(source: str, reference: str, *flags: str) -> subprocess.CompletedProcess:
        files = [f"--source={tmp_path}/{source}", f"--reference={tmp_path}/{reference}"]
        return run_stand_in(code, "evaluate", *asked, *files, *flags)

    for source, reference, flags, said in (
        ("en", "de", [], ""),
        ("x.tsv", "x.tsv", [], "x.tsv: 1 line with columns after the second, which are ignored.\n"),
        ("x.tmx", "x.tmx", languages, ""),
        ("en", "x.tmx", languages, ""),
    ):
        result = evaluated(source, reference, *flags)
        assert result.returncode == 0 and result.stderr.decode().endswith(said)
        assert json.loads(result.stdout)["read"] == [["en text"], [["de text"]]]
    assert "as --source_language and --target_language: en, fr, de." in complaint(evaluated("x.tmx", "x.tmx"))
    assert "is not multilingual" in complaint(evaluated("en", "de", *languages))
    scored = [f"--hypothesis={tmp_path}/de", f"--reference={tmp_path}/x.tmx", *languages]
    assert b"exact_match          1.0000" in run_stand_in(code, "evaluate", *scored, check=True).stdout
    scored[1] = f"--reference={tmp_path}/de"
    said = complaint(run_stand_in(code, "evaluate", *scored))
    assert "--source_language and --target_language have no effect without --model_dir or " in said
    scored[0] = f"--hypothesis={tmp_path}/x.tsv"
    assert "x.tsv is TSV, of two sides." in complaint(run_stand_in(code, "evaluate", *scored[:2]))
    compared = [f"{tmp_path}/de", f"{tmp_path}/en", f"--source={tmp_path}/x.tmx", *scored[1:]]
    assert b"/en" in run_stand_in(STAND_IN.format(""), "compare", *compared, check=True).stdout


def test_terms_in_the_tags_of_sources_are_not_counted(evaluating, tmp_path):
    """The search looks for none there."""
    make_run(tmp_path / "first", json.dumps(json.loads(CONFIG) | {"data": {"source_tag": "<news>"}}))
    (tmp_path / "source").write_text("<news> a dog\n")
    (tmp_path / "terms").write_text("news\tNachrichten\ndog\tdog\n")
    code = EVALUATING.replace("cross_entropy.perplexity =", "cross_entropy.perplexity = lambda *_: 2.0\nunused =")
    given = [f"--terms={tmp_path}/terms", f"--hypothesis={tmp_path}/source", "--json"]
    found = json.loads(evaluating(*given, code=code, check=True).stdout)
    assert (found["terms"], found["term_accuracy"]) == (1, 1.0)


def test_evaluating_warns_of_a_source_that_is_cut(evaluating):
    said = evaluating(code=EVALUATING.replace('"truncated": False', '"truncated": True'), check=True).stderr.decode()
    assert "Line 1: longer than --max_input=99 sub-words, end token included. Only the beginning is translated." in said


@pytest.mark.parametrize(("flags", "best", "reported"), [
    (["--mbr=chrf"], "a dog sleeps here", {"mbr": "chrf"}),
    (["--rerank_with={}/second", "--rerank_weight=0", "--rerank_direction=backward"], "a dog sleeps here",
     {"rerank_with": "{}/second", "rerank_weight": 0, "rerank_direction": "backward"}),
    ([], "a by the search", {}),
], ids=["mbr", "reranking", "search"])  # fmt: skip
def test_evaluating_chooses_translations_as_translating_does_and_says_how(evaluating, tmp_path, flags, best, reported):
    result = evaluating(f"--output={tmp_path}/out", *(flag.format(tmp_path) for flag in flags), "--json")
    assert (result.returncode, result.stderr) == (0, b"")
    *reranked_with, printed = result.stdout.decode().splitlines()
    given_to_reranking = (
        {"folder": "second", "dtype": "float32"},
        {"weight": 0.0, "alpha": 0.25, "direction": "backward", "unknown_tags": []},
    )
    assert reranked_with == (["{} {}".format(*given_to_reranking)] if "rerank_with" in reported else [])
    found = json.loads(printed)
    assert (tmp_path / "out").read_text() == f"{best}\n" and found["perplexity_is_of"] == "first"
    expected = {name: value.format(tmp_path) if isinstance(value, str) else value for name, value in reported.items()}
    assert {name: value for name, value in found.items() if name == "mbr" or name.startswith("rerank")} == expected


@pytest.mark.parametrize(("flags", "named"), [
    (["--mbr=chrf", "--beam_size=1"], "--mbr=chrf needs a --beam_size of at least 2. Received: --beam_size=1."),
    (["--rerank_with={}/second", "--beam_size=1"], "--rerank_with={}/second needs a --beam_size of at least 2."),
    (["--rerank_weight=2"], "--rerank_weight has no effect without --rerank_with."),
    (["--rerank_direction=backward"], "--rerank_direction has no effect without --rerank_with."),
    (["--rerank_with={}/second", "--rerank_weight=nan"], "--rerank_weight must be finite. Received: nan."),
    (["--rerank_with={}/second", "--rerank_weight=inf"], "--rerank_weight must be finite."),
    (["--rerank_with={}/gone"], "--rerank_with must be the folder of a run. Received: "),
], ids=str)  # fmt: skip
def test_what_cannot_be_chosen_from_is_reported_before_a_model_is_loaded(of_three, tmp_path, flags, named):
    result = of_three(*(flag.format(tmp_path) for flag in flags))
    assert named.format(tmp_path) in complaint(result) and result.stdout == b""


def test_flushing_answers_a_line_before_the_next_comes(shouting):
    """Story: a program at the other end of a pipe got its first answer when it had sent its last line."""
    programs.answers_each_line(shouting, {b"one": b"ONE", b"two": b"TWO"})


def test_a_sentence_that_is_typed_is_answered_before_the_next(shouting):
    programs.answers_what_is_typed(shouting, "one", b"ONE\n")


def test_sampling_prints_draws_as_n_best_lines_are_and_one_alone_as_text(shouting):
    given = ["--sample", "--draws=2", "--seed=5", "--temperature=0.5", "--top_k=3", "--top_p=0.25"]
    config = "SampleConfig(draws={}, seed=5, temperature=0.5, top_k=3, top_p=0.25)"
    shown = [
        (f"{line}\t{score:.4f}\t{text} {line - 1} {draw} {config.format(2)}")
        for line, text in ((1, "one"), (2, "two"))
        for draw, score in ((0, -0.5), (1, -1.5))
    ]
    assert shouting(*given, input=b"one\ntwo\n").stdout.decode().splitlines() == shown
    assert shouting(*given, "--draws=1", input=b"one\n").stdout.decode() == f"one 0 0 {config.format(1)}\n"
    chosen = shouting(*given, "--mbr=chrf", input=b"one\ntwo\n").stdout.decode().splitlines()
    assert [line.split()[:2] for line in chosen] == [["one", "0"], ["two", "1"]]


def test_a_line_that_is_cut_is_reported_by_its_number(shouting):
    result = shouting(input=b"one\nseventy\ntwo\nhundred\n")
    assert result.stdout == b"ONE\nSEVENTY\nTWO\nHUNDRED\n"
    said = result.stderr.decode().splitlines()
    assert [line.partition(":")[0] for line in said] == ["Line 2", "Line 4"]
    assert all("--max_input" in line for line in said)


def test_an_output_file_is_replaced_when_all_lines_are_translated(shouting, tmp_path):
    source, target = tmp_path / "in", tmp_path / "out"
    target.write_text("before")
    source.write_text("one\nstop\n")
    result = shouting(f"--input={source}", f"--output={target}")
    assert (result.returncode, result.stdout) == (1, b"")
    expected = [f"Not finished. The output so far is in {target}.partial.", "Error: Told to stop."]
    assert result.stderr.decode().splitlines() == expected
    assert (target.read_text(), (tmp_path / "out.partial").read_text()) == ("before", "ONE\n")
    source.write_text("one\ntwo\n")
    assert shouting(f"--input={source}", f"--output={target}").returncode == 0
    assert target.read_text() == "ONE\nTWO\n" and not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize("output", ["file", "terminal"])
def test_progress_is_shown_on_a_terminal_that_the_translations_do_not_go_to(shouting, tmp_path, output):
    (tmp_path / "in").write_text("one\ntwo\nthree\n")
    terminal, end = pty.openpty()
    termios.tcsetwinsize(end, (24, 80))
    result = shouting(f"--input={tmp_path}/in", stderr=end, stdout=subprocess.PIPE if output == "file" else end)
    os.close(end)
    shown = os.read(terminal, 2**16)
    os.close(terminal)
    assert result.returncode == 0
    assert (b"3/3" in shown) == (output == "file") and (b"THREE" in shown) == (output == "terminal")


@pytest.mark.medium
def test_evaluating_prints_one_json_object_and_writes_the_translations(trained, text, tmp_path):
    """Blank lines and several references are counted as sacreBLEU counts them."""
    model_dir, _ = trained
    lines = {name: (text / f"valid.{name}").read_text().split("\n")[:-1] for name in ("en", "back")}
    lines["en"][3] = lines["back"][5] = lines["en"][7] = lines["back"][7] = ""
    lines["other"] = [line.upper() for line in lines["back"]]
    for name, side in lines.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in side))
    names = [f"--source={tmp_path}/en", f"--output={tmp_path}/out"]
    names += [f"--reference={tmp_path}/{name}" for name in ("back", "other")]
    options = ["--checkpoint=latest", "--alpha=1", "--lowercase", "--tokenize=char", "--rouge", "--compound_split=de"]
    result = tool("evaluate", f"--model_dir={model_dir}", *names, *options, "--json")
    assert result.returncode == 0, result.stderr.decode()
    scores = json.loads(result.stdout)
    assert {
        "bleu", "chrf", "perplexity", "signature", "exact_match", "rougeL_f1", "rougeL_recall", "compound_split_bleu",
    } <= set(scores)  # fmt: skip
    assert (scores["sentences"], scores["beam_size"], scores["alpha"], scores["checkpoint"]) == (40, 2, 1.0, "latest")
    assert 0 <= scores["bleu"] <= 100 and 0 <= scores["chrf"] <= 100 and 1 < scores["perplexity"] < 1000
    assert scores["exact_match"] == 1 / 40  # Where both sides are blank.
    translations = (tmp_path / "out").read_text().split("\n")
    assert len(translations) == 40 + 1 and [row for row, line in enumerate(translations) if not line] == [3, 7, 40]
    expected = sacrebleu_says(tmp_path / "out", tmp_path / "back", tmp_path / "other", lowercase=True, tokenize="char")
    assert {name: scores[name] for name in expected} == pytest.approx(expected)


def run_sacrebleu(*arguments) -> str:
    command = [sys.executable, "-c", "from sacrebleu.sacrebleu import main; main()", *map(str, arguments)]
    result = programs.run(command, modules=programs.WITHOUT_TENSORFLOW, capture_output=True, check=True)
    return result.stdout.decode()


def sacrebleu_says(hypothesis, *references, lowercase: bool = False, tokenize: str = "13a") -> dict:
    """What the command sacrebleu prints of files; it knows only --lowercase of BLEU."""
    found = {}
    for metric, options in (
        ("bleu", ["-tok", tokenize, *["-lc"] * lowercase]),
        ("chrf", ["--chrf-lowercase"] * lowercase),
    ):
        said = run_sacrebleu(*references, "-i", hypothesis, "-m", metric, *options, "-w", 12)
        found[metric] = json.loads(said)["score"]
    return found


@pytest.mark.parametrize(
    "options", [{}, {"lowercase": True}, {"tokenize": "char"}, {"lowercase": True, "tokenize": "none"}], ids=str
)
@pytest.mark.parametrize("number", [1, 2])
def test_existing_translations_are_scored_as_by_sacrebleu_blank_lines_too(tmp_path, options, number):
    """Without a model, and without TensorFlow."""
    texts = {
        "hypothesis": "the cat Sat.\n\nfoo bar\nHe said: yes-no, or so.\nA A b c d\n \n",
        "0": "The cat sat.\n\n  \nHe said: Yes-no, or so.\nA a b c d\nx\n",
        "1": "A cat sat.\nx y\n\nHe said yes-no\n\n\n",
    }
    for name, content in texts.items():
        (tmp_path / name).write_text(content)
    references = [tmp_path / name for name in ("0", "1")[:number]]
    flags = [f"--{name}={value}" for name, value in options.items()] + [f"--reference={path}" for path in references]
    result = run_stand_in(STAND_IN.format(""), "evaluate", f"--hypothesis={tmp_path}/hypothesis", *flags, "--json")
    assert (result.returncode, result.stderr) == (0, b"")
    scores = json.loads(result.stdout)
    expected = sacrebleu_says(tmp_path / "hypothesis", *references, **options)
    assert {name: scores[name] for name in expected} == pytest.approx(expected, rel=1e-9)
    # Line 2 is blank as its first reference is; of several references, a blank one is none.
    assert "perplexity" not in scores and scores["exact_match"] == (1 / 6 if number == 1 else 0)


def test_scores_have_a_confidence_interval_by_default(tmp_path):
    """That of sacreBLEU's command, to its last digit; exact in JSON."""
    lines = {
        "hypothesis": ["the cat sat", "foo bar", "yes no maybe so", "a b c d e"],
        "reference": ["the cat", "foo", "yes no maybe", "a b c d f"],
    }
    for name, content in lines.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in content))
    flags = [f"--hypothesis={tmp_path}/hypothesis", f"--reference={tmp_path}/reference", "--compound_split=de"]
    said = run_sacrebleu(
        tmp_path / "reference", "-i", tmp_path / "hypothesis", "-m", "bleu", "chrf", "--confidence", "-w", "4",
        "-f", "text",
    )  # fmt: skip
    expected = dict(re.findall(r"^ *(BLEU|chrF2)\|.* = [\d.]+ \(μ = ([\d.]+ ± [\d.]+)\)", said, re.MULTILINE))
    assert set(expected) == {"BLEU", "chrF2"}
    shown = run_stand_in(STAND_IN.format(""), "evaluate", *flags, check=True).stdout.decode()
    printed = dict(re.findall(r"^(\w+) +[\d.]+ \(mean ([\d.]+ ± [\d.]+)\)$", shown, re.MULTILINE))
    assert [printed["bleu"], printed["chrf"]] == [expected["BLEU"], expected["chrF2"]]
    assert "compound_split_bleu" in printed
    assert "bs:1000|seed:12345" in shown and not re.search("_mean|_margin", shown)
    found = json.loads(run_stand_in(STAND_IN.format(""), "evaluate", *flags, "--json", check=True).stdout)
    assert f"{found['bleu_mean']:.4f} ± {found['bleu_margin']:.4f}" == expected["BLEU"]
    names = [name for name in found if not name.endswith(("_mean", "_margin"))]
    assert re.findall(r"^\w+", shown, re.MULTILINE) == names and "chrf_signature" in names
    flags += ["--json", "--bootstrap_samples=0"]
    none = json.loads(run_stand_in(STAND_IN.format(""), "evaluate", *flags, check=True).stdout)
    assert none == {name: none[name] for name in found if not name.endswith(("_mean", "_margin"))}
    assert "bs:" not in none["signature"]
    assert none["bleu"] == found["bleu"]


def test_intervals_that_need_too_much_memory_are_left_out(tmp_path):
    (tmp_path / "hypothesis").write_text("one\ntwo\n")
    code = "from t2t_keras.system import machine; machine.free_memory = lambda: 2 * 1000 * 8 - 1.0"
    (tmp_path / "reference").write_text("one\ntwo\n")
    files = [f"--hypothesis={tmp_path}/hypothesis", f"--reference={tmp_path}/reference", "--json"]
    for samples, left_out in ((1000, True), (999, False)):
        result = run_stand_in(STAND_IN.format(code), "evaluate", *files, f"--bootstrap_samples={samples}", check=True)
        assert result.stderr.decode().count("Leaving out confidence intervals.") == left_out
        assert ("bleu_mean" in json.loads(result.stdout)) != left_out


SCORING = """
from t2t_keras.system import machine
from t2t_keras.evaluation import scores
def evaluate(translator, sources, *references, translate, **options):
    hypotheses = translate(sources)
    {}
    return hypotheses, scores.scores(hypotheses, *references, **options)
evaluation.evaluate = evaluate
program = """


@pytest.mark.parametrize(("happens", "said", "has_scores"), [
    ('raise ValueError("No scores.")', "Error: No scores.", False),
    ("machine.free_memory = lambda: 0.0",
     "Leaving out confidence intervals. Expected a test that fits into the free memory, 0.0 GB.", True),
], ids=["an error", "no memory"])  # fmt: skip
def test_translations_are_written_before_they_are_scored_and_scores_need_no_memory_for_intervals(
    evaluating, tmp_path, happens, said, has_scores
):
    """Story: the memory that TensorFlow took was missing for the intervals, and hours of translating were lost."""
    (tmp_path / "source").write_text("a\nb\n")
    code = EVALUATING.replace("program = ", SCORING.format(happens), 1)
    result = evaluating(f"--output={tmp_path}/out", "--compound_split=de", "--json", code=code)
    assert said in result.stderr.decode() and (result.returncode == 0) == has_scores
    assert (tmp_path / "out").read_text() == "a by the search\nb by the search\n"
    if has_scores:
        found = json.loads(result.stdout)
        assert {"bleu", "chrf", "compound_split_bleu"} <= found.keys()
        assert not [name for name in found if "mean" in name]


def score_files(tmp_path, hypothesis: str, *flags: str, **options) -> subprocess.CompletedProcess:
    (tmp_path / "reference").write_text("one\ntwo\n")
    files = [f"--hypothesis={hypothesis}", f"--reference={tmp_path}/reference"]
    return run_stand_in(STAND_IN.format(""), "evaluate", *files, *flags, **options)


def test_translations_are_scored_from_a_pipe(tmp_path):
    """With two references, for which they are read once."""
    result = score_files(tmp_path, "/dev/stdin", f"--reference={tmp_path}/reference", "--json", input=b"one\nthree\n")
    assert result.returncode == 0, result.stderr.decode()
    assert json.loads(result.stdout)["exact_match"] == 1 / 2


@pytest.mark.parametrize("flag", ["--beam_size=2", "--checkpoint=best", "--dtype=float32", "--int8", "--batch_size=8"])
def test_an_option_of_a_model_is_refused_where_there_is_none(tmp_path, flag):
    (tmp_path / "hypothesis").write_text("one\ntwo\n")
    said = complaint(score_files(tmp_path, f"{tmp_path}/hypothesis", flag))
    assert f"{flag.partition('=')[0]} has no effect without --model_dir." in said


def test_scored_files_of_unequal_length_are_reported_by_their_flags(tmp_path):
    (tmp_path / "hypothesis").write_text("one\n")
    said = complaint(score_files(tmp_path, f"{tmp_path}/hypothesis"))
    assert f"1 in --hypothesis={tmp_path}/hypothesis, 2 in --reference={tmp_path}/reference." in said


def test_a_scored_line_that_is_not_utf_8_is_reported_without_advice_that_cannot_be_taken(tmp_path):
    """Story: evaluate.py advised --skip_bad_lines, which it does not have."""
    (tmp_path / "hypothesis").write_bytes(b"one\ntw\xff\n")
    said = complaint(score_files(tmp_path, f"{tmp_path}/hypothesis"))
    assert "hypothesis, line 2 is not UTF-8: byte 0xff at column 3." in said and "skip_bad_lines" not in said


def test_a_figure_that_is_not_finite_is_null_in_json(tmp_path):
    """Story: Python writes Infinity and NaN, which no JSON parser but its own takes."""
    make_run(tmp_path)
    (tmp_path / "text").write_text("one\n")
    code = """
loaded.load = lambda model: types.SimpleNamespace(limits=types.SimpleNamespace(batch_size=64), translator=None)
evaluation.evaluate = lambda *arguments, **options: (["one"], {"bleu": 1.5, "chrf": float("inf"), "perplexity": float("nan")})
"""  # noqa: E501
    flags = [f"--model_dir={tmp_path}", f"--source={tmp_path}/text", f"--reference={tmp_path}/text", "--json"]
    result = run_stand_in(STAND_IN.format(code), "evaluate", *flags, check=True)
    scores = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(name))
    assert (scores["bleu"], scores["chrf"], scores["perplexity"]) == (1.5, None, None)


@pytest.mark.parametrize("existing", [False, True], ids=["translates", "has translations"])
def test_evaluating_loads_the_model_that_it_reports_and_passes_on_what_was_asked_for(tmp_path, existing):
    """Story: had --checkpoint and --dtype been printed and not used, no test would have failed."""
    make_run(tmp_path)
    for name in ("source", "hypothesis", "0", "1"):
        (tmp_path / name).write_text(f"{name} a\n{name} B\n")
    code = """
loaded.load = lambda model: types.SimpleNamespace(translator=described(model))
evaluation.evaluate = lambda *arguments, translate, **options: (
    ["one", "two"], {"arguments": arguments, "options": options, "size": translate.args[0].asked.batch_size, "bleu_mean": 1.0}
)
cross_entropy.perplexity = lambda *arguments: {"arguments": arguments}
from t2t_keras.evaluation import scores
scores.require = lambda **options: None
scores.rouge = lambda *texts: {"rouge": texts}
scores.compound_split_bleu = lambda *texts, **options: {"split": [*texts, options]}
"""  # noqa: E501
    flags = [f"--model_dir={tmp_path}", f"--source={tmp_path}/source"]
    flags += [f"--reference={tmp_path}/{name}" for name in (0, 1)]
    flags += [f"--hypothesis={tmp_path}/hypothesis"] * existing + ["--lowercase", "--tokenize=char", "--json"]
    flags += ["--bootstrap_samples=30", "--rouge", "--compound_split=de"]
    flags += [f"--model_dir={tmp_path},{tmp_path}/.", "--ensemble_weights=1,2.5"] * existing
    of_search = {} if existing else {"max_input": 30, "extra_length": 9, "beam_size": 3, "alpha": 0.5}
    search = {"search_rows": 8} | of_search
    flags += [] if existing else ["--batch_size=7"]
    flags += ["--checkpoint=best", "--dtype=bfloat16", "--int8"]
    flags += [f"--{name}={value}" for name, value in search.items()]
    result = run_stand_in(STAND_IN.format(code), "evaluate", *flags)
    assert result.returncode == 0, result.stderr.decode()
    found = json.loads(result.stdout)
    loaded = {"model_dir": [str(tmp_path)], "checkpoint": "best", "dtype": "bfloat16", "int8": True, **ALONE, **search}
    if existing:
        loaded |= {"model_dir": [str(tmp_path)] * 2, "ensemble_weights": [1.0, 2.5]}
    of_model = found["perplexity"] if existing else found
    assert of_model["arguments"] == [loaded, *([f"{name} a", f"{name} B"] for name in ("source", "0", "1"))]
    assert existing or (found["options"], found["size"]) == ({"lowercase": True, "tokenize": "char", "samples": 30}, 7)
    assert (found["checkpoint"], found["dtype"], found["int8"]) == ("best", "bfloat16", True)
    texts = [["hypothesis a", "hypothesis B"] if existing else ["one", "two"], ["0 a", "0 B"], ["1 a", "1 B"]]
    assert found["rouge"] == texts and found["split"] == [*texts, {"language": "de", "lowercase": True, "samples": 30}]
    assert found.get("ensemble_weights") == ("1.0,2.5" if existing else None)


@pytest.mark.parametrize(("flags", "named"), [
    (["--output={}/missing/out"], "missing/out cannot be written"),
    (["--output={}"], "cannot be written: Is a directory"),
    (["--compound_split=german"], "Received: german"),
    # Story: it was a KeyError with a traceback, after the whole text had been translated.
    (["--tokenize=mosses"], "--tokenize=mosses: value should be one of <13a|"),
    pytest.param(["--tokenize=ja-mecab"], "sacrebleu[ja]",
                 marks=pytest.mark.skipif(bool(find_spec("MeCab")), reason="MeCab is installed")),
    (["--alpha=-5"], "alpha=-5"),
    (["--hypothesis={}/text"], "--output has no effect with --hypothesis."),
    (["--hypothesis={}/text", "--output=", "--mbr=chrf"],
     "--mbr has no effect with --hypothesis. Received: --mbr='chrf'."),
    (["--hypothesis={}/text", "--output=", "--beam_size=2", "--no_repeat_ngram=3", "--batch_size=3"],
     "--batch_size and --beam_size and --no_repeat_ngram have no effect with --hypothesis."),
    (["--hypothesis={}/text", "--output=", "--max_input=9", "--extra_length=9", "--search_cores=1"],
     "--extra_length and --max_input and --search_cores have no effect with --hypothesis."),
    (["--rerank_weight=2"], "--rerank_weight has no effect without --rerank_with."),
    (["--rerank_with={}/gone"], "--rerank_with must be the folder of a run. Received: "),
    (["--source="], "Give --model_dir and --source to translate, or --hypothesis"),
], ids=str)  # fmt: skip
def test_evaluating_finds_out_what_cannot_be_before_it_loads_a_model(tmp_path, flags, named):
    """Story: an hour of translating was lost to a folder that was not there."""
    make_run(tmp_path)
    (tmp_path / "text").write_text("one\n")
    asked = [f"--model_dir={tmp_path}", f"--output={tmp_path}/out"]
    asked += [f"--{name}={tmp_path}/text" for name in ("source", "reference")]
    asked += [flag.format(tmp_path) for flag in flags]
    assert named in complaint(run_stand_in(STAND_IN.format(""), "evaluate", *asked))
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "subwords.model", "text"}


@pytest.fixture
def to_compare(tmp_path):
    """Runs `compare` on files of two systems, without TensorFlow."""
    texts = {
        "source": "a\nb b\n", "reference": "one\ntwo three\n", "first": "one\nfour\n", "second": "on\ntwo three\n",
        "short": "x\n", "empty": "",
    }  # fmt: skip
    for name, content in texts.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "folder").mkdir()
    with_checkpoint(make_run(tmp_path / "run"))
    return functools.partial(run_stand_in, STAND_IN.format(""), "compare", cwd=tmp_path)


FEW = ["--bootstrap_samples=20", "--randomization_trials=30"]


def test_systems_are_compared_as_by_the_library(to_compare, tmp_path):
    """As text, as JSON, as a page and as a picture; flags may follow the names of the files."""
    flags = [
        "--reference=reference", "first", "second", "--reference=first", "--source=source", "--seed=3", "--examples=0",
        *FEW,
    ]  # fmt: skip
    flags += ["--lowercase", "--tokenize=char"]
    result = to_compare(*flags, "--json", "--html=page.html", "--picture=lengths.svg")
    assert (result.returncode, result.stderr) == (0, b"Wrote page.html.\nWrote lengths.svg.\n")
    options = {"samples": 20, "trials": 30, "seed": 3, "examples": 0, "lowercase": True, "tokenize": "char"}
    texts = {"first": ["one", "four"], "second": ["on", "two three"]}
    expected = comparison.compare(texts, ["one", "two three"], ["one", "four"], source=["a", "b b"], **options)
    assert json.loads(result.stdout) == json.loads(json.dumps(dataclasses.asdict(expected)))
    assert (tmp_path / "page.html").read_text() == pages.comparison_page(dataclasses.asdict(expected))
    found = (tmp_path / "lengths.svg").read_bytes()
    assert found == figures.encoded(comparison_pictures.bleu_by_length(dataclasses.asdict(expected)), "svg")
    assert to_compare(*flags).stdout.decode() == f"{comparison_report.report(expected)}\n"
    wanted = {"source", "reference", "first", "second", "short", "empty", "folder", "run"}
    assert {path.name for path in tmp_path.iterdir()} - {"page.html", "lengths.svg"} == wanted


def test_a_system_may_have_more_files_than_fit_into_one_name(to_compare):
    """Story: their names together were looked for as the folder of a run, which the operating system refuses."""
    systems = [",".join([name] * 60) for name in ("reference", "first", "second")]
    result = to_compare(f"--reference={systems[0]}", *systems[1:], *FEW, "--json", check=True)
    assert json.loads(result.stdout)["sentences"] == 2 * 60


@pytest.mark.parametrize(("flags", "named"), [
    (["first"], "Give two different systems or more, the baseline first. Received: first."),
    (["first", "first"], "two different systems or more, the baseline first. Received: first, first."),
    (["first", "second", "run/../first"], "two different systems or more, the baseline first. Received: first, sec"),
    (["first", "short"], "2 in --reference=reference, 2 in first, 1 in short."),
    (["first", "second", "--source=short"],
     "2 in --reference=reference, 1 in --source=short, 2 in first, 2 in second."),
    (["first", "second", "--reference=short"], "2 in --reference=reference, 1 in --reference=short,"),
    (["first", "empty"], "empty is empty. Expected a sentence on each line."),
    (["first", "gone"], "No such file: 'gone'"),
    (["first", "folder"], "folder is not a model folder: it has no config.json."),
    (["first", "run"], "A run needs the text to translate as --source. Received: run, a run."),
    (["first", "second", "--html=gone/page.html"], "gone/page.html cannot be written"),
    (["first", "second", "--picture=gone/lengths.png"], "gone/lengths.png cannot be written"),
    (["first", "run", "--source=source", "--picture=lengths.pdf"],
     "Expected a picture as png or svg. Received: lengths.pdf."),
    (["first", "run", "--source=source", "--bootstrap_samples=999999999999"],
     "Expected a test that fits into the free memory"),
    (["first", "run", "--source=source", "--randomization_trials=999999999999"],
     "Expected a test that fits into the free memory"),
    pytest.param(["first", "run", "--source=source", "--tokenize=ja-mecab"], "sacrebleu[ja]",
                 marks=pytest.mark.skipif(bool(find_spec("MeCab")), reason="MeCab is installed")),
], ids=str)  # fmt: skip
def test_what_cannot_be_compared_is_reported_at_once(to_compare, tmp_path, flags, named):
    before = sorted(tmp_path.iterdir())
    assert named in complaint(to_compare("--reference=reference", *FEW, *flags))
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("wrong", "named"), [
    ("untrained", "No checkpoint for `checkpoint=average` in wrong. Train first, or give another `model_dir`."),
    ("damaged",
     "float32 weights in wrong/checkpoints/step-000000001.npz. Received 0 bytes: damaged, or of another model."),
    ("bert", "wrong does not translate: its architecture is bert."),
    ("classifier", "wrong does not translate: its architecture is classifier."),
    ("multilingual",
     "wrong: The model is multilingual. Choose target_language among its 2 languages, such as eng_Latn, deu_Latn. "),
    ("without sub-words", "wrong/subwords.model is missing. Restore it"),
])  # fmt: skip
def test_a_run_that_cannot_be_compared_is_reported_before_another_one_translates(to_compare, tmp_path, wrong, named):
    """Story: a second run without a checkpoint ended the program after hours of translating with the first one."""
    config = {"version": 1, "model": {}} | ({"architecture": wrong} if wrong in ("bert", "classifier") else {})
    with_checkpoint(make_run(tmp_path / "wrong", json.dumps(config)))
    if wrong == "untrained":
        shutil.rmtree(tmp_path / "wrong/checkpoints")
    elif wrong == "damaged":
        checkpoint.path_of(tmp_path / "wrong", 1).write_bytes(b"")
    elif wrong == "multilingual":
        (tmp_path / "wrong/subwords.model").write_bytes(
            piece_file.pack(["a", ">>eng_Latn<<", ">>deu_Latn<<"], stand_in.subwords("bpe"), "")
        )
    elif wrong == "without sub-words":
        (tmp_path / "wrong/subwords.model").unlink()
    assert named in complaint(to_compare("--reference=reference", "--source=source", *FEW, "run", "wrong"))


def test_a_comparison_of_nothing_asks_for_systems(to_compare):
    result = to_compare("--reference=reference")
    assert (result.returncode, b"Give the translations of two systems or more" in result.stderr) == (2, True)


def test_runs_are_translated_and_compared_in_the_place_that_they_have(tmp_path):
    """With their own search. The widest of them chooses how TensorFlow computes.

    Story: runs were compared on text without the tag that they need, or on beginnings of long lines, and nothing said
    so.
    """
    for name, width in (("narrow", 64), ("wide", 512)):
        with_checkpoint(make_run(tmp_path / name, json.dumps({"version": 1, "model": {"d_model": width}})))
    (tmp_path / "text").write_text("one\ntwo\n")
    (tmp_path / "file").write_text("ONE\nTWO\n")
    code = """
import os
class Model:
    limits, config = types.SimpleNamespace(batch_size=7), types.SimpleNamespace(max_input=2)
    def __init__(self, model):
        self.end, self.translator = model.runs[0].folder.name, self
        print("load", self.end, os.environ.get("TF_ENABLE_ONEDNN_OPTS"), os.environ["TF_NUM_INTRAOP_THREADS"], file=sys.stderr)
        assert (model.checkpoint, model.dtype, model.int8) == ("average", "float32", False)
    def __call__(self, line):
        return {"text": f"{line} {self.end}", "truncated": line == "two" and self.end == "wide"}
loaded.load = Model
def translate_lines(model, lines, *, batch_size, **options):
    assert batch_size == 7
    return map(model, lines)
translator.translate_lines = translate_lines
"""  # noqa: E501
    flags = [
        "--source=text", "--reference=text", "narrow", "file", "--json", "--bootstrap_samples=0",
        "--randomization_trials=0",
    ]  # fmt: skip
    result = run_stand_in(STAND_IN.format(code), "compare", *flags, "wide", cwd=tmp_path)
    assert result.returncode == 0, result.stderr.decode()
    *loaded, warning = result.stderr.decode().splitlines()
    assert loaded == ["load narrow None 1", "load wide None 1"]
    expected = "longer than `max_input`=2 sub-words, end token included. Only the beginning is translated."
    assert warning == f"wide: Line 2: {expected}"
    expected = {"narrow": ["one narrow", "two narrow"], "file": ["ONE", "TWO"], "wide": ["one wide", "two wide"]}
    expected = comparison.compare(expected, ["one", "two"], source=["one", "two"], samples=0, trials=0, examples=5)
    assert json.loads(result.stdout) == json.loads(json.dumps(dataclasses.asdict(expected)))
    result = run_stand_in(STAND_IN.format(code), "compare", *flags, cwd=tmp_path)
    assert result.stderr.decode().splitlines() == ["load narrow 0 1"]
    aligning = """
alignment, page = (types.ModuleType(f"t2t_keras.reporting.{name}") for name in ("attention", "pages"))
sys.modules |= {module.__name__: module for module in (alignment, page)}
alignment.word_alignment = lambda translator, source, text: f"{translator.end} aligns {source} to {text}"
page.comparison_page = lambda fields, align: str([align(name, "one", "ONE") for name in ("narrow", "file", "wide")])
"""
    flags += ["wide", "--html=page.html"]
    run_stand_in(STAND_IN.format(code + aligning), "compare", *flags, cwd=tmp_path, check=True)
    assert (tmp_path / "page.html").read_text() == "['narrow aligns one to ONE', None, 'wide aligns one to ONE']"


@pytest.mark.medium
def test_an_export_translates_as_the_program_does(trained, tmp_path):
    """And an export beside another is another version, which a server takes from then on."""
    flags = [f"--model_dir={trained[0]}", "--checkpoint=latest", "--alpha=0.9", "--beam_size=3", "--int8"]
    (tmp_path / "1").mkdir()
    result = tool("export", *flags, f"--export_dir={tmp_path}")
    assert result.returncode == 0, result.stderr.decode()
    assert f"Exported to {tmp_path}/2." in result.stderr.decode()
    description = json.loads((tmp_path / "2/assets.extra/t2t_keras.json").read_text())
    assert (description["weights"], description["checkpoint"], description["update"]) == ("int8", "latest", 3)
    assert (description["decode"]["alpha"], description["decode"]["beam_size"]) == (0.9, 3)
    text = b"\n".join(LINES_THAT_TRY_IT)
    expected = tool("translate", *flags, stdin=text).stdout
    assert tool("translate", f"--model_dir={tmp_path}", stdin=text).stdout == expected
    assert expected.count(b"\n") == len(LINES_THAT_TRY_IT)
    refused = complaint(tool("translate", f"--model_dir={tmp_path}", "--alpha=1"))
    assert "are fixed. Received: --alpha=1.0." in refused


@pytest.mark.parametrize(("flags", "named"), [
    (["--format=ctranslate2", "--int8"], "--quantization"),
    (["--format=ctranslate2", "--dtype=bfloat16"], "--quantization"),
    (["--quantization=int8"], "--format=ctranslate2"),
    (["--format=argos", "--int8"], "--quantization"),
    (["--format=argos", "--from_code=en", "--to_code=de"], "Expected --from_name to be the name of a language"),
    (["--to_name=German"], "--format=argos"),
    (["--format=argos", "--beam_size=8", "--from_name=A", "--to_name=B"],
     "--beam_size has no effect with --format=argos"),
    (["--format=ctranslate2", "--search_rows=8"], "--search_rows has no effect with --format=ctranslate2"),
    (["--format=huggingface", "--search_cores=1"], "--search_cores has no effect with --format=huggingface"),
    (["--format=huggingface", "--dtype=bfloat16"], "--dtype and --int8 do not apply"),
    (["--scores=x"], "--format=huggingface"),
    (["--export_dir=gs://bucket/x"], "local folder"),
    (["--export_dir="], "Expected a folder as --export_dir. Received none."),
])  # fmt: skip
def test_an_export_that_cannot_be_is_refused_in_a_line(trained, tmp_path, flags, named):
    assert named in complaint(tool("export", f"--model_dir={trained[0]}", f"--export_dir={tmp_path}/new", *flags))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("name", "flags", "said"), [
    ("export", ["--model_dir={0}/run", "--export_dir={0}/run"], "{0}/run holds a run, and cannot hold exports."),
    ("export", ["--model_dir={0}/run", "--export_dir={0}", "--format=ctranslate2"],
     "--export_dir must be a new or an empty folder. Received: {0},"),
    ("classify", ["--model_dir={0}/run", "--export_dir={0}/run"], "{0}/run holds a run, and cannot hold exports."),
    ("prepare", ["--data_dir={0}", "--dataset=builtin"], "{0} holds files and no prepared data."),
    ("prepare",
     ["--data_dir={0}/data", "--train_source=a", "--valid_source=b", "--architecture=bert", "--max_length=600"],
     "Expected --max_length of at most the 512 learned positions. Received: --max_length=600,"),
    ("prepare",
     ["--data_dir={0}/data", "--train_source=a", "--valid_source=b", "--architecture=bert", "--source_subwords_file=c"],
     "Expected one vocabulary: the task pretraining has no separate one for the source. Received: "
     "--source_subwords_file=c."),
    ("prepare", ["--data_dir={0}/data", "--dataset=builtin", "--parent=runs/a"],
     "Expected the sub-words of runs/a, which the run is to start from. Received none. Give "
     "--subwords_file=runs/a/subwords.model"),
    ("prepare", ["--data_dir={0}/latin1", "--dataset=builtin"],
     "--data_dir must be a folder. Received: {0}/latin1, which is not a folder."),
    ("train", ["--model_dir={0}/new", "--data_dir={0}", "--dataset=builtin"], "{0} holds files and no prepared data."),
    ("train", ["--model_dir={0}/latin1/x", "--dataset=builtin"],
     "--model_dir must be a folder. Received: {0}/latin1/x, but {0}/latin1 is not a folder."),
    ("train", ["--model_dir={0}/latin1", "--dataset=builtin"],
     "--model_dir must be a folder. Received: {0}/latin1, which is not a folder."),
    ("train", ["--model_dir={0}/new", "--data_dir={0}/latin1", "--dataset=builtin"],
     "--data_dir must be a folder. Received: {0}/latin1, which is not a folder."),
    ("train", ["--model_dir={0}/typo"], "There is no run in {0}/typo."),
    ("train", ["--model_dir={0}/new", *(f"--{side}={{0}}/latin1" for side in config.TEXTS)],
     "{0}/latin1, line 1 is not UTF-8: byte 0xfc"),
    ("train", ["--model_dir={0}/new", *(f"--{side}={{0}}/gone" for side in config.TEXTS)], "No such file: "),
])  # fmt: skip
def test_what_a_folder_or_a_text_cannot_be_is_reported_without_tensorflow(tmp_path, name, flags, said):
    make_run(tmp_path / "run")
    (tmp_path / "latin1").write_bytes(b"\xfc\n")
    result = run_stand_in(STAND_IN.format(""), name, *(flag.format(tmp_path) for flag in flags))
    assert complaint(result).startswith(f"Error: {said.format(tmp_path)}")
    assert {path.name for path in tmp_path.rglob("*")} == {"run", "config.json", "subwords.model", "latin1"}


@pytest.mark.medium
def test_training_on_two_devices_goes_on_where_one_stopped_and_needs_no_more_than_the_folder(trained, tmp_path):
    """It ends at once, in a process that has seen nothing before, from wherever it is started."""
    before = (trained[0] / "config.json").read_bytes()
    result = tool("train", f"--model_dir={trained[0]}", "--cpu_devices=2", cwd=tmp_path)
    assert result.returncode == 0, result.stderr.decode()
    said = result.stderr.decode()
    assert "update 3" in said and "2 device(s)" in said
    assert "Learning" not in said and "Changed" not in said
    assert (trained[0] / "config.json").read_bytes() == before


def test_all_flags_that_differ_from_the_run_s_are_reported_in_a_line(trained):
    """Without waiting for TensorFlow where they cannot be at all."""
    said = complaint(tool("train", f"--model_dir={trained[0]}", "--d_ff=32", "--seed=7", "--train_steps=9"))
    assert "--d_ff=32 (the run: 16), --seed=7 (the run: 1)." in said


def test_the_checkpoint_of_an_update_is_used_or_those_there_are_are_reported(trained):
    result = tool("translate", f"--model_dir={trained[0]}", "--checkpoint=2", stdin=b"one\n")
    assert result.returncode == 0 and f"Using the checkpoint of {trained[0]}: update 2." in result.stderr.decode()
    said = complaint(tool("translate", f"--model_dir={trained[0]}", "--checkpoint=7", stdin=b"one\n"))
    assert "There are updates: 1, 2, 3" in said


def test_a_vocabulary_that_the_text_cannot_give_is_reported_in_a_line(text, tmp_path):
    result = tool(
        "prepare", f"--data_dir={tmp_path}/data", "--vocab_size=30000", f"--train_source={text}/train1.en",
        f"--train_target={text}/train1.back", f"--valid_source={text}/valid.en", f"--valid_target={text}/valid.back",
    )  # fmt: skip
    *progress, said = result.stderr.decode().splitlines()
    assert result.returncode == 1 and said.startswith("Error: --vocab_size=30000 is too large"), result.stderr.decode()
    assert progress and not any("Traceback" in line for line in progress)


@pytest.mark.parametrize(
    ("name", "flag"),
    [("prepare", "data_dir"), ("train", "model_dir"), ("pretrain", "model_dir"), ("classify", "model_dir")],
)
def test_working_in_no_folder_is_refused(tmp_path, name, flag):
    """Story: `--data_dir=$UNSET` and `--model_dir=$UNSET` wrote into the working directory."""
    result = run_stand_in(STAND_IN.format(""), name, f"--{flag}=", "--dataset=builtin", cwd=tmp_path)
    assert complaint(result).endswith(f"Expected a folder as --{flag}. Received none.")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["train", "prepare"])
def test_text_of_unequal_length_is_reported_at_once(text, tmp_path, name):
    """Before TensorFlow is imported."""
    flags = [flag for flag in train_flags(text, tmp_path / "run") if name == "train" or "model_dir" not in flag]
    flags += [f"--valid_target={text}/train1.back"] + [f"--data_dir={tmp_path}/data"] * (name == "prepare")
    said = complaint(run_stand_in(STAND_IN.format(""), name, *flags))
    assert f"40 in {text}/valid.en and 150 in {text}/train1.back" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("flag", "named"), [
    ("--model_dir={}", "config.json"),
    ("--alpha=-5", "--alpha=-5: -5.0 is not a number in the range [0, 10]"),
    ("--beam_size=0", "beam_size=0"),
    ("--checkpoint=newest", "average|best"),
])  # fmt: skip
@pytest.mark.parametrize("name", ["translate", "export"])
def test_a_wrong_option_is_reported_in_one_line_and_at_once(tmp_path, name, flag, named):
    """TensorFlow takes seconds to import, and then speaks first."""
    arguments = {"translate": [], "export": ["--export_dir=x"]}[name]
    asked = [f"--model_dir={make_run(tmp_path / 'run')}", *arguments, flag.format(tmp_path)]
    assert named in complaint(run_stand_in(STAND_IN.format(""), name, *asked))


@pytest.mark.parametrize(("flags", "named"), [
    (["--n_best=3"], "--n_best must be at most --beam_size, 2. Received: --n_best=3."),
    (["--n_best=3", "--beam_size=1"], "--beam_size, 1."),
    (["--sample", "--n_best=2"], "--n_best has no effect with --sample. Received: --n_best=2."),
    (["--sample", "--alpha=1", "--diversity=1", "--beam_size=3"],
     "--beam_size and --alpha and --diversity have no effect with --sample. Received: --beam_size=3, "),
    (["--sample", "--mbr=chrf"], "--mbr=chrf needs a --draws of at least 2. Received: --draws=1."),
    (["--sample", "--draws=9", "--mbr=chrf", "--rerank_with=x"],
     "With --sample, give one of --mbr=chrf and --rerank_with=x."),
    (["--sample", "--jsonl", "--terms=x"],
     "--jsonl and --terms have no effect with --sample. Received: --jsonl=True, --terms='x'."),
    (["--jsonl", "--mbr=chrf"],
     "--jsonl cannot be combined with --mbr=chrf, which may choose translations without a phrase."),
    (["--terms=x", "--keep_patterns=tags", "--rerank_with=y"],
     "--terms and --keep_patterns cannot be combined with --rerank_with=y, which"),
    (["--terms=x", "--diverse_groups=2"], "--terms needs one group of beams. Received: --diverse_groups=2."),
    (["--sample", "--keep_patterns=tags"], "--keep_patterns has no effect with --sample."),
    (["--sample", "--alignment"], "--alignment has no effect with --sample."),
    (["--alignment", "--mbr=chrf"], "--alignment cannot be combined with --mbr=chrf."),
    (["--keep_patterns=tag"],
     "--keep_patterns: expected names among braces, printf, tags, urls, emails, and regular expressions"),
    (["--draws=5", "--seed=2"], "--draws and --seed have no effect without --sample. Received: --draws=5, --seed=2."),
    (["--sample", "--top_p=0"], "Expected more than 0 and at most 1. Received: --top_p=0.0."),
    (["--diverse_groups=4"], "--diverse_groups must divide --beam_size. Received: --diverse_groups=4, --beam_size=2."),
    (["--diverse_groups=2", "--beam_size=3"], "Received: --diverse_groups=2, --beam_size=3."),
    (["--input=gone"], "gone cannot be read: No such file or directory"),
], ids=str)  # fmt: skip
def test_what_cannot_be_translated_is_reported_before_the_model_is_loaded(tmp_path, flags, named):
    make_run(tmp_path, '{"version": 1, "model": {}, "decode": {"beam_size": 2}}')
    assert named in complaint(run_stand_in(STAND_IN.format(""), "translate", f"--model_dir={tmp_path}", *flags))


@pytest.mark.parametrize(("name", "flag"), [
    ("translate", "--n_best=-1"), ("translate", "--batch_size=-1"), ("translate", "--rerank_weight=-0.5"),
    ("train", "--cpu_devices=0"), ("evaluate", "--bootstrap_samples=-1"), ("evaluate", "--batch_size=-1"),
    ("filter", "--processes=-1"), ("serve", "--port=-1"), ("parse", "--phrases=-1"), ("parse", "--batch_size=-1"),
    ("prepare", "--processes=-1"), ("serve", "--n_best=0"), ("grid", "--cpu_devices=0"),
    ("table3", "--cpu_devices=0"), ("table3", "--divide_widths=0.5"), ("data_service", "--port=0"),
    ("pretrain", "--draws=0"), ("client", "--n_best=0"), ("client", "--timeout=0"), ("client", "--attempts=0"),
    ("table1", "--rounds=0"), ("table1", "--kernel=2"), ("compare", "--seed=0"),
    ("compare", "--bootstrap_samples=-1"), ("compare", "--randomization_trials=-1"), ("compare", "--examples=-1"),
])  # fmt: skip
def test_a_number_below_the_least_is_refused_by_the_name_of_its_flag(name, flag):
    """Story: --n_best=-1 printed all but the last, and --cpu_devices=0 was TensorFlow's error with a traceback."""
    result = tool(name, flag)
    assert result.returncode == 1 and b"Traceback" not in result.stderr
    assert result.stderr.decode().startswith(f"Error: flag {flag}: ") and " is not " in result.stderr.decode()


def test_a_program_that_takes_flags_only_refuses_words():
    for arguments in (["--model_dir=x", "text.en", "more"], ["text.en", "--model_dir=x", "more"]):
        result = tool("translate", *arguments)
        said = "Error: The program takes flags alone, as --name=value. Received: text.en more.\n"
        assert (result.returncode, result.stderr.decode()) == (2, said)


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_shows_the_program_and_every_option_with_its_default(name):
    result = tool(name, "--help")
    shown = result.stdout.decode()
    assert result.returncode == 0
    docstring = (ROOT / "tools" / f"{name}.py").read_text(encoding="utf-8").split('"""')[1].strip()
    assert docstring.splitlines()[0] in shown and f"python tools/{name}.py" in shown
    expected = {
        "train": ["--train_steps", "--d_model", "--model_dir", "100000", "--helpfull shows all flags"],
        "prepare": ["--data_dir", "--vocab_size", "37000"],
        "data_service": ["--port", "--host", "localhost", "--dispatcher"],
        "compare": ["--reference", "--source", "--bootstrap_samples", "10000"],
        "filter": ["--output_dir", "--max_length_ratio", "1.7"],
    }
    assert all(word in shown for word in expected.get(name, ["--model_dir", "--checkpoint", "average|best|latest"]))
    assert shown.count("  --flagfile: Name of a config, such as small") == 1 and "repeat this option" not in shown
    assert ("--ensemble_mean" in shown) == (name in ("translate", "evaluate", "export", "parse"))


def test_help_shows_no_default_of_the_search_where_it_is_that_of_the_run():
    shown = " ".join(tool("translate", "--help").stdout.decode().split())
    assert ("--beam_size: Beam size; 1 is greedy search (section 6.1). By default that of the run. --alpha") in shown
    assert "--search_cores: " in shown and "In an export 0 is 1. By default that of the run. Choosing" in shown


@pytest.mark.parametrize("name", ["train", "pretrain", "classify"])
def test_help_shows_no_options_without_effect_in_the_task(name):
    shown = tool(name, "--help").stdout.decode()
    assert "  --train_source:" in shown
    for option in ("train_target", "valid_target", "beam_size"):
        assert (f"  --{option}:" in shown) == (name == "train")


def test_documents_are_refused_on_beam_before_anything_is_written(tmp_path):
    (tmp_path / "text").write_text("one\n")
    given = ["--architecture=bert", f"--data_dir={tmp_path}/data", "--beam_runner=DirectRunner"]
    said = complaint(tool("prepare", *given, *(f"--{side}_source={tmp_path}/text" for side in ("train", "valid"))))
    assert "Expected a task with records of single lines, which Beam can divide. Received: pretraining, of " in said
    assert not (tmp_path / "data").exists()


def test_help_may_be_read_in_part():
    """As by `head`, which ends early."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, str(ROOT / "tools/serve.py"), "--help"]
    result = programs.run(command, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (result.returncode, result.stderr) == (141, b"")


@pytest.mark.parametrize("name", [*PROGRAMS, "client"])
def test_help_of_an_installed_program_shows_its_own_name(name):
    command = f"t2t-{name.replace('_', '-')}"
    code = f"import sys; sys.argv = ['/somewhere/bin/{command}', '--help']; from tools import {name}; {name}.main()"
    started = {"modules": programs.WITHOUT_TENSORFLOW, "capture_output": True, "env": ENVIRONMENT}
    shown = programs.run([sys.executable, "-c", code], **started).stdout.decode()
    assert f"\n{command} --" in shown and "tools/" not in shown
    assert f"--{dict(NEEDED, client='server').get(name, 'model_dir')}:" in shown and "--traceback" not in shown


@pytest.mark.parametrize("name", [path.stem for path in sorted((ROOT / "tools").glob("*.py"))])
def test_every_program_prints_its_version_without_tensorflow(name):
    result = run_stand_in(STAND_IN.format(""), name, "--version")
    assert (result.returncode, result.stdout.decode(), result.stderr) == (0, f"t2t_keras {__version__}\n", b"")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_flag_that_is_mistyped_or_left_out_is_asked_for(name):
    flag = NEEDED.get(name, "model_dir")
    for given, said in (([f"--{flag[:-1]}=x"], f"Did you mean: {flag}"), ([], f"--{flag}")):
        assert said in complaint(tool(name, *given))


# Modules that stand in for those that work; each call of `told` prints its arguments as a line of JSON.
TELLING = """
import dataclasses, json, pathlib
from types import SimpleNamespace

def told(*arguments, **options):
    print(json.dumps([*arguments, options], default=str), flush=True)

def module(name, **members):
    made = types.ModuleType(f"t2t_keras.{name}")
    vars(made).update(members)
    sys.modules[made.__name__] = made

def preparing(prepare, write=None):
    preparation = lambda *given: SimpleNamespace(run=lambda write: prepare(*given, write))
    module("data.prepare", Preparation=SimpleNamespace(of=preparation), write=write)

model = SimpleNamespace(config=SimpleNamespace(beam_size=9), model=None)

def fields(asked):
    sample = asked.sample and dataclasses.asdict(asked.sample)
    options = {name: getattr(asked, name) for name in asked.__dataclass_fields__}
    return options | {"model": described(asked.model), "sample": sample}

loaded.load = lambda run: told("load", **described(run)) or model
"""
OF_MODEL = ["--model_dir={0}", "--checkpoint=best", "--dtype=bfloat16", "--int8", "--beam_size=3", "--alpha=0.5"]
LOADED = {
    "model_dir": ["{0}"], "checkpoint": "best", "dtype": "bfloat16", "int8": True, **ALONE, "beam_size": 3,
    "alpha": 0.5,
}  # fmt: skip
OF_ENSEMBLE = [*OF_MODEL, "--model_dir={0},{0}/.", "--ensemble_weights=1,2.5", "--ensemble_mean=logs"]
ENSEMBLE = LOADED | {"model_dir": ["{0}", "{0}"], "ensemble_weights": [1.0, 2.5], "ensemble_mean": "logs"}
BEAM = {"runner": "FlinkRunner", "options": "--a --b", "exchange": "gs://x"}
# For a program: the modules, its flags, and the calls.
PAIR = ["--source_language=en", "--target_language=de"]
CALLS = {
    "translate": (
        "translator.translate_lines = lambda translate, lines, **options: told('lines', list(lines), **options) or []",
        [*OF_ENSEMBLE, "--batch_size=7"],
        [["load", ENSEMBLE], ["lines", ["one"], {"batch_size": 7, "read_ahead": 4096, "first": None}]]),
    "translate ": ("import t2t_keras.beam.runner_error\n"
                   "module('beam', translate_files=lambda asked, *given, **options: told(fields(asked), *given, "
                   "**options))",
                   [*OF_MODEL, "--batch_size=7", "--n_best=2", "--terms={0}/terms.tsv", "--keep_patterns=tags",
                    "--jsonl", "--alignment", "--word_scores", "--beam_runner=FlinkRunner", "--beam_options=--a --b",
                    "--input=gs://in/*", "--output=gs://out"],
                   [[{"model": LOADED, "n_best": 2, "sample": None, "mbr": "", "rerank_with": "", "rerank_weight": 1.0,
                      "rerank_direction": "forward", "jsonl": True, "terms": "{0}/terms.tsv", "keep_patterns": "tags",
                      "alignment": True, "word_scores": True, "batch_size": 7},
                     *("gs://in/*", "gs://out", {"runner": "FlinkRunner", "options": "--a --b"})]]),
    "translate  ": (
        "import t2t_keras.beam.runner_error\n"
        "module('beam', translate_files=lambda asked, *given, **options: told(fields(asked), *given, "
        "**options))",
        ["--model_dir={0}", "--sample", "--draws=3", "--seed=4", "--mbr=chrf", "--beam_runner=DirectRunner",
         "--input=a", "--output=b"],
        [[{"model": {"model_dir": ["{0}"], "checkpoint": "average", "dtype": "float32", "int8": False, **ALONE},
           "n_best": 0, "sample": {"draws": 3, "seed": 4, "temperature": 1.0, "top_k": 0, "top_p": 1.0}, "mbr": "chrf",
           "rerank_with": "", "rerank_weight": 1.0, "rerank_direction": "forward", "jsonl": False, "terms": "",
           "keep_patterns": "", "alignment": False, "word_scores": False, "batch_size": 0},
          *("a", "b", {"runner": "DirectRunner", "options": ""})]]),
    "parse": (
        "module('parsing.parser', parse_lines=lambda model, lines, **options: told('lines', list(lines), **options) or "
        "[])",
        [*OF_MODEL, "--batch_size=7"], [["load", LOADED], ["lines", ["one"], {"batch_size": 7, "read_ahead": 4096}]]),
    "export": ("module('serving.savedmodel', export_run=lambda folder, run: told('export', folder, **described(run)))\n"
               "module('serving.ctranslate2_format')",
               [*OF_ENSEMBLE, "--export_dir={0}/out"], [["export", "{0}/out", ENSEMBLE]]),
    "export ": (
        "module('serving.savedmodel')\n"
        "module('serving.ctranslate2_format', write=lambda found, *others: told('write', found is model, *others))",
        ["--model_dir={0}", "--checkpoint=2", "--format=ctranslate2", "--quantization=int8_float32",
         "--export_dir={0}/out"],
        [["load", {"model_dir": ["{0}"], "checkpoint": "2", "dtype": "float32", "int8": False, **ALONE}],
         ["write", True, "{0}/out", "int8_float32", {}]]),
    "export   ": (
        "module('serving.argos_format', metadata=lambda run, *given: told('metadata', run.folder, *given) or "
        "dict(from_name='A', from_code='a', to_name='B', to_code='b'), write=lambda found, *others: "
        "told('write', found is model, *others))",
        ["--model_dir={0}", "--format=argos", "--quantization=int8", "--from_name=A", "--from_code=aa", "--to_name=B",
         "--to_code=bb", "--export_dir={0}/out"],
        [["metadata", "{0}", "A", "B", "aa", "bb", {}],
         ["load", {"model_dir": ["{0}"], "checkpoint": "average", "dtype": "float32", "int8": False, **ALONE}],
         ["write", True, "{0}/out", {"from_name": "A", "from_code": "a", "to_name": "B", "to_code": "b"}, "int8", {}]]),
    "export  ": ("module('interop.marian_export', export_run=lambda run, folder, checkpoint, search, scores: "
                 "told(run.folder, folder, checkpoint, search.alpha, scores))",
                 ["--model_dir={0}", "--checkpoint=2", "--format=huggingface", "--scores=a.json,b.json", "--alpha=0.5",
                  "--export_dir={0}/out"],
                 [["{0}", "{0}/out", "2", 0.5, ["a.json", "b.json"], {}]]),
    "client": (
        "from t2t_keras.serving import client\n"
        "client.connect = lambda model: told('connect', *dataclasses.astuple(model)) or 'predict'\n"
        "client.retrying = lambda *given: told('retrying', *given) or 'again'\n"
        "client.translate_lines = lambda predict, lines, search, **sizes: told(predict, *dataclasses.astuple(search), "
        "**sizes) or []",
        ["--server=http://h:1", "--model_name=m", "--model_version=3", "--timeout=2.5", "--attempts=6",
         "--batch_size=7", "--parallel=5", "--n_best=2", "--alpha=0.25", "--max_length=8", "--prefix=p"],
        [["connect", "http://h:1", "m", 3, 2.5, {}], ["retrying", "predict", 6, {}],
         ["again", 2, 0.25, 8, "p", {"word_scores": False, "batch_size": 7, "parallel": 5}]]),
    "client ": (
        "from t2t_keras.serving import client\n"
        "client.connect = lambda model: None\n"
        "client.translate_lines = lambda predict, lines, search, word_scores, **sizes: (told(dataclasses.asdict(line), "
        "search, word_scores) or "
        "{'text': ['é'], 'score': [-1.5], 'constraints_met': [True], 'truncated': False} for line in lines)",
        ["--jsonl", "--word_scores", "--terms={0}/terms.tsv", "--keep_patterns=/z./"],
        [[{"text": "one zz", "constraints": ["x", "zz"], "avoid": [], "ordered": False,
           "terms": [["one", "eins", [], 0, False]], "free": [], "annotated": "", "others": {}},
          None, True, {}]]),
    "train": (
        "module('training.devices', make_strategy=lambda number, config: [number, config.train_steps], is_chief=lambda "
        "_: True)\n"
        "module('training.run', train=lambda start, quiet, **options: told(start.folder, "
        "start.options.data_dir, start.options.model.d_ff, **options))",
        ["--model_dir=~/run", "--data_dir=~/no/data", "--dataset=builtin", "--cpu_devices=3", "--train_steps=9",
         "--d_ff=77", "--dry_run", "--show_options"],
        [["{0}/run", "{0}/no/data", 77, {"strategy": [3, 9], "dry_run": True, "show_options": True}]]),
    "pretrain": ("module('experiments.masked_words', evaluate=lambda run, *given: told(run.folder, *given) or {}, "
                 "table=lambda found: 'a table')",
                 ["--model_dir={0}", "--evaluate=test", "--draws=3", "--checkpoint=best", "--data_dir={0}/data",
                  "--damaged_records=skip"],
                 [["{0}", "best", "test", 3, "{0}/data", "skip", {}]]),
    **{
        f"{name} ": (
            "module('training.devices', make_strategy=lambda number, config: number, is_chief=lambda _: True)\n"
            "module('training.run', train=lambda start, quiet, **options: "
            "(chosen := start.options) and told(start.folder, chosen.architecture, chosen.model.d_ff, "
            "chosen.train.label_smoothing, **options))",
            ["--model_dir={0}/run", "--dataset=builtin", "--cpu_devices=3", "--d_ff=77", "--dry_run", *more],
            [["{0}/run", architecture, 77, 0.0, {"strategy": 3, "dry_run": True, "show_options": False}]],
        )
        for name, architecture, more in (("pretrain", "bert", []), ("classify", "classifier", ["--labels=a,b"]))
    },
    "classify": (
        "module('serving.classifier', export=lambda folder, run, *given: told('export', folder, run.folder, *given))",
        ["--model_dir={0}", "--export_dir={0}/out", "--checkpoint=best"], [["export", "{0}/out", "{0}", "best", {}]]),
    "classify  ": (
        "model = SimpleNamespace(predict=lambda lines, batch_size: told(list(lines)) or [])\n"
        "module('serving.classifier', load=lambda run, *given: told('load', run.folder, *given) or (model, {}))",
        ["--model_dir={0}", "--predict", "--checkpoint=best"], [["load", "{0}", "best", {}], [["one"], {}]]),
    "classify   ": ("model = SimpleNamespace(predict=lambda lines, batch_size: told(list(lines)) or [])\n"
                    "module('serving.classifier', load=lambda *given: (model, {}))",
                    ["--model_dir=~", "--predict", "--input={0}/text"], [[["two"], {}]]),
    "prepare": ("module('system.tensorflow', hide_gpus=lambda: told('no GPU'))\n"
                "preparing(lambda chosen, folder, write: told(chosen.data.builtin_pairs, chosen.model.vocab_size, "
                "chosen.source_vocab_size, chosen.train.seed, folder, write))\n"
                "module('beam.preparing', writer=lambda **options: options)",
                ["--data_dir={0}/data", "--dataset=builtin", "--builtin_pairs=50", "--vocab_size=321",
                 "--source_vocab_size=322", "--seed=9", "--beam_runner=FlinkRunner", "--beam_options=--a --b",
                 "--beam_exchange=gs://x"],
                [["no GPU", {}], [50, 321, 322, 9, "{0}/data", BEAM, {}]]),
    "prepare ": ("module('system.tensorflow', hide_gpus=lambda: None)\n"
                 "preparing(lambda chosen, folder, write: write(), write=lambda **options: told('write', **options))",
                 ["--data_dir={0}/data", "--dataset=builtin", "--processes=3"], [["write", {"number": 3}]]),
    **{
        f"prepare{' ' * number}": (
            "module('system.tensorflow', hide_gpus=lambda: None)\n"
            "preparing(lambda chosen, folder, write: told(chosen.data.subwords_file), write=print)",
            ["--data_dir={0}/data", "--dataset=builtin", "--parent=runs/a", flag],
            [[subwords, {}]],
        )
        for number, (flag, subwords) in enumerate(
            (("--subwords_file={0}/subwords.model", "{0}/subwords.model"), ("--noparent_subwords", "")), 3
        )
    },
    "prepare  ": ("module('system.tensorflow', hide_gpus=lambda: None)\n"
                  "preparing(lambda chosen, folder, write: told(chosen.task.name), write=print)",
                  ["--data_dir=~/data", "--architecture=bert", "--train_source={0}/text", "--valid_source={0}/text"],
                  [["pretraining", {}]]),
    "filter": (
        "module('data.text_files', check_texts=lambda texts, languages: told('texts', texts, languages))\n"
        "module('filtering.judging', check_runs=lambda folders: told('runs', folders),\n"
        "    check=lambda config, folder: told('check', config.min_letters, folder), "
        "table=lambda summary: summary,\n"
        "    load_scores=lambda folders: told('load', folders) or 'scores',\n"
        "    filter_text=lambda source, target, folder, config, scores, number, progress: told(source, target, folder, "
        "config.min_letters, scores, number))",
        ["--source=a", "--target=b", "--output_dir={0}/out", "--forward_run={0}", "--backward_run={0}/../{0.name}",
         "--processes=3", "--min_letters=0.25", "--source_language=en", "--target_language=de"],
        [["runs", ["{0}", "{0}/../{0.name}"], {}], ["check", 0.25, "{0}/out", {}],
         ["texts", [["a", "b"]], ["en", "de"], {}], ["load", ["{0}", "{0}/../{0.name}"], {}],
         ["a", "b", "{0}/out", 0.25, "scores", 3, {}]]),
    "filter ": ("module('data.text_files', check_texts=lambda texts, languages: None)\n"
                "module('filtering.judging', check_runs=lambda folders: None,\n"
                "    check=lambda *given: None, table=lambda summary: summary, load_scores=lambda "
                "folders: folders)\n"
                "module('beam.filtering', filter_text=lambda source, target, folder, config, load_scores, **options: "
                "told(source, target, folder, config.min_letters, load_scores(), **options))",
                ["--source=a", "--target=b", "--output_dir={0}/out", "--forward_run={0}",
                 "--backward_run={0}/../{0.name}", "--min_letters=0.25", "--beam_runner=FlinkRunner",
                 "--beam_options=--a --b", "--beam_exchange=gs://x"],
                [["a", "b", "{0}/out", 0.25, ["{0}", "{0}/../{0.name}"], BEAM]]),
    "attention": (
        "module('reporting.attention', check_attention=lambda model: None, attention_of=lambda model, *pair: "
        "told(*pair) or SimpleNamespace(by_words=lambda: 'words'))\n"
        "module('reporting.attention_pictures', line_picture=lambda *of: ['lines', *of], heat_maps=lambda *of: "
        "['maps', *of])\n"
        "module('reporting.figures', FORMATS=('png', 'svg'), save=lambda picture, path: told(picture, path.name))\n"
        "module('reporting.pages', attention_page=lambda shown: f'{len(shown)} shown')",
        [*OF_MODEL, "--output={0}/out", "--layer=3", "--heads=3,1", "--words", "--format=svg", "--attention=cross"],
        [["load", LOADED], ["one", None, {}],
         [["lines", "words", "cross", 2, [2, 0]], "001_cross_layer_3_lines.svg", {}],
         [["maps", "words", "cross", 2, [2, 0]], "001_cross_layer_3_heat_maps.svg", {}]]),
    **{
        f"attention{' ' * number}": (
            "loaded.load = lambda run: model\n"
            "module('reporting.attention', check_attention=lambda model: None, attention_of=lambda model, *pair: "
            "None)\n"
            "module('reporting.attention_pictures', line_picture=lambda _, *of: of, heat_maps=lambda *of: None)\n"
            "module('reporting.figures', FORMATS=['png', 'svg'], "
            "save=lambda picture, path: picture and told(*picture))\n"
            "module('reporting.pages', attention_page=lambda shown: '')",
            ["--model_dir={0}", "--output={0}/out", *flags],
            [[kind, layer, None, {}] for kind, layers in drawn.items() for layer in layers],
        )
        for number, (flags, drawn) in enumerate(
            (
                (["--layer=all"], {"encoder": range(6), "decoder": range(4), "cross": range(4)}),
                ([], {"encoder": [4], "decoder": [2], "cross": [2]}),
            ), 1
        )
    },
    **{
        f"serve{' ' * number}": (
            "from t2t_keras.serving import served_models\n"
            "served_models.ServedModels.load_first = lambda self: told('load')\n"
            "server = SimpleNamespace(port=5, serve_forever=lambda: told('for ever'))\n"
            "module('serving.web_api', hosts=lambda host: ['as', host], WebApi=lambda models, identify, metrics, "
            "**options: told([[model.name, list(model.beginnings)] for model in models.models], **options))\n"
            "module('serving.web_server', serve=lambda application, *where: told(*where[:2]) or server)",
            [*folders, *flags],
            [
                [models, {"title": ", ".join(name for name, _ in models), "split": True, "timeout": 60.0} | options],
                [host, port, {}],
                ["load", {}],
                ["for ever", {}],
            ],
        )
        for number, (folders, models, flags, host, port, options) in enumerate(
            (
                (
                    ["--model_dir={0}"], [["{0.name}", [["en", "de"]]]],
                    [*PAIR, "--n_best=3", "--host=0.0.0.0", "--port=81", "--api_key=k", "--origins=http://a,http://b"],
                    "0.0.0.0", 81,
                    {"n_best": 3, "hosts": ["as", "0.0.0.0"], "api_key": "k", "origins": ["http://a", "http://b"]},
                ),
                (
                    ["--model_dir={0},{0}/."], [["{0.name} + {0.name}", [["en", "de"]]]],
                    [*PAIR, "--host=[::1]", "--nosplit_sentences", "--timeout=3"], "::1", 8000,
                    {
                        "n_best": 4, "hosts": ["as", "::1"], "api_key": "", "origins": [], "split": False,
                        "timeout": 3.0,
                    },
                ),
                (
                    ["--model_dir={0}", "--model_dir={0}"],
                    [["{0.name}", [["en", "fr"]]], ["{0.name}", [["en", "it"]]]],
                    ["--source_language=en", "--target_language=fr,it"], "localhost", 8000,
                    {"n_best": 4, "hosts": ["as", "localhost"], "api_key": "", "origins": []},
                ),
            )
        )
    },
    "serve   ": (
        "from t2t_keras.serving import client\n"
        "client.connect = lambda model: [model.server, model.name, model.timeout]\n"
        "module('serving.web_api', hosts=lambda host: ['as', host], WebApi=lambda models, title, **options: "
        "told(title, *models.models[0].load()) or SimpleNamespace())\n"
        "from t2t_keras.serving import served_models\n"
        "served_models.ServedModels.load_first = lambda self: None\n"
        "module('serving.web_server', serve=lambda *where: SimpleNamespace(port=5, serve_forever=lambda: None))",
        ["--server=http://user:secret@h:1", "--model_name=m", "--source_language=en", "--target_language=de"],
        [["m at http://***@h:1", "http://user:secret@h:1", "m", 60.0, {}]]),
    **{
        name: (
            "module('interop.huggingface', import_huggingface=told)",
            ["--from=some/model", "--model_dir={0}/run", *flags],
            [
                [
                    "some/model", "{0}/run",
                    {"source_language": "", "target_language": "", "native_positions": False} | options
                ]
            ],
        )
        for name, flags, options in (
            (
                "import_huggingface", ["--source_language=a", "--target_language=b"],
                {"source_language": "a", "target_language": "b"}
            ),
            ("import_marian", ["--native_positions"], {"native_positions": True}),
        )
    },
    "import_tensor2tensor": (
        "module('interop.tensor2tensor', import_tensor2tensor=told)",
        ["--from=folder", "--model_dir={0}/run", "--checkpoint=7", "--vocab=a", "--source_vocab=b", "--num_heads=3"],
        [["folder", "{0}/run",
          {"checkpoint": "7", "vocab": "a", "source_vocab": "b", "num_heads": 3, "target_space": None}]]),
    "import_opennmt": (
        "module('interop.opennmt', import_opennmt=told)",
        ["--from=some/run", "--model_dir={0}/run", "--checkpoint=avg", "--num_heads=4", "--nosource_end"],
        [["some/run", "{0}/run",
          {"checkpoint": "avg", "config": "", "source_vocabulary": "", "target_vocabulary": "", "source_subwords": "",
           "target_subwords": "", "num_heads": 4, "activation": "relu", "source_end": False}]]),
    "table1": (
        "module('experiments.table1', Settings=lambda *sizes: list(sizes), measure=lambda *given: told(*given) or "
        "{'machine': 'mine'}, table=lambda results, least: told('table', least), picture=lambda results, least: "
        "['picture', least])\n"
        "module('reporting.figures', encoded=lambda *given: told(*given) or b'', format_of=lambda path: told(path) or "
        "'svg')",
        ["--d=8", "--heads=2", "--window=5", "--kernel=7", "--lengths=32,4,16", "--fit_from=16", "--rounds=3",
         "--json={0}/json", "--output={0}/png"],
        [["{0}/png", {}], [[8, 2, 5, 7], [4, 16, 32], 3, "{0}/json", {}], ["table", 16, {}],
         [["picture", 16], "svg", {}]]),
    "attention_functions": (
        "module('training.devices', make_strategy=lambda number, config: [number, config.train_steps])\n"
        "def measure(settings, lengths, rounds, runs, folder, strategy, quiet):\n"
        "    told(settings, lengths, rounds, folder, strategy)\n"
        "    for key, each in runs.items():\n"
        "        told(*key, each.model.attention, each.model.num_heads, each.model.d_k, each.model.d_v, "
        "each.model.d_ff, each.data_dir, each.train.patience)\n"
        "    return {'machine': 'mine'}\n"
        "module('experiments.table1', Settings=lambda: SimpleNamespace(d=6, heads=3))\n"
        "module('experiments.attention_functions', measure=measure, tables=lambda found: told('tables') or '', "
        "picture=lambda found: 1)\n"
        "module('reporting.figures', save=lambda *given: told(*given))",
        ["--flagfile=quickstart", "--widths=64,8", "--lengths=32,4", "--rounds=3", "--output_dir={0}",
         "--data_dir={0}/d", "--train_steps=5", "--cooldown_steps=0", "--d_ff=24"],
        [["namespace(d=6, heads=3)", [4, 32], 3, "{0}", [1, 5], {}]]
        + [
            [function, d_k, function, 128 // d_k, d_k, d_k, 24, "{0}/d", 0, {}]
            for d_k in (8, 64)
            for function in ("additive", "scaled", "unscaled")
        ]
        + [["tables", {}], [1, "{0}/attention_functions.png", {}]]),
    "table3": (
        "module('training.devices', make_strategy=lambda number, config: [number, config.train_steps], "
        "chief_first=lambda strategy, write: write())\n"
        "def train(rows, output_dir, earlier, strategy, quiet):\n"
        "    shown = lambda each: [each.data_dir, each.model.d_ff, each.model.num_heads, each.train.train_steps, "
        "each.train.warmup_steps]\n"
        "    told(*([row, *shown(each)] for row, each in (*rows.items(), *earlier.items())), list(earlier), "
        "output_dir, strategy)\n"
        "    yield from rows\n"
        "module('experiments.grid', read_results=lambda folder, name: told(name) or dict.fromkeys(('A1', 'A4')))\n"
        "module('experiments.table3', LOGS='tb', RESULTS='*/r', train=train, "
        "write=lambda folder: told('write', folder) or ['a.md'])",
        ["--rows=base, A1", "--dataset=builtin", "--output_dir={0}", "--data_dir={0}/d", "--cpu_devices=2",
         "--train_steps=5", "--divide_widths=4"],
        [["*/r", {}],
         [*([row, "{0}/d", 512, heads, 5, 4000] for row, heads in (("base", 8), ("A1", 1), ("A4", 4))), ["A4"], "{0}",
          [2, 5], {}],
         ["write", "{0}", {}], ["write", "{0}", {}]]),
    "grid": (
        "module('training.devices', make_strategy=lambda number, config: [number, config.train_steps], "
        "chief_first=lambda strategy, write: write())\n"
        "def train(rows, runs, output_dir, scoring, strategy, quiet):\n"
        "    for name, each in runs.items():\n"
        "        told(name, each.train.seed, each.train.train_steps, each.model.d_ff, each.model.vocab_size, "
        "each.data_dir)\n"
        "    told(rows, output_dir, strategy, scoring.beam_size, scoring.tests, scoring.checkpoint, scoring.lowercase, "
        "scoring.tokenize)\n"
        "    yield from rows\n"
        "class Scoring(SimpleNamespace):\n"
        "    def __init__(self, search, *scoring):\n"
        "        names = ('tests', 'checkpoint', 'lowercase', 'tokenize')\n"
        "        super().__init__(beam_size=search.beam_size, **dict(zip(names, scoring, strict=True)))\n"
        "def write(folder, scoring):\n"
        "    return told('write', folder, scoring.tests) or ['a']\n"
        "module('experiments.grid', Scoring=Scoring, train=train, write=write)",
        ["--row=wide --d_ff=24", "--row=small --vocab_size=500 --train_steps=9", "--seeds=3,1", "--dataset=builtin",
         "--output_dir={0}/g", "--cpu_devices=2", "--train_steps=5", "--beam_size=3", "--lowercase", "--tokenize=none",
         "--checkpoint=best", "--test_source={0}/terms.tsv", "--test_target={0}/text", "--test_source={0}/text",
         "--test_target={0}/terms.tsv", "--row=short --max_length=50", "--row=epochs --epochs=2",
         "--row=same --epochs=0"],
        [
            [f"{row}/seed{seed}", seed, steps, d_ff, size, f"{{0}}/g/data/{data}/seed{seed}", {}]
            for seed in (3, 1)
            for row, steps, d_ff, size, data in (
                ("base", 5, 2048, 37000, "base"), ("wide", 5, 24, 37000, "base"), ("small", 9, 2048, 500, "small"),
                ("short", 5, 2048, 37000, "short"), ("epochs", 100000, 2048, 37000, "base"),
                ("same", 5, 2048, 37000, "base"),
            )
        ]
        + [
            [
                {
                    "base": {}, "wide": {"d_ff": 24}, "small": {"vocab_size": 500, "train_steps": 9},
                    "short": {"max_length": 50}, "epochs": {"epochs": 2.0}, "same": {"epochs": 0.0}
                }
            ]
            + [
                "{0}/g", [2, 5], 3, {"terms": [["one"], ["two"]], "text": [["two"], ["eins"]]}, "best", True,
                "none", {}
            ]
        ]
        + [["write", "{0}/g", {"terms": [["one"], ["two"]], "text": [["two"], ["eins"]]}, {}]] * 6),
}  # fmt: skip


@pytest.mark.parametrize("case", ["grid", "table3"])
def test_of_several_workers_the_chief_alone_writes_the_tables(tmp_path, case):
    """Story: each removed the logs that another was writing."""
    (tmp_path / "terms.tsv").write_text("one\teins\n")
    (tmp_path / "text").write_text("two\n")
    code, flags, _ = CALLS[case]
    code += "\nsys.modules['t2t_keras.training.devices'].chief_first = lambda strategy, write: told('waits')"
    flags = [flag.format(tmp_path) for flag in flags]
    result = run_stand_in(STAND_IN.format(TELLING + code), case, *flags, env=ENVIRONMENT)
    assert result.returncode == 0, result.stderr.decode()
    assert b"waits" in result.stdout and b"rote" not in result.stdout + result.stderr


@pytest.mark.parametrize("case", CALLS)
def test_a_program_passes_on_every_flag_to_what_does_the_work(tmp_path, case):
    """Without TensorFlow. A flag that is parsed and then forgotten is seen by no test of what does the work."""
    make_run(tmp_path)
    (tmp_path / "terms.tsv").write_text("one\teins\n")
    (tmp_path / "text").write_text("two\n")
    finished = {"attention_functions": "scaled_8", "grid": "g/base/seed3", "table3": "base"}
    if folder := finished.get(case):  # It gives no options to the next one.
        (tmp_path / folder).mkdir(parents=True)
        options = '{"version": 1, "model": {"d_ff": 7}, "train": {"warmup_steps": 7, "patience": 7}}'
        (tmp_path / folder / "config.json").write_text(options)
    code, flags, calls = CALLS[case]
    given = b'{"text": "one zz", "constraints": ["x"]}\n' if "--jsonl" in flags else b"one\n"
    environment = ENVIRONMENT | {"HOME": str(tmp_path)}
    flags = [flag.format(tmp_path) for flag in flags]
    result = run_stand_in(STAND_IN.format(TELLING + code), case.strip(), *flags, input=given, env=environment)
    assert result.returncode == 0, result.stderr.decode()
    assert "--dry_run" not in flags or b"Trained." not in result.stdout
    if "--jsonl" in flags and case.strip() == "client":
        # With --terms every line tells whether it is doubtful, also of a batch in which none has a term.
        written = '{"text": "é", "score": -1.5, "constraints_met": true, "doubtful": false}'
        assert result.stdout.splitlines()[-1].decode() == written
    assert [json.loads(line) for line in result.stdout.splitlines() if line.startswith(b"[")] == filled(calls, tmp_path)


# In place of a classifier: it tells what was loaded, and its label of a text is the last word of that.
LABELLING = STAND_IN.format(
    TELLING
    + """
import collections, itertools
from t2t_keras.evaluation import bag_of_words
from t2t_keras.runs.saved_run import SavedRun
Found = collections.namedtuple("Found", ["label", "probabilities"])
def predict(lines, batch_size=0):
    while batch := list(itertools.islice(lines, batch_size or 100)):
        yield from (Found(line.split()[-1], {"a": 0.25, "b": 0.75}) for line in batch)
model = SimpleNamespace(predict=lambda lines, **options: predict(iter(lines), **options))
module("serving.classifier", load=lambda run, *given: told(run.folder, *given) or (model, {}))
bag_of_words.accuracy = lambda known, texts: told(known, texts) or 0.625
"""
)


def test_a_classifier_is_evaluated_beside_what_its_training_text_alone_tells(tmp_path):
    """The training text has other labels most often than the text to evaluate."""
    (tmp_path / "config.json").write_text(CONFIG)
    (tmp_path / "train").write_text("a\tx\na\ty\nb\tz\n")
    (tmp_path / "test").write_text("b\tu b\nb\tv a\na\tw a\nb\tt b\n")
    flags = [f"--model_dir={tmp_path}", f"--evaluate={tmp_path}/test", "--checkpoint=best", "--json"]
    result = run_stand_in(LABELLING, "classify", *flags, f"--bag_of_words={tmp_path}/train", check=True)
    *told, figures = map(json.loads, result.stdout.splitlines())
    known, texts = [["a", "x"], ["a", "y"], ["b", "z"]], [["b", "u b"], ["b", "v a"], ["a", "w a"], ["b", "t b"]]
    assert told == [[known, texts, {}], [str(tmp_path), "best", {}]]
    assert figures == {"accuracy": 3 / 4, "most_frequent_label_of_training": 1 / 4, "bag_of_words": 0.625, "texts": 4}
    result = run_stand_in(LABELLING, "classify", *flags[:-1], f"--bag_of_words={tmp_path}/train", check=True)
    shown = result.stdout.decode().splitlines()
    assert shown[2:] == ["accuracy: 75.0%", "most frequent label of training: 25.0%", "bag of words: 62.5%", "texts: 4"]


def test_a_text_that_is_typed_is_classified_before_the_next(tmp_path):
    (tmp_path / "config.json").write_text(CONFIG)
    quiet = LABELLING.replace("told(run.folder, *given) or (model", "(model")
    classify = functools.partial(run_stand_in, quiet, "classify", f"--model_dir={tmp_path}", "--predict")
    programs.answers_what_is_typed(classify, "x b", b"b\ta=0.2500")


def test_labels_are_written_to_a_file(tmp_path):
    (tmp_path / "config.json").write_text(CONFIG)
    flags = [f"--model_dir={tmp_path}", "--predict", f"--output={tmp_path}/out"]
    result = run_stand_in(LABELLING, "classify", *flags, input=b"x a\ny b\n", check=True)
    assert (tmp_path / "out").read_text() == "a\ta=0.2500\tb=0.7500\nb\ta=0.2500\tb=0.7500\n"
    assert len(result.stdout.splitlines()) == 1  # What was loaded.


def filled(value, folder: pathlib.Path):
    """The same with the name of the folder in place of {0}."""
    if isinstance(value, dict):
        return {name: filled(each, folder) for name, each in value.items()}
    if isinstance(value, list):
        return [filled(each, folder) for each in value]
    return value.format(folder) if isinstance(value, str) else value


def test_fewer_translations_than_the_beam_holds_are_printed_if_fewer_are_asked_for(shouting):
    assert shouting("--n_best=1", input=b"one\ntwo\n").stdout == b"1\t-0.5000\tONE\n2\t-0.5000\tTWO\n"
